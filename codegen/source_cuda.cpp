// SPDX-License-Identifier: Apache-2.0
#include "codegen/source_cuda.h"

#include <algorithm>
#include <functional>

#include "codegen/cuda_layout.h"
#include "codegen/source_kernel.h"
#include "ir/base/hash.h"
#include "ir/graph.h"

namespace kiln {

namespace {

using detail::CudaLayout;
using detail::identity_text;
using detail::SavedIn;
using detail::storage_name;
using loop::AxisRole;
using loop::Instr;
using loop::InstrKind;

class CudaLoopWriter : detail::KernelText {
 public:
  CudaLoopWriter(const loop::Kernel& k, CudaLayout layout, bool parts = false)
      : KernelText(k, layout.phases), l_(std::move(layout)), parts_(parts) {
    integer_ = l_.wide ? "i64" : "i32";
    many_ = k_.axis_begin(AxisRole::row) < k_.axis_end(AxisRole::row);
    for (const Instr& i : k_.body) meets_ |= i.kind == InstrKind::reduce && has_cols_;
    clamped_ = meets_ && l_.group < CudaTarget::kWarp;
    lay_shared();
  }

  CudaLoopKernel write() {
    CudaLoopKernel out;
    out.kernel = {"", l_.threads(), static_cast<int>(k_.params.size()), static_cast<int>(k_.dims.size())};
    if (parts_) out.kernel.parts = most_parts(out.kernel.buffer_count, out.kernel.dim_count);
    body();
    out.kernel.symbol = "k_" + hash128(fmt::format("{}\n{}", out.kernel.threads, text_)).hex();
    out.text = comment() + "#include \"kiln_cuda.h\"\nusing namespace kn;\n\n";
    // Partial results come from fewer blocks than there are processors.
    const bool few = k_.has(InstrKind::partial);
    out.text += fmt::format("KILN_CUDA_{}({}, {}, {}, {}) {{\n{}}}\n",
                            parts_ ? "PARTS"
                            : few  ? "KERNEL_FEW"
                                   : "KERNEL",
                            out.kernel.symbol, out.kernel.threads, out.kernel.buffer_count,
                            out.kernel.dim_count, text_);
    out.tasks = flat_ ? ceildiv(k_.axes[0].extent, Dim(flat_chunk()))
                      : k_.extent(AxisRole::batch) * ceildiv(k_.extent(AxisRole::row), l_.rows_per_task);
    if (k_.axes.empty()) out.tasks = Dim(1);
    if (l_.tile > 0) out.tasks = out.tasks * tiles();
    out.scratch_bytes = Dim(shared_bytes_);
    if (flat_) out.per_task = flat_chunk();
    out.in_place = works_in_place();
    return out;
  }

 private:
  // --- set-up ---

  /// Chunks of a row that a block works on.
  int64_t chunk_count() const { return l_.tile > 0 ? l_.tile : l_.chunks.value(); }
  /// Which block of the part it is of.
  const char* block_text() const { return parts_ ? "block_of_part" : "block()"; }
  int64_t flat_chunk() const { return int64_t{l_.threads()} * l_.width * l_.steps; }

  /// Other threads run meanwhile: only the thread that writes a place may have read it.
  bool works_in_place() const {
    const uint32_t all = (1u << k_.axes.size()) - 1;
    return p_.count == 1 && !k_.has(InstrKind::partial) && !clamped_ &&
           std::all_of(k_.body.begin(), k_.body.end(),
                       [&](const Instr& i) { return i.kind != InstrKind::store || i.axes == all; });
  }

