// SPDX-License-Identifier: Apache-2.0
// Linear algebra beside matmul and outer of ops.h. Names, arguments and refusals are PyTorch's; where it
// wants equal dtypes and exact ranks, so do these.
#pragma once

#include <string_view>
#include <vector>

#include "frontend/ops.h"

namespace kiln {

/// Shapes: [n, k], [k, m] -> [n, m].
Tensor mm(const Tensor& a, const Tensor& b, Loc loc = Loc::current());
/// Shapes: [b, n, k], [b, k, m] -> [b, n, m].
Tensor bmm(const Tensor& a, const Tensor& b, Loc loc = Loc::current());
/// Shapes: [n, k], [k] -> [n].
Tensor mv(const Tensor& a, const Tensor& b, Loc loc = Loc::current());
/// Shapes: [k], [k] -> [].
Tensor dot(const Tensor& a, const Tensor& b, Loc loc = Loc::current());

// beta * x + alpha * a product that x broadcasts to. With beta 0, x is not read (its NaN do not spread), and
// its gradient is zero. Throws: invalid, on shapes, and on numbers with a fraction for integers.
/// Of mm.
Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1,
             Loc loc = Loc::current());
/// Of bmm.
Tensor baddbmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1,
               Loc loc = Loc::current());
/// Of bmm, summed over the batch.
Tensor addbmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1,
              Loc loc = Loc::current());
/// Of mv.
Tensor addmv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1,
             Loc loc = Loc::current());
/// Of outer.
Tensor addr(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1,
            Loc loc = Loc::current());

/// Einstein's sums: "ij,jk->ik". A label that stands twice in an operand takes its diagonal; one that is not
/// in the result is summed; "..." stands for dims that broadcast; without "->" the result has the labels that
/// stand once, in order of the alphabet (capitals first), after the dims of "...". Dims of size 1 broadcast.
/// Products are made from left to right. Throws: invalid, on the equation, ranks, sizes and dtypes. Source:
/// torch.einsum.
Tensor einsum(std::string_view equation, const std::vector<Tensor>& tensors, Loc loc = Loc::current());

/// Sum of products over the last `dims` dims of a and the first of b, or over the pairs of two lists.
/// Source: torch.tensordot.
Tensor tensordot(const Tensor& a, const Tensor& b, int64_t dims = 2, Loc loc = Loc::current());
Tensor tensordot(const Tensor& a, const Tensor& b, const Sizes& dims_a, const Sizes& dims_b,
                 Loc loc = Loc::current());
/// Kronecker's product of tensors of any ranks.
Tensor kron(const Tensor& a, const Tensor& b, Loc loc = Loc::current());
/// Cross product along a dim of 3 elements; the operands broadcast. Source: torch.linalg.cross.
Tensor cross(const Tensor& a, const Tensor& b, int64_t dim = -1, Loc loc = Loc::current());
/// Sum of a matrix's diagonal.
Tensor trace(const Tensor& x, Loc loc = Loc::current());

/// y[..., o] = sum of x1[..., i] weight[o, i, j] x2[..., j] + bias[o]. Source: torch.nn.functional.bilinear.
Tensor bilinear(const Tensor& x1, const Tensor& x2, const Tensor& weight, const Tensor& bias = {},
                Loc loc = Loc::current());
/// Distances of order p between all rows of x1 [..., n, d] and of x2 [..., m, d]: [..., n, m]. Source:
/// torch.cdist.
Tensor cdist(const Tensor& x1, const Tensor& x2, double p = 2, Loc loc = Loc::current());

}  // namespace kiln
