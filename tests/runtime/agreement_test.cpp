// SPDX-License-Identifier: Apache-2.0
// Agreement of ranks that are threads: who is waited for, and what is said when ranks differ, leave, fail or
// never come. BEHAVIOURS C-10, C-19, C-20.
#include "runtime/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

namespace kiln {
namespace KILN_FILE {

using ::testing::HasSubstr;

std::shared_ptr<const CommunicationPlan> plan(std::vector<PlannedCollective> collectives) {
  return std::make_shared<const CommunicationPlan>(std::move(collectives));
}
const auto kOne = plan({{"all_reduce f32[16] of [4,4]", {"net.cpp", 7}}});
const CollectiveSite kSite{"agreement", {"net.cpp", 7}};

/// One call that sums a number over the ranks; the sum, or the error's text.
std::string call(Communicator& c, const std::shared_ptr<const CommunicationPlan>& p = kOne) {
  float x = 1;
  try {
    c.begin_call(p, kSite);
    c.group().all_reduce(&x, 1, DType::f32, ReduceOp::sum, {"backward", {"net.cpp", 7}})->wait();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::comm);
    return e.what();
  }
  return fmt::format("{}", x);
}

/// Runs body(rank, communicator) on a thread per rank; what each returned.
template <typename F>
std::vector<std::string> ranks(int n, double timeout, F body, double build_limit = 60) {
  const auto groups = make_local_groups(n, Seconds(timeout));
  std::vector<std::string> out(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      Communicator c(groups[static_cast<size_t>(r)], Seconds(build_limit));
      out[static_cast<size_t>(r)] = body(r, c);
    });
  for (std::thread& t : threads) t.join();
  return out;
}

void sleep(double s) { std::this_thread::sleep_for(Seconds(s)); }

TEST(Agreement, EqualCallsGoOn) {
  for (int n : {1, 2, 5})
    for (const std::string& s : ranks(n, 20, [](int, Communicator& c) {
           for (int i = 0; i < 20; ++i)
             if (const std::string got = call(c); got != fmt::format("{}", c.group().size())) return got;
           return std::string("ok");
         }))
      EXPECT_EQ(s, "ok");
}

/// C-20: a rank that compiles for longer than the timeout is waited for.
TEST(Agreement, BuildingRanksAreWaitedFor) {
  const auto got = ranks(3, 0.3, [](int r, Communicator& c) {
    if (r == 1) {
      c.building("first call");
      sleep(0.9);
    }
    return call(c);
  });
  EXPECT_THAT(got, ::testing::Each("3"));
}

/// C-19: a miss on one rank strands nobody, also when what it built communicates nothing.
TEST(Agreement, WhatWasBuiltMayCommunicateNothing) {
  const auto got = ranks(2, 0.4, [](int r, Communicator& c) {
    const std::string first = call(c);
    if (r == 1) {
      c.building("an evaluation");
      sleep(0.1);
      c.built();
      sleep(0.1);
    }
    return first + call(c);
  });
  EXPECT_THAT(got, ::testing::Each("22"));
}

TEST(Agreement, ARankThatBuildsForTooLongIsNamed) {
  const auto got = ranks(
      2, 0.2,
      [](int r, Communicator& c) {
        if (r == 0) return call(c);
        c.building("net.cpp:9: `relu` where `gelu` was traced");
        sleep(1.5);
        return std::string();
      },
      0.5);
  EXPECT_THAT(got[0], HasSubstr("rank 1 is building call 1: net.cpp:9: `relu` where `gelu` was traced"));
}

TEST(Agreement, DifferentCommunicationNamesTheFirstDifferenceOnAllRanks) {
  const auto other = plan(
      {{"all_reduce f32[16] of [4,4]", {"net.cpp", 7}}, {"all_reduce f32[32] of [32]", {"net.cpp", 12}}});
  const auto mine = plan(
      {{"all_reduce f32[16] of [4,4]", {"net.cpp", 8}}, {"all_reduce f32[48] of [33]", {"net.cpp", 14}}});
  const auto got = ranks(2, 20, [&](int r, Communicator& c) {
    const std::string first = call(c);
    return first + call(c, r == 0 ? mine : other);
  });
  for (const std::string& s : got) {
    EXPECT_THAT(s, HasSubstr("ranks 0 and 1 are about to communicate differently in call 2: collective 1 is "
                             "all_reduce f32[48] of [33] (net.cpp:14) on rank 0, all_reduce f32[32] of [32] "
                             "(net.cpp:12) on rank 1"));
    EXPECT_THAT(s, ::testing::StartsWith("2"));
  }
}

