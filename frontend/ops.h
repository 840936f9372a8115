// SPDX-License-Identifier: Apache-2.0
// The functions on tensors: arithmetic, reductions, shapes, linear algebra. Names, arguments and numerics
// are PyTorch's (the torch function of the same name is the source of each). Every op takes the caller's
// line.
#pragma once

#include <concepts>
#include <optional>
#include <tuple>
#include <vector>

#include "frontend/tensor.h"

namespace kiln {

// Creation. Inside a compiled callable these are part of the program, not data. Shapes: [sizes]. Throws:
// invalid, on a negative size, and on requires_grad of a dtype that is not floating.
/// `value` in every element: i64 of an integer, bool of a bool, else f32, but for options.dtype.
Tensor full(Sizes sizes, Scalar value, TensorOptions options = {}, Loc loc = Loc::current());
/// 0 in every element.
Tensor zeros(Sizes sizes, TensorOptions options = {}, Loc loc = Loc::current());
/// 1 in every element.
Tensor ones(Sizes sizes, TensorOptions options = {}, Loc loc = Loc::current());
/// As zeros.
Tensor empty(Sizes sizes, TensorOptions options = {}, Loc loc = Loc::current());
/// Uniform in [0, 1). Source: Philox4x32-10 on (seed, offset, element); see ir/base/philox.h.
Tensor rand(Sizes sizes, TensorOptions options = {}, Loc loc = Loc::current());
/// Standard normal. Source: Box-Muller on two uniform draws.
Tensor randn(Sizes sizes, TensorOptions options = {}, Loc loc = Loc::current());
/// Integers in [low, high); i64 by default. Throws: invalid, on a range that is empty or not of the dtype.
Tensor randint(int64_t low, int64_t high, Sizes sizes, TensorOptions options = {}, Loc loc = Loc::current());

/// [start, end) in steps of `step`; i64 if all three are integers, else f32, but for options.dtype.
/// Shapes: [ceil((end - start) / step)]. Throws: invalid, when no steps lead from start to
/// end, and as zeros.
Tensor arange(Scalar start, Scalar end, Scalar step = 1, TensorOptions options = {},
              Loc loc = Loc::current());
Tensor arange(Scalar end, TensorOptions options = {}, Loc loc = Loc::current());
/// 0 (1) in every element, with the dtype and device of t. Shapes: as t. Throws: nothing else.
Tensor zeros_like(const Tensor& t, Loc loc = Loc::current());
Tensor ones_like(const Tensor& t, Loc loc = Loc::current());

// The same with a dtype alone: zeros({2, 3}, DType::f64).
template <std::same_as<DType> D>
Tensor full(Sizes sizes, Scalar value, D dtype, Loc loc = Loc::current()) {
  return full(std::move(sizes), value, TensorOptions{.dtype = dtype}, loc);
}
template <std::same_as<DType> D>
Tensor zeros(Sizes sizes, D dtype, Loc loc = Loc::current()) {
  return zeros(std::move(sizes), TensorOptions{.dtype = dtype}, loc);
}
template <std::same_as<DType> D>
Tensor ones(Sizes sizes, D dtype, Loc loc = Loc::current()) {
  return ones(std::move(sizes), TensorOptions{.dtype = dtype}, loc);
}
template <std::same_as<DType> D>
Tensor empty(Sizes sizes, D dtype, Loc loc = Loc::current()) {
  return empty(std::move(sizes), TensorOptions{.dtype = dtype}, loc);
}
template <std::same_as<DType> D>
Tensor arange(Scalar end, D dtype, Loc loc = Loc::current()) {
  return arange(end, TensorOptions{.dtype = dtype}, loc);
}
template <std::same_as<DType> D>
Tensor rand(Sizes sizes, D dtype, Loc loc = Loc::current()) {
  return rand(std::move(sizes), TensorOptions{.dtype = dtype}, loc);
}
template <std::same_as<DType> D>
Tensor randn(Sizes sizes, D dtype, Loc loc = Loc::current()) {
  return randn(std::move(sizes), TensorOptions{.dtype = dtype}, loc);
}
template <std::same_as<DType> D>
Tensor randint(int64_t low, int64_t high, Sizes sizes, D dtype, Loc loc = Loc::current()) {
  return randint(low, high, std::move(sizes), TensorOptions{.dtype = dtype}, loc);
}

namespace detail {
/// f32 of floating values, i64 of integers, bool of bool.
template <typename T, typename It>
Tensor from_values(It first, It last, Sizes sizes, Loc loc) {
  using Stored = std::conditional_t<std::is_floating_point_v<T>, float, int64_t>;
  const Tensor t = Tensor::from_vector(std::vector<Stored>(first, last), std::move(sizes), loc);
  return std::is_same_v<T, bool> ? t.to(DType::boolean, loc) : t;
}
}  // namespace detail

/// The values of a number, of a list, or of a list of lists: f32 of floating ones, i64 of integers, bool of
/// bool. Shapes: [], [n] or [rows, n]. Throws: invalid, when rows differ in length.
template <typename T>
requires std::is_arithmetic_v<T> Tensor tensor(T value, Loc loc = Loc::current()) {
  return detail::from_values<T>(&value, &value + 1, {}, loc);
}
template <typename T>
Tensor tensor(std::initializer_list<T> values, Loc loc = Loc::current()) {
  return detail::from_values<T>(values.begin(), values.end(), {static_cast<int64_t>(values.size())}, loc);
}
template <typename T>
Tensor tensor(std::initializer_list<std::initializer_list<T>> rows, Loc loc = Loc::current()) {
  const size_t columns = rows.size() ? rows.begin()->size() : 0;
  std::vector<T> all;
  for (const auto& row : rows) {
    KILN_CHECK(row.size() == columns, invalid, "tensor ({}): a row of {} values, the first has {}", loc.str(),
               row.size(), columns);
    all.insert(all.end(), row.begin(), row.end());
  }
  return detail::from_values<T>(all.begin(), all.end(),
                                {static_cast<int64_t>(rows.size()), static_cast<int64_t>(columns)}, loc);
}

// Elementwise, one operand, in its dtype. Shapes: x [...] -> [...]. Throws: invalid, on bool.
Tensor neg(const Tensor& x, Loc loc = Loc::current());
Tensor abs(const Tensor& x, Loc loc = Loc::current());
/// -1, 0 or 1; bool as it is.
Tensor sign(const Tensor& x, Loc loc = Loc::current());
/// x^2; of bool, i64.
Tensor square(const Tensor& x, Loc loc = Loc::current());

// Elementwise, one operand; integers and bool become f32. Shapes: x [...] -> [...]. Throws: nothing else.
Tensor exp(const Tensor& x, Loc loc = Loc::current());
Tensor exp2(const Tensor& x, Loc loc = Loc::current());
Tensor expm1(const Tensor& x, Loc loc = Loc::current());
Tensor log(const Tensor& x, Loc loc = Loc::current());
Tensor log1p(const Tensor& x, Loc loc = Loc::current());
Tensor log2(const Tensor& x, Loc loc = Loc::current());
/// log(x) / log(10).
Tensor log10(const Tensor& x, Loc loc = Loc::current());
Tensor sqrt(const Tensor& x, Loc loc = Loc::current());
Tensor rsqrt(const Tensor& x, Loc loc = Loc::current());
Tensor reciprocal(const Tensor& x, Loc loc = Loc::current());
Tensor sin(const Tensor& x, Loc loc = Loc::current());
Tensor cos(const Tensor& x, Loc loc = Loc::current());
Tensor tan(const Tensor& x, Loc loc = Loc::current());
Tensor asin(const Tensor& x, Loc loc = Loc::current());
Tensor acos(const Tensor& x, Loc loc = Loc::current());
Tensor atan(const Tensor& x, Loc loc = Loc::current());
Tensor sinh(const Tensor& x, Loc loc = Loc::current());
Tensor cosh(const Tensor& x, Loc loc = Loc::current());
Tensor tanh(const Tensor& x, Loc loc = Loc::current());
Tensor sigmoid(const Tensor& x, Loc loc = Loc::current());
Tensor erf(const Tensor& x, Loc loc = Loc::current());
Tensor erfc(const Tensor& x, Loc loc = Loc::current());
/// Whether x is zero; bool.
Tensor logical_not(const Tensor& x, Loc loc = Loc::current());

// Elementwise, to whole numbers; integers are their own. Shapes: x [...] -> [...]. Throws: invalid, on bool.
Tensor floor(const Tensor& x, Loc loc = Loc::current());
Tensor ceil(const Tensor& x, Loc loc = Loc::current());
Tensor round(const Tensor& x, Loc loc = Loc::current());
Tensor trunc(const Tensor& x, Loc loc = Loc::current());
Tensor isnan(const Tensor& x, Loc loc = Loc::current());

// Elementwise, two operands. Numbers are run-time values of a compiled callable. Shapes: a and b broadcast;
// dtypes are promoted. Throws: invalid, on two numbers.
/// a + b; "or" for bool.
Tensor add(const TensorArg& a, const TensorArg& b);
/// a - b. Throws: invalid, on bool.
Tensor sub(const TensorArg& a, const TensorArg& b);
/// a * b; "and" for bool.
Tensor mul(const TensorArg& a, const TensorArg& b);
/// a / b, not rounded: integers become f32.
Tensor div(const TensorArg& a, const TensorArg& b);
/// a to the power b. Throws: invalid, on bool, and on integers to the power of a number below 0.
Tensor pow(const TensorArg& a, const TensorArg& b);
/// The larger (smaller); NaN if either is. Ties share the gradient.
Tensor maximum(const TensorArg& a, const TensorArg& b);
Tensor minimum(const TensorArg& a, const TensorArg& b);
/// Remainder with the sign of a (fmod) or of b (remainder). Throws: invalid, on bool, and on integer
/// division by zero (inside a compiled callable when the stage has run).
Tensor fmod(const TensorArg& a, const TensorArg& b);
Tensor remainder(const TensorArg& a, const TensorArg& b);
/// The quotient rounded down, in the operands' dtype. Throws: invalid, as fmod.
Tensor floor_divide(const TensorArg& a, const TensorArg& b);
/// Angle of the point (b, a). Throws: invalid, unless an operand is floating.
Tensor atan2(const TensorArg& a, const TensorArg& b);
/// A comparison, as bool; with NaN false, but for ne.
Tensor eq(const TensorArg& a, const TensorArg& b);
Tensor ne(const TensorArg& a, const TensorArg& b);
Tensor lt(const TensorArg& a, const TensorArg& b);
Tensor le(const TensorArg& a, const TensorArg& b);
Tensor gt(const TensorArg& a, const TensorArg& b);
Tensor ge(const TensorArg& a, const TensorArg& b);
/// Of whether a and b are not zero; bool.
Tensor logical_and(const TensorArg& a, const TensorArg& b);
Tensor logical_or(const TensorArg& a, const TensorArg& b);
Tensor logical_xor(const TensorArg& a, const TensorArg& b);

/// a where `condition` (bool), else b. Shapes: all three broadcast. Throws: invalid, unless it is bool.
Tensor where(const Tensor& condition, const TensorArg& a, const TensorArg& b);
/// x limited to [lo, hi]; NaN stays. At and beyond a limit no gradient. Shapes: x [...] -> [...]. Throws:
/// invalid, without a bound, on a NaN, and on a bound with a fraction for integers.
Tensor clamp(const Tensor& x, std::optional<double> lo, std::optional<double> hi, Loc loc = Loc::current());
/// `value` where `mask` (bool) is set, else x. Shapes: both broadcast. Throws: invalid, on another mask.
Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value, Loc loc = Loc::current());

