// SPDX-License-Identifier: Apache-2.0
// Shared pieces of the op bodies: promotion, broadcasting, dim normalisation. Bodies only, never events.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "frontend/dispatch.h"
#include "frontend/ops.h"
#include "frontend/state.h"

namespace kiln::detail {

/// Throws: invalid, when out of range. `rank` 0 counts as 1 for the reductions of scalars.
int64_t wrap_dim(int64_t dim, int64_t rank, const char* name, Loc loc);
/// The size of a dim. Throws: invalid, when x has no such dim.
int64_t size_along(const Tensor& x, int64_t dim, const char* name, Loc loc);
/// Throws: invalid, for more tensors than a list of them can be meant to have.
void check_pieces(int64_t pieces, const char* name, Loc loc);
/// Sorted, distinct, non-negative; all dims when empty.
Sizes wrap_dims(const Sizes& dims, int64_t rank, const char* name, Loc loc);

/// An operand, and its name where the function is declared.
struct Arg {
  const Tensor* tensor;  ///< null or undefined: absent
  const char* name;
};
/// The names of two operands.
struct ArgNames {
  const char *a = "a", *b = "b";
};

/// Result shape of right-aligned broadcasting. Throws: invalid, with both names and types.
Sizes broadcast_shapes(const Tensor& a, const Tensor& b, const char* name, Loc loc, ArgNames args = {});
/// Whether x broadcasts to `sizes`, aligned at the right.
bool broadcasts_to(const Tensor& x, const Sizes& sizes);
/// Throws: invalid, as broadcast_shapes, unless any two of the operands that there are broadcast.
void require_broadcast(std::initializer_list<Arg> args, const char* name, Loc loc);
/// Throws: invalid, unless the operands that there are have one dtype.
void require_one_dtype(std::initializer_list<Arg> args, const char* name, Loc loc);
/// torch.result_type of two tensors: a 0-d tensor only raises the category.
DType result_type(const Tensor& a, const Tensor& b);

// Primitives with the identity case removed.
Tensor cast_to(const Tensor& x, DType dtype);
Tensor expand_to(const Tensor& x, const Sizes& sizes);
Tensor reshape_to(const Tensor& x, const Sizes& sizes);
/// Dim i of the result is dim dims[i] of x.
Tensor permuted(const Tensor& x, const std::vector<int64_t>& dims);
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
/// Elements in the given dims.
int64_t count(const Tensor& x, const Sizes& dims);
Tensor as_bool(const Tensor& x);
/// In memory of its own, row by row.
Tensor copied(const Tensor& x);
/// x to whole numbers by `o`; of integers, which are whole already, a copy.
Tensor rounded(Op o, const Tensor& x);
/// x's value; no gradient passes.
Tensor constant_of(const Tensor& x);
/// An integer as f32, everything else as it is.
Tensor floating(const Tensor& x);
/// A half as f32, everything else as it is: sums of halves may be larger than any of them.
Tensor wide(const Tensor& x);
/// The vector norm of order 2 over `dims`, kept; its gradient at zero is zero.
Tensor norm2(const Tensor& x, const Sizes& dims);
/// The formulas of vector norms, as they stand in an event's structure.
enum class Norm : int64_t { zero, one, two, top, bottom, power };
Norm norm_kind(double ord);
/// A vector norm over `dims`. `p`, 0-d: the order, read where the formula is a power.
Tensor norm_body(const Tensor& x, Norm kind, const Tensor& p, const Sizes& dims, bool keepdim);
/// log(1 / (1 + exp(-x))), and its derivative, without overflow.
Tensor log_sigmoid_body(const Tensor& x);
/// The seed and offset of `count` draws, as numbers of an event.
std::vector<Scalar> draw(int count);
/// Uniform f32 in [0, 1).
Tensor uniform(const Tensor& seed, const Tensor& offset, const Sizes& sizes);
/// The largest number of a floating dtype.
double largest_finite(DType t);
/// Uniform in [0, 1) of `dtype`: for halves a multiple of 2^-8 or 2^-11, their digits below one.
Tensor uniform_of(const Tensor& seed, const Tensor& offset, const Sizes& sizes, DType dtype);
/// Standard normal f32 of two draws.
Tensor normal_of(const Tensor& seed, const Tensor& offset, const Tensor& seed2, const Tensor& offset2,
                 const Sizes& sizes);
/// x with elements zeroed with probability p (f64[]) and the rest scaled by 1/(1-p): one draw for each
/// element of `noise`, a shape that broadcasts to x.
Tensor dropped(const Tensor& x, const Sizes& noise, const Tensor& p, const Tensor& seed,
               const Tensor& offset);
/// The 0-d tensor of a run-time number in the dtype that an op with `like` gives it.
Tensor scalar_for(const Tensor& scalar, bool is_int, const Tensor& like);

/// The elements of `index` must be in [0, size), whose meaning `of` tells. Throws: invalid, naming the
/// largest that is not; inside a compiled callable when the stage has run.
void check_indices(const Tensor& index, int64_t size, const char* name, Loc loc, const char* arg = "index",
                   const std::string& of = "");
/// Elements of `values` where `bad` is set are errors: "<name> (<loc>): <what> <value> is out of range;
/// expected <expected>". Those from 0 to `size` - 1 are never bad.
void check_elements(const Tensor& values, const Tensor& bad, int64_t size, const char* name, Loc loc,
                    const char* what, const std::string& expected);

/// A number that becomes an element of dtype `t` must have a value there; fractions of integers are cut, and
/// negative numbers wrap in u8, as in PyTorch. Throws: invalid.
void require_fits(const Scalar& number, DType t, const char* name, Loc loc, const char* arg = "value");
// Checks of one operand, with the name that its declaration gives it. Throw: invalid.
void require(const Tensor& x, const char* name, Loc loc, const char* arg = "x");
void require_floating(const Tensor& x, const char* name, Loc loc, const char* arg = "x");
void require_bool(const Tensor& x, const char* name, Loc loc, const char* arg);
/// All of the list "tensors", of which there must be one.
void require_all(const std::vector<Tensor>& tensors, const char* name, Loc loc);
/// Two operands that are there and broadcast. Throws: invalid.
void require_pair(const Tensor& x, const Tensor& y, const char* name, Loc loc);

// The functions of these names for one that is called `name`, which their errors say.
/// Where tensors do not fit, an error has the types of `given`, which they were made of.
Tensor cat(const char* name, const std::vector<Tensor>& tensors, const std::vector<Tensor>& given,
           int64_t dim, Loc loc);
Tensor clamp(const char* name, const Tensor& x, std::optional<double> lo, std::optional<double> hi, Loc loc);

/// One event with a list of integers as its structure.
template <typename Body>
Tensor shape_call(const char* name, Loc loc, const Tensor& x, const Sizes& ints, Body&& body) {
  require(x, name, loc);
  const Tensor* operands[] = {&x};
  return call({name, loc, operands, ints, {}}, [&](const auto&) { return body(); });
}

/// One event of a floating operand and run-time numbers.
template <typename Body>
Tensor number_call(const char* name, const Tensor& x, std::initializer_list<Scalar> numbers, Loc loc,
                   Body&& body) {
  require_floating(x, name, loc);
  return call(name, loc, {&x}, {}, numbers, [&](const Tensor& x, const std::vector<Tensor>& s) {
    const Tensor w = wide(x);
    std::vector<Tensor> cast;
    for (const Tensor& n : s) cast.push_back(cast_to(n, w.dtype()));
    return cast_to(body(w, cast), x.dtype());
  });
}

/// `body(a, b)` on tensors that broadcast, where a number has become a 0-d tensor.
template <typename Body>
Tensor binary_call(const char* name, const TensorArg& a, const TensorArg& b, Body&& body,
                   ArgNames args = {}) {
  if (a.tensor && b.tensor) {
    require(*a.tensor, name, a.loc, args.a);
    require(*b.tensor, name, b.loc, args.b);
    return call(name, a.loc, {a.tensor, b.tensor}, {}, {},
                [&](const Tensor& x, const Tensor& y, const auto&) {
                  require_broadcast({{&x, args.a}, {&y, args.b}}, name, a.loc);
                  return body(x, y);
                });
  }
  KILN_CHECK(a.tensor || b.tensor, invalid,
             "{} ({}): both operands are numbers, expected a tensor as {} or {}", name, a.loc.str(), args.a,
             args.b);
  const Tensor* tensor = a.tensor ? a.tensor : b.tensor;
  const Scalar& number = a.tensor ? b.scalar : a.scalar;
  require(*tensor, name, a.tensor ? a.loc : b.loc, a.tensor ? args.a : args.b);
  if (number.is_int) require_fits(number, tensor->dtype(), name, a.loc, a.tensor ? args.b : args.a);
  return call(name, a.loc, {tensor}, {a.tensor ? 0 : 1}, {number},
              [&](const Tensor& x, const std::vector<Tensor>& s) {
                const Tensor n = scalar_for(s[0], number.is_int, x);
                return a.tensor ? body(x, n) : body(n, x);
              });
}

/// `body(x, dims)` with the dims wrapped and sorted. `extra` is structure that the dims do not say.
template <typename Body>
Tensor reduce_call(const char* name, const Tensor& x, const Sizes& dims, bool keepdim, int64_t extra, Loc loc,
                   Body&& body) {
  require(x, name, loc);
  Sizes wrapped = wrap_dims(dims, x.dim(), name, loc);
  const size_t rank = wrapped.size();
  wrapped.insert(wrapped.end(), {keepdim, extra});
  const Tensor* operands[] = {&x};
  return call({name, loc, operands, wrapped, {}}, [&](const Tensor& from, const auto&) {
    wrapped.resize(rank);
    const Tensor r = body(from, wrapped);
    return r.impl() == from.impl() ? copied(r) : r;  // a scalar's sum is no other name of it
  });
}

}  // namespace kiln::detail
