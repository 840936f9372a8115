// SPDX-License-Identifier: Apache-2.0
// Printed CUDA matmuls on the simulated device against one chain of multiply-adds for each element: odd
// sizes, every layout, batches, symbolic sizes, every schedule, split k, prologues and epilogues, NaN and
// infinity.
#include "codegen/matmul_cuda.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "codegen/compile_nvrtc.h"
#include "codegen/compile_sim.h"
#include "codegen/schedule.h"
#include "ir/base/error.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/sim.h"

namespace kiln {
namespace KILN_FILE {

constexpr int kWorkspace = 3, kBuffers = 4;

/// Elements of any floating type in bytes.
class Values {
 public:
  Values(DType t, size_t n) : type_(t), room_(n + 4) {}
  void* data() { return room_.data(); }
  size_t bytes() const { return room_.size() * sizeof(Room); }
  double get(int64_t i) const {
    const char* p = reinterpret_cast<const char*>(room_.data()) + i * static_cast<int64_t>(dtype_size(type_));
    switch (type_) {
      case DType::f64: return read<double>(p);
      case DType::f32: return read<float>(p);
      case DType::bf16: return static_cast<float>(read<BFloat16>(p));
      default: return static_cast<float>(read<Half>(p));
    }
  }
  void set(int64_t i, double x) {
    char* p = reinterpret_cast<char*>(room_.data()) + i * static_cast<int64_t>(dtype_size(type_));
    switch (type_) {
      case DType::f64: return write(p, x);
      case DType::f32: return write(p, static_cast<float>(x));
      case DType::bf16: return write(p, BFloat16(static_cast<float>(x)));
      default: return write(p, Half(static_cast<float>(x)));
    }
  }

 private:
  template <typename T>
  static T read(const char* p) {
    T x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
  template <typename T>
  static void write(char* p, T x) {
    std::memcpy(p, &x, sizeof x);
  }
  struct alignas(16) Room {
    double x;
  };
  DType type_;
  std::vector<Room> room_;
};

struct Problem {
  DType dtype = DType::f32;
  int64_t m = 1, n = 1, k = 1;
  std::vector<int64_t> batch;
  bool turn_a = false, turn_b = false, turn_c = false;  ///< the first index is the one whose stride is 1
  int64_t apart = 0;                                    ///< further elements between rows
  int64_t offset = 0;                                   ///< of every operand
  bool symbolic = false;                                ///< all sizes are
  bool strange = false;                                 ///< NaN and infinity among the operands
  bool broadcast_b = false;                             ///< B is the same for all batches
  std::vector<int64_t> runs;                            ///< axes around k, which then is one run's
};

int64_t count(const std::vector<int64_t>& v) {
  int64_t n = 1;
  for (const int64_t x : v) n *= x;
  return n;
}

int64_t products(const Problem& p) { return count(p.runs) * p.k; }

using Symbols = std::map<std::string, int64_t, std::less<>>;

/// The spec of a problem; symbolic sizes go into `symbols`.
MatmulSpec shape_of(const Problem& p, Symbols* symbols = nullptr) {
  MatmulSpec spec;
  const auto size = [&](const std::string& name, int64_t n) {
    if (!p.symbolic) return Dim(n);
    (*symbols)[name] = n;
    return Dim::symbol(name);
  };
  const auto operand = [&](int buffer, const Dim& rows, const Dim& cols, bool turned, bool broadcast) {
    MatmulOperand o{buffer, p.offset, std::vector<Dim>(spec.batch.size()), 1, 1};
    const Dim line = (turned ? rows : cols) + Dim(p.apart);
    (turned ? o.col_stride : o.row_stride) = line;
    Dim stride = line * (turned ? cols : rows);
    for (size_t i = spec.batch.size(); i-- > 0; stride = stride * spec.batch[i])
      o.batch_stride[i] = broadcast ? Dim(0) : stride;
    return o;
  };
  spec.dtype = p.dtype;
  spec.m = size("M", p.m), spec.n = size("N", p.n), spec.k = size("K", p.k);
  for (size_t i = 0; i < p.batch.size(); ++i) spec.batch.push_back(size(fmt::format("B{}", i), p.batch[i]));
  spec.a = operand(0, spec.m, spec.k, p.turn_a, false);
  spec.b = operand(1, spec.k, spec.n, p.turn_b, p.broadcast_b);
  spec.c = operand(2, spec.m, spec.n, p.turn_c, false);
  // Runs of A begin twice as far apart as they are long, in an order of their own.
  for (size_t i = 0; i < p.runs.size(); ++i) spec.k_outer.push_back(size(fmt::format("R{}", i), p.runs[i]));
  spec.a.k_stride = spec.b.k_stride = std::vector<Dim>(p.runs.size());
  Dim all(1), turned = spec.k * Dim(2);
  for (size_t i = p.runs.size(); i-- > 0; all = all * spec.k_outer[i])
    spec.b.k_stride[i] = all * spec.k * spec.b.row_stride;
  for (size_t i = 0; i < p.runs.size(); turned = turned * spec.k_outer[i++])
    spec.a.k_stride[i] = turned * spec.a.col_stride;
  return spec;
}

/// A problem with its operands laid out and filled.
struct Case {
  Problem p;
  Symbols symbols;
  MatmulSpec spec;
  Values a, b, c;

