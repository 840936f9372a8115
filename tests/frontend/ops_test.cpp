// SPDX-License-Identifier: Apache-2.0
// The functions on tensors: broadcasting, promotion, views and their memory, in-place writes, errors.
#include "frontend/ops.h"

#include <cmath>

#include "frontend/compile.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

Tensor typed(DType t, Sizes sizes) { return ones(std::move(sizes), {t}); }

TEST(Broadcast, RightAligned) {
  const Tensor a = mat({1, 2}, {2, 1}), b = vec({10, 20, 30});
  EXPECT_EQ(values(a + b), (Floats{11, 21, 31, 12, 22, 32}));
  EXPECT_EQ((a + b).sizes(), (Sizes{2, 3}));
  EXPECT_EQ((zeros({0, 1}) * b).sizes(), (Sizes{0, 3}));
  EXPECT_EQ((zeros({1}) + zeros({})).sizes(), (Sizes{1}));
}

TEST(Broadcast, MisfitsNameBothTypesAndTheLine) {
  const Tensor a = zeros({2, 3}), b = zeros({4}), u;
  EXPECT_ERROR(a + b, "invalid: add (@): shapes do not broadcast; got a f32[2,3] and b f32[4]");
  EXPECT_ERROR(pow(a, b), "invalid: pow (@): shapes do not broadcast; got a f32[2,3] and b f32[4]");
  EXPECT_ERROR(a * u, "invalid: mul (@): b is undefined (give it a value first)");
  EXPECT_ERROR(-u, "invalid: neg (@): x is undefined (give it a value first)");
  EXPECT_ERROR(all(u), "invalid: all (@): x is undefined (give it a value first)");
  EXPECT_ERROR(where(a, a, b),
               "invalid: where (@): got condition f32[2,3], expected bool (compare it, e.g. with 0)");
  EXPECT_ERROR(where(a.to(DType::boolean), u, b),
               "invalid: where (@): a is undefined (give it a value first)");
  EXPECT_ERROR(where(a.to(DType::boolean), b, a),
               "invalid: where (@): shapes do not broadcast; got condition bool[2,3] and a f32[4]");
  EXPECT_ERROR(sum(a, {2}), "invalid: sum (@): dim 2 is out of range; expected -2 to 1");
  EXPECT_ERROR(sum(a, {0, -2}), "invalid: sum (@): a dim is given twice in [0,-2]");
  EXPECT_ERROR(mean(arange(3)),
               "invalid: mean (@): got x i64[3], expected a floating dtype (cast it with to())");
}

TEST(Promotion, TensorsOfTheSameRankTakeTheWiderType) {
  EXPECT_EQ((typed(DType::i32, {2}) + typed(DType::i64, {2})).dtype(), DType::i64);
  EXPECT_EQ((typed(DType::i64, {2}) + typed(DType::f16, {2})).dtype(), DType::f16);
  EXPECT_EQ((typed(DType::f16, {2}) + typed(DType::bf16, {2})).dtype(), DType::f32);
  EXPECT_EQ((typed(DType::f32, {2}) + typed(DType::f64, {2})).dtype(), DType::f64);
  EXPECT_EQ((typed(DType::boolean, {2}) + typed(DType::u8, {2})).dtype(), DType::u8);
}

TEST(Promotion, ScalarTensorsOnlyRaiseTheCategory) {
  EXPECT_EQ((typed(DType::f32, {2}) + typed(DType::f64, {})).dtype(), DType::f32);
  EXPECT_EQ((typed(DType::f64, {}) + typed(DType::bf16, {2})).dtype(), DType::bf16);
  EXPECT_EQ((typed(DType::i32, {2}) + typed(DType::i64, {})).dtype(), DType::i32);
  EXPECT_EQ((typed(DType::i32, {2}) + typed(DType::f64, {})).dtype(), DType::f64);
  EXPECT_EQ((typed(DType::f32, {}) + typed(DType::f64, {})).dtype(), DType::f64);
}