// Reductions. Shapes: x [...] -> its shape without `dims` (all if empty; 1 in their places with keepdim).
/// Sum and product; integers and bool become i64. Over nothing 0 (1). Throws: nothing else.
Tensor sum(const Tensor& x, Dims dims = {}, bool keepdim = false, Loc loc = Loc::current());
Tensor prod(const Tensor& x, Dims dims = {}, bool keepdim = false, Loc loc = Loc::current());
/// sum / number of elements. Throws: invalid, on a dtype that is not floating.
Tensor mean(const Tensor& x, Dims dims = {}, bool keepdim = false, Loc loc = Loc::current());
/// sum of (x - mean)^2 / (number of elements - correction). Throws: invalid, as mean.
Tensor var(const Tensor& x, Dims dims = {}, int64_t correction = 1, bool keepdim = false,
           Loc loc = Loc::current());
/// log(sum of exp(x)), without overflow. Throws: invalid, as mean.
Tensor logsumexp(const Tensor& x, Dims dims, bool keepdim = false, Loc loc = Loc::current());
/// The largest (smallest), NaN if there is one. Ties share the gradient. Throws: invalid, on an empty dim.
Tensor amax(const Tensor& x, Dims dims = {}, bool keepdim = false, Loc loc = Loc::current());
Tensor amin(const Tensor& x, Dims dims = {}, bool keepdim = false, Loc loc = Loc::current());
/// Index of the first largest (smallest) element along `dim`, i64; without a dim, among all elements. The
/// first NaN wins. Throws: invalid, as amax.
Tensor argmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false,
              Loc loc = Loc::current());
