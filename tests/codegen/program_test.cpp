// SPDX-License-Identifier: Apache-2.0
// Whole programs: text of a graph -> kernels -> results against the interpreter.
#include "codegen/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <variant>

#include "codegen/tunable.h"
#include "ir/base/text.h"
#include "tests/codegen/compiled.h"
#include "tests/codegen/convolutions.h"
#include "tests/ir/random_graph.h"
#include "tests/ir/testing.h"

namespace kiln {
namespace KILN_FILE {

using testing::difference;

void expect_same(std::string_view text, int64_t length = 64) {
  const Graph g = parse_graph(text);
  verify(g);
  const std::vector<HostTensor> inputs = testing::random_inputs(g, 1);
  const std::vector<HostTensor> want = interpret(g, inputs);
  for (bool fuse : {true, false}) {
    const CompiledProgram p = compile_program(g, {}, host_target(), {.fuse = fuse}, nullptr, 1);
    const auto loaded = testing::load(p);
    for (int threads : {1, 2}) {
      const std::vector<HostTensor> got = testing::execute(g, *loaded.exe, inputs, threads);
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_EQ(difference(got[i], want[i], length), "")
            << "output " << i << (fuse ? " fused" : " apart") << "\n"
            << print(p.plan);
    }
  }
}

/// Compiles and runs `text` on inputs of the caller's.
struct Compiled {
  explicit Compiled(std::string_view text, const std::vector<ExternalLayout>& layouts = {})
      : g(parse_graph(text)) {
    verify(g);
    program = compile_program(g, layouts, host_target(), {}, nullptr, 1);
    loaded = testing::load(program);
  }
  Graph g;
  CompiledProgram program;
  testing::Loaded loaded;
};

HostTensor floats(std::vector<int64_t> shape, const std::vector<float>& v) {
  HostTensor t = make_host_tensor(DType::f32, std::move(shape));
  std::copy(v.begin(), v.end(), static_cast<float*>(t.ref.data));
  return t;
}
std::vector<float> read(const HostTensor& t) {
  const float* p = static_cast<const float*>(t.ref.data);
  return {p, p + t.ref.numel()};
}

TEST(Program, ContractionsOverWindows) {
  for (const std::string& text : testing::convolutions()) {
    SCOPED_TRACE(text);
    expect_same(text);
  }
}

TEST(Program, Pointwise) {
  expect_same(R"(graph g {
  %0 = input f32[5,7] arg
  %1 = input f32[5,7] arg
  %2 = f32[5,7] mul %0, %1
  %3 = f32[5,7] exp %2
  output %3
})");
}

TEST(Program, Softmax) {
  expect_same(R"(graph g {
  %0 = input f32[6,37] arg
  %1 = f32[6] amax %0 {dims=(1)}
  %2 = f32[6,1] reshape %1 {shape=[6,1]}
  %3 = f32[6,37] expand %2 {shape=[6,37]}
  %4 = f32[6,37] sub %0, %3
  %5 = f32[6,37] exp %4
  %6 = f32[6] sum %5 {dims=(1)}
  %7 = f32[6,1] reshape %6 {shape=[6,1]}
  %8 = f32[6,37] expand %7 {shape=[6,37]}
  %9 = f32[6,37] div %5, %8
  output %9
})");
}

TEST(Program, MatmulBias) {
  expect_same(R"(graph g {
  %0 = input f32[9,33] arg
  %1 = input f32[17,33] param
  %2 = input f32[17] param
  %3 = f32[9,17] dot_general %0, %1 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(1)}
  %4 = f32[9,17] expand %2 {shape=[9,17]}
  %5 = f32[9,17] add %3, %4
  %6 = f32[17] sum %5 {dims=(0)}
  output %5
  output %6
})");
}

TEST(Program, LayerNormBackwardWithColumnSums) {
  expect_same(R"(graph g {
  %0 = input f32[300,70] arg
  %1 = input f32[70] param
  %2 = f32[300] sum %0 {dims=(1)}
  %3 = f32[300] constant {value=0.0142857, dtype=f32, shape=[300]}
  %4 = f32[300] mul %2, %3
  %5 = f32[300,1] reshape %4 {shape=[300,1]}
  %6 = f32[300,70] expand %5 {shape=[300,70]}
  %7 = f32[300,70] sub %0, %6
  %8 = f32[300,70] expand %1 {shape=[300,70]}
  %9 = f32[300,70] mul %7, %8
  %10 = f32[70] sum %9 {dims=(0)}
  %11 = f32[70] sum %7 {dims=(0)}
  %12 = f32[] sum %9 {dims=(0,1)}
  output %9
  output %10
  output %11
  output %12
})",
              30000);
}

