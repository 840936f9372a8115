// SPDX-License-Identifier: Apache-2.0
// What all optimizers share: groups, hyper-parameters by name, run-time numbers, halves, and mistakes.
#include "frontend/optim/optimizer.h"

#include <regex>
#include <set>

#include "frontend/nn/container.h"
#include "frontend/nn/layers.h"
#include "frontend/optim/clip.h"
#include "tests/frontend/optim/all.h"
#include "tests/frontend/testing.h"

namespace kiln::optim {
namespace KILN_FILE {

using kiln::testing::error_of;

class Every : public ::testing::TestWithParam<Maker> {};

/// Every hyper-parameter that is no choice of a formula, changed a little.
void change(Optimizer& o, int step) {
  for (const char* name : {"lr",        "momentum",    "dampening",     "weight_decay",   "beta1",
                           "beta2",     "eps",         "lambd",         "alpha",          "t0",
                           "eta_minus", "eta_plus",    "step_size_max", "momentum_decay", "lr_decay",
                           "rho",       "beta2_decay", "eps1",          "eps2",           "d",
                           "ns_a"})
    if (o.has(name) && o.get(0, name) != 0) {
      const double next = o.get(0, name) * (step % 2 ? 1.01 : 0.985);
      o.set(0, name, name == std::string("d") ? std::max(next, 1.0) : next);
    }
  if (!o.has("weight_decay") || dynamic_cast<SGD*>(&o)) return;  // SGD's is another formula when it is 0
  if (step == 2) o.set(0, "weight_decay", 0);
  if (step == 3) o.set(0, "weight_decay", 0.02);
}

TEST_P(Every, CompiledStepsEqualEagerOnesAndNumbersNeverRebuild) {
  const std::vector<Tensor> p = some_weights(GetParam()), q = some_weights(GetParam());
  const auto eager = GetParam().make(p), compiled = GetParam().make(q);
  auto step = compile([&](const std::vector<Tensor>& g) { train(*compiled, g); });
  for (int t = 0; t < 7; ++t) {
    change(*eager, t);
    change(*compiled, t);
    train(*eager, gradients(p, t));
    step(gradients(q, t));
  }
  EXPECT_EQ(step.stats().builds.size(), 1u);
  for (size_t k = 0; k < p.size(); ++k) {
    expect_near(q[k], elements(p[k]));
    EXPECT_EQ(compiled->step_count(k), 7);
    EXPECT_TRUE(q[k].is_leaf() && q[k].requires_grad());
  }
}

TEST_P(Every, MovesDownhillAndUpWithMaximize) {
  // The sum of the weights, whose gradient is 1 everywhere.
  for (const bool up : {false, true}) {
    Tensor p = Tensor::from_vector(std::vector<double>(12, 1.0), {4, 3}).requires_grad_();
    const auto o = GetParam().make({p});
    if (o->has("weight_decay")) o->set(0, "weight_decay", 0);
    if (o->has("lambd")) o->set(0, "lambd", 0);
    if (!o->has("maximize")) continue;
    o->set(0, "maximize", up ? 1 : 0);
    for (int t = 0; t < 3; ++t) {
      o->zero_grad();
      sum(p).backward();
      o->step();
    }
    for (double v : elements(p)) EXPECT_TRUE(up ? v > 1 : v < 1) << v << " " << up;
  }
}

TEST_P(Every, HalvesAreComputedInF32) {
  if (GetParam().matrices_only) return;
  for (const DType half : {DType::bf16, DType::f16}) {
    Tensor p = weights({5}, half);
    Tensor q = p.detach().to(DType::f32).requires_grad_();
    const auto low = GetParam().make({p}), high = GetParam().make({q});
    if (std::string(GetParam().name) == "adafactor")
      high->set(0, "eps1", half == DType::f16 ? 0x1p-10 : 0x1p-7);
    p.set_grad(gradient(p, 0));
    q.set_grad(p.grad().to(DType::f32));
    low->step();
    high->step();
    EXPECT_EQ(elements(p), elements(q.detach().to(half))) << dtype_name(half);
  }
}

TEST_P(Every, AnEmptyParameterIsNoTrouble) {
  Tensor p = weights({0, 3}), scalar = weights({});
  const auto o = GetParam().make(GetParam().matrices_only ? std::vector{p} : std::vector{p, scalar});
  for (Tensor t : o->params()) t.set_grad(gradient(t, 0));
  o->step();
  EXPECT_EQ(o->step_count(0), 1);
  if (!GetParam().matrices_only) {
    EXPECT_NE(scalar.item(), 1);
  }
}

TEST_P(Every, ADroppedStepIsTakenBack) {
  const std::vector<Tensor> p = some_weights(GetParam()), q = some_weights(GetParam());
  const auto plain = GetParam().make(p), o = GetParam().make(q);
  bool fail = true;
  auto step = compile([&](const std::vector<Tensor>& g) {
    train(*o, g);
    if (fail) throw std::runtime_error("stop");
  });
  EXPECT_THROW(step(gradients(q, 5)), std::runtime_error);
  EXPECT_EQ(o->step_count(0), 0);
  fail = false;
  for (int t = 0; t < 3; ++t) {
    train(*plain, gradients(p, t));
    step(gradients(q, t));
  }
  expect_near(q[0], elements(p[0]));
}

TEST_P(Every, ADroppedFirstStepLeavesNoState) {
  const std::vector<Tensor> p = some_weights(GetParam());
  const auto o = GetParam().make(p);
  const size_t before = o->state_dict().size();
  auto step = compile([&](const std::vector<Tensor>& g) {
    train(*o, g);
    throw std::runtime_error("stop");
  });
  EXPECT_THROW(step(gradients(p, 0)), std::runtime_error);
  EXPECT_EQ(o->state_dict().size(), before);
}

/// What a compiled step of `n` equal parameters is made of, once there is a state.
Build step_of(const Maker& maker, int n) {
  std::vector<Tensor> params;
  for (int i = 0; i < n; ++i) params.push_back(weights({8, 16}));
  const auto o = maker.make(params);
  auto step = compile([&](const std::vector<Tensor>& g) {
    for (size_t i = 0; i < g.size(); ++i) params[i].set_grad(g[i]);
    o->step();
  });
  for (int t = 0; t < 3; ++t) step(gradients(params, t));
  return step.stats().builds.back();
}

TEST_P(Every, MoreParametersTakeNoMoreLaunches) {
  const Build few = step_of(GetParam(), 4), many = step_of(GetParam(), 12);
  EXPECT_EQ(few.kernels, many.kernels);
  // Norms of each parameter, means of the rows and columns of each, products of each with itself: what sums
  // over a parameter is a launch of its own.
  const std::set<std::string> sums{"lamb", "adafactor", "muon"};
  if (sums.contains(GetParam().name)) {
    EXPECT_LE(many.work.size(), 3 * few.work.size());
    return;
  }
  EXPECT_EQ(few.work.size(), 1u);
  EXPECT_EQ(many.work.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(All, Every, ::testing::ValuesIn(all_optimizers()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Groups, HaveHyperParametersOfTheirOwnInOneEvent) {
  Tensor a = weights({3}), b = weights({3}), c = weights({3});
  AdamW o({a}, {.lr = 0.1, .weight_decay = 0.5});
  AdamWOptions rest = o.options();
  rest.weight_decay = 0;
  o.add_param_group({b, c}, rest);
  EXPECT_EQ(o.group_count(), 2u);
  EXPECT_EQ(o.group_params(1).size(), 2u);
  Tensor x = weights({3}), y = weights({3});
  AdamW with({x}, {.lr = 0.1, .weight_decay = 0.5}), without({y}, {.lr = 0.1, .weight_decay = 0});
  auto step = compile([&](const std::vector<Tensor>& g) { train(o, g); });
  for (int t = 0; t < 3; ++t) {
    if (t == 2) {
      o.options(1).lr = 0.3;
      without.lr = 0.3;
    }
    step(std::vector(3, gradient(a, t)));
    train(with, {gradient(a, t)});
    train(without, {gradient(a, t)});
  }
  expect_near(a, elements(x));
  expect_near(b, elements(y));
  expect_near(c, elements(y));
  EXPECT_EQ(step.stats().builds.size(), 1u);
}

TEST(Groups, WhoseStepIsItsOwnAreNotMistakenForOneAnother) {
  Tensor a = weights({3}), b = weights({3});
  SGD o({a}, {.lr = 0.5});
  o.add_param_group({b}, {.lr = 0.25});
  auto step = compile([&](bool first) {
    o.zero_grad();
    sum(first ? a : b).backward();
    o.step();
  });
  const std::vector<double> before = elements(a);
  step(true);
  step(false);
  step(true);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(elements(a)[i], before[i] - 1, 1e-12);
    EXPECT_NEAR(elements(b)[i], before[i] - 0.25, 1e-12);
  }
}

TEST(Groups, OneRateOrSeveral) {
  Tensor a = weights({1}), b = weights({1});
  SGD o({a}, {.lr = 1});
  o.add_param_group({b}, {.lr = 2});
  EXPECT_EQ(error_of([&] { (void)double{o.lr}; }),
            "invalid: Optimizer::lr: groups have learning rates of their own; got 1 and 2 (read them by "
            "get(group, \"lr\"))");
  o.lr = 3;
  EXPECT_EQ(o.options(0).lr, 3);
  EXPECT_EQ(o.options(1).lr, 3);
  EXPECT_EQ(o.lr, 3);
}

TEST(Optimizer, HyperParametersByName) {
  SGD o({weights({1})}, {.momentum = 0.5});
  EXPECT_EQ(o.get(0, "momentum"), 0.5);
  o.set(0, "nesterov", 1);
  EXPECT_TRUE(o.options().nesterov);
  EXPECT_FALSE(o.has("beta1"));
  EXPECT_ERROR(o.get(0, "beta1"),
               "invalid: Optimizer::get (@): SGD has no hyper-parameter 'beta1'; it has lr, momentum, "
               "dampening, weight_decay, nesterov, maximize");
  EXPECT_ERROR(o.set(1, "lr", 1), "invalid: Optimizer::set (@): no group 1; there are 1");
}

TEST(Optimizer, ParametersThatStartLateBuildAsOftenAsTheirGradientsDiffer) {
  // Which parameters have come how far is no part of what is recorded.
  Tensor a = weights({3}), b = weights({3}), c = weights({3});
  AdamW o({a, b, c}, {.lr = 0.1});
  auto step = compile([&](int with_b, int with_c) {
    o.zero_grad();
    Tensor loss = sum(a);
    if (with_b) loss = loss + sum(b);
    if (with_c) loss = loss + sum(c);
    loss.backward();
    o.step();
  });
  for (int t = 0; t < 8; ++t) step(t % 2, t % 3 == 0);
  // Four sets of gradients; the first is recorded when all have come equally far, and again when not.
  EXPECT_LE(step.stats().builds.size(), 8u);
  const size_t so_far = step.stats().builds.size();
  for (int t = 0; t < 24; ++t) step(t % 2, t % 3 == 0);
  EXPECT_EQ(step.stats().builds.size(), so_far);
}

TEST(Optimizer, ParametersShareALaunch) {
  std::vector<Tensor> params;
  for (int i = 0; i < 24; ++i) params.push_back(weights({i % 2 ? 8 : 4, 16}));
  AdamW o(params, {});
  auto step = compile([&](const std::vector<Tensor>& g) {
    for (size_t i = 0; i < g.size(); ++i) params[i].set_grad(g[i]);
    o.step();
  });
  step(gradients(params, 0));
  const Build build = step.stats().builds.at(0);
  EXPECT_EQ(build.kernels, 1);
  EXPECT_EQ(build.work.size(), 1u);
}

TEST(Optimizer, ZeroGradDropsOrClears) {
  Tensor p = weights({3});
  SGD sgd({p}, {});
  p.set_grad(gradient(p, 1));
  const Tensor held = p.grad();
  sgd.zero_grad(false);
  expect_near(held, {0, 0, 0});
  sgd.zero_grad();
  EXPECT_FALSE(p.grad().defined());
}

TEST(Optimizer, InfiniteWeightsStayWithoutDecay) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const Maker& m : all_optimizers()) {
    const std::string name = m.name;
    if (m.matrices_only || name == "lamb" || name == "adafactor") continue;  // by their norms
    Tensor p = Tensor::from_vector<double>({-inf, 1}, {2}).requires_grad_();
    const auto o = m.make({p});
    if (o->has("weight_decay")) o->set(0, "weight_decay", 0);
    p.set_grad(Tensor::from_vector<double>({0.5, 0.5}, {2}));
    o->step();
    EXPECT_EQ(elements(p)[0], -inf) << name;
  }
}

TEST(Optimizer, Mistakes) {
  Tensor p = weights({3});
  p.set_name("w");
  EXPECT_EQ(error_of([&] { SGD({p, p}, {}); }), "invalid: Optimizer: parameter f64[3] 'w' is given twice");
  EXPECT_EQ(error_of([&] { SGD({p * 2}, {}); }),
            "invalid: Optimizer: got f64[3], expected leaf tensors of a floating dtype");
  EXPECT_EQ(error_of([&] { SGD({Tensor()}, {}); }),
            "invalid: Optimizer: got undefined, expected leaf tensors of a floating dtype");
  SGD sgd({p}, {});
  EXPECT_EQ(error_of([&] { sgd.add_param_group({p}, {}); }),
            "invalid: Optimizer: parameter f64[3] 'w' is given twice");
  EXPECT_EQ(error_of([&] { sgd.add_param_group({}, {}); }),
            "invalid: SGD: no parameters; a module's parameters() has those given to register_parameter, and "
            "those of modules given to register_module");
  EXPECT_EQ(error_of([&] { sgd.add_param_group({weights({1})}, {.lr = -1}); }),
            "invalid: SGD: lr is -1, expected at least 0");
  EXPECT_EQ(sgd.group_count(), 1u);
}

/// Launches in each of `calls` calls whose row of a profile's table names an update: "<name> <launches> ...".
int update_launches(const std::string& table, int calls) {
  int launches = 0;
  const std::regex row("AdamW\\.step[^\n]*? +(\\d+) +[0-9.]+ +[0-9.]+ +[0-9.]+%");
  for (auto at = std::sregex_iterator(table.begin(), table.end(), row); at != std::sregex_iterator(); ++at)
    launches += std::stoi((*at)[1]);
  EXPECT_EQ(launches % calls, 0) << table;
  return launches / calls;
}

/// 24 parameters, a third of another dtype: a launch for each dtype.
TEST(CompiledStep, UpdatesOfADtypeAreOneLaunch) {
  std::vector<Tensor> p, q;
  for (int64_t i = 0; i < 24; ++i)
    for (std::vector<Tensor>* list : {&p, &q})
      list->push_back(
          weights(i % 5 == 4 ? Sizes{1} : Sizes{1 + i % 7, 1 + 5 * i}, i % 3 ? DType::f32 : DType::f64));
  AdamW eager(p, {.lr = 0.1}), compiled(q, {.lr = 0.1});
  CompileOptions o;
  o.profile = true;
  auto step = compile([&](const std::vector<Tensor>& g) { train(compiled, g); }, o);
  for (int t = 0; t < 3; ++t) {
    train(eager, gradients(p, t));
    step(gradients(q, t));
  }
  EXPECT_EQ(update_launches(step.stats().profile, 3), 2) << step.stats().profile;
  for (size_t k = 0; k < p.size(); ++k) expect_near(q[k], elements(p[k]), k % 3 ? 1e-6 : 1e-12);
}

/// Gradients of layers become known one after the other, those that are clipped all at once.
TEST(CompiledStep, UpdatesOfLayersAreOneLaunch) {
  for (const bool clip : {false, true}) {
    nn::Sequential net;
    for (int i = 0; i < 12; ++i) net.emplace_back<nn::Linear>(8 + i, 9 + i);
    AdamW adam(net.parameters(), {.lr = 0.01});
    CompileOptions o;
    o.profile = true;
    auto step = compile(
        [&](const Tensor& x) {
          adam.zero_grad();
          const Tensor loss = mean(square(net(x)));
          loss.backward();
          if (clip) clip_grad_norm_(net.parameters(), 1);
          adam.step();
          return loss;
        },
        o);
    std::vector<double> losses;
    for (int t = 0; t < 4; ++t) losses.push_back(step(ones({5, 8})).item());
    EXPECT_LT(losses[3], losses[0]);
    EXPECT_EQ(update_launches(step.stats().profile, 4), 1) << clip << "\n" << step.stats().profile;
  }
}

}  // namespace KILN_FILE
}  // namespace kiln::optim
