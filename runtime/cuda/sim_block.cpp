// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/sim_block.h"

#include <algorithm>
#include <cstring>

#include "ir/base/error.h"

namespace kiln::cuda::sim {

namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr const char* kWarpBarrier = "warp_barrier";

// The launch that kernels' calls are for: they know of nothing but addresses.
BlockRunner* running = nullptr;

}  // namespace

struct Hooks {
  static void* global(const void* address, unsigned bytes, int access) {
    return running->global(address, bytes, access);
  }
  static void* shared(unsigned offset, unsigned bytes, int access) {
    return running->shared(offset, bytes, access);
  }
  static void barrier() { running->barrier(); }
  static void warp_barrier() { running->meet(kWarpBarrier, nullptr, 0); }
  static const void* exchange(const char* word, const void* mine, unsigned bytes) {
    return running->meet(word, mine, bytes);
  }
  static void copy_async(unsigned to, const void* from, unsigned bytes, int valid) {
    running->copy_async(to, from, bytes, valid != 0);
  }
  static void copy_commit() { running->copy_commit(); }
  static void copy_wait(int pending) { running->copy_wait(pending); }
  static void fault(const char* what) {
    running->fail([&] { running->blame(kLaunchFailed, fmt::format("{}: {}", running->who(), what)); });
  }
  static const KnSimThread* self(const BlockRunner& r) { return &r.self_; }
};

BlockRunner::BlockRunner()
    : shared_(kSharedBytes),
      shared_cells_(kSharedBytes / Cell::kBytes),
      shared_rows_(kSharedBytes / Cell::kBytes),
      shared_written_(kSharedBytes / 16),
      shared_flying_(kSharedBytes / 16) {}

BlockRunner::~BlockRunner() = default;

KnSimHooks BlockRunner::hooks() const {
  return {Hooks::self(*this), Hooks::global,     Hooks::shared,      Hooks::barrier,   Hooks::warp_barrier,
          Hooks::exchange,    Hooks::copy_async, Hooks::copy_commit, Hooks::copy_wait, Hooks::fault};
}

void BlockRunner::restart() {
  now_ = Now();
  std::fill(shared_cells_.begin(), shared_cells_.end(), Cell{});
  std::fill(shared_rows_.begin(), shared_rows_.end(), Row{});
}

Fault BlockRunner::run(const LaunchSpec& spec, Random& random) {
  Fiber main;
  running = this;
  main_ = &main;
  spec_ = &spec;
  random_ = &random;
  fault_ = {};
  splits_.clear();
  began_.clear();
  now_.floor = ++now_.tick;
  self_.threads = spec.threads;
  self_.blocks = static_cast<long>(spec.blocks);
  threads_.resize(spec.threads);
  warps_.resize((spec.threads + 31) / 32);
  std::vector<int64_t> order(spec.blocks);
  for (int64_t b = 0; b < spec.blocks; ++b) order[b] = b;
  random.shuffle(order);
  for (const int64_t block : order) {
    run_block(block);
    if (fault_) break;
  }
  running = nullptr;
  return std::move(fault_);
}

void BlockRunner::begin_block(int64_t block) {
  now_.block = now_.phase = now_.warp = ++now_.tick;
  began_.emplace_back(now_.tick, block);
  self_.block = static_cast<long>(block);
  arrived_ = ended_ = 0;
  ready_.resize(threads_.size());
  for (int t = 0; t < spec_->threads; ++t) {
    Thread& thread = threads_[t];
    thread.fiber = nullptr;
    thread.state = State::ready;
    thread.parity = 0;
    thread.copies.clear();
    thread.commits.clear();
    ready_[t] = t;
  }
  for (size_t w = 0; w < warps_.size(); ++w) {
    warps_[w].arrived = 0;
    warps_[w].size = std::min(32, spec_->threads - static_cast<int>(w) * 32);
    warps_[w].met = now_.tick;
  }
  const size_t words = (spec_->shared_bytes + 15) / 16;
  std::fill_n(shared_written_.begin(), words, 0);
  std::fill_n(shared_flying_.begin(), words, 0);
}