Tensor argmin(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false,
              Loc loc = Loc::current());
/// Whether all (any) elements are not zero; bool. Throws: nothing else.
Tensor all(const Tensor& x, Dims dims = {}, bool keepdim = false, Loc loc = Loc::current());
Tensor any(const Tensor& x, Dims dims = {}, bool keepdim = false, Loc loc = Loc::current());

// Dims and dtypes: views, but for what a comment says.
/// x in another dtype: x itself if it has it. Float to integer cuts. Shapes: x [...] -> [...]. Throws:
/// nothing else. Source: torch.Tensor.to.
Tensor to(const Tensor& x, DType dtype, Loc loc = Loc::current());
/// The elements in row-major order, in another shape: a view where strides allow, else a copy. Shapes: x
/// [...] -> [sizes], of which one may be -1. Throws: invalid, when the number of elements differs.
Tensor reshape(const Tensor& x, Sizes sizes, Loc loc = Loc::current());
/// Like reshape, but never copies. Shapes: as reshape. Throws: invalid, as reshape, and when strides do not
/// allow it. Source: torch.Tensor.view.
Tensor view(const Tensor& x, Sizes sizes, Loc loc = Loc::current());
/// Dims `start` to `end` as one. Shapes: [a, b, c, d] -> [a, b c, d] for 1 and 2; [] -> [1]. Throws:
/// invalid, when start is after end.
Tensor flatten(const Tensor& x, int64_t start = 0, int64_t end = -1, Loc loc = Loc::current());
/// Dim i of the result is dim dims[i] of x. Shapes: [a, b, c] -> [c, a, b] for {2, 0, 1}. Throws: invalid,
/// unless each dim is there once.
Tensor permute(const Tensor& x, Sizes dims, Loc loc = Loc::current());
/// Exchanges two dims. Shapes: [.., m, .., n, ..] -> [.., n, .., m, ..]. Throws: nothing else.
Tensor transpose(const Tensor& x, int64_t a, int64_t b, Loc loc = Loc::current());
/// Transpose of a matrix. Shapes: [n, m] -> [m, n]; fewer dims stay. Throws: invalid, on more than two
/// dims.
Tensor t(const Tensor& x, Loc loc = Loc::current());
/// Dims of size 1 repeated, and new ones in front. Shapes: x -> [sizes], where -1 keeps a size. Throws:
/// invalid, when another dim would change. Source: torch.Tensor.expand.
Tensor expand(const Tensor& x, Sizes sizes, Loc loc = Loc::current());
/// Without `dim`, if its size is 1. Shapes: [a, 1, b] -> [a, b]. Throws: nothing else.
Tensor squeeze(const Tensor& x, int64_t dim, Loc loc = Loc::current());
/// A dim of size 1 before `dim`. Shapes: [a, b] -> [a, 1, b] for 1. Throws: nothing else.
Tensor unsqueeze(const Tensor& x, int64_t dim, Loc loc = Loc::current());
/// x[..., start:end:step, ...] along `dim`, with Python's clamping. Shapes: as x, but ceil((end - start) /
/// step) at dim. Throws: invalid, on a step below 1. Source: torch.Tensor.__getitem__.
Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t end, int64_t step = 1,
             Loc loc = Loc::current());
