// SPDX-License-Identifier: Apache-2.0
// The models of models.json that look at images, and the autoencoder.
#include <cmath>

#include "tests/golden/models.h"

namespace kiln::golden {

namespace {

nn::NormOptions norm_options(const Json& c) {
  return {c["bn_eps"].get<double>(), c["bn_momentum"].get<double>()};
}

class ConvNet : public Model {
 public:
  explicit ConvNet(const Json& c)
      : ConvNet(c["chans"].get<std::vector<int64_t>>(), integer(c, "classes"), norm_options(c)) {}
  ConvNet(const std::vector<int64_t>& chans, int64_t classes, const nn::NormOptions& norm)
      : head_(chans.back(), classes) {
    for (size_t i = 1; i < chans.size(); ++i) {
      convs_.emplace_back<nn::Conv2d>(chans[i - 1], chans[i], 3,
                                      nn::ConvOptions{.stride = 2, .padding = 1, .bias = false});
      norms_.emplace_back<nn::BatchNorm2d>(chans[i], norm);
    }
    register_module("convs", convs_);
    register_module("bns", norms_);
    register_module("head", head_);
  }
  Tensor loss(const Inputs& in) override {
    Tensor x = in.at("x");
    for (size_t i = 0; i < convs_.size(); ++i) x = relu(norms_[i](convs_[i](x)));
    return cross_entropy(head_(mean(x, {2, 3})), in.at("y"));
  }

 private:
  nn::ModuleList convs_, norms_;
  nn::Linear head_;
};

class ResBlock : public nn::Module {
 public:
  ResBlock(int64_t a, int64_t b, int64_t stride, const nn::NormOptions& norm)
      : conv1_(a, b, 3, {.stride = stride, .padding = 1, .bias = false}),
        conv2_(b, b, 3, {.padding = 1, .bias = false}),
        bn1_(b, norm),
        bn2_(b, norm) {
    register_module("conv1", conv1_);
    register_module("bn1", bn1_);
    register_module("conv2", conv2_);
    register_module("bn2", bn2_);
    if (stride != 1 || a != b) {
      down_.emplace_back<nn::Conv2d>(a, b, 1, nn::ConvOptions{.stride = stride, .bias = false});
      down_.emplace_back<nn::BatchNorm2d>(b, norm);
    }
    register_module("down", down_);
  }
  using Module::forward;
  Tensor forward(const Tensor& x) override {
    const Tensor h = relu(bn1_(conv1_(x)));
    return relu(bn2_(conv2_(h)) + (down_.size() > 0 ? down_(x) : x));
  }

 private:
  nn::Conv2d conv1_, conv2_;
  nn::BatchNorm2d bn1_, bn2_;
  nn::Sequential down_;
};

class ResNet : public Model {
 public:
  explicit ResNet(const Json& c) : ResNet(integer(c, "width"), integer(c, "classes"), norm_options(c)) {}
  ResNet(int64_t width, int64_t classes, const nn::NormOptions& norm)
      : stem_(3, width, 3, {.padding = 1, .bias = false}),
        bn_(width, norm),
        block1_(width, width, 1, norm),
        block2_(width, 2 * width, 2, norm),
        head_(2 * width, classes) {
    register_module("stem", stem_);
    register_module("bn", bn_);
    register_module("block1", block1_);
    register_module("block2", block2_);
    register_module("head", head_);
  }
  Tensor loss(const Inputs& in) override {
    const Tensor x = max_pool2d(relu(bn_(stem_(in.at("x")))), 3, {.stride = 2, .padding = 1});
    const Tensor pooled = flatten(adaptive_avg_pool2d(block2_(block1_(x)), 1), 1);
    return cross_entropy(head_(pooled), in.at("y"));
  }

