// SPDX-License-Identifier: Apache-2.0
// Linear algebra beside matmul and outer of ops.h. Names, arguments and refusals are PyTorch's; where it
// wants equal dtypes and exact ranks, so do these.
#pragma once

#include <string_view>
#include <vector>

#include "frontend/ops.h"

namespace kiln {

// Products: sums of a[.., k] b[k, ..]. Throws: invalid, on other ranks, sizes or bool, and on different
// dtypes.
/// Of matrices. Shapes: [n, k], [k, m] -> [n, m].
Tensor mm(const Tensor& a, const Tensor& b, Loc loc = Loc::current());
/// Of pairs of matrices. Shapes: [b, n, k], [b, k, m] -> [b, n, m].
Tensor bmm(const Tensor& a, const Tensor& b, Loc loc = Loc::current());
/// Of a matrix and a vector. Shapes: [n, k], [k] -> [n].
Tensor mv(const Tensor& a, const Tensor& b, Loc loc = Loc::current());
/// Of two vectors. Shapes: [k], [k] -> [].
Tensor dot(const Tensor& a, const Tensor& b, Loc loc = Loc::current());

// beta * x + alpha * a product that x broadcasts to. With beta 0, x is not read (its NaN do not spread),
// and its gradient is zero. Throws: invalid, on shapes, different dtypes, and numbers with a fraction for
// integers.
/// beta x + alpha mm(a, b). Shapes: [n, k], [k, m], x broadcasts to [n, m] -> [n, m].
Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1,
             Loc loc = Loc::current());
/// beta x + alpha bmm(a, b). Shapes: [b, n, k], [b, k, m], x broadcasts to [b, n, m] -> [b, n, m].
Tensor baddbmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1,
               Loc loc = Loc::current());
/// beta x + alpha (the sum of bmm(a, b) over the batch). Shapes: [b, n, k], [b, k, m], x broadcasts to [n,
/// m] -> [n, m].
Tensor addbmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1,
              Loc loc = Loc::current());
/// beta x + alpha mv(a, b). Shapes: [n, k], [k], x broadcasts to [n] -> [n].
Tensor addmv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1,
             Loc loc = Loc::current());
/// beta x + alpha outer(a, b). Shapes: [n], [m], x broadcasts to [n, m] -> [n, m].
Tensor addr(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1,
            Loc loc = Loc::current());

/// Einstein's sums: "ij,jk->ik". A label that stands twice in an operand takes its diagonal; one that is
/// not in the result is summed; "..." stands for dims that broadcast; without "->" the result has the
/// labels that stand once, in order of the alphabet (capitals first), after the dims of "...". Dims of size
/// 1 broadcast. Products are made from left to right. Shapes: operands as the equation names -> as the
/// result's labels. Throws: invalid, on the equation, no tensors, ranks, sizes, bool and different dtypes.
Tensor einsum(std::string_view equation, const std::vector<Tensor>& tensors, Loc loc = Loc::current());

/// Sum of products over the last `dims` dims of a and the first of b, or over the pairs of two lists.
/// Shapes: the other dims of a, then those of b. Throws: invalid, on dims that differ, bool, and different
/// dtypes.
Tensor tensordot(const Tensor& a, const Tensor& b, int64_t dims = 2, Loc loc = Loc::current());
Tensor tensordot(const Tensor& a, const Tensor& b, const Sizes& dims_a, const Sizes& dims_b,
                 Loc loc = Loc::current());
/// Kronecker's product: each element of a times b. Shapes: [n, m], [k, l] -> [n k, m l]; any ranks, as with
/// dims of size 1 in front. Throws: invalid, on bool.
Tensor kron(const Tensor& a, const Tensor& b, Loc loc = Loc::current());
/// Cross product along a dim of 3 elements. Shapes: a and b of one rank, which broadcast. Throws: invalid,
/// on different ranks, and unless both have 3 elements there. Source: torch.linalg.cross.
Tensor cross(const Tensor& a, const Tensor& b, int64_t dim = -1, Loc loc = Loc::current());
/// Sum of a matrix's diagonal. Shapes: [n, m] -> []. Throws: invalid, unless x is a matrix.
Tensor trace(const Tensor& x, Loc loc = Loc::current());

/// y[..., o] = sum of x1[..., i] weight[o, i, j] x2[..., j] + bias[o]. Shapes: [..., i], [..., j], weight
/// [o, i, j], bias [o] -> [..., o]. Throws: invalid, on other shapes, and on dtypes that differ or are not
/// floating. Source: torch.nn.functional.bilinear.
Tensor bilinear(const Tensor& x1, const Tensor& x2, const Tensor& weight, const Tensor& bias = {},
                Loc loc = Loc::current());
/// Distances of order p between all rows of x1 and of x2. Shapes: [..., n, d], [..., m, d], whose batches
/// broadcast -> [..., n, m]. Throws: invalid, on other shapes, dtypes that are not floating, and p < 0.
Tensor cdist(const Tensor& x1, const Tensor& x2, double p = 2, Loc loc = Loc::current());

}  // namespace kiln
