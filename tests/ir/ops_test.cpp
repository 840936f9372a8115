// SPDX-License-Identifier: Apache-2.0
// Every row of the op table: its values against formulas written here in double, for every dtype that it
// takes, over dense, strided, broadcast, 0-d and empty operands.
#include <gtest/gtest.h>

#include <complex>
#include <functional>
#include <map>

#include "ir/op.h"
#include "tests/ir/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT
using Ints = std::vector<int64_t>;

TEST(Ops, RowsAreComplete) {
  for (const OpDef* d : all_ops()) {
    SCOPED_TRACE(d->name);
    EXPECT_NE(d->infer, nullptr);
    EXPECT_TRUE(d->eval || d->view);
    EXPECT_NE(d->grad != nullptr, d->constant_gradient);
    EXPECT_FALSE(d->doc.empty());
    EXPECT_FALSE(d->source.empty());
    EXPECT_LT(d->lo, d->hi);
    const bool has_body =
        d->kind == OpKind::elementwise || d->kind == OpKind::scatter || d->kind == OpKind::scan;
    EXPECT_TRUE(!has_body || !d->body.empty());
    ASSERT_TRUE(find_op(d->name).has_value());
    EXPECT_EQ(&def(*find_op(d->name)), d);
  }
  EXPECT_FALSE(find_op("no_such_op").has_value());
}

// --- elementwise ---

double floor_mod(double a, double b) { return a - std::floor(a / b) * b; }
uint64_t bits(double a) { return static_cast<uint64_t>(static_cast<int64_t>(a)); }
double number(uint64_t a) { return static_cast<double>(static_cast<int64_t>(a)); }
double power(double a, double b) {
  if (b != std::trunc(b) || b < 0) return std::exp2(b * std::log2(a));
  double p = 1;
  for (; b > 0; --b) p *= a;
  return p;
}
/// The sum for y = x + 2000 by its first asymptotic terms, and one by one from there down to x.
double digamma(double x) {
  const long double y = x + 2000.0L, z = 1 / (y * y);
  long double v = std::log(y) - 0.5L / y - z / 12 + z * z / 120;
  for (int k = 1999; k >= 0; --k) v -= 1 / (x + static_cast<long double>(k));
  return static_cast<double>(v);
}
double trigamma(double x) {
  const long double y = x + 2000.0L, z = 1 / (y * y);
  long double v = 1 / y + z / 2 + z / y / 6 - z * z / y / 30;
  for (int k = 1999; k >= 0; --k) v += 1 / ((x + static_cast<long double>(k)) * (x + k));
  return static_cast<double>(v);
}
double inverse_of_erf(double x) {
  long double low = -6, high = 6;
  for (int i = 0; i < 80; ++i) {
    const long double middle = (low + high) / 2;
    (std::erf(middle) < x ? low : high) = middle;
  }
  return static_cast<double>((low + high) / 2);
}
using Formula = std::function<double(const double*)>;

