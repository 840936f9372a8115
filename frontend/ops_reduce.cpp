// SPDX-License-Identifier: Apache-2.0
// Reductions.
#include "frontend/reductions.h"

#include <cmath>

#include "frontend/ops_detail.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace {
Tensor mean_body(const Tensor& x, const Sizes& dims, bool keepdim) {
  const Tensor s = reduce(op("sum"), wide(x), dims, keepdim);
  return cast_to(div2(s, constant_like(s, static_cast<double>(count(x, dims)))), x.dtype());
}
}  // namespace

Tensor sum(const Tensor& x, Dims dims, bool keepdim, Loc loc) {
  return reduce_call("sum", x, dims, keepdim, 0, loc, [&](const Tensor& x, const Sizes& d) {
    return reduce(op("sum"), is_floating(x.dtype()) ? x : cast_to(x, DType::i64), d, keepdim);
  });
}

Tensor prod(const Tensor& x, Dims dims, bool keepdim, Loc loc) {
  return reduce_call("prod", x, dims, keepdim, 0, loc, [&](const Tensor& x, const Sizes& d) {
    return reduce(op("prod"), is_floating(x.dtype()) ? x : cast_to(x, DType::i64), d, keepdim);
  });
}

Tensor mean(const Tensor& x, Dims dims, bool keepdim, Loc loc) {
  require_floating(x, "mean", loc);
  return reduce_call("mean", x, dims, keepdim, 0, loc,
                     [&](const Tensor& x, const Sizes& d) { return mean_body(x, d, keepdim); });
}

Tensor amax(const Tensor& x, Dims dims, bool keepdim, Loc loc) {
  return reduce_call("amax", x, dims, keepdim, 0, loc,
                     [&](const Tensor& x, const Sizes& d) { return reduce(op("amax"), x, d, keepdim); });
}

Tensor amin(const Tensor& x, Dims dims, bool keepdim, Loc loc) {
  return reduce_call("amin", x, dims, keepdim, 0, loc,
                     [&](const Tensor& x, const Sizes& d) { return reduce(op("amin"), x, d, keepdim); });
}

namespace {
struct VarMean {
  Tensor var, mean;  ///< f32 of halves; mean: kept
};
VarMean moments(const Tensor& half, const Sizes& d, int64_t correction, bool keepdim) {
  const Tensor x = wide(half), mean = mean_body(x, d, true), centred = sub2(x, mean);
  const Tensor s = reduce(op("sum"), mul2(centred, centred), d, keepdim);
  const auto n = static_cast<double>(std::max<int64_t>(0, count(x, d) - correction));
  return {div2(s, constant_like(s, n)), mean};
}

/// sqrt(x) whose gradient at zero is zero.
Tensor safe_sqrt(const Tensor& x) {
  const Tensor zero = constant_like(x, 0), at_zero = apply(op("eq"), {&x, &zero});
  return select3(at_zero, zero, unary(op("sqrt"), select3(at_zero, lit(x, 1), x)));
}

Spread spread_call(const char* name, const Tensor& x, const Sizes& dims, int64_t correction, bool keepdim,
                   bool root, Loc loc) {
  require_floating(x, name, loc);
  const Sizes d = wrap_dims(dims, x.dim(), name, loc);
  Sizes ints = d;
  ints.insert(ints.end(), {keepdim, correction});
  const Tensor* operands[] = {&x};
  const std::vector<Tensor> out = call_many(name, loc, operands, ints, {}, [&](const auto&) {
    const VarMean m = moments(x, d, correction, keepdim);
    return std::vector<Tensor>{cast_to(root ? safe_sqrt(m.var) : m.var, x.dtype()),
                               cast_to(reshape_to(m.mean, m.var.sizes()), x.dtype())};
  });
  return {out[0], out[1]};
}
}  // namespace

Tensor var(const Tensor& x, Dims dims, int64_t correction, bool keepdim, Loc loc) {
  require_floating(x, "var", loc);
  return reduce_call("var", x, dims, keepdim, correction, loc, [&](const Tensor& x, const Sizes& d) {
    return cast_to(moments(x, d, correction, keepdim).var, x.dtype());
  });
}

