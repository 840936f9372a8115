// SPDX-License-Identifier: Apache-2.0
#include "frontend/window_detail.h"

#include <algorithm>

namespace kiln::detail {

Sizes spatial(const SpatialArg& arg, int64_t n, int64_t least, const char* what, const char* name, Loc loc) {
  const Sizes& given = arg.values;
  const std::string place = loc.known() ? fmt::format("{} ({})", name, loc.str()) : name;
  KILN_CHECK(given.size() == 1 || static_cast<int64_t>(given.size()) == n, invalid,
             "{}: {} has {} numbers, expected one, or {} for its dims of space", place, what, given.size(),
             n);
  const Sizes all = given.size() == 1 ? Sizes(static_cast<size_t>(n), given[0]) : given;
  constexpr int64_t kMost = int64_t{1} << 31;
  for (int64_t v : all)
    KILN_CHECK(v >= least && v < kMost, invalid, "{}: {} is {}, expected {} to {}", place, what, v, least,
               kMost - 1);
  return all;
}

Tensor cut(const Tensor& x, int64_t dim, int64_t begin, int64_t size) {
  if (begin == 0 && size == x.size(dim)) return x;
  Shape from(static_cast<size_t>(x.dim()), Dim(0)), to(x.sizes().begin(), x.sizes().end());
  from[static_cast<size_t>(dim)] = begin;
  to[static_cast<size_t>(dim)] = begin + size;
  return apply(op("slice"), {&x}, {from, to, std::vector<int64_t>(from.size(), 1)});
}

Tensor pad_dims(const Tensor& x, int64_t first, const Sizes& low, const Sizes& high, double value) {
  const auto rank = static_cast<size_t>(x.dim());
  Shape before(rank, Dim(0)), after(rank, Dim(0));
  Tensor inner = x;
  bool any = false;
  for (size_t i = 0; i < low.size(); ++i) {
    const auto d = static_cast<size_t>(first) + i;
    const int64_t front = std::min<int64_t>(low[i], 0), back = std::min<int64_t>(high[i], 0);
    inner = cut(inner, static_cast<int64_t>(d), -front, inner.size(static_cast<int64_t>(d)) + front + back);
    before[d] = std::max<int64_t>(low[i], 0);
    after[d] = std::max<int64_t>(high[i], 0);
    any |= low[i] > 0 || high[i] > 0;
  }
  if (!any) return inner;
  return apply(op("pad"), {&inner}, {before, after, std::vector<int64_t>(rank, 0), value});
}

Tensor windows(const Tensor& x, int64_t dim, int64_t size, int64_t step, int64_t dilation) {
  return apply(op("window"), {&x}, {dim, size, step, dilation});
}

Tensor overlap_add(const Tensor& x, int64_t dim, int64_t size, int64_t step, int64_t dilation) {
  Tensor spread = x;
  if (step > 1) {
    const auto rank = static_cast<size_t>(x.dim());
    std::vector<int64_t> gaps(rank, 0);
    gaps[static_cast<size_t>(dim)] = step - 1;
    const Shape none(rank, Dim(0));
    spread = apply(op("pad"), {&x}, {none, none, gaps, 0.0});
  }
  const Tensor placed = apply(op("skew"), {&spread}, {dim, dilation, Shape{Dim(size)}});
  return reduce(op("sum"), placed, {dim + 1}, false);
}

}  // namespace kiln::detail
