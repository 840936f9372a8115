// SPDX-License-Identifier: Apache-2.0
// Mixed precision: which dtype each op gives under autocast, by PyTorch's lists; its values against the f32
// op on rounded operands; kernels of halves against eager; and loss scaling, with steps that overflow.
#include "frontend/amp.h"

#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "frontend/autocast_ops.h"
#include "frontend/compile.h"
#include "frontend/dispatch.h"
#include "frontend/functional.h"
#include "frontend/nn/layers.h"
#include "frontend/ops_sort.h"
#include "frontend/optim/adam.h"
#include "frontend/optim/clip.h"
#include "frontend/optim/sgd.h"
#include "tests/frontend/autocast_examples.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using testing::error_of;
using testing::f32_ops;
using testing::Floats;
using testing::free_ops;
using testing::inside;
using testing::lower_ops;
using testing::mat;
using testing::OpCase;
using testing::Ops;
using testing::values;
using testing::vec;
using testing::widest_ops;

Tensor random(Sizes sizes, uint64_t seed) {
  manual_seed(seed);
  return randn(std::move(sizes));
}

constexpr DType kHalves[] = {DType::bf16, DType::f16};

/// Every op of the table has an example here, and every example of a list is in the table.
TEST(Autocast, ExamplesAreTheLists) {
  using detail::AutocastList;
  std::map<std::string_view, AutocastList> examples;
  for (const auto& [list, ops] :
       {std::pair(AutocastList::lower, &lower_ops()), std::pair(AutocastList::f32, &f32_ops()),
        std::pair(AutocastList::widest, &widest_ops())})
    for (const OpCase& c : *ops) EXPECT_TRUE(examples.emplace(c.name, list).second) << c.name;
  examples.emplace("binary_cross_entropy", AutocastList::refused);
  for (const detail::AutocastOp& o : detail::autocast_ops()) {
    const auto at = examples.find(o.name);
    ASSERT_NE(at, examples.end()) << o.name << " has no example";
    EXPECT_EQ(at->second, o.list) << o.name;
    examples.erase(at);
  }
  for (const auto& [name, list] : examples) ADD_FAILURE() << name << " is on no list";
}

TEST(Autocast, DtypesFollowTheLists) {
  const Tensor x = random({6, 6}, 1), y = random({6, 6}, 2);
  for (const DType half : kHalves) {
    const Tensor hx = x.to(half), hy = y.to(half);
    const Autocast guard(half);
    const auto all = [&](const Ops& ops, DType both, DType mixed, DType halves) {
      for (const OpCase& c : ops) {
        SCOPED_TRACE(c.name);
        EXPECT_EQ(c.run(x, y).dtype(), both);
        EXPECT_EQ(c.run(hx, hy).dtype(), halves);
        if (&ops != &free_ops()) {
          EXPECT_EQ(c.run(hx, y).dtype(), mixed);
          EXPECT_EQ(c.run(x, hy).dtype(), mixed);
        }
      }
    };
    all(lower_ops(), half, half, half);
    all(f32_ops(), DType::f32, DType::f32, DType::f32);
    all(widest_ops(), DType::f32, DType::f32, half);
    all(free_ops(), DType::f32, DType::f32, half);
    EXPECT_EQ(matmul(x.to(DType::f64), y.to(DType::f64)).dtype(), DType::f64);  // never cast
    EXPECT_EQ(softmax(hx, 1, DType::f64).dtype(), DType::f64);                  // what is asked for stays
    EXPECT_EQ(softmax(x, 1, half).dtype(), half);
    EXPECT_EQ(log_softmax(x, 1, half).dtype(), half);
    EXPECT_NE(error_of([&] { binary_cross_entropy(inside(x), inside(y)); }).find("with_logits"),
              std::string::npos);
  }
  EXPECT_NE(error_of([&] { index_copy(x, 0, arange(6), y.to(DType::bf16)); }).find("got src bf16"),
            std::string::npos);
}

// A body that would not see what it is cast to is found out.
TEST(Autocast, BodiesOfListedOpsTakeTheirOperandsFromTheCall) {
  const Tensor x = ones({2});
  const auto run = [&] {
    return detail::call("exp", Loc::current(), {&x}, {}, {}, [&](const auto&) { return x; });
  };
  run();
  const Autocast guard;
  EXPECT_NE(error_of(run).find("exp is on a list of autocast"), std::string::npos);
}

