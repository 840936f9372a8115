// SPDX-License-Identifier: Apache-2.0
// Candidates compiled and run for real: which one is fastest is the machine's business, that all give the
// right result and bad ones are left out is ours.
#include "autotune/trial.h"

#include <gtest/gtest.h>

#include <optional>

#include "autotune/space.h"
#include "tests/autotune/graphs.h"

namespace kiln {
namespace KILN_FILE {

constexpr MeasureLimits kShort{.rounds = 3, .seconds = 0};

constexpr const char* kBiased = R"(graph biased {
  %0 = input f32[96,64] arg
  %1 = input f32[128,64] param
  %2 = input f32[96,128] param
  %3 = f32[96,128] dot_general %0, %1 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(1)}
  %4 = f32[96,128] add %3, %2
  output %4
})";

TEST(Trials, AllCandidatesOfAProgramAreRight) {
  for (const char* graph : {testing::kLayer, testing::kDeep}) {
    const std::vector<TunableKernel> kernels = tunable_kernels(parse_graph(graph), {}, host_target());
    std::vector<Trial> trials;
    for (const TunableKernel& k : kernels) trials.push_back({&k, candidate_schedules(k)});
    Trials compiled(trials, host_target(), 2);
    for (size_t i = 0; i < trials.size(); ++i) {
      const TrialResult r = compiled.run(i, kShort);
      EXPECT_EQ(r.compared, static_cast<int>(trials[i].schedules.size())) << trials[i].schedules[0];
      EXPECT_GT(r.seconds, 0);
      EXPECT_GE(r.default_seconds, r.seconds);
      EXPECT_LT(r.winner, static_cast<int>(trials[i].schedules.size()));
    }
  }
}

// A library needs no compiler, and its epilogue is a kernel of its own.
TEST(Trials, LibrariesAndEpiloguesApartAreCompared) {
  for (const char* graph : {kBiased, testing::kLayer, testing::kDeep})
    for (const TunableKernel& k : tunable_kernels(parse_graph(graph), {}, host_target())) {
      if (!std::holds_alternative<MatmulCase>(k.what)) continue;
      const std::vector<std::string> schedules = testing::wide_schedules(k);
      ASSERT_TRUE(parse_blis_schedule(schedules.back())) << schedules.back();
      Trials compiled({{&k, schedules}, {&k, {schedules.back()}}}, host_target(), 2);
      EXPECT_EQ(compiled.run(0, kShort).compared, static_cast<int>(schedules.size())) << schedules[0];
      EXPECT_EQ(compiled.run(1, kShort).compared, 1);
#if !defined(__SANITIZE_THREAD__)  // TSan forbids new threads in the child of a threaded process
      EXPECT_EQ(compiled.run_apart(0, kShort).compared, static_cast<int>(schedules.size()));
#endif
    }
}

// A-15: what does not lower or compile is out, alone.
TEST(Trials, BadCandidatesAreLeftOut) {
  const std::vector<TunableKernel> kernels = tunable_kernels(parse_graph(testing::kLayer), {}, host_target());
  std::vector<Trial> trials;
  for (const TunableKernel& k : kernels) trials.push_back({&k, {default_schedule(k), "nonsense"}});
  MatmulSchedule s = *parse_matmul_schedule(default_schedule(kernels.at(0)));
  s.width = 1;  // its transposition has no vectors to swap
  trials[0].schedules.push_back(str(s));
  Trials compiled(trials, host_target(), 2);
  for (size_t i = 0; i < trials.size(); ++i) {
    const TrialResult r = compiled.run(i, kShort);
    EXPECT_EQ(r.compared, 1) << i;
    EXPECT_EQ(r.winner, 0);
  }
}

