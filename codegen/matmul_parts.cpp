// SPDX-License-Identifier: Apache-2.0
// Words and micro kernels of the matmul template. Plain vector code that every target of clang compiles, but
// for products of pairs of bf16, a word of the prelude. Multiply-adds are explicit, so no contraction flag
// changes a bit.
#include "codegen/matmul_parts.h"

#include <algorithm>
#include <bit>

#include "ir/base/error.h"
#include "ir/base/rounding.h"

namespace kiln::detail {

namespace {
/// Index list of a two-operand shuffle, built from the source lane of every result lane.
std::string shuffle(int width, const std::function<int(int)>& lane) {
  std::string s = "__builtin_shufflevector(a, b";
  for (int i = 0; i < width; ++i) s += ", " + std::to_string(lane(i));
  return s + ")";
}

/// Vectors of the type `v`, here and below.
void print_shuffle_word(SourceText& out, const char* v, const std::string& name, int width,
                        const std::function<int(int)>& lane) {
  out.line("static inline {0} {1}({0} a, {0} b) {{ return {2}; }}", v, name, shuffle(width, lane));
}

/// Interleaves blocks of `unit` elements within 16 bytes; `group` elements are 16 bytes.
void print_unpack_words(SourceText& out, const char* v, int width, int group, int unit) {
  for (const bool high : {false, true})
    print_shuffle_word(out, v, fmt::format("{}{}", high ? "high" : "low", unit), width, [=](int i) {
      const int base = i / group * group, at = i % group;
      const int source = base + (high ? group / 2 : 0) + at / (2 * unit) * unit + at % unit;
      return at / unit % 2 == 0 ? source : source + width;
    });
}

/// Swaps blocks of 16 bytes at distance `step` between two rows.
void print_block_words(SourceText& out, const char* v, int width, int group, int step) {
  for (const bool high : {false, true})
    print_shuffle_word(out, v, fmt::format("{}_block{}", high ? "high" : "low", step), width, [=](int i) {
      const int block = i / group, at = i % group;
      const bool own = (block & step) == 0;
      const int from = high ? (own ? block + step : block) : (own ? block : block - step);
      return from * group + at + (own ? 0 : width);
    });
}

/// Transposition of a width x width square in registers: within 16 bytes first, then blocks of 16 bytes.
void print_transpose(SourceText& out, const char* v, int width, int group) {
  if (group == 4) print_unpack_words(out, v, width, group, 2);
  print_unpack_words(out, v, width, group, 1);
  for (int step = 1; step < width / group; step *= 2) print_block_words(out, v, width, group, step);
  out.line("static inline void transpose({}* r) {{", v);
  for (int q = 0; q < width; q += group) {
    if (group == 2) {
      out.line("{{ const {2} s = r[{0}], t = r[{1}]; r[{0}] = low1(s, t); r[{1}] = high1(s, t); }}", q, q + 1,
               v);
      continue;
    }
    out.line(
        "{{ const {4} s = low1(r[{0}], r[{1}]), t = high1(r[{0}], r[{1}]), u = low1(r[{2}], r[{3}]), "
        "v = high1(r[{2}], r[{3}]);",
        q, q + 1, q + 2, q + 3, v);
    out.line("r[{0}] = low2(s, u); r[{1}] = high2(s, u); r[{2}] = low2(t, v); r[{3}] = high2(t, v); }}", q,
             q + 1, q + 2, q + 3);
  }
  for (int step = 1; step < width / group; step *= 2)
    for (int row = 0; row < width; ++row)
      if (((row / group) & step) == 0)
        out.line(
            "{{ const {3} s = r[{0}], t = r[{1}]; r[{0}] = low_block{2}(s, t); r[{1}] = high_block{2}(s, t); "
            "}}",
            row, row + step * group, step, v);
  out.lines("}");
}
}  // namespace

std::vector<std::string> batch_names(const MatmulSpec& spec) {
  std::vector<std::string> names;
  for (size_t i = 0; i < spec.batch.size(); ++i) names.push_back(fmt::format("mm_b{}", i));
  return names;
}

std::string call_hook(const MatmulHook& hook, const MatmulSpec& spec, const MatmulSchedule& s,
                      MatmulVector at, const std::string& variable, bool assign) {
  at.full = at.lanes.empty();
  std::string text = fmt::format(
      "{{\nconst int64_t mm_row = {}, mm_col = {};\n(void)mm_row;\n(void)mm_col;\n", at.row, at.col);
  const bool literal = at.full || at.lanes.find_first_not_of("0123456789") == std::string::npos;
  if (!literal) text += fmt::format("const int64_t mm_lanes = {};\n", at.lanes);
  if (at.full) at.lanes = std::to_string(s.width);
  if (!literal) at.lanes = "mm_lanes";
  text += assign ? "V mm_value = 0;\n" : fmt::format("V mm_value = {};\n", variable);
  at.value = "mm_value", at.row = "mm_row", at.col = "mm_col", at.batch = batch_names(spec),
  at.width = s.width;
  text += hook(at);
  if (text.back() != '\n') text += '\n';
  return text + (assign ? fmt::format("{} = mm_value;\n}}", variable) : "}");
}

MatmulShape::MatmulShape(const MatmulSpec& spec, const MatmulSchedule& s, const MatmulHooks& hooks) {
  nr = int64_t{s.nv} * s.width;
  const bool const_k = spec.k.is_const(), outer = !spec.k_outer.empty();
  const int64_t k_range = !const_k ? s.kc
                          : outer  ? spec.k.value()
                                   : (spec.k.value() + s.split_k - 1) / s.split_k;
  one_chunk = const_k && k_range <= s.kc;
  int64_t chunk = (std::max<int64_t>(1, std::min(k_range, s.kc)) + s.pairs) / (s.pairs ? 2 : 1);
  if (outer && one_chunk) {
    runs = std::max<int64_t>(1, s.kc / std::max<int64_t>(1, k_range));
    const Dim& last = spec.k_outer.back();
    if (last.is_const()) runs = std::clamp<int64_t>(last.value(), 1, runs);
    one_chunk = spec.k_outer.size() == 1 && last.is_const() && last.value() <= runs;
    chunk *= runs;
  }
  plain_c = !hooks.epilogue && spec.c.col_stride.is(1) && !spec.c.half;
  row_by_row = !spec.m.is_const() && s.pack_a == PackA::none && s.mr > 1;
  exact_rows = spec.m.is_const() || s.pack_a == PackA::none;
  exact = exact_rows && spec.n.is_const() && spec.n.value() % s.width == 0;
  row_tail = spec.m.is_const() ? static_cast<int>(spec.m.value() % s.mr) : row_by_row ? 1 : 0;
  const int64_t col_rest = spec.n.is_const() ? spec.n.value() % nr : 0;
  const int64_t col_vectors = (col_rest + s.width - 1) / s.width;
  half_tail = has_half_tail(spec, s.width, s.pairs);
  col_tail = col_vectors < s.nv || half_tail ? static_cast<int>(col_vectors) : 0;
  partial = !one_chunk && !(plain_c && exact);
  a_ld = s.pack_a == PackA::cols ? s.mr : round_up(chunk, s.width) + s.width;
  if (s.pairs && s.pack_a == PackA::cols) a_pad = std::bit_ceil(static_cast<unsigned>(s.mr)) - s.mr;
  pack_a_elements = s.pack_a == PackA::rows   ? s.mc * a_ld
                    : s.pack_a == PackA::cols ? s.mc * chunk + s.mc / s.mr * a_pad
                                              : 0;
  pack_a_elements = round_up(pack_a_elements, 64);
  pack_b_elements = s.pack_b ? round_up(chunk * s.tile_n, 64) : 0;
  tile_elements = round_up(partial ? s.tile_m * s.tile_n : s.mr * nr, 64);
  b_shared = std::all_of(spec.b.batch_stride.begin(), spec.b.batch_stride.end(),
                         [](const Dim& d) { return d.is(0); });
}

namespace {
/// The same for elements of halves, whose values are floats.
void print_half_words(SourceText& out, DType half, int width) {
  out.line("typedef kn::{} S;", half == DType::bf16 ? "bf16" : "f16");
  out.line("static inline V load(const S* p) {{ return kn::load<{}>(p); }}", width);
  out.line("static inline void store(S* p, V v) {{ kn::store<{}>(p, v); }}", width);
  out.line("static inline V load_lanes(const S* p, long lanes) {{ return kn::load_n<{}>(p, lanes); }}",
           width);
  out.line("static inline void store_lanes(S* p, V v, long lanes) {{ kn::store_n<{}>(p, lanes, v); }}",
           width);
}
}  // namespace

bool has_half_tail(const MatmulSpec& spec, int width, bool pairs) {
  const int64_t rest = spec.n.is_const() ? spec.n.value() % width : 0;
  return !pairs && static_cast<size_t>(width) * dtype_size(spec.dtype) == 64 && rest > 0 && 2 * rest <= width;
}

bool k_has_tail(const MatmulSpec& spec, const MatmulSchedule& s, const MatmulShape& shape, int unit) {
  if (!spec.k.is_const() || spec.k.value() % unit != 0) return true;
  if (!spec.k_outer.empty()) return s.kc < spec.k.value() && s.kc % unit != 0;
  const int64_t part = (spec.k.value() + s.split_k - 1) / s.split_k;
  return part % unit != 0 || (!shape.one_chunk && s.kc % unit != 0);
}

void print_matmul_words(SourceText& out, const MatmulSpec& spec, const MatmulSchedule& s, bool transpose) {
  const char* type = spec.dtype == DType::f64 ? "double" : "float";
  const int w = s.width;
  out.line("typedef {} T;", type);
  out.line("typedef T V __attribute__((ext_vector_type({}), may_alias));", w);
  out.line("typedef T Unaligned __attribute__((ext_vector_type({}), aligned(sizeof(T)), may_alias));", w);
  // In a namespace, so that fused code can say which words it means by load and store: both.
  out.lines("namespace words {");
  out.lines(
      "static inline V load(const T* p) { return *(const Unaligned*)p; }\n"
      "static inline void store(T* p, V v) { *(Unaligned*)p = v; }\n"
      "static inline long min(long a, long b) { return a < b ? a : b; }");
  if (has_half_tail(spec, w, s.pairs)) {
    out.line("typedef T H __attribute__((ext_vector_type({}), may_alias));", w / 2);
    out.line("typedef T UnalignedHalf __attribute__((ext_vector_type({}), aligned(sizeof(T)), may_alias));",
             w / 2);
    out.lines(
        "static inline H load_half(const T* p) { return *(const UnalignedHalf*)p; }\n"
        "static inline void store(T* p, H v) { *(UnalignedHalf*)p = v; }");
  }
  out.lines("// The first `lanes` elements, in pieces of falling powers of two; the rest is zero.");
  for (const bool is_load : {true, false}) {
    if (is_load) out.line("static inline V load_lanes(const T* p, long lanes) {{");
    else out.line("static inline void store_lanes(T* p, V v, long lanes) {{");
    out.line("alignas(V) T buffer[{}] = {{}};", w);
    if (!is_load) out.lines("*(V*)buffer = v;");
    out.lines("long at = 0;");
    for (int piece = w / 2; piece > 0; piece /= 2)
      out.line("if (lanes & {0}) {{ __builtin_memcpy({1} + at, {2} + at, {0} * sizeof(T)); at += {0}; }}",
               piece, is_load ? "buffer" : "p", is_load ? "p" : "buffer");
    if (is_load) out.lines("return *(V*)buffer;");
    out.lines("}");
  }
  if (const std::optional<DType> half = spec.a.half ? spec.a.half : spec.b.half)
    print_half_words(out, *half, w);
  if (s.pairs) print_pair_words(out, w);
  if (transpose) print_transpose(out, packed_vector(s), w, spec.dtype == DType::f64 ? 2 : 4);
  out.lines("}\nusing namespace words;");
}

namespace {
/// One step of the micro kernel; `a` is the element or word of A in row {}.
void print_step(SourceText& out, const MatmulSchedule& s, const MicroKernel& m, const char* a) {
  for (int j = 0; j < m.vectors; ++j)
    out.line("const {0} b{1} = load{2}(b + {3});", m.is_half(j) ? "H" : packed_vector(s), j,
             m.is_half(j) ? "_half" : "", j * s.width);
  out.line("{} x;", packed_vector(s));
  for (int i = 0; i < m.rows; ++i) {
    std::string text = fmt::format("x = ({})({}); ", packed_vector(s), fmt::format(fmt::runtime(a), i));
    if (m.half && m.vectors > 1) text += "x = kn::target::whole(x); ";
    for (int j = 0; j < m.vectors; ++j)
      text += s.pairs ? fmt::format("c{0}_{1} = kn::target::dot(c{0}_{1}, x, b{1}); ", i, j)
                      : fmt::format("c{0}_{1} = __builtin_elementwise_fma({2}, b{1}, c{0}_{1}); ", i, j,
                                    m.is_half(j) ? "x.lo" : "x");
    out.lines(text);
  }
}
}  // namespace

void print_micro_kernel(SourceText& out, const MatmulSpec& spec, const MatmulSchedule& s,
                        const MatmulShape& shape, const MicroKernel& m, DimTable& dims) {
  const bool in_place = s.pack_a == PackA::none, outer = !spec.k_outer.empty();
  out.line("// c[{}][{}] (+)= a * b over k; rows of c are ldc apart.", m.rows,
           m.vectors * s.width - (m.half ? s.width / 2 : 0));
  out.line(
      "static __attribute__((noinline)) void {}(const {}* a, const {}* b, {}long k, T* c, long ldc, "
      "bool resume, const int64_t* dims) {{",
      m.name(), in_place ? element_type(spec.a) : packed_type(s), packed_type(s), outer ? "long runs, " : "");
  const bool cols = s.pack_a == PackA::cols;
  const std::string a_rs = in_place ? dims.text(spec.a.row_stride) : std::to_string(cols ? 1 : shape.a_ld);
  const std::string a_ks = !in_place ? std::to_string(cols ? shape.a_ld : 1)
                           : s.pairs ? "2"
                                     : dims.text(spec.a.col_stride);
  out.line("const long a_rs = {}, a_ks = {}, b_ks = {};", a_rs, a_ks,
           s.pack_b ? std::to_string(shape.nr) : dims.text(spec.b.row_stride));
  /// `f(i, j, half)` for each accumulator.
  const auto each = [&](const auto& f) {
    for (int i = 0; i < m.rows; ++i) {
      std::string text;
      for (int j = 0; j < m.vectors; ++j) text += f(i, j, m.is_half(j));
      out.lines(text);
    }
  };
  each([](int i, int j, bool half) { return fmt::format("{} c{}_{} = 0; ", half ? "H" : "V", i, j); });
  out.lines("if (resume) {");
  each([&](int i, int j, bool half) {
    return fmt::format("c{0}_{1} = load{3}(c + {0} * ldc + {2}); ", i, j, j * s.width, half ? "_half" : "");
  });
  out.lines("}");
  // A in place counts k in halves of words.
  const bool halves = s.pairs && in_place;
  if (outer) out.lines("for (; runs > 0; --runs) {\nconst T *a_run = a, *b_run = b;");
  out.lines(halves  ? "for (; k > 1; k -= 2) {"
            : outer ? "for (long p = 0; p < k; ++p) {"
                    : "for (; k > 0; --k) {");
  print_step(out, s, m, halves ? "one_word(a + {} * a_rs)" : "a[{} * a_rs]");
  out.lines("a += a_ks;\nb += b_ks;\n}");
  if (outer) {
    out.line("a = a_run + {};", dims.text(spec.a.k_stride.back()));
    if (s.pack_b) out.lines("(void)b_run;\n}");
    else out.line("b = b_run + {};\n}}", dims.text(spec.b.k_stride.back()));
  }
  if (halves && k_has_tail(spec, s, shape, 2)) {
    out.lines("if (k > 0) {");
    print_step(out, s, m, "half_word(a + {} * a_rs)");
    out.lines("}");
  }
  each([&](int i, int j, bool) {
    return fmt::format("store(c + {0} * ldc + {2}, c{0}_{1}); ", i, j, j * s.width);
  });
  out.lines("}");
}

}  // namespace kiln::detail