/// Independent of the evaluations: in double, on inputs rounded to the dtype.
const std::map<std::string_view, Formula>& real_formulas() {
  static const std::map<std::string_view, Formula> f = {
      {"neg", [](const double* x) { return -x[0]; }},
      {"abs", [](const double* x) { return x[0] < 0 ? -x[0] : x[0]; }},
      {"sign", [](const double* x) { return x[0] > 0   ? 1.
                                            : x[0] < 0 ? -1.
                                                       : 0.; }},
      {"add", [](const double* x) { return x[0] + x[1]; }},
      {"sub", [](const double* x) { return x[0] - x[1]; }},
      {"mul", [](const double* x) { return x[0] * x[1]; }},
      {"div", [](const double* x) { return x[0] / x[1]; }},
      {"pow", [](const double* x) { return power(x[0], x[1]); }},
      {"maximum", [](const double* x) { return x[0] < x[1] ? x[1] : x[0]; }},
      {"minimum", [](const double* x) { return x[1] < x[0] ? x[1] : x[0]; }},
      {"fmod", [](const double* x) { return x[0] - std::trunc(x[0] / x[1]) * x[1]; }},
      {"remainder", [](const double* x) { return floor_mod(x[0], x[1]); }},
      {"floor_divide", [](const double* x) { return std::floor(x[0] / x[1]); }},
      {"atan2", [](const double* x) { return std::arg(std::complex<double>(x[1], x[0])); }},
      {"exp", [](const double* x) { return std::pow(M_E, x[0]); }},
      {"exp2", [](const double* x) { return std::pow(2, x[0]); }},
      {"expm1", [](const double* x) { return 2 * std::exp(x[0] / 2) * std::sinh(x[0] / 2); }},
      {"log", [](const double* x) { return std::log2(x[0]) * M_LN2; }},
      {"log1p", [](const double* x) { return 2 * std::atanh(x[0] / (2 + x[0])); }},
      {"log2", [](const double* x) { return std::log(x[0]) / M_LN2; }},
      {"sqrt", [](const double* x) { return std::pow(x[0], 0.5); }},
      {"rsqrt", [](const double* x) { return std::pow(x[0], -0.5); }},
      {"reciprocal", [](const double* x) { return std::pow(x[0], -1); }},
      {"sin", [](const double* x) { return std::cos(x[0] - M_PI_2); }},
      {"cos", [](const double* x) { return 1 - 2 * std::pow(std::sin(x[0] / 2), 2); }},
      {"tan", [](const double* x) { return std::sin(x[0]) / std::cos(x[0]); }},
      {"asin", [](const double* x) { return std::atan2(x[0], std::sqrt(1 - x[0] * x[0])); }},
      {"acos", [](const double* x) { return std::atan2(std::sqrt(1 - x[0] * x[0]), x[0]); }},
      {"atan", [](const double* x) { return std::atan2(x[0], 1); }},
      {"sinh", [](const double* x) { return (std::exp(x[0]) - std::exp(-x[0])) / 2; }},
      {"cosh", [](const double* x) { return (std::exp(x[0]) + std::exp(-x[0])) / 2; }},
      {"asinh",
       [](const double* x) {
         const double a = std::fabs(x[0]);
         return std::copysign(std::log1p(a + a * a / (1 + std::sqrt(a * a + 1))), x[0]);
       }},
      {"acosh", [](const double* x) { return std::log(x[0] + std::sqrt(x[0] * x[0] - 1)); }},
      {"atanh", [](const double* x) { return 0.5 * std::log1p(2 * x[0] / (1 - x[0])); }},
      {"lgamma", [](const double* x) { return std::log(std::tgamma(x[0])); }},
      {"digamma", [](const double* x) { return digamma(x[0]); }},
      {"trigamma", [](const double* x) { return trigamma(x[0]); }},
      {"erfinv", [](const double* x) { return inverse_of_erf(x[0]); }},
      {"tanh", [](const double* x) { return std::expm1(2 * x[0]) / (std::expm1(2 * x[0]) + 2); }},
      {"sigmoid", [](const double* x) { return 0.5 + 0.5 * std::tanh(x[0] / 2); }},
      {"erf", [](const double* x) { return 1 - std::erfc(x[0]); }},
      {"erfc", [](const double* x) { return 1 - std::erf(x[0]); }},
      {"floor", [](const double* x) { return x[0] - floor_mod(x[0], 1); }},
      {"ceil", [](const double* x) { return -std::floor(-x[0]); }},
      {"round", [](const double* x) { return std::rint(x[0]); }},
      {"trunc", [](const double* x) { return x[0] < 0 ? -std::floor(-x[0]) : std::floor(x[0]); }},
  };
  return f;
}
const std::map<std::string_view, Formula>& logic_formulas() {
  static const std::map<std::string_view, Formula> f = {
      {"eq", [](const double* x) { return double(x[0] == x[1]); }},
      {"ne", [](const double* x) { return double(x[0] != x[1]); }},
      {"lt", [](const double* x) { return double(x[0] < x[1]); }},
      {"le", [](const double* x) { return double(x[0] <= x[1]); }},
      {"gt", [](const double* x) { return double(x[0] > x[1]); }},
      {"ge", [](const double* x) { return double(x[0] >= x[1]); }},
      {"isnan", [](const double* x) { return double(std::isnan(x[0])); }},
      {"logical_and", [](const double* x) { return double(x[0] && x[1]); }},
      {"logical_or", [](const double* x) { return double(x[0] || x[1]); }},
      {"logical_xor", [](const double* x) { return double(x[0] != x[1]); }},
      {"logical_not", [](const double* x) { return double(!x[0]); }},
      {"bitwise_and", [](const double* x) { return number(bits(x[0]) & bits(x[1])); }},
      {"bitwise_or", [](const double* x) { return number(bits(x[0]) | bits(x[1])); }},
      {"bitwise_xor", [](const double* x) { return number(bits(x[0]) ^ bits(x[1])); }},
      {"bitwise_not", [](const double* x) { return -x[0] - 1; }},
      {"shift_left", [](const double* x) { return x[1] < 0 ? 0 : std::ldexp(x[0], int(x[1])); }},
      {"shift_right",
       [](const double* x) {
         return std::floor(x[1] < 0 ? (x[0] < 0 ? -1 : 0) : std::ldexp(x[0], -int(x[1])));
       }},
      {"where", [](const double* x) { return x[0] ? x[1] : x[2]; }},
  };
  return f;
}
const Formula* formula(std::string_view name) {
  for (const auto* all : {&real_formulas(), &logic_formulas()})
    if (const auto at = all->find(name); at != all->end()) return &at->second;
  return nullptr;
}

