// SPDX-License-Identifier: Apache-2.0
#include "codegen/source_cpu.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "codegen/source_kernel.h"
#include "ir/base/hash.h"
#include "ir/graph.h"

namespace kiln {

namespace {

using detail::identity_text;
using detail::storage_name;
using loop::AxisRole;
using loop::Instr;
using loop::InstrKind;

constexpr int64_t kFlatChunk = 16384;  ///< elements of a task of a kernel without rows
constexpr int64_t kChain = 64;         ///< additions to one float before it moves on: long sums

class Writer : detail::KernelText {
 public:
  Writer(const loop::Kernel& k, const CpuTarget& target, const RowSchedule& schedule)
      : KernelText(k), schedule_(schedule) {
    choose_width(target);
    lay_scratch();
  }

  CpuKernel write() {
    CpuKernel out;
    std::string canonical = loop::print(k_) + fmt::format("width {}\n", width_);
    if (schedule_ != RowSchedule{}) canonical += str(schedule_) + "\n";
    out.symbol = "k_" + hash128(canonical).hex();
    body();
    out.text = comment() + "#include \"kiln_cpu.h\"\nusing namespace kn;\n\n";
    out.text += fmt::format(
        "KILN_KERNEL void {}(void* const* buffers, const i64* dims, i64 task_begin, i64 task_end,\n"
        "    void* scratch) {{\n{}}}\n",
        out.symbol, text_);
    out.tasks = flat_ ? ceildiv(k_.axes[0].extent, Dim(kFlatChunk))
                      : k_.extent(AxisRole::batch) * ceildiv(k_.extent(AxisRole::row), rows_per_task());
    if (!has_cols_ && k_.axes.empty()) out.tasks = Dim(1);
    out.scratch_bytes = scratch_bytes_;
    if (flat_) out.per_task = kFlatChunk;
    out.in_place = works_in_place();
    return out;
  }

 private:
  /// What stores comes last, and a row is no other task's: all loads of it are done by then.
  bool works_in_place() const {
    if (k_.has(InstrKind::partial)) return false;
    for (size_t v = 0; v < k_.body.size(); ++v)
      if (k_.body[v].kind == InstrKind::store && p_.vector[v] && p_.at[v] + 1 < p_.count) return false;
    return true;
  }

  // --- set-up ---

  void choose_width(const CpuTarget& target) {
    // Elements of 8 bytes alone, or long functions of them, which would fill the registers twice over.
    bool wide = !k_.params.empty();
    for (const loop::Param& p : k_.params) wide = wide && dtype_size(p.dtype) == 8;
    for (const Instr& i : k_.body)
      wide = wide || (i.kind == InstrKind::elementwise && dtype_size(i.dtype) == 8 && def(i.op).flops >= 10);
    width_ = std::max(target.vector_bytes, 16) / (wide ? 8 : 4);
    if (k_.axes.empty() || k_.axes.back().role != AxisRole::col) {
      width_ = 1;
    } else if (k_.axes.back().extent.is_const()) {
      const auto n = static_cast<uint64_t>(std::max<int64_t>(k_.axes.back().extent.value(), 1));
      width_ = static_cast<int>(std::min<uint64_t>(static_cast<uint64_t>(width_), std::bit_ceil(n)));
    }
    if (schedule_.width > 0) width_ = std::min(width_, schedule_.width);
  }

  /// Partial results have one place per task: then their count is the plan's, not the schedule's.
  Dim rows_per_task() const {
    if (schedule_.rows == 0 || k_.has(InstrKind::partial)) return loop::rows_per_task(k_);
    return Dim(schedule_.rows);
  }

  void lay_scratch() {
    scratch_bytes_ = Dim(0);
    scratch_at_.assign(k_.body.size(), {});
    const Dim cols = k_.extent(AxisRole::col);
    for (size_t v = 0; v < k_.body.size(); ++v) {
      if (!p_.saved[v]) continue;
      scratch_at_[v] = scratch_bytes_;
      const Dim bytes = (cols + Dim(width_)) * Dim(static_cast<int64_t>(dtype_size(k_.body[v].dtype)));
      scratch_bytes_ = scratch_bytes_ + ceildiv(bytes, Dim(64)) * Dim(64);
    }
  }

