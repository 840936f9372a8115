// SPDX-License-Identifier: Apache-2.0
// Puts a CUDA matmul together from the parts of prelude/cuda_matmul.h: which tile a block computes, how each
// operand reaches shared memory, the pipeline, the epilogue; and the second kernel that sums the ranges of a
// split k.
#include "codegen/matmul_cuda.h"

#include <algorithm>

#include "codegen/source_text.h"
#include "ir/base/error.h"

namespace kiln {

namespace {

constexpr int64_t kRangeUnit = 64;  // ranges of a split k are multiples: of every tile_k and vector
constexpr int kCombineThreads = 256;

const char* storage_of(DType t) {
  switch (t) {
    case DType::f64: return "f64";
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    default: return "f32";
  }
}
const char* sum_of(DType t) { return t == DType::f64 ? "f64" : "f32"; }
int64_t sum_size(DType t) { return t == DType::f64 ? 8 : 4; }

/// The most elements, up to `most`, that divide all of `all`.
int common_width(int most, const std::vector<Dim>& all) {
  while (most > 1 && !std::all_of(all.begin(), all.end(), [&](const Dim& d) { return divisible(d, most); }))
    most /= 2;
  return most;
}

/// One operand's way into shared memory.
struct Side {
  char name;  ///< 'a' or 'b'
  const MatmulOperand& at;
  const MatmulHook& hook;
  const MatmulHook& line;
  Dim line_stride, k_stride;  ///< a line is a row of A or a column of B
  Dim lines;                  ///< m or n
  int tile_lines;
  bool by_k;      ///< the tile is [line][k], else [k][line]
  bool fast_k;    ///< neighbours in memory lie along k
  int width = 1;  ///< of a vector, along what is fast
  bool async;     ///< copied by the hardware
};

struct CudaPrinter {
  const MatmulSpec& spec;
  const CudaMatmulSchedule& s;
  const MatmulHooks& hooks;
  DimTable& dims;
  int workspace;
  SourceText out{};

