// SPDX-License-Identifier: Apache-2.0
// Groups to loop IR: each sink pulls its value, and each value its operands, at the accesses that the views
// between them give. Values at equal accesses are computed once.
#include <algorithm>
#include <queue>

#include "ir/fuse_groups.h"

namespace kiln::detail {

using loop::AxisRole;
using loop::Index;
using loop::IndexTerm;
using loop::Instr;
using loop::InstrKind;

namespace {

/// Where partial `value` lies: strides per kept dim of the reduced operand, and between tasks of one batch
/// element.
struct PartialLayout {
  int id = -1;
  std::vector<Dim> strides;
  Dim step, count;
};

class Builder {
 public:
  Builder(const Graph& g, const Partition& p, const FuseOptions& o) : g_(g), p_(p), o_(o) {
    for (const auto& q : p.groups) {
      groups_.push_back(q ? std::make_unique<Group>(*q) : nullptr);
      if (!groups_.back()) continue;
      settle_roles(*groups_.back());
      order_axes(*groups_.back());
    }
    partials_.resize(p.values.size());
    count_reads();
    if (o.fuse) epilogue_of_ = find_epilogues(g, p, groups_);
    for (const auto& [group, x] : epilogue_of_) with_epilogue_.insert(x->step);
  }

  FusedGraph run() {
    for (auto& q : groups_)
      if (q) lay_partials(*q);
    for (int s : ordered_steps()) {
      if (groups_[s]) build_group(s);
      else if (!with_epilogue_.count(s)) build_opaque(s);
    }
    for (int slot : p_.copies) build_copy(slot);
    return std::move(out_);
  }

 private:
  /// A product that a sum takes unrounded (FMA) must have no other reader: exp(x - max(x)) would overflow
  /// where the maximum was rounded and x was not. Reads through views count as the product's.
  void count_reads() {
    reads_.assign(static_cast<size_t>(g_.value_count()), 0);
    for (const GraphOutput& o : g_.outputs) ++reads_[o.value.id];
    for (size_t i = g_.nodes.size(); i-- > 0;) {
      const Node& n = g_.nodes[i];
      const int more = def(n.op).kind == OpKind::view ? reads_[n.out.id] : 1;
      for (const Value& v : n.in) reads_[v.id] += more;
    }
  }

  // --- order ---

  int priority(int s) const {
    int last = -1;
    if (groups_[s]) {
      for (const Sink& k : groups_[s]->sinks) last = std::max(last, g_.producer(Value{k.value}));
    } else {
      for (const Opaque& x : p_.opaque)
        if (x.step == s) last = x.node;
    }
    return last;
  }
  std::vector<int> ordered_steps() const {
    const int n = static_cast<int>(groups_.size());
    std::vector<int> waits(n, 0), order;
    std::vector<bool> live(n, false);
    for (int s = 0; s < n; ++s) live[s] = groups_[s] != nullptr;
    for (const Opaque& x : p_.opaque) live[x.step] = true;
    for (int s = 0; s < n; ++s)
      for (int t : p_.succ[s]) ++waits[t];
    using Entry = std::pair<int, int>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
    for (int s = 0; s < n; ++s)
      if (live[s] && waits[s] == 0) ready.push({priority(s), s});
    while (!ready.empty()) {
      const int s = ready.top().second;
      ready.pop();
      order.push_back(s);
      for (int t : p_.succ[s])
        if (--waits[t] == 0) ready.push({priority(t), t});
    }
    KILN_ASSERT(order.size() == static_cast<size_t>(std::count(live.begin(), live.end(), true)),
                "fusion made a cycle: {} of {} steps", order.size(),
                std::count(live.begin(), live.end(), true));
    return order;
  }

  // --- partials ---