Tensor std(const Tensor& x, Dims dims, int64_t correction, bool keepdim, Loc loc) {
  require_floating(x, "std", loc);
  return reduce_call("std", x, dims, keepdim, correction, loc, [&](const Tensor& x, const Sizes& d) {
    return cast_to(safe_sqrt(moments(x, d, correction, keepdim).var), x.dtype());
  });
}

Spread var_mean(const Tensor& x, Dims dims, int64_t correction, bool keepdim, Loc loc) {
  return spread_call("var_mean", x, dims, correction, keepdim, false, loc);
}
Spread std_mean(const Tensor& x, Dims dims, int64_t correction, bool keepdim, Loc loc) {
  return spread_call("std_mean", x, dims, correction, keepdim, true, loc);
}

namespace {
Sizes kept_sizes(const Tensor& x, const Sizes& dims) {
  Sizes kept = x.sizes();
  for (int64_t d : dims) kept[static_cast<size_t>(d)] = 1;
  return kept;
}

Tensor place_of(Op o, const Tensor& x, int64_t dim, bool keepdim) {
  const Tensor r = apply(o, {&x}, {Sizes{dim}});
  return keepdim ? reshape_to(r, kept_sizes(x, {dim})) : r;
}

Tensor place_call(Op o, const Tensor& x, std::optional<int64_t> dim, bool keepdim, Loc loc) {
  const char* name = kOpNames[o.id].data();
  const Sizes dims = dim ? Sizes{*dim} : Sizes{};
  return reduce_call(name, x, dims, keepdim, dim.has_value(), loc, [&](const Tensor& x, const Sizes& d) {
    if (x.dim() == 0) return constant_like(cast_to(x, DType::i64), 0);
    if (dim) return place_of(o, x, d[0], keepdim);
    const Tensor r = place_of(o, reshape_to(x, {x.numel()}), 0, false);
    return keepdim ? reshape_to(r, kept_sizes(x, d)) : r;
  });
}

ValuesAndIndices extreme_call(const char* name, Op place, const Tensor& x, int64_t dim, bool keepdim,
                              Loc loc) {
  require(x, name, loc);
  const int64_t d = wrap_dim(dim, x.dim(), name, loc);
  const Tensor* operands[] = {&x};
  const int64_t ints[] = {d, keepdim};
  const std::vector<Tensor> out = call_many(name, loc, operands, ints, {}, [&](const auto&) {
    if (x.dim() == 0) return std::vector<Tensor>{reshape_to(x, {}), constant_like(cast_to(x, DType::i64), 0)};
    const Tensor at = place_of(place, x, d, true), value = apply(op("take_along"), {&x, &at}, {d});
    if (keepdim) return std::vector<Tensor>{value, at};
    Sizes s = x.sizes();
    s.erase(s.begin() + d);
    return std::vector<Tensor>{reshape_to(value, s), reshape_to(at, s)};
  });
  return {out[0], out[1]};
}

Tensor any_body(const Tensor& x, const Sizes& d, bool keepdim) {
  if (x.numel() == 0) return cast_to(reduce(op("sum"), cast_to(x, DType::i64), d, keepdim), DType::boolean);
  return reduce(op("amax"), as_bool(x), d, keepdim);
}
}  // namespace

Tensor argmax(const Tensor& x, std::optional<int64_t> dim, bool keepdim, Loc loc) {
  return place_call(op("argmax"), x, dim, keepdim, loc);
}
Tensor argmin(const Tensor& x, std::optional<int64_t> dim, bool keepdim, Loc loc) {
  return place_call(op("argmin"), x, dim, keepdim, loc);
}

Tensor max(const Tensor& x, const Tensor& y, Loc loc) {
  require_pair(x, y, "max", loc);
  return maximum(TensorArg(x, loc), y);
}
Tensor min(const Tensor& x, const Tensor& y, Loc loc) {
  require_pair(x, y, "min", loc);
  return minimum(TensorArg(x, loc), y);
}
Tensor max(const Tensor& x, Loc loc) {
  return reduce_call("max", x, {}, false, 0, loc,
                     [&](const Tensor& x, const Sizes& d) { return reduce(op("amax"), x, d, false); });
}
Tensor min(const Tensor& x, Loc loc) {
  return reduce_call("min", x, {}, false, 0, loc,
                     [&](const Tensor& x, const Sizes& d) { return reduce(op("amin"), x, d, false); });
}
ValuesAndIndices max(const Tensor& x, int64_t dim, bool keepdim, Loc loc) {
  return extreme_call("max", op("argmax"), x, dim, keepdim, loc);
}
ValuesAndIndices min(const Tensor& x, int64_t dim, bool keepdim, Loc loc) {
  return extreme_call("min", op("argmin"), x, dim, keepdim, loc);
}

