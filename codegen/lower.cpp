// SPDX-License-Identifier: Apache-2.0
#include "codegen/lower.h"

#include <algorithm>
#include <set>

#include "codegen/lower_parts.h"
#include "codegen/source_cpu.h"
#include "ir/access.h"
#include "ir/base/dump.h"

namespace kiln {

namespace {

using detail::Cell;
using detail::Overwrite;
using detail::Work;

Dim bytes_of(const Type& t) { return numel(t.shape) * Dim(static_cast<int64_t>(dtype_size(t.dtype))); }

class Lowering {
 public:
  Lowering(const Graph& g, const std::vector<ExternalLayout>& layouts, const CpuTarget& target,
           const LowerOptions& o, std::vector<TunableKernel>* collect)
      : g_(g), target_(target), chooser_(o.schedules, target, collect), pool_(program_.plan) {
    FuseOptions f;
    f.fuse = o.fuse;
    size_t external = 0;
    for (const GraphInput& in : g.inputs) {
      const bool given = in.kind != InputKind::scalar && !layouts.empty();
      KILN_ASSERT(!given || external < layouts.size(), "{} layouts for more external inputs", layouts.size());
      f.inputs.push_back(given ? layouts[external]
                               : TensorLayout{contiguous_dims(g.type(in.value).shape), Dim(0)});
      if (in.kind != InputKind::scalar) ++external;
    }
    inputs_ = f.inputs;
    for (size_t i = 0; i < g.inputs.size(); ++i)
      if (needs_dense(i)) f.inputs[i] = {contiguous_dims(g.type(g.inputs[i].value).shape), Dim(0)};
    fused_ = fuse(g, f);
    dump("partition", [&] { return print_partition(fused_, g_); });
    dump("loops", [&] { return print(fused_, g_); });
  }

  LoweredProgram run() {
    make_cells();
    for (size_t i = 0; i < g_.inputs.size(); ++i)
      if (needs_dense(i)) make_dense(i);
    for (const Step& s : fused_.steps) {
      if (s.node >= 0) add_node(s);
      else add_kernel(fused_.kernels[s.kernel]);
    }
    find_overwrites();
    for (detail::Collective& c : collectives_)
      detail::place_operands(
          c, [&] { return kernel_index("copy", true); }, cells_, works_);
    std::vector<int> clashes;
    std::vector<std::vector<int>> intervals =
        detail::schedule(works_, overwrites_, guards_, cell_count(), clashes);
    if (!clashes.empty()) {
      for (int i : clashes) write_late(i);
      overwrites_ = late_;
      clashes.clear();
      intervals = detail::schedule(works_, overwrites_, guards_, cell_count(), clashes);
      KILN_ASSERT(clashes.empty(), "an input cannot be overwritten after all its readers");
    }
    place_buffers(intervals);
    list_collectives();
    emit(intervals);
    for (int c : guards_) plan().guards.push_back(cells_[c].buffer);
    finish_plan();
    return std::move(program_);
  }

 private:
  Plan& plan() { return program_.plan; }
  int cell_count() const { return static_cast<int>(cells_.size()); }
  int value_cell(Value v) const { return v.id; }
  int partial_cell(int i) const { return g_.value_count() + i; }
  int output_cell(int slot) const {
    return g_.value_count() + static_cast<int>(fused_.partials.size()) + slot;
  }

  // --- inputs that reshape needs row-major ---

