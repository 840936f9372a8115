// SPDX-License-Identifier: Apache-2.0
// A model with its optimizer and its place in the data: what a checkpoint holds, and what one step changes.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "examples/gpt/checkpoint.h"
#include "examples/gpt/corpus.h"
#include "examples/gpt/model.h"
#include "examples/gpt/ranks.h"
#include "frontend/nn/distributed_data_parallel.h"

namespace gpt {

class Session {
 public:
  /// A fresh start on the device of `ranks`: weights from the seed. With other ranks each has its part of
  /// every batch.
  Session(const Options& options, const Corpus& corpus, const Ranks& ranks);

  /// Inputs and targets of this rank's part of the next batch. Shapes: [batch / ranks, seq] each, i64.
  std::pair<Tensor, Tensor> next_batch();
  /// One training step on a batch; the callable that is compiled. Returns the loss.
  Tensor step(const Tensor& x, const Tensor& y);
  /// Sets the learning rate of the step to come and counts it as done after `step` ran.
  void begin_step();
  void end_step() { ++done_; }
  int64_t steps_done() const { return done_; }

  /// Mean loss over validation windows, up to `batches` of them spread evenly (0: all whole ones).
  /// `loss` is a callable of (x, y).
  template <typename F>
  double validate(F&& loss, int64_t batches);

  void save(const std::string& path) const;
  /// Continues a saved run. Throws: io, invalid.
  void resume(const std::string& path);

  Gpt& model() { return model_; }

 private:
  Tensor on_device(const std::vector<int64_t>& tokens, const kiln::Sizes& shape) const;
  std::pair<Tensor, Tensor> validation_batch(int64_t index) const;
  void draw_like_no_other_rank();

  const Options& options_;
  const Corpus& corpus_;
  const Ranks& ranks_;
  Gpt model_;
  std::optional<kiln::nn::DistributedDataParallel> parallel_;  ///< with other ranks
  kiln::optim::AdamW optimizer_;
  Batches batches_;
  int64_t done_ = 0;
};

template <typename F>
double Session::validate(F&& loss, int64_t batches) {
  const int64_t per = options_.batch * options_.seq;
  const int64_t all = (static_cast<int64_t>(corpus_.valid.size()) - 1) / per;
  const int64_t use = std::max<int64_t>(1, batches == 0 ? all : std::min(batches, all));
  const bool training = model_.is_training();
  model_.eval();
  double sum = 0;
  for (int64_t i = 0; i < use; ++i) {
    const auto [x, y] = validation_batch(i * std::max<int64_t>(1, all) / use);
    sum += loss(x, y).template item<double>();
  }
  model_.train(training);
  return sum / static_cast<double>(use);
}

}  // namespace gpt
