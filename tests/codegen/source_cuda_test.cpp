// SPDX-License-Identifier: Apache-2.0
// Loop kernels for CUDA: each way that rows and columns lie on threads, run on simulated blocks, against the
// interpreter.
#include "codegen/source_cuda.h"

#include <gmock/gmock.h>

#include <array>

#include "codegen/compile_nvrtc.h"
#include "ir/fuse.h"
#include "tests/codegen/cuda_plan.h"
#include "tests/ir/random_graph.h"
#include "tests/ir/testing.h"

namespace kiln {
namespace KILN_FILE {

using testing::difference;
using ::testing::HasSubstr;
using ::testing::Not;

const CudaTarget& target() {
  static const CudaTarget t = parse_cuda_target("sm_90a");
  return t;
}

/// All sources of a program, one after the other.
std::string source_of(const CompiledProgram& p) {
  std::string s;
  for (const CudaModule& m : p.image.modules) s += m.source;
  return s;
}

/// Runs `text` and returns its sources.
std::string expect_same(const std::string& text, int64_t length = 64,
                        const std::map<std::string, int64_t, std::less<>>& symbols = {}) {
  const Graph g = parse_graph(text);
  verify(g);
  const std::vector<HostTensor> inputs = testing::random_inputs(g, 1);
  const std::vector<HostTensor> want = interpret(g, inputs);
  const CompiledProgram p = compile_program(g, {}, target(), {}, nullptr, 1);
  const std::vector<HostTensor> got = testing::execute_cuda(g, p.plan, p.image, inputs, {}, symbols);
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_EQ(difference(got[i], want[i], length), "") << "output " << i << "\n" << text << source_of(p);
  return source_of(p);
}

std::string sized(const char* text, int64_t rows, int64_t cols) {
  std::string out;
  for (const char* c = text; *c; ++c) {
    if (*c == 'R' && !std::isalpha(c[1])) out += std::to_string(rows);
    else if (*c == 'C' && !std::isalpha(c[1])) out += std::to_string(cols);
    else out += *c;
  }
  return out;
}

constexpr const char* kSoftmax = R"(graph g {
  %0 = input f32[R,C] arg
  %1 = f32[R] amax %0 {dims=(1)}
  %2 = f32[R,1] reshape %1 {shape=[R,1]}
  %3 = f32[R,C] expand %2 {shape=[R,C]}
  %4 = f32[R,C] sub %0, %3
  %5 = f32[R,C] exp %4
  %6 = f32[R] sum %5 {dims=(1)}
  %7 = f32[R,1] reshape %6 {shape=[R,1]}
  %8 = f32[R,C] expand %7 {shape=[R,C]}
  %9 = f32[R,C] div %5, %8
  output %9
  output %1
})";

/// Sums over columns, over rows, and over all, with values that wait for them.
constexpr const char* kNorm = R"(graph g {
  %0 = input f32[R,C] arg
  %1 = input f32[C] param
  %2 = f32[R] sum %0 {dims=(1)}
  %3 = f32[R] constant {value=0.01, dtype=f32, shape=[R]}
  %4 = f32[R] mul %2, %3
  %5 = f32[R,1] reshape %4 {shape=[R,1]}
  %6 = f32[R,C] expand %5 {shape=[R,C]}
  %7 = f32[R,C] sub %0, %6
  %8 = f32[R,C] expand %1 {shape=[R,C]}
  %9 = f32[R,C] mul %7, %8
  %10 = f32[C] sum %9 {dims=(0)}
  %11 = f32[C] amax %7 {dims=(0)}
  %12 = f32[] sum %9 {dims=(0,1)}
  %13 = f32[R,C] mul %9, %9
  %14 = f32[R] sum %13 {dims=(1)}
  %15 = f32[] sum %14 {dims=(0)}
  output %9
  output %10
  output %11
  output %12
  output %14
  output %15
})";

constexpr const char* kColumns = R"(graph g {
  %0 = input f32[R,C] arg
  %1 = f32[R,C] exp %0
  %2 = f32[C] sum %1 {dims=(0)}
  output %2
})";

