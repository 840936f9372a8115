// SPDX-License-Identifier: Apache-2.0
// Packing of the matmul template for instructions that multiply pairs of bf16: words of two neighbours along
// k, the first in the low half. An odd k ends in a half of zeros, in both operands.
#include <bit>

#include "codegen/matmul_parts.h"
#include "ir/base/error.h"

namespace kiln::detail {

void print_pair_words(SourceText& out, int width) {
  out.lines("// Two bf16 of neighbouring k; they lie in memory at any even address.");
  out.line(
      "typedef unsigned P;\n"
      "typedef P Q __attribute__((ext_vector_type({0}), may_alias));\n"
      "typedef P UnalignedWords __attribute__((ext_vector_type({0}), aligned(2), may_alias));\n"
      "static inline Q load(const P* p) {{ return *(const UnalignedWords*)p; }}\n"
      "static inline void store(P* p, Q v) {{ *(UnalignedWords*)p = v; }}\n"
      "// The first `lanes` halves; the rest is zero.\n"
      "static inline Q load_halves(const S* p, long lanes) {{\n"
      "return __builtin_bit_cast(Q, kn::load_n<{1}>((const kn::u16*)p, lanes));\n}}",
      width, 2 * width);
  out.lines(
      "// One word of memory; one whose second half is not there.\n"
      "static inline P one_word(const S* p) { P x; __builtin_memcpy(&x, p, sizeof(P)); return x; }\n"
      "static inline P half_word(const S* p) { return p->bits; }\n"
      "// Elements in low halves: x as it is, a bf16, or rounded; and words of these and others for the "
      "high\n"
      "// halves, where `keep` has bits.\n"
      "static inline Q exact(V x) { return __builtin_bit_cast(Q, x) >> 16; }\n"
      "static inline Q rounded(V x) { return __builtin_convertvector(kn::target::narrow(x), Q); }\n"
      "static inline Q join(Q low, Q high, P keep = ~P(0)) { return low | ((high << 16) & keep); }");
  out.line(
      "// Rounded neighbours along k, as they lie in words: one vector to memory, two as one.\n"
      "static inline void store_halves(S* p, V x) {{\n"
      "const auto h = kn::target::narrow(x);\n__builtin_memcpy(p, &h, {} * sizeof(S));\n}}\n"
      "static inline Q words_of(V x, V y) {{ return __builtin_bit_cast(Q, kn::target::narrow(x, y)); }}",
      width);
}

namespace {
/// What the packing of one operand is printed from. A line is all that the operand has of one k.
struct Paired {
  SourceText& out;
  const MatmulSpec& spec;
  const MatmulSchedule& s;
  const MatmulOperand& operand;
  const MatmulHook &prologue, &line;
  bool along_cols;    ///< a line of B, which walks columns; one of A walks rows
  bool odd;           ///< the last line of a chunk may be alone
  std::string from;   ///< where the line of p lies in memory
  std::string first;  ///< its first row or column
  std::string step;   ///< from line to line in memory

  /// Sets `to` to the vector at offset `at` of the line `k`, or that from memory `past` the line of p.
  void load(const char* to, const std::string& k, const std::string& at, const std::string& lanes,
            const std::string& past) const {
    const std::string place = fmt::format("{} + {}", first, at);
    out.lines(load_vector(prologue, spec, s, along_cols ? k : place, along_cols ? place : k, along_cols,
                          fmt::format("from + {}{}", past, at), lanes, to));
  }

  /// Names for reading the lines of p and p + 1 in memory: from, next, keep.
  void print_from() const {
    out.line("const S* const from = {};", from);
    if (odd) out.line("const long next = p + 1 < kk ? {} : 0;\nconst P keep = p + 1 < kk ? ~P(0) : 0;", step);
    else out.line("const long next = {};\nconst P keep = ~P(0);", step);
  }

