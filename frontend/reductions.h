// SPDX-License-Identifier: Apache-2.0
// Reductions beside those of ops.h: extrema with their places, spread, norms, and those that leave NaN out.
// Names, arguments and numerics are PyTorch's. Shapes: x [...] -> its shape without `dims` (all if empty; 1
// in their places with keepdim).
#pragma once

#include <limits>
#include <optional>

#include "frontend/ops.h"

namespace kiln {

struct ValuesAndIndices {
  Tensor values, indices;  ///< indices: i64, along the dim
};
/// The largest (smallest) element; ties share the gradient. Shapes: x [...] -> []. Throws: invalid, on an
/// empty tensor.
Tensor max(const Tensor& x, Loc loc = Loc::current());
Tensor min(const Tensor& x, Loc loc = Loc::current());
/// maximum and minimum. Shapes: x and y broadcast. Throws: nothing else.
Tensor max(const Tensor& x, const Tensor& y, Loc loc = Loc::current());
Tensor min(const Tensor& x, const Tensor& y, Loc loc = Loc::current());
/// The first largest (smallest) element along `dim`, or the first NaN; it alone gets the gradient.
/// Shapes: x [...] -> without dim (1 there with keepdim), both. Throws: invalid, when the dim is empty.
ValuesAndIndices max(const Tensor& x, int64_t dim, bool keepdim = false, Loc loc = Loc::current());
ValuesAndIndices min(const Tensor& x, int64_t dim, bool keepdim = false, Loc loc = Loc::current());
struct Extrema {
  Tensor min, max;
};
/// amin and amax. Throws: invalid, on an empty dim.
Extrema aminmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false,
                Loc loc = Loc::current());

// Spread and sums. Throws: invalid, on a dtype that is not floating.
/// sqrt(var); where it is zero, so is its gradient.
Tensor std(const Tensor& x, Dims dims = {}, int64_t correction = 1, bool keepdim = false,
           Loc loc = Loc::current());
struct Spread {
  Tensor spread, mean;  ///< spread: the variance or its root
};
/// var and mean.
Spread var_mean(const Tensor& x, Dims dims = {}, int64_t correction = 1, bool keepdim = false,
                Loc loc = Loc::current());
/// std and mean.
Spread std_mean(const Tensor& x, Dims dims = {}, int64_t correction = 1, bool keepdim = false,
                Loc loc = Loc::current());
/// sum and mean where NaN counts as zero (nansum), or not at all (nanmean).
Tensor nansum(const Tensor& x, Dims dims = {}, bool keepdim = false, Loc loc = Loc::current());
Tensor nanmean(const Tensor& x, Dims dims = {}, bool keepdim = false, Loc loc = Loc::current());

/// How many elements are not zero; i64. Throws: nothing else.
Tensor count_nonzero(const Tensor& x, Dims dims = {}, Loc loc = Loc::current());

/// (sum |x|^ord)^(1/ord); the largest and smallest |x| for +-infinity, the number of elements that are not
/// zero for 0. Gradients at a norm of zero are zero. Throws: invalid, on a dtype that is not floating,
/// where an extremum is over nothing, and when ord is NaN. Source: torch.linalg.vector_norm.
Tensor vector_norm(const Tensor& x, double ord = 2, Dims dims = {}, bool keepdim = false,
                   Loc loc = Loc::current());
/// vector_norm. Throws: invalid, as vector_norm. Source: torch.norm, but for its "nuc".
Tensor norm(const Tensor& x, double p = 2, Dims dims = {}, bool keepdim = false, Loc loc = Loc::current());
/// Of the matrices in the two dims: Frobenius without `ord`; the largest (smallest) sum of a column's
/// magnitudes for 1 (-1), of a row's for +-infinity. Throws: unsupported, for orders of singular values;
/// invalid, on fewer than two dims, and a dtype that is not floating. Source: torch.linalg.matrix_norm.
Tensor matrix_norm(const Tensor& x, std::optional<double> ord = {}, Dims dims = {-2, -1},
                   bool keepdim = false, Loc loc = Loc::current());

}  // namespace kiln
