// SPDX-License-Identifier: Apache-2.0
// Launches of several parts: which works become one, and that such a launch has the bits of its parts alone.
#include <gmock/gmock.h>

#include <cstring>

#include "codegen/lower_parts.h"
#include "ir/passes.h"
#include "tests/codegen/cuda_plan.h"
#include "tests/ir/random_graph.h"

namespace kiln {
namespace KILN_FILE {

using detail::Cell;
using detail::Work;
using Lists = std::vector<std::vector<int>>;

// --- which works ---

Work work(std::vector<int> reads, std::vector<int> writes, LaunchKind kind = LaunchKind::kernel) {
  Work w;
  w.kind = kind;
  w.cells = reads;
  w.cells.insert(w.cells.end(), writes.begin(), writes.end());
  w.reads = std::move(reads);
  w.writes = std::move(writes);
  return w;
}

/// Cells of `bytes`; those that `outside` lists lie in no arena.
std::vector<Cell> cells(size_t count, const Dim& bytes, const std::vector<int>& outside) {
  std::vector<Cell> out(count);
  for (Cell& c : out) c.bytes = bytes;
  for (const int c : outside) out[static_cast<size_t>(c)].buffer = c;
  return out;
}

/// Companions of the works that `kind` says something of, when cells of `bytes` may live longer.
Lists companions(const std::vector<Work>& works, const std::vector<int>& kinds,
                 const std::vector<Cell>& cells, bool longer = true) {
  std::vector<int> clashes;
  const detail::Order order = detail::schedule(works, {}, {}, static_cast<int>(cells.size()), clashes);
  return detail::find_companions(works, kinds, cells, order, longer);
}

/// Works 0, 2, 4 make gradients, each from the one before; 1, 3, 5 are updates, each of its own output.
std::vector<Work> backward() {
  return {work({0}, {1}), work({1}, {4}), work({1}, {2}), work({2}, {5}), work({2}, {3}), work({3}, {6})};
}
const std::vector<int> kUpdates = {-1, 0, -1, 0, -1, 0};

TEST(Companions, WaitForTheLast) {
  EXPECT_EQ(companions(backward(), kUpdates, cells(7, Dim(64), {0, 4, 5, 6})), (Lists{{1, 3, 5}}));
}
TEST(Companions, AreOfOneKind) {
  EXPECT_EQ(companions(backward(), {-1, 0, -1, 1, -1, 0}, cells(7, Dim(64), {0, 4, 5, 6})), (Lists{{1, 5}}));
}
TEST(Companions, KeepNobodyWaiting) {
  std::vector<Work> works = backward();
  works.push_back(work({4}, {7}));  // reads what work 1 makes, as soon as it can
  EXPECT_EQ(companions(works, {-1, 0, -1, 0, -1, 0, -1}, cells(8, Dim(64), {0, 4, 5, 6, 7})),
            (Lists{{3, 5}}));
}
TEST(Companions, DoNotNeedEachOther) {
  EXPECT_EQ(companions({work({0}, {1}), work({1}, {2}), work({0}, {3})}, {0, 0, 0}, cells(4, Dim(8), {0, 3})),
            (Lists{{1, 2}}));
}
/// What a large arena holds at most stays as it is; a small one, and what is written, may grow.
TEST(Companions, LeaveTheArenaAsSmallAsItIs) {
  const Dim large(8 << 20);
  EXPECT_EQ(companions(backward(), kUpdates, cells(7, large, {0, 4, 5, 6})), (Lists{{3, 5}}));
  EXPECT_EQ(companions(backward(), kUpdates, cells(7, large, {0, 4, 5, 6}), false), Lists{});
  EXPECT_EQ(companions(backward(), kUpdates, cells(7, Dim(64), {0, 4, 5, 6}), false), Lists{});
  EXPECT_EQ(companions(backward(), kUpdates, cells(7, Dim::symbol("B"), {0, 4, 5, 6})), Lists{});
  EXPECT_EQ(companions(backward(), kUpdates, cells(7, large, {0, 1, 2, 3, 4, 5, 6})), (Lists{{1, 3, 5}}));
}
/// An update behind one bucket's sum is there to do while the next is waited for.
TEST(Companions, PassNoWait) {
  const std::vector<Work> works = {work({0}, {1}, LaunchKind::start),
                                   work({0}, {2}, LaunchKind::start),
                                   work({1}, {3}, LaunchKind::wait),
                                   work({2}, {4}, LaunchKind::wait),
                                   work({3}, {5}),
                                   work({3}, {6}),
                                   work({4}, {7}),
                                   work({4}, {8})};
  EXPECT_EQ(companions(works, {-1, -1, -1, -1, 0, 0, 0, 0}, cells(9, Dim(64), {0, 5, 6, 7, 8})),
            (Lists{{6, 7}, {4, 5}}));
}

// --- what they compute ---

/// Updates in place, each with a body of exp and division, of tensors of these shapes ("4,8").
std::string updates(const std::vector<std::string>& shapes, const char* dtype = "f32") {
  std::string in, body, out;
  int next = 0;
  const auto input = [&](const std::string& type, const char* kind) {
    in += fmt::format("  %{} = input {} {}\n", next, type, kind);
    return next++;
  };
  std::vector<std::pair<int, int>> operands;
  for (const std::string& s : shapes) {
    const int p = input(fmt::format("{}[{}]", dtype, s), "param");
    operands.emplace_back(p, input(fmt::format("{}[{}]", dtype, s), "arg"));
  }
  const int lr = input(fmt::format("{}[]", dtype), "scalar");
  for (size_t i = 0; i < shapes.size(); ++i) {
    const std::string type = fmt::format("{}[{}]", dtype, shapes[i]);
    const auto op = [&](const std::string& text) {
      body += fmt::format("  %{} = {} {}\n", next, type, text);
      return next++;
    };
    const int rate = shapes[i].empty() ? lr : op(fmt::format("expand %{} {{shape=[{}]}}", lr, shapes[i]));
    const int size = op(fmt::format("exp %{}", operands[i].second));
    const int step = op(fmt::format("div %{}, %{}", operands[i].second, size));
    const int scaled = op(fmt::format("mul %{}, %{}", step, rate));
    const int now = op(fmt::format("sub %{}, %{}", operands[i].first, scaled));
    out += fmt::format("  output %{} alias={}\n", now, 2 * i);
  }
  return "graph g {\n" + in + body + out + "}";
}

bool same_bits(const std::vector<HostTensor>& a, const std::vector<HostTensor>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    const HostTensor x = testing::copy_of(a[i]), y = testing::copy_of(b[i]);
    const size_t bytes = static_cast<size_t>(x.ref.numel()) * dtype_size(x.ref.dtype);
    if (bytes > 0 && std::memcmp(x.ref.data, y.ref.data, bytes) != 0) return false;
  }
  return a.size() == b.size();
}

const Target& cuda() {
  static const Target t = parse_cuda_target("sm_90a");
  return t;
}

/// Shapes of all sorts: whole vectors and less, one element, none at all, more than a task.
const std::vector<std::string> kShapes = {"64,8", "8", "1", "", "300", "0", "20000", "3,5", "1,1", "40000"};

TEST(Combined, LaunchHasTheBitsOfItsParts) {
  for (const char* dtype : {"f32", "f64", "bf16"}) {
    SCOPED_TRACE(dtype);
    const Graph g = parse_graph(updates(kShapes, dtype));
    verify(g);
    const std::vector<HostTensor> inputs = testing::random_inputs(g, 1);
    const std::vector<HostTensor> want = interpret(g, inputs);
    const CompiledProgram apart = compile_program(g, {}, host_target(), {.combine = false}, nullptr, 1);
    const CompiledProgram p = compile_program(g, {}, host_target(), {}, nullptr, 1);
    EXPECT_EQ(apart.stats.launches, 9) << print(apart.plan);  // of the empty one nothing is left
    EXPECT_EQ(p.stats.launches, 1) << print(p.plan);
    EXPECT_EQ(p.stats.kernels, 1);
    EXPECT_EQ(p.plan.launches[0].parts.size(), 9u);
    const auto loaded = testing::load(p), loaded_apart = testing::load(apart);
    const auto alone = testing::execute(g, *loaded_apart.exe, inputs, 1);
    for (const int threads : {1, 2, 3})
      EXPECT_TRUE(same_bits(testing::execute(g, *loaded.exe, inputs, threads), alone)) << threads;
    for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(testing::difference(alone[i], want[i], 1), "");
  }
}

TEST(Combined, LaunchOfACudaDevice) {
  const Graph g = parse_graph(updates(kShapes));
  const std::vector<HostTensor> inputs = testing::random_inputs(g, 1);
  const CompiledProgram apart = compile_program(g, {}, cuda(), {.combine = false}, nullptr, 1);
  const CompiledProgram p = compile_program(g, {}, cuda(), {}, nullptr, 1);
  EXPECT_EQ(p.stats.launches, 1) << print(p.plan);
  EXPECT_EQ(p.stats.kernels, 1);
  const auto alone = testing::execute_cuda(g, apart.plan, apart.image, inputs);
  EXPECT_TRUE(same_bits(testing::execute_cuda(g, p.plan, p.image, inputs), alone));
  EXPECT_EQ(cuda::sim::launches(), 1u);
}

/// A launch's parameters have room for some parts; more are as many launches as it takes.
TEST(Combined, MorePartsThanParametersHaveRoomFor) {
  std::vector<std::string> shapes;
  for (int i = 0; i < 300; ++i) shapes.push_back(std::to_string(1 + i * 37 % 800));
  const Graph g = parse_graph(updates(shapes));
  const std::vector<HostTensor> inputs = testing::random_inputs(g, 1);
  const CompiledProgram p = compile_program(g, {}, cuda(), {}, nullptr, 1);
  ASSERT_EQ(p.stats.launches, 1) << print(p.plan);
  const CudaKernel& k = p.image.modules[0].kernels[0];
  EXPECT_EQ(k.buffer_count, 4);  // the parameter before and after, the gradient, the rate
  EXPECT_EQ(k.parts, 85);
  EXPECT_LE(8 * parameter_words(k), 4096);
  const auto got = testing::execute_cuda(g, p.plan, p.image, inputs);
  EXPECT_EQ(cuda::sim::launches(), 4u);
  const CompiledProgram cpu = compile_program(g, {}, host_target(), {}, nullptr, 1);
  EXPECT_EQ(cpu.stats.launches, 1);
  const auto loaded = testing::load(cpu);
  const std::vector<HostTensor> want = interpret(g, inputs),
                                one = testing::execute(g, *loaded.exe, inputs, 1);
  EXPECT_TRUE(same_bits(testing::execute(g, *loaded.exe, inputs, 2), one));
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(testing::difference(got[i], want[i], 1), "") << i;
    EXPECT_EQ(testing::difference(one[i], want[i], 1), "") << i;
  }
}

