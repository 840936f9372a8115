// SPDX-License-Identifier: Apache-2.0
// A softmax over very many classes, of which few are frequent. Source: Grave et al. 2017.
#pragma once

#include "frontend/nn/layers.h"
#include "frontend/nn/module.h"

namespace kiln::nn {

struct AdaptiveLogSoftmaxResult {
  Tensor output;  ///< log-probability of each target
  Tensor loss;    ///< the mean of -output, 0-d
};

/// Classes by falling frequency: those before cutoffs[0] have outputs of their own ("head"), those from one
/// cutoff to the next share one, and are told apart ("tail.<i>") by in_features / div_value^(i + 1) features.
/// All clusters are computed for all rows, so that shapes do not depend on the targets.
/// Source: torch.nn.AdaptiveLogSoftmaxWithLoss.
class AdaptiveLogSoftmaxWithLoss : public Module {
 public:
  /// Throws: invalid, unless cutoffs rise from more than 0 to less than n_classes.
  AdaptiveLogSoftmaxWithLoss(int64_t in_features, int64_t n_classes, Sizes cutoffs, double div_value = 4,
                             bool head_bias = false);
  /// `auto [output, loss] = m(x, target)`. Forward hooks get the output. Shapes: x [n, in] with classes [n],
  /// or [in] with []. Throws: invalid, on shapes, and on a target that is no class (inside a compiled
  /// callable when the stage has run).
  AdaptiveLogSoftmaxResult operator()(const Tensor& x, const Tensor& target, Loc loc = Loc::current());
  /// Of all classes. Shapes: [n, in] -> [n, n_classes].
  Tensor log_prob(const Tensor& x, Loc loc = Loc::current());
  /// The likeliest class. Shapes: [n, in] -> [n], or [in] -> [].
  Tensor predict(const Tensor& x, Loc loc = Loc::current());
  Linear head;
  ModuleList tail;

 private:
  /// Log-probabilities within cluster `i`.
  Tensor cluster(size_t i, const Tensor& x, Loc loc);
  Tensor all(const Tensor& head_logs, const Tensor& x, Loc loc);
  Tensor of_targets(const Tensor& x, const Tensor& target, Loc loc);
  void check(const char* name, const Tensor& x, bool may_be_row, Loc loc) const;

  const int64_t in_;
  Sizes cutoffs_;  ///< and the number of classes
};

}  // namespace kiln::nn
