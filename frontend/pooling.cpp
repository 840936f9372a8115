// SPDX-License-Identifier: Apache-2.0
#include "frontend/pooling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "frontend/index_detail.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace {

using Ints = std::vector<int64_t>;

/// Whole division of numbers that are not negative.
Tensor quotient(const Tensor& a, int64_t by) { return binary(op("floor_divide"), a, number(a, by)); }

void check_input(const Tensor& x, int64_t n, const char* name, Loc loc) {
  require_floating(x, name, loc);
  KILN_CHECK(x.dim() == n + 1 || x.dim() == n + 2, invalid, "{} ({}): got x {}, expected {} or {} dims", name,
             loc.str(), x.type_str(), n + 1, n + 2);
  for (int64_t d = 1; d <= n; ++d)
    KILN_CHECK(x.size(-d) > 0, invalid, "{} ({}): got x {} with an empty dim of space", name, loc.str(),
               x.type_str());
}

/// Windows over the last n dims.
struct Pool {
  int64_t n = 0, first = 0;  ///< dims of space, and the first of them
  Sizes kernel, stride, padding, dilation, out;
  /// Elements to put behind dim i, so that the last window is whole.
  int64_t behind(size_t i, int64_t size) const {
    return std::max<int64_t>(
        0, (out[i] - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1 - size - padding[i]);
  }
};

/// Source: ATen's pooling_output_shape.
int64_t output_size(int64_t size, int64_t k, int64_t s, int64_t p, int64_t d, bool ceil_mode) {
  const int64_t span = size + 2 * p - d * (k - 1) - 1;
  const int64_t up = span + (ceil_mode ? s - 1 : 0);
  int64_t out = (up >= 0 ? up / s : -((-up + s - 1) / s)) + 1;
  if (ceil_mode && (out - 1) * s >= size + p) --out;  // the last window begins inside, or left of it
  return out;
}

Pool pool_of(const Tensor& x, int64_t n, const SpatialArg& kernel, const std::optional<SpatialArg>& stride,
             const SpatialArg& padding, const SpatialArg& dilation, bool ceil_mode, const char* name,
             Loc loc) {
  check_input(x, n, name, loc);
  Pool p{n,
         x.dim() - n,
         spatial(kernel, n, 1, "kernel_size", name, loc),
         {},
         spatial(padding, n, 0, "padding", name, loc),
         spatial(dilation, n, 1, "dilation", name, loc),
         {}};
  p.stride = stride ? spatial(*stride, n, 1, "stride", name, loc) : p.kernel;
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    KILN_CHECK(p.padding[i] * 2 <= p.kernel[i], invalid,
               "{} ({}): padding {} is more than half the kernel's {}", name, loc.str(), p.padding[i],
               p.kernel[i]);
    const int64_t size = x.size(p.first + static_cast<int64_t>(i));
    p.out.push_back(output_size(size, p.kernel[i], p.stride[i], p.padding[i], p.dilation[i], ceil_mode));
    KILN_CHECK(p.out[i] > 0, invalid, "{} ({}): a window of {} does not fit into x {} padded by {}", name,
               loc.str(), p.dilation[i] * (p.kernel[i] - 1) + 1, x.type_str(), p.padding[i]);
  }
  return p;
}

/// x with dims of windows and places in them, in turn, for each dim of space.
Tensor pool_windows(const Tensor& x, const Pool& p, double fill) {
  Sizes high;
  for (size_t i = 0; i < p.out.size(); ++i)
    high.push_back(p.behind(i, x.size(p.first + static_cast<int64_t>(i))));
  Tensor t = pad_dims(x, p.first, p.padding, high, fill);
  for (int64_t i = p.n; i-- > 0;) {
    const auto d = static_cast<size_t>(i);
    t = windows(t, p.first + i, p.kernel[d], p.stride[d], p.dilation[d]);
    t = cut(t, p.first + i, 0, p.out[d]);
  }
  return t;
}
/// [..., (out, k)...] as [..., out..., product of k].
Tensor places_last(const Tensor& t, int64_t first, int64_t n) {
  Ints order;
  for (int64_t d = 0; d < first; ++d) order.push_back(d);
  for (int64_t i = 0; i < n; ++i) order.push_back(first + 2 * i);
  for (int64_t i = 0; i < n; ++i) order.push_back(first + 2 * i + 1);
  const Tensor p = apply(op("permute"), {&t}, {order});
  Sizes s(p.sizes().begin(), p.sizes().begin() + first + n);
  int64_t places = 1;
  for (int64_t i = 0; i < n; ++i) places *= p.size(first + n + i);
  s.push_back(places);
  return reshape_to(p, s);
}