/// [m,k] x [n,k] + bias, through exp, plus a residual; the sum before exp is kept when `keep`.
std::string linear(const char* dtype, int m, int n, int k, bool keep) {
  std::string text = "graph g {\n";
  const auto add = [&](const char* line) {
    text += fmt::format(fmt::runtime(line), fmt::arg("t", dtype), fmt::arg("m", m), fmt::arg("n", n),
                        fmt::arg("k", k)) +
            "\n";
  };
  add("%0 = input {t}[{m},{k}] arg");
  add("%1 = input {t}[{n},{k}] param");
  add("%2 = input {t}[{n}] param");
  add("%3 = input {t}[{m},{n}] arg");
  add("%4 = {t}[{m},{n}] dot_general %0, %1 {{batch_a=(), batch_b=(), contract_a=(1), contract_b=(1)}}");
  add("%5 = {t}[{m},{n}] expand %2 {{shape=[{m},{n}]}}");
  add("%6 = {t}[{m},{n}] add %4, %5");
  add("%7 = {t}[{m},{n}] sigmoid %6");
  add("%8 = {t}[{m},{n}] add %7, %3");
  add("output %8");
  if (keep) add("output %4");
  return text + "}";
}

TEST(Program, MatmulEpilogues) {
  for (const char* dtype : {"f32", "f64"})
    for (bool keep : {false, true})
      for (auto [m, n, k] : {std::array{2, 3, 5}, {37, 53, 19}, {64, 64, 64}, {130, 260, 70}}) {
        const std::string text = linear(dtype, m, n, k, keep);
        expect_same(text, k);
        const Compiled c(text);
        EXPECT_EQ(c.program.stats.launches, 1) << print(c.program.plan);
      }
}

// Only one element of a dim of 1 exists, whatever its index says: the others are zeros, and no product.
TEST(Program, WhatReadsAProductWithinBoundsIsNoEpilogue) {
  expect_same(R"(graph g {
  %0 = input f32[1,1,33,33] arg
  %1 = input f32[1,1,33,7] arg
  %2 = f32[1,1,33,7] dot_general %0, %1 {batch_a=(0,1), batch_b=(0,1), contract_a=(3), contract_b=(2)}
  %3 = f32[1,33,1,7] permute %2 {dims=(0,2,1,3)}
  %4 = f32[1,33,7] reshape %3 {shape=[1,33,7]}
  %5 = f32[1,33,7] skew %4 {dim=0, by=-1, size=[1]}
  output %5
})");
}

// A compiler may make anything of a constant that no integer holds; the interpreter's machine does not.
TEST(Program, ConstantsThatNoIntegerHoldsAreWhatTheMachineGives) {
  for (const char* value : {"nan", "inf", "-inf", "1e+30"})
    for (const char* to : {"i64", "i32", "u8"})
      expect_same(fmt::format(R"(graph g {{
  %0 = input f32[37] arg
  %1 = f32[37] constant {{value={0}, dtype=f32, shape=[37]}}
  %2 = {1}[37] cast %1 {{dtype={1}}}
  %3 = f32[37] maximum %0, %1
  %4 = {1}[37] cast %3 {{dtype={1}}}
  %5 = f32[] constant {{value={0}, dtype=f32, shape=[]}}
  %6 = {1}[] cast %5 {{dtype={1}}}
  %7 = {1}[37] expand %6 {{shape=[37]}}
  output %2
  output %4
  output %7
}})",
                              value, to));
}

