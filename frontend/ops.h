// SPDX-License-Identifier: Apache-2.0
// The functions on tensors: arithmetic, reductions, shapes, linear algebra. Names, arguments and numerics are
// PyTorch's (the torch function of the same name is the source of each). Every op takes the caller's line.
#pragma once

#include <concepts>
#include <optional>
#include <tuple>
#include <vector>

#include "frontend/tensor.h"

namespace kiln {

// Creation. Inside a compiled callable these are part of the program, not data.
Tensor full(Sizes sizes, Scalar value, TensorOptions options = {}, Loc loc = Loc::current());
Tensor zeros(Sizes sizes, TensorOptions options = {}, Loc loc = Loc::current());
Tensor ones(Sizes sizes, TensorOptions options = {}, Loc loc = Loc::current());
Tensor empty(Sizes sizes, TensorOptions options = {}, Loc loc = Loc::current());
Tensor zeros_like(const Tensor& t, Loc loc = Loc::current());
Tensor ones_like(const Tensor& t, Loc loc = Loc::current());
/// [start, end) in steps of `step`; i64 if all three are integers, else f32, but for options.dtype.
/// Shapes: [ceil((end-start)/step)].
Tensor arange(Scalar start, Scalar end, Scalar step = 1, TensorOptions options = {},
              Loc loc = Loc::current());
Tensor arange(Scalar end, TensorOptions options = {}, Loc loc = Loc::current());
/// Uniform in [0, 1). Source: Philox4x32-10 on (seed, offset, element); see ir/base/philox.h.
Tensor rand(Sizes sizes, TensorOptions options = {}, Loc loc = Loc::current());
/// Standard normal. Source: Box-Muller on two uniform draws.
Tensor randn(Sizes sizes, TensorOptions options = {}, Loc loc = Loc::current());
/// Integers in [low, high); i64 by default.
Tensor randint(int64_t low, int64_t high, Sizes sizes, TensorOptions options = {}, Loc loc = Loc::current());

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

/// The values of a number [], of a list [n], or of lists [rows, n]: f32 of floating ones, i64 of integers,
/// bool of bool. Throws: invalid, when rows differ in length. Source: torch.tensor.
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

// Elementwise, one operand.
Tensor neg(const Tensor& x, Loc loc = Loc::current());
Tensor abs(const Tensor& x, Loc loc = Loc::current());
Tensor sign(const Tensor& x, Loc loc = Loc::current());
Tensor exp(const Tensor& x, Loc loc = Loc::current());
Tensor exp2(const Tensor& x, Loc loc = Loc::current());
Tensor expm1(const Tensor& x, Loc loc = Loc::current());
Tensor log(const Tensor& x, Loc loc = Loc::current());
Tensor log1p(const Tensor& x, Loc loc = Loc::current());
Tensor log2(const Tensor& x, Loc loc = Loc::current());
Tensor log10(const Tensor& x, Loc loc = Loc::current());
Tensor sqrt(const Tensor& x, Loc loc = Loc::current());
Tensor rsqrt(const Tensor& x, Loc loc = Loc::current());
Tensor reciprocal(const Tensor& x, Loc loc = Loc::current());
Tensor square(const Tensor& x, Loc loc = Loc::current());
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
Tensor floor(const Tensor& x, Loc loc = Loc::current());
Tensor ceil(const Tensor& x, Loc loc = Loc::current());
/// Half to even.
Tensor round(const Tensor& x, Loc loc = Loc::current());
Tensor trunc(const Tensor& x, Loc loc = Loc::current());
Tensor isnan(const Tensor& x, Loc loc = Loc::current());
Tensor logical_not(const Tensor& x, Loc loc = Loc::current());

// Elementwise, two operands: broadcast and promoted. Numbers are run-time values of a compiled callable.
Tensor add(const TensorArg& a, const TensorArg& b);
Tensor sub(const TensorArg& a, const TensorArg& b);
Tensor mul(const TensorArg& a, const TensorArg& b);
/// True division: integers become f32.
Tensor div(const TensorArg& a, const TensorArg& b);
Tensor pow(const TensorArg& a, const TensorArg& b);
Tensor maximum(const TensorArg& a, const TensorArg& b);
Tensor minimum(const TensorArg& a, const TensorArg& b);
Tensor fmod(const TensorArg& a, const TensorArg& b);
Tensor remainder(const TensorArg& a, const TensorArg& b);
Tensor floor_divide(const TensorArg& a, const TensorArg& b);
Tensor atan2(const TensorArg& a, const TensorArg& b);
Tensor eq(const TensorArg& a, const TensorArg& b);
Tensor ne(const TensorArg& a, const TensorArg& b);
Tensor lt(const TensorArg& a, const TensorArg& b);
Tensor le(const TensorArg& a, const TensorArg& b);
Tensor gt(const TensorArg& a, const TensorArg& b);
Tensor ge(const TensorArg& a, const TensorArg& b);
Tensor logical_and(const TensorArg& a, const TensorArg& b);
Tensor logical_or(const TensorArg& a, const TensorArg& b);
Tensor logical_xor(const TensorArg& a, const TensorArg& b);
/// a where `condition` (bool), else b; all broadcast.
Tensor where(const Tensor& condition, const TensorArg& a, const TensorArg& b);
/// Limits to [lo, hi]; NaN stays.
Tensor clamp(const Tensor& x, std::optional<double> lo, std::optional<double> hi, Loc loc = Loc::current());
Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value, Loc loc = Loc::current());

