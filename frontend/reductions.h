// SPDX-License-Identifier: Apache-2.0
// Reductions beside those of ops.h: extrema with their places, spread, norms, and those that leave NaN out.
// Names, arguments and numerics are PyTorch's; empty `dims` means all.
#pragma once

#include <limits>
#include <optional>

#include "frontend/ops.h"

namespace kiln {

struct ValuesAndIndices {
  Tensor values, indices;  ///< indices: i64, along the dim
};
/// The largest element; ties share the gradient. Throws: invalid, on an empty tensor. Source: torch.max(x).
Tensor max(const Tensor& x, Loc loc = Loc::current());
Tensor min(const Tensor& x, Loc loc = Loc::current());
/// maximum and minimum.
Tensor max(const Tensor& x, const Tensor& y, Loc loc = Loc::current());
Tensor min(const Tensor& x, const Tensor& y, Loc loc = Loc::current());
/// The first largest (smallest) element along `dim`, or the first NaN; it alone gets the gradient.
/// Throws: invalid, when the dim is empty. Source: torch.max(x, dim).
ValuesAndIndices max(const Tensor& x, int64_t dim, bool keepdim = false, Loc loc = Loc::current());
ValuesAndIndices min(const Tensor& x, int64_t dim, bool keepdim = false, Loc loc = Loc::current());
struct Extrema {
  Tensor min, max;
};
/// amin and amax. Source: torch.aminmax.
Extrema aminmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false,
                Loc loc = Loc::current());

/// sqrt(var); where it is zero, so is its gradient. Source: torch.std.
Tensor std(const Tensor& x, Dims dims = {}, int64_t correction = 1, bool keepdim = false,
           Loc loc = Loc::current());
struct Spread {
  Tensor spread, mean;  ///< spread: the variance or its root
};
Spread var_mean(const Tensor& x, Dims dims = {}, int64_t correction = 1, bool keepdim = false,
                Loc loc = Loc::current());
Spread std_mean(const Tensor& x, Dims dims = {}, int64_t correction = 1, bool keepdim = false,
                Loc loc = Loc::current());

/// NaN counts as zero (nansum), or not at all (nanmean).
Tensor nansum(const Tensor& x, Dims dims = {}, bool keepdim = false, Loc loc = Loc::current());
Tensor nanmean(const Tensor& x, Dims dims = {}, bool keepdim = false, Loc loc = Loc::current());
/// i64.
Tensor count_nonzero(const Tensor& x, Dims dims = {}, Loc loc = Loc::current());

/// (sum |x|^ord)^(1/ord); the largest and smallest |x| for +-infinity, the number of elements that are not
/// zero for 0. Gradients at a norm of zero are zero. Throws: invalid, where an extremum is over nothing.
/// Source: torch.linalg.vector_norm.
Tensor vector_norm(const Tensor& x, double ord = 2, Dims dims = {}, bool keepdim = false,
                   Loc loc = Loc::current());
/// vector_norm. Source: torch.norm, but for its "nuc".
Tensor norm(const Tensor& x, double p = 2, Dims dims = {}, bool keepdim = false, Loc loc = Loc::current());
/// Of the matrices in the two dims: Frobenius without `ord`; the largest (smallest) sum of a column's
/// magnitudes for 1 (-1), of a row's for +-infinity. Throws: unsupported, for orders of singular values.
/// Source: torch.linalg.matrix_norm.
Tensor matrix_norm(const Tensor& x, std::optional<double> ord = {}, Dims dims = {-2, -1},
                   bool keepdim = false, Loc loc = Loc::current());

}  // namespace kiln
