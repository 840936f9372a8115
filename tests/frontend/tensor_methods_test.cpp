// SPDX-License-Identifier: Apache-2.0
// Methods and operators: each gives what the function of its name gives, and errors name the caller's line.
#include "frontend/elementwise.h"
#include "frontend/functional.h"
#include "frontend/linalg.h"
#include "frontend/ops_sort.h"
#include "frontend/reductions.h"
#include "frontend/shapes.h"
#include "tests/frontend/everywhere.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

const Tensor& x() {
  static const Tensor t = mat({1, 4, 2, 3, 0.5f, 6}, {2, 3});
  return t;
}

void expect_same(const Tensor& got, const Tensor& want, const char* name) {
  EXPECT_EQ(got.type_str(), want.type_str()) << name;
  EXPECT_EQ(doubles(got), doubles(want)) << name;
}

TEST(Methods, OneOperand) {
#define SAME(name) expect_same(x().name(), name(x()), #name)
  SAME(t);
  SAME(squeeze);
  SAME(abs);
  SAME(exp);
  SAME(log);
  SAME(sqrt);
  SAME(square);
  SAME(relu);
  SAME(sigmoid);
  SAME(tanh);
  SAME(max);
  SAME(min);
  SAME(sum);
  SAME(mean);
  SAME(var);
  SAME(std);
  SAME(all);
  SAME(any);
  SAME(amax);
  SAME(amin);
  SAME(argmax);
  SAME(argmin);
  SAME(neg);
  SAME(sign);
  SAME(sin);
  SAME(cos);
  SAME(floor);
  SAME(ceil);
  SAME(trunc);
  SAME(log1p);
  SAME(expm1);
  SAME(rsqrt);
  SAME(reciprocal);
  SAME(erf);
  SAME(isnan);
  SAME(isfinite);
  SAME(isinf);
  SAME(logical_not);
  SAME(tril);
  SAME(triu);
  SAME(diagonal);
  SAME(prod);
  SAME(norm);
  SAME(argsort);
#undef SAME
}

TEST(Methods, ArgumentsStandWhereTheFunctionsHaveThem) {
#define SAME(name, ...) expect_same(x().name(__VA_ARGS__), name(x(), __VA_ARGS__), #name)
  expect_same(x().repeat({2, 1}), repeat(x(), {2, 1}), "repeat");
  SAME(index_select, 1, ids({2, 0}));
  SAME(gather, 1, ids({1, 0}).reshape({2, 1}));
  SAME(masked_fill, x() > 2, 7);
  SAME(clamp, 1, 3);
  SAME(softmax, 1);
  SAME(log_softmax, 0);
  SAME(cumsum, 1);
  SAME(sum, 1, true);
  expect_same(x().mean({0, 1}, true), mean(x(), {0, 1}, true), "mean");
  SAME(var, 1, 0, true);
  SAME(std, 0, 1, false);
  SAME(all, 1, true);
  SAME(any, 1, true);
  SAME(amax, 0, true);
  SAME(amin, -1);
  SAME(argmax, 1, true);
  SAME(argmin, 0);
  SAME(clamp_min, 2);
  SAME(clamp_max, 2);
  SAME(tril, -1);
  SAME(triu, 1);
  SAME(view_as, zeros({3, 2}));
  SAME(narrow, 1, 1, 2);
  SAME(diagonal, 1);
  SAME(scatter_add, 1, ids({2, 0}).reshape({2, 1}), vec({5, 7}).reshape({2, 1}));
  SAME(index_add, 0, ids({1}), mat({1, 2, 3}, {1, 3}), 2);
  SAME(prod, 1, true);
  SAME(norm, 1, 0, true);
  SAME(logsumexp, 1, true);
  SAME(cumprod, 1);
  SAME(argsort, 1, true);
  SAME(mv, vec({1, 2, 3}));
  SAME(lerp, zeros({2, 3}), 0.25);
#undef SAME
  expect_same(x().pow(2), pow(x(), 2), "pow");
  expect_same(x().matmul(x().t()), matmul(x(), t(x())), "matmul");
  expect_same(x().mm(x().t()), mm(x(), t(x())), "mm");
  expect_same(x().chunk(3, 1)[2], chunk(x(), 3, 1)[2], "chunk");
  expect_same(x().split(2, 1)[1], split(x(), 2, 1)[1], "split");
  expect_same(x().unbind(1)[1], unbind(x(), 1)[1], "unbind");
}

