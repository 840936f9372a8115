// SPDX-License-Identifier: Apache-2.0
// What the graph alone says, before there are groups: which values to compute again where they are read
// instead of storing them, and which are one number throughout.
#include <algorithm>
#include <set>

#include "ir/fuse_groups.h"
#include "ir/rewrite.h"

namespace kiln::detail {

namespace {

bool is_single(const Type& t) { return numel(t.shape).is(1); }

/// Which values are worth computing again in a reader instead of loading them.
class RecomputeRule {
 public:
  explicit RecomputeRule(const Graph& g)
      : g_(g), leaves_(g.value_count()), work_(g.value_count(), 0), cheap_(g.value_count(), false) {
    std::vector<int> uses(g.value_count(), 0);
    for (const Node& n : g.nodes)
      for (Value v : n.in) ++uses[v.id];
    for (const GraphInput& in : g.inputs) leaves_[in.value.id] = {in.value.id};
    for (const Node& n : g.nodes) visit(n, uses);
  }
  std::vector<bool> take() { return std::move(cheap_); }

 private:
  static constexpr double kOpFlops = 15, kChainFlops = 48;

  void visit(const Node& n, const std::vector<int>& uses) {
    const int v = n.out.id;
    const OpKind kind = def(n.op).kind;
    std::set<int> all;
    double work = kind == OpKind::elementwise ? def(n.op).flops : 0;
    for (Value in : n.in) {
      all.insert(leaves_[in.id].begin(), leaves_[in.id].end());
      work += work_[in.id];
    }
    const bool single = is_single(g_.type(n.out));
    bool through = kind == OpKind::view && n.op != op("cat");
    if (kind == OpKind::elementwise) {
      through = work <= kChainFlops && def(n.op).flops <= kOpFlops;
      if (n.in.empty()) through = true;
      if (single) through = all.size() <= 8;
    }
    if (through && kind == OpKind::elementwise && !single) {
      int big = 0;
      bool wider = false;  // the leaf has more bytes than the value itself
      for (int leaf : all) {
        const Type &t = g_.type(Value{leaf}), &own = g_.type(n.out);
        if (numel(t.shape) == numel(own.shape)) ++big, wider |= dtype_size(t.dtype) > dtype_size(own.dtype);
      }
      if (big > 1 && uses[v] > 1) through = false;
      if (wider && uses[v] > 1 && def(n.op).flops > 0) through = false;
    }
    if (through) {
      leaves_[v] = std::move(all);
      work_[v] = work;
      if (kind == OpKind::elementwise) cheap_[v] = true;
    } else {
      leaves_[v] = {v};
    }
  }

  const Graph& g_;
  std::vector<std::set<int>> leaves_;
  std::vector<double> work_;
  std::vector<bool> cheap_;
};

/// Whether elements of n.out differ by their place alone, whatever its operands hold.
bool depends_on_place(const Node& n) {
  const OpDef& d = def(n.op);
  if (d.kind == OpKind::elementwise) return numbers_elements(n.op);
  if (d.kind == OpKind::scatter || d.kind == OpKind::scan || d.kind == OpKind::sort) return true;
  return n.op == op("pad") || n.op == op("cat") || n.op == op("skew");
}

}  // namespace

std::vector<bool> worth_recomputing(const Graph& g) { return RecomputeRule(g).take(); }

std::vector<bool> one_number(const Graph& g) {
  std::vector<bool> one(static_cast<size_t>(g.value_count()));
  for (const GraphInput& in : g.inputs) one[in.value.id] = is_single(g.type(in.value));
  for (const Node& n : g.nodes)
    one[n.out.id] =
        is_single(g.type(n.out)) ||
        (!depends_on_place(n) && std::all_of(n.in.begin(), n.in.end(), [&](Value v) { return one[v.id]; }));
  return one;
}

}  // namespace kiln::detail
