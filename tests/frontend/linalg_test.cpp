// SPDX-License-Identifier: Apache-2.0
// Linear algebra and einsum: values by loops, gradients by differences, integers, empty sums, errors.
#include "frontend/linalg.h"

#include "tests/frontend/everywhere.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

using Numbers = std::vector<double>;

Tensor f64(const Numbers& v, Sizes sizes) { return Tensor::from_vector(v, std::move(sizes)); }
/// 1, 2, 3, ... scaled.
Numbers counted(int64_t n, double by = 0.25) {
  Numbers v;
  for (int64_t i = 0; i < n; ++i) v.push_back(by * static_cast<double>(i + 1) - 1);
  return v;
}
int64_t product(const Sizes& s) {
  int64_t n = 1;
  for (int64_t d : s) n *= d;
  return n;
}

TEST(Linalg, FixedRanks) {
  const Tensor m = mat({1, 2, 3, 4}, {2, 2}), v = vec({1, -1}), b = m.view({1, 2, 2});
  EXPECT_EQ(values(mm(m, m)), (Floats{7, 10, 15, 22}));
  EXPECT_EQ(values(mv(m, v)), (Floats{-1, -1}));
  EXPECT_EQ(dot(v, v).item(), 2);
  EXPECT_EQ(values(bmm(b, b)), (Floats{7, 10, 15, 22}));
  EXPECT_EQ(mm(zeros({2, 0}), zeros({0, 3})).sizes(), (Sizes{2, 3}));
  EXPECT_ERROR(mm(m, v), "invalid: mm (@): got a f32[2,2] and b f32[2], expected 2 and 2 dims");
  EXPECT_ERROR(mv(m, vec({1})),
               "invalid: mv (@): inner dims differ; got a f32[2,2] and b f32[1], expected 2 == 1");
  EXPECT_ERROR(dot(v, v.to(DType::f64)),
               "invalid: dot (@): dtypes differ; got a f32[2] and b f64[2] (cast one with to())");
  EXPECT_ERROR(bmm(b, zeros({2, 2, 2})),
               "invalid: bmm (@): batches differ; got a f32[1,2,2] and b f32[2,2,2], expected 1 == 2");
}

TEST(Linalg, SumsWithProducts) {
  const Numbers x = {0.5, -1}, a = {1, 2, 3, 4}, b = {2, 0, 1, -1};
  const auto f = [](const Inputs& t) { return addmm(t[0], t[1], t[2], 0.5, 2); };
  expect_close(everywhere(f, {f64(x, {2}), f64(a, {2, 2}), f64(b, {2, 2})}, "addmm"),
               {8.25, -4.5, 20.25, -8.5}, "addmm");
  expect_gradients(f, {x, a, b}, {{2}, {2, 2}, {2, 2}}, "addmm");
  const auto batched = [](const Inputs& t) { return baddbmm(t[0], t[1], t[2], 2, 0.5); };
  expect_gradients(batched, {{1}, counted(8), counted(8, -0.5)}, {{1}, {2, 2, 2}, {2, 2, 2}}, "baddbmm");
  const auto added = [](const Inputs& t) { return addbmm(t[0], t[1], t[2]); };
  expect_gradients(added, {x, counted(8), counted(8, -0.5)}, {{2}, {2, 2, 2}, {2, 2, 2}}, "addbmm");
  const Tensor p = f64(counted(8), {2, 2, 2}), q = f64(counted(8, -0.5), {2, 2, 2});
  expect_close(everywhere(added, {f64({0}, {1}), p, q}, "addbmm"), doubles(sum(matmul(p, q), {0})), "addbmm");
  expect_gradients([](const Inputs& t) { return addmv(t[0], t[1], t[2], 3, -1); }, {x, a, {1, 2}},
                   {{2}, {2, 2}, {2}}, "addmv");
  expect_gradients([](const Inputs& t) { return addr(t[0], t[1], t[2], 3, -1); }, {x, x, {1, 2}},
                   {{2}, {2}, {2}}, "addr");
  EXPECT_EQ(values(addr(zeros({2, 2}), vec({1, 2}), vec({3, 4}))), (Floats{3, 4, 6, 8}));
  EXPECT_EQ(values(addmm(ids({1}).view({1, 1}), ids({2}).view({1, 1}), ids({3}).view({1, 1}), 2, 3)),
            (Floats{20}));
}

