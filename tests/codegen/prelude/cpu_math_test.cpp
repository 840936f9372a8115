// SPDX-License-Identifier: Apache-2.0
// Every function of the intrinsics table, as generated CPU code calls it, against the true value: over all
// exponents, the edges of IEEE numbers, and every vector width, which must all give the same bits.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "ir/base/intrinsics.h"
#include "tests/codegen/prelude/kernel.h"
#include "tests/codegen/prelude/special_truth.h"

namespace kiln {
namespace KILN_FILE {

using testing::build_kernels;
using testing::kernel_text;
using testing::ulp_distance;

constexpr int kWidths[] = {1, 4, 8, 16};

// ---- what is true: wider than the format under test ----

using Wide = long double (*)(const long double*);
const std::map<std::string_view, Wide>& truths() {
  static const std::map<std::string_view, Wide> t = {
      {"acos", [](const long double* x) { return std::acos(x[0]); }},
      {"acosh", [](const long double* x) { return std::acosh(x[0]); }},
      {"asin", [](const long double* x) { return std::asin(x[0]); }},
      {"asinh", [](const long double* x) { return std::asinh(x[0]); }},
      {"atan", [](const long double* x) { return std::atan(x[0]); }},
      {"atanh", [](const long double* x) { return std::atanh(x[0]); }},
      {"cos", [](const long double* x) { return std::cos(x[0]); }},
      {"cosh", [](const long double* x) { return std::cosh(x[0]); }},
      {"erf", [](const long double* x) { return std::erf(x[0]); }},
      {"erfc", [](const long double* x) { return std::erfc(x[0]); }},
      {"exp", [](const long double* x) { return std::exp(x[0]); }},
      {"exp2", [](const long double* x) { return std::exp2(x[0]); }},
      {"expm1", [](const long double* x) { return std::expm1(x[0]); }},
      {"log", [](const long double* x) { return std::log(x[0]); }},
      {"log10", [](const long double* x) { return std::log10(x[0]); }},
      {"log1p", [](const long double* x) { return std::log1p(x[0]); }},
      {"log2", [](const long double* x) { return std::log2(x[0]); }},
      {"sin", [](const long double* x) { return std::sin(x[0]); }},
      {"sinh", [](const long double* x) { return std::sinh(x[0]); }},
      {"tan", [](const long double* x) { return std::tan(x[0]); }},
      {"tanh", [](const long double* x) { return std::tanh(x[0]); }},
      {"atan2", [](const long double* x) { return std::atan2(x[0], x[1]); }},
      {"pow", [](const long double* x) { return std::pow(x[0], x[1]); }},
      {"digamma", [](const long double* x) { return testing::digamma(x[0]); }},
      {"trigamma", [](const long double* x) { return testing::trigamma(x[0]); }},
      {"erfinv", [](const long double* x) { return testing::erfinv(x[0]); }},
      {"lgamma",
       [](const long double* x) {
         int sign;
         return lgammal_r(x[0], &sign);
       }},
      {"sigmoid",
       [](const long double* x) {
         const long double z = std::exp(-std::fabs(x[0]));
         return (x[0] < 0 ? z : 1) / (1 + z);
       }},
  };
  return t;
}

template <typename T>
long double truth(const Intrinsic& f, const T* x) {
  if constexpr (std::is_same_v<T, float>) {
    if (f.ulp_f32 == 0) return f.f32(x);
    double wide[3];
    std::copy(x, x + f.args, wide);
    return f.f64(wide);
  } else {
    if (f.ulp_f64 == 0) return f.f64(x);
    long double wide[3];
    std::copy(x, x + f.args, wide);
    return truths().at(f.name)(wide);
  }
}

// ---- arguments ----

template <typename T>
std::vector<T> edges() {
  using L = std::numeric_limits<T>;
  std::vector<T> v = {
      0,        L::denorm_min(), L::min() / 2,   std::nextafter(L::min(), T(0)), L::min(),
      L::max(), L::infinity(),   L::quiet_NaN(), std::nextafter(T(1), T(0)),     std::nextafter(T(1), T(2))};
  for (const double x : {0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 10.0, 17.0, 88.72283, 88.72284, 103.97, 104.0,
                         709.782712893384, 745.1332191019411, 746.0, 1e5, 1e10})
    v.push_back(static_cast<T>(x));
  for (size_t i = 0, n = v.size(); i < n; ++i) v.push_back(-v[i]);
  return v;
}

std::vector<float> every(uint32_t step) {
  std::vector<float> v = edges<float>();
  for (uint64_t i = 0; i < (uint64_t{1} << 32); i += step)
    v.push_back(std::bit_cast<float>(static_cast<uint32_t>(i)));
  return v;
}
std::vector<double> at_each_exponent(int per_exponent) {
  std::vector<double> v = edges<double>();
  std::mt19937_64 random(7);
  for (uint64_t e = 0; e < 2047; ++e) {
    // Near one, where most functions bend, many more.
    const int n = e > 1000 && e < 1040 ? per_exponent * 40 : per_exponent;
    for (int i = 0; i < n; ++i)
      v.push_back(std::bit_cast<double>((random() & 0x800fffffffffffff) | (e << 52)));
  }
  return v;
}

// `args` columns. The second and third are drawn from the first, every other value from a range where
// functions of two arguments neither overflow nor vanish.
template <typename T>
std::vector<std::vector<T>> columns(int args, std::vector<T> first) {
  std::mt19937 random(3);
  std::uniform_real_distribution<T> moderate(-9, 9);
  for (int i = 0; args > 1 && i < 10000; ++i) {
    first.push_back(moderate(random));
    first.push_back(std::round(moderate(random)));
  }
  while (first.size() % 16) first.push_back(1);
  std::vector<std::vector<T>> c(args, first);
  for (int k = 1; k < args; ++k)
    for (T& v : c[k]) v = random() % 2 ? moderate(random) : first[random() % first.size()];
  return c;
}

// ---- kernels ----

template <typename T>
constexpr const char* kType = std::is_same_v<T, float> ? "kn::f32" : "kn::f64";

std::string map_kernel(const Intrinsic& f, const char* type, int width) {
  std::string args, body;
  for (int i = 0; i < f.args; ++i) {
    body += fmt::format("  const {0}* x{1} = (const {0}*)b[{1}];\n", type, i);
    args += fmt::format("{}kn::load<{}>(x{} + i)", i ? ", " : "", width, i);
  }
  body += fmt::format("  {0}* y = ({0}*)b[{1}];\n", type, f.args);
  body += fmt::format("  for (int64_t i = 0; i < d[0]; i += {0}) kn::store<{0}>(y + i, {1}({2}));", width,
                      f.cpu, args);
  return kernel_text(fmt::format("{}_{}_{}", f.name, type + 4, width), body);
}

template <typename T>
std::vector<T> run(const LoadedImage& image, const Intrinsic& f, int width, std::vector<std::vector<T>>& x) {
  std::vector<T> y(x[0].size());
  std::vector<void*> buffers;
  for (std::vector<T>& column : x) buffers.push_back(column.data());
  buffers.push_back(y.data());
  const int64_t n = static_cast<int64_t>(y.size());
  image.kernel(fmt::format("{}_{}_{}", f.name, kType<T> + 4, width))(buffers.data(), &n, 0, 1, nullptr);
  return y;
}

LoadedImage build_all(const Intrinsic& f) {
  std::string text;
  std::vector<std::string> names;
  for (const char* type : {kType<float>, kType<double>})
    for (const int w : kWidths) {
      text += map_kernel(f, type, w);
      names.push_back(fmt::format("{}_{}_{}", f.name, type + 4, w));
    }
  return build_kernels(text, names);
}

// ---- the checks ----

template <typename T>
void expect_bound(const Intrinsic& f, const std::vector<std::vector<T>>& x, const std::vector<T>& y,
                  double bound) {
  double worst = -1;
  size_t at = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    T args[3];
    for (int k = 0; k < f.args; ++k) args[k] = x[k][i];
    const double d = testing::units_apart(f.name, args[0], y[i], truth(f, args));
    if (d > worst) worst = d, at = i;
  }
  EXPECT_LE(worst, bound) << fmt::format("{} {} at {:a}, {:a} gives {:a}", f.name, kType<T>, x[0][at],
                                         x[f.args > 1][at], y[at]);
  fmt::print("{:10} {} worst {:.3f} ulp of {} at {:a}\n", f.name, kType<T> + 4, worst, bound, x[0][at]);
}

template <typename T>
void check(const LoadedImage& image, const Intrinsic& f, std::vector<T> arguments, double bound) {
  std::vector<std::vector<T>> x = columns(f.args, std::move(arguments));
  const std::vector<T> y = run(image, f, 16, x);
  expect_bound(f, x, y, bound);
  for (const int w : {1, 4, 8}) {
    const std::vector<T> other = run(image, f, w, x);
    size_t different = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      const bool nans = std::isnan(y[i]) && std::isnan(other[i]);
      different += !nans && std::memcmp(&y[i], &other[i], sizeof(T)) != 0;
    }
    EXPECT_EQ(different, 0u) << f.name << " " << kType<T> << " width " << w;
  }
}

class CpuMath : public ::testing::TestWithParam<Intrinsic> {};

TEST_P(CpuMath, StaysWithinItsBound) {
  const Intrinsic& f = GetParam();
  const LoadedImage image = build_all(f);
  check<float>(image, f, every(4093 * 4), f.ulp_f32);
  check<double>(image, f, at_each_exponent(20), f.ulp_f64);
}

INSTANTIATE_TEST_SUITE_P(All, CpuMath, ::testing::ValuesIn(intrinsics().begin(), intrinsics().end()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace KILN_FILE
}  // namespace kiln
