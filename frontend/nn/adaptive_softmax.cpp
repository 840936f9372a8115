// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/adaptive_softmax.h"

#include <cmath>

#include "frontend/ops_detail.h"

namespace kiln::nn {

namespace {

/// The cutoffs, and the number of classes behind them.
Sizes checked(Sizes cutoffs, int64_t n_classes) {
  int64_t before = 0;
  for (const int64_t c : cutoffs) {
    KILN_CHECK(
        c > before && c < n_classes, invalid,
        "AdaptiveLogSoftmaxWithLoss: got cutoffs [{}] of {} classes, expected rising numbers between 1 "
        "and {}",
        fmt::join(cutoffs, ","), n_classes, n_classes - 1);
    before = c;
  }
  KILN_CHECK(!cutoffs.empty(), invalid, "AdaptiveLogSoftmaxWithLoss: there are no cutoffs");
  cutoffs.push_back(n_classes);
  return cutoffs;
}

/// `target`, of which every element is below `classes`.
Tensor in_range(const Tensor& target, int64_t classes, Loc loc) {
  constexpr const char* kName = "AdaptiveLogSoftmaxWithLoss";
  return detail::call(kName, loc, {&target}, {classes}, {}, [&](const auto&) {
    const Tensor line = detail::reshape_to(target, {target.numel()});
    detail::check_indices(line, classes, kName, loc, "target");
    return detail::copied(target);
  });
}

}  // namespace

AdaptiveLogSoftmaxWithLoss::AdaptiveLogSoftmaxWithLoss(int64_t in, int64_t n_classes, Sizes cutoffs,
                                                       double div_value, bool head_bias)
    : head(in, checked(cutoffs, n_classes)[0] + static_cast<int64_t>(cutoffs.size()), head_bias),
      in_(in),
      cutoffs_(checked(cutoffs, n_classes)) {
  register_module("head", head);
  register_module("tail", tail);
  for (size_t i = 0; i + 1 < cutoffs_.size(); ++i) {
    const auto hidden = static_cast<int64_t>(
        std::floor(static_cast<double>(in) / std::pow(div_value, static_cast<double>(i + 1))));
    auto& two = tail.emplace_back<Sequential>();
    two.emplace_back<Linear>(in, hidden, false);
    two.emplace_back<Linear>(hidden, cutoffs_[i + 1] - cutoffs_[i], false);
  }
}

void AdaptiveLogSoftmaxWithLoss::check(const char* name, const Tensor& x, bool may_be_row, Loc loc) const {
  const bool fits = x.defined() && (x.dim() == 2 || (may_be_row && x.dim() == 1)) && x.size(-1) == in_;
  KILN_CHECK(fits, invalid, "{} ({}): got x {}, expected [n, {}]{}", name, loc.str(), x.type_str(), in_,
             may_be_row ? fmt::format(" or [{}]", in_) : "");
}

Tensor AdaptiveLogSoftmaxWithLoss::cluster(size_t i, const Tensor& x, Loc loc) {
  return log_softmax(tail[i](x, loc), 1, loc);
}

Tensor AdaptiveLogSoftmaxWithLoss::of_targets(const Tensor& x, const Tensor& target, Loc loc) {
  const Tensor logs = log_softmax(head(x, loc), 1, loc);
  const auto at = [&](const Tensor& rows, const Tensor& index) {
    return squeeze(gather(rows, 1, unsqueeze(index, 1, loc), loc), 1, loc);
  };
  Tensor of_head = target, inside;
  for (size_t i = 0; i + 1 < cutoffs_.size(); ++i) {
    const Tensor from = ge({target, loc}, {cutoffs_[i], loc}), to = lt({target, loc}, {cutoffs_[i + 1], loc});
    const Tensor here = logical_and({from, loc}, {to, loc});
    of_head = where(here, {cutoffs_[0] + static_cast<int64_t>(i), loc}, {of_head, loc});
    const Tensor own = where(here, {sub({target, loc}, {cutoffs_[i], loc}), loc}, {int64_t{0}, loc});
    const Tensor kept = where(here, {at(cluster(i, x, loc), own), loc}, {0.0, loc});
    inside = inside.defined() ? add({inside, loc}, {kept, loc}) : kept;
  }
  return add({at(logs, of_head), loc}, {inside, loc});
}

AdaptiveLogSoftmaxResult AdaptiveLogSoftmaxWithLoss::operator()(const Tensor& x, const Tensor& target,
                                                                Loc loc) {
  const auto run = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    check("AdaptiveLogSoftmaxWithLoss", in[0], true, loc);
    const bool row = in[0].dim() == 1;
    const bool fits = in[1].defined() && in[1].dim() == in[0].dim() - 1 && in[1].dtype() == DType::i64 &&
                      (row || in[1].size(0) == in[0].size(0));
    KILN_CHECK(fits, invalid,
               "AdaptiveLogSoftmaxWithLoss ({}): got x {} and target {}, expected i64 [n], or []", loc.str(),
               in[0].type_str(), in[1].type_str());
    const Tensor t = in_range(in[1], cutoffs_.back(), loc);
    const Tensor each =
        of_targets(row ? unsqueeze(in[0], 0, loc) : in[0], row ? unsqueeze(t, 0, loc) : t, loc);
    return {row ? squeeze(each, 0, loc) : each, neg(mean(each, {}, false, loc), loc)};
  };
  const std::vector<Tensor> out = call_many({x, target}, loc, run);
  return {out[0], out[1]};
}

Tensor AdaptiveLogSoftmaxWithLoss::all(const Tensor& head_logs, const Tensor& x, Loc loc) {
  const int64_t own = cutoffs_[0];
  std::vector<Tensor> parts{slice(head_logs, 1, 0, own, 1, loc)};
  for (size_t i = 0; i + 1 < cutoffs_.size(); ++i) {
    const auto at = own + static_cast<int64_t>(i);
    parts.push_back(add({cluster(i, x, loc), loc}, {slice(head_logs, 1, at, at + 1, 1, loc), loc}));
  }
  return cat(parts, 1, loc);
}

Tensor AdaptiveLogSoftmaxWithLoss::log_prob(const Tensor& x, Loc loc) {
  check("log_prob", x, false, loc);
  return all(log_softmax(head(x, loc), 1, loc), x, loc);
}

Tensor AdaptiveLogSoftmaxWithLoss::predict(const Tensor& x, Loc loc) {
  check("predict", x, true, loc);
  const bool row = x.dim() == 1;
  const Tensor rows = row ? unsqueeze(x, 0, loc) : x, logs = log_softmax(head(rows, loc), 1, loc);
  const Tensor first = argmax(logs, 1, false, loc);
  // As PyTorch does: where the head's likeliest output is a class, no class of a cluster is looked at.
  const Tensor whole = argmax(all(logs, rows, loc), 1, false, loc);
  const Tensor best = where(lt({first, loc}, {cutoffs_[0], loc}), {first, loc}, {whole, loc});
  return row ? squeeze(best, 0, loc) : best;
}

}  // namespace kiln::nn
