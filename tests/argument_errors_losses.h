// SPDX-License-Identifier: Apache-2.0
// Losses: arguments that they take, and what they refuse. See argument_errors_test.cpp.
#pragma once

#include "tests/argument_errors.h"

namespace kiln::testing {

inline Functions class_loss_functions() {
  const Tensor x = f32({2, 3}), n = i64({2}), y = f32({4}), wide = i64({2, 3});
  return {
      {"cross_entropy",
       {"logits", "target", "?weight"},
       {x, n, f32({3})},
       [](T t) { cross_entropy(t[0], t[1], t[2]); },
       {{0, wide}, {0, full({}, 1.0)}, {1, wide}, {2, y}}},
      {"nll_loss",
       {"log_probs", "target", "?weight"},
       {x, n, f32({3})},
       [](T t) { nll_loss(t[0], t[1], t[2]); },
       {{0, wide}, {0, full({}, 1.0)}, {1, wide}, {2, y}}},
      {"multi_margin_loss",
       {"x", "target", "?weight"},
       {x, n, f32({3})},
       [](T t) { multi_margin_loss(t[0], t[1], 1, 1, t[2]); },
       {{0, wide}, {0, f32({1, 2, 3})}, {1, f32({2})}, {2, y}}},
      {"multilabel_margin_loss",
       {"x", "target"},
       {x, wide},
       [](T t) { multilabel_margin_loss(t[0], t[1]); },
       {{0, wide}, {0, y}, {1, x}, {1, n}}},
      {"multilabel_soft_margin_loss",
       {"x", "y", "?weight"},
       {x, x, f32({3})},
       [](T t) { multilabel_soft_margin_loss(t[0], t[1], t[2]); },
       {{0, wide}, {0, y}, {1, y}, {2, y}}},
      {"ctc_loss",
       {"log_probs", "targets", "input_lengths", "target_lengths"},
       {f32({4, 2, 3}), ones({2, 2}, DType::i64), full({2}, 4), full({2}, 2)},
       [](T t) { ctc_loss(t[0], t[1], t[2], t[3]); },
       {{0, i64({4, 2, 3})},
        {0, y},
        {1, x},
        {1, n},
        {2, f32({2})},
        {2, i64({3})},
        {3, f32({2})},
        {3, i64({3})}}},
      {"cosine_embedding_loss",
       {"x1", "x2", "y"},
       {x, x, f32({2})},
       [](T t) { cosine_embedding_loss(t[0], t[1], t[2]); },
       {{0, wide}, {1, wide}, {0, y}, {1, y}, {2, x}}},
      {"triplet_margin_loss",
       {"anchor", "positive", "negative"},
       {x, x, x},
       [](T t) { triplet_margin_loss(t[0], t[1], t[2]); },
       {{0, wide}, {1, wide}, {2, wide}, {0, y}, {1, y}, {2, y}}},
      {"triplet_margin_with_distance_loss",
       {"anchor", "positive", "negative"},
       {x, x, x},
       [](T t) { triplet_margin_with_distance_loss(t[0], t[1], t[2]); },
       {{0, wide}, {1, wide}, {2, wide}, {0, y}, {1, y}, {2, y}}},
  };
}

inline Functions loss_functions() {
  const Tensor x = f32({2, 3}), y = f32({4}), n = i64({2, 3});
  const auto pair = [&](const char* name, std::function<void(const Tensors&)> call) {
    return Function{name, {"x", "y"}, {x, x}, std::move(call), {{0, n}, {0, y}, {1, y}}};
  };
  Functions all{
      pair("mse_loss", [](T t) { mse_loss(t[0], t[1]); }),
      pair("l1_loss", [](T t) { l1_loss(t[0], t[1]); }),
      pair("smooth_l1_loss", [](T t) { smooth_l1_loss(t[0], t[1]); }),
      pair("huber_loss", [](T t) { huber_loss(t[0], t[1]); }),
      pair("kl_div", [](T t) { kl_div(t[0], t[1]); }),
      pair("poisson_nll_loss", [](T t) { poisson_nll_loss(t[0], t[1]); }),
      pair("soft_margin_loss", [](T t) { soft_margin_loss(t[0], t[1]); }),
      pair("hinge_embedding_loss", [](T t) { hinge_embedding_loss(t[0], t[1]); }),
      {"binary_cross_entropy",
       {"x", "y", "?weight"},
       {x, x, x},
       [](T t) { binary_cross_entropy(t[0], t[1], t[2]); },
       {{0, n}, {0, y}, {1, y}, {2, y}}},
      {"binary_cross_entropy_with_logits",
       {"x", "y", "?weight", "?pos_weight"},
       {x, x, x, x},
       [](T t) { binary_cross_entropy_with_logits(t[0], t[1], t[2], t[3]); },
       {{0, n}, {0, y}, {1, y}, {2, y}, {3, y}}},
      {"gaussian_nll_loss",
       {"x", "y", "var"},
       {x, x, x},
       [](T t) { gaussian_nll_loss(t[0], t[1], t[2]); },
       {{0, n}, {0, y}, {1, y}, {2, y}, {2, n}}},
      {"margin_ranking_loss",
       {"x1", "x2", "y"},
       {x, x, x},
       [](T t) { margin_ranking_loss(t[0], t[1], t[2]); },
       {{0, n}, {0, y}, {1, y}, {2, y}}},
  };
  for (const Function& f : class_loss_functions()) all.push_back(f);
  return all;
}

}  // namespace kiln::testing
