// SPDX-License-Identifier: Apache-2.0
// The models of benchmarks/peers, with the weights that common.py makes, by name.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/formula.h"
#include "frontend/kiln.h"

namespace kiln::bench {

inline const double kSqrt3 = std::sqrt(3.0);

inline Tensor real(const std::string& name, const Sizes& sizes, double lo, double hi) {
  Tensor t = empty(sizes);
  formula::fill_real(name, static_cast<float>(lo), static_cast<float>(hi),
                     {t.data_ptr<float>(), static_cast<size_t>(t.numel())});
  return t;
}

/// The vector norm of all elements, summed in f64.
inline double norm(const Tensor& t) {
  double squares = 0;
  for (const float v : t.to_vector<float>()) squares += static_cast<double>(v) * v;
  return std::sqrt(squares);
}

inline Tensor ints(const std::string& name, const Sizes& sizes, uint64_t n) {
  Tensor t = empty(sizes, {DType::i64});
  formula::fill_mod<int64_t>(name, n, {t.data_ptr<int64_t>(), static_cast<size_t>(t.numel())});
  return t;
}

inline void set(Tensor& parameter, const Tensor& value) {
  NoGrad guard;
  parameter.copy_(value);
}

inline void set_linear(nn::Linear& l, const std::string& weight_name, double std) {
  set(l.weight, real(weight_name, l.weight.sizes(), -std * kSqrt3, std * kSqrt3));
  if (l.bias.defined()) set(l.bias, zeros(l.bias.sizes()));
}

class Mlp : public nn::Module {
 public:
  Mlp(const std::string& name, const Sizes& sizes) {
    for (size_t k = 0; k + 1 < sizes.size(); ++k) {
      auto& l = layers_.emplace_back<nn::Linear>(sizes[k], sizes[k + 1]);
      set_linear(l, "bench/" + name + "/w" + std::to_string(k), 1 / std::sqrt(static_cast<double>(sizes[k])));
    }
    register_module("layers", layers_);
  }
  Tensor forward(const Tensor& x, const Tensor& y) override {
    Tensor h = x;
    for (size_t i = 0; i < layers_.size(); ++i) h = layers_[i](i == 0 ? h : gelu(h));
    return cross_entropy(h, y);
  }

 private:
  nn::ModuleList layers_;
};

class Block : public nn::Module {
 public:
  Block(int64_t d, int64_t heads, const std::string& prefix)
      : ln1(d), ln2(d), qkv(d, 3 * d), proj(d, d), fc(d, 4 * d), fc2(4 * d, d), heads_(heads) {
    register_module("ln1", ln1);
    register_module("ln2", ln2);
    for (auto& [name, l] : std::vector<std::pair<std::string, nn::Linear*>>{
             {"qkv", &qkv}, {"proj", &proj}, {"fc", &fc}, {"fc2", &fc2}}) {
      register_module(name, *l);
      set_linear(*l, prefix + name + ".w", 0.02);
    }
  }
  Tensor forward(const Tensor& x) override {
    const int64_t b = x.size(0), t = x.size(1), d = x.size(2);
    std::vector<Tensor> parts = split(qkv(ln1(x)), d, 2);
    for (Tensor& p : parts) p = p.view({b, t, heads_, d / heads_}).transpose(1, 2);
    const Tensor a = scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, {.is_causal = true});
    const Tensor y = x + proj(a.transpose(1, 2).reshape({b, t, d}));
    return y + fc2(gelu(fc(ln2(y)), GeluApproximate::tanh));
  }
  nn::LayerNorm ln1, ln2;
  nn::Linear qkv, proj, fc, fc2;

 private:
  int64_t heads_;
};

/// Sizes of a GPT; the name is the workload's.
struct GptSizes {
  std::string name;
  int64_t layers, dim, heads, vocab, seq, batch;
};
inline const GptSizes kGptSmall{"gpt-small", 6, 384, 6, 96, 128, 8},
    kGpt2{"gpt2", 12, 768, 12, 50257, 1024, 8};