TEST(Promotion, NumbersKeepTheTensorsTypeInTheirCategory) {
  EXPECT_EQ((typed(DType::bf16, {2}) * 1.5).dtype(), DType::bf16);
  EXPECT_EQ((typed(DType::bf16, {2}) * 2).dtype(), DType::bf16);
  EXPECT_EQ((typed(DType::i32, {2}) + 1).dtype(), DType::i32);
  EXPECT_EQ((typed(DType::i32, {2}) + 1.5).dtype(), DType::f32);
  EXPECT_EQ((typed(DType::boolean, {2}) + 1).dtype(), DType::i64);
  EXPECT_EQ((1 - typed(DType::f64, {2})).dtype(), DType::f64);
  EXPECT_EQ((typed(DType::i64, {2}) / 2).dtype(), DType::f32);
  EXPECT_EQ((typed(DType::i64, {2}) / typed(DType::i64, {2})).dtype(), DType::f32);
  EXPECT_EQ(eq(arange(3), 1).dtype(), DType::boolean);
  EXPECT_EQ(values(2.0 - vec({0.5f})), (Floats{1.5}));
}

TEST(Elementwise, WholeNumbersAndBool) {
  for (const DType t : {DType::u8, DType::i32, DType::i64}) {
    const Tensor x = ids({3, 0}).to(t);
    for (const Tensor& y : {floor(x), ceil(x), round(x), trunc(x)}) {
      EXPECT_EQ(y.dtype(), t);
      EXPECT_EQ(values(y), (Floats{3, 0}));
      EXPECT_NE(y.impl(), x.impl());  // a copy, as of any other dtype
    }
    Tensor z = ids({3, 0}).to(t);
    EXPECT_EQ(values(z.floor_().ceil_().round_()), (Floats{3, 0}));
  }
  const Tensor b = vec({1, 0}).to(DType::boolean);
  EXPECT_ERROR(floor(b), "invalid: floor (@): needs a floating dtype; got bool[2] (cast first)");
  EXPECT_EQ(sign(b).dtype(), DType::boolean);
  EXPECT_EQ(square(b).dtype(), DType::i64);
  EXPECT_EQ(values(square(b)), (Floats{1, 0}));
}

TEST(Elementwise, IntegersAndKinks) {
  EXPECT_EQ(values(remainder(ids({7, -7}), 3)), (Floats{1, 2}));
  EXPECT_EQ(values(fmod(ids({7, -7}), 3)), (Floats{1, -1}));
  EXPECT_EQ(values(floor_divide(ids({7, -7}), 2)), (Floats{3, -4}));
  EXPECT_EQ(values(round(vec({0.5f, 1.5f, -0.5f}))), (Floats{0, 2, -0.0f}));
  EXPECT_EQ(values(clamp(vec({-2, 0.5f, 9}), -1, 2)), (Floats{-1, 0.5f, 2}));
  EXPECT_TRUE(std::isnan(values(clamp(vec({NAN}), -1, 2))[0]));
  EXPECT_TRUE(std::isnan(values(maximum(vec({NAN}), vec({1})))[0]));
  EXPECT_EQ(values(where(gt(vec({1, -1}), 0), 5, 7.5)), (Floats{5, 7.5}));
  EXPECT_EQ(values(masked_fill(vec({1, 2}), eq(vec({1, 2}), 2), 9)), (Floats{1, 9}));
  EXPECT_EQ(values(logical_and(vec({2, 0}), vec({3, 3}))), (Floats{1, 0}));
  EXPECT_EQ(values(exp(ids({0}))), (Floats{1}));
}

