// SPDX-License-Identifier: Apache-2.0
// Warp-level matrices on the simulated device: which lane holds what, by tables transcribed from the PTX ISA
// ("Matrix fragments for mma.m16n8k16", "... m16n8k8", "ldmatrix"), operand rounding, NaN and infinity.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <random>

#include "ir/base/dtype.h"
#include "tests/codegen/prelude/cuda_words.h"
#include "tests/codegen/sim_block.h"

namespace kiln {
namespace KILN_FILE {

using testing::cuda_kernel;
using testing::SimKernels;

constexpr const char* kInclude = "#include \"kiln_cuda.h\"\n";

struct Place {
  int row, col;
};
// The ISA's formulas: groupID = %laneid >> 2, threadID_in_group = %laneid % 4.
Place a_16(int lane, int i) {  // m16n8k16, a0..a7
  const int group = lane >> 2, thread = lane % 4;
  return {(i >= 0 && i < 2) || (i >= 4 && i < 6) ? group : group + 8,
          i < 4 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8};
}
Place b_16(int lane, int i) {  // b0..b3
  const int group = lane >> 2, thread = lane % 4;
  return {i < 2 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8, group};
}
Place a_tf32(int lane, int i) {  // m16n8k8, a0..a3
  const int group = lane >> 2, thread = lane % 4;
  return {i == 0 || i == 2 ? group : group + 8, i == 0 || i == 1 ? thread : thread + 4};
}
Place b_tf32(int lane, int i) {  // b0, b1
  const int group = lane >> 2, thread = lane % 4;
  return {i == 0 ? thread : thread + 4, group};
}
Place c_of(int lane, int i) {  // c0..c3
  const int group = lane >> 2, thread = lane % 4;
  return {i < 2 ? group : group + 8, thread * 2 + (i & 1)};
}

/// d += a b of one word: operands as registers, 8 of a and b, 4 of d for each lane.
std::string product_kernel(const std::string& word) {
  return cuda_kernel(word, 32, 2, 0,
                     fmt::format(R"(
const auto in = (const kn::u32*)b[0] + kn::thread() * 6;
const auto out = (kn::f32*)b[1] + kn::thread() * 4;
kn::u32 p[4], q[2];
kn::f32 sum[4];
for (int i = 0; i < 4; ++i) p[i] = kn::u32(kn::load<1>((const kn::i32*)in + i));
for (int i = 0; i < 4; ++i) sum[i] = kn::load<1>(out + i);
for (int i = 0; i < 2; ++i) q[i] = kn::u32(kn::load<1>((const kn::i32*)in + 4 + i));
kn::{0}(sum, p, q);
for (int i = 0; i < 4; ++i) kn::store<1>(out + i, sum[i]);)",
                                 word));
}

struct Matrices {
  int k;
  std::vector<float> a, b, c;
  explicit Matrices(int depth) : k(depth), a(16 * depth), b(8 * depth), c(16 * 8) {}
  float& at_a(Place p) { return a[static_cast<size_t>(p.row * k + p.col)]; }
  float& at_b(Place p) { return b[static_cast<size_t>(p.row * 8 + p.col)]; }
  float& at_c(Place p) { return c[static_cast<size_t>(p.row * 8 + p.col)]; }
  double want(Place p) {
    double sum = at_c(p);
    for (int i = 0; i < k; ++i) sum += double{at_a({p.row, i})} * double{at_b({i, p.col})};
    return sum;
  }
};

/// Runs the word on fragments laid out by the tables; `bits` of an operand, two to a register if k is 16.
std::vector<float> run_product(const SimKernels& kernels, const std::string& word, Matrices& m,
                               const std::function<uint32_t(float)>& bits) {
  std::vector<uint32_t> in(32 * 6);
  std::vector<float> out(32 * 4);
  for (int lane = 0; lane < 32; ++lane) {
    for (int r = 0; r < 6; ++r) {
      uint32_t& x = in[static_cast<size_t>(lane * 6 + r)];
      const auto element = [&](int i) {
        if (m.k == 8) return r < 4 ? m.at_a(a_tf32(lane, r)) : m.at_b(b_tf32(lane, r - 4));
        return r < 4 ? m.at_a(a_16(lane, 2 * r + i)) : m.at_b(b_16(lane, 2 * (r - 4) + i));
      };
      x = m.k == 8 ? bits(element(0)) : bits(element(0)) | bits(element(1)) << 16;
    }
    for (int i = 0; i < 4; ++i) out[static_cast<size_t>(lane * 4 + i)] = m.at_c(c_of(lane, i));
  }
  kernels.run(word, 32, 1, 0, {in.data(), out.data()}, {});
  std::vector<float> d(16 * 8);
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const Place p = c_of(lane, i);
      d[static_cast<size_t>(p.row * 8 + p.col)] = out[static_cast<size_t>(lane * 4 + i)];
    }
  return d;
}