/// Operands of equal shape in many layouts.
struct Layout {
  const char* name;
  std::function<HostTensor(DType, Rng&, double, double)> make;
};
HostTensor view(std::string_view o, const HostTensor& x, const Attrs& attrs) {
  return evaluate(*find_op(o), {{x}}, attrs);
}
const std::vector<Layout>& layouts() {
  static const std::vector<Layout> l = {
      {"scalar", [](DType t, Rng& r, double lo, double hi) { return random_tensor(t, {}, r, lo, hi); }},
      {"empty",
       [](DType t, Rng& r, double lo, double hi) {
         return random_tensor(t, {3, 0}, r, lo, hi);
       }},
      {"dense", [](DType t, Rng& r, double lo, double hi) { return random_tensor(t, {1037}, r, lo, hi); }},
      {"turned",
       [](DType t, Rng& r, double lo, double hi) {
         return view("permute", random_tensor(t, {5, 7, 3}, r, lo, hi), {Ints{2, 0, 1}});
       }},
      {"sliced and flipped",
       [](DType t, Rng& r, double lo, double hi) {
         const HostTensor x =
             view("slice", random_tensor(t, {9, 600}, r, lo, hi), {Shape{1, 3}, Shape{8, 599}, Ints{3, 2}});
         return view("flip", x, {Ints{0, 1}});
       }},
      {"broadcast",
       [](DType t, Rng& r, double lo, double hi) {
         return view("expand", random_tensor(t, {4, 1, 6}, r, lo, hi), {Shape{2, 4, 5, 6}});
       }},
  };
  return l;
}

/// Half an ulp of the dtype, plus what the library function may be off, as a fraction.
double tolerance(DType t) {
  switch (t) {
    case DType::f16: return 0x1p-10;
    case DType::bf16: return 0x1p-7;
    case DType::f32: return 4e-7;
    case DType::f64: return 1e-14;
    default: return 0;
  }
}

/// What a dtype keeps of a value: integers wrap.
double wrapped(DType t, double v) {
  switch (t) {
    case DType::u8: return static_cast<double>(static_cast<uint8_t>(static_cast<int64_t>(v)));
    case DType::i32: return static_cast<double>(static_cast<int32_t>(static_cast<int64_t>(v)));
    default: return v;
  }
}

bool accepts(Op o, const std::vector<Type>& types) {
  try {
    infer_type(o, types, {});
    return true;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::invalid);
    return false;
  }
}