TEST(Methods, TheOtherOperandIsATensorOrANumber) {
#define SAME(name)                                               \
  expect_same(x().name(2.5), name(x(), 2.5), #name " a number"); \
  expect_same(x().name(y), name(x(), y), #name)
  const Tensor y = mat({4, 1, 2, 0.5f, 0.5f, 8}, {2, 3});
  SAME(add);
  SAME(sub);
  SAME(mul);
  SAME(div);
  SAME(remainder);
  SAME(maximum);
  SAME(minimum);
  SAME(eq);
  SAME(ne);
  SAME(lt);
  SAME(le);
  SAME(gt);
  SAME(ge);
  SAME(logical_and);
  SAME(logical_or);
#undef SAME
}

TEST(Methods, ShapesProductsAndOrders) {
  const Tensor y = mat({4, 1, 2, 0.5f, 0.5f, 8}, {2, 3});
  expect_same(x().where(x() > y, y), where(x() > y, x(), y), "where");
  expect_same(x().where(x() > y, 0), where(x() > y, x(), 0), "where a number");
  expect_same(x().flip({1}), flip(x(), {1}), "flip");
  expect_same(x().roll({1}, {1}), roll(x(), {1}, {1}), "roll");
  expect_same(vec({1, 2, 3}).expand_as(x()), expand_as(vec({1, 2, 3}), x()), "expand_as");
  expect_same(vec({1, 2}).dot(vec({3, 4})), dot(vec({1, 2}), vec({3, 4})), "dot");
  expect_same(vec({1, 2}).outer(vec({3, 4})), outer(vec({1, 2}), vec({3, 4})), "outer");
  const Tensor batch = x().unsqueeze(0);
  expect_same(batch.bmm(batch.transpose(1, 2)), bmm(batch, batch.transpose(1, 2)), "bmm");
  expect_same(x().max(1).indices, max(x(), 1).indices, "max");
  expect_same(x().min(0, true).values, min(x(), 0, true).values, "min");
  expect_same(max(x(), y), maximum(x(), y), "max of two");
  expect_same(min(x(), y), minimum(x(), y), "min of two");
  expect_same(x().sort(1, true).first, sort(x(), 1, true).first, "sort");
  expect_same(x().topk(2, 1, false).second, topk(x(), 2, 1, false).second, "topk");
}

TEST(Operators, CompareAndCombine) {
  const Tensor a = ids({1, 5, 6}), b = ids({1, 3, 7});
  expect_same(a == b, eq(a, b), "==");
  expect_same(a != 5, ne(a, 5), "!=");
  expect_same(a < b, lt(a, b), "<");
  expect_same(a <= 5, le(a, 5), "<=");
  expect_same(5 > a, gt(5, a), ">");
  expect_same(a >= b, ge(a, b), ">=");
  expect_same(a % 4, remainder(a, 4), "%");
  EXPECT_EQ(values(a & b), (Floats{1, 1, 6}));
  EXPECT_EQ(values(a | 8), (Floats{9, 13, 14}));
  EXPECT_EQ(values(a ^ b), (Floats{0, 6, 1}));
  EXPECT_EQ(values(~a), (Floats{-2, -6, -7}));
  EXPECT_EQ(values(~(a == b)), (Floats{0, 1, 1}));
  EXPECT_EQ(values((a > 1) & (b > 3)), (Floats{0, 0, 1}));
  EXPECT_EQ(values(x()[1]), (Floats{3, 0.5f, 6}));
  EXPECT_EQ((x()[-1][0].item()), 3);
  // What an evaluation counts.
  EXPECT_EQ((mat({1, 2, 4, 3, 9, 8}, {3, 2}).argmax(1) == ids({1, 1, 0})).sum().item<int64_t>(), 2);
}

TEST(Operators, WhatIsNoVariableIsWrittenTo) {
  const Tensor a = zeros({3, 2});
  a[0] = vec({1, 2});
  a.select(1, 1) = 5;
  a[2] = a[0];
  a[1] += 2;
  a[2] *= vec({3, 4});
  EXPECT_EQ(values(a), (Floats{1, 5, 2, 7, 3, 20}));
  Tensor b = a;
  b = vec({9});  // a variable stands for another tensor
  EXPECT_EQ(a.sizes(), (Sizes{3, 2}));
  EXPECT_ERROR(a[0] = vec({1, 2, 3}),
               "invalid: copy_ (@): shapes do not broadcast; got self f32[2] and src f32[3]");
  Tensor w = vec({1, 2}, true);
  EXPECT_ERROR(w[0] = 1,
               "invalid: fill_ (@): f32[] is a view of a leaf that requires grad (write to it under no_grad, "
               "or to a copy of it)");
  Tensor h = w * 2;
  h[0] = w[1] * 10;
  EXPECT_EQ(values(h), (Floats{20, 4}));
  h.sum().backward();
  EXPECT_EQ(values(w.grad()), (Floats{0, 12}));
  const Tensor made = compile([](const Tensor& x) {
    Tensor y = x * 2;
    y[0] = x[1];
    y[1] += 1;
    return y;
  })(vec({1, 2}));
  EXPECT_EQ(values(made), (Floats{2, 5}));
}

TEST(Tensors, SayWhatTheyAre) {
  EXPECT_TRUE(x().is_floating_point());
  EXPECT_FALSE(ids({1}).is_floating_point());
  EXPECT_EQ(ones({2}, ids({1}).options()).type_str(), "i64[2]");
}

TEST(Operators, ErrorsNameTheLine) {
  const Tensor a = x(), b = vec({1, 2});
  EXPECT_ERROR(a == b, "invalid: eq (@): shapes do not broadcast; got a f32[2,3] and b f32[2]");
  EXPECT_ERROR(a[5], "invalid: select (@): index 5 is out of range for dim 0 of x f32[2,3]");
  EXPECT_ERROR(a.sum(4), "invalid: sum (@): dim 4 is out of range; expected -2 to 1");
}

TEST(Create, TensorTakesItsTypeFromTheValues) {
  expect_same(tensor({1.5, 2.0}), vec({1.5f, 2}), "floats");
  expect_same(tensor({1, 2}), ids({1, 2}), "integers");
  expect_same(tensor({true, false}), eq(ids({1, 0}), 1), "bool");
  expect_same(tensor({{1, 2, 3}, {4, 5, 6}}), ids({1, 2, 3, 4, 5, 6}).view({2, 3}), "rows");
  expect_same(tensor({{true}, {false}}), eq(ids({1, 0}), 1).view({2, 1}), "rows of bool");
  EXPECT_EQ(tensor(2.5).type_str(), "f32[]");
  EXPECT_EQ(tensor(2.5).item(), 2.5);
  EXPECT_EQ(tensor(7).type_str(), "i64[]");
  EXPECT_EQ(tensor(true).type_str(), "bool[]");
  EXPECT_ERROR(tensor({{1, 2}, {3}}), "invalid: tensor (@): a row of 1 values, the first has 2");
}

TEST(Create, ADTypeStandsForOptions) {
  const Tensor made[] = {full({2}, 1, DType::f64), zeros({2}, DType::f64),        ones({2}, DType::f64),
                         empty({2}, DType::f64),   rand({2}, DType::f64),         randn({2}, DType::f64),
                         arange(2, DType::f64),    randint(0, 5, {2}, DType::f64)};
  for (const Tensor& t : made) EXPECT_EQ(t.type_str(), "f64[2]");
}

TEST(Hooks, MayReturnNothing) {
  Tensor w = vec({1, 2}, true);
  Floats seen;
  w.register_hook([&](const Tensor& g) { seen = values(g); });
  (w * 3).sum().backward();
  EXPECT_EQ(seen, (Floats{3, 3}));
  EXPECT_EQ(values(w.grad()), (Floats{3, 3}));
}

}  // namespace KILN_FILE
}  // namespace kiln
