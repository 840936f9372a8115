// SPDX-License-Identifier: Apache-2.0
// Kernels of scans, sorts, searches and scatters, for the CPU and on the simulated device, against the rows'
// evaluations: every dtype, lines long and short, side by side and alone, of sizes known and not.
#include <gtest/gtest.h>

#include "codegen/compile_nvrtc.h"
#include "tests/codegen/cuda_plan.h"
#include "tests/codegen/fuzz_case.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT
using Ints = std::vector<int64_t>;
using Inputs = std::vector<HostTensor>;

const Target& cuda() {
  static const Target t = parse_cuda_target("sm_90");
  return t;
}

/// The op alone; dim d of input i has the name symbols[i][d] where there is one.
Graph graph_of(Op o, const Inputs& in, const Attrs& attrs,
               const std::vector<std::vector<std::string>>& names = {}) {
  Graph g;
  std::vector<Value> x;
  for (size_t i = 0; i < in.size(); ++i) {
    Shape s(in[i].ref.shape.begin(), in[i].ref.shape.end());
    for (size_t d = 0; i < names.size() && d < names[i].size(); ++d)
      if (!names[i][d].empty()) s[d] = Dim::symbol(names[i][d]);
    x.push_back(g.add_input({in[i].ref.dtype, s}, InputKind::arg, ""));
  }
  GraphBuilder b(g);
  g.add_output(b.emit(o, x, attrs));
  return g;
}

std::vector<HostTensor> run_cpu(const Plan& plan, const Executable& exe, const Inputs& in,
                                const HostTensor& like,
                                const std::map<std::string, int64_t, std::less<>>& sizes, int threads) {
  std::vector<void*> externals;
  for (const HostTensor& t : in) externals.push_back(t.ref.data);
  const HostTensor out = make_host_tensor(like.ref.dtype, like.ref.shape);
  void* outputs[] = {out.ref.data};
  std::vector<int64_t> symbols;
  for (const std::string& s : plan.symbols) symbols.push_back(sizes.find(s)->second);
  exe.run(
      {.externals = externals, .outputs = outputs, .scalars = {}, .symbols = symbols, .threads = threads});
  return {out};
}

/// Both targets give what the row gives, the CPU the same bits for any number of threads.
void check(Op o, const Inputs& in, const Attrs& attrs,
           const std::vector<std::vector<std::string>>& names = {}) {
  SCOPED_TRACE(fmt::format("{} {} of [{}]{}", def(o).name, dtype_name(in[0].ref.dtype),
                           fmt::join(in[0].ref.shape, ","), names.empty() ? "" : ", sizes by name"));
  const HostTensor want = evaluate(o, in, attrs);
  const Graph g = graph_of(o, in, attrs, names);
  std::map<std::string, int64_t, std::less<>> sizes;
  for (size_t i = 0; i < names.size(); ++i)
    for (size_t d = 0; d < names[i].size(); ++d)
      if (!names[i][d].empty()) sizes[names[i][d]] = in[i].ref.shape[d];
  const auto apart = [&](const HostTensor& got) {
    return is_floating(want.ref.dtype) ? difference(got, want, 64) : bit_difference(got, want);
  };
  const CompiledProgram cpu = compile_program(g, {}, host_target(), {}, nullptr, 1);
  const auto loaded = load(cpu);
  const Inputs one = run_cpu(cpu.plan, *loaded.exe, in, want, sizes, 1);
  EXPECT_EQ(apart(one[0]), "") << "CPU";
  EXPECT_TRUE(equal_bits(one[0], run_cpu(cpu.plan, *loaded.exe, in, want, sizes, 2)[0]));
  const CompiledProgram device = compile_program(g, {}, cuda(), {}, nullptr, 1);
  EXPECT_EQ(apart(execute_cuda(g, device.plan, device.image, in, {}, sizes)[0]), "") << "CUDA";
}

/// Small whole numbers with ties and, of floats, NaN and infinities at a few places.
HostTensor keys(DType t, const Ints& shape, uint64_t seed, bool special = true) {
  Rng rng{seed};
  const HostTensor whole = random_tensor(
      DType::i32, shape, rng, t == DType::u8 || t == DType::boolean ? 0 : -4, t == DType::boolean ? 1 : 4);
  HostTensor x = evaluate(op("cast"), {{whole}}, {DType::f64});
  double* p = static_cast<double*>(x.ref.data);
  for (int64_t i = 0; special && is_floating(t) && i < x.ref.numel(); ++i)
    if (rng.chance(10)) p[i] = rng.chance(50) ? NAN : INFINITY;
  return evaluate(op("cast"), {{x}}, {t});
}
HostTensor numbers_of(DType t, const Ints& shape, uint64_t seed, double lo = -2, double hi = 2) {
  Rng rng{seed};
  return random_tensor(t, shape, rng, lo, hi);
}

