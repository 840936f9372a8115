// SPDX-License-Identifier: Apache-2.0
// Reading and writing at places that tensors name: negative and doubled indices, masks, empty ones; eager and
// compiled; and what is refused.
#include "frontend/ops_index.h"

#include <cmath>

#include "frontend/compile.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

Tensor grid(Sizes sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return arange(n, {.dtype = DType::f32}).view(std::move(sizes));
}
/// The same eagerly and compiled.
template <typename F>
Floats both_ways(const F& f) {
  const Floats eager = values(f());
  auto g = compile(f);
  EXPECT_EQ(values(g()), eager);
  EXPECT_EQ(values(g()), eager);
  return eager;
}

TEST(Index, NumbersSlicesAndNewDimsAreViews) {
  const Tensor x = grid({3, 4, 5});
  EXPECT_EQ(index(x, {1}).sizes(), (Sizes{4, 5}));
  EXPECT_EQ(index(x, {Ellipsis{}, -1}).sizes(), (Sizes{3, 4}));
  EXPECT_EQ(index(x, {Slice{1}, NewDim{}, 2}).sizes(), (Sizes{2, 1, 5}));
  Tensor y = x.clone();
  index(y, {0, Slice{{}, {}, 2}}).fill_(-1);
  EXPECT_EQ(values(index(y, {0, Slice{}, 0})), (Floats{-1, 5, -1, 15}));
}

TEST(Index, TensorsBroadcastAndStandWhereTheyStood) {
  const Tensor x = grid({3, 4, 5}), i = ids({2, 0}), j = ids({-1, 1});
  EXPECT_EQ(index(x, {i, j}).sizes(), (Sizes{2, 5}));
  EXPECT_EQ(index(x, {Slice{}, i}).sizes(), (Sizes{3, 2, 5}));
  EXPECT_EQ(index(x, {i, Slice{}, j}).sizes(), (Sizes{2, 4}));  // apart: in front
  EXPECT_EQ(index(x, {unsqueeze(i, 1), j}).sizes(), (Sizes{2, 2, 5}));
  EXPECT_EQ(both_ways([&] { return index(x, {i, Slice{}, j}); }), (Floats{44, 49, 54, 59, 1, 6, 11, 16}));
  EXPECT_EQ(index(x, {ids({})}).sizes(), (Sizes{0, 4, 5}));
}

TEST(Index, MasksTakeWhatIsSet) {
  const Tensor x = grid({2, 3}), mask = gt(x, 2.5);
  EXPECT_EQ(both_ways([&] { return index(x, {mask}); }), (Floats{3, 4, 5}));
  EXPECT_EQ(both_ways([&] { return index(x, {Slice{}, gt(ids({0, 1, 2}), 0)}); }), (Floats{1, 2, 4, 5}));
  EXPECT_EQ(index(x, {gt(x, 100.0)}).sizes(), (Sizes{0}));
  EXPECT_EQ(both_ways([&] { return masked_select(x, gt(ids({0, 1, 2}), 0)); }), (Floats{1, 2, 4, 5}));
}

TEST(Index, AMaskWithAnotherCountTakesAnotherNumber) {
  const Tensor x = grid({5});
  auto f = compile([&](const Tensor& limit) { return masked_select(x, gt(x, limit)); });
  EXPECT_EQ(values(f(vec({2.5f}))), (Floats{3, 4}));
  EXPECT_EQ(values(f(vec({0.5f}))), (Floats{1, 2, 3, 4}));
  EXPECT_EQ(values(f(vec({9}))), Floats{});
  EXPECT_EQ(values(f(vec({2.5f}))), (Floats{3, 4}));
}

TEST(IndexPut, DoubledPlacesAddUpOrKeepTheLast) {
  const Tensor x = zeros({4}), i = ids({1, -3, 2}), v = vec({1, 2, 3});
  EXPECT_EQ(both_ways([&] { return index_put(x, {i}, v, true); }), (Floats{0, 3, 3, 0}));
  EXPECT_EQ(both_ways([&] { return index_put(x, {i}, v); }), (Floats{0, 2, 3, 0}));
  Tensor y = zeros({2, 3});
  index_put_(y, {Slice{}, ids({2, 0})}, mat({1, 2, 3, 4}, {2, 2}));
  EXPECT_EQ(values(y), (Floats{2, 0, 1, 4, 0, 3}));
  index_put_(y, {gt(y, 2.0)}, vec({9}));
  EXPECT_EQ(values(y), (Floats{2, 0, 1, 9, 0, 9}));
}

TEST(IndexPut, GradientsOfWhatWasReplacedAreZero) {
  Tensor x = vec({1, 2, 3}, true), v = vec({5, 6}, true);
  sum(index_put(x, {ids({0, 2})}, v) * vec({1, 10, 100})).backward();
  EXPECT_EQ(values(x.grad()), (Floats{0, 10, 0}));
  EXPECT_EQ(values(v.grad()), (Floats{1, 100}));
}