/// Runs `o` on operands of dtype `t` in one layout and compares with the formula.
void check_elementwise(Op o, DType t, const Layout& l, const Formula& f) {
  const OpDef& d = def(o);
  Rng rng{uint64_t(t) * 1000 + d.name.size()};
  std::vector<HostTensor> in;
  std::vector<std::vector<double>> v;
  for (int i = 0; i < d.inputs; ++i) {
    const bool condition = o == op("where") && i == 0;
    const bool divisor = i == 1 && (o == op("fmod") || o == op("remainder") || o == op("floor_divide"));
    const double lo = t == DType::boolean || condition ? 0 : t == DType::u8 ? std::max(0., d.lo) : d.lo;
    in.push_back(l.make(condition ? DType::boolean : t, rng, divisor ? std::max(1., lo) : lo,
                        t == DType::boolean || condition ? 1 : d.hi));
    v.push_back(numbers(in.back()));
  }
  const HostTensor out = evaluate(o, in, {});
  EXPECT_TRUE(is_contiguous(out.ref));
  EXPECT_EQ(out.ref.shape, in[0].ref.shape);
  const std::vector<double> got = numbers(out);
  bool crosses = false;  // zero, where it is right absolutely
  for (const Op x : {op("erf"), op("erfc"), op("sin"), op("cos"), op("digamma")}) crosses |= o == x;
  const double scale = crosses ? 1 : 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double x[3] = {v[0][i], v.size() > 1 ? v[1][i] : 0, v.size() > 2 ? v[2][i] : 0};
    const double want = wrapped(out.ref.dtype, f(x));
    const double slack = tolerance(t) * std::max(scale, std::fabs(want) + 0.05 * (d.flops > 1));
    ASSERT_NEAR(got[i], want, slack) << "element " << i << " of " << x[0] << ", " << x[1] << ", " << x[2];
  }
}

TEST(Ops, ElementwiseValuesForEveryDtypeAndLayout) {
  for (const OpDef* d : all_ops()) {
    const Op o = *find_op(d->name);
    if (d->kind != OpKind::elementwise || d->inputs == 0 || o == op("cast") || o == op("random_uniform"))
      continue;
    ASSERT_TRUE(formula(d->name)) << d->name << " needs a formula here";
    int taken = 0;
    for (int t = 0; t < kDTypeCount; ++t) {
      std::vector<Type> types(static_cast<size_t>(d->inputs), {static_cast<DType>(t), {2}});
      if (o == op("where")) types[0].dtype = DType::boolean;
      if (!accepts(o, types)) continue;
      ++taken;
      for (const Layout& l : layouts()) {
        SCOPED_TRACE(fmt::format("{} {} {}", d->name, dtype_name(static_cast<DType>(t)), l.name));
        check_elementwise(o, static_cast<DType>(t), l, *formula(d->name));
      }
    }
    EXPECT_GT(taken, 0) << d->name;
  }
}

HostTensor run(Op o, const std::vector<HostTensor>& in, const Attrs& attrs = {}) {
  return evaluate(o, in, attrs);
}
std::vector<double> value(Op o, const std::vector<HostTensor>& in, const Attrs& attrs = {}) {
  return numbers(run(o, in, attrs));
}
/// Numbers equal, NaN to NaN.
void expect_values(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
        << "element " << i << " is " << got[i] << ", expected " << want[i];
}
HostTensor f32(const std::vector<double>& v) {
  return tensor(DType::f32, {static_cast<int64_t>(v.size())}, v);
}
HostTensor i64(const std::vector<double>& v) {
  return tensor(DType::i64, {static_cast<int64_t>(v.size())}, v);
}

TEST(Ops, NanAndInfinity) {
  const double nan = NAN, inf = INFINITY;
  const HostTensor a = f32({nan, 1, inf, -inf}), b = f32({1, nan, -inf, -inf});
  expect_values(value(op("maximum"), {a, b}), {nan, nan, inf, -inf});
  expect_values(value(op("minimum"), {a, b}), {nan, nan, -inf, -inf});
  expect_values(value(op("add"), {a, b}), {nan, nan, nan, -inf});
  expect_values(value(op("sign"), {a}), {0, 1, 1, -1});
  expect_values(value(op("lt"), {a, b}), {0, 0, 0, 0});
  expect_values(value(op("ne"), {a, b}), {1, 1, 1, 0});
  expect_values(value(op("isnan"), {a}), {1, 0, 0, 0});
  expect_values(value(op("sigmoid"), {f32({-200, 200, nan})}), {0, 1, nan});
  expect_values(value(op("tanh"), {f32({-200, 200, inf})}), {-1, 1, 1});
  expect_values(value(op("where"), {tensor(DType::boolean, {2}, {1, 0}), f32({nan, 2}), f32({3, nan})}),
                {nan, nan});
}