// PyTorch's rule: batch_norm takes halves beside parameters and statistics of f32, and keeps x's dtype.
TEST(Autocast, BatchNormTakesHalvesBesideParametersOfF32) {
  const Tensor x = random({8, 3}, 3), weight = vec({1, 2, 3}), bias = vec({0.5F, 0, -1});
  const Tensor mean = zeros({3}), variance = ones({3});
  const Tensor got = batch_norm(x.to(DType::bf16), mean, variance, weight, bias, {.training = true});
  EXPECT_EQ(got.dtype(), DType::bf16);
  const Tensor want =
      batch_norm(x.to(DType::bf16).to(DType::f32), zeros({3}), ones({3}), weight, bias, {.training = true});
  EXPECT_EQ(values(got), values(want.to(DType::bf16)));
}

/// Largest distance, in units of `half`'s rounding of the largest value.
double distance(const Tensor& got, const Tensor& want, DType half) {
  const Floats a = values(got), b = values(want);
  EXPECT_EQ(a.size(), b.size());
  double scale = 1, apart = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    scale = std::max<double>(scale, std::abs(b[i]));
    if (a[i] != b[i]) apart = std::max<double>(apart, std::abs(a[i] - b[i]));
    EXPECT_EQ(std::isnan(a[i]), std::isnan(b[i])) << i;
  }
  return apart / scale / (half == DType::bf16 ? 0x1p-8 : 0x1p-11);
}

/// Compiling takes its time: each op is compiled in one of the halves.
bool compiles_in(const Ops& ops, const OpCase& c, DType half) {
  return kHalves[(&c - ops.data()) % 2] == half;
}

TEST(Autocast, ValuesAreThoseOfF32OnRoundedOperands) {
  const Tensor x = random({34, 34}, 4), y = random({34, 34}, 5);
  for (const DType half : kHalves)
    for (const bool compiled : {false, true}) {
      const auto rounded = [&](const Tensor& t) { return t.to(half).to(DType::f32); };
      for (const OpCase& c : lower_ops()) {
        if (compiled && !compiles_in(lower_ops(), c, half)) continue;
        SCOPED_TRACE(fmt::format("{} in {}{}", c.name, dtype_name(half), compiled ? ", compiled" : ""));
        const auto run = [&](const Tensor& a, const Tensor& b) {
          const Autocast guard(half);
          return c.run(a, b);
        };
        const Tensor want = c.run(rounded(x), rounded(y));
        const Tensor got = compiled ? compile(run)(x, y) : run(x, y);
        const bool several = c.name == "attention" || c.name == "multi_head_attention_forward" ||
                             c.name.starts_with("rnn") || c.name.starts_with("gru") ||
                             c.name.starts_with("lstm");  // roundings
        EXPECT_LE(distance(got, want, half), several ? 16 : 2);
      }
      for (const OpCase& c : f32_ops()) {
        if (compiled && !compiles_in(f32_ops(), c, half)) continue;
        SCOPED_TRACE(fmt::format("{} in f32{}", c.name, compiled ? ", compiled" : ""));
        const auto run = [&](const Tensor& a, const Tensor& b) {
          const Autocast guard(half);
          return c.run(a, b);
        };
        const Tensor hx = x.to(half), want = c.run(rounded(x), y);
        const Tensor got = compiled ? compile(run)(hx, y) : run(hx, y);
        EXPECT_LE(distance(got, want, half), 0.01);
      }
    }
}

TEST(Autocast, GuardsNestAndCanBeOff) {
  const Tensor x = ones({2, 2});
  EXPECT_FALSE(is_autocast_enabled());
  {
    const autocast outer(DType::f16);
    EXPECT_TRUE(is_autocast_enabled());
    {
      const autocast off(DType::bf16, false);
      EXPECT_FALSE(is_autocast_enabled());
      EXPECT_EQ(matmul(x, x).dtype(), DType::f32);
    }
    {
      const autocast inner;
      EXPECT_EQ(matmul(x, x).dtype(), DType::bf16);
    }
    EXPECT_EQ(matmul(x, x).dtype(), DType::f16);
  }
  EXPECT_EQ(matmul(x, x).dtype(), DType::f32);
  EXPECT_NE(error_of([] { const autocast wrong(DType::f32); }).find("got f32, expected bf16 or f16"),
            std::string::npos);
}

TEST(Autocast, AFlipIsAnotherBranchAndEachIsBuiltOnce) {
  bool low = false;
  auto f = compile([&](const Tensor& a, const Tensor& b) {
    const Autocast guard(DType::bf16, low);
    return matmul(a, b);
  });
  const Tensor x = random({4, 4}, 6), y = random({4, 4}, 7);
  for (int i = 0; i < 6; ++i) {
    low = i % 2 == 1;
    EXPECT_EQ(f(x, y).dtype(), low ? DType::bf16 : DType::f32);
  }
  EXPECT_EQ(f.stats().builds.size(), 2u);
}

