// SPDX-License-Identifier: Apache-2.0
// Printed matmuls against a plain loop: shapes with tails and nothing in them, every layout, batches,
// symbolic sizes, every packing, split k, prologues and epilogues, halves multiplied in pairs and widened;
// and that tasks may run in any grouping.
#include "codegen/matmul.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <random>

#include "codegen/compile_clang.h"
#include "codegen/schedule.h"
#include "ir/base/error.h"
#include "runtime/image.h"

namespace kiln {
namespace KILN_FILE {

using Symbols = std::map<std::string, int64_t, std::less<>>;
constexpr int kWorkspace = 3;

/// Where an element of an operand lies in its buffer, for the plain loop.
struct Layout {
  int64_t offset = 0, row = 0, col = 0, elements = 0;
  std::vector<int64_t> batch, runs;  ///< strides; of the axes around k
  int64_t at(const std::vector<int64_t>& b, int64_t r, int64_t c) const {
    int64_t index = offset + r * row + c * col;
    for (size_t i = 0; i < b.size(); ++i) index += b[i] * batch[i];
    return index;
  }
};

/// One random matmul: its spec as Dims (some symbolic), the same in numbers, and a schedule.
struct Case {
  MatmulSpec spec;
  MatmulSchedule schedule;
  MatmulHooks hooks;
  Symbols symbols;
  std::vector<int64_t> batch, runs;  ///< sizes; of the axes around k
  int64_t m = 0, n = 0, k = 0;
  Layout a, b, c;
  bool prologue_a = false, prologue_b = false, epilogue = false;
  std::string name;
  MatmulSource source;
  std::vector<Dim> dims;
};

class Maker {
 public:
  explicit Maker(uint32_t seed) : random_(seed) {}

