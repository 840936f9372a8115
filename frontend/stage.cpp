// SPDX-License-Identifier: Apache-2.0
// Cutting stages out of a path: which nodes a run point needs, and where their operands are.
#include "frontend/stage.h"

#include <set>

namespace kiln::detail {

namespace {

/// Copies the nodes that `wanted` needs, in order, stopping at values that memory already holds.
class Extractor {
 public:
  Extractor(const Recorder& r, std::span<const Value> gradients)
      : r_(r), map_(static_cast<size_t>(r.graph.value_count())) {
    for (size_t i = 0; i < r.external_inputs.size(); ++i)
      external_of_[r.external_inputs[i].id] = static_cast<int>(i);
    for (size_t i = 0; i < r.scalars.size(); ++i) scalar_of_[r.scalars[i].id] = static_cast<int>(i);
    for (size_t i = 0; i < gradients.size(); ++i) gradient_of_[gradients[i].id] = static_cast<int>(i);
    for (const auto& [value, external] : r.in_memory) overwritten_.insert(external);
    out_.graph.name = r.graph.name;
    out_.graph.scopes = r.graph.scopes;
  }

  Extracted run(std::span<const Value> wanted) {
    std::vector<bool> needed(map_.size(), false);
    for (Value v : wanted) needed[static_cast<size_t>(v.id)] = true;
    for (size_t i = r_.graph.nodes.size(); i-- > 0;) {
      const Node& n = r_.graph.nodes[i];
      if (!needed[static_cast<size_t>(n.out.id)] || held(n.out)) continue;
      for (Value v : n.in) needed[static_cast<size_t>(v.id)] = true;
    }
    for (size_t id = 0; id < needed.size(); ++id) {
      const Value v{static_cast<int32_t>(id)};
      if (needed[id] && (held(v) || r_.graph.producer(v) < 0)) add_input(v);
    }
    for (const Node& n : r_.graph.nodes) {
      if (!needed[static_cast<size_t>(n.out.id)] || held(n.out)) continue;
      std::vector<Value> in;
      for (Value v : n.in) in.push_back(map_[static_cast<size_t>(v.id)]);
      map_[static_cast<size_t>(n.out.id)] = out_.graph.add_node(n.op, in, n.attrs, n.origin);
      out_.node_values.push_back(n.out);
    }
    for (Value v : wanted) out_.graph.add_output(map_[static_cast<size_t>(v.id)]);
    return std::move(out_);
  }

 private:
  /// Computed by an earlier stage and still in memory, or given.
  bool held(Value v) const {
    return r_.exported.count(v.id) || r_.in_memory.count(v.id) || gradient_of_.count(v.id);
  }

  void add_input(Value v) {
    StageInput in;
    InputKind kind = InputKind::captured;
    std::string name;
    if (const auto e = r_.exported.find(v.id); e != r_.exported.end()) {
      in = {StageInput::From::carried, e->second};
    } else if (const auto m = r_.in_memory.find(v.id); m != r_.in_memory.end()) {
      in = {StageInput::From::external, m->second};
    } else if (const auto s = scalar_of_.find(v.id); s != scalar_of_.end()) {
      in = {StageInput::From::scalar, s->second};
      kind = InputKind::scalar;
    } else if (const auto g = gradient_of_.find(v.id); g != gradient_of_.end()) {
      in = {StageInput::From::gradient, g->second};
    } else {
      const auto x = external_of_.find(v.id);
      const int external = x == external_of_.end() ? -1 : x->second;  // -1: read anew after an earlier write
      in = {StageInput::From::external, external};
      for (const GraphInput& g : r_.graph.inputs) {
        if (!(g.value == v)) continue;
        kind = g.kind;
        name = g.name;
      }
      if (external < 0 || overwritten_.count(external))
        out_.lost = r_.graph.type(v).str() + (name.empty() ? "" : fmt::format(" '{}'", name));
    }
    map_[static_cast<size_t>(v.id)] = out_.graph.add_input(r_.graph.type(v), kind, name);
    out_.inputs.push_back(in);
    out_.input_values.push_back(v);
  }

  const Recorder& r_;
  std::vector<Value> map_;
  std::map<int, int> external_of_, scalar_of_, gradient_of_;
  std::set<int> overwritten_;
  Extracted out_;
};

}  // namespace

Extracted extract(const Recorder& r, std::span<const Value> wanted, std::span<const Value> gradients) {
  return Extractor(r, gradients).run(wanted);
}

}  // namespace kiln::detail
