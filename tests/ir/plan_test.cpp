// SPDX-License-Identifier: Apache-2.0
#include "ir/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "ir/base/error.h"
#include "ir/base/hash.h"

namespace kiln {
namespace KILN_FILE {

constexpr size_t kHeader = 21;  // magic, version, checksum

Plan sample() {
  Plan p;
  const Dim b = Dim::symbol("B"), t = Dim::symbol("T");
  p.symbols = {"B", "T"};
  p.dims = {Dim(0),  Dim(64),       b * 4, floordiv(b * t, Dim(7)) + Dim(1), min(b, t * Dim(3)),
            Dim(-5), Dim(INT64_MAX)};
  p.buffers = {{BufferKind::external, DType::f32, 1, 2, -1, "fc1.weight"},
               {BufferKind::scalar, DType::f64, 0, -1, -1, "lr"},
               {BufferKind::arena, DType::bf16, -1, 2, 0, "%12"},
               {BufferKind::output, DType::i64, 0, 3, -1, ""},
               {BufferKind::constant, DType::u8, -1, 1, 0, "table"}};
  p.kernels = {{false, "k_0123"}, {true, "blis_sgemm"}};
  p.launches = {{0, {0, 1, 2}, {2, 3}, 4, 1, true, 0, LaunchKind::kernel, {2}},
                {1, {2, 4, 3}, {}, -1, -1, false, -1}};
  p.launches[0].starts = {0, 16, int64_t{1} << 40};
  p.profile = {{"layer_norm+linear", "mul add", 2, 3, {1, 5, 300}}};
  p.constants = std::string(64, '\x7f');
  p.arena_bytes = 2;
  p.guards = {3};
  p.guarded_from = 1;
  p.external_count = 2;
  p.scalar_count = p.output_count = 1;
  return p;
}

std::string with_checksum(std::string bytes) {
  const Hash128 h = hash128(std::string_view(bytes).substr(kHeader));
  for (int i = 0; i < 16; ++i) bytes[5 + i] = static_cast<char>((i < 8 ? h.hi : h.lo) >> (8 * (i % 8)));
  return bytes;
}

/// True if the bytes were refused; anything but Error(io) fails the test.
bool refused(const std::string& bytes) {
  try {
    print(deserialize_plan(bytes));
    return false;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::io) << e.what();
    return true;
  }
}

TEST(Plan, RoundTripsExactly) {
  const Plan p = sample();
  const std::string bytes = serialize(p);
  const Plan q = deserialize_plan(bytes);
  EXPECT_EQ(serialize(q), bytes);
  EXPECT_EQ(print(q), print(p));
  EXPECT_EQ(q.dims[3], p.dims[3]);
  EXPECT_EQ(q.dims[6], Dim(INT64_MAX));
  EXPECT_EQ(q.constants, p.constants);
  EXPECT_EQ(q.launches[0].buffers, p.launches[0].buffers);
  EXPECT_EQ(q.launches[0].writes, p.launches[0].writes);
  EXPECT_EQ(q.launches[0].starts, p.launches[0].starts);
  EXPECT_EQ(q.guards, p.guards);
  EXPECT_EQ(q.guarded_from, 1);
  EXPECT_EQ(q.profile[0].sources, p.profile[0].sources);
  EXPECT_EQ(q.buffers[2].dtype, DType::bf16);
}

TEST(Plan, EmptyPlanRoundTrips) {
  const std::string bytes = serialize(Plan());
  EXPECT_EQ(serialize(deserialize_plan(bytes)), bytes);
}

TEST(Plan, Prints) {
  EXPECT_EQ(
      print(sample()),
      "plan(B, T) externals=2 scalars=1 outputs=1 arena=4*B constants=64 {\n"
      "  b0: external #1 f32 bytes=4*B \"fc1.weight\"\n"
      "  b1: scalar #0 f64 \"lr\"\n"
      "  b2: arena @0 bf16 bytes=4*B \"%12\"\n"
      "  b3: output #0 i64 bytes=div(B*T,7)+1\n"
      "  b4: constant @0 u8 bytes=64 \"table\"\n"
      "  launch k_0123(b0, b1+16, b2+1099511627776) dims=[4*B, div(B*T,7)+1] tasks=min(3*T,B) scratch=64"
      "  // layer_norm+linear [mul add] bytes=4*B flops=div(B*T,7)+1\n"
      "  guard b3\n"
      "         builtin:blis_sgemm(b2, b4, b3) dims=[] tasks=-\n"
      "}\n");
}

TEST(Plan, RefusesEveryTruncation) {
  const std::string bytes = serialize(sample());
  for (size_t n = 0; n < bytes.size(); ++n) EXPECT_TRUE(refused(bytes.substr(0, n))) << n;
  for (size_t n = kHeader; n < bytes.size(); ++n)
    EXPECT_TRUE(refused(with_checksum(bytes.substr(0, n)))) << n;
  EXPECT_TRUE(refused(bytes + "x"));
  EXPECT_TRUE(refused(with_checksum(bytes + "x")));
}

TEST(Plan, RefusesEveryFlippedByte) {
  const std::string bytes = serialize(sample());
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string bad = bytes;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      EXPECT_TRUE(refused(bad)) << i;
    }
  }
}