  explicit Case(const Problem& problem)
      : p(problem),
        spec(shape_of(p, &symbols)),
        a(p.dtype, elements(p.m, p.k, p.turn_a) * runs()),
        b(p.dtype, elements(p.k, p.n, p.turn_b) * runs()),
        c(p.dtype, elements(p.m, p.n, p.turn_c)) {
    std::mt19937 random(3);
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (auto* v : {&a, &b})
      for (size_t i = 0, n = (v == &a ? elements(p.m, p.k, p.turn_a) : elements(p.k, p.n, p.turn_b)) * runs();
           i < n; ++i)
        v->set(static_cast<int64_t>(i),
               p.strange && random() % 97 == 0 ? random() % 2 ? NAN : INFINITY : uniform(random));
    for (size_t i = 0; i < elements(p.m, p.n, p.turn_c); ++i) c.set(static_cast<int64_t>(i), 77);
  }
  int64_t value(const Dim& d) const { return d.eval(symbols); }
  int64_t at(const MatmulOperand& o, const std::vector<int64_t>& index, int64_t row, int64_t col) const {
    int64_t i = value(o.offset) + row * value(o.row_stride) + col * value(o.col_stride);
    for (size_t j = 0; j < index.size(); ++j) i += index[j] * value(o.batch_stride[j]);
    return i;
  }
  /// The same of A or B, with `k` an index over all runs.
  int64_t at_k(const MatmulOperand& o, const std::vector<int64_t>& index, int64_t line, int64_t k) const {
    const bool is_a = &o == &spec.a;
    int64_t i = is_a ? at(o, index, line, k % p.k) : at(o, index, k % p.k, line);
    k /= p.k;
    for (size_t j = p.runs.size(); j-- > 0; k /= p.runs[j]) i += k % p.runs[j] * value(o.k_stride[j]);
    return i;
  }

