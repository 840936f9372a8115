// SPDX-License-Identifier: Apache-2.0
// Elementwise composites and activations: values by formula at kinks and extremes, gradients by differences,
// errors.
#include "frontend/elementwise.h"

#include <limits>

#include "frontend/activation.h"
#include "tests/frontend/everywhere.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

constexpr double kInf = std::numeric_limits<double>::infinity(),
                 kNan = std::numeric_limits<double>::quiet_NaN();

using Numbers = std::vector<double>;
Tensor f64(const Numbers& v) { return Tensor::from_vector(v, {static_cast<int64_t>(v.size())}); }

struct UnaryRow {
  const char* name;
  std::function<Tensor(const Tensor&)> f;
  std::function<double(double)> formula;
};

const Numbers kPoints = {-7, -3, -1.5, -1, -0.5, -0.0, 0, 0.3, 0.5, 1, 2.5, 3, 6, 50, -50, kInf, -kInf, kNan};

double limit(double x, double lo, double hi) { return std::isnan(x) ? x : std::min(std::max(x, lo), hi); }
double unit(double x, double a, double b) { return x > 0 ? x : a * std::expm1(x * b); }

const std::vector<UnaryRow>& unary_rows() {
  static const std::vector<UnaryRow> rows = {
      {"frac", [](const Tensor& x) { return frac(x); }, [](double x) { return x - std::trunc(x); }},
      {"sgn", [](const Tensor& x) { return sgn(x); },
       [](double x) { return x > 0   ? 1.0
                             : x < 0 ? -1.0
                                     : 0.0; }},
      {"isfinite", [](const Tensor& x) { return isfinite(x); }, [](double x) { return std::isfinite(x); }},
      {"isinf", [](const Tensor& x) { return isinf(x); }, [](double x) { return std::isinf(x); }},
      {"isposinf", [](const Tensor& x) { return isposinf(x); }, [](double x) { return x == kInf; }},
      {"isneginf", [](const Tensor& x) { return isneginf(x); }, [](double x) { return x == -kInf; }},
      {"signbit", [](const Tensor& x) { return signbit(x); },
       [](double x) { return !std::isnan(x) && std::signbit(x); }},
      {"nan_to_num", [](const Tensor& x) { return nan_to_num(x, 7, 8, -9); },
       [](double x) {
         return std::isnan(x) ? 7 : x == kInf ? 8 : x == -kInf ? -9 : x;
       }},
      {"logit", [](const Tensor& x) { return logit(x); }, [](double x) { return std::log(x / (1 - x)); }},
      {"logit_eps", [](const Tensor& x) { return logit(x, 0.25); },
       [](double x) { return std::log(limit(x, 0.25, 0.75) / (1 - limit(x, 0.25, 0.75))); }},
      {"sinc", [](const Tensor& x) { return sinc(x); },
       [](double x) { return x == 0 ? 1 : std::sin(M_PI * x) / (M_PI * x); }},
      {"deg2rad", [](const Tensor& x) { return deg2rad(x); }, [](double x) { return x * M_PI / 180; }},
      {"rad2deg", [](const Tensor& x) { return rad2deg(x); }, [](double x) { return x * 180 / M_PI; }},
      {"clamp_min", [](const Tensor& x) { return clamp_min(x, 0.3); },
       [](double x) { return limit(x, 0.3, kInf); }},
      {"clamp_max", [](const Tensor& x) { return clamp_max(x, 0.3); },
       [](double x) { return limit(x, -kInf, 0.3); }},
      {"hardtanh", [](const Tensor& x) { return hardtanh(x, -0.5, 2.5); },
       [](double x) { return limit(x, -0.5, 2.5); }},
      {"relu6", [](const Tensor& x) { return relu6(x); }, [](double x) { return limit(x, 0, 6); }},
      {"hardsigmoid", [](const Tensor& x) { return hardsigmoid(x); },
       [](double x) { return limit(x + 3, 0, 6) / 6; }},
      {"hardswish", [](const Tensor& x) { return hardswish(x); },
       [](double x) { return x * limit(x + 3, 0, 6) / 6; }},
      {"hardshrink", [](const Tensor& x) { return hardshrink(x, 1); },
       [](double x) { return std::abs(x) <= 1 ? 0 : x; }},
      {"softshrink", [](const Tensor& x) { return softshrink(x, 1); },
       [](double x) {
         return std::isnan(x) ? x : x > 1 ? x - 1 : x < -1 ? x + 1 : 0;
       }},
      {"tanhshrink", [](const Tensor& x) { return tanhshrink(x); },
       [](double x) { return x - std::tanh(x); }},
      {"softsign", [](const Tensor& x) { return softsign(x); },
       [](double x) { return x / (1 + std::abs(x)); }},
      {"elu", [](const Tensor& x) { return elu(x, 0.7); }, [](double x) { return unit(x, 0.7, 1); }},
      {"celu", [](const Tensor& x) { return celu(x, 0.7); }, [](double x) { return unit(x, 0.7, 1 / 0.7); }},
      {"selu", [](const Tensor& x) { return selu(x); },
       [](double x) { return 1.0507009873554805 * unit(x, 1.6732632423543772, 1); }},
      {"mish", [](const Tensor& x) { return mish(x); },
       [](double x) { return x * std::tanh(x > 20 ? x : std::log1p(std::exp(x))); }},
      {"logsigmoid", [](const Tensor& x) { return logsigmoid(x); },
       [](double x) { return x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x)); }},
      {"threshold", [](const Tensor& x) { return threshold(x, 0.3, -7); },
       [](double x) { return x <= 0.3 ? -7 : x; }},
      {"rrelu", [](const Tensor& x) { return rrelu(x, 0.1, 0.3); },
       [](double x) { return x > 0 ? x : 0.2 * x; }},
  };
  return rows;
}

