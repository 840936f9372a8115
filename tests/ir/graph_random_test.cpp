// SPDX-License-Identifier: Apache-2.0
// What the graphs of the fuzzers hold: every op, element type, kind of shape and combination that code
// generation treats in a way of its own. Coverage that vanishes is a failure here.
#include "tests/ir/random_graph.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "ir/passes.h"

namespace kiln {
namespace KILN_FILE {

using testing::fuzz_options;
using testing::random_graph;
using Counts = std::map<std::string, int>;
using Ints = std::vector<int64_t>;

class Counter {
 public:
  Counter(const Graph& g, Counts& counts) : g_(g), counts_(counts), users_(g.value_count()) {
    for (const Node& n : g.nodes)
      for (Value v : n.in) users_[static_cast<size_t>(v.id)].push_back(&n);
  }

  void run() {
    for (const Node& n : g_.nodes) {
      const Type& t = g_.type(n.out);
      ++counts_[fmt::format("op {}", def(n.op).name)];
      if (n.op != op("cast")) ++counts_[fmt::format("dtype {}", dtype_name(t.dtype))];
      count_shape(t.shape);
      switch (def(n.op).kind) {
        case OpKind::contract: count_dot(n); break;
        case OpKind::reduce: count_reduce(n); break;
        case OpKind::gather: has("gather of a view", makes(n.in[0], OpKind::view)); break;
        case OpKind::scatter: count_scatter(n); break;
        default: break;
      }
    }
    for (const GraphOutput& o : g_.outputs) count_output(o);
  }

 private:
  void has(const char* what, bool yes) { counts_[what] += yes; }
  bool makes(Value v, OpKind kind) const {
    const int p = g_.producer(v);
    return p >= 0 && def(g_.nodes[static_cast<size_t>(p)].op).kind == kind;
  }
  bool makes(Value v, Op o) const {
    const int p = g_.producer(v);
    return p >= 0 && g_.nodes[static_cast<size_t>(p)].op == o;
  }
  int readers(Value v, OpKind kind) const {
    int count = 0;
    for (const Node* n : users_[static_cast<size_t>(v.id)]) count += def(n->op).kind == kind;
    return count;
  }
  static Ints ints(const Node& n, size_t attr) { return std::get<Ints>(n.attrs[attr]); }

  void count_shape(const Shape& s) {
    has("shape of no dims", s.empty());
    has("shape of four dims or more", s.size() >= 4);
    has("shape of 50000 elements or more", numel(s).value() >= 50000);
    has("shape with a dim of 0", std::any_of(s.begin(), s.end(), [](const Dim& d) { return d.is(0); }));
    has("shape with a dim of 1", std::any_of(s.begin(), s.end(), [](const Dim& d) { return d.is(1); }));
  }

  void count_dot(const Node& n) {
    const bool batched = !ints(n, 0).empty();
    const int pointwise = readers(n.out, OpKind::elementwise);
    has("dot of integers", !is_floating(g_.type(n.out).dtype));
    has("dot of doubles", g_.type(n.out).dtype == DType::f64);
    has("dot with an epilogue", pointwise == 1);
    has("dot with several users", users_[static_cast<size_t>(n.out.id)].size() > 1);
    has("dot of a computed operand",
        makes(n.in[0], OpKind::elementwise) || makes(n.in[1], OpKind::elementwise));
    has("dot read by a view", readers(n.out, OpKind::view) > 0);
    has("dot read by a reduction", readers(n.out, OpKind::reduce) > 0);
    has("dot in batches", batched);
    has("dot in batches of permuted operands",
        batched && (makes(n.in[0], op("permute")) || makes(n.in[1], op("permute"))));
    for (Value v : n.in)
      for (Op o : {op("slice"), op("pad"), op("flip"), op("expand"), op("reshape"), op("permute")})
        has(fmt::format("dot of {}", def(o).name).c_str(), makes(v, o));
    for (size_t i = 0; i < 2; ++i) {
      const Ints k = ints(n, 2 + i);
      const int last = g_.type(n.in[i]).rank() - 1;
      has(i ? "dot over the first dim of b" : "dot over the first dim of a", k.size() == 1 && k[0] < last);
      has("dot over several dims", k.size() > 1);
    }
  }
  void count_reduce(const Node& n) {
    const Ints d = ints(n, 0);
    has("reduction over several dims", d.size() > 1);
    has("reduction over dims apart", d.size() == 2 && d[1] - d[0] > 1);
    has("reduction over the first dim", d.size() == 1 && d[0] == 0 && g_.type(n.in[0]).rank() > 1);
    has("reduction over no dims", d.empty());
    has("reduction of a view", makes(n.in[0], OpKind::view));
    has("reduction read by a view", readers(n.out, OpKind::view) > 0);
  }
  void count_scatter(const Node& n) {
    has("scatter into a constant", makes(n.in[0], op("constant")));
    has("scatter into an input", g_.producer(n.in[0]) < 0);
    has("scatter into a computed value", g_.producer(n.in[0]) >= 0 && !makes(n.in[0], op("constant")));
  }
  void count_output(const GraphOutput& o) {
    has("output that is a gradient", o.name == "gradient");
    if (o.alias_input < 0) return;
    const Value old = g_.inputs[static_cast<size_t>(o.alias_input)].value;
    const bool read = !users_[static_cast<size_t>(old.id)].empty();
    has("update that reads the old value", read);
    has("update that reads nothing old", !read);
    has("update with another input", g_.producer(o.value) < 0 && o.value != old);
  }

