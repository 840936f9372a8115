// SPDX-License-Identifier: Apache-2.0
#include "tests/ir/reduce_graph.h"

#include <algorithm>
#include <map>

namespace kiln::testing {

namespace {

/// `c` with the outputs in `keep` and the values in `cut` as inputs; only what the outputs need.
GraphCase rebuilt(const GraphCase& c, const std::vector<bool>& keep, const std::map<int, HostTensor>& cut) {
  const Graph& g = c.graph;
  std::vector<bool> needed(static_cast<size_t>(g.value_count()), false);
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    if (!keep[i]) continue;
    needed[static_cast<size_t>(g.outputs[i].value.id)] = true;
    if (g.outputs[i].alias_input >= 0)
      needed[static_cast<size_t>(g.inputs[static_cast<size_t>(g.outputs[i].alias_input)].value.id)] = true;
  }
  for (size_t i = g.nodes.size(); i-- > 0;) {
    const Node& n = g.nodes[i];
    if (!needed[static_cast<size_t>(n.out.id)] || cut.count(n.out.id)) continue;
    for (Value v : n.in) needed[static_cast<size_t>(v.id)] = true;
  }
  GraphCase out;
  std::vector<Value> to(static_cast<size_t>(g.value_count()));
  std::vector<int> input_at(g.inputs.size(), -1);
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    const GraphInput& in = g.inputs[i];
    if (!needed[static_cast<size_t>(in.value.id)]) continue;
    input_at[i] = static_cast<int>(out.inputs.size());
    to[static_cast<size_t>(in.value.id)] = out.graph.add_input(g.type(in.value), in.kind, in.name);
    out.inputs.push_back(c.inputs[i]);
  }
  for (const Node& n : g.nodes) {
    if (!needed[static_cast<size_t>(n.out.id)]) continue;
    Value& v = to[static_cast<size_t>(n.out.id)];
    if (const auto at = cut.find(n.out.id); at != cut.end()) {
      v = out.graph.add_input(g.type(n.out), InputKind::arg, "cut");
      out.inputs.push_back(contiguous(at->second));
      continue;
    }
    std::vector<Value> in;
    for (Value x : n.in) in.push_back(to[static_cast<size_t>(x.id)]);
    v = out.graph.add_node(n.op, in, n.attrs);
  }
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    const GraphOutput& o = g.outputs[i];
    if (keep[i])
      out.graph.add_output(to[static_cast<size_t>(o.value.id)],
                           o.alias_input < 0 ? -1 : input_at[static_cast<size_t>(o.alias_input)], o.name);
  }
  return out;
}

/// One output after the other, unless it is the last.
void drop_outputs(GraphCase& c, const std::function<bool(const GraphCase&)>& fails) {
  for (size_t i = c.graph.outputs.size(); i-- > 0 && c.graph.outputs.size() > 1;) {
    std::vector<bool> keep(c.graph.outputs.size(), true);
    keep[i] = false;
    GraphCase smaller = rebuilt(c, keep, {});
    if (fails(smaller)) c = std::move(smaller);
  }
}

/// The first value in program order that is wrong when it is the only output.
void stop_early(GraphCase& c, const std::function<bool(const GraphCase&)>& fails) {
  for (const Node& n : c.graph.nodes) {
    GraphCase shorter = c;
    shorter.graph.outputs.clear();
    shorter.graph.add_output(n.out);
    shorter = rebuilt(shorter, {true}, {});
    if (!fails(shorter)) continue;
    c = std::move(shorter);
    return;
  }
}

}  // namespace

GraphCase reduce_case(GraphCase c, const std::function<bool(const GraphCase&)>& fails) {
  drop_outputs(c, fails);
  stop_early(c, fails);
  for (size_t left = c.graph.nodes.size(); left-- > 0;) {
    left = std::min(left, c.graph.nodes.size() - 1);
    const int node = static_cast<int>(left);
    std::map<int, HostTensor> cut;
    interpret(c.graph, c.inputs, [&](int i, const HostTensor& t) {
      if (i == node) cut.emplace(c.graph.nodes[static_cast<size_t>(i)].out.id, t);
    });
    GraphCase smaller = rebuilt(c, std::vector<bool>(c.graph.outputs.size(), true), cut);
    if (fails(smaller)) c = std::move(smaller);
    if (c.graph.nodes.empty()) break;
  }
  return c;
}

}  // namespace kiln::testing
