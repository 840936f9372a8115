// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/split_models.h"

#include <cmath>
#include <deque>
#include <map>
#include <optional>

namespace kiln::golden {

namespace {

using Shapes = std::map<std::string, Sizes>;

/// Modules of the kind y = f(x).
class OfOne : public SplitModel {
 public:
  std::vector<Tensor> run(const std::vector<Tensor>& in, const std::vector<int64_t>&) override {
    return {(*this)(in.at(0))};
  }
  using Module::forward;
};

/// "fcs.0.weight" ... of `shapes` as linears.
void add_linears(nn::ModuleList& list, const Shapes& shapes, const std::string& prefix) {
  for (int i = 0; shapes.count(fmt::format("{}.{}.bias", prefix, i)); ++i) {
    const auto weight = shapes.find(fmt::format("{}.{}.weight", prefix, i));
    const int64_t out = shapes.at(fmt::format("{}.{}.bias", prefix, i))[0];
    list.emplace_back<nn::Linear>(weight == shapes.end() ? out : weight->second[1], out);
  }
}

/// Plain, Toy, ToyInContext: linears with a ReLU behind each.
class Plain : public OfOne {
 public:
  Plain(const Shapes& shapes, bool no_grad, std::optional<DType> autocast)
      : no_grad_(no_grad), autocast_(autocast) {
    for (int i = 0; shapes.count(fmt::format("net.{}.weight", i)); i += 2) {
      const Sizes& s = shapes.at(fmt::format("net.{}.weight", i));
      net_.emplace_back<nn::Linear>(s[1], s[0]);
      net_.emplace_back<nn::ReLU>();
    }
    register_module("net", net_);
  }
  Tensor forward(const Tensor& x) override {
    const Autocast casts(autocast_.value_or(DType::bf16), autocast_.has_value());
    if (!no_grad_) return net_(x);
    NoGrad guard;
    return net_(x);
  }

 private:
  bool no_grad_;
  std::optional<DType> autocast_;
  nn::Sequential net_;
};

class Residual : public OfOne {
 public:
  explicit Residual(const Shapes& shapes) {
    add_linears(fcs_, shapes, "fcs");
    for (size_t i = 0; i < fcs_.size(); ++i) lns_.emplace_back<nn::LayerNorm>(shapes.at("lns.0.weight")[0]);
    register_module("fcs", fcs_);
    register_module("lns", lns_);
  }
  Tensor forward(const Tensor& in) override {
    Tensor x = in;
    for (size_t i = 0; i < fcs_.size(); ++i) x = x + tanh(fcs_[i](lns_[i](x)));
    return x;
  }

 private:
  nn::ModuleList fcs_, lns_;
};

/// SharedParam, ManyOutputs, InplaceTail: what they do between linears is told by their names.
class Linears : public SplitModel {
 public:
  Linears(const Shapes& shapes, std::string name) : name_(std::move(name)) {
    add_linears(fcs_, shapes, "fcs");
    register_module("fcs", fcs_);
    if (name_ == "SharedParam") fcs_.at<nn::Linear>(fcs_.size() - 1).weight = fcs_.at<nn::Linear>(0).weight;
    state_ = zeros({shapes.at("fcs.0.bias")[0]});
    if (name_ == "InplaceTail") register_buffer("state", state_);
  }
  std::vector<Tensor> run(const std::vector<Tensor>& in, const std::vector<int64_t>&) override {
    Tensor x = in.at(0);
    std::vector<Tensor> all;
    for (size_t i = 0; i < fcs_.size(); ++i) {
      x = fcs_[i](x);
      if (name_ == "InplaceTail") state_.add_(fcs_.at<nn::Linear>(i).bias);
      else x = relu(x);
      all.push_back(x);
    }
    return name_ == "ManyOutputs" ? all : std::vector<Tensor>{x};
  }