  bool needs_dense(size_t i) const {
    const Value v = g_.inputs[i].value;
    if (inputs_[i] == TensorLayout{contiguous_dims(g_.type(v).shape), Dim(0)}) return false;
    return std::any_of(g_.nodes.begin(), g_.nodes.end(),
                       [&](const Node& n) { return n.op == op("reshape") && n.in[0] == v; });
  }
  /// Everybody reads a row-major copy of the input.
  void make_dense(size_t i) {
    const Value v = g_.inputs[i].value;
    const Type& t = g_.type(v);
    for (const GraphOutput& o : g_.outputs)
      KILN_CHECK(o.alias_input != static_cast<int>(i), unsupported,
                 "update of input '{}' in place: it lies strided and is reshaped (make it contiguous)",
                 g_.inputs[i].name);
    const int external = new_cell(t.dtype, bytes_of(t), "");
    std::swap(cells_[external].buffer, cells_[v.id].buffer);
    loop::Instr load;
    load.kind = loop::InstrKind::load;
    load.param = 0;
    load.index.offset = inputs_[i].offset;
    for (size_t d = 0; d < t.shape.size(); ++d)
      load.index.add_axis(static_cast<int>(d), inputs_[i].strides[d]);
    add_fill(t.shape, t.dtype, std::move(load), external, value_cell(v), {});
  }

  // --- cells ---

  void make_cells() {
    for (int v = 0; v < g_.value_count(); ++v) {
      const Type& t = g_.type(Value{v});
      cells_.push_back({t.dtype, bytes_of(t), -1, fmt::format("%{}", v)});
    }
    for (const Partial& p : fused_.partials)
      cells_.push_back(
          {p.dtype, p.tasks * p.columns * Dim(static_cast<int64_t>(dtype_size(p.dtype))), -1, "partial"});
    for (const GraphOutput& o : g_.outputs)
      cells_.push_back({g_.type(o.value).dtype, bytes_of(g_.type(o.value)), -1, "copy"});
    for (const GraphInput& in : g_.inputs) {
      PlanBuffer b{BufferKind::external, cells_[in.value.id].dtype, 0, -1, -1, {}};
      b.kind = in.kind == InputKind::scalar ? BufferKind::scalar : BufferKind::external;
      b.index = in.kind == InputKind::scalar ? plan().scalar_count++ : plan().external_count++;
      b.bytes = pool_.add(in.kind == InputKind::scalar ? Dim(8) : cells_[in.value.id].bytes);
      cells_[in.value.id].buffer = add_buffer(std::move(b));
    }
    for (const GraphOutput& o : g_.outputs)
      if (o.alias_input < 0) ++plan().output_count;
  }
  int add_buffer(PlanBuffer b) {
    plan().buffers.push_back(std::move(b));
    return static_cast<int>(plan().buffers.size()) - 1;
  }
  int new_cell(DType t, const Dim& bytes, const char* name) {
    cells_.push_back({t, bytes, -1, name});
    return cell_count() - 1;
  }
  int cell_of(const Binding& b) const {
    if (b.kind == Binding::Kind::value) return b.id;
    return b.kind == Binding::Kind::partial ? partial_cell(b.id) : output_cell(b.id);
  }

  // --- works ---

  int kernel_index(const std::string& symbol, bool builtin = false) {
    const auto [at, fresh] = kernels_.try_emplace(symbol, static_cast<int>(plan().kernels.size()));
    if (fresh) plan().kernels.push_back({builtin, symbol});
    return at->second;
  }
  void add_source(KernelSource s) {
    if (sources_.insert(s.name).second) program_.kernels.push_back(std::move(s));
  }

  void add_kernel(const FusedKernel& k) {
    Work w;
    for (size_t i = 0; i < k.params.size(); ++i) {
      const int c = cell_of(k.params[i]);
      w.cells.push_back(c);
      if (k.kernel.params[i].read) w.reads.push_back(c);
      if (k.kernel.params[i].written) w.writes.push_back(c);
    }
    w.nodes = k.nodes;
    add_loop(k.kernel, std::move(w));
  }

