// SPDX-License-Identifier: Apache-2.0
// The models of models.json that read sequences, and the one that reads bags of categories.
#include "tests/golden/models.h"

namespace kiln::golden {

namespace {

class LstmLm : public Model {
 public:
  explicit LstmLm(const Json& c)
      : emb_(integer(c, "vocab"), integer(c, "d")),
        lstm_(integer(c, "d"), integer(c, "hidden"), {.batch_first = true}),
        head_(integer(c, "hidden"), integer(c, "vocab")) {
    register_module("emb", emb_);
    register_module("lstm", lstm_);
    register_module("head", head_);
  }
  Tensor loss(const Inputs& in) override {
    const Tensor& ids = in.at("ids");
    const int64_t n = ids.size(1);
    const Tensor out = lstm_(emb_(slice(ids, 1, 0, n - 1))).output;
    return cross_entropy(flatten(head_(out), 0, 1), flatten(slice(ids, 1, 1, n)));
  }

 private:
  nn::Embedding emb_;
  nn::LSTM lstm_;
  nn::Linear head_;
};

class Dlrm : public Model {
 public:
  explicit Dlrm(const Json& c) {
    const auto rows = c["rows"].get<std::vector<int64_t>>();
    const int64_t d = integer(c, "d"), n = static_cast<int64_t>(rows.size()) + 1;
    for (const int64_t r : rows)
      bags_.emplace_back<nn::EmbeddingBag>(r, d, EmbeddingBagOptions{.mode = BagMode::sum});
    bot_.emplace_back<nn::Linear>(integer(c, "dense"), 2 * d);
    bot_.emplace_back<nn::Linear>(2 * d, d);
    top_.emplace_back<nn::Linear>(d + n * (n - 1) / 2, 2 * d);
    top_.emplace_back<nn::Linear>(2 * d, 1);
    register_module("bags", bags_);
    register_module("bot", bot_);
    register_module("top", top_);
  }
  Tensor loss(const Inputs& in) override {
    const Tensor x = relu(bot_[1](relu(bot_[0](in.at("dense")))));
    std::vector<Tensor> vectors{x};
    for (size_t i = 0; i < bags_.size(); ++i) vectors.push_back(bags_[i](in.at(fmt::format("ids{}", i))));
    const Tensor z = stack(vectors, 1);
    // Products of each two of them: below the diagonal.
    std::vector<int64_t> row, column;
    for (int64_t r = 0; r < z.size(1); ++r)
      for (int64_t c = 0; c < r; ++c) {
        row.push_back(r);
        column.push_back(c);
      }
    const auto count = static_cast<int64_t>(row.size());
    const Tensor inter = index(matmul(z, z.transpose(1, 2)), {Slice{}, Tensor::from_vector(row, {count}),
                                                              Tensor::from_vector(column, {count})});
    const Tensor logits = squeeze(top_[1](relu(top_[0](cat({x, inter}, 1)))), 1);
    return mean(softplus(logits) - logits * in.at("y"));  // binary cross entropy of logits
  }

 private:
  nn::ModuleList bags_, bot_, top_;
};

}  // namespace

std::unique_ptr<Model> sequence_model(const std::string& name, const Json& config) {
  if (name == "LSTMLM") return std::make_unique<LstmLm>(config);
  if (name == "DLRM") return std::make_unique<Dlrm>(config);
  return nullptr;
}

}  // namespace kiln::golden
