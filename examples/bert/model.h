// SPDX-License-Identifier: Apache-2.0
// BERT: an encoder-only transformer, post-LN, exact GELU, learned positions. Parameters have the names of
// transformers.BertModel, so that its checkpoints load as they are. Source: Devlin et al. 2018.
#pragma once

#include <optional>

#include "examples/bert/config.h"
#include "frontend/kiln.h"

namespace bert {

using kiln::Tensor;

class Embeddings : public kiln::nn::Module {
 public:
  explicit Embeddings(const Config& c);
  using Module::forward;
  /// Shapes: ids and segments [batch, seq] -> [batch, seq, hidden].
  Tensor forward(const Tensor& ids, const Tensor& segments) override;
  const Tensor& word_table() const { return word_embeddings_.weight; }

 private:
  kiln::nn::Embedding word_embeddings_, position_embeddings_, token_type_embeddings_;
  kiln::nn::LayerNorm layer_norm_;
  kiln::nn::Dropout dropout_;
};

class SelfAttention : public kiln::nn::Module {
 public:
  explicit SelfAttention(const Config& c);
  using Module::forward;
  /// Shapes: x [batch, seq, hidden], mask [batch, 1, 1, seq], bool, true: attend -> like x.
  Tensor forward(const Tensor& x, const Tensor& mask) override;

 private:
  Tensor heads(const Tensor& x) const;

  int64_t heads_;
  double dropout_;
  kiln::nn::Linear query_, key_, value_;
};

/// A projection whose result is added to `residual` and normalised.
class Output : public kiln::nn::Module {
 public:
  Output(int64_t in, const Config& c);
  using Module::forward;
  Tensor forward(const Tensor& x, const Tensor& residual) override;

 private:
  kiln::nn::Linear dense_;
  kiln::nn::LayerNorm layer_norm_;
  kiln::nn::Dropout dropout_;
};

class Attention : public kiln::nn::Module {
 public:
  explicit Attention(const Config& c);
  using Module::forward;
  Tensor forward(const Tensor& x, const Tensor& mask) override;

 private:
  SelfAttention self_;
  Output output_;
};

class Intermediate : public kiln::nn::Module {
 public:
  explicit Intermediate(const Config& c);
  using Module::forward;
  Tensor forward(const Tensor& x) override;

 private:
  kiln::nn::Linear dense_;
};

class Layer : public kiln::nn::Module {
 public:
  explicit Layer(const Config& c);
  using Module::forward;
  Tensor forward(const Tensor& x, const Tensor& mask) override;

 private:
  Attention attention_;
  Intermediate intermediate_;
  Output output_;
};

class Encoder : public kiln::nn::Module {
 public:
  explicit Encoder(const Config& c);
  using Module::forward;
  Tensor forward(const Tensor& x, const Tensor& mask) override;

 private:
  kiln::nn::ModuleList layers_;
};

/// tanh of a projection of the first token.
class Pooler : public kiln::nn::Module {
 public:
  explicit Pooler(const Config& c);
  using Module::forward;
  Tensor forward(const Tensor& hidden) override;

 private:
  kiln::nn::Linear dense_;
};

class Bert : public kiln::nn::Module {
 public:
  /// Models that say something of each token alone have no pooling layer.
  explicit Bert(const Config& c, bool add_pooling_layer = true);
  using Module::forward;
  /// The last layer's hidden states. Shapes: ids, mask (1: a token, 0: padding) and segments (0, or 1 for the
  /// second text of a pair) [batch, seq], i64 -> [batch, seq, hidden].
  Tensor forward(const Tensor& ids, const Tensor& mask, const Tensor& segments) override;
  /// Of texts that are no pairs.
  Tensor forward(const Tensor& ids, const Tensor& mask) override;
  const Config& config() const { return config_; }
  /// tanh of a projection of the first token. Shapes: [batch, seq, hidden] -> [batch, hidden]. Throws:
  /// invalid, without a pooling layer.
  Tensor pool(const Tensor& hidden);
  const Tensor& word_table() const { return embeddings_.word_table(); }

 private:
  Config config_;
  Embeddings embeddings_;
  Encoder encoder_;
  std::optional<Pooler> pooler_;
};

/// The mean of the hidden states of tokens. Shapes: hidden [batch, seq, d], mask [batch, seq] -> [batch, d].
Tensor mean_pool(const Tensor& hidden, const Tensor& mask);
/// Sentence embeddings: mean_pool of the model's hidden states, scaled to length 1. Shapes: [batch, hidden].
Tensor embed(Bert& model, const Tensor& ids, const Tensor& mask);

/// A linear classifier on the mean of the hidden states.
class Classifier : public kiln::nn::Module {
 public:
  Classifier(const Config& c, int64_t classes);
  using Module::forward;
  /// Logits. Shapes: ids, mask [batch, seq] -> [batch, classes].
  Tensor forward(const Tensor& ids, const Tensor& mask) override;
  Bert& bert() { return bert_; }
  kiln::nn::Linear& head() { return head_; }

 private:
  Bert bert_;
  kiln::nn::Dropout dropout_;
  kiln::nn::Linear head_;
};

/// Loads model.safetensors (or the shards of model.safetensors.index.json) of `folder` into `model`, whose
/// values may be of another floating dtype there. A prefix "bert." before all names, as of models with a
/// head, and names that are no parameters of BERT's body (heads, position_ids) are passed over.
/// Throws: as pretrained::load.
void load_pretrained(Bert& model, const std::string& folder);

}  // namespace bert
