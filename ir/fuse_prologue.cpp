// SPDX-License-Identifier: Apache-2.0
// Which values are not stored because each reader rather computes them again, a matmul while it packs the
// operand. Looks at groups and steps when the partition is done; decides by sizes alone, never by threads.
#include <algorithm>
#include <cmath>

#include "ir/fuse_groups.h"

namespace kiln::detail {

using loop::AxisRole;
using loop::Index;

namespace {

const std::vector<int64_t>& dims_attr(const Node& n, size_t i) {
  return std::get<std::vector<int64_t>>(n.attrs[i]);
}

double count(const Shape& s) {
  constexpr double kUnknown = 256;
  double n = 1;
  for (const Dim& d : s) n *= d.is_const() ? static_cast<double>(d.value()) : kUnknown;
  return n;
}
double bytes(const Type& t) { return count(t.shape) * static_cast<double>(dtype_size(t.dtype)); }

/// What computing a value at an access takes.
struct Slice {
  double elements = 1;                       ///< of the value
  double work = 0;                           ///< operations per element
  std::map<int, std::vector<Access>> reads;  ///< everything computed or loaded, at its accesses
  std::set<int> leaves;                      ///< what is loaded
  std::set<int> stats;                       ///< leaves that nobody stores yet: rows of reductions
  std::vector<Index> indices;                ///< all places, of loads and of counters
};

class PrologueFinder {
 public:
  PrologueFinder(const Graph& g, const FuseOptions& o, Partition& p) : g_(g), o_(o), p_(p) {
    for (const GraphOutput& out : g.outputs) outputs_.insert(out.value.id);
    std::vector<std::unique_ptr<Group>> trial;
    for (const auto& q : p.groups) {
      trial.push_back(q ? std::make_unique<Group>(*q) : nullptr);
      if (!trial.back()) continue;
      settle_roles(*trial.back());
      order_axes(*trial.back());
    }
    for (const auto& [group, x] : find_epilogues(g, p, trial)) epilogue_of_[group] = x->step;
  }

  void run() {
    for (const Node& n : g_.nodes)
      if (p_.values[n.out.id].place == Place::group) consider(n);
  }

 private:
  /// One reader of a value and what the value costs it.
  struct Reader {
    int step = -1;
    Opaque* contraction = nullptr;  ///< of operand `operand`, or null: a group
    int operand = 0;
    double times = 1;  ///< how often an element is computed
    Slice slice;
  };

  // --- what a reader would compute ---

  bool in_memory(int v) const { return g_.producer(Value{v}) < 0 || p_.values[v].place != Place::none; }

  /// Adds value v at `a` over `axes` to the slice of reader `u` (null: a matmul). The root is computed even
  /// though it is in memory as yet.
  bool add(Slice& s, int v, const Access& a, const std::vector<loop::Axis>& axes, const Group* u, bool root) {
    if (root) s.elements = count(g_.type(Value{v}).shape);
    std::vector<Access>& list = s.reads[v];
    const auto same = [&](const Access& x) { return x.str() == a.str(); };
    if (std::any_of(list.begin(), list.end(), same)) return true;
    list.push_back(a);
    if (u && !root) {
      const auto known = u->reads.find(v);
      if (known != u->reads.end() && std::any_of(known->second.begin(), known->second.end(), same))
        return true;
    }
    if (!root && in_memory(v)) return leaf(s, v, a);
    const Node& n = g_.nodes[g_.producer(Value{v})];
    if (p_.values[v].partial_group >= 0) return false;
    if (def(n.op).body.find("{flat}") != std::string_view::npos)
      s.indices.push_back(linear_index(a, contiguous_dims(g_.type(n.out).shape), Dim(0)));
    if (n.op == op("iota")) s.indices.push_back(a.idx[static_cast<size_t>(std::get<int64_t>(n.attrs[0]))]);
    switch (compute_form(g_, n)) {
      case ComputeForm::view: return add_view(s, n, a, axes, u);
      case ComputeForm::reduce: s.stats.insert(v); return !root && leaf(s, v, a);
      case ComputeForm::whole: return false;
      case ComputeForm::point: break;
    }
    const OpKind kind = def(n.op).kind;
    if (kind != OpKind::elementwise && kind != OpKind::reduce) return false;
    s.work += def(n.op).flops * std::min(1.0, count(g_.type(n.out).shape) / s.elements);
    const std::vector<OperandRead> reads = point_reads(g_, n, a);
    return std::all_of(reads.begin(), reads.end(), [&](const OperandRead& r) {
      return add(s, n.in[r.operand].id, r.access, axes, u, false);
    });
  }
  bool add_view(Slice& s, const Node& n, const Access& a, const std::vector<loop::Axis>& axes,
                const Group* u) {
    for (size_t i = 0; i < n.in.size(); ++i) {
      const auto in = through_view(g_, n, static_cast<int>(i), a, axes, nullptr);
      if (!in || in->flat) return false;
      if (in->bounds.size() > a.bounds.size()) s.work += 4;
      for (size_t b = a.bounds.size(); b < in->bounds.size(); ++b) s.indices.push_back(in->bounds[b].index);
      if (!add(s, n.in[i].id, *in, axes, u, false)) return false;
    }
    return true;
  }
  bool leaf(Slice& s, int v, const Access& a) {
    const TensorLayout l = memory_layout(g_, o_, v);
    s.leaves.insert(v);
    s.indices.push_back(linear_index(a, l.strides, l.offset));
    return true;
  }

