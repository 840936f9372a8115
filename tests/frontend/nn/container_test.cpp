// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/container.h"

#include "frontend/compile.h"
#include "frontend/nn/layers.h"
#include "frontend/nn/pooling.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT
using Names = std::vector<std::string>;

Names names(const nn::NamedTensors& tensors) {
  Names out;
  for (const auto& [name, t] : tensors) out.push_back(name);
  return out;
}

TEST(NnContainer, ModuleDictHasModulesByNameInOrder) {
  nn::ModuleDict dict;
  dict.emplace<nn::Linear>("second", 2, 3);
  dict.emplace<nn::ReLU>("act");
  dict.emplace<nn::Linear>("first", 3, 1, false);
  EXPECT_EQ(dict.keys(), (Names{"second", "act", "first"}));
  EXPECT_EQ(names(dict.state_dict()), (Names{"second.weight", "second.bias", "first.weight"}));
  EXPECT_TRUE(dict.contains("act"));
  EXPECT_FALSE(dict.contains("none"));
  EXPECT_EQ(dict.at<nn::Linear>("first").weight.sizes(), (Sizes{1, 3}));
  EXPECT_EQ(dict["second"](ones({4, 2})).sizes(), (Sizes{4, 3}));
  EXPECT_EQ(error_of([&] { dict["none"]; }),
            "invalid: ModuleDict: no module 'none'; there are [second, act, first]");
  EXPECT_EQ(error_of([&] { dict.at<nn::Linear>("act"); }),
            "invalid: ModuleDict: module 'act' is of another type than asked for");
  EXPECT_EQ(error_of([&] { dict.emplace<nn::ReLU>("act"); }),
            "invalid: register_module: this module already has a member 'act'");
}

TEST(NnContainer, ParameterListAndDictHoldLeaves) {
  nn::ParameterList list({zeros({2}), ones({3})});
  const Tensor& third = list.append(ones({1}));
  EXPECT_TRUE(third.requires_grad());
  EXPECT_EQ(names(list.named_parameters()), (Names{"0", "1", "2"}));
  sum(list[1] * 2.0).backward();
  EXPECT_EQ(values(list[1].grad()), (Floats{2, 2, 2}));
  EXPECT_EQ(error_of([&] { list[3]; }), "invalid: ParameterList: no parameter 3; there are 3");
  EXPECT_EQ(error_of([&] { list.append(arange(2)); }),
            "invalid: register_parameter: '3' is i64[2], expected a leaf tensor of a floating dtype");

  nn::ParameterDict dict({{"scale", ones({2})}, {"shift", zeros({2})}});
  EXPECT_EQ(dict.keys(), (Names{"scale", "shift"}));
  EXPECT_EQ(names(dict.state_dict()), (Names{"scale", "shift"}));
  EXPECT_EQ(values(vec({3, 4}) * dict["scale"] + dict["shift"]), (Floats{3, 4}));
  EXPECT_EQ(error_of([&] { dict["none"]; }),
            "invalid: ParameterDict: no parameter 'none'; there are [scale, shift]");
  EXPECT_EQ(error_of([&] { dict.insert("scale", ones({1})); }),
            "invalid: ParameterDict: there is a parameter 'scale' already");
}

TEST(NnContainer, ModulesThatOnlyReshape) {
  const Tensor x = arange(24).to(DType::f32).reshape({2, 3, 4});
  EXPECT_EQ(nn::Identity()(x).impl(), x.impl());
  EXPECT_EQ(nn::Flatten()(x).sizes(), (Sizes{2, 12}));
  EXPECT_EQ(nn::Flatten(0, 1)(x).sizes(), (Sizes{6, 4}));
  EXPECT_EQ(nn::Unflatten(1, {3, 1})(x).sizes(), (Sizes{2, 3, 1, 4}));
  EXPECT_EQ(nn::Unflatten(-1, {2, -1})(x).sizes(), (Sizes{2, 3, 2, 2}));
  EXPECT_EQ(values(nn::Unflatten(2, {2, 2})(x)), values(x));
  const Tensor image = x.reshape({1, 2, 3, 4}), columns = nn::Unfold({3, 2}, {.stride = {1, 2}})(image);
  EXPECT_EQ(columns.sizes(), (Sizes{1, 12, 2}));
  EXPECT_EQ(values(nn::Fold({3, 4}, {3, 2}, {.stride = {1, 2}})(columns)), values(image));
  nn::Unflatten bad(1, {2, 2});
  EXPECT_ERROR(bad(x), "invalid: Unflatten (@): dim 1 of x f32[2,3,4] does not become [2,2]");
  nn::Unflatten open(1, {-1, -1});
  EXPECT_ERROR(open(x), "invalid: Unflatten (@): dim 1 of x f32[2,3,4] does not become [-1,-1]");
  nn::Sequential net;
  net.emplace_back<nn::Flatten>();
  net.emplace_back<nn::Unflatten>(1, Sizes{4, 3});
  auto f = compile([&](const Tensor& t) { return net(t); });
  EXPECT_EQ(values(f(x)), values(x));
  EXPECT_EQ(f(x).sizes(), (Sizes{2, 4, 3}));
}

}  // namespace KILN_FILE
}  // namespace kiln
