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

/// The axes that one index of a matrix counts, outermost first, and how far apart an operand has them.
struct Walk {
  std::vector<Dim> sizes, strides;
  bool plain() const { return sizes.size() == 1; }
};

/// One operand's way into shared memory.
struct Side {
  char name;  ///< 'a' or 'b'
  const MatmulOperand& at;
  const MatmulHook& hook;
  const MatmulHook& line;
  Walk lines, k;  ///< a line is a row of A or a column of B
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
  std::vector<size_t> row_axes = cuda_row_axes(spec);               ///< batch axes that are rows
  const char* line_name = row_axes.empty() ? "mm_row" : "mm_line";  ///< of a row among all of these
  SourceText out{};

  void check() const;
  bool is_row(size_t axis) const { return std::ranges::count(row_axes, axis) > 0; }
  Dim rows() const;
  Dim matrices() const;  ///< batch axes that are not rows
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
  Dim range() const {
    return ceildiv(ceildiv(spec.products(), Dim(s.split_k)), Dim(kRangeUnit)) * Dim(kRangeUnit);
  }
  void print_sizes();
  void print_batch_indices();
  void print_types();
  void print_place();
  void print_walk(const std::string& name, const Walk& w);
  void print_rows_of_line();
  void print_operand(const Side& x);
  void print_copy(const Side& x);
  void print_fill(const Side& x);
  std::string call(const MatmulHook& line, const MatmulHook& hook, bool along_cols, int width) const;
  void print_epilogue(int width);
  MatmulOperand in_workspace() const;
  void print_store(const MatmulOperand& c, const char* type, const std::string& more, int width);
  void print_main();
  void print_staged();
  void print_from_registers();
  void print_combine();
};

void CudaPrinter::check() const {
  const auto fits = [&](const MatmulOperand& o) { return o.batch_stride.size() == spec.batch.size(); };
  const auto runs_fit = [&](const MatmulOperand& o) { return o.k_stride.size() == spec.k_outer.size(); };
  KILN_ASSERT(is_floating(spec.dtype), "matmul of {}", dtype_name(spec.dtype));
  KILN_ASSERT(fits(spec.a) && fits(spec.b) && fits(spec.c), "matmul: batch strides and batch axes differ");
  KILN_ASSERT(runs_fit(spec.a) && runs_fit(spec.b), "matmul: strides and axes of k differ");
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
         {},
         {spec.k_outer, o.k_stride},
         is_a ? s.tile_m : s.tile_n,
         false,
         false,
         1,
         false};
  for (const size_t i : is_a ? row_axes : std::vector<size_t>()) {
    x.lines.sizes.push_back(spec.batch[i]);
    x.lines.strides.push_back(o.batch_stride[i]);
  }
  x.lines.sizes.push_back(is_a ? spec.m : spec.n);
  x.lines.strides.push_back(is_a ? o.row_stride : o.col_stride);
  x.k.sizes.push_back(spec.k);
  x.k.strides.push_back(is_a ? o.col_stride : o.row_stride);
  const Dim &line_stride = x.lines.strides.back(), &k_stride = x.k.strides.back();
  x.fast_k = k_stride.is(1) && !line_stride.is(1);
  x.by_k = s.tensor && x.fast_k;
  const bool unit = k_stride.is(1) || line_stride.is(1);
  const int most = hook ? (is_a ? hooks.width_a : hooks.width_b) : unit ? static_cast<int>(16 / size()) : 1;
  std::vector<Dim> aligned = {x.fast_k ? spec.k : x.lines.sizes.back()};
  if (!hook) {
    aligned.insert(aligned.end(), {o.offset, x.fast_k ? line_stride : k_stride});
    aligned.insert(aligned.end(), o.batch_stride.begin(), o.batch_stride.end());
    aligned.insert(aligned.end(), o.k_stride.begin(), o.k_stride.end());
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
  for (size_t i = 0; i < spec.batch.size(); ++i)
    if (!is_row(i)) text += step(fmt::format("mm_b{}", i), o.batch_stride[i]);
  return text;
}

Dim CudaPrinter::rows() const {
  Dim all = spec.m;
  for (const size_t i : row_axes) all = all * spec.batch[i];
  return all;
}
Dim CudaPrinter::matrices() const {
  Dim all(1);
  for (size_t i = 0; i < spec.batch.size(); ++i)
    if (!is_row(i)) all = all * spec.batch[i];
  return all;
}

