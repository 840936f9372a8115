// SPDX-License-Identifier: Apache-2.0
// Hooks that come, go and change others while a compiled backward runs: as eager code calls them.
#include <functional>

#include "frontend/compile.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

/// Runs `call(round)` for each round, eagerly and compiled; gradients of w and hook counts must agree.
class ChangingHooks : public ::testing::TestWithParam<Backend> {
 protected:
  void agree(const std::function<void(Tensor& w, int round, int& calls)>& call) {
    Floats seen[2];
    for (const bool compiled : {false, true}) {
      Tensor w = vec({1, 2}, true);
      int round = 0, calls = 0;
      auto body = [&] {
        w.set_grad({});
        call(w, round, calls);
      };
      CompileOptions o;
      o.backend = GetParam();
      auto f = compile(body, o);
      for (round = 0; round < 6; ++round) {
        if (compiled) f();
        else body();
        for (float v : values(w.grad())) seen[compiled].push_back(v);
        seen[compiled].push_back(static_cast<float>(calls));
      }
      if (compiled) {
        EXPECT_LE(f.stats().builds.size(), 4u);
      }
    }
    EXPECT_EQ(seen[0], seen[1]);
  }
  static std::function<Tensor(const Tensor&)> times(double factor, int& calls) {
    return [factor, &calls](const Tensor& g) {
      ++calls;
      EXPECT_FALSE(grad_enabled());
      return g * factor;
    };
  }
};

TEST_P(ChangingHooks, OneThatRemovesItself) {
  agree([](Tensor& w, int, int& calls) {
    Tensor y = w * 2.0;
    HookHandle h;
    h = y.register_hook([&](const Tensor& g) {
      ++calls;
      h.remove();
      return g * 3.0;
    });
    y.register_hook(times(5, calls));
    sum(y).backward();
  });
}

TEST_P(ChangingHooks, OneThatAddsAnother) {
  agree([](Tensor& w, int round, int& calls) {
    Tensor x = w * 2.0, y = x * x;
    y.register_hook([&](const Tensor& g) {
      ++calls;
      y.register_hook(times(7, calls));  // too late for this backward
      if (round % 2) x.register_hook(times(11, calls));
      return g * 3.0;
    });
    sum(y).backward();
  });
}

TEST_P(ChangingHooks, RemovedBetweenRegistrationAndBackward) {
  agree([](Tensor& w, int round, int& calls) {
    Tensor y = w * 2.0;
    HookHandle a = y.register_hook(times(3, calls)), b = y.register_hook(times(5, calls));
    if (round % 3 == 1) b.remove();
    if (round % 3 == 2) a.remove();
    sum(y).backward();
  });
}

TEST_P(ChangingHooks, OneThatRemovesThoseOfOthers) {
  agree([](Tensor& w, int round, int& calls) {
    Tensor x = w * 2.0, y = x * x;
    HookHandle a = x.register_hook(times(3, calls));
    if (round % 2) x.register_hook(times(5, calls));
    y.register_hook([&](const Tensor& g) {
      ++calls;
      if (round >= 2) a.remove();
      return g;
    });
    w.register_hook(times(7, calls)).remove();
    sum(y).backward();
  });
}

TEST_P(ChangingHooks, BackwardInsideOfOneWithHooksOfItsOwn) {
  Tensor v = vec({5}, true);
  agree([&](Tensor& w, int, int& calls) {
    v.set_grad({});
    Tensor y = w * 2.0, z = v * v;
    z.register_hook(times(3, calls));
    y.register_hook([&](const Tensor& g) {
      z.backward();
      return g * 2.0;
    });
    y.register_hook(times(5, calls));
    sum(y).backward();
    EXPECT_EQ(v.grad().item(), 30);
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, ChangingHooks, ::testing::Values(Backend::reference, Backend::native),
                         [](const auto& info) {
                           return info.param == Backend::native ? "native" : "reference";
                         });

}  // namespace KILN_FILE
}  // namespace kiln
