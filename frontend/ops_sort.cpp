// SPDX-License-Identifier: Apache-2.0
#include "frontend/ops_sort.h"

#include "frontend/ops_detail.h"
#include "frontend/window_detail.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace {

/// A 0-d tensor is a line of one.
Tensor as_line(const Tensor& x) { return x.dim() == 0 ? reshape_to(x, {1}) : x; }
Tensor along(const Tensor& x, const Tensor& places, int64_t dim) {
  return apply(op("take_along"), {&x, &places}, {dim});
}
std::pair<Tensor, Tensor> both(std::vector<Tensor> r) { return {std::move(r[0]), std::move(r[1])}; }

/// Elements [first, first + count) of the order along `dim`, with that dim or, for one, without.
std::vector<Tensor> in_order(const Tensor& x, int64_t dim, bool descending, int64_t first, int64_t count,
                             bool drop_dim) {
  const Tensor line = as_line(x);
  const Tensor places = cut(apply(op("argsort"), {&line}, {dim, descending}), dim, first, count);
  const Tensor values = along(line, places, dim);
  Sizes s = values.sizes();
  if (drop_dim) s.erase(s.begin() + dim);
  if (x.dim() == 0) s.clear();
  return {reshape_to(values, s), reshape_to(places, s)};
}

std::pair<Tensor, Tensor> ranked(const char* name, const Tensor& x, int64_t k, int64_t dim, bool keepdim,
                                 Loc loc) {
  require(x, name, loc);
  const int64_t d = wrap_dim(dim, x.dim(), name, loc), n = x.dim() == 0 ? 1 : x.size(d);
  KILN_CHECK(k >= 1 && k <= n, invalid, "{} ({}): k is {}, expected 1 to {}, the size of dim {} of x {}",
             name, loc.str(), k, n, d, x.type_str());
  const Tensor* operands[] = {&x};
  const int64_t ints[] = {k, d, keepdim};
  return both(call_many(name, loc, operands, ints, {},
                        [&](const auto&) { return in_order(x, d, false, k - 1, 1, !keepdim); }));
}

Tensor running(Op o, const Tensor& x, int64_t dim, Loc loc) {
  const char* name = kOpNames[o.id].data();
  require(x, name, loc);
  const int64_t d = wrap_dim(dim, x.dim(), name, loc);
  if (o == op("logcumsumexp")) require_floating(x, name, loc);
  return call(name, loc, {&x}, {d}, {}, [&](const Tensor& x, const auto&) {
    const Tensor line = as_line(is_floating(x.dtype()) ? x : cast_to(x, DType::i64));
    return reshape_to(apply(o, {&line}, {d}), x.sizes());
  });
}
std::pair<Tensor, Tensor> best_so_far(const char* name, Op o, const Tensor& x, int64_t dim, Loc loc) {
  require(x, name, loc);
  const int64_t d = wrap_dim(dim, x.dim(), name, loc);
  const Tensor* operands[] = {&x};
  const int64_t ints[] = {d};
  return both(call_many(name, loc, operands, ints, {}, [&](const auto&) -> std::vector<Tensor> {
    const Tensor line = as_line(x), places = apply(o, {&line}, {d});
    return {reshape_to(along(line, places, d), x.sizes()), reshape_to(places, x.sizes())};
  }));
}

}  // namespace

std::pair<Tensor, Tensor> sort(const Tensor& x, int64_t dim, bool descending, Loc loc) {
  require(x, "sort", loc);
  const int64_t d = wrap_dim(dim, x.dim(), "sort", loc), n = x.dim() == 0 ? 1 : x.size(d);
  const Tensor* operands[] = {&x};
  const int64_t ints[] = {d, descending};
  return both(call_many("sort", loc, operands, ints, {},
                        [&](const auto&) { return in_order(x, d, descending, 0, n, false); }));
}

Tensor argsort(const Tensor& x, int64_t dim, bool descending, Loc loc) {
  require(x, "argsort", loc);
  const int64_t d = wrap_dim(dim, x.dim(), "argsort", loc);
  return call("argsort", loc, {&x}, {d, descending}, {}, [&](const auto&) {
    const Tensor line = as_line(x);
    return reshape_to(apply(op("argsort"), {&line}, {d, descending}), x.sizes());
  });
}

