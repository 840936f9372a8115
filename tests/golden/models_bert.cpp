// SPDX-License-Identifier: Apache-2.0
// The BERT models of models.json, made of the parts of examples/bert under transformers' names.
#include "examples/bert/model.h"
#include "tests/golden/models.h"

namespace kiln::golden {

namespace {

bert::Config config_of(const Json& c) {
  bert::Config out;
  out.vocab_size = c["vocab_size"];
  out.hidden_size = c["hidden_size"];
  out.num_hidden_layers = c["num_hidden_layers"];
  out.num_attention_heads = c["num_attention_heads"];
  out.intermediate_size = c["intermediate_size"];
  out.max_position_embeddings = c["max_position_embeddings"];
  out.hidden_dropout_prob = c["hidden_dropout_prob"];
  out.attention_probs_dropout_prob = c["attention_probs_dropout_prob"];
  out.pad_token_id = c["pad_token_id"];
  return out;
}

class BertForSequenceClassification : public Model {
 public:
  explicit BertForSequenceClassification(const Json& c)
      : bert_(config_of(c)), classifier_(c["hidden_size"], c["num_labels"]) {
    register_module("bert", bert_);
    register_module("classifier", classifier_);
    // Row i attends to the first seq - i tokens.
    const int64_t batch = c["batch"], seq = c["seq"];
    std::vector<int64_t> mask;
    for (int64_t i = 0; i < batch; ++i)
      for (int64_t j = 0; j < seq; ++j) mask.push_back(j < seq - i);
    mask_ = Tensor::from_vector(mask, {batch, seq});
  }
  Tensor loss(const Inputs& in) override {
    const Tensor hidden = bert_(in.at("input_ids"), mask_, in.at("token_type_ids"));
    return cross_entropy(classifier_(bert_.pool(hidden)), in.at("labels"));
  }

 private:
  bert::Bert bert_;
  nn::Linear classifier_;
  Tensor mask_;
};

/// What is between the hidden states and the word table. Its names: "transform.dense", "transform.LayerNorm".
class Transform : public nn::Module {
 public:
  explicit Transform(int64_t width) : dense_(width, width), norm_(width, 1e-12) {
    register_module("dense", dense_);
    register_module("LayerNorm", norm_);
  }
  using Module::forward;
  Tensor forward(const Tensor& x) override { return norm_(gelu(dense_(x))); }

 private:
  nn::Linear dense_;
  nn::LayerNorm norm_;
};

class Predictions : public nn::Module {
 public:
  Predictions(int64_t width, int64_t vocab) : bias_(zeros({vocab})), transform_(width) {
    register_parameter("bias", bias_);
    register_module("transform", transform_);
  }
  using Module::forward;
  Tensor forward(const Tensor& hidden, const Tensor& table) override {
    return linear(transform_(hidden), table, bias_);
  }

 private:
  Tensor bias_;
  Transform transform_;
};

class BertForMaskedLM : public Model {
 public:
  explicit BertForMaskedLM(const Json& c)
      : bert_(config_of(c), false), predictions_(c["hidden_size"], c["vocab_size"]) {
    register_module("bert", bert_);
    register_module("cls", cls_);
    cls_.add(predictions_);
  }
  Tensor loss(const Inputs& in) override {
    const Tensor& ids = in.at("input_ids");
    const Tensor logits = predictions_(bert_(ids, ones_like(ids)), bert_.word_table());
    // Four of five tokens do not count.
    const Tensor labels = in.at("labels").reshape({-1}), places = arange(labels.numel());
    const Tensor counted = where(eq(remainder(places, 5), 0), labels, full({}, -100, {DType::i64}));
    return cross_entropy(logits.reshape({-1, logits.size(2)}), counted);
  }

 private:
  /// Names its one part.
  struct Cls : nn::Module {
    void add(nn::Module& m) { register_module("predictions", m); }
  };
  bert::Bert bert_;
  Cls cls_;
  Predictions predictions_;
};

}  // namespace

std::unique_ptr<Model> bert_model(const std::string& name, const Json& config) {
  if (name == "transformers.BertForSequenceClassification")
    return std::make_unique<BertForSequenceClassification>(config);
  if (name == "transformers.BertForMaskedLM") return std::make_unique<BertForMaskedLM>(config);
  return nullptr;
}

}  // namespace kiln::golden
