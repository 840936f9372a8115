// SPDX-License-Identifier: Apache-2.0
// The model: a decoder-only transformer over bytes, pre-LN, GELU(tanh), learned positions.
#pragma once

#include "examples/gpt/options.h"
#include "frontend/kiln.h"

namespace gpt {

using kiln::Tensor;

/// Attention, then a feed-forward net, each behind a norm and beside a residual path.
class Block : public kiln::nn::Module {
 public:
  Block(int64_t dim, int64_t heads, double dropout);
  using Module::forward;
  /// Shapes: [batch, seq, dim] -> the same.
  Tensor forward(const Tensor& x) override;

 private:
  Tensor attend(const Tensor& x);

  int64_t heads_;
  double dropout_;
  kiln::nn::LayerNorm ln1_, ln2_;
  kiln::nn::Linear qkv_, proj_, fc_, out_;
};

class Gpt : public kiln::nn::Module {
 public:
  Gpt(const Options& options, int64_t vocab);
  using Module::forward;
  /// Logits of the next token. Shapes: ids [batch, seq] -> [batch, seq, vocab].
  Tensor forward(const Tensor& ids) override;
  /// Mean cross-entropy. Shapes: ids and targets [batch, seq]. Units: nat a token.
  Tensor forward(const Tensor& ids, const Tensor& targets) override;

 private:
  void initialise(int64_t layers);

  double dropout_;
  kiln::nn::Embedding wte_, wpe_;
  kiln::nn::ModuleList blocks_;
  kiln::nn::LayerNorm ln_f_;
  kiln::nn::Linear head_;
};

}  // namespace gpt
