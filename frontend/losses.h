// SPDX-License-Identifier: Apache-2.0
// Losses beside cross_entropy, nll_loss, mse_loss and l1_loss of functional.h. Names, defaults and
// numerics, at kinks and saturation too, of torch.nn.functional; numbers are run-time values of a compiled
// callable. Reduction::none gives the loss of each element (or row), mean their mean, sum their sum.
// Throws: invalid, on an input that is not floating, and on shapes that do not fit.
#pragma once

#include <functional>

#include "frontend/functional.h"

namespace kiln {

/// (x - y)^2 / (2 beta) where |x - y| < beta, else |x - y| - beta / 2. Shapes: x and y broadcast -> [], or
/// for Reduction::none as broadcast. Throws: invalid, when beta < 0. Source: Girshick 2015.
Tensor smooth_l1_loss(const Tensor& x, const Tensor& y, Reduction reduction = Reduction::mean,
                      double beta = 1, Loc loc = Loc::current());
/// (x - y)^2 / 2 where |x - y| <= delta, else delta (|x - y| - delta / 2). Shapes: as smooth_l1_loss.
/// Throws: invalid, unless delta > 0. Source: Huber 1964.
Tensor huber_loss(const Tensor& x, const Tensor& y, Reduction reduction = Reduction::mean, double delta = 1,
                  Loc loc = Loc::current());
/// -w (y log(x) + (1 - y) log(1 - x)), the logarithms limited to -100 from below. Shapes: y like x, weight
/// broadcasts to x -> [], or for Reduction::none as x. Throws: invalid, on an x outside 0 to 1 (inside a
/// compiled callable when the stage has run), and under autocast.
Tensor binary_cross_entropy(const Tensor& x, const Tensor& y, const Tensor& weight = {},
                            Reduction reduction = Reduction::mean, Loc loc = Loc::current());
/// binary_cross_entropy of sigmoid(x), without overflow; pos_weight multiplies the terms of y. Shapes: y
/// like x, both weights broadcast to x -> [], or for Reduction::none as x.
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& y, const Tensor& weight = {},
                                        const Tensor& pos_weight = {}, Reduction reduction = Reduction::mean,
                                        Loc loc = Loc::current());
enum class KlReduction : uint8_t { none, mean, sum, batchmean };
/// y (log(y) - x) of log-probabilities x and probabilities y, or log-probabilities if `log_target`.
/// batchmean: the sum over the size of dim 0. Shapes: x and y broadcast -> [], or for KlReduction::none as
/// broadcast.
Tensor kl_div(const Tensor& x, const Tensor& y, KlReduction reduction = KlReduction::mean,
              bool log_target = false, Loc loc = Loc::current());

// Of elements. Shapes: x and y broadcast -> [], or for Reduction::none as broadcast.
/// exp(x) - y x, or x - y log(x + eps) unless `log_input`; `full` adds Stirling's y log(y) - y + log(2 pi
/// y) / 2 where y > 1.
Tensor poisson_nll_loss(const Tensor& x, const Tensor& y, bool log_input = true, bool full = false,
                        double eps = 1e-8, Reduction reduction = Reduction::mean, Loc loc = Loc::current());
/// (log(v) + (x - y)^2 / v) / 2 with v = max(var, eps), which is not differentiated; `full` adds log(2 pi)
/// / 2. Shapes: y broadcasts to x; var like x, or without its last dim or with 1 there -> [], or for
/// Reduction::none as x. Throws: invalid, unless eps > 0, and on a negative var (inside a compiled callable
/// when the stage has run).
Tensor gaussian_nll_loss(const Tensor& x, const Tensor& y, const Tensor& var, bool full = false,
                         double eps = 1e-6, Reduction reduction = Reduction::mean, Loc loc = Loc::current());
/// log(1 + exp(-y x)), y 1 or -1. Shapes: y like x -> [], or for Reduction::none as x.
Tensor soft_margin_loss(const Tensor& x, const Tensor& y, Reduction reduction = Reduction::mean,
                        Loc loc = Loc::current());
