// SPDX-License-Identifier: Apache-2.0
// The rows of torch's elementwise composites.
#include "frontend/elementwise.h"
#include "tests/golden/eval.h"

namespace kiln::golden {

namespace {

Value replaced(const Bound& b) {
  std::optional<double> top, bottom;
  if (b.given("posinf")) top = b["posinf"].real();
  if (b.given("neginf")) bottom = b["neginf"].real();
  return nan_to_num(b["x"].tensor(), b["nan"].real(), top, bottom);
}

template <Tensor (*F)(const Tensor&, const Tensor&, const Tensor&, Scalar, Loc)>
Value with_term(const Bound& b) {
  return F(b["x"].tensor(), b["a"].tensor(), b["b"].tensor(), operand(b["value"]).scalar, Loc::current());
}

constexpr Function kElementwiseFunctions[] = {
    {"torch.acosh", "x", unary<acosh>},
    {"torch.asinh", "x", unary<asinh>},
    {"torch.atanh", "x", unary<atanh>},
    {"torch.digamma", "x", unary<digamma>},
    {"torch.erfinv", "x", unary<erfinv>},
    {"torch.lgamma", "x", unary<lgamma>},
    {"torch.addcdiv", "x a b value=1", with_term<addcdiv>},
    {"torch.addcmul", "x a b value=1", with_term<addcmul>},
    {"torch.frac", "x", unary<frac>},
    {"torch.hypot", "x y", binary<hypot>},
    {"torch.isfinite", "x", unary<isfinite>},
    {"torch.lerp", "x end weight",
     [](const Bound& b) -> Value { return lerp(b["x"].tensor(), b["end"].tensor(), operand(b["weight"])); }},
    {"torch.logaddexp", "x y", binary<logaddexp>},
    {"torch.nan_to_num", "x nan=0 posinf=None neginf=None", replaced},
    {"torch.xlogy", "x y", binary<xlogy>},
};

}  // namespace

std::span<const Function> elementwise_functions() { return kElementwiseFunctions; }

}  // namespace kiln::golden