/// Sizes of the call, of which some are none.
TEST(Combined, SizesOfTheCall) {
  const Graph g = parse_graph(updates({"B,8", "3*B", "70", "B"}));
  for (const Target& target : {Target(host_target()), cuda()}) {
    const CompiledProgram p = compile_program(g, {}, target, {}, nullptr, 1);
    EXPECT_EQ(p.stats.launches, 1) << print(p.plan);
    EXPECT_EQ(p.stats.kernels, 1);
    for (const int64_t b : {0, 1, 5, 7000}) {
      const Graph known =
          parse_graph(updates({fmt::format("{},8", b), std::to_string(3 * b), "70", std::to_string(b)}));
      const std::vector<HostTensor> inputs = testing::random_inputs(known, 1);
      const std::vector<HostTensor> want = interpret(known, inputs);
      std::vector<HostTensor> got;
      if (cuda_target(target)) {
        got = testing::execute_cuda(g, p.plan, p.image, inputs, {}, {{"B", b}});
      } else {
        const auto loaded = testing::load(p);
        got = testing::execute(g, *loaded.exe, inputs, 2, {}, {}, nullptr, {&b, 1});
      }
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_EQ(testing::difference(got[i], want[i], 1), "") << i << " for " << b;
    }
  }
}

/// A second update reads what the first replaces: it comes first, so they are no companions.
TEST(Combined, NobodyReadsWhatAnotherReplaces) {
  const char* text = R"(graph g {
  %0 = input f32[100] param
  %1 = input f32[100] param
  %2 = f32[100] exp %1
  %3 = f32[100] sub %0, %2
  %4 = f32[100] exp %0
  %5 = f32[100] sub %1, %4
  output %3 alias=0
  output %5 alias=1
})";
  const Graph g = parse_graph(text);
  const std::vector<HostTensor> inputs = testing::random_inputs(g, 1);
  const std::vector<HostTensor> want = interpret(g, inputs);
  const CompiledProgram p = compile_program(g, {}, host_target(), {}, nullptr, 1);
  const auto loaded = testing::load(p);
  const auto got = testing::execute(g, *loaded.exe, inputs, 2);
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_EQ(testing::difference(got[i], want[i], 1), "") << print(p.plan);
}