  void add_loop(const loop::Kernel& k, Work w) {
    const CpuKernel source = write_cpu_kernel(k, target_, chooser_.rows(k));
    if (source.tasks.is(0)) return;
    w.kernel = kernel_index(source.symbol);
    add_source({source.symbol + ".cpp", source.text, {source.symbol}});
    w.dims = k.dims;
    w.tasks = source.tasks;
    w.scratch = source.scratch_bytes;
    detail::Traffic traffic;
    traffic.add(k, w.cells);
    w.bytes = traffic.bytes(cells_);
    if (source.single_pass) w.in_place = detail::in_place_pairs(k, w.cells);
    w.flops = flops(k);
    if (chooser_.collects()) chooser_.note(k, w, cells_);
    works_.push_back(std::move(w));
  }

  void add_node(const Step& s) {
    const Node& n = g_.nodes[s.node];
    switch (def(n.op).kind) {
      case OpKind::contract: return add_contract(s, n);
      case OpKind::effect: return add_effect(n);
      default: break;
    }
    detail::WholeKernel k = detail::lower_whole(g_, n, s.operands);
    Work w;
    detail::Traffic traffic;
    for (size_t i = 0; i < s.operands.size(); ++i) {
      const Operand& o = s.operands[i];
      if (!o.base.valid()) continue;
      w.cells.push_back(value_cell(o.base));
      w.reads.push_back(value_cell(o.base));
      traffic.add(value_cell(o.base), reach_of(o.layout, g_.type(n.in[i]).shape));
    }
    w.cells.push_back(value_cell(n.out));
    w.writes = {value_cell(n.out)};
    traffic.add_whole(value_cell(n.out));
    w.bytes = traffic.bytes(cells_);
    w.kernel = kernel_index(k.source.symbols[0]);
    add_source(std::move(k.source));
    w.dims = k.dims;
    w.tasks = k.tasks;
    w.flops = numel(g_.type(n.out).shape);
    w.nodes = {s.node};
    works_.push_back(std::move(w));
  }

  void add_effect(const Node& n) {
    KILN_CHECK(n.op == op("all_reduce"), unsupported, "{}{}: no kernel does it", def(n.op).name,
               n.origin.loc.known() ? " (" + n.origin.loc.str() + ")" : "");
    const auto index = static_cast<int>(collectives_.size());
    collectives_.push_back(detail::add_all_reduce(g_, n, index, cells_, works_));
  }

  /// A kernel that writes `cell` row-major over `shape` from one loaded or constant instruction.
  void add_fill(const Shape& shape, DType t, loop::Instr from, int from_cell, int to_cell,
                std::vector<int> nodes) {
    loop::Kernel k;
    loop::Index to;
    const std::vector<Dim> strides = contiguous_dims(shape);
    for (size_t d = 0; d < shape.size(); ++d) {
      k.axes.push_back({d + 1 == shape.size() ? loop::AxisRole::col : loop::AxisRole::row, shape[d]});
      to.add_axis(static_cast<int>(d), strides[d]);
    }
    Work w;
    w.reads = from_cell >= 0 ? std::vector<int>{from_cell} : std::vector<int>{};
    w.cells = w.reads;
    w.cells.push_back(to_cell);
    w.writes = {to_cell};
    w.nodes = std::move(nodes);
    if (from_cell >= 0) k.params.push_back({t, true, false});
    k.params.push_back({t, false, true});
    from.dtype = t;
    k.body.push_back(std::move(from));
    loop::Instr store;
    store.kind = loop::InstrKind::store;
    store.dtype = t;
    store.args = {0};
    store.param = static_cast<int>(k.params.size()) - 1;
    store.index = to;
    k.body.push_back(std::move(store));
    loop::infer_axes(k);
    loop::canonicalize(k);
    add_loop(k, std::move(w));
  }

  /// A dense copy of operand i of a contraction.
  Operand copied(const Node& n, size_t i, const Operand& o, int* cell) {
    const Type& t = g_.type(n.in[i]);
    std::vector<int64_t> order;
    const Operand out{o.base, detail::dense_operand(g_, n, i, true, order)};
    Shape shape;
    loop::Instr load;
    load.kind = loop::InstrKind::load;
    load.param = 0;
    load.index.offset = o.layout.offset;
    for (size_t d = 0; d < order.size(); ++d) {
      shape.push_back(t.shape[order[d]]);
      load.index.add_axis(static_cast<int>(d), o.layout.strides[order[d]]);
    }
    const int from = *cell;
    *cell = new_cell(t.dtype, bytes_of(t), "copy");
    add_fill(shape, t.dtype, std::move(load), from, *cell, {});
    return out;
  }