/// The kernel with one sum as a difference, or the other way round; nothing, where it has neither.
std::optional<TunableKernel> spoiled(TunableKernel k) {
  loop::Kernel* body = std::get_if<loop::Kernel>(&k.what);
  if (auto* matmul = std::get_if<MatmulCase>(&k.what); matmul && matmul->fused.epilogue)
    body = &matmul->fused.epilogue->kernel;
  if (!body) return std::nullopt;
  for (loop::Instr& i : body->body) {
    const bool sum = i.op == op("add");
    if (!sum && i.op != op("sub")) continue;
    i.op = sum ? op("sub") : op("add");
    return k;
  }
  return std::nullopt;
}

// A code generator that is wrong for some schedules must not be believed, however fast what it makes is.
TEST(Trials, WrongResultsAreLeftOut) {
  int matmuls = 0, rows = 0;
  for (const char* graph : {kBiased, testing::kLayer}) {
    for (const TunableKernel& k : tunable_kernels(parse_graph(graph), {}, host_target())) {
      const auto wrong = spoiled(k);
      const std::vector<std::string> schedules = candidate_schedules(k);
      if (!wrong || schedules.size() < 3) continue;
      ++(std::holds_alternative<MatmulCase>(k.what) ? matmuls : rows);
      for (const size_t right : {size_t{1}, schedules.size() - 1}) {
        size_t n = 0;  // candidates are made in order
        const auto lower = [&](const TunableKernel& good, const std::string& s, const CpuTarget& t) {
          return lower_alone(n++ < right ? good : *wrong, s, t);
        };
        Trials compiled({{&k, schedules}}, host_target(), 2, lower);
        const TrialResult r = compiled.run(0, kShort);
        EXPECT_EQ(r.compared, static_cast<int>(right)) << schedules[0];
        EXPECT_LT(r.winner, static_cast<int>(right));
      }
    }
  }
  EXPECT_GE(matmuls, 1);
  EXPECT_GE(rows, 1);
}

#if !defined(__SANITIZE_THREAD__)  // TSan forbids new threads in the child of a threaded process
/// A kernel that ends the process that runs it, and one that never ends.
LoweredProgram sabotaged(LoweredProgram p, const std::string& how) {
  KernelSource& k = p.kernels.front();
  k.text = fmt::format("extern \"C\" void {}(void* const*, const long* dims, long, long, void*) {{ {} }}\n",
                       k.symbols[0], how);
  return p;
}

// A-13: costs itself alone.
TEST(Trials, ACandidateThatCrashesOrHangsApartIsLeftOutAlone) {
  const std::vector<TunableKernel> kernels = tunable_kernels(parse_graph(testing::kDeep), {}, host_target());
  const TunableKernel& k = kernels.at(0);
  const std::vector<std::string> schedules = candidate_schedules(k);
  ASSERT_GE(schedules.size(), 4u);
  for (const char* how : {"__builtin_trap();", "for (volatile long forever = 1; forever;) {}"}) {
    for (const size_t bad : {size_t{1}, schedules.size() - 1}) {
      size_t n = 0;  // candidates are made in order
      const auto lower = [&](const TunableKernel& good, const std::string& s, const CpuTarget& t) {
        LoweredProgram p = lower_alone(good, s, t);
        return n++ == bad ? sabotaged(std::move(p), how) : p;
      };
      Trials compiled({{&k, schedules}}, host_target(), 2, lower);
      const TrialResult r = compiled.run_apart(0, kShort, Seconds(2));
      EXPECT_EQ(r.compared, static_cast<int>(schedules.size()) - 1);
      EXPECT_NE(r.winner, static_cast<int>(bad));
      EXPECT_GT(r.seconds, 0);
    }
  }
}
#endif

TEST(Trials, WithoutAGoodCandidateTheDefaultStays) {
  const std::vector<TunableKernel> kernels = tunable_kernels(parse_graph(testing::kDeep), {}, host_target());
  Trials none({{&kernels.at(0), {"nonsense", default_schedule(kernels[0])}}}, host_target(), 1);
  const TrialResult r = none.run(0, kShort);
  EXPECT_EQ(r.compared, 0);
  EXPECT_EQ(r.winner, 0);
}

}  // namespace KILN_FILE
}  // namespace kiln