TEST(Ops, TanhIsAccurateEverywhere) {
  std::vector<double> v;
  for (double x = 1e-30; x < 20; x *= 1.01) v.insert(v.end(), {x, -x});
  const HostTensor x = f32(v);
  const std::vector<double> in = numbers(x), got = value(op("tanh"), {x});
  for (size_t i = 0; i < in.size(); ++i)
    ASSERT_NEAR(got[i], std::tanh(in[i]), 1e-7 * std::fabs(std::tanh(in[i]))) << in[i];
  EXPECT_TRUE(std::signbit(value(op("tanh"), {f32({-0.0})})[0]));
}

TEST(Ops, IntegersWrapAndDivideLikePython) {
  const HostTensor lowest = i64({-0x1p63, -0x1p63, 7, -7, -7, 7}), b = i64({-1, 1, 3, 3, -3, -3});
  expect_values(value(op("floor_divide"), {lowest, b}), {-0x1p63, -0x1p63, 2, -3, 2, -3});
  expect_values(value(op("remainder"), {lowest, b}), {0, 0, 1, 2, -1, -2});
  expect_values(value(op("fmod"), {lowest, b}), {0, 0, 1, -1, -1, 1});
  expect_values(value(op("neg"), {i64({-0x1p63})}), {-0x1p63});
  expect_values(value(op("abs"), {i64({-0x1p63})}), {-0x1p63});
  expect_values(value(op("add"), {tensor(DType::u8, {1}, {200}), tensor(DType::u8, {1}, {100})}), {44});
  expect_values(value(op("mul"), {tensor(DType::i32, {1}, {65536}), tensor(DType::i32, {1}, {65536})}), {0});
  expect_values(value(op("pow"), {i64({2, -1, -1, 3, 0}), i64({10, -3, -2, -1, 0})}), {1024, -1, 1, 0, 1});
  const HostTensor x = tensor(DType::i32, {4}, {-8, -8, 1, 1}), n = tensor(DType::i32, {4}, {1, 40, 31, 32});
  expect_values(value(op("shift_right"), {x, n}), {-4, -1, 0, 0});
  expect_values(value(op("shift_left"), {x, n}), {-16, 0, -0x1p31, 0});
  expect_values(value(op("floor_divide"), {f32({-7, 7, 1, -1}), f32({2, -2, 0, 0})}),
                {-4, -4, INFINITY, -INFINITY});
}

TEST(Ops, CastsRoundAndCut) {
  const auto cast = [](const std::vector<double>& v, DType from, DType to) {
    return value(op("cast"), {tensor(from, {static_cast<int64_t>(v.size())}, v)}, {to});
  };
  expect_values(cast({1.9, -1.9, NAN, 1e30, -1e30}, DType::f64, DType::i32),
                {1, -1, -0x1p31, -0x1p31, -0x1p31});
  expect_values(cast({0x1p63, -0x1p63, 0x1p62}, DType::f64, DType::i64), {-0x1p63, -0x1p63, 0x1p62});
  expect_values(cast({-1, 257, 255.7}, DType::f32, DType::u8), {255, 1, 255});
  expect_values(cast({0, -0.0, 0.1, NAN}, DType::f32, DType::boolean), {0, 0, 1, 1});
  expect_values(cast({1 + 0x1p-11, 65520, 1e-8}, DType::f32, DType::f16), {1, INFINITY, 0});
  expect_values(cast({16777217, -3}, DType::i64, DType::f32), {16777216, -3});
  expect_values(cast({1, 0}, DType::boolean, DType::bf16), {1, 0});
}

TEST(Ops, Created) {
  expect_values(value(op("constant"), {}, {2.5, DType::f16, Shape{2}}), {2.5, 2.5});
  expect_values(value(op("constant"), {}, {-1.0, DType::u8, Shape{}}), {255});
  expect_values(value(op("constant"), {}, {1.0, DType::f32, Shape{0, 3}}), {});
  expect_values(value(op("iota"), {}, {int64_t{1}, Shape{2, 3}}), {0, 1, 2, 0, 1, 2});
  expect_values(value(op("iota"), {}, {int64_t{0}, Shape{2, 3}}), {0, 0, 0, 1, 1, 1});
}

