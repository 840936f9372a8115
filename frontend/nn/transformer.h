// SPDX-License-Identifier: Apache-2.0
// Attention and the layers of transformers, with torch.nn's constructor arguments, names and initialisation.
// Shapes are [length, batch, width], with batch_first [batch, length, width], or [length, width]. Masks are
// those of kiln::multi_head_attention_forward: true, where bool, hides.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "frontend/attention.h"
#include "frontend/nn/layers.h"
#include "frontend/nn/module.h"

namespace kiln::nn {

struct MultiheadAttentionOptions {
  double dropout = 0;  ///< of the attention weights
  bool bias = true;
  bool add_bias_kv = false;
  bool add_zero_attn = false;
  std::optional<int64_t> kdim = {}, vdim = {};  ///< widths of keys and values; embed_dim when absent
  bool batch_first = false;
};
/// What one call of a MultiheadAttention is told.
struct AttentionCall {
  Tensor key_padding_mask = {};
  bool need_weights = true;
  Tensor attn_mask = {};
  bool average_attn_weights = true;
  bool is_causal = false;
};
/// `auto [output, weights] = attention(q, k, v)`. Forward hooks get the output; pre-hooks q, k, v,
/// key_padding_mask and attn_mask. Source: torch.nn.MultiheadAttention.
class MultiheadAttention : public Module {
 public:
  MultiheadAttention(int64_t embed_dim, int64_t num_heads, const MultiheadAttentionOptions& options = {});
  MultiheadAttentionResult operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                      const AttentionCall& call = {}, Loc loc = Loc::current());
  using Module::forward;
  /// The output alone, without masks.
  Tensor forward(const Tensor& query, const Tensor& key, const Tensor& value) override;
  Tensor in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight, in_proj_bias, bias_k, bias_v;
  Linear out_proj;

 private:
  MultiheadAttentionResult attend(const Tensor& query, const Tensor& key, const Tensor& value,
                                  const AttentionCall& call, Loc loc);
  int64_t heads_;
  MultiheadAttentionOptions options_;
};

struct TransformerLayerOptions {
  int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  std::function<Tensor(const Tensor&)> activation = {};  ///< relu when empty
  double layer_norm_eps = 1e-5;
  bool batch_first = false;
  bool norm_first = false;
  bool bias = true;
};

/// Self-attention and two linear layers, each with a residual and a norm. Called with the sequence, its mask
/// and its key_padding_mask (both may be undefined, or left out). Source: torch.nn.TransformerEncoderLayer.
class TransformerEncoderLayer : public Module {
 public:
  TransformerEncoderLayer(int64_t d_model, int64_t nhead, TransformerLayerOptions options = {});
  Tensor forward(const Tensor& src) override { return forward(src, {}, {}); }
  Tensor forward(const Tensor& src, const Tensor& mask) override { return forward(src, mask, {}); }
  Tensor forward(const Tensor& src, const Tensor& mask, const Tensor& key_padding_mask) override;
  /// Another layer of the same arguments and state.
  std::unique_ptr<TransformerEncoderLayer> copy() const;

  MultiheadAttention self_attn;
  Linear linear1, linear2;
  LayerNorm norm1, norm2;

 private:
  int64_t d_model_, nhead_;
  TransformerLayerOptions options_;
  Dropout dropout_, dropout1_, dropout2_;
};

struct DecoderMasks {
  Tensor tgt_mask = {}, memory_mask = {}, tgt_key_padding_mask = {}, memory_key_padding_mask = {};
};
/// Self-attention, attention to what an encoder gave, and two linear layers.
/// Source: torch.nn.TransformerDecoderLayer.
class TransformerDecoderLayer : public Module {
 public:
  TransformerDecoderLayer(int64_t d_model, int64_t nhead, TransformerLayerOptions options = {});
  Tensor operator()(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks = {},
                    Loc loc = Loc::current());
  using Module::forward;
  Tensor forward(const Tensor& tgt, const Tensor& memory) override;
  std::unique_ptr<TransformerDecoderLayer> copy() const;

  MultiheadAttention self_attn, multihead_attn;
  Linear linear1, linear2;
  LayerNorm norm1, norm2, norm3;

 private:
  Tensor run(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks, Loc loc);
  int64_t d_model_, nhead_;
  TransformerLayerOptions options_;
  Dropout dropout_, dropout1_, dropout2_, dropout3_;
};

/// Copies of a layer, run in order, and a last norm if there is one: modules "layers.0", ..., "norm". As in
/// PyTorch the layers start with the same values. Source: torch.nn.TransformerEncoder.
class TransformerEncoder : public Module {
 public:
  TransformerEncoder(const TransformerEncoderLayer& layer, int64_t num_layers,
                     std::unique_ptr<Module> norm = nullptr);
  Tensor forward(const Tensor& src) override { return forward(src, {}, {}); }
  Tensor forward(const Tensor& src, const Tensor& mask) override { return forward(src, mask, {}); }
  Tensor forward(const Tensor& src, const Tensor& mask, const Tensor& key_padding_mask) override;

 private:
  ModuleList layers_;
  std::unique_ptr<Module> norm_;
};
/// Source: torch.nn.TransformerDecoder.
class TransformerDecoder : public Module {
 public:
  TransformerDecoder(const TransformerDecoderLayer& layer, int64_t num_layers,
                     std::unique_ptr<Module> norm = nullptr);
  Tensor operator()(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks = {},
                    Loc loc = Loc::current());
  using Module::forward;
  Tensor forward(const Tensor& tgt, const Tensor& memory) override;

 private:
  Tensor run(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks, Loc loc);
  ModuleList layers_;
  std::unique_ptr<Module> norm_;
};

struct TransformerOptions {
  int64_t d_model = 512, nhead = 8, num_encoder_layers = 6, num_decoder_layers = 6;
  TransformerLayerOptions layer = {};
};
struct TransformerMasks {
  Tensor src_mask = {}, tgt_mask = {}, memory_mask = {};
  Tensor src_key_padding_mask = {}, tgt_key_padding_mask = {}, memory_key_padding_mask = {};
};
/// An encoder and a decoder with last norms; matrices start as xavier_uniform_ makes them. Called with the
/// source and the target sequence. Source: torch.nn.Transformer.
class Transformer : public Module {
 public:
  explicit Transformer(const TransformerOptions& options = {});
  Tensor operator()(const Tensor& src, const Tensor& tgt, const TransformerMasks& masks = {},
                    Loc loc = Loc::current());
  using Module::forward;
  Tensor forward(const Tensor& src, const Tensor& tgt) override;
  /// f32 [size, size]: 0, and -inf above the diagonal.
  static Tensor generate_square_subsequent_mask(int64_t size, Loc loc = Loc::current());

  TransformerEncoder encoder;
  TransformerDecoder decoder;

 private:
  Tensor run(const Tensor& src, const Tensor& tgt, const TransformerMasks& masks, Loc loc);
};

}  // namespace kiln::nn
