// SPDX-License-Identifier: Apache-2.0
// Every word of codegen/prelude/cuda.h on the device that this process has, a GPU or the simulated one,
// against values that the host computes. On a GPU this is what proves the inline PTX.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>

#include "codegen/compile_nvrtc.h"
#include "ir/base/dtype.h"
#include "ir/base/intrinsics.h"
#include "ir/base/philox.h"
#include "tests/codegen/prelude/cuda_words_list.h"
#include "tests/codegen/prelude/cuda_words_run.h"
#include "tests/codegen/prelude/kernel.h"

namespace kiln {
namespace KILN_FILE {

constexpr int64_t kNothing = std::numeric_limits<int64_t>::min();  // a guard that holds

using testing::CudaWords;
using testing::in;
using testing::kType;
using testing::out;
using testing::Truth;

TEST(CudaWordsText, HasEveryWord) {
  const std::vector<std::string> all = testing::declared_words();
  EXPECT_GT(all.size(), 100u);
  for (const char* known : {"load_strided_n", "block_scan", "copy_async", "erfinv", "KILN_CUDA_PARTS",
                            "atan2", "inf", "mma_bf16", "gather_if", "RunningMin"})
    EXPECT_NE(std::find(all.begin(), all.end(), known), all.end()) << known;
  EXPECT_EQ(testing::words_left_out(testing::word_modules()), std::vector<std::string>());
}

/// Where there is no GPU, NVRTC at least takes the text.
TEST(CudaWordsText, IsCompiledForGpus) {
  std::string why;
  if (!nvrtc_available(&why)) GTEST_SKIP() << why;
  std::vector<CudaModule> modules = testing::word_modules();
  DiskCache cache;
  compile_cuda(modules, "sm_90a", &cache, 4);
  for (const CudaModule& m : modules) EXPECT_FALSE(m.cubin.empty()) << m.name;
}

template <typename T>
std::vector<T> special() {
  using L = std::numeric_limits<T>;
  std::vector<T> v = {0, 1, 2, 3, 7, 8, 31, 100};
  std::mt19937_64 random(5);
  if constexpr (std::is_floating_point_v<T>) {
    for (const T x : {L::denorm_min(), L::min(), L::max(), L::infinity(), L::quiet_NaN(), T(0.5), T(1.5),
                      T(2.5), T(0.1), T(1e30)})
      v.push_back(x);
    for (int i = 0; i < 6; ++i) v.push_back(std::ldexp(T(1 + random() % 1000000), int(random() % 60) - 40));
    for (size_t i = 0, n = v.size(); i < n; ++i) v.push_back(-v[i]);
  } else {
    for (const uint64_t x : {32ul, 63ul, 64ul}) v.push_back(T(x));
    for (const T x : {L::max(), T(L::max() / 2), L::min(), T(L::min() / 3), T(-1), T(-2), T(-3), T(-8)})
      v.push_back(x);
    for (int i = 0; i < 13; ++i) v.push_back(T(random() >> (random() % 60)));
  }
  return v;
}
template <typename T>
bool same(T a, T b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

template <typename T>
class CudaValues : public CudaWords {};
using Types = ::testing::Types<float, double, int32_t, int64_t, uint8_t>;
TYPED_TEST_SUITE(CudaValues, Types);

TYPED_TEST(CudaValues, AreThoseOfTheHost) {
  using T = TypeParam;
  const auto numbers = testing::numbers<T>();
  const auto masks = testing::masks<T>();
  std::vector<T> a, c;
  for (const T x : special<T>())
    for (const T y : special<T>()) a.push_back(x), c.push_back(y);
  ASSERT_EQ(a.size() % 4, 0u);
  const size_t n = a.size();
  std::vector<T> y(n * numbers.size());
  std::vector<int32_t> m(n * masks.size());
  this->run(fmt::format("values_{}", kType<T>), {in(a), in(c), out(y), out(m)}, {int64_t(n)}, {2});
  const auto where = [&](const char* text, size_t i) {
    return fmt::format("{} of {} {} and {}", text, kType<T>, a[i], c[i]);
  };
  for (size_t w = 0; w < numbers.size(); ++w)
    for (size_t i = 0; i < n; ++i) {
      const T want = numbers[w].host(a[i], c[i]);
      ASSERT_TRUE(same(y[w * n + i], want))
          << where(numbers[w].text, i) << fmt::format(": {}, not {}", y[w * n + i], want);
    }
  for (size_t w = 0; w < masks.size(); ++w)
    for (size_t i = 0; i < n; ++i)
      ASSERT_EQ(m[w * n + i], masks[w].host(a[i], c[i])) << where(masks[w].text, i);
}

TYPED_TEST(CudaValues, BecomeOtherTypes) {
  using T = TypeParam;
  std::vector<T> x = {0, 1, 2, 77, 100, 127};
  if (std::is_signed_v<T>) x.insert(x.end(), {T(-1), T(-2), T(-100), T(-127)});
  if (sizeof(T) > 1) x.insert(x.end(), {T(255), T(16777217), T(2147483520)});
  if (std::is_floating_point_v<T>) x.insert(x.end(), {T(0.5), T(-1.9), T(100.5), T(-0.0)});
  const size_t whole = x.size();  // what follows is no integer: those are the machine's
  if (std::is_floating_point_v<T>) x.insert(x.end(), {T(INFINITY), T(-INFINITY), T(NAN), T(1e-42)});
  while (x.size() % 4) x.push_back(0);
  std::vector<float> f(x.size());
  std::vector<double> d(x.size());
  std::vector<int32_t> i(x.size());
  std::vector<int64_t> l(x.size());
  std::vector<uint8_t> u(x.size());
  this->run(fmt::format("convert_{}", kType<T>), {in(x), out(f), out(d), out(i), out(l), out(u)},
            {int64_t(x.size())});
  for (size_t k = 0; k < x.size(); ++k) {
    EXPECT_TRUE(same(f[k], static_cast<float>(x[k]))) << x[k] << ": " << f[k];
    EXPECT_TRUE(same(d[k], static_cast<double>(x[k]))) << x[k] << ": " << d[k];
    if (k >= whole) continue;
    EXPECT_EQ(i[k], static_cast<int32_t>(x[k]));
    EXPECT_EQ(l[k], static_cast<int64_t>(x[k]));
    EXPECT_EQ(u[k], static_cast<uint8_t>(static_cast<int32_t>(x[k]))) << x[k];
  }
}

TYPED_TEST(CudaValues, AreReducedAsATreeOfHalves) {
  using T = TypeParam;
  std::vector<T> x(256), y(128);
  std::mt19937 random(3);
  for (T& v : x) v = static_cast<T>(static_cast<T>(random() % 199) - (std::is_signed_v<T> ? 99 : 0));
  if constexpr (std::is_floating_point_v<T>) {
    for (T& v : x) v /= T(7);
    x[13] = x[31] = T(NAN);
  }
  this->run(fmt::format("reduce_{}", kType<T>), {in(x), out(y)});
  const auto tree = [](std::vector<T> v, auto f) {
    for (size_t half = v.size() / 2; half; half /= 2)
      for (size_t i = 0; i < half; ++i) v[i] = static_cast<T>(f(v[i], v[i + half]));
    return v[0];
  };
  using U = typename testing::Plain<T>::U;
  for (size_t t = 0; t < 32; ++t) {
    const std::vector<T> v(x.begin() + ptrdiff_t(t) * 8, x.begin() + ptrdiff_t(t) * 8 + 8);
    EXPECT_TRUE(same(y[t * 4], tree(v, [](T p, T q) { return static_cast<U>(p) + static_cast<U>(q); }))) << t;
    EXPECT_TRUE(same(y[t * 4 + 1], tree(v, [](T p, T q) { return static_cast<U>(p) * static_cast<U>(q); })))
        << t;
    EXPECT_TRUE(same(y[t * 4 + 2], tree(v, [](T p, T q) { return p != p || p > q ? p : q; }))) << t;
    EXPECT_TRUE(same(y[t * 4 + 3], tree(v, [](T p, T q) { return p != p || p < q ? p : q; }))) << t;
  }
}

template <typename T>
class CudaFunctions : public CudaWords {
 protected:
  static std::vector<T> arguments(unsigned seed) {
    using L = std::numeric_limits<T>;
    std::vector<T> v = {
        0, L::denorm_min(), L::min(), L::max(), L::infinity(), L::quiet_NaN(), 0.5, 1, 1.5, 2, 2.5};
    std::mt19937_64 random(seed);
    for (int i = 0; i < 1000; ++i)
      v.push_back(std::ldexp(T(1 + static_cast<double>(random() % 1000000) * 1e-6), int(random() % 40) - 24));
    for (size_t i = 0, n = v.size(); i < n; ++i) v.push_back(-v[i]);
    std::shuffle(v.begin(), v.end(), random);
    v.resize(v.size() / 4 * 4);
    return v;
  }
  static T reference(const Intrinsic& f, const T* x) {
    if constexpr (sizeof(T) == 4) return f.f32(x);
    else return f.f64(x);
  }
};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CudaFunctions, Reals);

TYPED_TEST(CudaFunctions, AreWithinTheirBounds) {
  using T = TypeParam;
  const std::vector<T> x[] = {this->arguments(1), this->arguments(2), this->arguments(3)};
  for (const Intrinsic& f : intrinsics()) {
    std::vector<T> y(x[0].size());
    this->run(fmt::format("math_{}_{}", f.name, kType<T>), {in(x[0]), in(x[1]), in(x[2]), out(y)},
              {int64_t(y.size())}, {2});
    const double own = sizeof(T) == 4 ? f.ulp_f32 : f.ulp_f64;
    const auto* row = std::find_if(std::begin(testing::kGpuBounds), std::end(testing::kGpuBounds),
                                   [&](const auto& r) { return r.name == f.name; });
    ASSERT_EQ(row == std::end(testing::kGpuBounds), own == 0) << f.name << " has no bound";
    for (size_t i = 0; i < y.size(); ++i) {
      const T a[] = {x[0][i], x[1][i], x[2][i]};
      if (f.name == "lgamma" && a[0] < -2 && a[0] > -24) continue;
      const auto what = [&] { return fmt::format("{} of {} {}: {}", f.name, a[0], a[1], y[i]); };
      if (own == 0) {
        ASSERT_TRUE(same(y[i], this->reference(f, a))) << what() << ", not " << this->reference(f, a);
        continue;
      }
      const double bound = std::max(own, (sizeof(T) == 4 ? row->f32 : row->f64) + 0.5);
      const long double want = row->true_value(a[0], a[1]);
      ASSERT_LE(testing::units_apart(f.name, a[0], y[i], want), bound) << what() << ", not " << double(want);
    }
  }
}

TEST_F(CudaWords, RandomBitsAreTheHosts) {
  for (const int64_t seed : {int64_t{42}, int64_t{-1}, int64_t{0x123456789abcdef}})
    for (const int64_t offset : {int64_t{0}, int64_t{1} << 40})
      for (const int64_t start : {int64_t{0}, int64_t{5}, (int64_t{1} << 34) + 3}) {
        std::vector<uint32_t> bits(1024), others(1024);
        std::vector<float> uniform(1024);
        run("random", {out(bits), out(uniform), out(others)}, {seed, offset, start}, {2});
        for (size_t i = 0; i < 1024; ++i) {
          const auto j = static_cast<uint64_t>(start) + i;
          const auto word = [&](uint64_t o) { return philox4x32(uint64_t(seed), j / 4, o)[j % 4]; };
          ASSERT_EQ(bits[i], word(uint64_t(offset))) << j;
          ASSERT_EQ(others[i], word(uint64_t(offset) + i % 4)) << j;
          ASSERT_EQ(uniform[i], philox_float(word(uint64_t(offset)))) << j;
        }
      }
}

/// What forms() of cuda_words_kernels.h does, on elements of any kind; -1 was not written.
std::vector<int> forms(const std::vector<int>& x) {
  std::vector<int> y(64 * testing::kForms, -1);
  const auto at = [&](int form, int i) -> int& { return y[static_cast<size_t>(64 * form + i)]; };
  for (int i = 0; i < 4; ++i) {
    const int v = x[static_cast<size_t>(i)], far = 3 * i + 1;
    const auto from = [&](int k, bool wanted = true) { return wanted ? x[static_cast<size_t>(k)] : 0; };
    at(0, i) = v;
    at(1, i) = from(i, i < 3);
    if (i < 3) at(2, i) = v;
    at(3, i) = from(3 * i);
    at(4, i) = from(40 - 2 * i, i < 3);
    at(5, 5 * i) = v;
    if (i < 3) at(6, 5 * i) = v;
    at(7, i) = from(far);
    at(8, i) = from(9 - 2 * i, i < 2);
    at(9, i) = from(far, i % 2 == 1);
    if (i % 2 == 1) at(10, far) = v;
    at(11, i) = v;
    at(12, i) = from(i, i < 3);
    at(13, i) = from(8 + i), at(13, i + 4) = from(12 + i);
  }
  return y;
}

template <typename S>
class CudaStorage : public CudaWords {};
using Storages = ::testing::Types<float, double, int32_t, int64_t, uint8_t, BFloat16, Half, Truth>;
TYPED_TEST_SUITE(CudaStorage, Storages);

TYPED_TEST(CudaStorage, IsReadAndWrittenAsAskedAndNoMore) {
  using S = TypeParam;
  const auto make = [](int v) {
    if constexpr (std::is_arithmetic_v<S>) return static_cast<S>(v);
    else if constexpr (std::is_same_v<S, Truth>) return S(v);
    else return S(static_cast<float>(v));
  };
  std::vector<int> x(64);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = std::is_same_v<S, Truth> ? int(i * 7 / 3 % 2) : int(i * 37 % 120) + 1;
  std::vector<S> from, to(64 * testing::kForms), want;
  for (const int v : x) from.push_back(make(v));
  std::memset(static_cast<void*>(to.data()), 0x5a, to.size() * sizeof(S));
  want = to;
  const std::vector<int> moved = forms(x);
  for (size_t i = 0; i < want.size(); ++i)
    if (moved[i] >= 0) want[i] = make(moved[i]);
  this->run(fmt::format("memory_{}", kType<S>), {in(from), out(to)}, {}, {1, 512});
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_EQ(std::memcmp(&to[i], &want[i], sizeof(S)), 0) << "form " << i / 64 << ", element " << i % 64;
}

TEST_F(CudaWords, SixteenBitsRoundToNearestEven) {
  std::vector<float> x = {0, -0.0f, 1, -1, 65504, 65519.9f, 65520, 1e30f, 1e-8f, 6e-8f, INFINITY, -INFINITY};
  for (uint32_t i = 0; i < 4000; ++i) x.push_back(std::bit_cast<float>(i * 1071643u));
  for (uint32_t i = 0; i < 256; ++i) {  // halfway, of bf16, f16 and small f16
    x.push_back(std::bit_cast<float>(0x3f808000u + (i << 16)));
    x.push_back(std::bit_cast<float>(0x3f801000u + (i << 13)));
    x.push_back(static_cast<float>(2 * i + 1) * 0x1p-25f);
    x.push_back(-x.back());
  }
  const size_t n = x.size();
  ASSERT_EQ(n % 4, 0u);
  std::vector<uint16_t> bf(n), half(n);
  std::vector<uint32_t> pairs(2 * n);
  std::vector<float> as_bf(n), as_half(n);
  run("narrow", {in(x), out(bf), out(half), out(pairs), out(as_bf), out(as_half)}, {int64_t(n)});
  const auto bf_of = [](float v) { return std::isnan(v) ? uint16_t{0x7fff} : BFloat16(v).bits; };
  const auto half_of = [](float v) { return std::isnan(v) ? uint16_t{0x7fff} : Half(v).bits; };
  for (size_t i = 0; i < n; ++i) {
    const float other = x[i / 4 * 4 + 3 - i % 4];
    ASSERT_EQ(bf[i], bf_of(x[i])) << x[i];
    ASSERT_EQ(half[i], half_of(x[i])) << x[i];
    ASSERT_TRUE(same(as_bf[i], static_cast<float>(BFloat16(x[i])))) << x[i] << ": " << as_bf[i];
    ASSERT_TRUE(same(as_half[i], static_cast<float>(Half(x[i])))) << x[i] << ": " << as_half[i];
    ASSERT_EQ(pairs[2 * i], bf_of(x[i]) | uint32_t{bf_of(other)} << 16) << x[i] << " " << other;
    ASSERT_EQ(pairs[2 * i + 1], half_of(x[i]) | uint32_t{half_of(other)} << 16) << x[i] << " " << other;
  }
}

TEST_F(CudaWords, SixteenBitsOfEveryPatternAreRead) {
  std::vector<uint16_t> all(1 << 16);
  std::iota(all.begin(), all.end(), uint16_t{0});
  std::vector<float> bf(all.size()), half(all.size());
  run("wide", {in(all), out(bf), out(half)}, {1 << 16});
  for (size_t i = 0; i < all.size(); ++i) {
    BFloat16 b;
    Half h;
    b.bits = h.bits = all[i];
    ASSERT_TRUE(same(bf[i], static_cast<float>(b))) << i;
    ASSERT_TRUE(same(half[i], static_cast<float>(h))) << i;
  }
}

TEST_F(CudaWords, Tf32IsRoundedHalfAwayFromZero) {
  const std::vector<uint32_t> x = {0x3f800000, 0x3f801000, 0x3f800fff, 0xbf801000, 0x3fffffff, 0x7f800000,
                                   0xff800000, 0x7fc00000, 0x80000000, 0x42280000, 0x3f803000};
  const std::vector<uint32_t> want = {0x3f800000, 0x3f802000, 0x3f800000, 0xbf802000, 0x40000000, 0x7f800000,
                                      0xff800000, 0x7fc00000, 0x80000000, 0x42280000, 0x3f804000};
  std::vector<uint32_t> y(x.size());
  run("to_tf32", {in(x), out(y)}, {int64_t(x.size())});
  constexpr uint32_t kKept = 0xffffe000;  // an mma reads no other bits
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(std::bit_cast<float>(want[i])))
      EXPECT_TRUE(std::isnan(std::bit_cast<float>(y[i] & kKept)));
    else EXPECT_EQ(y[i] & kKept, want[i]) << std::hex << x[i];
  }
}

