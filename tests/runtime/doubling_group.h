// SPDX-License-Identifier: Apache-2.0
// A process group of two ranks of which the other always sends what this one does: sums are doubled. Each
// collective takes a while on a thread of its own, and what it is doing is watched.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <vector>

#include "ir/op.h"
#include "runtime/collective.h"
#include "runtime/reduce.h"
#include "runtime/wire.h"

namespace kiln::testing {

/// As HostFunctions::all_reduce.
inline void double_in_place(int64_t, DType wire, const TensorRef& t) {
  if (wire != t.dtype) {  // what both send: its mean with itself is its double
    std::vector<uint16_t> sent(static_cast<size_t>(t.numel()));
    encode_mean(t.data, t.dtype, sent.data(), wire, t.numel(), 2);
    reduce_parts({sent.data(), sent.data()}, sent.data(), t.numel(), wire, ReduceOp::sum);
    return decode(sent.data(), wire, t.data, t.dtype, t.numel());
  }
  for (int64_t i = 0; i < t.numel(); ++i) {
    if (t.dtype == DType::f64) static_cast<double*>(t.data)[i] *= 2;
    else static_cast<float*>(t.data)[i] *= 2;
  }
}

class DoublingGroup : public ProcessGroup {
 public:
  /// How long each takes.
  std::chrono::milliseconds delay{0};
  /// The collective of this number fails.
  int fail_at = -1;
  std::vector<int64_t> counts;        ///< of each all_reduce or mean, in order
  std::vector<CollectiveSite> sites;  ///< the same
  std::atomic<int> running{0}, waited{0};

  int rank() const override { return 0; }
  int size() const override { return 2; }
  const char* backend() const override { return "doubling"; }
  WorkPtr all_reduce(void* data, int64_t count, DType dtype, ReduceOp op,
                     const CollectiveSite& site) override {
    EXPECT_EQ(op, ReduceOp::sum);
    return all_reduce_mean(data, count, dtype, dtype, site);
  }
  WorkPtr all_reduce_mean(void* data, int64_t count, DType dtype, DType wire,
                          const CollectiveSite& site) override {
    const bool fails = static_cast<int>(counts.size()) == fail_at;
    counts.push_back(count);
    sites.push_back(site);
    ++running;
    return std::make_shared<Task>(*this, std::async(std::launch::async, [=, this] {
      std::this_thread::sleep_for(delay);
      --running;
      if (fails) throw Error(ErrorKind::comm, "rank 1 is gone");
      double_in_place(0, wire, {dtype, data, {count}, {1}});
    }));
  }
  WorkPtr broadcast(void*, int64_t, DType, int, const CollectiveSite&) override { return none(); }
  WorkPtr all_gather(const void*, void*, int64_t, DType, const CollectiveSite&) override { return none(); }
  WorkPtr reduce_scatter(const void*, void*, int64_t, DType, ReduceOp, const CollectiveSite&) override {
    return none();
  }
  WorkPtr barrier(const CollectiveSite&) override { return none(); }
  WorkPtr run(const std::string&, std::function<void()>, const CollectiveSite&) override { return none(); }
  std::shared_ptr<Store> store() const override { return nullptr; }
  void set_timeout(Seconds) override {}
  Seconds timeout() const override { return Seconds(1); }
  void extend_timeout_once(Seconds) override {}
  std::optional<std::string> broken() override { return std::nullopt; }
  std::optional<std::string> failure() override { return std::nullopt; }
  void abort(const std::string&) override {}

 private:
  struct Task : Work {
    Task(DoublingGroup& g, std::future<void> f) : group(g), future(std::move(f)) {}
    void wait() override {
      ++group.waited;
      future.get();
    }
    bool done() const override {
      return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    }
    Times times() const override { return {1, 2}; }
    DoublingGroup& group;
    std::future<void> future;
  };
  static WorkPtr none() { throw Error(ErrorKind::internal, "only sums are doubled"); }
};

}  // namespace kiln::testing
