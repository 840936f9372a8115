// SPDX-License-Identifier: Apache-2.0
// Means in half formats: to the bit what PyTorch's compress hooks give, for vectors of any length.
#include "runtime/wire.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "runtime/reduce.h"

namespace kiln {
namespace KILN_FILE {

// Gradients of two ranks: usual ones, what f16 cannot hold or only coarsely, ties, infinities and NaN.
constexpr uint32_t kFirst[] = {0x3dcccccd, 0xbe4ccccd, 0x3f800000, 0x40400000, 0x477fe000, 0x477fef00,
                               0x477ff000, 0x47ffe000, 0x3727c5ac, 0x3300d959, 0x33800000, 0x33bf2044,
                               0x387fda40, 0x3eaaaaab, 0xc02df854, 0x7149f2ca, 0x7f7843b0, 0x000ae398,
                               0x7f800000, 0x7fc00000, 0xff800000, 0x80000000, 0x43808000, 0x3f808000};
constexpr uint32_t kSecond[] = {0x3e99999a, 0x3f333333, 0x3a83126f, 0xbfc00000, 0x477fe000, 0xc77fef00,
                                0x3f800000, 0x3f800000, 0x37a7c5ac, 0x3300d959, 0x3400d959, 0xb22bcc77,
                                0x387776c5, 0x3f2aaaab, 0x40490fdb, 0x7149f2ca, 0x7f7843b0, 0x0015c730,
                                0x3f800000, 0x3f800000, 0x7f800000, 0x80000000, 0x3f800000, 0x3f818000};

// What fp16_compress_hook and bf16_compress_hook of torch 2.15 leave of them, among processes that talk by
// Gloo.
constexpr uint32_t kFp16Alone[] = {0x3dccc000, 0xbe4cc000, 0x3f800000, 0x40400000, 0x477fe000, 0x477fe000,
                                   0x7f800000, 0x7f800000, 0x37280000, 0x33800000, 0x33800000, 0x33800000,
                                   0x387fc000, 0x3eaaa000, 0xc02e0000, 0x7f800000, 0x7f800000, 0x00000000,
                                   0x7f800000, 0x7fc00000, 0xff800000, 0x80000000, 0x43808000, 0x3f808000};
constexpr uint32_t kBf16Alone[] = {0x3dcd0000, 0xbe4d0000, 0x3f800000, 0x40400000, 0x47800000, 0x47800000,
                                   0x47800000, 0x48000000, 0x37280000, 0x33010000, 0x33800000, 0x33bf0000,
                                   0x38800000, 0x3eab0000, 0xc02e0000, 0x714a0000, 0x7f780000, 0x000b0000,
                                   0x7f800000, 0x7fc00000, 0xff800000, 0x80000000, 0x43800000, 0x3f800000};
constexpr uint32_t kFp16Both[] = {0x3e4cc000, 0x3e800000, 0x3f002000, 0x3f400000, 0x477fe000, 0x00000000,
                                  0x7f800000, 0x7f800000, 0x377c0000, 0x00000000, 0x33800000, 0x00000000,
                                  0x387bc000, 0x3f000000, 0x3e580000, 0x7f800000, 0x7f800000, 0x00000000,
                                  0x7f800000, 0x7fc00000, 0xffc00000, 0x80000000, 0x43010000, 0x3f810000};
constexpr uint32_t kBf16Both[] = {0x3e4d0000, 0x3e800000, 0x3f000000, 0x3f400000, 0x47800000, 0x00000000,
                                  0x47000000, 0x47800000, 0x377c0000, 0x33010000, 0x33c10000, 0x332a0000,
                                  0x387c0000, 0x3f000000, 0x3e580000, 0x714a0000, 0x7f780000, 0x00110000,
                                  0x7f800000, 0x7fc00000, 0x7fc00000, 0x80000000, 0x43000000, 0x3f810000};
constexpr size_t kSize = std::size(kFirst);

/// `count` numbers, the list again and again.
template <typename T>
std::vector<T> repeated(const uint32_t (&bits)[kSize], size_t count) {
  std::vector<T> out;
  for (size_t i = 0; i < count; ++i) out.push_back(static_cast<T>(std::bit_cast<float>(bits[i % kSize])));
  return out;
}

/// The mean of what ranks hold.
template <typename T>
std::vector<T> mean(const std::vector<std::vector<T>>& ranks, DType wire) {
  const auto count = static_cast<int64_t>(ranks[0].size());
  std::vector<std::vector<uint16_t>> sent;
  std::vector<const void*> parts;
  for (const std::vector<T>& r : ranks) {
    sent.emplace_back(r.size());
    encode_mean(r.data(), dtype_of<T>(), sent.back().data(), wire, count, static_cast<int>(ranks.size()));
  }
  for (const auto& s : sent) parts.push_back(s.data());
  std::vector<uint16_t> sum(ranks[0].size());
  reduce_parts(parts, sum.data(), count, wire, ReduceOp::sum);
  std::vector<T> out(ranks[0].size());
  decode(sum.data(), wire, out.data(), dtype_of<T>(), count);
  return out;
}

/// NaN is NaN; all else is the same bits.
template <typename T>
void expect_same(const std::vector<T>& got, const uint32_t (&want)[kSize]) {
  for (size_t i = 0; i < got.size(); ++i) {
    const float g = static_cast<float>(got[i]), w = std::bit_cast<float>(want[i % kSize]);
    ASSERT_TRUE(std::isnan(w) ? std::isnan(g) : std::bit_cast<uint32_t>(g) == std::bit_cast<uint32_t>(w))
        << "element " << i << " of " << got.size() << ": " << g << " is not " << w;
  }
}

template <typename T>
void check(size_t count) {
  const std::vector<T> a = repeated<T>(kFirst, count), b = repeated<T>(kSecond, count);
  expect_same(mean<T>({a}, DType::f16), kFp16Alone);
  expect_same(mean<T>({a}, DType::bf16), kBf16Alone);
  expect_same(mean<T>({a, b}, DType::f16), kFp16Both);
  expect_same(mean<T>({a, b}, DType::bf16), kBf16Both);
}

TEST(Wire, MeansArePyTorchsForAnyLength) {
  for (const size_t count : {0, 1, 7, 8, 23, 64, 1023, 1024, 1025, 5000}) {
    check<float>(count);
    check<double>(count);
  }
}

// The division comes after the cast: 65520 is infinite in f16, though its half would not be.
TEST(Wire, DividesWhatHasBeenRounded) {
  const float x[] = {65520, 1.0009765625f + 0.00048828125f};
  uint16_t out[2];
  encode_mean(x, DType::f32, out, DType::f16, 2, 3);
  EXPECT_EQ(out[0], 0x7c00);
  EXPECT_EQ(out[1], Half(1.001953125f / 3).bits);
}

TEST(Wire, EveryHalfIsReadExactly) {
  for (const DType wire : {DType::f16, DType::bf16}) {
    std::vector<uint16_t> all(0x10000), back(all.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
    std::vector<float> values(all.size());
    decode(all.data(), wire, values.data(), DType::f32, static_cast<int64_t>(all.size()));
    encode_mean(values.data(), DType::f32, back.data(), wire, static_cast<int64_t>(all.size()), 1);
    for (size_t i = 0; i < all.size(); ++i)
      ASSERT_TRUE(back[i] == all[i] || std::isnan(values[i])) << dtype_name(wire) << " " << i;
  }
}

TEST(Wire, HalvesAreSentAsOthersAre) {
  const std::vector<BFloat16> a = {BFloat16(3), BFloat16(1e10f)};
  const std::vector<BFloat16> m = mean<BFloat16>({a, a}, DType::f16);
  EXPECT_EQ(static_cast<float>(m[0]), 3);
  EXPECT_EQ(static_cast<float>(m[1]), std::numeric_limits<float>::infinity());
}

}  // namespace KILN_FILE
}  // namespace kiln
