// SPDX-License-Identifier: Apache-2.0
#include "ir/footprint.h"

#include <algorithm>
#include <optional>

namespace kiln {

namespace {

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }
int64_t ceil_of(int64_t a, int64_t b) { return -floor_div(-a, b); }

struct Level {
  int64_t stride, extent;
};

/// A set of places, each of which is one string of digits: offset + sum of stride * digit, digit < extent.
/// Strides ascend, and each is beyond the sum of what the levels below reach.
class Grid {
 public:
  /// Nothing when the sizes are symbols or the places are not known.
  static std::optional<Grid> of(const Reach& r) {
    if (r.kind != Reach::Kind::grid || !r.offset.is_const()) return std::nullopt;
    Grid g;
    g.first_ = r.offset.value();
    std::vector<Level> terms;
    for (const Reach::Term& t : r.terms) {
      if (!t.stride.is_const() || !t.extent.is_const()) return std::nullopt;
      Level l{t.stride.value(), t.extent.value()};
      g.empty_ |= l.extent <= 0;
      if (l.stride == 0 || l.extent <= 1) continue;
      if (l.stride < 0) {
        g.first_ += l.stride * (l.extent - 1);
        l.stride = -l.stride;
      }
      terms.push_back(l);
    }
    std::sort(terms.begin(), terms.end(), [](const Level& a, const Level& b) { return a.stride < b.stride; });
    for (const Level& l : terms) g.add(l);
    return g;
  }

  int64_t count() const {
    int64_t n = empty_ ? 0 : 1;
    for (const Level& l : levels_) n *= l.extent;
    return n;
  }
  /// Places in both; no fewer than there are.
  friend int64_t common(const Grid& a, const Grid& b) {
    if (a.empty_ || b.empty_ || a.last() < b.first_ || b.last() < a.first_) return 0;
    std::vector<int64_t> strides;
    for (const Grid* g : {&a, &b})
      for (const Level& l : g->levels_) strides.push_back(l.stride);
    std::sort(strides.begin(), strides.end());
    strides.erase(std::unique(strides.begin(), strides.end()), strides.end());
    const auto x = a.digits(strides), y = b.digits(strides);
    if (!x || !y) return std::min(a.count(), b.count());
    return pairs(strides, *x, *y, strides.size(), b.first_ - a.first_);
  }

 private:
  void add(const Level& l) {
    if (l.stride > last() - first_) {
      if (!levels_.empty() && levels_.back().stride * levels_.back().extent == l.stride)
        levels_.back().extent *= l.extent;
      else levels_.push_back(l);
      return;
    }
    // Windows that overlap: each further one adds its steps. A step that is no multiple is left out.
    Level& top = levels_.back();
    if (l.stride % top.stride == 0) top.extent += l.stride / top.stride * (l.extent - 1);
  }
  int64_t last() const {
    int64_t at = first_;
    for (const Level& l : levels_) at += l.stride * (l.extent - 1);
    return at;
  }
  /// Extents by `strides`, which hold all of this grid's; nothing where a level cannot be cut at one of them.
  std::optional<std::vector<int64_t>> digits(const std::vector<int64_t>& strides) const {
    std::vector<int64_t> out(strides.size(), 1);
    for (const Level& l : levels_) {
      int64_t left = l.extent;
      auto at =
          static_cast<size_t>(std::lower_bound(strides.begin(), strides.end(), l.stride) - strides.begin());
      for (; at + 1 < strides.size() && strides[at + 1] < strides[at] * left; ++at) {
        const int64_t step = strides[at + 1] / strides[at];
        if (strides[at + 1] % strides[at] != 0 || left % step != 0) return std::nullopt;
        out[at] = step;
        left /= step;
      }
      out[at] = left;
    }
    return out;
  }
  /// Pairs of digit strings over the lowest `levels` strides, of extents x and y, whose places differ by `d`.
  static int64_t pairs(const std::vector<int64_t>& strides, const std::vector<int64_t>& x,
                       const std::vector<int64_t>& y, size_t levels, int64_t d) {
    if (levels == 0) return d == 0 ? 1 : 0;
    const size_t top = levels - 1;
    int64_t below_x = 0, below_y = 0;
    for (size_t i = 0; i < top; ++i) {
      below_x += strides[i] * (x[i] - 1);
      below_y += strides[i] * (y[i] - 1);
    }
    int64_t n = 0;
    for (int64_t k = ceil_of(d - below_x, strides[top]); k <= floor_div(d + below_y, strides[top]); ++k) {
      const int64_t both = std::min(x[top], k + y[top]) - std::max<int64_t>(0, k);
      if (both > 0) n += both * pairs(strides, x, y, top, d - k * strides[top]);
    }
    return n;
  }

