// SPDX-License-Identifier: Apache-2.0
// Graphs without integer dot products, for which there is no template.
#include <algorithm>

#include "codegen/lower_parts.h"

namespace kiln::detail {

Graph without_integer_dots(const Graph& g, std::vector<int32_t>& source_of) {
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
    if (n.op != op("dot_general") || is_floating(g.type(n.out).dtype)) {
      to[n.out.id] = out.add_node(n.op, in, n.attrs, n.origin);
      continue;
    }
    const auto attr = [&](size_t i) { return std::get<std::vector<int64_t>>(n.attrs[i]); };
    Value side[2];
    Shape full;  // batch, free of a, free of b, contracted
    std::vector<int64_t> order[2];
    Shape parts[2];
    for (size_t i = 0; i < 2; ++i) {
      const Shape& s = g.type(n.in[i]).shape;
      std::vector<int64_t> batch = attr(i), k = attr(2 + i);
      order[i] = batch;
      for (int64_t d = 0; d < static_cast<int64_t>(s.size()); ++d)
        if (!std::count(batch.begin(), batch.end(), d) && !std::count(k.begin(), k.end(), d)) {
          order[i].push_back(d);
          parts[i].push_back(s[d]);
        }
      order[i].insert(order[i].end(), k.begin(), k.end());
    }
    const Shape &sa = g.type(n.in[0]).shape, &sb = g.type(n.in[1]).shape;
    Shape va, vb;
    for (int64_t d : attr(0)) va.push_back(sa[d]), vb.push_back(sa[d]), full.push_back(sa[d]);
    for (const Dim& d : parts[0]) va.push_back(d), vb.push_back(Dim(1)), full.push_back(d);
    for (const Dim& d : parts[1]) va.push_back(Dim(1)), vb.push_back(d), full.push_back(d);
    std::vector<int64_t> last;
    for (int64_t d : attr(2)) {
      last.push_back(static_cast<int64_t>(full.size()));
      va.push_back(sa[d]), vb.push_back(sb[attr(3)[last.size() - 1]]), full.push_back(sa[d]);
    }
    side[0] = b.expand(b.reshape(b.permute(in[0], order[0]), va), full);
    side[1] = b.expand(b.reshape(b.permute(in[1], order[1]), vb), full);
    to[n.out.id] = b.sum(b.emit(op("mul"), {side[0], side[1]}), last);
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