  void check() const;
  Side side(char which) const;
  std::string tile_type(const Side& x) const;
  int64_t tile_elements(const Side& x) const;
  int64_t shared_bytes() const { return std::max(stage_bytes() * s.stages, staged() ? slice_bytes() : 0); }
  bool staged() const;
  int64_t slice_bytes() const;
  int store_width(const MatmulOperand& c, bool fused, bool registers) const;
  bool split() const { return s.split_k > 1; }
  Dim elements() const { return numel(spec.batch) * spec.m * spec.n; }  ///< of C
  int64_t size() const { return static_cast<int64_t>(dtype_size(spec.dtype)); }
  int64_t stage_bytes() const { return (tile_elements(side('a')) + tile_elements(side('b'))) * size(); }
  std::string step(const std::string& index, const Dim& stride) const;
  std::string batch_offset(const MatmulOperand& o) const;
  std::vector<std::string> batch_names() const;
  std::string k_range() const { return dims.text(range()); }
  Dim range() const { return ceildiv(ceildiv(spec.k, Dim(s.split_k)), Dim(kRangeUnit)) * Dim(kRangeUnit); }
  void print_sizes();
  void print_batch_indices();
  void print_types();
  void print_place();
  void print_fill(const Side& x);
  void print_fill_body(const Side& x);
  std::string call(const MatmulHook& line, const MatmulHook& hook, bool along_cols, int width) const;
  void print_epilogue(int width);
  void print_store(const MatmulOperand& c, const char* type, const std::string& more, int width);
  void print_main();
  void print_staged();
  void print_from_registers();
  void print_combine();
};

void CudaPrinter::check() const {
  const auto fits = [&](const MatmulOperand& o) { return o.batch_stride.size() == spec.batch.size(); };
  KILN_ASSERT(is_floating(spec.dtype), "matmul of {}", dtype_name(spec.dtype));
  KILN_ASSERT(fits(spec.a) && fits(spec.b) && fits(spec.c), "matmul: batch strides and batch axes differ");
  KILN_ASSERT(!hooks.task_begin && !hooks.task_end, "matmul: hooks for tasks are not for CUDA");
  const bool narrow = dtype_size(spec.dtype) == 2;
  KILN_ASSERT(s.tensor ? spec.dtype != DType::f64 : !narrow, "matmul: {} {} tensor cores",
              dtype_name(spec.dtype), s.tensor ? "on" : "without");
  KILN_ASSERT(is_sound(s) && (!s.tensor || s.tile_k % (narrow ? 16 : 8) == 0),
              "matmul: tiles {}x{}x{} of parts {}x{}", s.tile_m, s.tile_n, s.tile_k, s.part_m, s.part_n);
}

Side CudaPrinter::side(char which) const {
  const bool is_a = which == 'a';
  const MatmulOperand& o = is_a ? spec.a : spec.b;
  const MatmulHook& hook = is_a ? hooks.prologue_a : hooks.prologue_b;
  Side x{which,
         o,
         hook,
         is_a ? hooks.line_a : hooks.line_b,
         is_a ? o.row_stride : o.col_stride,
         is_a ? o.col_stride : o.row_stride,
         is_a ? spec.m : spec.n,
         is_a ? s.tile_m : s.tile_n,
         false,
         false,
         1,
         false};
  x.fast_k = x.k_stride.is(1) && !x.line_stride.is(1);
  x.by_k = s.tensor && x.fast_k;
  const bool unit = x.k_stride.is(1) || x.line_stride.is(1);
  const int most = hook ? (is_a ? hooks.width_a : hooks.width_b) : unit ? static_cast<int>(16 / size()) : 1;
  std::vector<Dim> aligned = {x.fast_k ? spec.k : x.lines};
  if (!hook) {
    aligned.insert(aligned.end(), {o.offset, x.fast_k ? x.line_stride : x.k_stride});
    aligned.insert(aligned.end(), o.batch_stride.begin(), o.batch_stride.end());
  }
  x.width = std::min(common_width(most, aligned), x.fast_k ? s.tile_k : x.tile_lines);
  // A copy goes along the rows of the tile; across them, element by element.
  if (!hook && x.fast_k && !x.by_k) x.width = 1;
  x.async = !hook && x.width * size() >= 4;
  if (!hook && !x.async) x.width = 1;
  return x;
}

/// Rows are padded, or swizzled, so that threads that read together meet in different banks.
std::string CudaPrinter::tile_type(const Side& x) const {
  const int outer = x.by_k ? x.tile_lines : s.tile_k, inner = x.by_k ? s.tile_k : x.tile_lines;
  if (size() == 2) return fmt::format("matmul::Swizzled<{}, {}>", outer, inner);
  const int64_t pad = s.tensor && !x.by_k ? 8 : 16 / size();
  return fmt::format("matmul::Padded<{}, {}, {}>", outer, inner, pad);
}
int64_t CudaPrinter::tile_elements(const Side& x) const {
  const int64_t outer = x.by_k ? x.tile_lines : s.tile_k, inner = x.by_k ? s.tile_k : x.tile_lines;
  return outer * (size() == 2 ? inner : inner + (s.tensor && !x.by_k ? 8 : 16 / size()));
}

/// Whether the result reaches its end by way of shared memory: fused code stands in the text once and walks
/// rows, and so do stores that threads would make too short.
bool CudaPrinter::staged() const { return !split() && (hooks.epilogue || size() == 2); }
int64_t CudaPrinter::slice_bytes() const {
  const int64_t down = s.tile_m / s.part_m;
  const int64_t rows = down * (s.tensor ? (s.part_m % 32 == 0 ? 32 : 16) : std::min(4, s.part_m));
  return rows * (s.tile_n + (s.tensor ? 8 : 16 / sum_size(spec.dtype))) * sum_size(spec.dtype);
}

/// Lanes of a vector of the result, at most 16 bytes of sums. From registers, threads have neighbours in
/// groups of four, with tensor cores of two.
int CudaPrinter::store_width(const MatmulOperand& c, bool fused, bool registers) const {
  const int most =
      std::min(registers ? (s.tensor ? 2 : s.part_n) : s.tile_n, static_cast<int>(16 / sum_size(spec.dtype)));
  if (fused) return common_width(std::min(most, hooks.width_c), {spec.n});
  if (!c.col_stride.is(1)) return 1;
  std::vector<Dim> aligned = {spec.n, c.offset, c.row_stride};
  aligned.insert(aligned.end(), c.batch_stride.begin(), c.batch_stride.end());
  return common_width(most, aligned);
}

std::vector<std::string> CudaPrinter::batch_names() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < spec.batch.size(); ++i) names.push_back(fmt::format("mm_b{}", i));
  return names;
}

