// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/unwindow.h"

#include <algorithm>

#include "ir/access.h"

namespace kiln::detail {

namespace {

using Ints = std::vector<int64_t>;

const Ints& ints(const Attrs& a, size_t i) { return std::get<Ints>(a[i]); }
const Shape& dims(const Attrs& a, size_t i) { return std::get<Shape>(a[i]); }
/// `dims` as they are numbered when dim `at` is gone.
int64_t without(int64_t d, size_t at) { return d - (d > static_cast<int64_t>(at)); }

/// The dim of `from` that dim `d` of `to` is, if the reshape leaves it alone.
std::optional<size_t> same_dim(const Shape& from, const Shape& to, size_t d) {
  const auto blocks = reshape_blocks(from, to);
  if (!blocks) return std::nullopt;
  for (const ReshapeBlock& b : *blocks) {
    if (d < b.to || d >= b.to_end) continue;
    std::optional<size_t> one;
    for (size_t f = b.from; f < b.from_end; ++f) {
      if (from[f].is(1)) continue;
      if (one) return std::nullopt;
      one = f;
    }
    for (size_t t = b.to; t < b.to_end; ++t)
      if (t != d && !to[t].is(1)) return std::nullopt;
    return one && from[*one] == to[d] ? one : std::nullopt;
  }
  return std::nullopt;
}

/// A contraction, with where dims of its result come from.
struct Contraction {
  Value in[2];
  Ints batch[2], contract[2], free[2];

