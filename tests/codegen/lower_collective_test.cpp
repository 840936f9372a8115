// SPDX-License-Identifier: Apache-2.0
// Collectives in compiled plans: where operands lie, when they start, when somebody waits, against the
// interpreter with the same group.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/codegen/compiled.h"
#include "tests/ir/random_graph.h"
#include "tests/runtime/doubling_group.h"

namespace kiln {
namespace KILN_FILE {

using testing::DoublingGroup;
using ::testing::ElementsAre;

/// Compiled for 1 and 2 threads, fused and apart, equals interpreted; returns the fused plan.
Plan expect_same(std::string_view text, const std::vector<int64_t>& counts) {
  const Graph g = parse_graph(text);
  verify(g);
  const std::vector<HostTensor> inputs = testing::random_inputs(g, 1);
  host_functions().all_reduce = testing::double_in_place;
  const std::vector<HostTensor> want = interpret(g, inputs);
  Plan plan;
  for (bool fuse : {false, true}) {
    const CompiledProgram p = compile_program(g, {}, host_target(), {.fuse = fuse}, nullptr, 1);
    const auto loaded = testing::load(p);
    for (int threads : {1, 2}) {
      DoublingGroup group;
      group.delay = std::chrono::milliseconds(2);
      ProcessGroup* const groups[] = {&group};
      const std::vector<HostTensor> got = testing::execute(g, *loaded.exe, inputs, threads, {}, groups);
      EXPECT_EQ(group.counts, counts);
      EXPECT_EQ(group.running, 0);
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_EQ(testing::difference(got[i], want[i], 64), "") << "output " << i << "\n" << print(p.plan);
    }
    plan = p.plan;
  }
  return plan;
}

std::vector<std::string> kinds(const Plan& p) {
  std::vector<std::string> out;
  for (const Launch& l : p.launches)
    out.push_back(l.kind == LaunchKind::kernel ? "kernel" : l.kind == LaunchKind::start ? "start" : "wait");
  return out;
}

// Two layers of a backward: each gradient is computed where it is sent from, and everything that needs no sum
// runs before anybody waits for one.
constexpr std::string_view kTwoBuckets = R"(graph g {
  %0 = input f32[64,32] arg
  %1 = input f32[32,16] param
  %2 = input f32[16,8] param
  %3 = f32[64,16] dot_general %0, %1 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(0)}
  %4 = f32[64,8] dot_general %3, %2 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(0)}
  %5 = f32[16,8] dot_general %3, %4 {batch_a=(), batch_b=(), contract_a=(0), contract_b=(0)}
  %6 = f32[128] all_reduce %5 {group=0, wire=f32}
  %7 = f32[64,16] dot_general %4, %2 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(1)}
  %8 = f32[32,16] dot_general %0, %7 {batch_a=(), batch_b=(), contract_a=(0), contract_b=(0)}
  %9 = f32[512] all_reduce %8 {group=0, wire=f32}
  %10 = f32[16,8] reshape %6 {shape=[16,8]}
  %11 = f32[32,16] reshape %9 {shape=[32,16]}
  %12 = f32[16,8] sub %2, %10
  %13 = f32[32,16] sub %1, %11
  output %12 alias=2
  output %13 alias=1
})";

TEST(LowerCollective, StartsEarlyAndWaitsLate) {
  const Plan p = expect_same(kTwoBuckets, {128, 512});
  EXPECT_THAT(kinds(p), ElementsAre("kernel", "kernel", "kernel", "kernel", "start", "kernel", "start",
                                    "wait", "kernel", "wait", "kernel"))
      << print(p);
  EXPECT_EQ(p.collectives.size(), 2u);
}

/// Kernels write the gradients where they are sent from: no copies, and the arena holds each bucket once.
TEST(LowerCollective, OperandsAreComputedInTheBucket) {
  const Plan p = expect_same(kTwoBuckets, {128, 512});
  for (const PlanKernel& k : p.kernels) EXPECT_NE(k.symbol, "copy");
  for (const PlanCollective& c : p.collectives) {
    int inside = 0;
    const int64_t from = p.dims[p.buffers[c.buffer].offset].value();
    for (const PlanBuffer& b : p.buffers)
      inside += b.kind == BufferKind::arena && p.dims[b.offset].value() == from;
    EXPECT_GE(inside, 2) << print(p);
  }
}

