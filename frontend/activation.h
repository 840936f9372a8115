// SPDX-License-Identifier: Apache-2.0
// Activations beside those of functional.h. Names, defaults and numerics, at kinks too, of
// torch.nn.functional; numbers are run-time values of a compiled callable. Throws: invalid, on operands
// that are not floating (where a dtype is given: on such a dtype).
#pragma once

#include "frontend/functional.h"

namespace kiln {

// Elementwise. Shapes: x [...] -> [...].
/// x limited to [lo, hi]; no gradient at the ends. Throws: invalid, when lo > hi.
Tensor hardtanh(const Tensor& x, double lo = -1, double hi = 1, Loc loc = Loc::current());
/// min(max(x, 0), 6).
Tensor relu6(const Tensor& x, Loc loc = Loc::current());
/// relu6(x + 3) / 6.
Tensor hardsigmoid(const Tensor& x, Loc loc = Loc::current());
/// x relu6(x + 3) / 6. Source: Howard et al. 2019.
Tensor hardswish(const Tensor& x, Loc loc = Loc::current());
/// x where |x| > lambda, else 0.
Tensor hardshrink(const Tensor& x, double lambda = 0.5, Loc loc = Loc::current());
/// x moved towards 0 by lambda, at most to it. Throws: invalid, when lambda < 0.
Tensor softshrink(const Tensor& x, double lambda = 0.5, Loc loc = Loc::current());
/// x - tanh(x).
Tensor tanhshrink(const Tensor& x, Loc loc = Loc::current());
/// x / (1 + |x|).
Tensor softsign(const Tensor& x, Loc loc = Loc::current());
/// x where x > 0, else alpha (exp(x) - 1). Source: Clevert et al. 2015.
Tensor elu(const Tensor& x, double alpha = 1, Loc loc = Loc::current());
/// x where x > 0, else alpha (exp(x / alpha) - 1). Throws: invalid, when alpha is 0. Source: Barron 2017.
Tensor celu(const Tensor& x, double alpha = 1, Loc loc = Loc::current());
/// 1.0507 x where x > 0, else 1.7581 (exp(x) - 1): elu with alpha 1.6733, times 1.0507. Source: Klambauer
/// et al. 2017.
Tensor selu(const Tensor& x, Loc loc = Loc::current());
/// x tanh(softplus(x)). Source: Misra 2019.
Tensor mish(const Tensor& x, Loc loc = Loc::current());
/// log(sigmoid(x)) without overflow.
Tensor logsigmoid(const Tensor& x, Loc loc = Loc::current());
/// leaky_relu with a slope drawn from [lower, upper) for each element while training, else their mean.
/// Throws: invalid, when lower > upper.
Tensor rrelu(const Tensor& x, double lower = 1.0 / 8, double upper = 1.0 / 3, bool training = false,
             Loc loc = Loc::current());
/// x where x > limit, else value.
Tensor threshold(const Tensor& x, double limit, double value, Loc loc = Loc::current());
/// x where x > 0, else weight * x. Shapes: x [...], weight [1]; or x [n, c, ...], weight [c] -> as x.
/// Throws: invalid, on other shapes, and on different dtypes.
Tensor prelu(const Tensor& x, const Tensor& weight, Loc loc = Loc::current());

/// The first half of `dim` times the sigmoid of the second. Shapes: [.., 2 n, ..] -> [.., n, ..]. Throws:
/// invalid, when the size is odd.
Tensor glu(const Tensor& x, int64_t dim = -1, Loc loc = Loc::current());

// Along a dim. Shapes: x [...] -> [...].
/// softmax of -x.
Tensor softmin(const Tensor& x, int64_t dim, Loc loc = Loc::current());
/// softmax of x cast to `dtype` first.
Tensor softmax(const Tensor& x, int64_t dim, DType dtype, Loc loc = Loc::current());
/// log_softmax of x cast to `dtype` first.
Tensor log_softmax(const Tensor& x, int64_t dim, DType dtype, Loc loc = Loc::current());
/// x / max(norm of order p along dim, eps).
Tensor normalize(const Tensor& x, double p = 2, int64_t dim = 1, double eps = 1e-12,
                 Loc loc = Loc::current());

// Of pairs of vectors. Shapes: x and y broadcast -> without `dim` (the last one; kept as 1 with keepdim).
/// Cosine of the angle between vectors along `dim`; norms count as eps at least.
Tensor cosine_similarity(const Tensor& x, const Tensor& y, int64_t dim = 1, double eps = 1e-8,
                         Loc loc = Loc::current());
/// Norm of order p of x - y + eps over the last dim.
Tensor pairwise_distance(const Tensor& x, const Tensor& y, double p = 2, double eps = 1e-6,
                         bool keepdim = false, Loc loc = Loc::current());

}  // namespace kiln
