// SPDX-License-Identifier: Apache-2.0
// Loops over tiles: what a tile computes is a program of its own, whose launches one kernel makes, one after
// the other, for each of its tasks; values of a tile lie in the thread's scratch.
#include <algorithm>

#include "codegen/fused_text.h"
#include "codegen/lowering.h"
#include "codegen/source_text.h"
#include "ir/base/rounding.h"
#include "ir/rewrite.h"

namespace kiln::detail {

namespace {

constexpr const char* kRows = "kn_rows";        // rows of this tile, ...
constexpr const char* kColumns = "kn_columns";  // ... and columns that are not masked for all of them, ...
/// ... and where along an axis this tile begins.
std::string begin_of(int axis) { return fmt::format("kn_at{}", axis); }
/// Whether tiles do not all begin at an axis's first element.
bool is_cut(const TileLoop& loop, int axis) {
  return axis >= 0 && (axis != loop.columns() || loop.band.first);
}

int64_t size_of(DType t) { return static_cast<int64_t>(dtype_size(t)); }

/// Columns of the longest tile of so many rows.
int64_t most_columns(const TileLoop& loop, int64_t rows) {
  const int64_t all = loop.extents[static_cast<size_t>(loop.columns())].value();
  const Band& band = loop.band;
  if (!band.first || !band.last || !band.first->is_number() || !band.last->is_number()) return all;
  return std::clamp<int64_t>(rows + band.last->number - band.first->number, 1, all);
}

/// How a loop is cut, and the program of one tile.
struct Tile {
  int64_t rows = 0;    ///< of a tile, but the last
  bool parts = false;  ///< the last tile is shorter
  Graph graph;
  std::vector<ExternalLayout> layouts;
  std::vector<size_t> sums, stores;  ///< results: externals after these, and outputs
};

/// Makes the program of one tile of a loop.
class TileProgram {
 public:
  TileProgram(const Graph& g, const TileLoop& loop, const std::vector<Operand>& operands, int64_t rows)
      : g_(g), loop_(loop) {
    const int64_t all = loop.extents[static_cast<size_t>(loop.rows())].value();
    tile_.rows = std::min(rows, all);
    tile_.parts = all % tile_.rows != 0;
    tile_.graph.name = "tile";
    tile_.graph.scopes = g.scopes;
    for (size_t i = 0; i < loop.reads.size(); ++i) {
      to_[loop.reads[i].id] = tile_.graph.add_input(sliced(loop.reads[i]), InputKind::param, "");
      tile_.layouts.push_back({operands[i].layout.strides, Dim(0)});
    }
    add_inputs_of_sums();
    for (int i = loop.begin; i < loop.end; ++i) add(node(i));
    add_results();
  }

  Tile take() { return std::move(tile_); }

 private:
  const Node& node(int i) const { return g_.nodes[static_cast<size_t>(i)]; }
  const std::vector<int>& axes(Value v) const { return loop_.axes.at(v.id); }

  Shape sliced_shape(Value v) const {
    Shape s = g_.type(v).shape;
    for (size_t d = 0; d < s.size(); ++d) {
      const int a = axes(v)[d];
      if (a >= 0 && a < loop_.batch()) s[d] = Dim(1);
      if (a == loop_.rows()) s[d] = tile_.parts ? Dim::symbol(kRows) : Dim(tile_.rows);
      if (a == loop_.columns() && loop_.band.has_end()) s[d] = Dim::symbol(kColumns);
    }
    return s;
  }
  Type sliced(Value v) const { return {g_.type(v).dtype, sliced_shape(v)}; }

  void add_inputs_of_sums() {
    for (size_t i = 0; i < loop_.results.size(); ++i) {
      const Value v = loop_.results[i];
      if (loop_.has(v, loop_.rows())) continue;
      tile_.sums.push_back(i);
      sums_[v.id] = static_cast<int>(tile_.graph.inputs.size());
      const Type t = sliced(v);
      tile_.graph.add_input(t, InputKind::param, "");
      tile_.layouts.push_back(row_major(t));
    }
  }

