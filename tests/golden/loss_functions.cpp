// SPDX-License-Identifier: Apache-2.0
// The rows of torch.nn.functional's losses.
#include "frontend/losses.h"

#include "tests/golden/eval.h"

namespace kiln::golden {

namespace {

template <Tensor (*F)(const Tensor&, const Tensor&, double, Reduction, Loc)>
Value with_margin(const Bound& b) {
  return F(b["x"].tensor(), b["y"].tensor(), b["margin"].real(), reduction_of(b["reduction"]),
           Loc::current());
}

template <Tensor (*F)(const Tensor&, const Tensor&, const Tensor&, double, Reduction, Loc)>
Value pair_with_margin(const Bound& b) {
  return F(b["x1"].tensor(), b["x2"].tensor(), b["y"].tensor(), b["margin"].real(),
           reduction_of(b["reduction"]), Loc::current());
}

Value with_logits(const Bound& b) {
  return binary_cross_entropy_with_logits(b["x"].tensor(), b["y"].tensor(), b["weight"].tensor_or_undefined(),
                                          b["pos_weight"].tensor_or_undefined(),
                                          reduction_of(b["reduction"]));
}

Value divergence(const Bound& b) {
  const std::string& r = b["reduction"].text();
  const KlReduction reduction = r == "none"        ? KlReduction::none
                                : r == "sum"       ? KlReduction::sum
                                : r == "batchmean" ? KlReduction::batchmean
                                                   : KlReduction::mean;
  return kl_div(b["x"].tensor(), b["y"].tensor(), reduction, b["log_target"].flag());
}

Value triplet(const Bound& b) {
  TripletOptions o;
  o.margin = b["margin"].real();
  o.swap = b["swap"].flag();
  o.reduction = reduction_of(b["reduction"]);
  return triplet_margin_loss(b["a"].tensor(), b["p"].tensor(), b["n"].tensor(), o);
}

Tensor vector_of(const Value& v) {
  const std::vector<int64_t> n = v.integers();
  return Tensor::from_vector(n, {static_cast<int64_t>(n.size())});
}

constexpr Function kLossFunctions[] = {
    {"F.binary_cross_entropy", "x y weight=None reduction='mean'",
     [](const Bound& b) -> Value {
       return binary_cross_entropy(b["x"].tensor(), b["y"].tensor(), b["weight"].tensor_or_undefined(),
                                   reduction_of(b["reduction"]));
     }},
    {"F.binary_cross_entropy_with_logits", "x y weight=None reduction='mean' pos_weight=None", with_logits},
    {"F.cosine_embedding_loss", "x1 x2 y margin=0 reduction='mean'", pair_with_margin<cosine_embedding_loss>},
    {"F.ctc_loss", "x t input_lengths target_lengths blank=0 reduction='mean' zero_infinity=False",
     [](const Bound& b) -> Value {
       return ctc_loss(b["x"].tensor(), b["t"].tensor(), vector_of(b["input_lengths"]),
                       vector_of(b["target_lengths"]), b["blank"].integer(), reduction_of(b["reduction"]),
                       b["zero_infinity"].flag());
     }},
    {"F.gaussian_nll_loss", "x y var full=False eps=1e-6 reduction='mean'",
     [](const Bound& b) -> Value {
       return gaussian_nll_loss(b["x"].tensor(), b["y"].tensor(), b["var"].tensor(), b["full"].flag(),
                                b["eps"].real(), reduction_of(b["reduction"]));
     }},
    {"F.hinge_embedding_loss", "x y margin=1 reduction='mean'", with_margin<hinge_embedding_loss>},
    {"F.huber_loss", "x y reduction='mean' delta=1",
     [](const Bound& b) -> Value {
       return huber_loss(b["x"].tensor(), b["y"].tensor(), reduction_of(b["reduction"]), b["delta"].real());
     }},
    {"F.kl_div", "x y reduction='mean' log_target=False", divergence},
    {"F.margin_ranking_loss", "x1 x2 y margin=0 reduction='mean'", pair_with_margin<margin_ranking_loss>},
    {"F.multi_margin_loss", "x t p=1 margin=1 weight=None reduction='mean'",
     [](const Bound& b) -> Value {
       return multi_margin_loss(b["x"].tensor(), b["t"].tensor(), b["p"].integer(), b["margin"].real(),
                                b["weight"].tensor_or_undefined(), reduction_of(b["reduction"]));
     }},
    {"F.poisson_nll_loss", "x y log_input=True full=False eps=1e-8 reduction='mean'",
     [](const Bound& b) -> Value {
       return poisson_nll_loss(b["x"].tensor(), b["y"].tensor(), b["log_input"].flag(), b["full"].flag(),
                               b["eps"].real(), reduction_of(b["reduction"]));
     }},
    {"F.smooth_l1_loss", "x y reduction='mean' beta=1",
     [](const Bound& b) -> Value {
       return smooth_l1_loss(b["x"].tensor(), b["y"].tensor(), reduction_of(b["reduction"]),
                             b["beta"].real());
     }},
    {"F.soft_margin_loss", "x y reduction='mean'",
     [](const Bound& b) -> Value {
       return soft_margin_loss(b["x"].tensor(), b["y"].tensor(), reduction_of(b["reduction"]));
     }},
    {"F.triplet_margin_loss", "a p n margin=1 swap=False reduction='mean'", triplet},
};

}  // namespace

std::span<const Function> loss_functions() { return kLossFunctions; }

}  // namespace kiln::golden