/// " + index * stride", as short as it can be.
std::string CudaPrinter::step(const std::string& index, const Dim& stride) const {
  if (stride.is(0)) return "";
  return stride.is(1) ? " + " + index : fmt::format(" + {} * {}", index, dims.text(stride));
}
/// " + offset + mm_b0 * stride ...".
std::string CudaPrinter::batch_offset(const MatmulOperand& o) const {
  std::string text = o.offset.is(0) ? "" : " + " + dims.text(o.offset);
  for (size_t i = 0; i < spec.batch.size(); ++i) text += step(fmt::format("mm_b{}", i), o.batch_stride[i]);
  return text;
}

void CudaPrinter::print_sizes() {
  out.line("const i64 m = {}, n = {}, k = {};", dims.text(spec.m), dims.text(spec.n), dims.text(spec.k));
  out.lines("(void)k;");
  out.lines(hooks.setup);
}

/// Takes the batch indices off `rest`, the last first.
void CudaPrinter::print_batch_indices() {
  for (size_t i = spec.batch.size(); i-- > 0;) {
    if (i == 0) out.lines("const i64 mm_b0 = rest;");
    else out.line("const i64 mm_b{0} = rest % {1};\nrest /= {1};", i, dims.text(spec.batch[i]));
    out.line("(void)mm_b{};", i);
  }
}

void CudaPrinter::print_types() {
  out.line("using S = {};\nusing T = {};", storage_of(spec.dtype), sum_of(spec.dtype));
  if (s.tensor)
    out.line("using Part = matmul::Tensor<{}, {}, {}, {}>;", s.tile_m, s.tile_n, s.part_m, s.part_n);
  else out.line("using Part = matmul::Simt<T, {}, {}, {}, {}>;", s.tile_m, s.tile_n, s.part_m, s.part_n);
  for (const char c : {'a', 'b'}) {
    const Side x = side(c);
    out.line("using {} = {};", c == 'a' ? "TileA" : "TileB", tile_type(x));
  }
  out.line("constexpr int kTileK = {}, kStages = {};", s.tile_k, s.stages);
}

/// What this block computes: a tile of one matrix, over a range of k.
void CudaPrinter::print_place() {
  out.line("const i64 tiles_m = (m + {}) / {}, tiles_n = (n + {}) / {};", s.tile_m - 1, s.tile_m,
           s.tile_n - 1, s.tile_n);
  out.lines("i64 rest = block();");
  out.lines("const matmul::Place place = matmul::place_of(rest % (tiles_m * tiles_n), tiles_m, tiles_n);");
  out.lines("rest /= tiles_m * tiles_n;");
  if (split()) {
    out.line("const i64 range = rest % {0};\nrest /= {0};", s.split_k);
    out.line("const i64 range_size = {};", k_range());
    out.lines("const i64 k_begin = range * range_size < k ? range * range_size : k;");
    out.lines("const i64 k_end = k_begin + range_size < k ? k_begin + range_size : k;");
  } else {
    out.lines("const i64 k_begin = 0, k_end = k;");
  }
  print_batch_indices();
  out.line("const i64 row_begin = place.m * {}, col_begin = place.n * {};", s.tile_m, s.tile_n);
}

/// A hook in a scope of its own: `line` first, if there is one.
std::string CudaPrinter::call(const MatmulHook& line, const MatmulHook& hook, bool along_cols,
                              int width) const {
  const MatmulVector v = {"mm_value", batch_names(),         "mm_row", "mm_col", along_cols,
                          width,      std::to_string(width), true};
  std::string text = fmt::format("using V = Vec<T, {}>;\n", width);
  if (line) text += line(v);
  text += hook(v);
  if (text.back() != '\n') text += '\n';
  return text;
}

