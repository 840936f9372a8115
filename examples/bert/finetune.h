// SPDX-License-Identifier: Apache-2.0
// The run: data, model, loop, test, comparison.
#pragma once

#include "examples/bert/model.h"
#include "examples/bert/options.h"
#include "examples/bert/sayings.h"
#include "examples/bert/wordpiece.h"

namespace bert {

/// Token ids, mask and file of every saying, as fields of a dataset. Shapes: [max_length], [max_length], [].
kiln::data::DatasetPtr tokens_of(const std::vector<Saying>& sayings, const WordPiece& tokenizer,
                                 int64_t max_length);

/// A classifier with its optimizers, and what one step changes.
class Tuner {
 public:
  Tuner(const Options& options, const Config& config, int64_t classes);
  Classifier& model() { return model_; }
  /// One step on a batch; the callable that is compiled. Returns the loss.
  Tensor step(const Tensor& ids, const Tensor& mask, const Tensor& files);
  /// Sets the learning rates of the step to come.
  void set_share(double share);

 private:
  const Options& options_;
  Classifier model_;
  kiln::optim::AdamW body_, head_;
};

/// Fine-tunes as asked and prints how it went. Throws: kiln::Error.
void finetune(const Options& options);

}  // namespace bert
