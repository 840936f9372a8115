// SPDX-License-Identifier: Apache-2.0
// Loops over tiles: attention and its backward compiled without a matrix of scores, against the interpreter;
// sizes that tiles do not divide, masks, dtypes, and the same bits from any number of threads.
#include <gmock/gmock.h>

#include <cmath>

#include "ir/tile_loops.h"
#include "tests/codegen/fuzz_case.h"
#include "tests/ir/attention_graph.h"

namespace kiln {
namespace KILN_FILE {

using testing::Attention;

void check(const Attention& a) {
  SCOPED_TRACE(fmt::format("{} {} {}x{} {}{}{}{}{}{} {} {}", a.batch, a.heads, a.queries, a.keys,
                           dtype_name(a.dtype), a.causal ? " causal" : "", a.bias ? " bias" : "",
                           a.dropout ? " dropout" : "", a.turned ? " turned" : "", a.loss ? " loss" : "",
                           a.shift, a.window));
  const Graph g = testing::attention_graph(a);
  ASSERT_TRUE(tile_loops(g, 1)) << print(g);
  const testing::GraphCase c = {g, testing::random_inputs(g, 5)};
  const testing::Loaded loaded =
      testing::load(compile_program(g, {}, host_target(), {.loop_bytes = 1}, nullptr, 1));
  const std::vector<HostTensor> got = testing::execute(g, *loaded.exe, c.inputs, 1);
  EXPECT_EQ(testing::fault(c, got), "") << print(g);
  const std::vector<HostTensor> again = testing::execute(g, *loaded.exe, c.inputs, 3);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(testing::equal_bits(got[i], again[i])) << i;
}

TEST(LoopsOverTiles, AttentionAndItsBackward) {
  check({});
  check({.loss = true});
  check({.bias = true, .loss = true});
  check({.turned = true, .loss = true});
  check({.dropout = true, .loss = true});
  check({.dtype = DType::f64});
  check({.batch = 1, .heads = 4, .queries = 300, .keys = 300, .loss = true});
}

TEST(LoopsOverTiles, SumsOverTilesOfHalvesAreWide) {
  for (const DType t : {DType::bf16, DType::f16}) {
    check({.dtype = t});
    check({.loss = true, .dtype = t});
    check({.queries = 200, .keys = 200, .causal = true, .turned = true, .dtype = t});
    check({.batch = 1, .heads = 4, .queries = 300, .keys = 129, .size = 32, .loss = true, .dtype = t});
  }
}

TEST(LoopsOverTiles, CausalMasks) {
  check({.causal = true, .turned = true, .loss = true});
  check({.queries = 200, .keys = 200, .causal = true, .bias = true});
  check({.queries = 200, .keys = 200, .causal = true, .dropout = true, .loss = true});
  check({.queries = 150, .keys = 33, .causal = true, .loss = true});
  check({.queries = 70, .keys = 160, .causal = true, .shift = 90, .loss = true});
}

TEST(LoopsOverTiles, Windows) {
  for (const int64_t window : {1, 7, 64, 100, 500}) {
    check({.queries = 200, .keys = 200, .causal = true, .window = window, .loss = true});
    check({.queries = 333, .keys = 333, .window = window, .loss = true});
  }
  check({.queries = 200, .keys = 200, .causal = true, .bias = true, .window = 20});
  check({.queries = 200, .keys = 200, .window = 20, .dropout = true, .turned = true, .loss = true});
  check({.queries = 100, .keys = 260, .causal = true, .shift = 150, .window = 30, .loss = true});
  check({.queries = 200, .keys = 200, .causal = true, .window = 30, .loss = true, .dtype = DType::bf16});
}

/// The loops' products, and the bytes of a thread's scratch.
std::pair<int64_t, int64_t> cost(const Attention& a) {
  const LoweredProgram p = lower(testing::attention_graph(a), {}, host_target(), {.loop_bytes = 1});
  int64_t flops = 0, scratch = 0;
  const auto value = [&](DimIndex i) { return p.plan.dims[static_cast<size_t>(i)].value(); };
  for (const ProfileRow& r : p.plan.profile) flops += value(r.flops);
  for (const Launch& l : p.plan.launches)
    if (l.scratch_bytes >= 0) scratch = std::max(scratch, value(l.scratch_bytes));
  return {flops, scratch};
}

TEST(LoopsOverTiles, OnlyAWindowIsComputed) {
  const auto of = [](int64_t length, int64_t window, bool causal) {
    return cost({.queries = length, .keys = length, .causal = causal, .window = window, .loss = true});
  };
  for (const bool causal : {false, true}) {
    const auto [flops, scratch] = of(512, 20, causal);
    const auto [twice_flops, same_scratch] = of(1024, 20, causal);
    EXPECT_NEAR(static_cast<double>(twice_flops) / static_cast<double>(flops), 2, 0.01);
    EXPECT_EQ(scratch, same_scratch);
    EXPECT_LT(twice_flops, of(1024, 0, causal).first / 7) << "104 or 83 of 1,024 columns";
    EXPECT_LT(scratch, of(512, 0, causal).second / 2);
  }
}

/// What a row does not see is not read: NaN of its keys do not show.
TEST(LoopsOverTiles, ColumnsOutsideOfAWindowAreNotRead) {
  const Graph g = testing::attention_graph({.queries = 200, .keys = 200, .window = 10});
  std::vector<HostTensor> inputs = testing::random_inputs(g, 5);
  const TensorRef& values = inputs[2].ref;
  for (const int64_t key : {0, 199})
    for (int64_t d = 0; d < 8; ++d) static_cast<float*>(values.data)[key * 8 + d] = NAN;
  const testing::Loaded loaded =
      testing::load(compile_program(g, {}, host_target(), {.loop_bytes = 1}, nullptr, 1));
  const std::vector<HostTensor> got = testing::execute(g, *loaded.exe, inputs, 1);
  const auto* y = static_cast<const float*>(got[0].ref.data);
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_TRUE(std::isnan(y[199 * 8]));
  for (int64_t e = 64 * 8; e < 128 * 8; ++e) ASSERT_TRUE(std::isfinite(y[e])) << e;
}

TEST(LoopsOverTiles, RowsThatTilesDoNotDivide) {
  for (const int64_t rows : {5, 63, 64, 65, 129})
    check({.queries = rows, .keys = 257, .size = 4, .bias = true, .loss = true});
}

TEST(LoopsOverTiles, MoreColumnsThanAreMultipliedAtATime) {
  check({.batch = 1, .heads = 4, .queries = 70, .keys = 2100, .size = 64});
  check({.batch = 1,
         .heads = 4,
         .queries = 70,
         .keys = 1100,
         .size = 8,
         .causal = true,
         .shift = 1030,
         .loss = true});
}

// What one loop needs must not stand in another's way.
TEST(LoopsOverTiles, SeveralShareASource) {
  const std::vector<Graph> graphs = {testing::attention_graph({.queries = 70, .loss = true}),
                                     testing::attention_graph({.queries = 129, .causal = true})};
  const CompiledBatch batch = compile_batch(graphs, host_target(), {.loop_bytes = 1}, 1);
  EXPECT_EQ(batch.plans.size(), 2u);
}

}  // namespace KILN_FILE
}  // namespace kiln