  void lay_partials(const Group& q) {
    loop::Kernel k;
    k.axes = q.axes;
    const Dim chunks = loop::row_chunks(k);
    for (const Sink& s : q.sinks) {
      if (!s.partial) continue;
      Dim columns(1);
      for (int a : s.kept)
        if (q.axes[a].role == AxisRole::col) columns = columns * q.axes[a].extent;
      PartialLayout l{static_cast<int>(out_.partials.size()), {}, columns, chunks};
      const auto stride_of = [&](int axis) {
        Dim stride(1);
        for (int a : s.kept)
          if (a > axis && q.axes[a].role == q.axes[axis].role) stride = stride * q.axes[a].extent;
        return q.axes[axis].role == AxisRole::col ? stride : stride * chunks * columns;
      };
      for (const Index& x : s.at.idx) {
        Dim stride(0);
        for (const IndexTerm& t : x.terms)
          if (t.stride.is(1) && std::find(s.kept.begin(), s.kept.end(), t.axis) != s.kept.end())
            stride = stride_of(t.axis);
        l.strides.push_back(stride);
      }
      out_.partials.push_back(
          {carried(g_.type(Value{s.value}).dtype), k.extent(AxisRole::batch) * chunks, columns});
      partials_[s.value] = std::move(l);
    }
  }
  /// One task makes the whole result, so that its partial is the value itself.
  bool whole_in_one(int v) const {
    return p_.values[v].partial_group >= 0 && partials_[v].count.is(1) &&
           carried(g_.type(Value{v}).dtype) == g_.type(Value{v}).dtype;
  }
  /// Any and all over bool are carried as i32, sums of halves as f32.
  static DType carried(DType t) { return t == DType::boolean ? DType::i32 : loop::computed(t); }

  // --- one kernel ---

  struct State {
    int step = -1;
    Group* group = nullptr;
    FusedKernel k;
    std::map<std::pair<int, std::string>, int> memo;
    std::set<int> nodes;
  };

  void build_group(int s) {
    Group& q = *groups_[s];
    std::vector<Sink> sinks = q.sinks;
    // A value that one task completes needs no store by the kernel that combines it.
    std::erase_if(sinks, [&](const Sink& k) { return !k.partial && whole_in_one(k.value); });
    if (sinks.empty()) return;
    std::sort(sinks.begin(), sinks.end(), [](const Sink& a, const Sink& b) {
      return a.value != b.value ? a.value < b.value : a.partial > b.partial;
    });
    State st;
    st.step = s;
    st.group = &q;
    st.k.kernel.axes = q.axes;
    // What takes an input's place is stored when all is loaded that the others are made of: that input, too.
    for (const Sink& k : sinks) {
      if (k.partial) emit_partial(st, k);
      else if (replaces_input(k.value)) pull(st, k.value, k.at);
      else emit_store(st, k);
    }
    for (const Sink& k : sinks)
      if (!k.partial && replaces_input(k.value)) emit_store(st, k);
    finish(st);
    const auto at = epilogue_of_.find(s);
    if (at == epilogue_of_.end()) return;
    out_.steps.back().keep = is_kept(*at->second, s);
    set_node(*at->second);
  }
  bool replaces_input(int v) const {
    return std::any_of(g_.outputs.begin(), g_.outputs.end(),
                       [&](const GraphOutput& o) { return o.value.id == v && o.alias_input >= 0; });
  }
  /// Whether somebody beside group s reads the contraction's result.
  bool is_kept(const Opaque& x, int s) const {
    const Value v = g_.nodes[x.node].out;
    for (const GraphOutput& o : g_.outputs)
      if (o.value == v) return true;
    return p_.succ[x.step].size() > 1 || p_.succ[x.step].count(s) == 0;
  }

  void finish(State& st) {
    loop::infer_axes(st.k.kernel);
    loop::verify(st.k.kernel);
    if (!epilogue_of_.count(st.step)) loop::canonicalize(st.k.kernel);
    st.k.nodes.assign(st.nodes.begin(), st.nodes.end());
    out_.steps.push_back({.kernel = static_cast<int>(out_.kernels.size())});
    out_.kernels.push_back(std::move(st.k));
  }

  int param(State& st, Binding b, DType t, bool written) {
    auto& list = st.k.params;
    const auto at = std::find(list.begin(), list.end(), b);
    const int i = static_cast<int>(at - list.begin());
    if (at == list.end()) {
      list.push_back(b);
      st.k.kernel.params.push_back({t, false, false});
    }
    (written ? st.k.kernel.params[i].written : st.k.kernel.params[i].read) = true;
    return i;
  }

