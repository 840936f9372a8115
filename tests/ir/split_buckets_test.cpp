// SPDX-License-Identifier: Apache-2.0
#include "ir/split_buckets.h"

#include <gtest/gtest.h>

namespace kiln {
namespace KILN_FILE {

using Taken = std::vector<std::vector<int>>;

/// Ops in a row, each of which reads the one before and takes parameters "0", "1", ... of 10 bytes each.
struct Chain {
  std::vector<SplitOp> ops;
  std::vector<SplitParam> params;
  std::vector<std::string> ignored = {};
  explicit Chain(const Taken& taken, std::vector<int64_t> bytes = {}) {
    for (size_t i = 0; i < taken.size(); ++i) {
      ops.push_back({taken[i], {}, i + 1 == taken.size(), {}});
      if (i > 0) ops[i - 1].users.push_back(static_cast<int>(i));
      for (int p : taken[i])
        while (static_cast<int>(params.size()) <= p) params.push_back({std::to_string(params.size()), 10});
    }
    for (size_t i = 0; i < bytes.size(); ++i) params[i].bytes = bytes[i];
  }
  BucketTable split(int64_t cap, int64_t first) const {
    return split_at_buckets(ops, params, {cap, first, ignored});
  }
};

/// "[0,2) 20: 1 0 | [2,3) 10: 2".
std::string text(const BucketTable& t) {
  std::string out;
  for (const BucketTable::Bucket& b : t.buckets) {
    out += fmt::format("{}[{},{}) {}:", out.empty() ? "" : " | ", b.begin, b.end, b.bytes);
    for (const std::string& p : b.params) out += " " + p;
    if (b.extra_ops) out += fmt::format(" +{} ops from {}", b.extra_ops, b.full_bytes);
  }
  return out;
}

TEST(SplitBuckets, B11_B12_FromTheLastOpToTheFirst) {
  const Chain c(Taken{{0}, {1}, {2}, {3}, {4}});
  EXPECT_EQ(text(c.split(20, 20)), "[0,1) 10: 0 | [1,3) 20: 2 1 | [3,5) 20: 4 3")
      << "closed at the cap itself";
  EXPECT_EQ(text(c.split(21, 21)), "[0,2) 20: 1 0 | [2,5) 30: 4 3 2");
  EXPECT_EQ(text(c.split(20, 1)), "[0,2) 20: 1 0 | [2,4) 20: 3 2 | [4,5) 10: 4")
      << "first cap: the last op's";
}

TEST(SplitBuckets, B15_B16_ParametersCountOncePerOperand) {
  EXPECT_EQ(text(Chain(Taken{{0, 1}, {0}, {0, 0}}).split(20, 20)), "[0,2) 30: 0 0 1 | [2,3) 20: 0 0");
}

TEST(SplitBuckets, B21_IgnoredParametersDoNotCount) {
  Chain c(Taken{{0}, {1}, {2, 3}});
  c.ignored = {"1", "3"};
  EXPECT_EQ(text(c.split(10, 10)), "[0,2) 10: 0 | [2,3) 10: 2");
}

TEST(SplitBuckets, B22_B23_OpsBeforeTheFirstParameterJoinItsBucket) {
  EXPECT_EQ(text(Chain(Taken{{}, {}, {0}, {1}}).split(10, 10)), "[0,3) 10: 0 | [3,4) 10: 1");
  EXPECT_EQ(text(Chain(Taken{{}, {}, {0}}).split(10, 10)), "[0,3) 10: 0");
}

TEST(SplitBuckets, B25_OneBucket) {
  EXPECT_EQ(text(Chain(Taken{{0}, {1}}).split(1000, 1000)), "[0,2) 20: 1 0");
  EXPECT_EQ(text(Chain(Taken{{}, {}}).split(1, 1)), "[0,2) 0:");
  EXPECT_EQ(text(Chain(Taken{}).split(1, 1)), "[0,0) 0:");
}

TEST(SplitBuckets, B13_B14_ABucketGrowsUntilSomebodyReadsAResult) {
  Chain c(Taken{{0}, {1}, {2}, {3}});
  // Ops 2 and 3 only write in place: nothing reads them, and op 1 is the result.
  c.ops[1] = {{1}, {}, true, {}};
  c.ops[2].users.clear();
  c.ops[3].output = false;
  const BucketTable t = c.split(10, 10);
  EXPECT_EQ(text(t), "[0,1) 10: 0 | [1,4) 30: 3 2 1 +2 ops from 10");
  EXPECT_EQ(t.extensions(),
            "┌─────────┬─────────────┬────────────────────────┐\n"
            "│   Index │   Extra Ops │   Extra Param Size (b) │\n"
            "├─────────┼─────────────┼────────────────────────┤\n"
            "│       0 │           2 │                     20 │\n"
            "└─────────┴─────────────┴────────────────────────┘");
  EXPECT_EQ(Chain(Taken{{0}}).split(1, 1).extensions(), "");
}

TEST(SplitBuckets, B27_TheTableBeginsWithTheGradientsThatAreReadyFirst) {
  Chain c(Taken{{0, 1}, {2}}, {4000000, 8, 16});
  c.params[0].name = "fc1.a_name_that_is_long";
  EXPECT_EQ(c.split(16, 16).to_string(),
            "┌─────────┬────────────┬─────────────────────────┐\n"
            "│   Index │   Size (b) │ Param Names             │\n"
            "├─────────┼────────────┼─────────────────────────┤\n"
            "│       0 │         16 │ 2                       │\n"
            "├─────────┼────────────┼─────────────────────────┤\n"
            "│       1 │    4000008 │ fc1.a_name_that_is_long │\n"
            "├─────────┼────────────┼─────────────────────────┤\n"
            "│         │            │ 1                       │\n"
            "└─────────┴────────────┴─────────────────────────┘");
}

TEST(SplitBuckets, B47_EachPartitionHasAReason) {
  Chain c(Taken{{0}, {1}});
  c.ops[1].loc = {"/src/net.cpp", 42};
  const BucketTable t = c.split(10, 10);
  EXPECT_EQ(
      t.reason(1),
      "net.cpp:42: partition 2 of 2, cut at gradient buckets of 10 bytes (CompileOptions::split; leave it "
      "unset to compile one graph)");
}

TEST(SplitBuckets, B06_TheFirstCapIsNotTheLarger) {
  try {
    Chain(Taken{{0}}).split(10, 11);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::invalid);
    EXPECT_STREQ(
        e.what(),
        "split: the first bucket should not be larger than the others; got a first cap of 11 bytes and "
        "a cap of 10");
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