 private:
  nn::Conv2d stem_;
  nn::BatchNorm2d bn_;
  ResBlock block1_, block2_;
  nn::Linear head_;
};

class VitLayer : public nn::Module {
 public:
  VitLayer(int64_t d, int64_t heads)
      : heads_(heads),
        n1_(d),
        n2_(d),
        q_(d, d),
        k_(d, d, false),
        v_(d, d),
        o_(d, d),
        fc1_(d, 2 * d),
        fc2_(2 * d, d) {
    register_module("n1", n1_);
    register_module("n2", n2_);
    register_module("q", q_);
    register_module("k", k_);
    register_module("v", v_);
    register_module("o", o_);
    register_module("fc1", fc1_);
    register_module("fc2", fc2_);
  }
  using Module::forward;
  Tensor forward(const Tensor& x) override {
    const int64_t b = x.size(0), s = x.size(1), d = x.size(2);
    const Tensor h = n1_(x);
    const auto split_heads = [&](nn::Linear& f) {
      return f(h).view({b, s, heads_, d / heads_}).transpose(1, 2);
    };
    const Tensor q = split_heads(q_), k = split_heads(k_), v = split_heads(v_);
    const Tensor scores = matmul(q, k.transpose(-2, -1)) / std::sqrt(static_cast<double>(d / heads_));
    const Tensor a = matmul(softmax(scores, -1), v);
    const Tensor y = x + o_(a.transpose(1, 2).reshape({b, s, d}));
    return y + fc2_(gelu(fc1_(n2_(y))));
  }

 private:
  int64_t heads_;
  nn::LayerNorm n1_, n2_;
  nn::Linear q_, k_, v_, o_, fc1_, fc2_;
};

class Vit : public Model {
 public:
  explicit Vit(const Json& c)
      : cls_(zeros({1, 1, integer(c, "d")})),
        pos_(zeros({1, patches(c) + 1, integer(c, "d")})),
        patch_(3, integer(c, "d"), integer(c, "patch"), {.stride = integer(c, "patch")}),
        norm_(integer(c, "d")),
        head_(integer(c, "d"), integer(c, "classes")) {
    for (int64_t i = 0; i < integer(c, "layers"); ++i)
      layers_.emplace_back<VitLayer>(integer(c, "d"), integer(c, "heads"));
    register_parameter("cls", cls_);
    register_parameter("pos", pos_);
    register_module("patch", patch_);
    register_module("layers", layers_);
    register_module("norm", norm_);
    register_module("head", head_);
  }
  Tensor loss(const Inputs& in) override {
    const Tensor patches = flatten(patch_(in.at("x")), 2).transpose(1, 2);
    Tensor x = cat({expand(cls_, {patches.size(0), -1, -1}), patches}, 1) + pos_;
    for (size_t i = 0; i < layers_.size(); ++i) x = layers_[i](x);
    return cross_entropy(head_(select(norm_(x), 1, 0)), in.at("y"));
  }

 private:
  static int64_t patches(const Json& c) {
    const int64_t side = integer(c, "image") / integer(c, "patch");
    return side * side;
  }
  Tensor cls_, pos_;
  nn::Conv2d patch_;
  nn::ModuleList layers_;
  nn::LayerNorm norm_;
  nn::Linear head_;
};

class AutoEncoder : public Model {
 public:
  explicit AutoEncoder(const Json& c) {
    const auto sizes = c["sizes"].get<std::vector<int64_t>>();
    for (size_t i = 1; i < sizes.size(); ++i) enc_.emplace_back<nn::Linear>(sizes[i - 1], sizes[i]);
    for (size_t i = sizes.size(); i-- > 1;) dec_.emplace_back<nn::Linear>(sizes[i], sizes[i - 1]);
    register_module("enc", enc_);
    register_module("dec", dec_);
  }
  Tensor loss(const Inputs& in) override {
    Tensor z = in.at("x");
    for (size_t i = 0; i < enc_.size(); ++i) z = tanh(enc_[i](z));
    for (size_t i = 0; i + 1 < dec_.size(); ++i) z = tanh(dec_[i](z));
    return mse_loss(sigmoid(dec_[dec_.size() - 1](z)), in.at("x"));
  }

 private:
  nn::ModuleList enc_, dec_;
};

}  // namespace

std::unique_ptr<Model> vision_model(const std::string& name, const Json& config) {
  if (name == "ConvNet") return std::make_unique<ConvNet>(config);
  if (name == "ResNet") return std::make_unique<ResNet>(config);
  if (name == "ViT") return std::make_unique<Vit>(config);
  if (name == "AutoEncoder") return std::make_unique<AutoEncoder>(config);
  return nullptr;
}

}  // namespace kiln::golden
