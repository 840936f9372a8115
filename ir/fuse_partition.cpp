// SPDX-License-Identifier: Apache-2.0
// Greedy partition, from the last node to the first: a node joins the groups that read it. Groups that read
// the same value over the same domain merge when no path leads around; what several groups need is stored
// once or recomputed.
#include <algorithm>

#include "ir/fuse_groups.h"

namespace kiln {

TensorLayout row_major(const Type& t) { return {contiguous_dims(t.shape), Dim(0)}; }

}  // namespace kiln

namespace kiln::detail {

using loop::AxisRole;
using loop::Index;
using loop::IndexTerm;

int Group::add_axis(const Dim& extent, std::optional<AxisRole> role) {
  axes.push_back({AxisRole::col, extent});
  roles.push_back(role);
  return static_cast<int>(axes.size()) - 1;
}

const RowReduce* Group::find_reduce(int value) const {
  for (const RowReduce& r : reduces)
    if (r.value == value) return &r;
  return nullptr;
}

Access identity_access(Group& group, const Shape& shape) {
  Access a;
  for (const Dim& d : shape) {
    Index x;
    if (!d.is(1)) x.add_axis(group.add_axis(d), Dim(1));
    a.idx.push_back(std::move(x));
  }
  return a;
}

TensorLayout memory_layout(const Graph& g, const FuseOptions& options, int value) {
  if (!options.inputs.empty())
    for (size_t i = 0; i < g.inputs.size(); ++i)
      if (g.inputs[i].value.id == value) return options.inputs[i];
  return row_major(g.type(Value{value}));
}

namespace {

bool is_empty(const Type& t) {
  return std::any_of(t.shape.begin(), t.shape.end(), [](const Dim& d) { return d.is(0); });
}

void each_access(Group& g, const std::function<void(Access&)>& f) {
  for (auto& [v, list] : g.reads)
    for (Access& a : list) f(a);
  for (Sink& s : g.sinks) f(s.at);
}

class Partitioner {
 public:
  Partitioner(const Graph& g, const FuseOptions& o)
      : g_(g), o_(o), cheap_(worth_recomputing(g)), one_number_(one_number(g)) {
    p_.values.resize(g.value_count());
    hard_.resize(g.value_count());
    wanted_.assign(g.value_count(), false);
    users_.resize(g.value_count());
  }

  Partition run() {
    place_outputs();
    size_t loop = o_.loops.size();
    for (int i = static_cast<int>(g_.nodes.size()) - 1; i >= 0; --i) {
      if (loop == 0 || o_.loops[loop - 1].end != i + 1) {
        visit(i);
        continue;
      }
      visit_loop(static_cast<int>(--loop));
      i = o_.loops[loop].begin;
    }
    for (const GraphInput& in : g_.inputs) merge_users(in.value.id);
    compact();
    return std::move(p_);
  }

 private:
  // --- steps and paths between them ---

  int new_step(bool group) {
    p_.groups.push_back(group ? std::make_unique<Group>() : nullptr);
    p_.succ.emplace_back();
    parent_.push_back(static_cast<int>(parent_.size()));
    return static_cast<int>(parent_.size()) - 1;
  }
  int find(int s) {
    while (parent_[s] != s) s = parent_[s] = parent_[parent_[s]];
    return s;
  }
  Group& group(int s) { return *p_.groups[s]; }
  void add_edge(int from, int to) {
    from = find(from), to = find(to);
    if (from != to) p_.succ[from].insert(to);
  }
  bool reaches(int from, int to) {
    from = find(from), to = find(to);
    std::vector<int> stack = {from};
    std::set<int> seen = {from};
    while (!stack.empty()) {
      const int s = stack.back();
      stack.pop_back();
      for (int t : p_.succ[s]) {
        t = find(t);
        if (t == to) return true;
        if (seen.insert(t).second) stack.push_back(t);
      }
    }
    return false;
  }

  // --- reads ---