  int64_t reserve(int64_t bytes) {
    const int64_t at = shared_bytes_;
    shared_bytes_ += (bytes + 15) / 16 * 16;
    return at;
  }
  /// A place for what waits, one to combine warps in, one to combine rows in.
  void lay_shared() {
    if (flat_) return;
    shared_at_.assign(k_.body.size(), 0);
    int64_t sums = 0;
    bool combines = meets_ && l_.group > CudaTarget::kWarp;
    for (size_t v = 0; v < k_.body.size(); ++v) {
      const auto size = static_cast<int64_t>(dtype_size(k_.body[v].dtype));
      if (p_.saved[v] && l_.saved[v] == SavedIn::shared)
        shared_at_[v] = reserve(chunk_count() * l_.width * size);
      if (k_.body[v].kind != InstrKind::partial) continue;
      if (!k_.body[v].by_col) combines |= l_.threads() > CudaTarget::kWarp;
      else if (l_.sums_in_registers && l_.rows > 1)
        sums = std::max(sums, l_.rows * chunk_count() * l_.width * size);
    }
    if (combines) room_at_ = reserve(l_.threads() / CudaTarget::kWarp * 8);
    sums_at_ = reserve(sums);
  }

  // --- the frame: parameters, tasks, rows ---

  void body() {
    parameters(l_.width);
    for (size_t v = 0; v < k_.body.size(); ++v)
      if (p_.saved[v] && l_.saved[v] == SavedIn::shared)
        line("const Shared<{0}> s{1} = shared<{0}>({2});", storage_name(k_.body[v].dtype), v, shared_at_[v]);
    if (k_.axes.empty()) open("if (thread() == 0)");
    scalars(0, true);
    if (flat_) flat_block();
    else row_block();
    if (k_.axes.empty()) close();
    line("(void)buffers, (void)dims;");
  }

  void flat_block() {
    const std::string n = size(k_.axes[0].extent);
    const int threads = l_.threads();
    line("const i64 begin = {} * {};", block_text(), flat_chunk());
    splats(0);
    const std::string at = fmt::format("const i64 a0 = begin + (s * {} + thread()) * {};", threads, l_.width);
    if (l_.steps > 1) {
      open(fmt::format("if (begin + {} <= {})", flat_chunk(), n));
      line("#pragma unroll");
      open(fmt::format("for (int s = 0; s < {}; ++s)", l_.steps));
      line("{}", at);
      vector_body(0, "s", false);
      close();
      --indent_;
      open("} else");
      line("#pragma unroll 1");
    }
    open(fmt::format("for (int s = 0; s < {}; ++s)", l_.steps));
    line("{}", at);
    open(fmt::format("if (a0 < {})", n));
    if (l_.width > 1) line("const i64 tail = {0} - a0 < W ? {0} - a0 : W;", n);
    vector_body(0, "s", l_.width > 1);
    close();
    close();
    if (l_.steps > 1) close();
  }

  void row_block() {
    const int rows_begin = k_.axis_begin(AxisRole::row), rows_end = k_.axis_end(AxisRole::row);
    const bool batched = rows_begin > 0;
    if (l_.tile > 0) {
      const std::string n = tiles().is_const()
                                ? tiles().str()
                                : fmt::format("(({} + {}) / {})", count_text(), l_.tile - 1, l_.tile);
      line("const {0} tile = {0}({2} % {1}), task = {0}({2} / {1});", integer_, n, block_text());
    } else {
      line("const {0} task = {0}({1});", integer_, block_text());
    }
    if (l_.rows > 1 && l_.group > 1)
      line("const i32 member = thread() % {0}, group = thread() / {0};", l_.group);
    else
      line("const i32 member = {}, group = {};", l_.group > 1 ? "thread()" : "0",
           l_.group > 1 ? "0" : "thread()");
    const std::string per = size(l_.rows_per_task), rows = rows_text();
    if (batched && many_) {
      line("const {3} chunks = ({0} + {1} - 1) / {2}, chunk = task % chunks, batch = task / chunks;", rows,
           per, per, integer_);
    } else if (batched) {
      line("const {} batch = task;", integer_);
    }
    if (batched) decode("batch", 0, rows_begin);
    partials_begin();
    if (many_) open_rows(batched ? "chunk" : "task", per, rows);
    // One row, then: of the groups beside it none writes.
    const bool alone = !many_ && !clamped_ && l_.rows > 1 && !k_.axes.empty();
    if (alone) open("if (group == 0)");
    if (!many_ && clamped_) line("const bool live = group == 0;");
    if (many_) decode("row", rows_begin, rows_end);
    for (int pass = 0; pass < p_.count; ++pass) {
      scalars(pass, false);
      scalar_sinks(pass);
      if (!p_.compute[pass].empty() || !reduces_in(pass).empty()) column_pass(pass);
    }
    scalars(p_.count, false);
    scalar_sinks(p_.count);
    if (many_ || alone) close();
    partials_end();
    line("(void)member, (void)group;");
  }