 private:
  std::string name_;
  nn::ModuleList fcs_;
  Tensor state_;
};

/// Named linears, called in an order of names; "|" is a graph break, for which Kiln has the host read.
class Named : public OfOne {
 public:
  Named(const Shapes& shapes, std::vector<std::string> calls) : calls_(std::move(calls)) {
    for (const auto& [name, shape] : shapes) {
      const std::string module = name.substr(0, name.find('.'));
      if (!name.ends_with(".weight") || linears_.count(module)) continue;
      linears_[module] = std::make_unique<nn::Linear>(shape[1], shape[0]);
      register_module(module, *linears_[module]);
    }
  }
  Tensor forward(const Tensor& in) override {
    Tensor x = in;
    for (const std::string& name : calls_) {
      if (name == "|") x.to_vector<float>();
      else x = (*linears_.at(name))(x);
    }
    return x;
  }

 private:
  std::vector<std::string> calls_;
  std::map<std::string, std::unique_ptr<nn::Linear>> linears_;
};

class Matmuls : public OfOne {
 public:
  explicit Matmuls(const Shapes& shapes) {
    for (int i = 0; shapes.count(fmt::format("ws.{}", i)); ++i)
      ws_.add(zeros(shapes.at(fmt::format("ws.{}", i))));
    register_module("ws", ws_);
  }
  Tensor forward(const Tensor& in) override {
    Tensor x = in;
    for (const Tensor& w : ws_.list) x = relu(matmul(x, t(w)));
    return x;
  }

 private:
  struct ParameterList : nn::Module {
    void add(Tensor w) {
      list.push_back(std::move(w));
      register_parameter(std::to_string(list.size() - 1), list.back());
    }
    std::deque<Tensor> list;
  };
  ParameterList ws_;
};

class Tied : public OfOne {
 public:
  explicit Tied(const Shapes& shapes) : emb_(shapes.at("emb.weight")[0], shapes.at("emb.weight")[1]) {
    add_linears(fcs_, shapes, "fcs");
    register_module("emb", emb_);
    register_module("fcs", fcs_);
  }
  Tensor forward(const Tensor& ids) override {
    Tensor x = emb_(ids);
    for (size_t i = 0; i < fcs_.size(); ++i) x = gelu(fcs_[i](x));
    return linear(x, emb_.weight);
  }

 private:
  nn::Embedding emb_;
  nn::ModuleList fcs_;
};

class EncoderStack : public OfOne {
 public:
  EncoderStack(int64_t d, int64_t layers) {
    const nn::TransformerLayerOptions o{.dim_feedforward = 2 * d, .dropout = 0, .batch_first = true};
    for (int64_t i = 0; i < layers; ++i) layers_.emplace_back<nn::TransformerEncoderLayer>(d, 2, o);
    register_module("layers", layers_);
  }
  Tensor forward(const Tensor& in) override {
    Tensor x = in;
    for (size_t i = 0; i < layers_.size(); ++i) x = layers_[i](x);
    return x;
  }

 private:
  nn::ModuleList layers_;
};

class NoParams : public OfOne {
 public:
  Tensor forward(const Tensor& x) override { return sin(x) * 2.0 + x; }
};

class TwoBranches : public OfOne {
 public:
  explicit TwoBranches(const Shapes& shapes)
      : join_(shapes.at("join.weight")[1], shapes.at("join.weight")[0]) {
    for (auto* branch : {&left_, &right_}) {
      branch->emplace_back<nn::Linear>(16, 16);
      branch->emplace_back<nn::ReLU>();
      branch->emplace_back<nn::Linear>(16, 16);
    }
    register_module("left", left_);
    register_module("right", right_);
    register_module("join", join_);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor left = left_(x);
    return join_(cat({left, right_(x)}, -1));
  }

 private:
  nn::Sequential left_, right_;
  nn::Linear join_;
};

class CustomLinear : public nn::Module {
 public:
  explicit CustomLinear(int64_t d) : weight_(zeros({d, d})) { register_parameter("weight", weight_); }
  using Module::forward;
  Tensor forward(const Tensor& x) override {
    const Tensor y = matmul(x, t(weight_));
    return y + where(lt(y, 0.5), 0.3, 0.6);
  }