TEST(Plan, NeverCrashesOnWellSummedGarbage) {
  const std::string bytes = serialize(sample());
  std::mt19937 rng(7);
  int refusals = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string bad = bytes;
    for (int k = 0; k <= round % 4; ++k)
      bad[kHeader + rng() % (bad.size() - kHeader)] = static_cast<char>(rng());
    refusals += refused(with_checksum(bad));
  }
  EXPECT_GT(refusals, 1000);
  std::string deep = "min(";
  for (int i = 0; i < 14; ++i) deep += deep;
  Plan p;
  p.symbols = {deep};
  p.dims = {Dim::symbol(deep)};
  EXPECT_TRUE(refused(serialize(p)));
}

TEST(Plan, NamesOtherVersionsAndFaults) {
  std::string bytes = serialize(sample());
  bytes[4] = 9;
  try {
    deserialize_plan(bytes);
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "plan: another version; got 9, expected 7");
  }
  Plan p = sample();
  EXPECT_EQ(plan_fault(p), "");
  p.launches[1].kernel = 2;
  EXPECT_EQ(plan_fault(p), "kernel of launch 1 is out of range; got 2, expected below 2");
  EXPECT_TRUE(refused(serialize(p)));
  p = sample();
  p.launches[0].writes = {0, 3};
  EXPECT_EQ(plan_fault(p), "a written buffer of launch 0 is out of range; got 3, expected below 3");
  p = sample();
  p.launches[1].parts = {{3, 3}, {3, 7}};
  EXPECT_EQ(plan_fault(p), "elements of a part of launch 1 is out of range; got 7, expected below 7");
  p.launches[1].parts = {{3, 3}, {3, 3}};
  EXPECT_EQ(plan_fault(p), "launch 1 has 3 buffers and 0 dims for 2 parts");
  p = sample();
  p.launches[0].starts = {0, 16};
  EXPECT_EQ(plan_fault(p), "launch 0 has 2 starts for 3 buffers");
  p.launches[0].starts = {0, -16, 0};
  EXPECT_EQ(plan_fault(p), "a start of launch 0 is negative; got -16");
  p = sample();
  p.symbols.pop_back();
  EXPECT_EQ(plan_fault(p), "a dim uses the symbol T, which the plan does not list");
  p = sample();
  p.buffers[2].offset = -1;
  EXPECT_EQ(plan_fault(p), "offset of buffer 2 is out of range; got -1, expected below 7");
  p = sample();
  p.guards.push_back(5);
  EXPECT_EQ(plan_fault(p), "buffer of guard 1 is out of range; got 5, expected below 5");
  p = sample();
  p.guarded_from = 2;
  EXPECT_EQ(plan_fault(p), "first guarded launch of plan 0 is out of range; got 2, expected below 2");
}

}  // namespace KILN_FILE
}  // namespace kiln
