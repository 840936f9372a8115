// SPDX-License-Identifier: Apache-2.0
// Checkpoints: the numbers of plain calls, in less memory, wherever the backward runs.
#include "frontend/checkpoint.h"

#include <cmath>

#include "frontend/amp.h"
#include "frontend/compile.h"
#include "frontend/functional.h"
#include "frontend/nn/layers.h"
#include "frontend/nn/norm.h"
#include "frontend/ops_index.h"
#include "frontend/optim/sgd.h"
#include "tests/frontend/everywhere.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT
using Numbers = std::vector<double>;
using Program = std::function<Tensor(bool)>;  ///< the loss, with checkpoints or without

CompileOptions with(Backend backend) {
  CompileOptions o;
  o.backend = backend;
  return o;
}

/// The loss and the gradients of `params` after a backward, with the generator at a fixed place.
Numbers after_backward(const std::function<Tensor()>& loss, const std::vector<Tensor>& params) {
  for (Tensor p : params) p.set_grad({});
  manual_seed(11);
  const Tensor l = loss();
  l.backward();
  Numbers all = doubles(l);
  for (const Tensor& p : params) {
    EXPECT_TRUE(p.grad().defined());
    const Numbers g = doubles(p.grad());
    all.insert(all.end(), g.begin(), g.end());
  }
  return all;
}

/// `program` is the same with and without checkpoints: eagerly to the bit, compiled with the backward inside
/// and outside, built and followed.
void expect_same(const Program& program, const std::vector<Tensor>& params, const std::string& name) {
  const Numbers plain = after_backward([&] { return program(false); }, params);
  for (int call = 0; call < 2; ++call)
    EXPECT_EQ(after_backward([&] { return program(true); }, params), plain) << name << " eager";
  for (const Backend backend : {Backend::reference, Backend::native}) {
    auto outside = compile([&] { return program(true); }, with(backend));
    auto inside = compile(
        [&] {
          const Tensor l = program(true);
          l.backward();
          return l.detach();
        },
        with(backend));
    for (int call = 0; call < 3; ++call) {
      expect_close(after_backward([&] { return outside(); }, params), plain, name + " outside", 1e-5);
      for (Tensor p : params) p.set_grad({});
      manual_seed(11);
      Numbers got = doubles(inside());
      for (const Tensor& p : params) {
        const Numbers g = doubles(p.grad());
        got.insert(got.end(), g.begin(), g.end());
      }
      expect_close(got, plain, name + " inside", 1e-5);
    }
    EXPECT_EQ(outside.stats().builds.size(), 1u) << name;
    EXPECT_EQ(inside.stats().builds.size(), 1u) << name;
  }
}

template <typename F, typename... In>
auto either(bool use, F&& fn, const In&... in) {
  return use ? checkpoint(fn, in...) : fn(in...);
}

Tensor numbers(Sizes sizes, double scale, bool grad = false) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  Tensor t = sin(arange(n).to(DType::f32) * scale).reshape(std::move(sizes)).detach().clone();
  t.requires_grad_(grad);
  return t;
}

TEST(Checkpoint, GradientsAndDrawsAreThoseOfAPlainCall) {
  const Tensor x = numbers({4, 3}, 1.3), w = numbers({5, 3}, 0.7, true), v = numbers({2, 5}, 0.4, true);
  const auto block = [&](const Tensor& h) { return dropout(tanh(linear(dropout(h, 0.2), w)), 0.5); };
  expect_same(
      [&](bool use) {
        const Tensor h = dropout(x, 0.1);  // draws before, in and behind the checkpoint
        return sum(square(dropout(linear(either(use, block, h), v), 0.3)));
      },
      {w, v}, "dropout");
}

TEST(Checkpoint, OneBehindTheOtherAndOnesOwnOutput) {
  const Tensor x = numbers({4, 4}, 0.9, true), w = numbers({4, 4}, 0.3, true);
  const auto block = [&](const Tensor& h) { return exp(sin(matmul(h, w))); };  // exp's rule reads its result
  expect_same(
      [&](bool use) {
        Tensor h = x;
        for (int i = 0; i < 3; ++i) h = either(use, block, h);
        return sum(h * h);
      },
      {x, w}, "chain");
}

