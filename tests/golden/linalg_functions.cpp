// SPDX-License-Identifier: Apache-2.0
// The rows of torch's linear algebra.
#include "frontend/linalg.h"

#include "tests/golden/eval.h"

namespace kiln::golden {

namespace {

template <Tensor (*F)(const Tensor&, const Tensor&, Loc)>
Value product(const Bound& b) {
  return F(b["x"].tensor(), b["y"].tensor(), Loc::current());
}

template <Tensor (*F)(const Tensor&, const Tensor&, const Tensor&, Scalar, Scalar, Loc)>
Value sum_with_product(const Bound& b) {
  return F(b["i"].tensor(), b["x"].tensor(), b["y"].tensor(), operand(b["beta"]).scalar,
           operand(b["alpha"]).scalar, Loc::current());
}

Value einsum_of(const Bound& b) {
  std::vector<Tensor> operands;
  for (const char* name : {"a", "b", "c"})
    if (b.given(name)) operands.push_back(b[name].tensor());
  return einsum(b["equation"].text(), operands);
}

constexpr Function kLinalgFunctions[] = {
    {"F.bilinear", "x y weight bias=None",
     [](const Bound& b) -> Value {
       return bilinear(b["x"].tensor(), b["y"].tensor(), b["weight"].tensor(),
                       b["bias"].tensor_or_undefined());
     }},
    {"torch.addmm", "i x y beta=1 alpha=1", sum_with_product<addmm>},
    {"torch.baddbmm", "i x y beta=1 alpha=1", sum_with_product<baddbmm>},
    {"torch.bmm", "x y", product<bmm>},
    {"torch.einsum", "equation a b=None c=None", einsum_of},
    {"torch.matmul", "x y", product<matmul>},
    {"torch.mv", "x y", product<mv>},
    {"torch.outer", "x y", product<outer>},
};

}  // namespace

std::span<const Function> linalg_functions() { return kLinalgFunctions; }

}  // namespace kiln::golden