TEST_F(CudaWords, GuardsEndKernels) {
  const int64_t holds = kNothing, fails = 3;
  for (const char* kernel : {"guarded", "guarded_few"})
    for (const int64_t* guard : {static_cast<const int64_t*>(nullptr), &holds, &fails}) {
      std::vector<int32_t> y(32, 1);
      run(kernel, {out(y)}, {}, {}, guard);
      EXPECT_EQ(y, std::vector<int32_t>(32, guard == &fails ? 1 : 7)) << kernel;
    }
}

TEST_F(CudaWords, PartsHaveBlocksBuffersAndDimsOfTheirOwn) {
  const int64_t holds = kNothing, fails = 3;
  for (const int64_t* guard : {static_cast<const int64_t*>(nullptr), &holds, &fails}) {
    const std::vector<size_t> sizes = {5, 64, 33, 1, 100};
    std::vector<std::vector<int32_t>> x, y;
    for (const size_t n : sizes) x.emplace_back(n, static_cast<int32_t>(n)), y.emplace_back(n, -1);
    std::vector<testing::Part> parts;
    for (size_t p = 0; p < sizes.size(); ++p) {
      const auto n = static_cast<int64_t>(sizes[p]);
      parts.push_back({{in(x[p]), out(y[p])}, {n}, (n + 31) / 32});
    }
    run_parts("parts", parts, guard);
    for (size_t p = 0; p < sizes.size(); ++p)
      for (size_t i = 0; i < sizes[p]; ++i)
        EXPECT_EQ(y[p][i], guard == &fails ? -1 : x[p][i] + static_cast<int32_t>(1000 * (i / 32)))
            << p << " " << i;
  }
}