TEST(Checkpoint, InputsOfAllKinds) {
  const Tensor table = numbers({6, 3}, 0.8, true), x = numbers({4, 3}, 0.5, true), at = ids({5, 0, 5, 2});
  const Tensor mask = gt(x.detach(), 0.0), tiny = Tensor::from_vector<int64_t>({INT64_MIN, 1, 0, 2}, {4});
  const auto block = [&](const std::vector<Tensor>& in) {
    const Tensor rows = tanh(embedding(in[0], in[1]) * in[2]);
    return where(in[3], rows * rows, exp(rows)) * unsqueeze(gt(in[4], 0).to(DType::f32), 1);
  };
  expect_same(
      [&](bool use) {
        return sum(square(either(use, block, std::vector<Tensor>{at, table, x, mask, tiny})));
      },
      {table, x}, "inputs");
}

TEST(Checkpoint, SeveralResultsOfWhichSomeAreUsed) {
  const Tensor x = numbers({3}, 0.5, true), y = numbers({3}, 0.9, true), z = numbers({3}, 0.2, true);
  const auto block = [](const Tensor& a, const Tensor& b, const Tensor& c) {
    return std::vector<Tensor>{sin(a * b), exp(a * c), b.detach() * 2.0};
  };
  expect_same(
      [&](bool use) {
        const std::vector<Tensor> r = either(use, block, x, y, z);
        return sum(r[0] * r[2]) + sum(sin(r[1]));
      },
      {x, y, z}, "results");
}

TEST(Checkpoint, WritesInPlaceInside) {
  const Tensor x = numbers({4, 3}, 0.5, true);
  const auto block = [](const Tensor& a) {
    Tensor b = a * 2.0;
    select(b, 0, 1).mul_(sin(select(a, 0, 2)));
    b.add_(1.0);
    return b * b;
  };
  expect_same([&](bool use) { return sum(exp(either(use, block, x))); }, {x}, "in place");
}

TEST(Checkpoint, InsideAnotherAndUnderNoGrad) {
  const Tensor x = numbers({4}, 0.5, true);
  const auto inner = [](const Tensor& a) { return exp(sin(dropout(a, 0.5))); };
  const auto outer = [&](const Tensor& a) { return cos(checkpoint(inner, a * 2.0)); };
  const auto plain = [&](const Tensor& a) { return cos(inner(a * 2.0)); };
  expect_same([&](bool use) { return sum(use ? checkpoint(outer, x) : plain(x)); }, {x}, "nested");
  const NoGrad guard;
  EXPECT_FALSE(checkpoint(inner, x).requires_grad());
}

TEST(Checkpoint, GradientsBetweenCheckpointsAndHooks) {
  const Tensor x = numbers({4}, 0.5, true);
  std::string told;
  const auto block = [&](const Tensor& a) {
    Tensor b = sin(a);
    b.register_hook([&](const Tensor& g) {
      told += "h";
      return g * 2.0;
    });
    return exp(b);
  };
  const auto program = [&](bool use) { return sum(square(either(use, block, x))); };
  const Numbers plain = after_backward([&] { return program(false); }, {x});
  EXPECT_EQ(told, "h");
  EXPECT_EQ(after_backward([&] { return program(true); }, {x}), plain);
  EXPECT_EQ(told, "hh") << "those of the first run alone";
  auto f = compile([&] { return program(true); });
  expect_close(after_backward([&] { return f(); }, {x}), plain, "hooked", 1e-5);
  EXPECT_EQ(told, "hhh");
}

TEST(Checkpoint, RetainedGraphsRunAgainEachTime) {
  const Tensor x = numbers({4}, 0.5, true);
  int runs = 0;
  const auto block = [&](const Tensor& a) {
    ++runs;
    return exp(sin(dropout(a, 0.5)));
  };
  const Tensor y = sum(checkpoint(block, x));
  EXPECT_EQ(runs, 1);
  y.backward({}, true);
  const Numbers once = doubles(x.grad());
  EXPECT_EQ(runs, 2);
  const GeneratorState before = generator_state();
  y.backward();
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(generator_state().offset, before.offset) << "a backward draws nothing";
  for (size_t i = 0; i < once.size(); ++i) EXPECT_EQ(doubles(x.grad())[i], 2 * once[i]);
  EXPECT_ERROR(y.backward(),
               "invalid: backward (@): the graph was already consumed by a backward (pass retain_graph=true "
               "to the first)");
  auto f = compile([&](const Tensor& a) { return sum(checkpoint(block, a)); });
  runs = 0;
  f(x).backward();
  f(x).backward();
  EXPECT_EQ(runs, 2) << "compiled, it is not called for a backward";
}