  /// Groups take rows in turn. Where parts of a warp sum together, those that have no row left work on
  /// another's, and keep it to themselves.
  void open_rows(const char* chunk, const std::string& per, const std::string& rows) {
    line("const {3} row_end = {0} - {1} * {2} < {2} ? {0} : {1} * {2} + {2};", rows, chunk, per, integer_);
    const std::string begin = fmt::format("{} * {}", chunk, per);
    // Rows that are summed one after the other gain nothing from registers for several.
    if (meets_) line("#pragma unroll 1");
    if (clamped_) {
      open(fmt::format("for ({0} base = {1}; base < row_end; base += {2})", integer_, begin, l_.rows));
      line("const bool live = base + group < row_end;");
      line("const {} row = live ? base + group : base;", integer_);
    } else {
      open(fmt::format("for ({0} row = {1} + group; row < row_end; row += {2})", integer_, begin, l_.rows));
    }
  }

  // --- scalars: the same in all columns ---

  /// Which threads do what is done once per row, and once per point of the axes that `i` depends on.
  std::string once(const Instr& i, bool vector) const {
    std::string s;
    const auto also = [&](const std::string& c) { s += (s.empty() ? "" : " && ") + c; };
    if (!vector && l_.group > 1) also("member == 0");
    if (!vector && l_.tile > 0) also("tile == 0");
    if (clamped_) also("live");
    const int end = vector ? vec_axis_ : col_begin_;
    for (int a = 0; i.kind == InstrKind::store && a < end; ++a)
      if (!(i.axes >> a & 1)) also(fmt::format("a{} == 0", a));
    return s;
  }
  void guarded(const std::string& condition, const std::string& statement) {
    if (condition.empty()) line("{}", statement);
    else line("if ({}) {}", condition, statement);
  }

  void scalar_sinks(int pass) {
    for (int v = 0; v < static_cast<int>(k_.body.size()); ++v) {
      const Instr& i = k_.body[v];
      if (p_.vector[v] || p_.at[v] != pass) continue;
      if (i.kind == InstrKind::store) guarded(once(i, false), scalar_store(i) + ";");
      if (i.kind == InstrKind::partial && !(i.all_cols && has_cols_))
        guarded(once(i, false),
                fmt::format("q{} = {};", v,
                            combine(i.op, i.dtype, fmt::format("q{}", v), fmt::format("v{}", i.args[0]))));
    }
  }

  // --- passes over the columns ---

  using ColumnBody = std::function<void(const std::string& step, bool tail)>;

  std::string count_text() const {
    if (l_.chunks.is_const()) return std::to_string(l_.chunks.value());
    std::string s;
    for (int a = col_begin_; a < vec_axis_; ++a) s += size(k_.axes[a].extent) + " * ";
    return "(" + s + line_chunks() + ")";
  }
  Dim tiles() const { return ceildiv(l_.chunks, Dim(l_.tile)); }
  /// Chunks of the last axis.
  std::string line_chunks() const {
    const Dim& n = k_.axes[vec_axis_].extent;
    if (n.is_const()) return std::to_string((n.value() + l_.width - 1) / l_.width);
    return l_.width == 1 ? size(n) : fmt::format("(({} + {}) / {})", size(n), l_.width - 1, l_.width);
  }