std::pair<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim, bool largest, Loc loc) {
  require(x, "topk", loc);
  const int64_t d = wrap_dim(dim, x.dim(), "topk", loc), n = x.dim() == 0 ? 1 : x.size(d);
  KILN_CHECK(k >= 0 && k <= n, invalid, "topk ({}): k is {}, expected 0 to {}, the size of dim {} of x {}",
             loc.str(), k, n, d, x.type_str());
  KILN_CHECK(x.dim() > 0 || k == 1, invalid, "topk ({}): k is 0 for the single number x {}", loc.str(),
             x.type_str());
  const Tensor* operands[] = {&x};
  const int64_t ints[] = {k, d, largest};
  return both(call_many("topk", loc, operands, ints, {},
                        [&](const auto&) { return in_order(x, d, largest, 0, k, false); }));
}

std::pair<Tensor, Tensor> kthvalue(const Tensor& x, int64_t k, int64_t dim, bool keepdim, Loc loc) {
  return ranked("kthvalue", x, k, dim, keepdim, loc);
}

std::pair<Tensor, Tensor> median(const Tensor& x, int64_t dim, bool keepdim, Loc loc) {
  constexpr const char* kName = "median";
  require(x, kName, loc);
  const int64_t d = wrap_dim(dim, x.dim(), kName, loc), n = x.dim() == 0 ? 1 : x.size(d);
  KILN_CHECK(n > 0, invalid, "median ({}): dim {} of x {} is empty", loc.str(), d, x.type_str());
  const Tensor* operands[] = {&x};
  const int64_t ints[] = {d, keepdim};
  return both(call_many(kName, loc, operands, ints, {}, [&](const auto&) -> std::vector<Tensor> {
    const Tensor line = as_line(x);
    const Tensor order = apply(op("argsort"), {&line}, {d, false});
    Tensor place = cut(order, d, (n - 1) / 2, 1);
    if (is_floating(x.dtype())) {
      // Any NaN is the last in order, and then the result.
      const Tensor last = cut(order, d, n - 1, 1);
      const Tensor nan = unary(op("isnan"), along(line, last, d));
      place = select3(nan, last, place);
    }
    const Tensor value = along(line, place, d);
    Sizes s = value.sizes();
    if (!keepdim) s.erase(s.begin() + d);
    if (x.dim() == 0) s.clear();
    return {reshape_to(value, s), reshape_to(place, s)};
  }));
}

Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right, Loc loc) {
  constexpr const char* kName = "searchsorted";
  require(sorted, kName, loc, "sorted");
  require(values, kName, loc, "values");
  KILN_CHECK(sorted.dim() >= 1 && (sorted.dim() == 1 || sorted.dim() == values.dim()), invalid,
             "searchsorted ({}): got sorted {} for values {}, expected one dim or as many as values",
             loc.str(), sorted.type_str(), values.type_str());
  for (int64_t d = 0; sorted.dim() > 1 && d + 1 < sorted.dim(); ++d)
    KILN_CHECK(sorted.size(d) == values.size(d), invalid,
               "searchsorted ({}): sizes beside the last dim differ; got sorted {} and values {}", loc.str(),
               sorted.type_str(), values.type_str());
  require_one_dtype({{&sorted, "sorted"}, {&values, "values"}}, kName, loc);
  return call(kName, loc, {&sorted, &values}, {right}, {}, [&](const auto&) {
    return apply(op("searchsorted"), {&sorted, &values}, {right});
  });
}

Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool right, Loc loc) {
  require(x, "bucketize", loc);
  require(boundaries, "bucketize", loc, "boundaries");
  KILN_CHECK(boundaries.dim() == 1, invalid, "bucketize ({}): got boundaries {}, expected one dim", loc.str(),
             boundaries.type_str());
  require_one_dtype({{&x, "x"}, {&boundaries, "boundaries"}}, "bucketize", loc);
  return searchsorted(boundaries, x, right, loc);
}

Tensor cumsum(const Tensor& x, int64_t dim, Loc loc) { return running(op("cumsum"), x, dim, loc); }
Tensor cumprod(const Tensor& x, int64_t dim, Loc loc) { return running(op("cumprod"), x, dim, loc); }
Tensor logcumsumexp(const Tensor& x, int64_t dim, Loc loc) {
  return running(op("logcumsumexp"), x, dim, loc);
}
std::pair<Tensor, Tensor> cummax(const Tensor& x, int64_t dim, Loc loc) {
  return best_so_far("cummax", op("cumargmax"), x, dim, loc);
}
std::pair<Tensor, Tensor> cummin(const Tensor& x, int64_t dim, Loc loc) {
  return best_so_far("cummin", op("cumargmin"), x, dim, loc);
}

}  // namespace kiln