TEST(Checkpoint, ModulesAreTakenByReference) {
  nn::Linear fc(3, 3);
  nn::BatchNorm1d norm(3);
  const Tensor x = numbers({4, 3}, 0.5, true);
  const Tensor y = sum(square(checkpoint(norm, checkpoint(fc, x))));
  const Tensor plain = sum(square(norm(fc(x))));
  EXPECT_EQ(y.item(), plain.item());
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 2);
  y.backward();
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 3) << "statistics are updated again, as in PyTorch";
  const Numbers got = doubles(fc.weight.grad());
  fc.weight.set_grad({});
  plain.backward();
  EXPECT_EQ(doubles(fc.weight.grad()), got);
  Tensor bad = zeros({2, 5});
  EXPECT_NE(error_of([&] { checkpoint(fc, bad); }).find("checkpoint_test.cpp:" + std::to_string(__LINE__)),
            std::string::npos);
}

TEST(Checkpoint, AutocastHoldsAgain) {
  const Tensor x = numbers({4, 4}, 0.5, true), w = numbers({4, 4}, 0.9, true);
  const auto block = [&](const Tensor& a) { return sin(matmul(a, w)); };
  const auto program = [&](bool use) {
    const Autocast casts(DType::bf16);
    return either(use, block, x);
  };
  const auto loss = [&](bool use) { return sum(program(use).to(DType::f32)); };
  const Numbers plain = after_backward([&] { return loss(false); }, {x, w});
  EXPECT_EQ(after_backward([&] { return loss(true); }, {x, w}), plain);
}

TEST(Checkpoint, RefusesWhatIsNotTheSameAgain) {
  Tensor x = vec({1, 2}, true), scale = vec({3, 4});
  int runs = 0;
  const auto varying = [&](const Tensor& a) { return ++runs == 1 ? sin(exp(a)) : exp(a); };
  const Tensor y = sum(checkpoint(varying, x));
  const SourceLoc loc(__FILE__, __LINE__ - 1);
  EXPECT_EQ(
      error_of([&] { y.backward(); }),
      at_line("invalid: checkpoint (@): the function did 1 differentiable ops when it ran again for the "
              "backward, and 2 before (it must do the same whenever it runs)",
              loc));
  runs = 0;
  const auto other = [&](const Tensor& a) { return cos(++runs == 1 ? exp(a) : sin(a)); };
  const Tensor z = sum(checkpoint(other, x));
  const std::string text = error_of([&] { z.backward(); });
  EXPECT_NE(text.find("the function did sin ("), std::string::npos) << text;
  EXPECT_NE(text.find("and exp ("), std::string::npos) << text;
  const auto scaled = [&](const Tensor& a) { return exp(a) * scale; };
  const Tensor late = sum(checkpoint(scaled, x));
  scale.add_(1.0);
  const std::string changed = error_of([&] { late.backward(); });
  EXPECT_NE(changed.find("a tensor f32[2] needed by the op at "), std::string::npos) << changed;
  EXPECT_NE(changed.find("was changed in place after that op (clone it first)"), std::string::npos)
      << changed;
  // What it throws when it runs again comes through, and nothing stays behind.
  runs = 0;
  const auto throwing = [&](const Tensor& a) {
    KILN_CHECK(++runs == 1, invalid, "not again");
    return sin(exp(a));
  };
  const Tensor thrown = sum(checkpoint(throwing, x));
  EXPECT_EQ(error_of([&] { thrown.backward(); }), "invalid: not again");
  const Tensor plain = sum(exp(x * 2.0));
  x.set_grad({});
  plain.backward();
  EXPECT_FLOAT_EQ(values(x.grad())[0], 2 * std::exp(2.0f));
}

