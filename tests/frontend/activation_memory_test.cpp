// SPDX-License-Identifier: Apache-2.0
// CompileOptions::activation_memory: the numbers of a plain step, in no more bytes than were given.
#include "frontend/activation_memory.h"

#include "frontend/checkpoint.h"
#include "frontend/compile.h"
#include "frontend/functional.h"
#include "frontend/nn/container.h"
#include "frontend/nn/layers.h"
#include "frontend/nn/norm.h"
#include "frontend/nn/transformer.h"
#include "frontend/views.h"
#include "tests/frontend/everywhere.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT
using Numbers = std::vector<double>;
using Loss = std::function<Tensor()>;

Tensor numbers(Sizes sizes, double scale, bool grad = false) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  Tensor t = sin(arange(n).to(DType::f32) * scale).reshape(std::move(sizes)).detach().clone();
  t.requires_grad_(grad);
  return t;
}

struct Step {
  Numbers numbers;  ///< the loss, and all gradients
  Build build;
};

Numbers all_of(const Tensor& loss, const std::vector<Tensor>& params) {
  Numbers all = doubles(loss);
  for (const Tensor& p : params) {
    EXPECT_TRUE(p.grad().defined());
    const Numbers g = doubles(p.grad());
    all.insert(all.end(), g.begin(), g.end());
  }
  return all;
}

/// A step with the backward inside the callable or behind it, the second time of two.
Step step(const Loss& loss, const std::vector<Tensor>& params, int64_t budget, bool inside,
          Backend backend = Backend::native) {
  CompileOptions o;
  o.activation_memory = budget;
  o.backend = backend;
  auto f = compile(
      [&] {
        Tensor l = loss();
        if (!inside) return l;
        l.backward();
        return l.detach();
      },
      o);
  Step s;
  for (int call = 0; call < 2; ++call) {
    for (Tensor p : params) p.set_grad({});
    manual_seed(11);
    const Tensor l = f();
    if (!inside) l.backward();
    s.numbers = all_of(l, params);
  }
  EXPECT_EQ(f.stats().builds.size(), 1u);
  s.build = f.stats().builds.at(0);
  return s;
}

constexpr int64_t kAll = int64_t{1} << 50;

/// With a fraction of the bytes that it takes otherwise, a step gives the same numbers; returns what it
/// takes.
int64_t expect_fits(const Loss& loss, const std::vector<Tensor>& params, double fraction,
                    const std::string& name) {
  for (Tensor p : params) p.set_grad({});
  manual_seed(11);
  const Tensor l = loss();
  l.backward();
  const Numbers want = all_of(l, params);
  int64_t inside_bytes = 0;
  for (const bool inside : {true, false}) {
    const std::string where = name + (inside ? " inside" : " outside");
    const Step plain = step(loss, params, kAll, inside);
    expect_close(plain.numbers, want, where, 2e-5);
    const int64_t all = plain.build.activation_bytes;
    EXPECT_GT(all, 0) << where;
    const auto budget = static_cast<int64_t>(fraction * static_cast<double>(all));
    const Step less = step(loss, params, budget, inside);
    expect_close(less.numbers, want, where, 2e-5);
    expect_close(step(loss, params, budget, inside, Backend::reference).numbers, want, where, 2e-5);
    EXPECT_LE(less.build.activation_bytes, budget) << where << ", of " << all;
    if (inside) inside_bytes = less.build.activation_bytes;
    if (inside) EXPECT_LT(less.build.arena_bytes, plain.build.arena_bytes) << where;
    else EXPECT_LE(less.build.saved_bytes, budget) << where << ", of " << plain.build.saved_bytes;
  }
  return inside_bytes;
}

/// Layers of width `d` with gelu, each of them with a skip to the next but one where `skips`.
struct Deep : nn::Module {
  Deep(int64_t d, int n, bool skips) : skips(skips) {
    for (int i = 0; i < n; ++i) layers.emplace_back<nn::Linear>(d, d);
    register_module("layers", layers);
  }
  Tensor operator()(const Tensor& x) {
    Tensor h = x, former = x;
    for (size_t i = 0; i < layers.size(); ++i) {
      const Tensor y = gelu(layers[i](h));
      const Tensor next = skips ? y + former : y;
      former = h;
      h = next;
    }
    return mean(square(h));
  }
  bool skips;
  nn::ModuleList layers;
};

TEST(ActivationMemory, AChainOfLayers) {
  Deep net(64, 16, false);
  const Tensor x = numbers({512, 64}, 0.5);
  expect_fits([&] { return net(x); }, net.parameters(), 0.5, "half");
  expect_fits([&] { return net(x); }, net.parameters(), 0.45, "less than half");
}

TEST(ActivationMemory, SeveralResultsCrossEachCut) {
  Deep net(64, 24, true);
  const Tensor x = numbers({512, 64}, 0.5);
  expect_fits([&] { return net(x); }, net.parameters(), 0.6, "skips");
}