  // --- the frame: parameters, tasks, rows ---

  void body() {
    parameters(width_);
    for (size_t v = 0; v < k_.body.size(); ++v)
      if (p_.saved[v])
        line("{0}* s{1} = reinterpret_cast<{0}*>(static_cast<char*>(scratch) + {2});",
             storage_name(k_.body[v].dtype), v, scratch_text(scratch_at_[v]));
    scalars(0, true);
    open("for (i64 task = task_begin; task < task_end; ++task)");
    flat_ ? flat_task() : row_task();
    close();
    line("(void)buffers, (void)dims, (void)scratch;");
  }

  /// Offsets of scratch arrays are sums over the column count, which is a number or a size.
  std::string scratch_text(const Dim& d) const {
    if (d.is_const()) return d.str();
    std::string s;
    for (size_t v = 0; v < k_.body.size(); ++v) {
      if (!p_.saved[v] || scratch_at_[v] == d) break;
    }
    const std::string cols = size(k_.extent(AxisRole::col));
    for (size_t v = 0; v < k_.body.size() && scratch_at_[v] != d; ++v)
      if (p_.saved[v])
        s += fmt::format("{}(({} + {}) * {} + 63) / 64 * 64", s.empty() ? "" : " + ", cols, width_,
                         dtype_size(k_.body[v].dtype));
    return s.empty() ? "0" : s;
  }

  void flat_task() {
    const std::string n = size(k_.axes[0].extent);
    line("const i64 begin = task * {}, end = {} - begin < {} ? {} : begin + {};", kFlatChunk, n, kFlatChunk,
         n, kFlatChunk);
    splats(0);
    vector_loop(0, "begin", "end");
  }

  void row_task() {
    const int rows_begin = k_.axis_begin(AxisRole::row), rows_end = k_.axis_end(AxisRole::row);
    const bool batched = rows_begin > 0;
    const std::string per = size(rows_per_task()), rows = rows_text();
    if (batched && rows_begin < rows_end) {
      line("const i64 chunks = ({} + {} - 1) / {}, chunk = task % chunks, batch = task / chunks;", rows, per,
           per);
    } else if (batched) {
      line("const i64 batch = task;");
    }
    if (batched) decode("batch", 0, rows_begin);
    partials_begin();
    const bool many = rows_begin < rows_end;
    if (many) {
      const char* chunk = batched ? "chunk" : "task";
      line("const i64 row_end = {0} - {1} * {2} < {2} ? {0} : {1} * {2} + {2};", rows, chunk, per);
      open(fmt::format("for (i64 row = {} * {}; row < row_end; ++row)", chunk, per));
      decode("row", rows_begin, rows_end);
    }
    for (int pass = 0; pass < p_.count; ++pass) {
      scalars(pass, false);
      scalar_sinks(pass);
      if (!p_.compute[pass].empty() || !reduces_in(pass).empty()) column_pass(pass);
    }
    scalars(p_.count, false);
    scalar_sinks(p_.count);
    if (many) {
      move_on_by_row();
      close();
    }
    partials_end();
  }

  // --- long sums: a float takes kChain additions at most, then moves on to an f64 ---
  // Else the error grows with the length, and past 2^24 terms of one size nothing is added at all.