/// Layers of width `d`, `per` of them in each of `blocks` blocks.
struct Deep : nn::Module {
  Deep(int64_t d, int64_t blocks, int64_t per) : per(per) {
    for (int64_t i = 0; i < blocks * per; ++i) layers.emplace_back<nn::Linear>(d, d);
    register_module("layers", layers);
  }
  Tensor run(const Tensor& x, bool use) {
    Tensor h = x;
    for (size_t i = 0; i < layers.size(); i += static_cast<size_t>(per)) {
      const auto block = [this, i](const Tensor& in) {
        Tensor y = in;
        for (size_t k = i; k < i + static_cast<size_t>(per); ++k) {
          y = gelu(layers[k](y));
          made.push_back(y.impl()->storage);
        }
        return y;
      };
      h = either(use, block, h);
    }
    return mean(square(h));
  }
  int64_t per;
  nn::ModuleList layers;
  std::vector<std::weak_ptr<detail::Storage>> made;  ///< eagerly: what the layers gave
};

TEST(Checkpoint, EagerForwardsKeepBlocksInputsAlone) {
  Deep net(8, 4, 4);
  const Tensor x = numbers({16, 8}, 0.5);
  const auto kept = [&](bool use) {
    net.made.clear();
    const Tensor loss = net.run(x, use);
    int64_t bytes = 0;
    for (const auto& s : net.made)
      if (const auto alive = s.lock()) bytes += static_cast<int64_t>(alive->bytes);
    return bytes;
  };
  const int64_t layer = 16 * 8 * 4;
  EXPECT_EQ(kept(false), 16 * layer);
  EXPECT_EQ(kept(true), 4 * layer);
  net.made.clear();
  net.run(x, true).backward();
  EXPECT_EQ(net.made.size(), 32u) << "every layer ran twice";
}

TEST(Checkpoint, CompiledStepsNeedLessMemory) {
  Deep net(32, 6, 4);
  const Tensor x = numbers({512, 32}, 0.5);
  const auto build = [&](bool use, bool inside) {
    net.zero_grad();
    auto f = compile([&] {
      const Tensor loss = net.run(x, use);
      if (inside) loss.backward();
      return loss;
    });
    const Tensor loss = f();
    return f.stats().builds.at(0);
  };
  const int64_t layer = 512 * 32 * 4;
  const Build plain = build(false, false), less = build(true, false);
  EXPECT_GE(plain.saved_bytes, 22 * layer);
  EXPECT_LE(less.saved_bytes, 7 * layer);
  const Build whole = build(false, true), again = build(true, true);
  EXPECT_GE(whole.arena_bytes, 22 * layer);
  EXPECT_LE(again.arena_bytes, whole.arena_bytes / 3)
      << again.arena_bytes / layer << " of " << whole.arena_bytes / layer << " layers' bytes";
}

TEST(Checkpoint, StepsTrainAlike) {
  const auto train = [&](bool use, bool compiled) {
    manual_seed(5);
    Deep net(8, 2, 2);
    optim::SGD sgd(net.parameters(), {.lr = 0.3});
    const Tensor x = numbers({16, 8}, 0.5);
    const auto step = [&] {
      sgd.zero_grad();
      const Tensor loss = net.run(x, use);
      loss.backward();
      sgd.step();
      return loss;
    };
    auto fast = compile(step);
    Numbers losses;
    for (int i = 0; i < 5; ++i) losses.push_back((compiled ? fast() : step()).item());
    return losses;
  };
  const Numbers plain = train(false, false);
  EXPECT_EQ(train(true, false), plain);
  expect_close(train(true, true), plain, "compiled", 1e-5);
}

TEST(Checkpoint, HostReadsInsideEndStages) {
  const Tensor x = numbers({4}, 0.5, true);
  const auto block = [](const Tensor& a) {
    const Tensor b = exp(a);
    return sum(b).item() > 0 ? sin(b) * b : b;
  };
  const auto program = [&](bool use) { return sum(square(either(use, block, x))); };
  const Numbers plain = after_backward([&] { return program(false); }, {x});
  EXPECT_EQ(after_backward([&] { return program(true); }, {x}), plain);
  auto f = compile([&] {
    const Tensor l = program(true);
    l.backward();
    return l;
  });
  for (int call = 0; call < 3; ++call) {
    Tensor(x).set_grad({});
    f();
    expect_close(doubles(x.grad()), {plain.begin() + 1, plain.end()}, "host read", 1e-5);
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
