// SPDX-License-Identifier: Apache-2.0
// Distances as modules: each calls the function of its name on the two tensors that it is called with.
#pragma once

#include "frontend/activation.h"
#include "frontend/dispatch.h"
#include "frontend/nn/module.h"

namespace kiln::nn {

/// See kiln::cosine_similarity. Source: torch.nn.CosineSimilarity.
class CosineSimilarity : public Module {
 public:
  explicit CosineSimilarity(int64_t dim = 1, double eps = 1e-8) : dim_(dim), eps_(eps) {}
  Tensor forward(const Tensor& x1, const Tensor& x2) override {
    return cosine_similarity(x1, x2, dim_, eps_, detail::caller_loc());
  }

 private:
  int64_t dim_;
  double eps_;
};

/// See kiln::pairwise_distance. Source: torch.nn.PairwiseDistance.
class PairwiseDistance : public Module {
 public:
  explicit PairwiseDistance(double p = 2, double eps = 1e-6, bool keepdim = false)
      : p_(p), eps_(eps), keepdim_(keepdim) {}
  Tensor forward(const Tensor& x1, const Tensor& x2) override {
    return pairwise_distance(x1, x2, p_, eps_, keepdim_, detail::caller_loc());
  }

 private:
  double p_, eps_;
  bool keepdim_;
};

}  // namespace kiln::nn