  /// Halves are halves in memory alone; a cast to one rounds.
  int add(State& st, Instr i) {
    i.axes = 0;
    if (i.op != op("cast")) i.dtype = loop::computed(i.dtype);
    st.k.kernel.body.push_back(std::move(i));
    return static_cast<int>(st.k.kernel.body.size()) - 1;
  }
  int point(State& st, Op o, DType t, std::vector<int> args, bool rounded = false) {
    Instr i;
    i.kind = InstrKind::elementwise;
    i.rounded = rounded;
    i.op = o;
    i.dtype = t;
    i.args = std::move(args);
    return add(st, std::move(i));
  }
  int constant(State& st, double v, DType t) {
    Instr i;
    i.dtype = t;
    i.number = v;
    if (t == DType::bf16) i.number = static_cast<float>(BFloat16(static_cast<float>(v)));
    if (t == DType::f16) i.number = static_cast<float>(Half(static_cast<float>(v)));
    return add(st, std::move(i));
  }
  int index(State& st, Index x) {
    Instr i;
    i.kind = InstrKind::index;
    i.dtype = DType::i64;
    i.index = std::move(x);
    return add(st, std::move(i));
  }
  int inside(State& st, std::vector<loop::Bound> bounds) {
    Instr i;
    i.kind = InstrKind::inside;
    i.dtype = DType::boolean;
    i.bounds = std::move(bounds);
    return add(st, std::move(i));
  }
  int cast(State& st, int v, DType t) {
    const DType from = st.k.kernel.body[v].dtype;
    return loop::computed(from) == loop::computed(t) ? v : point(st, op("cast"), t, {v});
  }

  void emit_store(State& st, const Sink& k) {
    const Type& t = g_.type(Value{k.value});
    Instr i;
    i.kind = InstrKind::store;
    i.dtype = t.dtype;
    i.args = {pull(st, k.value, k.at)};
    i.param = param(st, {Binding::Kind::value, k.value}, t.dtype, true);
    i.index = linear_index(k.at, contiguous_dims(t.shape), Dim(0));
    add(st, std::move(i));
  }

  void emit_partial(State& st, const Sink& k) {
    const Node& n = g_.nodes[g_.producer(Value{k.value})];
    const DType t = carried(g_.type(n.out).dtype);
    Instr i;
    i.kind = InstrKind::partial;
    i.op = n.op;
    i.dtype = t;
    i.args = {cast(st, pull(st, n.in[0].id, k.at), t)};
    i.by_col = std::any_of(k.kept.begin(), k.kept.end(), [&](int a) {
      return st.group->axes[a].role == AxisRole::col && !st.group->axes[a].extent.is(1);
    });
    i.all_cols = std::any_of(k.reduced.begin(), k.reduced.end(),
                             [&](int a) { return st.group->axes[a].role == AxisRole::col; });
    const Binding b = whole_in_one(k.value) ? Binding{Binding::Kind::value, k.value}
                                            : Binding{Binding::Kind::partial, partials_[k.value].id};
    i.param = param(st, b, t, true);
    st.nodes.insert(g_.producer(Value{k.value}));
    add(st, std::move(i));
  }

  // --- pulling ---

  int pull(State& st, int v, const Access& a) {
    const auto key = std::make_pair(v, a.str());
    const auto at = st.memo.find(key);
    if (at != st.memo.end()) return at->second;
    const int result = compute(st, v, a);
    st.memo[key] = result;
    return result;
  }

  bool in_memory(const State& st, int v) const {
    const ValueInfo& info = p_.values[v];
    if (g_.producer(Value{v}) < 0 || info.place == Place::memory) return true;
    if (whole_in_one(v)) return true;
    return info.place == Place::group && info.owner != st.step;
  }

  int compute(State& st, int v, const Access& a) {
    if (in_memory(st, v)) return load(st, v, a);
    const int index = g_.producer(Value{v});
    const Node& n = g_.nodes[index];
    st.nodes.insert(index);
    if (p_.values[v].partial_group >= 0) return fold(st, n, a);
    switch (compute_form(g_, n)) {
      case ComputeForm::view: return view(st, n, a);
      case ComputeForm::reduce: return reduce(st, n, a);
      default: return point_node(st, n, a);
    }
  }