TEST(LowerCollective, SeveralPiecesOfOddSizes) {
  const Plan p = expect_same(R"(graph g {
  %0 = input f32[5,7] arg
  %1 = input f32[3] arg
  %2 = input f32[0,4] arg
  %3 = f32[5,7] exp %0
  %4 = f32[3] exp %1
  %5 = f32[0,4] exp %2
  %6 = f32[64] all_reduce %3, %5, %4 {group=0, wire=f32}
  %7 = f32[35] slice %6 {starts=[0], stops=[35], steps=(1)}
  %8 = f32[3] slice %6 {starts=[48], stops=[51], steps=(1)}
  output %7
  output %8
})",
                             {64});
  ASSERT_EQ(p.collectives.size(), 1u);
  std::vector<int64_t> pieces;
  for (DimIndex d : p.collectives[0].pieces) pieces.push_back(p.dims[d].value());
  EXPECT_THAT(pieces, ElementsAre(0, 48, 48));
}

/// What is read before it is reduced, twice, or was not computed here is copied into the bucket.
TEST(LowerCollective, OperandsThatOthersReadAreCopied) {
  const Plan p = expect_same(R"(graph g {
  %0 = input f32[5,7] arg
  %1 = f32[5,7] exp %0
  %2 = f32[144] all_reduce %1, %1, %0 {group=0, wire=f32}
  %3 = f32[35] slice %2 {starts=[0], stops=[35], steps=(1)}
  %4 = f32[35] slice %2 {starts=[48], stops=[83], steps=(1)}
  %5 = f32[35] slice %2 {starts=[96], stops=[131], steps=(1)}
  output %1
  output %3
  output %4
  output %5
})",
                             {144});
  int copies = 0;
  for (const Launch& l : p.launches)
    copies += l.kind == LaunchKind::kernel && p.kernels[l.kernel].symbol == "copy";
  EXPECT_EQ(copies, 3) << print(p);
}

/// A sum of sums: the second starts when the first is done.
TEST(LowerCollective, OneAfterTheOther) {
  const Plan p = expect_same(R"(graph g {
  %0 = input f64[20] arg
  %1 = f64[20] exp %0
  %2 = f64[24] all_reduce %1 {group=0, wire=f64}
  %3 = f64[24] neg %2
  %4 = f64[24] all_reduce %3 {group=0, wire=f64}
  %5 = f64[20] slice %4 {starts=[0], stops=[20], steps=(1)}
  output %5
})",
                             {24, 24});
  EXPECT_THAT(kinds(p), ElementsAre("kernel", "start", "wait", "kernel", "start", "wait", "kernel"));
}

TEST(LowerCollective, ASumAsItIsSummedAgain) {
  expect_same(R"(graph g {
  %0 = input f32[4,8] arg
  %1 = f32[4,8] exp %0
  %2 = f32[32] all_reduce %1 {group=0, wire=f32}
  %3 = f32[32] all_reduce %2 {group=0, wire=f32}
  %4 = f32[32] neg %3
  output %4
})",
              {32, 32});
}

/// Buckets lie in the arena, whatever their sums are put out as: kernels write there before the old value of
/// an input is read for the last time.
TEST(LowerCollective, SumsArePutOutAsTheyAre) {
  expect_same(R"(graph g {
  %0 = input f32[16] arg
  %1 = input f32[16] state
  %2 = f32[16] exp %0
  %3 = f32[16] all_reduce %2 {group=0, wire=f32}
  %4 = f32[16] mul %1, %0
  %5 = f32[16] exp %1
  %6 = f32[16] all_reduce %5 {group=0, wire=f32}
  %7 = f32[16] add %3, %1
  output %3
  output %6 alias=1
  output %4
  output %3
  output %7
})",
              {16, 16});
}

/// Other ranks count on it: whether or not somebody reads the sum, and whether or not there is anything to
/// sum.
TEST(LowerCollective, UnreadAndEmptyOnesAreDone) {
  expect_same(R"(graph g {
  %0 = input f32[4,8] arg
  %1 = input f32[0,3] arg
  %2 = f32[4,8] exp %0
  %3 = f32[32] all_reduce %2 {group=0, wire=f32}
  %4 = f32[0,3] exp %1
  %5 = f32[0] all_reduce %4 {group=0, wire=f32}
  %6 = f32[4,8] mul %0, %0
  %7 = f32[32] all_reduce %6, %4, %4 {group=0, wire=f32}
  %8 = f32[4,8] neg %0
  output %8
})",
              {32, 0, 32});
  expect_same(R"(graph g {
  %0 = input f32[0] arg
  %1 = f32[0] neg %0
  %2 = f32[0] all_reduce %1 {group=0, wire=f32}
  output %2
})",
              {0});
}

