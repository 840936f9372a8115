// SPDX-License-Identifier: Apache-2.0
// Shared pieces of the op bodies: promotion, broadcasting, dim normalisation. Bodies only, never events.
#pragma once

#include <vector>

#include "frontend/dispatch.h"
#include "frontend/ops.h"

namespace kiln::detail {

/// Throws: invalid, when out of range. `rank` 0 counts as 1 for the reductions of scalars.
int64_t wrap_dim(int64_t dim, int64_t rank, const char* name, Loc loc);
/// Sorted, distinct, non-negative; all dims when empty.
Sizes wrap_dims(const Sizes& dims, int64_t rank, const char* name, Loc loc);

/// Result shape of right-aligned broadcasting. Throws: invalid, with both types.
Sizes broadcast_shapes(const Tensor& a, const Tensor& b, const char* name, Loc loc);
/// torch.result_type of two tensors: a 0-d tensor only raises the category.
DType result_type(const Tensor& a, const Tensor& b);

// Primitives with the identity case removed.
Tensor cast_to(const Tensor& x, DType dtype);
Tensor expand_to(const Tensor& x, const Sizes& sizes);
Tensor reshape_to(const Tensor& x, const Sizes& sizes);
Tensor unary(Op o, const Tensor& x);
/// Operands are cast to a common dtype and broadcast, then `o`.
Tensor binary(Op o, const Tensor& a, const Tensor& b, Loc loc = {});
Tensor constant_like(const Tensor& x, double value);
// The four operations by name, for bodies that read like formulas.
inline Tensor add2(const Tensor& a, const Tensor& b) { return binary(op("add"), a, b); }
inline Tensor sub2(const Tensor& a, const Tensor& b) { return binary(op("sub"), a, b); }
inline Tensor mul2(const Tensor& a, const Tensor& b) { return binary(op("mul"), a, b); }
inline Tensor div2(const Tensor& a, const Tensor& b) { return binary(op("div"), a, b); }
/// A constant of the library (not a user's number), 0-d, in the dtype of `like`.
Tensor lit(const Tensor& like, double value);
/// a where c, else b; both expanded to c.
Tensor select3(const Tensor& c, const Tensor& a, const Tensor& b);
/// Index along `dim`, i64.
Tensor iota(int64_t dim, const Sizes& sizes);
Tensor reduce(Op o, const Tensor& x, const Sizes& dims, bool keepdim);
/// The 0-d tensor of a run-time number in the dtype that an op with `like` gives it.
Tensor scalar_for(const Tensor& scalar, bool is_int, const Tensor& like);

/// The i64 elements of `index` must be in [0, size). Throws: invalid, naming the largest that is not; inside
/// a compiled callable when the stage has run.
void check_indices(const Tensor& index, int64_t size, const char* name, Loc loc);
/// Elements of `values` where `bad` is set are errors: "<name> (<loc>): <what> <value> is out of range;
/// expected <expected>".
void check_elements(const Tensor& values, const Tensor& bad, const char* name, Loc loc, const char* what,
                    const std::string& expected);

/// A number that becomes an element of dtype `t` must have a value there; fractions of integers are cut, and
/// negative numbers wrap in u8, as in PyTorch. Throws: invalid.
void require_fits(const Scalar& number, DType t, const char* name, Loc loc);
/// Checks one operand: defined. Throws: invalid.
void require(const Tensor& x, const char* name, Loc loc);
void require_floating(const Tensor& x, const char* name, Loc loc);

}  // namespace kiln::detail