  void want(int v, int s, Access a) {
    s = find(s);
    std::vector<Access>& list = group(s).reads[v];
    const std::string text = a.str();
    for (const Access& x : list)
      if (x.str() == text) return;
    list.push_back(std::move(a));
    users_[v].insert(s);
  }
  /// Groups that read v, as they are now.
  std::vector<int> users(int v) {
    std::set<int> now;
    for (int s : users_[v]) now.insert(find(s));
    users_[v] = now;
    return {now.begin(), now.end()};
  }

  // --- outputs ---

  void place_outputs() {
    std::set<int> placed;
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      const GraphOutput& out = g_.outputs[i];
      const bool dense = out.alias_input < 0 || o_.inputs.empty() ||
                         o_.inputs[out.alias_input] == row_major(g_.type(out.value));
      const int from = g_.producer(out.value);
      // What an effect returns lies where its operands met, which is nobody else's memory.
      const bool made = from >= 0 && def(g_.nodes[from].op).kind != OpKind::effect;
      const bool direct = dense && made && placed.insert(out.value.id).second;
      const bool itself = out.alias_input >= 0 && g_.inputs[out.alias_input].value == out.value;
      if (!direct && !itself) p_.copies.push_back(static_cast<int>(i));
      if (!itself) wanted_[out.value.id] = true;
    }
  }

  // --- visiting ---

  void visit(int index) {
    const Node& n = g_.nodes[index];
    const int v = n.out.id;
    const bool effect = def(n.op).kind == OpKind::effect;  // done whether or not its result is read, or empty
    if (!effect && !wanted_[v] && hard_[v].empty() && users_[v].empty()) return;
    if (!effect && is_empty(g_.type(n.out))) {
      p_.values[v].place = Place::memory;
      return;
    }
    switch (compute_form(g_, n)) {
      case ComputeForm::view: return visit_view(n);
      case ComputeForm::point: return visit_elementwise(n);
      case ComputeForm::reduce: return visit_reduce(n);
      case ComputeForm::whole: return visit_opaque(index);
    }
  }

  bool must_store(int v) const { return wanted_[v] || !hard_[v].empty(); }

  void visit_view(const Node& n) {
    const int v = n.out.id;
    merge_users(v);
    bool store = must_store(v) || !o_.fuse;
    for (int s : users(v)) store = store || !views_through(n, s);
    if (store) return materialize(n);
    for (int s : users(v)) want_through(n, s);
  }

  /// Whether every access of group s to the view's result goes through it, cutting axes where that helps.
  bool views_through(const Node& n, int s) {
    for (int tries = 0; tries < 16; ++tries) {
      AxisSplit split;
      bool ok = true;
      for (const Access& a : group(s).reads[n.out.id])
        for (size_t i = 0; ok && i < n.in.size(); ++i)
          ok = through_view(g_, n, static_cast<int>(i), a, group(s).axes, &split).has_value();
      if (ok) return true;
      if (split.axis < 0) return false;
      split_axis(s, split);
    }
    return false;
  }
  void want_through(const Node& n, int s) {
    const std::vector<Access> list = group(s).reads[n.out.id];
    for (const Access& a : list)
      for (size_t i = 0; i < n.in.size(); ++i)
        want(n.in[i].id, s, *through_view(g_, n, static_cast<int>(i), a, group(s).axes, nullptr));
  }

  /// axis -> axis * inner + new axis, which has the same role.
  void split_axis(int s, const AxisSplit& split) {
    Group& q = group(s);
    const int axis = split.axis;
    q.axes[axis].extent = floordiv(q.axes[axis].extent, split.inner);
    const int extra = axis + 1;
    q.axes.insert(q.axes.begin() + extra, {AxisRole::col, split.inner});
    q.roles.insert(q.roles.begin() + extra, q.roles[axis]);
    const auto move = [&](Index& x) {
      std::optional<Dim> stride;
      for (IndexTerm& t : x.terms) {
        if (t.axis > axis) ++t.axis;
        if (t.axis == axis) {
          stride = t.stride;
          t.stride = t.stride * split.inner;
        }
      }
      if (stride) x.add_axis(extra, *stride);
    };
    each_access(q, [&](Access& a) { each_index(a, move); });
    const auto move_list = [&](std::vector<int>& list) {
      for (int& a : list) a += a > axis;
      const auto at = std::find(list.begin(), list.end(), axis);
      if (at != list.end()) list.insert(at + 1, extra);
    };
    for (Sink& k : q.sinks) move_list(k.reduced), move_list(k.kept);
    for (RowReduce& r : q.reduces) move_list(r.axes);
  }