  /// `runs`: axes around k.
  std::unique_ptr<Case> make(const std::string& name, std::optional<DType> half, int runs) {
    auto c = std::make_unique<Case>();
    c->name = name;
    c->spec.dtype = !half && below(3) == 0 ? DType::f64 : DType::f32;
    c->spec.a.half = c->spec.b.half = c->spec.c.half = half;
    c->m = pick({0, 1, 2, 3, 7, 8, 9, 17, 33, 50});
    c->n = pick({0, 1, 2, 7, 8, 15, 16, 17, 31, 33, 48, 64, 100});
    c->k = pick({0, 1, 2, 5, 8, 10, 16, 17, 31, 40, 70});
    const bool symbolic = below(3) == 0;
    const auto dim = [&](const char* symbol, int64_t value) {
      c->symbols[symbol] = value;
      return symbolic && below(2) ? Dim::symbol(symbol) : Dim(value);
    };
    c->spec.m = dim("M", c->m), c->spec.n = dim("N", c->n), c->spec.k = dim("K", c->k);
    for (int axis = below(4); axis > 0; --axis) c->batch.push_back(pick({1, 2, 3}));
    for (size_t i = 0; i < c->batch.size(); ++i) c->spec.batch.push_back(dim(i ? "H" : "B", c->batch[i]));
    if (c->batch.size() == 3) c->batch[2] = c->batch[1], c->spec.batch[2] = c->spec.batch[1];
    c->symbols["H"] = c->batch.size() > 1 ? c->batch[1] : 1;
    for (int i = 0; i < runs; ++i) {
      c->runs.push_back(i == 0 && below(10) == 0 ? 0 : pick({1, 2, 3, 5}));
      c->spec.k_outer.push_back(dim(i == 0 ? "R" : i == 1 ? "S" : "T", c->runs.back()));
    }
    operand(*c, c->spec.a, c->a, {c->spec.m, c->spec.k}, {c->m, c->k}, 0);
    operand(*c, c->spec.b, c->b, {c->spec.k, c->spec.n}, {c->k, c->n}, 1);
    operand(*c, c->spec.c, c->c, {c->spec.m, c->spec.n}, {c->m, c->n}, 2);
    schedule(*c);
    hooks(*c);
    DimTable table;
    c->source = print_matmul(name, c->spec, c->schedule, c->hooks, table, kWorkspace);
    c->dims = table.dims();
    return c;
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  int64_t pick(std::initializer_list<int64_t> list) {
    return list.begin()[below(static_cast<int>(list.size()))];
  }

  void operand(const Case& c, MatmulOperand& o, Layout& l, std::array<Dim, 2> dims,
               std::array<int64_t, 2> sizes, int buffer) {
    o.buffer = buffer;
    const int64_t pad = below(3);
    const int kind = below(5);  // rows contiguous, columns contiguous, neither
    const int64_t unit = kind == 4 ? 2 : 1;
    const bool by_rows = kind < 2 || kind == 4;
    l.offset = below(5), o.offset = Dim(l.offset);
    (by_rows ? l.col : l.row) = unit;
    (by_rows ? l.row : l.col) = unit * sizes[by_rows ? 1 : 0] + pad;
    (by_rows ? o.col_stride : o.row_stride) = Dim(unit);
    (by_rows ? o.row_stride : o.col_stride) = Dim(unit) * dims[by_rows ? 1 : 0] + Dim(pad);
    int64_t stride = std::max<int64_t>(1, sizes[0] * l.row + sizes[1] * l.col);
    for (size_t i = 0; buffer != 2 && i < c.runs.size(); ++i) {
      l.runs.push_back(below(2) ? stride : below(4));  // windows overlap
      o.k_stride.push_back(Dim(l.runs.back()));
      stride += l.runs.back() * std::max<int64_t>(c.runs[i] - 1, 0);
    }
    l.batch.resize(c.batch.size()), o.batch_stride.resize(c.batch.size());
    for (size_t i = c.batch.size(); i-- > 0; stride *= c.batch[i]) {
      const bool broadcast = buffer != 2 && below(4) == 0;
      l.batch[i] = broadcast ? 0 : stride, o.batch_stride[i] = Dim(l.batch[i]);
    }
    l.elements = stride + l.offset;
  }

  void schedule(Case& c) {
    MatmulTarget target;
    target.vector_bytes = std::min<int>(host_target().vector_bytes, static_cast<int>(pick({16, 32, 64})));
    target.vector_registers = target.vector_bytes == 64 ? 32 : 16;
    target.bf16_pairs = host_target().has("avx512bf16") && below(4) != 0;
    MatmulSchedule& s = c.schedule = choose_matmul_schedule(c.spec, target);
    if (below(2)) return;
    s.mr = static_cast<int>(pick({1, 2, 3, 4, 6})), s.nv = static_cast<int>(pick({1, 2, 3}));
    s.mc = s.mr * pick({1, 2, 3}), s.tile_m = s.mc * pick({1, 2, 4});
    s.tile_n = s.nv * s.width * pick({1, 2, 3});
    s.kc = pick({4, 16, 24, 100}), s.split_k = static_cast<int>(pick({1, 1, 2, 3}));
    if (!c.runs.empty())
      s.split_k = static_cast<int>(std::clamp<int64_t>(
          s.split_k, 1, c.spec.k_outer[0].is_const() ? std::max<int64_t>(1, c.runs[0]) : 1));
    s.pack_a = below(2) ? PackA::rows : PackA::cols;
    const bool a_in_place = s.pairs ? c.spec.a.col_stride.is(1) : !c.spec.a.half;
    if ((below(3) == 0 && a_in_place) || !c.runs.empty()) s.pack_a = PackA::none;
    const bool in_place =
        !c.spec.b.half && c.spec.b.col_stride.is(1) && c.spec.n.is_const() && c.n % s.width == 0;
    s.pack_b = !in_place || below(2);
    s.by_rows = !s.pack_b && below(2);
  }

  /// A value computed lane by lane from the coordinates, as fused code would.
  static std::string lanes(const Case& c, const Layout& l, const MatmulVector& v, const std::string& body) {
    std::string at = std::to_string(l.offset);
    for (size_t i = 0; i < v.batch.size(); ++i) at += " + " + v.batch[i] + " * " + std::to_string(l.batch[i]);
    std::string row = "i";
    if (!l.runs.empty()) {
      row = fmt::format("i % {}", c.k);
      int64_t inner = c.k;
      for (size_t axis = c.runs.size(); axis-- > 0; inner *= c.runs[axis])
        at += fmt::format(" + i / {} % {} * {}", inner, c.runs[axis], l.runs[axis]);
    }
    const std::string r = v.along_cols ? "" : " + lane", col = v.along_cols ? " + lane" : "";
    return fmt::format(
        "for (long lane = 0; lane < {}; ++lane) {{\nconst long i = {}{}, j = {}{}, at = {} + {} * {} + j * "
        "{};\n{}\n}}",
        v.lanes, v.row, r, v.col, col, at, row, l.row, l.col, body);
  }

  void hooks(Case& c) {
    const bool fused = below(2);
    c.epilogue = fused && below(2);
    c.prologue_a = fused && c.schedule.pack_a != PackA::none;
    c.prologue_b = fused && c.schedule.pack_b;
    const auto load = [&c](const Layout& l, const char* body) {
      return [&c, &l, body](const MatmulVector& v) { return lanes(c, l, v, v.value + body); };
    };
    if (c.prologue_a)
      c.hooks.prologue_a = load(c.a, "[lane] = ((const T*)buffers[0])[at] + (T)0.125 * (i + j);");
    if (c.prologue_b)
      c.hooks.prologue_b = load(c.b, "[lane] = ((const T*)buffers[1])[at] * 3 - (T)0.25 * (i + j);");
    if (!c.epilogue) return;
    c.hooks.setup = "T* const out0 = (T*)buffers[2];";
    c.hooks.epilogue = [&c](const MatmulVector& v) {
      return lanes(c, c.c, v, "out0[at] = " + v.value + "[lane] * 2 + (T)0.5 * i + (T)0.25 * j;");
    };
  }

  std::mt19937 random_;
};

float to_half(DType t, float x) {
  return t == DType::bf16 ? static_cast<float>(BFloat16(x)) : static_cast<float>(Half(x));
}

template <typename T>
std::vector<T> numbers(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<T> v(static_cast<size_t>(count) + 1);
  for (T& x : v) x = static_cast<T>(static_cast<int>(random() % 2001) - 1000) / 1000;
  return v;
}

/// Every batch index in turn.
template <typename F>
void for_each_batch(const std::vector<int64_t>& sizes, const F& f) {
  int64_t count = 1;
  for (const int64_t s : sizes) count *= s;
  for (int64_t flat = 0; flat < count; ++flat) {
    std::vector<int64_t> b(sizes.size());
    int64_t rest = flat;
    for (size_t i = sizes.size(); i-- > 0; rest /= sizes[i]) b[i] = rest % sizes[i];
    f(b);
  }
}

/// An operand's memory. Halves of odd sizes end at an odd place; what fused code reads or writes is in T.
template <typename T>
class Memory {
 public:
  Memory(std::vector<T> values, std::optional<DType> half) : values_(std::move(values)), half_(half) {
    for (const T x : values_) {
      const auto f = static_cast<float>(x);
      if (half_) bits_.push_back(half_ == DType::bf16 ? BFloat16(f).bits : Half(f).bits);
    }
  }
  void* data() { return half_ ? static_cast<void*>(bits_.data()) : values_.data(); }
  std::vector<T> now() {
    for (size_t i = 0; i < bits_.size(); ++i) {
      BFloat16 b;
      Half h;
      b.bits = h.bits = bits_[i];
      values_[i] = static_cast<T>(half_ == DType::bf16 ? static_cast<float>(b) : static_cast<float>(h));
    }
    return values_;
  }

