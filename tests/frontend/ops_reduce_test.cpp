// SPDX-License-Identifier: Apache-2.0
// Reductions: values by formula, ties, NaN, empty and 0-d tensors, gradients by differences, errors.
#include "frontend/reductions.h"

#include "tests/frontend/everywhere.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

using Numbers = std::vector<double>;

Tensor f64(const Numbers& v, Sizes sizes) { return Tensor::from_vector(v, std::move(sizes)); }

TEST(Extrema, FirstOfTiesAndNan) {
  const Inputs in = {f64({1, 5, 5, NAN, 2, NAN, -0.0, 0, -3}, {3, 3})};
  const auto values_of = [](const Inputs& t) { return max(t[0], 1).values; };
  const auto places_of = [](const Inputs& t) { return max(t[0], 1).indices; };
  expect_close(everywhere(values_of, in, "max"), {5, NAN, 0}, "max");
  EXPECT_EQ(everywhere(places_of, in, "max"), (Numbers{1, 0, 0}));
  EXPECT_EQ(everywhere([](const Inputs& t) { return min(t[0], 0, true).indices; }, in, "min"),
            (Numbers{1, 2, 1}));
  EXPECT_EQ(max(in[0], 1, true).values.sizes(), (Sizes{3, 1}));
  EXPECT_TRUE(std::signbit(values(max(vec({-0.0f, -1}), 0).values)[0])) << "the element itself";
  EXPECT_TRUE(std::isnan(max(in[0]).item()));
  EXPECT_EQ(max(vec({1, 3, 2})).item(), 3);
  EXPECT_EQ(min(ids({1, 3, 2})).dtype(), DType::i64);
  const ValuesAndIndices one = max(full({}, 7.0), 0);
  EXPECT_EQ(one.values.item(), 7);
  EXPECT_EQ(one.indices.item<int>(), 0);
  EXPECT_EQ(values(max(gt(vec({-1, 1}), 0), 0).indices), (Floats{1}));
  EXPECT_EQ(max(zeros({0, 2}), 1).values.sizes(), (Sizes{0}));
}

TEST(Extrema, OnlyTheFirstGetsTheGradient) {
  Tensor x = vec({3, 1, 3}, true);
  max(x, 0).values.backward();
  EXPECT_EQ(values(x.grad()), (Floats{1, 0, 0}));
  x.set_grad({});
  max(x).backward();
  EXPECT_EQ(values(x.grad()), (Floats{0.5f, 0, 0.5f})) << "of all elements ties share";
  expect_gradients([](const Inputs& t) { return max(t[0], 0).values; }, {{1, 5, 4, 2}}, {{2, 2}}, "max");
  expect_gradients([](const Inputs& t) { return aminmax(t[0], 1).min; }, {{1, 5, 4, 2}}, {{2, 2}}, "aminmax");
}

TEST(Extrema, Places) {
  const Tensor x = mat({1, 9, 9, 0, -4, 2}, {2, 3});
  EXPECT_EQ(argmax(x).item<int>(), 1);
  EXPECT_EQ(argmin(x).item<int>(), 4);
  EXPECT_EQ(argmax(x, {}, true).sizes(), (Sizes{1, 1}));
  EXPECT_EQ(values(argmax(x, 0)), (Floats{0, 0, 0}));
  EXPECT_EQ(argmax(full({}, 2.0)).item<int>(), 0);
  EXPECT_EQ(everywhere([](const Inputs& t) { return argmin(t[0], -1, true); }, {x}, "argmin"),
            (Numbers{0, 1}));
  const Tensor none = zeros({2, 0});
  EXPECT_NE(error_of([&] { argmax(none); }), "no error");
  EXPECT_NE(error_of([&] { max(none); }), "no error");
  EXPECT_NE(error_of([&] { max(none, 1); }), "no error");
  EXPECT_ERROR(max(x, 2), "invalid: max (@): dim 2 is out of range; expected -2 to 1");
  const Extrema e = aminmax(x);
  EXPECT_EQ(e.min.item(), -4);
  EXPECT_EQ(e.max.item(), 9);
}