void CudaPrinter::print_fill_body(const Side& x) {
  const char* const tile = x.name == 'a' ? "TileA" : "TileB";
  const char* const begin = x.name == 'a' ? "row_begin" : "col_begin";
  const char* const lines = x.name == 'a' ? "m" : "n";
  // Rows of the tile and what they hold.
  const std::string of_line = fmt::format("{} - {}", lines, begin), of_k = "k_end - k_at";
  if (!x.hook) {
    const std::string from = fmt::format("operand_{}{}", x.name, step("k_at", x.k_stride));
    const std::string call =
        x.async
            ? fmt::format("matmul::copy_tile<{}, {}, {}, Part::kThreads>", tile, x.width, x.fast_k != x.by_k)
            : fmt::format("matmul::load_tile<{}, {}, Part::kThreads>", tile, x.fast_k != x.by_k);
    out.line("{}(to_{}, {}, {}, {}, {}, {});", call, x.name, from,
             dims.text(x.by_k ? x.line_stride : x.k_stride), dims.text(x.by_k ? x.k_stride : x.line_stride),
             x.by_k ? of_line : of_k, x.by_k ? of_k : of_line);
    return;
  }
  // A vector lies along what is fast; in the tile that is along a row, or across rows.
  out.line("matmul::fill_tile<{}, {}, {}, {}, Part::kThreads>(to_{}, [&](i32 outer, i32 inner) KN_LAMBDA {{",
           tile, x.width, x.fast_k != x.by_k ? "true" : "false", x.fast_k != x.by_k ? "true" : "false",
           x.name);
  const std::string line_at = fmt::format("{} + {}", begin, x.by_k ? "outer" : "inner");
  const std::string k_place = fmt::format("k_at + {}", x.by_k ? "inner" : "outer");
  const bool is_a = x.name == 'a';
  out.line("const i64 mm_row = {}, mm_col = {};", is_a ? line_at : k_place, is_a ? k_place : line_at);
  out.line("Vec<T, {0}> mm_value = Vec<T, {0}>(T(0));", x.width);
  out.line("if ({} < {} && {} < k_end) {{", is_a ? "mm_row" : "mm_col", lines, is_a ? "mm_col" : "mm_row");
  out.lines(call(x.line, x.hook, is_a == x.fast_k, x.width));
  out.lines("}\nreturn mm_value;\n});");
}

void CudaPrinter::print_fill(const Side& x) {
  if (!x.hook)
    out.line("const S* const operand_{0} = static_cast<const S*>(buffers[{1}]){2}{3};", x.name, x.at.buffer,
             batch_offset(x.at), step(x.name == 'a' ? "row_begin" : "col_begin", x.line_stride));
}

/// Stores `mm_value` at (mm_row, mm_col) by the epilogue.
void CudaPrinter::print_epilogue(int width) { out.lines(call({}, hooks.epilogue, true, width)); }

/// Stores `mm_value` at (mm_row, mm_col) of `c`, which begins `more` elements later.
void CudaPrinter::print_store(const MatmulOperand& c, const char* type, const std::string& more, int width) {
  out.line("store<{}>(static_cast<{}*>(buffers[{}]){}{}{}{}, mm_value);", width, type, c.buffer,
           batch_offset(c), more, step("mm_row", c.row_stride), step("mm_col", c.col_stride));
}

/// Where C lies as the first launch of a split k leaves it: [range][batch...][m][n].
MatmulOperand in_workspace(const MatmulSpec& spec, int buffer) {
  MatmulOperand c{buffer, 0, std::vector<Dim>(spec.batch.size()), spec.n, 1};
  Dim stride = spec.m * spec.n;
  for (size_t i = spec.batch.size(); i-- > 0; stride = stride * spec.batch[i]) c.batch_stride[i] = stride;
  return c;
}

void CudaPrinter::print_main() {
  const Side a = side('a'), b = side('b');
  print_types();
  print_sizes();
  print_place();
  print_fill(a);
  print_fill(b);
  out.lines("const auto fill = [&](i32 stage, i64 step) KN_LAMBDA {");
  out.lines("const i64 k_at = k_begin + step * kTileK;");
  out.lines("const Shared<S> to_a = shared<S>(0) + stage * (TileA::kElements + TileB::kElements);");
  out.lines("const Shared<S> to_b = to_a + TileA::kElements;");
  print_fill_body(a);
  print_fill_body(b);
  out.lines("};");
  out.lines("Part part;");
  out.lines(
      "matmul::pipeline<kStages>((k_end - k_begin + kTileK - 1) / kTileK, fill, [&](i32 stage) KN_LAMBDA {");
  out.lines("const Shared<S> from = shared<S>(0) + stage * (TileA::kElements + TileB::kElements);");
  out.line("part.template multiply<kTileK, {}, {}, TileA, TileB>(from, from + TileA::kElements);\n}});",
           a.by_k, b.by_k);
  if (staged()) print_staged();
  else print_from_registers();
}

/// The end of a tile by way of shared memory.
void CudaPrinter::print_staged() {
  const bool fused = static_cast<bool>(hooks.epilogue);
  const int width = store_width(spec.c, fused, false);
  out.line(
      "matmul::each_of_tile<{0}, {1}>(part, shared<T>(0), [&](i32 row, i32 col, Vec<T, {1}> mm_value) "
      "KN_LAMBDA {{",
      s.tile_n, width);
  out.lines("const i64 mm_row = row_begin + row, mm_col = col_begin + col;");
  out.lines("if (mm_row >= m || mm_col >= n) return;");
  if (fused) print_epilogue(width);
  else print_store(spec.c, "S", "", width);
  out.lines("});");
}