 private:
  std::vector<T> values_;
  std::optional<DType> half_;
  std::vector<uint16_t> bits_;
};
template <typename T>
Memory<T> memory_a(const Case& c) {
  return {numbers<T>(c.a.elements, 1), c.prologue_a ? std::nullopt : c.spec.a.half};
}
template <typename T>
Memory<T> memory_b(const Case& c) {
  return {numbers<T>(c.b.elements, 2), c.prologue_b ? std::nullopt : c.spec.b.half};
}

/// Runs a case's launches, each in `pieces` ranges of tasks, last range first. Scratch starts as NaN, and
/// ends in guard words. What nobody writes of C stays 12345.
template <typename T>
std::vector<T> run(const Case& c, const LoadedImage& image, int pieces) {
  Memory<T> a = memory_a<T>(c), b = memory_b<T>(c);
  Memory<T> out(std::vector<T>(static_cast<size_t>(c.c.elements) + 1, T(12345)),
                c.epilogue ? std::nullopt : c.spec.c.half);
  std::vector<T> workspace(static_cast<size_t>(c.source.workspace_bytes.eval(c.symbols)) / sizeof(T) + 1,
                           std::numeric_limits<T>::quiet_NaN());
  void* buffers[] = {a.data(), b.data(), out.data(), workspace.data()};
  std::vector<int64_t> dims;
  for (const Dim& d : c.dims) dims.push_back(d.eval(c.symbols));
  for (const MatmulLaunch& launch : c.source.launches) {
    const auto bytes = static_cast<size_t>(launch.scratch_bytes.eval(c.symbols));
    const int64_t tasks = launch.tasks.eval(c.symbols);
    std::unique_ptr<char, void (*)(void*)> scratch(
        static_cast<char*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64)), &std::free);
    std::fill_n(scratch.get(), bytes, '\xff');
    std::fill_n(scratch.get() + bytes, 64, '\x5a');
    for (int piece = pieces - 1; piece >= 0; --piece)
      image.kernel(launch.symbol)(buffers, dims.data(), tasks * piece / pieces, tasks * (piece + 1) / pieces,
                                  scratch.get());
    EXPECT_EQ(std::count(scratch.get() + bytes, scratch.get() + bytes + 64, '\x5a'), 64) << "scratch overrun";
  }
  return out.now();
}

template <typename T>
void check(const Case& c, const LoadedImage& image) {
  SCOPED_TRACE(fmt::format("{}: m {} n {} k {} runs {} batch axes {} half {} prologues {} {} epilogue {} {}",
                           c.name, c.m, c.n, c.k, fmt::join(c.runs, " "), c.batch.size(),
                           c.spec.a.half ? dtype_name(*c.spec.a.half) : "none", c.prologue_a, c.prologue_b,
                           c.epilogue, str(c.schedule)));
  const std::vector<T> a = memory_a<T>(c).now(), b = memory_b<T>(c).now();
  const bool stored_half = c.spec.c.half && !c.epilogue;
  std::vector<double> expected(static_cast<size_t>(c.c.elements) + 1,
                               stored_half ? to_half(*c.spec.c.half, 12345) : 12345);
  std::vector<double> size(expected.size(), 0);
  // Pairs round what a prologue gives; without them it stays what it is.
  const auto packed = [&](double x) { return c.schedule.pairs ? to_half(DType::bf16, float(x)) : x; };
  const int64_t products = std::accumulate(c.runs.begin(), c.runs.end(), c.k, std::multiplies());
  for_each_batch(c.batch, [&](const std::vector<int64_t>& at) {
    for (int64_t i = 0; i < c.m; ++i)
      for (int64_t j = 0; j < c.n; ++j) {
        double sum = 0, magnitude = 1;
        for (int64_t p = 0; p < products; ++p) {
          int64_t x_at = c.a.at(at, i, p % c.k), y_at = c.b.at(at, p % c.k, j), run = p / c.k;
          for (size_t axis = c.runs.size(); axis-- > 0; run /= c.runs[axis]) {
            x_at += run % c.runs[axis] * c.a.runs[axis];
            y_at += run % c.runs[axis] * c.b.runs[axis];
          }
          double x = a[x_at], y = b[y_at];
          if (c.prologue_a) x = packed(static_cast<T>(x + 0.125 * static_cast<double>(i + p)));
          if (c.prologue_b) y = packed(static_cast<T>(T(y * 3) - 0.25 * static_cast<double>(p + j)));
          sum += x * y, magnitude += std::fabs(x * y);
        }
        expected[c.c.at(at, i, j)] = c.epilogue ? sum * 2 + 0.5 * double(i) + 0.25 * double(j) : sum;
        size[c.c.at(at, i, j)] = 2 * magnitude + double(i + j);
      }
  });
  const std::vector<T> got = run<T>(c, image, 1);
  const double unit = std::numeric_limits<T>::epsilon() * (4 + std::sqrt(static_cast<double>(products)));
  const double stored = !stored_half ? 0 : c.spec.c.half == DType::bf16 ? 0x1p-8 : 0x1p-11;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::fabs(double(got[i]) - expected[i]) <=
        unit * size[i] + stored * (std::fabs(expected[i]) + 0x1p-14))
      continue;
    ADD_FAILURE() << "element " << i << ": got " << got[i] << ", expected " << expected[i];
    return;
  }
  EXPECT_EQ(run<T>(c, image, 3), got) << "bits depend on the grouping of tasks";
}

