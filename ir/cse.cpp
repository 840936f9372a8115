// SPDX-License-Identifier: Apache-2.0
// Merges nodes of equal key, keeping the first.
#include <unordered_map>

#include "ir/passes.h"
#include "ir/rewrite.h"

namespace kiln {

Graph eliminate_common_subexpressions(const Graph& g) {
  detail::Rewrite r(g);
  std::unordered_map<std::string, Value> seen;
  for (const Node& n : g.nodes) {
    const std::vector<Value> in = r.mapped(n.in);
    Value& v = seen[node_key(n.op, in, n.attrs)];
    if (!v.valid() || def(n.op).kind == OpKind::effect) v = r.out.add_node(n.op, in, n.attrs, n.origin);
    r.set(n.out, v);
  }
  return r.finish();
}

}  // namespace kiln