  /// Additions of a pass to all its accumulators that make a chain.
  int64_t block(int pass) const { return kChain * unroll(pass) * width_; }
  /// Columns of one step of column axis `a`, col_begin_ - 1 being the row; more than any block if unknown.
  int64_t columns_inside(int a) const {
    Dim n(1);
    for (int inner = std::max(a + 1, col_begin_); inner <= vec_axis_; ++inner) n = n * k_.axes[inner].extent;
    return n.is_const() ? std::max<int64_t>(n.value(), 1) : INT64_MAX;
  }
  /// Steps of column axis `a`, or rows, that a block has room for: one at least.
  int64_t steps_of_block(int a, int pass) const {
    return block(pass) / std::min(columns_inside(a), block(pass));
  }
  /// The innermost column axis that a block ends inside of; -1: the columns of a row make none.
  int block_axis(int pass) const {
    for (int a = vec_axis_; a >= col_begin_; --a)
      if (columns_inside(a - 1) > block(pass)) return a;
    return -1;
  }
  bool rows_make_blocks(int v) const {
    return lanewise(v) && rows_per_task().value() > steps_of_block(col_begin_ - 1, pass_of(v));
  }
  bool moves_on(int v) const {
    const Instr& i = k_.body[v];
    if (i.op != op("sum") || !is_floating(i.dtype)) return false;
    if (i.kind == InstrKind::reduce) return block_axis(p_.at[v] - 1) >= 0;
    return lanewise(v) && (block_axis(pass_of(v)) >= 0 || rows_make_blocks(v));
  }
  std::vector<int> moving_in(int pass) const {
    std::vector<int> out;
    for (int v = 0; v < static_cast<int>(k_.body.size()); ++v) {
      const InstrKind kind = k_.body[v].kind;
      const bool here = kind == InstrKind::reduce ? p_.at[v] == pass + 1 && has_cols_
                                                  : kind == InstrKind::partial && pass_of(v) == pass;
      if (here && moves_on(v)) out.push_back(v);
    }
    return out;
  }
  void move_on(const std::vector<int>& sums, int lanes) {
    for (int v : sums) {
      line("for (int u = 0; u < {1}; ++u) R{0}[u] = R{0}[u] + convert<f64>(r{0}[u]);", v, lanes);
      line("for (auto& r : r{}) r = broadcast<W>({}(0));", v, storage_name(k_.body[v].dtype));
    }
  }
  /// After one step of axis `a`, which `counter` counts.
  void move_on_at(const std::string& counter, int a, int pass, const std::vector<int>& sums) {
    if (sums.empty()) return;
    const int64_t steps = steps_of_block(a, pass);
    if (steps > 1) open(fmt::format("if ({} % {} == {})", counter, steps, steps - 1));
    move_on(sums, unroll(pass));
    if (steps > 1) close();
  }
  void move_on_by_row() {
    for (int pass = 0; pass < p_.count; ++pass) {
      if (!has_cols_ || block_axis(pass) >= 0) continue;
      std::vector<int> sums = moving_in(pass);
      std::erase_if(sums, [&](int v) { return k_.body[v].kind == InstrKind::reduce; });
      move_on_at("row", col_begin_ - 1, pass, sums);
    }
  }
  void accumulators(int v, int lanes) {
    const Instr& i = k_.body[v];
    line("{} r{}[{}];", value_type(i.dtype, true), v, lanes);
    line("for (auto& r : r{}) r = broadcast<W>({}({}));", v, storage_name(i.dtype),
         identity_text(i.op, i.dtype));
    if (moves_on(v)) line("{} R{}[{}] = {{}};", value_type(DType::f64, true), v, lanes);
  }

  // --- scalars: the same in all columns ---

  void scalar_sinks(int pass) {
    for (int v = 0; v < static_cast<int>(k_.body.size()); ++v) {
      const Instr& i = k_.body[v];
      if (p_.vector[v] || p_.at[v] != pass) continue;
      if (i.kind == InstrKind::store) line("{};", scalar_store(i));
      if (i.kind == InstrKind::partial && !(i.all_cols && has_cols_))
        line("q{} = {};", v, combine(i.op, i.dtype, fmt::format("q{}", v), fmt::format("v{}", i.args[0])));
    }
  }
  // --- passes over the columns ---

