// SPDX-License-Identifier: Apache-2.0
// The rows of torch.nn.functional's activations.
#include "frontend/activation.h"

#include "tests/golden/eval.h"

namespace kiln::golden {

namespace {

template <Tensor (*F)(const Tensor&, Loc)>
Value plain(const Bound& b) {
  return F(b["x"].tensor(), Loc::current());
}

template <Tensor (*F)(const Tensor&, double, Loc)>
Value with_number(const Bound& b) {
  return F(b["x"].tensor(), b["a"].real(), Loc::current());
}

constexpr Function kActivationFunctions[] = {
    {"F.celu", "x a=1", with_number<celu>},
    {"F.cosine_similarity", "x y dim=1 eps=1e-8",
     [](const Bound& b) -> Value {
       return cosine_similarity(b["x"].tensor(), b["y"].tensor(), b["dim"].integer(), b["eps"].real());
     }},
    {"F.elu", "x a=1", with_number<elu>},
    {"F.glu", "x dim=-1", [](const Bound& b) -> Value { return glu(b["x"].tensor(), b["dim"].integer()); }},
    {"F.hardsigmoid", "x", plain<hardsigmoid>},
    {"F.hardswish", "x", plain<hardswish>},
    {"F.hardtanh", "x min_val=-1 max_val=1",
     [](const Bound& b) -> Value {
       return hardtanh(b["x"].tensor(), b["min_val"].real(), b["max_val"].real());
     }},
    {"F.logsigmoid", "x", plain<logsigmoid>},
    {"F.mish", "x", plain<mish>},
    {"F.normalize", "x p=2 dim=1 eps=1e-12",
     [](const Bound& b) -> Value {
       return normalize(b["x"].tensor(), b["p"].real(), b["dim"].integer(), b["eps"].real());
     }},
    {"F.prelu", "x weight",
     [](const Bound& b) -> Value { return prelu(b["x"].tensor(), b["weight"].tensor()); }},
    {"F.relu6", "x", plain<relu6>},
    {"F.selu", "x", plain<selu>},
    {"F.softmin", "x dim",
     [](const Bound& b) -> Value { return softmin(b["x"].tensor(), b["dim"].integer()); }},
    {"F.softshrink", "x a=0.5", with_number<softshrink>},
    {"F.softsign", "x", plain<softsign>},
    {"F.tanhshrink", "x", plain<tanhshrink>},
    {"F.threshold", "x limit value",
     [](const Bound& b) -> Value {
       return threshold(b["x"].tensor(), b["limit"].real(), b["value"].real());
     }},
};

}  // namespace

std::span<const Function> activation_functions() { return kActivationFunctions; }

}  // namespace kiln::golden
