// SPDX-License-Identifier: Apache-2.0
// Functions as methods of Tensor: each gives what the function of its name gives, with the same errors.
// Functions of headers that users may leave out are functions alone.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "frontend/tensor_args.h"

namespace kiln {

struct ValuesAndIndices;

namespace detail {

/// Tensor's base, and never another class's.
class TensorMethods {
 public:
  Tensor view(Sizes sizes, Loc loc = Loc::current()) const;
  Tensor reshape(Sizes sizes, Loc loc = Loc::current()) const;
  Tensor transpose(int64_t a, int64_t b, Loc loc = Loc::current()) const;
  Tensor permute(Sizes dims, Loc loc = Loc::current()) const;
  Tensor flatten(int64_t start = 0, int64_t end = -1, Loc loc = Loc::current()) const;
  Tensor expand(Sizes sizes, Loc loc = Loc::current()) const;
  Tensor squeeze(int64_t dim, Loc loc = Loc::current()) const;
  Tensor unsqueeze(int64_t dim, Loc loc = Loc::current()) const;
  Tensor select(int64_t dim, int64_t index, Loc loc = Loc::current()) const;
  Tensor slice(int64_t dim, int64_t start, int64_t end, int64_t step = 1, Loc loc = Loc::current()) const;
  Tensor contiguous(Loc loc = Loc::current()) const;
  Tensor clone(Loc loc = Loc::current()) const;
  Tensor t(Loc loc = Loc::current()) const;
  Tensor squeeze(Loc loc = Loc::current()) const;
  Tensor repeat(Sizes repeats, Loc loc = Loc::current()) const;
  std::vector<Tensor> chunk(int64_t chunks, int64_t dim = 0, Loc loc = Loc::current()) const;
  std::vector<Tensor> split(int64_t size, int64_t dim = 0, Loc loc = Loc::current()) const;
  std::vector<Tensor> unbind(int64_t dim = 0, Loc loc = Loc::current()) const;
  Tensor index_select(int64_t dim, const Tensor& index, Loc loc = Loc::current()) const;
  Tensor gather(int64_t dim, const Tensor& index, Loc loc = Loc::current()) const;
  Tensor masked_fill(const Tensor& mask, Scalar value, Loc loc = Loc::current()) const;
  Tensor clamp(std::optional<double> lo, std::optional<double> hi = {}, Loc loc = Loc::current()) const;
  Tensor pow(const TensorArg& exponent) const;
  Tensor abs(Loc loc = Loc::current()) const;
  Tensor exp(Loc loc = Loc::current()) const;
  Tensor log(Loc loc = Loc::current()) const;
  Tensor sqrt(Loc loc = Loc::current()) const;
  Tensor square(Loc loc = Loc::current()) const;
  Tensor relu(Loc loc = Loc::current()) const;
  Tensor sigmoid(Loc loc = Loc::current()) const;
  Tensor tanh(Loc loc = Loc::current()) const;
  Tensor softmax(int64_t dim, Loc loc = Loc::current()) const;
  Tensor log_softmax(int64_t dim, Loc loc = Loc::current()) const;
  Tensor matmul(const Tensor& other, Loc loc = Loc::current()) const;
  Tensor mm(const Tensor& other, Loc loc = Loc::current()) const;
  Tensor cumsum(int64_t dim, Loc loc = Loc::current()) const;
  Tensor sum(Dims dims = {}, bool keepdim = false, Loc loc = Loc::current()) const;
  Tensor mean(Dims dims = {}, bool keepdim = false, Loc loc = Loc::current()) const;
  Tensor var(Dims dims = {}, int64_t correction = 1, bool keepdim = false, Loc loc = Loc::current()) const;
  Tensor std(Dims dims = {}, int64_t correction = 1, bool keepdim = false, Loc loc = Loc::current()) const;
  Tensor all(Dims dims = {}, bool keepdim = false, Loc loc = Loc::current()) const;
  Tensor any(Dims dims = {}, bool keepdim = false, Loc loc = Loc::current()) const;
  Tensor amax(Dims dims = {}, bool keepdim = false, Loc loc = Loc::current()) const;
  Tensor amin(Dims dims = {}, bool keepdim = false, Loc loc = Loc::current()) const;
  Tensor max(Loc loc = Loc::current()) const;
  Tensor min(Loc loc = Loc::current()) const;
  Tensor argmax(std::optional<int64_t> dim = {}, bool keepdim = false, Loc loc = Loc::current()) const;
  Tensor argmin(std::optional<int64_t> dim = {}, bool keepdim = false, Loc loc = Loc::current()) const;
  // Elementwise.
  Tensor neg(Loc loc = Loc::current()) const;
  Tensor sign(Loc loc = Loc::current()) const;
  Tensor sin(Loc loc = Loc::current()) const;
  Tensor cos(Loc loc = Loc::current()) const;
  Tensor floor(Loc loc = Loc::current()) const;
  Tensor ceil(Loc loc = Loc::current()) const;
  Tensor trunc(Loc loc = Loc::current()) const;
  Tensor log1p(Loc loc = Loc::current()) const;
  Tensor expm1(Loc loc = Loc::current()) const;
  Tensor rsqrt(Loc loc = Loc::current()) const;
  Tensor reciprocal(Loc loc = Loc::current()) const;
  Tensor erf(Loc loc = Loc::current()) const;
  Tensor isnan(Loc loc = Loc::current()) const;
  Tensor isfinite(Loc loc = Loc::current()) const;
  Tensor isinf(Loc loc = Loc::current()) const;
  Tensor logical_not(Loc loc = Loc::current()) const;
  Tensor add(const TensorArg& other) const;
  Tensor sub(const TensorArg& other) const;
  Tensor mul(const TensorArg& other) const;
  Tensor div(const TensorArg& other) const;
  Tensor remainder(const TensorArg& other) const;
  Tensor maximum(const TensorArg& other) const;
  Tensor minimum(const TensorArg& other) const;
  Tensor eq(const TensorArg& other) const;
  Tensor ne(const TensorArg& other) const;
  Tensor lt(const TensorArg& other) const;
  Tensor le(const TensorArg& other) const;
  Tensor gt(const TensorArg& other) const;
  Tensor ge(const TensorArg& other) const;
  Tensor logical_and(const TensorArg& other) const;
  Tensor logical_or(const TensorArg& other) const;
  Tensor clamp_min(double lo, Loc loc = Loc::current()) const;
  Tensor clamp_max(double hi, Loc loc = Loc::current()) const;
  Tensor lerp(const Tensor& end, const TensorArg& weight) const;
  /// This where `condition`, else `other`.
  Tensor where(const Tensor& condition, const TensorArg& other) const;
  Tensor tril(int64_t diagonal = 0, Loc loc = Loc::current()) const;
  Tensor triu(int64_t diagonal = 0, Loc loc = Loc::current()) const;
  // Shapes and places.
  Tensor view_as(const Tensor& like, Loc loc = Loc::current()) const;
  Tensor expand_as(const Tensor& like, Loc loc = Loc::current()) const;
  Tensor narrow(int64_t dim, int64_t start, int64_t length, Loc loc = Loc::current()) const;
  Tensor flip(Sizes dims, Loc loc = Loc::current()) const;
  Tensor roll(const Sizes& shifts, const Sizes& dims = {}, Loc loc = Loc::current()) const;
  Tensor diagonal(int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1, Loc loc = Loc::current()) const;
  Tensor scatter_add(int64_t dim, const Tensor& index, const Tensor& src, Loc loc = Loc::current()) const;
  Tensor index_add(int64_t dim, const Tensor& index, const Tensor& src, Scalar alpha = 1,
                   Loc loc = Loc::current()) const;
  // Products.
  Tensor bmm(const Tensor& other, Loc loc = Loc::current()) const;
  Tensor mv(const Tensor& other, Loc loc = Loc::current()) const;
  Tensor dot(const Tensor& other, Loc loc = Loc::current()) const;
  Tensor outer(const Tensor& other, Loc loc = Loc::current()) const;
  // Reductions and orders. norm: vector_norm.
  Tensor prod(Dims dims = {}, bool keepdim = false, Loc loc = Loc::current()) const;
  Tensor norm(double ord = 2, Dims dims = {}, bool keepdim = false, Loc loc = Loc::current()) const;
  Tensor logsumexp(Dims dims, bool keepdim = false, Loc loc = Loc::current()) const;
  Tensor cumprod(int64_t dim, Loc loc = Loc::current()) const;
  ValuesAndIndices max(int64_t dim, bool keepdim = false, Loc loc = Loc::current()) const;
  ValuesAndIndices min(int64_t dim, bool keepdim = false, Loc loc = Loc::current()) const;
  std::pair<Tensor, Tensor> sort(int64_t dim = -1, bool descending = false, Loc loc = Loc::current()) const;
  Tensor argsort(int64_t dim = -1, bool descending = false, Loc loc = Loc::current()) const;
  std::pair<Tensor, Tensor> topk(int64_t k, int64_t dim = -1, bool largest = true,
                                 Loc loc = Loc::current()) const;

 private:
  const Tensor& self() const;
};

}  // namespace detail
}  // namespace kiln
