// SPDX-License-Identifier: Apache-2.0
// Functions as methods and operators of Tensor.
#include "frontend/elementwise.h"
#include "frontend/functional.h"
#include "frontend/linalg.h"
#include "frontend/ops_sort.h"
#include "frontend/reductions.h"
#include "frontend/shapes.h"

namespace kiln {

Tensor Tensor::to(DType t, Loc loc) const { return kiln::to(*this, t, loc); }
Tensor Tensor::view(Sizes s, Loc loc) const { return kiln::view(*this, std::move(s), loc); }
Tensor Tensor::reshape(Sizes s, Loc loc) const { return kiln::reshape(*this, std::move(s), loc); }
Tensor Tensor::transpose(int64_t a, int64_t b, Loc loc) const { return kiln::transpose(*this, a, b, loc); }
Tensor Tensor::permute(Sizes s, Loc loc) const { return kiln::permute(*this, std::move(s), loc); }
Tensor Tensor::flatten(int64_t a, int64_t b, Loc loc) const { return kiln::flatten(*this, a, b, loc); }
Tensor Tensor::expand(Sizes s, Loc loc) const { return kiln::expand(*this, std::move(s), loc); }
Tensor Tensor::squeeze(int64_t d, Loc loc) const { return kiln::squeeze(*this, d, loc); }
Tensor Tensor::unsqueeze(int64_t d, Loc loc) const { return kiln::unsqueeze(*this, d, loc); }
Tensor Tensor::select(int64_t d, int64_t i, Loc loc) const { return kiln::select(*this, d, i, loc); }
Tensor Tensor::slice(int64_t d, int64_t start, int64_t end, int64_t step, Loc loc) const {
  return kiln::slice(*this, d, start, end, step, loc);
}
Tensor Tensor::contiguous(Loc loc) const { return kiln::contiguous(*this, loc); }
Tensor Tensor::clone(Loc loc) const { return kiln::clone(*this, loc); }
Tensor Tensor::t(Loc loc) const { return kiln::t(*this, loc); }
Tensor Tensor::squeeze(Loc loc) const { return kiln::squeeze(*this, loc); }
Tensor Tensor::abs(Loc loc) const { return kiln::abs(*this, loc); }
Tensor Tensor::exp(Loc loc) const { return kiln::exp(*this, loc); }
Tensor Tensor::log(Loc loc) const { return kiln::log(*this, loc); }
Tensor Tensor::sqrt(Loc loc) const { return kiln::sqrt(*this, loc); }
Tensor Tensor::square(Loc loc) const { return kiln::square(*this, loc); }
Tensor Tensor::relu(Loc loc) const { return kiln::relu(*this, loc); }
Tensor Tensor::sigmoid(Loc loc) const { return kiln::sigmoid(*this, loc); }
Tensor Tensor::tanh(Loc loc) const { return kiln::tanh(*this, loc); }
Tensor Tensor::max(Loc loc) const { return kiln::max(*this, loc); }
Tensor Tensor::min(Loc loc) const { return kiln::min(*this, loc); }
Tensor Tensor::repeat(Sizes repeats, Loc loc) const { return kiln::repeat(*this, repeats, loc); }
std::vector<Tensor> Tensor::chunk(int64_t chunks, int64_t dim, Loc loc) const {
  return kiln::chunk(*this, chunks, dim, loc);
}
std::vector<Tensor> Tensor::split(int64_t size, int64_t dim, Loc loc) const {
  return kiln::split(*this, size, dim, loc);
}
std::vector<Tensor> Tensor::unbind(int64_t dim, Loc loc) const { return kiln::unbind(*this, dim, loc); }
Tensor Tensor::index_select(int64_t dim, const Tensor& index, Loc loc) const {
  return kiln::index_select(*this, dim, index, loc);
}
Tensor Tensor::gather(int64_t dim, const Tensor& index, Loc loc) const {
  return kiln::gather(*this, dim, index, loc);
}
Tensor Tensor::masked_fill(const Tensor& mask, Scalar value, Loc loc) const {
  return kiln::masked_fill(*this, mask, value, loc);
}
Tensor Tensor::clamp(std::optional<double> lo, std::optional<double> hi, Loc loc) const {
  return kiln::clamp(*this, lo, hi, loc);
}
Tensor Tensor::pow(const TensorArg& exponent) const {
  return kiln::pow(TensorArg(*this, exponent.loc), exponent);
}
Tensor Tensor::softmax(int64_t dim, Loc loc) const { return kiln::softmax(*this, dim, loc); }
Tensor Tensor::log_softmax(int64_t dim, Loc loc) const { return kiln::log_softmax(*this, dim, loc); }
Tensor Tensor::matmul(const Tensor& other, Loc loc) const { return kiln::matmul(*this, other, loc); }
Tensor Tensor::mm(const Tensor& other, Loc loc) const { return kiln::mm(*this, other, loc); }
Tensor Tensor::cumsum(int64_t dim, Loc loc) const { return kiln::cumsum(*this, dim, loc); }
Tensor Tensor::sum(Dims dims, bool keepdim, Loc loc) const {
  return kiln::sum(*this, std::move(dims), keepdim, loc);
}
Tensor Tensor::mean(Dims dims, bool keepdim, Loc loc) const {
  return kiln::mean(*this, std::move(dims), keepdim, loc);
}
Tensor Tensor::all(Dims dims, bool keepdim, Loc loc) const {
  return kiln::all(*this, std::move(dims), keepdim, loc);
}
Tensor Tensor::any(Dims dims, bool keepdim, Loc loc) const {
  return kiln::any(*this, std::move(dims), keepdim, loc);
}
Tensor Tensor::amax(Dims dims, bool keepdim, Loc loc) const {
  return kiln::amax(*this, std::move(dims), keepdim, loc);
}
Tensor Tensor::amin(Dims dims, bool keepdim, Loc loc) const {
  return kiln::amin(*this, std::move(dims), keepdim, loc);
}
Tensor Tensor::var(Dims dims, int64_t correction, bool keepdim, Loc loc) const {
  return kiln::var(*this, std::move(dims), correction, keepdim, loc);
}
Tensor Tensor::std(Dims dims, int64_t correction, bool keepdim, Loc loc) const {
  return kiln::std(*this, std::move(dims), correction, keepdim, loc);
}
Tensor Tensor::argmax(std::optional<int64_t> dim, bool keepdim, Loc loc) const {
  return kiln::argmax(*this, dim, keepdim, loc);
}
Tensor Tensor::argmin(std::optional<int64_t> dim, bool keepdim, Loc loc) const {
  return kiln::argmin(*this, dim, keepdim, loc);
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
