// SPDX-License-Identifier: Apache-2.0
// Division, remainders, shifts, powers, comparison, conversion and lane reductions of generated CPU code
// against the same in plain C++, at every width.
#include "ir/base/philox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>

#include "tests/codegen/prelude/edge_values.h"
#include "tests/codegen/prelude/kernel.h"

namespace kiln {
namespace KILN_FILE {

using testing::build_kernels;
using testing::kernel_text;

constexpr int kWidths[] = {1, 4, 8, 16};

template <typename T>
constexpr const char* kName = "";
template <>
constexpr const char* kName<float> = "f32";
template <>
constexpr const char* kName<double> = "f64";
template <>
constexpr const char* kName<int32_t> = "i32";
template <>
constexpr const char* kName<int64_t> = "i64";
template <>
constexpr const char* kName<uint8_t> = "u8";

template <typename T>
bool same(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
  else return a == b;
}

// y = EXPRESSION of a and c, for each width, over all pairs.
template <typename In, typename Out>
void expect_equal(const std::string& expression, const std::vector<In>& values,
                  const std::function<Out(In, In)>& want) {
  std::vector<In> a, b;
  for (const In x : values)
    for (const In y : values) a.push_back(x), b.push_back(y);
  while (a.size() % 16) a.push_back(1), b.push_back(1);
  std::string text;
  std::vector<std::string> names;
  for (const int w : kWidths) {
    names.push_back(fmt::format("f_{}", w));
    text += kernel_text(names.back(), fmt::format("for (kn::i64 i = 0; i < d[0]; i += {0}) {{\n"
                                                  "auto a = kn::load<{0}>((const kn::{1}*)b[0] + i);\n"
                                                  "auto c = kn::load<{0}>((const kn::{1}*)b[1] + i);\n"
                                                  "kn::store<{0}>((kn::{2}*)b[2] + i, {3});\n}}",
                                                  w, kName<In>, kName<Out>, expression));
  }
  const LoadedImage image = build_kernels(text, names);
  for (const std::string& name : names) {
    std::vector<Out> y(a.size());
    void* buffers[] = {a.data(), b.data(), y.data()};
    const int64_t n = static_cast<int64_t>(a.size());
    image.kernel(name)(buffers, &n, 0, 1, nullptr);
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_TRUE(same(y[i], want(a[i], b[i]))) << fmt::format("{} of {} {}, {}: {}, not {}", expression,
                                                               kName<In>, a[i], b[i], y[i], want(a[i], b[i]))
                                                << " in " << name;
    }
  }
}

template <typename T>
using Unsigned = std::make_unsigned_t<T>;
template <typename T>
T cut(T a, T b) {
  if (b == 0) return 0;
  if (std::is_signed_v<T> && b == T(-1)) return T(Unsigned<T>(0) - Unsigned<T>(a));
  return T(a / b);
}
template <typename T>
T rest(T a, T b) {
  return T(Unsigned<T>(a) - Unsigned<T>(cut(a, b)) * Unsigned<T>(b));
}
template <typename T>
T power(T x, T n) {
  if constexpr (std::is_signed_v<T>)
    if (n < 0) return x == 1 ? 1 : x == T(-1) ? (n % 2 ? T(-1) : T(1)) : T(0);
  uint64_t r = 1, base = static_cast<uint64_t>(x);
  for (uint64_t e = static_cast<uint64_t>(n); e; e >>= 1, base *= base)
    if (e & 1) r *= base;
  return T(r);
}

template <typename T>
void check_integers() {
  const std::vector<T> v = testing::edge_values<T>(30);
  constexpr int kBits = sizeof(T) * 8;
  expect_equal<T, T>("kn::trunc_divide(a, c)", v, cut<T>);
  expect_equal<T, T>("kn::fmod(a, c)", v, rest<T>);
  expect_equal<T, T>("kn::remainder(a, c)", v, [](T a, T b) {
    const T m = rest(a, b);
    return m != 0 && (b < 0) != (m < 0) ? T(Unsigned<T>(m) + Unsigned<T>(b)) : m;
  });
  expect_equal<T, T>("kn::floor_divide(a, c)", v, [](T a, T b) {
    const T m = rest(a, b);
    return b != 0 && m != 0 && (b < 0) != (m < 0) ? T(cut(a, b) - 1) : cut(a, b);
  });
  expect_equal<T, T>("kn::shift_left(a, c)", v,
                     [](T a, T n) { return n < 0 || n >= kBits ? T(0) : T(static_cast<uint64_t>(a) << n); });
  expect_equal<T, T>("kn::shift_right(a, c)", v, [](T a, T n) {
    if (n < 0 || n >= kBits) return T(a < 0 ? -1 : 0);
    return T(a >> n);
  });
  expect_equal<T, T>("kn::pow(a, c)", v, power<T>);
  expect_equal<T, T>("kn::add(a, c)", v, [](T a, T b) { return T(Unsigned<T>(a) + Unsigned<T>(b)); });
  expect_equal<T, T>("kn::sub(a, c)", v, [](T a, T b) { return T(Unsigned<T>(a) - Unsigned<T>(b)); });
  expect_equal<T, T>("kn::mul(a, c)", v, [](T a, T b) { return T(uint64_t(a) * uint64_t(b)); });
  expect_equal<T, T>("kn::max(a, c)", v, [](T a, T b) { return std::max(a, b); });
  expect_equal<T, T>("kn::sign(a)", v, [](T a, T) { return T((a > 0) - (a < 0)); });
}

TEST(CpuArith, IntegersDivideShiftAndWrap) {
  check_integers<int32_t>();
  check_integers<int64_t>();
  check_integers<uint8_t>();
}

template <typename T>
void check_floats() {
  const std::vector<T> v = testing::edge_values<T>(30);
  const auto modulo = [](T a, T b) {
    const T m = std::fmod(a, b);
    return m != 0 && (b < 0) != (m < 0) ? m + b : m;
  };
  expect_equal<T, T>("kn::fmod(a, c)", v, [](T a, T b) { return std::fmod(a, b); });
  expect_equal<T, T>("kn::remainder(a, c)", v, modulo);
  expect_equal<T, T>("kn::floor_divide(a, c)", v, [](T a, T b) -> T {
    if (b == 0) return a / b;
    const T m = std::fmod(a, b);
    T q = (a - m) / b;
    if (m != 0 && (b < 0) != (m < 0)) q -= 1;
    if (q == 0) return std::copysign(T(0), a / b);
    const T whole = std::floor(q);
    return q - whole > T(0.5) ? whole + 1 : whole;
  });
  expect_equal<T, T>("kn::select(kn::lt(a, c) | kn::isnan(a) & !kn::isinf(c), a, c)", v,
                     [](T a, T b) { return a < b || (std::isnan(a) && !std::isinf(b)) ? a : b; });
}

TEST(CpuArith, FloatsDivideAsPyTorchSays) {
  check_floats<float>();
  check_floats<double>();
}

template <typename T>
void check_comparisons(const std::vector<T>& v) {
  expect_equal<T, uint8_t>("kn::convert<kn::u8>(kn::eq(a, c))", v, [](T a, T b) { return a == b; });
  expect_equal<T, uint8_t>("kn::convert<kn::u8>(kn::ne(a, c))", v, [](T a, T b) { return a != b; });
  expect_equal<T, uint8_t>("kn::convert<kn::u8>(kn::lt(a, c))", v, [](T a, T b) { return a < b; });
  expect_equal<T, uint8_t>("kn::convert<kn::u8>(kn::le(a, c))", v, [](T a, T b) { return a <= b; });
  expect_equal<T, uint8_t>("kn::convert<kn::u8>(kn::gt(a, c))", v, [](T a, T b) { return a > b; });
  expect_equal<T, uint8_t>("kn::convert<kn::u8>(kn::ge(a, c))", v, [](T a, T b) { return a >= b; });
  expect_equal<T, double>("kn::convert<kn::f64>(kn::to_mask(a) ^ kn::to_mask(c))", v,
                          [](T a, T b) { return (a != 0) != (b != 0); });
  expect_equal<T, double>("kn::convert<kn::f64>(a)", v, [](T a, T) { return static_cast<double>(a); });
  expect_equal<T, float>("kn::convert<kn::f32>(a)", v, [](T a, T) { return static_cast<float>(a); });
}

TEST(CpuArith, ComparesAndConverts) {
  check_comparisons(testing::edge_values<int32_t>(30));
  check_comparisons(testing::edge_values<int64_t>(30));
  check_comparisons(testing::edge_values<uint8_t>(30));
  check_comparisons(testing::edge_values<float>(30));
  check_comparisons(testing::edge_values<double>(30));
  const std::vector<float> small = {0, 1.9f, -1.9f, 255, 100.5f, -1, 2147483520.0f};
  expect_equal<float, int32_t>("kn::convert<kn::i32>(a)", small, [](float a, float) { return int32_t(a); });
  expect_equal<float, int64_t>("kn::convert<kn::i64>(a)", small, [](float a, float) { return int64_t(a); });
  expect_equal<float, uint8_t>("kn::convert<kn::u8>(a)", small,
                               [](float a, float) { return uint8_t(int32_t(a)); });
  expect_equal<int64_t, int32_t>("kn::convert<kn::i32>(a)", testing::edge_values<int64_t>(30),
                                 [](int64_t a, int64_t) { return int32_t(a); });
}

TEST(CpuReduce, SumsAsATreeOfHalves) {
  for (const int w : kWidths) {
    const std::string load = fmt::format("auto v = kn::load<{}>((const kn::f32*)b[0]);\n", w);
    const LoadedImage image =
        build_kernels(kernel_text("f", load + "auto* y = (kn::f32*)b[1];\n"
                                              "y[0] = kn::reduce_sum(v); y[1] = kn::reduce_max(v);\n"
                                              "y[2] = kn::reduce_min(v); y[3] = kn::reduce_prod(v);\n"
                                              "auto m = kn::gt(v, (decltype(v))(0.0f));\n"
                                              "y[4] = kn::any(m); y[5] = kn::all(m); y[6] = kn::count(m);"),
                      {"f"});
    std::mt19937 random(11);
    for (int round = 0; round < 50; ++round) {
      std::vector<float> x(static_cast<size_t>(w));
      for (float& v : x) v = std::uniform_real_distribution<float>(-2, round % 2 ? 2.0f : 200.0f)(random);
      if (round == 7) x[0] = NAN;
      if (round == 8) x.back() = NAN;
      if (round == 9) std::fill(x.begin(), x.end(), 1.0f);
      float y[7];
      void* buffers[] = {x.data(), y};
      image.kernel("f")(buffers, nullptr, 0, 1, nullptr);
      std::vector<float> sum = x, product = x;
      for (size_t half = x.size() / 2; half; half /= 2)
        for (size_t i = 0; i < half; ++i) sum[i] += sum[i + half], product[i] *= product[i + half];
      const bool nan = round == 7 || round == 8;
      const auto positive = std::count_if(x.begin(), x.end(), [](float v) { return v > 0; });
      EXPECT_TRUE(y[0] == sum[0] || (nan && std::isnan(y[0])));
      EXPECT_TRUE(nan ? std::isnan(y[1]) : y[1] == *std::max_element(x.begin(), x.end()));
      EXPECT_TRUE(nan ? std::isnan(y[2]) : y[2] == *std::min_element(x.begin(), x.end()));
      EXPECT_TRUE(y[3] == product[0] || (nan && std::isnan(y[3])));
      EXPECT_EQ(y[4], positive > 0);
      EXPECT_EQ(y[5], positive == w);
      EXPECT_EQ(y[6], positive);
    }
  }
}

TEST(CpuRandom, EqualsTheHostBitForBit) {
  for (const int w : kWidths) {
    const LoadedImage image = build_kernels(
        kernel_text("f",
                    fmt::format("for (kn::i64 i = 0; i < d[3]; i += {0}) kn::store<{0}>((kn::f32*)b[0] + i, "
                                "kn::philox_uniform(d[0], d[1], kn::iota<{0}>(d[2] + i)));",
                                w)),
        {"f"});
    for (const int64_t seed : {int64_t{0}, int64_t{42}, int64_t{-1}, int64_t{0x123456789abcdef}})
      for (const int64_t offset : {int64_t{0}, int64_t{3}, int64_t{1} << 40})
        for (const int64_t start : {int64_t{0}, int64_t{5}, (int64_t{1} << 34) + 3}) {
          std::vector<float> y(64);
          void* buffers[] = {y.data()};
          const int64_t dims[] = {seed, offset, start, 64};
          image.kernel("f")(buffers, dims, 0, 1, nullptr);
          for (int64_t i = 0; i < 64; ++i)
            ASSERT_EQ(y[static_cast<size_t>(i)],
                      philox_uniform(uint64_t(seed), uint64_t(offset), uint64_t(start + i)))
                << w << " lanes, element " << start + i;
        }
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