  /// The kernels before and after a contraction, if their parameters can say which one is its own.
  Fused fused_into(const Step& s, const Node& n) const {
    Fused f;
    const auto find = [](const FusedKernel& k, Value v) {
      const auto at = std::find(k.params.begin(), k.params.end(), Binding{Binding::Kind::value, v.id});
      return at == k.params.end() ? -1 : static_cast<int>(at - k.params.begin());
    };
    for (size_t i = 0; i < 2; ++i) {
      if (s.prologue[i] < 0) continue;
      const FusedKernel& k = fused_.kernels[s.prologue[i]];
      f.prologue[i] = Prologue{k.kernel, find(k, n.in[i])};
    }
    if (s.kernel < 0) return f;
    const FusedKernel& k = fused_.kernels[s.kernel];
    const int accumulator = find(k, n.out);
    if (accumulator < 0) return f;
    f.epilogue = Epilogue{k.kernel, accumulator, s.keep};
    loop::canonicalize(f.epilogue->kernel, true);
    return f;
  }

  void add_contract(const Step& s, const Node& n) {
    if (numel(g_.type(n.in[0]).shape).is(0)) {  // sums of nothing
      add_fill(g_.type(n.out).shape, g_.type(n.out).dtype, {}, -1, value_cell(n.out), {s.node});
      return;
    }
    std::vector<Operand> operands = s.operands;
    const Fused fused = fused_into(s, n);
    int from[2];
    for (size_t i = 0; i < 2; ++i) {
      from[i] = fused.prologue[i] ? prologue_cell(s, i, n) : value_cell(operands[i].base);
      std::vector<int64_t> order;
      if (fused.prologue[i])
        operands[i].layout = detail::dense_operand(
            g_, n, i, detail::walks_columns(fused.prologue[i]->kernel) == (i == 0), order);
    }
    MatmulCase c;
    bool which[2];
    if (!detail::contract_case(g_, n, operands, target_, fused, c, which)) {
      for (size_t i = 0; i < 2; ++i)
        if (which[i]) operands[i] = copied(n, i, operands[i], &from[i]);
      const bool ok = detail::contract_case(g_, n, operands, target_, fused, c, which);
      KILN_ASSERT(ok, "dot_general over dense operands does not lower");
    }
    const detail::ContractKernel k = detail::print_contract(c, chooser_.matmul(c));
    Work w;
    w.cells = {from[0], from[1]};
    w.nodes = {s.node};
    detail::Traffic in, out;
    for (size_t i = 0; i < 2; ++i) {
      if (fused.prologue[i]) {
        add_prologue_cells(fused_.kernels[s.prologue[i]], fused.prologue[i]->packed, w, in);
        continue;
      }
      w.reads.push_back(from[i]);
      in.add(from[i], reach_of(operands[i].layout, g_.type(n.in[i]).shape));
    }
    if (c.fused.epilogue) {
      const std::vector<int> operand_reads = w.reads;  // whole tensors, while others are written
      add_epilogue_cells(fused_.kernels[s.kernel], *c.fused.epilogue, w, out);
      std::erase_if(w.in_place, [&](const auto& pair) {
        return std::count(operand_reads.begin(), operand_reads.end(), pair.first) > 0;
      });
    } else {
      w.cells.push_back(value_cell(n.out));
      w.writes = {value_cell(n.out)};
      out.add_whole(value_cell(n.out));
    }
    w.dims = k.dims;
    w.scratch = k.scratch;
    w.bytes = (in + out).bytes(cells_);
    w.flops = detail::contract_flops(g_, n, c.fused);
    add_source(k.source);
    if (chooser_.collects()) chooser_.note(c, w, cells_);
    add_launches(k, std::move(w), cells_[n.out.id].dtype, in, out);
    if (s.kernel < 0 || c.fused.epilogue) return;
    FusedKernel apart = fused_.kernels[s.kernel];
    loop::canonicalize(apart.kernel);
    add_kernel(apart);
  }
  /// A cell that the launch has anyway, for the parameter of an operand that is not in memory.
  int prologue_cell(const Step& s, size_t i, const Node& n) const {
    const FusedKernel& k = fused_.kernels[s.prologue[i]];
    for (size_t p = 0; p < k.params.size(); ++p)
      if (k.kernel.params[p].read) return cell_of(k.params[p]);
    return s.prologue[1 - i] < 0 ? value_cell(s.operands[1 - i].base) : value_cell(n.out);
  }
  void add_prologue_cells(const FusedKernel& f, int packed, Work& w, detail::Traffic& traffic) {
    const size_t first = w.cells.size();
    for (int i = 0; i < static_cast<int>(f.params.size()); ++i) {
      w.cells.push_back(i == packed ? w.cells[0] : cell_of(f.params[i]));
      if (i != packed) w.reads.push_back(w.cells.back());
    }
    traffic.add(f.kernel, std::span(w.cells).subspan(first), packed);
    w.nodes.insert(w.nodes.end(), f.nodes.begin(), f.nodes.end());
  }
  /// Cells of the epilogue's parameters; the result itself is written only when kept.
  void add_epilogue_cells(const FusedKernel& f, const Epilogue& e, Work& w, detail::Traffic& traffic) {
    std::vector<int> own;
    for (size_t i = 0; i < f.params.size(); ++i) {
      const int c = cell_of(f.params[i]);
      own.push_back(c);
      w.cells.push_back(c);
      if (static_cast<int>(i) == e.accumulator) {
        if (e.keep) w.writes.push_back(c);
        else w.cells.back() = w.cells[0];  // not looked at
        continue;
      }
      if (f.kernel.params[i].read) w.reads.push_back(c);
      if (f.kernel.params[i].written) w.writes.push_back(c);
    }
    traffic.add(e.kernel, own, e.accumulator);
    if (e.keep) traffic.add_whole(own[static_cast<size_t>(e.accumulator)]);
    w.in_place = detail::in_place_pairs(e.kernel, own);
    w.nodes.insert(w.nodes.end(), f.nodes.begin(), f.nodes.end());
  }
  /// One launch, or with a split k two: ranges of what moves `in` into the workspace, then their sum `out`.
  void add_launches(const detail::ContractKernel& k, Work w, DType dtype, const detail::Traffic& in,
                    const detail::Traffic& out) {
    const int workspace = k.has_workspace ? new_cell(dtype, k.workspace, "split_k") : -1;
    const Work whole = w;
    for (size_t i = 0; i < k.launches.size(); ++i) {
      Work part = whole;
      part.kernel = kernel_index(k.launches[i].first);
      part.tasks = k.launches[i].second;
      if (workspace >= 0) {
        part.cells.push_back(workspace);
        const bool last = i + 1 == k.launches.size();
        part.bytes = (last ? out : in).bytes(cells_) + k.workspace;
        if (last) part.reads.push_back(workspace);
        else part.writes = {workspace};
        if (last) part.flops = Dim(0);
      }
      works_.push_back(std::move(part));
    }
  }
  // --- outputs and overwritten inputs ---