TEST(ActivationMemory, TransformersWithDropout) {
  nn::ModuleList layers;
  nn::TransformerLayerOptions options;
  options.dim_feedforward = 256;
  for (int i = 0; i < 6; ++i) layers.emplace_back<nn::TransformerEncoderLayer>(64, 4, options);
  const Tensor x = numbers({4, 64, 64}, 0.5);
  expect_fits(
      [&] {
        Tensor h = x;
        for (size_t i = 0; i < layers.size(); ++i) h = layers[i](h);
        return mean(square(h));
      },
      layers.parameters(), 0.45, "transformer");
}

TEST(ActivationMemory, WhatTheUserHasWrappedStays) {
  Deep first(64, 12, false), wrapped(64, 3, false), last(64, 12, false);
  const Tensor x = numbers({512, 64}, 0.5);
  std::vector<Tensor> params;
  for (Deep* d : {&first, &wrapped, &last})
    for (const Tensor& p : d->parameters()) params.push_back(p);
  const auto run = [](Deep& d, Tensor h) {
    for (size_t i = 0; i < d.layers.size(); ++i) h = gelu(d.layers[i](h));
    return h;
  };
  expect_fits(
      [&] {
        const Tensor h = checkpoint([&](const Tensor& in) { return run(wrapped, in); }, run(first, x));
        return mean(square(run(last, h)));
      },
      params, 0.6, "wrapped");
}

TEST(ActivationMemory, HooksSeeEachGradientOnce) {
  Deep net(64, 12, false);
  const Tensor x = numbers({512, 64}, 0.5);
  int calls = 0;
  const auto loss = [&] {
    Tensor h = x;
    for (size_t i = 0; i < net.layers.size(); ++i) {
      h = gelu(net.layers[i](h));
      h.register_hook([&](const Tensor& g) {
        ++calls;
        return calls == 15 ? Tensor() : g * 1.5;  // the fifteenth in the second call: recorded anew half-way
      });
    }
    return mean(square(h));
  };
  CompileOptions o;
  o.activation_memory = 3 << 19;
  auto f = compile(
      [&] {
        Tensor l = loss();
        l.backward();
        return l.detach();
      },
      o);
  std::vector<Numbers> want;
  for (int call = 0; call < 3; ++call) {
    net.zero_grad();
    const Tensor l = loss();
    l.backward();
    want.push_back(all_of(l.detach(), net.parameters()));
  }
  EXPECT_EQ(calls, 36);
  calls = 0;
  for (int call = 0; call < 3; ++call) {
    net.zero_grad();
    const Tensor l = f();
    expect_close(all_of(l, net.parameters()), want[static_cast<size_t>(call)], "hooked", 2e-5);
  }
  EXPECT_EQ(calls, 36);
  EXPECT_EQ(f.stats().builds.size(), 2u);
  for (const Build& b : f.stats().builds) EXPECT_LE(b.activation_bytes, 3 << 19);
}

TEST(ActivationMemory, TwoBackwardsOfOneCall) {
  Deep a(64, 12, false), b(64, 12, false);
  const Tensor x = numbers({512, 64}, 0.5);
  const auto run = [&](int64_t budget) {
    a.zero_grad();
    b.zero_grad();
    CompileOptions o;
    o.activation_memory = budget;
    auto f = compile(
        [&] {
          a(x).backward();
          b(x).backward();
          return zeros({1});
        },
        o);
    f();
    Numbers all = all_of(zeros({1}), a.parameters()), more = all_of(zeros({1}), b.parameters());
    all.insert(all.end(), more.begin(), more.end());
    return std::pair(all, f.stats().builds.at(0).activation_bytes);
  };
  const auto [want, bytes] = run(0);
  EXPECT_EQ(bytes, 0) << "nobody asked";
  const auto [got, less] = run(3 << 19);
  EXPECT_LE(less, 3 << 19);
  expect_close(got, want, "two", 2e-5);
}

TEST(ActivationMemory, WhatCannotBeMetTakesTheLeast) {
  Deep net(64, 16, false);
  const Tensor x = numbers({512, 64}, 0.5);
  const Step plain = step([&] { return net(x); }, net.parameters(), kAll, true);
  ::testing::internal::CaptureStderr();
  const Step least = step([&] { return net(x); }, net.parameters(), 1, true);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("kiln warning: activation_memory of 0.0 MiB: "), std::string::npos) << said;
  EXPECT_NE(said.find("wait for the backward at the least"), std::string::npos) << said;
  EXPECT_LT(least.build.activation_bytes, plain.build.activation_bytes / 2);
  expect_close(least.numbers, plain.numbers, "least", 2e-5);
  CompileOptions o;
  o.activation_memory = -1;
  EXPECT_ERROR(
      compile([] {}, o),
      "invalid: compile (@): activation_memory is -1, expected a number of bytes, or 0 for no bound");
}

}  // namespace KILN_FILE
}  // namespace kiln