TEST(Linalg, BetaZeroDoesNotRead) {
  Tensor x = vec({NAN}, true), m = mat({2}, {1, 1});
  const Tensor y = addmm(x, m, m, 0);
  EXPECT_EQ(y.item(), 4);
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), (Floats{0}));
  const Tensor i = ids({1}).view({1, 1}), wide = zeros({2, 2, 2});
  EXPECT_ERROR(addmm(i, i, i, 0.5),
               "invalid: addmm (@): beta is 0.5, expected a whole number for x i64[1,1]");
  EXPECT_ERROR(addmm(wide, m, m),
               "invalid: addmm (@): x f32[2,2,2] does not broadcast to the product [1,1] of a f32[1,1] and b "
               "f32[1,1]");
  EXPECT_ERROR(addmm(i, m, m),
               "invalid: addmm (@): dtypes differ; got x i64[1,1] and a f32[1,1] (cast one with to())");
}

struct EinsumRow {
  const char* equation;
  std::vector<Sizes> in;
  Sizes out;
  /// The same made of other functions.
  std::function<Tensor(const Inputs&)> formula;
};

const std::vector<EinsumRow>& einsum_rows() {
  static const std::vector<EinsumRow> rows = {
      {"ij,jk->ik", {{2, 3}, {3, 2}}, {2, 2}, [](const Inputs& t) { return matmul(t[0], t[1]); }},
      {"ij, kj",
       {{2, 3}, {4, 3}},
       {2, 4},
       [](const Inputs& t) { return matmul(t[0], transpose(t[1], 0, 1)); }},
      {"ba", {{2, 3}}, {3, 2}, [](const Inputs& t) { return transpose(t[0], 0, 1); }},
      {"aB->", {{2, 3}}, {}, [](const Inputs& t) { return sum(t[0]); }},
      {"i,i->i", {{3}, {3}}, {3}, [](const Inputs& t) { return t[0] * t[1]; }},
      {"i,j->ji", {{2}, {3}}, {3, 2}, [](const Inputs& t) { return transpose(outer(t[0], t[1]), 0, 1); }},
      {"bij,bjk->bik", {{2, 2, 3}, {2, 3, 2}}, {2, 2, 2}, [](const Inputs& t) { return matmul(t[0], t[1]); }},
      {"...ij,...jk->...ik",
       {{2, 1, 2, 3}, {4, 3, 2}},
       {2, 4, 2, 2},
       [](const Inputs& t) { return matmul(t[0], t[1]); }},
      {"...j,j", {{2, 3}, {3}}, {2}, [](const Inputs& t) { return matmul(t[0], t[1]); }},
      {"...->", {{2, 3}}, {}, [](const Inputs& t) { return sum(t[0]); }},
      {"i...->...i",
       {{2, 3, 4}},
       {3, 4, 2},
       [](const Inputs& t) {
         return permute(t[0], {1, 2, 0});
       }},
      {"ij,jk,kl->il",
       {{2, 3}, {3, 2}, {2, 4}},
       {2, 4},
       [](const Inputs& t) { return matmul(matmul(t[0], t[1]), t[2]); }},
      {"ij,i,j->", {{2, 3}, {2}, {3}}, {}, [](const Inputs& t) { return matmul(t[1], matmul(t[0], t[2])); }},
      {"ij,ij->", {{2, 3}, {2, 3}}, {}, [](const Inputs& t) { return sum(t[0] * t[1]); }},
      {"ij,j->i", {{2, 1}, {3}}, {2}, [](const Inputs& t) { return t[0].view({2}) * sum(t[1]); }},
      {"ij,kl->ik",
       {{2, 3}, {2, 2}},
       {2, 2},
       [](const Inputs& t) { return outer(sum(t[0], {1}), sum(t[1], {1})); }},
      {",i->i", {{}, {3}}, {3}, [](const Inputs& t) { return t[0] * t[1]; }},
  };
  return rows;
}

TEST(Einsum, IsTheFormula) {
  for (const EinsumRow& r : einsum_rows()) {
    Inputs in;
    std::vector<Numbers> numbers;
    for (size_t i = 0; i < r.in.size(); ++i) {
      numbers.push_back(counted(product(r.in[i]), 0.3 - 0.2 * static_cast<double>(i)));
      in.push_back(f64(numbers.back(), r.in[i]));
    }
    const auto f = [&](const Inputs& t) { return einsum(r.equation, t); };
    EXPECT_EQ(f(in).sizes(), r.out) << r.equation;
    expect_close(everywhere(f, in, r.equation), doubles(r.formula(in)), r.equation);
    expect_gradients(f, numbers, r.in, r.equation);
  }
}

