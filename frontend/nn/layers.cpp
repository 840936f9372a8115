// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/layers.h"

#include <cmath>

#include "frontend/dispatch.h"

namespace kiln::nn {

using detail::caller_loc;

namespace {
Tensor uniform(Sizes sizes, double bound) {
  NoGrad guard;
  return (rand(std::move(sizes)) * 2.0 - 1.0) * bound;
}
}  // namespace

Linear::Linear(int64_t in, int64_t out, bool with_bias) {
  KILN_CHECK(in >= 0 && out >= 0, invalid, "Linear: bad sizes {} and {}", in, out);
  const double bound = in > 0 ? 1 / std::sqrt(static_cast<double>(in)) : 0;
  weight = uniform({out, in}, bound);
  if (with_bias) bias = uniform({out}, bound);
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}
Tensor Linear::forward(const Tensor& x) { return linear(x, weight, bias, caller_loc()); }

LayerNorm::LayerNorm(Sizes shape, double eps, bool affine, bool with_bias)
    : shape_(std::move(shape)), eps_(eps) {
  if (affine) weight = ones(shape_);
  if (affine && with_bias) bias = zeros(shape_);
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}
Tensor LayerNorm::forward(const Tensor& x) { return layer_norm(x, shape_, weight, bias, eps_, caller_loc()); }

Embedding::Embedding(int64_t n, int64_t dim, std::optional<int64_t> padding_idx) : padding_idx_(padding_idx) {
  weight = randn({n, dim});
  KILN_CHECK(!padding_idx || (*padding_idx >= -n && *padding_idx < n), invalid,
             "Embedding: padding_idx {} is outside the {} rows", *padding_idx, n);
  if (padding_idx) select(weight, 0, *padding_idx).zero_();
  register_parameter("weight", weight);
}
Tensor Embedding::forward(const Tensor& ids) { return embedding(ids, weight, padding_idx_, caller_loc()); }

Loc Dropout::detail_loc() { return caller_loc(); }
Tensor GELU::forward(const Tensor& x) { return gelu(x, approximate_, caller_loc()); }
Tensor ReLU::forward(const Tensor& x) { return relu(x, caller_loc()); }

Module& ModuleList::operator[](size_t i) {
  KILN_CHECK(i < items_.size(), invalid, "ModuleList: no module {}; there are {}", i, items_.size());
  return *items_[i];
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (auto& m : items_) y = (*m)(y, caller_loc());
  return y;
}

}  // namespace kiln::nn
