// SPDX-License-Identifier: Apache-2.0
// Modules: names, tied parameters, modes, state, hooks (before, after and without compile), dtypes.
#include "frontend/nn/module.h"

#include <gmock/gmock.h>

#include "frontend/compile.h"
#include "frontend/nn/layers.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

struct Block : nn::Module {
  nn::LayerNorm ln{2};
  nn::Linear fc{2, 2};
  Tensor steps = zeros({1}), scratch = ones({1});
  Block() {
    register_module("ln", ln);
    register_module("fc", fc);
    register_buffer("steps", steps);
    register_buffer("scratch", scratch, false);
  }
  Tensor forward(const Tensor& x) override { return fc(ln(x)) + x; }
};

struct Net : nn::Module {
  nn::Embedding wte{3, 2};
  nn::ModuleList blocks;
  nn::Linear head{2, 3, false};
  Net() {
    register_module("wte", wte);
    register_module("blocks", blocks);
    blocks.emplace_back<Block>();
    blocks.emplace_back<Block>();
    register_module("head", head);
  }
  Tensor forward(const Tensor& i) override {
    Tensor x = wte(i);
    for (size_t b = 0; b < blocks.size(); ++b) x = blocks[b](x);
    return head(x);
  }
};

std::vector<std::string> names(const nn::NamedTensors& t) {
  std::vector<std::string> out;
  for (const auto& [name, x] : t) out.push_back(name);
  return out;
}
using Names = std::vector<std::string>;

TEST(Module, DottedNamesInRegistrationOrder) {
  Net net;
  EXPECT_EQ(names(net.named_parameters()),
            (Names{"wte.weight", "blocks.0.ln.weight", "blocks.0.ln.bias", "blocks.0.fc.weight",
                   "blocks.0.fc.bias", "blocks.1.ln.weight", "blocks.1.ln.bias", "blocks.1.fc.weight",
                   "blocks.1.fc.bias", "head.weight"}));
  EXPECT_EQ(names(net.named_buffers()),
            (Names{"blocks.0.steps", "blocks.0.scratch", "blocks.1.steps", "blocks.1.scratch"}));
  EXPECT_TRUE(net.named_parameters(false).empty());
  EXPECT_EQ(net.blocks.at<Block>(1).fc.weight.name(), "blocks.1.fc.weight");
  EXPECT_EQ(net.blocks[1].name(), "1");
  Names modules;
  for (auto& [name, m] : net.named_modules()) modules.push_back(name);
  EXPECT_EQ(modules, (Names{"", "wte", "blocks", "blocks.0", "blocks.0.ln", "blocks.0.fc", "blocks.1",
                            "blocks.1.ln", "blocks.1.fc", "head"}));
}

TEST(Module, TiedParametersAreOneParameterUnderTwoNames) {
  Net net;
  net.head.weight = net.wte.weight;
  EXPECT_EQ(net.parameters().size(), 9u);
  const Names state = names(net.state_dict());
  EXPECT_EQ(std::count(state.begin(), state.end(), "head.weight"), 1);
  EXPECT_EQ(std::count(state.begin(), state.end(), "wte.weight"), 1);
  sum(net(ids({0, 2}))).backward();
  Net other;
  other.load_state_dict(net.state_dict());
  sum(other(ids({0, 2}))).backward();
  const Floats apart = values(other.wte.weight.grad() + other.head.weight.grad());
  const Floats tied = values(net.wte.weight.grad());
  for (size_t i = 0; i < tied.size(); ++i) EXPECT_NEAR(tied[i], apart[i], 1e-5f) << i;
}

TEST(Module, TiedWeightsByHand) {
  Tensor w = mat({1, 2, 3, 4}, {2, 2}, true);
  for (Backend b : {Backend::reference, Backend::native}) {
    w.set_grad({});
    CompileOptions o;
    o.backend = b;
    auto step = compile(
        [&](const Tensor& x) {
          Tensor loss = sum(matmul(t(w), matmul(w, x)));
          loss.backward();
          return loss;
        },
        o);
    EXPECT_EQ(step(vec({1, 1})).item(), 58);
    EXPECT_EQ(values(w.grad()), (Floats{6, 6, 14, 14}));
  }
}

TEST(Module, StateRoundTripSharesNothing) {
  Net a, b;
  a.blocks.at<Block>(0).steps.fill_(7);
  b.load_state_dict(a.state_dict());
  EXPECT_EQ(values(b(ids({1}))), values(a(ids({1}))));
  EXPECT_EQ(b.blocks.at<Block>(0).steps.item(), 7);
  {
    NoGrad guard;
    a.wte.weight.fill_(0);
  }
  EXPECT_NE(values(b.wte.weight), values(a.wte.weight));
  for (const Tensor& p : b.parameters()) EXPECT_TRUE(p.is_leaf() && p.requires_grad());
  const Names state = names(a.state_dict());
  EXPECT_EQ(std::count(state.begin(), state.end(), "blocks.0.scratch"), 0);
}

