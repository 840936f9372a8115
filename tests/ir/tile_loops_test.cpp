// SPDX-License-Identifier: Apache-2.0
// Which nodes become loops over tiles, that the graph computes what it did, and where causal masks and
// windows begin and end the rows.
#include "ir/tile_loops.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>

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

/// The columns that the rows of its loops have.
std::vector<Band> bands(const Attention& a) {
  std::vector<Band> all;
  for (const TileLoop& l : loops_of(attention_graph(a))) all.push_back(l.band);
  return all;
}

TEST(TileLoops, ACausalMaskEndsTheRows) {
  using ::testing::Each;
  EXPECT_THAT(bands({.causal = true, .loss = true}), Each(Band{{}, 0}));
  EXPECT_THAT(bands({.causal = true, .shift = 3, .loss = true}), Each(Band{{}, 3}));
  EXPECT_THAT(bands({.causal = true, .bias = true}), Each(Band{{}, 0}));
  EXPECT_THAT(bands({.causal = true, .dropout = true, .loss = true}), Each(Band{{}, 0}));
  EXPECT_THAT(bands({.bias = true}), Each(Band()));
}

TEST(TileLoops, AWindowBeginsAndEndsThem) {
  using ::testing::Each;
  EXPECT_THAT(bands({.causal = true, .window = 1, .loss = true}), Each(Band{0, 0}));
  EXPECT_THAT(bands({.causal = true, .window = 7, .loss = true}), Each(Band{-6, 0}));
  EXPECT_THAT(bands({.causal = true, .bias = true, .shift = 3, .window = 7}), Each(Band{-6, 3}));
  EXPECT_THAT(bands({.window = 1, .loss = true}), Each(Band{0, 0}));
  EXPECT_THAT(bands({.window = 7, .dropout = true, .loss = true}), Each(Band{-6, 6}));
}

const Shape kScores = {Dim(4), Dim(40), Dim(40)};

Value number(GraphBuilder& b, int64_t x) { return b.constant(static_cast<double>(x), {DType::i64, kScores}); }

/// The columns of the rows of exp(scores where mask else -inf) v.
Band band_of(const std::function<Value(GraphBuilder&, Value rows, Value columns)>& mask) {
  using Ints = std::vector<int64_t>;
  Graph g;
  GraphBuilder b(g);
  const Type x{DType::f32, {Dim(4), Dim(40), Dim(8)}}, all{DType::f32, kScores};
  const Value q = g.add_input(x, InputKind::arg, "q"), k = g.add_input(x, InputKind::arg, "k");
  const Value scores = b.emit(op("dot_general"), {q, k}, {Ints{0}, Ints{0}, Ints{2}, Ints{2}});
  const Value at = mask(b, b.emit(op("iota"), {}, {int64_t{1}, all.shape}),
                        b.emit(op("iota"), {}, {int64_t{2}, all.shape}));
  const Value p = b.emit(op("exp"), {b.emit(op("where"), {at, scores, b.constant(-INFINITY, all)})});
  g.add_output(b.emit(op("dot_general"), {p, k}, {Ints{0}, Ints{0}, Ints{2}, Ints{1}}));
  const std::vector<TileLoop> loops = loops_of(optimize(g));
  EXPECT_EQ(loops.size(), 1u);
  return loops.empty() ? Band() : loops[0].band;
}

TEST(TileLoops, AMaskIsAnythingThatComparesRowsWithColumns) {
  const auto is = [](const char* name, bool turned, int64_t by) {
    return [=](GraphBuilder& b, Value rows, Value columns) {
      const Value moved = b.emit(op("add"), {columns, number(b, by)});
      return turned ? b.emit(*find_op(name), {moved, rows}) : b.emit(*find_op(name), {rows, moved});
    };
  };
  EXPECT_EQ(band_of(is("ge", false, 5)), (Band{{}, -5}));
  EXPECT_EQ(band_of(is("gt", false, 5)), (Band{{}, -6}));
  EXPECT_EQ(band_of(is("le", false, 5)), (Band{-5, {}}));
  EXPECT_EQ(band_of(is("lt", false, 5)), (Band{-4, {}}));
  EXPECT_EQ(band_of(is("ge", true, 5)), (Band{-5, {}}));
  EXPECT_EQ(band_of(is("gt", true, -5)), (Band{6, {}}));
  EXPECT_EQ(band_of(is("le", true, 5)), (Band{{}, -5}));
  EXPECT_EQ(band_of(is("lt", true, 5)), (Band{{}, -6}));
}

TEST(TileLoops, MasksOfDistances) {
  using Make = std::function<Value(GraphBuilder&, Value, Value)>;
  const auto size = [](const char* name, bool turned, int64_t bound) -> Make {
    return [=](GraphBuilder& b, Value rows, Value columns) {
      const Value three = b.emit(op("sub"), {b.emit(op("sub"), {rows, columns}), number(b, 3)});
      const Value x = b.emit(op("abs"), {turned ? b.emit(op("neg"), {three}) : three});
      const Value n = number(b, bound);
      return turned ? b.emit(*find_op(name), {n, x}) : b.emit(*find_op(name), {x, n});
    };
  };
  const auto no = [](const Make& make) -> Make {
    return [=](GraphBuilder& b, Value rows, Value columns) {
      return b.emit(op("logical_not"), {make(b, rows, columns)});
    };
  };
  EXPECT_EQ(band_of(size("lt", false, 5)), (Band{-7, 1}));
  EXPECT_EQ(band_of(size("le", false, 5)), (Band{-8, 2}));
  EXPECT_EQ(band_of(size("gt", true, 5)), (Band{-7, 1}));
  EXPECT_EQ(band_of(size("ge", true, 5)), (Band{-8, 2}));
  EXPECT_EQ(band_of(no(size("ge", false, 5))), (Band{-7, 1}));
  EXPECT_EQ(band_of(no(size("gt", false, 5))), (Band{-8, 2}));
  EXPECT_EQ(band_of(size("gt", false, 5)), Band()) << "all but a window";
  const auto either = [&](GraphBuilder& b, Value rows, Value columns) {
    const Value causal = b.emit(op("ge"), {rows, columns});
    return b.emit(op("logical_or"), {causal, size("lt", false, 9)(b, rows, columns)});
  };
  EXPECT_EQ(band_of(either), (Band{{}, 5})) << "what either of two masks leaves";
}

/// A window whose size is known when the loop runs.
TEST(TileLoops, MasksOfScalars) {
  for (const bool causal : {true, false}) {
    const Band band = band_of([&](GraphBuilder& b, Value rows, Value columns) {
      const Value size = b.expand(b.graph.add_input({DType::i64, {}}, InputKind::scalar, "size"), kScores);
      const Value d = b.emit(op("sub"), {rows, columns});
      if (!causal) return b.emit(op("lt"), {b.emit(op("abs"), {d}), size});
      return b.emit(op("logical_and"), {b.emit(op("ge"), {rows, columns}), b.emit(op("lt"), {d, size})});
    });
    ASSERT_TRUE(band.first && band.last);
    EXPECT_EQ(band.first->number, 1);
    EXPECT_EQ(band.first->times, -1) << "row - size + 1";
    EXPECT_EQ(band.last->number, causal ? 0 : -1);
    EXPECT_EQ(band.last->times, causal ? 0 : 1);
  }
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
