// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/workloads.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "benchmarks/formula.h"
#include "frontend/nn/distributed_data_parallel.h"
#include "runtime/collective.h"

namespace kiln::bench {

namespace {

constexpr double kLearningRate = 1e-5;
const double kSqrt3 = std::sqrt(3.0);

Tensor real(const std::string& name, const Sizes& sizes, double lo, double hi) {
  Tensor t = empty(sizes);
  formula::fill_real(name, static_cast<float>(lo), static_cast<float>(hi),
                     {t.data_ptr<float>(), static_cast<size_t>(t.numel())});
  return t;
}

Tensor ints(const std::string& name, const Sizes& sizes, uint64_t n) {
  Tensor t = empty(sizes, {DType::i64});
  formula::fill_mod<int64_t>(name, n, {t.data_ptr<int64_t>(), static_cast<size_t>(t.numel())});
  return t;
}

void set(Tensor& parameter, const Tensor& value) {
  NoGrad guard;
  parameter.copy_(value);
}

void set_linear(nn::Linear& l, const std::string& weight_name, double std) {
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

/// Sizes of a GPT, by workload.
struct GptSizes {
  std::string name;
  int64_t layers, dim, heads, vocab, seq, batch;
};
const GptSizes kGpts[] = {{"gpt-small", 6, 384, 6, 96, 128, 8}, {"gpt2", 12, 768, 12, 50257, 1024, 8}};

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

CompileOptions options_for(const std::string& name, const WorkloadOptions& w) {
  CompileOptions o;
  o.name = name;
  o.threads = w.threads;
  o.profile = w.profile;
  if (w.graphs) o.mode = Mode::reduce_overhead;
  return o;
}

/// Model, data and (but for pointwise) AdamW, stepped eagerly or compiled.
template <typename Model>
class Training : public Workload {
 public:
  template <typename... A>
  Training(const std::string& name, const WorkloadOptions& o, std::vector<Tensor> data, A&&... args)
      : model_(std::forward<A>(args)...),
        data_(std::move(data)),
        compiled_(o.compiled),
        step_(compile(std::function<Tensor()>([this] { return run(); }), options_for(name, o))) {
    model_.to(o.device);
    for (Tensor& t : data_) t = t.to(o.device);
    if constexpr (kTrains) optimizer_.emplace(model_.parameters(), optim::AdamWOptions{.lr = kLearningRate});
    if (o.group)
      parallel_.emplace(
          model_, o.group,
          nn::DistributedDataParallelOptions{.bucket_cap_mb = o.bucket_cap_mb, .compression = o.compression});
  }

  double step() override { return (compiled_ ? step_() : run()).item(); }
  CallableStats stats() const override { return step_.stats(); }
  int64_t parameter_count() const override {
    int64_t n = 0;
    for (const Tensor& p : model_.parameters()) n += p.numel();
    return n;
  }
  std::vector<std::pair<std::string, double>> gnorm() const override {
    std::vector<std::pair<std::string, double>> out;
    if constexpr (kTrains) return out;
    for (const auto& [name, p] : model_.named_parameters()) {
      double s = 0;
      for (float v : p.grad().template to_vector<float>()) s += static_cast<double>(v) * v;
      out.emplace_back(name, std::sqrt(s));
    }
    return out;
  }

 private:
  Tensor run() {
    model_.zero_grad();
    nn::Module& net = parallel_ ? static_cast<nn::Module&>(*parallel_) : model_;
    Tensor loss = data_.size() == 2 ? net(data_[0], data_[1]) : net(data_[0]);
    loss.backward();
    if constexpr (kTrains) optimizer_->step();
    return loss;
  }

  static constexpr bool kTrains = !std::is_same_v<Model, Pointwise>;
  Model model_;
  std::optional<nn::DistributedDataParallel> parallel_;
  std::optional<optim::AdamW> optimizer_;
  std::vector<Tensor> data_;
  bool compiled_;
  Compiled<std::function<Tensor()>> step_;
};

/// One product of two square matrices of f32, and the wait for it.
class Product : public Workload {
 public:
  Product(int64_t n, const WorkloadOptions& o)
      : a_(real("bench/matmul/a", {n, n}, -1, 1).to(o.device)),
        b_(real("bench/matmul/b", {n, n}, -1, 1).to(o.device)),
        compiled_(o.compiled),
        step_(compile(std::function<Tensor()>([this] { return matmul(a_, b_); }), options_for("matmul", o))) {
  }
  double step() override {
    const Tensor c = compiled_ ? step_() : matmul(a_, b_);
    if (c.device().is_cuda()) cuda::synchronize(c.device().index);
    return 0;
  }
  CallableStats stats() const override { return step_.stats(); }
  int64_t parameter_count() const override { return 0; }

 private:
  Tensor a_, b_;
  bool compiled_;
  Compiled<std::function<Tensor()>> step_;
};

/// N of "matmul-N", or 0.
int64_t product_size(const std::string& name) {
  constexpr std::string_view kPrefix = "matmul-";
  int64_t n = 0;
  if (!name.starts_with(kPrefix)) return 0;
  const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), n);
  return error == std::errc() && end == name.data() + name.size() ? std::max<int64_t>(n, 0) : 0;
}

std::unique_ptr<Workload> make_mlp(const std::string& name, const WorkloadOptions& o, const Sizes& sizes,
                                   int64_t batch) {
  batch *= o.batches;
  const std::string data = fmt::format("bench/{}/data{}/", name, o.rank());
  std::vector<Tensor> d{real(data + "x", {batch, sizes[0]}, -kSqrt3, kSqrt3),
                        ints(data + "y", {batch}, static_cast<uint64_t>(sizes.back()))};
  return std::make_unique<Training<Mlp>>(name, o, std::move(d), name, sizes);
}

}  // namespace

const std::vector<std::string>& workload_names() {
  static const std::vector<std::string> names{"mlp", "gpt-small", "pointwise", "tiny-mlp", "gpt2"};
  return names;
}

int WorkloadOptions::rank() const { return group ? group->rank() : 0; }

std::unique_ptr<Workload> make_workload(const std::string& name, const WorkloadOptions& o) {
  if (name == "mlp") return make_mlp(name, o, {784, 1024, 1024, 10}, 128);
  if (name == "tiny-mlp") return make_mlp(name, o, {64, 64, 64, 8}, 32);
  for (const GptSizes& g : kGpts) {
    if (name != g.name) continue;
    const std::string data = fmt::format("bench/{}/data{}/", name, o.rank());
    const int64_t batch = g.batch * o.batches;
    std::vector<Tensor> d{ints(data + "x", {batch, g.seq}, static_cast<uint64_t>(g.vocab)),
                          ints(data + "y", {batch, g.seq}, static_cast<uint64_t>(g.vocab))};
    return std::make_unique<Training<Gpt>>(name, o, std::move(d), g);
  }
  KILN_CHECK(!o.group, invalid,
             "kiln-bench: no workload '{}' among ranks (mlp, tiny-mlp and the gpts have one)", name);
  if (const int64_t n = product_size(name); n > 0) return std::make_unique<Product>(n, o);
  KILN_CHECK(name == "pointwise", invalid, "kiln-bench: unknown workload '{}'; known: {} matmul-N", name,
             fmt::join(workload_names(), " "));
  std::vector<Tensor> d{real("bench/pointwise/data0/t", {Pointwise::kSize, Pointwise::kSize}, 0, 1)};
  return std::make_unique<Training<Pointwise>>(name, o, std::move(d));
}

}  // namespace kiln::bench
