// SPDX-License-Identifier: Apache-2.0
#include "ir/tile_scores.h"

#include <algorithm>

#include "ir/access.h"

namespace kiln::detail {

namespace {

using Ints = std::vector<int64_t>;

const Ints& ints(const Node& n, size_t attr) { return std::get<Ints>(n.attrs[attr]); }
bool holds(const Ints& list, size_t d) {
  return std::find(list.begin(), list.end(), static_cast<int64_t>(d)) != list.end();
}
bool holds(const Axes& axes, int axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); }

/// Axes of a reshape's result, which may have gained or lost dims of 1 only.
std::optional<Axes> through_reshape(const Axes& from, const Shape& a, const Shape& b) {
  Axes to;
  size_t i = 0;
  for (const Dim& d : b) {
    while (i < a.size() && a[i].is(1) && !d.is(1)) ++i;
    const bool own = i < a.size() && a[i] == d;
    if (!own && !d.is(1)) return {};
    to.push_back(own ? from[i++] : -1);
  }
  while (i < a.size() && a[i].is(1)) ++i;
  return i == a.size() ? std::optional(to) : std::nullopt;
}

/// Whether the products are a matrix of that many bytes, more than what they are made of, and few enough each
/// that making them again costs no more than keeping them.
bool is_large(const Graph& g, const Node& n, int64_t least_bytes) {
  constexpr int64_t kMostProducts = 256;
  if (n.op != op("dot_general") || !is_floating(g.type(n.out).dtype)) return false;
  const Dim all = numel(g.type(n.out).shape), a = numel(g.type(n.in[0]).shape),
            b = numel(g.type(n.in[1]).shape);
  if (!all.is_const() || !a.is_const() || !b.is_const()) return false;
  if (free_dims(g, n, 0).size() != 1 || free_dims(g, n, 1).size() != 1) return false;
  int64_t products = 1;
  for (const int64_t d : ints(n, 2)) products *= g.type(n.in[0]).shape[static_cast<size_t>(d)].value();
  return products <= kMostProducts && all.value() > a.value() + b.value() &&
         all.value() * static_cast<int64_t>(dtype_size(g.type(n.out).dtype)) >= least_bytes;
}

}  // namespace

Users::Users(const Graph& g)
    : of(static_cast<size_t>(g.value_count())), live(static_cast<size_t>(g.value_count()), false) {
  for (const GraphOutput& o : g.outputs) {
    outputs.insert(o.value.id);
    live[static_cast<size_t>(o.value.id)] = true;
  }
  for (size_t i = g.nodes.size(); i-- > 0;) {
    const Node& n = g.nodes[i];
    if (!live[static_cast<size_t>(n.out.id)] && def(n.op).kind != OpKind::effect) continue;
    for (const Value v : n.in) {
      live[static_cast<size_t>(v.id)] = true;
      of[static_cast<size_t>(v.id)].push_back(static_cast<int>(i));
    }
  }
}

Scores::Scores(const Graph& g, const Users& users, int seed) : g_(g), users_(users) {
  const Node& n = g.nodes[static_cast<size_t>(seed)];
  const Shape& shape = g.type(n.out).shape;
  rows_ = static_cast<int>(shape.size()) - 2;
  columns_ = rows_ + 1;
  extents = shape;
  Axes axes;
  for (size_t d = 0; d < shape.size(); ++d) axes.push_back(static_cast<int>(d));
  assign(n.out, axes);
  while (!todo_.empty() && !failed_) {
    const int v = todo_.back();
    todo_.pop_back();
    look_back(v);
    if (hot.count(v)) look_on(v);
  }
  if (!failed_) prune();
}

bool Scores::found() const {
  const auto in_one_piece = [&](int n) {
    const Value v = g_.nodes[static_cast<size_t>(n)].out;
    return !hot.count(v.id) || is_square(v.id) || odd.count(n) || lies_in_one_piece(v);
  };
  const auto has_known_sizes = [&](const auto& value) {
    const Shape& s = g_.type(Value{value.first}).shape;
    return std::all_of(s.begin(), s.end(), [](const Dim& d) { return d.is_const(); });
  };
  return !failed_ && !sinks.empty() && can_sum_rows() &&
         std::all_of(nodes.begin(), nodes.end(), in_one_piece) &&
         std::all_of(axes.begin(), axes.end(), has_known_sizes);
}

bool Scores::is(int v, int axis) const {
  const auto at = axes.find(v);
  return at != axes.end() && holds(at->second, axis);
}

/// Sums over rows are made one tile after the other: only batch elements can go side by side.
bool Scores::can_sum_rows() const {
  constexpr int64_t kLeastTasks = 4;
  return std::all_of(sinks.begin(), sinks.end(), [&](int n) {
    return is(node(n).out.id, rows_) ||
           numel({extents.begin(), extents.begin() + rows_}).value() >= kLeastTasks;
  });
}