TEST(LowerCollective, AFailedOneIsAnErrorAndNothingIsLeftRunning) {
  const Graph g = parse_graph(kTwoBuckets);
  const std::vector<HostTensor> inputs = testing::random_inputs(g, 1);
  const auto loaded = testing::load(compile_program(g, {}, host_target(), {}, nullptr, 1));
  for (int threads : {1, 2})
    for (int at : {0, 1}) {
      DoublingGroup group;
      group.fail_at = at;
      ProcessGroup* const groups[] = {&group};
      try {
        testing::execute(g, *loaded.exe, inputs, threads, {}, groups);
        FAIL() << "no error";
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::comm);
        EXPECT_STREQ(e.what(), "rank 1 is gone");
      }
      EXPECT_EQ(group.running, 0);
      EXPECT_EQ(group.waited, 2);
    }
}

TEST(LowerCollective, WithoutItsGroupNothingRuns) {
  const Graph g = parse_graph(kTwoBuckets);
  const std::vector<HostTensor> inputs = testing::random_inputs(g, 1);
  const auto loaded = testing::load(compile_program(g, {}, host_target(), {}, nullptr, 1));
  try {
    testing::execute(g, *loaded.exe, inputs, 1);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "executor: the all_reduce of the plan is on group 0; got 0 groups");
  }
}

/// The trace of a call: every launch in order, and the collectives behind them.
TEST(LowerCollective, TracesShowWhatIsHiddenAndWhatIsWaitedFor) {
  const std::string prefix =
      (std::filesystem::temp_directory_path() / fmt::format("kiln-collective-{}", getpid())).string();
  const std::string path = fmt::format("{}.{}.json", prefix, getpid());
  const Graph g = parse_graph(kTwoBuckets);
  const auto loaded = testing::load(compile_program(g, {}, host_target(), {}, nullptr, 1));
  DoublingGroup group;
  ProcessGroup* const groups[] = {&group};
  {
    Timeline timeline(prefix);
    testing::execute(g, *loaded.exe, testing::random_inputs(g, 1), 2, {}, groups, &timeline);
  }
  std::ifstream in(path);
  const auto events = nlohmann::json::parse(in);
  std::filesystem::remove(path);
  std::vector<std::string> names;
  double end = 0;
  for (const auto& e : events) {
    if (e["ph"] != "X") continue;
    names.push_back(e["cat"]);
    if (e["cat"] == "call" || e["cat"] == "collective") continue;
    EXPECT_GE(e["ts"].get<double>(), end - 1e-3);
    end = e["ts"].get<double>() + e["dur"].get<double>();
  }
  EXPECT_THAT(names, ElementsAre("kernel", "kernel", "kernel", "kernel", "start", "kernel", "start", "wait",
                                 "kernel", "wait", "kernel", "call", "collective", "collective"));
}

/// What is sent as another dtype is computed in the bucket, too; a view and what was given are copied there.
TEST(LowerCollective, MeansAreMadeInTheWiresDtype) {
  const Plan p = expect_same(R"(graph g {
  %0 = input f32[5,7] arg
  %1 = input f32[3] arg
  %2 = f32[5,7] neg %0
  %3 = f32[7,5] permute %2 {dims=(1,0)}
  %4 = f32[112] all_reduce %2, %3, %1 {group=0, wire=bf16}
  %5 = f32[48] all_reduce %2 {group=0, wire=f16}
  %6 = f32[35] slice %4 {starts=[0], stops=[35], steps=(1)}
  %7 = f32[35] slice %4 {starts=[48], stops=[83], steps=(1)}
  %8 = f32[3] slice %4 {starts=[96], stops=[99], steps=(1)}
  %9 = f32[35] slice %5 {starts=[0], stops=[35], steps=(1)}
  output %6
  output %7
  output %8
  output %9
})",
                             {112, 48});
  ASSERT_EQ(p.collectives.size(), 2u);
  EXPECT_EQ(p.collectives[0].wire, DType::bf16);
  EXPECT_EQ(p.collectives[1].wire, DType::f16);
  EXPECT_NE(print(p).find("group=0 wire=bf16 count=112"), std::string::npos) << print(p);
  Plan wrong = p;
  wrong.collectives[1].wire = DType::f64;
  EXPECT_EQ(plan_fault(wrong), "collective 1 of f32 cannot be sent as f64");
}

TEST(LowerCollective, PlansKeepTheirCollectives) {
  Plan p = expect_same(kTwoBuckets, {128, 512});
  p.collectives[0].wire = DType::bf16;
  const Plan again = deserialize_plan(serialize(p));
  EXPECT_EQ(print(again), print(p));
  EXPECT_NE(print(p).find("start all_reduce#0"), std::string::npos);
  EXPECT_NE(print(p).find("wait all_reduce#1"), std::string::npos);
}

}  // namespace KILN_FILE
}  // namespace kiln