/// The largest of the last dim, and its place there.
std::pair<Tensor, Tensor> largest(const Tensor& t) {
  const int64_t last = t.dim() - 1;
  const Tensor at = apply(op("argmax"), {&t}, {Ints{last}});
  Sizes column = at.sizes();
  column.push_back(1);
  const Tensor index = reshape_to(at, column);
  return {reshape_to(apply(op("take_along"), {&t, &index}, {last}), at.sizes()), at};
}

/// Row-major places in x of the places in windows; position(i, place in dim i) gives the coordinate.
template <typename Position>
Tensor places_of(const Tensor& at, const Sizes& kernel, const Sizes& space, const Position& position) {
  Tensor rest = at, flat;
  Ints stride(space.size(), 1);
  for (size_t i = space.size(); i-- > 1;) stride[i - 1] = stride[i] * space[i];
  for (size_t i = space.size(); i-- > 0;) {
    const Tensor whole = quotient(rest, kernel[i]);
    const Tensor k = i == 0 ? rest : sub2(rest, mul2(whole, number(rest, kernel[i])));
    const Tensor x = mul2(position(i, k), number(rest, stride[i]));
    flat = flat.defined() ? add2(flat, x) : x;
    rest = whole;
  }
  return flat;
}

std::vector<Tensor> max_pool_body(const Tensor& x, const Pool& p, bool with_places) {
  const Tensor t = places_last(pool_windows(x, p, -INFINITY), p.first, p.n);
  const auto [values, at] = largest(t);
  if (!with_places) return {values};
  const Sizes space(x.sizes().begin() + p.first, x.sizes().end());
  const auto position = [&, &at = at](size_t i, const Tensor& k) {
    const Tensor start = mul2(iota(p.first + static_cast<int64_t>(i), at.sizes()), number(at, p.stride[i]));
    const Tensor x0 = sub2(add2(start, mul2(k, number(at, p.dilation[i]))), number(at, p.padding[i]));
    // Of a window of nothing but -inf the first place is taken, which may be padding: the next in x instead.
    return select3(binary(op("lt"), x0, number(x0, 0)),
                   binary(op("remainder"), x0, number(x0, p.dilation[i])), x0);
  };
  return {values, places_of(at, p.kernel, space, position)};
}

std::vector<Tensor> max_pool(const char* name, int64_t n, const Tensor& x, const SpatialArg& kernel,
                             const MaxPoolOptions& o, bool with_places, Loc loc) {
  const Pool p = pool_of(x, n, kernel, o.stride, o.padding, o.dilation, o.ceil_mode, name, loc);
  Ints ints{with_places};
  for (const Sizes* s : {&p.kernel, &p.stride, &p.padding, &p.dilation, &p.out})
    ints.insert(ints.end(), s->begin(), s->end());
  const Tensor* operands[] = {&x};
  return call_many(name, loc, operands, ints, {},
                   [&](const auto&) { return max_pool_body(x, p, with_places); });
}
std::pair<Tensor, Tensor> both(std::vector<Tensor> r) { return {std::move(r[0]), std::move(r[1])}; }

/// Elements that each window divides by, per dim: all or those inside, cut at the far edge of the padding.
Tensor counted(const Tensor& like, const Pool& p, const Sizes& space, bool with_padding) {
  Tensor product;
  for (size_t i = 0; i < space.size(); ++i) {
    Sizes shape(space.size(), 1);
    shape[i] = p.out[i];
    const Tensor index = iota(static_cast<int64_t>(i), shape);
    const Tensor start = sub2(mul2(index, number(index, p.stride[i])), number(index, p.padding[i]));
    const Tensor stop = add2(start, number(index, p.kernel[i]));
    const int64_t edge = space[i] + (with_padding ? p.padding[i] : 0);
    const Tensor end = binary(op("minimum"), stop, number(index, edge));
    const Tensor begin = with_padding ? start : binary(op("maximum"), start, number(index, 0));
    const Tensor n = sub2(end, begin);
    product = product.defined() ? mul2(product, n) : n;
  }
  return cast_to(product, like.dtype());
}

Tensor avg_pool(const char* name, int64_t n, const Tensor& x, const SpatialArg& kernel,
                const AvgPoolOptions& o, Loc loc) {
  const Pool p = pool_of(x, n, kernel, o.stride, o.padding, 1, o.ceil_mode, name, loc);
  KILN_CHECK(o.divisor_override.value_or(1) != 0, invalid, "{} ({}): divisor_override is 0", name, loc.str());
  Ints ints{o.count_include_pad, o.divisor_override.value_or(0)};
  for (const Sizes* s : {&p.kernel, &p.stride, &p.padding, &p.out})
    ints.insert(ints.end(), s->begin(), s->end());
  const Tensor* operands[] = {&x};
  return call({name, loc, operands, ints, {}}, [&](const auto&) {
    Sizes summed;
    for (int64_t i = 0; i < n; ++i) summed.push_back(p.first + 2 * i + 1);
    const Tensor sum = reduce(op("sum"), pool_windows(x, p, 0), summed, false);
    if (o.divisor_override) return div2(sum, number(sum, *o.divisor_override));
    const Sizes space(x.sizes().begin() + p.first, x.sizes().end());
    return div2(sum, counted(sum, p, space, o.count_include_pad));
  });
}

