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
    out.single_pass = p_.count == 1 && !k_.has(InstrKind::partial);
    return out;
  }

 private:
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
    indent_ = 1;
    if (has_cols_) line("constexpr int W = {};", width_);
    for (size_t i = 0; i < k_.params.size(); ++i) {
      const loop::Param& p = k_.params[i];
      const char* c = p.written ? "" : "const ";
      line("{0}{1}* p{2} = static_cast<{0}{1}*>(buffers[{2}]);", c, storage_name(p.dtype), i);
    }
    for (size_t i = 0; i < k_.dims.size(); ++i) line("const i64 d{0} = dims[{0}];", i);
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
    if (many) close();
    partials_end();
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
    for (int v : reduces_in(pass)) {
      const Instr& i = k_.body[v];
      line("{} r{}[{}];", value_type(i.dtype, true), v, lanes);
      line("for (auto& r : r{}) r = broadcast<W>({}({}));", v, storage_name(i.dtype),
           identity_text(i.op, i.dtype));
    }
    line("{{");
    ++indent_;
    for (int a = col_begin_; a < vec_axis_; ++a)
      open(fmt::format("for (i64 a{0} = 0; a{0} < {1}; ++a{0})", a, size(k_.axes[a].extent)));
    vector_loop(pass, "0", size(k_.axes[vec_axis_].extent));
    for (int a = col_begin_; a < vec_axis_; ++a) close();
    close();
    for (int v : reduces_in(pass))
      finish_lanes(v, lanes, fmt::format("const {} v{} =", storage_name(k_.body[v].dtype), v));
  }

  /// Accumulators in order, then the lanes as a tree.
  void finish_lanes(int v, int lanes, const std::string& target) {
    const Instr& i = k_.body[v];
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
      if (lanes > 1) {
        line("i64 j = {};", begin);
        open(fmt::format("for (; j + {} <= {}; j += {})", lanes * width, end, lanes * width));
        line("#pragma clang loop unroll(full)");
        open(fmt::format("for (int u = 0; u < {}; ++u)", lanes));
        line("const i64 {} = j + u * W;", j);
        vector_body(pass, "u", false);
        close();
        close();
        open(fmt::format("for (; j + W <= {}; j += W)", end));
        line("const i64 {} = j;", j);
      } else {
        if (!known || n.value() % width != 0) line("i64 j = {};", begin);
        const bool tail = !known || n.value() % width != 0;
        if (tail) {
          open(fmt::format("for (; j + W <= {}; j += W)", end));
          line("const i64 {} = j;", j);
        } else {
          open(fmt::format("for (i64 {0} = {1}; {0} < {2}; {0} += W)", j, begin, end));
        }
      }
      vector_body(pass, "0", false);
      close();
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
        const int lanes = unroll(pass_of(v));
        line("{} r{}[{}];", value_type(i.dtype, true), v, lanes);
        line("for (auto& r : r{}) r = broadcast<W>({}({}));", v, storage_name(i.dtype), id);
      } else {
        line("{} q{} = {};", storage_name(i.dtype), v, id);
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