/// Rows of a matrix times a vector, plain and permuted, with and without batches; outer products.
TEST(Program, ProductsWithAVectorAreSums) {
  struct Case {
    const char *a, *b, *dims, *out;
    bool matmul;
  };
  constexpr const char* kNt = "batch_a=(), batch_b=(), contract_a=(1), contract_b=(1)";
  const Case cases[] = {
      {"1,300", "70,300", kNt, "1,70", false},
      {"70,300", "1,300", kNt, "70,1", false},
      {"1,300", "1,300", kNt, "1,1", false},
      {"300", "70,300", "batch_a=(), batch_b=(), contract_a=(0), contract_b=(1)", "70", false},
      {"3,1,33", "3,40,33", "batch_a=(0), batch_b=(0), contract_a=(2), contract_b=(2)", "3,1,40", false},
      {"40,1", "1,33", "batch_a=(), batch_b=(), contract_a=(1), contract_b=(0)", "40,33", false},
      {"40", "33", "batch_a=(), batch_b=(), contract_a=(), contract_b=()", "40,33", false},
      {"1,300", "300,70", "batch_a=(), batch_b=(), contract_a=(1), contract_b=(0)", "1,70", true},
      {"2,300", "70,300", kNt, "2,70", true},
  };
  for (const char* type : {"f32", "f64", "bf16", "f16"})
    for (const Case& c : cases) {
      const std::string text = fmt::format(R"(graph g {{
  %0 = input {0}[{1}] arg
  %1 = input {0}[{2}] param
  %2 = {0}[{3}] dot_general %0, %1 {{{4}}}
  %3 = {0}[{3}] tanh %2
  output %3
}})",
                                           type, c.a, c.b, c.out, c.dims);
      SCOPED_TRACE(text);
      expect_same(text, 300);
      const Compiled p(text);
      const bool one = c.out != std::string_view("1,1");  // else a sum and what follows
      EXPECT_EQ(c.matmul ? 0 : p.program.stats.launches, c.matmul ? 0 : one ? 1 : 2);
      const std::vector<TunableKernel> kernels = tunable_kernels(p.g, {}, host_target());
      EXPECT_EQ(std::any_of(kernels.begin(), kernels.end(),
                            [](const auto& k) { return std::holds_alternative<MatmulCase>(k.what); }),
                c.matmul);
    }
}

TEST(Program, AttentionScoresWithScaleAreOneLaunch) {
  const char* text = R"(graph g {
  %0 = input f32[2,9,3,8] arg
  %1 = input f32[2,9,3,8] arg
  %2 = f32[2,3,9,8] permute %0 {dims=(0,2,1,3)}
  %3 = f32[2,3,9,8] permute %1 {dims=(0,2,1,3)}
  %4 = f32[2,3,9,9] dot_general %2, %3 {batch_a=(0,1), batch_b=(0,1), contract_a=(3), contract_b=(3)}
  %5 = f32[2,3,9,9] constant {value=0.25, dtype=f32, shape=[2,3,9,9]}
  %6 = f32[2,3,9,9] mul %4, %5
  output %6
})";
  expect_same(text);
  EXPECT_EQ(Compiled(text).program.stats.launches, 1);
}

TEST(Program, EmbeddingAndItsGradient) {
  expect_same(R"(graph g {
  %0 = input i64[5,3] arg
  %1 = input f32[4,33] param
  %5 = i64[5,3] constant {value=4., dtype=i64, shape=[5,3]}
  %6 = i64[5,3] remainder %0, %5
  %2 = f32[5,3,33] take %1, %6 {dim=0}
  %3 = f32[4,33] constant {value=0., dtype=f32, shape=[4,33]}
  %4 = f32[4,33] index_add %3, %6, %2 {dim=0}
  output %2
  output %4
})");
}

TEST(Program, TakeAlongAndItsGradientStayInTheRow) {
  const char* text = R"(graph g {
  %0 = input f32[6,9] arg
  %1 = input i64[6,1] arg
  %2 = f32[6] amax %0 {dims=(1)}
  %3 = f32[6,1] take_along %0, %1 {dim=1}
  %4 = f32[6,1] reshape %2 {shape=[6,1]}
  %5 = f32[6,1] sub %3, %4
  %6 = f32[6,9] constant {value=0., dtype=f32, shape=[6,9]}
  %7 = f32[6,9] scatter_add %6, %1, %5 {dim=1}
  output %7
})";
  expect_same(text);
  EXPECT_EQ(Compiled(text).program.stats.launches, 1);
}

TEST(Program, UpdatesInPlaceAfterAllReaders) {
  // Both new values read the old ones: one of the two updates must wait for a copy.
  const Compiled r(R"(graph g {
  %0 = input f32[4] param
  %1 = input f32[4] param
  %2 = f32[4] add %0, %1
  %3 = f32[4] sub %0, %1
  output %2 alias=0
  output %3 alias=1
})");
  const std::vector<HostTensor> in = {floats({4}, {1, 2, 3, 4}), floats({4}, {10, 20, 30, 40})};
  const std::vector<HostTensor> out = testing::execute(r.g, *r.loaded.exe, in, 1);
  EXPECT_EQ(read(out[0]), (std::vector<float>{11, 22, 33, 44}));
  EXPECT_EQ(read(out[1]), (std::vector<float>{-9, -18, -27, -36}));
}