  /// Independent accumulators, by the length of the pass: enough to hide the latency of the combination.
  int unroll(int pass) const {
    bool accumulates = !reduces_in(pass).empty();
    for (int v : p_.compute[pass])
      accumulates |= k_.body[v].kind == InstrKind::partial && k_.body[v].all_cols;
    if (!accumulates) return 1;
    if (schedule_.accumulators > 0) return schedule_.accumulators;
    const Dim& n = k_.axes[vec_axis_].extent;
    if (n.is_const() && n.value() < 8 * width_) return 1;
    double work = 0;  // machine instructions, roughly
    for (int v : p_.compute[pass]) {
      const Instr& i = k_.body[v];
      work += (i.kind == InstrKind::elementwise ? std::max(def(i.op).flops, 1.0) : 1) *
              static_cast<double>(dtype_size(i.dtype) == 8 ? 2 : 1);
    }
    return work <= 24 ? 4 : work <= 80 ? 2 : 1;
  }

  void column_pass(int pass) {
    splats(pass);
    const int lanes = unroll(pass);
    for (int v : reduces_in(pass)) accumulators(v, lanes);
    line("{{");
    ++indent_;
    for (int a = col_begin_; a < vec_axis_; ++a)
      open(fmt::format("for (i64 a{0} = 0; a{0} < {1}; ++a{0})", a, size(k_.axes[a].extent)));
    vector_loop(pass, "0", size(k_.axes[vec_axis_].extent));
    for (int a = vec_axis_ - 1; a >= col_begin_; --a) {
      const bool ends = a == block_axis(pass);
      if (ends) move_on_at(fmt::format("a{}", a), a, pass, moving_in(pass));
      close();
      if (ends) move_on(moving_in(pass), lanes);
    }
    close();
    for (int v : reduces_in(pass))
      finish_lanes(v, lanes, fmt::format("const {} v{} =", storage_name(k_.body[v].dtype), v));
  }

  /// Accumulators in order, then the lanes as a tree.
  void finish_lanes(int v, int lanes, const std::string& target) {
    const Instr& i = k_.body[v];
    if (moves_on(v))
      line("for (int u = 0; u < {1}; ++u) r{0}[u] = convert<{2}>(R{0}[u] + convert<f64>(r{0}[u]));", v, lanes,
           storage_name(i.dtype));
    line("{} detail::tree({}, [](auto a, auto b) __attribute__((always_inline)) {{ return {}; }});", target,
         accumulators_text(v, lanes), substitute(def(i.op).body, {"a", "b"}, i.dtype));
  }

  /// Whole vectors, then the last lanes.
  void vector_loop(int pass, const std::string& begin, const std::string& end) {
    const Dim& n = k_.axes[vec_axis_].extent;
    const int lanes = unroll(pass);
    const int64_t width = width_;
    const bool known = n.is_const() && !flat_;
    const std::string j = fmt::format("a{}", vec_axis_);
    if (!known || n.value() >= width) {
      const bool blocks = block_axis(pass) == vec_axis_ && !moving_in(pass).empty();
      const bool tail = !known || n.value() % width != 0;
      if (lanes > 1 || blocks) {
        line("i64 j = {};", begin);
        many_vectors(pass, lanes, end, blocks);
      } else if (tail) {
        line("i64 j = {};", begin);
      }
      if (lanes > 1 || (tail && !blocks)) {
        open(fmt::format("for (; j + W <= {}; j += W)", end));
        line("const i64 {} = j;", j);
        vector_body(pass, "0", false);
        close();
      } else if (!blocks) {
        open(fmt::format("for (i64 {0} = {1}; {0} < {2}; {0} += W)", j, begin, end));
        vector_body(pass, "0", false);
        close();
      }
    }
    if (known && n.value() % width == 0) return;
    if (known && n.value() < width) {
      line("{{");
      ++indent_;
      line("constexpr i64 {} = 0, tail = {};", j, n.value());
    } else {
      open(fmt::format("if (j < {})", end));
      line("const i64 {} = j, tail = {} - j;", j, end);
    }
    vector_body(pass, "0", true);
    close();
  }