/// Whether what a tile makes of it is one piece of memory: batch dims first, then the rows, then the rest.
bool Scores::lies_in_one_piece(Value v) const {
  const Axes& of = axes.at(v.id);
  int cut = 0;  // 1: the rows have been seen, 2: others
  for (size_t d = 0; d < of.size(); ++d) {
    if (g_.type(v).shape[d].is(1)) continue;
    const int kind = of[d] < 0 || of[d] == columns_ ? 2 : of[d] == rows_ ? 1 : 0;
    if (kind < 2 && kind < cut + (kind == 1 && cut == 1)) return false;
    cut = std::max(cut, kind);
  }
  return true;
}

void Scores::assign(Value v, Axes a) {
  for (size_t d = 0; d < a.size(); ++d)
    if (a[d] >= 0 && g_.type(v).shape[d] != extents[static_cast<size_t>(a[d])]) a[d] = -1;
  const auto [at, fresh] = axes.try_emplace(v.id, a);
  if (fresh) todo_.push_back(v.id);
  else if (at->second != a) failed_ = true;
}
void Scores::heat(Value v) {
  if (hot.insert(v.id).second) todo_.push_back(v.id);
}

// --- how a value of the matrix's space is made ---

void Scores::look_back(int v) {
  const int at = g_.producer(Value{v});
  if (at < 0 || nodes.count(at)) return;
  const Node& n = g_.nodes[static_cast<size_t>(at)];
  if (!is_square(v) && !n.in.empty()) return;
  const Axes out = axes.at(v);
  if (def(n.op).kind == OpKind::elementwise) {
    for (const Value in : n.in) assign(in, g_.type(in).shape.empty() ? Axes() : out);
  } else if (n.op == op("expand")) {
    assign_operand_of_expand(n, out);
  } else if (n.op == op("permute")) {
    Axes in(out.size());
    for (size_t d = 0; d < out.size(); ++d) in[static_cast<size_t>(ints(n, 0)[d])] = out[d];
    assign(n.in[0], in);
  } else if (n.op == op("reshape")) {
    const auto in = through_reshape(out, g_.type(n.out).shape, g_.type(n.in[0]).shape);
    if (!in) return;
    assign(n.in[0], *in);
  } else if (n.op == op("dot_general")) {
    if (!assign_factors(n, out)) return;
    heat(n.out);
  } else {
    return;
  }
  nodes.insert(at);
  for (const Value in : n.in)
    if (hot.count(in.id)) heat(n.out);
}

void Scores::assign_operand_of_expand(const Node& n, const Axes& out) {
  const Shape &from = g_.type(n.in[0]).shape, &to = g_.type(n.out).shape;
  const size_t lead = to.size() - from.size();
  Axes in;
  for (size_t d = 0; d < from.size(); ++d) in.push_back(from[d] == to[lead + d] ? out[lead + d] : -1);
  assign(n.in[0], in);
}

/// A contraction whose result is in the matrix's space: one free dim of each operand, rows and columns.
bool Scores::assign_factors(const Node& n, const Axes& out) {
  const size_t batch = ints(n, 0).size();
  size_t next = batch;
  for (size_t i = 0; i < 2; ++i) {
    const Ints free = free_dims(g_, n, i);
    if (free.size() != 1) return false;
    Axes in(g_.type(n.in[i]).shape.size(), -1);
    for (size_t b = 0; b < batch; ++b) in[static_cast<size_t>(ints(n, i)[b])] = out[b];
    in[static_cast<size_t>(free[0])] = out[next++];
    assign(n.in[i], in);
  }
  return true;
}

// --- what becomes of a value ---

void Scores::look_on(int v) {
  if (is_square(v) && users_.outputs.count(v)) failed_ = true;
  for (const int at : users_.of[static_cast<size_t>(v)]) {
    if (!take(at, v) && is_square(v)) failed_ = true;
  }
}

/// Whether the use belongs to the matrix.
bool Scores::take(int at, int v) {
  const Node& n = node(at);
  const Axes own = axes.at(v);
  if (n.op == op("dot_general")) return take_up(at, v);
  if (def(n.op).kind == OpKind::elementwise) {
    assign(n.out, own);
    for (const Value in : n.in) assign(in, own);
  } else if (def(n.op).kind == OpKind::reduce) {
    return is_square(v) && take_reduction(at, own);
  } else if (n.op == op("permute")) {
    Axes out;
    for (const int64_t d : ints(n, 0)) out.push_back(own[static_cast<size_t>(d)]);
    assign(n.out, out);
  } else if (n.op == op("reshape")) {
    const auto out = through_reshape(own, g_.type(n.in[0]).shape, g_.type(n.out).shape);
    if (!out) return false;
    assign(n.out, *out);
  } else if (n.op == op("expand")) {
    if (is_square(v)) return false;
    if (!axes.count(n.out.id)) return false;  // what reads it knows its axes
  } else {
    return false;
  }
  nodes.insert(at);
  heat(n.out);
  return true;
}