TEST(Program, UpdatesInPlaceFromOtherPlacesOfTheInput) {
  // The new value of an element needs the old one of another: no kernel may write over what it still reads.
  for (const char* moved : {"f32[200,200] flip %0 {dims=(1)}", "f32[200,200] flip %0 {dims=(0)}",
                            "f32[200,200] permute %0 {dims=(1,0)}", "f32[200,200] take %0, %1 {dim=0}",
                            "f32[200,200] take %0, %1 {dim=1}"}) {
    const std::string text = fmt::format(R"(graph g {{
  %0 = input f32[200,200] param
  %1 = input i64[200] arg
  %2 = {}
  %3 = f32[200,200] tanh %2
  %4 = f32[200,200] add %3, %0
  output %4 alias=0
}})",
                                         moved);
    expect_same(text);
    // A kernel and a copy; elementwise updates are one kernel.
    EXPECT_EQ(Compiled(text).program.stats.launches, 2) << moved;
  }
  EXPECT_EQ(Compiled(R"(graph g {
  %0 = input f32[200,200] param
  %1 = input f32[200] arg
  %2 = f32[200,200] expand %1 {shape=[200,200]}
  %3 = f32[200,200] mul %0, %2
  output %3 alias=0
})")
                .program.stats.launches,
            1);
}

TEST(Program, AddsRowsToATableInPlace) {
  // Rows of the old table are read before; nothing copies the table.
  const std::string text = R"(graph g {
  %0 = input f32[200,40] param
  %1 = input i64[9] arg
  %2 = f32[9,40] take %0, %1 {dim=0}
  %3 = f32[9,40] tanh %2
  %4 = f32[200,40] index_add %0, %1, %3 {dim=0}
  output %4 alias=0
  output %2
})";
  expect_same(text);
  EXPECT_EQ(Compiled(text).program.stats.launches, 2);
  // What is added is the table itself: it must stay until all is read.
  const std::string itself = R"(graph g {
  %0 = input f32[50,50] param
  %1 = input i64[50] arg
  %2 = f32[50,50] index_add %0, %1, %0 {dim=0}
  output %2 alias=0
})";
  expect_same(itself);
  EXPECT_EQ(Compiled(itself).program.stats.launches, 2);
}

TEST(Program, UpdatesInPlaceFromEachOther) {
  // One kernel, which stores neither before it has read both.
  const std::string text = R"(graph g {
  %0 = input f32[130] param
  %1 = input f32[130] param
  %2 = f32[130] exp %1
  %3 = f32[130] sin %0
  %4 = f32[130] sub %3, %1
  output %2 alias=0
  output %4 alias=1
})";
  expect_same(text);
  EXPECT_EQ(Compiled(text).program.stats.launches, 1);
}

TEST(Program, ReducesMirroredViewsOfMergedDims) {
  for (const char* shape : {"2,2", "3,3", "4,8", "31,33", "2,3,4"})
    for (const char* reduce : {"f32[] sum %3 {dims=(0)}", "f32[] amax %3 {dims=(0)}"}) {
      int64_t n = 1;
      for (const std::string& d : split(shape, ',')) n *= std::stoll(d);
      expect_same(fmt::format(R"(graph g {{
  %0 = input f32[{0}] arg
  %1 = f32[{1}] reshape %0 {{shape=[{1}]}}
  %2 = f32[{1}] flip %1 {{dims=(0)}}
  %3 = f32[{1}] tanh %2
  %4 = {2}
  output %4
}})",
                              shape, n, reduce));
    }
  // roll, then mirrored: what is read outside the bounds of a part is another part's.
  expect_same(R"(graph g {
  %0 = input f32[1,9] arg
  %1 = f32[9] reshape %0 {shape=[9]}
  %2 = f32[8] slice %1 {starts=[1], stops=[9], steps=(1)}
  %3 = f32[1] slice %1 {starts=[0], stops=[1], steps=(1)}
  %4 = f32[9] cat %2, %3 {dim=0}
  %5 = f32[9,1] reshape %4 {shape=[9,1]}
  %6 = f32[9] reshape %5 {shape=[9]}
  %7 = f32[9] flip %6 {dims=(0)}
  %8 = f32[9] add %6, %7
  %9 = f32[] sum %8 {dims=(0)}
  output %9
})");
}