 private:
  Tensor weight_;
};

class Custom : public SplitModel {
 public:
  explicit Custom(int64_t d) {
    seq_.emplace_back<nn::Linear>(d, d);
    seq_.emplace_back<nn::ReLU>();
    seq_.emplace_back<CustomLinear>(d);
    seq_.emplace_back<nn::ReLU>();
    seq_.emplace_back<nn::Linear>(d, d);
    seq_.emplace_back<nn::ReLU>();
    register_module("seq", seq_);
  }
  std::vector<Tensor> run(const std::vector<Tensor>& in, const std::vector<int64_t>&) override {
    return {seq_(in.at(0) + in.at(0))};
  }

 private:
  nn::Sequential seq_;
};

/// Symbol, SymbolScalar, SymbolSize, SymbolThree, SymbolNonzero: products with bare parameters, and numbers
/// from outside.
class Symbols : public SplitModel {
 public:
  Symbols(const Shapes& shapes, std::string name) : name_(std::move(name)) {
    for (const auto& [param, shape] : shapes) {
      ws_.push_back(zeros(shape));
      register_parameter(param, ws_.back());
    }
  }
  std::vector<Tensor> run(const std::vector<Tensor>& in, const std::vector<int64_t>& n) override {
    const Tensor places = name_ == "SymbolNonzero"
                              ? nonzero(Tensor::from_vector(n, {static_cast<int64_t>(n.size())}))
                              : Tensor();
    const Tensor x = cat({in.at(0), in.at(0)});
    Tensor y = matmul(x, ws_[0]);
    if (name_ == "SymbolThree") {
      const Tensor z = matmul(y, ws_[1]), a = ones({n.at(0)});
      return {matmul(z, ws_[2]) * sum(a)};
    }
    const Tensor a = name_ == "SymbolSize" ? ones({n.at(0)}) : Tensor();
    y = x + matmul(y, ws_[1]);
    if (name_ == "SymbolNonzero") return {y * sum(places + 1)};
    if (name_ == "SymbolScalar") return {y * n.at(0)};
    if (name_ == "SymbolSize") return {y * sum(a)};
    return {y};
  }

 private:
  std::string name_;
  std::deque<Tensor> ws_;
};

/// Buffers that are updated in place.
class BatchNormed : public OfOne {
 public:
  explicit BatchNormed(const Shapes& s) {
    for (size_t i = 0; s.count(fmt::format("convs.{}.weight", i)); ++i) {
      const int64_t c = s.at(fmt::format("convs.{}.weight", i))[0];
      convs_.emplace_back<nn::Conv2d>(c, c, 3, nn::ConvOptions{.padding = 1, .bias = false});
      norms_.emplace_back<nn::BatchNorm2d>(c);
    }
    register_module("convs", convs_);
    register_module("bns", norms_);
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (size_t i = 0; i < convs_.size(); ++i) y = relu(norms_[i](convs_[i](y)));
    return y;
  }

 private:
  nn::ModuleList convs_, norms_;
};

class Transposing : public OfOne {
 public:
  explicit Transposing(const Shapes& s)
      : linear0_(s.at("linear0.weight")[1], s.at("linear0.weight")[0]),
        linear1_(s.at("linear1.weight")[1], s.at("linear1.weight")[0]) {
    register_module("linear0", linear0_);
    register_module("linear1", linear1_);
  }
  Tensor forward(const Tensor& x) override { return linear1_(flatten(linear0_(x.transpose(2, 1)), 1)); }

 private:
  nn::Linear linear0_, linear1_;
};

class Layer : public nn::Module {
 public:
  Layer(int64_t d, int64_t heads)
      : heads_(heads),
        q_(d, d),
        k_(d, d),
        v_(d, d),
        o_(d, d),
        fc1_(d, 4 * d),
        fc2_(4 * d, d),
        ln1_(d),
        ln2_(d) {
    const std::pair<const char*, nn::Module*> all[] = {{"q", &q_},     {"k", &k_},     {"v", &v_},
                                                       {"o", &o_},     {"ln1", &ln1_}, {"fc1", &fc1_},
                                                       {"fc2", &fc2_}, {"ln2", &ln2_}};
    for (const auto& [name, m] : all) register_module(name, *m);
  }
  using Module::forward;
  Tensor forward(const Tensor& in) override {
    const int64_t b = in.size(0), s = in.size(1), d = in.size(2);
    const auto heads = [&](nn::Linear& f) { return f(in).view({b, s, heads_, d / heads_}).transpose(1, 2); };
    const Tensor q = heads(q_), k = heads(k_), v = heads(v_);
    const double scale = std::sqrt(static_cast<double>(d / heads_));
    const Tensor a = matmul(softmax(matmul(q, k.transpose(-1, -2)) / scale, -1), v);
    const Tensor x = ln1_(in + o_(a.transpose(1, 2).reshape({b, s, d})));
    return ln2_(x + fc2_(gelu(fc1_(x))));
  }