  // --- readers ---

  /// Less than this is still in a cache when kernels read it.
  static constexpr double kFar = 1 << 20;

  /// Slices of all readers of v; false when one of them needs it in memory, or it is near.
  bool find_readers(int v, std::vector<Reader>& readers) {
    for (Opaque& x : p_.opaque)
      for (size_t i = 0; i < x.operands.size(); ++i) {
        if (x.operands[i].base != Value{v}) continue;
        const Node& n = g_.nodes[x.node];
        if (!contracts(g_, x) || !is_floating(g_.type(n.out).dtype)) return false;
        Reader r{x.step, &x, static_cast<int>(i), packings(n, i, x.operands[1 - i].layout), {}};
        if (!packs(n, i, v, r.slice)) return false;
        readers.push_back(std::move(r));
      }
    if (readers.empty() && bytes(g_.type(Value{v})) < kFar) return false;
    for (size_t s = 0; s < p_.groups.size(); ++s) {
      const Group* u = p_.groups[s].get();
      if (!u || static_cast<int>(s) == p_.values[v].owner || !u->reads.count(v)) continue;
      Reader r{static_cast<int>(s), nullptr, 0, 1, {}};
      for (const Access& a : u->reads.at(v))
        if (u->fixed || a.flat || repeats(*u, a) || !add(r.slice, v, a, u->axes, u, true)) return false;
      Shape domain;
      for (const loop::Axis& a : u->axes) domain.push_back(a.extent);
      r.times = count(domain) / count(g_.type(Value{v}).shape);
      readers.push_back(std::move(r));
    }
    return !readers.empty();
  }

  /// The slice of operand i: every place must walk its rows as one axis and its columns as one, since the
  /// matmul has one index for each.
  bool packs(const Node& n, size_t i, int v, Slice& s) {
    if (numel(g_.type(n.in[i]).shape).is(0)) return false;
    Group q;
    const Access at = operand_domain(g_, n, i, q);
    // Down the views to v, whose place in memory is not looked at.
    Access here = at;
    Value down = n.in[i];
    for (; down != Value{v}; down = g_.nodes[g_.producer(down)].in[0]) {
      if (in_memory(down.id)) return false;  // an output: the operand is there without v
      const auto in = through_view(g_, g_.nodes[g_.producer(down)], 0, here, q.axes, nullptr);
      if (!in || in->flat || !in->bounds.empty()) return false;
      here = *in;
    }
    if (!add(s, v, here, q.axes, nullptr, true)) return false;
    const auto stride = [](const Index& x, size_t axis) {
      for (const loop::IndexTerm& t : x.terms)
        if (t.axis == static_cast<int>(axis)) return t.stride;
      return Dim(0);
    };
    for (size_t a = 0; a + 1 < q.axes.size(); ++a) {
      if (q.axes[a].role == AxisRole::batch || q.axes[a].role != q.axes[a + 1].role) continue;
      for (const Index& x : s.indices)
        if (stride(x, a) != stride(x, a + 1) * q.axes[a + 1].extent) return false;
    }
    return true;
  }

