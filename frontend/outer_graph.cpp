// SPDX-License-Identifier: Apache-2.0
#include "frontend/outer_graph.h"

#include <algorithm>
#include <unordered_map>

#include "frontend/region_builder.h"
#include "ir/autodiff.h"
#include "ir/min_cut.h"

namespace kiln::detail {

namespace {

/// Appends to a graph what it does not have yet.
class JoiningBuilder : public RegionBuilder {
 public:
  JoiningBuilder(const Recorder& r, Graph& g) : RegionBuilder(r), graph_(g) {
    for (const Node& n : g.nodes) known_.try_emplace(node_key(n.op, n.in, n.attrs), n.out);
  }
  Value append(Op o, std::span<const Value> in, Attrs attrs) override {
    Value& v = known_[node_key(o, in, attrs)];
    if (!v.valid()) v = graph_.add_node(o, in, std::move(attrs), origin);
    return v;
  }
  Type type(Value v) const override { return graph_.type(v); }
  std::optional<Made> made(Value v) const override { return graph_.made(v); }
  Origin origin;

 private:
  Graph& graph_;
  std::unordered_map<std::string, Value> known_;
};

/// What of a joint graph the backward computes from gradients, and what it reads that no gradient enters.
struct Division {
  std::vector<Value> reads;  ///< without gradients in them, by nodes with
  std::set<int> saved;       ///< values of the path that derivative rules read: what an eager tape keeps
};

Division divide(const OuterGraph& outer, int path_values) {
  const Graph& g = outer.graph;
  std::vector<bool> later(static_cast<size_t>(g.value_count()), false), needed = later, read = later;
  for (Value v : outer.grad_inputs) later[static_cast<size_t>(v.id)] = true;
  for (const Node& n : g.nodes)
    for (Value v : n.in)
      if (later[static_cast<size_t>(v.id)]) later[static_cast<size_t>(n.out.id)] = true;
  Division d;
  const auto use = [&](Value v, bool by_later) {
    const auto i = static_cast<size_t>(v.id);
    needed[i] = true;
    if (v.id < path_values) d.saved.insert(v.id);
    if (by_later && !later[i]) read[i] = true;
  };
  for (const OuterStep& step : outer.steps) use(step.gradient, true);
  for (size_t i = g.nodes.size(); i-- > 0;) {
    const Node& n = g.nodes[i];
    if (n.out.id < path_values || !needed[static_cast<size_t>(n.out.id)]) continue;
    for (Value v : n.in) use(v, later[static_cast<size_t>(n.out.id)]);
  }
  for (int id = 0; id < g.value_count(); ++id)
    if (read[static_cast<size_t>(id)]) d.reads.push_back({id});
  return d;
}

/// Values of the path that an eager tape holds: those that rules read, and what they are views of. Memory of
/// an external stays after the call, but may be written. It is read only where an eager tape would read it
/// too, so that a write is an error where eager has one and nowhere else; other externals are kept as copies.
std::vector<bool> tape_reads(const Graph& path, const std::set<int>& saved) {
  std::vector<bool> reads(static_cast<size_t>(path.value_count()), false);
  for (int id : saved) reads[static_cast<size_t>(id)] = true;
  for (size_t i = path.nodes.size(); i-- > 0;) {
    const Node& n = path.nodes[i];
    if (reads[static_cast<size_t>(n.out.id)] && def(n.op).view) reads[static_cast<size_t>(n.in[0].id)] = true;
  }
  return reads;
}

/// Values that are in the memory of an external now, and will not be after this stage or are not any more.
std::set<int> written_over(const Recorder& r) {
  std::set<int> values;
  for (size_t i = 0; i < r.externals.size(); ++i) {
    const SlotInfo& info = r.slots[r.externals[i]];
    const bool pending = info.written && !r.in_memory.count(info.value.id);
    bool earlier = false;
    for (const auto& [id, index] : r.in_memory) {
      if (index != static_cast<int>(i)) continue;
      earlier = true;
      if (pending) values.insert(id);
    }
    if (pending || earlier) values.insert(r.external_inputs[i].id);
  }
  return values;
}

/// Copies what makes `v`, a value of `joint` without gradients in it, into the path.
Value graft(Recorder& r, const Graph& joint, Value v, std::unordered_map<int, Value>& done) {
  if (const auto known = done.find(v.id); known != done.end()) return known->second;
  const Node& n = joint.nodes[static_cast<size_t>(joint.producer(v))];
  std::vector<Value> in;
  for (Value operand : n.in) in.push_back(graft(r, joint, operand, done));
  return done[v.id] = r.graph.add_node(n.op, in, n.attrs, n.origin);
}

}  // namespace

Slot input_slot(const Recorder& r, Value v) {
  if (const auto leaf = r.leaf_values.find(v.id); leaf != r.leaf_values.end()) return leaf->second;
  const auto external = std::find(r.external_inputs.begin(), r.external_inputs.end(), v);
  return external == r.external_inputs.end() ? kAbsent : r.externals[external - r.external_inputs.begin()];
}

OuterGraph outer_backward(const Recorder& r, std::span<const Value> roots, const std::set<int>& hooked) {
  OuterGraph out;
  out.graph = r.graph;
  out.graph.outputs.clear();
  const std::vector<TapeEntry> tape = r.tape(r.graph.nodes);
  JoiningBuilder b(r, out.graph);
  BackwardRequest request;
  request.tape = tape;
  request.needs_grad = [&](Value v) { return r.wants_grad(v); };
  request.on_entry = [&](const TapeEntry& e) {
    b.origin = r.graph.nodes[static_cast<size_t>(&e - tape.data())].origin;
    b.go_to(e.out);
  };
  for (Value root : roots) {
    const Value g = out.graph.add_input(r.graph.type(root), InputKind::arg, "grad");
    out.grad_inputs.push_back(g);
    request.seeds.emplace_back(root, g);
  }
  request.on_grad = [&](Value v, Value g) {
    OuterStep step{g, input_slot(r, v), {}, {}, 0, false};
    if (step.input != kAbsent) {
      // A slot may have had several values; what it gets is the sum.
      const auto former = std::find_if(out.steps.begin(), out.steps.end(),
                                       [&](const OuterStep& s) { return s.input == step.input; });
      if (former != out.steps.end()) {
        step.gradient = b.emit(op("add"), {former->gradient, g});
        out.steps.erase(former);
      }
    } else if (hooked.count(v.id)) {
      step.hooked = v;
      step.ends_part = true;
      step.replaced = out.graph.add_input(r.graph.type(v), InputKind::arg, "grad");
    } else {
      b.arrived(g);
      return g;
    }
    step.nodes = out.graph.nodes.size();
    out.steps.push_back(step);
    b.arrived(step.replaced.valid() ? step.replaced : g);
    return step.replaced.valid() ? step.replaced : g;
  };
  differentiate(b, request);
  return out;
}

void end_parts_at_buckets(OuterGraph& outer, const std::map<Slot, int>& bucket_of) {
  std::map<int, size_t> last;
  for (size_t i = 0; i < outer.steps.size(); ++i)
    if (const auto bucket = bucket_of.find(outer.steps[i].input); bucket != bucket_of.end())
      last[bucket->second] = i;
  for (const auto& [bucket, step] : last)
    if (step + 1 < outer.steps.size()) outer.steps[step].ends_part = true;
}

std::vector<std::vector<Value>> results_of_parts(const OuterGraph& outer, size_t path_nodes) {
  const Graph& g = outer.graph;
  std::vector<int> part_of(static_cast<size_t>(g.value_count()), -1);  // -1: of the path, or given
  std::vector<size_t> ends;
  for (const OuterStep& s : outer.steps)
    if (s.ends_part) ends.push_back(s.nodes);
  int part = 0;
  for (size_t i = path_nodes; i < g.nodes.size(); ++i) {
    while (static_cast<size_t>(part) < ends.size() && i >= ends[static_cast<size_t>(part)]) ++part;
    part_of[static_cast<size_t>(g.nodes[i].out.id)] = part;
  }
  std::vector<std::set<int>> results(ends.size() + 1);
  std::vector<bool> needed(part_of.size(), false), given = needed;
  for (Value v : outer.grad_inputs) given[static_cast<size_t>(v.id)] = true;
  for (const OuterStep& s : outer.steps)
    if (s.hooked.valid()) given[static_cast<size_t>(s.replaced.id)] = true;
  part = 0;
  for (const OuterStep& s : outer.steps) {
    const auto v = static_cast<size_t>(s.gradient.id);
    needed[v] = true;
    if (!given[v]) results[static_cast<size_t>(part_of[v] < 0 ? part : part_of[v])].insert(s.gradient.id);
    if (s.ends_part) ++part;
  }
  for (size_t i = g.nodes.size(); i-- > path_nodes;) {
    const Node& n = g.nodes[i];
    if (!needed[static_cast<size_t>(n.out.id)]) continue;
    for (Value v : n.in) {
      const int made = part_of[static_cast<size_t>(v.id)];
      needed[static_cast<size_t>(v.id)] = true;
      if (made >= 0 && made < part_of[static_cast<size_t>(n.out.id)])
        results[static_cast<size_t>(made)].insert(v.id);
    }
  }
  std::vector<std::vector<Value>> out(results.size());
  for (size_t i = 0; i < results.size(); ++i)
    for (int id : results[i]) out[i].push_back({id});
  return out;
}

std::vector<Value> keep_for_backward(Recorder& r, std::span<const Value> roots, const std::set<int>& live) {
  const OuterGraph outer = outer_backward(r, roots);
  const Graph& g = outer.graph;
  const Division d = divide(outer, r.graph.value_count());
  const std::vector<bool> in_tape = tape_reads(r.graph, d.saved);
  const auto external = [&](int id) {
    return in_tape[static_cast<size_t>(id)] ? Holding::free : Holding::held;
  };
  std::vector<Holding> holding(static_cast<size_t>(g.value_count()), Holding::none);
  for (Value v : r.external_inputs) holding[static_cast<size_t>(v.id)] = external(v.id);
  for (const auto& [id, index] : r.in_memory) holding[static_cast<size_t>(id)] = external(id);
  for (int id : written_over(r))
    if (in_tape[static_cast<size_t>(id)]) holding[static_cast<size_t>(id)] = Holding::gone;
  for (Value v : r.scalars) holding[static_cast<size_t>(v.id)] = Holding::free;
  for (const auto& [id, carried] : r.exported)
    holding[static_cast<size_t>(id)] = live.count(id) ? Holding::free : Holding::held;

  std::unordered_map<int, Value> grafted;
  for (int id = 0; id < r.graph.value_count(); ++id) grafted[id] = Value{id};
  std::vector<Value> keep;
  for (Value v : values_to_keep(g, d.reads, holding))
    if (holding[static_cast<size_t>(v.id)] != Holding::gone) keep.push_back(graft(r, g, v, grafted));
  return keep;
}

}  // namespace kiln::detail
