// SPDX-License-Identifier: Apache-2.0
#include "ir/base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/base/error.h"

namespace kiln {
namespace KILN_FILE {

TEST(DType, NamesRoundTrip) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto t = static_cast<DType>(i);
    EXPECT_EQ(parse_dtype(dtype_name(t)), t);
  }
  EXPECT_THROW(parse_dtype("float"), Error);
}

TEST(DType, PromotesLikePyTorch) {
  EXPECT_EQ(promote_types(DType::boolean, DType::u8), DType::u8);
  EXPECT_EQ(promote_types(DType::i64, DType::f16), DType::f16);
  EXPECT_EQ(promote_types(DType::f16, DType::bf16), DType::f32);
  EXPECT_EQ(promote_types(DType::f64, DType::bf16), DType::f64);
}

TEST(DType, EveryHalfRoundTrips) {
  for (uint32_t b = 0; b < 0x10000; ++b) {
    Half h;
    h.bits = static_cast<uint16_t>(b);
    const float f = static_cast<float>(h);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(Half(f))));
    } else {
      EXPECT_EQ(Half(f).bits, b);
    }
  }
}

TEST(DType, HalfRoundsToNearestEven) {
  EXPECT_EQ(Half(65519.996f).bits, 0x7bff);
  EXPECT_EQ(Half(65520.0f).bits, 0x7c00);
  EXPECT_EQ(Half(1.0f + 0.00048828125f).bits, 0x3c00);  // halfway, even below
  EXPECT_EQ(Half(-2.98023223876953125e-8f).bits, 0x8000);
}

TEST(DType, BFloat16RoundsToNearestEven) {
  EXPECT_EQ(BFloat16(1.00390625f).bits, 0x3f80);  // halfway, even below
  EXPECT_EQ(BFloat16(1.01171875f).bits, 0x3f82);  // halfway, even above
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace KILN_FILE
}  // namespace kiln
