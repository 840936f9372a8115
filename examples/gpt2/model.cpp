// SPDX-License-Identifier: Apache-2.0
#include "examples/gpt2/model.h"

#include <algorithm>
#include <cmath>

#include "examples/pretrained/config_file.h"
#include "examples/pretrained/load.h"

namespace gpt2 {

Config read_config(const std::string& path) {
  const pretrained::ConfigFile file(path);
  file.expect_family("gpt2");
  Config c;
  c.vocab_size = file.whole("vocab_size", c.vocab_size, 1);
  c.n_positions = file.whole("n_positions", c.n_positions, 1);
  c.n_embd = file.whole("n_embd", c.n_embd, 1);
  c.n_layer = file.whole("n_layer", c.n_layer, 0);
  c.n_head = file.whole("n_head", c.n_head, 1);
  c.n_inner = file.whole("n_inner", 4 * c.n_embd, 1);
  c.resid_pdrop = file.real("resid_pdrop", c.resid_pdrop, 1);
  c.embd_pdrop = file.real("embd_pdrop", c.embd_pdrop, 1);
  c.attn_pdrop = file.real("attn_pdrop", c.attn_pdrop, 1);
  c.layer_norm_epsilon = file.real("layer_norm_epsilon", c.layer_norm_epsilon, 1);
  c.initializer_range = file.real("initializer_range", c.initializer_range, 1e3);
  const std::string activation = file.text("activation_function", "gelu_new");
  KILN_CHECK(activation == "gelu_new" || activation == "gelu" || activation == "gelu_pytorch_tanh",
             unsupported,
             "config {}: 'activation_function' is \"{}\"; expected \"gelu_new\", \"gelu_pytorch_tanh\" or "
             "\"gelu\"",
             path, activation);
  if (activation == "gelu") c.activation = kiln::GeluApproximate::none;
  for (const auto& [key, only] :
       {std::pair("scale_attn_weights", true), std::pair("tie_word_embeddings", true),
        std::pair("scale_attn_by_inverse_layer_idx", false), std::pair("add_cross_attention", false)})
    KILN_CHECK(file.flag(key, only) == only, unsupported, "config {}: '{}' is {}; expected {}", path, key,
               !only, only);
  KILN_CHECK(c.n_embd % c.n_head == 0, invalid, "config {}: 'n_embd' {} is no multiple of 'n_head' {}", path,
             c.n_embd, c.n_head);
  return c;
}

Attention::Attention(const Config& c)
    : heads_(c.n_head),
      dropout_(c.attn_pdrop),
      c_attn_(c.n_embd, 3 * c.n_embd),
      c_proj_(c.n_embd, c.n_embd),
      resid_dropout_(c.resid_pdrop) {
  register_module("c_attn", c_attn_);
  register_module("c_proj", c_proj_);
  register_module("resid_dropout", resid_dropout_);
}

Tensor Attention::forward(const Tensor& x) {
  const int64_t batch = x.size(0), seq = x.size(1), width = x.size(2);
  std::vector<Tensor> parts = kiln::split(c_attn_(x), width, 2);
  for (Tensor& t : parts) t = t.view({batch, seq, heads_, width / heads_}).transpose(1, 2);
  const Tensor mixed = kiln::scaled_dot_product_attention(
      parts[0], parts[1], parts[2], {}, {.dropout_p = is_training() ? dropout_ : 0, .is_causal = true});
  return resid_dropout_(c_proj_(mixed.transpose(1, 2).reshape({batch, seq, width})));
}

Mlp::Mlp(const Config& c)
    : activation_(c.activation),
      c_fc_(c.n_embd, c.n_inner > 0 ? c.n_inner : 4 * c.n_embd),
      c_proj_(c.n_inner > 0 ? c.n_inner : 4 * c.n_embd, c.n_embd),
      dropout_(c.resid_pdrop) {
  register_module("c_fc", c_fc_);
  register_module("c_proj", c_proj_);
  register_module("dropout", dropout_);
}

Tensor Mlp::forward(const Tensor& x) { return dropout_(c_proj_(kiln::gelu(c_fc_(x), activation_))); }

Block::Block(const Config& c)
    : ln_1_(c.n_embd, c.layer_norm_epsilon), ln_2_(c.n_embd, c.layer_norm_epsilon), attn_(c), mlp_(c) {
  register_module("ln_1", ln_1_);
  register_module("attn", attn_);
  register_module("ln_2", ln_2_);
  register_module("mlp", mlp_);
}

Tensor Block::forward(const Tensor& x) {
  const Tensor y = x + attn_(ln_1_(x));
  return y + mlp_(ln_2_(y));
}

Body::Body(const Config& c)
    : positions_(c.n_positions),
      wte_(c.vocab_size, c.n_embd),
      wpe_(c.n_positions, c.n_embd),
      drop_(c.embd_pdrop),
      ln_f_(c.n_embd, c.layer_norm_epsilon) {
  for (int64_t i = 0; i < c.n_layer; ++i) h_.emplace_back<Block>(c);
  register_module("wte", wte_);
  register_module("wpe", wpe_);
  register_module("drop", drop_);
  register_module("h", h_);
  register_module("ln_f", ln_f_);
}

Tensor Body::forward(const Tensor& ids) {
  KILN_CHECK(ids.dim() == 2, invalid, "Gpt2: got ids {}, expected [batch, seq]", ids.type_str());
  KILN_CHECK(ids.size(1) <= positions_, invalid, "Gpt2: {} tokens; this model has positions for {}",
             ids.size(1), positions_);
  Tensor x = drop_(wte_(ids) + wpe_(kiln::arange(ids.size(1))));
  for (size_t i = 0; i < h_.size(); ++i) x = h_[i](x);
  return ln_f_(x);
}

Gpt2::Gpt2(const Config& c) : config_(c), transformer_(c) {
  register_module("transformer", transformer_);
  // Matrices normal, those that end a residual path less; biases zero. Source: Radford et al. 2019, 2.3.
  const kiln::NoGrad guard;
  const double narrow = 1 / std::sqrt(2.0 * static_cast<double>(std::max<int64_t>(1, c.n_layer)));
  for (auto& [name, p] : named_parameters()) {
    const double scale = name.ends_with("c_proj.weight") ? narrow : 1;
    if (p.dim() == 2) p.copy_(kiln::randn(p.sizes()) * (c.initializer_range * scale));
    if (name.ends_with("bias")) p.zero_();
  }
}

Tensor Gpt2::forward(const Tensor& ids) { return kiln::linear(transformer_(ids), transformer_.table()); }

namespace {

/// Where an array of a checkpoint goes. Of a block these are matrices, which are the other way round there;
/// its "attn.bias" and "attn.masked_bias" are masks.
pretrained::Place place_of(const std::string& name) {
  if (name == "lm_head.weight" || name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"))
    return {};
  const bool matrix =
      name.ends_with("c_attn.weight") || name.ends_with("c_proj.weight") || name.ends_with("c_fc.weight");
  return {name.starts_with("transformer.") ? name : "transformer." + name, matrix};
}

/// An output layer of its own would be passed over: then the model would be another one.
void check_tied(const Tensor& table, const std::string& folder) {
  for (const auto& [name, t] : kiln::load_file(folder, true))
    KILN_CHECK(name != "lm_head.weight" ||
                   (t.sizes() == table.sizes() && t.to(kiln::DType::f32).to_vector<float>() ==
                                                      table.detach().to(kiln::DType::f32).to_vector<float>()),
               invalid,
               "checkpoint {}: 'lm_head.weight' is not 'transformer.wte.weight' ({} and {}); this model "
               "has the embedding as output layer",
               folder, t.type_str(), table.type_str());
}

}  // namespace

void load_pretrained(Gpt2& model, const std::string& folder) {
  pretrained::load(model, folder, place_of);
  for (const auto& [name, t] : model.state_dict())
    if (name == "transformer.wte.weight") check_tied(t, folder);
}

std::vector<int64_t> generate(Gpt2& model, std::vector<int64_t> ids, int64_t count) {
  const Config& c = model.config();
  KILN_CHECK(!ids.empty(), invalid, "generate: no tokens to go on from");
  for (const int64_t id : ids)
    KILN_CHECK(id >= 0 && id < c.vocab_size, invalid, "generate: {} is no token; there are {}", id,
               c.vocab_size);
  const auto all = static_cast<int64_t>(ids.size()) + count;
  KILN_CHECK(all <= c.n_positions, invalid, "generate: {} tokens; this model has positions for {}", all,
             c.n_positions);
  // Of one length, so that it is compiled once: no token sees those behind it.
  auto next = kiln::compile(
      [&](const Tensor& padded, const Tensor& last) {
        const kiln::NoGrad guard;
        return kiln::argmax(kiln::index_select(model(padded), 1, last), 2);
      },
      {.name = "next"});
  model.eval();
  while (static_cast<int64_t>(ids.size()) < all) {
    std::vector<int64_t> padded = ids;
    padded.resize(static_cast<size_t>(all), 0);
    const Tensor last = Tensor::from_vector(std::vector<int64_t>{static_cast<int64_t>(ids.size()) - 1}, {1});
    ids.push_back(next(Tensor::from_vector(padded, {1, all}), last).item<int64_t>());
  }
  return ids;
}

}  // namespace gpt2
