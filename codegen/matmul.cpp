// SPDX-License-Identifier: Apache-2.0
// Puts a matmul kernel together: tasks, chunks of k, blocks of rows, register blocks, epilogue; and the
// second kernel that sums the ranges of a split k. The order of the sums is written in the text, never left
// to threads.
#include "codegen/matmul.h"

#include <algorithm>

#include "codegen/matmul_parts.h"
#include "ir/base/error.h"

namespace kiln {

namespace {
using detail::chunk_steps;
using detail::MatmulShape;
using detail::MicroKernel;

/// Everything the printing functions share.
struct Printer {
  const std::string& name;
  const MatmulSpec& spec;
  const MatmulSchedule& s;
  const MatmulHooks& hooks;
  DimTable& dims;
  MatmulShape shape;
  SourceText out;
  int workspace = -1;

  std::vector<std::string> batch() const { return detail::batch_names(spec); }
  bool split() const { return s.split_k > 1; }
  bool default_store() const { return !hooks.epilogue; }
  bool outer() const { return !spec.k_outer.empty(); }
  void check() const;
  void print_offset(const char* pointer, const MatmulOperand& operand, const std::string& more);
  void print_signature();
  void print_sizes();
  void print_task_decode();
  void print_task_names();
  void print_task_hook(const MatmulTaskHook& hook);
  void print_register_block();
  void print_dispatch(const std::string& a, const std::string& b, const std::string& ld,
                      const std::string& resume);
  void print_store(bool full, const std::string& lanes);
  void print_epilogue(const std::string& value_full, const std::string& value_part);
  void print_range();
  void print_chunk();
  void print_outer_range();
  void print_outer_chunk();
  void print_main();
  void print_combine();
};

Dim chunk_of_split(const MatmulSpec& spec, int split) { return ceildiv(spec.k, Dim(split)); }

void Printer::check() const {
  const auto fits = [&](const MatmulOperand& o) { return o.batch_stride.size() == spec.batch.size(); };
  KILN_ASSERT(spec.dtype == DType::f32 || spec.dtype == DType::f64, "matmul of {}", dtype_name(spec.dtype));
  KILN_ASSERT(fits(spec.a) && fits(spec.b) && fits(spec.c), "matmul: batch strides and batch axes differ");
  KILN_ASSERT(s.mr > 0 && s.nv > 0 && s.kc > 0 && s.split_k > 0 && s.mc % s.mr == 0 && s.tile_m % s.mc == 0 &&
                  s.tile_n % shape.nr == 0,
              "matmul: tiles {}x{} of blocks {}x{}x{}", s.tile_m, s.tile_n, s.mc, s.mr, shape.nr);
  const auto is_bf16 = [](const MatmulOperand& o) { return o.half == DType::bf16; };
  KILN_ASSERT(!s.pairs || (is_bf16(spec.a) && is_bf16(spec.b) && s.pack_b && s.kc % 2 == 0),
              "matmul: no pairs of bf16, kc {}", s.kc);
  const bool a_in_place = !hooks.prologue_a && (s.pairs ? spec.a.col_stride.is(1) : !spec.a.half);
  KILN_ASSERT(s.pack_a != PackA::none || a_in_place, "matmul: A must be packed");
  for (const MatmulOperand* o : {&spec.a, &spec.b, &spec.c})
    KILN_ASSERT(!o->half || spec.dtype == DType::f32, "matmul of {} in {}", dtype_name(*o->half),
                dtype_name(spec.dtype));
  const auto runs_fit = [&](const MatmulOperand& o) { return o.k_stride.size() == spec.k_outer.size(); };
  KILN_ASSERT(runs_fit(spec.a) && runs_fit(spec.b), "matmul: strides and axes around k differ");
  KILN_ASSERT(!outer() || (s.pack_a == PackA::none && !spec.a.half && !spec.b.half),
              "matmul: several runs of k need A in place");
  KILN_ASSERT(s.pack_b || (spec.b.col_stride.is(1) && spec.n.is_const() && spec.n.value() % s.width == 0 &&
                           !hooks.prologue_b && !spec.b.half),
              "matmul: B must be packed");
  KILN_ASSERT(!s.by_rows || !s.pack_b, "matmul: tasks by rows need B in place");
}

/// `const T* a = base + its batch offset + more`.
void Printer::print_offset(const char* pointer, const MatmulOperand& o, const std::string& more) {
  std::string text = fmt::format("{}_base", std::string_view(pointer).substr(0, 1));
  for (size_t i = 0; i < spec.batch.size(); ++i)
    if (!o.batch_stride[i].is(0)) text += fmt::format(" + mm_b{} * {}", i, dims.text(o.batch_stride[i]));
  out.line("{}{}* const {} = {}{};", pointer[0] == 'c' ? "" : "const ", detail::element_type(o), pointer,
           text, more);
}

void Printer::print_signature() {
  out.line(
      "KILN_KERNEL void {}(void* const* buffers, const int64_t* dims, int64_t task_begin, int64_t task_end,",
      name);
  out.lines("void* scratch) {");
}

void Printer::print_sizes() {
  const auto base = [&](const char* pointer, const MatmulOperand& o) {
    const std::string type = fmt::format("{}{}*", pointer[0] == 'c' ? "" : "const ", detail::element_type(o));
    const std::string offset = o.offset.is(0) ? "" : " + " + dims.text(o.offset);
    out.line("{0} const {1}_base = ({0})buffers[{2}]{3};", type, pointer, o.buffer, offset);
  };
  base("a", spec.a);
  base("b", spec.b);
  if (default_store()) base("c", spec.c);
  out.line("const long m = {}, n = {}, k = {};", dims.text(spec.m), dims.text(spec.n), dims.text(spec.k));
  // An empty matmul has no task; its text must still not divide by zero.
  out.line("const long tiles_m = m ? (m + {}) / {} : 1, tiles_n = n ? (n + {}) / {} : 1;", s.tile_m - 1,
           s.tile_m, s.tile_n - 1, s.tile_n);
}

/// Consecutive tasks share their columns, so that one packing of B serves a thread's whole run of them. Where
/// B stays in place, they may share their rows.
void Printer::print_task_decode() {
  const auto tile_index = [&](const char* side) {
    out.line("const long tile_{0}_index = rest % tiles_{0};\nrest /= tiles_{0};", side);
  };
  out.lines("long rest = task;");
  if (s.by_rows) tile_index("n");
  tile_index("m");
  const auto batch_indices = [&] {
    for (size_t i = spec.batch.size(); i-- > 0;) {
      if (i == 0 && !shape.b_shared) {
        out.line("const long mm_b{} = rest;", i);
      } else {
        const std::string size = dims.text(spec.batch[i].is(0) ? Dim(1) : spec.batch[i]);
        out.line("const long mm_b{0} = rest % {1};\nrest /= {1};", i, size);
      }
    }
  };
  const bool batch_first = shape.b_shared && !s.by_rows;
  if (batch_first) batch_indices();
  if (batch_first) out.lines("const long columns = rest;");
  else out.lines("const long columns = task / tiles_m;");
  if (split()) out.line("const long split = rest % {0};\nrest /= {0};", s.split_k);
  if (batch_first) out.lines("const long tile_n_index = rest;");
  else if (!s.by_rows) tile_index("n");
  if (!batch_first) batch_indices();
  out.line("const long row = tile_m_index * {0}, rows = min({0}, m - row);", s.tile_m);
  out.line("const long col = tile_n_index * {0}, cols = min({0}, n - col);", s.tile_n);
}

/// Under these names fused code finds its task, in the task hooks and in the epilogue.
void Printer::print_task_names() {
  if (!hooks.task_begin && !hooks.task_end) return;
  out.lines("const int64_t mm_tile_m = tile_m_index, mm_tile_n = tile_n_index, mm_task_row = row;");
  out.lines("const int64_t mm_task_rows = rows, mm_task_col = col, mm_task_cols = cols;");
  out.lines("T* const mm_scratch = hook_scratch;");
  for (const char* name : {"tile_m", "tile_n", "task_row", "task_rows", "task_col", "task_cols", "scratch"})
    out.line("(void)mm_{};", name);
}

void Printer::print_task_hook(const MatmulTaskHook& hook) {
  if (!hook) return;
  out.lines("{");
  out.lines(hook({batch(), "mm_tile_m", "mm_tile_n", "mm_task_row", "mm_task_rows", "mm_task_col",
                  "mm_task_cols", "mm_scratch"}));
  out.lines("}");
}

/// Calls the micro kernel that fits r x c.
void Printer::print_dispatch(const std::string& a, const std::string& b, const std::string& ld,
                             const std::string& resume) {
  const auto by_cols = [&](int rows, const std::string& a_at, const std::string& to) {
    const auto call = [&](int vectors, bool half) {
      return fmt::format("{}({}, {}, {}, {}, {}, {}, dims);", MicroKernel{rows, vectors, half}.name(), a_at,
                         b,
                         !spec.k_outer.empty()     ? "runs, kk"
                         : s.pack_a == PackA::none ? "kk"
                                                   : chunk_steps(spec, s),
                         to, ld, resume);
    };
    if (shape.col_tail == 0) return out.lines(call(s.nv, false));
    out.line("if (c == {}) {}", shape.nr, call(s.nv, false));
    out.line("else {}", call(shape.col_tail, shape.half_tail));
  };
  if (shape.row_tail == 0) return by_cols(s.mr, a, "to");
  if (spec.m.is_const() && spec.m.value() < s.mr) return by_cols(shape.row_tail, a, "to");
  out.line("if (r == {}) {{", s.mr);
  by_cols(s.mr, a, "to");
  out.lines("} else {");
  if (shape.row_by_row) {
    out.lines("for (long i = 0; i < r; ++i) {");
    by_cols(1, fmt::format("{} + i * {}", a, dims.text(spec.a.row_stride)), fmt::format("to + i * ({})", ld));
    out.lines("}");
  } else {
    by_cols(shape.row_tail, a, "to");
  }
  out.lines("}");
}

/// Stores `acc` at (row_at, col_at): the epilogue, or C as it is.
void Printer::print_store(bool full, const std::string& lanes) {
  if (hooks.epilogue) {
    out.lines(detail::call_hook(hooks.epilogue, spec, s,
                                {"", {}, "row_at", "col_at", true, 0, full ? std::string() : lanes, full},
                                "acc", false));
    return;
  }
  const std::string cs = dims.text(spec.c.col_stride);
  const std::string to = fmt::format("c_tile + row_at * {} + col_at", dims.text(spec.c.row_stride));
  if (cs != "1")
    out.line("for (long l = 0; l < {0}; ++l) kn::store<1>({1} * {2} + l * {2}, acc[l]);", lanes,
             fmt::format("c_tile + row_at * {} + col_at", dims.text(spec.c.row_stride)), cs);
  else if (full) out.line("store({}, acc);", to);
  else out.line("store_lanes({}, acc, {});", to, lanes);
}

/// Walks an r x c block in vectors and stores each; `value_*` say where a vector at (i, j) comes from.
void Printer::print_epilogue(const std::string& value_full, const std::string& value_part) {
  out.lines("for (long i = 0; i < r; ++i) {");
  out.lines("const long row_at = block_row + i;\nlong j = 0;");
  if (!spec.n.is_const() || spec.n.value() >= s.width) {
    out.line("for (; j + {0} <= c; j += {0}) {{", s.width);
    out.line("const long col_at = block_col + j;\nV acc = {};", value_full);
    print_store(true, std::to_string(s.width));
    out.lines("}");
  }
  const int64_t rest = spec.n.is_const() ? spec.n.value() % s.width : 1;
  if (rest != 0) {
    out.lines("if (j < c) {");
    out.line("const long col_at = block_col + j, lanes = {};",
             spec.n.is_const() ? std::to_string(rest) : "c - j");
    out.line("V acc = {};", value_part);
    print_store(false, spec.n.is_const() ? std::to_string(rest) : "lanes");
    out.lines("}");
  }
  out.lines("}");
}

/// One mr x nr block: micro kernel, then epilogue unless it wrote C itself.
void Printer::print_register_block() {
  const std::string a_at =
      s.pack_a == PackA::none   ? fmt::format("{} + (ir + ii) * {} + k_at * {}", outer() ? "a_chunk" : "a",
                                              dims.text(spec.a.row_stride), dims.text(spec.a.col_stride))
      : s.pack_a == PackA::rows ? fmt::format("packed_a + ii * {}", shape.a_ld)
      : s.pairs                 ? fmt::format("packed_a + ii / {0} * (kp * {0} + {1})", s.mr, shape.a_pad)
                                : fmt::format("packed_a + ii * {}", chunk_steps(spec, s));
  const std::string b_at =
      s.pack_b ? fmt::format("packed_b + j * {}", chunk_steps(spec, s))
               : fmt::format("{} + k_at * {} + j", outer() ? "b_chunk" : "b", dims.text(spec.b.row_stride));
  out.line("const long r = min({}, rows - ir - ii), c = min({}, cols - j);", s.mr, shape.nr);
  const std::string c_at =
      fmt::format("c_tile + (row + ir + ii) * {} + col + j", dims.text(spec.c.row_stride));
  const std::string c_ld = dims.text(spec.c.row_stride);
  const std::string in_tile =
      shape.partial ? fmt::format("tile + (ir + ii) * {} + j * {}", s.tile_n, s.mr) : std::string("tile");
  const std::string resume = shape.one_chunk ? "false" : outer() ? "chunk > 0" : "k_at > k_begin";
  if (shape.plain_c && shape.exact) {
    out.line("T* const to = {};", c_at);
    return print_dispatch(a_at, b_at, c_ld, resume);
  }
  if (shape.plain_c && shape.one_chunk) {
    std::string whole =
        spec.n.is_const() ? fmt::format("c % {} == 0", s.width) : fmt::format("c == {}", shape.nr);
    if (!shape.exact_rows) whole += fmt::format(" && r == {}", s.mr);
    out.line("const bool direct = {};", whole);
    out.line("T* const to = direct ? {} : {};", c_at, in_tile);
    print_dispatch(a_at, b_at, fmt::format("direct ? {} : {}", c_ld, shape.nr), resume);
    out.lines("if (direct) continue;");
  } else {
    out.line("T* const to = {};", in_tile);
    print_dispatch(a_at, b_at, std::to_string(shape.nr), resume);
    if (!shape.one_chunk) out.line("if ({}) continue;", outer() ? "chunk + 1 < chunks" : "k_at + kk < k_end");
  }
  out.lines("const long block_row = row + ir + ii, block_col = col + j;");
  const std::string value = fmt::format("load(to + i * {} + j)", shape.nr);
  out.lines("{");
  print_epilogue(value, value);
  out.lines("}");
}

void Printer::print_range() {
  if (split()) {
    out.line("const long k_part = {};", dims.text(chunk_of_split(spec, s.split_k)));
    out.lines("const long k_begin = min(split * k_part, k), k_end = min(k_begin + k_part, k);");
  } else {
    out.lines("const long k_begin = 0, k_end = k;");
  }
}

void Printer::print_chunk() {
  out.lines("long k_at = k_begin;\ndo {");
  out.line("const long kk = min({}, k_end - k_at);", s.kc);
  if (s.pairs) out.lines("const long kp = (kk + 1) / 2;");
}

/// The outermost axis around k is what is split; the axes but the last are counted as one, `lead`.
void Printer::print_outer_range() {
  const std::vector<Dim>& axes = spec.k_outer;
  const std::string first = dims.text(axes[0]);
  if (split()) {
    out.line("const long part = {};", dims.text(ceildiv(axes[0], Dim(s.split_k))));
    out.line("const long begin = min(split * part, {0}), end = min(begin + part, {0});", first);
  } else {
    out.line("const long begin = 0, end = {};", first);
  }
  Dim inner(1);
  for (size_t i = 1; i + 1 < axes.size(); ++i) inner = inner * axes[i];
  if (axes.size() == 1)
    out.lines("const long run_begin = begin, run_end = end, lead_begin = 0, lead_end = 1;");
  else
    out.line("const long run_begin = 0, run_end = {0}, lead_begin = begin * {1}, lead_end = end * {1};",
             dims.text(axes.back()), dims.text(inner));
  out.line("const long run_steps = (run_end - run_begin + {0}) / {1}, k_steps = (k + {2}) / {3};",
           shape.runs - 1, shape.runs, s.kc - 1, s.kc);
  out.lines("const long chunks = (lead_end - lead_begin) * run_steps * k_steps;");
}

/// Without any chunk there is still a sum of nothing to store.
void Printer::print_outer_chunk() {
  out.lines("long chunk = 0;\ndo {");
  out.lines("long run_at = run_begin, k_at = 0, lead = lead_begin, runs = 0, kk = 0;\nif (chunks > 0) {");
  out.line("k_at = chunk % k_steps * {};\nkk = min({}, k - k_at);", s.kc, s.kc);
  out.line("run_at = run_begin + chunk / k_steps % run_steps * {0};\nruns = min({0}, run_end - run_at);",
           shape.runs);
  out.lines("lead = lead_begin + chunk / k_steps / run_steps;\n}");
  out.lines("const long ks = runs * kk;\n(void)ks;");
  std::string a = "a", b = "b";
  const auto add = [&](const std::string& index, size_t axis) {
    a += fmt::format(" + {} * {}", index, dims.text(spec.a.k_stride[axis]));
    b += fmt::format(" + {} * {}", index, dims.text(spec.b.k_stride[axis]));
  };
  out.lines("long rest_of_lead = lead;\n(void)rest_of_lead;");
  const size_t last = spec.k_outer.size() - 1;
  for (size_t i = last; i-- > 0;) {
    if (i == 0) {
      add("rest_of_lead", i);
      break;
    }
    out.line("const long lead_{0} = rest_of_lead % {1};\nrest_of_lead /= {1};", i,
             dims.text(spec.k_outer[i]));
    add(fmt::format("lead_{}", i), i);
  }
  add("run_at", last);
  out.line("const T* const a_chunk = {};\nconst T* const b_chunk = {};\n(void)b_chunk;", a, b);
}

void Printer::print_main() {
  print_signature();
  print_sizes();
  out.line("{0}* const packed_b = ({0}*)scratch;", detail::packed_type(s));
  out.line("{}* const packed_a = packed_b + {};", detail::packed_type(s), shape.pack_b_elements);
  out.line("T* const tile = {}packed_a + {}{};", s.pairs ? "(T*)(" : "", shape.pack_a_elements,
           s.pairs ? ")" : "");
  out.line("T* const hook_scratch = tile + {};\n(void)hook_scratch;\n(void)tile;", shape.tile_elements);
  out.lines(hooks.setup);
  if (s.pack_b) out.lines("long packed = -1;");
  out.lines("for (long task = task_begin; task < task_end; ++task) {");
  print_task_decode();
  if (outer()) print_outer_range();
  else print_range();
  print_offset("a", spec.a,
               spec.a.row_stride.is(0) ? "" : fmt::format(" + row * {}", dims.text(spec.a.row_stride)));
  print_offset("b", spec.b, fmt::format(" + col * {}", dims.text(spec.b.col_stride)));
  if (default_store())
    print_offset("c_tile", spec.c,
                 split() ? " + split * " + dims.text(numel(spec.batch) * spec.m * spec.n) : "");
  print_task_names();
  print_task_hook(hooks.task_begin);
  if (outer()) print_outer_chunk();
  else print_chunk();
  if (s.pack_b) {
    out.line("if (packed != columns{}) {{", shape.one_chunk ? ""
                                            : outer()       ? " || chunks > 1"
                                                            : " || k_end - k_begin > kk");
    detail::print_pack_b(out, spec, s, shape, hooks, dims);
    out.lines("packed = columns;\n}");
  }
  out.line("for (long ir = 0; ir < rows; ir += {}) {{", s.mc);
  out.line("const long block_rows = min({}, rows - ir);", s.mc);
  if (s.pack_a != PackA::none) detail::print_pack_a(out, spec, s, shape, hooks, dims);
  out.line("for (long ii = 0; ii < block_rows; ii += {}) {{", s.mr);
  out.line("for (long j = 0; j < cols; j += {}) {{", shape.nr);
  print_register_block();
  out.lines("}\n}\n}");
  out.lines(outer() ? "} while (++chunk < chunks);" : "k_at += kk;\n} while (k_at < k_end);");
  print_task_hook(hooks.task_end);
  out.lines("}\n}");
}

/// The second launch of a split k: sums the ranges in order, then the epilogue.
void Printer::print_combine() {
  print_signature();
  print_sizes();
  out.line("T* const hook_scratch = (T*)scratch;\n(void)hook_scratch;\n(void)k;");
  out.lines(hooks.setup);
  out.lines("for (long task = task_begin; task < task_end; ++task) {");
  print_task_decode();
  if (default_store()) print_offset("c_tile", spec.c, "");
  print_task_names();
  print_task_hook(hooks.task_begin);
  out.lines("const long r = rows, c = cols, block_row = row, block_col = col;\n(void)columns;");
  std::string index = "0";
  for (size_t i = 0; i < spec.batch.size(); ++i)
    index = fmt::format("({} * {} + mm_b{})", index, dims.text(spec.batch[i]), i);
  out.line("const T* const from = (const T*)buffers[{}] + ({} * m + row) * n + col;", workspace, index);
  const std::string stride = dims.text(numel(spec.batch) * spec.m * spec.n);
  print_epilogue(fmt::format("sum_ranges(from + i * n + j, {})", stride),
                 fmt::format("sum_ranges_lanes(from + i * n + j, {}, lanes)", stride));
  print_task_hook(hooks.task_end);
  out.lines("}\n}");
}

void print_sum_words(SourceText& out, int split_k) {
  for (const bool full : {true, false}) {
    out.line("static inline V sum_ranges{}(const T* p, long stride{}) {{", full ? "" : "_lanes",
             full ? "" : ", long lanes");
    const char* load = full ? "load(p)" : "load_lanes(p, lanes)";
    out.line("V sum = {};", load);
    out.line("for (int i = 1; i < {}; ++i) {{ p += stride; sum += {}; }}", split_k, load);
    out.lines("return sum;\n}");
  }
}

/// The spec of the first launch of a split k: C is the workspace [range][batch...][m][n].
MatmulSpec to_workspace(MatmulSpec spec, int workspace_buffer) {
  Dim stride = spec.m * spec.n;
  spec.c = {workspace_buffer, 0, std::vector<Dim>(spec.batch.size()), spec.n, 1};
  for (size_t i = spec.batch.size(); i-- > 0; stride = stride * spec.batch[i])
    spec.c.batch_stride[i] = stride;
  return spec;
}
}  // namespace

MatmulSource print_matmul(const std::string& name, const MatmulSpec& spec, const MatmulSchedule& schedule,
                          const MatmulHooks& hooks, DimTable& dims, int workspace_buffer) {
  const bool split = schedule.split_k > 1;
  MatmulHooks inner = hooks;
  if (split) inner.epilogue = nullptr, inner.task_begin = nullptr, inner.task_end = nullptr;
  const MatmulSpec inner_spec = split ? to_workspace(spec, workspace_buffer) : spec;
  Printer p{name, inner_spec, schedule, inner, dims, MatmulShape(inner_spec, schedule, inner), {}};
  p.check();
  MatmulSource source;
  p.out.line("#include \"kiln_cpu.h\"\nnamespace {}_code {{", name);
  const bool transpose = schedule.pack_b && !spec.b.col_stride.is(1) && spec.b.row_stride.is(1);
  detail::print_matmul_words(p.out, spec, schedule, transpose);
  for (const int rows : {schedule.mr, p.shape.row_tail})
    for (const bool tail : {false, true}) {
      const MicroKernel m{rows, tail ? p.shape.col_tail : schedule.nv, tail && p.shape.half_tail};
      if (m.rows > 0 && m.vectors > 0) detail::print_micro_kernel(p.out, spec, schedule, p.shape, m, dims);
    }
  p.print_main();
  const Dim tiles =
      ceildiv(spec.m, Dim(schedule.tile_m)) * ceildiv(spec.n, Dim(schedule.tile_n)) * numel(spec.batch);
  const auto size = static_cast<int64_t>(dtype_size(spec.dtype));
  const int64_t packed = p.shape.pack_b_elements + p.shape.pack_a_elements + p.shape.tile_elements;
  source.launches.push_back(
      {name, tiles * Dim(schedule.split_k), Dim(size * (packed + inner.scratch_elements))});
  if (split) {
    MatmulSchedule last = schedule;
    last.split_k = 1;
    const std::string combine = name + "_combine";
    Printer q{combine, spec, last, hooks, dims, p.shape, std::move(p.out)};
    q.workspace = workspace_buffer;
    print_sum_words(q.out, schedule.split_k);
    q.print_combine();
    source.launches.push_back({combine, tiles, Dim(size * hooks.scratch_elements)});
    source.workspace_buffer = workspace_buffer;
    source.workspace_bytes = numel(spec.batch) * spec.m * spec.n * Dim(size * schedule.split_k);
    p.out = std::move(q.out);
  }
  p.out.line("}}  // namespace {}_code", name);
  source.text = p.out.str();
  return source;
}

}  // namespace kiln
