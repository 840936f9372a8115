// SPDX-License-Identifier: Apache-2.0
#include "ir/base/intrinsics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ir/base/error.h"

namespace kiln {
namespace KILN_FILE {

TEST(Intrinsics, RowsAreSortedAndComplete) {
  const auto rows = intrinsics();
  EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end(), [](auto& a, auto& b) { return a.name < b.name; }));
  for (const Intrinsic& f : rows) {
    EXPECT_TRUE(f.args >= 1 && f.args <= 3) << f.name;
    EXPECT_TRUE(f.f32 && f.f64 && !f.doc.empty()) << f.name;
    EXPECT_FALSE(f.cpu.empty() || f.cuda_f32.empty() || f.cuda_f64.empty()) << f.name;
    EXPECT_LE(f.ulp_f32, 2) << f.name;
  }
}

TEST(Intrinsics, ReferencesAgreeWithTheLibrary) {
  const float x[] = {0.75f, -2.0f, 3.0f};
  EXPECT_EQ(intrinsic("exp").f32(x), static_cast<float>(std::exp(0.75)));
  EXPECT_EQ(intrinsic("max").f32(x), 0.75f);
  EXPECT_EQ(intrinsic("fma").f32(x), 1.5f);
  const double y[] = {-0.5};
  EXPECT_EQ(intrinsic("tanh").f64(y), std::tanh(-0.5));
  EXPECT_EQ(intrinsic("sign").f64(y), -1.0);
}

TEST(Intrinsics, NanOnEitherSideIsTheMaximum) {
  const float nan = std::nanf("");
  const float left[] = {nan, 1.0f}, right[] = {1.0f, nan};
  for (const char* name : {"max", "min"}) {
    EXPECT_TRUE(std::isnan(intrinsic(name).f32(left))) << name;
    EXPECT_TRUE(std::isnan(intrinsic(name).f32(right))) << name;
  }
}

TEST(Intrinsics, UnknownNameIsAnError) {
  try {
    intrinsic("expo");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::internal);
    EXPECT_STREQ(e.what(), "intrinsic: no function named 'expo'");
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