  int64_t first_ = 0;
  bool empty_ = false;
  std::vector<Level> levels_;
};

/// What bounds leave of an axis.
struct Range {
  Dim begin, count;
};

/// Cuts the ranges of axes down to where the bound holds; false when it never does. Bounds of several axes,
/// or of unknown sizes, cut nothing.
bool cut(const loop::Bound& b, std::vector<Range>& ranges) {
  const auto& terms = b.index.terms;
  if (!b.index.offset.is_const() || !b.extent.is_const() || terms.size() > 1) return true;
  const int64_t offset = b.index.offset.value(), extent = b.extent.value();
  if (terms.empty()) return offset >= 0 && offset < extent;
  const loop::IndexTerm& t = terms[0];
  if (t.axis < 0 || !t.stride.is_const()) return true;
  Range& r = ranges[static_cast<size_t>(t.axis)];
  if (!r.begin.is_const() || !r.count.is_const()) return true;
  const int64_t stride = t.stride.value();
  const int64_t near = stride > 0 ? -offset : extent - 1 - offset;
  const int64_t far = stride > 0 ? extent - 1 - offset : -offset;
  const int64_t begin = std::max(r.begin.value(), ceil_of(near, stride));
  const int64_t end = std::min(r.begin.value() + r.count.value(), floor_div(far, stride) + 1);
  r = {Dim(begin), Dim(std::max<int64_t>(0, end - begin))};
  return end > begin;
}

/// Nothing when the access is never made.
std::optional<Reach> access_reach(const loop::Kernel& k, const loop::Instr& i) {
  using loop::InstrKind;
  Reach r;
  if (i.kind == InstrKind::partial) {
    r.kind = Reach::Kind::whole;
    return r;
  }
  std::vector<Range> ranges;
  for (const loop::Axis& a : k.axes) ranges.push_back({Dim(0), a.extent});
  for (const loop::Bound& b : i.bounds)
    if (!cut(b, ranges)) return std::nullopt;
  r.offset = i.index.offset;
  uint32_t scattered = 0;
  for (const loop::IndexTerm& t : i.index.terms) {
    if (t.axis < 0) {
      r.kind = Reach::Kind::scattered;
      scattered |= k.body[static_cast<size_t>(t.value)].axes;
      continue;
    }
    const Range& range = ranges[static_cast<size_t>(t.axis)];
    scattered |= 1U << t.axis;
    r.offset = r.offset + t.stride * range.begin;
    r.terms.push_back({t.stride, range.count});
  }
  if (r.kind == Reach::Kind::scattered) {
    r.terms.clear();
    for (size_t a = 0; a < k.axes.size(); ++a)
      if (scattered >> a & 1) r.terms.push_back({Dim(1), ranges[a].count});
  }
  if (i.kind == InstrKind::fold) r.terms.push_back({i.step, i.count});
  return r;
}

}  // namespace

Reach reach_of(const TensorLayout& layout, const Shape& shape) {
  Reach r;
  r.offset = layout.offset;
  for (size_t d = 0; d < shape.size(); ++d) r.terms.push_back({layout.strides[d], shape[d]});
  return r;
}

std::vector<std::vector<Reach>> reaches(const loop::Kernel& k) {
  std::vector<std::vector<Reach>> out(k.params.size());
  for (const loop::Instr& i : k.body) {
    if (i.param < 0) continue;
    if (const auto r = access_reach(k, i)) out[static_cast<size_t>(i.param)].push_back(*r);
  }
  return out;
}

Dim flops(const loop::Kernel& k) {
  using loop::AxisRole, loop::InstrKind;
  const uint32_t cols = k.mask(AxisRole::col), all = cols | k.mask(AxisRole::row) | k.mask(AxisRole::batch);
  Dim sum(0);
  for (const loop::Instr& i : k.body) {
    uint32_t axes = i.axes;
    switch (i.kind) {
      case InstrKind::elementwise:
      case InstrKind::fold: break;
      case InstrKind::reduce: axes = k.body[static_cast<size_t>(i.args[0])].axes | cols; break;
      case InstrKind::partial: axes = i.all_cols || i.by_col ? all : all & ~cols; break;
      default: continue;
    }
    Dim n(static_cast<int64_t>(def(i.op).flops));
    for (size_t a = 0; a < k.axes.size(); ++a)
      if (axes >> a & 1) n = n * k.axes[a].extent;
    sum = sum + (i.kind == InstrKind::fold ? n * i.count : n);
  }
  return sum;
}

Dim footprint(const std::vector<Reach>& reaches, const Dim& size) {
  Dim sum(0);
  std::vector<Grid> grids;
  for (size_t i = 0; i < reaches.size(); ++i) {
    const Reach& r = reaches[i];
    if (r.kind == Reach::Kind::whole) return size;
    if (std::find(reaches.begin(), reaches.begin() + static_cast<ptrdiff_t>(i), r) !=
        reaches.begin() + static_cast<ptrdiff_t>(i))
      continue;
    if (const auto g = Grid::of(r)) {
      int64_t fresh = g->count();
      for (const Grid& other : grids) fresh -= common(other, *g);
      sum = sum + Dim(std::max<int64_t>(0, fresh));
      grids.push_back(*g);
      continue;
    }
    Dim n(1);
    for (const Reach::Term& t : r.terms) n = t.stride.is(0) ? n : n * t.extent;
    sum = sum + n;
  }
  return min(sum, size);
}

}  // namespace kiln
