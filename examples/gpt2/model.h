// SPDX-License-Identifier: Apache-2.0
// GPT-2: a decoder-only transformer, pre-LN, learned positions, the embedding as output layer. Parameters
// have the names of transformers.GPT2LMHeadModel; matrices are [out, in], as nn::Linear's, where its
// checkpoints have [in, out]. Source: Radford et al. 2019.
#pragma once

#include <string>

#include "frontend/kiln.h"

namespace gpt2 {

using kiln::Tensor;

/// Names and defaults of transformers.GPT2Config.
struct Config {
  int64_t vocab_size = 50257, n_positions = 1024, n_embd = 768, n_layer = 12, n_head = 12;
  int64_t n_inner = 0;  ///< width of the feed-forward net; 0: 4 n_embd
  double resid_pdrop = 0.1, embd_pdrop = 0.1, attn_pdrop = 0.1, layer_norm_epsilon = 1e-5;
  double initializer_range = 0.02;
  kiln::GeluApproximate activation = kiln::GeluApproximate::tanh;
};

/// Reads a config.json. Throws: io; invalid, if it is of another family or has a number out of range;
/// unsupported, for attention or an output layer of another form, or another activation than GELU.
Config read_config(const std::string& path);

class Attention : public kiln::nn::Module {
 public:
  explicit Attention(const Config& c);
  using Module::forward;
  Tensor forward(const Tensor& x) override;

 private:
  int64_t heads_;
  double dropout_;
  kiln::nn::Linear c_attn_, c_proj_;
  kiln::nn::Dropout resid_dropout_;
};

class Mlp : public kiln::nn::Module {
 public:
  explicit Mlp(const Config& c);
  using Module::forward;
  Tensor forward(const Tensor& x) override;

 private:
  kiln::GeluApproximate activation_;
  kiln::nn::Linear c_fc_, c_proj_;
  kiln::nn::Dropout dropout_;
};

class Block : public kiln::nn::Module {
 public:
  explicit Block(const Config& c);
  using Module::forward;
  Tensor forward(const Tensor& x) override;

 private:
  kiln::nn::LayerNorm ln_1_, ln_2_;
  Attention attn_;
  Mlp mlp_;
};

/// All but the output layer.
class Body : public kiln::nn::Module {
 public:
  explicit Body(const Config& c);
  using Module::forward;
  /// Shapes: ids [batch, seq] -> [batch, seq, n_embd]. Throws: invalid, for more than n_positions.
  Tensor forward(const Tensor& ids) override;
  const Tensor& table() const { return wte_.weight; }

 private:
  int64_t positions_;
  kiln::nn::Embedding wte_, wpe_;
  kiln::nn::Dropout drop_;
  kiln::nn::ModuleList h_;
  kiln::nn::LayerNorm ln_f_;
};

class Gpt2 : public kiln::nn::Module {
 public:
  explicit Gpt2(const Config& c);
  using Module::forward;
  /// Logits of the next token. Shapes: ids [batch, seq] -> [batch, seq, vocab].
  Tensor forward(const Tensor& ids) override;
  const Config& config() const { return config_; }

 private:
  Config config_;
  Body transformer_;
};

/// Loads model.safetensors (or its shards) of `folder`: of GPT2LMHeadModel, or of GPT2Model, whose names lack
/// "transformer.". Throws: io; invalid, naming what is missing or misshapen, and for an output layer that is
/// not the embedding.
void load_pretrained(Gpt2& model, const std::string& folder);

/// `ids` and the `count` likeliest tokens that follow, one after the other. Shapes: [n] -> [n + count].
/// Throws: invalid, for an id that is no token, or when the model has too few positions.
std::vector<int64_t> generate(Gpt2& model, std::vector<int64_t> ids, int64_t count);

}  // namespace gpt2
