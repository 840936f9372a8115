// SPDX-License-Identifier: Apache-2.0
// An example of each op on the lists of autocast, and of some on none.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "frontend/activation.h"
#include "frontend/attention.h"
#include "frontend/conv.h"
#include "frontend/elementwise.h"
#include "frontend/functional.h"
#include "frontend/linalg.h"
#include "frontend/losses.h"
#include "frontend/norm.h"
#include "frontend/ops_index.h"
#include "frontend/ops_sort.h"
#include "frontend/reductions.h"
#include "frontend/rnn.h"
#include "frontend/vision.h"

namespace kiln::testing {

struct OpCase {
  std::string_view name;
  std::function<Tensor(const Tensor&, const Tensor&)> run;  ///< on two square matrices of even size
};
using Ops = std::vector<OpCase>;

inline Tensor images(const Tensor& x) { return x.reshape({1, x.size(0), x.size(1)}); }
inline Tensor row(const Tensor& x) { return select(x, 0, 0); }
inline Tensor classes(const Tensor& x) { return arange(x.size(0)); }
/// Between 0 and 1.
inline Tensor inside(const Tensor& x) { return sigmoid(x); }
/// As a kernel of one element in each dim of space.
inline Tensor kernel(const Tensor& y, int64_t dims) {
  Sizes s = y.sizes();
  s.resize(static_cast<size_t>(dims) + 2, 1);
  return y.reshape(s);
}
inline Tensor space(const Tensor& x, int64_t dims) {
  Sizes s(static_cast<size_t>(dims) + 2, 1);
  s[1] = x.size(0);
  s.back() = x.size(1);
  return x.reshape(s);
}
/// The weights of `n` gates.
inline Tensor gates(const Tensor& y, size_t n) { return cat(std::vector<Tensor>(n, y)); }
inline const RecurrentOptions kNoBias{.bias = false};

/// A function of x alone.
inline OpCase of_x(std::string_view name, std::function<Tensor(const Tensor&)> f) {
  return {name, [f](const Tensor& x, const Tensor&) { return f(x); }};
}

inline const Ops& lower_ops() {
  using T = const Tensor&;
  static const auto* const ops = new Ops{
      {"matmul", [](T x, T y) { return matmul(x, y); }},
      {"linear", [](T x, T y) { return linear(x, y, row(y)); }},
      {"mm", [](T x, T y) { return mm(x, y); }},
      {"bmm", [](T x, T y) { return bmm(images(x), images(y)); }},
      {"mv", [](T x, T y) { return mv(x, row(y)); }},
      {"addmm", [](T x, T y) { return addmm(y, x, y); }},
      {"addmv", [](T x, T y) { return addmv(row(y), x, row(y)); }},
      {"addr", [](T x, T y) { return addr(x, row(x), row(y)); }},
      {"addbmm", [](T x, T y) { return addbmm(y, images(x), images(y)); }},
      {"baddbmm", [](T x, T y) { return baddbmm(images(y), images(x), images(y)); }},
      {"einsum",
       [](T x, T y) {
         return einsum("ij,jk->ik", {x, y});
       }},
      {"conv1d", [](T x, T y) { return conv1d(space(x, 1), kernel(y, 1)); }},
      {"conv2d", [](T x, T y) { return conv2d(space(x, 2), kernel(y, 2)); }},
      {"conv3d", [](T x, T y) { return conv3d(space(x, 3), kernel(y, 3)); }},
      {"conv_transpose1d", [](T x, T y) { return conv_transpose1d(space(x, 1), kernel(y, 1)); }},
      {"conv_transpose2d", [](T x, T y) { return conv_transpose2d(space(x, 2), kernel(y, 2)); }},
      {"conv_transpose3d", [](T x, T y) { return conv_transpose3d(space(x, 3), kernel(y, 3)); }},
      {"prelu", [](T x, T y) { return prelu(x, row(y)); }},
      {"attention", [](T x, T y) { return scaled_dot_product_attention(x, y, y); }},
      {"rnn_tanh",
       [](T x, T y) {
         return rnn_tanh(images(x), {}, {y, y}, kNoBias).output;
       }},
      {"rnn_relu",
       [](T x, T y) {
         return rnn_relu(images(x), {}, {y, y}, kNoBias).output;
       }},
      {"gru",
       [](T x, T y) {
         return gru(images(x), {}, {gates(y, 3), gates(y, 3)}, kNoBias).output;
       }},
      {"lstm",
       [](T x, T y) {
         return lstm(images(x), {}, {gates(y, 4), gates(y, 4)}, kNoBias).output;
       }},
      {"rnn_tanh_cell", [](T x, T y) { return rnn_tanh_cell(x, y, y, y, row(y), row(y)); }},
      {"rnn_relu_cell", [](T x, T y) { return rnn_relu_cell(x, y, y, y, row(y), row(y)); }},
      {"gru_cell", [](T x, T y) { return gru_cell(x, y, gates(y, 3), gates(y, 3)); }},
      {"lstm_cell",
       [](T x, T y) {
         return lstm_cell(x, {y, y}, gates(y, 4), gates(y, 4)).h;
       }},
      {"multi_head_attention_forward",
       [](T x, T y) {
         const Tensor q = unsqueeze(x, 1), w = cat({y, y, y});
         return multi_head_attention_forward(q, q, q, 2, {.in_proj_weight = w, .out_proj_weight = y}, {})
             .output;
       }},
  };
  return *ops;
}
inline const Ops& f32_ops() {
  using T = const Tensor&;
  static const auto* const ops = new Ops{
      of_x("acos", [](T x) { return acos(x * 0.125F); }),
      of_x("asin", [](T x) { return asin(x * 0.125F); }),
      of_x("cosh", [](T x) { return cosh(x); }),
      of_x("erfinv", [](T x) { return erfinv(x * 0.125F); }),
      of_x("exp", [](T x) { return exp(x); }),
      of_x("expm1", [](T x) { return expm1(x); }),
      of_x("log", [](T x) { return log(abs(x)); }),
      of_x("log10", [](T x) { return log10(abs(x)); }),
      of_x("log2", [](T x) { return log2(abs(x)); }),
      of_x("log1p", [](T x) { return log1p(abs(x)); }),
      of_x("reciprocal", [](T x) { return reciprocal(x); }),
      of_x("rsqrt", [](T x) { return rsqrt(abs(x)); }),
      of_x("sinh", [](T x) { return sinh(x); }),
      of_x("tan", [](T x) { return tan(x); }),
      of_x("pow", [](T x) { return pow(abs(x), 1.5); }),
      of_x("rdiv", [](T x) { return 2 / x; }),
      of_x("square", [](T x) { return square(x); }),
      of_x("gumbel_softmax", [](T x) { return manual_seed(1), gumbel_softmax(x); }),
      of_x("local_response_norm", [](T x) { return local_response_norm(unsqueeze(x, 0), 2); }),
      of_x("softplus", [](T x) { return softplus(x); }),
      {"layer_norm", [](T x, T y) { return layer_norm(x, {x.size(1)}, row(y)); }},
      {"rms_norm", [](T x, T y) { return rms_norm(x, {x.size(1)}, row(y)); }},
      {"group_norm", [](T x, T y) { return group_norm(x, 2, row(y)); }},
      {"cosine_similarity", [](T x, T y) { return cosine_similarity(x, y); }},
      {"poisson_nll_loss", [](T x, T y) { return poisson_nll_loss(x, y); }},
      {"gaussian_nll_loss", [](T x, T y) { return gaussian_nll_loss(x, y, abs(y)); }},
      {"cosine_embedding_loss", [](T x, T y) { return cosine_embedding_loss(x, y, ones({x.size(0)})); }},
      of_x("nll_loss", [](T x) { return nll_loss(x, classes(x)); }),
      of_x("cross_entropy", [](T x) { return cross_entropy(x, classes(x)); }),
      {"hinge_embedding_loss", [](T x, T y) { return hinge_embedding_loss(x, y); }},
      {"kl_div", [](T x, T y) { return kl_div(x, inside(y)); }},
      {"l1_loss", [](T x, T y) { return l1_loss(x, y); }},
      {"smooth_l1_loss", [](T x, T y) { return smooth_l1_loss(x, y); }},
      {"huber_loss", [](T x, T y) { return huber_loss(x, y); }},
      {"mse_loss", [](T x, T y) { return mse_loss(x, y); }},
      {"margin_ranking_loss", [](T x, T y) { return margin_ranking_loss(x, y, ones(x.sizes())); }},
      of_x("multilabel_margin_loss", [](T x) { return multilabel_margin_loss(x, to(x * 0, DType::i64)); }),
      {"multilabel_soft_margin_loss", [](T x, T y) { return multilabel_soft_margin_loss(x, inside(y)); }},
      {"soft_margin_loss", [](T x, T y) { return soft_margin_loss(x, y); }},
      {"triplet_margin_loss", [](T x, T y) { return triplet_margin_loss(x, y, x * y, {.swap = true}); }},
      of_x("multi_margin_loss", [](T x) { return multi_margin_loss(x, classes(x)); }),
      {"binary_cross_entropy_with_logits",
       [](T x, T y) { return binary_cross_entropy_with_logits(x, inside(y)); }},
      {"cdist", [](T x, T y) { return cdist(x, y, 3); }},
      of_x("logsumexp", [](T x) { return logsumexp(x, {1}); }),
      of_x("interpolate", [](T x) { return interpolate(images(x), {.size = {3}}); }),
      of_x("prod", [](T x) { return prod(x, {1}); }),
      of_x("sum", [](T x) { return sum(x, {1}); }),
      of_x("cumprod", [](T x) { return cumprod(x, 1); }),
      of_x("cumsum", [](T x) { return cumsum(x, 1); }),
      of_x("softmax", [](T x) { return softmax(x, 1); }),
      of_x("log_softmax", [](T x) { return log_softmax(x, 1); }),
      of_x("vector_norm", [](T x) { return vector_norm(x, 3, {1}); }),
      of_x("matrix_norm", [](T x) { return matrix_norm(x, 1); }),
  };
  return *ops;
}
inline const Ops& free_ops() {  // on no list: what their operands are
  using T = const Tensor&;
  static const auto* const ops = new Ops{
      of_x("add", [](T x) { return x + x; }),
      of_x("relu", [](T x) { return relu(x); }),
      of_x("gelu", [](T x) { return gelu(x); }),
      of_x("tanh", [](T x) { return tanh(x); }),
      of_x("sqrt", [](T x) { return sqrt(abs(x)); }),
      of_x("mean", [](T x) { return mean(x); }),
      of_x("amax", [](T x) { return amax(x, {1}); }),
      of_x("logcumsumexp", [](T x) { return logcumsumexp(x, 1); }),
      of_x("area", [](T x) { return interpolate(images(x), {.size = {3}, .mode = InterpolateMode::area}); }),
      of_x("batch_norm", [](T x) { return batch_norm(x, {}, {}, {}, {}, {.training = true}); }),
      {"cat",
       [](T x, T y) {
         return cat({x, y}, 1);
       }},
      {"index_copy", [](T x, T y) { return index_copy(x, 0, arange(y.size(0)), y); }},
  };
  return *ops;
}
inline const Ops& widest_ops() {
  using T = const Tensor&;
  static const auto* const ops = new Ops{
      {"addcdiv", [](T x, T y) { return addcdiv(x, y, abs(y) + 1.0F); }},
      {"addcmul", [](T x, T y) { return addcmul(x, y, y); }},
      {"atan2", [](T x, T y) { return atan2(x, y); }},
      {"bilinear", [](T x, T y) { return bilinear(x, x, images(y)); }},
      {"dot", [](T x, T y) { return dot(row(x), row(y)); }},
      {"cross", [](T x, T y) { return cross(x.slice(1, 0, 3), y.slice(1, 0, 3)); }},
      {"tensordot", [](T x, T y) { return tensordot(x, y, 1); }},
      {"scatter_add", [](T x, T y) { return scatter_add(x, 0, zeros(y.sizes(), {.dtype = DType::i64}), y); }},
      {"index_put", [](T x, T y) { return index_put(x, {arange(y.size(0))}, y, true); }},
  };
  return *ops;
}

}  // namespace kiln::testing