  int load(State& st, int v, const Access& a) {
    const TensorLayout l = memory_layout(g_, o_, v);
    const DType t = g_.type(Value{v}).dtype;
    Instr i;
    i.kind = InstrKind::load;
    i.dtype = t;
    i.param = param(st, {Binding::Kind::value, v}, t, false);
    i.index = linear_index(a, l.strides, l.offset);
    i.bounds = a.bounds;
    return add(st, std::move(i));
  }

  int fold(State& st, const Node& n, const Access& a) {
    const PartialLayout& l = partials_[n.out.id];
    const auto& dims = std::get<std::vector<int64_t>>(n.attrs[0]);
    Instr i;
    i.kind = InstrKind::fold;
    i.op = n.op;
    i.dtype = carried(g_.type(n.out).dtype);
    i.param = param(st, {Binding::Kind::partial, l.id}, i.dtype, false);
    size_t kept = 0;
    for (size_t d = 0; d < l.strides.size(); ++d)
      if (std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) == dims.end())
        i.index.add(a.idx[kept++], l.strides[d]);
    i.count = l.count;
    i.step = l.step;
    return cast(st, add(st, std::move(i)), g_.type(n.out).dtype);
  }

  int view(State& st, const Node& n, const Access& a) {
    const auto read = [&](size_t operand) {
      auto in = through_view(g_, n, static_cast<int>(operand), a, st.group->axes, nullptr);
      KILN_ASSERT(in, "{} cannot be read through", def(n.op).name);
      return *in;
    };
    const DType t = g_.type(n.out).dtype;
    if (n.op == op("cat")) {
      int result = -1;
      for (size_t i = n.in.size(); i-- > 0;) {
        if (numel(g_.type(n.in[i]).shape).is(0)) continue;
        const Access in = read(i);
        const int x = pull(st, n.in[i].id, in);
        result = result < 0 ? x : point(st, op("where"), t, {inside(st, {in.bounds.back()}), x, result});
      }
      return result;
    }
    const Access in = read(0);
    const int x = pull(st, n.in[0].id, in);
    if (in.bounds.size() == a.bounds.size()) return x;
    const double fill = n.op == op("pad") ? std::get<double>(n.attrs[3]) : 0;
    if (fill == 0 && st.k.kernel.body[x].kind == InstrKind::load) return x;
    const std::vector<loop::Bound> added(in.bounds.begin() + static_cast<ptrdiff_t>(a.bounds.size()),
                                         in.bounds.end());
    return point(st, op("where"), t, {inside(st, added), x, constant(st, fill, t)});
  }

  int point_node(State& st, const Node& n, const Access& a) {
    const Type& t = g_.type(n.out);
    if (n.op == op("constant")) return constant(st, std::get<double>(n.attrs[0]), t.dtype);
    if (n.op == op("iota")) return index(st, a.idx[static_cast<size_t>(std::get<int64_t>(n.attrs[0]))]);
    const OpKind kind = def(n.op).kind;
    if (kind == OpKind::gather) return gather(st, n, a);
    if (kind == OpKind::scatter) return one_hot(st, n, a);
    std::vector<int> args;
    for (const OperandRead& r : point_reads(g_, n, a)) args.push_back(pull(st, n.in[r.operand].id, r.access));
    if (kind == OpKind::reduce) return args[0];
    if (def(n.op).body.find("{flat}") != std::string_view::npos)
      args.push_back(index(st, linear_index(a, contiguous_dims(t.shape), Dim(0))));
    const bool rounded = n.op == op("mul") && reads_[n.out.id] > 1;
    round_both(st, n.op, args);
    return point(st, n.op, t.dtype, std::move(args), rounded);
  }

  /// a * b - c * d with one product rounded and the other not is not zero where they are equal.
  void round_both(State& st, Op o, const std::vector<int>& args) {
    if (o != op("add") && o != op("sub")) return;
    const auto product = [&](int v) {
      const Instr& i = st.k.kernel.body[v];
      return i.kind == InstrKind::elementwise && i.op == op("mul");
    };
    if (!product(args[0]) || !product(args[1])) return;
    for (int v : args) st.k.kernel.body[v].rounded = true;
  }