TEST(Program, ContractsOverTwoDimsOfASkewedConstant) {
  // Nothing is loaded, but where the constant ends depends on both dims: they are no one axis of a matmul.
  expect_same(R"(graph g {
  %0 = input f64[] arg
  %1 = input f64[8,17,4] arg
  %2 = f64[8,17,5] expand %0 {shape=[8,17,5]}
  %3 = f64[1,17,5] constant {value=0.5, dtype=f64, shape=[1,17,5]}
  %4 = f64[8,17,5] skew %3 {dim=0, by=1, size=[8]}
  %5 = f64[8,17,5] mul %4, %2
  %6 = f64[4,5] dot_general %1, %5 {batch_a=(), batch_b=(), contract_a=(0,1), contract_b=(0,1)}
  output %6
})");
}

TEST(Program, SwapsInputsInPlace) {
  const Compiled r(R"(graph g {
  %0 = input f32[3] param
  %1 = input f32[3] param
  output %1 alias=0
  output %0 alias=1
})");
  const std::vector<HostTensor> in = {floats({3}, {1, 2, 3}), floats({3}, {4, 5, 6})};
  const std::vector<HostTensor> out = testing::execute(r.g, *r.loaded.exe, in, 2);
  EXPECT_EQ(read(out[0]), (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(read(out[1]), (std::vector<float>{1, 2, 3}));
}

TEST(Program, OutputsThatRepeatAndPassThrough) {
  expect_same(R"(graph g {
  %0 = input f32[3,5] arg
  %1 = f32[3,5] exp %0
  %2 = f32[5,3] permute %1 {dims=(1,0)}
  output %1
  output %1
  output %0
  output %2
})");
}

TEST(Program, ReadsStridedExternals) {
  // The input lies transposed; reshape of it needs a row-major copy.
  const char* text = R"(graph g {
  %0 = input f32[2,3] arg
  %1 = f32[3,2] reshape %0 {shape=[3,2]}
  %2 = f32[3,2] neg %1
  %3 = f32[2] sum %0 {dims=(1)}
  output %2
  output %3
})";
  const Compiled r(text, {{{Dim(1), Dim(2)}, Dim(0)}});
  const std::vector<HostTensor> in = {floats({2, 3}, {1, 4, 2, 5, 3, 6})};  // [[1,2,3],[4,5,6]]
  const std::vector<HostTensor> out = testing::execute(r.g, *r.loaded.exe, in, 1);
  EXPECT_EQ(read(out[0]), (std::vector<float>{-1, -2, -3, -4, -5, -6}));
  EXPECT_EQ(read(out[1]), (std::vector<float>{6, 15}));
}

TEST(Program, SizesOfTheCall) {
  const Compiled r(R"(graph g {
  %0 = input f32[B,5] arg
  %1 = input f32[7,5] param
  %2 = f32[B,7] dot_general %0, %1 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(1)}
  %3 = f32[B] amax %2 {dims=(1)}
  %4 = f32[B,1] reshape %3 {shape=[B,1]}
  %5 = f32[B,7] expand %4 {shape=[B,7]}
  %6 = f32[B,7] sub %2, %5
  %7 = f32[7] sum %6 {dims=(0)}
  output %6
  output %7
})");
  ASSERT_EQ(r.program.plan.symbols, (std::vector<std::string>{"B"}));
  for (int64_t b : {1, 3, 40}) {
    HostTensor x = make_host_tensor(DType::f32, {b, 5}), w = make_host_tensor(DType::f32, {7, 5});
    for (int64_t i = 0; i < b * 5; ++i) static_cast<float*>(x.ref.data)[i] = static_cast<float>(i % 11) - 5;
    for (int64_t i = 0; i < 35; ++i) static_cast<float*>(w.ref.data)[i] = static_cast<float>(i % 7) - 3;
    const std::vector<HostTensor> want = interpret(r.g, std::vector<HostTensor>{x, w});
    HostTensor y = make_host_tensor(DType::f32, {b, 7}), sums = make_host_tensor(DType::f32, {7});
    void* externals[] = {x.ref.data, w.ref.data};
    void* outputs[] = {y.ref.data, sums.ref.data};
    r.loaded.exe->run(
        {.externals = externals, .outputs = outputs, .scalars = {}, .symbols = {&b, 1}, .threads = 2});
    EXPECT_EQ(difference(y, want[0], 5), "");
    EXPECT_EQ(difference(sums, want[1], b), "");
  }
}