TEST(Elementwise, UnaryValues) {
  for (const UnaryRow& row : unary_rows()) {
    Numbers want;
    for (double x : kPoints) want.push_back(row.formula(x));
    expect_close(everywhere([&](const Inputs& in) { return row.f(in[0]); }, {f64(kPoints)}, row.name), want,
                 row.name);
    expect_close(doubles(row.f(f64(kPoints).to(DType::f32))), want, row.name);
  }
}

TEST(Elementwise, UnaryGradients) {
  for (const UnaryRow& row : unary_rows()) {
    if (row.f(f64({1})).dtype() == DType::boolean) continue;
    const Numbers points = std::string(row.name).starts_with("logit")
                               ? Numbers{0.2, 0.3, 0.6, 0.9}
                               : Numbers{-7.1, -3.2, -0.8, 0.2, 2.2, 6.5};
    expect_gradients([&](const Inputs& in) { return row.f(in[0]); }, {points},
                     {{static_cast<int64_t>(points.size())}}, row.name);
  }
}

/// The derivative at 0 that torch gives.
TEST(Elementwise, GradientsAtKinks) {
  const auto at = [](const std::function<Tensor(const Tensor&)>& f, double x) {
    Tensor t = f64({x});
    t.requires_grad_();
    sum(f(t)).backward();
    return t.grad().item();
  };
  EXPECT_EQ(at([](const Tensor& x) { return logsigmoid(x); }, 0), 0.5);
  EXPECT_EQ(at([](const Tensor& x) { return relu6(x); }, 0), 0);
  EXPECT_EQ(at([](const Tensor& x) { return relu6(x); }, 6), 0);
  EXPECT_EQ(at([](const Tensor& x) { return elu(x, 3); }, 0), 3);
  EXPECT_EQ(at([](const Tensor& x) { return sinc(x); }, 0), 0);
  EXPECT_EQ(at([](const Tensor& x) { return threshold(x, 1, 0); }, 1), 0);
  EXPECT_EQ(at([](const Tensor& x) { return xlogy(x, 2.0); }, 0), std::log(2.0));
  EXPECT_TRUE(std::isnan(at([](const Tensor& y) { return xlogy(y * 0, y); }, 0))) << "0 / 0";
}

struct PairRow {
  const char* name;
  Tensor (*f)(const TensorArg&, const TensorArg&);
  std::function<double(double, double)> formula;
};