  /// Every chunk of columns of this thread, in order.
  void columns(int unroll, const ColumnBody& body) {
    const std::string n = count_text();
    if (l_.steps > 0) {
      line("#pragma unroll");
      open(fmt::format("for (i32 s = 0; s < {}; ++s)", l_.steps));
      if (l_.tile > 0) line("const {} c = tile * {} + s * {} + member;", integer_, l_.tile, l_.group);
      else line("const {} c = s * {} + member;", integer_, l_.group);
      if (!l_.whole)
        open(l_.tile > 0 ? fmt::format("if (c < {})", n)
                         : fmt::format("if (s + 1 < {} || c < {})", l_.steps, n));
      chunk("s", body);
      if (!l_.whole) close();
      close();
      return;
    }
    line("{} c0 = member;", integer_);
    if (unroll > 1) {
      open(fmt::format("for (; c0 + {} < {}; c0 += {})", (unroll - 1) * l_.group, n, unroll * l_.group));
      line("#pragma unroll");
      open(fmt::format("for (i32 u = 0; u < {}; ++u)", unroll));
      line("const {} c = c0 + u * {};", integer_, l_.group);
      chunk("u", body);
      close();
      close();
    }
    open(fmt::format("for (; c0 < {}; c0 += {})", n, l_.group));
    line("const {} c = c0;", integer_);
    chunk("0", body);
    close();
  }

  /// The axes of chunk c, then its body: of all W columns, or of those that are left of the last axis.
  void chunk(const std::string& step, const ColumnBody& body) {
    const Dim& n = k_.axes[vec_axis_].extent;
    if (col_begin_ == vec_axis_) {
      line("const {} a{} = c * W;", integer_, vec_axis_);
    } else {
      line("const {} a{} = c % {} * W;", integer_, vec_axis_, line_chunks());
      std::string left = fmt::format("c / {}", line_chunks());
      for (int a = vec_axis_ - 1; a > col_begin_; --a) {
        line("const {} a{} = {} % {};", integer_, a, left, size(k_.axes[a].extent));
        left += fmt::format(" / {}", size(k_.axes[a].extent));
      }
      line("const {} a{} = {};", integer_, col_begin_, left);
    }
    if (divisible(n, l_.width)) return body(step, false);
    open(fmt::format("if (a{} + W <= {})", vec_axis_, size(n)));
    body(step, false);
    --indent_;
    open("} else");
    line("const i64 tail = {} - a{};", size(n), vec_axis_);
    body(step, true);
    close();
  }

  void column_pass(int pass) {
    splats(pass);
    const std::vector<int> reduced = reduces_in(pass);
    for (int v : reduced) declare_lanes(v);
    for (size_t v = 0; v < k_.body.size(); ++v)
      if (p_.saved[v] && l_.saved[v] == SavedIn::registers && p_.at[v] == pass)
        line("{} s{}[{}];", value_type(k_.body[v].dtype, true), v, l_.steps);
    line("{{");
    ++indent_;
    columns(l_.unroll, [&](const std::string& step, bool tail) { vector_body(pass, step, tail); });
    close();
    for (int v : reduced) together(v, fmt::format("v{}", v), lanes_text(v), l_.group);
  }

  void declare_lanes(int v) {
    const Instr& i = k_.body[v];
    line("{} r{}[{}];", value_type(i.dtype, true), v, l_.accumulators);
    line("for (auto& r : r{}) r = broadcast<W>({}({}));", v, storage_name(i.dtype),
         identity_text(i.op, i.dtype));
  }
  /// The accumulators in order, then their lanes as a tree.
  std::string lanes_text(int v) const {
    const std::string_view name = def(k_.body[v].op).name;
    return fmt::format("reduce_{}({})",
                       name == "amax"   ? "max"
                       : name == "amin" ? "min"
                                        : name,
                       accumulators_text(v, l_.accumulators));
  }
  /// Declares `name`: `x` of `n` neighbouring threads combined, in each of them.
  void together(int v, const std::string& name, const std::string& x, int n) {
    const Instr& i = k_.body[v];
    const char* type = storage_name(i.dtype);
    const std::string f =
        fmt::format("[]({0} a, {0} b) KN_LAMBDA {{ return {1}; }}", type, combine(i.op, i.dtype, "a", "b"));
    if (n == 1) {
      line("const {} {} = {};", type, name, x);
    } else if (n < CudaTarget::kWarp) {
      line("{} {} = {};", type, name, x);
      line("#pragma unroll");
      line("for (i32 m = {0}; m > 0; m /= 2) {1} = {2};", n / 2, name,
           combine(i.op, i.dtype, name, fmt::format("shuffle_xor({}, m)", name)));
    } else if (n == CudaTarget::kWarp) {
      line("const {} {} = warp_reduce({}, {});", type, name, x, f);
    } else {
      line("const {} {} = block_reduce<{}>({}, {}, shared<{}>({}));", type, name, n, x, f, type, room_at_);
    }
  }

