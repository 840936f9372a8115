// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/convert_parameters.h"

#include "frontend/compile.h"
#include "frontend/nn/layers.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

TEST(ConvertParameters, ToAVectorAndBack) {
  nn::Linear fc(2, 3);
  const Tensor all = nn::parameters_to_vector(fc.parameters());
  Floats want = values(fc.weight);
  for (float b : values(fc.bias)) want.push_back(b);
  EXPECT_EQ(values(all), want);
  sum(all * all).backward();
  EXPECT_FLOAT_EQ(values(fc.bias.grad())[1], 2 * values(fc.bias)[1]);
  nn::vector_to_parameters(arange(9).to(DType::f32), fc.parameters());
  EXPECT_EQ(values(fc.weight), (Floats{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(values(fc.bias), (Floats{6, 7, 8}));
  EXPECT_TRUE(fc.weight.is_leaf() && fc.weight.requires_grad());
  auto f = compile([&](const Tensor& v) {
    nn::vector_to_parameters(v, fc.parameters());
    return nn::parameters_to_vector(fc.parameters()).detach();
  });
  for (int call = 0; call < 2; ++call)
    EXPECT_EQ(values(f(full({9}, 2.0 + call))), Floats(9, 2 + static_cast<float>(call)));
}

TEST(ConvertParameters, Refusals) {
  nn::Linear fc(2, 3);
  EXPECT_ERROR(nn::parameters_to_vector({}), "invalid: parameters_to_vector (@): there are no parameters");
  EXPECT_ERROR(nn::vector_to_parameters(zeros({8}), fc.parameters()),
               "invalid: vector_to_parameters (@): got f32[8] for parameters of 9 elements");
  EXPECT_ERROR(nn::parameters_to_vector({ones({1}), ones({1}, {.dtype = DType::f64})}),
               "invalid: parameters_to_vector (@): got parameters f32[1] and f64[1], expected one dtype and "
               "device");
}

}  // namespace KILN_FILE
}  // namespace kiln
