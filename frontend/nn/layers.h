// SPDX-License-Identifier: Apache-2.0
// The layers of common models, with torch.nn's constructor arguments, names and initialisation.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "frontend/functional.h"
#include "frontend/nn/activation.h"
#include "frontend/nn/dropout.h"
#include "frontend/nn/module.h"
#include "frontend/ops_index.h"

namespace kiln::nn {

/// y = x W^T + b. Initialised uniform in +-1/sqrt(in). Source: torch.nn.Linear.
class Linear : public Module {
 public:
  Linear(int64_t in_features, int64_t out_features, bool bias = true);
  Tensor forward(const Tensor& x) override;
  Tensor weight, bias;

 protected:
  struct Lazy {};
  /// Without parameters, which are the derived class's to define.
  explicit Linear(Lazy);
  /// First values of weight and bias.
  static std::pair<Tensor, Tensor> start(int64_t in_features, int64_t out_features, bool bias);
};

/// y[..., o] = x1^T weight[o] x2 + bias[o]. Initialised uniform in +-1/sqrt(in1). Source: torch.nn.Bilinear.
class Bilinear : public Module {
 public:
  Bilinear(int64_t in1_features, int64_t in2_features, int64_t out_features, bool bias = true);
  Tensor forward(const Tensor& x1, const Tensor& x2) override;
  Tensor weight, bias;  ///< [out, in1, in2], [out]
};

/// Source: torch.nn.LayerNorm.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(Sizes normalized_shape, double eps = 1e-5, bool elementwise_affine = true,
                     bool bias = true);
  explicit LayerNorm(int64_t size, double eps = 1e-5) : LayerNorm(Sizes{size}, eps) {}
  Tensor forward(const Tensor& x) override;
  Tensor weight, bias;

 private:
  Sizes shape_;
  double eps_;
};

/// Rows of a table, initialised standard normal; row `padding_idx` starts as zeros and gets no gradient.
/// Source: torch.nn.Embedding.
class Embedding : public Module {
 public:
  Embedding(int64_t num_embeddings, int64_t embedding_dim, std::optional<int64_t> padding_idx = {});
  Tensor forward(const Tensor& ids) override;
  Tensor weight;

 private:
  std::optional<int64_t> padding_idx_;
};

/// Rows of a table combined bag by bag, initialised standard normal; row options.padding_idx starts as zeros
/// and gets no gradient. Called with ids, ids and offsets, or (for sums) ids, offsets or undefined, and
/// weights of the samples; see kiln::embedding_bag. Source: torch.nn.EmbeddingBag.
class EmbeddingBag : public Module {
 public:
  EmbeddingBag(int64_t num_embeddings, int64_t embedding_dim, const EmbeddingBagOptions& options = {});
  Tensor forward(const Tensor& ids) override { return forward(ids, {}, {}); }
  Tensor forward(const Tensor& ids, const Tensor& offsets) override { return forward(ids, offsets, {}); }
  Tensor forward(const Tensor& ids, const Tensor& offsets, const Tensor& per_sample_weights) override;
  Tensor weight;

 private:
  EmbeddingBagOptions options_;
};

/// Submodules by index: "0", "1", ... It owns them.
class ModuleList : public Module {
 public:
  /// Constructs a module in place and returns it.
  template <typename M, typename... Args>
  M& emplace_back(Args&&... args) {
    auto m = std::make_unique<M>(std::forward<Args>(args)...);
    M& ref = *m;
    register_module(std::to_string(items_.size()), ref);
    items_.push_back(std::move(m));
    return ref;
  }
  Module& append(std::unique_ptr<Module> module);
  size_t size() const { return items_.size(); }
  /// Throws: invalid, when there is no module `i`.
  Module& operator[](size_t i);
  /// Throws: invalid, when there is no module `i`, or it is not an M.
  template <typename M>
  M& at(size_t i) {
    M* m = dynamic_cast<M*>(&(*this)[i]);
    KILN_CHECK(m, invalid, "ModuleList: module {} is of another type than asked for", i);
    return *m;
  }

 protected:
  std::deque<std::unique_ptr<Module>> items_;
};

/// Runs its modules in order.
class Sequential : public ModuleList {
 public:
  Tensor forward(const Tensor& x) override;
};

}  // namespace kiln::nn