Extrema aminmax(const Tensor& x, std::optional<int64_t> dim, bool keepdim, Loc loc) {
  require(x, "aminmax", loc);
  const Sizes dims = dim ? Sizes{*dim} : Sizes{};
  return {amin(x, dims, keepdim, loc), amax(x, dims, keepdim, loc)};
}

Tensor any(const Tensor& x, Dims dims, bool keepdim, Loc loc) {
  return reduce_call("any", x, dims, keepdim, 0, loc,
                     [&](const Tensor& x, const Sizes& d) { return any_body(x, d, keepdim); });
}

Tensor all(const Tensor& x, Dims dims, bool keepdim, Loc loc) {
  return reduce_call("all", x, dims, keepdim, 0, loc, [&](const Tensor& x, const Sizes& d) {
    return unary(op("logical_not"), any_body(unary(op("logical_not"), as_bool(x)), d, keepdim));
  });
}

Tensor nansum(const Tensor& x, Dims dims, bool keepdim, Loc loc) {
  require_floating(x, "nansum", loc);
  return reduce_call("nansum", x, dims, keepdim, 0, loc, [&](const Tensor& x, const Sizes& d) {
    return reduce(op("sum"), select3(unary(op("isnan"), x), lit(x, 0), x), d, keepdim);
  });
}

Tensor nanmean(const Tensor& x, Dims dims, bool keepdim, Loc loc) {
  require_floating(x, "nanmean", loc);
  return reduce_call("nanmean", x, dims, keepdim, 0, loc, [&](const Tensor& x, const Sizes& d) {
    const Tensor nan = unary(op("isnan"), x), v = wide(x);
    const Tensor n = reduce(op("sum"), cast_to(unary(op("logical_not"), nan), DType::i64), d, keepdim);
    const Tensor sum = reduce(op("sum"), select3(nan, lit(v, 0), v), d, keepdim);
    return cast_to(div2(sum, cast_to(n, v.dtype())), x.dtype());
  });
}

Tensor count_nonzero(const Tensor& x, Dims dims, Loc loc) {
  return reduce_call("count_nonzero", x, dims, false, 0, loc, [&](const Tensor& x, const Sizes& d) {
    return reduce(op("sum"), cast_to(as_bool(x), DType::i64), d, false);
  });
}

namespace detail {
Tensor norm2(const Tensor& x, const Sizes& dims) {
  return safe_sqrt(reduce(op("sum"), mul2(x, x), dims, true));
}
}  // namespace detail

namespace {
/// (sum m^p)^(1/p) of magnitudes; nowhere is zero raised to a power by which it would be differentiated.
Tensor power_norm(const Tensor& m, const Tensor& p, const Sizes& d, bool keepdim) {
  const auto power = [](const Tensor& x, const Tensor& e) {
    const Tensor zero = lit(x, 0), one = lit(x, 1), at_zero = binary(op("eq"), x, zero);
    return select3(at_zero, binary(op("pow"), zero, e), binary(op("pow"), select3(at_zero, one, x), e));
  };
  const Tensor s = reduce(op("sum"), power(m, p), d, keepdim);
  return power(s, unary(op("reciprocal"), p));
}

}  // namespace

Norm detail::norm_kind(double ord) {
  if (ord == 0) return Norm::zero;
  if (ord == 1) return Norm::one;
  if (ord == 2) return Norm::two;
  if (std::isinf(ord)) return ord > 0 ? Norm::top : Norm::bottom;
  return Norm::power;
}

Tensor detail::norm_body(const Tensor& x, Norm kind, const Tensor& p, const Sizes& d, bool keepdim) {
  switch (kind) {
    case Norm::zero: return reduce(op("sum"), cast_to(as_bool(x), x.dtype()), d, keepdim);
    case Norm::one: return reduce(op("sum"), unary(op("abs"), x), d, keepdim);
    case Norm::two: return safe_sqrt(reduce(op("sum"), mul2(x, x), d, keepdim));
    case Norm::top: return reduce(op("amax"), unary(op("abs"), x), d, keepdim);
    case Norm::bottom: return reduce(op("amin"), unary(op("abs"), x), d, keepdim);
    case Norm::power: break;
  }
  return power_norm(unary(op("abs"), x), cast_to(p, x.dtype()), d, keepdim);
}

