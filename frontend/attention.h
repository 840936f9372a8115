// SPDX-License-Identifier: Apache-2.0
// Attention of several heads with its projections. Names, arguments and numerics are those of
// torch.nn.functional; scaled_dot_product_attention is in functional.h.
#pragma once

#include "frontend/ops.h"

namespace kiln {

struct MultiheadAttentionWeights {
  Tensor in_proj_weight;  ///< [3 e, e] of queries, keys and values, or, where that is undefined, ...
  Tensor q_proj_weight, k_proj_weight, v_proj_weight;  ///< ... [e, e], [e, kdim], [e, vdim]
  Tensor in_proj_bias;                                 ///< [3 e] or undefined
  Tensor bias_k, bias_v;                               ///< [1, 1, e], one more key and value, or undefined
  Tensor out_proj_weight, out_proj_bias;               ///< [e, e], [e] or undefined
};
struct MultiheadAttentionOptions {
  bool add_zero_attn = false;  ///< one more key and value of zeros
  double dropout_p = 0;        ///< of the attention weights, while training
  bool training = true;
  Tensor key_padding_mask = {};  ///< [n, s]: bool (true: not attended to), or added to the scores
  /// [l, s] or [n * heads, l, s]: bool (true: not attended to), or added to the scores.
  Tensor attn_mask = {};
  bool need_weights = true;
  bool average_attn_weights = true;  ///< over the heads
  bool is_causal = false;            ///< a query attends to no later key
};
struct MultiheadAttentionResult {
  Tensor output;
  Tensor weights;  ///< [n, l, s], or [n, heads, l, s] of every head; undefined unless needed
};
/// Heads of size e / num_heads attend each by itself: softmax(q k^T / sqrt(size) + masks) v, joined and
/// projected. A query that may attend to nothing gets zeros, or NaN where weights are needed, as in
/// PyTorch. Shapes: query [l, n, e], key [s, n, kdim], value [s, n, vdim], or all three (and the masks)
/// without n -> output like the query. Throws: invalid, on shapes, dtypes that differ or are not floating,
/// a width that does not divide into heads, one of bias_k and bias_v alone, and unless 0 <= dropout_p <= 1.
/// Source: Vaswani et al. 2017.
MultiheadAttentionResult multi_head_attention_forward(const Tensor& query, const Tensor& key,
                                                      const Tensor& value, int64_t num_heads,
                                                      const MultiheadAttentionWeights& weights,
                                                      const MultiheadAttentionOptions& options = {},
                                                      Loc loc = Loc::current());

}  // namespace kiln
