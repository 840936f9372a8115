// SPDX-License-Identifier: Apache-2.0
#include "frontend/vision.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "frontend/index_detail.h"
#include "frontend/pooling.h"
#include "frontend/window_detail.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace {

using Ints = std::vector<int64_t>;

Tensor clamped(const Tensor& i, int64_t last) {
  return binary(op("minimum"), binary(op("maximum"), i, lit(i, 0)), lit(i, static_cast<double>(last)));
}

// --- padding ---

/// Where place i - low of a dim of n elements lies inside it.
Tensor source_index(int64_t low, int64_t high, int64_t n, PadMode mode) {
  const Tensor i = iota(0, {n + low + high}), at = sub2(i, lit(i, static_cast<double>(low)));
  if (mode == PadMode::replicate) return clamped(at, n - 1);
  if (mode == PadMode::circular) return binary(op("remainder"), at, lit(i, static_cast<double>(n)));
  // Mirrored at both ends: |at|, then the same from the far end.
  const Tensor last = lit(i, static_cast<double>(n - 1));
  return sub2(last, unary(op("abs"), sub2(last, unary(op("abs"), at))));
}

void check_pads(const Tensor& x, const Sizes& pads, PadMode mode, Loc loc) {
  require(x, "pad", loc);
  const auto dims = static_cast<int64_t>(pads.size() / 2);
  KILN_CHECK(pads.size() % 2 == 0 && dims <= x.dim(), invalid,
             "pad ({}): got pads [{}] for x {}, expected two numbers for each of its last dims", loc.str(),
             fmt::join(pads, ","), x.type_str());
  for (int64_t k = 0; k < dims; ++k) {
    const int64_t n = x.size(-1 - k), low = pads[2 * k], high = pads[2 * k + 1];
    constexpr int64_t kMost = int64_t{1} << 31;
    KILN_CHECK(low < kMost && high < kMost && n + std::min<int64_t>(low, 0) + std::min<int64_t>(high, 0) >= 0,
               invalid,
               "pad ({}): got pads {} and {} for dim {} of x {}, which leaves nothing to cut, or is "
               "too much",
               loc.str(), low, high, x.dim() - 1 - k, x.type_str());
    if (mode == PadMode::constant) continue;
    const int64_t most = mode == PadMode::reflect ? n - 1 : mode == PadMode::circular ? n : kMost;
    KILN_CHECK((low <= most && high <= most) && (n > 0 || (low <= 0 && high <= 0)), invalid,
               "pad ({}): got pads {} and {} for dim {} of x {}, expected at most {}", loc.str(), low, high,
               x.dim() - 1 - k, x.type_str(), n == 0 ? 0 : most);
  }
}

// --- resampling of one dim ---

/// One dim from n to `out` elements: index i of the output lies at `scale` i of the input.
struct Resample {
  int64_t dim = 0, n = 0, out = 0;
  double scale = 1;
  bool align = false;
  /// Positions in the input, f64 [out]. Source: ATen's area_pixel_compute_source_index.
  Tensor positions(bool cubic) const {
    const Tensor i = cast_to(iota(0, {out}), DType::f64);
    if (align) return mul2(i, lit(i, scale));
    const Tensor middle = sub2(mul2(add2(i, lit(i, 0.5)), lit(i, scale)), lit(i, 0.5));
    return cubic ? middle : binary(op("maximum"), middle, lit(i, 0));
  }
};

Tensor nearest(const Tensor& x, const Resample& r, bool exact) {
  const Tensor i = cast_to(iota(0, {r.out}), DType::f64);
  const Tensor at = mul2(exact ? add2(i, lit(i, 0.5)) : i, lit(i, r.scale));
  return take(x, clamped(cast_to(unary(op("floor"), at), DType::i64), r.n - 1), r.dim);
}
/// [out] along the dim.
Tensor along(const Tensor& weights, const Tensor& x, int64_t dim) {
  Sizes s(static_cast<size_t>(x.dim()), 1);
  s[static_cast<size_t>(dim)] = weights.numel();
  return reshape_to(cast_to(weights, x.dtype()), s);
}
Tensor linear_dim(const Tensor& x, const Resample& r) {
  const Tensor at = r.positions(false), low = unary(op("floor"), at), part = sub2(at, low);
  const Tensor first = clamped(cast_to(low, DType::i64), r.n - 1);
  const Tensor second = clamped(add2(first, lit(first, 1)), r.n - 1);
  const Tensor a = take(x, first, r.dim), b = take(x, second, r.dim);
  return add2(mul2(a, along(sub2(lit(part, 1), part), a, r.dim)), mul2(b, along(part, b, r.dim)));
}
/// Four taps of the cubic convolution. Source: Keys 1981, a = -0.75 as in ATen.
Tensor cubic_dim(const Tensor& x, const Resample& r) {
  constexpr double a = -0.75;
  const Tensor at = r.positions(true), low = unary(op("floor"), at), t = sub2(at, low);
  const Tensor one = lit(t, 1);
  const auto near = [&](const Tensor& d) {  // ((a + 2) d - (a + 3)) d^2 + 1
    return add2(mul2(mul2(sub2(mul2(d, lit(d, a + 2)), lit(d, a + 3)), d), d), one);
  };
  const auto far = [&](const Tensor& d) {  // ((a d - 5a) d + 8a) d - 4a
    const Tensor p = add2(mul2(sub2(mul2(d, lit(d, a)), lit(d, 5 * a)), d), lit(d, 8 * a));
    return sub2(mul2(p, d), lit(d, 4 * a));
  };
  const Tensor u = sub2(one, t);
  const Tensor weights[] = {far(add2(t, one)), near(t), near(u), far(add2(u, one))};
  const Tensor base = cast_to(low, DType::i64);
  Tensor sum;
  for (int k = 0; k < 4; ++k) {
    const Tensor tap = take(x, clamped(add2(base, lit(base, k - 1)), r.n - 1), r.dim);
    const Tensor part = mul2(tap, along(weights[k], tap, r.dim));
    sum = sum.defined() ? add2(sum, part) : part;
  }
  return sum;
}

