// SPDX-License-Identifier: Apache-2.0
// state_dict and load_state_dict: training goes on exactly as if it had not stopped.
#include "tests/frontend/optim/all.h"
#include "tests/frontend/testing.h"

namespace kiln::optim {
namespace KILN_FILE {

using kiln::testing::error_of;

class EveryState : public ::testing::TestWithParam<Maker> {};

NamedTensors copied(const NamedTensors& state) {
  NamedTensors out;
  for (const auto& [name, t] : state) out.emplace_back(name, t.clone());
  return out;
}

TEST_P(EveryState, TrainingGoesOnExactly) {
  for (const int save_at : {0, 1, 3}) {
    const std::vector<Tensor> p = some_weights(GetParam()), q = some_weights(GetParam());
    const auto whole = GetParam().make(p);
    auto parted = GetParam().make(q);
    for (int t = 0; t < 5; ++t) {
      for (const auto& o : {whole.get(), parted.get()}) o->set(0, "lr", 0.1 / (t / 2 + 1));
      if (t == save_at) {
        const NamedTensors saved = copied(parted->state_dict());
        parted = GetParam().make(q);
        parted->set(0, "lr", 5);  // the saved one takes its place
        parted->load_state_dict(saved);
      }
      train(*whole, gradients(p, t));
      train(*parted, gradients(q, t));
    }
    for (size_t k = 0; k < p.size(); ++k) EXPECT_EQ(elements(q[k]), elements(p[k])) << save_at;
    EXPECT_EQ(parted->step_count(0), 5);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryState, ::testing::ValuesIn(all_optimizers()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(OptimizerState, HasTheGroupsAndTheirHyperParameters) {
  Tensor a = weights({2}), b = weights({3});
  SGD o({a}, {.lr = 1, .momentum = 0.5}), fresh({a}, {});
  o.add_param_group({b}, {.lr = 2});
  fresh.add_param_group({b}, {});
  train(o, gradients({a, b}, 0));
  std::vector<std::string> names;
  for (const auto& [name, t] : o.state_dict()) names.push_back(name);
  EXPECT_EQ(fmt::format("{}", fmt::join(names, " ")),
            "0.step 0.momentum_buffer 1.step param_groups.0.lr param_groups.0.momentum "
            "param_groups.0.dampening param_groups.0.weight_decay param_groups.0.nesterov "
            "param_groups.0.maximize param_groups.0.params param_groups.1.lr param_groups.1.momentum "
            "param_groups.1.dampening param_groups.1.weight_decay param_groups.1.nesterov "
            "param_groups.1.maximize param_groups.1.params");
  fresh.load_state_dict(o.state_dict());
  EXPECT_EQ(fresh.options(0).momentum, 0.5);
  EXPECT_EQ(fresh.options(1).lr, 2);
}

TEST(OptimizerState, LoadedTensorsAreCopies) {
  Tensor a = weights({2});
  AdamW o({a}, {}), other({a}, {});
  train(o, gradients({a}, 0));
  other.load_state_dict(o.state_dict());
  const auto before = elements(o.state_dict()[1].second);
  train(other, gradients({a}, 1));
  EXPECT_EQ(elements(o.state_dict()[1].second), before);
}

TEST(OptimizerState, LoadingIntoAnOptimizerInUseKeepsItsTrace) {
  Tensor a = weights({2});
  AdamW o({a}, {});
  auto step = compile([&](const std::vector<Tensor>& g) { train(o, g); });
  step(gradients({a}, 0));
  const NamedTensors saved = copied(o.state_dict());
  step(gradients({a}, 1));
  o.load_state_dict(saved);
  EXPECT_EQ(o.step_count(0), 1);
  step(gradients({a}, 1));
  EXPECT_EQ(step.stats().builds.size(), 1u);
}

TEST(OptimizerState, WhatIsNeededFollowsTheLoadedOptions) {
  Tensor a = weights({2});
  AdamW plain({a}, {}), peak({a}, {.amsgrad = true});
  train(plain, gradients({a}, 0));
  peak.load_state_dict(plain.state_dict());
  EXPECT_FALSE(peak.options().amsgrad);
  NamedTensors state = copied(plain.state_dict());
  for (auto& [name, t] : state)
    if (name == "param_groups.0.amsgrad") t.fill_(1);
  EXPECT_EQ(error_of([&] { plain.load_state_dict(state, Loc("net.cpp", 42)); }),
            "invalid: Optimizer::load_state_dict (net.cpp:42): the state does not fit\n  missing: "
            "0.max_exp_avg_sq f64[2]");
  EXPECT_FALSE(plain.options().amsgrad);
}

TEST(OptimizerState, FaultsOfOtherGroups) {
  Tensor a = weights({2}), b = weights({3});
  SGD one({a}, {}), two({a}, {});
  two.add_param_group({b}, {});
  const std::string text = error_of([&] { one.load_state_dict(two.state_dict(), Loc("net.cpp", 42)); });
  EXPECT_NE(text.find("unexpected: 1.step f64[]"), std::string::npos) << text;
  EXPECT_NE(text.find("unexpected: param_groups.1.lr f64[]"), std::string::npos) << text;
}

}  // namespace KILN_FILE
}  // namespace kiln::optim