Tensor norm(const Tensor& x, double p, Dims dims, bool keepdim, Loc loc) {
  require_floating(x, "norm", loc);
  return vector_norm(x, p, std::move(dims), keepdim, loc);
}

Tensor vector_norm(const Tensor& x, double ord, Dims dims, bool keepdim, Loc loc) {
  require_floating(x, "vector_norm", loc);
  KILN_CHECK(!std::isnan(ord), invalid, "vector_norm ({}): ord is NaN", loc.str());
  const Norm kind = norm_kind(ord);
  const Sizes d = wrap_dims(dims, x.dim(), "vector_norm", loc);
  Sizes ints = d;
  ints.insert(ints.end(), {keepdim, static_cast<int64_t>(kind)});
  std::vector<Scalar> scalars;
  if (kind == Norm::power) scalars.emplace_back(ord);
  const Tensor* operands[] = {&x};
  return call({"vector_norm", loc, operands, ints, scalars},
              [&](const Tensor& x, const std::vector<Tensor>& s) {
                return cast_to(norm_body(wide(x), kind, s.empty() ? Tensor() : s[0], d, keepdim), x.dtype());
              });
}

Tensor matrix_norm(const Tensor& x, std::optional<double> ord, Dims dims, bool keepdim, Loc loc) {
  require_floating(x, "matrix_norm", loc);
  KILN_CHECK(x.dim() >= 2 && dims.size() == 2, invalid,
             "matrix_norm ({}): got x {} and {} dims, expected at least two dims and two of them", loc.str(),
             x.type_str(), dims.size());
  const int64_t row = wrap_dim(dims[0], x.dim(), "matrix_norm", loc),
                column = wrap_dim(dims[1], x.dim(), "matrix_norm", loc);
  KILN_CHECK(row != column, invalid, "matrix_norm ({}): dim {} is given twice", loc.str(), dims[0]);
  if (!ord) return vector_norm(x, 2, {row, column}, keepdim, loc);
  const double p = *ord;
  KILN_CHECK(std::abs(p) == 1 || std::isinf(p), unsupported,
             "matrix_norm ({}): order {} is not one of 1, -1, inf and -inf", loc.str(), p);
  const int64_t added = std::isinf(p) ? column : row, kept = std::isinf(p) ? row : column;
  const int64_t ints[] = {added, kept, p > 0, keepdim};
  const Tensor* operands[] = {&x};
  return call({"matrix_norm", loc, operands, ints, {}}, [&](const Tensor& x, const auto&) {
    const Tensor sums = reduce(op("sum"), unary(op("abs"), x), {added}, true);
    const Tensor r = reduce(p > 0 ? op("amax") : op("amin"), sums, {kept}, true);
    if (keepdim) return r;
    Sizes s = x.sizes();
    s.erase(s.begin() + std::max(row, column));
    s.erase(s.begin() + std::min(row, column));
    return reshape_to(r, s);
  });
}

Tensor logsumexp(const Tensor& given, Dims dims, bool keepdim, Loc loc) {
  require_floating(given, "logsumexp", loc);
  return reduce_call("logsumexp", given, dims, keepdim, 0, loc, [&](const Tensor& half, const Sizes& d) {
    const Tensor x = wide(half);
    // Nothing to shift by where nothing is summed: the result is log(0).
    if (count(x, d) == 0)
      return cast_to(unary(op("log"), reduce(op("sum"), unary(op("exp"), x), d, keepdim)), half.dtype());
    const Tensor top = reduce(op("amax"), x, d, true).detach(loc);
    const Tensor infinite = binary(op("eq"), unary(op("abs"), top), constant_like(top, INFINITY));
    const Tensor zero = constant_like(top, 0);
    const Tensor finite = apply(op("where"), {&infinite, &zero, &top});
    const Tensor shifted = binary(op("sub"), x, finite);
    const Tensor s = unary(op("log"), reduce(op("sum"), unary(op("exp"), shifted), d, keepdim));
    return cast_to(add2(s, reshape_to(finite, s.sizes())), half.dtype());
  });
}

}  // namespace kiln
