// SPDX-License-Identifier: Apache-2.0
// Groups side by side: whether two walk one domain, what they make together, whether its roles fit. Knows no
// order of steps.
#include <algorithm>

#include "ir/fuse_groups.h"

namespace kiln::detail {

using loop::AxisRole;
using loop::Index;
using loop::IndexTerm;

/// Whether an axis before the last one that the access uses is left out: computed again for each of its
/// values.
bool repeats(const Group& q, const Access& a) {
  uint32_t used = 0;
  for (const Index& x : a.idx)
    for (const IndexTerm& t : x.terms)
      if (t.axis >= 0) used |= 1u << t.axis;
  int last = -1;
  for (size_t i = 0; i < q.axes.size(); ++i)
    if (used >> i & 1) last = static_cast<int>(i);
  for (int i = 0; i < last; ++i)
    if (!(used >> i & 1)) return true;
  return false;
}
/// Whether the axes left out are, or may become, the columns: all that a reduction of a row goes over.
bool rest_are_columns(const Group& q, const std::vector<int>& order) {
  int last = -1;
  for (int a : order) last = std::max(last, a);
  std::set<int> rest;
  for (size_t i = 0; i < q.axes.size(); ++i) {
    if (std::find(order.begin(), order.end(), static_cast<int>(i)) != order.end()) continue;
    rest.insert(static_cast<int>(i));
    if (q.roles[i] ? q.roles[i] != AxisRole::col : static_cast<int>(i) < last) return false;
  }
  if (rest.empty()) return true;
  for (int a : order)
    if (q.roles[a] == AxisRole::col) return false;
  return std::all_of(q.reduces.begin(), q.reduces.end(),
                     [&](const RowReduce& r) { return std::set<int>(r.axes.begin(), r.axes.end()) == rest; });
}
bool covers_shape(const Access& a, const Shape& shape, const Group& q, std::vector<int>& order) {
  if (a.flat || !a.bounds.empty()) return false;
  for (size_t d = 0; d < shape.size(); ++d)
    if (!covers(a.idx[d], shape[d], q.axes, order)) return false;
  return true;
}

namespace {

/// The shared axes keep their order, so that no store of either becomes strided.
bool in_order(const std::vector<int>& to) {
  int last = -1;
  for (int t : to) {
    if (t < 0) continue;
    if (t < last) return false;
    last = t;
  }
  return true;
}

void add_unique(std::vector<Access>& list, Access a) {
  for (const Access& x : list)
    if (x.str() == a.str()) return;
  list.push_back(std::move(a));
}

bool rest_in(const Sink& k, const std::set<int>& cols, const Group& q) {
  for (int a = 0; a < static_cast<int>(q.axes.size()); ++a) {
    const bool walked =
        std::count(k.reduced.begin(), k.reduced.end(), a) + std::count(k.kept.begin(), k.kept.end(), a);
    if (!walked && !cols.count(a)) return false;
  }
  return true;
}

}  // namespace

/// Maps the axes of group b to those of a by how both walk v. Empty when the domains differ.
bool match_axes(const Graph& g, const Group& a, const Group& b, int v, std::vector<int>& to) {
  const Shape& shape = g.type(Value{v}).shape;
  std::vector<int> oa, ob;
  if (!covers_shape(a.reads.at(v)[0], shape, a, oa) || !covers_shape(b.reads.at(v)[0], shape, b, ob))
    return false;
  if (oa.size() != ob.size()) return false;
  to.assign(b.axes.size(), -1);
  for (size_t i = 0; i < oa.size(); ++i) {
    if (a.axes[oa[i]].extent != b.axes[ob[i]].extent) return false;
    to[ob[i]] = oa[i];
  }
  std::vector<int> ra, rb;
  for (size_t i = 0; i < a.axes.size(); ++i)
    if (std::find(oa.begin(), oa.end(), static_cast<int>(i)) == oa.end()) ra.push_back(static_cast<int>(i));
  for (size_t i = 0; i < b.axes.size(); ++i)
    if (to[i] < 0) rb.push_back(static_cast<int>(i));
  if ((!ra.empty() && !rest_are_columns(a, oa)) || (!rb.empty() && !rest_are_columns(b, ob))) return false;
  if (ra.empty() != rb.empty()) {  // one has columns: the shared axes cannot be columns of the other
    for (int x : ra.empty() ? oa : ob)
      if ((ra.empty() ? a : b).roles[x] == AxisRole::col) return false;
    return true;
  }
  if (ra.size() != rb.size()) return false;
  for (size_t i = 0; i < ra.size(); ++i) {
    if (a.axes[ra[i]].extent != b.axes[rb[i]].extent) return false;
    to[rb[i]] = ra[i];
  }
  return in_order(to);
}

Group merged(const Group& a, const Group& b, std::vector<int> to) {
  Group out = a;
  out.reads = a.reads;
  for (size_t i = 0; i < b.axes.size(); ++i) {
    if (to[i] < 0) to[i] = out.add_axis(b.axes[i].extent, AxisRole::col);
    else if (!out.roles[to[i]]) out.roles[to[i]] = b.roles[i];
    else if (b.roles[i] && b.roles[i] != out.roles[to[i]]) out.fixed = true;  // a clash; consistent() refuses
  }
  std::vector<bool> shared(out.axes.size(), false);
  for (int t : to) shared[t] = true;
  for (size_t i = 0; i < a.axes.size(); ++i)
    if (!shared[i]) out.roles[i] = AxisRole::col;
  const auto move = [&](Access x) {
    each_index(x, [&](Index& y) {
      for (IndexTerm& t : y.terms)
        if (t.axis >= 0) t.axis = to[t.axis];
    });
    return x;
  };
  for (const auto& [v, list] : b.reads)
    for (const Access& x : list) add_unique(out.reads[v], move(x));
  for (Sink k : b.sinks) {
    k.at = move(k.at);
    for (int& x : k.reduced) x = to[x];
    for (int& x : k.kept) x = to[x];
    out.sinks.push_back(std::move(k));
  }
  for (RowReduce r : b.reduces) {
    for (int& x : r.axes) x = to[x];
    out.reduces.push_back(std::move(r));
  }
  return out;
}

/// Roles fit every reduction: rows reduced over are rows, and a reduction takes all columns or none.
bool consistent(const Group& q) {
  if (q.fixed) return false;
  std::set<int> cols;
  for (size_t i = 0; i < q.axes.size(); ++i)
    if (q.roles[i] == AxisRole::col) cols.insert(static_cast<int>(i));
  for (const RowReduce& r : q.reduces)
    if (std::set<int>(r.axes.begin(), r.axes.end()) != cols) return false;
  for (const Sink& k : q.sinks) {
    if (!k.partial) continue;
    size_t reduced_cols = 0;
    for (int a : k.reduced) {
      if (q.roles[a] == AxisRole::batch) return false;
      reduced_cols += cols.count(a);
    }
    if (reduced_cols != 0 && reduced_cols != cols.size()) return false;
    for (int a : k.kept)
      if (q.roles[a] == AxisRole::row || (reduced_cols != 0 && q.roles[a] == AxisRole::col)) return false;
    if (k.reduced.size() + k.kept.size() < q.axes.size() && !rest_in(k, cols, q)) return false;
  }
  return true;
}
void settle_roles(Group& q) {
  const bool has_cols =
      std::any_of(q.roles.begin(), q.roles.end(), [](const auto& r) { return r == AxisRole::col; });
  const bool any = std::any_of(q.roles.begin(), q.roles.end(), [](const auto& r) { return r.has_value(); });
  for (size_t i = 0; i < q.roles.size(); ++i)
    if (!q.roles[i])
      q.roles[i] = !has_cols && !any && i + 1 == q.roles.size() ? AxisRole::col : AxisRole::row;
  for (size_t i = 0; i < q.axes.size(); ++i) q.axes[i].role = *q.roles[i];
}

void order_axes(Group& q) {
  std::vector<int> order;
  for (AxisRole r : {AxisRole::batch, AxisRole::row, AxisRole::col})
    for (size_t i = 0; i < q.axes.size(); ++i)
      if (q.axes[i].role == r) order.push_back(static_cast<int>(i));
  std::vector<int> to(order.size());
  std::vector<loop::Axis> axes;
  for (size_t i = 0; i < order.size(); ++i) {
    to[order[i]] = static_cast<int>(i);
    axes.push_back(q.axes[order[i]]);
  }
  q.axes = std::move(axes);
  for (Sink& s : q.sinks) {
    for (Index& x : s.at.idx)
      for (IndexTerm& t : x.terms) t.axis = to[t.axis];
    for (int& a : s.reduced) a = to[a];
    for (int& a : s.kept) a = to[a];
  }
  for (RowReduce& r : q.reduces)
    for (int& a : r.axes) a = to[a];
}

}  // namespace kiln::detail
