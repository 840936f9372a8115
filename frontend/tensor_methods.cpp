// SPDX-License-Identifier: Apache-2.0
// Functions as methods and operators of Tensor.
#include "frontend/elementwise.h"
#include "frontend/functional.h"
#include "frontend/linalg.h"
#include "frontend/ops_sort.h"
#include "frontend/reductions.h"
#include "frontend/shapes.h"

namespace kiln {

namespace detail {

const Tensor& TensorMethods::self() const { return static_cast<const Tensor&>(*this); }

Tensor TensorMethods::view(Sizes s, Loc loc) const { return kiln::view(self(), std::move(s), loc); }
Tensor TensorMethods::reshape(Sizes s, Loc loc) const { return kiln::reshape(self(), std::move(s), loc); }
Tensor TensorMethods::transpose(int64_t a, int64_t b, Loc loc) const {
  return kiln::transpose(self(), a, b, loc);
}
Tensor TensorMethods::permute(Sizes s, Loc loc) const { return kiln::permute(self(), std::move(s), loc); }
Tensor TensorMethods::flatten(int64_t a, int64_t b, Loc loc) const {
  return kiln::flatten(self(), a, b, loc);
}
Tensor TensorMethods::expand(Sizes s, Loc loc) const { return kiln::expand(self(), std::move(s), loc); }
Tensor TensorMethods::squeeze(int64_t d, Loc loc) const { return kiln::squeeze(self(), d, loc); }
Tensor TensorMethods::unsqueeze(int64_t d, Loc loc) const { return kiln::unsqueeze(self(), d, loc); }
Tensor TensorMethods::select(int64_t d, int64_t i, Loc loc) const { return kiln::select(self(), d, i, loc); }
Tensor TensorMethods::slice(int64_t d, int64_t start, int64_t end, int64_t step, Loc loc) const {
  return kiln::slice(self(), d, start, end, step, loc);
}
Tensor TensorMethods::contiguous(Loc loc) const { return kiln::contiguous(self(), loc); }
Tensor TensorMethods::clone(Loc loc) const { return kiln::clone(self(), loc); }
Tensor TensorMethods::t(Loc loc) const { return kiln::t(self(), loc); }
Tensor TensorMethods::squeeze(Loc loc) const { return kiln::squeeze(self(), loc); }
Tensor TensorMethods::abs(Loc loc) const { return kiln::abs(self(), loc); }
Tensor TensorMethods::exp(Loc loc) const { return kiln::exp(self(), loc); }
Tensor TensorMethods::log(Loc loc) const { return kiln::log(self(), loc); }
Tensor TensorMethods::sqrt(Loc loc) const { return kiln::sqrt(self(), loc); }
Tensor TensorMethods::square(Loc loc) const { return kiln::square(self(), loc); }
Tensor TensorMethods::relu(Loc loc) const { return kiln::relu(self(), loc); }
Tensor TensorMethods::sigmoid(Loc loc) const { return kiln::sigmoid(self(), loc); }
Tensor TensorMethods::tanh(Loc loc) const { return kiln::tanh(self(), loc); }
Tensor TensorMethods::max(Loc loc) const { return kiln::max(self(), loc); }
Tensor TensorMethods::min(Loc loc) const { return kiln::min(self(), loc); }
Tensor TensorMethods::repeat(Sizes repeats, Loc loc) const { return kiln::repeat(self(), repeats, loc); }
std::vector<Tensor> TensorMethods::chunk(int64_t chunks, int64_t dim, Loc loc) const {
  return kiln::chunk(self(), chunks, dim, loc);
}
std::vector<Tensor> TensorMethods::split(int64_t size, int64_t dim, Loc loc) const {
  return kiln::split(self(), size, dim, loc);
}
std::vector<Tensor> TensorMethods::unbind(int64_t dim, Loc loc) const {
  return kiln::unbind(self(), dim, loc);
}
Tensor TensorMethods::index_select(int64_t dim, const Tensor& index, Loc loc) const {
  return kiln::index_select(self(), dim, index, loc);
}
Tensor TensorMethods::gather(int64_t dim, const Tensor& index, Loc loc) const {
  return kiln::gather(self(), dim, index, loc);
}
Tensor TensorMethods::masked_fill(const Tensor& mask, Scalar value, Loc loc) const {
  return kiln::masked_fill(self(), mask, value, loc);
}
Tensor TensorMethods::clamp(std::optional<double> lo, std::optional<double> hi, Loc loc) const {
  return kiln::clamp(self(), lo, hi, loc);
}
Tensor TensorMethods::pow(const TensorArg& exponent) const {
  return kiln::pow(TensorArg(self(), exponent.loc), exponent);
}
Tensor TensorMethods::softmax(int64_t dim, Loc loc) const { return kiln::softmax(self(), dim, loc); }
Tensor TensorMethods::log_softmax(int64_t dim, Loc loc) const { return kiln::log_softmax(self(), dim, loc); }
Tensor TensorMethods::matmul(const Tensor& other, Loc loc) const { return kiln::matmul(self(), other, loc); }
Tensor TensorMethods::mm(const Tensor& other, Loc loc) const { return kiln::mm(self(), other, loc); }
Tensor TensorMethods::cumsum(int64_t dim, Loc loc) const { return kiln::cumsum(self(), dim, loc); }
Tensor TensorMethods::sum(Dims dims, bool keepdim, Loc loc) const {
  return kiln::sum(self(), std::move(dims), keepdim, loc);
}
Tensor TensorMethods::mean(Dims dims, bool keepdim, Loc loc) const {
  return kiln::mean(self(), std::move(dims), keepdim, loc);
}
Tensor TensorMethods::all(Dims dims, bool keepdim, Loc loc) const {
  return kiln::all(self(), std::move(dims), keepdim, loc);
}
Tensor TensorMethods::any(Dims dims, bool keepdim, Loc loc) const {
  return kiln::any(self(), std::move(dims), keepdim, loc);
}
Tensor TensorMethods::amax(Dims dims, bool keepdim, Loc loc) const {
  return kiln::amax(self(), std::move(dims), keepdim, loc);
}
Tensor TensorMethods::amin(Dims dims, bool keepdim, Loc loc) const {
  return kiln::amin(self(), std::move(dims), keepdim, loc);
}
Tensor TensorMethods::var(Dims dims, int64_t correction, bool keepdim, Loc loc) const {
  return kiln::var(self(), std::move(dims), correction, keepdim, loc);
}
Tensor TensorMethods::std(Dims dims, int64_t correction, bool keepdim, Loc loc) const {
  return kiln::std(self(), std::move(dims), correction, keepdim, loc);
}
Tensor TensorMethods::argmax(std::optional<int64_t> dim, bool keepdim, Loc loc) const {
  return kiln::argmax(self(), dim, keepdim, loc);
}
Tensor TensorMethods::argmin(std::optional<int64_t> dim, bool keepdim, Loc loc) const {
  return kiln::argmin(self(), dim, keepdim, loc);
}
Tensor TensorMethods::neg(Loc loc) const { return kiln::neg(self(), loc); }
Tensor TensorMethods::sign(Loc loc) const { return kiln::sign(self(), loc); }
Tensor TensorMethods::sin(Loc loc) const { return kiln::sin(self(), loc); }
Tensor TensorMethods::cos(Loc loc) const { return kiln::cos(self(), loc); }
Tensor TensorMethods::floor(Loc loc) const { return kiln::floor(self(), loc); }
Tensor TensorMethods::ceil(Loc loc) const { return kiln::ceil(self(), loc); }
Tensor TensorMethods::trunc(Loc loc) const { return kiln::trunc(self(), loc); }
Tensor TensorMethods::log1p(Loc loc) const { return kiln::log1p(self(), loc); }
Tensor TensorMethods::expm1(Loc loc) const { return kiln::expm1(self(), loc); }
Tensor TensorMethods::rsqrt(Loc loc) const { return kiln::rsqrt(self(), loc); }
Tensor TensorMethods::reciprocal(Loc loc) const { return kiln::reciprocal(self(), loc); }
Tensor TensorMethods::erf(Loc loc) const { return kiln::erf(self(), loc); }
Tensor TensorMethods::isnan(Loc loc) const { return kiln::isnan(self(), loc); }
Tensor TensorMethods::isfinite(Loc loc) const { return kiln::isfinite(self(), loc); }
Tensor TensorMethods::isinf(Loc loc) const { return kiln::isinf(self(), loc); }
Tensor TensorMethods::logical_not(Loc loc) const { return kiln::logical_not(self(), loc); }
Tensor TensorMethods::add(const TensorArg& other) const {
  return kiln::add(TensorArg(self(), other.loc), other);
}
Tensor TensorMethods::sub(const TensorArg& other) const {
  return kiln::sub(TensorArg(self(), other.loc), other);
}
Tensor TensorMethods::mul(const TensorArg& other) const {
  return kiln::mul(TensorArg(self(), other.loc), other);
}
Tensor TensorMethods::div(const TensorArg& other) const {
  return kiln::div(TensorArg(self(), other.loc), other);
}
Tensor TensorMethods::remainder(const TensorArg& other) const {
  return kiln::remainder(TensorArg(self(), other.loc), other);
}
Tensor TensorMethods::maximum(const TensorArg& other) const {
  return kiln::maximum(TensorArg(self(), other.loc), other);
}
Tensor TensorMethods::minimum(const TensorArg& other) const {
  return kiln::minimum(TensorArg(self(), other.loc), other);
}
Tensor TensorMethods::eq(const TensorArg& other) const {
  return kiln::eq(TensorArg(self(), other.loc), other);
}
Tensor TensorMethods::ne(const TensorArg& other) const {
  return kiln::ne(TensorArg(self(), other.loc), other);
}
Tensor TensorMethods::lt(const TensorArg& other) const {
  return kiln::lt(TensorArg(self(), other.loc), other);
}
Tensor TensorMethods::le(const TensorArg& other) const {
  return kiln::le(TensorArg(self(), other.loc), other);
}
Tensor TensorMethods::gt(const TensorArg& other) const {
  return kiln::gt(TensorArg(self(), other.loc), other);
}
Tensor TensorMethods::ge(const TensorArg& other) const {
  return kiln::ge(TensorArg(self(), other.loc), other);
}
Tensor TensorMethods::logical_and(const TensorArg& other) const {
  return kiln::logical_and(TensorArg(self(), other.loc), other);
}
Tensor TensorMethods::logical_or(const TensorArg& other) const {
  return kiln::logical_or(TensorArg(self(), other.loc), other);
}
Tensor TensorMethods::clamp_min(double lo, Loc loc) const { return kiln::clamp_min(self(), lo, loc); }
Tensor TensorMethods::clamp_max(double hi, Loc loc) const { return kiln::clamp_max(self(), hi, loc); }
Tensor TensorMethods::lerp(const Tensor& end, const TensorArg& weight) const {
  return kiln::lerp(self(), end, weight);
}
Tensor TensorMethods::tril(int64_t diagonal, Loc loc) const { return kiln::tril(self(), diagonal, loc); }
Tensor TensorMethods::triu(int64_t diagonal, Loc loc) const { return kiln::triu(self(), diagonal, loc); }
Tensor TensorMethods::view_as(const Tensor& like, Loc loc) const { return kiln::view_as(self(), like, loc); }
Tensor TensorMethods::expand_as(const Tensor& like, Loc loc) const {
  return kiln::expand_as(self(), like, loc);
}
Tensor TensorMethods::narrow(int64_t dim, int64_t start, int64_t length, Loc loc) const {
  return kiln::narrow(self(), dim, start, length, loc);
}
Tensor TensorMethods::flip(Sizes dims, Loc loc) const { return kiln::flip(self(), std::move(dims), loc); }
Tensor TensorMethods::roll(const Sizes& shifts, const Sizes& dims, Loc loc) const {
  return kiln::roll(self(), shifts, dims, loc);
}
Tensor TensorMethods::diagonal(int64_t offset, int64_t dim1, int64_t dim2, Loc loc) const {
  return kiln::diagonal(self(), offset, dim1, dim2, loc);
}
Tensor TensorMethods::scatter_add(int64_t dim, const Tensor& index, const Tensor& src, Loc loc) const {
  return kiln::scatter_add(self(), dim, index, src, loc);
}
Tensor TensorMethods::index_add(int64_t dim, const Tensor& index, const Tensor& src, Scalar alpha,
                                Loc loc) const {
  return kiln::index_add(self(), dim, index, src, alpha, loc);
}
Tensor TensorMethods::bmm(const Tensor& other, Loc loc) const { return kiln::bmm(self(), other, loc); }
Tensor TensorMethods::mv(const Tensor& other, Loc loc) const { return kiln::mv(self(), other, loc); }
Tensor TensorMethods::dot(const Tensor& other, Loc loc) const { return kiln::dot(self(), other, loc); }
Tensor TensorMethods::outer(const Tensor& other, Loc loc) const { return kiln::outer(self(), other, loc); }
Tensor TensorMethods::prod(Dims dims, bool keepdim, Loc loc) const {
  return kiln::prod(self(), std::move(dims), keepdim, loc);
}
Tensor TensorMethods::logsumexp(Dims dims, bool keepdim, Loc loc) const {
  return kiln::logsumexp(self(), std::move(dims), keepdim, loc);
}
Tensor TensorMethods::cumprod(int64_t dim, Loc loc) const { return kiln::cumprod(self(), dim, loc); }
Tensor TensorMethods::argsort(int64_t dim, bool descending, Loc loc) const {
  return kiln::argsort(self(), dim, descending, loc);
}
Tensor TensorMethods::where(const Tensor& condition, const TensorArg& other) const {
  return kiln::where(condition, TensorArg(self(), other.loc), other);
}
Tensor TensorMethods::norm(double ord, Dims dims, bool keepdim, Loc loc) const {
  return kiln::vector_norm(self(), ord, std::move(dims), keepdim, loc);
}
ValuesAndIndices TensorMethods::max(int64_t dim, bool keepdim, Loc loc) const {
  return kiln::max(self(), dim, keepdim, loc);
}
ValuesAndIndices TensorMethods::min(int64_t dim, bool keepdim, Loc loc) const {
  return kiln::min(self(), dim, keepdim, loc);
}
std::pair<Tensor, Tensor> TensorMethods::sort(int64_t dim, bool descending, Loc loc) const {
  return kiln::sort(self(), dim, descending, loc);
}
std::pair<Tensor, Tensor> TensorMethods::topk(int64_t k, int64_t dim, bool largest, Loc loc) const {
  return kiln::topk(self(), k, dim, largest, loc);
}

}  // namespace detail

Tensor Tensor::to(DType t, Loc loc) const { return kiln::to(*this, t, loc); }
bool Tensor::is_floating_point() const { return is_floating(dtype()); }
void Tensor::operator=(const TensorArg& value) && {
  if (value.tensor) copy_(*value.tensor, value.loc);
  else fill_(value.scalar, value.loc);
}
Tensor Tensor::operator[](const IndexArg& index) const {
  return kiln::select(*this, 0, index.index, index.loc);
}

Tensor operator+(const TensorArg& a, const TensorArg& b) { return add(a, b); }
Tensor operator-(const TensorArg& a, const TensorArg& b) { return sub(a, b); }
Tensor operator*(const TensorArg& a, const TensorArg& b) { return mul(a, b); }
Tensor operator/(const TensorArg& a, const TensorArg& b) { return div(a, b); }
Tensor operator-(const TensorArg& a) {
  KILN_CHECK(a.tensor, invalid, "neg ({}): the operand is a number", a.loc.str());
  return neg(*a.tensor, a.loc);
}
Tensor operator%(const TensorArg& a, const TensorArg& b) { return remainder(a, b); }
Tensor operator==(const TensorArg& a, const TensorArg& b) { return eq(a, b); }
Tensor operator!=(const TensorArg& a, const TensorArg& b) { return ne(a, b); }
Tensor operator<(const TensorArg& a, const TensorArg& b) { return lt(a, b); }
Tensor operator<=(const TensorArg& a, const TensorArg& b) { return le(a, b); }
Tensor operator>(const TensorArg& a, const TensorArg& b) { return gt(a, b); }
Tensor operator>=(const TensorArg& a, const TensorArg& b) { return ge(a, b); }
Tensor operator&(const TensorArg& a, const TensorArg& b) { return bitwise_and(a, b); }
Tensor operator|(const TensorArg& a, const TensorArg& b) { return bitwise_or(a, b); }
Tensor operator^(const TensorArg& a, const TensorArg& b) { return bitwise_xor(a, b); }
Tensor operator~(const TensorArg& a) {
  KILN_CHECK(a.tensor, invalid, "~ ({}): expected a tensor", a.loc.str());
  return bitwise_not(*a.tensor, a.loc);
}

}  // namespace kiln
