// SPDX-License-Identifier: Apache-2.0
// Runs the blocks of one launch, one after the other in a random order, the threads of a block as fibers
// that change only where they meet. Every access of a kernel goes through here and is checked.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ir/sim_abi.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/sim_fiber.h"
#include "runtime/cuda/sim_random.h"
#include "runtime/cuda/sim_reach.h"
#include "runtime/cuda/sim_shadow.h"
#include "runtime/cuda/sim_space.h"

namespace kiln::cuda::sim {

/// What went wrong on the device.
struct Fault {
  Result code = kSuccess;
  std::string text;
  explicit operator bool() const { return code != kSuccess; }
};

/// A launch as it runs.
struct LaunchSpec {
  std::string kernel;
  void (*entry)(const void*) = nullptr;
  const void* parameters = nullptr;
  int threads = 0;
  int64_t blocks = 0;
  unsigned shared_bytes = 0;
  DeviceSpace* space = nullptr;
  const Reach* reach = nullptr;
};

/// Threads: one launch at a time in a process.
class BlockRunner {
 public:
  BlockRunner();
  ~BlockRunner();

  /// Runs every thread of every block. The first fault ends it.
  Fault run(const LaunchSpec& spec, Random& random);
  /// What kernels call. `self` in it lives as long as this.
  KnSimHooks hooks() const;
  /// Ticks are running out: spaces must forget touches, then restart.
  bool worn() const { return now_.tick > 1u << 31; }
  void restart();

  static constexpr unsigned kSharedBytes = 227 << 10;  ///< a block's, as on an H100
  static constexpr int kMaxThreads = 1024;

 private:
  friend struct Hooks;
  static constexpr unsigned kRowBytes = 32;
  enum class State : uint8_t { ready, at_barrier, at_warp, ended };
  struct Copy {
    unsigned to = 0, bytes = 0;
    const void* from = nullptr;
    bool valid = false;
    std::byte seen[16];  ///< the source when the copy began
  };
  struct Thread {
    Fiber* fiber = nullptr;  ///< null: not begun
    State state = State::ready;
    uint8_t parity = 0;
    std::vector<Copy> copies;     ///< begun and not waited for
    std::vector<size_t> commits;  ///< for each group, where in copies it ends
  };
  struct Warp {
    int arrived = 0, size = 0;
    const char* word = nullptr;  ///< what they meet in
    unsigned bytes = 0;
    uint32_t met = 0;  ///< tick of the last meeting
    alignas(32) std::byte rows[2][32][kRowBytes];
  };

  // Threads.
  void run_block(int64_t block);
  void begin_block(int64_t block);
  static Fiber* thread_main();
  int pick();
  void set_current(int thread);
  void switch_to(int thread);
  void wait();
  Fiber* take_fiber();
  [[noreturn]] void leave();
  /// Ends the launch with what `record` says. Nothing on the fiber is destroyed: nobody who calls this may
  /// own anything.
  template <class F>
  [[noreturn]] void fail(F record) {
    record();
    leave();
  }

  // What kernels call.
  void* global(const void* address, unsigned bytes, int access);
  void* shared(unsigned offset, unsigned bytes, int access);
  void barrier();
  const void* meet(const char* word, const void* mine, unsigned bytes);
  void copy_async(unsigned to, const void* from, unsigned bytes, bool valid);
  void copy_commit();
  void copy_wait(int pending);
  void land(const Copy& copy);

  // Checks; a fault leaves the fiber.
  bool check_reach(Address address, unsigned bytes, bool write);  ///< whether the launch only reads there
  void check_gap(Address address, unsigned bytes);
  void check_shared(unsigned offset, unsigned bytes, bool write);

  // Words for a fault.
  void blame(Result code, std::string text);
  void blame_reach(Address address, unsigned bytes, bool write);
  void blame_conflict(const Conflict& c, const std::string& access);
  void blame_meeting(const Warp& warp, const char* word, unsigned bytes);
  void report_stuck();
  std::string who() const;
  std::string access(unsigned bytes, bool write, const std::string& place) const;
  std::string global_access(Address address, unsigned bytes, bool write) const;
  std::string shared_access(unsigned offset, unsigned bytes, bool write) const;

  const LaunchSpec* spec_ = nullptr;
  Random* random_ = nullptr;
  Fault fault_;
  KnSimThread self_{};
  Now now_;
  Splits splits_;
  std::vector<std::pair<uint32_t, int64_t>> began_;  ///< tick and block
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<int> ready_;
  int arrived_ = 0, ended_ = 0;
  Fiber* fiber_ = nullptr;  ///< the running one
  Fiber* main_ = nullptr;
  int starting_ = 0;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  // Shared memory, and for each byte a bit: was it written, is a copy on its way there.
  std::vector<std::byte> shared_;
  std::vector<Cell> shared_cells_;
  std::vector<Row> shared_rows_;
  std::vector<uint16_t> shared_written_, shared_flying_;
};

}  // namespace kiln::cuda::sim
