// SPDX-License-Identifier: Apache-2.0
// Losses as modules, with torch.nn's constructor arguments: each calls the function of its name on what it is
// called with.
#pragma once

#include <functional>
#include "frontend/dispatch.h"
#include "frontend/functional.h"
#include "frontend/losses.h"
#include "frontend/nn/module.h"

namespace kiln::nn {

namespace detail_loss {

/// Of a function of x, y and the reduction.
template <auto F>
class Pair : public Module {
 public:
  explicit Pair(Reduction reduction = Reduction::mean) : reduction_(reduction) {}
  Tensor forward(const Tensor& x, const Tensor& y) override {
    return F(x, y, reduction_, detail::caller_loc());
  }

 private:
  Reduction reduction_;
};
/// Of a function of scores, targets and a weight of each class, which is a buffer where there is one.
template <auto F>
class Classes : public Module {
 public:
  explicit Classes(const CrossEntropyOptions& options = {}) : Classes(Tensor(), options) {}
  explicit Classes(Tensor class_weight, const CrossEntropyOptions& options = {})
      : weight(std::move(class_weight)), options_(options) {
    register_buffer("weight", weight);
  }
  Tensor forward(const Tensor& x, const Tensor& target) override {
    return F(x, target, weight, options_, detail::caller_loc());
  }
  Tensor weight;

 private:
  CrossEntropyOptions options_;
};

/// Of a function of x, y, the reduction and a number, A unless it is given.
template <auto F, int64_t A>
class PairAndNumber : public Module {
 public:
  explicit PairAndNumber(Reduction reduction = Reduction::mean, double number = A)
      : reduction_(reduction), number_(number) {}
  Tensor forward(const Tensor& x, const Tensor& y) override {
    return F(x, y, reduction_, number_, detail::caller_loc());
  }

 private:
  Reduction reduction_;
  double number_;
};
/// Of a function of x, y, a weight, which is a buffer where there is one, and the reduction.
template <auto F>
class Weighted : public Module {
 public:
  explicit Weighted(Tensor rescale = {}, Reduction reduction = Reduction::mean)
      : weight(std::move(rescale)), reduction_(reduction) {
    register_buffer("weight", weight);
  }
  Tensor forward(const Tensor& x, const Tensor& y) override {
    return F(x, y, weight, reduction_, detail::caller_loc());
  }
  Tensor weight;

 private:
  Reduction reduction_;
};
/// Of a function of two rows, whether they belong together, and a margin.
template <auto F>
class Rows : public Module {
 public:
  explicit Rows(double margin = 0, Reduction reduction = Reduction::mean)
      : margin_(margin), reduction_(reduction) {}
  Tensor forward(const Tensor& x1, const Tensor& x2, const Tensor& y) override {
    return F(x1, x2, y, margin_, reduction_, detail::caller_loc());
  }

 private:
  double margin_;
  Reduction reduction_;
};

}  // namespace detail_loss

using MSELoss = detail_loss::Pair<mse_loss>;                             ///< (reduction)
using L1Loss = detail_loss::Pair<l1_loss>;                               ///< (reduction)
using SoftMarginLoss = detail_loss::Pair<soft_margin_loss>;              ///< (reduction)
using MultiLabelMarginLoss = detail_loss::Pair<multilabel_margin_loss>;  ///< (reduction)
using CrossEntropyLoss = detail_loss::Classes<cross_entropy>;            ///< (weight, options)
using NLLLoss = detail_loss::Classes<nll_loss>;                          ///< (weight, options)
using HuberLoss = detail_loss::PairAndNumber<huber_loss, 1>;             ///< (reduction, delta = 1)
using SmoothL1Loss = detail_loss::PairAndNumber<smooth_l1_loss, 1>;      ///< (reduction, beta = 1)
using BCELoss = detail_loss::Weighted<binary_cross_entropy>;             ///< (weight, reduction)
using MultiLabelSoftMarginLoss = detail_loss::Weighted<multilabel_soft_margin_loss>;  ///< the same
using MarginRankingLoss = detail_loss::Rows<margin_ranking_loss>;      ///< (margin = 0, reduction)
using CosineEmbeddingLoss = detail_loss::Rows<cosine_embedding_loss>;  ///< (margin = 0, reduction)

/// See kiln::binary_cross_entropy_with_logits. Both weights are buffers.
/// Source: torch.nn.BCEWithLogitsLoss.
class BCEWithLogitsLoss : public Module {
 public:
  explicit BCEWithLogitsLoss(Tensor rescale = {}, Reduction reduction = Reduction::mean, Tensor positive = {})
      : weight(std::move(rescale)), pos_weight(std::move(positive)), reduction_(reduction) {
    register_buffer("weight", weight);
    register_buffer("pos_weight", pos_weight);
  }
  Tensor forward(const Tensor& x, const Tensor& y) override {
    return binary_cross_entropy_with_logits(x, y, weight, pos_weight, reduction_, detail::caller_loc());
  }
  Tensor weight, pos_weight;