struct Lines {
  Ints shape;
  int64_t dim;
};
/// Alone and side by side, a warp's and a block's, empty, longer than a chunk.
const std::vector<Lines>& line_shapes() {
  static const std::vector<Lines> s = {{{7}, 0},      {{3, 40}, 1},  {{3, 300}, 1}, {{2, 5, 3}, 1},
                                       {{5, 70}, 0},  {{0, 4}, 1},   {{4, 0}, 1},   {{1, 1}, 0},
                                       {{2, 129}, 1}, {{3, 4, 5}, 0}};
  return s;
}

TEST(LowerWhole, ScansOfEveryShape) {
  for (const Op o : {op("cumsum"), op("cumargmax")})
    for (const Lines& l : line_shapes()) check(o, {numbers_of(DType::f32, l.shape, 3)}, {l.dim});
  for (const Op o : {op("cumprod"), op("cumargmin"), op("logcumsumexp")})
    check(o, {numbers_of(DType::f32, {3, 300, 2}, 3)}, {int64_t{1}});
}

TEST(LowerWhole, ScansOfEveryDtype) {
  for (const DType t : {DType::u8, DType::i32, DType::i64, DType::f64})
    for (const Op o : {op("cumsum"), op("cumprod"), op("cumargmax"), op("cumargmin"), op("logcumsumexp")})
      if (is_floating(t) || o != op("logcumsumexp")) check(o, {keys(t, {2, 50}, 5, false)}, {int64_t{1}});
  check(op("cumargmax"), {keys(DType::boolean, {2, 50}, 5)}, {int64_t{1}});
  for (const Op o : {op("cumargmax"), op("cumargmin"), op("logcumsumexp")})
    check(o, {keys(DType::f32, {6, 290}, 7)}, {int64_t{1}});
}

TEST(LowerWhole, LongLinesAreCutAndJoined) {
  for (const Op o : {op("cumsum"), op("cumargmax"), op("logcumsumexp")}) {
    check(o, {numbers_of(DType::f32, {2, 9001}, 3)}, {int64_t{1}});
    check(o, {numbers_of(DType::f64, {8200, 3}, 3)}, {int64_t{0}});
  }
  check(op("cumsum"), {numbers_of(DType::i64, {12288}, 3)}, {int64_t{0}});
}

TEST(LowerWhole, ScansOfSizesOfTheCall) {
  for (const int64_t n : {1, 40, 4096, 4097, 9000})
    check(op("cumsum"), {numbers_of(DType::f32, {2, n}, 3)}, {int64_t{1}}, {{"", "N"}});
  for (const int64_t m : {1, 33})
    check(op("cumsum"), {numbers_of(DType::f32, {3, 50, m}, 3)}, {int64_t{1}}, {{"B", "N", "M"}});
}

TEST(LowerWhole, SortsOfEveryShape) {
  for (const bool descending : {false, true})
    for (const Lines& l : line_shapes())
      check(op("argsort"), {keys(DType::f32, l.shape, 3)}, {l.dim, descending});
  check(op("argsort"), {keys(DType::f32, {2, 1000}, 3)}, {int64_t{1}, true});
  for (const int64_t n : {1, 16, 17, 33, 257})
    check(op("argsort"), {keys(DType::f32, {2, n, 2}, 3)}, {int64_t{1}, false}, {{"", "N"}});
}

TEST(LowerWhole, SortsOfEveryDtype) {
  for (int t = 0; t < kDTypeCount; ++t)
    check(op("argsort"), {keys(static_cast<DType>(t), {3, 70}, 4)}, {int64_t{1}, t % 2 == 0});
}