  /// Gives output values their buffers; those that replace an input become overwrites.
  void find_overwrites() {
    std::set<int> copies;
    for (const FusedKernel& k : fused_.kernels)
      for (const Binding& b : k.params)
        if (b.kind == Binding::Kind::output) copies.insert(b.id);
    int slot = 0;
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      const GraphOutput& o = g_.outputs[i];
      const int cell =
          copies.count(static_cast<int>(i)) ? output_cell(static_cast<int>(i)) : value_cell(o.value);
      if (o.guard) guards_.push_back(cell);
      if (o.alias_input < 0) {
        const int index = slot++;
        PlanBuffer b{BufferKind::output, cells_[cell].dtype, index, pool_.add(cells_[cell].bytes), -1, {}};
        if (cells_[cell].buffer < 0 || copies.count(static_cast<int>(i)))
          cells_[cell].buffer = add_buffer(std::move(b));
        continue;
      }
      const Value old = g_.inputs[o.alias_input].value;
      if (old == o.value && !copies.count(static_cast<int>(i))) continue;
      cells_[cell].buffer = cells_[old.id].buffer;
      overwrites_.push_back({cell, value_cell(old)});
    }
    late_ = overwrites_;
  }

  /// The new value goes to the arena first and is copied over the input when nobody reads the old one any
  /// more.
  void write_late(int i) {
    const Overwrite o = overwrites_[i];
    const int external = new_cell(cells_[o.cell].dtype, cells_[o.cell].bytes, "");
    cells_[external].buffer = cells_[o.cell].buffer;
    cells_[o.cell].buffer = -1;
    const size_t input = input_of(o.old_cell);
    KILN_CHECK(inputs_[input] == (TensorLayout{contiguous_dims(g_.type(Value{o.old_cell}).shape), Dim(0)}),
               unsupported,
               "update of input '{}': its memory is strided, and its old value is still read after the new "
               "one is made",
               g_.inputs[input].name);
    works_.push_back(detail::copy_work(kernel_index("copy", true), o.cell, external, cells_[o.cell].bytes));
    for (Overwrite& x : late_)
      if (x.cell == o.cell) x.cell = external;
  }
  size_t input_of(int input_cell) const {
    for (size_t i = 0; i < g_.inputs.size(); ++i)
      if (g_.inputs[i].value.id == input_cell) return i;
    throw Error(ErrorKind::internal, "overwrite of a value that is no input");
  }