TEST(Module, LoadListsAllFaultsAndChangesNothing) {
  nn::Linear m(2, 1);
  const Floats before = values(m.weight);
  const nn::NamedTensors state{{"weight", zeros({3, 1})}, {"extra", zeros({2})}};
  EXPECT_EQ(
      error_of([&] { m.load_state_dict(state, true, Loc("net.cpp", 42)); }),
      "invalid: load_state_dict (net.cpp:42): the state does not fit the module\n  weight: got f32[3,1], "
      "expected f32[1,2]\n  missing: bias f32[1]\n  unexpected: extra f32[2]");
  EXPECT_EQ(values(m.weight), before);
}

TEST(Module, LoadWithoutStrictReportsWhatItLeftOut) {
  nn::Linear m(2, 1);
  const Floats before = values(m.weight);
  nn::IncompatibleKeys keys = m.load_state_dict(
      {{"other", zeros({2})}, {"weight", zeros({1, 2}, {DType::f64})}, {"extra", Tensor()}}, false);
  EXPECT_EQ(keys.missing_keys, (Names{"bias"}));
  EXPECT_EQ(keys.unexpected_keys, (Names{"extra", "other"}));
  EXPECT_EQ(keys.mismatched_keys, (Names{"weight"}));
  EXPECT_FALSE(keys.empty());
  EXPECT_EQ(values(m.weight), before);
  keys = m.load_state_dict({{"bias", ones({1})}, {"weight", Tensor()}}, false);
  EXPECT_EQ(keys.mismatched_keys, (Names{"weight"}));
  EXPECT_EQ(values(m.bias), (Floats{1}));
  EXPECT_TRUE(m.load_state_dict(m.state_dict()).empty());
  EXPECT_EQ(error_of([&] {
              m.load_state_dict({{"bias", zeros({1})}, {"bias", zeros({1})}}, false, Loc("net.cpp", 42));
            }),
            "invalid: load_state_dict (net.cpp:42): the state does not fit the module\n  given twice: bias");
  EXPECT_EQ(values(m.bias), (Floats{1}));
}

TEST(Module, LoadingAValueWithHistoryKeepsParametersLeaves) {
  nn::Linear m(1, 1);
  m.load_state_dict({{"weight", m.weight * 2.0}, {"bias", m.bias * 1.0}});
  EXPECT_TRUE(m.weight.is_leaf());
  sum(m(ones({1, 1}))).backward();
  EXPECT_EQ(values(m.weight.grad()), (Floats{1}));
}

TEST(Module, TrainEvalReachesAll) {
  nn::Sequential s;
  s.emplace_back<nn::Dropout>(1.0);
  s.emplace_back<nn::ReLU>();
  EXPECT_EQ(values(s(vec({1, 2}))), (Floats{0, 0}));
  s.eval();
  EXPECT_FALSE(s[0].is_training());
  EXPECT_EQ(values(s(vec({1, -2}))), (Floats{1, 0}));
  s.train();
  EXPECT_TRUE(s[0].is_training());
}

TEST(Module, CastsInPlace) {
  Net net;
  const Tensor held = net.wte.weight;
  net.head.weight = net.wte.weight;
  sum(net(ids({0}))).backward();
  net.to(DType::bf16);
  EXPECT_EQ(held.dtype(), DType::bf16);
  EXPECT_EQ(net.blocks.at<Block>(0).steps.dtype(), DType::bf16);
  EXPECT_FALSE(held.grad().defined());
  EXPECT_EQ(net(ids({0, 1})).dtype(), DType::bf16);
  sum(net(ids({0}))).backward();
  EXPECT_EQ(held.grad().dtype(), DType::bf16);
  EXPECT_EQ(error_of([&] { net.to(DType::i64); }), "invalid: Module::to: expected a floating dtype, got i64");
}

TEST(Module, FreezeZeroApply) {
  Net net;
  sum(net(ids({0}))).backward();
  net.zero_grad();
  for (const Tensor& p : net.parameters()) EXPECT_FALSE(p.grad().defined());
  net.requires_grad_(false);
  EXPECT_FALSE(net(ids({0})).requires_grad());
  Names order;
  net.apply([&](nn::Module& m) { order.push_back(m.name()); });
  EXPECT_EQ(order.front(), "wte");
  EXPECT_EQ(order.back(), "");
}

TEST(Module, Errors) {
  nn::ReLU relu;
  EXPECT_ERROR(
      relu(vec({1}), vec({2})),
      "unsupported: forward (@): this module overrides none with 2 operand(s) (each is a const Tensor&: "
      "`Tensor forward(const Tensor& x) override`)");
  nn::Sequential net;
  net.emplace_back<nn::ReLU>();
  net.emplace_back<nn::Linear>(2, 3);
  EXPECT_NE(error_of([&] { net(vec({1, 2, 3})); }).find("of one dtype [in 1]"), std::string::npos);
  nn::Linear m(2, 3);
  EXPECT_ERROR(m(vec({1, 2, 3})),
               "invalid: linear (@): got x f32[3] and weight f32[3,2], expected x [..., in] and weight [out, "
               "in] of one dtype");
  struct Bad : nn::Module {
    nn::ReLU r;
    Bad() { register_module("a.b", r); }
  };
  EXPECT_EQ(error_of([] { Bad b; }), "invalid: register_module: bad name 'a.b'");
}

