// SPDX-License-Identifier: Apache-2.0
// What the fine-tuned model is measured against: logistic regression on the words that a text has.
#pragma once

#include "examples/bert/sayings.h"
#include "examples/bert/wordpiece.h"
#include "frontend/kiln.h"

namespace bert {

/// Words of the training texts, each text as tf-idf of unit length: (1 + log count) * log(n / texts with it).
/// Source: Salton & Buckley 1988.
class BagOfWords {
 public:
  BagOfWords(const std::vector<Saying>& texts, const WordPiece& tokenizer);
  /// Shapes: [texts, words], f32. Words that no training text has do not count.
  kiln::Tensor features(const std::vector<Saying>& texts) const;
  int64_t words() const { return static_cast<int64_t>(weight_.size()); }

 private:
  const WordPiece& tokenizer_;
  std::unordered_map<std::string, size_t> column_;
  std::vector<float> weight_;
};

/// Share of the test texts that logistic regression, trained on the training texts, puts into their file: the
/// best of several penalties, chosen by the test itself, so that it is no less than could be had.
double bag_of_words_accuracy(const Sayings& sayings, const WordPiece& tokenizer);

}  // namespace bert