  const Graph& g_;
  Counts& counts_;
  std::vector<std::vector<const Node*>> users_;
};

constexpr uint64_t kGraphs = 1500;

Counts counted(bool optimised) {
  Counts counts;
  for (uint64_t seed = 1; seed <= kGraphs; ++seed) {
    const Graph g = random_graph(seed, fuzz_options(seed));
    Counter(optimised ? optimize(g) : g, counts).run();
  }
  return counts;
}

void expect_all(Counts counts) {
  for (const OpDef* d : all_ops()) EXPECT_GE(counts[fmt::format("op {}", d->name)], 20) << d->name;
  for (DType t :
       {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u8, DType::boolean})
    EXPECT_GE(counts[fmt::format("dtype {}", dtype_name(t))], 100) << dtype_name(t);
  for (const auto& [what, count] : counts) EXPECT_GE(count, 8) << what;
}

TEST(RandomGraph, HoldsAllThatCodeGenerationTreats) { expect_all(counted(false)); }
TEST(RandomGraph, HoldsAllThatCodeGenerationTreatsWhenOptimised) {
  Counts counts = counted(true);
  EXPECT_EQ(counts["reduction over no dims"], 0);
  counts.erase("reduction over no dims");
  expect_all(std::move(counts));
}

/// Ops of a domain that is not all numbers get operands outside of it, if asked for; else none.
TEST(RandomGraph, OperandsAreAsTheyComeWhereTheyAreNotClamped) {
  for (const bool clamped : {true, false}) {
    Counts outside;
    for (uint64_t seed = 1; seed <= kGraphs; ++seed) {
      testing::RandomGraphOptions o = fuzz_options(seed);
      o.clamped = clamped;
      o.pattern_percent = 0;  // these and derivatives know what they do
      o.updates = o.derivative = false;
      const Graph g = random_graph(seed, o);
      for (const Node& n : g.nodes) {
        const OpDef& d = def(n.op);
        const bool usual = d.lo == OpDef{}.lo && d.hi == OpDef{}.hi;
        if (d.kind != OpKind::elementwise || usual || !is_floating(g.type(n.out).dtype)) continue;
        if (n.op == op("round")) continue;  // also of what is sorted
        const int p = g.producer(n.in[0]);
        outside[std::string(d.name)] += p < 0 || g.nodes[static_cast<size_t>(p)].op != op("minimum");
      }
    }
    EXPECT_GE(outside.size(), 30u);
    for (const auto& [name, count] : outside) {
      if (clamped) EXPECT_EQ(count, 0) << name;
      else EXPECT_GE(count, 20) << name;
    }
  }
}

TEST(RandomGraph, IsTheSameForTheSameSeed) {
  for (uint64_t seed : {1, 7, 11, 22})
    EXPECT_EQ(print(random_graph(seed, fuzz_options(seed))), print(random_graph(seed, fuzz_options(seed))));
  EXPECT_NE(print(random_graph(1, fuzz_options(1))), print(random_graph(2, fuzz_options(1))));
}

}  // namespace KILN_FILE
}  // namespace kiln