  void add(const Node& n) {
    std::vector<Value> in;
    for (const Value v : n.in) in.push_back(to_.at(v.id));
    if (numbers_elements(n.op)) {
      to_[n.out.id] = part_of(tile_.graph.add_node(n.op, in, n.attrs, n.origin), n);
      return;
    }
    Attrs attrs = n.attrs;
    for (AttrValue& a : attrs)
      if (auto* shape = std::get_if<Shape>(&a)) *shape = sliced_shape(n.out);
    to_[n.out.id] = tile_.graph.add_node(n.op, in, std::move(attrs), n.origin);
  }
  /// The tile's part of a value that is computed anywhere from the place of the element.
  Value part_of(Value whole, const Node& n) {
    Shape from, to = sliced_shape(n.out);
    for (size_t d = 0; d < to.size(); ++d) {
      const int a = axes(n.out)[d];
      from.push_back(is_cut(loop_, a) ? Dim::symbol(begin_of(a)) : Dim(0));
      to[d] = from[d] + to[d];
    }
    return tile_.graph.add_node(op("slice"), std::vector{whole},
                                {from, to, std::vector<int64_t>(to.size(), 1)}, n.origin);
  }

  void add_results() {
    for (size_t i = 0; i < loop_.results.size(); ++i) {
      const Value v = loop_.results[i], now = to_.at(v.id);
      const auto sum = sums_.find(v.id);
      if (sum == sums_.end()) {
        tile_.stores.push_back(i);
        tile_.graph.add_output(now);
        continue;
      }
      const Value old = tile_.graph.inputs[static_cast<size_t>(sum->second)].value;
      const Origin& origin = node(g_.producer(v)).origin;
      tile_.graph.add_output(tile_.graph.add_node(op("add"), std::vector{old, now}, {}, origin), sum->second);
    }
  }

  const Graph& g_;
  const TileLoop& loop_;
  Tile tile_;
  std::map<int, Value> to_;
  std::map<int, int> sums_;  // result -> input of the tile's graph
};

/// Prints the kernel that runs a tile's plan for each tile of a task.
class LoopText {
 public:
  LoopText(const Graph& g, const TileLoop& loop, const std::vector<Operand>& operands, const Tile& tile,
           const LoweredProgram& program)
      : g_(g), loop_(loop), operands_(operands), tile_(tile), plan_(program.plan) {}

  std::string text(const std::string& name) {
    out_ = {};
    out_.lines("#include \"kiln_cpu.h\"\nusing namespace kn;");
    for (const PlanKernel& k : plan_.kernels)
      out_.line(
          "extern \"C\" void {}(void* const* buffers, const int64_t* dims, int64_t task_begin, int64_t "
          "task_end, void* scratch);",
          k.symbol);
    out_.line(
        "KILN_KERNEL void {}(void* const* buffers, const int64_t* dims, int64_t task_begin, int64_t "
        "task_end, void* scratch) {{",
        name);
    out_.lines("(void)dims;");
    if (tile_.parts || loop_.band.has_end()) {  // in sizes, as Dim::str writes them: of nothing negative
      out_.lines("[[maybe_unused]] const auto div = [](int64_t a, int64_t b) { return a / b; };");
      out_.lines("[[maybe_unused]] const auto mod = [](int64_t a, int64_t b) { return a % b; };");
    }
    out_.lines("for (int64_t task = task_begin; task < task_end; ++task) {");
    print_task();
    out_.lines("}\n}");
    return out_.str();
  }
  const std::vector<Dim>& dims() const { return dims_.dims(); }
  Dim tasks() const { return Dim(sums() ? matrices() : matrices() * tiles()); }
  Dim scratch() const {
    int64_t most = 0;
    for (const Launch& l : plan_.launches)
      if (l.scratch_bytes >= 0) most = std::max(most, value(dim(l.scratch_bytes)));
    return Dim(scratch_at() + most);
  }
  Dim flops() const {
    int64_t each = 0;
    for (const ProfileRow& r : plan_.profile) each += value(dim(r.flops));
    return Dim(each * matrices() * tiles());
  }