 private:
  size_t runs() const { return static_cast<size_t>(p.runs.empty() ? 1 : 2 * count(p.runs)); }
  size_t elements(int64_t rows, int64_t cols, bool turned) const {
    const int64_t line = (turned ? rows : cols) + p.apart;
    return static_cast<size_t>(p.offset + count(p.batch) * line * (turned ? cols : rows) + 1);
  }
};

/// What fused code does to a value, and how it is written.
struct Fused {
  MatmulHooks hooks;
  double (*a)(double, int64_t row, int64_t col) = nullptr;
  double (*b)(double, int64_t row, int64_t col) = nullptr;
  double (*c)(double, int64_t row, int64_t col) = nullptr;
};

template <typename T>
T rounded(T x, const Case& t, const CudaMatmulSchedule& s) {
  if (t.p.dtype == DType::bf16) return static_cast<float>(BFloat16(static_cast<float>(x)));
  if (t.p.dtype == DType::f16) return static_cast<float>(Half(static_cast<float>(x)));
  if (!s.tensor || !std::isfinite(x)) return x;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(static_cast<float>(x)) + 0x1000u) & ~0x1fffu);
}

template <typename T>
T reference(const Case& t, const CudaMatmulSchedule& s, const Fused& f, const std::vector<int64_t>& index,
            int64_t row, int64_t col) {
  const int64_t all = products(t.p), range = ((all + s.split_k - 1) / s.split_k + 63) / 64 * 64;
  T sum = 0;
  for (int64_t part = 0; part < s.split_k; ++part) {
    T chain = 0;
    for (int64_t k = part * range; k < std::min(all, (part + 1) * range); ++k) {
      double x = t.a.get(t.at_k(t.spec.a, index, row, k)), y = t.b.get(t.at_k(t.spec.b, index, col, k));
      if (f.a) x = f.a(x, row, k);
      if (f.b) y = f.b(y, k, col);
      chain = std::fma(rounded(static_cast<T>(x), t, s), rounded(static_cast<T>(y), t, s), chain);
    }
    sum = part == 0 ? chain : sum + chain;
  }
  return f.c ? static_cast<T>(f.c(sum, row, col)) : sum;
}

/// The simulated device, which finds what races and what is out of its place.
class Device {
 public:
  Device() {
    cuda::sim::reset({});
    cuda::set_sim_compile([](const CudaModule& m) {
      DiskCache cache;
      return compile_sim(m, &cache);
    });
    cuda::Context context = nullptr;
    ok(d_.init(0));
    ok(d_.context_retain(&context, 0));
    ok(d_.context_set(context));
  }
  ~Device() { cuda::sim::reset({}); }
  void ok(cuda::Result r) const {
    if (r != cuda::kSuccess) throw std::runtime_error(fmt::format("error {}: {}", r, d_.fault()));
  }
  cuda::Address put(const void* from, size_t bytes) {
    cuda::Address at = 0;
    ok(d_.allocate(&at, bytes));
    if (from) ok(d_.copy_to_device(at, from, bytes, nullptr));
    return at;
  }
  void get(void* to, cuda::Address from, size_t bytes) {
    ok(d_.copy_to_host(to, from, bytes, nullptr));
    ok(d_.context_synchronize());
  }
  cuda::Module load(const CudaMatmulSource& source, size_t dims) {
    CudaModule module{"test.cu", source.text, "", {}};
    for (const CudaMatmulLaunch& l : source.launches)
      module.kernels.push_back({l.symbol, l.threads, kBuffers, static_cast<int>(dims)});
    cuda::Module m = nullptr;
    ok(d_.load_source(&m, module));
    return m;
  }
  void launch(cuda::Module m, const CudaMatmulLaunch& l, int64_t tasks, std::vector<uint64_t>& parameters,
              const std::vector<cuda::DeclaredAccess>& touched) {
    if (tasks == 0) return;
    cuda::Function f = nullptr;
    ok(d_.module_function(&f, m, l.symbol.c_str()));
    const auto shared = static_cast<unsigned>(l.shared_bytes), threads = static_cast<unsigned>(l.threads);
    if (shared > 48 << 10) ok(d_.function_set(f, cuda::kFunctionMaxDynamicShared, static_cast<int>(shared)));
    ok(d_.declare(touched.data(), touched.size()));
    void* block[] = {parameters.data()};
    ok(d_.launch(f, static_cast<unsigned>(tasks), 1, 1, threads, 1, 1, shared, nullptr, block, nullptr));
    ok(d_.context_synchronize());
  }