/// x[..., start:start+length, ...] along `dim`. Shapes: as x, but `length` at dim. Throws: invalid, on
/// elements outside of x.
Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length, Loc loc = Loc::current());
/// x[index] along `dim`. Shapes: as x, without dim. Throws: invalid, on an index out of range.
Tensor select(const Tensor& x, int64_t dim, int64_t index, Loc loc = Loc::current());
/// Dims in reverse. A copy. Shapes: x [...] -> [...]. Throws: nothing else.
Tensor flip(const Tensor& x, Sizes dims, Loc loc = Loc::current());
/// One behind the other along `dim`, dtypes promoted. Copies. Shapes: tensors equal beside dim, where sizes
/// add up; an empty [0] goes with all. Throws: invalid, on no tensors, and on other shapes.
Tensor cat(const std::vector<Tensor>& tensors, int64_t dim = 0, Loc loc = Loc::current());
/// Along a new dim. Copies. Shapes: n tensors [a, b] -> [n, a, b] for dim 0. Throws: invalid, as cat.
Tensor stack(const std::vector<Tensor>& tensors, int64_t dim = 0, Loc loc = Loc::current());
/// Pieces of `size`, or at most `chunks`, along `dim`; the last may be smaller. Shapes: as x, but the
/// piece's size at dim. Throws: invalid, on a size or chunks below 1.
std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim = 0, Loc loc = Loc::current());
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim = 0, Loc loc = Loc::current());
/// A copy. Shapes: x [...] -> [...]. Throws: nothing else.
Tensor clone(const Tensor& x, Loc loc = Loc::current());
/// x, or a copy in row-major order. Shapes: as x. Throws: nothing else. Source: torch.Tensor.contiguous.
Tensor contiguous(const Tensor& x, Loc loc = Loc::current());
/// Zeros above (tril) or below (triu) the diagonal of the last two dims. A copy. Shapes: [..., n, m] ->
/// same. Throws: invalid, on fewer than two dims.
Tensor tril(const Tensor& x, int64_t diagonal = 0, Loc loc = Loc::current());
Tensor triu(const Tensor& x, int64_t diagonal = 0, Loc loc = Loc::current());