void BlockRunner::run_block(int64_t block) {
  begin_block(block);
  idle_.clear();
  for (const auto& f : fibers_) idle_.push_back(f.get());
  starting_ = pick();
  fiber_ = take_fiber();
  fiber_->switch_from(*main_);
}

Fiber* BlockRunner::take_fiber() {
  if (idle_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(kStackBytes));
    idle_.push_back(fibers_.back().get());
  }
  Fiber* f = idle_.back();
  idle_.pop_back();
  f->prepare(&BlockRunner::thread_main);
  return f;
}

// Runs threads to their ends: one after the other on this fiber, as long as none of them waits.
Fiber* BlockRunner::thread_main() {
  BlockRunner& r = *running;
  int t = r.starting_;
  for (;;) {
    Fiber* const fiber = r.fiber_;
    r.threads_[t].fiber = fiber;
    r.set_current(t);
    r.spec_->entry(r.spec_->parameters);
    r.threads_[t].state = State::ended;
    r.threads_[t].fiber = nullptr;
    ++r.ended_;
    t = r.pick();
    if (t < 0) {
      if (r.ended_ < r.spec_->threads) r.report_stuck();
      r.fiber_ = nullptr;
      return r.main_;
    }
    if (!r.threads_[t].fiber) continue;
    r.idle_.push_back(fiber);
    return r.fiber_ = r.threads_[t].fiber;
  }
}

int BlockRunner::pick() {
  if (ready_.empty()) return -1;
  const uint32_t i = random_->below(static_cast<uint32_t>(ready_.size()));
  const int t = ready_[i];
  ready_[i] = ready_.back();
  ready_.pop_back();
  return t;
}

void BlockRunner::set_current(int thread) {
  self_.thread = thread;
  now_.thread = static_cast<uint32_t>(thread);
  now_.warp = warps_[thread / 32].met;
}

void BlockRunner::switch_to(int thread) {
  Fiber* const from = fiber_;
  Fiber* to = threads_[thread].fiber;
  if (!to) {
    starting_ = thread;
    to = take_fiber();
  }
  fiber_ = to;
  to->switch_from(*from);
}

void BlockRunner::wait() {
  const int mine = self_.thread;
  const int next = pick();
  if (next < 0) {
    report_stuck();
    leave();
  }
  if (next != mine) switch_to(next);
  set_current(mine);
}

void BlockRunner::leave() {
  Fiber* const from = fiber_;
  fiber_ = nullptr;
  main_->switch_from(*from);
  __builtin_trap();
}

void BlockRunner::blame(Result code, std::string text) { fault_ = {code, std::move(text)}; }

void BlockRunner::barrier() {
  threads_[self_.thread].state = State::at_barrier;
  if (++arrived_ == spec_->threads) {
    arrived_ = 0;
    now_.phase = ++now_.tick;
    for (int t = 0; t < spec_->threads; ++t) {
      threads_[t].state = State::ready;
      ready_.push_back(t);
    }
  }
  wait();
}

const void* BlockRunner::meet(const char* word, const void* mine, unsigned bytes) {
  const int t = self_.thread, lane = t % 32;
  Warp& warp = warps_[t / 32];
  Thread& thread = threads_[t];
  if (warp.arrived > 0 && (std::strcmp(warp.word, word) != 0 || warp.bytes != bytes))
    fail([&] { blame_meeting(warp, word, bytes); });
  warp.word = word;
  warp.bytes = bytes;
  if (bytes > kRowBytes)
    fail([&] { blame(kLaunchFailed, fmt::format("exchange: {} brings {} bytes, over 32", who(), bytes)); });
  const auto* rows = warp.rows[thread.parity];
  if (bytes > 0) {
    std::byte* row = warp.rows[thread.parity][lane];
    std::memset(row, 0, kRowBytes);
    std::memcpy(row, mine, bytes);
    // The next exchange must not write into rows that a slower lane still reads.
    thread.parity ^= 1;
  }
  thread.state = State::at_warp;
  if (++warp.arrived == warp.size) {
    warp.arrived = 0;
    if (bytes == 0) warp.met = ++now_.tick;
    for (int i = t - lane; i < t - lane + warp.size; ++i) {
      threads_[i].state = State::ready;
      ready_.push_back(i);
    }
  }
  wait();
  return rows;
}

}  // namespace kiln::cuda::sim
