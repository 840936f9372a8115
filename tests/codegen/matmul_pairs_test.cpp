// SPDX-License-Identifier: Apache-2.0
// Matmuls of bf16 in pairs: which targets have them, every path of the packing compiled for those, and the
// bits of the words on a machine with them. matmul_test compares whole products with a plain loop.
#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "codegen/compile_clang.h"
#include "codegen/matmul.h"
#include "ir/base/error.h"
#include "tests/codegen/prelude/kernel.h"

namespace kiln {
namespace KILN_FILE {

constexpr MatmulTarget kPairs{
    .vector_bytes = 64, .vector_registers = 32, .l2_bytes = 1 << 20, .bf16_pairs = true};

MatmulSpec product(int64_t m, int64_t n, int64_t k, bool a_cols, bool b_cols, DType half = DType::bf16) {
  MatmulSpec spec;
  spec.m = Dim(m), spec.n = Dim(n), spec.k = Dim(k);
  spec.a = {0, 0, {}, a_cols ? Dim(1) : Dim(k), a_cols ? Dim(m) : Dim(1), half};
  spec.b = {1, 0, {}, b_cols ? Dim(1) : Dim(n), b_cols ? Dim(k) : Dim(1), half};
  spec.c = {2, 0, {}, Dim(n), 1, half};
  return spec;
}

CpuTarget with_pairs() {
  CpuTarget t = parse_target("x86-64-v4");
  const size_t at = t.features.find("-avx512bf16");
  t.features[at] = '+';
  return t;
}

TEST(MatmulPairs, AreForBf16OnTargetsThatHaveThem) {
  EXPECT_TRUE(choose_matmul_schedule(product(64, 64, 64, false, true), kPairs).pairs);
  EXPECT_FALSE(choose_matmul_schedule(product(64, 64, 64, false, true, DType::f16), kPairs).pairs);
  MatmulTarget plain = kPairs;
  plain.bf16_pairs = false;
  EXPECT_FALSE(choose_matmul_schedule(product(64, 64, 64, false, true), plain).pairs);
  EXPECT_TRUE(with_pairs().has("avx512bf16"));
  EXPECT_FALSE(parse_target("x86-64-v4").has("avx512bf16"));
  EXPECT_FALSE(parse_target("aarch64").has("avx512bf16"));
}

// A step takes a word: blocks, tiles and packing are those of f32 with half of k; A along k is read in place.
TEST(MatmulPairs, SchedulesAreThoseOfHalfTheSteps) {
  const MatmulSchedule s = choose_matmul_schedule(product(1024, 1152, 768, false, true), kPairs);
  MatmulSpec f32 = product(1024, 1152, 384, false, true);
  f32.a.half = f32.b.half = f32.c.half = {};
  MatmulSchedule half = choose_matmul_schedule(f32, kPairs);
  EXPECT_EQ(s.pack_a, PackA::none);
  half.pairs = true, half.kc *= 2;
  EXPECT_EQ(s, half);
  const MatmulSchedule panels = choose_matmul_schedule(product(1536, 384, 1024, true, false), kPairs);
  EXPECT_EQ(panels.pack_a, PackA::cols);
  EXPECT_EQ(panels.mr, 8) << "panels are whole vectors";
  EXPECT_EQ(choose_matmul_schedule(product(1024, 1152, 768, false, true), kPairs, {true, false}).pack_a,
            PackA::rows);
  EXPECT_EQ(choose_matmul_schedule(product(8, 8, 999, false, true), kPairs, {}, {.kc = 25}).kc % 2, 0);
}

// AVX-512 without pairs, AVX2 and AArch64 have the same products without the words.
TEST(MatmulPairs, SourcesCompileForEveryTarget) {
  std::string with, without;
  for (const bool a_cols : {false, true})
    for (const bool fused : {false, true}) {
      const MatmulSpec spec = product(6, 20, a_cols ? 33 : 64, a_cols, !a_cols);
      MatmulHooks hooks;
      if (fused) {
        hooks.prologue_a = hooks.prologue_b = [](const MatmulVector& v) {
          return fmt::format("{} = V({});", v.value, v.lanes);
        };
      }
      for (const bool pairs : {false, true}) {
        const MatmulTarget target{.vector_bytes = fused ? 64 : 32, .bf16_pairs = pairs};
        const MatmulSchedule s = choose_matmul_schedule(spec, target, {fused, fused});
        DimTable dims;
        (pairs ? with : without) +=
            print_matmul(fmt::format("mm{}{}", a_cols, fused), spec, s, hooks, dims).text;
      }
    }
  EXPECT_NE(with.find("kn::target::dot"), std::string::npos);
  EXPECT_EQ(without.find("kn::target::dot"), std::string::npos);
  const auto compile = [](const std::string& text, const CpuTarget& target) {
    const std::vector<CpuSource> sources = {{"pairs.cpp", text, {}}};
    EXPECT_FALSE(compile_objects(sources, target, 1)[0].empty());
  };
  compile(with, with_pairs());
  for (const char* name : {"x86-64-v4", "x86-64-v3", "aarch64"}) compile(without, parse_target(name));
}

TEST(MatmulPairs, RefusesWhatCannotBePaired) {
  DimTable dims;
  const auto refuse = [&](const MatmulSpec& spec, const MatmulSchedule& s, const char* text) {
    try {
      print_matmul("mm", spec, s, {}, dims);
      ADD_FAILURE() << "accepted; expected: " << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::internal);
      EXPECT_THAT(e.what(), ::testing::HasSubstr(text));
    }
  };
  MatmulSpec spec = product(64, 64, 64, true, true);
  MatmulSchedule s = choose_matmul_schedule(spec, kPairs);
  s.pack_a = PackA::none;
  refuse(spec, s, "matmul: A must be packed");
  s.pack_a = PackA::cols, s.kc = 31;
  refuse(spec, s, "matmul: no pairs of bf16, kc 31");
  s.kc = 32, spec.b.half = DType::f16;
  refuse(spec, s, "matmul: no pairs of bf16, kc 32");
}

// Of an odd k the last element has no neighbour: neither the next row of A nor what lies behind B may count.
TEST(MatmulPairs, NaNAndInfinityStayInTheirRowsAndColumns) {
  if (!host_target().has("avx512bf16")) GTEST_SKIP() << "this CPU has no products of pairs";
  constexpr int64_t kSize = 5;
  const float inf = std::numeric_limits<float>::infinity();
  for (const bool a_cols : {false, true})
    for (const bool b_cols : {false, true}) {
      MatmulSpec spec = product(kSize, kSize, kSize, a_cols, b_cols);
      spec.c.half = {};
      DimTable dims;
      const MatmulSchedule s = choose_matmul_schedule(spec, kPairs);
      const MatmulSource source = print_matmul("mm", spec, s, {}, dims);
      std::vector<BFloat16> a(kSize * kSize, BFloat16(1.0f)), b = a;
      const auto at = [](int64_t row, int64_t col, bool cols) {
        return static_cast<size_t>(cols ? col * kSize + row : row * kSize + col);
      };
      a[at(1, 0, a_cols)] = BFloat16(std::numeric_limits<float>::quiet_NaN());
      b[at(0, 3, b_cols)] = BFloat16(inf), b[at(4, 3, b_cols)] = BFloat16(-inf);
      std::vector<float> c(kSize * kSize);
      void* buffers[] = {a.data(), b.data(), c.data()};
      const std::vector<CpuSource> sources = {{"mm.cpp", source.text, {}}};
      const LoadedImage image(link_shared(compile_objects(sources, host_target(), 1), {{"mm"}}));
      std::vector<float> scratch(static_cast<size_t>(source.launches[0].scratch_bytes.value()) / 4 + 16,
                                 std::numeric_limits<float>::quiet_NaN());
      void* aligned = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64 / 4;
      image.kernel("mm")(buffers, nullptr, 0, source.launches[0].tasks.value(), aligned);
      for (int64_t i = 0; i < kSize; ++i)
        for (int64_t j = 0; j < kSize; ++j) {
          const float got = c[static_cast<size_t>(i * kSize + j)];
          if (i == 1 || j == 3) EXPECT_TRUE(std::isnan(got)) << i << " " << j;
          else EXPECT_EQ(got, 5.0f) << i << " " << j;
        }
    }
}

float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
float widened(uint32_t bits) { return std::bit_cast<float>(bits << 16); }

/// What docs/PRECISION.md says of one step: two fused multiply-adds, the second half's first.
float step(float c, uint32_t x, uint32_t y) {
  const auto term = [&](uint32_t a, uint32_t b, float sum) {
    return flushed(std::fma(flushed(widened(a)), flushed(widened(b)), sum));
  };
  return term(x & 0xffff, y & 0xffff, term(x >> 16, y >> 16, flushed(c)));
}

TEST(MatmulPairs, StepsAddTheSecondProductFirst) {
  if (!host_target().has("avx512bf16")) GTEST_SKIP() << "this CPU has no products of pairs";
  std::string text;
  for (const int w : {4, 8, 16})
    text += testing::kernel_text(
        fmt::format("dot{}", w),
        fmt::format(
            "for (long i = 0; i < d[0]; i += {0})\n"
            "kn::store<{0}>((float*)b[0] + i, kn::target::dot(kn::load<{0}>((const float*)b[1] + i),\n"
            "kn::load<{0}>((const kn::u32*)b[2] + i), kn::load<{0}>((const kn::u32*)b[3] + i)));",
            w));
  const LoadedImage image = testing::build_kernels(text, {"dot4", "dot8", "dot16"});
  std::mt19937 random(3);
  constexpr int64_t kCount = 1 << 14;
  std::vector<float> got(kCount), c(kCount);
  std::vector<uint32_t> x(kCount), y(kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    // Any bits; and those of numbers around 1, whose products cancel.
    const auto near_one = [&](uint32_t bits) { return i % 2 ? bits : (bits & 0x807f807fu) | 0x3f803f80u; };
    x[i] = near_one(static_cast<uint32_t>(random())), y[i] = near_one(static_cast<uint32_t>(random()));
    const auto sum = static_cast<uint32_t>(random());
    c[i] = std::bit_cast<float>(i % 2 ? sum : (sum & 0x807fffffu) | 0x3f800000u);
  }
  for (const int w : {4, 8, 16}) {
    void* buffers[] = {got.data(), c.data(), x.data(), y.data()};
    image.kernel(fmt::format("dot{}", w))(buffers, &kCount, 0, 1, nullptr);
    for (int64_t i = 0; i < kCount; ++i) {
      const float want = step(c[i], x[i], y[i]);
      ASSERT_TRUE(got[i] == want || (std::isnan(got[i]) && std::isnan(want)))
          << i << ": " << got[i] << ", expected " << want;
    }
  }
}

// Packing rounds as a store does, but for what the products take as zero.
TEST(MatmulPairs, NarrowingRoundsAsStoresDo) {
  if (!host_target().has("avx512bf16")) GTEST_SKIP() << "this CPU has no products of pairs";
  std::string text;
  for (const int w : {4, 8, 16})
    text += testing::kernel_text(
        fmt::format("narrow{}", w),
        fmt::format(
            "const auto x = kn::load<{0}>((const float*)b[0]), y = kn::load<{0}>((const float*)b[0] + "
            "{0});\n"
            "kn::store<{1}>((kn::u16*)b[1], kn::target::narrow(x, y));\n"
            "kn::store<{0}>((kn::u16*)b[1] + {1}, kn::target::narrow(x));",
            w, 2 * w));
  const LoadedImage image = testing::build_kernels(text, {"narrow4", "narrow8", "narrow16"});
  const float inf = std::numeric_limits<float>::infinity();
  std::mt19937 random(4);
  for (int round = 0; round < 2000; ++round) {
    std::vector<float> x = {0.0f,       -0.0f,           inf,       -inf,     0x1p-126f,
                            -0x1p-127f, 0x1.fffffep127f, 0x1.01p0f, 0x1.03p0f};
    x.push_back(std::numeric_limits<float>::quiet_NaN());
    while (x.size() < 32) x.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
    std::shuffle(x.begin(), x.end(), random);
    for (const int w : {4, 8, 16}) {
      std::vector<uint16_t> got(static_cast<size_t>(3 * w));
      void* buffers[] = {x.data(), got.data()};
      image.kernel(fmt::format("narrow{}", w))(buffers, nullptr, 0, 1, nullptr);
      for (int i = 0; i < 3 * w; ++i) {
        const float from = x[static_cast<size_t>(i % (2 * w))];
        ASSERT_EQ(got[static_cast<size_t>(i)], BFloat16(flushed(from)).bits) << from;
      }
    }
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
