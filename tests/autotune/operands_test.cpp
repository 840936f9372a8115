// SPDX-License-Identifier: Apache-2.0
// Operands of trials: values that every function takes, poison, and what counts as the same result.
#include "autotune/operands.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace kiln {
namespace KILN_FILE {

TunableKernel kernel() {
  TunableKernel k;
  k.buffers = {{DType::f32, 4000, true, false},
               {DType::f32, 400, false, true},
               {DType::i64, 800, true, false},
               {DType::boolean, 100, true, false},
               {DType::f64, 80, true, true}};
  k.args = {0, 1, 2, 3, 4};
  k.flops = 1000;
  return k;
}

float* floats(const Operands& o, size_t i) { return static_cast<float*>(o.pointers()[i]); }

TEST(Operands, ValuesAreDefinedForEveryFunction) {
  const TunableKernel k = kernel();
  const Operands o(k);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_GE(floats(o, 0)[i], 0.5f);
    EXPECT_LT(floats(o, 0)[i], 1.0f);
  }
  for (int i = 0; i < 100; ++i) {
    EXPECT_GE(static_cast<int64_t*>(o.pointers()[2])[i], 0);
    EXPECT_LT(static_cast<int64_t*>(o.pointers()[2])[i], 128);
    EXPECT_LE(static_cast<uint8_t*>(o.pointers()[3])[i], 1);
  }
  EXPECT_NE(floats(o, 0)[0], floats(o, 0)[1]);
  for (void* p : o.pointers()) EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
}

TEST(Operands, PoisonAndRestore) {
  const TunableKernel k = kernel();
  Operands o(k);
  o.poison();
  EXPECT_TRUE(std::isnan(floats(o, 1)[0]) && std::isnan(floats(o, 1)[99]));
  EXPECT_FALSE(std::isnan(floats(o, 0)[0]));
  double* both = static_cast<double*>(o.pointers()[4]);
  const double first = both[3];
  EXPECT_FALSE(std::isnan(first));
  both[3] = 7;
  o.restore();
  EXPECT_EQ(both[3], first);
}

TEST(Operands, ExactMeansTheBit) {
  const TunableKernel k = kernel();
  Operands o(k);
  o.keep_expected();
  EXPECT_EQ(o.difference(true), "");
  floats(o, 1)[5] = std::nextafter(floats(o, 1)[5], 2.0f);
  EXPECT_EQ(o.difference(true), "result 1 differs from the default's");
  EXPECT_EQ(o.difference(false), "");
  floats(o, 1)[5] += 0.01f;
  EXPECT_NE(o.difference(false), "");
}

TEST(Operands, NansAndInfinitiesMustStandInTheSamePlaces) {
  const TunableKernel k = kernel();
  Operands o(k);
  floats(o, 1)[7] = NAN;
  floats(o, 1)[8] = INFINITY;
  o.keep_expected();
  EXPECT_EQ(o.difference(false), "");
  floats(o, 1)[8] = 1;
  EXPECT_NE(o.difference(false), "");
  floats(o, 1)[8] = INFINITY;
  floats(o, 1)[7] = 0;
  EXPECT_NE(o.difference(false), "");
  floats(o, 1)[7] = NAN;
  floats(o, 1)[9] = NAN;
  EXPECT_NE(o.difference(false), "");
}

TEST(Operands, Tolerance) {
  EXPECT_EQ(trial_tolerance(DType::i64, 100), 0);
  EXPECT_DOUBLE_EQ(trial_tolerance(DType::f32, 4), 2 * trial_tolerance(DType::f32, 1));
  EXPECT_LT(trial_tolerance(DType::f64, 1e6), trial_tolerance(DType::f32, 1));
}

}  // namespace KILN_FILE
}  // namespace kiln
