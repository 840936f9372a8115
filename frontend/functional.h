// SPDX-License-Identifier: Apache-2.0
// Composites: activations, normalisation, attention, losses. Each is written in primitives, so that it
// differentiates, fuses and prints by itself. Names and numerics of torch.nn.functional.
#pragma once

#include <optional>

#include "frontend/ops.h"

namespace kiln {

enum class Reduction : uint8_t { none, mean, sum };
enum class GeluApproximate : uint8_t { none, tanh };

// Activations. Shapes: x [...] -> [...]. Throws: invalid, on a dtype that is not floating.
/// max(x, 0); NaN stays, and no gradient at 0.
Tensor relu(const Tensor& x, Loc loc = Loc::current());
/// x * Phi(x), exact by erf or PyTorch's tanh form. Source: Hendrycks & Gimpel 2016.
Tensor gelu(const Tensor& x, GeluApproximate approximate = GeluApproximate::none, Loc loc = Loc::current());
/// x * sigmoid(x).
Tensor silu(const Tensor& x, Loc loc = Loc::current());
/// x where x > 0, else negative_slope * x.
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01, Loc loc = Loc::current());
/// log(1 + exp(beta x)) / beta; x where beta x > threshold.
Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20, Loc loc = Loc::current());
/// exp(x) / sum of exp(x) along `dim`, without overflow.
Tensor softmax(const Tensor& x, int64_t dim, Loc loc = Loc::current());
/// x - log(sum of exp(x)) along `dim`, without overflow.
Tensor log_softmax(const Tensor& x, int64_t dim, Loc loc = Loc::current());

// Normalisation. Shapes: x [..., normalized_shape] -> same; weight and bias [normalized_shape] or
// undefined. Throws: invalid, unless x is floating and its last dims, weight and bias have that shape.
/// (x - mean) / sqrt(variance + eps) weight + bias, over the last dims. Source: Ba et al. 2016.
Tensor layer_norm(const Tensor& x, Sizes normalized_shape, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5, Loc loc = Loc::current());
/// x / sqrt(mean of x^2 + eps) weight over the last dims; eps is the dtype's epsilon if absent.
/// Source: Zhang & Sennrich 2019.
Tensor rms_norm(const Tensor& x, Sizes normalized_shape, const Tensor& weight = {},
                std::optional<double> eps = {}, Loc loc = Loc::current());

/// x W^T + b. Shapes: x [..., in], weight [out, in], bias [out] -> [..., out]; weight [in] with bias [] ->
/// [...]. Throws: invalid, on other shapes, bool, and different dtypes.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Loc loc = Loc::current());
/// Rows of `weight` by index. Row `padding_idx` (negative: from the end) gets no gradient. Shapes: ids
/// [...], weight [n, d] -> [..., d]. Throws: invalid, unless ids are i64 or i32, on a padding_idx that is
/// no row, and on an index out of range (inside a compiled callable when the stage has run).
Tensor embedding(const Tensor& ids, const Tensor& weight, std::optional<int64_t> padding_idx = {},
                 Loc loc = Loc::current());
/// Zeroes elements with probability p and scales the rest by 1 / (1 - p), while training. Shapes: x [...]
/// -> [...]. Throws: invalid, on a dtype that is not floating, and unless 0 <= p <= 1.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true, Loc loc = Loc::current());

struct AttentionOptions {
  double dropout_p = 0;
  bool is_causal = false;
  std::optional<double> scale;  ///< 1/sqrt(d) when absent
  bool enable_gqa = false;      ///< key and value have fewer heads, each shared by a group of query heads
};
/// softmax(q k^T * scale + mask) v; rows that a mask hides entirely give zeros. Shapes: q [..., t, d], k
/// [..., s, d], v [..., s, e] -> [..., t, e]; mask broadcasts to [..., t, s]: bool (true: attend) or added.
/// What is_causal hides need not be computed: a NaN or infinity there may show, as 0 times it, or not.
/// Throws: invalid, on shapes, dtypes that differ or are not floating, heads that do not divide, a mask
/// beside is_causal, and unless 0 <= dropout_p <= 1.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const Tensor& mask = {}, const AttentionOptions& options = {},
                                    Loc loc = Loc::current());

struct CrossEntropyOptions {
  Reduction reduction = Reduction::mean;
  int64_t ignore_index = -100;
  double label_smoothing = 0;
};
/// -weight[t] log_softmax(logits)[t] for the class t of each target; for targets of probabilities q the sum
/// over classes of -weight q log_softmax(logits). With smoothing s a target counts as (1 - s) target + s /
/// c. mean divides by the targets' weights (by their number for probabilities); ignore_index counts as 0.
/// Shapes: logits [n, c] or [n, c, ...] with class indices [n] or [n, ...], or probabilities like the
/// logits; [c] with a 0-d target; weight [c] -> [], or for Reduction::none as class indices. Throws:
/// invalid, on shapes, logits that are not floating, a smoothing outside 0 to 1, and a class out of range
/// (inside a compiled callable when the stage has run).
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const Tensor& weight = {},
                     const CrossEntropyOptions& options = {}, Loc loc = Loc::current());
/// As cross_entropy, of log-probabilities in place of logits: -weight[t] log_probs[t]. Shapes: as
/// cross_entropy. Throws: invalid, as cross_entropy.
Tensor nll_loss(const Tensor& log_probs, const Tensor& target, const Tensor& weight = {},
                const CrossEntropyOptions& options = {}, Loc loc = Loc::current());

// Losses of pairs: of each element with Reduction::none, else their mean or sum. Shapes: x and y broadcast
// -> [], or for Reduction::none as broadcast. Throws: invalid, unless x is floating.
/// (x - y)^2.
Tensor mse_loss(const Tensor& x, const Tensor& y, Reduction reduction = Reduction::mean,
                Loc loc = Loc::current());
/// |x - y|.
Tensor l1_loss(const Tensor& x, const Tensor& y, Reduction reduction = Reduction::mean,
               Loc loc = Loc::current());

}  // namespace kiln
