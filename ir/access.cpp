// SPDX-License-Identifier: Apache-2.0
#include "ir/access.h"

#include <algorithm>

namespace kiln {

namespace {

using loop::Axis;
using loop::Bound;
using loop::Index;
using loop::IndexTerm;

std::string index_text(const Index& x) {
  std::string s = x.offset.str();
  std::vector<IndexTerm> terms = x.terms;
  std::sort(terms.begin(), terms.end(), [](const IndexTerm& a, const IndexTerm& b) {
    return a.axis != b.axis ? a.axis < b.axis : a.value < b.value;
  });
  for (const IndexTerm& t : terms)
    s += fmt::format("+{}{}*{}", t.axis >= 0 ? 'a' : 'v', t.axis >= 0 ? t.axis : t.value, t.stride.str());
  return s;
}

/// The least and the most that an index over axes can be, when those are numbers.
std::optional<std::pair<int64_t, int64_t>> range_of(const Index& x, std::span<const Axis> axes) {
  if (!x.offset.is_const()) return std::nullopt;
  std::pair<int64_t, int64_t> r{x.offset.value(), x.offset.value()};
  for (const IndexTerm& t : x.terms) {
    if (t.axis < 0 || !t.stride.is_const() || !axes[t.axis].extent.is_const()) return std::nullopt;
    const int64_t last = t.stride.value() * std::max<int64_t>(axes[t.axis].extent.value() - 1, 0);
    (last < 0 ? r.first : r.second) += last;
  }
  return r;
}

/// Of a dim that is walked backwards.
bool is_negative(const Dim& stride) { return stride.is_const() && stride.value() < 0; }

bool divisible(const Dim& a, const Dim& b) { return b.is(0) ? a.is(0) : mod(a, b).is(0); }

/// x = outer * inner + rest with 0 <= rest < inner, term by term.
bool split_index(const Index& x, const Dim& inner, std::span<const Axis> axes, Index& outer, Index& rest,
                 AxisSplit* split) {
  outer = {}, rest = {};
  for (const IndexTerm& t : x.terms) {
    if (divisible(t.stride, inner)) {
      if (t.axis >= 0) outer.add_axis(t.axis, floordiv(t.stride, inner));
      else outer.add_value(t.value, floordiv(t.stride, inner));
      continue;
    }
    if (t.axis < 0) return false;
    const Dim step = is_negative(t.stride) ? Dim(0) - t.stride : t.stride;
    const Dim span = step * axes[t.axis].extent;
    // A term that crosses the border: its axis can be cut where the border falls.
    if (span != inner && !divisible(inner, span)) {
      if (split && divisible(inner, step) && divisible(axes[t.axis].extent, floordiv(inner, step)))
        *split = {t.axis, floordiv(inner, step)};
      return false;
    }
    rest.add_axis(t.axis, t.stride);
  }
  if (divisible(x.offset, inner)) {
    outer.offset = floordiv(x.offset, inner);
  } else {
    if (!x.offset.is_const() || !inner.is_const() || x.offset.value() < 0) return false;
    outer.offset = floordiv(x.offset, inner);
    rest.offset = mod(x.offset, inner);
  }
  // Distinct axes may still add up past the border, and one that is walked backwards begins below it.
  const bool backwards = std::any_of(rest.terms.begin(), rest.terms.end(),
                                     [](const IndexTerm& t) { return is_negative(t.stride); });
  if (!backwards && rest.terms.size() + (rest.offset.is(0) ? 0 : 1) <= 1) return true;
  const auto range = range_of(rest, axes);
  if (range && inner.is_const()) return range->first >= 0 && range->second < inner.value();
  std::vector<int> order;
  return !backwards && covers(rest, inner, axes, order);
}

/// Element counts instead of indices: for an operand that lies row-major in memory.
Access flat_access(const Shape& shape, const Access& out) {
  return {{linear_index(out, contiguous_dims(shape), Dim(0))}, out.bounds, true};
}

/// Matches runs of dims of equal element count: from the left, the shortest that agree.
std::optional<Access> reshape_access(const Shape& from, const Shape& to, const Access& out,
                                     std::span<const Axis> axes, AxisSplit* split) {
  Access in;
  in.bounds = out.bounds;
  if (out.flat) {
    in.flat = true;
    in.idx = out.idx;
    return in;
  }
  in.idx.resize(from.size());
  const auto blocks = reshape_blocks(from, to);
  if (!blocks) return std::nullopt;
  for (const auto& [i, ie, o, oe] : *blocks) {
    Index merged;
    Dim stride(1);
    for (size_t d = oe; d-- > o;) {
      merged.add(out.idx[d], stride);
      stride = stride * to[d];
    }
    for (size_t d = ie; d-- > i;) {
      if (d == i) {
        in.idx[d] = merged;
        break;
      }
      Index outer, rest;
      if (from[d].is(1)) continue;
      if (!split_index(merged, from[d], axes, outer, rest, split)) {
        if (split && split->axis >= 0) return std::nullopt;
        return flat_access(to, out);
      }
      in.idx[d] = rest;
      merged = outer;
    }
  }
  for (size_t d = 0; d < from.size(); ++d)
    if (from[d].is(1)) in.idx[d] = {};
  return in;
}

const Shape& dims_attr(const Node& n, size_t i) { return std::get<Shape>(n.attrs[i]); }
const std::vector<int64_t>& ints_attr(const Node& n, size_t i) {
  return std::get<std::vector<int64_t>>(n.attrs[i]);
}

Access pad_access(const Node& n, const Shape& from, const Access& out) {
  Access in;
  in.bounds = out.bounds;
  const Shape &low = dims_attr(n, 0), &high = dims_attr(n, 1);
  for (size_t d = 0; d < from.size(); ++d) {
    Index x = out.idx[d];
    x.offset = x.offset - low[d];
    if (!low[d].is(0) || !high[d].is(0)) in.bounds.push_back({x, from[d]});
    in.idx.push_back(std::move(x));
  }
  return in;
}

Access cat_access(const Graph& g, const Node& n, int operand, const Access& out) {
  const auto dim = static_cast<size_t>(std::get<int64_t>(n.attrs[0]));
  Access in = out;
  for (int i = 0; i < operand; ++i) in.idx[dim].offset = in.idx[dim].offset - g.type(n.in[i]).shape[dim];
  in.bounds.push_back({in.idx[dim], g.type(n.in[operand]).shape[dim]});
  return in;
}

Access slice_access(const Node& n, const Access& out) {
  Access in = out;
  for (size_t d = 0; d < in.idx.size(); ++d) {
    Index x;
    x.offset = dims_attr(n, 0)[d];
    x.add(out.idx[d], Dim(ints_attr(n, 2)[d]));
    in.idx[d] = std::move(x);
  }
  return in;
}

Access window_access(const Node& n, const Access& out) {
  const auto dim = static_cast<size_t>(std::get<int64_t>(n.attrs[0]));
  Access in = out;
  Index x;
  x.add(out.idx[dim], Dim(std::get<int64_t>(n.attrs[2])));
  x.add(out.idx[dim + 1], Dim(std::get<int64_t>(n.attrs[3])));
  in.idx[dim] = std::move(x);
  in.idx.erase(in.idx.begin() + static_cast<ptrdiff_t>(dim) + 1);
  return in;
}

Access skew_access(const Node& n, const Shape& from, const Access& out) {
  const auto dim = static_cast<size_t>(std::get<int64_t>(n.attrs[0]));
  Access in = out;
  in.idx[dim].add(out.idx[dim + 1], Dim(-std::get<int64_t>(n.attrs[1])));
  in.bounds.push_back({in.idx[dim], from[dim]});
  return in;
}

}  // namespace

std::string Access::str() const {
  std::string s = flat ? "flat" : "";
  for (const Index& x : idx) s += index_text(x) + ";";
  for (const Bound& b : bounds) s += fmt::format("|{}<{}", index_text(b.index), b.extent.str());
  return s;
}

std::optional<Access> through_view(const Graph& g, const Node& n, int operand, const Access& out,
                                   std::span<const Axis> axes, AxisSplit* split) {
  const Shape &from = g.type(n.in[operand]).shape, &to = g.type(n.out).shape;
  if (n.op == op("reshape")) return reshape_access(from, to, out, axes, split);
  if (out.flat) return std::nullopt;
  if (n.op == op("slice")) return slice_access(n, out);
  if (n.op == op("cat")) return cat_access(g, n, operand, out);
  if (n.op == op("window")) return window_access(n, out);
  if (n.op == op("skew")) return skew_access(n, from, out);
  if (n.op == op("pad")) {
    for (int64_t i : ints_attr(n, 2))
      if (i != 0) return std::nullopt;
    return pad_access(n, from, out);
  }
  Access in;
  in.bounds = out.bounds;
  if (n.op == op("expand")) {
    const size_t lead = to.size() - from.size();
    for (size_t d = 0; d < from.size(); ++d) in.idx.push_back(from[d].is(1) ? Index() : out.idx[lead + d]);
    return in;
  }
  if (n.op == op("permute")) {
    in.idx.resize(from.size());
    for (size_t d = 0; d < to.size(); ++d) in.idx[ints_attr(n, 0)[d]] = out.idx[d];
    return in;
  }
  if (n.op == op("flip")) {
    in = out;
    for (int64_t d : ints_attr(n, 0)) {
      Index x;
      x.offset = from[d] - Dim(1);
      x.add(out.idx[d], Dim(-1));
      in.idx[d] = std::move(x);
    }
    return in;
  }
  throw Error(ErrorKind::unsupported,
              fmt::format("{}{}: no kernel reads through this view", def(n.op).name,
                          n.origin.loc.known() ? " (" + n.origin.loc.str() + ")" : ""));
}

std::vector<Dim> contiguous_dims(const Shape& shape) {
  std::vector<Dim> s(shape.size(), Dim(1));
  for (size_t d = shape.size(); d-- > 1;) s[d - 1] = s[d] * shape[d];
  return s;
}

Index linear_index(const Access& a, const std::vector<Dim>& strides, const Dim& offset) {
  Index x;
  x.offset = offset;
  if (a.flat) x.add(a.idx[0], Dim(1));
  else
    for (size_t d = 0; d < a.idx.size(); ++d) x.add(a.idx[d], strides[d]);
  return x;
}

bool covers(const Index& x, const Dim& extent, std::span<const Axis> axes, std::vector<int>& order) {
  if (!x.offset.is(0)) return false;
  std::vector<IndexTerm> left = x.terms;
  std::vector<int> inner_first;
  Dim stride(1);
  while (!left.empty()) {
    const auto at = std::find_if(left.begin(), left.end(),
                                 [&](const IndexTerm& t) { return t.axis >= 0 && t.stride == stride; });
    if (at == left.end()) return false;
    stride = stride * axes[at->axis].extent;
    inner_first.push_back(at->axis);
    left.erase(at);
  }
  if (stride != extent) return false;
  order.insert(order.end(), inner_first.rbegin(), inner_first.rend());
  return true;
}

std::optional<std::vector<ReshapeBlock>> reshape_blocks(const Shape& from, const Shape& to) {
  std::vector<ReshapeBlock> blocks;
  size_t i = 0, o = 0;
  while (i < from.size() || o < to.size()) {
    size_t ie = i, oe = o;
    Dim a(1), b(1);
    if (ie < from.size()) a = from[ie++];
    if (oe < to.size()) b = to[oe++];
    // Grow the side that divides the other; with sizes that do not compare, take everything.
    while (a != b) {
      const bool grow_in = ie < from.size() && (oe == to.size() || divisible(b, a));
      if (grow_in) a = a * from[ie++];
      else if (oe < to.size()) b = b * to[oe++];
      else if (ie < from.size()) a = a * from[ie++];
      else return std::nullopt;
    }
    blocks.push_back({i, ie, o, oe});
    i = ie, o = oe;
  }
  return blocks;
}

std::vector<int64_t> free_dims(const Graph& g, const Node& n, size_t operand) {
  const std::vector<int64_t>&batch = ints_attr(n, operand), &contracted = ints_attr(n, 2 + operand);
  std::vector<int64_t> out;
  for (int64_t d = 0; d < g.type(n.in[operand]).rank(); ++d)
    if (!std::count(batch.begin(), batch.end(), d) && !std::count(contracted.begin(), contracted.end(), d))
      out.push_back(d);
  return out;
}

Runs merge_runs(const Shape& shape, const std::vector<Dim>& strides, const std::vector<int64_t>& dims) {
  Runs r;
  for (const int64_t d : dims) {
    if (shape[d].is(1)) continue;
    if (!r.sizes.empty() && r.strides.back() == strides[d] * shape[d]) {
      r.sizes.back() = r.sizes.back() * shape[d];
      r.strides.back() = strides[d];
    } else {
      r.sizes.push_back(shape[d]);
      r.strides.push_back(strides[d]);
    }
  }
  return r;
}

}  // namespace kiln
