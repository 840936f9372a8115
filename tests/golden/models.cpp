// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/models.h"

#include "tests/golden/eval.h"
#include "tests/golden/run.h"

namespace kiln::golden {

namespace {

class Mlp : public Model {
 public:
  explicit Mlp(const Json& c) {
    const auto sizes = c["sizes"].get<std::vector<int64_t>>();
    for (size_t i = 1; i < sizes.size(); ++i) layers_.emplace_back<nn::Linear>(sizes[i - 1], sizes[i]);
    register_module("layers", layers_);
  }
  Tensor loss(const Inputs& in) override {
    Tensor x = in.at("x");
    for (size_t i = 0; i < layers_.size(); ++i) x = layers_[i](i == 0 ? x : gelu(x));
    return cross_entropy(x, in.at("y"));
  }

 private:
  nn::ModuleList layers_;
};

class GptBlock : public nn::Module {
 public:
  GptBlock(int64_t d, int64_t heads)
      : heads_(heads), ln1_(d), ln2_(d), qkv_(d, 3 * d, false), proj_(d, d), fc_(d, 4 * d), out_(4 * d, d) {
    register_module("ln1", ln1_);
    register_module("ln2", ln2_);
    register_module("qkv", qkv_);
    register_module("proj", proj_);
    register_module("fc", fc_);
    register_module("out", out_);
  }
  using Module::forward;
  Tensor forward(const Tensor& x) override {
    const int64_t b = x.size(0), s = x.size(1), d = x.size(2);
    std::vector<Tensor> parts = split(qkv_(ln1_(x)), d, 2);
    for (Tensor& t : parts) t = t.view({b, s, heads_, d / heads_}).transpose(1, 2);
    const Tensor a = scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, {.is_causal = true});
    const Tensor y = x + proj_(a.transpose(1, 2).reshape({b, s, d}));
    return y + out_(gelu(fc_(ln2_(y)), GeluApproximate::tanh));
  }

 private:
  int64_t heads_;
  nn::LayerNorm ln1_, ln2_;
  nn::Linear qkv_, proj_, fc_, out_;
};

class Gpt : public Model {
 public:
  explicit Gpt(const Json& c)
      : wte_(c["vocab"].get<int64_t>(), c["d"].get<int64_t>()),
        wpe_(c["seq"].get<int64_t>(), c["d"].get<int64_t>()),
        ln_f_(c["d"].get<int64_t>()) {
    for (int64_t i = 0; i < c["layers"].get<int64_t>(); ++i)
      blocks_.emplace_back<GptBlock>(c["d"].get<int64_t>(), c["heads"].get<int64_t>());
    register_module("wte", wte_);
    register_module("wpe", wpe_);
    register_module("blocks", blocks_);
    register_module("ln_f", ln_f_);
  }
  Tensor loss(const Inputs& in) override {
    const Tensor& ids = in.at("ids");
    const int64_t n = ids.size(1);
    Tensor x = wte_(ids) + wpe_(arange(n));
    for (size_t i = 0; i < blocks_.size(); ++i) x = blocks_[i](x);
    const Tensor logits = linear(ln_f_(x), wte_.weight);
    const int64_t vocab = logits.size(2);
    return cross_entropy(slice(logits, 1, 0, n - 1).reshape({-1, vocab}), slice(ids, 1, 1, n).reshape({-1}));
  }

 private:
  nn::Embedding wte_, wpe_;
  nn::ModuleList blocks_;
  nn::LayerNorm ln_f_;
};

std::unique_ptr<Model> named_model(const Json& j) {
  const std::string name = j["model"].get<std::string>();
  if (name == "MLP") return std::make_unique<Mlp>(j["config"]);
  if (name == "GPT") return std::make_unique<Gpt>(j["config"]);
  if (auto model = vision_model(name, j["config"])) return model;
  if (auto model = bert_model(name, j["config"])) return model;
  if (auto model = sequence_model(name, j["config"])) return model;
  throw Unsupported("model " + name);
}

void load_weights(Model& model, const Json& j) {
  nn::NamedTensors state;
  for (const Json& entry : j["tensors"]) {
    if (entry.contains("tied_to")) continue;  // the model has it under its first name alone
    state.emplace_back(entry["param"].get<std::string>(), tensor_of(entry));
  }
  // Counters of batches are not in the file.
  for (const auto& [name, t] : model.named_buffers())
    if (name.ends_with("num_batches_tracked")) state.emplace_back(name, zeros_like(t));
  model.load_state_dict(state);
}

}  // namespace

std::unique_ptr<Model> build_model(const Json& j) {
  std::unique_ptr<Model> model = named_model(j);
  load_weights(*model, j);
  return model;
}

Inputs model_inputs(const Json& j) {
  Inputs in;
  for (const Json& entry : j["inputs"]) in[entry["arg"].get<std::string>()] = tensor_of(entry);
  return in;
}

std::string check_gradients(const Model& model, const Json& expected) {
  std::map<std::string, Tensor> grads;
  for (const auto& [name, p] : model.named_parameters()) grads[name] = p.grad();
  for (const auto& [name, pair] : expected.items()) {
    if (!grads[name].defined()) return "no gradient of " + name;
    double sum = 0;
    for (const double v : values_of(grads[name]).data) sum += v * v;
    const std::string d = compare_scalar(pair, std::sqrt(sum));
    if (!d.empty()) return fmt::format("gradient norm of {}: {}", name, d);
  }
  return "";
}

std::string check_buffers(const Model& model, const Json& j, int64_t step) {
  if (!j.contains("buffers_after") || j["buffers_after"]["step"].get<int64_t>() != step + 1) return "";
  std::map<std::string, Tensor> buffers;
  for (const auto& [name, t] : model.named_buffers()) buffers[name] = t;
  for (const auto& [name, expected] : j["buffers_after"]["values"].items()) {
    if (!buffers[name].defined()) return "no buffer " + name;
    const std::string d = compare(expected, values_of(buffers[name]));
    if (!d.empty()) return fmt::format("{} after step {}: {}", name, step, d);
  }
  return "";
}

std::string check_parameters(const Model& model, const Json& j) {
  std::map<std::string, Tensor> params;
  for (const auto& [name, p] : model.named_parameters()) params[name] = p;
  const Json noise = j.value("gradient_is_rounding_noise", Json::array());
  for (const auto& [name, expected] : j["params_after"].items()) {
    if (std::find(noise.begin(), noise.end(), name) != noise.end()) continue;
    if (!params[name].defined()) return "no parameter " + name;
    const std::string d = compare(expected, values_of(params[name]));
    if (!d.empty()) return fmt::format("{} after the steps: {}", name, d);
  }
  return "";
}

}  // namespace kiln::golden