  // --- memory and launches ---

  void place_buffers(const std::vector<std::vector<int>>& intervals) {
    std::vector<int> first(cells_.size(), -1), last(cells_.size(), -1);
    for (size_t t = 0; t < intervals.size(); ++t)
      for (int w : intervals[t])
        for (int used : works_[w].cells) {
          const int c = cells_[used].inside < 0 ? used : cells_[used].inside;
          if (first[c] < 0) first[c] = static_cast<int>(t);
          last[c] = static_cast<int>(t);
        }
    std::vector<detail::ArenaItem> items;
    for (int c = 0; c < cell_count(); ++c) {
      if (cells_[c].buffer >= 0 || first[c] < 0) continue;
      cells_[c].buffer = add_buffer(
          {BufferKind::arena, cells_[c].dtype, -1, pool_.add(cells_[c].bytes), -1, cells_[c].name});
      items.push_back({cells_[c].buffer, cells_[c].bytes, first[c], last[c]});
    }
    std::vector<Dim> offsets;
    plan().arena_bytes = pool_.add(detail::place_arena(items, offsets));
    for (size_t i = 0; i < items.size(); ++i) plan().buffers[items[i].buffer].offset = pool_.add(offsets[i]);
    for (Cell& c : cells_) {
      if (c.inside < 0) continue;
      PlanBuffer b = plan().buffers[cells_[c.inside].buffer];
      KILN_ASSERT(b.kind == BufferKind::arena, "a bucket lies outside the arena");
      b.offset = pool_.add(plan().dims[b.offset] + c.at);
      b.bytes = pool_.add(c.bytes);
      b.name = c.name;
      c.buffer = add_buffer(std::move(b));
    }
  }

