// SPDX-License-Identifier: Apache-2.0
#include "examples/bert/model.h"

#include "examples/pretrained/load.h"

namespace bert {

Embeddings::Embeddings(const Config& c)
    : word_embeddings_(c.vocab_size, c.hidden_size, c.pad_token_id),
      position_embeddings_(c.max_position_embeddings, c.hidden_size),
      token_type_embeddings_(c.type_vocab_size, c.hidden_size),
      layer_norm_(c.hidden_size, c.layer_norm_eps),
      dropout_(c.hidden_dropout_prob) {
  register_module("word_embeddings", word_embeddings_);
  register_module("position_embeddings", position_embeddings_);
  register_module("token_type_embeddings", token_type_embeddings_);
  register_module("LayerNorm", layer_norm_);
  register_module("dropout", dropout_);
}

Tensor Embeddings::forward(const Tensor& ids, const Tensor& segments) {
  const Tensor positions = position_embeddings_(kiln::arange(ids.size(1)));
  const Tensor segment = token_type_embeddings_(segments);
  return dropout_(layer_norm_(word_embeddings_(ids) + segment + positions));
}

SelfAttention::SelfAttention(const Config& c)
    : heads_(c.num_attention_heads),
      dropout_(c.attention_probs_dropout_prob),
      query_(c.hidden_size, c.hidden_size),
      key_(c.hidden_size, c.hidden_size),
      value_(c.hidden_size, c.hidden_size) {
  register_module("query", query_);
  register_module("key", key_);
  register_module("value", value_);
}

/// Shapes: [batch, seq, hidden] -> [batch, heads, seq, hidden / heads].
Tensor SelfAttention::heads(const Tensor& x) const {
  return x.view({x.size(0), x.size(1), heads_, x.size(2) / heads_}).transpose(1, 2);
}

Tensor SelfAttention::forward(const Tensor& x, const Tensor& mask) {
  const double p = is_training() ? dropout_ : 0;
  const Tensor mixed = kiln::scaled_dot_product_attention(heads(query_(x)), heads(key_(x)), heads(value_(x)),
                                                          mask, {.dropout_p = p});
  return mixed.transpose(1, 2).reshape(x.sizes());
}

Output::Output(int64_t in, const Config& c)
    : dense_(in, c.hidden_size),
      layer_norm_(c.hidden_size, c.layer_norm_eps),
      dropout_(c.hidden_dropout_prob) {
  register_module("dense", dense_);
  register_module("LayerNorm", layer_norm_);
  register_module("dropout", dropout_);
}

Tensor Output::forward(const Tensor& x, const Tensor& residual) {
  return layer_norm_(dropout_(dense_(x)) + residual);
}

Attention::Attention(const Config& c) : self_(c), output_(c.hidden_size, c) {
  register_module("self", self_);
  register_module("output", output_);
}

Tensor Attention::forward(const Tensor& x, const Tensor& mask) { return output_(self_(x, mask), x); }

Intermediate::Intermediate(const Config& c) : dense_(c.hidden_size, c.intermediate_size) {
  register_module("dense", dense_);
}

Tensor Intermediate::forward(const Tensor& x) { return kiln::gelu(dense_(x)); }

Layer::Layer(const Config& c) : attention_(c), intermediate_(c), output_(c.intermediate_size, c) {
  register_module("attention", attention_);
  register_module("intermediate", intermediate_);
  register_module("output", output_);
}

Tensor Layer::forward(const Tensor& x, const Tensor& mask) {
  const Tensor a = attention_(x, mask);
  return output_(intermediate_(a), a);
}

Encoder::Encoder(const Config& c) {
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) layers_.emplace_back<Layer>(c);
  register_module("layer", layers_);
}

Tensor Encoder::forward(const Tensor& x, const Tensor& mask) {
  Tensor y = x;
  for (size_t i = 0; i < layers_.size(); ++i) y = layers_[i](y, mask);
  return y;
}

Pooler::Pooler(const Config& c) : dense_(c.hidden_size, c.hidden_size) { register_module("dense", dense_); }

Tensor Pooler::forward(const Tensor& hidden) { return kiln::tanh(dense_(kiln::select(hidden, 1, 0))); }

Bert::Bert(const Config& c, bool add_pooling_layer) : config_(c), embeddings_(c), encoder_(c) {
  register_module("embeddings", embeddings_);
  register_module("encoder", encoder_);
  if (add_pooling_layer) register_module("pooler", pooler_.emplace(c));
  // Matrices normal, biases zero; norms are as they should be. Source: Devlin et al. 2018, their code.
  const kiln::NoGrad guard;
  for (auto& [name, p] : named_parameters()) {
    if (p.dim() == 2) p.copy_(kiln::randn(p.sizes()) * c.initializer_range);
    if (name.ends_with("bias")) p.zero_();
  }
}

Tensor Bert::forward(const Tensor& ids, const Tensor& mask) {
  return forward(ids, mask, kiln::zeros_like(ids));
}

Tensor Bert::forward(const Tensor& ids, const Tensor& mask, const Tensor& segments) {
  KILN_CHECK(ids.dim() == 2 && mask.sizes() == ids.sizes() && segments.sizes() == ids.sizes(), invalid,
             "Bert: got ids {}, mask {} and segments {}, expected all [batch, seq]", ids.type_str(),
             mask.type_str(), segments.type_str());
  KILN_CHECK(ids.size(1) <= config_.max_position_embeddings, invalid,
             "Bert: {} tokens a text; this model has positions for {} (encode with max_length {})",
             ids.size(1), config_.max_position_embeddings, config_.max_position_embeddings);
  const Tensor attend = mask.to(kiln::DType::boolean).view({mask.size(0), 1, 1, mask.size(1)});
  return encoder_(embeddings_(ids, segments), attend);
}

Tensor Bert::pool(const Tensor& hidden) {
  KILN_CHECK(pooler_, invalid, "Bert: this model was made without a pooling layer");
  return (*pooler_)(hidden);
}

Tensor mean_pool(const Tensor& hidden, const Tensor& mask) {
  const Tensor weight = kiln::unsqueeze(mask.to(hidden.dtype()), 2);
  return kiln::sum(hidden * weight, {1}) / kiln::maximum(kiln::sum(weight, {1}), 1e-9);
}

Tensor embed(Bert& model, const Tensor& ids, const Tensor& mask) {
  const Tensor mean = mean_pool(model(ids, mask), mask);
  const Tensor length = kiln::sqrt(kiln::sum(kiln::square(mean), {1}, true));
  return mean / kiln::maximum(length, 1e-12);
}

Classifier::Classifier(const Config& c, int64_t classes)
    : bert_(c), dropout_(c.hidden_dropout_prob), head_(c.hidden_size, classes) {
  register_module("bert", bert_);
  register_module("dropout", dropout_);
  register_module("head", head_);
}

Tensor Classifier::forward(const Tensor& ids, const Tensor& mask) {
  return head_(dropout_(mean_pool(bert_(ids, mask), mask)));
}

namespace {

/// The body's name of a checkpoint's array. Checkpoints of 2018 call the norms' parameters gamma and beta.
std::string body_name(std::string name) {
  if (name.starts_with("bert.")) name.erase(0, 5);
  for (const auto& [old, now] : {std::pair(".gamma", ".weight"), std::pair(".beta", ".bias")})
    if (name.ends_with(old)) name.replace(name.size() - std::string_view(old).size(), name.npos, now);
  return name;
}

}  // namespace

void load_pretrained(Bert& model, const std::string& folder) {
  pretrained::load(model, folder, [](const std::string& name) { return pretrained::Place{body_name(name)}; });
}

}  // namespace bert