constexpr int64_t kSizes[][2] = {{70, 1},   {67, 2},    {5, 3},     {33, 10},  {1, 10},   {9, 48},
                                 {70, 96},  {3, 130},   {17, 768},  {2, 1030}, {3, 4096}, {4, 2052},
                                 {2, 9001}, {2, 20000}, {2, 40004}, {700, 12}, {300, 64}};

TEST(SourceCuda, Softmax) {
  for (const auto& s : kSizes) expect_same(sized(kSoftmax, s[0], s[1]), s[1]);
}

TEST(SourceCuda, SumsBothWays) {
  for (const auto& s : kSizes) expect_same(sized(kNorm, s[0], s[1]), 100 * s[0] * s[1]);
}

TEST(SourceCuda, SumsOfColumns) {
  for (const auto& s : kSizes) expect_same(sized(kColumns, s[0], s[1]), s[0]);
  expect_same(sized(kColumns, 5000, 24), 5000);
}

TEST(SourceCuda, RowsLieOnThreadsByTheirLength) {
  const auto source = [](int64_t rows, int64_t cols) {
    return source_of(compile_program(parse_graph(sized(kSoftmax, rows, cols)), {}, target(), {}, nullptr, 1));
  };
  const std::string few = source(64, 12);  // three chunks of 4 columns: 4 threads
  EXPECT_THAT(few, HasSubstr("member = thread() % 4, group = thread() / 4"));
  EXPECT_THAT(few, HasSubstr("for (i32 m = 2; m > 0; m /= 2)"));
  EXPECT_THAT(few, HasSubstr("if (member == 0 && live) store<1>"));
  const std::string some = source(64, 768);
  EXPECT_THAT(some, HasSubstr("member = thread() % 32, group = thread() / 32"));
  EXPECT_THAT(some, HasSubstr("warp_reduce("));
  EXPECT_THAT(some, HasSubstr("for (i32 s = 0; s < 6; ++s)"));
  EXPECT_THAT(some, Not(HasSubstr("if (s + 1 <")));  // 192 chunks on 32 threads: none is left over
  const std::string many = source(64, 4096);
  EXPECT_THAT(many, HasSubstr("block_reduce<256>("));
  EXPECT_THAT(many, HasSubstr("member = thread(), group = 0"));
}

TEST(SourceCuda, BlocksShareLongRowsThatNothingIsSummedOver) {
  EXPECT_THAT(expect_same(sized(kColumns, 40, 4100), 40), HasSubstr("tile = i32(block() % "));
  const std::string text = expect_same(R"(graph g {
  %0 = input f32[6,5004] arg
  %1 = input f32[5004] param
  %2 = input f32[6,1] arg
  %3 = f32[6,5004] expand %1 {shape=[6,5004]}
  %4 = f32[6,5004] expand %2 {shape=[6,5004]}
  %5 = f32[6,5004] mul %0, %3
  %6 = f32[6,5004] add %5, %4
  %7 = f32[6,5004] tanh %6
  output %7
})");
  EXPECT_THAT(text, HasSubstr("const i32 c = tile * 1024 + s * 256 + member;"));
  EXPECT_THAT(text, HasSubstr("if (c < 1251)"));
}

TEST(SourceCuda, ValuesWaitInRegistersThenSharedMemoryThenNowhere) {
  const auto source = [](int64_t cols) {
    return source_of(compile_program(parse_graph(sized(kSoftmax, 4, cols)), {}, target(), {}, nullptr, 1));
  };
  const std::string registers = source(4096);
  EXPECT_THAT(registers, HasSubstr("const auto v4 = s4[s];"));
  EXPECT_THAT(registers, Not(HasSubstr("load<W>(s4")));
  const std::string shared = source(40004);
  EXPECT_THAT(shared, HasSubstr("const auto v4 = load<W>(s4 + c * W);"));
  const std::string nowhere = source(80004);
  EXPECT_THAT(nowhere, Not(HasSubstr("s4")));
  expect_same(sized(kSoftmax, 2, 80004), 80004);
}

