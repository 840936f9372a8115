// SPDX-License-Identifier: Apache-2.0
#include "ir/graph.h"

#include <algorithm>

namespace kiln {

const char* to_string(InputKind k) {
  constexpr const char* kNames[] = {"arg", "param", "state", "scalar", "captured"};
  return kNames[static_cast<int>(k)];
}

Value Graph::add_input(Type t, InputKind kind, std::string input_name) {
  const Value v{value_count()};
  values_.push_back({std::move(t), -1});
  inputs.push_back({v, kind, std::move(input_name)});
  return v;
}

Value Graph::add_node(Op o, std::span<const Value> in, Attrs attrs, Origin origin) {
  std::vector<Type> types;
  types.reserve(in.size());
  for (Value v : in) {
    KILN_ASSERT(v.id >= 0 && v.id < value_count(), "{}: operand %{} is not defined", def(o).name, v.id);
    types.push_back(type(v));
  }
  Type t = infer_type(o, types, attrs, origin.loc);
  const Value out{value_count()};
  values_.push_back({std::move(t), static_cast<int>(nodes.size())});
  nodes.push_back({o, {in.begin(), in.end()}, std::move(attrs), out, origin});
  return out;
}

std::optional<Made> Graph::made(Value v) const {
  if (producer(v) < 0) return std::nullopt;
  const Node& n = nodes[static_cast<size_t>(producer(v))];
  return Made{n.op, n.in, n.attrs};
}

void Graph::truncate(int count) {
  while (!nodes.empty() && nodes.back().out.id >= count) nodes.pop_back();
  while (!inputs.empty() && inputs.back().value.id >= count) inputs.pop_back();
  values_.resize(static_cast<size_t>(count));
}

int32_t Graph::intern_scope(const std::string& scope) {
  const auto at = std::find(scopes.begin(), scopes.end(), scope);
  if (at != scopes.end()) return static_cast<int32_t>(at - scopes.begin());
  scopes.push_back(scope);
  return static_cast<int32_t>(scopes.size() - 1);
}

namespace {
AttrKind kind_of(const AttrValue& v) {
  constexpr AttrKind kKinds[] = {AttrKind::integer, AttrKind::real, AttrKind::boolean,
                                 AttrKind::dtype,   AttrKind::ints, AttrKind::dims};
  return kKinds[v.index()];
}
}  // namespace

Type infer_type(Op o, std::span<const Type> in, const Attrs& attrs, SourceLoc loc) {
  const OpDef& d = def(o);
  KILN_ASSERT(d.inputs < 0 || static_cast<size_t>(d.inputs) == in.size(), "{} takes {} operands, got {}",
              d.name, d.inputs, in.size());
  KILN_ASSERT(attrs.size() == d.attrs.size(), "{} takes {} attributes, got {}", d.name, d.attrs.size(),
              attrs.size());
  for (size_t i = 0; i < attrs.size(); ++i)
    KILN_ASSERT(kind_of(attrs[i]) == d.attrs[i].kind, "{}: attribute {} has the wrong kind", d.name,
                d.attrs[i].name);
  const std::string where = loc.known() ? fmt::format("{} ({})", d.name, loc.str()) : std::string(d.name);
  return d.infer({in, attrs, where});
}

void verify(const Graph& g) {
  std::vector<bool> defined(g.value_count(), false);
  auto check_defined = [&](Value v, const std::string& user) {
    KILN_ASSERT(v.id >= 0 && v.id < g.value_count() && defined[v.id],
                "{}: value %{} is used before it is defined", user, v.id);
  };
  for (const GraphInput& in : g.inputs) {
    KILN_ASSERT(in.kind != InputKind::scalar || g.type(in.value).shape.empty(), "scalar input {} is not 0-d",
                in.name);
    defined[in.value.id] = true;
  }
  for (const Node& n : g.nodes) {
    std::vector<Type> types;
    for (Value v : n.in) {
      check_defined(v, std::string(def(n.op).name));
      types.push_back(g.type(v));
    }
    const Type t = infer_type(n.op, types, n.attrs, n.origin.loc);
    KILN_ASSERT(t == g.type(n.out), "{}: %{} has type {}, its rule gives {}", def(n.op).name, n.out.id,
                g.type(n.out).str(), t.str());
    KILN_ASSERT(!defined[n.out.id], "%{} is defined twice", n.out.id);
    defined[n.out.id] = true;
  }
  for (const GraphOutput& out : g.outputs) {
    check_defined(out.value, "output");
    KILN_ASSERT(!out.guard || (out.alias_input < 0 && g.type(out.value) == (Type{DType::i64, {}})),
                "guard output of type {}", g.type(out.value).str());
    if (out.alias_input < 0) continue;
    KILN_ASSERT(out.alias_input < static_cast<int>(g.inputs.size()), "output aliases input {}",
                out.alias_input);
    KILN_ASSERT(g.type(out.value) == g.type(g.inputs[out.alias_input].value),
                "output of type {} aliases input of type {}", g.type(out.value).str(),
                g.type(g.inputs[out.alias_input].value).str());
  }
}

}  // namespace kiln
