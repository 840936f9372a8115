// SPDX-License-Identifier: Apache-2.0
// Guards that the host looks at later: what runs meanwhile, who is told, and how often.
#include "runtime/cuda/guards.h"

#include <gmock/gmock.h>

#include <barrier>
#include <thread>

#include "runtime/cuda/executor.h"
#include "tests/runtime/cuda/sim_kernels.h"

namespace kiln {
namespace KILN_FILE {

using ::testing::HasSubstr;
using testing::kernels;
using testing::PlanBuilder;

/// state += 1, where the scalars of all guards are 1.
Plan bump(int guards) {
  PlanBuilder b;
  const int32_t state = b.external("state", 400);
  for (int i = 0; i < guards; ++i) b.plan.guards.push_back(b.output("guard", 8, DType::i64));
  for (int i = 0; i < guards; ++i)
    b.launch("guard", {b.scalar("s"), b.plan.guards[static_cast<size_t>(i)]}, 5 + i, i == 0);
  if (guards > 0) b.plan.guarded_from = guards;
  b.launch("bump", {state}, 100);
  return b.plan;
}

class Guards : public testing::OnSimulatedDevice {
 protected:
  void SetUp() override {
    OnSimulatedDevice::SetUp();
    state_ = put(std::vector<float>(100, 0.0f));
  }
  void TearDown() override {
    state_.release();
    EXPECT_EQ(device().memory().in_use, 8u);  // the word
  }
  CudaGuards& guards() { return device().guards(); }
  CudaOptions options(bool graphs = false) { return {.graphs = graphs, .word = guards().word()}; }

  /// A call whose guard `bad` does not hold (-1: all hold), named for its error.
  void call(CudaExecutable& exe, int bad, const std::string& name) {
    const size_t n = exe.plan().guards.size();
    auto answers = std::make_shared<std::vector<int64_t>>(n, kNothingWrong);
    {
      const auto turn = guards().turn();
      CudaMemory words = device().allocate(16 * n, "test");
      std::vector<void*> outputs;
      std::vector<int64_t*> to;
      std::vector<uint64_t> scalars(n, scalar(1.0f));
      for (size_t i = 0; i < n; ++i) {
        outputs.push_back(reinterpret_cast<void*>(words.address() + 16 * i));
        to.push_back(&(*answers)[i]);
      }
      if (bad >= 0) scalars[static_cast<size_t>(bad)] = scalar(2.0f);
      void* const externals[] = {state_.data()};
      exe.run({.externals = externals, .outputs = outputs, .scalars = scalars, .symbols = {}});
      if (n > 0) guards().follow(std::move(words), 16, to);
    }
    guards().then({[answers, name](bool late) {
                     for (const int64_t a : *answers)
                       KILN_CHECK(a == kNothingWrong, invalid, "{}: {}{}", name, a, late ? ", late" : "");
                   },
                   [this, name] { undone_.push_back(name); }});
  }
  /// What the host is told, waiting for all.
  std::string told() {
    const auto failure = guards().look(true);
    if (!failure) return "";
    for (const auto& undo : failure->undo) undo();
    try {
      std::rethrow_exception(failure->error);
    } catch (const Error& e) {
      return e.what();
    }
  }
  float state() { return get(state_)[0]; }

  CudaMemory state_;
  std::vector<std::string> undone_;
};

TEST_F(Guards, NothingRunsBehindAGuardThatDoesNotHoldUntilTheHostIsTold) {
  for (const bool graphs : {false, true})
    for (const int n : {1, 2, 15, 16, 40}) {
      CudaExecutable guarded(bump(n), kernels(), device(), options(graphs));
      CudaExecutable plain(bump(0), kernels(), device(), options(graphs));
      for (int round = 0; round < 3; ++round) {  // recorded in the second
        const float before = state();
        undone_.clear();
        call(guarded, -1, "good");
        call(plain, -1, "plain");
        for (const int bad : {0, n - 1}) {
          call(guarded, bad, "bad");
          call(guarded, -1, "later");
          call(plain, -1, "plain later");
          EXPECT_THAT(told(), ::testing::StartsWith("bad: " + std::to_string(5 + bad))) << n;
          EXPECT_EQ(undone_, (std::vector<std::string>{"plain later", "later", "bad"}));
          undone_.clear();
          EXPECT_EQ(told(), "");
        }
        EXPECT_EQ(state(), before + 2) << n << " " << round;
        call(guarded, -1, "good");
        EXPECT_EQ(told(), "");
        EXPECT_EQ(state(), before + 3);
      }
    }
}

TEST_F(Guards, ChecksOfAPlanThatWritesNothingCountForLaterOnes) {
  Plan p = bump(2);
  p.launches.pop_back();
  p.guarded_from = -1;
  for (const bool graphs : {false, true}) {
    CudaExecutable checks(p, kernels(), device(), options(graphs));
    CudaExecutable plain(bump(0), kernels(), device(), options(graphs));
    for (int round = 0; round < 3; ++round) {
      const float before = state();
      call(checks, -1, "good");
      call(plain, -1, "plain");
      call(checks, 1, "bad");
      call(plain, -1, "plain");
      EXPECT_EQ(told(), "bad: 6");
      EXPECT_EQ(state(), before + 1);
    }
  }
}

TEST_F(Guards, WhatHasComeIsSeenWithoutWaiting) {
  CudaExecutable exe(bump(1), kernels(), device(), options());
  call(exe, 0, "bad");
  const uint64_t waits = cuda::sim::host_waits();
  std::optional<GuardFailure> failure;
  for (int i = 0; i < 10'000 && !failure; ++i) failure = guards().look(false);
  ASSERT_TRUE(failure);
  EXPECT_EQ(cuda::sim::host_waits(), waits);
  EXPECT_FALSE(guards().pending());
}

TEST_F(Guards, OnlySoManyAreOnTheirWay) {
  CudaExecutable exe(bump(1), kernels(), device(), options());
  const uint64_t waits = cuda::sim::host_waits();
  for (size_t i = 0; i < CudaGuards::kMostAnswers; ++i) call(exe, -1, "good");
  EXPECT_EQ(cuda::sim::host_waits(), waits);
  call(exe, -1, "good");
  EXPECT_EQ(cuda::sim::host_waits(), waits + 1);
  EXPECT_EQ(told(), "");
}

TEST_F(Guards, EachThreadIsToldWhoseCallsHaveNotRun) {
  CudaExecutable exe(bump(1), kernels(), device(), options());
  call(exe, 0, "bad");
  std::barrier both(2);
  std::thread other([&] {
    call(exe, -1, "other");
    both.arrive_and_wait();  // then the other one is told
    both.arrive_and_wait();
    EXPECT_EQ(told(), "calls of this thread have not run, because one before them failed: bad: 5");
    EXPECT_EQ(told(), "");
    call(exe, -1, "other");
    EXPECT_EQ(told(), "");
  });
  both.arrive_and_wait();
  EXPECT_EQ(told(), "bad: 5");
  both.arrive_and_wait();
  other.join();
  EXPECT_EQ(told(), "");
  EXPECT_EQ(state(), 1);
}

TEST_F(Guards, WhoLeavesWithoutLookingIsToldOnce) {
  CudaExecutable exe(bump(1), kernels(), device(), options());
  call(exe, 0, "bad");
  ::testing::internal::CaptureStderr();
  guards().tell();
  guards().tell();
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(text, "kiln error: cuda:0: a call failed, and nobody has waited for it: bad: 5\n");
}

}  // namespace KILN_FILE
}  // namespace kiln