// --- bins ---

/// How one dim of `size` elements is cut into `out` bins of at most `longest`: bin i is from i * size / out,
/// rounded down, to (i + 1) * size / out, rounded up.
struct Bins {
  Bins(int64_t size, int64_t out) : size(size), out(out) {
    // With both in lowest terms every remainder of i * size occurs; the largest makes the longest bin.
    const int64_t g = std::gcd(size, out), parts = out / g;
    longest = (size / g + 2 * (parts - 1)) / parts;
  }
  int64_t size, out, longest;
  bool even() const { return size % out == 0; }
};
std::vector<Bins> bins_of(const Tensor& x, int64_t n, const SpatialArg& output_size, const char* name,
                          Loc loc) {
  check_input(x, n, name, loc);
  std::vector<Bins> bins;
  const Sizes out = spatial(output_size, n, -1, "output_size", name, loc);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t size = x.size(i - n), given = out[static_cast<size_t>(i)];
    const int64_t count = given == -1 ? size : given;
    KILN_CHECK(count > 0, invalid, "{} ({}): output_size is {}, expected at least 1, or -1", name, loc.str(),
               count);
    bins.emplace_back(size, count);
    int64_t last = 0;
    KILN_CHECK(bins.back().even() || !__builtin_mul_overflow(count + 1, size, &last), invalid,
               "{} ({}): output_size {} of x {} makes places that do not fit in 64 bits", name, loc.str(),
               count, x.type_str());
  }
  return bins;
}

/// begin(i) + t, and whether that is inside the bin, as [out, longest].
struct BinIndex {
  Tensor at, inside;
};
BinIndex bin_index(const Bins& b) {
  const Tensor i = iota(0, {b.out, b.longest}), t = iota(1, {b.out, b.longest});
  const auto bound = [&](const Tensor& index, int64_t round_up) {
    return quotient(add2(mul2(index, number(i, b.size)), number(i, round_up)), b.out);
  };
  const Tensor at = add2(bound(i, 0), t), end = bound(add2(i, number(i, 1)), b.out - 1);
  return {binary(op("minimum"), at, number(i, b.size - 1)), binary(op("lt"), at, end)};
}
/// x with each dim of space as bins and places in them; places outside a bin hold `fill`.
Tensor binned(const Tensor& x, const std::vector<Bins>& bins, double fill) {
  const int64_t first = x.dim() - static_cast<int64_t>(bins.size());
  Tensor t = x;
  for (size_t i = bins.size(); i-- > 0;) {
    const Bins& b = bins[i];
    const int64_t dim = first + static_cast<int64_t>(i);
    if (b.even()) {
      Sizes s = t.sizes();
      s[static_cast<size_t>(dim)] = b.out;
      s.insert(s.begin() + dim + 1, b.longest);
      t = reshape_to(t, s);
      continue;
    }
    const BinIndex index = bin_index(b);
    t = take(t, index.at, dim);
    Sizes s(static_cast<size_t>(t.dim()), 1);
    s[static_cast<size_t>(dim)] = b.out;
    s[static_cast<size_t>(dim) + 1] = b.longest;
    t = select3(expand_to(reshape_to(index.inside, s), t.sizes()), t, lit(t, fill));
  }
  return t;
}
Ints bin_event(const std::vector<Bins>& bins, bool flag = false) {
  Ints ints{flag};
  for (const Bins& b : bins) ints.push_back(b.out);
  return ints;
}

Tensor adaptive_avg(const char* name, int64_t n, const Tensor& x, const SpatialArg& output_size, Loc loc) {
  const std::vector<Bins> bins = bins_of(x, n, output_size, name, loc);
  const Ints ints = bin_event(bins);
  const Tensor* operands[] = {&x};
  return call({name, loc, operands, ints, {}}, [&](const auto&) {
    const int64_t first = x.dim() - n;
    Sizes summed;
    for (int64_t i = 0; i < n; ++i) summed.push_back(first + 2 * i + 1);
    Tensor y = reduce(op("sum"), binned(x, bins, 0), summed, false);
    double even = 1;
    for (size_t i = 0; i < bins.size(); ++i) {
      if (bins[i].even()) {
        even *= static_cast<double>(bins[i].longest);
        continue;
      }
      const Tensor inside = cast_to(bin_index(bins[i]).inside, y.dtype());
      Sizes s(static_cast<size_t>(n), 1);
      s[i] = bins[i].out;
      y = div2(y, reshape_to(reduce(op("sum"), inside, {1}, false), s));
    }
    return even == 1 ? y : div2(y, lit(y, even));
  });
}

