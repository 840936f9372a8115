// SPDX-License-Identifier: Apache-2.0
// Graph: SSA nodes in program order over typed values, with named inputs and outputs. Mutation is functional:
// an updated parameter is an output that aliases the input it replaces.
#pragma once

#include <string>
#include <vector>

#include "ir/op.h"

namespace kiln {

/// What an input stands for. Run-time scalars (learning rate, step, rng offset) are 0-d inputs of kind
/// scalar.
enum class InputKind : uint8_t { arg, param, state, scalar, captured };
const char* to_string(InputKind k);

struct GraphInput {
  Value value;
  InputKind kind = InputKind::arg;
  std::string name;  ///< "fc1.weight", for people; not part of the key
};

struct GraphOutput {
  Value value;
  int alias_input = -1;  ///< index of the input whose memory this output replaces, or -1
  std::string name;
  bool guard = false;  ///< 0-d i64: inputs are overwritten only where it is kNothingWrong (ir/plan.h)
};

/// Where a node came from: never part of a cache key.
struct Origin {
  SourceLoc loc;       ///< the user's line
  int32_t scope = -1;  ///< index into Graph::scopes: module path and composite, "blocks.0.ln1/layer_norm"
};

struct Node {
  Op op;
  std::vector<Value> in;
  Attrs attrs;
  Value out;
  Origin origin;
};

class Graph {
 public:
  std::string name = "g";
  std::vector<GraphInput> inputs;
  std::vector<GraphOutput> outputs;
  std::vector<Node> nodes;
  std::vector<std::string> scopes;

  Value add_input(Type t, InputKind kind, std::string name);
  /// Type-checks and appends. Throws: invalid, from the op's rule, with op and line.
  Value add_node(Op o, std::span<const Value> in, Attrs attrs, Origin origin = {});
  void add_output(Value v, int alias_input = -1, std::string name = {}) {
    outputs.push_back({v, alias_input, std::move(name)});
  }

  /// Drops every value with id >= `count`, with its node or input. No output may use one.
  void truncate(int count);

  const Type& type(Value v) const { return values_[v.id].type; }
  /// The node that makes `v`, or -1 for an input.
  int producer(Value v) const { return values_[v.id].node; }
  std::optional<Made> made(Value v) const;
  int value_count() const { return static_cast<int>(values_.size()); }
  /// Index of `scope` in scopes, added if new.
  int32_t intern_scope(const std::string& scope);

 private:
  struct ValueInfo {
    Type type;
    int node = -1;
  };
  std::vector<ValueInfo> values_;
};

/// Runs `o`'s type rule after checking operand count and attribute kinds.
/// Throws: invalid, "op (file:line): ...".
Type infer_type(Op o, std::span<const Type> in, const Attrs& attrs, SourceLoc loc = {});

/// Appends to a graph; `origin` is given to every node emitted until changed.
class GraphBuilder : public Builder {
 public:
  explicit GraphBuilder(Graph& g) : graph(g) {}
  using Builder::emit;
  Value emit(Op o, std::span<const Value> in, Attrs attrs) override {
    return graph.add_node(o, in, std::move(attrs), origin);
  }
  Type type(Value v) const override { return graph.type(v); }
  std::optional<Made> made(Value v) const override { return graph.made(v); }
  Graph& graph;
  Origin origin;
};

/// Exact text. `origins` adds "// file:line scope" comments, which parse ignores; without them the text is
/// canonical (values renumbered in order, input names dropped) and serves as cache key.
struct PrintOptions {
  bool origins = true;
  bool canonical = false;
};
std::string print(const Graph& g, const PrintOptions& o = {});
/// One node, its values named by their ids, with its origin.
std::string print_node(const Graph& g, const Node& n);
/// Inverse of print: print(parse(print(g))) == print(g). Throws: invalid, with line and column.
Graph parse_graph(std::string_view text);
/// "[1;1]"-like text of one attribute, and its inverse.
std::string attr_str(const AttrValue& v);
/// Text that is equal for nodes that compute the same, so that no attribute can be forgotten and -0 differs
/// from 0.
std::string node_key(Op o, std::span<const Value> in, const Attrs& attrs);

/// Checks every invariant: operands defined before use, types equal to what the rules give, outputs defined,
/// aliased inputs of equal type. Throws: internal, naming node and fault.
void verify(const Graph& g);

}  // namespace kiln
