// SPDX-License-Identifier: Apache-2.0
// For tests of CUDA words and templates: compiles a source for the simulated device and runs its kernels,
// block by block, on the least that ir/sim_abi.h asks for. Global addresses are those of the host.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "codegen/compile_sim.h"
#include "ir/sim_abi.h"
#include "runtime/cuda/sim_fiber.h"
#include "runtime/image.h"

namespace kiln::testing {

/// One block at a time: every thread on a fiber, in turns, until it meets others.
class SimBlock {
 public:
  SimBlock(int threads, size_t shared_bytes)
      : shared_(shared_bytes + 128, 0xff), threads_(static_cast<size_t>(threads)) {
    active_ = this;
    rows_.resize((threads_.size() + 31) / 32);
  }
  /// Runs block `block` of `blocks`. Throws: runtime_error, on what a device would not do.
  void run(void (*kernel)(const void*), const void* parameters, long block, long blocks) {
    kernel_ = kernel, parameters_ = parameters, fault_.clear();
    std::memset(shared_.data(), 0xff, shared_.size());
    self_ = {0, static_cast<int>(threads_.size()), block, blocks};
    left_ = threads_.size();
    for (Warp& w : rows_) w = {};
    for (Thread& t : threads_) start(t);
    while (left_ > 0 && fault_.empty()) step();
    if (!fault_.empty()) throw std::runtime_error(fault_);
  }
  static const KnSimHooks* hooks() {
    static const KnSimHooks h = {
        &self_,
        [](const void* p, unsigned n, int) { return at(p, n); },
        [](unsigned o, unsigned n, int) { return active_->shared_at(o, n); },
        [] { active_->meet(active_->threads_.size(), active_->barrier_); },
        [] { active_->meet(32, active_->rows_[active_->warp()].meeting); },
        [](const char* w, const void* mine, unsigned n) { return active_->exchange(w, mine, n); },
        [](unsigned to, const void* from, unsigned n, int valid) { active_->copy(to, from, n, valid); },
        [] { active_->thread().groups.emplace_back(); },
        [](int pending) { active_->wait(static_cast<size_t>(pending)); },
        [](const char* what) { active_->fail(what); }};
    return &h;
  }

 private:
  struct Copy {
    unsigned to, bytes;
    uint8_t data[16];
  };
  struct Thread {
    cuda::sim::Fiber fiber{64 << 10};
    bool done = false;
    std::deque<std::vector<Copy>> groups;  // the last is open
  };
  struct Meeting {
    size_t here = 0;
    uint64_t round = 0;
  };
  struct Warp {
    Meeting meeting;
    std::string word;
    char rows[2][32][32];
  };

  Thread& thread() { return threads_[static_cast<size_t>(self_.thread)]; }
  size_t warp() const { return static_cast<size_t>(self_.thread / 32); }
  void start(Thread& t) {
    t.done = false;
    t.groups.assign(1, {});
    t.fiber.prepare([] {
      active_->kernel_(active_->parameters_);
      active_->thread().done = true;
      --active_->left_;
      return &active_->main_;
    });
  }
  /// Every thread that is left goes as far as it can.
  void step() {
    for (size_t i = 0; i < threads_.size() && fault_.empty(); ++i) {
      if (threads_[i].done) continue;
      self_.thread = static_cast<int>(i);
      threads_[i].fiber.switch_from(main_);
    }
    if (++idle_ > 1000000) fault_ = "threads wait for each other";
  }
  void yield() {
    const int mine = self_.thread;
    main_.switch_from(thread().fiber);
    self_.thread = mine;
  }
  [[noreturn]] void fail(std::string what) {
    fault_ = fmt::format("{} (thread {} of block {})", what, self_.thread, self_.block);
    while (true) yield();
  }
  void meet(size_t count, Meeting& m) {
    idle_ = 0;
    const uint64_t round = m.round;
    if (++m.here == count) m.here = 0, ++m.round;
    while (m.round == round) yield();
  }
  const void* exchange(const char* word, const void* mine, unsigned bytes) {
    Warp& w = rows_[warp()];
    if (w.meeting.here == 0) w.word = word;
    if (w.word != word) fail(fmt::format("lanes meet in {} and {}", w.word, word));
    auto& rows = w.rows[w.meeting.round % 2];
    std::memcpy(rows[self_.thread % 32], mine, bytes);
    meet(32, w.meeting);
    return rows;
  }
  static void* at(const void* p, unsigned bytes) {
    if (reinterpret_cast<uintptr_t>(p) % bytes) active_->fail("misaligned global access");
    return const_cast<void*>(p);
  }
  void* shared_at(unsigned offset, unsigned bytes) {
    if (offset % bytes || offset + bytes > shared_.size() - 128)
      fail(fmt::format("shared access of {} bytes at {} of {}", bytes, offset, shared_.size() - 128));
    return base() + offset;
  }
  uint8_t* base() { return shared_.data() + (128 - reinterpret_cast<uintptr_t>(shared_.data()) % 128) % 128; }
  void copy(unsigned to, const void* from, unsigned bytes, int valid) {
    shared_at(to, bytes);
    Copy c{to, bytes, {}};
    if (valid) std::memcpy(c.data, at(from, bytes), bytes);
    std::memset(base() + to, 0xff, bytes);  // not there yet
    thread().groups.back().push_back(c);
  }
  void wait(size_t pending) {
    auto& groups = thread().groups;
    while (groups.size() > pending + 1) {
      for (const Copy& c : groups.front()) std::memcpy(base() + c.to, c.data, c.bytes);
      groups.pop_front();
    }
  }

  static inline SimBlock* active_ = nullptr;
  static inline KnSimThread self_{};
  std::vector<uint8_t> shared_;
  std::vector<Thread> threads_;
  std::vector<Warp> rows_;
  Meeting barrier_;
  cuda::sim::Fiber main_;
  void (*kernel_)(const void*) = nullptr;
  const void* parameters_ = nullptr;
  size_t left_ = 0;
  int64_t idle_ = 0;
  std::string fault_;
};

/// The kernels of one source, loaded.
class SimKernels {
 public:
  SimKernels(std::string source, const std::vector<std::string>& names, DiskCache* cache = nullptr)
      : image_(compile_sim(module(std::move(source), names), cache)) {
    *reinterpret_cast<const KnSimHooks**>(image_.kernel("kn_sim")) = SimBlock::hooks();
  }
  static CudaModule module(std::string source, const std::vector<std::string>& names) {
    CudaModule m{"test.cu", std::move(source), "", {}};
    for (const std::string& n : names) m.kernels.push_back({n});
    return m;
  }
  void run(const std::string& name, int threads, int64_t blocks, size_t shared_bytes,
           const std::vector<void*>& buffers, const std::vector<int64_t>& dims,
           const int64_t* guard = nullptr) const {
    std::vector<uint64_t> block;
    for (void* b : buffers) block.push_back(reinterpret_cast<uint64_t>(b));
    if (buffers.empty()) block.push_back(0);
    for (const int64_t d : dims) block.push_back(static_cast<uint64_t>(d));
    if (dims.empty()) block.push_back(0);
    block.push_back(reinterpret_cast<uint64_t>(guard));
    const auto kernel = reinterpret_cast<void (*)(const void*)>(reinterpret_cast<void*>(image_.kernel(name)));
    SimBlock sim(threads, shared_bytes);
    for (int64_t b = 0; b < blocks; ++b) sim.run(kernel, block.data(), b, blocks);
  }

 private:
  LoadedImage image_;
};

}  // namespace kiln::testing
