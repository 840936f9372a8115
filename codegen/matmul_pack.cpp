// SPDX-License-Identifier: Apache-2.0
// Packing statements of the matmul template: copies of A and B in the order in which the micro kernel reads
// them, through the prologue if there is one. Tails repeat the last valid row or column, whose results nobody
// stores.
#include "codegen/matmul_parts.h"
#include "ir/base/error.h"

namespace kiln::detail {

std::string load_vector(const MatmulHook& prologue, const MatmulSpec& spec, const MatmulSchedule& s,
                        const std::string& row, const std::string& col, bool along_cols,
                        const std::string& address, const std::string& lanes, const char* to) {
  if (prologue) return call_hook(prologue, spec, s, {"", {}, row, col, along_cols, 0, lanes, true}, to, true);
  return lanes.empty() ? fmt::format("{} = load({});", to, address)
                       : fmt::format("{} = load_lanes({}, {});", to, address, lanes);
}

void print_line(SourceText& out, const MatmulHook& hook, const MatmulSpec& spec, const MatmulSchedule& s,
                bool along_cols, const std::string& at) {
  if (!hook) return;
  // Fused code may declare words of its own by these names, in the scope of what comes after it.
  out.lines("using words::load, words::store;");
  out.lines(hook({"", batch_names(spec), at, at, along_cols, s.width, "", true}));
}

void print_pack_a(SourceText& out, const MatmulSpec& spec, const MatmulSchedule& s, const MatmulShape& shape,
                  const MatmulHooks& hooks, DimTable& dims) {
  if (s.pairs) return print_pack_a_pairs(out, spec, s, shape, hooks, dims);
  const std::string rs = dims.text(spec.a.row_stride), cs = dims.text(spec.a.col_stride);
  if (s.pack_a == PackA::rows) {
    out.line("for (long i = 0; i < (block_rows + {0}) / {1} * {1}; ++i) {{", s.mr - 1, s.mr);
    out.lines("const long r = min(i, block_rows - 1);");
    out.line("T* const to = packed_a + i * {};", shape.a_ld);
    print_line(out, hooks.line_a, spec, s, true, "row + ir + r");
    if (!hooks.prologue_a)
      out.line("const {}* const from = a + (ir + r) * {} + k_at * {};", element_type(spec.a), rs, cs);
    if (!hooks.prologue_a && !spec.a.col_stride.is(1)) {
      out.line("for (long p = 0; p < kk; ++p) to[p] = kn::load<1>(from + p * {});", cs);
    } else {
      vector_loop(
          out, s.width, "p", "kk", k_has_tail(spec, s, shape, s.width), [&](const std::string& lanes) {
            out.lines("V x;");
            out.lines(
                load_vector(hooks.prologue_a, spec, s, "row + ir + r", "k_at + p", true, "from + p", lanes));
            out.lines("store(to + p, x);");
          });
    }
    out.lines("}");
    return;
  }
  // Panels of [k][mr]; one pass over k, so that A's rows are read in long runs.
  out.lines("for (long p = 0; p < kk; ++p) {");
  const bool staged = hooks.prologue_a || (spec.a.half && spec.a.row_stride.is(1));
  const std::string memory = fmt::format("a + ir * {} + (k_at + p) * {}", rs, cs);
  if (staged) {
    out.line("alignas(V) T from[{}];", s.mc + s.width);
    print_line(out, hooks.line_a, spec, s, false, "k_at + p");
    vector_loop(out, s.width, "i", "block_rows", true, [&](const std::string& lanes) {
      out.lines("V x;");
      out.lines(
          load_vector(hooks.prologue_a, spec, s, "row + ir + i", "k_at + p", false, memory + " + i", lanes));
      out.lines("store(from + i, x);");
    });
  } else {
    out.line("const {}* const from = {};", element_type(spec.a), memory);
  }
  const bool unit = staged || spec.a.row_stride.is(1);
  out.lines("long at = 0;");
  if (unit) {
    out.line("for (; at + {0} <= block_rows; at += {0})", s.mr);
    out.line("__builtin_memcpy(packed_a + at * kk + p * {0}, from + at, {0} * sizeof(T));", s.mr);
  }
  out.line("for (; at < block_rows; at += {})", s.mr);
  out.line(
      "for (long i = 0; i < {0}; ++i) packed_a[at * kk + p * {0} + i] = kn::load<1>(from + min(at + i, "
      "block_rows - 1){1});",
      s.mr, unit ? "" : " * " + rs);
  out.lines("}");
}

namespace {
/// B's columns are contiguous: rows of vectors, panel after panel.
void pack_b_rows(SourceText& out, const MatmulSpec& spec, const MatmulSchedule& s, const MatmulShape& shape,
                 const MatmulHooks& hooks, DimTable& dims) {
  out.lines("for (long p = 0; p < kk; ++p) {");
  if (!hooks.prologue_b)
    out.line("const {}* const from = b + (k_at + p) * {};", element_type(spec.b),
             dims.text(spec.b.row_stride));
  const std::string row = fmt::format("{} + p", packed_b_step(spec));
  print_line(out, hooks.line_b, spec, s, true, row);
  panel_loop(
      out, spec, s, shape, "p", [&](const std::string& at, const std::string& to, const std::string& lanes) {
        out.lines("{ V x;");
        out.lines(load_vector(hooks.prologue_b, spec, s, row, "col + " + at, true, "from + " + at, lanes));
        out.line("store({}, x); }}", to);
      });
  out.lines("}");
}

/// B's rows are contiguous (weights stored [out, in]): squares are turned in registers.
void pack_b_cols(SourceText& out, const MatmulSpec& spec, const MatmulSchedule& s, const MatmulShape& shape,
                 const MatmulHooks& hooks, DimTable& dims) {
  const std::string cs = dims.text(spec.b.col_stride);
  out.line("for (long j = 0; j < cols; j += {}) {{", s.width);
  out.line("T* const to = {1} + j / {0} * {0} * {2} + j % {0};", shape.nr, packed_b_name(spec),
           chunk_steps(spec, s));
  vector_loop(out, s.width, "p", "kk", k_has_tail(spec, s, shape, s.width), [&](const std::string& lanes) {
    out.line("V r[{}];", s.width);
    out.line("#pragma clang loop unroll({})", hooks.prologue_b ? "disable" : "full");
    out.line("for (long i = 0; i < {}; ++i) {{", s.width);
    const bool whole = spec.n.is_const() && spec.n.value() % s.width == 0;
    out.line("const long c = {};\nV x;", whole ? "j + i" : "min(j + i, cols - 1)");
    print_line(out, hooks.line_b, spec, s, false, "col + c");
    const std::string address = fmt::format("b + c * {} + k_at + p", cs);
    out.lines(load_vector(hooks.prologue_b, spec, s, fmt::format("{} + p", packed_b_step(spec)), "col + c",
                          false, address, lanes));
    out.lines("r[i] = x;\n}");
    out.lines("transpose(r);");
    if (lanes.empty()) out.lines("#pragma clang loop unroll(full)");
    out.line("for (long i = 0; i < {}; ++i) store(to + (p + i) * {}, r[i]);",
             lanes.empty() ? std::to_string(s.width) : lanes, shape.nr);
  });
  out.lines("}");
}

/// B over one run of k.
void print_pack_run(SourceText& out, const MatmulSpec& spec, const MatmulSchedule& s,
                    const MatmulShape& shape, const MatmulHooks& hooks, DimTable& dims) {
  if (s.pairs) return print_pack_b_pairs(out, spec, s, shape, hooks, dims);
  if (spec.b.col_stride.is(1)) return pack_b_rows(out, spec, s, shape, hooks, dims);
  if (spec.b.row_stride.is(1)) return pack_b_cols(out, spec, s, shape, hooks, dims);
  if (hooks.prologue_b) return pack_b_rows(out, spec, s, shape, hooks, dims);
  out.lines("for (long p = 0; p < kk; ++p) {");
  out.lines("for (long j = 0; j < cols; ++j)");
  out.line("{3}[j / {0} * {0} * {4} + p * {0} + j % {0}] = kn::load<1>(b + (k_at + p) * {1} + j * {2});",
           shape.nr, dims.text(spec.b.row_stride), dims.text(spec.b.col_stride), packed_b_name(spec),
           chunk_steps(spec, s));
  out.lines("}");
}
}  // namespace

void print_pack_b(SourceText& out, const MatmulSpec& spec, const MatmulSchedule& s, const MatmulShape& shape,
                  const MatmulHooks& hooks, DimTable& dims) {
  if (spec.k_outer.empty()) return print_pack_run(out, spec, s, shape, hooks, dims);
  out.lines("for (long run = 0; run < runs; ++run) {");
  out.line("const T* const b = b_chunk + run * {};\n(void)b;", dims.text(spec.b.k_stride.back()));
  out.line("T* const packed_run = packed_b + run * kk * {};", shape.nr);
  out.line("const long k_row = (lead * {} + run_at + run) * k + k_at;\n(void)k_row;",
           dims.text(spec.k_outer.back()));
  print_pack_run(out, spec, s, shape, hooks, dims);
  out.lines("}");
}

}  // namespace kiln::detail