  /// An index counted from the end when negative.
  int wrapped(State& st, int value, const Dim& size) {
    const int i = cast(st, value, DType::i64);
    const int negative = point(st, op("lt"), DType::boolean, {i, constant(st, 0, DType::i64)});
    Index extent;
    extent.offset = size;
    const int moved = point(st, op("add"), DType::i64, {i, index(st, extent)});
    return point(st, op("where"), DType::i64, {negative, moved, i});
  }

  /// Out of range there is no element: NaN for floats, zero for integers.
  int gather(State& st, const Node& n, const Access& a) {
    const size_t dim = static_cast<size_t>(std::get<int64_t>(n.attrs[0]));
    const Dim& size = g_.type(n.in[0]).shape[dim];
    std::vector<OperandRead> reads = point_reads(g_, n, a);
    const int named = wrapped(st, pull(st, n.in[1].id, reads[0].access), size);
    Access table = reads[1].access;
    Index place;
    place.add_value(named, Dim(1));
    table.idx[dim] = place;
    table.bounds.back().index = place;
    const int x = pull(st, n.in[0].id, table);
    const DType t = g_.type(n.out).dtype;
    if (!is_floating(t)) return x;
    return point(st, op("where"), t, {inside(st, {table.bounds.back()}), x, constant(st, std::nan(""), t)});
  }

  int one_hot(State& st, const Node& n, const Access& a) {
    const size_t dim = static_cast<size_t>(std::get<int64_t>(n.attrs[0]));
    const std::vector<OperandRead> reads = point_reads(g_, n, a);
    const DType t = g_.type(n.out).dtype;
    const int named = wrapped(st, pull(st, n.in[1].id, reads[1].access), g_.type(n.in[0]).shape[dim]);
    const int hit = point(st, op("eq"), DType::boolean, {index(st, a.idx[dim]), named});
    const int src = pull(st, n.in[2].id, reads[2].access);
    const int base = pull(st, n.in[0].id, reads[0].access);
    const Instr& b = st.k.kernel.body[base];
    const bool zero = b.kind == InstrKind::constant && b.number == 0;
    return point(st, op("where"), t, {hit, zero ? src : point(st, op("add"), t, {base, src}), base});
  }

  // --- row reductions ---

  int emit_reduce(State& st, Op o, DType t, int x) {
    Instr i;
    i.kind = InstrKind::reduce;
    i.op = o;
    i.dtype = t;
    i.args = {x};
    return add(st, std::move(i));
  }

  int reduce(State& st, const Node& n, const Access& a) {
    const RowReduce* r = st.group->find_reduce(n.out.id);
    KILN_ASSERT(r, "{} is not a row reduction of its group", def(n.op).name);
    const Shape& shape = g_.type(n.in[0]).shape;
    const auto& all = std::get<std::vector<int64_t>>(n.attrs[0]);
    const std::vector<int64_t> dims = reduced_dims(g_, n);
    Access in;
    size_t kept = 0, part = 0;
    Index along;  // the place along the reduced dims, for argmax
    for (size_t d = 0; d < shape.size(); ++d) {
      Index x;
      if (std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) != dims.end()) {
        // Axes of this dim: one, or the pieces it was cut into, outermost first.
        Dim covered(1);
        std::vector<int> pieces;
        while (covered != shape[d]) {
          KILN_ASSERT(part < r->axes.size(), "{}: axes do not fit its dims", def(n.op).name);
          pieces.push_back(r->axes[part++]);
          covered = covered * st.group->axes[pieces.back()].extent;
        }
        Dim stride(1);
        for (size_t i = pieces.size(); i-- > 0;) {
          x.add_axis(pieces[i], stride);
          stride = stride * st.group->axes[pieces[i]].extent;
        }
        along = x;
      } else if (std::find(all.begin(), all.end(), static_cast<int64_t>(d)) == all.end()) {
        x = a.idx[kept++];
      }
      in.idx.push_back(std::move(x));
    }
    int x = pull(st, n.in[0].id, in);
    const DType t = g_.type(n.in[0]).dtype;
    if (def(n.op).body.empty()) return place(st, n, x, t, along);
    if (t != DType::boolean) return emit_reduce(st, n.op, t, x);
    const int wide = emit_reduce(st, n.op, DType::i32, cast(st, x, DType::i32));
    return cast(st, wide, DType::boolean);
  }

