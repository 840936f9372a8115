// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/sim_fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "ir/base/error.h"

// void kiln_sim_switch(void** stopped, void* stack): keeps where this fiber stopped, goes on at `stack`.
// kiln_sim_enter: where a prepared fiber begins; calls the function that its frame holds with the fiber.
#if defined(__x86_64__)
asm(R"(
.text
.hidden kiln_sim_switch
.globl kiln_sim_switch
.type kiln_sim_switch, @function
kiln_sim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size kiln_sim_switch, .-kiln_sim_switch
.hidden kiln_sim_enter
.globl kiln_sim_enter
.type kiln_sim_enter, @function
kiln_sim_enter:
  movq %r12, %rdi
  xorl %ebp, %ebp
  callq *%r13
  ud2
.size kiln_sim_enter, .-kiln_sim_enter
)");
#elif defined(__aarch64__)
asm(R"(
.text
.hidden kiln_sim_switch
.globl kiln_sim_switch
.type kiln_sim_switch, %function
kiln_sim_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size kiln_sim_switch, .-kiln_sim_switch
.hidden kiln_sim_enter
.globl kiln_sim_enter
.type kiln_sim_enter, %function
kiln_sim_enter:
  mov x0, x19
  mov x29, #0
  blr x20
  brk #1
.size kiln_sim_enter, .-kiln_sim_enter
)");
#else
#error "the simulated CUDA device switches fibers by instructions of x86-64 and aarch64 only"
#endif

extern "C" {
void kiln_sim_switch(void** stopped, void* stack);
void kiln_sim_enter();
#if defined(__SANITIZE_ADDRESS__)
void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, size_t bytes);
void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom_before, size_t* bytes_before);
void __asan_unpoison_memory_region(const volatile void* address, size_t bytes);
#endif
#if defined(__SANITIZE_THREAD__)
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
#endif
}

namespace kiln::cuda::sim {

struct FiberEntry {
  [[noreturn]] static void enter(void* fiber) {
    auto* self = static_cast<Fiber*>(fiber);
    self->arrived();
    for (;;) {
      self->begun_ = true;
      self->ended_ = false;
      Fiber* const next = self->entry_();
      self->ended_ = true;
      next->switch_from(*self);  // returns when this one has been prepared anew
    }
  }
};

Fiber::Fiber() {
#if defined(__SANITIZE_THREAD__)
  tsan_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(size_t stack_bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  bytes_ = (stack_bytes + page - 1) / page * page;
  map_bytes_ = bytes_ + page;
  void* map = mmap(nullptr, map_bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  KILN_CHECK(map != MAP_FAILED, device,
             "simulated CUDA device: no memory for a thread's stack of {} bytes: {}", bytes_,
             std::strerror(errno));
  map_ = static_cast<std::byte*>(map);
  mprotect(map_, page, PROT_NONE);
  bottom_ = map_ + page;
#if defined(__SANITIZE_THREAD__)
  tsan_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  if (!map_) return;
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(tsan_);
#endif
  munmap(map_, map_bytes_);
}

void Fiber::prepare(Fiber* (*entry)()) {
  entry_ = entry;
  if (ended_) return;
  fake_stack_ = nullptr;
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(bottom_, bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
  if (begun_) {  // the functions that will never return are on the sanitizer's own stack, too
    __tsan_destroy_fiber(tsan_);
    tsan_ = __tsan_create_fiber(0);
  }
#endif
  begun_ = false;
  build_frame();
}

/// Where the first switch finds registers, and returns to kiln_sim_enter.
void Fiber::build_frame() {
  const auto top = (reinterpret_cast<uintptr_t>(bottom_) + bytes_) & ~uintptr_t{15};
#if defined(__x86_64__)
  // r15 r14 r13 r12 rbx rbp and where to return to; after that the stack pointer is a multiple of 16.
  auto* frame = reinterpret_cast<uintptr_t*>(top) - 9;
  std::memset(frame, 0, 9 * sizeof *frame);
  frame[2] = reinterpret_cast<uintptr_t>(&FiberEntry::enter);  // r13
  frame[3] = reinterpret_cast<uintptr_t>(this);                // r12
  frame[6] = reinterpret_cast<uintptr_t>(&kiln_sim_enter);
  stopped_ = frame;
#else
  auto* frame = reinterpret_cast<uintptr_t*>(top) - 20;  // x19 to x30, d8 to d15
  std::memset(frame, 0, 20 * sizeof *frame);
  frame[0] = reinterpret_cast<uintptr_t>(this);
  frame[1] = reinterpret_cast<uintptr_t>(&FiberEntry::enter);
  frame[11] = reinterpret_cast<uintptr_t>(&kiln_sim_enter);
  stopped_ = frame;
#endif
}

void Fiber::switch_from(Fiber& from) {
  before_ = &from;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake_stack_, bottom_, bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(tsan_, 0);
#endif
  kiln_sim_switch(&from.stopped_, stopped_);
  from.arrived();
}

void Fiber::arrived() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack_, &before_->bottom_, &before_->bytes_);
#endif
}

}  // namespace kiln::cuda::sim
