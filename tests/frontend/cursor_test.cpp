// SPDX-License-Identifier: Apache-2.0
// Following does what eager code does: each scenario runs the same body eagerly and compiled, from equal
// states, and compares what every call returns, what it leaves in the parameters, and how many traces were
// built.
#include "frontend/cursor.h"

#include <cmath>

#include "frontend/compile.h"
#include "frontend/nn/layers.h"
#include "frontend/optim/sgd.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

/// A net of known weights, an optimizer, and host state that scenarios use.
struct World {
  World() {
    manual_seed(11);
    net.emplace_back<nn::Linear>(4, 8);
    net.emplace_back<nn::Dropout>(0.5);
    net.emplace_back<nn::Linear>(8, 2);
    optimizer = std::make_unique<optim::SGD>(net.parameters(), optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
  }
  nn::Module& layer(size_t i) { return *net.named_modules().at(i + 1).second; }
  /// zero_grad, backward, step.
  void train_on(const Tensor& loss) {
    optimizer->zero_grad();
    loss.backward();
    optimizer->step();
  }
  nn::Sequential net;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::vector<Tensor> kept;
  HookHandle hook;
  Tensor mask;
  int call = 0;
};

Tensor input(int call) {
  std::vector<float> v;
  for (int i = 0; i < 12; ++i) v.push_back(0.25f * static_cast<float>((i * 5 + call * 3) % 9 - 4));
  return Tensor::from_vector(v, {3, 4});
}

using Body = std::function<Tensor(World&, const Tensor& x)>;
using Around = std::function<void(World&, const Tensor& result)>;

class Following : public ::testing::TestWithParam<Backend> {
 protected:
  /// Runs `calls` calls; `before` and `after` are host code between them. Errors count as results.
  void same(int calls, size_t builds, const Body& body, const Around& before = {}, const Around& after = {}) {
    World eager, followed;
    CompileOptions o;
    o.backend = GetParam();
    auto compiled = compile([&](const Tensor& x) { return body(followed, x); }, o);
    const auto run = [&](World& w, auto&& step, int call) {
      w.call = call;
      Floats seen;
      Tensor result;
      if (before) before(w, {});
      try {
        result = step(input(call));
      } catch (const std::runtime_error&) {
        seen.push_back(-1);
      }
      if (after) after(w, result);
      for (const Tensor& t : w.kept)
        for (float v : values(t)) seen.push_back(v);
      if (result.defined())
        for (float v : values(result)) seen.push_back(v);
      for (const Tensor& p : w.net.parameters())
        for (float v : values(p)) seen.push_back(v);
      return seen;
    };
    manual_seed(5);
    std::vector<Floats> expected;
    for (int c = 0; c < calls; ++c)
      expected.push_back(run(
          eager, [&](const Tensor& x) { return body(eager, x); }, c));
    manual_seed(5);
    for (int c = 0; c < calls; ++c) {
      const Floats got = run(followed, compiled, c);
      ASSERT_EQ(got.size(), expected[static_cast<size_t>(c)].size()) << "call " << c;
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], expected[static_cast<size_t>(c)][i], 2e-6 * (1 + std::abs(got[i])))
            << "call " << c << " value " << i;
    }
    EXPECT_EQ(compiled.stats().builds.size(), builds);
  }

  static Tensor train(World& w, const Tensor& x) {
    const Tensor loss = mean(square(w.net(x)));
    w.train_on(loss);
    return loss;
  }
};

TEST_P(Following, PlainLoopWithARateThatChanges) {
  same(5, 1, train, [](World& w, const Tensor&) { w.optimizer->lr = 0.1 / (1 + w.call); });
}

TEST_P(Following, TrainAndEvalFlip) {
  same(7, 2, train, [](World& w, const Tensor&) { w.net.train(w.call % 3 != 1); });
}

TEST_P(Following, ForwardHookComesAndGoes) {
  same(7, 2, train, [](World& w, const Tensor&) {
    if (w.call == 2)
      w.hook = w.layer(0).register_forward_hook(
          [](nn::Module&, const std::vector<Tensor>&, Tensor& y) { y = y * 2.0; });
    if (w.call == 5) w.hook.remove();
  });
}

