// SPDX-License-Identifier: Apache-2.0
// Functions of shape: values, which of them are views, gradients by differences, empty and 0-d tensors,
// errors.
#include "frontend/shapes.h"

#include "frontend/vision.h"
#include "tests/frontend/everywhere.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

using Numbers = std::vector<double>;

/// 0, 1, 2, ... in f64.
Tensor counted(Sizes sizes) {
  int64_t n = 1;
  for (int64_t d : sizes) n *= d;
  return arange(n, {DType::f64}).view(std::move(sizes));
}
Numbers numbers(int64_t n) {
  Numbers v;
  for (int64_t i = 0; i < n; ++i) v.push_back(0.5 * static_cast<double>(i) - 1);
  return v;
}

/// f of counted(in), everywhere; its gradient; and whether it shares memory with x.
struct Row {
  const char* name;
  std::function<Tensor(const Tensor&)> f;
  Sizes in, out;
  Numbers want;
  bool view;
};

const Row kRows[] = {
    {"squeeze", [](const Tensor& x) { return squeeze(x); }, {1, 2, 1}, {2}, {0, 1}, true},
    {"squeeze_dims",
     [](const Tensor& x) {
       return squeeze(x, Sizes{0, 1});
     },
     {1, 2, 1},
     {2, 1},
     {0, 1},
     true},
    {"movedim", [](const Tensor& x) { return movedim(x, 0, -1); }, {2, 3}, {3, 2}, {0, 3, 1, 4, 2, 5}, true},
    {"movedim_two",
     [](const Tensor& x) {
       return movedim(x, Sizes{0, 1}, Sizes{2, 0});
     },
     {2, 1, 2},
     {1, 2, 2},
     {0, 2, 1, 3},
     true},
    {"swapaxes", [](const Tensor& x) { return swapaxes(x, 0, 1); }, {2, 2}, {2, 2}, {0, 2, 1, 3}, true},
    {"unflatten",
     [](const Tensor& x) {
       return unflatten(x, 0, {2, -1});
     },
     {4},
     {2, 2},
     {0, 1, 2, 3},
     true},
    {"expand_as",
     [](const Tensor& x) {
       return expand_as(x, zeros({2, 2}));
     },
     {2},
     {2, 2},
     {0, 1, 0, 1},
     true},
    {"view_as",
     [](const Tensor& x) {
       return view_as(x, zeros({2, 1}));
     },
     {2},
     {2, 1},
     {0, 1},
     true},
    {"broadcast_to",
     [](const Tensor& x) {
       return broadcast_to(x, {2, 2});
     },
     {2, 1},
     {2, 2},
     {0, 0, 1, 1},
     true},
    {"atleast_3d", [](const Tensor& x) { return atleast_3d(x); }, {2}, {1, 2, 1}, {0, 1}, true},
    {"unbind", [](const Tensor& x) { return unbind(x, 1)[1]; }, {2, 2}, {2}, {1, 3}, true},
    {"tensor_split", [](const Tensor& x) { return tensor_split(x, 3)[0]; }, {4}, {2}, {0, 1}, true},
    {"tensor_split_at",
     [](const Tensor& x) {
       return tensor_split_at(x, {1, 3})[1];
     },
     {4},
     {2},
     {1, 2},
     true},
    {"split_with_sizes",
     [](const Tensor& x) {
       return split_with_sizes(x, {1, 3})[1];
     },
     {4},
     {3},
     {1, 2, 3},
     true},
    {"hstack",
     [](const Tensor& x) {
       return hstack({x, x});
     },
     {2, 1},
     {2, 2},
     {0, 0, 1, 1},
     false},
    {"hstack_vectors",
     [](const Tensor& x) {
       return hstack({x, x});
     },
     {2},
     {4},
     {0, 1, 0, 1},
     false},
    {"vstack",
     [](const Tensor& x) {
       return vstack({x, x});
     },
     {2},
     {2, 2},
     {0, 1, 0, 1},
     false},
    {"dstack",
     [](const Tensor& x) {
       return dstack({x, x});
     },
     {2},
     {1, 2, 2},
     {0, 0, 1, 1},
     false},
    {"meshgrid",
     [](const Tensor& x) {
       return meshgrid({x, x})[1];
     },
     {2},
     {2, 2},
     {0, 1, 0, 1},
     true},
    {"meshgrid_xy",
     [](const Tensor& x) {
       return meshgrid({x, x}, MeshIndexing::xy)[1];
     },
     {2},
     {2, 2},
     {0, 0, 1, 1},
     true},
    {"repeat",
     [](const Tensor& x) {
       return repeat(x, {2, 1, 2});
     },
     {2, 1},
     {2, 2, 2},
     {0, 0, 1, 1, 0, 0, 1, 1},
     false},
    {"repeat_none", [](const Tensor& x) { return repeat(x, {1}); }, {2}, {2}, {0, 1}, false},
    {"tile", [](const Tensor& x) { return tile(x, {2}); }, {1, 2}, {1, 4}, {0, 1, 0, 1}, false},
    {"repeat_interleave",
     [](const Tensor& x) { return repeat_interleave(x, 2, 1); },
     {1, 2},
     {1, 4},
     {0, 0, 1, 1},
     false},
    {"repeat_interleave_flat",
     [](const Tensor& x) { return repeat_interleave(x, 2); },
     {2, 1},
     {4},
     {0, 0, 1, 1},
     false},
    {"roll",
     [](const Tensor& x) {
       return roll(x, {1, -3}, {0, 1});
     },
     {2, 2},
     {2, 2},
     {3, 2, 1, 0},
     false},
    {"roll_flat", [](const Tensor& x) { return roll(x, {-1}); }, {2, 2}, {2, 2}, {1, 2, 3, 0}, false},
    {"rot90", [](const Tensor& x) { return rot90(x); }, {2, 2}, {2, 2}, {1, 3, 0, 2}, false},
    {"rot270", [](const Tensor& x) { return rot90(x, -1); }, {2, 2}, {2, 2}, {2, 0, 3, 1}, false},
    {"rot180", [](const Tensor& x) { return rot90(x, 2); }, {2, 2}, {2, 2}, {3, 2, 1, 0}, false},
    {"rot360", [](const Tensor& x) { return rot90(x, 4); }, {2, 2}, {2, 2}, {0, 1, 2, 3}, false},
    {"diagonal", [](const Tensor& x) { return diagonal(x); }, {2, 3}, {2}, {0, 4}, true},
    {"diagonal_above", [](const Tensor& x) { return diagonal(x, 1); }, {2, 3}, {2}, {1, 5}, true},
    {"diagonal_below", [](const Tensor& x) { return diagonal(x, -1); }, {3, 2}, {2}, {2, 5}, true},
    {"diagonal_turned", [](const Tensor& x) { return diagonal(t(x), -1); }, {2, 3}, {2}, {1, 5}, true},
    {"diagonal_batch",
     [](const Tensor& x) { return diagonal(x, 0, -1, 0); },
     {2, 2, 2},
     {2, 2},
     {0, 5, 2, 7},
     false},
    {"diagonal_none", [](const Tensor& x) { return diagonal(x, 5); }, {2, 2}, {0}, {}, false},
    {"diag", [](const Tensor& x) { return diag(x); }, {2, 2}, {2}, {0, 3}, false},
    {"diag_make",
     [](const Tensor& x) { return diag(x, -1); },
     {2},
     {3, 3},
     {0, 0, 0, 0, 0, 0, 0, 1, 0},
     false},
    {"diag_embed",
     [](const Tensor& x) { return diag_embed(x, 1, 1, 0); },
     {1, 2},
     {3, 3, 1},
     {0, 0, 0, 0, 0, 0, 0, 1, 0},
     false},
    {"pad",
     [](const Tensor& x) {
       return pad(x, {1, -1, 0, 1}, PadMode::constant, 9);
     },
     {1, 2},
     {2, 2},
     {9, 0, 9, 9},
     false},
    {"slice_scatter",
     [](const Tensor& x) { return slice_scatter(x, x.slice(0, 0, 2) * 0.0 - 1.0, 0, 0, 4, 2); },
     {4},
     {4},
     {-1, 1, -1, 3},
     false},
    {"select_scatter",
     [](const Tensor& x) { return select_scatter(x, x.select(1, 0), 1, -1); },
     {2, 2},
     {2, 2},
     {0, 0, 2, 2},
     false},
    {"diff", [](const Tensor& x) { return diff(x * x, 2); }, {4}, {2}, {2, 2}, false},
    {"as_strided",
     [](const Tensor& x) {
       return as_strided(x, {2, 2}, {1, 1}, 1);
     },
     {4},
     {2, 2},
     {1, 2, 2, 3},
     false},
    {"pixel_shuffle",
     [](const Tensor& x) { return pixel_shuffle(x, 2); },
     {4, 1, 2},
     {1, 2, 4},
     {0, 2, 1, 3, 4, 6, 5, 7},
     false},
    {"pixel_unshuffle",
     [](const Tensor& x) { return pixel_unshuffle(x, 2); },
     {1, 2, 4},
     {4, 1, 2},
     {0, 2, 1, 3, 4, 6, 5, 7},
     false},
    {"take_along_dim",
     [](const Tensor& x) {
       return take_along_dim(x, ids({1, 0}).view({1, 2}), 1);
     },
     {2, 2},
     {2, 2},
     {1, 0, 3, 2},
     false},
    {"take_along",
     [](const Tensor& x) {
       return take_along_dim(x, ids({3, 0}));
     },
     {2, 2},
     {2},
     {3, 0},
     false},
};