TEST(Spread, ByFormula) {
  const Inputs in = {f64({1, 2, 4, 8, -1, 0}, {2, 3})};
  const auto variance = [](double a, double b, double c, double less) {
    const double m = (a + b + c) / 3;
    return ((a - m) * (a - m) + (b - m) * (b - m) + (c - m) * (c - m)) / (3 - less);
  };
  const double v0 = variance(1, 2, 4, 1), v1 = variance(8, -1, 0, 1);
  expect_close(everywhere([](const Inputs& t) { return kiln::std(t[0], {1}); }, in, "std"),
               {std::sqrt(v0), std::sqrt(v1)}, "std");
  expect_close(everywhere([](const Inputs& t) { return kiln::std(t[0], {1}, 0, true); }, in, "std"),
               {std::sqrt(variance(1, 2, 4, 0)), std::sqrt(variance(8, -1, 0, 0))}, "std");
  expect_close(everywhere([](const Inputs& t) { return var_mean(t[0], {1}).spread; }, in, "var"), {v0, v1},
               "var");
  expect_close(everywhere([](const Inputs& t) { return std_mean(t[0], {1}).mean; }, in, "mean"),
               {7.0 / 3, 7.0 / 3}, "mean");
  EXPECT_EQ(var_mean(in[0], {1}, 1, true).mean.sizes(), (Sizes{2, 1}));
  EXPECT_TRUE(std::isnan(kiln::std(vec({1})).item())) << "of one sample";
  EXPECT_TRUE(std::isnan(kiln::std(zeros({0})).item()));
  expect_gradients([](const Inputs& t) { return kiln::std(t[0], {0}, 0); }, {{1, 2, 4, 8, -1, 0}}, {{2, 3}},
                   "std");
  expect_gradients([](const Inputs& t) { return std_mean(t[0]).spread * std_mean(t[0]).mean; },
                   {{1, 2, 4, 8, -1, 0}}, {{2, 3}}, "std_mean");
  Tensor same = vec({2, 2}, true);
  kiln::std(same).backward();
  EXPECT_EQ(values(same.grad()), (Floats{0, 0}));
  const Tensor i = ids({1});
  EXPECT_ERROR(kiln::std(i), "invalid: std (@): got x i64[1], expected a floating dtype (cast it with to())");
  EXPECT_ERROR(var_mean(i),
               "invalid: var_mean (@): got x i64[1], expected a floating dtype (cast it with to())");
}

TEST(Truth, DimsAndNothing) {
  const Inputs in = {mat({0, 1, 2, 0, 0, 3}, {2, 3})};
  EXPECT_EQ(everywhere([](const Inputs& t) { return any(t[0], {0}); }, in, "any"), (Numbers{0, 1, 1}));
  EXPECT_EQ(everywhere([](const Inputs& t) { return all(t[0], {0}, true); }, in, "all"), (Numbers{0, 0, 1}));
  EXPECT_EQ(everywhere([](const Inputs& t) { return all(t[0], {0, 1}); }, in, "all"), (Numbers{0}));
  EXPECT_EQ(everywhere([](const Inputs& t) { return count_nonzero(t[0], {1}); }, in, "count"),
            (Numbers{2, 1}));
  EXPECT_EQ(values(all(zeros({0, 2}), {0})), (Floats{1, 1}));
  EXPECT_EQ(values(any(zeros({0, 2}), {0})), (Floats{0, 0}));
  EXPECT_EQ(all(zeros({0, 2}), {1}).sizes(), (Sizes{0}));
  EXPECT_EQ(count_nonzero(vec({0, NAN})).item<int>(), 1);
  EXPECT_EQ(any(full({}, 2.0)).dtype(), DType::boolean);
}

TEST(NanReductions, LeaveNanOut) {
  const Inputs in = {f64({1, NAN, 3, NAN, NAN, NAN}, {2, 3})};
  EXPECT_EQ(everywhere([](const Inputs& t) { return nansum(t[0], {1}); }, in, "nansum"), (Numbers{4, 0}));
  expect_close(everywhere([](const Inputs& t) { return nanmean(t[0], {1}); }, in, "nanmean"), {2, NAN},
               "nanmean");
  Tensor x = vec({1, NAN, 3}, true);
  nanmean(x).backward();
  EXPECT_EQ(values(x.grad()), (Floats{0.5f, 0, 0.5f}));
}

TEST(Scalars, AreNotNamedAnew) {
  for (const bool compiled : {false, true}) {
    Tensor x = full({}, 3.0);
    const auto f = [](const Tensor& t) {
      Tensor y = sum(t), z = max(t);
      y.add_(1);
      z.add_(2);
      return y + z;
    };
    EXPECT_EQ((compiled ? compile(f)(x) : f(x)).item(), 9);
    EXPECT_EQ(x.item(), 3);
  }
}