TEST(Combined, LaunchSaysHowManyItIs) {
  const CompiledProgram p =
      compile_program(parse_graph(updates({"100", "200", "30"})), {}, host_target(), {}, nullptr, 1);
  ASSERT_EQ(p.plan.profile.size(), 1u);
  EXPECT_EQ(p.plan.profile[0].name, "exp div mul sub x3");
  EXPECT_EQ(p.plan.profile[0].sources.size(), 15u);
  EXPECT_EQ(p.plan.dims[static_cast<size_t>(p.plan.profile[0].bytes)], Dim((100 + 200 + 30) * 12 + 4));
  EXPECT_THAT(print(p.plan), ::testing::HasSubstr("tasks=3 scratch=0 parts=[1, 1, 1]"));
}

/// Bodies that differ in a number or in an operand that is no scalar are kernels of their own.
TEST(Combined, OtherBodiesStayApart) {
  const char* text = R"(graph g {
  %0 = input f32[100] param
  %1 = input f32[70] param
  %2 = input f32[80] param
  %3 = f32[100] constant {value=2, dtype=f32, shape=[100]}
  %4 = f32[70] constant {value=3, dtype=f32, shape=[70]}
  %5 = f32[80] constant {value=2, dtype=f32, shape=[80]}
  %6 = f32[100] mul %0, %3
  %7 = f32[70] mul %1, %4
  %8 = f32[80] mul %2, %5
  output %6 alias=0
  output %7 alias=1
  output %8 alias=2
})";
  const CompiledProgram p = compile_program(parse_graph(text), {}, host_target(), {}, nullptr, 1);
  EXPECT_EQ(p.stats.launches, 2) << print(p.plan);
  EXPECT_EQ(p.stats.kernels, 2);
}

}  // namespace KILN_FILE
}  // namespace kiln