  /// `lanes` vectors at a time, with or without stops at the ends of blocks.
  void many_vectors(int pass, int lanes, const std::string& end, bool blocks) {
    const int64_t step = int64_t{lanes} * width_;
    if (blocks) {
      open(fmt::format("while (j + {} <= {})", step, end));
      line("const i64 stop = {0} - j < {1} ? {0} : j + {1};", end, block(pass));
    }
    open(fmt::format("for (; j + {0} <= {1}; j += {0})", step, blocks ? "stop" : end));
    if (lanes > 1) {
      line("#pragma clang loop unroll(full)");
      open(fmt::format("for (int u = 0; u < {}; ++u)", lanes));
    }
    line("const i64 a{} = j{};", vec_axis_, lanes > 1 ? " + u * W" : "");
    vector_body(pass, lanes > 1 ? "u" : "0", false);
    if (lanes > 1) close();
    close();
    if (!blocks) return;
    move_on(moving_in(pass), lanes);
    close();
  }

  void vector_body(int pass, const std::string& u, bool tail) {
    for (int v = 0; v < static_cast<int>(k_.body.size()); ++v) {
      const auto& reload = p_.reload[pass];
      if (std::binary_search(reload.begin(), reload.end(), v))
        line("const auto v{} = load<W>(s{} + {});", v, v, linear_column());
      const auto& now = p_.compute[pass];
      if (std::binary_search(now.begin(), now.end(), v)) vector_instr(v, u, tail);
    }
    for (int v : reduces_in(pass)) accumulate(v, u, tail);
  }

  void accumulate(int v, const std::string& u, bool tail) {
    const Instr& i = k_.body[v];
    const std::string r = fmt::format("r{}[{}]", v, u);
    line("{} = {};", r, combine(i.op, i.dtype, r, combined_vector(v, tail)));
  }

  void vector_instr(int v, const std::string& u, bool tail) {
    const Instr& i = k_.body[v];
    if (i.kind == InstrKind::store) return vector_store(i, tail);
    if (i.kind == InstrKind::partial) {
      if (i.all_cols) return accumulate(v, u, tail);
      const std::string at = fmt::format("q{} + {}", v, linear_column());
      return store_columns(at, combine(i.op, i.dtype, load_columns(at, tail), vec(i.args[0])), tail);
    }
    compute(v, true, tail);
    if (p_.saved[v]) line("store<W>(s{} + {}, v{});", v, linear_column(), v);
  }

  // --- partial results of a task ---

  void partials_begin() {
    for (int v = 0; v < static_cast<int>(k_.body.size()); ++v) {
      const Instr& i = k_.body[v];
      if (i.kind != InstrKind::partial) continue;
      const std::string id = identity_text(i.op, i.dtype);
      if (columnwise(v)) {
        std::string cols;
        for (int a = col_begin_; a <= vec_axis_; ++a)
          cols += (cols.empty() ? "" : " * ") + size(k_.axes[a].extent);
        line("{}* q{} = p{} + task * ({});", storage_name(i.dtype), v, i.param, cols);
        line("for (i64 c = 0; c < {}; ++c) q{}[c] = {};", cols, v, id);
      } else if (lanewise(v)) {
        accumulators(v, unroll(pass_of(v)));
      } else {
        const bool sums = i.op == op("sum") && is_floating(i.dtype);
        line("{} q{} = {};", sums ? "f64" : storage_name(i.dtype), v, id);
      }
    }
  }
  void partials_end() {
    for (int v = 0; v < static_cast<int>(k_.body.size()); ++v) {
      const Instr& i = k_.body[v];
      if (i.kind != InstrKind::partial || columnwise(v)) continue;
      if (lanewise(v)) finish_lanes(v, unroll(pass_of(v)), fmt::format("p{}[task] =", i.param));
      else line("p{}[task] = q{};", i.param, v);
    }
  }
  int pass_of(int v) const { return p_.at[v]; }

  const RowSchedule schedule_;
  int width_ = 1;
  std::vector<Dim> scratch_at_;
  Dim scratch_bytes_;
};

}  // namespace

CpuKernel write_cpu_kernel(const loop::Kernel& kernel, const CpuTarget& target, const RowSchedule& schedule) {
  return Writer(kernel, target, schedule).write();
}

}  // namespace kiln
