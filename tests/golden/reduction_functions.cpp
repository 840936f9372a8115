// SPDX-License-Identifier: Apache-2.0
// The rows of torch's reductions.
#include "frontend/reductions.h"
#include "tests/golden/eval.h"

namespace kiln::golden {

namespace {

template <Tensor (*F)(const Tensor&, Dims, bool, Loc)>
Value reduction(const Bound& b) {
  return F(b["x"].tensor(), b["dim"].integers(), b["keepdim"].flag(), Loc::current());
}

template <Tensor (*F)(const Tensor&, Dims, int64_t, bool, Loc)>
Value spread(const Bound& b) {
  return F(b["x"].tensor(), b["dim"].integers(), b["correction"].integer(), b["keepdim"].flag(),
           Loc::current());
}

Value variance_and_mean(const Bound& b) {
  const Spread s =
      var_mean(b["x"].tensor(), b["dim"].integers(), b["correction"].integer(), b["keepdim"].flag());
  return List{s.spread, s.mean};
}

template <Tensor (*F)(const Tensor&, std::optional<int64_t>, bool, Loc)>
Value arg_extreme(const Bound& b) {
  std::optional<int64_t> dim;
  if (b.given("dim")) dim = b["dim"].integer();
  return F(b["x"].tensor(), dim, b["keepdim"].flag(), Loc::current());
}

Value largest(const Bound& b) {
  if (!b.given("dim")) return max(b["x"].tensor());
  const ValuesAndIndices r = max(b["x"].tensor(), b["dim"].integer(), b["keepdim"].flag());
  return List{r.values, r.indices};
}

Value smallest(const Bound& b) {
  if (!b.given("dim")) return min(b["x"].tensor());
  const ValuesAndIndices r = min(b["x"].tensor(), b["dim"].integer(), b["keepdim"].flag());
  return List{r.values, r.indices};
}

constexpr Function kReductionFunctions[] = {
    {"torch.all", "x dim=None keepdim=False", reduction<all>},
    {"torch.amax", "x dim=None keepdim=False", reduction<amax>},
    {"torch.amin", "x dim=None keepdim=False", reduction<amin>},
    {"torch.any", "x dim=None keepdim=False", reduction<any>},
    {"torch.argmax", "x dim=None keepdim=False", arg_extreme<argmax>},
    {"torch.argmin", "x dim=None keepdim=False", arg_extreme<argmin>},
    {"torch.count_nonzero", "x dim=None",
     [](const Bound& b) -> Value { return count_nonzero(b["x"].tensor(), b["dim"].integers()); }},
    {"torch.linalg.vector_norm", "x ord=2 dim=None keepdim=False",
     [](const Bound& b) -> Value {
       return vector_norm(b["x"].tensor(), b["ord"].real(), b["dim"].integers(), b["keepdim"].flag());
     }},
    {"torch.logsumexp", "x dim keepdim=False", reduction<logsumexp>},
    {"torch.max", "x dim=None keepdim=False", largest},
    {"torch.mean", "x dim=None keepdim=False", reduction<mean>},
    {"torch.min", "x dim=None keepdim=False", smallest},
    {"torch.prod", "x dim=None keepdim=False", reduction<prod>},
    {"torch.std", "x dim=None correction=1 keepdim=False", spread<kiln::std>},
    {"torch.sum", "x dim=None keepdim=False", reduction<sum>},
    {"torch.var", "x dim=None correction=1 keepdim=False", spread<var>},
    {"torch.var_mean", "x dim=None correction=1 keepdim=False", variance_and_mean},
};

}  // namespace

std::span<const Function> reduction_functions() { return kReductionFunctions; }

}  // namespace kiln::golden