  Contraction(Builder& b, const Made& m) {
    for (size_t o = 0; o < 2; ++o) {
      in[o] = m.in[o];
      batch[o] = ints(m.attrs, o);
      contract[o] = ints(m.attrs, 2 + o);
      for (int64_t d = 0; d < b.type(in[o]).rank(); ++d)
        if (!std::count(batch[o].begin(), batch[o].end(), d) &&
            !std::count(contract[o].begin(), contract[o].end(), d))
          free[o].push_back(d);
    }
  }
  /// The operand of whose free dims dim `d` of the result is one, and that dim; -1: a batch dim.
  std::pair<int, size_t> source(size_t d) const {
    for (int o = 0; o < 2; ++o) {
      const size_t begin = batch[0].size() + (o ? free[0].size() : 0);
      if (d >= begin && d < begin + free[o].size()) return {o, static_cast<size_t>(free[o][d - begin])};
    }
    return {-1, 0};
  }
};

/// Elements [from, from + size) of a dim, as a view of `x`.
Value cut(Builder& b, Value x, size_t dim, int64_t from, int64_t size) {
  const Shape shape = b.type(x).shape;
  if (from == 0 && shape[dim].is(size)) return x;
  const std::optional<Made> m = b.made(x);
  if (m && m->op == op("window")) {  // windows of a part are a part of the windows
    const auto at = static_cast<size_t>(std::get<int64_t>(m->attrs[0]));
    const int64_t places = std::get<int64_t>(m->attrs[1]), step = std::get<int64_t>(m->attrs[2]),
                  dilation = std::get<int64_t>(m->attrs[3]);
    if (dim != at + 1) {
      const bool own = dim == at;
      const Value part = cut(b, m->in[0], dim > at ? dim - 1 : dim, own ? from * step : from,
                             own ? (size - 1) * step + (places - 1) * dilation + 1 : size);
      return b.emit(op("window"), {part}, m->attrs);
    }
  }
  Shape low(shape.size(), Dim(0)), stop = shape;
  low[dim] = from;
  stop[dim] = from + size;
  if (m && m->op == op("slice") && ints(m->attrs, 2)[dim] == 1 && dims(m->attrs, 0)[dim].is_const()) {
    low = dims(m->attrs, 0);  // one slice of what both are parts of
    stop = dims(m->attrs, 1);
    low[dim] = low[dim] + Dim(from);
    stop[dim] = low[dim] + Dim(size);
    return b.emit(op("slice"), {m->in[0]}, {low, stop, m->attrs[2]});
  }
  return b.emit(op("slice"), {x}, {low, stop, Ints(shape.size(), 1)});
}

/// `x` with zeros before and behind a dim. They go below views that leave the dim alone, so that one padded
/// tensor serves windows of several dims, and all phases of a step.
Value padded(Builder& b, Value x, size_t dim, int64_t low, int64_t high) {
  if (low == 0 && high == 0) return x;
  const Shape shape = b.type(x).shape;
  const std::optional<Made> m = b.made(x);
  if (m && m->op == op("window")) {
    const auto at = static_cast<size_t>(std::get<int64_t>(m->attrs[0]));
    if (dim < at || dim > at + 1)
      return b.emit(op("window"), {padded(b, m->in[0], dim > at ? dim - 1 : dim, low, high)}, m->attrs);
  }
  if (m && m->op == op("slice") && dims(m->attrs, 0)[dim].is(0) && ints(m->attrs, 2)[dim] == 1 &&
      dims(m->attrs, 1)[dim] == b.type(m->in[0]).shape[dim]) {
    Shape stop = dims(m->attrs, 1);
    stop[dim] = stop[dim] + Dim(low + high);
    return b.emit(op("slice"), {padded(b, m->in[0], dim, low, high)}, {m->attrs[0], stop, m->attrs[2]});
  }
  Shape before(shape.size(), Dim(0)), behind = before;
  Ints gaps(shape.size(), 0);
  if (m && m->op == op("pad") && std::get<double>(m->attrs[3]) == 0 && ints(m->attrs, 2) == gaps) {
    x = m->in[0];
    before = dims(m->attrs, 0);
    behind = dims(m->attrs, 1);
  }
  before[dim] = before[dim] + Dim(low);
  behind[dim] = behind[dim] + Dim(high);
  return b.emit(op("pad"), {x}, {before, behind, gaps, 0.0});
}

/// Which windows are added up: element t is the sum over a of [t - by * a, first + stride * a], t in [0,
/// size).
struct Sum {
  int64_t by, size;
  int64_t first, stride;   ///< of places
  int64_t before, behind;  ///< zeros that all sums of this kind need around the windows
};

/// The sums where `v` is made of a contraction; dims `w` of windows and `k` of places.
Value summed(Builder& b, Value v, size_t w, size_t k, const Sum& s);

Value contracted(Builder& b, const Made& m, size_t w, size_t k, const Sum& s) {
  constexpr int64_t kLeastColumns = 16;
  const Contraction c(b, m);
  const auto [of_w, xw] = c.source(w);
  const auto [of_k, yk] = c.source(k);
  if (of_w < 0 || of_k < 0 || of_w == of_k) return {};
  const Shape &xs = b.type(c.in[of_w]).shape, ys = b.type(c.in[of_k]).shape;
  int64_t columns = 1;
  for (const int64_t d : c.free[of_k]) {
    if (!ys[static_cast<size_t>(d)].is_const()) return {};
    if (static_cast<size_t>(d) != yk) columns *= ys[static_cast<size_t>(d)].value();
  }
  if (columns < kLeastColumns || !xs[xw].is_const()) return {};
  const int64_t places = (ys[yk].value() - s.first + s.stride - 1) / s.stride, span = s.by * (places - 1);
  const Value all = padded(b, c.in[of_w], xw, s.before, s.behind);
  const Value x = b.emit(op("window"), {cut(b, all, xw, s.before - span, s.size + span)},
                         {static_cast<int64_t>(xw), places, int64_t{1}, s.by});
  Value y = c.in[of_k];
  if (s.stride > 1) {
    Shape low(ys.size(), Dim(0));
    Ints steps(ys.size(), 1);
    low[yk] = s.first;
    steps[yk] = s.stride;
    y = b.emit(op("slice"), {y}, {low, ys, steps});
  }
  y = b.emit(op("flip"), {y}, {Ints{static_cast<int64_t>(yk)}});
  Ints batch[2] = {c.batch[0], c.batch[1]}, contract[2] = {c.contract[0], c.contract[1]};
  for (Ints* list : {&batch[of_w], &contract[of_w]})
    for (int64_t& d : *list) d += d > static_cast<int64_t>(xw);
  contract[of_w].push_back(static_cast<int64_t>(xw) + 1);
  contract[of_k].push_back(static_cast<int64_t>(yk));
  Value in[2];
  in[of_w] = x;
  in[of_k] = y;
  return b.emit(op("dot_general"), {in[0], in[1]}, {batch[0], batch[1], contract[0], contract[1]});
}

Value summed(Builder& b, Value v, size_t w, size_t k, const Sum& s) {
  const std::optional<Made> m = b.made(v);
  if (!m) return {};
  if (m->op == op("dot_general")) return contracted(b, *m, w, k, s);
  if (m->op == op("permute")) {
    const Ints& of = ints(m->attrs, 0);
    const auto gone = static_cast<size_t>(of[k]);
    const Value r = summed(b, m->in[0], static_cast<size_t>(of[w]), gone, s);
    if (!r.valid()) return {};
    Ints now;
    for (size_t d = 0; d < of.size(); ++d)
      if (d != k) now.push_back(without(of[d], gone));
    return b.permute(r, now);
  }
  Shape shape = b.type(v).shape;
  shape[w] = s.size;
  shape.erase(shape.begin() + static_cast<ptrdiff_t>(k));
  if (m->op == op("reshape")) {
    const Shape from = b.type(m->in[0]).shape, to = b.type(v).shape;
    const auto from_w = same_dim(from, to, w), from_k = same_dim(from, to, k);
    if (!from_w || !from_k) return {};
    const Value r = summed(b, m->in[0], *from_w, *from_k, s);
    return r.valid() ? b.reshape(r, shape) : r;
  }
  if (m->op == op("cat")) {
    const int64_t dim = std::get<int64_t>(m->attrs[0]);
    if (dim == static_cast<int64_t>(w) || dim == static_cast<int64_t>(k)) return {};
    std::vector<Value> parts;
    for (const Value in : m->in) {
      parts.push_back(summed(b, in, w, k, s));
      if (!parts.back().valid()) return {};
    }
    return b.emit(op("cat"), parts, {without(dim, k)});
  }
  return {};
}

/// Of parts that lie side by side, each a phase of `step`: element t * step + r of a dim is [t] of part r.
Value interleaved(Builder& b, const std::vector<Value>& parts, size_t dim, int64_t size) {
  std::vector<Value> wide;
  Shape shape = b.type(parts[0]).shape;
  shape.insert(shape.begin() + static_cast<ptrdiff_t>(dim) + 1, Dim(1));
  for (const Value p : parts) wide.push_back(b.reshape(p, shape));
  const Value all = b.emit(op("cat"), wide, {static_cast<int64_t>(dim) + 1});
  shape.erase(shape.begin() + static_cast<ptrdiff_t>(dim) + 1);
  shape[dim] = shape[dim] * Dim(static_cast<int64_t>(parts.size()));
  const Value flat = b.reshape(all, shape);
  return cut(b, flat, dim, 0, size);
}

}  // namespace

Value unwindowed(Builder& b, Value g, size_t dim, int64_t step, int64_t dilation, const Dim& n) {
  const Shape shape = b.type(g).shape;
  const size_t k = dim + 1;
  if (!n.is_const() || !shape[dim].is_const() || !shape[k].is_const()) return {};
  const int64_t size = n.value(), windows = shape[dim].value(), places = shape[k].value();
  if (size == 0 || windows == 0 || places < 2) return {};
  if (step == 1) {
    const int64_t span = dilation * (places - 1);
    return summed(b, g, dim, k, {dilation, size, 0, 1, span, std::max<int64_t>(0, size - windows)});
  }
  if (dilation != 1 || places <= step) return {};  // windows that lie side by side are not added up
  // Place k = step a + r of window i is element step (i + a) + r: phase r sums over a alone.
  const int64_t each = (size + step - 1) / step, most = (places + step - 1) / step;
  std::vector<Value> phases;
  for (int64_t r = 0; r < step; ++r) {
    phases.push_back(
        summed(b, g, dim, k, {1, each, r, step, most - 1, std::max<int64_t>(0, each - windows)}));
    if (!phases.back().valid()) return {};
  }
  return interleaved(b, phases, dim, size);
}

namespace {

/// Of a reshape that makes dim `dim` of a dim and the phases of a cat behind it: the cat's operands.
std::optional<std::vector<Value>> phases_of(Builder& b, const Made& reshape, const Shape& to, size_t dim) {
  const Shape from = b.type(reshape.in[0]).shape;
  const std::optional<Made> cat = b.made(reshape.in[0]);
  if (!cat || cat->op != op("cat") || std::get<int64_t>(cat->attrs[0]) != static_cast<int64_t>(dim) + 1)
    return std::nullopt;
  Shape merged = from;
  if (merged.size() < dim + 2) return std::nullopt;
  merged[dim] = merged[dim] * merged[dim + 1];
  merged.erase(merged.begin() + static_cast<ptrdiff_t>(dim) + 1);
  const bool one_each = from[dim + 1].is(static_cast<int64_t>(cat->in.size()));
  return merged == to && one_each ? std::optional(cat->in) : std::nullopt;
}

/// [low, low + size) of interleaved phases: others, each a part of one of them.
Value narrowed_phases(Builder& b, const std::vector<Value>& phases, size_t dim, int64_t low, int64_t size) {
  const auto step = static_cast<int64_t>(phases.size());
  const int64_t each = (size + step - 1) / step;
  std::vector<Value> now;
  for (int64_t r = 0; r < step; ++r) {
    const Value phase = phases[static_cast<size_t>((low + r) % step)];
    const int64_t from = (low + r) / step;
    if (from + each > b.type(phase).shape[dim].value()) return {};
    now.push_back(narrowed(b, phase, dim, from, each));
    if (!now.back().valid()) return {};
    Shape flat = b.type(now.back()).shape;
    flat.erase(flat.begin() + static_cast<ptrdiff_t>(dim) + 1);
    now.back() = b.reshape(now.back(), flat);
  }
  return interleaved(b, now, dim, size);
}

}  // namespace

Value narrowed(Builder& b, Value x, size_t dim, int64_t low, int64_t size) {
  const std::optional<Made> m = b.made(x);
  Shape shape = b.type(x).shape;
  if (!m || !shape[dim].is_const() || size <= 0) return {};
  if (low == 0 && shape[dim].is(size)) return x;
  if (m->op == op("dot_general")) {
    const Contraction c(b, *m);
    const auto [of, from] = c.source(dim);
    if (of < 0) return {};
    Value in[2] = {c.in[0], c.in[1]};
    in[of] = cut(b, in[of], from, low, size);
    return b.emit(op("dot_general"), {in[0], in[1]}, m->attrs);
  }
  if (m->op == op("permute")) {
    const Value r = narrowed(b, m->in[0], static_cast<size_t>(ints(m->attrs, 0)[dim]), low, size);
    return r.valid() ? b.permute(r, ints(m->attrs, 0)) : r;
  }
  if (m->op == op("reshape")) {
    if (const auto phases = phases_of(b, *m, shape, dim)) return narrowed_phases(b, *phases, dim, low, size);
    const auto from = same_dim(b.type(m->in[0]).shape, shape, dim);
    const Value r = from ? narrowed(b, m->in[0], *from, low, size) : Value{};
    shape[dim] = size;
    return r.valid() ? b.reshape(r, shape) : r;
  }
  if (m->op == op("cat") && std::get<int64_t>(m->attrs[0]) != static_cast<int64_t>(dim)) {
    std::vector<Value> parts;
    for (const Value in : m->in) {
      parts.push_back(narrowed(b, in, dim, low, size));
      if (!parts.back().valid()) return {};
    }
    return b.emit(op("cat"), parts, m->attrs);
  }
  return {};
}

}  // namespace kiln::detail
