// SPDX-License-Identifier: Apache-2.0
// Composites: activations, normalisation, attention, losses. Each is written in primitives, so that it
// differentiates, fuses and prints by itself. Names and numerics of torch.nn.functional.
#pragma once

#include <optional>

#include "frontend/ops.h"

namespace kiln {

enum class Reduction : uint8_t { none, mean, sum };
enum class GeluApproximate : uint8_t { none, tanh };

Tensor relu(const Tensor& x, Loc loc = Loc::current());
/// x * Phi(x), exact by erf or PyTorch's tanh form. Source: Hendrycks & Gimpel 2016.
Tensor gelu(const Tensor& x, GeluApproximate approximate = GeluApproximate::none, Loc loc = Loc::current());
Tensor silu(const Tensor& x, Loc loc = Loc::current());
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01, Loc loc = Loc::current());
/// log(1 + exp(beta x)) / beta, linear above threshold.
Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20, Loc loc = Loc::current());

Tensor softmax(const Tensor& x, int64_t dim, Loc loc = Loc::current());
Tensor log_softmax(const Tensor& x, int64_t dim, Loc loc = Loc::current());

/// Over the last dims of the shape of `weight` (or `normalized_shape`). Source: Ba et al. 2016.
Tensor layer_norm(const Tensor& x, Sizes normalized_shape, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5, Loc loc = Loc::current());
/// x / sqrt(mean of x^2 + eps) over the last dims; eps is the dtype's epsilon if absent.
/// Source: Zhang & Sennrich 2019.
Tensor rms_norm(const Tensor& x, Sizes normalized_shape, const Tensor& weight = {},
                std::optional<double> eps = {}, Loc loc = Loc::current());

/// x W^T + b. Shapes: x [..., in], weight [out, in], bias [out].
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Loc loc = Loc::current());
/// Rows of `weight` by index. Row `padding_idx` (negative: from the end) gets no gradient. Shapes: ids [...],
/// weight [n, d] -> [..., d]. Throws: invalid, on an index out of range.
Tensor embedding(const Tensor& ids, const Tensor& weight, std::optional<int64_t> padding_idx = {},
                 Loc loc = Loc::current());
/// Zeroes elements with probability p and scales the rest by 1/(1-p), while training.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true, Loc loc = Loc::current());

struct AttentionOptions {
  double dropout_p = 0;
  bool is_causal = false;
  std::optional<double> scale;  ///< 1/sqrt(d) when absent
  bool enable_gqa = false;      ///< key and value have fewer heads, each shared by a group of query heads
};
/// softmax(q k^T * scale + mask) v; rows that a mask hides entirely give zeros.
/// Shapes: q [..., t, d], k [..., s, d], v [..., s, e] -> [..., t, e]; mask [..., t, s], bool (true: attend)
/// or added.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const Tensor& mask = {}, const AttentionOptions& options = {},
                                    Loc loc = Loc::current());

struct CrossEntropyOptions {
  Reduction reduction = Reduction::mean;
  int64_t ignore_index = -100;
  double label_smoothing = 0;
};
/// Shapes: logits [n, c] or [n, c, ...] with class indices [n] or [n, ...] (i64), or probabilities like the
/// logits; [c] with a 0-d target. `weight` [c] rescales classes. Throws: invalid, on shapes or (eagerly) a
/// target out of range.
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const Tensor& weight = {},
                     const CrossEntropyOptions& options = {}, Loc loc = Loc::current());
/// Like cross_entropy over log-probabilities.
Tensor nll_loss(const Tensor& log_probs, const Tensor& target, const Tensor& weight = {},
                const CrossEntropyOptions& options = {}, Loc loc = Loc::current());
Tensor mse_loss(const Tensor& x, const Tensor& y, Reduction reduction = Reduction::mean,
                Loc loc = Loc::current());
Tensor l1_loss(const Tensor& x, const Tensor& y, Reduction reduction = Reduction::mean,
               Loc loc = Loc::current());

}  // namespace kiln
