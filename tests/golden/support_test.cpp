// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "ir/base/error.h"
#include "ir/base/options.h"

namespace kiln::golden {
namespace KILN_FILE {

using ::testing::HasSubstr;
const double kNan = std::numeric_limits<double>::quiet_NaN();
const double kInf = std::numeric_limits<double>::infinity();

Values floats(std::vector<int64_t> shape, std::vector<double> data) {
  return {DType::f32, std::move(shape), std::move(data)};
}

TEST(GoldenSupport, Tensors) {
  const Json real =
      Json::parse(R"({"name":"mlp/fc1.weight","shape":[2],"dtype":"float32","lo":-1.0,"hi":1.0})");
  const HostTensor t = make_tensor(real);
  EXPECT_EQ(t.bytes.size(), 8u);
  EXPECT_EQ(std::bit_cast<uint32_t>(static_cast<float>(to_values(t).data[1])), 0x3f49ff6au);
  const Json whole = Json::parse(R"({"name":"mlp/fc1.weight","shape":[2,1],"dtype":"int64","n":1000})");
  EXPECT_EQ(to_values(make_tensor(whole)).data, (std::vector<double>{844, 216}));
  const Json empty = Json::parse(R"({"name":"a","shape":[0,3],"dtype":"bool","n":2})");
  EXPECT_EQ(make_tensor(empty).numel(), 0);
  const Json half = Json::parse(R"({"name":"a","shape":[1],"dtype":"float16","lo":0,"hi":1})");
  EXPECT_THROW(make_tensor(half), Error);
}

TEST(GoldenSupport, ElementsWithinTheTolerance) {
  const Json e =
      Json::parse(R"({"shape":[3],"dtype":"float32","dev":[0,0,1e-6],"values":[1.0,"nan","-inf"]})");
  EXPECT_EQ(compare(e, floats({3}, {1.000007, kNan, -kInf})), "");
  EXPECT_THAT(compare(e, floats({3}, {1.000009, kNan, -kInf})), HasSubstr("element 0: got"));
  EXPECT_EQ(compare(e, floats({3}, {1.000009, kNan, -kInf}), 1e-5), "");
  EXPECT_THAT(compare(e, floats({3}, {kNan, kNan, -kInf})), HasSubstr("element 0: got nan"));
  EXPECT_THAT(compare(e, floats({3}, {1, 0, -kInf})), HasSubstr("element 1: got 0, expected nan"));
  EXPECT_THAT(compare(e, floats({3}, {1, kNan, kInf})), HasSubstr("element 2: got inf, expected -inf"));
  EXPECT_EQ(compare(e, floats({1, 3}, {1, kNan, -kInf})), "shape: got [1,3], expected [3]");
  Values other = floats({3}, {1, kNan, -kInf});
  other.dtype = DType::f64;
  EXPECT_EQ(compare(e, other), "dtype: got f64, expected f32");
}

TEST(GoldenSupport, IntegersAreExact) {
  const Json e = Json::parse(R"({"shape":[2],"dtype":"bool","f32_equal":true,"values":[true,false]})");
  EXPECT_EQ(compare(e, {DType::boolean, {2}, {1, 0}}), "");
  EXPECT_THAT(compare(e, {DType::boolean, {2}, {1, 1}}), HasSubstr("element 1: got 1, expected 0"));
}

TEST(GoldenSupport, SumsAndSamples) {
  const Json e = Json::parse(R"({"shape":[4],"dtype":"float32","dev":[0,0,1e-7],"sum":10,"sumsq":30,
                                 "sum_dev":[1e-6,1e-6],"index":[0,3],"at":[1,4]})");
  EXPECT_EQ(compare(e, floats({4}, {1, 2, 3, 4})), "");
  EXPECT_EQ(compare(e, floats({4}, {1, 3, 2, 4})), "");
  EXPECT_THAT(compare(e, floats({4}, {1, 2, 4, 4})), HasSubstr("sum over 4: got 11"));
  EXPECT_THAT(compare(e, floats({4}, {1, 1, 4, 4})), HasSubstr("sum of squares over 4: got 34"));
  EXPECT_THAT(compare(e, floats({4}, {4, 2, 3, 1})), HasSubstr("element 0: got 4"));
}

TEST(GoldenSupport, Scalars) {
  const Json pair = Json::parse("[2.0, 1e-6]");
  EXPECT_EQ(compare_scalar(pair, 2.000015), "");
  EXPECT_NE(compare_scalar(pair, 2.00002), "");
  EXPECT_NE(compare_scalar(pair, kNan), "");
  EXPECT_EQ(compare_late_loss(pair, 2.00003), "");
}

TEST(GoldenSupport, AReportPassesIfSomethingDidAndTheRestIsExempt) {
  const auto status = [](std::initializer_list<Outcome> outcomes) {
    Report report("report");
    for (const Outcome o : outcomes) report.line("case", true, o, "why\nso");
    return report.finish();
  };
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(status({Outcome::pass, Outcome::exempt}), 0);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("GOLDEN report case compiled exempt why so\n"
                        "report: 1 pass, 0 fail, 0 unsupported, 1 exempt\n"));
  EXPECT_EQ(status({Outcome::pass, Outcome::fail}), 1);
  EXPECT_EQ(status({Outcome::pass, Outcome::unsupported}), 1);
  EXPECT_EQ(status({Outcome::exempt}), 1);
  EXPECT_EQ(status({}), 1);
}

TEST(GoldenSupport, FolderFollowsTheSwitch) {
  EXPECT_EQ(folder(), std::string("tests/goldens"));
  set_option("KILN_GOLDENS", "/nowhere");
  EXPECT_EQ(folder(), "/nowhere");
  EXPECT_THROW(load("ops"), Error);
  set_option("KILN_GOLDENS", "");
  EXPECT_EQ(load("ops")["family"], "ops");
}

}  // namespace KILN_FILE
}  // namespace kiln::golden