TEST(Reductions, EmptyAndScalar) {
  const Tensor none = zeros({0, 3});
  EXPECT_EQ(values(sum(none, {0})), (Floats{0, 0, 0}));
  EXPECT_EQ(values(prod(none, {0})), (Floats{1, 1, 1}));
  EXPECT_TRUE(std::isnan(mean(none).item()));
  EXPECT_NE(error_of([&] { amax(none, {0}); }), "no error");
  EXPECT_EQ(sum(full({}, 3.0), {0}).item(), 3);
  EXPECT_EQ(values(sum(mat({1, 2, 3, 4}, {2, 2}), {-1}, true)), (Floats{3, 7}));
  EXPECT_EQ(sum(ones({3}, {DType::boolean})).dtype(), DType::i64);
  EXPECT_EQ(argmax(vec({1, 5, 5}), 0).item<int>(), 1);
  EXPECT_TRUE(all(zeros({0})).item() == 1);
  EXPECT_TRUE(any(zeros({0})).item() == 0);
  EXPECT_FLOAT_EQ(var(vec({1, 2, 3})).item<float>(), 1);
  EXPECT_EQ(logsumexp(vec({-INFINITY, -INFINITY}), {0}).item(), -INFINITY);
  EXPECT_FLOAT_EQ(logsumexp(vec({1000, 1000}), {0}).item<float>(), 1000 + std::log(2.0f));
}

TEST(Elementwise, SumsAndProductsOfBoolAreLogical) {
  const Tensor a = eq(ids({1, 1, 0, 0}), 1), b = eq(ids({1, 0, 1, 0}), 1);
  const auto f = [](const Tensor& x, const Tensor& y) {
    return cat({x + y, maximum(x, y), x * y, minimum(x, y)});
  };
  EXPECT_EQ(f(a, b).dtype(), DType::boolean);
  const Floats want{1, 1, 1, 0, 1, 1, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0};
  EXPECT_EQ(values(f(a, b)), want);
  EXPECT_EQ(values(compile(f)(a, b)), want);
  EXPECT_NE(error_of([&] { a - b; }), "no error");
}

TEST(Elementwise, WhatHasNoMeaningIsRefused) {
  const Tensor n = ids({2, 3}), x = vec({1, 2});
  EXPECT_ERROR(pow(n, -1), "invalid: pow (@): got a i64[2] and b -1, expected b of at least 0 for integers");
  EXPECT_EQ(values(pow(x, -1)), (Floats{1, 0.5}));
  EXPECT_ERROR(clamp(x, std::nullopt, std::nullopt),
               "invalid: clamp (@): got neither lo nor hi, expected a bound");
}

// A sum that took one product unrounded would not be zero, and exp(x - max(x)) might overflow.
TEST(Elementwise, ProductsAreOneNumberForAllReaders) {
  const auto compiled = compile([](const Tensor& a, const Tensor& b) { return a * a - b * b; });
  const Tensor a = rand({1000});
  EXPECT_EQ(values(compiled(a, a.clone())), Floats(1000, 0));
  const auto share = compile([](const Tensor& a, const Tensor& b) {
    const Tensor y = a * b;
    return exp(y - amax(y, {1}, true));
  });
  const Tensor x = randn({8, 32}) * 1e5, s = randn({8, 1}) * 1e4;
  for (float v : values(share(x, s))) EXPECT_LE(v, 1);
}

TEST(Indexing, NumbersAreLinesOfOne) {
  const Tensor x = full({}, 5.0), at = Tensor::from_vector<int64_t>({0}, {}), wrong = ids({1});
  EXPECT_EQ(gather(x, 0, at).sizes(), Sizes{});
  EXPECT_EQ(values(gather(x, -1, ids({0, 0}))), (Floats{5, 5}));
  EXPECT_EQ(values(index_select(x, 0, at)), (Floats{5}));
  EXPECT_EQ(values(scatter_add(x, 0, ids({0, 0}), vec({1, 2}))), (Floats{8}));
  EXPECT_EQ(values(scatter_add(x, 0, ids({0, 0}), vec({1, 2, 9}))), (Floats{8}));  // the index covers two
  EXPECT_ERROR(gather(x, 0, wrong), "invalid: gather (@): index 1 is out of range; expected 0 to 0");
  const Tensor two = ids({0, 0}), square = two.reshape({1, 2}), v = vec({1, 2});
  EXPECT_ERROR(index_select(x, 0, two),
               "invalid: index_select (@): got index i64[2] for x f32[], expected one index");
  EXPECT_ERROR(index_select(v, 0, square),
               "invalid: index_select (@): got index i64[1,2] for x f32[2], expected at most one dim");
  EXPECT_EQ(chunk(zeros({0, 2}), 3).size(), 3);
}