void check_cases(uint32_t seed, int count, std::optional<DType> half, bool runs = false) {
  Maker maker(seed);
  std::vector<std::unique_ptr<Case>> cases;
  std::vector<CpuSource> sources;
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    cases.push_back(maker.make(fmt::format("mm{}", i), half, runs ? 1 + i % 3 : 0));
    if (i % 10 == 0) sources.push_back({fmt::format("mm{}.cpp", i), "", {}});
    sources.back().text += cases.back()->source.text;
    for (const MatmulLaunch& l : cases.back()->source.launches) names.push_back(l.symbol);
  }
  const LoadedImage image(link_shared(compile_objects(sources, host_target(), 2), names));
  for (const auto& c : cases)
    c->spec.dtype == DType::f32 ? check<float>(*c, image) : check<double>(*c, image);
}

TEST(Matmul, AgreesWithAPlainLoop) { check_cases(20, 40, {}); }
TEST(Matmul, ProductsOfManyRunsAgreeWithAPlainLoop) { check_cases(23, 60, {}, true); }
TEST(Matmul, F16IsWidened) { check_cases(21, 20, DType::f16); }
// In pairs where this machine has them, and widened too.
TEST(Matmul, Bf16AgreesWithAPlainLoop) { check_cases(22, 60, DType::bf16); }