TEST(SourceCuda, ChunksAreAsWideAsEveryAccessIsAligned) {
  const auto width = [](const std::string& text) {
    const std::string s = source_of(compile_program(parse_graph(text), {}, target(), {}, nullptr, 1));
    const size_t at = s.find("constexpr int W = ");
    return at == std::string::npos ? 0 : s[at + 18] - '0';
  };
  EXPECT_EQ(width(sized(kSoftmax, 8, 64)), 4);
  EXPECT_EQ(width(sized(kSoftmax, 8, 66)), 2);
  EXPECT_EQ(width(sized(kSoftmax, 8, 67)), 1);
  EXPECT_EQ(width("graph g {\n%0 = input f64[8,64] arg\n%1 = f64[8] sum %0 {dims=(1)}\noutput %1\n}"), 2);
  // One element further: no load of four begins at a multiple of four.
  EXPECT_EQ(width("graph g {\n%0 = input f32[400] arg\n%1 = f32[396] slice %0 {starts=[1], stops=[397], "
                  "steps=(1)}\n%2 = f32[396] exp %1\noutput %2\n}"),
            1);
}

/// Whether the first kernel's indices have 64 bits.
bool is_wide(const std::string& text) {
  const std::string s = source_of(compile_program(parse_graph(text), {}, target(), {}, nullptr, 1));
  const bool wide = s.find("const i64 task = i64(") != std::string::npos;
  EXPECT_NE(wide, s.find("const i32 task = i32(") != std::string::npos) << s;
  return wide;
}

TEST(SourceCuda, IndicesAreAsWideAsTheyReach) {
  EXPECT_FALSE(is_wide(sized(kSoftmax, 64, 4096)));
  // Up to 2^30 elements: counters may step over the end.
  EXPECT_FALSE(is_wide(sized(kSoftmax, (1 << 18) - 1, 4096)));
  EXPECT_TRUE(is_wide(sized(kSoftmax, 1 << 18, 4096)));
  EXPECT_TRUE(is_wide(sized(kSoftmax, 1 << 20, 4096)));
  EXPECT_TRUE(is_wide(sized(kSoftmax, int64_t{1} << 32, 16)));
  EXPECT_TRUE(is_wide(sized(kSoftmax, 2, int64_t{1} << 31)));
  // Few elements, which lie far apart.
  const auto few = [](int64_t stride) {
    return fmt::format(R"(graph g {{
  %0 = input f32[4096,{0}] arg
  %1 = f32[4096,16] slice %0 {{starts=[0,0], stops=[4096,16], steps=(1,1)}}
  %2 = f32[4096] sum %1 {{dims=(1)}}
  output %2
}})",
                       stride);
  };
  EXPECT_FALSE(is_wide(few((1 << 19) - 1)));
  EXPECT_TRUE(is_wide(few(1 << 19)));
  // Few elements behind many: what the kernel is given begins there.
  EXPECT_FALSE(is_wide(R"(graph g {
  %0 = input f32[4294967296] arg
  %1 = f32[64] slice %0 {starts=[4294967232], stops=[4294967296], steps=(1)}
  %2 = f32[] sum %1 {dims=(0)}
  output %2
})"));
}

TEST(SourceCuda, AxesThatDoNotMerge) {
  // Sums over dims 0 and 2 and over 1, broadcasts, transposed reads, windows that reach over the edge.
  for (const auto& [n, c, w] : {std::array<int, 3>{3, 5, 7}, {2, 40, 8}, {5, 3, 64}, {33, 16, 12}}) {
    expect_same(fmt::format(R"(graph g {{
  %0 = input f32[{0},{1},{2}] arg
  %1 = input f32[{2},{0}] arg
  %2 = f32[{1}] sum %0 {{dims=(0,2)}}
  %3 = f32[{0},{2}] amax %0 {{dims=(1)}}
  %4 = f32[{0},{2}] permute %1 {{dims=(1,0)}}
  %5 = f32[{0},{2}] add %3, %4
  %6 = f32[1,{1},1] reshape %2 {{shape=[1,{1},1]}}
  %7 = f32[{0},{1},{2}] expand %6 {{shape=[{0},{1},{2}]}}
  %8 = f32[{0},{1},{2}] mul %0, %7
  output %5
  output %8
}})",
                            n, c, w),
                n * w);
  }
}