TEST(Views, ShareMemory) {
  Tensor x = mat({1, 2, 3, 4, 5, 6}, {2, 3});
  Tensor column = select(x, 1, 1), flat = view(x, {-1}), turned = t(x),
         wide = expand(unsqueeze(column, 1), {2, 4});
  column.fill_(0);
  EXPECT_EQ(values(x), (Floats{1, 0, 3, 4, 0, 6}));
  EXPECT_EQ(values(flat)[4], 0);
  EXPECT_EQ(values(turned), (Floats{1, 4, 0, 0, 3, 6}));
  EXPECT_EQ(wide.strides(), (Sizes{3, 0}));
  narrow(flat, 0, 4, 2).mul_(-1.0);
  EXPECT_EQ(values(x)[5], -6);
  slice(x, 1, 0, 3, 2).add_(ones({2, 2}), 10);
  EXPECT_EQ(values(x), (Floats{11, 0, 13, 14, 0, 4}));
  EXPECT_EQ(values(turned.contiguous()), values(turned));
  x.copy_(turned.reshape({2, 3}));
  EXPECT_EQ(values(x), (Floats{11, 14, 0, 0, 13, 4}));
}

TEST(Views, OverlappingCopyReadsBeforeItWrites) {
  Tensor x = vec({1, 2, 3, 4});
  narrow(x, 0, 1, 3).copy_(narrow(x, 0, 0, 3));
  EXPECT_EQ(values(x), (Floats{1, 1, 2, 3}));
}

TEST(Views, Errors) {
  const Tensor x = zeros({2, 3});
  EXPECT_ERROR(
      view(t(x), {6}),
      "invalid: view (@): strides [1,3] of x f32[3,2] do not allow sizes [6] without a copy (use reshape)");
  EXPECT_ERROR(reshape(x, {4, -1}), "invalid: reshape (@): x f32[2,3] does not fit sizes [4,-1]");
  EXPECT_ERROR(reshape(x, {-1, -1}), "invalid: reshape (@): more than one -1 in [-1,-1]");
  EXPECT_ERROR(expand(x, {2, 4}), "invalid: expand (@): x f32[2,3] does not expand to [2,4]");
  EXPECT_ERROR(permute(x, {0, 0}), "invalid: permute (@): dims [0,0] are no order of those of x f32[2,3]");
  EXPECT_ERROR(select(x, 0, 2), "invalid: select (@): index 2 is out of range for dim 0 of x f32[2,3]");
  EXPECT_ERROR(narrow(x, 1, 2, 2),
               "invalid: narrow (@): 2 elements from 2 on are outside dim 1 of x f32[2,3]");
  EXPECT_ERROR(cat({}), "invalid: cat (@): tensors is empty, expected at least one");
  EXPECT_ERROR(split(x, 0), "invalid: split (@): size 0 is not positive");
  EXPECT_NE(error_of([&] { cat({x, zeros({2, 4})}); }).find("ops_test.cpp:"), std::string::npos);
}