// Indexing by tensors of i64 or i32. Throws: invalid, on other indices and shapes, and on an index out of
// range (inside a compiled callable when the stage has run).
/// Rows of x along `dim` by index. Shapes: index [n] -> as x, but n at dim.
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index, Loc loc = Loc::current());
/// x[..., index[..., i, ...], ...] at [..., i, ...] along `dim`. Shapes: index of x's rank, beside dim no
/// larger than x -> as index.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index, Loc loc = Loc::current());
/// x with src[..., i, ...] added at [..., index[..., i, ...], ...] along `dim`. Shapes: index as of gather,
/// src as index, or larger -> as x. Throws: invalid, on bool, and on different dtypes.
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                   Loc loc = Loc::current());
/// x with alpha * src added at rows of `index`. Shapes: index [n], src as x, but n at dim -> as x. Throws:
/// invalid, as scatter_add.
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, Scalar alpha = 1,
                 Loc loc = Loc::current());

// Linear algebra.
/// Matrix product, of each pair in the batch. Shapes: [..., n, k], [..., k, m] -> [..., n, m], where the
/// batches broadcast; of [k] the dim goes away. Throws: invalid, on 0-d operands, bool, different dtypes or
/// k.
Tensor matmul(const Tensor& a, const Tensor& b, Loc loc = Loc::current());
/// a[i] b[j]. Shapes: [n], [m] -> [n, m]. Throws: invalid, on bool, and unless both are vectors.
Tensor outer(const Tensor& a, const Tensor& b, Loc loc = Loc::current());

}  // namespace kiln