std::vector<Resample> resamples(const Tensor& x, const InterpolateOptions& o, Loc loc) {
  const int64_t n = x.dim() - 2;
  const bool by_size = !o.size.empty(), by_factor = !o.scale_factor.empty();
  KILN_CHECK(by_size != by_factor, invalid, "interpolate ({}): give either size or scale_factor", loc.str());
  const size_t given = by_size ? o.size.size() : o.scale_factor.size();
  KILN_CHECK(given == 1 || static_cast<int64_t>(given) == n, invalid,
             "interpolate ({}): {} has {} numbers, expected one, or {} for the space of x {}", loc.str(),
             by_size ? "size" : "scale_factor", given, n, x.type_str());
  std::vector<Resample> all;
  for (int64_t i = 0; i < n; ++i) {
    const size_t k = given == 1 ? 0 : static_cast<size_t>(i);
    Resample r{2 + i, x.size(2 + i), 0, 1, o.align_corners};
    const auto size = static_cast<double>(r.n);
    const double factor = by_factor ? o.scale_factor[k] : 0;
    KILN_CHECK(by_size || (factor > 0 && size * factor < 0x1p31), invalid,
               "interpolate ({}): scale_factor is {}, expected a positive number and an output of less than "
               "2^31 elements a dim",
               loc.str(), factor);
    r.out = by_size ? o.size[k] : static_cast<int64_t>(std::floor(size * factor));
    KILN_CHECK(r.n > 0 && r.out > 0 && r.out < (int64_t{1} << 31), invalid,
               "interpolate ({}): got output size {} for dim {} of x {}, expected both from 1 to 2^31 - 1",
               loc.str(), r.out, 2 + i, x.type_str());
    const auto out = static_cast<double>(r.out);
    if (r.align) r.scale = r.out > 1 ? (size - 1) / (out - 1) : 0;
    else r.scale = by_factor && !o.recompute_scale_factor ? 1 / factor : size / out;
    all.push_back(r);
  }
  return all;
}

Tensor interpolate_body(const Tensor& x, InterpolateMode mode, const std::vector<Resample>& dims) {
  Tensor y = x;
  for (const Resample& r : dims) {
    if (r.out == r.n && r.scale == 1) continue;
    switch (mode) {
      case InterpolateMode::nearest: y = nearest(y, r, false); break;
      case InterpolateMode::nearest_exact: y = nearest(y, r, true); break;
      case InterpolateMode::bicubic: y = cubic_dim(y, r); break;
      default: y = linear_dim(y, r);
    }
  }
  return y.impl() == x.impl() ? mul2(x, lit(x, 1)) : y;  // a tensor of its own
}

}  // namespace

Tensor pad(const Tensor& x, Sizes pads, PadMode mode, double value, Loc loc) {
  check_pads(x, pads, mode, loc);
  if (mode == PadMode::constant) require_fits(value, x.dtype(), "pad", loc);
  Ints ints = pads;
  ints.push_back(static_cast<int64_t>(mode));
  const auto dims = static_cast<int64_t>(pads.size() / 2);
  const Tensor* operands[] = {&x};
  std::vector<Scalar> scalars;
  if (mode == PadMode::constant) scalars.emplace_back(value);
  return call({"pad", loc, operands, ints, scalars}, [&](const std::vector<Tensor>& s) {
    if (mode != PadMode::constant) {
      Tensor y = x;
      for (int64_t k = 0; k < dims; ++k) {
        const int64_t d = x.dim() - 1 - k, low = pads[2 * k], high = pads[2 * k + 1];
        if (low != 0 || high != 0) y = take(y, source_index(low, high, x.size(d), mode), d);
      }
      return y;
    }
    Sizes low, high;
    for (int64_t k = dims; k-- > 0;) {
      low.push_back(pads[2 * k]);
      high.push_back(pads[2 * k + 1]);
    }
    const Tensor inner = pad_dims(x, x.dim() - dims, low, high, 0);
    // The value is a number of the call, not of the program.
    const Tensor there = pad_dims(constant_like(x, 1), x.dim() - dims, low, high, 0);
    const Tensor is_there = cast_to(there, DType::boolean);
    return select3(is_there, inner, cast_to(s[0], x.dtype()));
  });
}