TEST_P(Following, TensorHookComesAndGoes) {
  same(6, 2, train, [](World& w, const Tensor&) {
    if (w.call == 2) w.hook = w.net.parameters()[0].register_hook([](const Tensor& g) { return g * 3.0; });
    if (w.call == 4) w.hook.remove();
  });
}

TEST_P(Following, FrozenParameter) {
  same(6, 2, train, [](World& w, const Tensor&) { w.net.parameters()[2].requires_grad_(w.call % 2 == 0); });
}

TEST_P(Following, HostCoinSkipsABlock) {
  same(8, 2, [](World& w, const Tensor& x) {
    Tensor y = w.layer(0)(x);
    if (w.call % 3 != 1) y = sin(y) + y;
    const Tensor loss = mean(square(w.layer(2)(y)));
    w.train_on(loss);
    return loss;
  });
}

TEST_P(Following, BranchOnItem) {
  same(8, 2, [](World& w, const Tensor& x) {
    const Tensor y = w.layer(0)(x);
    const Tensor loss = mean(square(sum(y * y).item() * (w.call % 3 - 1) >= 0 ? y : sin(y)));
    w.train_on(loss);
    return loss;
  });
}

TEST_P(Following, IntermediateKeptOnSomeCalls) {
  same(7, 2, [](World& w, const Tensor& x) {
    const Tensor y = exp(w.layer(0)(x));
    if (w.call % 2) w.kept.push_back(y.detach());
    return sum(y * y);
  });
}

TEST_P(Following, MaskMadeLazily) {
  same(4, 2, [](World& w, const Tensor& x) {
    if (!w.mask.defined()) w.mask = gt(arange(8), 3);
    return sum(masked_fill(w.layer(0)(x), w.mask, 0.5));
  });
}

TEST_P(Following, GradientsReadAfterTheCall) {
  same(
      4, 1,
      [](World& w, const Tensor& x) {
        w.net.zero_grad();
        const Tensor loss = mean(square(w.net(x)));
        loss.backward();
        return loss;
      },
      {}, [](World& w, const Tensor&) { w.kept = {w.net.parameters()[0].grad().clone()}; });
}

TEST_P(Following, TwoForwardsBeforeTwoBackwards) {
  std::map<World*, std::vector<Tensor>> losses;
  same(
      6, 1, [](World& w, const Tensor& x) { return mean(square(w.net(x))); }, {},
      [&](World& w, const Tensor& result) {
        auto& pending = losses[&w];
        pending.push_back(result);
        if (pending.size() < 2) return;
        w.optimizer->zero_grad();
        for (const Tensor& loss : pending) loss.backward();
        w.optimizer->step();
        pending.clear();
      });
}

TEST_P(Following, SameTensorTwice) {
  same(6, 2, [](World& w, const Tensor& x) {
    const Tensor other = w.call % 2 ? x : x.clone();
    return sum(w.layer(0)(x) * w.layer(0)(other));
  });
}

TEST_P(Following, LoaderInsideTheCallable) {
  same(5, 1, [](World& w, const Tensor&) {
    const Tensor batch = input(w.call + 40);  // host data, read at this call
    return train(w, batch);
  });
}

TEST_P(Following, ExceptionInTheMiddle) {
  same(6, 2, [](World& w, const Tensor& x) {
    const Tensor loss = mean(square(w.net(x)));
    if (w.call == 2 || w.call == 3) throw std::runtime_error("data ran out");
    if (w.call > 3) return loss * 1.0;
    w.train_on(loss);
    return loss;
  });
}

TEST_P(Following, CompiledInsideCompiled) {
  same(4, 1, [](World& w, const Tensor& x) {
    auto inner = compile([&](const Tensor& t) { return sin(w.net(t)); });
    const Tensor loss = mean(square(inner(x)));
    w.train_on(loss);
    return loss;
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, Following, ::testing::Values(Backend::reference, Backend::native),
                         [](const auto& info) {
                           return info.param == Backend::native ? "native" : "reference";
                         });

}  // namespace KILN_FILE
}  // namespace kiln