double log_add(double x, double y) {
  const double hi = std::max(x, y), lo = std::min(x, y);
  return std::isnan(x) || std::isnan(y) ? kNan
         : hi == lo && std::isinf(hi)   ? hi
                                        : hi + std::log1p(std::exp(lo - hi));
}
double x_log_y(double x, double y) { return std::isnan(y) ? kNan : x == 0 ? 0 : x * std::log(y); }

const std::vector<PairRow>& pair_rows() {
  static const std::vector<PairRow> rows = {
      {"fmax", fmax, [](double x, double y) { return std::fmax(x, y); }},
      {"fmin", fmin, [](double x, double y) { return std::fmin(x, y); }},
      {"hypot", hypot, [](double x, double y) { return std::hypot(x, y); }},
      {"logaddexp", logaddexp, log_add},
      {"logaddexp2", logaddexp2, [](double x, double y) { return log_add(x * M_LN2, y * M_LN2) / M_LN2; }},
      {"xlogy", xlogy, x_log_y},
      {"heaviside", heaviside, [](double x, double v) { return x == 0  ? v
                                                               : x > 0 ? 1.0
                                                                       : 0.0; }},
      {"copysign", copysign,
       [](double x, double y) { return std::isnan(y) ? std::abs(x) : std::copysign(x, y); }},
  };
  return rows;
}

TEST(Elementwise, PairValues) {
  for (const PairRow& row : pair_rows()) {
    Numbers x, y, want;
    for (double p : kPoints)
      for (double q : {-2.0, -0.0, 0.0, 0.4, 3.0, 1e200, kInf, -kInf, kNan}) {
        x.push_back(p);
        y.push_back(q);
        want.push_back(row.formula(p, q));
      }
    expect_close(
        everywhere([&](const Inputs& in) { return row.f(in[0], in[1]); }, {f64(x), f64(y)}, row.name), want,
        row.name);
  }
}

TEST(Elementwise, PairGradientsAndBroadcast) {
  for (const PairRow& row : pair_rows()) {
    if (std::string(row.name) == "heaviside") continue;  // it has none
    expect_gradients([&](const Inputs& in) { return row.f(in[0], in[1]); }, {{-2, 0.5, 3}, {0.7, 1.4}},
                     {{3, 1}, {2}}, row.name);
  }
  EXPECT_EQ(values(hypot(3.0, vec({4, 0}))), (Floats{5, 3}));
  EXPECT_EQ(hypot(ids({3}), ids({4})).dtype(), DType::f32);
  EXPECT_EQ(logaddexp(vec({1}), 1.0).dtype(), DType::f32);
}

TEST(Elementwise, RoundedQuotients) {
  const Numbers x = {7, -7, 7, -7, 1, 0}, y = {2, 2, -2, -2, 3, 5};
  const std::vector<int64_t> xi(x.begin(), x.end()), yi(y.begin(), y.end());
  for (const bool whole : {false, true}) {
    const Inputs in = whole ? Inputs{ids(xi), ids(yi)} : Inputs{f64(x), f64(y)};
    expect_close(
        everywhere([](const Inputs& t) { return div(t[0], t[1], RoundingMode::trunc); }, in, "trunc"),
        {3, -3, -3, 3, 0, 0}, "trunc");
    expect_close(
        everywhere([](const Inputs& t) { return div(t[0], t[1], RoundingMode::floor); }, in, "floor"),
        {3, -4, -4, 3, 0, 0}, "floor");
  }
  EXPECT_EQ(div(ids({7}), 2, RoundingMode::trunc).dtype(), DType::i64);
  EXPECT_EQ(values(div(ids({-7}), 2, RoundingMode::trunc)), (Floats{-3}));
  EXPECT_EQ(values(div(ids({-7}), 2.0, RoundingMode::trunc)), (Floats{-3}));
  const Tensor seven = ids({7}), none = ids({0});
  EXPECT_ERROR(div(seven, 0, RoundingMode::trunc),
               "invalid: div (@): integer division by zero; got a i64[1] and b 0");
}

