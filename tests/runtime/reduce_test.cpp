// SPDX-License-Identifier: Apache-2.0
#include "runtime/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace kiln {
namespace KILN_FILE {

template <typename T>
T reduce(std::vector<T> values, ReduceOp op) {
  std::vector<const void*> parts;
  for (const T& v : values) parts.push_back(&v);
  T out{};
  reduce_parts(parts, &out, 1, dtype_of<T>(), op);
  return out;
}

TEST(Reduce, GoesFromLeftToRight) {
  EXPECT_EQ(reduce<float>({1e8f, 1, -1e8f}, ReduceOp::sum), 0);
  EXPECT_EQ(reduce<float>({1e8f, -1e8f, 1}, ReduceOp::sum), 1);
}

TEST(Reduce, HalvesRoundOnce) {
  // One step of f16 at 2048 is 2: added one by one, the ones would be lost.
  EXPECT_EQ(static_cast<float>(reduce<Half>({Half(2048), Half(1), Half(1)}, ReduceOp::sum)), 2050);
  EXPECT_EQ(static_cast<float>(reduce<BFloat16>({BFloat16(256), BFloat16(1), BFloat16(1)}, ReduceOp::sum)),
            258);
}

TEST(Reduce, IntegersWrap) {
  EXPECT_EQ(reduce<uint8_t>({200, 100}, ReduceOp::sum), 44);
  EXPECT_EQ(reduce<int32_t>({std::numeric_limits<int32_t>::max(), 1}, ReduceOp::sum),
            std::numeric_limits<int32_t>::min());
  EXPECT_EQ(reduce<int64_t>({std::numeric_limits<int64_t>::max(), 2}, ReduceOp::product), -2);
  EXPECT_EQ(reduce<int64_t>({-3, 2}, ReduceOp::min), -3);
}

TEST(Reduce, MinAndMaxKeepNaN) {
  const float nan = std::nanf("");
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
    EXPECT_TRUE(std::isnan(reduce<float>({1, nan, 2}, op)));
    EXPECT_TRUE(std::isnan(reduce<float>({nan, 1, 2}, op)));
    EXPECT_TRUE(std::isnan(reduce<double>({1, 2, nan}, op)));
  }
}

// Over several blocks and a rest, into one of the parts.
TEST(Reduce, InPlace) {
  std::vector<float> a(5000), b(5000), c(5000);
  std::iota(a.begin(), a.end(), 1.0f);
  std::iota(b.begin(), b.end(), 10.0f);
  std::iota(c.begin(), c.end(), 100.0f);
  reduce_parts({a.data(), b.data(), c.data()}, b.data(), 5000, DType::f32, ReduceOp::sum);
  for (size_t i = 0; i < b.size(); ++i) ASSERT_EQ(b[i], 111 + 3 * static_cast<float>(i));
  EXPECT_EQ(a[4999], 5000);
}

}  // namespace KILN_FILE
}  // namespace kiln
