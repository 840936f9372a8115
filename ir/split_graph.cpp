// SPDX-License-Identifier: Apache-2.0
#include "ir/split_graph.h"

#include <algorithm>
#include <map>
#include <set>

namespace kiln {

namespace {

bool binds(const Shape& shape, const std::string& symbol) {
  return std::any_of(shape.begin(), shape.end(), [&](const Dim& d) { return d == Dim::symbol(symbol); });
}

class Splitter {
 public:
  Splitter(const Graph& g, std::span<const int> part_of)
      : g_(g), part_of_(part_of.begin(), part_of.end()), made_in_(static_cast<size_t>(g.value_count()), -1) {
    KILN_ASSERT(part_of.size() == g.nodes.size(), "{} parts for {} nodes", part_of.size(), g.nodes.size());
    for (size_t i = 0; i < g.nodes.size(); ++i) {
      made_in_[static_cast<size_t>(g.nodes[i].out.id)] = part_of_[i];
      count_ = std::max(count_, part_of_[i] + 1);
    }
    reads_.resize(static_cast<size_t>(count_));
    binders_.resize(static_cast<size_t>(count_));
  }

  std::vector<GraphPart> run() {
    for (size_t i = 0; i < g_.nodes.size(); ++i)
      for (Value v : g_.nodes[i].in)
        if (made_in(v) != part_of_[i]) reads_[static_cast<size_t>(part_of_[i])].insert(v.id);
    const std::vector<std::set<std::string>> symbols = symbols_by_part();
    for (int p = 0; p < count_; ++p)
      for (const std::string& s : symbols[static_cast<size_t>(p)]) bind(p, s);
    choose_parts();
    std::vector<GraphPart> parts;
    for (int p : kept_) parts.push_back(part(p));
    return parts;
  }

 private:
  int made_in(Value v) const { return made_in_[static_cast<size_t>(v.id)]; }
  const std::set<int>& reads(int p) const { return reads_[static_cast<size_t>(p)]; }
  bool needs(int reader, int maker) const {
    return std::any_of(reads(reader).begin(), reads(reader).end(),
                       [&](int id) { return made_in({id}) == maker; });
  }

  /// The symbols of the types and attributes of each part.
  std::vector<std::set<std::string>> symbols_by_part() const {
    std::vector<std::set<std::string>> symbols(static_cast<size_t>(count_));
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      std::vector<std::string> names;
      const auto collect = [&](const Shape& shape) {
        for (const Dim& d : shape) d.collect_symbols(names);
      };
      collect(g_.type(g_.nodes[i].out).shape);
      for (Value v : g_.nodes[i].in) collect(g_.type(v).shape);
      for (const AttrValue& a : g_.nodes[i].attrs)
        if (const Shape* s = std::get_if<Shape>(&a)) collect(*s);
      symbols[static_cast<size_t>(part_of_[i])].insert(names.begin(), names.end());
    }
    return symbols;
  }

  /// Sees to it that part `p` has an input that binds `symbol`, unless it makes such a value itself.
  void bind(int p, const std::string& symbol) {
    for (int id : reads(p))
      if (binds(g_.type({id}).shape, symbol)) return;
    Value binder;
    for (const GraphInput& in : g_.inputs)
      if (!binder.valid() && binds(g_.type(in.value).shape, symbol)) binder = in.value;
    for (const Node& n : g_.nodes)
      if (!binder.valid() && binds(g_.type(n.out).shape, symbol)) binder = n.out;
    KILN_CHECK(
        binder.valid(), invalid,
        "split_graph: partition {} uses the size {}, which is a whole dim of no value (give the graph an "
        "input with a dim of that size)",
        p, symbol);
    if (made_in(binder) == p) return;
    binders_[static_cast<size_t>(p)].push_back(binder);
    reads_[static_cast<size_t>(p)].insert(binder.id);
  }

  std::vector<int> run_order() const {
    std::vector<int> order, waiting;
    for (int p = 0; p < count_; ++p) waiting.push_back(p);
    while (!waiting.empty()) {
      const auto ready = std::find_if(waiting.begin(), waiting.end(), [&](int p) {
        return std::none_of(waiting.begin(), waiting.end(), [&](int q) { return q != p && needs(p, q); });
      });
      KILN_CHECK(
          ready != waiting.end(), invalid,
          "split_graph: partitions {} need each other's results; expected an order in which they can run",
          fmt::join(waiting, ", "));
      order.push_back(*ready);
      waiting.erase(ready);
    }
    return order;
  }

