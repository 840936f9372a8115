// SPDX-License-Identifier: Apache-2.0
// Text form of graphs. One line per input, node and output, so that dumps diff well; values are numbered in
// the order of the text, which the parser gives them too:
//
//   graph NAME {                                     a word, else in quotes
//     %0 = input f32[B,784] arg "x"
//     %3 = f32[B,1024] dot_general %0, %1 {batch_a=[], ...}   // model.cpp:21 blocks.0/linear
//     output %9 alias=2 "fc1.weight"
//     output %10 guard
//   }
#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>

#include "ir/graph.h"

namespace kiln {

namespace {
struct AttrPrinter {
  std::string operator()(int64_t v) const { return std::to_string(v); }
  std::string operator()(double v) const {
    if (std::isnan(v)) return "nan.";
    if (std::isinf(v)) return v < 0 ? "-inf." : "inf.";
    std::string s = fmt::format("{}", v);  // shortest text that reads back to the same double
    if (s.find_first_of(".e") == std::string::npos) s += ".";
    return s;
  }
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(DType v) const { return std::string(dtype_name(v)); }
  std::string operator()(const std::vector<int64_t>& v) const {
    return fmt::format("({})", fmt::join(v, ","));
  }
  std::string operator()(const Shape& v) const { return shape_str(v); }
};

std::string quoted(const std::string& s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "\"";
}

/// A graph's name, quoted unless it is one word.
std::string graph_name(const std::string& s) {
  const bool word = !s.empty() && std::all_of(s.begin(), s.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  });
  return word ? s : quoted(s);
}

/// One node, its values under the numbers that `number` gives them.
std::string node_text(const Graph& g, const Node& n, const std::function<int(Value)>& number) {
  std::string in, attrs;
  for (Value v : n.in) in += fmt::format("{}%{}", in.empty() ? " " : ", ", number(v));
  const OpDef& d = def(n.op);
  for (size_t i = 0; i < n.attrs.size(); ++i)
    attrs += fmt::format("{}{}={}", i ? ", " : " {", d.attrs[i].name, attr_str(n.attrs[i]));
  if (!attrs.empty()) attrs += "}";
  return fmt::format("%{} = {} {}{}{}", number(n.out), g.type(n.out).str(), d.name, in, attrs);
}

std::string origin_text(const Graph& g, const Node& n) {
  if (!n.origin.loc.known() && n.origin.scope < 0) return "";
  return fmt::format("  // {} {}", n.origin.loc.str(), n.origin.scope >= 0 ? g.scopes[n.origin.scope] : "");
}
}  // namespace

std::string print_node(const Graph& g, const Node& n) {
  return node_text(g, n, [](Value v) { return v.id; }) + origin_text(g, n);
}

std::string attr_str(const AttrValue& v) { return std::visit(AttrPrinter(), v); }

std::string node_key(Op o, std::span<const Value> in, const Attrs& attrs) {
  std::string key = std::to_string(o.id);
  for (Value v : in) key += "," + std::to_string(v.id);
  for (const AttrValue& a : attrs) key += ";" + attr_str(a);
  return key;
}

std::string print(const Graph& g, const PrintOptions& o) {
  std::vector<int> number(g.value_count(), -1);
  int next = 0;
  auto define = [&](Value v) { return number[v.id] = next++; };
  std::string out = fmt::format("graph {} {{\n", o.canonical ? "g" : graph_name(g.name));
  for (const GraphInput& in : g.inputs)
    out += fmt::format("  %{} = input {} {}{}\n", define(in.value), g.type(in.value).str(),
                       to_string(in.kind), o.canonical || in.name.empty() ? "" : " " + quoted(in.name));
  for (const Node& n : g.nodes) {
    define(n.out);
    out += "  " + node_text(g, n, [&](Value v) { return number[v.id]; });
    if (o.origins && !o.canonical) out += origin_text(g, n);
    out += "\n";
  }
  for (const GraphOutput& r : g.outputs) {
    out += fmt::format("  output %{}", number[r.value.id]);
    if (r.alias_input >= 0) out += fmt::format(" alias={}", r.alias_input);
    if (r.guard) out += " guard";
    if (!o.canonical && !r.name.empty()) out += " " + quoted(r.name);
    out += "\n";
  }
  return out + "}\n";
}

}  // namespace kiln
