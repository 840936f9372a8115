// SPDX-License-Identifier: Apache-2.0
// The key of a node is text, so that no attribute can be forgotten and -0 differs from 0.
#include <unordered_map>

#include "ir/passes.h"
#include "ir/rewrite.h"

namespace kiln {

Graph eliminate_common_subexpressions(const Graph& g) {
  detail::Rewrite r(g);
  std::unordered_map<std::string, Value> seen;
  for (const Node& n : g.nodes) {
    const std::vector<Value> in = r.mapped(n.in);
    std::string key = std::to_string(n.op.id);
    for (Value v : in) key += "," + std::to_string(v.id);
    for (const AttrValue& a : n.attrs) key += ";" + attr_str(a);
    Value& v = seen[key];
    if (!v.valid() || def(n.op).kind == OpKind::effect) v = r.out.add_node(n.op, in, n.attrs, n.origin);
    r.set(n.out, v);
  }
  return r.finish();
}

}  // namespace kiln
