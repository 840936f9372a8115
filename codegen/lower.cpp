// SPDX-License-Identifier: Apache-2.0
// The frame of lowering: inputs, cells, outputs that overwrite inputs, memory, and the plan itself.
#include <algorithm>

#include "codegen/lowering.h"
#include "ir/access.h"
#include "ir/base/dump.h"

namespace kiln {

namespace detail {

Lowering::Lowering(const Graph& g, const std::vector<ExternalLayout>& layouts, const Target& target,
                   const LowerOptions& o, std::vector<TunableKernel>* collect, std::vector<TileLoop> loops)
    : g_(g),
      target_(target),
      writer_(kernel_writer(target, o)),
      chooser_(o.schedules, target, collect),
      options_(o),
      loops_(std::move(loops)),
      pool_(program_.plan) {
  FuseOptions f;
  f.fuse = o.fuse;
  f.prologues = o.prologues;
  f.loops = loops_;
  size_t external = 0;
  for (const GraphInput& in : g.inputs) {
    const bool given = in.kind != InputKind::scalar && !layouts.empty();
    KILN_ASSERT(!given || external < layouts.size(), "{} layouts for more external inputs", layouts.size());
    f.inputs.push_back(given ? layouts[external] : row_major(g.type(in.value)));
    if (in.kind != InputKind::scalar) ++external;
  }
  inputs_ = f.inputs;
  for (size_t i = 0; i < g.inputs.size(); ++i)
    if (needs_dense(i)) f.inputs[i] = row_major(g.type(g.inputs[i].value));
  fused_ = fuse(g, f);
  dump("partition", [&] { return print_partition(fused_, g_); });
  dump("loops", [&] { return print(fused_, g_); });
}

LoweredProgram Lowering::run() {
  make_cells();
  for (size_t i = 0; i < g_.inputs.size(); ++i)
    if (needs_dense(i)) make_dense(i);
  for (const Step& s : fused_.steps) {
    if (s.loop >= 0) add_loop_over_tiles(s);
    else if (s.node >= 0) add_node(s);
    else add_kernel(fused_.kernels[s.kernel]);
  }
  find_overwrites();
  for (Collective& c : collectives_)
    place_operands(
        c, [&] { return kernel_index("copy", true); }, cells_, works_);
  std::vector<int> clashes;
  Order order = schedule(works_, overwrites_, guards_, cell_count(), clashes);
  if (!clashes.empty()) {
    for (int i : clashes) write_late(i);
    overwrites_ = late_;
    order = in_order(works_);
  }
  if (options_.fuse && options_.combine) order = combine(std::move(order));
  sink_works(works_, cells_, order);
  const std::vector<std::vector<int>>& intervals = order.intervals;
  take_places(cells_, works_, intervals);
  place_buffers(intervals);
  list_collectives();
  emit(intervals);
  for (int c : guards_) plan().guards.push_back(cells_[c].buffer);
  finish_plan();
  return std::move(program_);
}

Order Lowering::in_order(const std::vector<Work>& works) const {
  std::vector<int> clashes;
  Order order = schedule(works, overwrites_, guards_, cell_count(), clashes);
  KILN_ASSERT(clashes.empty(), "an input cannot be overwritten after all its readers");
  return order;
}

// --- inputs that reshape needs row-major ---

bool Lowering::needs_dense(size_t i) const {
  const Value v = g_.inputs[i].value;
  if (inputs_[i] == row_major(g_.type(v))) return false;
  return std::any_of(g_.nodes.begin(), g_.nodes.end(),
                     [&](const Node& n) { return n.op == op("reshape") && n.in[0] == v; });
}
/// Everybody reads a row-major copy of the input.
void Lowering::make_dense(size_t i) {
  const Value v = g_.inputs[i].value;
  const Type& t = g_.type(v);
  const int external = new_cell(t.dtype, bytes_of(t), "");
  std::swap(cells_[external].buffer, cells_[v.id].buffer);
  strided_[v.id] = external;
  add_copy(t, inputs_[i], external, row_major(t), value_cell(v));
}

// --- cells ---

namespace {
/// From where a tensor's pointer is to behind its last element.
Dim bytes_of(const Type& t, const TensorLayout& layout) {
  if (layout == row_major(t)) return detail::bytes_of(t);
  Dim last = layout.offset;
  for (size_t d = 0; d < t.shape.size(); ++d) {
    if (t.shape[d].is(0)) return Dim(0);
    last = last + (t.shape[d] - 1) * layout.strides[d];
  }
  return (last + 1) * Dim(static_cast<int64_t>(dtype_size(t.dtype)));
}
}  // namespace

void Lowering::make_cells() {
  for (int v = 0; v < g_.value_count(); ++v) {
    const Type& t = g_.type(Value{v});
    cells_.push_back({t.dtype, bytes_of(t), -1, fmt::format("%{}", v)});
  }
  for (const Partial& p : fused_.partials)
    cells_.push_back(
        {p.dtype, p.tasks * p.columns * Dim(static_cast<int64_t>(dtype_size(p.dtype))), -1, "partial"});
  for (const GraphOutput& o : g_.outputs)
    cells_.push_back({g_.type(o.value).dtype, bytes_of(g_.type(o.value)), -1, "copy"});
  for (size_t i = 0; i < g_.inputs.size(); ++i) {
    const GraphInput& in = g_.inputs[i];
    PlanBuffer b{BufferKind::external, cells_[in.value.id].dtype, 0, -1, -1, {}};
    b.kind = in.kind == InputKind::scalar ? BufferKind::scalar : BufferKind::external;
    b.index = in.kind == InputKind::scalar ? plan().scalar_count++ : plan().external_count++;
    b.bytes = pool_.add(in.kind == InputKind::scalar ? Dim(8) : bytes_of(g_.type(in.value), inputs_[i]));
    cells_[in.value.id].buffer = add_buffer(std::move(b));
  }
  for (const GraphOutput& o : g_.outputs)
    if (o.alias_input < 0) ++plan().output_count;
}
int Lowering::add_buffer(PlanBuffer b) {
  plan().buffers.push_back(std::move(b));
  return static_cast<int>(plan().buffers.size()) - 1;
}

int Lowering::new_cell(DType t, const Dim& bytes, const char* name) {
  cells_.push_back({t, bytes, -1, name});
  return cell_count() - 1;
}

int Lowering::cell_of(const Binding& b) const {
  if (b.kind == Binding::Kind::value) return b.id;
  return b.kind == Binding::Kind::partial ? partial_cell(b.id) : output_cell(b.id);
}

// --- outputs and overwritten inputs ---

/// Gives output values their buffers; those that replace an input become overwrites.
void Lowering::find_overwrites() {
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
    if (const auto strided = strided_.find(old.id); strided != strided_.end()) {
      // Made row-major, as it was read, and then spread over the input's memory.
      const int external = new_cell(cells_[cell].dtype, cells_[cell].bytes, "");
      cells_[external].buffer = cells_[strided->second].buffer;
      const Type& t = g_.type(old);
      add_copy(t, row_major(t), cell, inputs_[static_cast<size_t>(o.alias_input)], external);
      overwrites_.push_back({external, strided->second});
      continue;
    }
    cells_[cell].buffer = cells_[old.id].buffer;
    overwrites_.push_back({cell, value_cell(old)});
  }
  late_ = overwrites_;
}

/// The new value goes to the arena first and is copied over the input when nobody reads the old one any
/// more.
void Lowering::write_late(int i) {
  const Overwrite o = overwrites_[i];
  const int external = new_cell(cells_[o.cell].dtype, cells_[o.cell].bytes, "");
  cells_[external].buffer = cells_[o.cell].buffer;
  cells_[o.cell].buffer = -1;
  const size_t input = input_of(o.old_cell);
  KILN_CHECK(inputs_[input] == row_major(g_.type(Value{o.old_cell})), unsupported,
             "update of input '{}': its memory is strided, and its old value is still read after the new "
             "one is made",
             g_.inputs[input].name);
  works_.push_back(copy_work(kernel_index("copy", true), o.cell, external, cells_[o.cell].bytes));
  for (Overwrite& x : late_)
    if (x.cell == o.cell) x.cell = external;
}
size_t Lowering::input_of(int input_cell) const {
  for (size_t i = 0; i < g_.inputs.size(); ++i)
    if (g_.inputs[i].value.id == input_cell) return i;
  throw Error(ErrorKind::internal, "overwrite of a value that is no input");
}

// --- memory and launches ---

void Lowering::place_buffers(const std::vector<std::vector<int>>& intervals) {
  std::vector<ArenaItem> items = arena_cells(cells_, works_, intervals);
  for (ArenaItem& i : items) {
    Cell& c = cells_[static_cast<size_t>(i.buffer)];
    c.buffer = i.buffer = add_buffer({BufferKind::arena, c.dtype, -1, pool_.add(c.bytes), -1, c.name});
  }
  std::vector<Dim> offsets;
  plan().arena_bytes = pool_.add(place_arena(items, offsets));
  for (size_t i = 0; i < items.size(); ++i) plan().buffers[items[i].buffer].offset = pool_.add(offsets[i]);
  for (Cell& c : cells_) {
    if (c.inside < 0) continue;
    PlanBuffer b = plan().buffers[cells_[c.inside].buffer];
    KILN_ASSERT(b.kind == BufferKind::arena, "a part of a value lies outside the arena");
    b.dtype = c.dtype;
    b.offset = pool_.add(plan().dims[b.offset] + c.at);
    b.bytes = pool_.add(c.bytes);
    b.name = c.name;
    c.buffer = add_buffer(std::move(b));
  }
}

void Lowering::list_collectives() {
  for (const Collective& c : collectives_) {
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

void Lowering::emit(const std::vector<std::vector<int>>& intervals) {
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
      const std::set<int> written(w.writes.begin(), w.writes.end());
      for (int c : w.writes) unmade.erase(c);
      Launch l;
      l.kind = w.kind;
      l.kernel = w.kernel;
      for (int c : w.cells) {
        if (written.count(c)) l.writes.push_back(static_cast<int32_t>(l.buffers.size()));
        l.buffers.push_back(cells_[c].buffer);
      }
      if (std::any_of(w.starts.begin(), w.starts.end(), [](int64_t s) { return s != 0; })) {
        l.starts = w.starts;
        l.starts.resize(l.buffers.size());
      }
      for (const Dim& d : w.dims) l.dims.push_back(pool_.add(d));
      l.tasks = pool_.add(w.tasks);
      l.scratch_bytes = pool_.add(w.scratch);
      for (const Work::Part& p : w.parts) l.parts.push_back({pool_.add(p.tasks), pool_.add(p.elements)});
      l.barrier_before = barrier;
      l.profile = static_cast<int32_t>(plan().profile.size());
      plan().profile.push_back(profile_row(w));
      plan().launches.push_back(std::move(l));
      barrier = false;
    }
  }
}

ProfileRow Lowering::profile_row(const Work& w) {
  ProfileRow r;
  r.ops = ops_text(g_, w.nodes);
  r.bytes = pool_.add(w.bytes);
  r.flops = pool_.add(w.flops);
  r.sources = sources_of(g_, w.nodes);
  return r;
}

void Lowering::finish_plan() {
  for (const Dim& d : plan().dims) d.collect_symbols(plan().symbols);
  for (const GraphInput& in : g_.inputs)
    for (const Dim& d : g_.type(in.value).shape) d.collect_symbols(plan().symbols);
}

}  // namespace detail

LoweredProgram detail::lower_collecting(const Graph& g, const std::vector<ExternalLayout>& layouts,
                                        const Target& target, const LowerOptions& options,
                                        std::vector<TunableKernel>* collect) {
  if (detail::has_plain_dots(g)) {
    std::vector<int32_t> source_of;
    const Graph plain = detail::without_plain_dots(g, source_of);
    LoweredProgram out = lower_collecting(plain, layouts, target, options, collect);
    detail::rename_sources(out.plan, source_of);
    return out;
  }
  std::optional<TiledGraph> tiled;
  if (std::holds_alternative<CpuTarget>(target) && options.fuse && options.loop_bytes != kNoLoops)
    tiled = tile_loops(g, options.loop_bytes);
  if (!tiled) return detail::Lowering(g, layouts, target, options, collect, {}).run();
  LoweredProgram out =
      detail::Lowering(tiled->graph, layouts, target, options, collect, std::move(tiled->loops)).run();
  detail::rename_sources(out.plan, tiled->source_of);
  return out;
}

LoweredProgram lower(const Graph& g, const std::vector<ExternalLayout>& layouts, const Target& target,
                     const LowerOptions& options) {
  return detail::lower_collecting(g, layouts, target, options, nullptr);
}

}  // namespace kiln
