// SPDX-License-Identifier: Apache-2.0
// Fibers: a stack and the place where its run stopped. A switch saves the registers that a call keeps, and
// no more (about 10 ns; ucontext also asks the kernel for the signal mask).
#pragma once

#include <cstddef>

namespace kiln::cuda::sim {

/// Threads: a fiber runs on one thread at a time.
class Fiber {
 public:
  /// The calling thread's own: only room for where it stopped.
  Fiber();
  /// With a stack and a page below it that cannot be touched. Throws: device, when there is no memory.
  explicit Fiber(size_t stack_bytes);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// The next switch to this fiber calls `entry`, which returns the fiber to go to in the end. What ran here
  /// and has not ended is forgotten.
  void prepare(Fiber* (*entry)());
  /// Leaves `from`, the running fiber, and goes on in this one.
  void switch_from(Fiber& from);

 private:
  friend struct FiberEntry;
  void arrived();
  void build_frame();

  void* stopped_ = nullptr;  ///< stack pointer
  Fiber* (*entry_)() = nullptr;
  bool begun_ = false, ended_ = false;  ///< an entry, and the last one: the stack is as before it
  std::byte* map_ = nullptr;            ///< with the guard page
  size_t map_bytes_ = 0;
  // For sanitizers: what they know of this stack, and who switched to it.
  void* fake_stack_ = nullptr;
  const void* bottom_ = nullptr;
  size_t bytes_ = 0;
  void* tsan_ = nullptr;
  Fiber* before_ = nullptr;
};

}  // namespace kiln::cuda::sim
