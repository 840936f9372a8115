// SPDX-License-Identifier: Apache-2.0
#include "ir/passes.h"
#include "ir/rewrite.h"

namespace kiln {

Graph eliminate_dead_code(const Graph& g) {
  std::vector<bool> needed(static_cast<size_t>(g.value_count()), false);
  for (const GraphOutput& o : g.outputs) needed[static_cast<size_t>(o.value.id)] = true;
  for (size_t i = g.nodes.size(); i-- > 0;) {
    const Node& n = g.nodes[i];
    if (def(n.op).kind == OpKind::effect) needed[static_cast<size_t>(n.out.id)] = true;
    if (!needed[static_cast<size_t>(n.out.id)]) continue;
    for (Value v : n.in) needed[static_cast<size_t>(v.id)] = true;
  }
  detail::Rewrite r(g);
  for (const Node& n : g.nodes)
    if (needed[static_cast<size_t>(n.out.id)])
      r.set(n.out, r.out.add_node(n.op, r.mapped(n.in), n.attrs, n.origin));
  return r.finish();
}

}  // namespace kiln