Tensor interpolate(const Tensor& x, const InterpolateOptions& o, Loc loc) {
  require_floating(x, "interpolate", loc);
  const int64_t n = x.dim() - 2;
  KILN_CHECK(n >= 1 && n <= 3, invalid, "interpolate ({}): got x {}, expected [n, c, space...]", loc.str(),
             x.type_str());
  const bool smooth = o.mode == InterpolateMode::linear || o.mode == InterpolateMode::bicubic;
  KILN_CHECK(smooth || !o.align_corners, invalid,
             "interpolate ({}): align_corners is for linear and bicubic only", loc.str());
  KILN_CHECK(o.mode != InterpolateMode::bicubic || n == 2, invalid,
             "interpolate ({}): bicubic takes two dims of space; got x {}", loc.str(), x.type_str());
  const std::vector<Resample> dims = resamples(x, o, loc);
  if (o.mode == InterpolateMode::area) {
    Sizes out;
    for (const Resample& r : dims) out.push_back(r.out);
    return n == 1   ? adaptive_avg_pool1d(x, out, loc)
           : n == 2 ? adaptive_avg_pool2d(x, out, loc)
                    : adaptive_avg_pool3d(x, out, loc);
  }
  Ints ints{static_cast<int64_t>(o.mode), o.align_corners};
  for (const Resample& r : dims) {
    ints.push_back(r.out);
    ints.push_back(std::bit_cast<int64_t>(r.scale));
  }
  const Tensor* operands[] = {&x};
  return call({"interpolate", loc, operands, ints, {}},
              [&](const Tensor& x, const auto&) { return interpolate_body(x, o.mode, dims); });
}

Tensor pixel_shuffle(const Tensor& x, int64_t r, Loc loc) {
  require(x, "pixel_shuffle", loc);
  KILN_CHECK(x.dim() >= 3 && r > 0 && x.size(-3) % r == 0 && x.size(-3) / r % r == 0, invalid,
             "pixel_shuffle ({}): got x {} and upscale_factor {}, expected [..., c r^2, h, w]", loc.str(),
             x.type_str(), r);
  return call("pixel_shuffle", loc, {&x}, {r}, {}, [&](const auto&) {
    const int64_t c = x.size(-3) / r / r, h = x.size(-2), w = x.size(-1), lead = x.dim() - 3;
    Sizes split(x.sizes().begin(), x.sizes().begin() + lead), out = split;
    split.insert(split.end(), {c, r, r, h, w});
    out.insert(out.end(), {c, h * r, w * r});
    Ints order;
    for (int64_t d = 0; d < lead; ++d) order.push_back(d);
    for (int64_t d : {0, 3, 1, 4, 2}) order.push_back(lead + d);
    const Tensor s = reshape_to(x, split);
    return reshape_to(apply(op("permute"), {&s}, {order}), out);
  });
}

Tensor pixel_unshuffle(const Tensor& x, int64_t r, Loc loc) {
  require(x, "pixel_unshuffle", loc);
  KILN_CHECK(x.dim() >= 3 && r > 0 && x.size(-2) % r == 0 && x.size(-1) % r == 0, invalid,
             "pixel_unshuffle ({}): got x {} and downscale_factor {}, expected [..., c, h r, w r]", loc.str(),
             x.type_str(), r);
  return call("pixel_unshuffle", loc, {&x}, {r}, {}, [&](const auto&) {
    const int64_t c = x.size(-3), h = x.size(-2) / r, w = x.size(-1) / r, lead = x.dim() - 3;
    Sizes split(x.sizes().begin(), x.sizes().begin() + lead), out = split;
    split.insert(split.end(), {c, h, r, w, r});
    out.insert(out.end(), {c * r * r, h, w});
    Ints order;
    for (int64_t d = 0; d < lead; ++d) order.push_back(d);
    for (int64_t d : {0, 2, 4, 1, 3}) order.push_back(lead + d);
    const Tensor s = reshape_to(x, split);
    return reshape_to(apply(op("permute"), {&s}, {order}), out);
  });
}

Tensor channel_shuffle(const Tensor& x, int64_t groups, Loc loc) {
  require(x, "channel_shuffle", loc);
  KILN_CHECK(x.dim() >= 3 && groups > 0 && x.size(1) % groups == 0, invalid,
             "channel_shuffle ({}): got x {} and groups {}, expected [n, c, space...] whose channels divide",
             loc.str(), x.type_str(), groups);
  return call("channel_shuffle", loc, {&x}, {groups}, {}, [&](const auto&) {
    Sizes split = x.sizes();
    split[1] /= groups;
    split.insert(split.begin() + 1, groups);
    Ints order{0, 2, 1};
    for (int64_t d = 3; d <= x.dim(); ++d) order.push_back(d);
    const Tensor s = reshape_to(x, split);
    return reshape_to(apply(op("permute"), {&s}, {order}), x.sizes());
  });
}

}  // namespace kiln
