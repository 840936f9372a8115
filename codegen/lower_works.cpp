// SPDX-License-Identifier: Apache-2.0
// The launches of a program: kernels of fused regions, contractions with what is fused into them, nodes that
// are kernels of their own. What a kernel's text is, the writer of the target decides.
#include <algorithm>
#include <cmath>

#include "codegen/lowering.h"
#include "ir/access.h"

namespace kiln::detail {

// --- works ---

int Lowering::kernel_index(const std::string& symbol, bool builtin) {
  const auto [at, fresh] = kernels_.try_emplace(symbol, static_cast<int>(plan().kernels.size()));
  if (fresh) plan().kernels.push_back({builtin, symbol});
  return at->second;
}
void Lowering::add_source(KernelSource s) {
  if (sources_.insert(s.name).second) program_.kernels.push_back(std::move(s));
}

void Lowering::add_kernel(const FusedKernel& k) {
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

namespace {
void add_starts(std::vector<int64_t>& starts, const std::vector<int64_t>& elements,
                const std::vector<loop::Param>& params) {
  for (size_t i = 0; i < elements.size(); ++i)
    starts.push_back(elements[i] * static_cast<int64_t>(dtype_size(params[i].dtype)));
}
/// The operand without the known start of its offset, which is added to `starts`.
void rebase(Operand& o, DType t, std::vector<int64_t>& starts) {
  const int64_t start = loop::known_start(o.layout.offset, t);
  o.layout.offset = o.layout.offset - Dim(start);
  starts.push_back(start * static_cast<int64_t>(dtype_size(t)));
}
}  // namespace

void Lowering::add_loop(const loop::Kernel& whole, Work w) {
  loop::Kernel k = whole;
  add_starts(w.starts, loop::rebase(k), k.params);
  LoopKernel source = writer_->loop(k, chooser_.rows(k));
  if (source.tasks.is(0)) return;
  w.kernel = kernel_index(source.source.symbols[0]);
  add_source(std::move(source.source));
  w.dims = k.dims;
  w.tasks = source.tasks;
  w.scratch = source.scratch;
  Traffic traffic;
  traffic.add(whole, w.cells);
  w.bytes = traffic.bytes(cells_);
  if (source.in_place) w.in_place = in_place_pairs(whole, w.cells);
  w.flops = flops(k);
  if (chooser_.collects()) chooser_.note(k, w, cells_);
  if (loop::any_size(k)) {
    w.single = std::make_shared<const loop::Kernel>(k);
    w.reached = std::make_shared<const loop::Kernel>(whole);
  }
  works_.push_back(std::move(w));
}

namespace {
/// Whether a scatter may have its base where its result is: only the base itself is read there.
bool scatters_in_place(const Graph& g, const Node& n, const std::vector<Operand>& operands) {
  const Operand& base = operands[0];
  return def(n.op).kind == OpKind::scatter && base.base.valid() && base.layout == row_major(g.type(n.out)) &&
         g.type(base.base) == g.type(n.out) &&
         std::none_of(operands.begin() + 1, operands.end(),
                      [&](const Operand& o) { return o.base == base.base; });
}
}  // namespace

void Lowering::add_node(const Step& s) {
  const Node& n = g_.nodes[s.node];
  switch (def(n.op).kind) {
    case OpKind::contract: return add_contract(s, n);
    case OpKind::effect: return add_effect(n);
    default: break;
  }
  Work w;
  Traffic in, out;
  std::vector<Operand> operands = s.operands;
  for (size_t i = 0; i < operands.size(); ++i) {
    Operand& o = operands[i];
    if (!o.base.valid()) continue;
    w.cells.push_back(value_cell(o.base));
    w.reads.push_back(value_cell(o.base));
    in.add(value_cell(o.base), reach_of(o.layout, g_.type(n.in[i]).shape));
    rebase(o, g_.type(n.in[i]).dtype, w.starts);
  }
  w.cells.push_back(value_cell(n.out));
  w.writes = {value_cell(n.out)};
  if (scatters_in_place(g_, n, s.operands))
    w.in_place = {{value_cell(s.operands[0].base), value_cell(n.out)}};
  out = in;
  out.add_whole(value_cell(n.out));
  w.flops = numel(g_.type(n.out).shape) * Dim(std::max<int64_t>(1, std::llround(def(n.op).flops)));
  w.nodes = {s.node};
  w.bytes = out.bytes(cells_);
  const NodeKernel k = writer_->whole(g_, n, operands);
  w.dims = k.dims;
  add_launches(k, std::move(w), DType::u8, "carried", in, out);
}

void Lowering::add_effect(const Node& n) {
  KILN_CHECK(n.op == op("all_reduce"), unsupported, "{}{}: no kernel does it", def(n.op).name,
             n.origin.loc.known() ? " (" + n.origin.loc.str() + ")" : "");
  const auto index = static_cast<int>(collectives_.size());
  collectives_.push_back(add_all_reduce(g_, n, index, cells_, works_));
}

namespace {
/// Element (a0, a1, ...) of a tensor.
loop::Index place_in(const TensorLayout& l) {
  loop::Index x;
  x.offset = l.offset;
  for (size_t d = 0; d < l.strides.size(); ++d) x.add_axis(static_cast<int>(d), l.strides[d]);
  return x;
}
loop::Instr load_from(const TensorLayout& l) {
  loop::Instr load;
  load.kind = loop::InstrKind::load;
  load.param = 0;
  load.index = place_in(l);
  return load;
}
}  // namespace

void Lowering::add_copy(const Type& t, const TensorLayout& from, int from_cell, const TensorLayout& to,
                        int to_cell) {
  add_fill(t.shape, t.dtype, load_from(from), from_cell, to, to_cell, {});
}

void Lowering::add_fill(const Shape& shape, DType t, loop::Instr from, int from_cell, const TensorLayout& to,
                        int to_cell, std::vector<int> nodes) {
  loop::Kernel k;
  for (size_t d = 0; d < shape.size(); ++d)
    k.axes.push_back({d + 1 == shape.size() ? loop::AxisRole::col : loop::AxisRole::row, shape[d]});
  Work w;
  w.reads = from_cell >= 0 ? std::vector<int>{from_cell} : std::vector<int>{};
  w.cells = w.reads;
  w.cells.push_back(to_cell);
  w.writes = {to_cell};
  w.nodes = std::move(nodes);
  if (from_cell >= 0) k.params.push_back({t, true, false});
  k.params.push_back({t, false, true});
  from.dtype = loop::computed(t);
  k.body.push_back(std::move(from));
  loop::Instr store;
  store.kind = loop::InstrKind::store;
  store.dtype = loop::computed(t);
  store.args = {0};
  store.param = static_cast<int>(k.params.size()) - 1;
  store.index = place_in(to);
  k.body.push_back(std::move(store));
  loop::infer_axes(k);
  loop::canonicalize(k);
  add_loop(k, std::move(w));
}

/// A dense copy of operand i of a contraction.
Operand Lowering::copied(const Node& n, size_t i, const Operand& o, int* cell) {
  const Type& t = g_.type(n.in[i]);
  std::vector<int64_t> order;
  const Operand out{o.base, dense_operand(g_, n, i, i == 0, order)};
  Type permuted{t.dtype, {}};
  TensorLayout now{{}, o.layout.offset};
  for (const int64_t d : order) {
    permuted.shape.push_back(t.shape[d]);
    now.strides.push_back(o.layout.strides[d]);
  }
  const int from = *cell;
  *cell = new_cell(t.dtype, bytes_of(t), "copy");
  add_copy(permuted, now, from, row_major(permuted), *cell);
  return out;
}

/// The kernels before and after a contraction, if their parameters can say which one is its own.
Fused Lowering::fused_into(const Step& s, const Node& n) const {
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

/// contract_case, whose pointers begin as far into the operands as is known: `starts`, in bytes, by
/// parameter, those of the epilogue last, whether or not it fits.
bool Lowering::rebased_case(const Node& n, std::vector<Operand> operands, Fused fused, MatmulCase& c,
                            bool which[2], std::vector<int64_t>& starts) const {
  starts.clear();
  for (size_t i = 0; i < 2; ++i) rebase(operands[i], g_.type(n.in[i]).dtype, starts);
  const auto add = [&](loop::Kernel& k, int kept) { add_starts(starts, loop::rebase(k, kept), k.params); };
  for (std::optional<Prologue>& p : fused.prologue)
    if (p) add(p->kernel, p->packed);
  if (fused.epilogue) add(fused.epilogue->kernel, fused.epilogue->accumulator);
  return contract_case(g_, n, operands, target_, fused, c, which);
}

void Lowering::add_contract(const Step& s, const Node& n) {
  if (numel(g_.type(n.in[0]).shape).is(0)) {  // sums of nothing
    const Type& t = g_.type(n.out);
    add_fill(t.shape, t.dtype, {}, -1, row_major(t), value_cell(n.out), {s.node});
    return;
  }
  std::vector<Operand> operands = s.operands;
  const Fused fused = fused_into(s, n);
  int from[2];
  for (size_t i = 0; i < 2; ++i) {
    from[i] = fused.prologue[i] ? prologue_cell(s, i, n) : value_cell(operands[i].base);
    std::vector<int64_t> order;
    if (fused.prologue[i])
      operands[i].layout =
          dense_operand(g_, n, i, walks_columns(fused.prologue[i]->kernel) == (i == 0), order);
  }
  Work w;
  MatmulCase c;
  bool which[2];
  if (!rebased_case(n, operands, fused, c, which, w.starts)) {
    for (size_t i = 0; i < 2; ++i)
      if (which[i]) operands[i] = copied(n, i, operands[i], &from[i]);
    const bool ok = rebased_case(n, operands, fused, c, which, w.starts);
    KILN_ASSERT(ok, "dot_general over dense operands does not lower");
  }
  const std::string_view schedule = chooser_.matmul(c);
  const std::optional<LibraryKernel> library = library_for(n, c, schedule);
  if (library || has_epilogue_apart(schedule)) c.fused.epilogue.reset();
  w.cells = {from[0], from[1]};
  w.nodes = {s.node};
  Traffic in, out;
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
    add_epilogue_cells(fused_.kernels[s.kernel], *fused.epilogue, w, out);
    std::erase_if(w.in_place, [&](const auto& pair) {
      return std::count(operand_reads.begin(), operand_reads.end(), pair.first) > 0;
    });
  } else {
    w.starts.resize(w.cells.size());  // the epilogue is a launch of its own
    w.cells.push_back(value_cell(n.out));
    w.writes = {value_cell(n.out)};
    out.add_whole(value_cell(n.out));
  }
  w.bytes = (in + out).bytes(cells_);
  w.flops = contract_flops(g_, n, c.fused);
  if (library) add_library(*library, std::move(w));
  else add_matmul(c, schedule, std::move(w), cells_[n.out.id].dtype, in, out);
  if (s.kernel < 0 || c.fused.epilogue) return;
  FusedKernel apart = fused_.kernels[s.kernel];
  loop::canonicalize(apart.kernel);
  add_kernel(apart);
}
void Lowering::add_matmul(const MatmulCase& c, std::string_view schedule, Work w, DType dtype,
                          const Traffic& in, const Traffic& out) {
  const NodeKernel k = writer_->contract(c, schedule);
  w.dims = k.dims;
  if (chooser_.collects()) chooser_.note(c, w, cells_);
  add_launches(k, std::move(w), loop::computed(dtype), "split_k", in, out);
}
/// A cell that the launch has anyway, for the parameter of an operand that is not in memory.
int Lowering::prologue_cell(const Step& s, size_t i, const Node& n) const {
  const FusedKernel& k = fused_.kernels[s.prologue[i]];
  for (size_t p = 0; p < k.params.size(); ++p)
    if (k.kernel.params[p].read) return cell_of(k.params[p]);
  return s.prologue[1 - i] < 0 ? value_cell(s.operands[1 - i].base) : value_cell(n.out);
}
void Lowering::add_prologue_cells(const FusedKernel& f, int packed, Work& w, Traffic& traffic) {
  const size_t first = w.cells.size();
  for (int i = 0; i < static_cast<int>(f.params.size()); ++i) {
    w.cells.push_back(i == packed ? w.cells[0] : cell_of(f.params[i]));
    if (i != packed) w.reads.push_back(w.cells.back());
  }
  traffic.add(f.kernel, std::span(w.cells).subspan(first), packed);
  w.nodes.insert(w.nodes.end(), f.nodes.begin(), f.nodes.end());
}
/// Cells of the epilogue's parameters; the result itself is written only when kept.
void Lowering::add_epilogue_cells(const FusedKernel& f, const Epilogue& e, Work& w, Traffic& traffic) {
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
  w.in_place = in_place_pairs(e.kernel, own);
  w.nodes.insert(w.nodes.end(), f.nodes.begin(), f.nodes.end());
}
/// What a library does of a contraction. It knows no guards, so it writes nothing that was there before.
std::optional<LibraryKernel> Lowering::library_for(const Node& n, const MatmulCase& c,
                                                   std::string_view schedule) const {
  if (c.fused.prologue[0] || c.fused.prologue[1]) return {};
  for (const GraphOutput& o : g_.outputs)
    if (o.value == n.out && o.alias_input >= 0) return {};
  return writer_->library(c.spec, schedule);
}
void Lowering::add_library(const LibraryKernel& k, Work w) {
  w.kernel = kernel_index(k.builtin, true);
  w.dims = k.dims;
  w.tasks = k.tasks;
  w.scratch = Dim(0);
  works_.push_back(std::move(w));
}
void Lowering::add_launches(const NodeKernel& k, Work w, DType dtype, const char* workspace_name,
                            const Traffic& in, const Traffic& out) {
  add_source(k.source);
  const int workspace = k.has_workspace ? new_cell(dtype, k.workspace, workspace_name) : -1;
  const Work whole = std::move(w);
  for (size_t i = 0; i < k.launches.size(); ++i) {
    const bool last = i + 1 == k.launches.size();
    Work part = whole;
    part.kernel = kernel_index(k.launches[i].symbol);
    part.tasks = k.launches[i].tasks;
    part.scratch = k.launches[i].scratch;
    if (workspace >= 0) {
      part.cells.push_back(workspace);
      part.bytes = (last ? out : in).bytes(cells_) + k.workspace;
      if (last) part.reads.push_back(workspace);
      else part.writes = {workspace};
      if (last) part.flops = Dim(0);
    }
    works_.push_back(std::move(part));
  }
}
}  // namespace kiln::detail