  /// Lines p and p + 1 as one of words. `walk(body)` prints a pass over a line, `body(at, to, lanes)` for
  /// each vector at offset `at`, whose words go `to`.
  template <typename Walk>
  void print_lines(const Walk& walk) const {
    using Text = const std::string&;
    if (!prologue) {
      print_from();
      walk([&](Text at, Text to, Text lanes) {
        out.lines("{ V x, y;");
        load("x", "k_at + p", at, lanes, "");
        load("y", "k_at + p", at, lanes, "next + ");
        out.line("store({}, join(exact(x), exact(y), keep)); }}", to);
      });
      return;
    }
    // Low halves first: the fused code of two lines has the same names, and so no scope in common.
    for (const bool high : {false, true}) {
      out.lines(high && odd ? "if (p + 1 < kk) {" : "{");
      const std::string k = high ? "k_at + p + 1" : "k_at + p";
      print_line(out, line, spec, s, along_cols, k);
      walk([&](Text at, Text to, Text lanes) {
        out.lines("{ V x;");
        load("x", k, at, lanes, "");
        if (high) out.line("store({0}, join(load({0}), rounded(x))); }}", to);
        else out.line("store({}, rounded(x)); }}", to);
      });
      out.lines("}");
    }
  }
};

/// A's rows as they are, or computed along k.
void pack_a_rows(SourceText& out, const MatmulSpec& spec, const MatmulSchedule& s, const MatmulShape& shape,
                 const MatmulHooks& hooks, DimTable& dims) {
  const std::string cs = dims.text(spec.a.col_stride);
  out.line("for (long i = 0; i < (block_rows + {0}) / {1} * {1}; ++i) {{", s.mr - 1, s.mr);
  out.lines("const long r = min(i, block_rows - 1);");
  out.line("S* const to = (S*)(packed_a + i * {});", shape.a_ld);
  print_line(out, hooks.line_a, spec, s, true, "row + ir + r");
  if (!hooks.prologue_a)
    out.line("const S* const from = a + (ir + r) * {} + k_at * {};", dims.text(spec.a.row_stride), cs);
  if (!hooks.prologue_a && !spec.a.col_stride.is(1)) {
    out.line("for (long p = 0; p < kk; ++p) to[p] = from[p * {}];", cs);
    if (k_has_tail(spec, s, shape, 2)) out.lines("if (kk % 2) to[kk] = S{0};");
  } else {
    vector_loop(out, s.width, "p", "kk", k_has_tail(spec, s, shape, s.width), [&](const std::string& lanes) {
      out.lines("V x;");
      out.lines(load_vector(hooks.prologue_a, spec, s, "row + ir + r", "k_at + p", true, "from + p", lanes));
      out.lines("store_halves(to + p, x);");
    });
  }
  out.lines("}");
}

/// Stores `vector(lanes)`, words of rows from `at` on, to the panels of p: in vectors of the power of two
/// that holds a panel, whose last lanes go to where the next step's words or the padding will be. `lanes` is
/// how many rows are left of the block, "" where there are enough.
template <typename Vector>
void store_panels(SourceText& out, const MatmulSchedule& s, bool tail, const Vector& vector) {
  const auto width = std::bit_ceil(static_cast<unsigned>(s.mr));
  out.lines("long at = 0;");
  for (const bool whole : {true, false}) {
    if (!whole && !tail) return;
    if (whole && tail) out.line("for (; at + {} <= block_rows; at += {}) {{", width, s.mr);
    else out.line("for (; at < block_rows; at += {}) {{", s.mr);
    vector(width, std::string(whole ? "" : "block_rows - at"));
    out.line("kn::store<{0}>(packed_a + at / {1} * panel + p / 2 * {1}, x);\n}}", width, s.mr);
  }
}

/// From memory, where rows lie side by side.
void pack_a_loaded(SourceText& out, const Paired& lines) {
  out.lines("for (long p = 0; p < kk; p += 2) {");
  lines.print_from();
  store_panels(out, lines.s, true, [&](unsigned width, const std::string& lanes) {
    const auto load = [&](const char* at) {
      const std::string from = fmt::format("(const kn::u16*)(from{} + at)", at);
      return lanes.empty() ? fmt::format("kn::load<{}>({})", width, from)
                           : fmt::format("kn::load_n<{}>({}, {})", width, from, lanes);
    };
    out.line("const auto low = kn::convert<kn::u32>({}), high = kn::convert<kn::u32>({});", load(""),
             load(" + next"));
    out.lines("const auto x = low | ((high << 16) & keep);");
  });
  out.lines("}");
}

/// Through a prologue: some lines of words first, so that none is read while it is on its way to memory.
void pack_a_computed(SourceText& out, const Paired& lines) {
  constexpr int kLines = 4;
  const MatmulSchedule& s = lines.s;
  const int64_t length = s.mc + 2 * s.width + s.mr;
  out.line("alignas(Q) P words_of_lines[{}];", kLines * length);
  out.line("for (long p_at = 0; p_at < kk; p_at += {}) {{", 2 * kLines);
  for (const bool computes : {true, false}) {
    out.line("for (long p = p_at; p < min(p_at + {}, kk); p += 2) {{", 2 * kLines);
    out.line("P* const to = words_of_lines + (p - p_at) / 2 * {};", length);
    if (computes) {
      lines.print_lines([&](const auto& body) {
        vector_loop(out, s.width, "i", "block_rows", true,
                    [&](const std::string& lanes) { body("i", "to + i", lanes); });
      });
    } else {
      store_panels(out, s, false, [&](unsigned width, const std::string&) {
        out.line("const auto x = kn::load<{}>(to + at);", width);
      });
    }
    out.lines("}");
  }
  out.lines("}");
}

/// Panels of [k / 2][mr]; one pass over k, so that A's rows are read in long runs.
void pack_a_cols(SourceText& out, const MatmulSpec& spec, const MatmulSchedule& s, const MatmulShape& shape,
                 const MatmulHooks& hooks, DimTable& dims) {
  const std::string rs = dims.text(spec.a.row_stride), cs = dims.text(spec.a.col_stride);
  const Paired lines{out,
                     spec,
                     s,
                     spec.a,
                     hooks.prologue_a,
                     hooks.line_a,
                     false,
                     k_has_tail(spec, s, shape, 2),
                     fmt::format("a + ir * {} + (k_at + p) * {}", rs, cs),
                     "row + ir",
                     cs};
  out.line("const long panel = kp * {} + {};", s.mr, shape.a_pad);
  if (hooks.prologue_a) return pack_a_computed(out, lines);
  if (spec.a.row_stride.is(1)) return pack_a_loaded(out, lines);
  out.lines("for (long p = 0; p < kk; p += 2) {");
  lines.print_from();
  out.line("for (long at = 0; at < block_rows; at += {})", s.mr);
  out.line("for (long i = 0; i < {}; ++i) {{", s.mr);
  out.line("const S* const x = from + min(at + i, block_rows - 1) * {};", rs);
  out.line("packed_a[at / {0} * panel + p / 2 * {0} + i] = x->bits | (P(x[next].bits) << 16 & keep);\n}}",
           s.mr);
  out.lines("}");
}

/// The two vectors of k_at + p at column c of B from its prologue, as words in r[i].
void print_computed_words(SourceText& out, const MatmulSpec& spec, const MatmulSchedule& s,
                          const MatmulHooks& hooks, bool whole) {
  const auto at = [&](const char* to, int64_t past, const std::string& lanes) {
    out.lines(load_vector(hooks.prologue_b, spec, s, fmt::format("k_at + p + {}", past), "col + c", false, "",
                          lanes, to));
  };
  out.lines("V x, y = 0;");
  at("x", 0, whole ? "" : fmt::format("min(lanes, {})", s.width));
  if (!whole) out.line("if (lanes > {}) {{", s.width);
  at("y", s.width, whole ? "" : fmt::format("lanes - {}", s.width));
  if (!whole) out.lines("}");
  out.lines("r[i] = words_of(x, y);");
}

/// B's rows are contiguous (weights stored [out, in]): squares of words are turned in registers.
void pack_b_pair_cols(SourceText& out, const MatmulSpec& spec, const MatmulSchedule& s,
                      const MatmulShape& shape, const MatmulHooks& hooks, DimTable& dims) {
  out.line("for (long j = 0; j < cols; j += {}) {{", s.width);
  out.line("P* const to = packed_b + j / {0} * {0} * kp + j % {0};", shape.nr);
  const int step = 2 * s.width;
  vector_loop(out, step, "p", "kk", k_has_tail(spec, s, shape, step), [&](const std::string& lanes) {
    out.line("Q r[{}];", s.width);
    out.line("#pragma clang loop unroll({})", hooks.prologue_b ? "disable" : "full");
    out.line("for (long i = 0; i < {}; ++i) {{", s.width);
    const bool whole = spec.n.is_const() && spec.n.value() % s.width == 0;
    out.line("const long c = {};", whole ? "j + i" : "min(j + i, cols - 1)");
    print_line(out, hooks.line_b, spec, s, false, "col + c");
    const std::string from = fmt::format("b + c * {} + k_at + p", dims.text(spec.b.col_stride));
    if (hooks.prologue_b) print_computed_words(out, spec, s, hooks, lanes.empty());
    else if (lanes.empty()) out.line("r[i] = load((const P*)({}));", from);
    else out.line("r[i] = load_halves({}, lanes);", from);
    out.lines("}\ntranspose(r);");
    if (lanes.empty()) out.lines("#pragma clang loop unroll(full)");
    out.line("for (long i = 0; i < {}; ++i) store(to + (p / 2 + i) * {}, r[i]);",
             lanes.empty() ? std::to_string(s.width) : "(lanes + 1) / 2", shape.nr);
  });
  out.lines("}");
}
}  // namespace

void print_pack_a_pairs(SourceText& out, const MatmulSpec& spec, const MatmulSchedule& s,
                        const MatmulShape& shape, const MatmulHooks& hooks, DimTable& dims) {
  if (s.pack_a == PackA::rows) pack_a_rows(out, spec, s, shape, hooks, dims);
  else pack_a_cols(out, spec, s, shape, hooks, dims);
}

void print_pack_b_pairs(SourceText& out, const MatmulSpec& spec, const MatmulSchedule& s,
                        const MatmulShape& shape, const MatmulHooks& hooks, DimTable& dims) {
  const std::string rs = dims.text(spec.b.row_stride), cs = dims.text(spec.b.col_stride);
  if (!spec.b.col_stride.is(1) && spec.b.row_stride.is(1))
    return pack_b_pair_cols(out, spec, s, shape, hooks, dims);
  const Paired lines{out,
                     spec,
                     s,
                     spec.b,
                     hooks.prologue_b,
                     hooks.line_b,
                     true,
                     k_has_tail(spec, s, shape, 2),
                     fmt::format("b + (k_at + p) * {}", rs),
                     "col",
                     rs};
  out.lines("for (long p = 0; p < kk; p += 2) {");
  if (hooks.prologue_b || spec.b.col_stride.is(1)) {
    lines.print_lines([&](const auto& body) { panel_loop(out, spec, s, shape, "p / 2", body); });
  } else {
    lines.print_from();
    out.line(
        "for (long j = 0; j < cols; ++j) packed_b[j / {0} * {0} * kp + p / 2 * {0} + j % {0}] =\n"
        "from[j * {1}].bits | (P(from[next + j * {1}].bits) << 16 & keep);",
        shape.nr, cs);
  }
  out.lines("}");
}

}  // namespace kiln::detail