class Gpt : public nn::Module {
 public:
  explicit Gpt(const GptSizes& g)
      : wte(g.vocab, g.dim), wpe(g.seq, g.dim), lnf(g.dim), head(g.dim, g.vocab, false), vocab_(g.vocab) {
    const std::string pre = "bench/" + g.name + "/";
    const double bound = 0.02 * kSqrt3;
    register_module("wte", wte);
    register_module("wpe", wpe);
    set(wte.weight, real(pre + "wte", {g.vocab, g.dim}, -bound, bound));
    set(wpe.weight, real(pre + "wpe", {g.seq, g.dim}, -bound, bound));
    for (int64_t l = 0; l < g.layers; ++l)
      h.emplace_back<Block>(g.dim, g.heads, fmt::format("{}h{}.", pre, l));
    register_module("h", h);
    register_module("lnf", lnf);
    register_module("head", head);
    set_linear(head, pre + "head.w", 0.02);
  }
  Tensor forward(const Tensor& x, const Tensor& y) override {
    Tensor t = wte(x) + wpe(arange(x.size(1), {.dtype = DType::i64, .device = x.device()}));
    for (size_t l = 0; l < h.size(); ++l) t = h[l](t);
    const Tensor logits = head(lnf(t));
    return cross_entropy(logits.view({-1, vocab_}), y.view({-1}));
  }
  nn::Embedding wte, wpe;
  nn::ModuleList h;
  nn::LayerNorm lnf;
  nn::Linear head;

 private:
  int64_t vocab_;
};

/// softmax(layer_norm(gelu(x*a+b)+x)) against t: forward and backward only.
class Pointwise : public nn::Module {
 public:
  static constexpr int64_t kSize = 4096;
  Pointwise() {
    const std::string pre = "bench/pointwise/";
    const double w = 0.1 * kSqrt3;
    a = real(pre + "a", {kSize}, 1 - w, 1 + w);
    b = real(pre + "b", {kSize}, -w, w);
    g = real(pre + "g", {kSize}, 1 - w, 1 + w);
    be = real(pre + "be", {kSize}, -w, w);
    x = real(pre + "x", {kSize, kSize}, -kSqrt3, kSqrt3);
    for (auto& [name, t] : std::vector<std::pair<std::string, Tensor*>>{
             {"x", &x}, {"a", &a}, {"b", &b}, {"g", &g}, {"be", &be}})
      register_parameter(name, *t);
  }
  Tensor forward(const Tensor& t) override {
    const Tensor h = gelu(x * a + b, GeluApproximate::tanh) + x;
    return mse_loss(softmax(layer_norm(h, {kSize}, g, be), -1), t);
  }
  Tensor x, a, b, g, be;
};

/// A layer of BERT, norms behind the residual sums. Source: Devlin et al. 2018.
class BertBlock : public nn::Module {
 public:
  BertBlock(int64_t d, int64_t heads, int64_t ffn, const std::string& prefix)
      : q(d, d),
        k(d, d),
        v(d, d),
        o(d, d),
        fc(d, ffn),
        fc2(ffn, d),
        ln1(d, 1e-12),
        ln2(d, 1e-12),
        heads_(heads) {
    for (auto& [name, l] : std::vector<std::pair<std::string, nn::Linear*>>{
             {"q", &q}, {"k", &k}, {"v", &v}, {"o", &o}, {"fc", &fc}, {"fc2", &fc2}}) {
      register_module(name, *l);
      set_linear(*l, prefix + name + ".w", 0.02);
    }
    register_module("ln1", ln1);
    register_module("ln2", ln2);
  }
  Tensor forward(const Tensor& x) override {
    const int64_t b = x.size(0), t = x.size(1), d = x.size(2);
    const auto by_head = [&](const Tensor& p) { return p.view({b, t, heads_, d / heads_}).transpose(1, 2); };
    const Tensor a = scaled_dot_product_attention(by_head(q(x)), by_head(k(x)), by_head(v(x)));
    const Tensor y = ln1(x + o(a.transpose(1, 2).reshape({b, t, d})));
    return ln2(y + fc2(gelu(fc(y))));
  }
  nn::Linear q, k, v, o, fc, fc2;
  nn::LayerNorm ln1, ln2;

 private:
  int64_t heads_;
};