TEST(Autocast, GradientsHaveTheParametersDtype) {
  for (const bool compiled : {false, true}) {
    nn::Linear layer(8, 4);
    const Tensor x = random({16, 8}, 8);
    const auto step = [&](const Tensor& in) {
      Tensor loss;
      {
        const Autocast guard;
        loss = relu(layer(in)).sum();
      }
      loss.backward();
      return loss;
    };
    auto f = compile(step);
    const Tensor loss = compiled ? f(x) : step(x);
    EXPECT_EQ(loss.dtype(), DType::f32);
    for (const Tensor& p : layer.parameters()) {
      EXPECT_EQ(p.dtype(), DType::f32);
      EXPECT_EQ(p.grad().dtype(), DType::f32);
    }
  }
}

/// Each op of `ops` in a half, compiled, against eager.
TEST(Halves, KernelsEqualEager) {
  Ops ops = lower_ops();
  for (const Ops* more : {&f32_ops(), &free_ops(), &widest_ops()})
    ops.insert(ops.end(), more->begin(), more->end());
  ops.push_back({"sort", [](const Tensor& x, const Tensor&) { return sort(x, 1).first; }});
  ops.push_back({"argmax", [](const Tensor& x, const Tensor&) { return argmax(x, 1).to(DType::f32); }});
  ops.push_back({"cumprod", [](const Tensor& x, const Tensor&) { return cumprod(x, 0); }});
  ops.push_back({"any", [](const Tensor& x, const Tensor&) { return any(x).to(DType::f32); }});
  ops.push_back({"column sums", [](const Tensor& x, const Tensor& y) { return sum(x * y, {0}); }});
  ops.push_back({"transposed matmul", [](const Tensor& x, const Tensor& y) { return matmul(t(x), t(y)); }});
  ops.push_back({"batched matmul", [](const Tensor& x, const Tensor& y) {
                   return matmul(x.reshape({2, x.size(0) / 2, x.size(1)}), y);
                 }});
  ops.push_back({"fused matmul", [](const Tensor& x, const Tensor& y) { return gelu(matmul(relu(x), y)); }});
  const Tensor x = random({70, 70}, 9), y = random({70, 70}, 10);
  for (const DType half : kHalves)
    for (const OpCase& c : ops) {
      if (!compiles_in(ops, c, half)) continue;
      SCOPED_TRACE(fmt::format("{} in {}", c.name, dtype_name(half)));
      const Tensor hx = x.to(half), hy = y.to(half);
      const Tensor want = c.run(hx, hy), got = compile(c.run)(hx, hy);
      EXPECT_EQ(got.dtype(), want.dtype());
      EXPECT_LE(distance(got, want, half), 8);
    }
}

// What an activation computes on the way to a result that a half holds may be larger than any half.
TEST(Halves, ActivationsComputeInF32) {
  const auto of = [](auto&& f, std::vector<float> v) {
    const auto n = static_cast<int64_t>(v.size());
    Tensor x = Tensor::from_vector(v, {n}).to(DType::f16).requires_grad_();
    const Tensor y = f(x);
    y.sum().backward();
    return std::pair{y.to(DType::f32).to_vector<float>(), x.grad().to(DType::f32).to_vector<float>()};
  };
  using F = std::vector<float>;
  EXPECT_EQ(of([](auto& x) { return softplus(x); }, {12, 15, 20}), (std::pair{F{12, 15, 20}, F{1, 1, 1}}));
  EXPECT_EQ(of([](auto& x) { return mish(x); }, {12, 15, 20}), (std::pair{F{12, 15, 20}, F{1, 1, 1}}));
  EXPECT_EQ(of([](auto& x) { return silu(x); }, {60000}), (std::pair{F{60000}, F{1}}));
  EXPECT_EQ(of([](auto& x) { return gelu(x, GeluApproximate::tanh); }, {300}), (std::pair{F{300}, F{1}}));
  for (const float v : of([](auto& x) { return sinc(x); }, {21000, 60000}).first)
    EXPECT_LT(std::fabs(v), 1e-4);
  EXPECT_NEAR(logit(ones({1}, {.dtype = DType::bf16}), 1e-3).item(), 6.9067, 0.02);
}