  /// How often the matmul packs each element of operand i: a once per tile of columns, b again for every tile
  /// of rows, and for each run of rows that lies apart, when its k does not fit in one piece.
  double packings(const Node& n, size_t i, const TensorLayout& other) const {
    constexpr double kColumns = 384, kRows = 256, kRange = 2048;
    const auto size = [&](size_t operand, bool contracted) {
      double s = 1;
      const Shape& shape = g_.type(n.in[operand]).shape;
      for (size_t d = 0; d < shape.size(); ++d) {
        const auto in = [&](const std::vector<int64_t>& list) {
          return std::count(list.begin(), list.end(), static_cast<int64_t>(d)) > 0;
        };
        const bool inner = in(dims_attr(n, 2 + operand));
        if (contracted ? inner : !inner && !in(dims_attr(n, operand))) s *= count({shape[d]});
      }
      return s;
    };
    if (i == 0) return std::ceil(size(1, false) / kColumns);
    if (size(0, true) <= kRange) return 1;
    const Runs rows = merge_runs(g_.type(n.in[0]).shape, other.strides, free_dims(g_, n, 0));
    if (rows.sizes.empty()) return 1;
    return count({rows.sizes.begin(), rows.sizes.end() - 1}) * std::ceil(count({rows.sizes.back()}) / kRows);
  }

  // --- the decision ---

  void consider(const Node& n) {
    const int v = n.out.id;
    const ComputeForm form = compute_form(g_, n);
    if (outputs_.count(v) || p_.values[v].partial_group >= 0 ||
        (form != ComputeForm::point && form != ComputeForm::view))
      return;
    std::vector<Reader> readers;
    if (!find_readers(v, readers) || !stats_can_be_stored(v, readers)) return;
    if (gain(v, readers) > 0) convert(v, readers);
  }

  /// Row reductions that the owner of v makes for itself can be stored for others.
  bool stats_can_be_stored(int v, const std::vector<Reader>& readers) const {
    const int owner = p_.values[v].owner;
    const Group& q = *p_.groups[owner];
    for (const Reader& r : readers)
      for (int w : r.slice.stats) {
        const auto at = q.reads.find(w);
        std::vector<int> order;
        if (!q.find_reduce(w) || at == q.reads.end() || at->second.size() != 1 ||
            !covers_shape(at->second[0], g_.type(Value{w}).shape, q, order))
          return false;
        for (size_t s = 0; s < p_.groups.size(); ++s)
          if (static_cast<int>(s) != owner && p_.groups[s] && p_.groups[s]->reads.count(w)) return false;
      }
    return true;
  }

  /// Time saved by not storing v, in operations of all readers: traffic against work done again.
  double gain(int v, const std::vector<Reader>& readers) const {
    constexpr double kByte = 3;  // operations in the time of a byte to or from memory
    constexpr double kPack = 2;  // per element, of packing what would be read in place
    const Type& t = g_.type(Value{v});
    const int owner = p_.values[v].owner;
    double traffic = 2 * bytes(t);  // a line is read before it is written
    double work = 0;
    std::set<int> loaded, stats;
    for (const Reader& r : readers) {
      double leaves = 0;
      for (int w : r.slice.leaves) leaves += bytes(g_.type(Value{w}));
      traffic += r.times * (bytes(t) - leaves);
      work += r.times * count(t.shape) * (r.slice.work + (r.contraction && r.operand == 0 ? kPack : 0));
      loaded.insert(r.slice.leaves.begin(), r.slice.leaves.end());
      stats.insert(r.slice.stats.begin(), r.slice.stats.end());
    }
    const bool owner_goes = p_.groups[owner]->sinks.size() == 1 && stats.empty();
    for (int w : loaded) {
      if (only_in_registers(w, owner)) traffic -= 2 * bytes(g_.type(Value{w}));
      else if (owner_goes && !in_registers(w, owner)) traffic += bytes(g_.type(Value{w}));
    }
    return kByte * traffic - work + count(t.shape) * work_saved(v);
  }
  /// Whether w is the result of a matmul that group `owner` takes from its registers.
  bool in_registers(int w, int owner) const {
    const auto at = epilogue_of_.find(owner);
    return at != epilogue_of_.end() && p_.values[w].owner == at->second;
  }
  bool only_in_registers(int w, int owner) const {
    return in_registers(w, owner) && p_.succ[p_.values[w].owner] == std::set<int>{owner} &&
           !outputs_.count(w);
  }
  /// Operations per element of v that its owner makes for nothing else.
  double work_saved(int v) const {
    const Group& q = *p_.groups[p_.values[v].owner];
    std::set<int> kept;
    for (const Sink& k : q.sinks)
      if (k.value != v)
        mark(k.partial ? g_.nodes[g_.producer(Value{k.value})].in[0].id : k.value, kept, true);
    std::set<int> all;
    mark(v, all, true);
    double work = 0;
    for (int w : all) {
      const Node& n = g_.nodes[g_.producer(Value{w})];
      if (!kept.count(w) && def(n.op).kind == OpKind::elementwise)
        work += def(n.op).flops * count(g_.type(n.out).shape) / count(g_.type(Value{v}).shape);
    }
    return work;
  }
  void mark(int v, std::set<int>& seen, bool root) const {
    if ((!root && in_memory(v)) || g_.producer(Value{v}) < 0 || !seen.insert(v).second) return;
    for (Value in : g_.nodes[g_.producer(Value{v})].in) mark(in.id, seen, false);
  }