/// The end of a tile where it is: stores of sums as they are, to C or to the workspace.
void CudaPrinter::print_from_registers() {
  const MatmulOperand c = split() ? in_workspace(spec, workspace) : spec.c;
  const int width = store_width(c, false, true);
  out.lines("KN_UNROLL\nfor (i32 i = 0; i < Part::kRows; ++i) {");
  out.lines("const i64 mm_row = row_begin + part.row(i);");
  out.line("KN_UNROLL\nfor (i32 j = 0; j < Part::kCols; j += {}) {{", width);
  out.lines("const i64 mm_col = col_begin + part.col(j);");
  out.lines("if (mm_row < m && mm_col < n) {");
  out.line("Vec<T, {}> mm_value;", width);
  for (int w = 0; w < width; ++w) out.line("detail::set_lane(mm_value, {0}, part.at(i, j + {0}));", w);
  if (split()) print_store(c, "T", " + range * " + dims.text(elements()), width);
  else print_store(c, "S", "", width);
  out.lines("}\n}\n}");
}

/// The second launch of a split k: a vector for each thread, its ranges summed in order.
void CudaPrinter::print_combine() {
  const bool fused = static_cast<bool>(hooks.epilogue);
  const int width = store_width(spec.c, fused, false);
  out.line("using S = {};\nusing T = {};", storage_of(spec.dtype), sum_of(spec.dtype));
  print_sizes();
  out.line("i64 rest = block() * {} + thread();", kCombineThreads);
  out.line("const T* const from = static_cast<const T*>(buffers[{}]) + rest * {};", workspace, width);
  out.line("const i64 mm_col = rest % (n / {0}) * {0};\nrest /= n / {0};", width);
  out.lines("const i64 mm_row = rest % m;\nrest /= m;");
  out.line("if (rest >= {}) return;", dims.text(numel(spec.batch)));
  print_batch_indices();
  out.line("const Vec<T, {0}> mm_value = matmul::sum_ranges<{0}>(from, {1}, {2});", width,
           dims.text(elements()), s.split_k);
  if (fused) print_epilogue(width);
  else print_store(spec.c, "S", "", width);
}

}  // namespace

CudaMatmulSource print_matmul_cuda(const std::string& name, const MatmulSpec& spec,
                                   const CudaMatmulSchedule& schedule, const MatmulHooks& hooks,
                                   DimTable& dims, int buffer_count, int workspace_buffer) {
  CudaPrinter p{spec, schedule, hooks, dims, workspace_buffer};
  p.check();
  p.print_main();
  const Dim tiles =
      ceildiv(spec.m, Dim(schedule.tile_m)) * ceildiv(spec.n, Dim(schedule.tile_n)) * numel(spec.batch);
  CudaMatmulSource source;
  source.launches.push_back({name, tiles * Dim(schedule.split_k), schedule.threads(), p.shared_bytes()});
  std::vector<std::string> bodies = {p.out.str()};
  if (schedule.split_k > 1) {
    CudaPrinter q{spec, schedule, hooks, dims, workspace_buffer};
    q.print_combine();
    bodies.push_back(q.out.str());
    const Dim vectors =
        floordiv(q.elements(), Dim(q.store_width(spec.c, static_cast<bool>(hooks.epilogue), false)));
    source.launches.push_back(
        {name + "_combine", ceildiv(vectors, Dim(kCombineThreads)), kCombineThreads, 0});
    source.workspace_buffer = workspace_buffer;
    source.workspace_bytes = q.elements() * Dim(sum_size(spec.dtype) * schedule.split_k);
  }
  // All have the same parameters, and all sizes are known now.
  source.text = fmt::format(
      "#include \"kiln_cuda.h\"\n#include \"cuda_matmul.h\"\nnamespace {}_code {{\nusing namespace kn;\n",
      name);
  for (size_t i = 0; i < bodies.size(); ++i)
    source.text += fmt::format("KILN_CUDA_KERNEL({}, {}, {}, {}) {{\n{}}}\n", source.launches[i].symbol,
                               source.launches[i].threads, buffer_count, dims.dims().size(), bodies[i]);
  source.text += fmt::format("}}  // namespace {}_code\n", name);
  return source;
}

}  // namespace kiln