TEST(InPlace, Errors) {
  Tensor x = zeros({2}), i = arange(2), w = vec({1, 2}, true);
  EXPECT_ERROR(x.add_(zeros({3})),
               "invalid: add_ (@): shapes do not broadcast; got self f32[2] and other f32[3]");
  EXPECT_ERROR(x.copy_(zeros({3, 2})),
               "invalid: copy_ (@): src f32[3,2] does not broadcast into self f32[2]");
  EXPECT_ERROR(i.add_(vec({0.5f, 1})),
               "invalid: add_ (@): a f32 result does not go into self i64[2] (cast it with to())");
  EXPECT_ERROR(w.mul_(2.0),
               "invalid: mul_ (@): f32[2] is a leaf that requires grad (write to it under no_grad, or to a "
               "copy of it)");
  EXPECT_ERROR(select(w, 0, 0).fill_(1),
               "invalid: fill_ (@): f32[] is a view of a leaf that requires grad (write to it under no_grad, "
               "or to a copy of it)");
  const Tensor y = w * 2.0;
  Tensor row;
  {
    NoGrad guard;
    row = select(y, 0, 0);
  }
  EXPECT_ERROR(
      row.copy_(select(w, 0, 1)),
      "invalid: copy_ (@): f32[] is a view made under no_grad, and the write would be differentiated "
      "(make the view outside no_grad, or write under no_grad)");
  x.copy_(ids({3, 4}));
  EXPECT_EQ(values(x), (Floats{3, 4}));
}

TEST(Shapes, CatStackSplit) {
  const Tensor a = vec({1, 2}), b = vec({3});
  EXPECT_EQ(values(cat({a, b, zeros({0})})), (Floats{1, 2, 3}));
  EXPECT_EQ(stack({a, a}, -1).sizes(), (Sizes{2, 2}));
  EXPECT_EQ(cat({arange(2), a}).dtype(), DType::f32);
  const auto parts = split(arange(5), 2);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(values(parts[2]), (Floats{4}));
  EXPECT_EQ(chunk(arange(5), 2)[1].numel(), 2);
  EXPECT_EQ(values(flip(a, {0})), (Floats{2, 1}));
  EXPECT_EQ(values(tril(ones({2, 2}))), (Floats{1, 0, 1, 1}));
  EXPECT_EQ(flatten(zeros({2, 3, 4}), 1).sizes(), (Sizes{2, 12}));
  EXPECT_EQ(slice(arange(9), 0, -3, 100).numel(), 3);
}

TEST(Matmul, RanksAndErrors) {
  const Tensor m = mat({1, 2, 3, 4, 5, 6}, {2, 3}), v = vec({1, 0, -1});
  EXPECT_EQ(values(matmul(m, v)), (Floats{-2, -2}));
  EXPECT_EQ(values(matmul(vec({1, 1}), m)), (Floats{5, 7, 9}));
  EXPECT_EQ(matmul(v, v).item(), 2);
  EXPECT_EQ(matmul(zeros({4, 1, 2, 3}), zeros({5, 3, 2})).sizes(), (Sizes{4, 5, 2, 2}));
  EXPECT_EQ(values(matmul(zeros({2, 0}), zeros({0, 1}))), (Floats{0, 0}));
  EXPECT_ERROR(matmul(m, m),
               "invalid: matmul (@): inner dims differ; got a f32[2,3] and b f32[2,3], expected 3 == 2");
  EXPECT_ERROR(matmul(m, v.to(DType::f64)),
               "invalid: matmul (@): dtypes differ; got a f32[2,3] and b f64[3] (cast one with to())");
  EXPECT_ERROR(matmul(m, full({}, 1.0)),
               "invalid: matmul (@): got a f32[2,3] and b f32[], expected at least one dim each");
  EXPECT_ERROR(outer(m, v), "invalid: outer (@): got a f32[2,3] and b f32[3], expected two vectors");
}

/// What a function of an index does with one that is out of range: eager at once, compiled when it runs.
class WrongIndex : public ::testing::TestWithParam<Backend> {};

