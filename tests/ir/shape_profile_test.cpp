// SPDX-License-Identifier: Apache-2.0
#include "ir/shape_profile.h"

#include <gtest/gtest.h>

#include "ir/base/error.h"
#include "tests/ir/testing.h"

namespace kiln {
namespace KILN_FILE {

using Sizes = std::vector<int64_t>;

ShapeProfile tensor(const Sizes& sizes, const Sizes& strides) {
  return ShapeProfile::of_tensor(sizes, strides);
}
ShapeProfile join(ShapeProfile a, const ShapeProfile& b) {
  a.join(b);
  return a;
}
std::string text(const ShapeProfile& p) { return print_profiles({{"x", p}}); }

TEST(ShapeProfile, C07_JoiningSizesKeepsContiguousStrides) {
  const ShapeProfile p = join(tensor({2, 3}, {3, 1}), tensor({2, 4}, {4, 1}));
  EXPECT_EQ(text(p), "\"x\" scalar=* size=[2,*] stride=[@1,1] excluded_sizes=[2,3]\n");
  EXPECT_TRUE(p.is_size_dynamic(1));
  EXPECT_FALSE(p.is_size_dynamic(0));
  EXPECT_FALSE(p.is_stride_dynamic(0));
}

TEST(ShapeProfile, C07_StridesAreDynamicOnlyWhereAllSizesAreStatic) {
  EXPECT_TRUE(join(tensor({2, 3}, {3, 1}), tensor({2, 3}, {9, 1})).is_stride_dynamic(0));
  EXPECT_FALSE(join(tensor({2, 3}, {7, 1}), tensor({2, 4}, {9, 1})).is_stride_dynamic(0));
}

TEST(ShapeProfile, C08_OnlyWhatTheLastJoinTurnedDynamicIsExcluded) {
  ShapeProfile p = ShapeProfile::of_integer(3);
  p.join(ShapeProfile::of_integer(7));
  EXPECT_EQ(text(p), "\"x\" scalar=* size=* stride=* excluded_scalar=3\n");
  p.join(ShapeProfile::of_integer(3));
  EXPECT_EQ(text(p), "\"x\" scalar=* size=* stride=*\n");
}

/// A profile of few values, so that joins meet.
ShapeProfile random_profile(testing::Rng& rng) {
  if (rng.chance(10)) return {};
  if (rng.chance(25)) return ShapeProfile::of_integer(rng.below(2));
  Sizes sizes, strides;
  for (int64_t rank = rng.below(3); rank > 0; --rank) {
    sizes.push_back(rng.below(3));
    strides.push_back(rng.below(3));
  }
  return tensor(sizes, strides);
}

ShapeProfile without_excluded(ShapeProfile p) {
  p.excluded_scalar.reset();
  p.excluded_sizes.reset();
  return p;
}

TEST(ShapeProfile, C07_JoinIsASemilattice) {
  testing::Rng rng{7};
  const auto plain = [](const ShapeProfile& a, const ShapeProfile& b) {
    return without_excluded(join(a, b));
  };
  for (int i = 0; i < 2000; ++i) {
    const ShapeProfile a = random_profile(rng), b = random_profile(rng), c = random_profile(rng);
    EXPECT_EQ(plain(a, a), a);
    EXPECT_EQ(plain(a, ShapeProfile{}), a);
    EXPECT_EQ(plain(a, b), plain(b, a));
    EXPECT_EQ(plain(plain(a, b), c), plain(a, plain(b, c)));
    EXPECT_EQ(plain(plain(a, b), b), plain(a, b));
  }
}

TEST(ShapeProfile, C05_RanksAreMergedInOrderAndNeedNotHaveEveryName) {
  const std::vector<ShapeProfiles> ranks = {
      {{"n", ShapeProfile::of_integer(3)}, {"x", tensor({5, 2}, {2, 1})}},
      {},
      {{"x", tensor({6, 2}, {2, 1})}, {"y", tensor({1}, {1})}}};
  EXPECT_EQ(print_profiles(merge_profiles(ranks)),
            "\"n\" scalar=3 size=* stride=*\n"
            "\"x\" scalar=* size=[*,2] stride=[@1,1] excluded_sizes=[5,2]\n"
            "\"y\" scalar=* size=[1] stride=[1]\n");
}

TEST(ShapeProfile, C09_TextReadsBack) {
  testing::Rng rng{11};
  for (int i = 0; i < 500; ++i) {
    ShapeProfiles all;
    for (const char* name : {"x", "a \"quoted\\\" name", "two\nlines", ""}) {
      ShapeProfile p = random_profile(rng);
      for (int64_t n = rng.below(3); n > 0; --n) p.join(random_profile(rng));
      all[name] = p;
    }
    EXPECT_EQ(parse_profiles(print_profiles(all)), all);
  }
  EXPECT_TRUE(parse_profiles("").empty());
}

std::string fault(std::string_view text) {
  try {
    parse_profiles(text);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::invalid);
    return e.what();
  }
  return "";
}

TEST(ShapeProfile, DamagedTextIsRefused) {
  const std::string good = "\"x\" scalar=* size=[2,*] stride=[@1,1]\n";
  EXPECT_EQ(fault(good), "");
  EXPECT_EQ(fault(good + good),
            "parse_profiles: line 2, column 1: expected a name that was not there before");
  EXPECT_EQ(fault("\"x"), "parse_profiles: line 1, column 3: expected the end of the name");
  EXPECT_EQ(fault("\"x\" scalar=y"), "parse_profiles: line 1, column 12: expected a number of 64 bits");
  EXPECT_EQ(fault("\"x\" scalar=99999999999999999999"),
            "parse_profiles: line 1, column 12: expected a number of 64 bits");
  EXPECT_EQ(fault("\"x\" scalar=* size=[2] stride=[1,1]\n"),
            "parse_profiles: line 1, column 35: expected as many strides as sizes");
  EXPECT_EQ(fault("\"x\" scalar=* size=[2] stride=[@4]\n"),
            "parse_profiles: line 1, column 34: expected strides that are contiguous of a dim");
  for (size_t n = 1; n < good.size(); ++n) EXPECT_NE(fault(good.substr(0, n)), "") << n << " bytes";
}

}  // namespace KILN_FILE
}  // namespace kiln
