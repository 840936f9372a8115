// SPDX-License-Identifier: Apache-2.0
// Graphs in which nodes stand that are better computed than those of the user's graph, on every target.
#include <algorithm>

#include "codegen/lower_parts.h"

namespace kiln::detail {

bool has_rewrites(const Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(),
                     [&](const Node& n) { return is_plain_dot(g, n) || is_long_row(g, n); });
}

Graph with_rewrites(const Graph& g, std::vector<int32_t>& source_of) {
  Graph out;
  out.name = g.name;
  out.scopes = g.scopes;
  std::vector<Value> to(g.value_count());
  for (const GraphInput& in : g.inputs) to[in.value.id] = out.add_input(g.type(in.value), in.kind, in.name);
  GraphBuilder b(out);
  for (const Node& n : g.nodes) {
    source_of.resize(out.nodes.size(), static_cast<int32_t>(&n - g.nodes.data()) - 1);
    std::vector<Value> in;
    for (Value v : n.in) in.push_back(to[v.id]);
    b.origin = n.origin;
    Value& v = to[n.out.id];
    if (is_plain_dot(g, n)) v = emit_plain_dot(b, g, n, in);
    else if (is_long_row(g, n)) v = emit_long_row(b, g, n, in);
    else v = out.add_node(n.op, in, n.attrs, n.origin);
  }
  source_of.resize(out.nodes.size(), static_cast<int32_t>(g.nodes.size()) - 1);
  out.outputs = g.outputs;
  for (GraphOutput& o : out.outputs) o.value = to[o.value.id];
  return out;
}

void rename_sources(Plan& plan, const std::vector<int32_t>& source_of) {
  for (ProfileRow& row : plan.profile) {
    for (int32_t& n : row.sources) n = source_of[static_cast<size_t>(n)];
    row.sources.erase(std::unique(row.sources.begin(), row.sources.end()), row.sources.end());
  }
  for (PlanCollective& c : plan.collectives) c.source = source_of[static_cast<size_t>(c.source)];
}

}  // namespace kiln::detail