TEST_F(CudaWords, ThreadsKnowWhoTheyAre) {
  std::vector<int64_t> y(3 * 96 * 6);
  run("who", {out(y)}, {}, {3});
  for (int64_t i = 0; i < 3 * 96; ++i) {
    const int64_t t = i % 96, want[] = {t, 96, t % 32, t / 32, i / 96, 3};
    for (size_t k = 0; k < 6; ++k) EXPECT_EQ(y[static_cast<size_t>(i) * 6 + k], want[k]) << i << " " << k;
  }
}

TEST_F(CudaWords, BarriersOrderSharedMemory) {
  std::vector<int32_t> y(4 * 96), z(4 * 96);
  run("meet", {out(y), out(z)}, {}, {4, 96 * 4});
  for (size_t i = 0; i < y.size(); ++i) {  // turned round an even number of times
    const auto x = static_cast<int32_t>(i % 96 * 3 + i / 96);
    EXPECT_EQ(y[i], x + 40 * 39 / 2) << i;
    EXPECT_EQ(z[i], x + 40 * 39) << i;
  }
}

TEST_F(CudaWords, LanesExchangeValues) {
  std::vector<int64_t> y(96 * 8);
  std::vector<uint8_t> bytes(96 * 8);
  std::vector<float> packs(96 * 4);
  run("exchange", {out(y), out(bytes), out(packs)});
  for (int64_t t = 0; t < 96; ++t) {
    const int64_t lane = t % 32, warp = t - lane, turned = warp + (lane + 1) % 32;
    const int64_t lanes = std::min<int64_t>(t, 4);
    const int64_t want[] = {t ^ 5,
                            (warp + (lane + 7) % 32) << 33,
                            t ^ 16,
                            (warp + 8) * 4 + 1,
                            turned % 32 < 3,
                            1,
                            1,
                            (t >= 4) + 2 * lanes};
    for (size_t k = 0; k < 8; ++k) EXPECT_EQ(y[static_cast<size_t>(t) * 8 + k], want[k]) << t << " " << k;
    for (int64_t i = 0; i < 4; ++i) {
      const auto at = static_cast<size_t>(t * 8 + i);
      EXPECT_EQ(bytes[at], i == ((t ^ 1) & 3)) << t << " " << i;
      EXPECT_EQ(bytes[at + 4], turned + i) << t << " " << i;
      EXPECT_EQ(packs[static_cast<size_t>(t * 4 + i)], static_cast<float>((t ^ 31) * 4 + i)) << t << " " << i;
    }
  }
}

