// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/transformer.h"

#include <limits>

#include "frontend/dispatch.h"
#include "frontend/nn/init.h"

namespace kiln::nn {

using detail::caller_loc;

MultiheadAttention::MultiheadAttention(int64_t e, int64_t heads, const MultiheadAttentionOptions& o)
    : out_proj(e, e, o.bias), heads_(heads), options_(o) {
  KILN_CHECK(e > 0 && heads > 0 && e % heads == 0, invalid,
             "MultiheadAttention: embed_dim {} does not divide into {} heads", e, heads);
  KILN_CHECK(o.dropout >= 0 && o.dropout <= 1, invalid, "MultiheadAttention: dropout is {}, expected 0 to 1",
             o.dropout);
  const int64_t kdim = o.kdim.value_or(e), vdim = o.vdim.value_or(e);
  if (kdim == e && vdim == e) {
    in_proj_weight = init::xavier_uniform_(zeros({3 * e, e}));
  } else {
    q_proj_weight = init::xavier_uniform_(zeros({e, e}));
    k_proj_weight = init::xavier_uniform_(zeros({e, kdim}));
    v_proj_weight = init::xavier_uniform_(zeros({e, vdim}));
  }
  if (o.bias) {
    in_proj_bias = zeros({3 * e});
    init::zeros_(out_proj.bias);
  }
  if (o.add_bias_kv) {
    bias_k = init::xavier_normal_(zeros({1, 1, e}));
    bias_v = init::xavier_normal_(zeros({1, 1, e}));
  }
  register_parameter("in_proj_weight", in_proj_weight);
  register_parameter("q_proj_weight", q_proj_weight);
  register_parameter("k_proj_weight", k_proj_weight);
  register_parameter("v_proj_weight", v_proj_weight);
  register_parameter("in_proj_bias", in_proj_bias);
  register_parameter("bias_k", bias_k);
  register_parameter("bias_v", bias_v);
  register_module("out_proj", out_proj);
}

MultiheadAttentionResult MultiheadAttention::operator()(const Tensor& query, const Tensor& key,
                                                        const Tensor& value, const AttentionCall& call,
                                                        Loc loc) {
  const std::vector<Tensor> r =
      call_many({query, key, value, call.key_padding_mask, call.attn_mask}, loc, [&](const auto& in) {
        AttentionCall now = call;
        now.key_padding_mask = in.at(3);
        now.attn_mask = in.at(4);
        const MultiheadAttentionResult a = attend(in.at(0), in.at(1), in.at(2), now, loc);
        return std::vector<Tensor>{a.output, a.weights};
      });
  return {r[0], r[1]};
}

Tensor MultiheadAttention::forward(const Tensor& query, const Tensor& key, const Tensor& value) {
  return attend(query, key, value, {.need_weights = false}, caller_loc()).output;
}

MultiheadAttentionResult MultiheadAttention::attend(const Tensor& query, const Tensor& key,
                                                    const Tensor& value, const AttentionCall& call, Loc loc) {
  // The same tensor stays one, so that it is projected by one product.
  const bool swap = options_.batch_first && query.defined() && query.dim() == 3;
  const auto turned = [&](const Tensor& t) {
    return swap && t.defined() && t.dim() == 3 ? transpose(t, 0, 1, loc) : t;
  };
  const Tensor q = turned(query), k = key.impl() == query.impl() ? q : turned(key),
               v = value.impl() == key.impl() ? k : turned(value);
  const MultiheadAttentionWeights w{in_proj_weight, q_proj_weight,   k_proj_weight,
                                    v_proj_weight,  in_proj_bias,    bias_k,
                                    bias_v,         out_proj.weight, out_proj.bias};
  const kiln::MultiheadAttentionOptions o{options_.add_zero_attn,    options_.dropout, is_training(),
                                          call.key_padding_mask,     call.attn_mask,   call.need_weights,
                                          call.average_attn_weights, call.is_causal};
  MultiheadAttentionResult r = multi_head_attention_forward(q, k, v, heads_, w, o, loc);
  if (swap) r.output = transpose(r.output, 0, 1, loc);
  return r;
}

namespace {

MultiheadAttentionOptions attention_options(const TransformerLayerOptions& o) {
  MultiheadAttentionOptions a;
  a.dropout = o.dropout;
  a.bias = o.bias;
  a.batch_first = o.batch_first;
  return a;
}

Tensor activated(const TransformerLayerOptions& o, const Tensor& x, Loc loc) {
  return o.activation ? o.activation(x) : relu(x, loc);
}

/// x and what a part of a layer makes of it, normed before or after.
template <typename Part>
Tensor residual(const Tensor& x, LayerNorm& norm, bool norm_first, Loc loc, Part&& part) {
  if (norm_first) return add({x, loc}, {part(norm(x, loc)), loc});
  return norm(add({x, loc}, {part(x), loc}), loc);
}

}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(int64_t d, int64_t heads, TransformerLayerOptions o)
    : self_attn(d, heads, attention_options(o)),
      linear1(d, o.dim_feedforward, o.bias),
      linear2(o.dim_feedforward, d, o.bias),
      norm1({d}, o.layer_norm_eps, true, o.bias),
      norm2({d}, o.layer_norm_eps, true, o.bias),
      d_model_(d),
      nhead_(heads),
      options_(std::move(o)),
      dropout_(options_.dropout),
      dropout1_(options_.dropout),
      dropout2_(options_.dropout) {
  register_module("self_attn", self_attn);
  register_module("linear1", linear1);
  register_module("dropout", dropout_);
  register_module("linear2", linear2);
  register_module("norm1", norm1);
  register_module("norm2", norm2);
  register_module("dropout1", dropout1_);
  register_module("dropout2", dropout2_);
}

std::unique_ptr<TransformerEncoderLayer> TransformerEncoderLayer::copy() const {
  return deep_copy(*this, d_model_, nhead_, options_);
}

Tensor TransformerEncoderLayer::forward(const Tensor& src, const Tensor& mask,
                                        const Tensor& key_padding_mask) {
  const Loc loc = caller_loc();
  const Tensor x = residual(src, norm1, options_.norm_first, loc, [&](const Tensor& t) {
    const AttentionCall call{.key_padding_mask = key_padding_mask, .need_weights = false, .attn_mask = mask};
    return dropout1_(self_attn(t, t, t, call, loc).output, loc);
  });
  return residual(x, norm2, options_.norm_first, loc, [&](const Tensor& t) {
    return dropout2_(linear2(dropout_(activated(options_, linear1(t, loc), loc), loc), loc), loc);
  });
}

TransformerDecoderLayer::TransformerDecoderLayer(int64_t d, int64_t heads, TransformerLayerOptions o)
    : self_attn(d, heads, attention_options(o)),
      multihead_attn(d, heads, attention_options(o)),
      linear1(d, o.dim_feedforward, o.bias),
      linear2(o.dim_feedforward, d, o.bias),
      norm1({d}, o.layer_norm_eps, true, o.bias),
      norm2({d}, o.layer_norm_eps, true, o.bias),
      norm3({d}, o.layer_norm_eps, true, o.bias),
      d_model_(d),
      nhead_(heads),
      options_(std::move(o)),
      dropout_(options_.dropout),
      dropout1_(options_.dropout),
      dropout2_(options_.dropout),
      dropout3_(options_.dropout) {
  register_module("self_attn", self_attn);
  register_module("multihead_attn", multihead_attn);
  register_module("linear1", linear1);
  register_module("dropout", dropout_);
  register_module("linear2", linear2);
  register_module("norm1", norm1);
  register_module("norm2", norm2);
  register_module("norm3", norm3);
  register_module("dropout1", dropout1_);
  register_module("dropout2", dropout2_);
  register_module("dropout3", dropout3_);
}

std::unique_ptr<TransformerDecoderLayer> TransformerDecoderLayer::copy() const {
  return deep_copy(*this, d_model_, nhead_, options_);
}

namespace {
/// A decoder's operands and masks as one list, as its hooks see them, and back.
std::vector<Tensor> listed(const Tensor& tgt, const Tensor& memory, const DecoderMasks& m) {
  return {tgt, memory, m.tgt_mask, m.memory_mask, m.tgt_key_padding_mask, m.memory_key_padding_mask};
}
DecoderMasks masks_of(const std::vector<Tensor>& in) { return {in.at(2), in.at(3), in.at(4), in.at(5)}; }
}  // namespace

Tensor TransformerDecoderLayer::operator()(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks,
                                           Loc loc) {
  return call_many(listed(tgt, memory, masks), loc, [&](const auto& in) {
    return std::vector<Tensor>{run(in.at(0), in.at(1), masks_of(in), loc)};
  })[0];
}
Tensor TransformerDecoderLayer::forward(const Tensor& tgt, const Tensor& memory) {
  return run(tgt, memory, {}, caller_loc());
}

Tensor TransformerDecoderLayer::run(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks,
                                    Loc loc) {
  Tensor x = residual(tgt, norm1, options_.norm_first, loc, [&](const Tensor& t) {
    const AttentionCall call{
        .key_padding_mask = masks.tgt_key_padding_mask, .need_weights = false, .attn_mask = masks.tgt_mask};
    return dropout1_(self_attn(t, t, t, call, loc).output, loc);
  });
  x = residual(x, norm2, options_.norm_first, loc, [&](const Tensor& t) {
    const AttentionCall call{.key_padding_mask = masks.memory_key_padding_mask,
                             .need_weights = false,
                             .attn_mask = masks.memory_mask};
    return dropout2_(multihead_attn(t, memory, memory, call, loc).output, loc);
  });
  return residual(x, norm3, options_.norm_first, loc, [&](const Tensor& t) {
    return dropout3_(linear2(dropout_(activated(options_, linear1(t, loc), loc), loc), loc), loc);
  });
}

TransformerEncoder::TransformerEncoder(const TransformerEncoderLayer& layer, int64_t num_layers,
                                       std::unique_ptr<Module> norm)
    : norm_(std::move(norm)) {
  KILN_CHECK(num_layers >= 0, invalid, "TransformerEncoder: num_layers is {}, expected at least 0",
             num_layers);
  for (int64_t i = 0; i < num_layers; ++i) layers_.append(layer.copy());
  register_module("layers", layers_);
  if (norm_) register_module("norm", *norm_);
}
Tensor TransformerEncoder::forward(const Tensor& src, const Tensor& mask, const Tensor& key_padding_mask) {
  const Loc loc = caller_loc();
  Tensor x = src;
  for (size_t i = 0; i < layers_.size(); ++i) x = layers_[i](x, mask, key_padding_mask, loc);
  return norm_ ? (*norm_)(x, loc) : x;
}

TransformerDecoder::TransformerDecoder(const TransformerDecoderLayer& layer, int64_t num_layers,
                                       std::unique_ptr<Module> norm)
    : norm_(std::move(norm)) {
  KILN_CHECK(num_layers >= 0, invalid, "TransformerDecoder: num_layers is {}, expected at least 0",
             num_layers);
  for (int64_t i = 0; i < num_layers; ++i) layers_.append(layer.copy());
  register_module("layers", layers_);
  if (norm_) register_module("norm", *norm_);
}
Tensor TransformerDecoder::operator()(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks,
                                      Loc loc) {
  return call_many(listed(tgt, memory, masks), loc, [&](const auto& in) {
    return std::vector<Tensor>{run(in.at(0), in.at(1), masks_of(in), loc)};
  })[0];
}
Tensor TransformerDecoder::forward(const Tensor& tgt, const Tensor& memory) {
  return run(tgt, memory, {}, caller_loc());
}
Tensor TransformerDecoder::run(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks, Loc loc) {
  Tensor x = tgt;
  for (size_t i = 0; i < layers_.size(); ++i)
    x = layers_.at<TransformerDecoderLayer>(i)(x, memory, masks, loc);
  return norm_ ? (*norm_)(x, loc) : x;
}

namespace {
std::unique_ptr<Module> last_norm(const TransformerOptions& o) {
  return std::make_unique<LayerNorm>(Sizes{o.d_model}, o.layer.layer_norm_eps, true, o.layer.bias);
}
}  // namespace

Transformer::Transformer(const TransformerOptions& o)
    : encoder(TransformerEncoderLayer(o.d_model, o.nhead, o.layer), o.num_encoder_layers, last_norm(o)),
      decoder(TransformerDecoderLayer(o.d_model, o.nhead, o.layer), o.num_decoder_layers, last_norm(o)) {
  register_module("encoder", encoder);
  register_module("decoder", decoder);
  for (const Tensor& p : parameters())
    if (p.dim() > 1) init::xavier_uniform_(p);
}

Tensor Transformer::operator()(const Tensor& src, const Tensor& tgt, const TransformerMasks& m, Loc loc) {
  const std::vector<Tensor> inputs{src,
                                   tgt,
                                   m.src_mask,
                                   m.tgt_mask,
                                   m.memory_mask,
                                   m.src_key_padding_mask,
                                   m.tgt_key_padding_mask,
                                   m.memory_key_padding_mask};
  return call_many(inputs, loc, [&](const auto& in) {
    const TransformerMasks now{in.at(2), in.at(3), in.at(4), in.at(5), in.at(6), in.at(7)};
    return std::vector<Tensor>{run(in.at(0), in.at(1), now, loc)};
  })[0];
}
Tensor Transformer::forward(const Tensor& src, const Tensor& tgt) { return run(src, tgt, {}, caller_loc()); }
Tensor Transformer::run(const Tensor& src, const Tensor& tgt, const TransformerMasks& m, Loc loc) {
  const Tensor memory = encoder(src, m.src_mask, m.src_key_padding_mask, loc);
  return decoder(tgt, memory, {m.tgt_mask, m.memory_mask, m.tgt_key_padding_mask, m.memory_key_padding_mask},
                 loc);
}

Tensor Transformer::generate_square_subsequent_mask(int64_t size, Loc loc) {
  KILN_CHECK(size >= 0, invalid, "generate_square_subsequent_mask ({}): a size of {}", loc.str(), size);
  return triu(full({size, size}, -std::numeric_limits<double>::infinity(), {}, loc), 1, loc);
}

}  // namespace kiln::nn
