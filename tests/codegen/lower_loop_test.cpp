// SPDX-License-Identifier: Apache-2.0
// Loops over tiles: attention and its backward compiled without a matrix of scores, against the interpreter;
// sizes that tiles do not divide, masks, dtypes, and the same bits from any number of threads.
#include <gmock/gmock.h>

#include "ir/tile_loops.h"
#include "tests/codegen/fuzz_case.h"
#include "tests/ir/attention_graph.h"

namespace kiln {
namespace KILN_FILE {

using testing::Attention;

void check(const Attention& a) {
  SCOPED_TRACE(fmt::format("{} {} {}x{} {}{}{}{}{}{} {}", a.batch, a.heads, a.queries, a.keys,
                           dtype_name(a.dtype), a.causal ? " causal" : "", a.bias ? " bias" : "",
                           a.dropout ? " dropout" : "", a.turned ? " turned" : "", a.loss ? " loss" : "",
                           a.shift));
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
