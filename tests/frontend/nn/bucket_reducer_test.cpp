// SPDX-License-Identifier: Apache-2.0
// Eager DistributedDataParallel: which buckets have been started when, what their sums are to the bit, and
// what becomes of a step that a rank cannot finish.
#include "frontend/nn/bucket_reducer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "tests/frontend/nn/ranks.h"
#include "tests/runtime/watched_group.h"

namespace kiln::nn {
namespace KILN_FILE {

using ::kiln::testing::fill;
using ::kiln::testing::Net;
using ::kiln::testing::numbers;
using ::kiln::testing::on_ranks;
using ::kiln::testing::WatchedGroup;
using ::testing::HasSubstr;

DistributedDataParallelOptions one_each() { return {.bucket_cap_mb = 1e-6}; }
std::string text(const std::vector<int64_t>& v) { return fmt::format("{}", fmt::join(v, " ")); }

std::string text_of(const Module& m) {
  std::string out;
  for (const auto& [name, p] : m.named_parameters())
    out += fmt::format("{}: {:a}\n", name, fmt::join(p.grad().to_vector<float>(), " "));
  return out;
}

/// What the group has started when the gradient of a parameter of `net` comes.
HookHandle watch(Tensor parameter, const WatchedGroup& group, std::vector<int64_t>& seen) {
  return parameter.register_hook([&](const Tensor&) {
    seen.push_back(static_cast<int64_t>(group.counts.size()));
    return Tensor();
  });
}

/// each as soon as its last gradient is there; the first backward finds the buckets.
TEST(BucketReducer, StartsBucketsWhileTheBackwardGoesOn) {
  for (bool split : {false, true})
    for (const std::string& s : on_ranks(2, [&](int r, auto local) -> std::string {
           const auto group = std::make_shared<WatchedGroup>(local);
           Net net;
           DistributedDataParallel ddp(net, group, one_each());
           auto forward = compile([&](const Tensor& x) { return ddp(x); },
                                  {.split = SplitOptions{.cap = 1, .first = 1}});
           std::vector<int64_t> seen;
           for (Linear* fc : {&net.fc0, &net.fc1, &net.fc2}) watch(fc->weight, *group, seen);
           for (int step = 0; step < 2; ++step) {
             const Tensor x = numbers({5, 6}, r + step);
             sum(split ? forward(x) : ddp(x)).backward();
             seen.push_back(static_cast<int64_t>(group->counts.size()));
             if (group->running() > 0) return "some collectives still run";
           }
           return fmt::format("{}, {} reductions", text(seen), ddp.reductions());
         }))
      EXPECT_EQ(s, "0 0 0 6 7 9 11 12, 12 reductions") << split;
}

/// A rank whose gradients come in another order than rank 0's has a bucket complete that is not the next.
TEST(BucketReducer, ABucketWaitsForItsPredecessors) {
  struct Branches : Module {
    explicit Branches(bool a_first) : a_first(a_first), a(numbers({2}, 1)), b(numbers({20}, 2)) {
      register_parameter("a", a);
      register_parameter("b", b);
    }
    Tensor forward(const Tensor& x) override {
      if (a_first) {
        const Tensor u = sum(a * x), v = sum(b * x);
        return u + v;
      }
      const Tensor v = sum(b * x), u = sum(a * x);
      return u + v;
    }
    const bool a_first;
    Tensor a, b;
  };
  const auto got = on_ranks(2, [&](int r, auto local) -> std::string {
    const auto group = std::make_shared<WatchedGroup>(local);
    Branches net(r == 0);
    DistributedDataParallel ddp(net, group, one_each());
    const Tensor x = Tensor::from_vector<float>({static_cast<float>(r + 1)}, {1});
    ddp(x).backward();
    ddp.zero_grad();
    group->counts.clear();
    std::vector<int64_t> seen;
    watch(r == 0 ? net.a : net.b, *group, seen);
    ddp(x).backward();
    return fmt::format("{}; {}; {} {}", text(seen), text(group->counts), net.a.grad().to_vector<float>()[0],
                       net.b.grad().to_vector<float>()[0]);
  });
  EXPECT_EQ(got[0], "1; 32 16; 1.5 1.5");  // b has come
  EXPECT_EQ(got[1], "0; 32 16; 1.5 1.5");  // a has come, but b is the first
}

/// The mean is the sum in the order of the ranks of what each has after all its steps, times 1/n.
TEST(BucketReducer, GradientsAreToTheBitWhatTheRanksHaveAccumulated) {
  constexpr int kRanks = 3, kSteps = 3;
  const auto batch = [](int rank, int step) { return numbers({5, 6}, 100 * rank + step); };
  Net alone[kRanks], expected;
  for (int r = 0; r < kRanks; ++r) {
    fill(alone[r], 1);
    for (int s = 0; s < kSteps; ++s) sum(square(alone[r](batch(r, s)))).backward();
  }
  for (size_t p = 0; p < expected.parameters().size(); ++p) {
    Tensor total;
    for (Net& net : alone) {
      const Tensor g = net.parameters()[p].grad() * (1.0 / kRanks);
      total = total.defined() ? total + g : g;
    }
    expected.parameters()[p].set_grad(total);
  }
  for (double cap : {25.0, 5e-4, 1e-6})
    for (const std::string& s : on_ranks(kRanks, [&](int r, auto group) -> std::string {
           Net net;
           fill(net, 1);
           DistributedDataParallel ddp(net, group, {.bucket_cap_mb = cap});
           for (int round = 0; round < 2; ++round) {
             ddp.zero_grad();
             for (int s = 0; s < kSteps; ++s) {
               std::optional<DistributedDataParallel::NoSync> guard;
               if (s + 1 < kSteps) guard.emplace(ddp);
               sum(square(ddp(batch(r, s)))).backward();
             }
           }
           return text_of(net);
         }))
      EXPECT_EQ(s, text_of(expected));
}

/// Two losses over different parameters: what the first completes is started in its backward.
TEST(BucketReducer, SeveralBackwardsOfOneForward) {
  struct Two : Module {
    Two() : a(numbers({2}, 1)), b(numbers({2}, 2)) {
      register_parameter("a", a);
      register_parameter("b", b);
    }
    Tensor forward(const Tensor& x) override { return stack({sum(b * x), sum(a * x)}); }
    Tensor a, b;
  };
  for (const std::string& s : on_ranks(2, [&](int r, auto local) -> std::string {
         const auto group = std::make_shared<WatchedGroup>(local);
         Two net;
         DistributedDataParallel ddp(net, group, one_each());
         const Tensor x = Tensor::from_vector<float>({static_cast<float>(r + 1)}, {1});
         std::vector<int64_t> started;
         for (int step = 0; step < 2; ++step) {
           ddp.zero_grad();
           ddp(x);  // one for both
           for (const Tensor& p : {net.a, net.b}) {
             sum(p * x).backward();
             started.push_back(static_cast<int64_t>(group->counts.size()));
             if (step == 1) Tensor(net.a).set_grad({});  // no matter to what was started
           }
         }
         return fmt::format("{}; {} {}", text(started), net.a.grad().defined(),
                            net.b.grad().to_vector<float>()[0]);
       }))
    EXPECT_EQ(s, "0 2 3 4; false 1.5");
}

// --- steps that a rank cannot finish ---

/// A hook that throws when `on`, at a parameter's gradient.
void fail_at(Tensor parameter, const bool& on) {
  parameter.register_hook([&on](const Tensor&) -> Tensor {
    if (on) throw Error(ErrorKind::invalid, "the hook gave up");
    return {};
  });
}

TEST(BucketReducer, AThrowAfterAStartFailsTheOthersAtOnce) {
  std::vector<int64_t> running(2), started(2);
  const auto got = on_ranks(2, [&](int r, auto local) -> std::string {
    const auto group = std::make_shared<WatchedGroup>(local);
    const auto me = static_cast<size_t>(r);
    Net net;
    DistributedDataParallel ddp(net, group, one_each());
    bool on = false;
    fail_at(net.fc0.weight, on);
    const auto step = [&] { sum(ddp(numbers({5, 6}, r))).backward(); };
    step();
    group->counts.clear();
    on = r == 1;
    try {
      step();
    } catch (const Error& e) {
      running[me] = group->running();
      started[me] = static_cast<int64_t>(group->counts.size());
      return e.what();
    }
    return "no error";
  });
  EXPECT_EQ(got[1], "the hook gave up");
  EXPECT_THAT(got[0], ::testing::ContainsRegex(
                          "rank 1 (aborted|gave up on .*: aborted|has left .*failed in call 2): "
                          "the backward at bucket_reducer_test.cpp:[0-9]+ failed: the hook gave up"));
  EXPECT_THAT(running, ::testing::Each(0));
  EXPECT_GT(started[1], 0);
  EXPECT_LT(started[1], 6);
}

/// Nothing was started: the others, which wait, learn why; those that failed alike can go on.
TEST(BucketReducer, AThrowBeforeAnyStartIsToldAndLeavesTheGroup) {
  const auto train = [](int rank, auto group, bool fails) -> std::string {
    Net net;
    DistributedDataParallel ddp(net, group, one_each());
    bool on = false;
    fail_at(net.fc2.bias, on);
    fail_at(net.fc2.weight, on);
    const auto step = [&] { sum(ddp(numbers({5, 6}, rank))).backward(); };
    step();
    const std::string before = text_of(net);
    on = fails;
    try {
      step();
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::comm) return e.what();
    }
    if (text_of(net) != before) return "gradients have changed";
    on = false;
    if (fails && rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(600));
    step();
    return fmt::format("{}", ddp.reductions());
  };
  for (const std::string& s : on_ranks(2, [&](int r, auto group) { return train(r, group, true); }))
    EXPECT_EQ(s, "12");
  const auto got = on_ranks(
      2, [&](int r, auto group) { return train(r, group, r == 1); }, 0.3);
  EXPECT_THAT(got[0], HasSubstr("rank 1 failed in call 2: the backward at "));
  EXPECT_THAT(got[0], HasSubstr(" failed: the hook gave up"));
}

/// R-62 where only some ranks leave parameters out, once buckets are known.
TEST(BucketReducer, RanksThatWaitForUnusedParametersAreToldTheirNames) {
  struct Spare : Net {
    Spare() : spare(6, 6) { register_module("spare", spare); }
    Tensor forward(const Tensor& x) override { return Net::forward(use ? spare(x) : x); }
    bool use = true;
    Linear spare;
  };
  const auto got = on_ranks(2, [&](int r, auto group) -> std::string {
    Spare net;
    DistributedDataParallel ddp(net, group, one_each());
    const auto step = [&] { sum(ddp(numbers({5, 6}, r))).backward(); };
    step();
    net.use = r == 1;
    step();
    step();
    return "no error";
  });
  EXPECT_THAT(got[0], ::testing::StartsWith("invalid: DistributedDataParallel ("));
  for (const std::string& s : got)
    EXPECT_THAT(s, HasSubstr("no gradient came for spare.weight, spare.bias, which were not used"));
}

/// A store that keeps what is said to others of builds.
class NotingStore : public Store {
 public:
  explicit NotingStore(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  std::vector<std::string> notes() {
    const std::lock_guard lock(mutex_);
    return notes_;
  }
  void set(const std::string& key, const std::string& value) override {
    {
      const std::lock_guard lock(mutex_);
      if (value.find("building") != std::string::npos || value.find("ready") != std::string::npos)
        notes_.push_back(value);
    }
    store_->set(key, value);
  }
  std::string set_once(const std::string& k, const std::string& v) override { return store_->set_once(k, v); }
  std::optional<std::string> get(const std::string& key) override { return store_->get(key); }
  std::optional<std::string> wait(const std::string& key, Seconds timeout,
                                  const std::string& known) override {
    return store_->wait(key, timeout, known);
  }
  int64_t add(const std::string& key, int64_t n) override { return store_->add(key, n); }
  void erase(const std::string& key) override { store_->erase(key); }
  std::vector<int> lost() override { return store_->lost(); }
  void leave() override { store_->leave(); }

 private:
  const std::shared_ptr<Store> store_;
  std::mutex mutex_;
  std::vector<std::string> notes_;
};
struct NotingGroup : WatchedGroup {
  explicit NotingGroup(const std::shared_ptr<ProcessGroup>& group)
      : WatchedGroup(group), noting(std::make_shared<NotingStore>(group->store())) {}
  std::shared_ptr<Store> store() const override { return noting; }
  const std::shared_ptr<NotingStore> noting;
};

/// C-20: a backward outside the callable is compiled when it first runs, and others wait for it.
TEST(BucketReducer, OthersKnowOfABackwardThatIsCompiled) {
  for (const std::string& s : on_ranks(2, [](int r, auto local) -> std::string {
         const auto group = std::make_shared<NotingGroup>(local);
         Net net;
         DistributedDataParallel ddp(net, group);
         auto forward = compile([&](const Tensor& x) { return ddp(x); });
         std::string said;
         for (int step = 0; step < 3; ++step) {
           const Tensor y = sum(forward(numbers({5, 6}, r)));
           const size_t before = group->noting->notes().size();
           y.backward();
           const std::vector<std::string> notes = group->noting->notes();
           const bool building = notes.size() > before + 1 &&
                                 notes[before].find("building") != std::string::npos &&
                                 notes[before].find("the backward at ") != std::string::npos &&
                                 notes[before + 1].find("ready") != std::string::npos;
           said += building ? "building " : "nothing ";
         }
         return said;
       }))
    EXPECT_EQ(s, "building nothing nothing ");
}

TEST(BucketReducer, BackwardsInsideAndOutsideOfACallableAreNotMixed) {
  struct Two : Module {
    Two() : a(numbers({2}, 1)), b(numbers({2}, 2)) {
      register_parameter("a", a);
      register_parameter("b", b);
    }
    Tensor forward(const Tensor& x) override { return x; }
    Tensor a, b;
  };
  const auto got = on_ranks(1, [&](int, auto group) -> std::string {
    Two net;
    DistributedDataParallel ddp(net, group);
    auto inside = compile([&](const Tensor& x) {
      ddp(x);
      sum(net.a * x).backward();
    });
    const Tensor x = Tensor::from_vector<float>({1}, {1});
    inside(x);
    sum(net.b * x).backward();
    return "no error";
  });
  EXPECT_THAT(got[0], HasSubstr("come from backwards inside and outside of a compiled callable"));
}

}  // namespace KILN_FILE
}  // namespace kiln::nn
