// SPDX-License-Identifier: Apache-2.0
// What passes that rebuild a graph share: the new graph, and where each old value went.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace kiln::detail {

/// The node that makes v, if its op is `o`.
inline const Node* made_by(const Graph& g, Value v, Op o) {
  const int at = g.producer(v);
  const Node* n = at >= 0 ? &g.nodes[static_cast<size_t>(at)] : nullptr;
  return n && n->op == o ? n : nullptr;
}

/// Whether an elementwise op makes elements of their places in the whole: iota, random numbers.
inline bool numbers_elements(Op o) {
  const std::string_view body = def(o).body;
  return body.find("{index}") != body.npos || body.find("{flat}") != body.npos;
}

/// An elementwise op of numbers, each of the dtype beside it. None where it fails on them (an integer
/// division by zero), and for an integer that no double is.
std::optional<double> evaluate_numbers(Op o, const Attrs& attrs,
                                       std::span<const std::pair<double, DType>> operands);

/// A graph being rebuilt from another in program order. Inputs are copied at the start.
struct Rewrite {
  explicit Rewrite(const Graph& g) : from(g) {
    out.name = g.name;
    out.scopes = g.scopes;
    to.resize(static_cast<size_t>(g.value_count()));
    for (const GraphInput& in : g.inputs) set(in.value, out.add_input(g.type(in.value), in.kind, in.name));
  }
  void set(Value old, Value now) { to[static_cast<size_t>(old.id)] = now; }
  std::vector<Value> mapped(const std::vector<Value>& old) const {
    std::vector<Value> now;
    now.reserve(old.size());
    for (Value v : old) now.push_back(to[static_cast<size_t>(v.id)]);
    return now;
  }
  /// Copies the outputs and gives the graph away.
  Graph finish() {
    out.outputs = from.outputs;
    for (GraphOutput& o : out.outputs) o.value = to[static_cast<size_t>(o.value.id)];
    return std::move(out);
  }

  const Graph& from;
  Graph out;
  std::vector<Value> to;
};

}  // namespace kiln::detail
