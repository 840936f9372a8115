// SPDX-License-Identifier: Apache-2.0
// Orders and running results along a dim. Names, arguments and numerics are PyTorch's. Sorting is stable,
// and NaN is larger than every number. Shapes: x [...] -> [...].
#pragma once

#include <utility>

#include "frontend/ops.h"

namespace kiln {

/// The elements along `dim` in order, and where they were (i64). The gradient goes back there. Throws:
/// nothing else.
std::pair<Tensor, Tensor> sort(const Tensor& x, int64_t dim = -1, bool descending = false,
                               Loc loc = Loc::current());
/// Where the elements along `dim` are in order; i64, equal ones as they stand. Throws: nothing else.
Tensor argsort(const Tensor& x, int64_t dim = -1, bool descending = false, Loc loc = Loc::current());
/// The k largest (smallest) elements along `dim` in order, and their places. Shapes: x [...] -> with k at
/// dim, both. Throws: invalid, unless 0 <= k <= the dim's size.
std::pair<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim = -1, bool largest = true,
                               Loc loc = Loc::current());
/// The k-th smallest element along `dim`, from 1, and its place. Shapes: x [...] -> without dim (1 there
/// with keepdim), both. Throws: invalid, unless 1 <= k <= the dim's size.
std::pair<Tensor, Tensor> kthvalue(const Tensor& x, int64_t k, int64_t dim = -1, bool keepdim = false,
                                   Loc loc = Loc::current());
/// The lower of the middle elements along `dim`, and its place; NaN if there is one. Shapes: as kthvalue.
/// Throws: invalid, on an empty dim.
std::pair<Tensor, Tensor> median(const Tensor& x, int64_t dim, bool keepdim = false,
                                 Loc loc = Loc::current());
/// Where each value would be put into the sorted last dim of `sorted`: before its equals, or (right) after
/// them; i64. Shapes: sorted [n], or [..., n] with the sizes of values [..., m] -> as values. Throws:
/// invalid, on other shapes, bool, and different dtypes.
Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right = false, Loc loc = Loc::current());
/// The bucket of each element of x between sorted boundaries: searchsorted(boundaries, x). Shapes: x [...],
/// boundaries [n] -> as x. Throws: invalid, as searchsorted.
Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool right = false, Loc loc = Loc::current());

// Running results along a dim.
/// Sum of the elements so far; integers and bool become i64. Throws: nothing else.
Tensor cumsum(const Tensor& x, int64_t dim, Loc loc = Loc::current());
/// Product of the elements so far; integers and bool become i64. Throws: nothing else.
Tensor cumprod(const Tensor& x, int64_t dim, Loc loc = Loc::current());
/// The largest (smallest) element so far, and its place: the last of equals. NaN stays. Throws: nothing
/// else.
std::pair<Tensor, Tensor> cummax(const Tensor& x, int64_t dim, Loc loc = Loc::current());
std::pair<Tensor, Tensor> cummin(const Tensor& x, int64_t dim, Loc loc = Loc::current());
/// log of the sum of exp(x) so far, without overflow. Throws: invalid, on a dtype that is not floating.
Tensor logcumsumexp(const Tensor& x, int64_t dim, Loc loc = Loc::current());

}  // namespace kiln