class CudaProduct : public ::testing::TestWithParam<const char*> {
 protected:
  std::string word() const { return GetParam(); }
  int k() const { return word() == "mma_tf32" ? 8 : 16; }
  uint32_t bits(float x) const {
    if (word() == "mma_bf16") return BFloat16(x).bits;
    return word() == "mma_f16" ? Half(x).bits : std::bit_cast<uint32_t>(x);
  }
  float rounded(float x) const {
    if (word() == "mma_bf16") return static_cast<float>(BFloat16(x));
    return static_cast<float>(Half(x));  // has the mantissa of tf32
  }
  std::vector<float> run(Matrices& m) const {
    const SimKernels kernels(kInclude + product_kernel(word()), {word()});
    return run_product(kernels, word(), m, [this](float x) { return bits(x); });
  }
};

TEST_P(CudaProduct, AddsTheProductOfItsFragments) {
  Matrices m(k());
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-2, 2);
  for (auto* x : {&m.a, &m.b})
    for (float& v : *x) v = rounded(uniform(random));
  for (float& v : m.c) v = uniform(random);
  const std::vector<float> d = run(m);
  for (int row = 0; row < 16; ++row)
    for (int col = 0; col < 8; ++col)
      EXPECT_NEAR(d[static_cast<size_t>(row * 8 + col)], m.want({row, col}), 1e-5) << row << " " << col;
}

TEST_P(CudaProduct, KeepsNanAndInfinityInTheirRowsAndColumns) {
  Matrices m(k());
  for (auto* x : {&m.a, &m.b, &m.c})
    for (float& v : *x) v = 1;
  m.at_a({3, 5}) = NAN;
  m.at_b({2, 6}) = INFINITY;
  m.at_a({9, 2}) = 0;
  const std::vector<float> d = run(m);
  for (int row = 0; row < 16; ++row)
    for (int col = 0; col < 8; ++col) {
      const float x = d[static_cast<size_t>(row * 8 + col)];
      if (row == 3 || (row == 9 && col == 6)) EXPECT_TRUE(std::isnan(x)) << row << " " << col;
      else if (col == 6) EXPECT_EQ(x, INFINITY);
      else EXPECT_EQ(x, static_cast<float>(row == 9 ? k() : k() + 1)) << row << " " << col;
    }
}
INSTANTIATE_TEST_SUITE_P(Words, CudaProduct, ::testing::Values("mma_bf16", "mma_f16", "mma_tf32"),
                         [](const auto& info) { return std::string(info.param); });

TEST(CudaTf32, LowBitsOfAnOperandAreNotLookedAt) {
  const SimKernels kernels(kInclude + product_kernel("mma_tf32"), {"mma_tf32"});
  Matrices m(8), cut(8);
  std::mt19937 random(9);
  for (size_t i = 0; i < m.a.size(); ++i) {
    m.a[i] = std::uniform_real_distribution<float>(1, 2)(random);
    cut.a[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(m.a[i]) & ~0x1fffu);
  }
  for (size_t i = 0; i < m.b.size(); ++i) m.b[i] = cut.b[i] = static_cast<float>(i % 3);
  const auto bits = [](float x) { return std::bit_cast<uint32_t>(x); };
  EXPECT_EQ(run_product(kernels, "mma_tf32", m, bits), run_product(kernels, "mma_tf32", cut, bits));
}