TEST(Agreement, LinesMayDiffer) {
  const auto got = ranks(2, 20, [&](int r, Communicator& c) {
    return call(c, plan({{"all_reduce f32[16] of [4,4]", {"net.cpp", static_cast<uint32_t>(r + 1)}}}));
  });
  EXPECT_THAT(got, ::testing::Each("2"));
}

TEST(Agreement, FewerCollectivesSayHowMany) {
  const auto more = plan({kOne->collectives[0], kOne->collectives[0]});
  const auto got = ranks(3, 20, [&](int r, Communicator& c) { return call(c, r == 2 ? more : kOne); });
  for (const std::string& s : got)
    EXPECT_THAT(s, HasSubstr("communicate differently in call 1: collective 1 is "));
  EXPECT_THAT(got[2], HasSubstr("none (there are 1) on rank 0"));
}

/// What a rank was about to do is known when it has failed, or left, since.
TEST(Agreement, WhoLeavesInAnErrorHasSaidWhatItWasAboutToDo) {
  const auto other = plan({{"all_reduce f32[32] of [32]", {"net.cpp", 12}}});
  const auto got = ranks(2, 20, [&](int r, Communicator& c) {
    if (r == 1) {
      const std::string error = call(c, other);
      c.failed(error);
      return error;
    }
    sleep(0.2);
    return call(c);
  });
  for (const std::string& s : got)
    EXPECT_THAT(s, HasSubstr("communicate differently in call 1: collective 0 is "));
}

TEST(Agreement, ARankThatLeavesIsNamed) {
  const auto got = ranks(2, 20, [](int r, Communicator& c) {
    const std::string first = call(c);
    return r == 0 ? call(c) : first;
  });
  EXPECT_EQ(got[1], "2");
  EXPECT_THAT(got[0],
              HasSubstr("rank 0 is in call 2 (agreement, net.cpp:7), but rank 1 has left after 1 call"));
}

/// An error may end a step, and the communicator with it, before its check has begun.
TEST(Agreement, ACheckThatIsQueuedOutlivesItsCommunicator) {
  const auto groups = make_local_groups(2, Seconds(20));
  std::vector<std::string> got(2);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      auto c = std::make_unique<Communicator>(groups[r]);
      if (r == 1) sleep(0.2);
      groups[r]->run(
          "a nap", [] { sleep(0.1); }, kSite);
      c->begin_call(kOne, kSite);
      c.reset();
      Communicator next(groups[r]);  // takes the memory
      got[r] = call(next);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_THAT(got, ::testing::Each("2"));
}

TEST(Agreement, ARankThatFailsOrNeverComesIsNamed) {
  auto got = ranks(2, 0.3, [](int r, Communicator& c) {
    if (r == 0) return call(c);
    c.failed("net.cpp:3: index 9 is out of range");
    sleep(1);
    return std::string();
  });
  EXPECT_THAT(got[0], HasSubstr("rank 0 waited 0.3 s for rank 1 to come to call 1"));
  EXPECT_THAT(got[0], HasSubstr("rank 1 failed in call 1: net.cpp:3: index 9 is out of range"));
  got = ranks(2, 0.3, [](int r, Communicator& c) {
    if (r == 0) return call(c);
    sleep(1);
    return std::string();
  });
  EXPECT_THAT(got[0], HasSubstr("rank 1 has made no call"));
}

/// Who was building when it failed is not waited for as long as for a build.
TEST(Agreement, AFailedBuildIsWaitedForLikeAnyCall) {
  const auto got = ranks(2, 0.3, [](int r, Communicator& c) {
    if (r == 0) return call(c);
    c.building("first call");
    sleep(0.1);
    c.failed("net.cpp:3: out of memory");
    sleep(1);
    return std::string();
  });
  EXPECT_THAT(got[0], HasSubstr("to come to call 1"));
  EXPECT_THAT(got[0], HasSubstr("rank 1 failed in call 1: net.cpp:3: out of memory"));
}