/// A reduction over the columns, which leaves a number for each row, or over other dims, too.
bool Scores::take_reduction(int at, const Axes& own) {
  const Node& n = node(at);
  if (def(n.op).body.empty()) return false;
  Axes out;
  for (size_t d = 0; d < own.size(); ++d) {
    const bool gone = holds(ints(n, 0), d);
    if (!gone && own[d] == columns_) return false;
    if (gone && own[d] >= 0 && own[d] != columns_) odd[at] = -1;
    if (!gone) out.push_back(own[d]);
  }
  if (odd.count(at)) {
    odd[at] = std::find(own.begin(), own.end(), columns_) - own.begin();
    return true;
  }
  assign(n.out, out);
  nodes.insert(at);
  heat(n.out);
  return true;
}

/// A contraction over the columns, whose rows are then the matrix's, or over the rows.
bool Scores::take_up(int at, int v) {
  const Node& n = node(at);
  if (nodes.count(at) && hot.count(n.out.id) && is_square(n.out.id)) return true;  // a factor
  if (!is_square(v)) return false;
  const size_t i = n.in[0].id == v ? 0 : 1;
  if (n.in[0] == n.in[1]) return false;
  const Axes own = axes.at(v);
  const auto axis = [&](int64_t d) { return own[static_cast<size_t>(d)]; };
  Axes other(g_.type(n.in[1 - i]).shape.size(), -1), out;
  for (size_t b = 0; b < ints(n, i).size(); ++b) {
    const int a = axis(ints(n, i)[b]);
    if (a == rows_ || a == columns_) return false;
    other[static_cast<size_t>(ints(n, 1 - i)[b])] = a;
    out.push_back(a);
  }
  bool sums_columns = false, sums_rows = false;
  for (size_t k = 0; k < ints(n, 2 + i).size(); ++k) {
    const int a = axis(ints(n, 2 + i)[k]);
    if (a >= 0 && a < rows_) return false;
    sums_rows = sums_rows || a == rows_;
    sums_columns = sums_columns || a == columns_;
    other[static_cast<size_t>(ints(n, 3 - i)[k])] = a;
  }
  if (sums_rows == sums_columns) return false;
  for (size_t side = 0; side < 2; ++side)
    for (const int64_t d : free_dims(g_, n, side)) out.push_back(side == i ? axis(d) : -1);
  assign(n.in[1 - i], other);
  if (out.back() == columns_ && out[out.size() - 2] < 0) odd[at] = kColumnsLast;
  else if (sums_rows && dtype_size(g_.type(n.out).dtype) < 4) odd[at] = kHalves;
  axes[n.out.id] = out;
  sinks.insert(at);
  nodes.insert(at);
  hot.insert(n.out.id);
  return true;
}

/// Leaves what is computed of rows alone to others, unless the matrix's space needs it.
void Scores::prune() {
  std::set<int> kept;
  for (auto at = nodes.rbegin(); at != nodes.rend(); ++at) {
    const Node& n = node(*at);
    const std::vector<int>& users = users_.of[static_cast<size_t>(n.out.id)];
    const auto square = [&](Value x) { return is_square(x.id); };
    const bool needed = sinks.count(*at) || square(n.out) || std::any_of(n.in.begin(), n.in.end(), square) ||
                        std::any_of(users.begin(), users.end(), [&](int u) { return kept.count(u) > 0; });
    if (needed) kept.insert(*at);
    else hot.erase(n.out.id);
  }
  nodes = std::move(kept);
}

std::vector<Scores> find_scores(const Graph& g, int64_t least_bytes) {
  const Users users(g);
  std::vector<Scores> all;
  std::set<int> taken;
  for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) {
    const Node& n = g.nodes[static_cast<size_t>(i)];
    if (taken.count(i) || !users.live[static_cast<size_t>(n.out.id)] || !is_large(g, n, least_bytes))
      continue;
    Scores s(g, users, i);
    const bool apart = std::none_of(s.nodes.begin(), s.nodes.end(), [&](int x) {
      return taken.count(x) && s.hot.count(g.nodes[static_cast<size_t>(x)].out.id);
    });
    if (!s.found() || !apart) continue;
    taken.insert(s.nodes.begin(), s.nodes.end());
    all.push_back(std::move(s));
  }
  return all;
}

}  // namespace kiln::detail
