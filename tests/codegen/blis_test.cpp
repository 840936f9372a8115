// SPDX-License-Identifier: Apache-2.0
// Which matmuls BLIS is asked to do, and that a program in which it does them, or in which an epilogue is a
// launch of its own, computes what the generated kernels do, with the same bits for any number of threads.
#include "codegen/blis.h"

#include <gtest/gtest.h>

#include <cstring>

#include "codegen/tunable.h"
#include "tests/codegen/compiled.h"
#include "tests/ir/random_graph.h"

namespace kiln {
namespace KILN_FILE {

/// A product and what follows it, as text. `a`, `b`, `c`: sizes of the operands and the result.
struct Case {
  std::string a, b, c, dims, dtype = "f32";
  std::string more = "  output %2\n";
};

std::string plain(const char* contracted) { return fmt::format("batch_a=(), batch_b=(), {}", contracted); }
const std::string kNN = plain("contract_a=(1), contract_b=(0)"),
                  kNT = plain("contract_a=(1), contract_b=(1)"),
                  kTN = plain("contract_a=(0), contract_b=(0)");
constexpr const char* kBatched = "batch_a=(0), batch_b=(0), contract_a=(2), contract_b=(1)";

Graph graph_of(const Case& c) {
  return parse_graph(
      fmt::format("graph g {{\n  %0 = input {0}[{1}] arg\n  %1 = input {0}[{2}] param\n"
                  "  %2 = {0}[{3}] dot_general %0, %1 {{{4}}}\n{5}}}",
                  c.dtype, c.a, c.b, c.c, c.dims, c.more));
}

const std::vector<Case>& cases() {
  // Bias and half of a gelu; a residual, the product handed out, too.
  const auto gelu = [](const std::string& n, const std::string& c) {
    return fmt::format(
        "  %3 = input f32[{0}] param\n  %4 = f32[{1}] expand %3 {{shape=[{1}]}}\n"
        "  %5 = f32[{1}] add %2, %4\n  %6 = f32[{1}] tanh %5\n  %7 = f32[{1}] mul %5, %6\n"
        "  output %7\n",
        n, c);
  };
  const auto residual = [](const std::string& c) {
    return fmt::format("  %3 = input f32[{0}] arg\n  %4 = f32[{0}] add %2, %3\n  output %4\n  output %2\n",
                       c);
  };
  static const std::vector<Case> all = {
      {"96,64", "64,128", "96,128", kNN},
      {"129,131", "127,131", "129,127", kNT},
      {"131,129", "131,127", "129,127", kTN},
      {"1,300", "300,129", "1,129", kNN},
      {"129,300", "300,2", "129,2", kNN},
      {"65,2", "2,33", "65,33", kNN},
      {"3,65,40", "3,40,48", "3,65,48", kBatched},
      {"70,90", "90,50", "70,50", kNN, "f64"},
      {"96,64", "128,64", "96,128", kNT, "f32", gelu("128", "96,128")},
      {"129,64", "64,65", "129,65", kNN, "f32", residual("129,65")},
      {"3,65,40", "3,40,48", "3,65,48", kBatched, "f32", residual("3,65,48")},
  };
  return all;
}

const MatmulCase& matmul_of(const TunableKernel& k) { return std::get<MatmulCase>(k.what); }

TunableKernel only_matmul(const Graph& g) {
  std::vector<TunableKernel> found;
  for (TunableKernel& k : tunable_kernels(g, {}, host_target()))
    if (std::holds_alternative<MatmulCase>(k.what)) found.push_back(std::move(k));
  EXPECT_EQ(found.size(), 1u) << print(g);
  return found.at(0);
}

struct Outcome {
  Plan plan;
  std::vector<std::vector<HostTensor>> by_threads;
};

Outcome run(const Graph& g, const LowerOptions& options, std::initializer_list<int> threads) {
  const CompiledProgram p = compile_program(g, {}, host_target(), options, nullptr, 2);
  const testing::Loaded loaded = testing::load(p);
  Outcome r{p.plan, {}};
  for (const int n : threads)
    r.by_threads.push_back(testing::execute(g, *loaded.exe, testing::random_inputs(g, 5), n));
  return r;
}

bool same_bits(const HostTensor& a, const HostTensor& b) {
  return std::memcmp(a.ref.data, b.ref.data, static_cast<size_t>(a.ref.numel()) * dtype_size(a.ref.dtype)) ==
         0;
}

bool calls_blis(const Plan& p) {
  return std::any_of(p.kernels.begin(), p.kernels.end(),
                     [](const PlanKernel& k) { return k.builtin && k.symbol.starts_with("blis_"); });
}

TEST(Blis, DoesWhatTheGeneratedKernelDoesForAnyNumberOfThreads) {
  for (const Case& c : cases()) {
    const Graph g = graph_of(c);
    const TunableKernel k = only_matmul(g);
    const std::vector<HostTensor> want = run(g, {}, {1}).by_threads[0];
    const auto first = first_blis_schedule(matmul_of(k));
    ASSERT_TRUE(first) << print(g);
    const int64_t depth = matmul_of(k).spec.k.value();
    for (const std::string& s : {str(*first), str(BlisSchedule{48, 80}), str(BlisSchedule{1000, 1000})}) {
      const Outcome got = run(g, {.schedules = {{k.id, s}}}, {1, 2, 3, 8});
      EXPECT_TRUE(calls_blis(got.plan)) << print(got.plan);
      EXPECT_EQ(got.plan.launches.size(), matmul_of(k).fused.epilogue ? 2u : 1u) << print(got.plan);
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_EQ(testing::difference(got.by_threads[0][i], want[i], depth), "") << s << "\n" << print(g);
        for (const auto& other : got.by_threads)
          EXPECT_TRUE(same_bits(other[i], got.by_threads[0][i])) << s << "\n" << print(g);
      }
    }
  }
}

TEST(Blis, AnEpilogueApartIsALaunchOfItsOwn) {
  int apart = 0;
  for (const Case& c : cases()) {
    const Graph g = graph_of(c);
    const TunableKernel k = only_matmul(g);
    if (!matmul_of(k).fused.epilogue) continue;
    ++apart;
    MatmulSchedule s = *parse_matmul_schedule(default_schedule(k));
    s.apart = true;
    const std::vector<HostTensor> want = run(g, {}, {1}).by_threads[0];
    const Outcome got = run(g, {.schedules = {{k.id, str(s)}}}, {1, 2, 3, 8});
    EXPECT_FALSE(calls_blis(got.plan));
    EXPECT_EQ(got.plan.launches.size(), s.split_k > 1 ? 3u : 2u) << print(got.plan);
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(testing::difference(got.by_threads[0][i], want[i], matmul_of(k).spec.k.value()), "");
      for (const auto& other : got.by_threads) EXPECT_TRUE(same_bits(other[i], got.by_threads[0][i]));
    }
  }
  EXPECT_EQ(apart, 3);
}