  /// Those that give something, from the last on: a part left out may leave others unread.
  void choose_parts() {
    const std::vector<int> order = run_order();
    for (size_t i = order.size(); i-- > 0;) {
      const int p = order[i];
      const bool gives = std::any_of(g_.outputs.begin(), g_.outputs.end(),
                                     [&](const GraphOutput& o) { return made_in(o.value) == p; });
      const bool read = std::any_of(kept_.begin(), kept_.end(), [&](int q) { return needs(q, p); });
      if (gives || read) kept_.insert(kept_.begin(), p);
    }
    if (kept_.empty()) kept_.push_back(order.back());
  }

  struct Building {
    GraphPart part;
    std::map<int, Value> value;  ///< of the whole graph -> of the part
    std::map<int, int> input;    ///< of the whole graph -> input of the part
  };

  bool is_last(int p) const { return p == kept_.back(); }
  /// Output `o` is a result of part `p`.
  bool belongs(const GraphOutput& o, int p) const {
    return made_in(o.value) == p || (is_last(p) && made_in(o.value) < 0);
  }
  Value aliased(const GraphOutput& o) const { return g_.inputs[static_cast<size_t>(o.alias_input)].value; }

  void add_input(Building& b, Value v) const {
    if (b.value.count(v.id)) return;
    InputKind kind = InputKind::captured;
    std::string name;
    for (const GraphInput& in : g_.inputs)
      if (in.value == v) kind = in.kind, name = in.name;
    b.input[v.id] = static_cast<int>(b.part.inputs.size());
    b.value[v.id] = b.part.graph.add_input(g_.type(v), kind, name);
    b.part.inputs.push_back(v);
  }

  void add_inputs(Building& b, int p) const {
    const std::vector<Value>& binders = binders_[static_cast<size_t>(p)];
    for (int id : reads(p))
      if (!std::count(binders.begin(), binders.end(), Value{id})) add_input(b, {id});
    for (Value v : binders) add_input(b, v);
    for (const GraphOutput& o : g_.outputs) {
      if (!belongs(o, p)) continue;
      if (made_in(o.value) < 0) add_input(b, o.value);
      if (is_last(p) && o.alias_input >= 0) add_input(b, aliased(o));
    }
  }

  void add_outputs(Building& b, int p) const {
    const auto add = [&](Value v, int output_of) {
      b.part.outputs.push_back(v);
      b.part.output_of.push_back(output_of);
    };
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      const GraphOutput& o = g_.outputs[i];
      if (!belongs(o, p)) continue;
      const int alias = is_last(p) && o.alias_input >= 0 ? b.input.at(aliased(o).id) : -1;
      b.part.graph.outputs.push_back({b.value.at(o.value.id), alias, o.name, o.guard});
      add(o.value, static_cast<int>(i));
    }
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      const Value v = g_.nodes[i].out;
      if (part_of_[i] != p || std::count(b.part.outputs.begin(), b.part.outputs.end(), v)) continue;
      if (std::none_of(kept_.begin(), kept_.end(), [&](int q) { return reads(q).count(v.id) > 0; })) continue;
      b.part.graph.add_output(b.value.at(v.id));
      add(v, -1);
    }
  }

  GraphPart part(int p) const {
    Building b;
    b.part.index = p;
    b.part.graph.name = g_.name;
    b.part.graph.scopes = g_.scopes;
    add_inputs(b, p);
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      const Node& n = g_.nodes[i];
      if (part_of_[i] != p) continue;
      std::vector<Value> in;
      for (Value v : n.in) in.push_back(b.value.at(v.id));
      b.value[n.out.id] = b.part.graph.add_node(n.op, in, n.attrs, n.origin);
    }
    add_outputs(b, p);
    return std::move(b.part);
  }

  const Graph& g_;
  std::vector<int> part_of_;                 ///< per node
  std::vector<int> made_in_;                 ///< per value; -1: an input of the graph
  int count_ = 1;                            ///< a graph without nodes is one part
  std::vector<std::set<int>> reads_;         ///< per part: values that it does not make
  std::vector<std::vector<Value>> binders_;  ///< per part: of those, the ones that only bind symbols
  std::vector<int> kept_;                    ///< in the order of running
};

}  // namespace

std::vector<GraphPart> split_graph(const Graph& g, std::span<const int> part_of) {
  return Splitter(g, part_of).run();
}

}  // namespace kiln
