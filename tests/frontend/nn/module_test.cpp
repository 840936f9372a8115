// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "frontend/nn/layers.h"
#include "tests/frontend/testing.h"

namespace kiln::nn {
namespace KILN_FILE {

using ::testing::HasSubstr;

using testing::error_of;

/// A block with a tied weight, a buffer that is saved and one that is not.
struct Block : Module {
  Block() {
    register_module("fc", fc);
    register_module("drop", drop);
    register_buffer("count", count);
    register_buffer("scratch", scratch, false);
  }
  Tensor forward(const Tensor& x) override { return drop(fc(x)); }
  Linear fc{2, 2};
  Dropout drop{0.5};
  Tensor count = zeros({1}), scratch = zeros({1});
};

struct Net : Module {
  Net() {
    register_module("first", first);
    register_module("second", second);
    register_parameter("tied", first.fc.weight);
  }
  Tensor forward(const Tensor& x) override { return second(first(x)); }
  Block first, second;
};

std::vector<std::string> names(const NamedTensors& tensors) {
  std::vector<std::string> out;
  for (const auto& [name, t] : tensors) out.push_back(name);
  return out;
}

TEST(Module, NamesAreDottedAndTiedOnesListedOnce) {
  Net net;
  EXPECT_EQ(names(net.named_parameters()),
            (std::vector<std::string>{"tied", "first.fc.bias", "second.fc.weight", "second.fc.bias"}));
  EXPECT_EQ(names(net.named_parameters(false)), (std::vector<std::string>{"tied"}));
  EXPECT_EQ(names(net.named_buffers()),
            (std::vector<std::string>{"first.count", "first.scratch", "second.count", "second.scratch"}));
  EXPECT_EQ(net.parameters().size(), 4u);
  std::vector<std::string> modules;
  for (const auto& [name, m] : net.named_modules()) modules.push_back(name);
  EXPECT_EQ(modules, (std::vector<std::string>{"", "first", "first.fc", "first.drop", "second", "second.fc",
                                               "second.drop"}));
}

TEST(Module, StateDictHasEveryNameAndSharesMemory) {
  Net net;
  const NamedTensors state = net.state_dict();
  EXPECT_EQ(names(state), (std::vector<std::string>{"tied", "first.count", "first.fc.weight", "first.fc.bias",
                                                    "second.count", "second.fc.weight", "second.fc.bias"}));
  NoGrad guard;
  net.second.fc.bias.fill_(4);
  EXPECT_EQ(state.back().second.to_vector<float>(), (std::vector<float>{4, 4}));
}

TEST(Module, LoadCopiesInPlace) {
  Net from, to;
  const Tensor handle = to.second.fc.weight;
  to.load_state_dict(from.state_dict());
  EXPECT_EQ(handle.to_vector<float>(), from.second.fc.weight.to_vector<float>());
  EXPECT_NE(handle.impl(), from.second.fc.weight.impl());
}

TEST(Module, LoadListsEveryMisfit) {
  Block block;
  const NamedTensors state = {
      {"fc.weight", zeros({3, 2})}, {"fc.bias", zeros({2}, {DType::f64})}, {"x", zeros({1})}};
  EXPECT_EQ(error_of([&] { block.load_state_dict(state, true, Loc("net.cpp", 42)); }),
            "invalid: load_state_dict (net.cpp:42): the state does not fit the module"
            "\n  missing: count f32[1]"
            "\n  fc.weight: got f32[3,2], expected f32[2,2]"
            "\n  fc.bias: got f64[2], expected f32[2]"
            "\n  unexpected: x f32[1]");
  EXPECT_EQ(error_of([&] {
              block.load_state_dict({{"count", ones({1})}, {"x", zeros({1})}}, false);
            }),
            "no error");
  EXPECT_EQ(block.count.item(), 1);
}

TEST(Module, APrefixThatIsAllThatIsWrongIsNamed) {
  const Loc at("net.cpp", 42);
  Linear fc(1, 1);
  NamedTensors state{{"optim.0.step", zeros({})}};
  for (const auto& [name, t] : fc.state_dict()) state.emplace_back("model.fc." + name, t);
  EXPECT_EQ(error_of([&] { fc.load_state_dict(state, true, at); }),
            "invalid: load_state_dict (net.cpp:42): the state does not fit the module: before the module's "
            "names it has 'model.fc.'; strip that first (name.substr(9))"
            "\n  missing: weight f32[1,1]"
            "\n  missing: bias f32[1]"
            "\n  unexpected: model.fc.bias f32[1]"
            "\n  unexpected: model.fc.weight f32[1,1]"
            "\n  unexpected: optim.0.step f32[]");
  // More than that is wrong: another name, or one that fits.
  state[1].first = "model.fc.w";
  EXPECT_THAT(error_of([&] { fc.load_state_dict(state, true, at); }), HasSubstr("the module\n"));
  state[1].first = "model.fc.weight";
  state[0] = {"bias", zeros({2})};
  EXPECT_THAT(error_of([&] { fc.load_state_dict(state, true, at); }), HasSubstr("the module\n"));
  EXPECT_THAT(error_of([&] { fc.load_state_dict({}, true, at); }), HasSubstr("the module\n"));
}

TEST(Module, TrainAndEvalReachEveryModule) {
  Net net;
  net.eval();
  for (const auto& [name, m] : net.named_modules()) EXPECT_FALSE(m->is_training()) << name;
  const Tensor x = ones({3, 2});
  EXPECT_EQ(net(x).to_vector<float>(), net(x).to_vector<float>());
  net.train();
  for (const auto& [name, m] : net.named_modules()) EXPECT_TRUE(m->is_training()) << name;
}

TEST(Module, HooksChangeInputsAndOutputsAndCanBeRemoved) {
  Linear fc(1, 1);
  fc.load_state_dict({{"weight", ones({1, 1})}, {"bias", zeros({1})}});
  std::string order;
  HookHandle pre = fc.register_forward_pre_hook([&](Module&, std::vector<Tensor>& in) {
    order += "p";
    in[0] = in[0] + 1;
  });
  HookHandle post = fc.register_forward_hook([&](Module& m, const std::vector<Tensor>& in, Tensor& out) {
    order += "h";
    EXPECT_EQ(&m, &fc);
    EXPECT_EQ(in[0].item(), 3);
    out = out * 10;
  });
  const Tensor x = Tensor::from_vector<float>({2}, {1, 1});
  EXPECT_EQ(fc(x).item(), 30);
  pre.remove();
  post.remove();
  EXPECT_EQ(fc(x).item(), 2);
  EXPECT_EQ(order, "ph");
}

TEST(Module, CastReachesHandlesHeldElsewhere) {
  Net net;
  const Tensor handle = net.first.fc.weight;
  const std::vector<float> before = handle.to_vector<float>();
  net.to(DType::f64);
  EXPECT_EQ(handle.dtype(), DType::f64);
  EXPECT_EQ(handle.to_vector<double>(), std::vector<double>(before.begin(), before.end()));
  EXPECT_TRUE(handle.requires_grad());
  EXPECT_EQ(error_of([&] { net.to(DType::i64); }), "invalid: Module::to: expected a floating dtype, got i64");
}

TEST(Module, GradientsAreClearedAndFrozen) {
  Net net;
  net.eval();
  sum(net(ones({1, 2}))).backward();
  for (const Tensor& p : net.parameters()) EXPECT_TRUE(p.grad().defined()) << p.name();
  net.zero_grad();
  for (const Tensor& p : net.parameters()) EXPECT_FALSE(p.grad().defined()) << p.name();
  net.requires_grad_(false);
  EXPECT_FALSE(net(ones({1, 2})).requires_grad());
}

TEST(Module, ApplyVisitsChildrenFirst) {
  Block block;
  std::vector<std::string> order;
  block.apply([&](Module& m) { order.push_back(m.name()); });
  EXPECT_EQ(order, (std::vector<std::string>{"fc", "drop", ""}));
}

TEST(Module, Mistakes) {
  Linear fc(1, 1);
  struct Bad : Module {
    Bad() { register_module("a.b", fc); }
    Linear fc{1, 1};
  };
  EXPECT_EQ(error_of([] { Bad bad; }), "invalid: register_module: bad name 'a.b'");
}

}  // namespace KILN_FILE
}  // namespace kiln::nn