TEST(Program, SecondTimeComesFromTheCache) {
  const std::string folder = ::testing::TempDir() + "kiln_program_test";
  std::filesystem::remove_all(folder);
  const Graph g = parse_graph(R"(graph g {
  %0 = input f32[5] arg
  %1 = f32[5] exp %0
  output %1
})");
  DiskCache cache(folder, 1 << 30);
  const CompiledProgram first = compile_program(g, {}, host_target(), {}, &cache, 1);
  EXPECT_FALSE(first.stats.from_cache);
  EXPECT_EQ(first.stats.compiled, 1);
  const CompiledProgram second = compile_program(g, {}, host_target(), {}, &cache, 1);
  EXPECT_TRUE(second.stats.from_cache);
  EXPECT_EQ(second.image.bytes, first.image.bytes);
  EXPECT_EQ(print(second.plan), print(first.plan));
}

TEST(Program, AdamWSharesOneKernelForAllSizes) {
  std::string text = "graph g {\n  %0 = input f32[] scalar\n";
  int v = 1;
  for (int size : {64, 4096, 100000})
    text += fmt::format("  %{} = input f32[{}] param\n  %{} = input f32[{}] arg\n", v, size, v + 1, size),
        v += 2;
  int in = 1;
  std::string outs;
  for (int size : {64, 4096, 100000}) {
    text += fmt::format(
        "  %{0} = f32[{1}] expand %0 {{shape=[{1}]}}\n  %{2} = f32[{1}] mul %{3}, %{0}\n"
        "  %{4} = f32[{1}] sub %{5}, %{2}\n",
        v, size, v + 1, in + 1, v + 2, in);
    outs += fmt::format("  output %{} alias={}\n", v + 2, in);
    v += 3, in += 2;
  }
  EXPECT_EQ(Compiled(text + outs + "}").program.stats.kernels, 1);
}

// Halves are computed in f32: a sum does not stop at 256, what is fused is rounded once, and a cast rounds.
TEST(Program, HalvesAreStorage) {
  const Compiled c(R"(graph g {
  %0 = input bf16[3000,5] arg
  %1 = bf16[5] sum %0 {dims=(0)}
  %2 = bf16[3000] sum %0 {dims=(1)}
  %3 = bf16[3000,5] constant {value=0.001953125, dtype=bf16, shape=[3000,5]}
  %4 = bf16[3000,5] add %0, %3
  %5 = bf16[3000,5] sub %4, %0
  %6 = f32[3000,5] cast %0 {dtype=f32}
  %7 = f32[3000,5] constant {value=0.001953125, dtype=f32, shape=[3000,5]}
  %8 = f32[3000,5] add %6, %7
  %9 = bf16[3000,5] cast %8 {dtype=bf16}
  %10 = f32[3000,5] cast %9 {dtype=f32}
  %11 = f32[3000,5] sub %10, %6
  output %1
  output %2
  output %5
  output %11
})");
  const HostTensor ones = testing::tensor(DType::bf16, {3000, 5}, std::vector<double>(15000, 1));
  for (int threads : {1, 2}) {
    const std::vector<HostTensor> got = testing::execute(c.g, *c.loaded.exe, {ones}, threads);
    EXPECT_EQ(testing::numbers(got[0]), std::vector<double>(5, 3008));  // 3000 in bf16
    EXPECT_EQ(testing::numbers(got[1]), std::vector<double>(3000, 5));
    EXPECT_EQ(testing::numbers(got[2]), std::vector<double>(15000, 0x1p-9));
    EXPECT_EQ(testing::numbers(got[3]), std::vector<double>(15000, 0));
  }
}

TEST(Program, MatmulOfHalves) {
  for (const char* type : {"bf16", "f16"})
    for (const char* dims : {"contract_a=(1), contract_b=(0)", "contract_a=(0), contract_b=(1)",
                             "contract_a=(1), contract_b=(1)", "contract_a=(0), contract_b=(0)"}) {
      std::string text = fmt::format(R"(graph g {{
  %0 = input f16[65,65] arg
  %1 = input f16[65,65] param
  %2 = f16[65,65] dot_general %0, %1 {{batch_a=(), batch_b=(), {}}}
  %3 = f16[65,65] tanh %2
  output %2
  output %3
}})",
                                     dims);
      for (size_t at = text.find("f16"); at != std::string::npos; at = text.find("f16", at + 4))
        text.replace(at, 3, type);
      SCOPED_TRACE(text);
      expect_same(text);
    }
}

}  // namespace KILN_FILE
}  // namespace kiln