/// What only a run can find out says where in the model, too, compiled as eager.
TEST(Module, ARunsErrorsNameTheModule) {
  nn::Sequential net;
  net.emplace_back<nn::Flatten>();
  net.emplace_back<nn::Embedding>(3, 2);
  const auto f = [&](const Tensor& ids) { return net(ids); };
  auto fast = compile(f);
  const Tensor bad = tensor({{0, 5}});
  const auto wrong = [](const std::string& text) {
    return text.find("ids 5 is out of range; expected 0 to 2, the rows of weight f32[3,2]") !=
               std::string::npos &&
           text.find(" [in 1]") != std::string::npos;
  };
  EXPECT_PRED1(wrong, error_of([&] { f(bad).to_vector<float>(); }));
  EXPECT_PRED1(wrong, error_of([&] { fast(bad).to_vector<float>(); }));
}

class Hooks : public ::testing::TestWithParam<Backend> {};

TEST_P(Hooks, RegisteredAfterTheFirstCallRunAndStop) {
  struct Three : nn::Module {
    nn::Linear a{2, 2}, b{2, 2}, c{2, 2};
    Three() {
      register_module("a", a);
      register_module("b", b);
      register_module("c", c);
    }
    Tensor forward(const Tensor& x) override { return c(relu(b(relu(a(x))))); }
  } net;
  CompileOptions o;
  o.backend = GetParam();
  auto f = compile([&](const Tensor& x) { return net(x); }, o);
  const Floats first = values(f(mat({1, 2}, {1, 2})));
  EXPECT_THAT(first, ::testing::Pointwise(::testing::FloatNear(1e-6f), values(net(mat({1, 2}, {1, 2})))));
  std::vector<Tensor> seen;
  std::vector<HookHandle> handles;
  auto store = [&](nn::Module&, const std::vector<Tensor>&, Tensor& y) { seen.push_back(sum(y)); };
  for (nn::Linear* m : {&net.a, &net.b, &net.c}) handles.push_back(m->register_forward_hook(store));
  for (int i = 0; i < 3; ++i) {
    const Tensor x = mat({1.0f + i, -2}, {1, 2});
    seen.clear();
    const Floats got = values(f(x));
    ASSERT_EQ(seen.size(), 3u);
    const std::vector<Tensor> compiled = seen;
    seen.clear();
    EXPECT_THAT(values(net(x)), ::testing::Pointwise(::testing::FloatNear(1e-6f), got));
    for (size_t k = 0; k < 3; ++k) EXPECT_NEAR(compiled[k].item(), seen[k].item(), 1e-6) << k;
  }
  for (HookHandle& h : handles) h.remove();
  seen.clear();
  f(mat({1, 2}, {1, 2}));
  EXPECT_TRUE(seen.empty());
  EXPECT_EQ(f.stats().builds.size(), 2u);
}

TEST_P(Hooks, ReplaceInputsAndOutputs) {
  nn::ReLU m;
  CompileOptions o;
  o.backend = GetParam();
  auto f = compile([&](const Tensor& x) { return m(x); }, o);
  EXPECT_EQ(values(f(vec({-1, 2}))), (Floats{0, 2}));
  HookHandle pre = m.register_forward_pre_hook([](nn::Module&, std::vector<Tensor>& in) { in[0] = -in[0]; });
  HookHandle post =
      m.register_forward_hook([](nn::Module&, const std::vector<Tensor>&, Tensor& y) { y = y + 1.0; });
  EXPECT_EQ(values(f(vec({-1, 2}))), (Floats{2, 1}));
  pre.remove();
  EXPECT_EQ(values(f(vec({-1, 2}))), (Floats{1, 3}));
  post.remove();
  EXPECT_EQ(values(f(vec({-1, 2}))), (Floats{0, 2}));
}

TEST_P(Hooks, TensorHookOnAnInputAppearsAndGoes) {
  const Tensor w = mat({1, 0, 0, 0, 1, 0, 0, 0, 1}, {3, 3});
  CompileOptions o;
  o.backend = GetParam();
  bool hooked = false;
  auto step = compile(
      [&](Tensor x) {
        x.set_grad({});
        Tensor y = linear(x, w);
        if (hooked) y.register_hook([](const Tensor& g) { return g * 2.0; });
        sum(y).backward();
      },
      o);
  Tensor x = vec({1, 2, 3}, true);
  for (const bool on : {false, true, false}) {
    hooked = on;
    step(x);
    EXPECT_EQ(values(x.grad()), Floats(3, on ? 2.0f : 1.0f));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Hooks, ::testing::Values(Backend::reference, Backend::native));

}  // namespace KILN_FILE
}  // namespace kiln