  void visit_elementwise(const Node& n) {
    const int v = n.out.id;
    const bool cheap = cheap_[v];
    if (!n.in.empty()) merge_users(v);
    if (must_store(v) || (!o_.fuse && !n.in.empty())) return materialize(n);
    const std::vector<int> s = users(v);
    bool inside = cheap || (s.size() == 1 && group(s[0]).reads[v].size() == 1);
    for (int u : s) inside = inside && accepts(n, u);
    if (!inside) return materialize(n);
    for (int u : s) compute_in(n, u);
  }

  /// Whether only some elements of the domain read v there, as behind a cat: the others would compute it,
  /// too.
  static bool masked(const Access& a) {
    return std::any_of(a.bounds.begin(), a.bounds.end(), [](const loop::Bound& b) {
      return std::none_of(b.index.terms.begin(), b.index.terms.end(),
                          [](const IndexTerm& t) { return t.value >= 0; });
    });
  }
  /// Whether group s may compute v at its accesses: not flat, not many times over.
  bool accepts(const Node& n, int s) {
    if (group(s).fixed && !n.in.empty()) return false;
    for (const Access& a : group(s).reads[n.out.id]) {
      if (a.flat && n.op != op("constant")) return false;
      if (def(n.op).flops > 4 && (repeats(group(s), a) || masked(a))) return false;
    }
    return static_cast<int>(group(s).reads.size()) < o_.max_nodes;
  }
  void compute_in(const Node& n, int s) {
    const std::vector<Access> list = group(s).reads[n.out.id];
    for (const Access& a : list)
      for (const OperandRead& r : point_reads(g_, n, a)) want(n.in[r.operand].id, s, r.access);
  }

  // --- reductions ---

