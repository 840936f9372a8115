// SPDX-License-Identifier: Apache-2.0
// Random tensors and creation beside those of ops.h. Draws come from the default generator, each op with an
// offset of its own (see rand). Names and arguments are PyTorch's.
#pragma once

#include "frontend/ops.h"

namespace kiln {

Tensor full_like(const Tensor& t, Scalar value, Loc loc = Loc::current());
Tensor empty_like(const Tensor& t, Loc loc = Loc::current());
/// Throws: invalid, on an integer dtype.
Tensor rand_like(const Tensor& t, Loc loc = Loc::current());
Tensor randn_like(const Tensor& t, Loc loc = Loc::current());
/// `steps` numbers from start to end, both included; f32 by default. Made from the nearer end in f64.
Tensor linspace(double start, double end, int64_t steps, TensorOptions options = {},
                Loc loc = Loc::current());
/// base^start to base^end, the exponents as of linspace.
Tensor logspace(double start, double end, int64_t steps, double base = 10, TensorOptions options = {},
                Loc loc = Loc::current());
/// Ones on the diagonal of [n, m]; m is n if absent.
Tensor eye(int64_t n, std::optional<int64_t> m = {}, TensorOptions options = {}, Loc loc = Loc::current());

/// 1 with the probability that stands in its place, else 0, in its dtype. No gradient.
/// Throws: invalid, on probabilities outside 0 to 1 (inside a compiled callable when the stage has run).
Tensor bernoulli(const Tensor& p, Loc loc = Loc::current());
/// 1 with probability p in each place of x.
Tensor bernoulli(const Tensor& x, double p, Loc loc = Loc::current());
/// mean + deviation * a standard normal for each place; the operands broadcast. Source: torch.normal.
Tensor normal(const TensorArg& mean, const TensorArg& deviation);
Tensor normal(double mean, double deviation, Sizes sizes, TensorOptions options = {},
              Loc loc = Loc::current());
/// Indices of rows of weights (not all zero, none negative), each drawn in proportion to its weight; without
/// replacement no index twice. Shapes: [n] -> [samples], [m, n] -> [m, samples], i64. Throws: invalid, on
/// shapes, weights, or more samples than n without replacement. Source: torch.multinomial; Gumbel's trick.
Tensor multinomial(const Tensor& weights, int64_t samples, bool replacement = false,
                   Loc loc = Loc::current());

/// The numbers 0 to n - 1 in random order, i64 by default.
Tensor randperm(int64_t n, TensorOptions options = {}, Loc loc = Loc::current());

/// softmax((logits + Gumbel noise) / tau) along dim; `hard`: 1 at the largest, 0 elsewhere, with the gradient
/// of the soft one. Source: torch.nn.functional.gumbel_softmax; Jang et al. 2017.
Tensor gumbel_softmax(const Tensor& logits, double tau = 1, bool hard = false, int64_t dim = -1,
                      Loc loc = Loc::current());

/// dropout of whole channels of [n, c, l] or [c, l].
Tensor dropout1d(const Tensor& x, double p = 0.5, bool training = true, Loc loc = Loc::current());
/// Of [n, c, h, w]; [n, c, l] is as of dropout1d, as in PyTorch.
Tensor dropout2d(const Tensor& x, double p = 0.5, bool training = true, Loc loc = Loc::current());
/// Of [n, c, d, h, w] or [c, d, h, w].
Tensor dropout3d(const Tensor& x, double p = 0.5, bool training = true, Loc loc = Loc::current());
/// Elements become selu's lower limit with probability p, and all are scaled and shifted so that mean and
/// variance stay. Source: Klambauer et al. 2017.
Tensor alpha_dropout(const Tensor& x, double p = 0.5, bool training = true, Loc loc = Loc::current());
/// The same for whole channels (dim 1).
Tensor feature_alpha_dropout(const Tensor& x, double p = 0.5, bool training = true, Loc loc = Loc::current());

}  // namespace kiln