/// Nor is who fails to build again and again.
TEST(Agreement, BuildsThatFailAreNotWaitedForForever) {
  const auto got = ranks(
      2, 0.2,
      [](int r, Communicator& c) {
        if (r == 0) return call(c);
        for (int i = 0; i < 20; ++i) {
          c.building("first call");
          sleep(0.05);
          c.failed("net.cpp:3: out of memory");
        }
        return std::string();
      },
      0.4);
  EXPECT_THAT(got[0], HasSubstr("to come to call 1"));
}

/// A call that a rank has skipped shows in a later one, and the error says which that was.
TEST(Agreement, AnEarlierFailureIsToldLater) {
  const auto got = ranks(2, 0.3, [](int r, Communicator& c) {
    std::string all = call(c);
    c.end_call();
    if (r == 1) c.failed("net.cpp:3: oops");
    all += call(c);
    if (r == 1) sleep(1);
    return r == 1 ? all : all + call(c);
  });
  EXPECT_EQ(got[1], "22");
  EXPECT_THAT(got[0], HasSubstr("rank 1 has made 2 calls, and failed in call 2: net.cpp:3: oops"));
}

/// What rank 0 says before any call is waited for as its calls are.
TEST(Agreement, FromFirstWaitsForABuild) {
  const auto tell = [](int r, Communicator& c, bool builds, double seconds) {
    if (r == 0) {
      if (builds) c.building("first call");
      sleep(seconds);
    }
    return c.from_first("key", r == 0 ? "word" : "none", "the test", {"", {"net.cpp", 3}});
  };
  const auto one = [&](bool builds, double seconds, double limit) {
    return ranks(
        2, 0.2,
        [&](int r, Communicator& c) -> std::string {
          try {
            return tell(r, c, builds, seconds);
          } catch (const Error& e) {
            return e.what();
          }
        },
        limit)[1];
  };
  EXPECT_EQ(one(true, 0.8, 60), "word");
  EXPECT_THAT(one(true, 1.5, 0.4), HasSubstr("rank 0 is building call 1: first call"));
  EXPECT_THAT(
      one(false, 0.8, 60),
      HasSubstr("rank 1 waited 0.2 s for rank 0 to come to the test (net.cpp:3); rank 0 has made no call"));
}

/// Nor does rank 0 go on before the others have come: in another turn it could not be told from them.
TEST(Agreement, FromFirstMeetsAllRanks) {
  const auto got = ranks(3, 20, [](int r, Communicator& c) -> std::string {
    const auto begin = std::chrono::steady_clock::now();
    if (r == 2) sleep(0.4);
    const std::string word = c.from_first("key", fmt::format("of {}", r), "the test", kSite);
    return word + (r == 0 && std::chrono::steady_clock::now() - begin < Seconds(0.3) ? " too early" : "");
  });
  EXPECT_THAT(got, ::testing::Each("of 0"));
}

TEST(Agreement, FromFirstDoesNotWaitForWhoHasLeft) {
  const auto got = ranks(2, 20, [](int r, Communicator& c) -> std::string {
    try {
      return r == 0 ? "" : c.from_first("key", "", "the test", kSite);
    } catch (const Error& e) {
      return e.what();
    }
  });
  EXPECT_THAT(got[1], HasSubstr("to come to the test (agreement, net.cpp:7); rank 0 has left after 0 calls"));
}

// --- ranks in different things ---

/// What a rank says that waits in `work` by then.
std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::comm);
    return e.what();
  }
  return "no error";
}

constexpr const char* kApart =
    "rank 0 is in call 2 of DistributedDataParallel #1 (agreement, net.cpp:7), rank 1 in barrier #2 "
    "(user.cpp:4): "
    "neither can go on";