TEST(Halves, AreReducedInF32) {
  const Tensor big = full({1000}, 300.0, {DType::f16});
  EXPECT_EQ(mean(big).item(), 300);
  EXPECT_EQ(var(big).item(), 0);
  EXPECT_EQ(nanmean(big).item(), 300);
  EXPECT_EQ(mean(big).dtype(), DType::f16);
  EXPECT_NEAR(vector_norm(big).item(), 300 * std::sqrt(1000.0), 8);
  const Tensor mixed = vec({1, 1.0078125f, 1, 1.015625f}).to(DType::bf16);
  const double m = (1 + 1.0078125 + 1 + 1.015625) / 4;
  double v = 0;
  for (double x : {1.0, 1.0078125, 1.0, 1.015625}) v += (x - m) * (x - m) / 3;
  EXPECT_NEAR(var(mixed).item(), v, v / 200);
  EXPECT_NEAR(var_mean(mixed).spread.item(), v, v / 200);
  EXPECT_NEAR(kiln::std(mixed).item(), std::sqrt(v), std::sqrt(v) / 200);
  EXPECT_NEAR(logsumexp(full({1000}, 0.0, {DType::bf16}), {0}).item(), std::log(1000.0), 0.02);
}

TEST(Norms, Vectors) {
  const Numbers x = {3, -4, 0, 1, -2, 2};
  const auto norm = [&](double p, int row) {
    double s = 0, top = 0, low = INFINITY, n = 0;
    for (int i = 0; i < 3; ++i) {
      const double a = std::abs(x[static_cast<size_t>(3 * row + i)]);
      s += std::pow(a, p);
      top = std::max(top, a);
      low = std::min(low, a);
      n += a != 0;
    }
    return p == 0 ? n : std::isinf(p) ? (p > 0 ? top : low) : std::pow(s, 1 / p);
  };
  for (double p :
       {2.0, 1.0, 0.0, 3.0, 0.5, -1.0, -2.0, static_cast<double>(INFINITY), -static_cast<double>(INFINITY)}) {
    const auto f = [&](const Inputs& t) { return vector_norm(t[0], p, {1}); };
    const std::string name = fmt::format("norm {}", p);
    expect_close(everywhere(f, {f64(x, {2, 3})}, name), {norm(p, 0), norm(p, 1)}, name);
    if (p != 0) expect_gradients(f, {{3, -4, 0.5, 1, -2, 2.5}}, {{2, 3}}, name);
    Tensor zero = vec({0, 0}, true);
    Tensor y = vector_norm(zero, p);
    if (p <= 0) continue;
    EXPECT_EQ(y.item(), 0) << name;
    y.backward();
    for (float g : values(zero.grad())) EXPECT_EQ(g, 0) << name;
  }
  EXPECT_EQ(vector_norm(zeros({0})).item(), 0);
  EXPECT_EQ(vector_norm(full({}, -3.0), 2, {0}).item(), 3);
  EXPECT_EQ(vector_norm(zeros({2, 3}), 2, {0}, true).sizes(), (Sizes{1, 3}));
  const Tensor none = zeros({0}), i = ids({1});
  EXPECT_NE(error_of([&] { vector_norm(none, INFINITY); }), "no error");
  EXPECT_ERROR(vector_norm(i),
               "invalid: vector_norm (@): got x i64[1], expected a floating dtype (cast it with to())");
  EXPECT_ERROR(vector_norm(none, NAN), "invalid: vector_norm (@): ord is NaN");
}

TEST(Norms, Matrices) {
  const Inputs in = {f64({1, -2, 3, -4, 5, -6}, {2, 3})};
  const auto norm = [&](std::optional<double> ord) {
    const auto f = [&](const Inputs& t) { return matrix_norm(t[0], ord); };
    expect_gradients(f, {{1, -2, 3, -4, 5, -6.5}}, {{2, 3}}, "matrix_norm");
    return everywhere(f, in, "matrix_norm")[0];
  };
  EXPECT_DOUBLE_EQ(norm({}), std::sqrt(91.0));
  EXPECT_EQ(norm(1), 9);
  EXPECT_EQ(norm(-1), 5);
  EXPECT_EQ(norm(INFINITY), 15);
  EXPECT_EQ(norm(-INFINITY), 6);
  EXPECT_EQ(matrix_norm(zeros({2, 3, 4}), 1, {0, 2}, true).sizes(), (Sizes{1, 3, 1}));
  EXPECT_EQ(matrix_norm(zeros({2, 3, 4}), 1, {2, 0}).sizes(), (Sizes{3}));
  const Tensor x = zeros({2, 3}), v = zeros({2});
  EXPECT_ERROR(matrix_norm(x, 2), "unsupported: matrix_norm (@): order 2 is not one of 1, -1, inf and -inf");
  EXPECT_ERROR(matrix_norm(x, 1, {0, 0}), "invalid: matrix_norm (@): dim 0 is given twice");
  EXPECT_ERROR(matrix_norm(v),
               "invalid: matrix_norm (@): got x f32[2] and 2 dims, expected at least two dims and two "
               "of them");
}

}  // namespace KILN_FILE
}  // namespace kiln