TEST(Halves, InfinitiesNaNsAndEmptyTensors) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const DType half : kHalves) {
    const Tensor x = vec({inf, -inf, NAN, 0, -0.0F, 1e-7F, 65504, 3e38F, 1.00390625F}).to(half);
    auto f = compile([](const Tensor& t) { return t + t * 0.5F; });
    EXPECT_LE(distance(f(x), x + x * 0.5F, half), 1);
    auto round = compile([half](const Tensor& t) { return t.to(half).to(DType::f32); });
    const Tensor wide = vec({inf, NAN, 65519, 65520, 1.00390625F, 1e-8F, -2.5e-8F, 3.3e38F});
    EXPECT_EQ(testing::Floats(values(round(wide))).size(), 8u);
    const Floats a = values(round(wide)), b = values(wide.to(half).to(DType::f32));
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i] == b[i] || (a[i] != a[i] && b[i] != b[i])) << i;
    auto product = compile([](const Tensor& p, const Tensor& q) { return matmul(p, q); });
    const Tensor none = zeros({3, 0}, {.dtype = half}), other = zeros({0, 2}, {.dtype = half});
    EXPECT_EQ(values(product(none, other)), Floats(6, 0.0F));
  }
}

TEST(Halves, AModuleCastToAHalfRunsCompiled) {
  for (const DType half : kHalves) {
    nn::Linear layer(33, 17);
    const Tensor x = random({9, 33}, 11), want = layer(x);
    layer.to(half);
    auto f = compile([&](const Tensor& in) { return layer(in); });
    const Tensor got = f(x.to(half));
    EXPECT_EQ(got.dtype(), half);
    EXPECT_LE(distance(got, want, half), 4);
  }
}

// --- GradScaler ---

struct Trained {
  Trained() { w.requires_grad_(); }
  Tensor w = vec({1, -2, 3});
};

/// But for the rounding of multiplications and additions in one step.
void expect_near(const Tensor& got, const Tensor& want) {
  const Floats a = values(got), b = values(want);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 2e-6) << i;
}

TEST(GradScaler, AnOverflowingStepChangesNothingAndHalvesTheScale) {
  for (const bool compiled : {false, true}) {
    SCOPED_TRACE(compiled);
    Trained m, plain;
    optim::AdamW adam({m.w}, {.lr = 0.1}), other({plain.w}, {.lr = 0.1});
    GradScaler scaler({.init_scale = 1024, .growth_interval = 3});
    const auto step = [&](const Tensor& x) {
      const Tensor loss = (m.w * x).sum();
      scaler.scale(loss).backward();
      scaler.step(adam);
      scaler.update();
      adam.zero_grad();
      return loss;
    };
    auto f = compile(step);
    const auto run = [&](const Tensor& x) { compiled ? f(x) : step(x); };
    const auto expected = [&](const Tensor& x) {  // a step that PyTorch takes
      (plain.w * x).sum().backward();
      other.step();
      other.zero_grad();
    };
    const Tensor good = vec({1, 2, -1}), bad = vec({1, std::numeric_limits<float>::infinity(), 0});
    run(good);
    expected(good);
    EXPECT_EQ(scaler.get_scale(), 1024);
    expect_near(m.w, plain.w);
    const auto state = [&] {
      std::vector<Floats> all;
      for (const auto& [name, tensor] : adam.state_dict()) all.push_back(values(tensor));
      return all;
    };
    const std::vector<Floats> before = state();
    const Floats parameters = values(m.w);
    run(bad);
    EXPECT_EQ(scaler.get_scale(), 512);
    EXPECT_EQ(adam.step_count(0), 1);
    EXPECT_EQ(state(), before);
    EXPECT_EQ(values(m.w), parameters);
    run(vec({NAN, 0, 0}));
    EXPECT_EQ(scaler.get_scale(), 256);
    for (int i = 0; i < 3; ++i) {
      run(good);
      expected(good);
    }
    EXPECT_EQ(scaler.get_scale(), 512);  // grown after three clean ones
    EXPECT_EQ(adam.step_count(0), 4);
    expect_near(m.w, plain.w);
    EXPECT_EQ(f.stats().builds.size(), compiled ? 1u : 0u);
  }
}