TEST_F(CudaWords, WarpsAndBlocksFoldInOrder) {
  std::vector<float> x(96), warps(96), block(96);
  std::vector<int64_t> sums(96 * 2);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i * 37 % 19) - 9);
  run("fold", {in(x), out(warps), out(block), out(sums)}, {}, {1, 128});
  float want[3], all = 0;
  for (size_t w = 0; w < 3; ++w) {
    std::vector<float> v(x.begin() + ptrdiff_t(w) * 32, x.begin() + ptrdiff_t(w) * 32 + 32);
    for (size_t half = 16; half; half /= 2)
      for (size_t i = 0; i < half; ++i) v[i] -= 2 * v[i + half];
    want[w] = v[0];
    all = w == 0 ? v[0] : all - 2 * v[0];
  }
  for (size_t i = 0; i < 96; ++i) {
    EXPECT_EQ(warps[i], want[i / 32]) << i;
    EXPECT_EQ(block[i], all) << i;
    EXPECT_EQ(sums[2 * i], 95 * 96 / 2);
    EXPECT_EQ(sums[2 * i + 1], int64_t{95 * 96 / 2} << 33);
  }
}

TEST_F(CudaWords, ScansGiveAllUpToEachThreadInOrder) {
  struct Affine {  // x -> m x + c, composed
    int64_t m = 1, c = 0;
    Affine then(Affine b) const { return {m * b.m, c * b.m + b.c}; }
    bool operator==(const Affine&) const = default;
  };
  std::vector<Affine> warps(96), blocks(2 * 96);
  run("scans", {out(warps), out(blocks)}, {}, {1, 64 + 3 * sizeof(Affine)});
  Affine in_warp, carry{3, 5};
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto t = static_cast<int64_t>(i % 96);
    const Affine own{t % 6 == 1 ? 2 : 1, t};
    carry = carry.then(own);
    EXPECT_EQ(blocks[i], carry) << i;
    if (i >= 96) continue;
    in_warp = (i % 32 == 0 ? Affine{} : in_warp).then(own);
    EXPECT_EQ(warps[i], in_warp) << i;
  }
}

