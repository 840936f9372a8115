// SPDX-License-Identifier: Apache-2.0
// Which group becomes the epilogue of which contraction. Looks at groups and steps when the partition is
// done.
#include <algorithm>

#include "ir/fuse_groups.h"

namespace kiln::detail {

using loop::AxisRole;

namespace {

class EpilogueFinder {
 public:
  EpilogueFinder(const Graph& g, const Partition& p, std::vector<std::unique_ptr<Group>>& groups)
      : g_(g), p_(p), groups_(groups) {}

  /// For each contraction the first group that can be its epilogue.
  std::map<int, const Opaque*> run() {
    std::map<int, const Opaque*> epilogue_of;
    for (const Opaque& x : p_.opaque) {
      const Node& n = g_.nodes[x.node];
      if (!contracts(g_, x) || numel(g_.type(n.in[0]).shape).is(0)) continue;
      for (int s : p_.succ[x.step]) {
        if (!groups_[s] || epilogue_of.count(s) || !fits_epilogue(x, n, s)) continue;
        epilogue_of[s] = &x;
        break;
      }
    }
    return epilogue_of;
  }

 private:
  bool reaches(int from, int to) const {
    std::vector<int> stack = {from};
    std::set<int> seen = {from};
    while (!stack.empty()) {
      const int s = stack.back();
      stack.pop_back();
      if (s == to) return true;
      for (int t : p_.succ[s])
        if (seen.insert(t).second) stack.push_back(t);
    }
    return false;
  }

  /// Pointwise over the whole result, read element by element, and nothing between the two.
  bool fits_epilogue(const Opaque& x, const Node& n, int s) {
    Group& q = *groups_[s];
    const Type& t = g_.type(n.out);
    if (!q.reduces.empty() || t.dtype != g_.type(n.in[0]).dtype) return false;
    const auto read = q.reads.find(n.out.id);
    if (read == q.reads.end() || read->second.size() != 1) return false;
    for (const Sink& k : q.sinks) {
      std::vector<int> order;
      if (k.partial || p_.values[k.value].partial_group >= 0 ||
          !covers_shape(k.at, g_.type(Value{k.value}).shape, q, order) || order.size() != q.axes.size())
        return false;
    }
    // An update of three tensors streams better in a kernel of its own than a tile at a time.
    if (q.sinks.size() > kMostStores || large_reads(q, n.out) > kMostLoads) return false;
    for (int between : p_.succ[x.step])
      if (between != s && reaches(between, s)) return false;
    return give_roles(n, q, p_.groups[s]->reads.at(n.out.id)[0]);
  }

  static constexpr size_t kMostStores = 2, kMostLoads = 2;
  /// Values in memory as large as the result, beside the result.
  size_t large_reads(const Group& q, Value result) const {
    size_t n = 0;
    for (const auto& [v, list] : q.reads) {
      const bool memory = g_.producer(Value{v}) < 0 || p_.values[v].place != Place::none;
      n += v != result.id && memory && numel(g_.type(Value{v}).shape) == numel(g_.type(result).shape);
    }
    return n;
  }

  /// Batch, row and column axes as the result's dims are: batch, free dims of a, free dims of b.
  bool give_roles(const Node& n, Group& q, const Access& at) {
    if (at.flat || !at.bounds.empty()) return false;
    Group trial = *p_.groups[group_index(q)];
    const size_t batch = std::get<std::vector<int64_t>>(n.attrs[0]).size();
    const size_t rows =
        batch + g_.type(n.in[0]).shape.size() - batch - std::get<std::vector<int64_t>>(n.attrs[2]).size();
    std::vector<int> order;
    for (size_t d = 0; d < g_.type(n.out).shape.size(); ++d) {
      const size_t before = order.size();
      if (!covers(at.idx[d], g_.type(n.out).shape[d], trial.axes, order)) return false;
      for (size_t i = before; i < order.size(); ++i)
        trial.roles[order[i]] = d < batch ? AxisRole::batch : d < rows ? AxisRole::row : AxisRole::col;
    }
    if (order.size() != trial.axes.size() || !std::is_sorted(order.begin(), order.end())) return false;
    settle_roles(trial);
    order_axes(trial);
    q = std::move(trial);
    return true;
  }
  size_t group_index(const Group& q) const {
    for (size_t i = 0; i < groups_.size(); ++i)
      if (groups_[i].get() == &q) return i;
    return 0;
  }

  const Graph& g_;
  const Partition& p_;
  std::vector<std::unique_ptr<Group>>& groups_;
};

}  // namespace

std::map<int, const Opaque*> find_epilogues(const Graph& g, const Partition& p,
                                            std::vector<std::unique_ptr<Group>>& groups) {
  return EpilogueFinder(g, p, groups).run();
}

}  // namespace kiln::detail