 private:
  bool sums() const { return !tile_.sums.empty(); }
  int64_t all_rows() const { return loop_.extents[static_cast<size_t>(loop_.rows())].value(); }
  int64_t tiles() const { return ceil_div(all_rows(), tile_.rows); }
  int64_t matrices() const { return numel({loop_.extents.begin(), loop_.extents.end() - 2}).value(); }
  /// Of a whole tile.
  int64_t value(const Dim& d) const {
    return d.eval({{kRows, tile_.rows}, {kColumns, most_columns(loop_, tile_.rows)}});
  }
  int64_t all_columns() const { return loop_.extents[static_cast<size_t>(loop_.columns())].value(); }
  const Dim& dim(DimIndex i) const { return plan_.dims[static_cast<size_t>(i)]; }
  int64_t scratch_at() const { return round_up(value(dim(plan_.arena_bytes)), int64_t{64}); }
  void print_task() {
    out_.lines("int64_t rest = task;");
    if (!sums())
      out_.line("const int64_t {0} = rest % {1} * {2};\nrest /= {1};", begin_of(loop_.rows()), tiles(),
                tile_.rows);
    for (int a = loop_.batch(); a-- > 0;) {
      const int64_t size = loop_.extents[static_cast<size_t>(a)].value();
      out_.line("const int64_t {0} = rest % {1};\nrest /= {1};\n(void){0};", begin_of(a), size);
    }
    for (const size_t i : tile_.sums) {
      const Value v = loop_.results[i];
      out_.line("__builtin_memset({}, 0, {});", place_of(result(i), v, row_major(g_.type(v)), loop_.batch()),
                sum_bytes(v));
    }
    if (sums())
      out_.line("for (int64_t {0} = 0; {0} < {1}; {0} += {2}) {{", begin_of(loop_.rows()), all_rows(),
                tile_.rows);
    if (tile_.parts)
      out_.line("const int64_t {0} = {1} - {2} < {3} ? {1} - {2} : {3};", kRows, all_rows(),
                begin_of(loop_.rows()), tile_.rows);
    if (loop_.band.has_end()) print_columns();
    for (const Launch& l : plan_.launches) print_launch(l);
    if (sums()) out_.lines("}");
  }
  /// From the first column of the tile's first row to the last of its last row; one where there is none.
  void print_columns() {
    const Band& band = loop_.band;
    const std::string rows = begin_of(loop_.rows()), end = std::to_string(all_columns());
    std::string begin = "0";
    if (band.first) {
      begin = begin_of(loop_.columns());
      print_distance("kn_first", *band.first);
      out_.line("int64_t {} = {} + kn_first;", begin, rows);
      out_.line("if ({0} < 0) {0} = 0;\nif ({0} > {1} - 1) {0} = {1} - 1;", begin, end);
    }
    out_.line("int64_t {} = {} - {};", kColumns, end, begin);
    if (!band.last) return;
    const std::string count = tile_.parts ? kRows : std::to_string(tile_.rows);
    print_distance("kn_last", *band.last);
    out_.line("if (const int64_t n = {} + {} + kn_last - {}; n < {})", rows, count, begin, kColumns);
    out_.line("{} = n < 1 ? 1 : n;", kColumns);
  }
  void print_distance(const char* name, const Distance& d) {
    if (d.is_number()) {
      out_.line("const int64_t {} = {};", name, d.number);
      return;
    }
    const auto at = std::find(loop_.reads.begin(), loop_.reads.end(), d.scalar) - loop_.reads.begin();
    const auto i = static_cast<size_t>(at);
    out_.line("int64_t {} = *(const int64_t*)({});", name,
              place_of(i, d.scalar, operands_[i].layout, axes()));
    constexpr int64_t kMost = int64_t{1} << 40;  // further than any column, and sums of it do not overflow
    out_.line("{0} = {1} * ({0} > {2} ? {2} : {0} < -{2} ? -{2} : {0}) + {3};", name, d.times, kMost,
              d.number);
  }
  int64_t sum_bytes(Value v) const {
    int64_t n = size_of(g_.type(v).dtype);
    for (size_t d = 0; d < g_.type(v).shape.size(); ++d)
      if (const int a = loop_.axes.at(v.id)[d]; a < 0 || a >= loop_.batch()) n *= g_.type(v).shape[d].value();
    return n;
  }

  int axes() const { return loop_.columns() + 1; }
  size_t result(size_t i) const { return loop_.reads.size() + i; }

  /// Where the tile's part of a value begins that lies in kernel buffer `buffer`: along the axes before
  /// `end`.
  std::string place_of(size_t buffer, Value v, const TensorLayout& layout, int end) {
    const Type& t = g_.type(v);
    std::string s = fmt::format("(char*)buffers[{}]", buffer);
    const int64_t size = size_of(t.dtype);
    if (!layout.offset.is(0)) s += fmt::format(" + {}", dims_.text(layout.offset * Dim(size)));
    for (size_t d = 0; d < t.shape.size(); ++d) {
      const int a = loop_.axes.at(v.id)[d];
      if (a >= end || !is_cut(loop_, a) || layout.strides[d].is(0)) continue;
      s += fmt::format(" + {} * {}", begin_of(a), dims_.text(layout.strides[d] * Dim(size)));
    }
    return s;
  }