// Reductions. Empty `dims` means all.
Tensor sum(const Tensor& x, Dims dims = {}, bool keepdim = false, Loc loc = Loc::current());
Tensor mean(const Tensor& x, Dims dims = {}, bool keepdim = false, Loc loc = Loc::current());
Tensor prod(const Tensor& x, Dims dims = {}, bool keepdim = false, Loc loc = Loc::current());
Tensor amax(const Tensor& x, Dims dims = {}, bool keepdim = false, Loc loc = Loc::current());
Tensor amin(const Tensor& x, Dims dims = {}, bool keepdim = false, Loc loc = Loc::current());
Tensor var(const Tensor& x, Dims dims = {}, int64_t correction = 1, bool keepdim = false,
           Loc loc = Loc::current());
/// Index of the first largest (smallest) element along `dim`, i64; without a dim, among all elements.
Tensor argmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false,
              Loc loc = Loc::current());
Tensor argmin(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false,
              Loc loc = Loc::current());
Tensor logsumexp(const Tensor& x, Dims dims, bool keepdim = false, Loc loc = Loc::current());
/// Whether all (any) elements are non-zero; bool.
Tensor all(const Tensor& x, Dims dims = {}, bool keepdim = false, Loc loc = Loc::current());
Tensor any(const Tensor& x, Dims dims = {}, bool keepdim = false, Loc loc = Loc::current());

// Shapes.
Tensor to(const Tensor& x, DType dtype, Loc loc = Loc::current());
/// One size may be -1. Shares memory where strides allow, else copies.
Tensor reshape(const Tensor& x, Sizes sizes, Loc loc = Loc::current());
/// Like reshape, but never copies. Throws: invalid, when strides do not allow it.
Tensor view(const Tensor& x, Sizes sizes, Loc loc = Loc::current());
Tensor flatten(const Tensor& x, int64_t start = 0, int64_t end = -1, Loc loc = Loc::current());
Tensor permute(const Tensor& x, Sizes dims, Loc loc = Loc::current());
Tensor transpose(const Tensor& x, int64_t a, int64_t b, Loc loc = Loc::current());
/// Transpose of a matrix.
Tensor t(const Tensor& x, Loc loc = Loc::current());
/// -1 keeps a size; sizes of 1 repeat without a copy.
Tensor expand(const Tensor& x, Sizes sizes, Loc loc = Loc::current());
Tensor squeeze(const Tensor& x, int64_t dim, Loc loc = Loc::current());
Tensor unsqueeze(const Tensor& x, int64_t dim, Loc loc = Loc::current());
/// x[..., start:end:step, ...] along `dim`, with Python's clamping.
Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t end, int64_t step = 1,
             Loc loc = Loc::current());
Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length, Loc loc = Loc::current());
/// x[index] along `dim`; the dim goes away.
Tensor select(const Tensor& x, int64_t dim, int64_t index, Loc loc = Loc::current());
/// A copy.
Tensor flip(const Tensor& x, Sizes dims, Loc loc = Loc::current());
Tensor cat(const std::vector<Tensor>& tensors, int64_t dim = 0, Loc loc = Loc::current());
Tensor stack(const std::vector<Tensor>& tensors, int64_t dim = 0, Loc loc = Loc::current());
/// Pieces of `size` along `dim` (the last may be smaller).
std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim = 0, Loc loc = Loc::current());
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim = 0, Loc loc = Loc::current());
Tensor clone(const Tensor& x, Loc loc = Loc::current());
Tensor contiguous(const Tensor& x, Loc loc = Loc::current());
Tensor tril(const Tensor& x, int64_t diagonal = 0, Loc loc = Loc::current());
Tensor triu(const Tensor& x, int64_t diagonal = 0, Loc loc = Loc::current());

// Indexing by tensors.
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index, Loc loc = Loc::current());
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index, Loc loc = Loc::current());
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                   Loc loc = Loc::current());
/// x with alpha * src added at the places of `index` along `dim`.
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, Scalar alpha = 1,
                 Loc loc = Loc::current());

// Linear algebra.
/// Every rank combination of torch.matmul; batch dims broadcast.
Tensor matmul(const Tensor& a, const Tensor& b, Loc loc = Loc::current());
Tensor outer(const Tensor& a, const Tensor& b, Loc loc = Loc::current());

}  // namespace kiln