TEST(Ops, RandomIsPhiloxAndDependsOnSeedOffsetAndPlaceOnly) {
  // Known answers of Philox4x32-10: key and counter zero give 6627e8d5 e169c58d bc57ac4c 9b00dbd8.
  const auto draw = [](double seed, double offset, const Shape& s) {
    return value(op("random_uniform"), {scalar(DType::i64, seed), scalar(DType::i64, offset)}, {s});
  };
  const std::vector<double> first = draw(0, 0, {5});
  const uint32_t words[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(first[i], (words[i] >> 8) * 0x1p-24);
  const std::vector<double> longer = draw(0, 0, {100000});
  EXPECT_EQ(std::vector<double>(longer.begin(), longer.begin() + 5), first);
  EXPECT_NE(draw(1, 0, {5}), first);
  EXPECT_NE(draw(0, 1, {5}), first);
  double sum = 0;
  for (double v : longer) {
    ASSERT_TRUE(v >= 0 && v < 1);
    sum += v;
  }
  EXPECT_NEAR(sum / 1e5, 0.5, 5 * std::sqrt(1. / 12 / 1e5));
}

// --- reductions ---

struct Reduction {
  Op o;
  double start;
  std::function<double(double, double)> combine;
};
const std::vector<Reduction>& reductions() {
  static const std::vector<Reduction> r = {
      {op("sum"), 0, [](double a, double b) { return a + b; }},
      {op("prod"), 1, [](double a, double b) { return a * b; }},
      {op("amax"), -INFINITY, [](double a, double b) { return std::isnan(a) || a > b ? a : b; }},
      {op("amin"), INFINITY, [](double a, double b) { return std::isnan(a) || a < b ? a : b; }},
  };
  return r;
}

/// The naive reduction: an accumulator per kept index, filled in row-major order.
std::vector<double> naive(const Reduction& r, const HostTensor& x, const Ints& dims) {
  const std::vector<double> v = numbers(x);
  Ints weight(x.ref.shape.size(), 0);
  int64_t outs = 1;
  for (size_t d = weight.size(); d-- > 0;) {
    if (std::count(dims.begin(), dims.end(), static_cast<int64_t>(d))) continue;
    weight[d] = outs;
    outs *= x.ref.shape[d];
  }
  std::vector<double> out(static_cast<size_t>(outs), r.start);
  for (size_t i = 0; i < v.size(); ++i) {
    int64_t at = 0, rest = static_cast<int64_t>(i);
    for (size_t d = weight.size(); d-- > 0; rest /= x.ref.shape[d]) at += rest % x.ref.shape[d] * weight[d];
    out[static_cast<size_t>(at)] = r.combine(out[static_cast<size_t>(at)], v[i]);
  }
  return out;
}

TEST(Ops, ReductionsForEveryDtypeAndSubsetOfDims) {
  const std::vector<Ints> shapes = {{}, {1}, {7}, {4, 0, 2}, {3, 5, 4}, {2, 700}, {700, 3}};
  for (const Reduction& r : reductions())
    for (int t = 0; t < kDTypeCount; ++t)
      for (const Ints& shape : shapes)
        for (unsigned set = 0; set < 1u << shape.size(); ++set) {
          const DType dtype = static_cast<DType>(t);
          const bool sums = r.o == op("sum") || r.o == op("prod");
          if (dtype == DType::boolean && sums) continue;
          Ints dims;
          bool nothing = false;
          for (size_t d = 0; d < shape.size(); ++d)
            if (set >> d & 1) dims.push_back(static_cast<int64_t>(d)), nothing |= shape[d] == 0;
          if (nothing && !sums) continue;
          SCOPED_TRACE(fmt::format("{} {} [{}] over ({})", def(r.o).name, dtype_name(dtype),
                                   fmt::join(shape, ","), fmt::join(dims, ",")));
          Rng rng{set};
          const bool prod = r.o == op("prod");
          HostTensor x = random_tensor(dtype, shape, rng,
                                       dtype == DType::u8 ? 0
                                       : prod             ? 0.97
                                                          : -3,
                                       dtype == DType::boolean ? 1
                                       : prod                  ? 1.03
                                                               : 3);
          if (shape.size() > 1 && set % 2) x = view("flip", x, {Ints{1}});
          const std::vector<double> got = value(r.o, {x}, {dims}), want = naive(r, x, dims);
          ASSERT_EQ(got.size(), want.size());
          for (size_t i = 0; i < got.size(); ++i)
            ASSERT_NEAR(got[i], wrapped(dtype, want[i]),
                        sums ? tolerance(dtype) * (std::fabs(want[i]) + (prod ? 30 : 1) * 2) : 0);
        }
}

TEST(Ops, LongSumsAreAccurate) {
  constexpr int64_t n = 3'000'001;
  const HostTensor tenth = run(op("constant"), {}, {0.1, DType::f32, Shape{n}});
  EXPECT_NEAR(value(op("sum"), {tenth}, {Ints{0}})[0] / (0.1f * double(n)), 1, 1e-7);
  const HostTensor wide = run(op("constant"), {}, {0.1, DType::f64, Shape{n}});
  EXPECT_NEAR(value(op("sum"), {wide}, {Ints{0}})[0] / (0.1 * n), 1, 1e-13);
  const HostTensor tall =
      view("reshape", run(op("constant"), {}, {0.1, DType::f32, Shape{2 * n}}), {Shape{n, 2}});
  EXPECT_NEAR(value(op("sum"), {tall}, {Ints{0}})[1] / (0.1f * double(n)), 1, 1e-7);
}

/// Runs f in pieces of odd sizes, last piece first: any schedule of a pool.
void odd_pieces(int64_t n, int64_t, const std::function<void(int64_t, int64_t)>& f) {
  for (int64_t end = n; end > 0;) {
    const int64_t begin = std::max<int64_t>(0, end - 1 - end / 3);
    f(begin, end);
    end = begin;
  }
}

TEST(Ops, BitsDoNotDependOnHowWorkIsSplit) {
  Rng rng{5};
  const HostTensor x = random_tensor(DType::f32, {70000, 3}, rng, -1, 1);
  const HostTensor rows = view("permute", random_tensor(DType::f32, {90000, 2}, rng, -1, 1), {Ints{1, 0}});
  const HostTensor idx = random_tensor(DType::i64, {70000}, rng, 0, 4);
  const HostTensor base = run(op("constant"), {}, {0.0, DType::f32, Shape{5, 3}});
  const auto all = [&] {
    return std::vector<HostTensor>{
        run(op("sum"), {x}, {Ints{0}}),    run(op("sum"), {x}, {Ints{1}}),
        run(op("sum"), {x}, {Ints{0, 1}}), run(op("sum"), {rows}, {Ints{1}}),
        run(op("tanh"), {x}, {}),          run(op("index_add"), {base, idx, x}, {int64_t{0}})};
  };
  const std::vector<HostTensor> whole = all();
  const HostFunctions saved = host_functions();
  host_functions().parallel_for = odd_pieces;
  const std::vector<HostTensor> split = all();
  host_functions() = saved;
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(bit_difference(whole[i], split[i]), "") << i;
}

TEST(Ops, ExtremaOfNanTiesAndBool) {
  const HostTensor x = tensor(DType::f32, {2, 3}, {1, 3, 3, 2, NAN, NAN});
  expect_values(value(op("amax"), {x}, {Ints{1}}), {3, NAN});
  expect_values(value(op("amin"), {x}, {Ints{0}}), {1, NAN, NAN});
  expect_values(value(op("argmax"), {x}, {Ints{1}}), {1, 1});
  expect_values(value(op("argmin"), {x}, {Ints{1}}), {0, 1});
  expect_values(value(op("argmax"), {x}, {Ints{0}}), {1, 1, 1});
  const HostTensor b = tensor(DType::boolean, {2, 2}, {0, 0, 1, 0});
  expect_values(value(op("amax"), {b}, {Ints{1}}), {0, 1});
  expect_values(value(op("amin"), {b}, {Ints{0, 1}}), {0});
  expect_values(value(op("argmax"), {i64({3, 9, 9})}, {Ints{0}}), {1});
  expect_values(value(op("amax"), {tensor(DType::f32, {0, 2}, {})}, {Ints{1}}), {});
}

}  // namespace KILN_FILE
}  // namespace kiln