  /// First place of the extremum along the columns; a NaN beats all.
  int place(State& st, const Node& n, int x, DType t, const Index& along) {
    if (t == DType::boolean) {
      x = cast(st, x, DType::i32);
      t = DType::i32;
    }
    const int best = emit_reduce(st, n.op == op("argmax") ? op("amax") : op("amin"), t, x);
    int hit = point(st, op("eq"), DType::boolean, {x, best});
    if (is_floating(t))
      hit = point(st, op("logical_or"), DType::boolean, {hit, point(st, op("isnan"), DType::boolean, {x})});
    const int at = index(st, along);
    const int place = point(st, op("where"), DType::i64, {hit, at, constant(st, 0x1p62, DType::i64)});
    return emit_reduce(st, op("amin"), DType::i64, place);
  }

  // --- the rest ---

  void build_opaque(int s) {
    for (const Opaque& x : p_.opaque) {
      if (x.step != s) continue;
      out_.steps.emplace_back();
      set_node(x);
    }
  }
  /// The last step's node, with the kernels of operands that are not in memory.
  void set_node(const Opaque& x) {
    Step& step = out_.steps.back();
    (x.loop >= 0 ? step.loop : step.node) = x.loop >= 0 ? x.loop : x.node;
    step.operands = x.operands;
    if (!contracts(g_, x)) return;
    for (size_t i = 0; i < x.operands.size(); ++i)
      if (!x.operands[i].base.valid()) step.prologue[i] = build_prologue(x, i);
  }
  int build_prologue(const Opaque& x, size_t operand) {
    const Node& n = g_.nodes[x.node];
    Group q;
    const Access at = operand_domain(g_, n, operand, q);
    State st;
    st.step = x.step;
    st.group = &q;
    st.k.kernel.axes = q.axes;
    Instr i;
    i.kind = InstrKind::store;
    i.dtype = g_.type(n.in[operand]).dtype;
    i.args = {pull(st, n.in[operand].id, at)};
    i.param = param(st, {Binding::Kind::value, n.in[operand].id}, i.dtype, true);
    Dim stride(1);
    for (size_t a = q.axes.size(); a-- > 0; stride = stride * q.axes[a].extent)
      i.index.add_axis(static_cast<int>(a), stride);
    add(st, std::move(i));
    loop::infer_axes(st.k.kernel);
    loop::verify(st.k.kernel);
    loop::canonicalize(st.k.kernel, true);
    st.k.nodes.assign(st.nodes.begin(), st.nodes.end());
    out_.kernels.push_back(std::move(st.k));
    return static_cast<int>(out_.kernels.size()) - 1;
  }

  void build_copy(int slot) {
    const GraphOutput& out = g_.outputs[slot];
    const Type& t = g_.type(out.value);
    if (numel(t.shape).is(0)) return;
    Group q;
    const Access at = identity_access(q, t.shape);
    settle_roles(q);
    State st;
    st.group = &q;
    st.k.kernel.axes = q.axes;
    const int x = load(st, out.value.id, at);
    TensorLayout l = row_major(t);
    if (out.alias_input >= 0) l = memory_layout(g_, o_, g_.inputs[out.alias_input].value.id);
    Instr i;
    i.kind = InstrKind::store;
    i.dtype = t.dtype;
    i.args = {x};
    i.param = param(st, {Binding::Kind::output, slot}, t.dtype, true);
    i.index = linear_index(at, l.strides, l.offset);
    add(st, std::move(i));
    finish(st);
  }

  const Graph& g_;
  const Partition& p_;
  const FuseOptions& o_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<PartialLayout> partials_;       // by value
  std::vector<int> reads_;                    // by value
  std::map<int, const Opaque*> epilogue_of_;  // group -> the contraction it follows
  std::set<int> with_epilogue_;               // steps of those contractions
  FusedGraph out_;
};

}  // namespace

FusedGraph build_kernels(const Graph& g, const Partition& p, const FuseOptions& options) {
  return Builder(g, p, options).run();
}

}  // namespace kiln::detail

namespace kiln {

FusedGraph fuse(const Graph& g, const FuseOptions& options) {
  detail::Partition p = detail::partition_groups(g, options);
  if (options.fuse && options.prologues) detail::find_prologues(g, options, p);
  return detail::build_kernels(g, p, options);
}

}  // namespace kiln
