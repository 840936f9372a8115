// SPDX-License-Identifier: Apache-2.0
// Which nodes become loops over tiles, that the graph computes what it did, and where a causal mask ends the
// rows.
#include "ir/tile_loops.h"

#include <gmock/gmock.h>

#include <cmath>

#include "ir/interpret.h"
#include "tests/ir/attention_graph.h"
#include "tests/ir/random_graph.h"

namespace kiln {
namespace KILN_FILE {

using testing::Attention;
using testing::attention_graph;

float element(const TensorRef& t, int64_t e) {
  if (t.dtype == DType::bf16) return static_cast<float>(static_cast<const BFloat16*>(t.data)[e]);
  return static_cast<const float*>(t.data)[e];
}

/// The graph's loops; it must give what it gave before.
void find(const Graph& g, std::vector<TileLoop>& loops) {
  const auto tiled = tile_loops(g, 1);
  if (!tiled) return;
  loops = tiled->loops;
  verify(tiled->graph);
  EXPECT_EQ(tiled->source_of.size(), tiled->graph.nodes.size());
  const std::vector<HostTensor> inputs = testing::random_inputs(g, 7);
  const std::vector<HostTensor> want = interpret(g, inputs), views = interpret(tiled->graph, inputs);
  for (size_t i = 0; i < want.size(); ++i) {
    const HostTensor got = make_host_tensor(views[i].ref.dtype, views[i].ref.shape);
    copy_elements(views[i].ref, got.ref);
    for (int64_t e = 0; e < want[i].ref.numel(); ++e) {
      const float x = element(want[i].ref, e), y = element(got.ref, e);
      const float tolerance = (got.ref.dtype == DType::bf16 ? 0x1p-8f : 1e-5f) * std::max(1.0f, std::abs(x));
      ASSERT_NEAR(x, y, tolerance) << "output " << i << " of\n" << print(tiled->graph);
    }
  }
}
std::vector<TileLoop> loops_of(const Graph& g) {
  std::vector<TileLoop> loops;
  find(g, loops);
  return loops;
}

TEST(TileLoops, AForwardAndABackwardThatWaitsForItAreTwo) {
  const std::vector<TileLoop> loops = loops_of(attention_graph({.loss = true}));
  ASSERT_EQ(loops.size(), 2u);
  EXPECT_THAT(loops[0].extents, ::testing::ElementsAre(Dim(2), Dim(3), Dim(40), Dim(40)));
  EXPECT_EQ(loops[0].results.size(), 3u) << "the result, and two numbers for each row";
  EXPECT_EQ(loops[1].results.size(), 3u) << "the gradients";
  int sums = 0;
  for (const Value v : loops[1].results) sums += !loops[1].has(v, loops[1].rows());
  EXPECT_EQ(sums, 2) << "of keys and values";
}

TEST(TileLoops, ABackwardThatWaitsForNothingIsTheForwardsLoop) {
  const std::vector<TileLoop> loops = loops_of(attention_graph({}));
  ASSERT_EQ(loops.size(), 1u);
  EXPECT_EQ(loops[0].results.size(), 4u) << "nothing of a row is kept";
}

TEST(TileLoops, WhatStandsBetweenMayBeAnything) {
  EXPECT_EQ(loops_of(attention_graph({.bias = true, .loss = true})).size(), 2u);
  EXPECT_EQ(loops_of(attention_graph({.turned = true, .loss = true})).size(), 2u);
  EXPECT_EQ(loops_of(attention_graph({.causal = true, .dropout = true, .loss = true})).size(), 2u);
  EXPECT_EQ(loops_of(attention_graph({.causal = true, .bias = true, .loss = true})).size(), 2u);
  EXPECT_EQ(loops_of(attention_graph({.batch = 1, .heads = 4})).size(), 1u);
}

TEST(TileLoops, SumsOverRowsOfHalvesAreOfFloats) {
  const Graph g = attention_graph({.loss = true, .dtype = DType::bf16});
  ASSERT_EQ(loops_of(g).size(), 2u);
  const TiledGraph tiled = *tile_loops(g, 1);
  int wide = 0;
  for (const TileLoop& l : tiled.loops)
    for (const Value v : l.results) {
      if (l.has(v, l.rows())) continue;
      EXPECT_EQ(tiled.graph.type(v).dtype, DType::f32) << "rounded once, behind the loop";
      ++wide;
    }
  EXPECT_EQ(wide, 2);
  EXPECT_EQ(loops_of(attention_graph({.turned = true, .loss = true, .dtype = DType::bf16})).size(), 2u)
      << "of columns that come last, too";
}

TEST(TileLoops, ACausalMaskEndsTheRows) {
  const auto diagonal = [](const Attention& a) {
    std::vector<std::optional<int64_t>> all;
    for (const TileLoop& l : loops_of(attention_graph(a))) all.push_back(l.diagonal);
    return all;
  };
  using ::testing::Each;
  EXPECT_THAT(diagonal({.causal = true, .loss = true}), Each(std::optional<int64_t>(0)));
  EXPECT_THAT(diagonal({.causal = true, .shift = 3, .loss = true}), Each(std::optional<int64_t>(3)));
  EXPECT_THAT(diagonal({.causal = true, .bias = true}), Each(std::optional<int64_t>(0)));
  EXPECT_THAT(diagonal({.bias = true}), Each(std::optional<int64_t>()));
}

TEST(TileLoops, ScoresThatSomebodyElseReadsStayInMemory) {
  Graph g = attention_graph({});
  const Value scores = g.nodes[0].out;
  ASSERT_EQ(g.nodes[0].op, op("dot_general"));
  g.add_output(scores);
  EXPECT_TRUE(loops_of(g).empty());
}

TEST(TileLoops, AMatrixSmallerThanWhatItIsMadeOfStays) {
  EXPECT_TRUE(loops_of(attention_graph({.queries = 8, .keys = 8, .size = 16})).empty());
  EXPECT_FALSE(tile_loops(attention_graph({}), 1 << 20)) << "38 KB";
  EXPECT_TRUE(loops_of(attention_graph({.queries = 600, .keys = 600, .size = 257})).empty())
      << "scores that cost more to make again than to keep";
  EXPECT_TRUE(loops_of(attention_graph({.batch = 1, .heads = 1})).empty()) << "gradients of one thread";
}

}  // namespace KILN_FILE
}  // namespace kiln