 private:
  int64_t heads_;
  nn::Linear q_, k_, v_, o_, fc1_, fc2_;
  nn::LayerNorm ln1_, ln2_;
};

class MaskedLM : public OfOne {
 public:
  MaskedLM(const Json& c, int64_t d)
      : word_(c["vocab"].get<int64_t>(), d),
        position_(c["length"].get<int64_t>(), d),
        ln_(d),
        dense_(d, d),
        head_ln_(d),
        bias_(zeros({c["vocab"].get<int64_t>()})) {
    for (int64_t i = 0; i < c["layers"].get<int64_t>(); ++i)
      layers_.emplace_back<Layer>(d, c["heads"].get<int64_t>());
    register_module("word", word_);
    register_module("position", position_);
    register_module("ln", ln_);
    register_module("layers", layers_);
    register_module("dense", dense_);
    register_module("head_ln", head_ln_);
    register_parameter("bias", bias_);
  }
  Tensor forward(const Tensor& ids) override {
    const Tensor words = word_(ids);
    Tensor x = ln_(words + position_(arange(ids.size(1))));
    for (size_t i = 0; i < layers_.size(); ++i) x = layers_[i](x);
    return linear(head_ln_(gelu(dense_(x))), word_.weight, bias_);
  }

 private:
  nn::Embedding word_, position_;
  nn::LayerNorm ln_;
  nn::ModuleList layers_;
  nn::Linear dense_;
  nn::LayerNorm head_ln_;
  Tensor bias_;
};

class Biased : public OfOne {
 public:
  Biased(int64_t heads, int64_t d)
      : heads_(heads), d_(d), qk_(heads * d, 2 * heads * d), v_(heads * d, heads * d) {
    register_module("qk", qk_);
    register_module("v", v_);
    bias_ = (arange(heads).to(DType::f32) + 1.0) * (-8.0 / static_cast<double>(heads));
    register_buffer("bias", bias_, false);
  }
  Tensor forward(const Tensor& x) override {
    const int64_t b = x.size(0), s = x.size(1);
    const std::vector<Tensor> parts = chunk(qk_(x), 2, -1);
    const auto heads = [&](const Tensor& y) { return y.view({b, s, heads_, d_}).transpose(1, 2); };
    const Tensor q = heads(parts[0]), k = heads(parts[1]), v = heads(v_(x)), i = arange(s);
    const Tensor distance = unsqueeze(i, 1) - unsqueeze(i, 0);
    const Tensor scores = matmul(q, k.transpose(-1, -2)) * std::pow(static_cast<double>(d_), -0.5) +
                          distance * unsqueeze(unsqueeze(bias_, 1), 2);
    return matmul(softmax(scores, -1), v).transpose(1, 2).reshape({b, s, -1});
  }

 private:
  int64_t heads_, d_;
  nn::Linear qk_, v_;
  Tensor bias_;
};

/// The middle block is checkpointed.
class Checkpointed : public OfOne {
 public:
  explicit Checkpointed(int64_t d) : a_(d, d), b_(d, d), c_(d, d), e_(d, d) {
    register_module("a", a_);
    register_module("b", b_);
    register_module("c", c_);
    register_module("e", e_);
  }
  Tensor forward(const Tensor& x) override {
    return e_(checkpoint([this](const Tensor& h) { return relu(c_(relu(b_(h)))); }, a_(x)));
  }

 private:
  nn::Linear a_, b_, c_, e_;
};

/// Every linear is checkpointed, the ReLUs between them are not.
class CheckpointedMLP : public OfOne {
 public:
  explicit CheckpointedMLP(const Shapes& shapes) {
    add_linears(fcs_, shapes, "fcs");
    register_module("fcs", fcs_);
  }
  Tensor forward(const Tensor& in) override {
    Tensor x = in;
    for (size_t i = 0; i < fcs_.size(); ++i) {
      x = checkpoint(fcs_[i], x);
      if (i + 1 < fcs_.size()) x = relu(x);
    }
    return x;
  }