TEST(CudaTf32, RoundsToTenBitsHalvesAwayFromZero) {
  const SimKernels kernels(
      kInclude + cuda_kernel("f", 1, 2, 1,
                             "for (kn::i64 i = 0; i < d[0]; ++i)\nkn::store<1>((kn::i32*)b[1] + i, "
                             "kn::i32(kn::tf32(kn::load<1>((const kn::f32*)b[0] + i))));"),
      {"f"});
  const auto f = [](uint32_t u) { return std::bit_cast<float>(u); };
  const std::vector<float> x = {1.0f,          f(0x3f801000), f(0x3f800fff), f(0xbf801000),
                                f(0x3fffffff), f(0x7f7fffff), INFINITY,      -INFINITY,
                                NAN,           f(0x00001000), -0.0f};
  const std::vector<uint32_t> want = {0x3f800000, 0x3f802000, 0x3f800000, 0xbf802000, 0x40000000, 0x7f800000,
                                      0x7f800000, 0xff800000, 0x7fffffff, 0x00002000, 0x80000000};
  std::vector<uint32_t> y(x.size());
  kernels.run("f", 1, 1, 0, {const_cast<float*>(x.data()), y.data()}, {static_cast<int64_t>(x.size())});
  EXPECT_EQ(y, want);
}

TEST(CudaPack, TheFirstIsTheLowHalf) {
  const SimKernels kernels(
      kInclude + cuda_kernel("f", 1, 1, 0,
                             "kn::store<1>((kn::i32*)b[0], kn::i32(kn::pack_bf16(1.0f, -2.0f)));\n"
                             "kn::store<1>((kn::i32*)b[0] + 1, kn::i32(kn::pack_f16(1.0f, -2.0f)));"),
      {"f"});
  uint32_t y[2];
  kernels.run("f", 1, 1, 0, {y}, {});
  EXPECT_EQ(y[0], 0xc0003f80u);
  EXPECT_EQ(y[1], 0xc0003c00u);
}

// Lane l names row l % 8 of matrix l / 8. Lane l gets elements 2 (l % 4), 2 (l % 4) + 1 of row l / 4 of each;
// transposed, those of column l / 4.
TEST(CudaLdmatrix, LanesGetTheirPairsOfEachMatrix) {
  const std::string fill =
      "for (int i = 0; i < 8; ++i) kn::store<1>(kn::shared<kn::bf16>(64) + kn::lane() * 24 + i, "
      "kn::f32(kn::lane() * 8 + i));\n"  // rows are 48 bytes apart
      "kn::barrier();\nkn::u32 r[4];\n";
  const std::string out =
      "for (int i = 0; i < 4; ++i) kn::store<1>((kn::i32*)b[0] + kn::lane() * 4 + i, kn::i32(r[i]));";
  const std::string row = "kn::shared<kn::bf16>(64) + kn::lane() * 24";
  const SimKernels kernels(
      kInclude + cuda_kernel("plain", 32, 1, 0, fill + "kn::ldmatrix4(r, " + row + ");\n" + out) +
          cuda_kernel("turned", 32, 1, 0, fill + "kn::ldmatrix4_transposed(r, " + row + ");\n" + out),
      {"plain", "turned"});
  const auto pair = [](int low, int high) {
    return static_cast<uint32_t>(BFloat16(static_cast<float>(low)).bits) |
           static_cast<uint32_t>(BFloat16(static_cast<float>(high)).bits) << 16;
  };
  const auto element = [](int matrix, int r, int c) { return (matrix * 8 + r) * 8 + c; };
  std::vector<uint32_t> y(128);
  for (const bool turned : {false, true}) {
    kernels.run(turned ? "turned" : "plain", 32, 1, 64 + 32 * 48, {y.data()}, {});
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        const int line = lane / 4, at = lane % 4 * 2;
        const uint32_t want = turned ? pair(element(i, at, line), element(i, at + 1, line))
                                     : pair(element(i, line, at), element(i, line, at + 1));
        EXPECT_EQ(y[static_cast<size_t>(lane * 4 + i)], want)
            << turned << " lane " << lane << " matrix " << i;
      }
  }
}

TEST(CudaLdmatrix, ARowWantsItsAlignment) {
  const SimKernels kernels(
      kInclude + cuda_kernel("f", 32, 0, 0,
                             "kn::u32 r[4];\nkn::ldmatrix4(r, kn::shared<kn::f16>(8) + kn::lane() * 8);"),
      {"f"});
  EXPECT_THROW(kernels.run("f", 32, 1, 1024, {}, {}), std::runtime_error);
}

}  // namespace KILN_FILE
}  // namespace kiln