TEST_F(CudaWords, LinesCarryWhatTheyAreOf) {
  std::vector<float> x(32), sums(32), products(32), logs(32);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i * 37 % 19) - 9) / 8;
  x[25] = NAN;
  std::vector<int64_t> most(32), least(32);
  std::vector<int32_t> order(32);
  run("lines", {in(x), out(sums), out(products), out(logs), out(most), out(least), out(order)});
  double sum = 0, product = 1, exponentials = 0;
  size_t high = 0, low = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const bool nan = std::isnan(x[i]), nan_before = std::isnan(x[high]);
    sum += x[i], product *= x[i], exponentials += std::exp(double{x[i]});
    if (nan || (!nan_before && x[i] >= x[high])) high = i;
    if (nan || (!nan_before && x[i] <= x[low])) low = i;
    EXPECT_TRUE(same(sums[i], static_cast<float>(sum))) << i;
    EXPECT_TRUE(same(products[i], static_cast<float>(product))) << i;
    const auto log = static_cast<float>(std::log(exponentials));
    EXPECT_TRUE(same(logs[i], log) || std::fabs(logs[i] - log) < 1e-6f) << i << ": " << logs[i];
    EXPECT_EQ(most[i], static_cast<int64_t>(high)) << i;
    EXPECT_EQ(least[i], static_cast<int64_t>(low)) << i;
    const float a = x[i], b = x[31 - i];
    const auto before = [](float p, float q) { return p < q || (std::isnan(q) && !std::isnan(p)); };
    EXPECT_EQ(order[i], before(a, b) + 2 * before(b, a)) << i;
  }
}

