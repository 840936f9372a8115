// SPDX-License-Identifier: Apache-2.0
// Random tensors and creation beside those of ops.h. Draws come from the default generator, each op with an
// offset of its own (see rand). Names and arguments are PyTorch's.
#pragma once

#include "frontend/ops.h"

namespace kiln {

// With the dtype and device of t. Shapes: as t.
/// `value` in every element. Throws: nothing else.
Tensor full_like(const Tensor& t, Scalar value, Loc loc = Loc::current());
/// 0 in every element. Throws: nothing else.
Tensor empty_like(const Tensor& t, Loc loc = Loc::current());
/// Uniform in [0, 1), or standard normal (randn_like). Throws: invalid, on a dtype that is not floating.
Tensor rand_like(const Tensor& t, Loc loc = Loc::current());
Tensor randn_like(const Tensor& t, Loc loc = Loc::current());

// Sequences. Throws: invalid, on a size below 0, and on requires_grad of a dtype that is not floating.
/// `steps` numbers from start to end, both included; f32 by default. Made from the nearer end in f64.
/// Shapes: [steps].
Tensor linspace(double start, double end, int64_t steps, TensorOptions options = {},
                Loc loc = Loc::current());
/// base^start to base^end, the exponents as of linspace. Shapes: [steps].
Tensor logspace(double start, double end, int64_t steps, double base = 10, TensorOptions options = {},
                Loc loc = Loc::current());
/// The numbers 0 to n - 1 in random order, i64 by default. Shapes: [n].
Tensor randperm(int64_t n, TensorOptions options = {}, Loc loc = Loc::current());
/// 1 on the diagonal, else 0. Shapes: [n, m]; m is n if absent.
Tensor eye(int64_t n, std::optional<int64_t> m = {}, TensorOptions options = {}, Loc loc = Loc::current());

/// 1 with the probability that stands in its place, else 0, in its dtype. No gradient. Shapes: p [...] ->
/// [...]. Throws: invalid, on a dtype that is not floating, and on probabilities outside 0 to 1 (inside a
/// compiled callable when the stage has run).
Tensor bernoulli(const Tensor& p, Loc loc = Loc::current());
/// 1 with probability p in each place of x, in its dtype. Throws: invalid, unless 0 <= p <= 1.
Tensor bernoulli(const Tensor& x, double p, Loc loc = Loc::current());
/// mean + deviation * a standard normal for each place. Shapes: the operands broadcast. Throws: invalid, on
/// two numbers, on dtypes that are not floating, and on a deviation below 0 (of a tensor inside a compiled
/// callable when the stage has run).
Tensor normal(const TensorArg& mean, const TensorArg& deviation);
/// The same of numbers. Shapes: [sizes]. Throws: invalid, on a negative size or deviation.
Tensor normal(double mean, double deviation, Sizes sizes, TensorOptions options = {},
              Loc loc = Loc::current());
/// Indices of rows of weights (not all zero, none negative), each drawn in proportion to its weight;
/// without replacement no index twice. Shapes: [n] -> [samples], [m, n] -> [m, samples], i64. Throws:
/// invalid, on shapes, more samples than n without replacement, and weights (the last inside a compiled
/// callable when the stage has run). Source: torch.multinomial; Gumbel's trick.
Tensor multinomial(const Tensor& weights, int64_t samples, bool replacement = false,
                   Loc loc = Loc::current());

/// softmax((logits + Gumbel noise) / tau) along dim; `hard`: 1 at the largest, 0 elsewhere, with the
/// gradient of the soft one. Shapes: x [...] -> [...]. Throws: invalid, on a dtype that is not floating.
/// Source: torch.nn.functional.gumbel_softmax; Jang et al. 2017.
Tensor gumbel_softmax(const Tensor& logits, double tau = 1, bool hard = false, int64_t dim = -1,
                      Loc loc = Loc::current());

// While training. Throws: invalid, on other ranks, a dtype that is not floating, and unless 0 <= p <= 1.
/// dropout of whole channels. Shapes: x [n, c, l] or [c, l] -> same. Source: torch.nn.functional.dropout1d.
Tensor dropout1d(const Tensor& x, double p = 0.5, bool training = true, Loc loc = Loc::current());
/// dropout of whole channels. Shapes: x [n, c, h, w] -> same; [n, c, l] is as of dropout1d, as in PyTorch.
/// Source: torch.nn.functional.dropout2d.
Tensor dropout2d(const Tensor& x, double p = 0.5, bool training = true, Loc loc = Loc::current());
/// dropout of whole channels. Shapes: x [n, c, d, h, w] or [c, d, h, w] -> same. Source:
/// torch.nn.functional.dropout3d.
Tensor dropout3d(const Tensor& x, double p = 0.5, bool training = true, Loc loc = Loc::current());
/// Elements become selu's lower limit with probability p, and all are scaled and shifted so that mean and
/// variance stay. Shapes: x [...] -> [...]. Source: torch.nn.functional.alpha_dropout; Klambauer et al.
/// 2017.
Tensor alpha_dropout(const Tensor& x, double p = 0.5, bool training = true, Loc loc = Loc::current());
/// alpha_dropout of whole channels (dim 1). Shapes: x [n, c, ...] -> same. Source:
/// torch.nn.functional.feature_alpha_dropout.
Tensor feature_alpha_dropout(const Tensor& x, double p = 0.5, bool training = true, Loc loc = Loc::current());

}  // namespace kiln