TEST(Elementwise, Terms) {
  const Numbers x = {1, 2, 3}, a = {4, -5, 0.5}, b = {2, 4, 8};
  const std::vector<Sizes> shapes = {{3}, {3}, {3}};
  const auto mul = [](const Inputs& t) { return addcmul(t[0], t[1], t[2], 0.5); };
  const auto quotient = [](const Inputs& t) { return addcdiv(t[0], t[1], t[2], 0.5); };
  expect_close(everywhere(mul, {f64(x), f64(a), f64(b)}, "addcmul"), {5, -8, 5}, "addcmul");
  expect_close(everywhere(quotient, {f64(x), f64(a), f64(b)}, "addcdiv"), {2, 1.375, 3.03125}, "addcdiv");
  expect_gradients(mul, {x, a, b}, shapes, "addcmul");
  expect_gradients(quotient, {x, a, b}, shapes, "addcdiv");
  const Tensor i = ids({1});
  EXPECT_EQ(values(addcmul(i, ids({2}), ids({3}), 2)), (Floats{13}));
  EXPECT_ERROR(
      addcdiv(i, i, i),
      "invalid: addcdiv (@): got a i64[1] and b i64[1], expected a floating one (cast one with to())");
  const auto between = [](const Inputs& t) { return lerp(t[0], t[1], t[2]); };
  expect_close(everywhere(between, {f64(x), f64(a), f64({0, 0.25, 1})}, "lerp"), {1, 0.25, 0.5}, "lerp");
  expect_gradients(between, {x, a, {0.2, 0.7, 0.9}}, shapes, "lerp");
  EXPECT_EQ(values(lerp(vec({0}), vec({10}), 0.3)), (Floats{3}));
  EXPECT_EQ(values(rsub(vec({1}), 5.0, 2)), (Floats{3}));
  EXPECT_EQ(values(rsub(vec({1}), vec({5}))), (Floats{4}));
}

TEST(Elementwise, ClampWithTensors) {
  const Numbers x = {-2, 0.5, 9, 1, kNan}, lo = {-1}, hi = {2, 2, 2, 0.5, 2};
  const auto f = [](const Inputs& t) { return clamp(t[0], t[1], t[2]); };
  expect_close(everywhere(f, {f64(x), f64(lo), f64(hi)}, "clamp"), {-1, 0.5, 2, 0.5, kNan}, "clamp");
  expect_gradients(f, {{-2, 0.5, 9}, {-1}, {2}}, {{3}, {1}, {1}}, "clamp");
  EXPECT_EQ(values(clamp(vec({-5, 5}), Tensor(), vec({1}))), (Floats{-5, 1}));
  EXPECT_EQ(values(clamp(vec({-5, 5}), vec({1}), Tensor())), (Floats{1, 5}));
  EXPECT_TRUE(std::isnan(values(clamp(vec({1}), vec({NAN}), Tensor()))[0]));
  EXPECT_EQ(values(clamp(ids({-5, 5}), ids({0}), ids({3}))), (Floats{0, 3}));
  const Tensor one = vec({1});
  EXPECT_ERROR(clamp(one, Tensor(), Tensor()), "invalid: clamp (@): got neither lo nor hi, expected a bound");
}

TEST(Elementwise, Bits) {
  const Inputs in = {ids({12, -1, 7}), ids({10, 3, 0})};
  const auto run = [&](Tensor (*f)(const TensorArg&, const TensorArg&), const char* name) {
    return everywhere([&](const Inputs& t) { return f(t[0], t[1]); }, in, name);
  };
  EXPECT_EQ(run(bitwise_and, "and"), (Numbers{8, 3, 0}));
  EXPECT_EQ(run(bitwise_or, "or"), (Numbers{14, -1, 7}));
  EXPECT_EQ(run(bitwise_xor, "xor"), (Numbers{6, -4, 7}));
  EXPECT_EQ(run(bitwise_left_shift, "left"), (Numbers{12288, -8, 7}));
  EXPECT_EQ(run(bitwise_right_shift, "right"), (Numbers{0, -1, 7}));
  EXPECT_EQ(values(bitwise_not(ids({5}))), (Floats{-6}));
  EXPECT_EQ(values(bitwise_not(gt(vec({1, -1}), 0))), (Floats{0, 1}));
  EXPECT_EQ(values(bitwise_and(ids({6}), 3)), (Floats{2}));
  EXPECT_EQ(bitwise_and(gt(vec({1}), 0), gt(vec({1}), 0)).dtype(), DType::boolean);
  const Tensor x = vec({1}), b = gt(x, 0);
  EXPECT_ERROR(bitwise_and(x, 1), "invalid: bitwise_and (@): got a f32[1], expected integers or bool");
  EXPECT_ERROR(bitwise_or(b, 1.5), "invalid: bitwise_or (@): got b 1.5, expected integers or bool");
  EXPECT_ERROR(bitwise_left_shift(b, b), "invalid: bitwise_left_shift (@): got a bool[1], expected integers");
  EXPECT_ERROR(bitwise_not(x), "invalid: bitwise_not (@): got x f32[1], expected integers or bool");
}