TEST_F(CudaWords, CopiesLandAndAreZeroWhereNotValid) {
  for (const size_t w : {1, 2, 4}) {
    std::vector<float> x(64 * w), y(32 * w), z(32 * w);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i + 1);
    run(fmt::format("copies_{}", 4 * w), {in(x), out(y), out(z)}, {20}, {1, 2048});
    for (size_t i = 0; i < 32 * w; ++i) {
      EXPECT_EQ(y[i], i / w < 20 ? x[i] : 0.0f) << i;
      EXPECT_EQ(z[i], x[(63 - i / w) * w + i % w]) << i;
    }
  }
}

TEST_F(CudaWords, LanesGetTheirPairsOfEachTile) {
  const auto element = [](size_t matrix, size_t r, size_t c) {
    return static_cast<float>((matrix * 8 + r) * 8 + c);
  };
  std::vector<uint32_t> plain(128), turned(128);
  run("tiles_plain", {out(plain)}, {}, {1, 64 + 32 * 48});
  run("tiles_turned", {out(turned)}, {}, {1, 64 + 32 * 48});
  for (size_t lane = 0; lane < 32; ++lane)
    for (size_t i = 0; i < 4; ++i) {
      const size_t line = lane / 4, at = lane % 4 * 2;
      EXPECT_EQ(plain[lane * 4 + i], BFloat16(element(i, line, at)).bits |
                                         uint32_t{BFloat16(element(i, line, at + 1)).bits} << 16);
      EXPECT_EQ(turned[lane * 4 + i],
                Half(element(i, at, line)).bits | uint32_t{Half(element(i, at + 1, line)).bits} << 16);
    }
}

