// SPDX-License-Identifier: Apache-2.0
// Finding one's way in a tree of modules, copies of it, and freezing parts of it.
#include "frontend/compile.h"
#include "frontend/nn/layers.h"
#include "frontend/nn/norm.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

struct Net : nn::Module {
  nn::Linear fc{2, 2};
  nn::Sequential body;
  Tensor scratch = zeros({1}), steps = zeros({1});
  explicit Net(int64_t width = 3) {
    register_module("fc", fc);
    register_module("body", body);
    body.emplace_back<nn::Linear>(2, width);
    body.emplace_back<nn::Dropout>(0.5);
    register_buffer("scratch", scratch, false);
    register_buffer("steps", steps);
  }
  Tensor forward(const Tensor& x) override { return body(fc(x)); }
};

TEST(ModuleTree, ChildrenAndMembersByName) {
  Net net;
  EXPECT_EQ(net.children(), (std::vector<nn::Module*>{&net.fc, &net.body}));
  EXPECT_EQ(net.named_children()[1].first, "body");
  EXPECT_EQ(&net.get_submodule("body.0"), &net.body[0]);
  EXPECT_EQ(&net.get_submodule(""), &net);
  EXPECT_EQ(net.get_parameter("body.0.weight").impl(), net.body.at<nn::Linear>(0).weight.impl());
  EXPECT_EQ(net.get_buffer("steps").impl(), net.steps.impl());
  EXPECT_EQ(error_of([&] { net.get_submodule("body.7", Loc("net.cpp", 42)); }),
            "invalid: get_submodule (net.cpp:42): no module 'body.7'; 'body' has 0, 1");
  EXPECT_EQ(error_of([&] { net.get_submodule("none.0", Loc("net.cpp", 42)); }),
            "invalid: get_submodule (net.cpp:42): no module 'none.0'; this module has fc, body");
  EXPECT_EQ(error_of([&] { net.get_parameter("fc.none", Loc("net.cpp", 42)); }),
            "invalid: get_parameter (net.cpp:42): no parameter 'fc.none'; 'fc' has weight, bias");
  EXPECT_EQ(error_of([&] { net.get_parameter("fc", Loc("net.cpp", 42)); }),
            "invalid: get_parameter (net.cpp:42): no parameter 'fc'; this module has none");
  EXPECT_EQ(error_of([&] { net.get_buffer("fc.weight", Loc("net.cpp", 42)); }),
            "invalid: get_buffer (net.cpp:42): no buffer 'fc.weight'; 'fc' has none");
}

TEST(ModuleTree, ACopyIsAllThatTheModuleIsAndSharesNothing) {
  Net net(4);
  net.scratch.fill_(7);
  net.fc.requires_grad_(false);
  net.body[1].eval();
  net.fc.register_forward_hook([](nn::Module&, const std::vector<Tensor>&, Tensor& y) { y = y * 0.0; });
  const std::unique_ptr<Net> copy = nn::deep_copy(net, 4);
  const nn::NamedTensors from = net.named_parameters(), to = copy->named_parameters();
  ASSERT_EQ(from.size(), to.size());
  for (size_t i = 0; i < from.size(); ++i) {
    EXPECT_EQ(from[i].first, to[i].first);
    EXPECT_EQ(values(from[i].second), values(to[i].second));
    EXPECT_NE(from[i].second.impl(), to[i].second.impl());
    EXPECT_EQ(from[i].second.requires_grad(), to[i].second.requires_grad());
    EXPECT_TRUE(to[i].second.is_leaf());
  }
  EXPECT_EQ(copy->scratch.item(), 7);
  EXPECT_TRUE(copy->is_training());
  EXPECT_FALSE(copy->body[1].is_training());
  EXPECT_NE(values(copy->fc(ones({1, 2}))), (Floats{0, 0}));
  Net other;
  EXPECT_ERROR(other.copy_state_from(net),
               "invalid: copy_state_from (@): the parameters differ, 4 and 4 of them\n  body.0.weight: got "
               "f32[4,2], expected f32[3,2]\n  body.0.bias: got f32[4], expected f32[3]");
  nn::Linear fc(2, 2, false);
  EXPECT_ERROR(fc.copy_state_from(net.fc),
               "invalid: copy_state_from (@): the parameters differ, 2 and 1 of them");
}

TEST(ModuleHooks, Mistakes) {
  nn::Linear fc(2, 2);
  EXPECT_ERROR(fc.register_forward_hook(nullptr),
               "invalid: register_forward_hook: the hook is an empty function");
  EXPECT_ERROR(fc.register_forward_pre_hook(nullptr),
               "invalid: register_forward_pre_hook: the hook is an empty function");
  EXPECT_ERROR(fc.weight.register_hook(nullptr), "invalid: register_hook (@): the hook is an empty function");
  HookHandle h = fc.register_forward_pre_hook([](nn::Module&, std::vector<Tensor>& in) { in.clear(); });
  EXPECT_ERROR(fc(ones({1, 2})), "invalid: forward (@): a pre-hook left 0 inputs of 1");
  h.remove();
  h = fc.register_forward_hook([](nn::Module&, const std::vector<Tensor>&, Tensor& y) { y = {}; });
  EXPECT_ERROR(fc(ones({1, 2})), "invalid: forward (@): a hook left the output undefined");
  h.remove();
  EXPECT_EQ(fc(ones({1, 2})).numel(), 2);
  EXPECT_ERROR(nn::Dropout(1.5), "invalid: Dropout (@): p is 1.5, expected 0 to 1");
}

class CompiledTree : public ::testing::TestWithParam<Backend> {};

TEST_P(CompiledTree, FrozenPartsGetNoGradients) {
  Net net;
  net.eval();
  CompileOptions o;
  o.backend = GetParam();
  auto step = compile([&](const Tensor& x) { sum(net(x)).backward(); }, o);
  const Tensor x = ones({4, 2});
  for (const bool frozen : {true, false, true}) {
    net.fc.requires_grad_(!frozen);
    net.zero_grad();
    step(x);
    EXPECT_EQ(net.fc.weight.grad().defined(), !frozen);
    EXPECT_EQ(values(net.get_parameter("body.0.bias").grad()), (Floats{4, 4, 4}));
  }
  EXPECT_EQ(step.stats().builds.size(), 2u);
}
INSTANTIATE_TEST_SUITE_P(Backends, CompiledTree, ::testing::Values(Backend::reference, Backend::native));

}  // namespace KILN_FILE
}  // namespace kiln
