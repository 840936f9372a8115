// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/layers.h"

#include <tuple>

#include "frontend/dispatch.h"
#include "frontend/linalg.h"
#include "frontend/nn/init_detail.h"

namespace kiln::nn {

using detail::caller_loc;
using detail_init::initial;

Linear::Linear(int64_t in, int64_t out, bool with_bias) {
  std::tie(weight, bias) = start(in, out, with_bias);
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}
Linear::Linear(Lazy) {
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}
std::pair<Tensor, Tensor> Linear::start(int64_t in, int64_t out, bool with_bias) {
  KILN_CHECK(in >= 0 && out >= 0, invalid, "Linear: bad sizes {} and {}", in, out);
  const Tensor w = initial({out, in}, in);
  return {w, with_bias ? initial({out}, in) : Tensor()};
}
Tensor Linear::forward(const Tensor& x) { return linear(x, weight, bias, caller_loc()); }

Bilinear::Bilinear(int64_t in1, int64_t in2, int64_t out, bool with_bias) {
  KILN_CHECK(in1 > 0 && in2 >= 0 && out >= 0, invalid, "Bilinear: bad sizes {}, {} and {}", in1, in2, out);
  weight = initial({out, in1, in2}, in1);
  if (with_bias) bias = initial({out}, in1);
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}
Tensor Bilinear::forward(const Tensor& x1, const Tensor& x2) {
  return bilinear(x1, x2, weight, bias, caller_loc());
}

LayerNorm::LayerNorm(Sizes shape, double eps, bool affine, bool with_bias)
    : shape_(std::move(shape)), eps_(eps) {
  if (affine) weight = ones(shape_);
  if (affine && with_bias) bias = zeros(shape_);
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}
Tensor LayerNorm::forward(const Tensor& x) { return layer_norm(x, shape_, weight, bias, eps_, caller_loc()); }

Embedding::Embedding(int64_t n, int64_t dim, std::optional<int64_t> padding_idx) : padding_idx_(padding_idx) {
  KILN_CHECK(n >= 0 && dim >= 0, invalid, "Embedding: bad sizes {} and {}", n, dim);
  weight = randn({n, dim});
  KILN_CHECK(!padding_idx || (*padding_idx >= -n && *padding_idx < n), invalid,
             "Embedding: padding_idx {} is outside the {} rows", *padding_idx, n);
  if (padding_idx) select(weight, 0, *padding_idx).zero_();
  register_parameter("weight", weight);
}
Tensor Embedding::forward(const Tensor& ids) { return embedding(ids, weight, padding_idx_, caller_loc()); }

EmbeddingBag::EmbeddingBag(int64_t n, int64_t dim, const EmbeddingBagOptions& options) : options_(options) {
  weight = randn({n, dim});
  const int64_t padding = options.padding_idx.value_or(0);
  KILN_CHECK(!options.padding_idx || (padding >= -n && padding < n), invalid,
             "EmbeddingBag: padding_idx {} is outside the {} rows", padding, n);
  if (options.padding_idx) select(weight, 0, padding).zero_();
  register_parameter("weight", weight);
}
Tensor EmbeddingBag::forward(const Tensor& ids, const Tensor& offsets, const Tensor& per_sample_weights) {
  return embedding_bag(ids, weight, offsets, options_, per_sample_weights, caller_loc());
}

Module& ModuleList::append(std::unique_ptr<Module> module) {
  register_module(std::to_string(items_.size()), *module);
  items_.push_back(std::move(module));
  return *items_.back();
}
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