TEST(Einsum, DiagonalsSumsAndDots) {
  const Tensor m = f64({1, 2, 3, 4, 5, 6, 7, 8, 9}, {3, 3});
  EXPECT_EQ(everywhere([](const Inputs& t) { return einsum("ii->i", t); }, {m}, "diagonal"),
            (Numbers{1, 5, 9}));
  EXPECT_EQ(everywhere([](const Inputs& t) { return einsum("ii", t); }, {m}, "trace"), (Numbers{15}));
  EXPECT_EQ(
      everywhere([](const Inputs& t) { return einsum("ii,i->", t); }, {m, f64({1, 1, -1}, {3})}, "both"),
      (Numbers{-3}));
  Numbers cube;
  for (int i = 0; i < 8; ++i) cube.push_back(i);
  EXPECT_EQ(doubles(einsum("iii->i", {f64(cube, {2, 2, 2})})), (Numbers{0, 7}));
  expect_gradients([](const Inputs& t) { return einsum("ijj,j->i", t); }, {counted(18), counted(3)},
                   {{2, 3, 3}, {3}}, "ijj,j->i");
  EXPECT_EQ(values(einsum("ij,jk->ik", {ids({1, 2}).view({1, 2}), ids({3, 4}).view({2, 1})})), (Floats{11}));
  EXPECT_EQ(values(einsum("ij,jk->ik", {zeros({2, 0}), zeros({0, 2})})), Floats(4, 0));
  EXPECT_EQ(einsum("ij,jk->ik", {zeros({2, 2}, {DType::bf16}), zeros({2, 2}, {DType::bf16})}).dtype(),
            DType::bf16);
}

TEST(Einsum, Errors) {
  const Tensor m = zeros({2, 3}), v = zeros({3});
  EXPECT_ERROR(einsum("ij", {}), "invalid: einsum (@): tensors is empty, expected at least one");
  EXPECT_ERROR(einsum("ij,j", {m}), "invalid: einsum (@): 'ij,j' has 2 operands, got 1");
  EXPECT_ERROR(einsum("i", {m}), "invalid: einsum (@): 'i' names 1 dims, got tensors[0] f32[2,3]");
  EXPECT_ERROR(einsum("i1", {m}), "invalid: einsum (@): '1' in 'i1' is no letter");
  EXPECT_ERROR(einsum("ii", {m}),
               "invalid: einsum (@): a label of 'ii' stands for 2 and 3 in tensors[0] f32[2,3]");
  EXPECT_ERROR(einsum("ij,i->", {m, v}),
               "invalid: einsum (@): a label of 'ij,i->' stands for 2 and, in tensors[1] f32[3], for 3");
  EXPECT_ERROR(einsum("ij->k", {m}),
               "invalid: einsum (@): the result of 'ij->k' has a label that no operand has");
  EXPECT_ERROR(einsum("ij->ii", {m}), "invalid: einsum (@): the result of 'ij->ii' has a label twice");
  EXPECT_ERROR(einsum("...i...", {m}), "invalid: einsum (@): two ellipses in a term of '...i...'");
  EXPECT_ERROR(einsum("ij,j->i", {m, v.to(DType::f64)}),
               "invalid: einsum (@): got tensors[1] f64[3] beside tensors[0] f32[2,3], expected numbers of "
               "one dtype (cast with to())");
}

TEST(Linalg, Tensordot) {
  const auto two = [](const Inputs& t) { return tensordot(t[0], t[1], 2); };
  const Numbers a = counted(12), b = counted(6, -0.5);
  expect_close(everywhere(two, {f64(a, {2, 2, 3}), f64(b, {2, 3})}, "tensordot"),
               doubles(einsum("ijk,jk->i", {f64(a, {2, 2, 3}), f64(b, {2, 3})})), "tensordot");
  expect_gradients(two, {a, b}, {{2, 2, 3}, {2, 3}}, "tensordot");
  const auto pairs = [](const Inputs& t) { return tensordot(t[0], t[1], {-1, 0}, {0, 1}); };
  expect_close(everywhere(pairs, {f64(a, {2, 2, 3}), f64(b, {3, 2})}, "tensordot"),
               doubles(einsum("ijk,ki->j", {f64(a, {2, 2, 3}), f64(b, {3, 2})})), "tensordot");
  EXPECT_EQ(tensordot(zeros({2}), zeros({3}), 0).sizes(), (Sizes{2, 3}));
  const Tensor x = zeros({2, 3});
  EXPECT_ERROR(tensordot(x, x, 1),
               "invalid: tensordot (@): dims 1 and 0 differ; got a f32[2,3] and b f32[2,3]");
  EXPECT_ERROR(
      tensordot(x, x, 3),
      "invalid: tensordot (@): got 3 dims of a f32[2,3] and b f32[2,3], expected no more than each has");
  EXPECT_ERROR(tensordot(x, x, {0, 0}, {0, 0}), "invalid: tensordot (@): a dim is given twice in [0,0]");
}

