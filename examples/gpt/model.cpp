// SPDX-License-Identifier: Apache-2.0
#include "examples/gpt/model.h"

#include <cmath>

namespace gpt {

Block::Block(int64_t dim, int64_t heads, double dropout)
    : heads_(heads),
      dropout_(dropout),
      ln1_(dim),
      ln2_(dim),
      qkv_(dim, 3 * dim),
      proj_(dim, dim),
      fc_(dim, 4 * dim),
      out_(4 * dim, dim) {
  register_module("ln1", ln1_);
  register_module("ln2", ln2_);
  register_module("qkv", qkv_);
  register_module("proj", proj_);
  register_module("fc", fc_);
  register_module("out", out_);
}

Tensor Block::attend(const Tensor& x) {
  const int64_t batch = x.size(0), seq = x.size(1), dim = x.size(2);
  std::vector<Tensor> parts = kiln::split(qkv_(x), dim, 2);
  for (Tensor& t : parts) t = t.view({batch, seq, heads_, dim / heads_}).transpose(1, 2);
  const Tensor mixed =
      kiln::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, {.is_causal = true});
  return proj_(mixed.transpose(1, 2).reshape({batch, seq, dim}));
}

Tensor Block::forward(const Tensor& x) {
  const bool drop = dropout_ > 0;
  Tensor a = attend(ln1_(x));
  if (drop) a = kiln::dropout(a, dropout_, is_training());
  const Tensor y = x + a;
  Tensor f = out_(kiln::gelu(fc_(ln2_(y)), kiln::GeluApproximate::tanh));
  if (drop) f = kiln::dropout(f, dropout_, is_training());
  return y + f;
}

Gpt::Gpt(const Options& o, int64_t vocab)
    : dropout_(o.dropout),
      wte_(vocab, o.dim),
      wpe_(o.seq, o.dim),
      ln_f_(o.dim),
      head_(o.dim, vocab, false) {
  for (int64_t i = 0; i < o.layers; ++i) blocks_.emplace_back<Block>(o.dim, o.heads, o.dropout);
  register_module("wte", wte_);
  register_module("wpe", wpe_);
  register_module("blocks", blocks_);
  register_module("ln_f", ln_f_);
  register_module("head", head_);
  initialise(o.layers);
}

// Matrices normal with 0.02, those that end a residual path less; biases zero.
// Source: Radford et al. 2019, section 2.3.
void Gpt::initialise(int64_t layers) {
  const kiln::NoGrad guard;
  const double narrow = 0.02 / std::sqrt(2.0 * static_cast<double>(layers));
  for (auto& [name, p] : named_parameters()) {
    const bool matrix = p.dim() == 2, ends = name.ends_with("proj.weight") || name.ends_with("out.weight");
    if (matrix) p.copy_(kiln::randn(p.sizes()) * (ends ? narrow : 0.02));
    if (name.ends_with("bias")) p.zero_();
  }
}

Tensor Gpt::forward(const Tensor& ids) {
  Tensor x = wte_(ids) + wpe_(kiln::arange(ids.size(1), {.device = ids.device()}));
  if (dropout_ > 0) x = kiln::dropout(x, dropout_, is_training());
  for (size_t i = 0; i < blocks_.size(); ++i) x = blocks_[i](x);
  return head_(ln_f_(x));
}

Tensor Gpt::forward(const Tensor& ids, const Tensor& targets) {
  const Tensor logits = forward(ids);
  return kiln::cross_entropy(logits.reshape({-1, logits.size(2)}), targets.reshape({-1}));
}

}  // namespace gpt
