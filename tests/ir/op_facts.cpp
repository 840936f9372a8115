// SPDX-License-Identifier: Apache-2.0
// Prints what the page of ops says of each row of the table, as lines of fields with tabs between: read by
// scripts/op_docs.py.
//   row <name> <kind> <operands> <attributes> <doc> <source>
//   derivative <name> <ops that its rule emits, or "zero">
//   gradient <name> <uses whose derivative ir/autodiff_test compares with differences>
//   fuzzed <name> <graphs that contain it, of those that a run of the fuzzer draws>
// With the argument "rows", the first only.
#include <algorithm>
#include <map>
#include <set>

#include "tests/ir/gradient_cases.h"
#include "tests/ir/random_graph.h"
#include "tests/ir/testing.h"

namespace kiln {
namespace {

constexpr uint64_t kGraphs = 2000;

std::string kind_name(OpKind k) {
  switch (k) {
    case OpKind::elementwise: return "elementwise";
    case OpKind::reduce: return "reduce";
    case OpKind::view: return "view";
    case OpKind::gather: return "gather";
    case OpKind::scatter: return "scatter";
    case OpKind::scan: return "scan";
    case OpKind::sort: return "sort";
    case OpKind::contract: return "contract";
    case OpKind::effect: return "effect";
  }
  return "";
}

std::string attributes(const OpDef& d) {
  constexpr const char* kKinds[] = {"integer", "real", "boolean", "dtype", "integers", "sizes"};
  std::vector<std::string> out;
  for (const AttrDef& a : d.attrs)
    out.push_back(fmt::format("{}: {}", a.name, kKinds[static_cast<size_t>(a.kind)]));
  return fmt::format("{}", fmt::join(out, ", "));
}

/// Emits into a graph and keeps the names.
class Listener : public Builder {
 public:
  explicit Listener(Graph& g) : b_(g) {}
  Value emit(Op o, std::span<const Value> in, Attrs attrs) override {
    names.insert(def(o).name);
    return b_.emit(o, in, std::move(attrs));
  }
  Type type(Value v) const override { return b_.type(v); }
  std::set<std::string_view> names;

 private:
  GraphBuilder b_;
};

/// The ops that the rule of row `d` emits for one use of it: the last, those before it make its operands.
std::set<std::string_view> emitted(const OpDef& d, const testing::GradientCase& c) {
  Graph g;
  std::vector<Value> x;
  for (const auto& s : c.shapes)
    x.push_back(g.add_input({DType::f64, Shape(s.begin(), s.end())}, InputKind::arg, ""));
  GraphBuilder b(g);
  c.emit(b, x);
  for (size_t i = g.nodes.size(); i-- > 0;) {
    const Node node = g.nodes[i];
    if (def(node.op).name != d.name) continue;
    Listener l(g);
    const Value out = node.out, grad = b.constant_like(1, out);
    std::vector<bool> needs;
    for (Value v : node.in) needs.push_back(is_floating(g.type(v).dtype));
    d.grad({l, node.in, {&out, 1}, {&grad, 1}, node.attrs, needs});
    return l.names;
  }
  return {};
}

void print_rows() {
  for (const OpDef* d : all_ops())
    fmt::print("row\t{}\t{}\t{}\t{}\t{}\t{}\n", d->name, kind_name(d->kind),
               d->inputs < 0 ? "any" : std::to_string(d->inputs), attributes(*d), d->doc, d->source);
}

void print_derivatives() {
  std::map<std::string_view, int> uses;
  std::map<std::string_view, std::set<std::string_view>> names;
  const std::vector<testing::GradientCase> cases = testing::gradient_cases();
  for (const testing::GradientCase& c : cases) {
    const OpDef& d = def(*find_op(c.name));
    ++uses[d.name];
    names[d.name].merge(emitted(d, c));
  }
  for (const OpDef* d : all_ops()) {
    fmt::print("derivative\t{}\t{}\n", d->name,
               d->grad ? fmt::format("{}", fmt::join(names[d->name], ", ")) : "zero");
    fmt::print("gradient\t{}\t{}\n", d->name, uses[d->name]);
  }
}

void print_fuzzed() {
  std::map<std::string_view, int> drawn;
  for (uint64_t seed = 1; seed <= kGraphs; ++seed) {
    std::set<std::string_view> here;
    for (const Node& n : testing::random_graph(seed, testing::fuzz_options(seed)).nodes)
      here.insert(def(n.op).name);
    for (std::string_view name : here) ++drawn[name];
  }
  for (const OpDef* d : all_ops()) fmt::print("fuzzed\t{}\t{}\n", d->name, drawn[d->name]);
}

}  // namespace
}  // namespace kiln

int main(int argc, char** argv) {
  kiln::print_rows();
  if (argc > 1 && std::string_view(argv[1]) == "rows") return 0;
  kiln::print_derivatives();
  kiln::print_fuzzed();
}
