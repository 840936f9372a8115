// SPDX-License-Identifier: Apache-2.0
#include "ir/buckets.h"

#include <gtest/gtest.h>

#include "ir/base/error.h"

namespace kiln {
namespace KILN_FILE {

using Lists = std::vector<std::vector<size_t>>;

std::vector<BucketParam> of_bytes(std::initializer_list<int64_t> bytes) {
  std::vector<BucketParam> out;
  for (int64_t n : bytes) out.push_back({n, DType::f32, 0, false});
  return out;
}

template <typename F>
std::string fault(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::invalid);
    return e.what();
  }
  return "";
}

TEST(Buckets, R41_ClosesAtTheLimitAndTheLastLimitRepeats) {
  const Buckets b = assign_buckets(of_bytes({4, 4, 8, 7, 1, 3}), std::vector<int64_t>{8, 8});
  EXPECT_EQ(b.params, (Lists{{0, 1}, {2}, {3, 4}, {5}}));
  EXPECT_EQ(b.limits, (std::vector<int64_t>{8, 8, 8, 8}));
}

TEST(Buckets, R40_DevicesAndDtypesHaveTheirOwnLimits) {
  auto p = of_bytes({4, 4, 4, 4});
  p[1].device = p[3].device = 1;
  const Buckets b = assign_buckets(p, std::vector<int64_t>{4, 100});
  EXPECT_EQ(b.params, (Lists{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(b.limits, (std::vector<int64_t>{4, 4, 100, 100}));
}

TEST(Buckets, R44_OpenBucketsStandInTheOrderOfTheirLastParameters) {
  auto p = of_bytes({1, 1, 1, 9});
  p[1].dtype = DType::f64;
  p[3].dtype = DType::f16;
  const std::vector<size_t> order = {3, 2, 1, 0};
  const Buckets b = assign_buckets(p, std::vector<int64_t>{8}, order);
  EXPECT_EQ(b.params, (Lists{{2}, {3, 1}, {0}})) << "f64 ends at place 1, f32 at 2, f16 at 3";
}

TEST(Buckets, R34_UntilTheOrderIsKnownThereIsOneBucketOfEachDtype) {
  auto p = of_bytes({8, 8, 8, 8});
  p[1].dtype = DType::f16;
  const Buckets b = initial_buckets(p, {.first = 4, .others = 8, .list = {}}, true);
  EXPECT_EQ(b.params, (Lists{{1}, {0, 2, 3}}));
  EXPECT_EQ(b.limits, (std::vector<int64_t>{kNoBucketLimit, kNoBucketLimit}));
}

TEST(Buckets, R34_OtherwiseTheyAreReversedAndTheFirstCapFallsOnTheFirstParameters) {
  const auto p = of_bytes({4, 8, 8, 8});
  EXPECT_EQ(initial_buckets(p, {.first = 4, .others = 16, .list = {}}, false).params,
            (Lists{{3}, {1, 2}, {0}}));
  EXPECT_EQ(initial_buckets(p, {.first = 16, .others = 8, .list = {}}, false).params,
            (Lists{{3}, {2}, {0, 1}}))
      << "a first cap that is not smaller does not count";
  EXPECT_EQ(initial_buckets(p, {.first = 1, .others = 1, .list = {12, 8}}, false).params,
            (Lists{{3}, {2}, {0, 1}}));
}

TEST(Buckets, R66_RebuiltInTheOrderInWhichGradientsGetReady) {
  const auto p = of_bytes({8, 2, 4, 4});
  const std::vector<size_t> ready = {3, 1, 2, 0};
  const BucketCaps caps{.first = 4, .others = 8, .list = {}};
  EXPECT_EQ(rebuild_buckets(p, caps, ready).params, (Lists{{3}, {1, 2, 0}}));
  EXPECT_EQ(rebuild_buckets(p, caps, ready).limits, (std::vector<int64_t>{4, 8}));
  // the small bucket is the last.
  EXPECT_EQ(rebuild_buckets(p, caps, ready, true).params, (Lists{{2, 1, 3}, {0}}));
}

TEST(Buckets, WrongArgumentsAreRefused) {
  const std::vector<int64_t> limits = {8}, none, negative = {-1};
  const auto p = of_bytes({4, 4});
  const std::vector<size_t> one = {0}, twice = {0, 0}, far = {0, 2};
  EXPECT_EQ(fault([&] { assign_buckets({}, limits); }),
            "assign_buckets: no parameters; expected at least one");
  EXPECT_EQ(fault([&] { assign_buckets(p, none); }), "assign_buckets: no limits; expected at least one");
  EXPECT_EQ(fault([&] { assign_buckets(p, negative); }),
            "assign_buckets: got a limit of -1 bytes, expected 0 or more");
  EXPECT_EQ(fault([&] { assign_buckets(of_bytes({-4}), limits); }),
            "assign_buckets: got a parameter of -4 bytes, expected 0 or more");
  EXPECT_EQ(fault([&] { assign_buckets(p, limits, one); }),
            "assign_buckets: got 1 indices for 2 parameters, expected one each");
  EXPECT_EQ(fault([&] { assign_buckets(p, limits, twice); }),
            "assign_buckets: index 0 is given twice; expected each of 0..1 once");
  EXPECT_EQ(fault([&] { assign_buckets(p, limits, far); }),
            "assign_buckets: index 2 is out of range; expected each of 0..1 once");
  EXPECT_EQ(fault([&] { rebuild_buckets(p, {}, one); }),
            "rebuild_buckets: 1 of 2 gradients got ready, expected all");
  EXPECT_EQ(fault([&] { rebuild_buckets(p, {}, far); }),
            "rebuild_buckets: index 2 is out of range; expected 0..1");
  EXPECT_EQ(fault([&] { bucket_limits({.first = 1, .others = 0, .list = {}}); }),
            "bucket_limits: got a cap of 0 bytes, expected more than 0");
}

TEST(Buckets, R48_BucketsFromElsewhereAreChecked) {
  auto p = of_bytes({4, 4, 4, 4});
  p[1].dtype = DType::f16;
  p[2].device = 1;
  p[3].sparse = true;
  const auto check = [&](const Lists& lists) { return fault([&] { check_buckets(p, lists); }); };
  EXPECT_EQ(check({{0}, {1}, {2}, {3}}), "");
  EXPECT_EQ(check({{0}, {}}), "buckets: bucket 1 is empty; expected a parameter");
  EXPECT_EQ(check({{0, 1}, {2}, {3}}),
            "buckets: bucket 0 mixes dtypes; got f16 of parameter 1, expected f32 as of parameter 0");
  EXPECT_EQ(check({{1}, {0, 2}, {3}}),
            "buckets: bucket 1 mixes devices; got 1 of parameter 2, expected 0 as of parameter 0");
  EXPECT_EQ(
      check({{0, 3}, {1}, {2}}),
      "buckets: bucket 0 holds parameter 3, whose gradient is sparse, with 1 others; expected it alone");
  EXPECT_EQ(check({{0}, {0}}),
            "buckets: bucket 1 holds parameter 0, which is in a bucket already; expected each of 4 "
            "parameters once");
  EXPECT_EQ(check({{4}}),
            "buckets: bucket 0 holds parameter 4, which is out of range; expected each of 4 parameters once");
  EXPECT_EQ(check({{0}, {1}}), "buckets: parameter 2 is in no bucket; expected each in one");
}

}  // namespace KILN_FILE
}  // namespace kiln