TEST(SourceCuda, SizesOfTheCall) {
  const char* text = R"(graph g {
  %0 = input f32[B,T] arg
  %1 = f32[B] amax %0 {dims=(1)}
  %2 = f32[B,1] reshape %1 {shape=[B,1]}
  %3 = f32[B,T] expand %2 {shape=[B,T]}
  %4 = f32[B,T] sub %0, %3
  %5 = f32[B,T] exp %4
  %6 = f32[B] sum %5 {dims=(1)}
  %7 = f32[T] sum %5 {dims=(0)}
  %8 = f32[B,T] mul %4, %4
  output %5
  output %6
  output %7
  output %8
})";
  const Graph g = parse_graph(text);
  const CompiledProgram p = compile_program(g, {}, target(), {}, nullptr, 1);
  for (const auto& [b, t] : {std::array<int64_t, 2>{1, 1}, {3, 5}, {70, 33}, {2, 3000}}) {
    testing::Rng rng{static_cast<uint64_t>(b)};
    const std::vector<HostTensor> inputs{testing::random_tensor(DType::f32, {b, t}, rng, -2, 2)};
    const std::vector<HostTensor> want = interpret(g, inputs);
    const std::vector<HostTensor> got =
        testing::execute_cuda(g, p.plan, p.image, inputs, {}, {{"B", b}, {"T", t}});
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_EQ(difference(got[i], want[i], b * t), "") << "output " << i << " of " << b << " x " << t;
  }
}

TEST(SourceCuda, ScattersOfAllForms) {
  // Along a dim with many columns beside it, with few, along the last, and with fewer indices than lines.
  expect_same(R"(graph g {
  %0 = input i64[200] arg
  %1 = input f32[200,40] arg
  %2 = i64[200] constant {value=130., dtype=i64, shape=[200]}
  %3 = i64[200] remainder %0, %2
  %4 = f32[130,40] constant {value=0., dtype=f32, shape=[130,40]}
  %5 = f32[130,40] index_add %4, %3, %1 {dim=0}
  output %5
})",
              700);
  expect_same(R"(graph g {
  %0 = input i64[3,200] arg
  %1 = input f32[2,3,200] arg
  %2 = i64[3,200] constant {value=300., dtype=i64, shape=[3,200]}
  %3 = i64[3,200] remainder %0, %2
  %4 = input f32[2,300] arg
  %5 = f32[2,300] index_add %4, %3, %1 {dim=1}
  output %5
})",
              700);
  expect_same(R"(graph g {
  %0 = input i64[3,200] arg
  %1 = input f32[3,200] arg
  %2 = i64[3,200] constant {value=17., dtype=i64, shape=[3,200]}
  %3 = i64[3,200] remainder %0, %2
  %4 = input f32[5,300] arg
  %5 = f32[5,300] scatter_add %4, %3, %1 {dim=1}
  %6 = f32[5,300] exp %5
  output %5
})",
              900);
  expect_same(R"(graph g {
  %0 = input i64[30,50] arg
  %1 = input f32[30,50] arg
  %2 = i64[30,50] constant {value=7., dtype=i64, shape=[30,50]}
  %3 = i64[30,50] remainder %0, %2
  %4 = input f32[9,60] arg
  %5 = f32[9,60] scatter_add %4, %3, %1 {dim=0}
  output %5
})",
              30);
}

/// Every source of the programs above becomes machine code of all architectures, and nothing is spilled.
TEST(SourceCuda, NvrtcCompilesForEachArchitectureWithoutASpill) {
  std::string why;
  if (!nvrtc_available(&why)) GTEST_SKIP() << why;
  std::vector<Graph> graphs;
  for (const auto& s : {std::array<int64_t, 2>{64, 12}, {64, 768}, {4, 4096}, {2, 40004}})
    for (const char* text : {kSoftmax, kNorm, kColumns})
      graphs.push_back(parse_graph(sized(text, s[0], s[1])));
  for (const char* arch : {"sm_80", "sm_90a", "sm_100a"}) {
    CompiledBatch batch = compile_batch(graphs, parse_cuda_target(arch), {}, 1);
    compile_cuda(batch.image.modules, arch, nullptr, 2);
    for (const CudaModule& m : batch.image.modules)
      for (const CudaKernel& k : m.kernels) {
        EXPECT_EQ(k.spill_bytes, 0) << arch << " " << k.symbol << "\n" << m.source;
        EXPECT_GT(k.registers, 0);
      }
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