 private:
  const cuda::Driver& d_ = cuda::simulated_driver();
};

void run(Case& t, const CudaMatmulSource& source, const std::vector<Dim>& dims) {
  Device device;
  const cuda::Module module = device.load(source, dims.size());
  const auto workspace = static_cast<size_t>(std::max<int64_t>(16, t.value(source.workspace_bytes)));
  const cuda::Address a = device.put(t.a.data(), t.a.bytes()), b = device.put(t.b.data(), t.b.bytes()),
                      c = device.put(t.c.data(), t.c.bytes()), w = device.put(nullptr, workspace);
  std::vector<uint64_t> parameters = {a, b, c, w};
  for (const Dim& d : dims) parameters.push_back(static_cast<uint64_t>(t.value(d)));
  if (dims.empty()) parameters.push_back(0);
  parameters.push_back(0);  // no guard
  for (size_t i = 0; i < source.launches.size(); ++i) {
    const bool last = i + 1 == source.launches.size(), first = i == 0;
    device.launch(module, source.launches[i], t.value(source.launches[i].tasks), parameters,
                  {{a, t.a.bytes(), first, false, "a"},
                   {b, t.b.bytes(), first, false, "b"},
                   {c, t.c.bytes(), false, last, "c"},
                   {w, workspace, !first, !last, "workspace"}});
  }
  device.get(t.c.data(), c, t.c.bytes());
}

template <typename T>
void compare(Case& t, const CudaMatmulSchedule& s, const Fused& f) {
  int wrong = 0;
  for (int64_t flat = 0; flat < count(t.p.batch) && wrong < 5; ++flat) {
    std::vector<int64_t> index(t.p.batch.size());
    int64_t rest = flat;
    for (size_t i = index.size(); i-- > 0; rest /= t.p.batch[i]) index[i] = rest % t.p.batch[i];
    for (int64_t row = 0; row < t.p.m; ++row)
      for (int64_t col = 0; col < t.p.n && wrong < 5; ++col) {
        Values want(t.p.dtype, 1);
        want.set(0, reference<T>(t, s, f, index, row, col));
        const double x = t.c.get(t.at(t.spec.c, index, row, col)), y = want.get(0);
        if (x == y || (std::isnan(x) && std::isnan(y))) continue;
        ++wrong;
        ADD_FAILURE() << fmt::format("batch {} row {} col {}: {}, not {}", flat, row, col, x, y);
      }
  }
}

void check(const Problem& p, const CudaMatmulSchedule& s, const Fused& f = {}) {
  SCOPED_TRACE(fmt::format("{} {} {} x {} x {} runs {} batch {} turned {}{}{} apart {} offset {} {}", str(s),
                           dtype_name(p.dtype), p.m, p.n, p.k, fmt::join(p.runs, ","),
                           fmt::join(p.batch, ","), p.turn_a, p.turn_b, p.turn_c, p.apart, p.offset,
                           p.symbolic ? "symbolic" : ""));
  Case t(p);
  DimTable dims;
  const CudaMatmulSource source = print_matmul_cuda("k", t.spec, s, f.hooks, dims, kBuffers, kWorkspace);
  try {
    run(t, source, dims.dims());
  } catch (const std::exception& e) {
    FAIL() << e.what() << "\n" << source.text;
  }
  if (p.dtype == DType::f64) compare<double>(t, s, f);
  else compare<float>(t, s, f);
}

CudaMatmulSchedule small(DType t, bool tf32 = false) {
  CudaMatmulTarget target;
  target.tf32 = tf32;
  for (const CudaMatmulSchedule& s : cuda_matmul_schedules(t, target))
    if (s.tile_m == 32 && s.tile_n == 64) return s;
  return {};
}

constexpr DType kTypes[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

TEST(CudaMatmul, OddSizesInEveryLayout) {
  for (const DType t : kTypes)
    for (const bool a : {false, true})
      for (const bool b : {false, true})
        for (const auto& [m, n, k] :
             {std::array<int64_t, 3>{7, 33, 129}, {65, 8, 16}, {1, 1, 1}, {33, 129, 7}})
          check({.dtype = t, .m = m, .n = n, .k = k, .turn_a = a, .turn_b = b}, small(t));
}

TEST(CudaMatmul, OddSizesInEveryLayoutAsTf32) {
  for (const bool a : {false, true})
    for (const bool b : {false, true})
      for (const auto& [m, n, k] : {std::array<int64_t, 3>{7, 33, 129}, {65, 8, 16}, {1, 1, 1}})
        check({.m = m, .n = n, .k = k, .turn_a = a, .turn_b = b}, small(DType::f32, true));
}

TEST(CudaMatmul, EveryScheduleOfEveryType) {
  for (const bool tf32 : {false, true})
    for (const DType t : kTypes) {
      CudaMatmulTarget target;
      target.tf32 = tf32;
      if (tf32 && t != DType::f32) continue;
      for (const CudaMatmulSchedule& s : cuda_matmul_schedules(t, target)) {
        check({.dtype = t, .m = 131, .n = 130, .k = 70}, s);
        check({.dtype = t, .m = s.tile_m + 1L, .n = s.tile_n * 2L, .k = 64, .turn_a = true, .turn_b = true},
              s);
      }
    }
}

TEST(CudaMatmul, LargerThanAnyTile) {
  check({.m = 257, .n = 129, .k = 33}, cuda_matmul_schedules(DType::f32, {})[0]);
  check({.dtype = DType::bf16, .m = 257, .n = 129, .k = 257}, cuda_matmul_schedules(DType::bf16, {})[0]);
}

TEST(CudaMatmul, BatchesAndBroadcasts) {
  for (const DType t : kTypes) {
    check({.dtype = t, .m = 9, .n = 20, .k = 12, .batch = {3, 2}}, small(t));
    check({.dtype = t, .m = 8, .n = 16, .k = 16, .batch = {5}, .turn_b = true, .broadcast_b = true},
          small(t));
    check({.dtype = t, .m = 9, .n = 20, .k = 12, .batch = {3, 2}, .turn_c = true}, small(t));
  }
}

TEST(CudaMatmul, RowsApartAndOffsets) {
  for (const DType t : {DType::f32, DType::bf16})
    for (const int64_t apart : {0, 1, 4, 8})
      for (const int64_t offset : {0, 2, 3, 8})
        check({.dtype = t, .m = 8, .n = 40, .k = 24, .turn_b = true, .apart = apart, .offset = offset},
              small(t));
}

TEST(CudaMatmul, SymbolicSizes) {
  for (const DType t : kTypes)
    for (const int64_t n : {0, 1, 17, 64})
      check({.dtype = t, .m = n, .n = 30, .k = n + 3, .batch = {2}, .symbolic = true}, small(t));
}

TEST(CudaMatmul, NothingToSumIsZero) {
  for (const DType t : kTypes) check({.dtype = t, .m = 5, .n = 8, .k = 0}, small(t));
}

TEST(CudaMatmul, NanAndInfinityGoWhereTheyBelong) {
  for (const DType t : kTypes) check({.dtype = t, .m = 40, .n = 70, .k = 30, .strange = true}, small(t));
  check({.m = 40, .n = 70, .k = 30, .strange = true}, small(DType::f32, true));
}

TEST(CudaMatmul, RangesOfKAreSummedInOrder) {
  for (const DType t : kTypes)
    for (const int split : {2, 3, 7}) {
      CudaMatmulSchedule s = small(t);
      s.split_k = split;
      check({.dtype = t, .m = 33, .n = 20, .k = 300, .batch = {2}}, s);
      check({.dtype = t, .m = 5, .n = 7, .k = 129}, s);  // the last range is empty
      check({.dtype = t, .m = 5, .n = 8, .k = 200, .turn_c = true, .symbolic = true}, s);
    }
}

double value_of_place(double, int64_t row, int64_t col) {
  return 0.25 * static_cast<double>(row) - 0.5 * static_cast<double>(col);
}
/// Prologues that give a value of their place, an epilogue that adds one and stores; as text for any width.
Fused fused(const Problem& p, bool a, bool b, bool c, int width) {
  Fused f;
  const auto place = [](const MatmulVector& v) {
    const char* const text = v.along_cols ? "(broadcast<{0}>(T({1}) * T(0.25)) - iota<{0}>(T({2})) * T(0.5))"
                                          : "(iota<{0}>(T({1})) * T(0.25) - broadcast<{0}>(T({2}) * T(0.5)))";
    return fmt::format(fmt::runtime(text), v.width, v.row, v.col);
  };
  f.hooks.setup = "const T in0_one = T(1);\n(void)in0_one;\n";
  const auto assign = [place](const MatmulVector& v) {
    return fmt::format("{} = {} * in0_line;\n", v.value, place(v));
  };
  const auto line = [](const MatmulVector&) { return std::string("const T in0_line = in0_one;\n"); };
  if (a) f.hooks.prologue_a = assign, f.hooks.line_a = line, f.a = value_of_place;
  if (b) f.hooks.prologue_b = assign, f.hooks.line_b = line, f.b = value_of_place;
  if (c) f.c = [](double x, int64_t row, int64_t col) { return x * 2 + value_of_place(0, row, col); };
  if (c)
    f.hooks.epilogue = [place, p](const MatmulVector& v) {
      std::string index = "0";
      for (size_t i = 0; i < v.batch.size(); ++i)
        index = fmt::format("({} * {} + {})", index, p.batch[i], v.batch[i]);
      return fmt::format(
          "const V sum_0 = {} * T(2) + {};\nstore<{}>(static_cast<S*>(buffers[2]) + ({} * {} + {}) * {} + "
          "{}, sum_0);\n",
          v.value, place(v), v.width, index, p.m, v.row, p.n, v.col);
    };
  f.hooks.width_a = f.hooks.width_b = f.hooks.width_c = width;
  return f;
}

TEST(CudaMatmul, ProloguesAndEpilogueSeeEveryElementOnceInItsPlace) {
  for (const DType t : {DType::f32, DType::f64, DType::bf16})
    for (const int width : {1, 4})
      for (const int split : {1, 2})
        for (const bool turn : {false, true}) {
          const Problem p = {
              .dtype = t, .m = 34, .n = 68, .k = 20, .batch = {2}, .turn_a = turn, .turn_b = turn};
          CudaMatmulSchedule s = small(t);
          s.split_k = split;
          if (t == DType::f32) check(p, s, fused(p, true, false, false, width));
          if (t == DType::f32) check(p, s, fused(p, false, true, true, width));
          check(p, s, fused(p, true, true, true, width));
        }
}

TEST(CudaMatmul, RunsOfKLieWhereTheyLie) {
  for (const DType t : {DType::f32, DType::bf16})
    for (const auto& [k, runs] : std::initializer_list<std::pair<int64_t, std::vector<int64_t>>>{
             {3, {5}}, {16, {3}}, {33, {2, 2, 2}}, {0, {3}}}) {
      const bool odd = k % 2 == 1;
      check({.dtype = t, .m = 34, .n = 36, .k = k, .turn_a = odd, .runs = runs}, small(t));
      check({.dtype = t, .m = 9, .n = 7, .k = k, .turn_b = true, .symbolic = odd, .runs = runs}, small(t));
    }
  check({.m = 34, .n = 36, .k = 24, .runs = {3}}, small(DType::f32, true));
}

TEST(CudaMatmul, RunsOfKAreSplitAndFused) {
  for (const DType t : {DType::f32, DType::f64, DType::bf16})
    for (const int split : {1, 3}) {
      CudaMatmulSchedule s = small(t);
      s.split_k = split;
      const Problem p = {.dtype = t, .m = 34, .n = 68, .k = 20, .batch = {2}, .runs = {3, 3}};
      check(p, s);
      check(p, s, fused(p, false, true, true, 4));
    }
}

TEST(CudaMatmul, RowsOfManyMatricesAreRowsOfOne) {
  const Problem p = {.m = 5, .n = 68, .k = 20, .batch = {3, 4}, .broadcast_b = true};
  EXPECT_THAT(cuda_row_axes(shape_of(p)), ::testing::ElementsAre(0, 1));
  EXPECT_EQ(choose_cuda_matmul_schedule(shape_of(p), {}).tile_m,
            choose_cuda_matmul_schedule(shape_of({.m = 60, .n = 68, .k = 20}), {}).tile_m);
  for (const DType t : {DType::f32, DType::bf16})
    for (const bool turn : {false, true}) {
      CudaMatmulSchedule s = small(t);
      s.split_k = turn ? 2 : 1;
      Problem q = p;
      q.dtype = t, q.turn_a = turn;
      check(q, s);
      check(q, s, fused(q, true, false, true, 4));
      q.symbolic = true, q.runs = {2};
      check(q, s);
      q.turn_c = true;  // columns of C side by side: every matrix by itself
      check(q, s);
    }
  EXPECT_THAT(cuda_row_axes(shape_of({.m = 5, .n = 6, .k = 2, .batch = {3, 4}})), ::testing::IsEmpty());
}

/// Every schedule in two layouts, with and without an epilogue, and over windows, as machine code.
std::vector<CudaModule> all_schedules() {
  std::vector<CudaModule> modules;
  for (const bool tf32 : {false, true})
    for (const DType t : kTypes) {
      CudaMatmulTarget target;
      target.tf32 = tf32;
      if (tf32 && t != DType::f32) continue;
      const auto add = [&](const char* what, const Problem& p, const CudaMatmulSchedule& s, const Fused& f) {
        DimTable dims;
        const CudaMatmulSource source = print_matmul_cuda(fmt::format("k{}", modules.size()), shape_of(p), s,
                                                          f.hooks, dims, kBuffers, kWorkspace);
        modules.push_back({fmt::format("{}{} {}", what, dtype_name(t), str(s)), source.text, "", {}});
        for (const CudaMatmulLaunch& l : source.launches)
          modules.back().kernels.push_back(
              {l.symbol, l.threads, kBuffers, static_cast<int>(dims.dims().size())});
      };
      for (CudaMatmulSchedule s : cuda_matmul_schedules(t, target)) {
        Problem p = {.dtype = t, .m = 512, .n = 512, .k = 512, .turn_b = true};
        add("", p, s, {});
        p.turn_a = true, p.turn_b = false, s.split_k = 2;
        add("turned ", p, s, fused(p, true, false, true, 4));
        p = {.dtype = t, .m = 32, .n = 64, .k = 64, .batch = {8, 32}, .broadcast_b = true, .runs = {3, 3}};
        s.split_k = 1;
        add("windows ", p, s, fused(p, false, false, true, 4));
      }
    }
  return modules;
}

TEST(CudaMatmulCode, NoScheduleSpills) {
  std::string why;
  if (!nvrtc_available(&why)) GTEST_SKIP() << why;
  for (const std::string arch : {"sm_80", "sm_90a", "sm_100a"}) {
    std::vector<CudaModule> modules;
    size_t at = 0;
    for (CudaModule& m : all_schedules())  // of the others every fifth, of all types and both layouts
      if (arch == "sm_90a" || at++ % 5 == 0) modules.push_back(std::move(m));
    DiskCache cache;
    compile_cuda(modules, arch, &cache, 2);
    for (const CudaModule& m : modules)
      for (const CudaKernel& k : m.kernels) {
        EXPECT_EQ(k.spill_bytes, 0) << arch << " " << m.name;
        // Two blocks to a multiprocessor, unless a prologue or the indices of windows need more.
        const bool more = m.name.starts_with("turned") || m.name.starts_with("windows");
        EXPECT_LE(k.registers * k.threads, more ? 65536 : 32768) << arch << " " << m.name;
      }
  }
}

TEST(CudaMatmulSchedules, FollowTheShape) {
  const auto chosen = [](const Problem& p, bool tf32 = false) {
    CudaMatmulTarget target;
    target.tf32 = tf32;
    return choose_cuda_matmul_schedule(shape_of(p), target);
  };
  const CudaMatmulSchedule large = chosen({.m = 4096, .n = 4096, .k = 64});
  EXPECT_EQ(large.tile_m, 128);
  EXPECT_EQ(large.tile_n, 128);
  EXPECT_FALSE(large.tensor);
  EXPECT_EQ(large.split_k, 1);
  EXPECT_TRUE(chosen({.m = 256, .n = 256, .k = 64}, true).tensor);
  EXPECT_TRUE(chosen({.dtype = DType::bf16, .m = 256, .n = 256, .k = 64}).tensor);
  EXPECT_FALSE(chosen({.dtype = DType::f64, .m = 256, .n = 256, .k = 64}, true).tensor);
  EXPECT_GT(chosen({.m = 64, .n = 64, .k = 16384}).split_k, 4) << "few tiles: ranges of k fill the device";
  EXPECT_LE(chosen({.m = 1, .n = 512, .k = 64}).tile_m, 8);
  for (const DType t : kTypes)
    for (const CudaMatmulSchedule& s : cuda_matmul_schedules(t, {})) {
      EXPECT_EQ(parse_cuda_matmul_schedule(str(s)), s);
      EXPECT_LE(s.threads(), 256);
    }
  EXPECT_FALSE(parse_cuda_matmul_schedule("cuda_matmul simt split_k=1; tile=48x64x8 part=5x4 stages=4"));
  CudaMatmulTarget small_shared;
  small_shared.shared_per_block = 48 << 10;
  for (const CudaMatmulSchedule& s : cuda_matmul_schedules(DType::bf16, small_shared))
    EXPECT_LE((s.tile_m + s.tile_n) * s.tile_k * 2 * s.stages, 48 << 10) << str(s);
  EXPECT_FALSE(cuda_matmul_schedules(DType::bf16, small_shared).empty());
}

}  // namespace KILN_FILE
}  // namespace kiln