  /// The memory of a buffer of the tile's plan.
  std::string place_of(const PlanBuffer& b) {
    switch (b.kind) {
      case BufferKind::external: {
        const auto i = static_cast<size_t>(b.index);
        if (i < loop_.reads.size()) return place_of(i, loop_.reads[i], operands_[i].layout, axes());
        const size_t sum = tile_.sums[i - loop_.reads.size()];
        const Value v = loop_.results[sum];
        return place_of(result(sum), v, row_major(g_.type(v)), axes());
      }
      case BufferKind::output: {
        const size_t i = tile_.stores[static_cast<size_t>(b.index)];
        const Value v = loop_.results[i];
        return place_of(result(i), v, row_major(g_.type(v)), axes());
      }
      case BufferKind::arena: return fmt::format("(char*)scratch + ({})", dim(b.offset).str());
      default: break;
    }
    throw Error(ErrorKind::internal, "a tile's plan has a buffer of a kind that tiles have none of");
  }

  void print_launch(const Launch& l) {
    KILN_ASSERT(l.kind == LaunchKind::kernel && l.parts.empty(),
                "a tile's plan has a launch of another kind");
    const PlanKernel& k = plan_.kernels[static_cast<size_t>(l.kernel)];
    KILN_ASSERT(!k.builtin, "a tile's plan calls {}", k.symbol);
    out_.lines("{");
    std::string places, dims;
    for (size_t i = 0; i < l.buffers.size(); ++i) {
      places += (i ? ", " : "") + place_of(plan_.buffers[static_cast<size_t>(l.buffers[i])]);
      if (l.start(i) != 0) places += fmt::format(" + {}", l.start(i));
    }
    for (const DimIndex d : l.dims) dims += (dims.empty() ? "" : ", ") + dim(d).str();
    out_.line("void* const b[] = {{{}}};", places);
    out_.line("const int64_t d[] = {{{}}};", dims.empty() ? "0" : dims);
    out_.line("{}(b, d, 0, {}, (char*)scratch + {});", k.symbol, dim(l.tasks).str(), scratch_at());
    out_.lines("}");
  }

  const Graph& g_;
  const TileLoop& loop_;
  const std::vector<Operand>& operands_;
  const Tile& tile_;
  const Plan& plan_;
  DimTable dims_;
  SourceText out_;
};

/// Rows of a tile. What is packed for each tile pays by 64 rows; of very long rows fewer have room in a
/// cache.
int64_t rows_of_tile(const TileLoop& loop, const Graph& g) {
  constexpr int64_t kRoom = 4 << 20, kLeast = 16, kMost = 64, kUnit = 16;
  const int64_t columns = most_columns(loop, kMost);
  const int64_t size = size_of(g.type(loop.results.front()).dtype);
  return std::clamp(kRoom / (columns * size) / kUnit * kUnit, kLeast, kMost);
}

}  // namespace

void Lowering::add_loop_over_tiles(const Step& s) {
  const TileLoop& loop = loops_[static_cast<size_t>(s.loop)];
  const Tile tile = TileProgram(g_, loop, s.operands, rows_of_tile(loop, g_)).take();
  LowerOptions options = options_;
  options.combine = options.prologues = false;
  options.loop_bytes = kNoLoops;
  options.one_thread = true;
  LoweredProgram program = lower_collecting(tile.graph, tile.layouts, target_, options, nullptr);
  LoopText text(g_, loop, s.operands, tile, program);
  Work w;
  Traffic traffic;
  for (size_t i = 0; i < loop.reads.size(); ++i) {
    const int cell = value_cell(s.operands[i].base);
    w.cells.push_back(cell);
    w.reads.push_back(cell);
    traffic.add(cell, reach_of(s.operands[i].layout, g_.type(loop.reads[i]).shape));
  }
  for (const Value v : loop.results) {
    w.cells.push_back(value_cell(v));
    w.writes.push_back(value_cell(v));
    traffic.add_whole(value_cell(v));
  }
  KernelSource source = named_by_text([&](const std::string& name) {
    return KernelSource{name + ".cpp", text.text(name), {name}, {}, {}};
  });
  for (KernelSource& k : program.kernels) {
    source.calls.insert(source.calls.end(), k.symbols.begin(), k.symbols.end());
    add_source(std::move(k));
  }
  w.kernel = kernel_index(source.symbols[0]);
  add_source(std::move(source));
  w.dims = text.dims();
  w.tasks = text.tasks();
  w.scratch = text.scratch();
  w.bytes = traffic.bytes(cells_);
  w.flops = text.flops();
  for (int i = loop.begin; i < loop.end; ++i) w.nodes.push_back(i);
  works_.push_back(std::move(w));
}

}  // namespace kiln::detail