std::vector<Tensor> adaptive_max(const char* name, int64_t n, const Tensor& x, const SpatialArg& output_size,
                                 bool with_places, Loc loc) {
  const std::vector<Bins> bins = bins_of(x, n, output_size, name, loc);
  const Ints ints = bin_event(bins, with_places);
  const Tensor* operands[] = {&x};
  return call_many(name, loc, operands, ints, {}, [&](const auto&) -> std::vector<Tensor> {
    const int64_t first = x.dim() - n;
    const auto [values, at] = largest(places_last(binned(x, bins, -INFINITY), first, n));
    if (!with_places) return {values};
    Sizes longest;
    for (const Bins& b : bins) longest.push_back(b.longest);
    const Sizes space(x.sizes().begin() + first, x.sizes().end());
    const auto position = [&, &at = at](size_t i, const Tensor& k) {
      const Tensor bin = iota(first + static_cast<int64_t>(i), at.sizes());
      return add2(quotient(mul2(bin, number(bin, bins[i].size)), bins[i].out), k);
    };
    return {values, places_of(at, longest, space, position)};
  });
}

}  // namespace

Tensor max_pool1d(const Tensor& x, const SpatialArg& k, const MaxPoolOptions& o, Loc loc) {
  return max_pool("max_pool1d", 1, x, k, o, false, loc)[0];
}
Tensor max_pool2d(const Tensor& x, const SpatialArg& k, const MaxPoolOptions& o, Loc loc) {
  return max_pool("max_pool2d", 2, x, k, o, false, loc)[0];
}
Tensor max_pool3d(const Tensor& x, const SpatialArg& k, const MaxPoolOptions& o, Loc loc) {
  return max_pool("max_pool3d", 3, x, k, o, false, loc)[0];
}
std::pair<Tensor, Tensor> max_pool1d_with_indices(const Tensor& x, const SpatialArg& k,
                                                  const MaxPoolOptions& o, Loc loc) {
  return both(max_pool("max_pool1d_with_indices", 1, x, k, o, true, loc));
}
std::pair<Tensor, Tensor> max_pool2d_with_indices(const Tensor& x, const SpatialArg& k,
                                                  const MaxPoolOptions& o, Loc loc) {
  return both(max_pool("max_pool2d_with_indices", 2, x, k, o, true, loc));
}
std::pair<Tensor, Tensor> max_pool3d_with_indices(const Tensor& x, const SpatialArg& k,
                                                  const MaxPoolOptions& o, Loc loc) {
  return both(max_pool("max_pool3d_with_indices", 3, x, k, o, true, loc));
}
Tensor avg_pool1d(const Tensor& x, const SpatialArg& k, const AvgPoolOptions& o, Loc loc) {
  return avg_pool("avg_pool1d", 1, x, k, o, loc);
}
Tensor avg_pool2d(const Tensor& x, const SpatialArg& k, const AvgPoolOptions& o, Loc loc) {
  return avg_pool("avg_pool2d", 2, x, k, o, loc);
}
Tensor avg_pool3d(const Tensor& x, const SpatialArg& k, const AvgPoolOptions& o, Loc loc) {
  return avg_pool("avg_pool3d", 3, x, k, o, loc);
}
Tensor adaptive_avg_pool1d(const Tensor& x, const SpatialArg& out, Loc loc) {
  return adaptive_avg("adaptive_avg_pool1d", 1, x, out, loc);
}
Tensor adaptive_avg_pool2d(const Tensor& x, const SpatialArg& out, Loc loc) {
  return adaptive_avg("adaptive_avg_pool2d", 2, x, out, loc);
}
Tensor adaptive_avg_pool3d(const Tensor& x, const SpatialArg& out, Loc loc) {
  return adaptive_avg("adaptive_avg_pool3d", 3, x, out, loc);
}
Tensor adaptive_max_pool1d(const Tensor& x, const SpatialArg& out, Loc loc) {
  return adaptive_max("adaptive_max_pool1d", 1, x, out, false, loc)[0];
}
Tensor adaptive_max_pool2d(const Tensor& x, const SpatialArg& out, Loc loc) {
  return adaptive_max("adaptive_max_pool2d", 2, x, out, false, loc)[0];
}
Tensor adaptive_max_pool3d(const Tensor& x, const SpatialArg& out, Loc loc) {
  return adaptive_max("adaptive_max_pool3d", 3, x, out, false, loc)[0];
}
std::pair<Tensor, Tensor> adaptive_max_pool2d_with_indices(const Tensor& x, const SpatialArg& out, Loc loc) {
  return both(adaptive_max("adaptive_max_pool2d_with_indices", 2, x, out, true, loc));
}

}  // namespace kiln