 private:
  Reduction reduction_;
};

/// See kiln::kl_div. Source: torch.nn.KLDivLoss.
class KLDivLoss : public Module {
 public:
  explicit KLDivLoss(KlReduction reduction = KlReduction::mean, bool log_target = false)
      : reduction_(reduction), log_target_(log_target) {}
  Tensor forward(const Tensor& x, const Tensor& y) override {
    return kl_div(x, y, reduction_, log_target_, detail::caller_loc());
  }

 private:
  KlReduction reduction_;
  bool log_target_;
};

/// See kiln::poisson_nll_loss. Source: torch.nn.PoissonNLLLoss.
class PoissonNLLLoss : public Module {
 public:
  explicit PoissonNLLLoss(bool log_input = true, bool full = false, double eps = 1e-8,
                          Reduction reduction = Reduction::mean)
      : log_input_(log_input), full_(full), eps_(eps), reduction_(reduction) {}
  Tensor forward(const Tensor& x, const Tensor& y) override {
    return poisson_nll_loss(x, y, log_input_, full_, eps_, reduction_, detail::caller_loc());
  }

 private:
  bool log_input_, full_;
  double eps_;
  Reduction reduction_;
};

/// Called with x, the target and the variance; see kiln::gaussian_nll_loss.
/// Source: torch.nn.GaussianNLLLoss.
class GaussianNLLLoss : public Module {
 public:
  explicit GaussianNLLLoss(bool full = false, double eps = 1e-6, Reduction reduction = Reduction::mean)
      : full_(full), eps_(eps), reduction_(reduction) {}
  Tensor forward(const Tensor& x, const Tensor& y, const Tensor& var) override {
    return gaussian_nll_loss(x, y, var, full_, eps_, reduction_, detail::caller_loc());
  }

 private:
  bool full_;
  double eps_;
  Reduction reduction_;
};

/// See kiln::hinge_embedding_loss. Source: torch.nn.HingeEmbeddingLoss.
class HingeEmbeddingLoss : public Module {
 public:
  explicit HingeEmbeddingLoss(double margin = 1, Reduction reduction = Reduction::mean)
      : margin_(margin), reduction_(reduction) {}
  Tensor forward(const Tensor& x, const Tensor& y) override {
    return hinge_embedding_loss(x, y, margin_, reduction_, detail::caller_loc());
  }

 private:
  double margin_;
  Reduction reduction_;
};

/// The weight of the classes is a buffer; see kiln::multi_margin_loss. Source: torch.nn.MultiMarginLoss.
class MultiMarginLoss : public Module {
 public:
  explicit MultiMarginLoss(int64_t p = 1, double margin = 1, Tensor class_weight = {},
                           Reduction reduction = Reduction::mean)
      : weight(std::move(class_weight)), p_(p), margin_(margin), reduction_(reduction) {
    register_buffer("weight", weight);
  }
  Tensor forward(const Tensor& x, const Tensor& target) override {
    return multi_margin_loss(x, target, p_, margin_, weight, reduction_, detail::caller_loc());
  }
  Tensor weight;

 private:
  int64_t p_;
  double margin_;
  Reduction reduction_;
};

/// Called with anchor, positive and negative; see kiln::triplet_margin_loss.
/// Source: torch.nn.TripletMarginLoss.
class TripletMarginLoss : public Module {
 public:
  explicit TripletMarginLoss(const TripletOptions& options = {}) : options_(options) {}
  Tensor forward(const Tensor& anchor, const Tensor& positive, const Tensor& negative) override {
    return triplet_margin_loss(anchor, positive, negative, options_, detail::caller_loc());
  }

 private:
  TripletOptions options_;
};

/// The same with another distance; see kiln::triplet_margin_with_distance_loss.
/// Source: torch.nn.TripletMarginWithDistanceLoss.
class TripletMarginWithDistanceLoss : public Module {
 public:
  explicit TripletMarginWithDistanceLoss(DistanceFunction distance = {},
                                         const TripletDistanceOptions& options = {})
      : distance_(std::move(distance)), options_(options) {}
  Tensor forward(const Tensor& anchor, const Tensor& positive, const Tensor& negative) override {
    return triplet_margin_with_distance_loss(anchor, positive, negative, distance_, options_,
                                             detail::caller_loc());
  }

 private:
  DistanceFunction distance_;
  TripletDistanceOptions options_;
};

/// Called with log-probabilities, targets, and the lengths of both; see kiln::ctc_loss.
/// Source: torch.nn.CTCLoss.
class CTCLoss : public Module {
 public:
  explicit CTCLoss(int64_t blank = 0, Reduction reduction = Reduction::mean, bool zero_infinity = false)
      : blank_(blank), reduction_(reduction), zero_infinity_(zero_infinity) {}
  Tensor operator()(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                    const Tensor& target_lengths, Loc loc = Loc::current()) {
    const auto run = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
      return {ctc_loss(in[0], in[1], in[2], in[3], blank_, reduction_, zero_infinity_, loc)};
    };
    return call_many({log_probs, targets, input_lengths, target_lengths}, loc, run)[0];
  }

 private:
  int64_t blank_;
  Reduction reduction_;
  bool zero_infinity_;
};

}  // namespace kiln::nn