  enum class ReduceForm { rows, columns, all };
  ReduceForm form_of(const Node& n) const {
    const Shape& shape = g_.type(n.in[0]).shape;
    const std::vector<int64_t> dims = reduced_dims(g_, n);
    if (def(n.op).body.empty()) return ReduceForm::rows;
    size_t last = 0, kept = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d].is(1)) continue;
      last = d;
      kept += std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) == dims.end();
    }
    const bool inner = dims.back() == static_cast<int64_t>(last);
    if (is_empty(g_.type(n.in[0]))) return ReduceForm::rows;
    return !inner ? ReduceForm::columns : kept == 0 ? ReduceForm::all : ReduceForm::rows;
  }

  void visit_reduce(const Node& n) {
    const int v = n.out.id;
    merge_users(v);
    const ReduceForm form = form_of(n);
    if (form == ReduceForm::columns || form == ReduceForm::all) return visit_partial(n, form);
    const std::vector<int> s = users(v);
    const bool inside = !must_store(v) && o_.fuse && s.size() == 1 && group(s[0]).reads[v].size() == 1;
    if (inside && reduce_in(n, s[0], group(s[0]).reads[v][0])) return;
    materialize(n);
  }

  /// Makes group s compute row reduction n at access a: its free axes become the columns reduced over.
  bool reduce_in(const Node& n, int s, const Access& a) {
    Group& q = group(s);
    if (a.flat || !a.bounds.empty() || q.fixed || static_cast<int>(q.reads.size()) >= o_.max_nodes)
      return false;
    const std::vector<int64_t> dims = reduced_dims(g_, n);
    const Shape& shape = g_.type(n.in[0]).shape;
    std::vector<bool> used(q.axes.size(), false);
    for (const Index& x : a.idx)
      for (const IndexTerm& t : x.terms) {
        if (t.axis < 0) return false;
        used[t.axis] = true;
      }
    std::vector<int> free;
    for (size_t i = 0; i < q.axes.size(); ++i) {
      if (!used[i]) free.push_back(static_cast<int>(i));
      if (used[i] ? q.roles[i] == AxisRole::col : (q.roles[i] && q.roles[i] != AxisRole::col)) return false;
    }
    if (free.empty()) {
      for (int64_t d : dims) free.push_back(q.add_axis(shape[d], AxisRole::col));
    } else {
      if (!match_extents(s, free, shape, dims)) return false;
    }
    for (int f : free) q.roles[f] = AxisRole::col;
    q.reduces.push_back({n.out.id, free});
    want(n.in[0].id, s, reduce_operand(n, a, free));
    return true;
  }
  /// Free axes against the reduced dims, one to one. Sums that keep nothing are not to be made of one row.
  bool match_extents(int s, const std::vector<int>& free, const Shape& shape,
                     const std::vector<int64_t>& dims) {
    if (free.size() != dims.size()) return false;
    for (size_t i = 0; i < free.size(); ++i)
      if (group(s).axes[free[i]].extent != shape[dims[i]]) return false;
    return true;
  }
  Access reduce_operand(const Node& n, const Access& a, const std::vector<int>& free) const {
    const Shape& shape = g_.type(n.in[0]).shape;
    const auto& all = std::get<std::vector<int64_t>>(n.attrs[0]);
    const std::vector<int64_t> dims = reduced_dims(g_, n);
    Access in;
    size_t kept = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      Index x;
      const auto at = std::find(dims.begin(), dims.end(), static_cast<int64_t>(d));
      if (at != dims.end()) x.add_axis(free[at - dims.begin()], Dim(1));
      else if (std::find(all.begin(), all.end(), static_cast<int64_t>(d)) == all.end()) x = a.idx[kept++];
      in.idx.push_back(std::move(x));
    }
    return in;
  }

  bool folds_once(int s, const Access& a) { return a.bounds.empty() && !a.flat && !repeats(group(s), a); }

  /// A reduction that crosses tasks: partials per task here, combined where the value is read.
  void visit_partial(const Node& n, ReduceForm form) {
    const int v = n.out.id;
    const int s = new_step(true);
    Group& q = group(s);
    const Shape& shape = g_.type(n.in[0]).shape;
    const std::vector<int64_t> dims = reduced_dims(g_, n);
    Sink sink{v, true, identity_access(q, shape), {}, {}};
    int axis = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d].is(1)) continue;
      const bool reduced = std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) != dims.end();
      (reduced ? sink.reduced : sink.kept).push_back(axis);
      if (form == ReduceForm::columns)
        q.roles[axis] = reduced                                 ? AxisRole::row
                        : static_cast<int64_t>(d) > dims.back() ? AxisRole::col
                                                                : AxisRole::batch;
      ++axis;
    }
    const Access at = sink.at;
    q.sinks.push_back(std::move(sink));
    q.fixed = !o_.fuse;
    p_.values[v].partial_group = s;
    const std::vector<int> readers = users(v);
    bool inside = !must_store(v) && o_.fuse && readers.size() == 1 && group(readers[0]).reads[v].size() == 1;
    for (int u : readers) inside = inside && accepts(n, u) && folds_once(u, group(u).reads[v][0]);
    if (inside) add_edge(s, readers[0]);
    else materialize(n);
    want(n.in[0].id, s, at);
  }

  // --- storing ---

  /// Gives v a buffer: written by a group that computes it anyway, or by one of its own.
  void materialize(const Node& n) {
    const int v = n.out.id;
    int owner = -1;
    for (bool whole : {true, false})
      for (int s : users(v))
        if (owner < 0 && can_own(n, s, whole)) owner = s;
    if (owner < 0) {
      owner = new_step(true);
      const Access at = identity_access(group(owner), g_.type(n.out).shape);
      want(v, owner, at);
      const bool ok = compute_owned(n, owner);
      group(owner).fixed = !o_.fuse;
      KILN_ASSERT(ok, "{} does not fit its own group", def(n.op).name);
    }
    p_.values[v].place = Place::group;
    p_.values[v].owner = owner;
    group(owner).sinks.push_back({v, false, group(owner).reads[v][0], {}, {}});
    for (int s : users(v)) add_edge(owner, s);
    for (int s : hard_[v]) add_edge(owner, s);
  }

  bool can_own(const Node& n, int s, bool whole) {
    const int v = n.out.id;
    Group& q = group(s);
    if (!o_.fuse || q.fixed || q.reads[v].size() != 1 || static_cast<int>(q.reads.size()) >= o_.max_nodes)
      return false;
    const Access a = q.reads[v][0];
    std::vector<int> order;
    if (!covers_shape(a, g_.type(n.out).shape, q, order) || !rest_are_columns(q, order)) return false;
    if (whole != (order.size() == q.axes.size()) || (order.empty() && !whole)) return false;
    for (int u : users(v))
      if (u != s && reaches(u, s)) return false;
    for (int u : hard_[v])
      if (reaches(u, s)) return false;
    if (p_.values[v].partial_group >= 0 && reaches(s, p_.values[v].partial_group)) return false;
    if (!compute_owned(n, s)) return false;
    order.clear();  // a view may have cut axes
    covers_shape(q.reads[v][0], g_.type(n.out).shape, q, order);
    for (size_t i = 0; i < q.axes.size(); ++i)
      if (std::find(order.begin(), order.end(), static_cast<int>(i)) == order.end())
        q.roles[i] = AxisRole::col;
    return true;
  }
  /// Wants the operands of n in group s, where n.out is wanted at one access.
  bool compute_owned(const Node& n, int s) {
    const int v = n.out.id;
    switch (compute_form(g_, n)) {
      case ComputeForm::view:
        if (!views_through(n, s)) return false;
        want_through(n, s);
        return true;
      case ComputeForm::reduce:
        if (p_.values[v].partial_group >= 0) {
          add_edge(p_.values[v].partial_group, s);
          return true;
        }
        return reduce_in(n, s, group(s).reads[v][0]);
      default: compute_in(n, s); return true;
    }
  }

  // --- nodes that stay whole ---

  /// Step s leaves v in memory.
  void leave(int v, int s) {
    p_.values[v].place = Place::memory;
    p_.values[v].owner = s;
    for (int u : users(v)) add_edge(s, u);
    for (int u : hard_[v]) add_edge(s, u);
  }

  void visit_loop(int index) {
    const TileLoop& loop = o_.loops[index];
    for (Value v : loop.results) merge_users(v.id);
    const int s = new_step(false);
    for (Value v : loop.results) leave(v.id, s);
    Opaque x{loop.end - 1, s, index, {}};
    for (Value in : loop.reads) {
      x.operands.push_back(strided(in));
      hard_[x.operands.back().base.id].push_back(s);
    }
    p_.opaque.push_back(std::move(x));
  }

  void visit_opaque(int index) {
    const Node& n = g_.nodes[index];
    const int v = n.out.id;
    merge_users(v);
    const int s = new_step(false);
    leave(v, s);
    if (def(n.op).kind == OpKind::effect) {  // the world sees them in program order
      if (next_effect_ >= 0) add_edge(s, next_effect_);
      next_effect_ = s;
    }
    Opaque x{index, s, -1, {}};
    for (Value in : n.in) {
      Operand operand{in, memory_layout(g_, o_, in.id)};
      if (def(n.op).kind == OpKind::contract || n.op == op("cat")) operand = strided(in);
      if (is_constant_base(n, x.operands.size())) operand.base = {};
      if (operand.base.valid()) hard_[operand.base.id].push_back(s);
      x.operands.push_back(std::move(operand));
    }
    p_.opaque.push_back(std::move(x));
  }

  /// A scatter into a constant needs no buffer for it.
  bool is_constant_base(const Node& n, size_t operand) const {
    if (def(n.op).kind != OpKind::scatter || operand != 0) return false;
    const int p = g_.producer(n.in[0]);
    return p >= 0 && g_.nodes[p].op == op("constant");
  }

  bool in_loop(int node) const {
    return std::any_of(o_.loops.begin(), o_.loops.end(),
                       [&](const TileLoop& l) { return node >= l.begin && node < l.end; });
  }

  /// Reads v through the views above it for as long as strides can say it.
  Operand strided(Value v) {
    Group dims;
    Access at = identity_access(dims, g_.type(v).shape);
    Value base = v;
    while (g_.producer(base) >= 0) {
      const Node& n = g_.nodes[g_.producer(base)];
      if (def(n.op).kind != OpKind::view || n.in.size() != 1 || is_empty(g_.type(base))) break;
      if (in_loop(g_.producer(base))) break;  // what is not a loop's result is not there
      auto up = through_view(g_, n, 0, at, dims.axes, nullptr);
      if (!up || !up->bounds.empty() || up->flat) break;
      at = std::move(*up);
      base = n.in[0];
    }
    const TensorLayout memory = memory_layout(g_, o_, base.id);
    const Index x = linear_index(at, memory.strides, memory.offset);
    Operand out{base, {std::vector<Dim>(g_.type(v).shape.size(), Dim(0)), x.offset}};
    int axis = 0;
    for (size_t d = 0; d < g_.type(v).shape.size(); ++d) {
      if (g_.type(v).shape[d].is(1)) continue;
      for (const IndexTerm& t : x.terms)
        if (t.axis == axis) out.layout.strides[d] = t.stride;
      ++axis;
    }
    return out;
  }

  // --- merging groups ---

  /// Merges the groups that read v over the same domain. Not for one number: nothing is loaded twice, and
  /// the updates of parameters of one shape would wait for each other and keep all their gradients alive.
  void merge_users(int v) {
    if (!o_.fuse || one_number_[v]) return;
    std::vector<int> s = users(v);
    if (s.size() < 2 || s.size() > 64) return;
    for (size_t i = 0; i < s.size(); ++i)
      for (size_t j = i + 1; j < s.size();) {
        if (merge(s[i], s[j], v)) s.erase(s.begin() + static_cast<ptrdiff_t>(j));
        else ++j;
      }
    users(v);
  }

  bool merge(int s, int t, int v) {
    Group &a = group(s), &b = group(t);
    if (a.fixed || b.fixed || a.reads.at(v).size() != 1 || b.reads.at(v).size() != 1) return false;
    if (static_cast<int>(a.reads.size() + b.reads.size()) > o_.max_nodes) return false;
    std::vector<int> to;
    if (!match_axes(g_, a, b, v, to)) return false;
    Group both = merged(a, b, to);
    if (!consistent(both) || reaches(s, t) || reaches(t, s)) return false;
    a = std::move(both);
    for (const auto& [w, list] : b.reads) users_[w].insert(s);
    parent_[t] = s;
    p_.succ[s].insert(p_.succ[t].begin(), p_.succ[t].end());
    p_.groups[t].reset();
    return true;
  }

  /// Final step ids: owners and edges name live steps only.
  void compact() {
    for (ValueInfo& v : p_.values) {
      if (v.owner >= 0) v.owner = find(v.owner);
      if (v.partial_group >= 0) v.partial_group = find(v.partial_group);
    }
    for (size_t s = 0; s < p_.succ.size(); ++s) {
      std::set<int> now;
      if (find(static_cast<int>(s)) == static_cast<int>(s))
        for (int t : p_.succ[s]) now.insert(find(t));
      now.erase(static_cast<int>(s));
      p_.succ[s] = std::move(now);
    }
  }

  const Graph& g_;
  const FuseOptions& o_;
  std::vector<bool> cheap_, one_number_;
  Partition p_;
  std::vector<std::vector<int>> hard_;  // per value: opaque steps that read it from memory
  std::vector<bool> wanted_;            // per value: is an output
  std::vector<std::set<int>> users_;    // per value: groups that read it
  std::vector<int> parent_;
  int next_effect_ = -1;  // the step of the effect visited before, which comes after
};

}  // namespace

Partition partition_groups(const Graph& g, const FuseOptions& options) {
  return Partitioner(g, options).run();
}

}  // namespace kiln::detail