TEST(LowerWhole, Searches) {
  for (const DType t : {DType::u8, DType::i32, DType::i64, DType::f16, DType::bf16, DType::f32, DType::f64})
    for (const bool right : {false, true}) {
      const HostTensor line = evaluate(op("cumsum"), {{keys(DType::u8, {9}, 1)}}, {int64_t{0}});
      check(op("searchsorted"), {evaluate(op("cast"), {{line}}, {t}), keys(t, {4, 7}, 2)}, {right});
    }
  const HostTensor lines =
      evaluate(op("cumsum"), {{numbers_of(DType::f32, {3, 2, 20}, 1, 0, 1)}}, {int64_t{2}});
  check(op("searchsorted"), {lines, numbers_of(DType::f32, {3, 2, 11}, 2, -1, 20)}, {true});
  check(op("searchsorted"), {lines, numbers_of(DType::f32, {3, 2, 1100}, 2, -1, 20)}, {false},
        {{"B", "", "N"}, {"B", "", "M"}});
  check(op("searchsorted"), {make_host_tensor(DType::f32, {0}), numbers_of(DType::f32, {3}, 1)}, {false});
  check(op("searchsorted"), {numbers_of(DType::f32, {1}, 1), numbers_of(DType::f32, {}, 1)}, {false});
}

TEST(LowerWhole, ScattersOfEveryKindAndDtype) {
  const std::vector<Op> kinds = {op("scatter"), op("scatter_add"), op("scatter_prod"), op("scatter_amax"),
                                 op("scatter_amin")};
  for (const DType t : {DType::boolean, DType::u8, DType::i32, DType::i64, DType::f32, DType::f64})
    for (const Op o : kinds) {
      if (t == DType::boolean && o != op("scatter")) continue;
      const bool special = o == op("scatter_amax") || o == op("scatter_amin");
      check(o,
            {keys(t, {5, 9}, 1, special), numbers_of(DType::i64, {4, 7}, 2, -5, 4),
             keys(t, {4, 7}, 3, special)},
            {int64_t{0}});
    }
}

TEST(LowerWhole, ScattersOfEveryShape) {
  const struct {
    Ints base, idx;
    int64_t dim;
  } shapes[] = {{{9}, {40}, 0},          {{3, 50}, {3, 90}, 1},     {{3, 50}, {2, 90}, 1},
                {{20, 40}, {30, 33}, 0}, {{2, 6, 3}, {1, 8, 2}, 1}, {{4, 5}, {0, 5}, 0},
                {{4, 5}, {4, 0}, 1},     {{0, 5}, {0, 3}, 1}};
  for (const auto& s : shapes)
    for (const Op o : {op("scatter"), op("scatter_add"), op("scatter_amax")}) {
      const auto n = static_cast<double>(s.base[static_cast<size_t>(s.dim)]);
      check(o,
            {numbers_of(DType::f32, s.base, 1), numbers_of(DType::i64, s.idx, 2, -n, n - 1),
             numbers_of(DType::f32, s.idx, 3)},
            {s.dim});
    }
  check(op("index_add"),
        {keys(DType::f64, {5, 40}, 1, false), numbers_of(DType::i64, {7}, 2, -5, 4),
         keys(DType::f64, {7, 40}, 3, false)},
        {int64_t{0}});
}

TEST(LowerWhole, BasesAndFillsAreAnyNumber) {
  for (const auto& [t, v] : std::vector<std::pair<DType, double>>{{DType::f32, -INFINITY},
                                                                  {DType::f64, INFINITY},
                                                                  {DType::f32, NAN},
                                                                  {DType::f32, 0.1},
                                                                  {DType::i64, -0x1p63},
                                                                  {DType::i32, -0x1p31},
                                                                  {DType::boolean, 1}}) {
    SCOPED_TRACE(fmt::format("{} {}", dtype_name(t), v));
    Graph g;
    const Value idx = g.add_input({DType::i64, {2, 5}}, InputKind::arg, "");
    const Value src = g.add_input({t, {2, 5}}, InputKind::arg, "");
    GraphBuilder b(g);
    const Op o = t == DType::boolean ? op("scatter") : op("scatter_amax");
    g.add_output(b.emit(o, {b.constant(v, {t, {2, 9}}), idx, src}, {int64_t{1}}));
    g.add_output(b.emit(op("pad"), {src}, {Shape{0, 1}, Shape{0, 1}, Ints{0, 1}, v}));
    const Inputs in = {numbers_of(DType::i64, {2, 5}, 2, -9, 8), keys(t, {2, 5}, 3, false)};
    const std::vector<HostTensor> want = interpret(g, in);
    const CompiledProgram cpu = compile_program(g, {}, host_target(), {}, nullptr, 1);
    const CompiledProgram device = compile_program(g, {}, cuda(), {}, nullptr, 1);
    const auto on_cpu = execute(g, *load(cpu).exe, in, 1);
    const auto on_cuda = execute_cuda(g, device.plan, device.image, in);
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(bit_difference(on_cpu[i], want[i]), "") << "CPU, output " << i;
      EXPECT_EQ(bit_difference(on_cuda[i], want[i]), "") << "CUDA, output " << i;
    }
  }
}