TEST(Agreement, ARankInAnotherCollectiveIsToldAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  const auto got = ranks(2, 60, [](int r, Communicator& c) {
    const std::string first = call(c);
    if (r == 0) return first + call(c);
    c.end_call();
    c.failed("user.cpp:3: a bad batch");
    return first + error_of([&] { c.group().barrier({"", {"user.cpp", 4}})->wait(); });
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, Seconds(20));
  for (const std::string& s : got) EXPECT_THAT(s, HasSubstr(kApart));
  EXPECT_THAT(got[0], HasSubstr("failed in call 2: user.cpp:3: a bad batch"));
}

TEST(Agreement, CallsOfTwoCommunicatorsInAnotherOrderAreToldAtOnce) {
  const auto groups = make_local_groups(2, Seconds(60));
  std::vector<std::string> got(2);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      Communicator a(groups[r]), b(groups[r]);
      got[r] = call(r == 0 ? a : b);
    });
  for (std::thread& t : threads) t.join();
  for (const std::string& s : got)
    EXPECT_THAT(
        s, HasSubstr("rank 0 is in call 1 of DistributedDataParallel #1 (agreement, net.cpp:7), rank 1 in "
                     "call 1 of DistributedDataParallel #2 (agreement, net.cpp:7): neither"));
}

/// Collectives that are on their way while a call begins, in the same order on all ranks, late on one.
TEST(Agreement, WhatIsAsynchronousAndLateIsNoDifference) {
  const auto got = ranks(3, 20, [](int r, Communicator& c) {
    float x = 1, y = 1;
    std::string out = call(c);
    if (r == 2) sleep(0.5);
    const WorkPtr before = c.group().all_reduce(&x, 1, DType::f32, ReduceOp::sum, {});
    if (r == 1) sleep(0.7);
    c.begin_call(kOne, kSite);
    const WorkPtr step = c.group().all_reduce(&y, 1, DType::f32, ReduceOp::sum, {});
    if (r == 0) sleep(0.4);
    before->wait();
    step->wait();
    return out + fmt::format("{}{}", x, y);
  });
  EXPECT_THAT(got, ::testing::Each("333"));
}

/// An error names the call that had begun, or else the one that was to come.
TEST(Agreement, AFailureNamesItsCall) {
  const auto got = ranks(2, 0.5, [](int r, Communicator& c) {
    std::string out = call(c);
    c.end_call();
    if (r == 1) c.failed("before call 2");
    out += call(c);
    if (r == 1) c.failed("within call 2");
    if (r == 1) sleep(1.5);
    return r == 1 ? out : out + call(c);
  });
  EXPECT_THAT(got[0], HasSubstr("rank 1 failed in call 2: within call 2"));
  const auto again = ranks(2, 0.5, [](int r, Communicator& c) {
    std::string out = call(c);
    if (r == 1) c.failed("within call 1");
    if (r == 1) c.failed("before call 2");
    if (r == 1) sleep(1.5);
    return r == 1 ? out : out + call(c);
  });
  EXPECT_THAT(again[0], HasSubstr("rank 1 failed in call 2: before call 2"));
}

/// Who failed and goes on, as eager code may, is met in its next call.
TEST(Agreement, AFailureThatIsSurvivedIsForgotten) {
  const auto got = ranks(2, 5, [](int, Communicator& c) {
    c.failed("both skip a batch");
    sleep(0.05);
    return call(c);
  });
  EXPECT_THAT(got, ::testing::Each("2"));
}

/// After an error the group is dead: later calls fail at once, with the first reason.
TEST(Agreement, LaterCallsFailWithTheFirstReason) {
  const auto got = ranks(2, 20, [](int r, Communicator& c) {
    if (r == 1) return std::string();
    const std::string first = call(c);
    return first + "\n" + call(c);
  });
  EXPECT_THAT(got[0], HasSubstr("\n"));
  const std::string again = got[0].substr(got[0].find('\n'));
  EXPECT_THAT(again, HasSubstr("rank 1 has left after 0 calls"));
}

/// Two communicators of one group, as two wrapped models have, number their calls apart.
TEST(Agreement, CommunicatorsOfOneGroupCountApart) {
  const auto groups = make_local_groups(2, Seconds(20));
  std::vector<std::string> got(2);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      Communicator a(groups[r]), b(groups[r]);
      for (Communicator* c : {&a, &b, &b}) got[r] += call(*c);
      got[r] += fmt::format(" {} {}", a.calls(), b.calls());
      EXPECT_NE(a.prefix(), b.prefix());
      call(a);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_THAT(got, ::testing::Each("222 1 2"));
}

}  // namespace KILN_FILE
}  // namespace kiln