TEST(Elementwise, Closeness) {
  const Inputs in = {f64({1, 1, kInf, kInf, kNan, 0}), f64({1 + 5e-6, 1.1, kInf, -kInf, kNan, 5e-9})};
  EXPECT_EQ(everywhere([](const Inputs& t) { return isclose(t[0], t[1]); }, in, "isclose"),
            (Numbers{1, 0, 1, 0, 0, 1}));
  EXPECT_EQ(everywhere([](const Inputs& t) { return isclose(t[0], t[1], 0.2, 0, true); }, in, "isclose"),
            (Numbers{1, 1, 1, 0, 1, 0}));
  const Tensor x = vec({1, 2}), y = vec({1, 2.5f});
  EXPECT_TRUE(allclose(x, x));
  EXPECT_FALSE(allclose(x, y));
  EXPECT_TRUE(allclose(x, y, 0.5));
  EXPECT_TRUE(kiln::equal(x, vec({1, 2})));
  EXPECT_FALSE(kiln::equal(x, y));
  EXPECT_FALSE(kiln::equal(x, vec({1})));
  EXPECT_TRUE(kiln::equal(zeros({0}), zeros({0})));
  EXPECT_ERROR(isclose(x, ids({1, 2})),
               "invalid: isclose (@): dtypes differ; got a f32[2] and b i64[2] (cast one with "
               "to())");
  EXPECT_ERROR(isclose(x, y, -1), "invalid: isclose (@): got rtol -1 and atol 1e-08, expected none below 0");
}

TEST(Elementwise, HalvesIntegersAndNothing) {
  for (const DType t : {DType::bf16, DType::f16}) {
    const Tensor x = vec({-2, 0.5f, NAN, INFINITY}).to(t);
    EXPECT_EQ(gt(nan_to_num(x), 60000.0).to(DType::f32).to_vector<float>()[3], 1) << dtype_name(t);
    EXPECT_EQ(hardswish(x).dtype(), t);
    EXPECT_EQ(hypot(x, x).dtype(), t);
    EXPECT_EQ(values(relu6(x))[1], 0.5f);
  }
  EXPECT_EQ(values(isfinite(ids({1}))), (Floats{1}));
  EXPECT_EQ(values(isinf(ids({1}))), (Floats{0}));
  EXPECT_EQ(values(nan_to_num(ids({3}))), (Floats{3}));
  EXPECT_EQ(sinc(ids({0})).dtype(), DType::f32);
  for (const UnaryRow& row : unary_rows()) EXPECT_EQ(row.f(zeros({0, 3})).sizes(), (Sizes{0, 3})) << row.name;
  for (const UnaryRow& row : unary_rows()) EXPECT_EQ(row.f(full({}, 0.5)).dim(), 0) << row.name;
}