void CudaPrinter::print_sizes() {
  out.line("const i64 m = {}, n = {}, k = {};", dims.text(rows()), dims.text(spec.n),
           dims.text(spec.products()));
  out.lines("(void)k;");
  out.lines(hooks.setup);
}

/// Takes the batch indices off `rest`, the last first.
void CudaPrinter::print_batch_indices() {
  for (size_t i = spec.batch.size(); i-- > 0;) {
    if (is_row(i)) continue;
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

/// Whether indices and offsets of a walk are known to be small: 64 bits cost registers.
bool is_near(const Walk& w) {
  constexpr int64_t kNear = 1 << 30;
  int64_t count = 1, reach = 0;
  for (size_t i = 0; i < w.sizes.size(); ++i) {
    if (!w.sizes[i].is_const() || !w.strides[i].is_const()) return false;
    const int64_t size = w.sizes[i].value(), stride = std::abs(w.strides[i].value());
    if (size > kNear || stride > kNear || count * size > kNear || reach + size * stride > kNear) return false;
    count *= size, reach += size * stride;
  }
  return true;
}

/// Where the index of a walk of several axes lies, as the function `name`.
void CudaPrinter::print_walk(const std::string& name, const Walk& w) {
  const char* const index = is_near(w) ? "u32" : "i64";
  const char* const offset = is_near(w) ? "i32" : "i64";
  out.line("const auto {} = [&](i64 at) KN_LAMBDA {{\n{} left = {}(at);\n{} to = 0;", name, index, index,
           offset);
  for (size_t i = w.sizes.size(); i-- > 0;) {
    const std::string size = fmt::format("{}({})", index, dims.text(w.sizes[i]));
    out.line("to += {}({}) * {};", offset, i == 0 ? "left" : "left % " + size, dims.text(w.strides[i]));
    if (i > 0) out.line("left /= {};", size);
  }
  out.lines("return to;\n};");
}

/// Which row of which matrix the row `mm_line` is.
void CudaPrinter::print_rows_of_line() {
  out.line("i64 mm_left = mm_line / {0};\nconst i64 mm_row = mm_line % {0};", dims.text(spec.m));
  for (size_t i = row_axes.size(); i-- > 0;)
    out.line("const i64 mm_b{0} = mm_left % {1};\nmm_left /= {1};\n(void)mm_b{0};", row_axes[i],
             dims.text(spec.batch[row_axes[i]]));
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

/// Where the block's part of an operand in memory begins, and how it goes on.
void CudaPrinter::print_operand(const Side& x) {
  if (x.hook) return;
  out.line("const S* const operand_{0} = static_cast<const S*>(buffers[{1}]){2}{3};", x.name, x.at.buffer,
           batch_offset(x.at),
           x.lines.plain() ? step(x.name == 'a' ? "row_begin" : "col_begin", x.lines.strides[0]) : "");
  if (!x.lines.plain()) print_walk(fmt::format("{}_line", x.name), x.lines);
  if (!x.k.plain()) print_walk(fmt::format("{}_k", x.name), x.k);
}

/// Fills a tile from an operand in memory.
void CudaPrinter::print_copy(const Side& x) {
  const char* const begin = x.name == 'a' ? "row_begin" : "col_begin";
  const std::string of_line = fmt::format("{} - {}", x.name == 'a' ? "m" : "n", begin), of_k = "k_end - k_at";
  const auto walked = [&](const Walk& w, const char* what, const char* from) {
    if (w.plain()) return dims.text(w.strides[0]);
    return fmt::format("[&](i32 i) KN_LAMBDA {{ return {}_{}({} + i); }}", x.name, what, from);
  };
  const std::string line = walked(x.lines, "line", begin), k = walked(x.k, "k", "k_at");
  const char* const tile = x.name == 'a' ? "TileA" : "TileB";
  const std::string call =
      x.async
          ? fmt::format("matmul::copy_tile<{}, {}, {}, Part::kThreads>", tile, x.width, x.fast_k != x.by_k)
          : fmt::format("matmul::load_tile<{}, {}, Part::kThreads>", tile, x.fast_k != x.by_k);
  out.line("{}(to_{}, operand_{}{}, {}, {}, {}, {});", call, x.name, x.name,
           x.k.plain() ? step("k_at", x.k.strides[0]) : "", x.by_k ? line : k, x.by_k ? k : line,
           x.by_k ? of_line : of_k, x.by_k ? of_k : of_line);
}

/// Fills a tile with what a prologue computes, or else from memory.
void CudaPrinter::print_fill(const Side& x) {
  if (!x.hook) return print_copy(x);
  const bool is_a = x.name == 'a';
  const char* const begin = is_a ? "row_begin" : "col_begin";
  // A vector lies along what is fast; in the tile that is along a row, or across rows.
  out.line("matmul::fill_tile<{}, {}, {}, {}, Part::kThreads>(to_{}, [&](i32 outer, i32 inner) KN_LAMBDA {{",
           is_a ? "TileA" : "TileB", x.width, x.fast_k != x.by_k ? "true" : "false",
           x.fast_k != x.by_k ? "true" : "false", x.name);
  const char* const line = is_a ? line_name : "mm_col";
  const char* const k = is_a ? "mm_col" : "mm_row";
  const std::string of_line = fmt::format("{} = {} + {}", line, begin, x.by_k ? "outer" : "inner");
  const std::string of_k = fmt::format("{} = k_at + {}", k, x.by_k ? "inner" : "outer");
  out.line("const i64 {}, {};", is_a ? of_line : of_k, is_a ? of_k : of_line);
  out.line("Vec<T, {0}> mm_value = Vec<T, {0}>(T(0));", x.width);
  const std::string inside[] = {fmt::format("{} < {}", line, is_a ? "m" : "n"), fmt::format("{} < k_end", k)};
  out.line("if ({} && {}) {{", inside[!is_a], inside[is_a]);
  if (is_a && !row_axes.empty()) print_rows_of_line();
  out.lines(call(x.line, x.hook, is_a == x.fast_k, x.width));
  out.lines("}\nreturn mm_value;\n});");
}

/// Stores `mm_value` at (line_name, mm_col) by the epilogue.
void CudaPrinter::print_epilogue(int width) {
  if (!row_axes.empty()) print_rows_of_line();
  out.lines(call({}, hooks.epilogue, true, width));
}

/// Stores `mm_value` at (line_name, mm_col) of `c`, which begins `more` elements later.
void CudaPrinter::print_store(const MatmulOperand& c, const char* type, const std::string& more, int width) {
  out.line("store<{}>(static_cast<{}*>(buffers[{}]){}{}{}{}, mm_value);", width, type, c.buffer,
           batch_offset(c), more, step(line_name, c.row_stride), step("mm_col", c.col_stride));
}

/// Where C lies as the first launch of a split k leaves it: [range][batch...][rows][n].
MatmulOperand CudaPrinter::in_workspace() const {
  MatmulOperand c{workspace, 0, std::vector<Dim>(spec.batch.size()), spec.n, 1};
  Dim stride = rows() * spec.n;
  for (size_t i = spec.batch.size(); i-- > 0;) {
    if (is_row(i)) continue;
    c.batch_stride[i] = stride;
    stride = stride * spec.batch[i];
  }
  return c;
}

void CudaPrinter::print_main() {
  const Side a = side('a'), b = side('b');
  print_types();
  print_sizes();
  print_place();
  print_operand(a);
  print_operand(b);
  out.lines("const auto fill = [&](i32 stage, i64 step) KN_LAMBDA {");
  out.lines("const i64 k_at = k_begin + step * kTileK;");
  out.lines("const Shared<S> to_a = shared<S>(0) + stage * (TileA::kElements + TileB::kElements);");
  out.lines("const Shared<S> to_b = to_a + TileA::kElements;");
  print_fill(a);
  print_fill(b);
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
  out.line("const i64 {} = row_begin + row, mm_col = col_begin + col;", line_name);
  out.line("if ({} >= m || mm_col >= n) return;", line_name);
  if (fused) print_epilogue(width);
  else print_store(spec.c, "S", "", width);
  out.lines("});");
}

/// The end of a tile where it is: stores of sums as they are, to C or to the workspace.
void CudaPrinter::print_from_registers() {
  const MatmulOperand c = split() ? in_workspace() : spec.c;
  const int width = store_width(c, false, true);
  out.lines("KN_UNROLL\nfor (i32 i = 0; i < Part::kRows; ++i) {");
  out.line("const i64 {} = row_begin + part.row(i);", line_name);
  out.line("KN_UNROLL\nfor (i32 j = 0; j < Part::kCols; j += {}) {{", width);
  out.lines("const i64 mm_col = col_begin + part.col(j);");
  out.line("if ({} < m && mm_col < n) {{", line_name);
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
  out.line("const i64 {} = rest % m;\nrest /= m;", line_name);
  out.line("if (rest >= {}) return;", dims.text(matrices()));
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
      ceildiv(p.rows(), Dim(schedule.tile_m)) * ceildiv(spec.n, Dim(schedule.tile_n)) * p.matrices();
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