TEST(GradScaler, TrainsInF16AsInF32) {
  const auto train = [](bool half) {
    manual_seed(20);
    nn::Linear first(4, 32), second(32, 1);
    std::vector<Tensor> params = first.parameters();
    for (const Tensor& p : second.parameters()) params.push_back(p);
    optim::SGD sgd(params, {.lr = 0.05, .momentum = 0.9});
    GradScaler scaler({.init_scale = 4096, .growth_interval = 20, .enabled = half});
    const Tensor x = random({64, 4}, 21), y = sum(square(x), {1}, true) * 0.25F;
    auto step = compile([&](const Tensor& in, const Tensor& want) {
      Tensor loss;
      {
        const Autocast guard(DType::f16, half);
        loss = mse_loss(second(tanh(first(in))), want);
      }
      scaler.scale(loss).backward();
      scaler.unscale_(sgd);
      optim::clip_grad_norm_(params, 10);
      scaler.step(sgd);
      scaler.update();
      sgd.zero_grad();
      return loss;
    });
    double loss = 0;
    for (int i = 0; i < 150; ++i) loss = step(x, y).item<double>();
    EXPECT_LE(step.stats().builds.size(), 2u);
    return loss;
  };
  const double wide = train(false), half = train(true);
  EXPECT_LT(wide, 0.1);
  EXPECT_NEAR(half, wide, 0.2 * wide + 0.005);
}

/// All of a step is one stage: a host read in it would be an error. An overflow makes no other.
TEST(GradScaler, ACompiledStepReadsNothing) {
  for (const bool reads : {false, true}) {
    Trained m;
    optim::AdamW adam({m.w}, {.lr = 0.1});
    GradScaler scaler({.init_scale = 8, .growth_interval = 2});
    CompileOptions o;
    o.full_graph = true;
    auto step = compile(
        [&](const Tensor& x) {
          adam.zero_grad();
          const Tensor loss = (m.w * x).sum();
          scaler.scale(loss).backward();
          scaler.unscale_(adam);
          optim::clip_grad_norm_({m.w}, 1);
          scaler.step(adam);
          scaler.update();
          if (reads) scaler.get_scale();
          return loss;
        },
        o);
    const Tensor good = vec({1, 2, -1}), bad = vec({1, std::numeric_limits<float>::infinity(), 0});
    if (reads) {
      const std::string error = error_of([&] { step(good); });
      EXPECT_NE(error.find("full_graph forbids"), std::string::npos) << error;
      continue;
    }
    for (const Tensor& x : {good, good, good, bad, good, bad, bad, good}) step(x);
    EXPECT_EQ(step.stats().builds.size(), 1u);
    EXPECT_EQ(scaler.get_scale(), 2);
    EXPECT_EQ(adam.step_count(0), 5);
  }
}

TEST(GradScaler, StateGoesOutAndIn) {
  GradScaler a({.init_scale = 8, .growth_factor = 4, .backoff_factor = 0.25, .growth_interval = 7}), b;
  b.load_state_dict(a.state_dict());
  EXPECT_EQ(b.get_scale(), 8);
  const auto x = a.state_dict(), y = b.state_dict();
  ASSERT_EQ(x.size(), 5u);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(x[i].first, y[i].first);
    EXPECT_EQ(values(x[i].second), values(y[i].second));
  }
  for (const char* name : {"scale", "growth_factor", "growth_interval", "_growth_tracker"}) {
    nn::NamedTensors bad = a.state_dict();
    for (auto& [n, t] : bad)
      if (n == name) t = full({}, NAN);
    EXPECT_NE(error_of([&] { b.load_state_dict(bad); }).find("GradScaler.load_state_dict"), std::string::npos)
        << name;
  }
  EXPECT_NE(error_of([&] { b.load_state_dict({}); }).find("expected scale, growth_factor"),
            std::string::npos);
  GradScaler off({.enabled = false});
  EXPECT_TRUE(off.state_dict().empty());
  EXPECT_EQ(off.get_scale(), 1);
}

TEST(GradScaler, CallsOutOfOrderAreRefused) {
  Trained m;
  optim::SGD sgd({m.w}, {.lr = 0.1});
  GradScaler scaler;
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(error_of([&] { scaler.step(sgd); }), "no parameter has a gradient");
  has(error_of([&] { scaler.update(); }), "no gradient was looked at");
  scaler.scale(m.w.sum()).backward();
  scaler.unscale_(sgd);
  has(error_of([&] { scaler.unscale_(sgd); }), "was called before");
  scaler.step(sgd);
  has(error_of([&] { scaler.step(sgd); }), "was called before");
  has(error_of([&] { scaler.unscale_(sgd); }), "comes after step()");
  scaler.update();
  has(error_of([] { GradScaler({.growth_factor = 1}); }), "got growth_factor 1");
}

}  // namespace KILN_FILE
}  // namespace kiln