/// max(0, margin - y (x1 - x2)), y 1 or -1. Shapes: x1, x2 and y alike -> [], or for Reduction::none as x1.
Tensor margin_ranking_loss(const Tensor& x1, const Tensor& x2, const Tensor& y, double margin = 0,
                           Reduction reduction = Reduction::mean, Loc loc = Loc::current());
/// x where y is 1, max(0, margin - x) where it is -1.
Tensor hinge_embedding_loss(const Tensor& x, const Tensor& y, double margin = 1,
                            Reduction reduction = Reduction::mean, Loc loc = Loc::current());

/// 1 - cos(x1, x2) where y is 1, max(0, cos(x1, x2) - margin) where it is -1. Shapes: x1 and x2 [n, d] with
/// y [n], or [d] with [] -> [], or for Reduction::none as y.
Tensor cosine_embedding_loss(const Tensor& x1, const Tensor& x2, const Tensor& y, double margin = 0,
                             Reduction reduction = Reduction::mean, Loc loc = Loc::current());

struct TripletOptions {
  double margin = 1;
  double p = 2;       ///< order of the distances
  double eps = 1e-6;  ///< added to differences
  bool swap = false;  ///< the negative's distance is the smaller of those to the anchor and to the positive
  Reduction reduction = Reduction::mean;
};
/// max(0, margin + d(anchor, positive) - d(anchor, negative)), d the distance of order p. Shapes: [..., d]
/// each, which broadcast -> [], or for Reduction::none [...]. Throws: invalid, unless margin > 0. Source:
/// Balntas et al. 2016.
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletOptions& options = {}, Loc loc = Loc::current());
/// A distance between rows: [n, d] twice -> [n].
using DistanceFunction = std::function<Tensor(const Tensor&, const Tensor&)>;
struct TripletDistanceOptions {
  double margin = 1;
  bool swap = false;
  Reduction reduction = Reduction::mean;
};
/// triplet_margin_loss with another distance; pairwise_distance when empty. Shapes: what `distance` takes;
/// its results broadcast -> [], or for Reduction::none as broadcast. Throws: invalid, unless margin > 0.
Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                                         const DistanceFunction& distance = {},
                                         const TripletDistanceOptions& options = {},
                                         Loc loc = Loc::current());
/// Mean over the c classes of binary_cross_entropy_with_logits. Shapes: x and y [..., c], weight broadcasts
/// to x -> [], or for Reduction::none [...].
Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& y, const Tensor& weight = {},
                                   Reduction reduction = Reduction::mean, Loc loc = Loc::current());
/// Sum over classes i but the target t of weight[t] max(0, margin - x[t] + x[i])^p / c.
/// Shapes: x [n, c] with targets [n], or [c] with []; weight [c] -> [], or for Reduction::none as targets.
/// Throws: invalid, unless p is 1 or 2 and targets are integers, and on a target out of range (inside a
/// compiled callable when the stage has run).
Tensor multi_margin_loss(const Tensor& x, const Tensor& target, int64_t p = 1, double margin = 1,
                         const Tensor& weight = {}, Reduction reduction = Reduction::mean,
                         Loc loc = Loc::current());
/// Sum over targets j and classes i that are none of max(0, 1 - x[j] + x[i]) / c. A row's targets end
/// before its first negative one. Shapes: x and targets [n, c] or [c] -> [], or for Reduction::none [n] or
/// []. Throws: invalid, on targets as multi_margin_loss.
Tensor multilabel_margin_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean,
                              Loc loc = Loc::current());

/// -log of the probability that the targets are what the times' classes leave when repeats are joined and
/// blanks dropped; infinite where there is no such path, or 0 if `zero_infinity`. The mean is of losses
/// over their target's length. Unrolled over times: a compiled callable grows with t. Shapes: log_probs [t,
/// n, c], targets [n, s] (what is beyond a length is not read, but is a class), lengths [n]; or [t, c],
/// [s], [] and [] -> [], or for Reduction::none as lengths. Throws: invalid, on a blank, targets and
/// lengths out of range (the last two inside a compiled callable when the stage has run). Source: Graves et
/// al. 2006.
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, int64_t blank = 0, Reduction reduction = Reduction::mean,
                bool zero_infinity = false, Loc loc = Loc::current());

}  // namespace kiln