/// Small whole numbers, whose sums are exact in any order. Places: PTX ISA, "Matrix fragments for mma".
TEST_F(CudaWords, TilesAreMultiplied) {
  using Bits = uint32_t (*)(float);
  const std::pair<const char*, Bits> words[] = {
      {"k_mma_bf16", [](float v) { return uint32_t{BFloat16(v).bits}; }},
      {"k_mma_f16", [](float v) { return uint32_t{Half(v).bits}; }},
      {"k_mma_tf32", [](float v) { return std::bit_cast<uint32_t>(v); }}};
  for (const auto& [word, bits] : words) {
    const bool wide = bits == words[2].second;
    const size_t depth = wide ? 8 : 16;
    const auto a = [](size_t row, size_t k) { return static_cast<float>(int(row * 7 + k * 5) % 23 - 11); };
    const auto b = [](size_t k, size_t col) { return static_cast<float>(int(k * 3 + col * 13) % 17 - 8); };
    std::vector<uint32_t> x(32 * 6);
    std::vector<float> y(32 * 4), want(32 * 4);
    for (size_t lane = 0; lane < 32; ++lane) {
      const size_t group = lane / 4, t = lane % 4;
      const auto pair = [&](auto at, size_t k) {
        return wide ? bits(at(t + k / 2)) : bits(at(t * 2 + k)) | bits(at(t * 2 + k + 1)) << 16;
      };
      for (size_t r = 0; r < 4; ++r)  // the upper half of k in the last two
        x[lane * 6 + r] = pair([&](size_t k) { return a(group + r % 2 * 8, k); }, r / 2 * 8);
      for (size_t r = 0; r < 2; ++r) x[lane * 6 + 4 + r] = pair([&](size_t k) { return b(k, group); }, r * 8);
      for (size_t r = 0; r < 4; ++r) {
        const size_t row = group + r / 2 * 8, col = t * 2 + r % 2;
        float& sum = want[lane * 4 + r] = y[lane * 4 + r] = static_cast<float>(row * 8 + col);
        for (size_t k = 0; k < depth; ++k) sum += a(row, k) * b(k, col);
      }
    }
    run(word, {in(x), out(y)});
    EXPECT_EQ(y, want) << word;
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