 private:
  nn::ModuleList fcs_;
};

class CheckpointPair : public OfOne {
 public:
  explicit CheckpointPair(int64_t n) : one_(n), two_(n) {
    register_module("one", one_);
    register_module("two", two_);
  }
  Tensor forward(const Tensor& x) override { return cos(checkpoint(two_, cos(checkpoint(one_, x)))); }

 private:
  struct Inner : nn::Module {
    explicit Inner(int64_t n) : a(n, n), b(n, n) {
      register_module("a", a);
      register_module("b", b);
    }
    using Module::forward;
    Tensor forward(const Tensor& x) override { return b(a(x)); }
    nn::Linear a, b;
  };
  Inner one_, two_;
};

}  // namespace

std::map<std::string, Sizes> shapes_of(const Json& one) {
  std::map<std::string, Sizes> shapes;
  const bool listed = one.contains("parameters");
  for (const Json& p : listed ? one["parameters"] : one["tensors"])
    if (listed || p.contains("param"))
      shapes[p[listed ? "name" : "param"].get<std::string>()] = p["shape"].get<Sizes>();
  return shapes;
}

std::unique_ptr<SplitModel> make_split_model(const Json& one) {
  const std::string name = one["model"].get<std::string>(), id = one["id"].get<std::string>();
  const std::map<std::string, Sizes> shapes = shapes_of(one);
  using Calls = std::vector<std::string>;
  if (name == "Plain" || name == "Toy" || name == "ToyInContext")
    return std::make_unique<Plain>(shapes, id == "context_no_grad" || id == "split_eval_no_grad_params",
                                   id == "context_autocast_bfloat16"  ? std::optional(DType::bf16)
                                   : id == "context_autocast_float16" ? std::optional(DType::f16)
                                                                      : std::nullopt);
  if (name == "Residual") return std::make_unique<Residual>(shapes);
  if (name == "SharedParam" || name == "ManyOutputs" || name == "InplaceTail")
    return std::make_unique<Linears>(shapes, name);
  if (name == "ModuleTwice")
    return std::make_unique<Named>(shapes, Calls{"first", "mid", "between", "mid", "last"});
  if (name == "GraphBreak") return std::make_unique<Named>(shapes, Calls{"a", "b", "|", "c", "e"});
  if (name == "TwoLinears") return std::make_unique<Named>(shapes, Calls{"a", "b"});
  if (name == "Matmuls") return std::make_unique<Matmuls>(shapes);
  if (name == "Tied") return std::make_unique<Tied>(shapes);
  if (name == "EncoderStack") return std::make_unique<EncoderStack>(shapes.at("layers.0.norm1.weight")[0], 2);
  if (name == "NoParams") return std::make_unique<NoParams>();
  if (name == "TwoBranches") return std::make_unique<TwoBranches>(shapes);
  if (name == "Custom") return std::make_unique<Custom>(one["size"].get<int64_t>());
  if (name.starts_with("Symbol")) return std::make_unique<Symbols>(shapes, name);
  if (name == "BatchNormed") return std::make_unique<BatchNormed>(shapes);
  if (name == "Transposing") return std::make_unique<Transposing>(shapes);
  if (name == "MaskedLM")
    return std::make_unique<MaskedLM>(one["config"], one["config"]["hidden"].get<int64_t>());
  if (name == "Biased")
    return std::make_unique<Biased>(one["config"]["heads"].get<int64_t>(),
                                    one["config"]["head_dim"].get<int64_t>());
  if (name == "Checkpointed") return std::make_unique<Checkpointed>(shapes.at("a.bias")[0]);
  if (name == "CheckpointedMLP") return std::make_unique<CheckpointedMLP>(shapes);
  if (name == "CheckpointPair") return std::make_unique<CheckpointPair>(one["size"].get<int64_t>());
  throw Error(ErrorKind::invalid, "split_models: no model " + name);
}

}  // namespace kiln::golden