/// Compiles one kernel and runs all its tasks over `buffers`.
void run_alone(const MatmulSource& source, void** buffers) {
  const std::vector<CpuSource> sources = {{"mm.cpp", source.text, {}}};
  std::vector<std::string> names;
  for (const MatmulLaunch& l : source.launches) names.push_back(l.symbol);
  const LoadedImage image(link_shared(compile_objects(sources, host_target(), 1), names));
  for (const MatmulLaunch& l : source.launches) {
    std::vector<char> scratch(static_cast<size_t>(l.scratch_bytes.value()) + 64);
    void* aligned = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
    image.kernel(l.symbol)(buffers, nullptr, 0, l.tasks.value(), aligned);
  }
}

MatmulSpec square(int64_t size) {
  MatmulSpec spec;
  spec.m = spec.n = spec.k = Dim(size);
  spec.a = {0, 0, {}, Dim(size), 1}, spec.b = {1, 0, {}, Dim(size), 1}, spec.c = {2, 0, {}, Dim(size), 1};
  return spec;
}

TEST(Matmul, NaNAndInfinityGoThrough) {
  DimTable dims;
  const MatmulSpec spec = square(5);
  const MatmulSource source = print_matmul("mm", spec, choose_matmul_schedule(spec, {16, 16}), {}, dims);
  std::vector<float> a(25, 1.0f), b(25, 1.0f), c(25, 0.0f);
  a[7] = std::numeric_limits<float>::quiet_NaN();  // row 1
  b[3] = std::numeric_limits<float>::infinity();   // column 3
  b[8] = -b[3];
  void* buffers[] = {a.data(), b.data(), c.data()};
  run_alone(source, buffers);
  for (int i = 0; i < 5; ++i)
    for (int j = 0; j < 5; ++j) EXPECT_EQ(std::isnan(c[i * 5 + j]), i == 1 || j == 3) << i << " " << j;
  EXPECT_EQ(c[0], 5.0f);
}

