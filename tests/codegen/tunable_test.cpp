// SPDX-License-Identifier: Apache-2.0
// The seam for choosing schedules: which kernels of a program can be chosen about, each of them run alone,
// and choices that reach the program, its cache key and never its bits (free parts).
#include "codegen/tunable.h"

#include <gtest/gtest.h>

#include <set>

#include "autotune/space.h"
#include "codegen/program_key.h"
#include "tests/autotune/graphs.h"
#include "tests/codegen/compiled.h"
#include "tests/ir/random_graph.h"

namespace kiln {
namespace KILN_FILE {

using testing::kDeep, testing::kLayer, testing::wide_schedules;

std::vector<HostTensor> run(const Graph& g, const LowerOptions& options, int threads) {
  const CompiledProgram p = compile_program(g, {}, host_target(), options, nullptr, 1);
  return testing::execute(g, *testing::load(p).exe, testing::random_inputs(g, 3), threads);
}

TEST(Tunable, KernelsOfAProgram) {
  const Graph g = parse_graph(kLayer);
  const std::vector<TunableKernel> kernels = tunable_kernels(g, {}, host_target());
  std::set<std::string> ids;
  int matmuls = 0;
  for (const TunableKernel& k : kernels) {
    ids.insert(k.id);
    matmuls += std::holds_alternative<MatmulCase>(k.what);
    EXPECT_EQ(k.id, kernel_id(k.what, host_target()));
    EXPECT_GT(k.bytes, 0);
    for (const int a : k.args) EXPECT_LT(static_cast<size_t>(a), k.buffers.size());
  }
  EXPECT_EQ(ids.size(), kernels.size());
  EXPECT_EQ(matmuls, 1);
  EXPECT_GT(static_cast<int>(kernels.size()), matmuls);
}

TEST(Tunable, KeyHasShapesAndTargetAndNothingElse) {
  const Graph g = parse_graph(kLayer);
  std::string other(kLayer);
  for (size_t at = 0; (at = other.find("96", at)) != std::string::npos;) other.replace(at, 2, "80");
  const auto keys = [](const Graph& graph, const char* target) {
    std::set<std::string> out;
    for (const TunableKernel& k : tunable_kernels(graph, {}, parse_target(target))) out.insert(k.key);
    return out;
  };
  const auto mine = keys(g, "x86-64-v3");
  EXPECT_EQ(mine, keys(g, "x86-64-v3"));
  for (const auto& k : keys(g, "x86-64-v4")) EXPECT_FALSE(mine.count(k));
  for (const auto& k : keys(parse_graph(other), "x86-64-v3")) EXPECT_FALSE(mine.count(k));
  for (const auto& k : mine) EXPECT_EQ(k.find('/'), k.npos) << "a path? " << k;
}

TEST(Tunable, OffChangesNothing) {
  const Graph g = parse_graph(kLayer);
  EXPECT_EQ(LowerOptions{}.str(), "fuse=true");
  // The default given as a choice is the same program.
  LowerOptions given;
  for (const TunableKernel& k : tunable_kernels(g, {}, host_target()))
    given.schedules[k.id] = default_schedule(k);
  const LoweredProgram a = lower(g, {}, host_target()), b = lower(g, {}, host_target(), given);
  EXPECT_EQ(a.kernels, b.kernels);
  EXPECT_EQ(serialize(a.plan), serialize(b.plan));
}

TEST(Tunable, ChoicesReachThePlanAndItsKey) {
  int by_rows = 0;
  for (const char* text : {kLayer, kDeep}) {
    const Graph g = parse_graph(text);
    const std::vector<HostTensor> want = run(g, {}, 1);
    for (const TunableKernel& k : tunable_kernels(g, {}, host_target()))
      for (const std::string& s : wide_schedules(k)) {
        if (s == default_schedule(k)) continue;
        LowerOptions options;
        options.schedules[k.id] = s;
        EXPECT_NE(program_key(g, {}, host_target(), options), program_key(g, {}, host_target(), {}));
        const std::vector<HostTensor> got = run(g, options, 2);
        const bool free = numeric_part(s) == numeric_part(default_schedule(k));
        by_rows += free && s.ends_with("by_rows");
        for (size_t i = 0; i < want.size(); ++i) {
          EXPECT_EQ(testing::difference(got[i], want[i], 96 * 64), "") << s;
          const size_t bytes = static_cast<size_t>(want[i].ref.numel()) * dtype_size(want[i].ref.dtype);
          if (!free) continue;
          EXPECT_EQ(std::memcmp(got[i].ref.data, want[i].ref.data, bytes), 0) << s;
        }
      }
  }
  EXPECT_GT(by_rows, 0);
}

TEST(Tunable, WrongTextIsTheDefaultInAProgramAndAnErrorAlone) {
  const Graph g = parse_graph(kLayer);
  for (const TunableKernel& k : tunable_kernels(g, {}, host_target())) {
    LowerOptions options;
    options.schedules[k.id] = "nonsense";
    EXPECT_EQ(lower(g, {}, host_target(), options).kernels, lower(g, {}, host_target()).kernels);
    EXPECT_THROW(lower_alone(k, "nonsense", host_target()), Error);
  }
}

TEST(Tunable, AloneIsASoundProgramOverExternals) {
  for (const char* text : {kLayer, kDeep})
    for (const TunableKernel& k : tunable_kernels(parse_graph(text), {}, host_target()))
      for (const std::string& s : wide_schedules(k)) {
        const LoweredProgram p = lower_alone(k, s, host_target());
        EXPECT_EQ(plan_fault(p.plan), "") << s;
        EXPECT_EQ(p.plan.external_count, static_cast<int>(k.buffers.size()));
        const auto* c = std::get_if<MatmulCase>(&k.what);
        const bool library = parse_blis_schedule(s).has_value();
        const bool apart = c && c->fused.epilogue && (library || has_epilogue_apart(s));
        EXPECT_EQ(p.kernels.size(), size_t{!library} + size_t{apart}) << s;
      }
}

}  // namespace KILN_FILE
}  // namespace kiln