TEST_P(WrongIndex, IsAnErrorWithItsLine) {
  CompileOptions o;
  o.backend = GetParam();
  const Tensor table = mat({1, 2, 3, 4, 5, 6}, {3, 2}), src = ones({2, 2});
  auto take = [&](const Tensor& i) { return index_select(table, 0, i); };
  auto along = [&](const Tensor& i) { return gather(table, 0, i.view({1, 2})); };
  auto add = [&](const Tensor& i) { return index_add(table, 0, i, src); };
  auto scatter = [&](const Tensor& i) { return scatter_add(table, 0, i.view({1, 2}), ones({1, 2})); };
  auto run = [&](auto f, const std::string& name) {
    auto compiled = compile(f, o);
    for (const Floats want = values(f(ids({2, 0}))); int bad : {0, 3, -1, 0, 100}) {
      const Tensor i = ids({bad, bad == 0 ? 0 : 1}), good = ids({2, 0});
      const std::string text = error_of([&] { compiled(i); });
      EXPECT_EQ(text, error_of([&] { f(i); })) << name;
      EXPECT_EQ(text == "no error", bad == 0) << text;
      if (bad != 0) {
        EXPECT_TRUE(text.starts_with("invalid: " + name + " (ops_test.cpp:") &&
                    text.ends_with(fmt::format("): index {} is out of range; expected 0 to 2", bad)))
            << text;
      }
      EXPECT_EQ(values(compiled(good)), want) << name;
    }
    EXPECT_LE(compiled.stats().builds.size(), 2u) << name;
  };
  run(take, "index_select");
  run(along, "gather");
  run(add, "index_add");
  run(scatter, "scatter_add");
}

TEST_P(WrongIndex, BeforeAHostRead) {
  CompileOptions o;
  o.backend = GetParam();
  const Tensor table = vec({1, 2});
  auto f = compile(
      [&](const Tensor& i) {
        const Tensor x = index_select(table, 0, i);
        return x.item() > 0 ? index_select(x, 0, i) : x;
      },
      o);
  EXPECT_EQ(f(ids({0})).item(), 1);
  EXPECT_TRUE(error_of([&] { f(ids({1})); }).ends_with("index 1 is out of range; expected 0 to 0"));
  EXPECT_TRUE(error_of([&] { f(ids({2})); }).ends_with("index 2 is out of range; expected 0 to 1"));
  EXPECT_EQ(f(ids({0})).item(), 1);
}

INSTANTIATE_TEST_SUITE_P(Backends, WrongIndex, ::testing::Values(Backend::reference, Backend::native));

TEST(Create, WhatCompiledCallablesMakeHasMemoryOfItsOwn) {
  const auto made = [](const std::function<Tensor()>& f) {
    auto fast = compile(f);
    fast();
    Tensor t = fast();
    EXPECT_TRUE(t.is_contiguous());
    t.mul_(2);
    return values(t);
  };
  EXPECT_EQ(made([] { return full({2, 3}, -0.5); }), Floats(6, -1));
  EXPECT_EQ(made([] { return ones({2, 2}); }), Floats(4, 2));
  EXPECT_EQ(made([] {
              Tensor t = full({3}, 2.0);
              t.add_(ones({3}, {DType::i64}).to(t.dtype()));
              return t;
            }),
            Floats(3, 6));
}

TEST(Halves, AreReadByCompiledCallables) {
  for (const DType half : {DType::bf16, DType::f16}) {
    const Tensor x = mat({1.5f, -2, 0.25f, 3, 4, -0.125f}, {2, 3}).to(half),
                 w = mat({1, 2, 3}, {3, 1}).to(half);
    const auto f = [](const Tensor& a, const Tensor& b) {
      const Tensor wide = a.to(DType::f32);
      return sum(exp(wide)) + matmul(wide, b.to(DType::f32)) * 2;
    };
    const Floats got = values(compile(f)(x, w)), want = values(f(x, w));
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-4);
    EXPECT_EQ(values(compile([](const Tensor& a) { return a.to(DType::f32); })(x)), values(x));
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