TEST(Activation, WeightsAndHalves) {
  const auto f = [](const Inputs& t) { return prelu(t[0], t[1]); };
  expect_close(everywhere(f, {f64({-1, 2, -3, 4}).view({2, 2}), f64({0.1, 0.5})}, "prelu"),
               {-0.1, 2, -0.3, 4}, "prelu");
  expect_gradients(f, {{-1, 2, -3, -4}, {0.1, 0.5}}, {{2, 2}, {2}}, "prelu");
  expect_gradients(f, {{-1, 2, -3, -4}, {0.1}}, {{2, 2}, {1}}, "prelu");
  const auto gate = [](const Inputs& t) { return glu(t[0], 0); };
  expect_close(everywhere(gate, {f64({1, 2, 0, -1})}, "glu"), {0.5, 2 / (1 + std::exp(1.0))}, "glu");
  expect_gradients(gate, {{1, 2, 0.3, -1}}, {{4}}, "glu");
  const Tensor x = zeros({2, 3}), i = ids({1});
  EXPECT_ERROR(glu(x), "invalid: glu (@): dim -1 of x f32[2,3] does not halve");
  EXPECT_ERROR(prelu(x, vec({1, 2})),
               "invalid: prelu (@): got weight f32[2] for x f32[2,3], expected one element or one for each "
               "channel (dim 1)");
  EXPECT_ERROR(celu(x, 0), "invalid: celu (@): alpha is 0");
  EXPECT_ERROR(softshrink(x, -1), "invalid: softshrink (@): lambda is -1, expected none below 0");
  EXPECT_ERROR(hardtanh(x, 2, 1), "invalid: hardtanh (@): the lower end 2 is above the upper, 1");
  EXPECT_ERROR(mish(i), "invalid: mish (@): got x i64[1], expected a floating dtype (cast it with to())");
  EXPECT_ERROR(softmin(i, 0),
               "invalid: softmin (@): got x i64[1], expected a floating dtype (cast it with to())");
  EXPECT_ERROR(rrelu(x, 0.5, 0.1), "invalid: rrelu (@): the lower slope 0.5 is above the upper, 0.1");
}

TEST(Activation, RandomSlopes) {
  manual_seed(1);
  const Tensor x = full({1000}, -1.0);
  const Floats y = values(rrelu(x, 0.1, 0.3, true));
  double mean = 0;
  for (float v : y) {
    EXPECT_TRUE(v <= -0.1f && v > -0.3f);
    mean += v / 1000;
  }
  EXPECT_NEAR(mean, -0.2, 0.01);
  EXPECT_EQ(values(rrelu(vec({2}), 0.1, 0.3, true)), (Floats{2}));
}

TEST(Activation, OfDtypes) {
  EXPECT_EQ(softmax(ids({1, 1}), 0, DType::f64).dtype(), DType::f64);
  EXPECT_EQ(values(softmax(ids({1, 1}), 0, DType::f32)), (Floats{0.5f, 0.5f}));
  EXPECT_FLOAT_EQ(values(log_softmax(ids({1, 1}), 0, DType::f32))[0], -std::log(2.0f));
  EXPECT_EQ(values(softmin(vec({0, 0}), 0)), (Floats{0.5f, 0.5f}));
}

TEST(Activation, Norms) {
  const auto norm = [](const Inputs& t) { return normalize(t[0], 2, 1); };
  expect_close(everywhere(norm, {f64({3, 4, 0, 0}).view({2, 2})}, "normalize"), {0.6, 0.8, 0, 0},
               "normalize");
  expect_gradients(norm, {{3, 4, 1, 2}}, {{2, 2}}, "normalize");
  const auto cosine = [](const Inputs& t) { return cosine_similarity(t[0], t[1]); };
  expect_close(everywhere(cosine, {f64({3, 4, 0, 0}).view({2, 2}), f64({4, 3}).view({1, 2})}, "cosine"),
               {0.96, 0}, "cosine");
  expect_gradients(cosine, {{3, 4, 1, 2}, {1, -2}}, {{2, 2}, {1, 2}}, "cosine");
  const auto distance = [](const Inputs& t) { return pairwise_distance(t[0], t[1], 2, 0); };
  expect_close(everywhere(distance, {f64({3, 4, 1, 1}).view({2, 2}), f64({0, 0})}, "distance"), {5, M_SQRT2},
               "distance");
  const Tensor x = zeros({2, 3});
  EXPECT_ERROR(normalize(x, 2, 5), "invalid: vector_norm (@): dim 5 is out of range; expected -2 to 1");
  EXPECT_ERROR(cosine_similarity(x, zeros({2, 2})),
               "invalid: cosine_similarity (@): shapes do not broadcast; got x f32[2,3] and y f32[2,2]");
}

}  // namespace KILN_FILE
}  // namespace kiln