TEST(LowerWhole, CompilesForDevices) {
  std::string why;
  if (!nvrtc_available(&why)) GTEST_SKIP() << why;
  std::vector<CudaModule> modules;
  const auto add = [&](Op o, const Inputs& in, const Attrs& attrs) {
    const CompiledProgram p = compile_program(graph_of(o, in, attrs), {}, cuda(), {}, nullptr, 1);
    modules.insert(modules.end(), p.image.modules.begin(), p.image.modules.end());
  };
  // A warp's line, a block's, and lines side by side.
  for (const Ints& s : {Ints{3, 40, 1}, Ints{3, 300, 1}, Ints{3, 40, 64}})
    for (const DType t : {DType::f32, DType::i64}) {
      const HostTensor x = make_host_tensor(t, s), idx = make_host_tensor(DType::i64, s);
      add(t == DType::f32 ? op("logcumsumexp") : op("cumsum"), {x}, {int64_t{1}});
      add(op("cumargmax"), {x}, {int64_t{1}});
      add(op("argsort"), {x}, {int64_t{1}, true});
      add(op("scatter_amax"), {x, idx, x}, {int64_t{1}});
    }
  add(op("searchsorted"), {make_host_tensor(DType::f32, {9}), make_host_tensor(DType::f32, {9})}, {true});
  compile_cuda(modules, "sm_80", nullptr, 2);
  for (const CudaModule& m : modules)
    for (const CudaKernel& k : m.kernels) EXPECT_EQ(k.spill_bytes, 0) << m.source;
}

TEST(LowerWhole, CatsOfMany) {
  for (const DType t : {DType::f32, DType::bf16, DType::i64, DType::boolean})
    for (const int64_t dim : {0, 1, 2}) {
      Inputs in;
      std::vector<std::vector<std::string>> names;
      for (int64_t i = 0; i < 12; ++i) {
        Ints shape = {3, 4, 5};
        shape[static_cast<size_t>(dim)] = i % 3 == 2 ? 7 : i % 3;  // some are empty
        in.push_back(keys(t, shape, static_cast<uint64_t>(i)));
        names.emplace_back(3);
        names.back()[static_cast<size_t>(dim)] = fmt::format("N{}", i);
      }
      check(op("cat"), in, {dim});
      if (t == DType::f32) check(op("cat"), in, {dim}, names);
    }
}

/// Pieces that are computed are made once each, by one kernel, however many there are.
TEST(LowerWhole, PiecesOfACatShareAKernel) {
  for (const int64_t n : {int64_t{40}, int64_t{300}}) {
    Graph g;
    GraphBuilder b(g);
    const Value x = g.add_input({DType::f32, {n, 96}}, InputKind::arg, "x");
    std::vector<Value> pieces;
    for (int64_t i = 0; i < n; ++i) {
      const Value row = b.emit(op("slice"), {x}, {Shape{i, 0}, Shape{i + 1, 96}, Ints{1, 1}});
      pieces.push_back(b.emit(op("tanh"), {row}));
    }
    g.add_output(b.emit(op("cat"), pieces, {int64_t{0}}));
    const Graph now = optimize(g);
    for (const Target& t : {Target(host_target()), cuda()}) {
      const LoweredProgram p = lower(now, {}, t, {});
      EXPECT_LE(p.kernels.size(), 4u) << n;  // one of pieces, one per size of cat
    }
    Rng rng{7};
    const Inputs in = {random_tensor(DType::f32, {n, 96}, rng, -2, 2)};
    const CompiledProgram cpu = compile_program(now, {}, host_target(), {}, nullptr, 1);
    const HostTensor got = execute(now, *load(cpu).exe, in, 2)[0];
    EXPECT_EQ(difference(got, evaluate(op("tanh"), in, {}), 64), "");
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
