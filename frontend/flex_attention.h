// SPDX-License-Identifier: Apache-2.0
// Attention whose scores are changed by a function of the user's. Names, arguments and numerics are those of
// torch.nn.attention.flex_attention.
#pragma once

#include <functional>
#include <optional>

#include "frontend/tensor.h"

namespace kiln {

/// A score from the score [n, h, t, s] and the numbers of its sample [n, 1, 1, 1], head [1, h, 1, 1], query
/// [1, 1, t, 1] and key [1, 1, 1, s], i64; the result has the score's shape and dtype. Differentiated, also
/// by tensors that the function captures.
using ScoreMod = std::function<Tensor(const Tensor& score, const Tensor& b, const Tensor& h,
                                      const Tensor& q_idx, const Tensor& kv_idx)>;
/// Whether a query attends to a key: bool, of a shape that broadcasts to [n, h, t, s].
using MaskMod =
    std::function<Tensor(const Tensor& b, const Tensor& h, const Tensor& q_idx, const Tensor& kv_idx)>;

struct FlexAttentionOptions {
  ScoreMod score_mod = {};      ///< of q k^T * scale; none: as it is
  MaskMod mask_mod = {};        ///< none: all to all. What it hides is not attended to
  std::optional<double> scale;  ///< 1/sqrt(d) when absent
  bool enable_gqa = false;      ///< key and value have fewer heads, each shared by a group of query heads
};
/// softmax(score_mod(q k^T * scale) where mask_mod) v; a query that may attend to nothing gets zeros.
/// Compiled on a CPU, large scores are never in memory, forward or backward (docs/ARCHITECTURE.md),
/// unless a tensor that a function captures needs a gradient that sums over samples; what causal masks and
/// windows hide, masks that compare q_idx and kv_idx alone, is not computed. Shapes: q [n, h, t, d], k
/// [n, h, s, d], v [n, h, s, e] -> [n, h, t, e]. Throws: invalid, on shapes, on dtypes that differ or are not
/// floating, on heads that do not divide, and on a result of score_mod or mask_mod of another shape or dtype.
/// Source: torch.nn.attention.flex_attention.flex_attention; Dong et al. 2024.
Tensor flex_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                      const FlexAttentionOptions& options = {}, Loc loc = Loc::current());

}  // namespace kiln