class Bert : public nn::Module {
 public:
  static constexpr int64_t kLayers = 6, kDim = 384, kHeads = 12, kFfn = 1536, kVocab = 30522,
                           kPositions = 512, kSeq = 128, kBatch = 8;
  Bert() : word(kVocab, kDim), pos(kPositions, kDim), type(2, kDim), lne(kDim, 1e-12), cls(kDim, 2) {
    const std::string pre = "bench/bert-mini/";
    const double bound = 0.02 * kSqrt3;
    for (auto& [name, e] : std::vector<std::pair<std::string, nn::Embedding*>>{
             {"word", &word}, {"pos", &pos}, {"type", &type}}) {
      register_module(name, *e);
      set(e->weight, real(pre + name, e->weight.sizes(), -bound, bound));
    }
    register_module("lne", lne);
    for (int64_t l = 0; l < kLayers; ++l)
      h.emplace_back<BertBlock>(kDim, kHeads, kFfn, fmt::format("{}h{}.", pre, l));
    register_module("h", h);
    register_module("cls", cls);
    set_linear(cls, pre + "cls.w", 0.02);
  }
  Tensor forward(const Tensor& x, const Tensor& types, const Tensor& y) override {
    const Tensor places = pos(arange(x.size(1), {.dtype = DType::i64, .device = x.device()}));
    Tensor t = lne(word(x) + places + type(types));
    for (size_t l = 0; l < h.size(); ++l) t = h[l](t);
    return cross_entropy(cls(mean(t, {1})), y);
  }
  nn::Embedding word, pos, type;
  nn::LayerNorm lne;
  nn::ModuleList h;
  nn::Linear cls;
};

/// Three convolutions with batch norms on images of 3 x 32 x 32.
class ConvNet : public nn::Module {
 public:
  static constexpr int64_t kBatch = 64;
  ConvNet() : fc(128, 10) {
    const std::string pre = "bench/convnet/";
    const int64_t channels[] = {3, 32, 64, 128};
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t in = channels[i], out = channels[i + 1];
      auto& c = convs.emplace_back<nn::Conv2d>(
          in, out, 3, nn::ConvOptions{.stride = i == 0 ? 1 : 2, .padding = 1, .bias = false});
      const double bound = std::sqrt(2 / (static_cast<double>(in) * 9)) * kSqrt3;
      set(c.weight, real(fmt::format("{}c{}.w", pre, i), c.weight.sizes(), -bound, bound));
      norms.emplace_back<nn::BatchNorm2d>(out);
    }
    register_module("convs", convs);
    register_module("norms", norms);
    register_module("fc", fc);
    set_linear(fc, pre + "fc.w", 1 / std::sqrt(128.0));
  }
  Tensor forward(const Tensor& x, const Tensor& y) override {
    Tensor t = x;
    for (size_t i = 0; i < convs.size(); ++i) t = relu(norms[i](convs[i](t)));
    return cross_entropy(fc(mean(t, {2, 3})), y);
  }
  nn::ModuleList convs, norms;
  nn::Linear fc;
};

/// Sums of rows of eight tables into two layers. Source: Naumov et al. 2019, without its interactions.
class Dlrm : public nn::Module {
 public:
  static constexpr int64_t kTables = 8, kRows = 100'000, kDim = 64, kIds = 20, kBatch = 256;
  Dlrm() : l0(kTables * kDim, 256), l1(256, 1) {
    const std::string pre = "bench/dlrm/";
    const double bound = 0.01 * kSqrt3;
    for (int64_t i = 0; i < kTables; ++i) {
      auto& e = tables.emplace_back<nn::EmbeddingBag>(kRows, kDim, EmbeddingBagOptions{.mode = BagMode::sum});
      set(e.weight, real(fmt::format("{}e{}", pre, i), e.weight.sizes(), -bound, bound));
    }
    register_module("tables", tables);
    register_module("l0", l0);
    register_module("l1", l1);
    set_linear(l0, pre + "w0", 1 / std::sqrt(512.0));
    set_linear(l1, pre + "w1", 1 / std::sqrt(256.0));
  }
  Tensor forward(const Tensor& ids, const Tensor& y) override {
    std::vector<Tensor> sums;
    for (size_t i = 0; i < tables.size(); ++i) sums.push_back(tables[i](ids[static_cast<int64_t>(i)]));
    return binary_cross_entropy_with_logits(squeeze(l1(relu(l0(cat(sums, 1)))), 1), y);
  }
  nn::ModuleList tables;
  nn::Linear l0, l1;
};

}  // namespace kiln::bench