// What a bias gradient needs: sums of columns, one partial row per tile of rows, kept in scratch during a
// task.
TEST(Matmul, TaskHooksCarrySums) {
  constexpr int64_t kSize = 45;
  MatmulSpec spec = square(kSize);
  for (const int split : {1, 2}) {
    MatmulSchedule s = choose_matmul_schedule(spec, {16, 16});
    s.tile_m = s.mc * 2, s.tile_n = s.nv * s.width * 2, s.split_k = split;
    MatmulHooks hooks;
    hooks.setup = "T* const out0 = (T*)buffers[2];\nT* const sums1 = (T*)buffers[4];";
    hooks.scratch_elements = s.tile_n;
    hooks.task_begin = [](const MatmulTask& t) {
      return fmt::format("for (long j = 0; j < {}; ++j) {}[j] = 0;", t.cols, t.scratch);
    };
    hooks.epilogue = [](const MatmulVector& v) {
      return fmt::format(
          "for (long l = 0; l < {0}; ++l) {{\nout0[{1} * 45 + {2} + l] = {3}[l];\n"
          "mm_scratch[{2} - mm_task_col + l] += {3}[l];\n}}",
          v.lanes, v.row, v.col, v.value);
    };
    hooks.task_end = [](const MatmulTask& t) {
      return fmt::format("for (long j = 0; j < {}; ++j) sums1[{} * 45 + {} + j] = {}[j];", t.cols, t.tile_m,
                         t.col, t.scratch);
    };
    DimTable dims;
    const MatmulSource source = print_matmul("mm", spec, s, hooks, dims, kWorkspace);
    std::vector<float> a = numbers<float>(kSize * kSize, 1), b = numbers<float>(kSize * kSize, 2);
    std::vector<float> c(kSize * kSize), sums(kSize * kSize);
    std::vector<char> workspace(static_cast<size_t>(source.workspace_bytes.value()) + 1);
    void* buffers[] = {a.data(), b.data(), c.data(), workspace.data(), sums.data()};
    run_alone(source, buffers);
    for (int64_t j = 0; j < kSize; ++j) {
      double expected = 0, got = 0;
      for (int64_t i = 0; i < kSize; ++i) expected += c[i * kSize + j], got += sums[i * kSize + j];
      EXPECT_NEAR(got, expected, kSize * kSize * std::numeric_limits<float>::epsilon())
          << "column " << j << " split " << split;
      EXPECT_NE(got, 0) << "column " << j;
    }
  }
}

// Weights [out, in] of a transformer block, one attention head and a skinny head of 10 classes.
TEST(Matmul, SchedulesSuitTheirShapes) {
  const MatmulTarget avx512{64, 32, 32 << 10, 1 << 20, 32 << 20};
  const auto choose = [&](int64_t m, int64_t n, int64_t k, bool a_cols, bool b_cols,
                          const MatmulWish& wish = {}) {
    MatmulSpec spec;
    spec.m = Dim(m), spec.n = Dim(n), spec.k = Dim(k);
    spec.a = {0, 0, {}, a_cols ? Dim(1) : Dim(k), a_cols ? Dim(m) : Dim(1)};
    spec.b = {1, 0, {}, b_cols ? Dim(1) : Dim(n), b_cols ? Dim(k) : Dim(1)};
    spec.c = {2, 0, {}, Dim(n), 1};
    return choose_matmul_schedule(spec, avx512, {}, wish);
  };
  const MatmulSchedule fc = choose(1024, 1152, 384, false, true);
  EXPECT_EQ(fc.pack_a, PackA::none);
  EXPECT_TRUE(fc.pack_b);
  EXPECT_EQ(1024 % fc.mr, 0);
  EXPECT_EQ(1152 % (fc.nv * fc.width), 0);
  EXPECT_EQ(fc.kc, 384);
  EXPECT_EQ(fc.split_k, 1);
  EXPECT_EQ(choose(1024, 1024, 1024, true, false).pack_a, PackA::cols) << "colliding columns are copied";
  EXPECT_FALSE(choose(10, 1024, 128, true, false).pack_b) << "two row blocks do not pay for a copy";
  EXPECT_FALSE(choose(64, 64, 4096, false, false).pack_b) << "one panel of whole rows lies as if packed";
  EXPECT_GE(choose(64, 64, 4096, false, false, {.tasks = 1, .split_k = 1}).tile_m, 64) << "one thread's";
  EXPECT_EQ(choose(128, 10, 1024, false, true).nv, 1);
  EXPECT_GE(choose(128, 129, 129, false, true).tile_n, 129) << "48, 48 and 33 columns are not even; rows are";
  EXPECT_GT(choose(16, 16, 65536, true, false).split_k, 4);
}