  void vector_body(int pass, const std::string& step, bool tail) {
    for (int v = 0; v < static_cast<int>(k_.body.size()); ++v) {
      const auto& reload = p_.reload[pass];
      if (std::binary_search(reload.begin(), reload.end(), v)) {
        if (l_.saved[v] == SavedIn::registers) line("const auto v{0} = s{0}[{1}];", v, step);
        else line("const auto v{0} = load<W>(s{0} + c * W);", v);
      }
      const auto& now = p_.compute[pass];
      if (std::binary_search(now.begin(), now.end(), v)) vector_instr(v, step, tail);
    }
    for (int v : reduces_in(pass)) accumulate(v, step, tail);
  }

  void accumulate(int v, const std::string& step, bool tail) {
    const Instr& i = k_.body[v];
    const std::string r = l_.accumulators == 1 ? fmt::format("r{}[0]", v)
                                               : fmt::format("r{}[{} % {}]", v, step, l_.accumulators);
    const std::string sum = fmt::format("{} = {};", r, combine(i.op, i.dtype, r, combined_vector(v, tail)));
    guarded(i.kind == InstrKind::partial ? once(i, true) : "", sum);
  }

  void vector_instr(int v, const std::string& step, bool tail) {
    const Instr& i = k_.body[v];
    if (i.kind == InstrKind::store) {
      const std::string condition = once(i, true);
      KILN_ASSERT(i.axes >> vec_axis_ & 1, "a store of a chunk does not depend on its columns");
      if (!condition.empty()) open(fmt::format("if ({})", condition));
      vector_store(i, tail);
      if (!condition.empty()) close();
      return;
    }
    if (i.kind == InstrKind::partial)
      return i.all_cols ? accumulate(v, step, tail) : add_by_column(v, step, tail);
    compute(v, true, tail);
    if (!p_.saved[v]) return;
    if (l_.saved[v] == SavedIn::registers) line("s{0}[{1}] = v{0};", v, step);
    else line("store<W>(s{0} + c * W, v{0});", v);
  }

  // --- partial results of a task ---

  void add_by_column(int v, const std::string& step, bool tail) {
    const Instr& i = k_.body[v];
    const std::string x = vec(i.args[0]);
    if (l_.sums_in_registers) {
      const std::string q = fmt::format("q{}[{}]", v, step);
      guarded(once(i, true), fmt::format("{} = {};", q, combine(i.op, i.dtype, q, x)));
      return;
    }
    store_place(v, combine(i.op, i.dtype, load_columns(place_text(v), tail), x), tail);
  }
  std::string place_text(int v) const {
    return fmt::format("p{} + place{} + ({})", k_.body[v].param, v, linear_column());
  }
  void store_place(int v, const std::string& x, bool tail) { store_columns(place_text(v), x, tail); }

