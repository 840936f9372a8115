// SPDX-License-Identifier: Apache-2.0
#include "examples/bert/bag_of_words.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace bert {

using kiln::Tensor;

BagOfWords::BagOfWords(const std::vector<Saying>& texts, const WordPiece& tokenizer) : tokenizer_(tokenizer) {
  std::vector<size_t> with;
  for (const Saying& s : texts) {
    const std::vector<std::string> words = tokenizer.words(s.text);
    for (const std::string& word : std::set<std::string>(words.begin(), words.end())) {
      const auto [at, added] = column_.emplace(word, with.size());
      if (added) with.push_back(0);
      ++with[at->second];
    }
  }
  for (const size_t n : with)
    weight_.push_back(std::log(static_cast<float>(texts.size()) / static_cast<float>(n)));
}

Tensor BagOfWords::features(const std::vector<Saying>& texts) const {
  std::vector<float> out(texts.size() * weight_.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    std::map<size_t, float> counts;
    for (const std::string& word : tokenizer_.words(texts[i].text))
      if (const auto it = column_.find(word); it != column_.end()) ++counts[it->second];
    float square = 0;
    for (auto& [column, n] : counts) {
      n = (1 + std::log(n)) * weight_[column];
      square += n * n;
    }
    for (const auto& [column, n] : counts)
      out[i * weight_.size() + column] = n / std::max(std::sqrt(square), 1e-9f);
  }
  return Tensor::from_vector(out, {static_cast<int64_t>(texts.size()), words()});
}

namespace {

Tensor files_of(const std::vector<Saying>& texts) {
  std::vector<int64_t> out;
  for (const Saying& s : texts) out.push_back(s.file);
  return Tensor::from_vector(out, {static_cast<int64_t>(out.size())});
}

double accuracy(const Tensor& logits, const Tensor& files) {
  const std::vector<int64_t> got = kiln::argmax(logits, 1).to_vector<int64_t>(),
                             expected = files.to_vector<int64_t>();
  size_t right = 0;
  for (size_t i = 0; i < got.size(); ++i) right += got[i] == expected[i];
  return static_cast<double>(right) / static_cast<double>(got.size());
}

/// Cross-entropy and `penalty` times the squared norm of the weights, to the minimum.
double regression_accuracy(const Tensor& x, const Tensor& y, const Tensor& test_x, const Tensor& test_y,
                           int64_t classes, double penalty) {
  constexpr int kSteps = 300;
  kiln::nn::Linear model(x.size(1), classes);
  {
    const kiln::NoGrad guard;
    model.weight.zero_();
    model.bias.zero_();
  }
  kiln::optim::AdamW optimizer(model.parameters(), {.weight_decay = 0});
  auto step = kiln::compile(
      [&] {
        optimizer.zero_grad();
        const Tensor loss =
            kiln::cross_entropy(model(x), y) + kiln::sum(kiln::square(model.weight)) * penalty;
        loss.backward();
        optimizer.step();
      },
      {.name = "bag_of_words"});
  for (int i = 0; i < kSteps; ++i) {
    optimizer.lr = 0.1 * (1 - static_cast<double>(i) / kSteps);
    step();
  }
  const kiln::NoGrad guard;
  return accuracy(model(test_x), test_y);
}

}  // namespace

double bag_of_words_accuracy(const Sayings& sayings, const WordPiece& tokenizer) {
  const BagOfWords bag(sayings.train, tokenizer);
  const Tensor x = bag.features(sayings.train), test_x = bag.features(sayings.test);
  const Tensor y = files_of(sayings.train), test_y = files_of(sayings.test);
  double best = 0;
  for (const double penalty : {1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3})
    best = std::max(
        best, regression_accuracy(x, y, test_x, test_y, static_cast<int64_t>(sayings.files.size()), penalty));
  return best;
}

}  // namespace bert