// One column more than whole vectors costs half a vector, where vectors have halves.
TEST(Matmul, LastColumnsAreHalfAVector) {
  const auto text = [](int64_t n, int vector_bytes, DType dtype) {
    MatmulSpec spec = square(64);
    spec.dtype = dtype;
    spec.n = Dim(n), spec.b.row_stride = spec.c.row_stride = Dim(n);
    DimTable dims;
    const MatmulTarget target{vector_bytes, vector_bytes == 64 ? 32 : 16};
    return print_matmul("mm", spec, choose_matmul_schedule(spec, target), {}, dims).text;
  };
  const auto halves = ::testing::ContainsRegex("micro_[0-9]+x[0-9]+h");
  EXPECT_THAT(text(65, 64, DType::f32), halves);
  EXPECT_THAT(text(72, 64, DType::f32), halves);
  EXPECT_THAT(text(68, 64, DType::f64), halves);
  EXPECT_THAT(text(64, 64, DType::f32), ::testing::Not(halves));
  EXPECT_THAT(text(73, 64, DType::f32), ::testing::Not(halves));
  EXPECT_THAT(text(65, 32, DType::f32), ::testing::Not(halves)) << "they are as fast as their halves";
}

// All columns that the tile allows share one computing of A, and packed B still fits the second cache.
TEST(Matmul, ComputedOperandsHaveWideTiles) {
  MatmulSpec spec;
  spec.m = Dim(1024), spec.n = Dim(384), spec.k = Dim(1536);
  spec.a = {0, 0, {}, Dim(1536), 1}, spec.b = {1, 0, {}, 1, Dim(1536)}, spec.c = {2, 0, {}, Dim(384), 1};
  const MatmulTarget target{64, 32, 32 << 10, 512 << 10, 32 << 20};
  EXPECT_LT(choose_matmul_schedule(spec, target).tile_n, 384);
  const MatmulSchedule s = choose_matmul_schedule(spec, target, {true, false});
  EXPECT_EQ(s.pack_a, PackA::rows);
  EXPECT_EQ(s.tile_n, 384);
  EXPECT_EQ(s.kc % s.width, 0);
  EXPECT_LE(s.kc * s.tile_n * 4, 2 * target.l2_bytes);
}

TEST(Matmul, TasksAndDimsFollowSymbols) {
  MatmulSpec spec = square(64);
  spec.m = Dim::symbol("B");
  MatmulSchedule s = choose_matmul_schedule(spec, {32, 16});
  s.split_k = 2;
  DimTable dims;
  const MatmulSource source = print_matmul("mm", spec, s, {}, dims);
  ASSERT_EQ(source.launches.size(), 2u);
  EXPECT_EQ(source.launches[0].symbol, "mm");
  EXPECT_EQ(source.launches[1].symbol, "mm_combine");
  const int64_t tiles = (1000 + s.tile_m - 1) / s.tile_m * ((64 + s.tile_n - 1) / s.tile_n);
  EXPECT_EQ(source.launches[0].tasks.eval({{"B", 1000}}), 2 * tiles);
  EXPECT_EQ(source.launches[1].tasks.eval({{"B", 1000}}), tiles);
  EXPECT_EQ(source.workspace_bytes.eval({{"B", 1000}}), 2 * 1000 * 64 * 4);
  EXPECT_THAT(dims.dims(), ::testing::Contains(Dim::symbol("B")));
}

TEST(Matmul, RefusesSchedulesThatDoNotFit) {
  MatmulSpec spec = square(64);
  DimTable dims;
  const auto refuse = [&](const MatmulSchedule& s, const char* text) {
    try {
      print_matmul("mm", spec, s, {}, dims);
      ADD_FAILURE() << "accepted; expected: " << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::internal);
      EXPECT_THAT(e.what(), ::testing::HasSubstr(text));
    }
  };
  MatmulSchedule s = choose_matmul_schedule(spec, {});
  s.tile_n += 1;
  refuse(s, "matmul: tiles");
  s = choose_matmul_schedule(spec, {});
  s.pack_b = s.by_rows = true;
  refuse(s, "matmul: tasks by rows need B in place");
  s = choose_matmul_schedule(spec, {});
  s.pack_b = false, spec.b.col_stride = Dim(2);
  refuse(s, "matmul: B must be packed");
  spec.batch = {Dim(2)};
  refuse(choose_matmul_schedule(spec, {}), "matmul: batch strides and batch axes differ");
  spec.dtype = DType::i32;
  refuse(choose_matmul_schedule(spec, {}), "matmul of i32");
}

}  // namespace KILN_FILE
}  // namespace kiln
