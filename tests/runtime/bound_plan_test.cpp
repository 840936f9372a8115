// SPDX-License-Identifier: Apache-2.0
#include "runtime/bound_plan.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "ir/base/error.h"

namespace kiln {
namespace KILN_FILE {

/// Launches by letters: 'S' a launch of one task, 'P' one of many; a space before a letter is a declared
/// barrier.
Plan plan_of(const std::string& text) {
  Plan p;
  p.dims = {Dim(1), Dim(64), Dim(1'000'000), Dim(100)};
  p.kernels = {{false, "k"}};
  p.profile = {{"k", "", -1, 2, {}}, {"short", "", -1, 3, {}}};
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    const bool barrier = i > 0 && text[i - 1] == ' ';
    p.launches.push_back({0, {}, {}, text[i] == 'S' ? 0 : 1, -1, barrier, text[i] == 's'});
  }
  return p;
}

std::string barriers(const std::string& text) {
  std::string out;
  const auto bound = bind_plan(plan_of(text), {});
  for (const BoundLaunch& l : bound->launches) {
    if (l.barrier) out += ' ';
    out += l.solo ? 's' : 'P';
  }
  EXPECT_EQ(bound->phase_count(), 1 + std::count(out.begin(), out.end(), ' ')) << text;
  EXPECT_EQ(bound->phases.back(), static_cast<int32_t>(bound->launches.size()));
  return out;
}

TEST(BoundPlan, LeavesOutBarriersWithinOneThread) {
  EXPECT_EQ(barriers("S S S"), "sss");
  EXPECT_EQ(barriers("s s S"), "sss");
  EXPECT_EQ(barriers(" P P"), "P P");
  EXPECT_EQ(bind_plan(plan_of("P P S"), {})->phases, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(bind_plan(plan_of(""), {})->phase_count(), 0);
  EXPECT_EQ(barriers("S P S"), "s P s");
  EXPECT_EQ(barriers("Ps"), "Ps");
  EXPECT_EQ(barriers("s sP"), "ss P");  // P must see the first launch
  EXPECT_EQ(barriers("S S P P"), "ss P P");
  EXPECT_EQ(barriers("P s s Ps"), "P ss Ps");
  EXPECT_EQ(barriers("sP"), "sP");
  EXPECT_EQ(barriers("S SS S"), "s PP s");  // two long tasks that may run side by side
}

TEST(BoundPlan, IndependentLaunchesTakeTurns) {
  const auto bound = bind_plan(plan_of("SsS PSP S"), {});
  std::vector<int> turns;
  for (const BoundLaunch& l : bound->launches) turns.push_back(l.solo ? -1 : l.turn);
  EXPECT_EQ(turns, (std::vector<int>{0, -1, 1, 0, 1, 2, -1}));
  EXPECT_EQ(bind_plan(plan_of("SS SS SS"), {})->choose_threads(8, true), 2);
}

/// Every pair of launches that a declared barrier separates and that different threads run must be separated
/// by a kept barrier.
/// Wherever threads cut the elements of a launch, each task is somebody's, once.
TEST(BoundPart, CutsBetweenTasks) {
  for (const BoundPart& p :
       {BoundPart{7, 100, 800}, BoundPart{1, 0, 3}, BoundPart{3, 5, 8}, BoundPart{0, 4, 4}}) {
    EXPECT_EQ(p.tasks_before(p.begin), 0);
    EXPECT_EQ(p.tasks_before(p.end), p.tasks);
    EXPECT_EQ(p.tasks_before(0), 0);
    EXPECT_EQ(p.tasks_before(1000), p.tasks);
    for (int64_t e = 0; e < 1000; ++e) EXPECT_LE(p.tasks_before(e), p.tasks_before(e + 1));
  }
  EXPECT_EQ((BoundPart{7, 100, 800}).tasks_before(450), 3);
}

TEST(BoundPlan, KeepsEveryBarrierThatMatters) {
  std::mt19937 rng(3);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) text += std::string(rng() % 2 ? " " : "") + "PSs"[rng() % 3];
    const Plan plan = plan_of(text);
    const auto bound = bind_plan(plan, {});
    for (size_t a = 0; a < 12; ++a) {
      bool declared = false, kept = false;
      for (size_t b = a + 1; b < 12; ++b) {
        declared = declared || plan.launches[b].barrier_before;
        kept = kept || bound->launches[b].barrier;
        const bool one_thread = bound->launches[a].solo && bound->launches[b].solo;
        EXPECT_TRUE(kept || !declared || one_thread) << text << " " << a << " " << b;
      }
    }
  }
}

TEST(BoundPlan, ChoosesThreadsByWork) {
  const auto small = bind_plan(plan_of("S"), {});
  EXPECT_EQ(small->choose_threads(8, true), 1);       // one task
  const auto medium = bind_plan(plan_of("P P"), {});  // 100 us alone
  EXPECT_EQ(medium->choose_threads(8, false), 1);     // not worth waking anyone
  EXPECT_EQ(medium->choose_threads(2, true), 2);
  EXPECT_EQ(medium->choose_threads(8, true), 8);
  EXPECT_EQ(medium->choose_threads(6, true), 6);
  EXPECT_EQ(medium->choose_threads(1, true), 1);
  std::string many;
  for (int i = 0; i < 100; ++i) many += " P";
  EXPECT_EQ(bind_plan(plan_of(many), {})->choose_threads(2, false), 2);
  EXPECT_EQ(bind_plan(Plan(), {})->choose_threads(64, true), 1);
}

TEST(BoundPlan, ChecksSizes) {
  Plan p;
  p.symbols = {"N"};
  p.dims = {Dim::symbol("N"), Dim(0)};
  p.arena_bytes = 0;
  p.buffers = {{BufferKind::arena, DType::u8, -1, 0, 1, "%0"}};
  const int64_t five = 5, minus = -1;
  EXPECT_EQ(bind_plan(p, {&five, 1})->sizes[0], 5);
  EXPECT_THROW(bind_plan(p, {&minus, 1}), Error);
  EXPECT_THROW(bind_plan(p, {}), Error);
  p.dims[1] = Dim(1);
  EXPECT_THROW(bind_plan(p, {&five, 1}), Error);
}

TEST(BoundPlans, KeepsTheSizesOfTheLastCalls) {
  Plan p = plan_of("S S");
  BoundPlans fixed(p);
  EXPECT_EQ(fixed.get({}).get(), fixed.only());
  p.symbols = {"N"};
  p.dims.push_back(Dim::symbol("N"));
  BoundPlans plans(p);
  EXPECT_EQ(plans.only(), nullptr);
  const auto get = [&](int64_t n) { return plans.get({&n, 1}); };
  const auto first = get(0);
  EXPECT_EQ(first->dims.back(), 0);
  for (int64_t n = 1; n < 8; ++n) EXPECT_EQ(get(n)->dims.back(), n);
  EXPECT_EQ(get(0), first);
  for (int64_t n = 8; n < 15; ++n) get(n);
  EXPECT_EQ(get(0), first) << "seven others since";
  for (int64_t n = 15; n < 23; ++n) get(n);
  EXPECT_NE(get(0), first) << "eight others since";
  EXPECT_THROW(plans.get({}), Error);
}

}  // namespace KILN_FILE
}  // namespace kiln