  void list_collectives() {
    for (const detail::Collective& c : collectives_) {
      const Node& n = g_.nodes[works_[c.start].nodes[0]];
      PlanCollective p{std::string(def(n.op).name),
                       std::get<DType>(n.attrs[1]),
                       static_cast<int32_t>(std::get<int64_t>(n.attrs[0])),
                       cells_[c.cell].buffer,
                       pool_.add(numel(g_.type(n.out).shape)),
                       {},
                       works_[c.start].nodes[0]};
      for (const Dim& at : c.at)
        p.pieces.push_back(
            pool_.add(floordiv(at, Dim(static_cast<int64_t>(dtype_size(cells_[c.cell].dtype))))));
      plan().collectives.push_back(std::move(p));
    }
  }

  void emit(const std::vector<std::vector<int>>& intervals) {
    std::set<int> unmade;  // guards that no launch so far has made
    for (const Work& w : works_)
      for (int c : w.writes)
        if (std::count(guards_.begin(), guards_.end(), c)) unmade.insert(c);
    for (const auto& interval : intervals) {
      bool barrier = !plan().launches.empty();
      if (unmade.empty() && !guards_.empty() && plan().guarded_from < 0)
        plan().guarded_from = static_cast<int32_t>(plan().launches.size());
      for (int i : interval) {
        const Work& w = works_[i];
        for (int c : w.writes) unmade.erase(c);
        Launch l;
        l.kind = w.kind;
        l.kernel = w.kernel;
        for (int c : w.cells) l.buffers.push_back(cells_[c].buffer);
        for (const Dim& d : w.dims) l.dims.push_back(pool_.add(d));
        l.tasks = pool_.add(w.tasks);
        l.scratch_bytes = pool_.add(w.scratch);
        l.barrier_before = barrier;
        l.profile = static_cast<int32_t>(plan().profile.size());
        plan().profile.push_back(profile_row(w));
        plan().launches.push_back(std::move(l));
        barrier = false;
      }
    }
  }

  ProfileRow profile_row(const Work& w) {
    ProfileRow r;
    r.ops = detail::ops_text(g_, w.nodes);
    r.bytes = pool_.add(w.bytes);
    r.flops = pool_.add(w.flops);
    r.sources = detail::sources_of(g_, w.nodes);
    return r;
  }

  void finish_plan() {
    for (const Dim& d : plan().dims) d.collect_symbols(plan().symbols);
    for (const GraphInput& in : g_.inputs)
      for (const Dim& d : g_.type(in.value).shape) d.collect_symbols(plan().symbols);
  }

  const Graph& g_;
  const CpuTarget& target_;
  detail::Chooser chooser_;
  LoweredProgram program_;
  detail::DimPool pool_;
  FusedGraph fused_;
  std::vector<TensorLayout> inputs_;
  std::vector<Cell> cells_;
  std::vector<Work> works_;
  std::vector<Overwrite> overwrites_, late_;
  std::vector<int> guards_;  // cells
  std::vector<detail::Collective> collectives_;
  std::map<std::string, int> kernels_;
  std::set<std::string> sources_;
};

}  // namespace

LoweredProgram detail::lower_collecting(const Graph& g, const std::vector<ExternalLayout>& layouts,
                                        const CpuTarget& target, const LowerOptions& options,
                                        std::vector<TunableKernel>* collect) {
  const bool integer_dots = std::any_of(g.nodes.begin(), g.nodes.end(), [&](const Node& n) {
    return n.op == op("dot_general") && !is_floating(g.type(n.out).dtype);
  });
  if (!integer_dots) return Lowering(g, layouts, target, options, collect).run();
  std::vector<int32_t> source_of;
  const Graph plain = without_integer_dots(g, source_of);
  LoweredProgram out = Lowering(plain, layouts, target, options, collect).run();
  rename_sources(out.plan, source_of);
  return out;
}

LoweredProgram lower_cpu(const Graph& g, const std::vector<ExternalLayout>& layouts, const CpuTarget& target,
                         const LowerOptions& options) {
  return detail::lower_collecting(g, layouts, target, options, nullptr);
}

}  // namespace kiln