TEST(Blis, IsAskedForNothingThatItCannotDo) {
  const MatmulCase good = matmul_of(only_matmul(graph_of(cases()[0])));
  ASSERT_TRUE(first_blis_schedule(good));
  const auto refused = [&](auto&& change) {
    MatmulCase c = good;
    change(c.spec);
    return !first_blis_schedule(c) && !blis_call(c.spec, {});
  };
  EXPECT_TRUE(refused([](MatmulSpec& s) { s.dtype = DType::bf16; }));
  EXPECT_TRUE(refused([](MatmulSpec& s) { s.a.half = DType::bf16; }));
  EXPECT_TRUE(refused([](MatmulSpec& s) { s.c.half = DType::f16; }));
  EXPECT_TRUE(refused([](MatmulSpec& s) { s.m = Dim::symbol("m"); }));
  EXPECT_TRUE(refused([](MatmulSpec& s) { s.n = Dim(0); }));
  EXPECT_TRUE(refused([](MatmulSpec& s) { s.a.offset = Dim(1); })) << "the builtin knows no offsets";
  EXPECT_TRUE(refused([](MatmulSpec& s) { s.b.row_stride = Dim(0); })) << "rows repeat";
  EXPECT_TRUE(refused([](MatmulSpec& s) { s.b.row_stride = Dim(127); })) << "rows overlap";
  EXPECT_TRUE(refused([](MatmulSpec& s) { s.a.row_stride = Dim(-64); })) << "rows run backwards";
  EXPECT_TRUE(refused([](MatmulSpec& s) {
    s.k_outer = {Dim(3)};
    s.a.k_stride = {Dim(64)};
    s.b.k_stride = {Dim(8192)};
  }));
  MatmulCase packed = good;
  packed.fused.prologue[0].emplace();
  EXPECT_FALSE(first_blis_schedule(packed));
}

// Batch axes that one stride walks are one; others are not BLIS's.
TEST(Blis, FoldsBatchAxes) {
  MatmulSpec s = matmul_of(only_matmul(graph_of(cases()[0]))).spec;
  s.batch = {Dim(2), Dim(1), Dim(5)};
  s.a.batch_stride = {Dim(5 * 6144), Dim(7), Dim(6144)};
  s.b.batch_stride = {Dim(0), Dim(0), Dim(0)};
  s.c.batch_stride = {Dim(5 * 12288), Dim(0), Dim(12288)};
  const auto call = blis_call(s, {64, 64});
  ASSERT_TRUE(call);
  EXPECT_EQ(call->builtin, "blis_sgemm");
  std::vector<int64_t> dims;
  for (const Dim& d : call->dims) dims.push_back(d.value());
  EXPECT_EQ(dims, (std::vector<int64_t>{10, 96, 128, 64, 6144, 64, 1, 0, 128, 1, 12288, 128, 1, 64, 64}));
  EXPECT_EQ(call->tasks, Dim(10 * 2 * 2));
  s.b.batch_stride = {Dim(0), Dim(0), Dim(8192)};
  EXPECT_FALSE(blis_call(s, {64, 64})) << "the same matrices again";
}

}  // namespace KILN_FILE
}  // namespace kiln