TEST(Linalg, Cross) {
  const auto c = [](const Inputs& t) { return cross(t[0], t[1]); };
  EXPECT_EQ(everywhere(c, {f64({1, 2, 3}, {1, 3}), f64({4, 5, 6, 1, 0, 0}, {2, 3})}, "cross"),
            (Numbers{-3, 6, -3, 0, 3, -2}));
  expect_gradients([](const Inputs& t) { return cross(t[0], t[1], 0); }, {counted(6), counted(6, -0.7)},
                   {{3, 2}, {3, 2}}, "cross");
  const Tensor x = zeros({2, 3}), v = zeros({3});
  EXPECT_ERROR(cross(x, v), "invalid: cross (@): ranks differ; got a f32[2,3] and b f32[3]");
  EXPECT_ERROR(cross(x, x, 0),
               "invalid: cross (@): got a f32[2,3] and b f32[2,3], expected 3 elements in dim 0");
}

TEST(Linalg, KronTraceBilinearDistances) {
  const auto k = [](const Inputs& t) { return kron(t[0], t[1]); };
  EXPECT_EQ(everywhere(k, {f64({1, 2, 3, 4}, {2, 2}), f64({0, 1}, {2})}, "kron"),
            (Numbers{0, 1, 0, 2, 0, 3, 0, 4}));
  expect_gradients(k, {{1, 2}, {3, 4}}, {{2, 1}, {1, 2}}, "kron");
  EXPECT_EQ(
      everywhere([](const Inputs& t) { return trace(t[0]); }, {f64({1, 2, 3, 4, 5, 6}, {2, 3})}, "trace"),
      (Numbers{6}));
  const auto y = [](const Inputs& t) { return bilinear(t[0], t[1], t[2], t[3]); };
  const std::vector<Numbers> numbers = {counted(8), counted(12, -0.3), counted(12, 0.1), {1, 2}};
  const std::vector<Sizes> sizes = {{2, 2, 2}, {2, 2, 3}, {2, 2, 3}, {2}};
  Inputs in;
  for (size_t i = 0; i < 4; ++i) in.push_back(f64(numbers[i], sizes[i]));
  expect_close(everywhere(y, in, "bilinear"),
               doubles(einsum("abi,oij,abj->abo", {in[0], in[2], in[1]}) + in[3]), "bilinear");
  expect_gradients(y, numbers, sizes, "bilinear");
  for (const double p : {0.0, 1.0, 2.0, HUGE_VAL})
    EXPECT_EQ(values(cdist(zeros({2, 0}), zeros({1, 0}), p)), (Floats{0, 0})) << p;
  const auto d = [](const Inputs& t) { return cdist(t[0], t[1]); };
  expect_close(everywhere(d, {f64({0, 0, 3, 4}, {2, 2}), f64({0, 0, 6, 8, 0, 4}, {3, 2})}, "cdist"),
               {0, 10, 4, 5, 5, 3}, "cdist");
  expect_gradients([](const Inputs& t) { return cdist(t[0], t[1], 3); }, {{0, 1, 3, 4}, {1, -1, 6, 8}},
                   {{2, 2}, {2, 2}}, "cdist");
  const Tensor x = zeros({2, 3}), v = zeros({3});
  EXPECT_ERROR(trace(v), "invalid: trace (@): got x f32[3], expected a matrix");
  EXPECT_ERROR(cdist(x, v),
               "invalid: cdist (@): got x1 f32[2,3] and x2 f32[3], expected [..., n, d] and [..., m, d]");
  EXPECT_ERROR(bilinear(x, x, v),
               "invalid: bilinear (@): got x1 f32[2,3], x2 f32[2,3] and weight f32[3], expected [..., i], "
               "[..., j] and [o, i, j] of one dtype");
}

}  // namespace KILN_FILE
}  // namespace kiln