TEST(Scatter, PartsSmallerThanX) {
  const Tensor x = zeros({3, 4}), i = Tensor::from_vector<int64_t>({3, 0, 1, 1}, {2, 2});
  const Tensor src = mat({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(both_ways([&] { return scatter(x, 1, i, src); }), (Floats{2, 0, 0, 1, 0, 5, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(both_ways([&] { return scatter(x, 0, remainder(i, 3), 7.0); }),
            (Floats{7, 7, 0, 0, 7, 7, 0, 0, 0, 0, 0, 0}));
}

TEST(ScatterReduce, WithAndWithoutWhatWasThere) {
  const Tensor x = vec({10, 20, 30}), i = ids({0, 0, 2}), s = vec({1, 5, 40});
  const auto run = [&](ScatterReduce how, bool self) {
    return both_ways([&] { return scatter_reduce(x, 0, i, s, how, self); });
  };
  EXPECT_EQ(run(ScatterReduce::mean, true), (Floats{16.f / 3, 20, 35}));
  EXPECT_EQ(run(ScatterReduce::mean, false), (Floats{3, 20, 40}));
  EXPECT_EQ(run(ScatterReduce::prod, false), (Floats{5, 20, 40}));
  EXPECT_EQ(run(ScatterReduce::amax, true), (Floats{10, 20, 40}));
  EXPECT_EQ(run(ScatterReduce::amin, false), (Floats{1, 20, 40}));
  // Integers have no infinity to begin with.
  const Tensor n = scatter_reduce(ids({9, 9}), 0, ids({1, 1}), ids({-7, -8}), ScatterReduce::amax, false);
  EXPECT_EQ(n.to_vector<int64_t>(), (std::vector<int64_t>{9, -7}));
}

TEST(Masks, NonzeroAndMaskedScatter) {
  EXPECT_EQ(nonzero(mat({0, 1, 2, 0}, {2, 2})).to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 1, 0}));
  EXPECT_EQ(nonzero(full({}, 3.0)).sizes(), (Sizes{1, 0}));
  EXPECT_EQ(nonzero(zeros({0, 4})).sizes(), (Sizes{0, 2}));
  const Tensor x = zeros({4}), mask = gt(vec({1, 0, 1, 1}), 0.5);
  EXPECT_EQ(both_ways([&] { return masked_scatter(x, mask, vec({7, 8, 9, 10})); }), (Floats{7, 0, 8, 9}));
  EXPECT_ERROR(
      masked_scatter(x, mask, vec({7})),
      "invalid: masked_scatter (@): the number of set elements 3 is out of range; expected at most the "
      "1 of source");
}

TEST(EmbeddingBag, EmptyBagsAndTheLastOffset) {
  const Tensor w = grid({4, 2}), i = ids({1, 3, 3, 0});
  const EmbeddingBagOptions sums{.mode = BagMode::sum};
  EXPECT_EQ(both_ways([&] {
              return embedding_bag(i, w, ids({0, 2, 2}), sums);
            }),
            (Floats{8, 10, 0, 0, 6, 8}));
  EXPECT_EQ(values(embedding_bag(i, w, ids({0, 1, 3}), {.mode = BagMode::mean, .include_last_offset = true})),
            (Floats{2, 3, 6, 7}));
  EXPECT_EQ(both_ways([&] {
              return embedding_bag(i, w, ids({0, 2, 2}), {.mode = BagMode::max});
            }),
            (Floats{6, 7, 0, 0, 6, 7}));
  EXPECT_EQ(values(embedding_bag(i.view({2, 2}), w, {}, {.mode = BagMode::mean, .padding_idx = 3})),
            (Floats{2, 3, 0, 1}));
  EXPECT_ERROR(embedding_bag(i, w, ids({1, 2}), sums),
               "invalid: embedding_bag (@): offsets[0] 1 is out of range; expected 0");
  EXPECT_ERROR(
      embedding_bag(ids({4}).view({1, 1}), w, {}, sums),
      "invalid: embedding_bag (@): ids 4 is out of range; expected 0 to 3, the rows of weight f32[4,2]");
}

TEST(Index, Refusals) {
  const Tensor x = grid({3, 4});
  EXPECT_ERROR(index(x, {1, 2, 3}), "invalid: index (@): too many indices; got 3 for x f32[3,4]");
  EXPECT_ERROR(index(x, {ids({3})}), "invalid: index (@): indices[0] 3 is out of range; expected -3 to 2");
  EXPECT_ERROR(index(x, {vec({1})}),
               "invalid: index (@): got indices[0] f32[1], expected i64 or i32 (cast it with to())");
  EXPECT_ERROR(index(x, {ids({0, 1}), ids({0, 1, 2})}),
               "invalid: index (@): indices do not broadcast; got indices[1] i64[3] beside [2]");
  EXPECT_ERROR(index(x, {gt(vec({1, 2}), 0)}),
               "invalid: index (@): mask indices[0] bool[2] does not fit dims 0 to 0 of x f32[3,4]");
  EXPECT_ERROR(index_put(x, {ids({0})}, vec({1, 2, 3})),
               "invalid: index_put (@): values f32[3] do not broadcast to [1,4]");
  EXPECT_ERROR(
      scatter(x, 0, zeros({4, 4}, {.dtype = DType::i64}), zeros({3, 4})),
      "invalid: scatter (@): got index i64[4,4] and src f32[3,4] for x f32[3,4], expected equal ranks, "
      "and an index no larger than src or, beside dim 0, than x");
  EXPECT_ERROR(take(x, ids({12})), "invalid: take (@): index 12 is out of range; expected -12 to 11");
}

}  // namespace KILN_FILE
}  // namespace kiln