TEST(Shapes, ValuesAndGradients) {
  for (const Row& r : kRows) {
    const Tensor x = counted(r.in);
    EXPECT_EQ(r.f(x).sizes(), r.out) << r.name;
    EXPECT_EQ(everywhere([&](const Inputs& t) { return r.f(t[0]); }, {x}, r.name), r.want) << r.name;
    expect_gradients([&](const Inputs& t) { return r.f(t[0]); }, {numbers(x.numel())}, {r.in}, r.name);
  }
}

TEST(Shapes, ViewsShareMemoryAndCopiesDoNot) {
  for (const Row& r : kRows) {
    if (r.want.empty()) continue;
    const Tensor x = counted(r.in), y = r.f(x);
    Tensor(x).add_(100);
    EXPECT_EQ(doubles(y) != r.want, r.view) << r.name;
  }
}

TEST(Shapes, WritesThroughDiagonals) {
  Tensor x = zeros({2, 3});
  diagonal(x, 1).fill_(5);
  EXPECT_EQ(values(x), (Floats{0, 5, 0, 0, 0, 5}));
  diagonal(t(x), 0).add_(1);
  EXPECT_EQ(values(x), (Floats{1, 5, 0, 0, 1, 5}));
}

TEST(Shapes, Lists) {
  const auto parts = tensor_split(arange(7), 3);
  EXPECT_EQ(parts[0].numel() * 100 + parts[1].numel() * 10 + parts[2].numel(), 322);
  EXPECT_EQ(tensor_split(arange(2), 3)[2].numel(), 0);
  EXPECT_EQ(tensor_split_at(arange(4), {3, 1, 9}).size(), 4u);
  EXPECT_EQ(tensor_split_at(arange(4), {3, 1, 9})[1].numel(), 0);
  EXPECT_EQ(unbind(zeros({0, 2})).size(), 0u);
  const auto wide = broadcast_tensors({zeros({2, 1}), zeros({3})});
  EXPECT_EQ(wide[0].sizes(), (Sizes{2, 3}));
  EXPECT_EQ(wide[1].sizes(), (Sizes{2, 3}));
  EXPECT_EQ(atleast_1d(full({}, 1.0)).sizes(), (Sizes{1}));
  EXPECT_EQ(atleast_2d(vec({1, 2})).sizes(), (Sizes{1, 2}));
  EXPECT_EQ(atleast_3d(zeros({2, 3})).sizes(), (Sizes{2, 3, 1}));
  EXPECT_EQ(meshgrid({vec({1, 2}), vec({3}), full({}, 4.0)})[2].sizes(), (Sizes{2, 1, 1}));
  EXPECT_EQ(values(tril_indices(2, 3)), (Floats{0, 1, 1, 0, 0, 1}));
  EXPECT_EQ(values(triu_indices(2, 3, 1)), (Floats{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(tril_indices(0, 3).sizes(), (Sizes{2, 0}));
  EXPECT_EQ(values(tril_indices(3, 2, -1)), (Floats{1, 2, 2, 0, 0, 1}));
  EXPECT_EQ(values(triu_indices(3, 2, -1)), (Floats{0, 0, 1, 1, 2, 0, 1, 0, 1, 1}));
  constexpr int64_t kFar = int64_t{1} << 34, kMin = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(tril_indices(kFar, 1, -kFar).sizes(), (Sizes{2, 0}));
  EXPECT_EQ(tril_indices(kFar, 0).sizes(), (Sizes{2, 0}));
  EXPECT_EQ(triu_indices(kFar, 2, 1).sizes(), (Sizes{2, 1}));
  EXPECT_EQ(tril_indices(2, 2, kMin).sizes(), (Sizes{2, 0}));
  EXPECT_EQ(triu_indices(2, 2, kMin).sizes(), (Sizes{2, 4}));
  EXPECT_ERROR(tril_indices(kFar, kFar),
               "device: tril_indices (@): out of memory: no room for the indices of 17179869184 rows");
}

TEST(Shapes, NothingAndBool) {
  EXPECT_EQ(repeat(zeros({0, 2}), {3, 1}).sizes(), (Sizes{0, 2}));
  EXPECT_EQ(repeat(zeros({2}), {0}).sizes(), (Sizes{0}));
  EXPECT_EQ(roll(zeros({0, 2}), {1}, {0}).sizes(), (Sizes{0, 2}));
  EXPECT_EQ(diag(zeros({0})).sizes(), (Sizes{0, 0}));
  EXPECT_EQ(diag_embed(zeros({0}), 2).sizes(), (Sizes{2, 2}));
  EXPECT_EQ(pad(zeros({0}), {1, 1}).sizes(), (Sizes{2}));
  EXPECT_EQ(as_strided(zeros({0}), {0, 2}, {1, 1}).sizes(), (Sizes{0, 2}));
  EXPECT_EQ(values(diff(gt(vec({1, -1, -1}), 0))), (Floats{1, 0}));
  EXPECT_EQ(values(diff(ids({1}))), Floats{});
  EXPECT_EQ(values(pad(gt(vec({1}), 0), {0, 1}, PadMode::constant, 1)), (Floats{1, 1}));
  EXPECT_EQ(values(diag(gt(vec({1, -1}), 0))), (Floats{1, 0, 0, 0}));
}

TEST(Shapes, RepeatsByATensor) {
  const auto f = [](const Inputs& t) { return repeat_interleave(t[0], t[1], 0); };
  const Tensor x = counted({3, 1});
  auto fast = compile([&](const Inputs& t) { return f(t); });
  for (const auto& [repeats, want] : std::vector<std::pair<std::vector<int64_t>, Numbers>>{
           {{2, 0, 1}, {0, 0, 2}}, {{1, 1, 1}, {0, 1, 2}}, {{2}, {0, 0, 1, 1, 2, 2}}, {{0, 0, 0}, {}}}) {
    EXPECT_EQ(doubles(f({x, ids(repeats)})), want);
    EXPECT_EQ(doubles(fast(Inputs{x, ids(repeats)})), want);
  }
  Tensor w = vec({1, 2}, true);
  sum(repeat_interleave(w, ids({3, 1}))).backward();
  EXPECT_EQ(values(w.grad()), (Floats{3, 1}));
  EXPECT_ERROR(repeat_interleave(x, ids({1, 2}), 0),
               "invalid: repeat_interleave (@): got repeats i64[2] for dim 0 of x f64[3,1], expected one "
               "integer for each");
  EXPECT_ERROR(repeat_interleave(x, ids({-1}), 0),
               "invalid: repeat_interleave (@): -1 repeats, expected none below 0");
}

TEST(Indexing, OneHotAndCounts) {
  const Tensor i = ids({2, 0});
  EXPECT_EQ(everywhere([](const Inputs& t) { return one_hot(t[0], 3); }, {i}, "one_hot"),
            (Numbers{0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(one_hot(i).sizes(), (Sizes{2, 3}));
  EXPECT_EQ(one_hot(ids({1}).view({})).sizes(), (Sizes{2}));
  EXPECT_EQ(one_hot(zeros({0}, {DType::i64}), 4).sizes(), (Sizes{0, 4}));
  EXPECT_ERROR(one_hot(i, 2), "invalid: one_hot (@): index 2 is out of range; expected 0 to 1");
  EXPECT_ERROR(one_hot(vec({1})),
               "invalid: one_hot (@): got index f32[1], expected integers (cast it with to())");
  EXPECT_ERROR(one_hot(zeros({0}, {DType::i64})),
               "invalid: one_hot (@): how many classes index i64[0] has is not known (give classes)");
  EXPECT_EQ(values(bincount(ids({3, 1, 3}))), (Floats{0, 1, 0, 2}));
  EXPECT_EQ(values(bincount(ids({1}), {}, 4)), (Floats{0, 1, 0, 0}));
  EXPECT_EQ(values(bincount(ids({1, 1, 0}), vec({0.5f, 2, 4}))), (Floats{4, 2.5f}));
  EXPECT_EQ(bincount(zeros({0}, {DType::i64})).sizes(), (Sizes{0}));
  EXPECT_EQ(bincount(zeros({0}, {DType::i64}), {}, 2).sizes(), (Sizes{2}));
  EXPECT_ERROR(bincount(ids({-1, 2})), "invalid: bincount (@): x -1 is out of range; expected 0 to 2");
  EXPECT_ERROR(bincount(zeros({1, 1}, {DType::i64})),
               "invalid: bincount (@): got x i64[1,1] and minlength 0, expected a vector and none below 0");
  auto fast = compile([](const Tensor& x) { return bincount(x); });
  for (const std::vector<int64_t>& v : {std::vector<int64_t>{1, 1}, {4, 0}, {0, 0}})
    EXPECT_EQ(values(fast(ids(v))), values(bincount(ids(v))));
}

TEST(Shapes, RepeatedElementsCanBeWritten) {
  const auto f = [](const Tensor& x) {
    Tensor y = repeat(x, {2, 1});
    y.select(0, 0).add_(1);
    return y;
  };
  for (const bool compiled : {false, true})
    EXPECT_EQ(values(compiled ? compile(f)(vec({1, 2})) : f(vec({1, 2}))), (Floats{2, 3, 1, 2}));
}

TEST(Shapes, Errors) {
  const Tensor x = zeros({2, 3}), v = zeros({3}), u;
  EXPECT_ERROR(squeeze(x, Sizes{0, 0}), "invalid: squeeze (@): a dim is given twice in [0,0]");
  EXPECT_ERROR(movedim(x, Sizes{0}, Sizes{0, 1}),
               "invalid: movedim (@): got 1 source and 2 destination dims");
  EXPECT_ERROR(movedim(x, Sizes{0, 0}, Sizes{0, 1}), "invalid: movedim (@): a dim is given twice in [0,0]");
  EXPECT_ERROR(unflatten(x, 1, {2, -1}), "invalid: unflatten (@): dim 1 of x f32[2,3] is not [2,-1]");
  EXPECT_ERROR(unflatten(x, 1, {-1, -1}), "invalid: unflatten (@): bad sizes [-1,-1]");
  EXPECT_ERROR(split_with_sizes(v, {1, 1}),
               "invalid: split_with_sizes (@): sizes [1,1] do not add up to 3, dim 0 of x f32[3]");
  EXPECT_ERROR(tensor_split(v, 0), "invalid: tensor_split (@): 0 sections, expected at least one");
  EXPECT_ERROR(hstack({}), "invalid: hstack (@): tensors is empty, expected at least one");
  EXPECT_ERROR(meshgrid({x}),
               "invalid: meshgrid (@): got tensors[0] f32[2,3] beside tensors[0] f32[2,3], expected vectors "
               "of one dtype");
  EXPECT_ERROR(meshgrid({}), "invalid: meshgrid (@): tensors is empty, expected at least one");
  EXPECT_ERROR(
      repeat(x, {2}),
      "invalid: repeat (@): got repeats [2] for x f32[2,3], expected one for each dim, none below 0");
  EXPECT_ERROR(repeat(v, {int64_t{1} << 62}),
               fmt::format("invalid: repeat (@): bad repeats [{}]", int64_t{1} << 62));
  EXPECT_ERROR(repeat_interleave(v, -1, 0),
               "invalid: repeat_interleave (@): -1 repeats, expected none below 0");
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_ERROR(repeat_interleave(v, ids({most, 1, 1}), 0),
               "invalid: repeat_interleave (@): the repeats of x f32[3] are too many");
  EXPECT_NE(error_of([&] { repeat_interleave(v, ids({most / 16, 1, 1}), 0); }), "no error");
  EXPECT_ERROR(roll(v, {1, 2}), "invalid: roll (@): got 2 shifts and no dims, expected one");
  EXPECT_ERROR(roll(x, {1}, {0, 1}), "invalid: roll (@): got 1 shifts for 2 dims");
  EXPECT_ERROR(rot90(x, 1, {0, 0}), "invalid: rot90 (@): dim 0 is given twice");
  EXPECT_ERROR(rot90(v),
               "invalid: rot90 (@): got x f32[3] and 2 dims, expected at least two dims and two of them");
  EXPECT_ERROR(diagonal(v), "invalid: diagonal (@): got x f32[3], expected at least two dims");
  EXPECT_ERROR(diagonal(x, 0, 1, 1),
               "invalid: diagonal (@): got x f32[2,3] and dims 1 and 1, expected two dims");
  EXPECT_ERROR(diag(zeros({1, 1, 1})), "invalid: diag (@): got x f32[1,1,1], expected a vector or a matrix");
  EXPECT_ERROR(diag_embed(v, 0, 1, 1), "invalid: diag_embed (@): dims 1 and 1 are the same");
  EXPECT_ERROR(slice_scatter(v, v, 0, 1),
               "invalid: slice_scatter (@): got src f32[3] for x f32[3], expected f32[2]");
  EXPECT_ERROR(select_scatter(v, full({}, 1.0), 0, 3),
               "invalid: select_scatter (@): index 3 is out of range for dim 0 of x f32[3]");
  EXPECT_ERROR(diff(v, -1), "invalid: diff (@): got x f32[3] and n -1, expected at least one dim and n >= 0");
  EXPECT_ERROR(as_strided(v, {2, 2}, {1, 2}),
               "invalid: as_strided (@): sizes [2,2] of strides [1,2] from 0 on reach outside x f32[3]");
  EXPECT_ERROR(as_strided(t(x), {2}, {1}),
               "invalid: as_strided (@): x f32[3,2] of strides [1,3] is not contiguous (use contiguous())");
  EXPECT_ERROR(take_along_dim(x, ids({0}), 1),
               "invalid: take_along_dim (@): got x f32[2,3] and index i64[1], expected as many dims");
  EXPECT_ERROR(tril_indices(-1, 2), "invalid: tril_indices (@): bad sizes [-1,2]");
  EXPECT_ERROR(repeat(u, {1}), "invalid: repeat (@): x is undefined (give it a value first)");
  EXPECT_ERROR(diagonal(u), "invalid: diagonal (@): x is undefined (give it a value first)");
}

}  // namespace KILN_FILE
}  // namespace kiln