  // --- the change ---

  void convert(int v, std::vector<Reader>& readers) {
    const int owner = p_.values[v].owner;
    Group& q = *p_.groups[owner];
    std::erase_if(q.sinks, [&](const Sink& k) { return k.value == v && !k.partial; });
    p_.values[v].place = Place::none;
    p_.values[v].owner = -1;
    for (Reader& r : readers) {
      for (int w : r.slice.stats) {
        if (p_.values[w].place == Place::group) continue;
        p_.values[w].place = Place::group;
        p_.values[w].owner = owner;
        q.sinks.push_back({w, false, q.reads.at(w)[0], {}, {}});
      }
      for (int w : r.slice.leaves)
        if (p_.values[w].owner >= 0 && p_.values[w].owner != r.step)
          p_.succ[p_.values[w].owner].insert(r.step);
      if (r.contraction) {
        r.contraction->operands[r.operand].base = {};
        continue;
      }
      for (auto& [w, list] : r.slice.reads)
        for (Access& a : list) want(*p_.groups[r.step], w, std::move(a));
    }
    if (q.sinks.empty()) remove(owner);
  }
  static void want(Group& u, int v, Access a) {
    std::vector<Access>& list = u.reads[v];
    if (std::none_of(list.begin(), list.end(), [&](const Access& x) { return x.str() == a.str(); }))
      list.push_back(std::move(a));
  }
  /// A group that stores nothing any more: what came before it comes before all that followed.
  void remove(int step) {
    for (std::set<int>& list : p_.succ)
      if (list.erase(step)) list.insert(p_.succ[step].begin(), p_.succ[step].end());
    p_.succ[step].clear();
    p_.groups[step].reset();
  }

  const Graph& g_;
  const FuseOptions& o_;
  Partition& p_;
  std::set<int> outputs_;
  std::map<int, int> epilogue_of_;  // group -> step of the contraction
};

}  // namespace

Access operand_domain(const Graph& g, const Node& n, size_t operand, Group& q) {
  const Shape& shape = g.type(n.in[operand]).shape;
  const std::vector<int64_t>&batch = dims_attr(n, operand), &inner = dims_attr(n, 2 + operand);
  const std::vector<int64_t> free = free_dims(g, n, operand);
  Access a;
  a.idx.resize(shape.size());
  const auto walk = [&](const std::vector<int64_t>& dims, AxisRole role) {
    for (int64_t d : dims)
      if (!shape[d].is(1)) a.idx[d].add_axis(q.add_axis(shape[d], role), Dim(1));
  };
  walk(batch, AxisRole::batch);
  walk(operand == 0 ? free : inner, AxisRole::row);
  walk(operand == 0 ? inner : free, AxisRole::col);
  for (size_t i = 0; i < q.axes.size(); ++i) q.axes[i].role = *q.roles[i];
  return a;
}

void find_prologues(const Graph& g, const FuseOptions& options, Partition& p) {
  PrologueFinder(g, options, p).run();
}

}  // namespace kiln::detail