  void partials_begin() {
    for (int v = 0; v < static_cast<int>(k_.body.size()); ++v) {
      const Instr& i = k_.body[v];
      if (i.kind != InstrKind::partial) continue;
      const std::string id = fmt::format("{}({})", storage_name(i.dtype), identity_text(i.op, i.dtype));
      if (columnwise(v)) {
        std::string cols;
        for (int a = col_begin_; a <= vec_axis_; ++a)
          cols += (cols.empty() ? "" : " * ") + size(k_.axes[a].extent);
        line("const i64 place{} = i64(task) * ({});", v, cols);
        if (l_.sums_in_registers) {
          line("{} q{}[{}];", value_type(i.dtype, true), v, l_.steps);
          line("for (auto& q : q{}) q = broadcast<W>({});", v, id);
        } else {
          line("{{");
          ++indent_;
          columns(1, [&](const std::string&, bool tail) {
            store_place(v, fmt::format("broadcast<W>({})", id), tail);
          });
          close();
        }
      } else if (lanewise(v)) {
        declare_lanes(v);
      } else {
        line("{} q{} = {};", storage_name(i.dtype), v, id);
      }
    }
  }

  void partials_end() {
    for (int v = 0; v < static_cast<int>(k_.body.size()); ++v) {
      const Instr& i = k_.body[v];
      if (i.kind != InstrKind::partial) continue;
      if (columnwise(v)) {
        if (l_.sums_in_registers) columns_end(v);
        continue;
      }
      line("{{");
      ++indent_;
      const std::string mine = lanewise(v) ? lanes_text(v) : fmt::format("q{}", v);
      together(v, "sum", mine, l_.threads());
      line("if (thread() == 0) store<1>(p{} + task, sum);", i.param);
      close();
    }
  }

  /// The groups' sums, in the order of the groups.
  void columns_end(int v) {
    const Instr& i = k_.body[v];
    line("{{");
    ++indent_;
    if (l_.rows == 1) {
      columns(1, [&](const std::string& step, bool tail) {
        store_place(v, fmt::format("q{}[{}]", v, step), tail);
      });
      close();
      return;
    }
    const int64_t row = chunk_count() * l_.width;
    line("const Shared<{0}> sums = shared<{0}>({1});", storage_name(i.dtype), sums_at_);
    line("barrier();");
    columns(1, [&](const std::string& step, bool) {
      line("store<W>(sums + (group * {} + ({} * {} + member) * W), q{}[{}]);", row, step, l_.group, v, step);
    });
    line("barrier();");
    open(fmt::format("for (i32 x = thread(); x < {}; x += {})", chunk_count(), l_.threads()));
    line("const {} c = {}x;", integer_, l_.tile > 0 ? fmt::format("tile * {} + ", l_.tile) : "");
    if (l_.tile > 0 && !l_.whole) line("if (c >= {}) break;", count_text());
    line("auto sum = load<W>(sums + x * W);");
    line("for (i32 g = 1; g < {}; ++g) sum = {};", l_.rows,
         combine(i.op, i.dtype, "sum", fmt::format("load<W>(sums + (g * {} + x * W))", row)));
    chunk("0", [&](const std::string&, bool tail) { store_place(v, "sum", tail); });
    close();
    close();
  }

  const CudaLayout l_;
  const bool parts_;  ///< a launch does several
  bool many_ = false, meets_ = false;
  bool clamped_ = false;  ///< groups without a row of their own work on another's
  std::vector<int64_t> shared_at_;
  int64_t shared_bytes_ = 0, room_at_ = 0, sums_at_ = 0;
};

}  // namespace

CudaLoopKernel write_cuda_kernel(const loop::Kernel& kernel, const CudaTarget& target,
                                 const RowSchedule& schedule) {
  return CudaLoopWriter(kernel, loop::is_flat(kernel) ? detail::choose_flat_layout(kernel, schedule)
                                                      : detail::choose_cuda_layout(kernel, target, schedule))
      .write();
}

CudaLoopKernel write_cuda_parts(const loop::Kernel& kernel, const CudaTarget& target) {
  return CudaLoopWriter(kernel,
                        loop::is_flat(kernel) ? detail::choose_flat_layout(kernel, {})
                                              : detail::choose_cuda_layout(kernel, target, {}),
                        true)
      .write();
}

}  // namespace kiln
