// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/lazy.h"

#include "frontend/compile.h"
#include "frontend/optim/optimizer.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT
using Names = std::vector<std::string>;

struct Net : nn::Module {
  nn::LazyConv2d conv{4, 3, {.padding = 1, .groups = 2}};
  nn::LazyBatchNorm2d norm;
  nn::LazyLinear head{2};
  Net() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("head", head);
  }
  Tensor forward(const Tensor& x) override { return head(flatten(relu(norm(conv(x))), 1)); }
};

Names names(const nn::NamedTensors& tensors) {
  Names out;
  for (const auto& [name, t] : tensors) out.push_back(name);
  return out;
}
const Names kAll{"conv.weight",
                 "conv.bias",
                 "norm.weight",
                 "norm.bias",
                 "norm.running_mean",
                 "norm.running_var",
                 "norm.num_batches_tracked",
                 "head.weight",
                 "head.bias"};

TEST(NnLazy, TheFirstTensorTellsTheSizes) {
  Net net;
  EXPECT_TRUE(net.parameters().empty());
  EXPECT_EQ(net(randn({3, 6, 2, 2})).sizes(), (Sizes{3, 2}));
  EXPECT_EQ(names(net.state_dict()), kAll);
  EXPECT_EQ(net.conv.weight.sizes(), (Sizes{4, 3, 3, 3}));
  EXPECT_EQ(net.norm.running_var.sizes(), (Sizes{4}));
  EXPECT_EQ(net.head.weight.sizes(), (Sizes{2, 16}));
  EXPECT_EQ(net.head.weight.name(), "head.weight");
  EXPECT_TRUE(net.conv.bias.is_leaf() && net.conv.bias.requires_grad());
  const Tensor weight = net.head.weight;
  net(randn({1, 6, 2, 2}));
  EXPECT_EQ(net.head.weight.impl(), weight.impl());
  EXPECT_NE(error_of([&] { net(randn({1, 4, 2, 2})); }), "no error");
}

TEST(NnLazy, AStateTellsThemToo) {
  Net from, to;
  const Tensor x = randn({3, 6, 2, 2});
  from(x);
  to.load_state_dict(from.state_dict());
  from.eval();
  to.eval();
  EXPECT_EQ(values(to(x)), values(from(x)));
  EXPECT_EQ(names(to.state_dict()), kAll);
  nn::LazyLinear fc(2, false);
  fc.load_state_dict({{"weight", ones({2, 3})}});
  EXPECT_EQ(values(fc(ones({1, 3}))), (Floats{3, 3}));
  nn::LazyLinear bad(2);
  EXPECT_NE(error_of([&] { bad.load_state_dict({{"weight", ones({3, 3})}}); }), "no error");
}

TEST(NnLazy, WithoutParametersAndOtherRanks) {
  nn::LazyBatchNorm1d norm({.affine = false});
  norm(randn({4, 3}));
  EXPECT_EQ(names(norm.state_dict()), (Names{"running_mean", "running_var", "num_batches_tracked"}));
  nn::LazyConv1d conv1(2, 1);
  EXPECT_EQ(conv1(ones({1, 3, 4})).sizes(), (Sizes{1, 2, 4}));
  nn::LazyConv3d conv3(2, 1, {.bias = false});
  EXPECT_EQ(conv3(ones({3, 2, 2, 2})).sizes(), (Sizes{2, 2, 2, 2}));
  EXPECT_EQ(conv3.parameters().size(), 1u);
  nn::LazyConv2d conv(2, 1);
  EXPECT_ERROR(conv(ones({3, 2})), "invalid: LazyConv2d (@): got x f32[3,2], expected 4 dims");
  nn::LazyBatchNorm2d images;
  EXPECT_ERROR(images(ones({3, 2})), "invalid: LazyBatchNorm (@): got x f32[3,2], expected 4 to 4 dims");
  nn::LazyLinear fc(2);
  EXPECT_ERROR(fc(full({}, 1.0)), "invalid: LazyLinear (@): got x f32[], expected [..., in]");
}

/// `lazy`, after its first tensor, does what `eager` does with the same state.
template <typename Lazy, typename Eager>
void expect_becomes(Lazy&& lazy, Eager&& eager, const Tensor& x, const char* name) {
  EXPECT_TRUE(lazy.parameters().empty()) << name;
  const Sizes sizes = lazy(x).sizes();
  lazy.load_state_dict(eager.state_dict());
  EXPECT_EQ(names(lazy.state_dict()), names(eager.state_dict())) << name;
  for (const bool training : {true, false}) {
    lazy.train(training);
    eager.train(training);
    const Tensor want = eager(x);
    EXPECT_EQ(sizes, want.sizes()) << name;
    EXPECT_EQ(values(lazy(x)), values(want)) << name;
  }
  Lazy told;
  told.load_state_dict(eager.state_dict());
  told.eval();
  EXPECT_EQ(values(told(x)), values(eager(x))) << name;
}

TEST(NnLazy, EachIsTheModuleThatItBecomes) {
  manual_seed(4);
  struct Line : nn::LazyConvTranspose1d {
    Line() : nn::LazyConvTranspose1d(6, 3, {.stride = 2, .output_padding = 1, .groups = 2}) {}
  };
  struct Cube : nn::LazyConvTranspose3d {
    Cube() : nn::LazyConvTranspose3d(3, Sizes{2, 1, 3}, {.padding = Sizes{1, 0, 1}, .bias = false}) {}
  };
  struct Affine : nn::LazyInstanceNorm3d {
    Affine() : nn::LazyInstanceNorm3d({.momentum = 0.3}) {}
  };
  const Tensor line = randn({2, 4, 5}), cube = randn({2, 4, 3, 2, 5});
  expect_becomes(Line(), nn::ConvTranspose1d(4, 6, 3, {.stride = 2, .output_padding = 1, .groups = 2}), line,
                 "LazyConvTranspose1d");
  expect_becomes(Cube(),
                 nn::ConvTranspose3d(4, 3, Sizes{2, 1, 3}, {.padding = Sizes{1, 0, 1}, .bias = false}), cube,
                 "LazyConvTranspose3d");
  expect_becomes(nn::LazyBatchNorm3d(), nn::BatchNorm3d(4), cube, "LazyBatchNorm3d");
  expect_becomes(Affine(), nn::InstanceNorm3d(4, {.momentum = 0.3}), cube, "LazyInstanceNorm3d");
  nn::LazyInstanceNorm3d plain;
  EXPECT_EQ(values(plain(cube)), values(instance_norm(cube)));
  EXPECT_EQ(plain(select(cube, 0, 0)).sizes(), (Sizes{4, 3, 2, 5}));
  EXPECT_TRUE(plain.state_dict().empty());
  nn::LazyBatchNorm3d images;
  EXPECT_ERROR(images(line), "invalid: LazyBatchNorm (@): got x f32[2,4,5], expected 5 to 5 dims");
}

TEST(NnLazy, TheFirstCallIsOutsideCompiledCallables) {
  Net net;
  auto step = compile([&](const Tensor& x) {
    const Tensor loss = sum(net(x));
    loss.backward();
    return loss;
  });
  const Tensor x = randn({3, 6, 2, 2});
  EXPECT_NE(error_of([&] { step(x); }).find("conv.weight"), std::string::npos);
  net(x);
  step(x);
  EXPECT_TRUE(net.head.weight.grad().defined());
}

}  // namespace KILN_FILE
}  // namespace kiln
