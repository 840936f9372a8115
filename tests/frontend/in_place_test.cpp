// SPDX-License-Identifier: Apache-2.0
// In-place methods: each gives what its function gives, in the same memory, with its gradient, on views too.
#include <cmath>

#include "frontend/conv.h"
#include "frontend/elementwise.h"
#include "frontend/functional.h"
#include "frontend/ops_index.h"
#include "tests/frontend/everywhere.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

/// 0 or 1, and the two rows the other way around.
Tensor places(const Tensor& y) { return to(gt(y, 1), DType::i64); }
Tensor swapped() { return Tensor::from_vector<int64_t>({1, 0}, {2}); }

struct Row {
  const char* name;
  std::function<Tensor&(Tensor&, const Tensor&)> write;
  std::function<Tensor(const Tensor&, const Tensor&)> function;
};

const Row kRows[] = {
    {"add_", [](Tensor& x, const Tensor& y) -> Tensor& { return x.add_(y, 2); },
     [](const Tensor& x, const Tensor& y) { return x + y * 2; }},
    {"add_number", [](Tensor& x, const Tensor&) -> Tensor& { return x.add_(3); },
     [](const Tensor& x, const Tensor&) { return x + 3; }},
    {"sub_", [](Tensor& x, const Tensor& y) -> Tensor& { return x.sub_(y, 2); },
     [](const Tensor& x, const Tensor& y) { return x - y * 2; }},
    {"sub_number", [](Tensor& x, const Tensor&) -> Tensor& { return x.sub_(0.5); },
     [](const Tensor& x, const Tensor&) { return x - 0.5; }},
    {"mul_", [](Tensor& x, const Tensor& y) -> Tensor& { return x.mul_(y); },
     [](const Tensor& x, const Tensor& y) { return x * y; }},
    {"mul_number", [](Tensor& x, const Tensor&) -> Tensor& { return x.mul_(3); },
     [](const Tensor& x, const Tensor&) { return x * 3; }},
    {"div_", [](Tensor& x, const Tensor& y) -> Tensor& { return x.div_(y); },
     [](const Tensor& x, const Tensor& y) { return x / y; }},
    {"div_number", [](Tensor& x, const Tensor&) -> Tensor& { return x.div_(4); },
     [](const Tensor& x, const Tensor&) { return x / 4; }},
    {"pow_", [](Tensor& x, const Tensor& y) -> Tensor& { return x.pow_(y); },
     [](const Tensor& x, const Tensor& y) { return pow(x, y); }},
    {"pow_number", [](Tensor& x, const Tensor&) -> Tensor& { return x.pow_(2.5); },
     [](const Tensor& x, const Tensor&) { return pow(x, 2.5); }},
    {"addcmul_", [](Tensor& x, const Tensor& y) -> Tensor& { return x.addcmul_(x, y, 0.5); },
     [](const Tensor& x, const Tensor& y) { return addcmul(x, x, y, 0.5); }},
    {"addcdiv_", [](Tensor& x, const Tensor& y) -> Tensor& { return x.addcdiv_(y, y + 1.0, 0.5); },
     [](const Tensor& x, const Tensor& y) { return addcdiv(x, y, y + 1.0, 0.5); }},
    {"lerp_", [](Tensor& x, const Tensor& y) -> Tensor& { return x.lerp_(y, 0.25); },
     [](const Tensor& x, const Tensor& y) { return lerp(x, y, 0.25); }},
    {"+= -=", [](Tensor& x, const Tensor& y) -> Tensor& { return (x += y) -= 0.5; },
     [](const Tensor& x, const Tensor& y) { return x + y - 0.5; }},
    {"*= /=", [](Tensor& x, const Tensor& y) -> Tensor& { return (x *= 3) /= y; },
     [](const Tensor& x, const Tensor& y) { return x * 3 / y; }},
    {"clamp_", [](Tensor& x, const Tensor&) -> Tensor& { return x.clamp_(0.5, 1.5); },
     [](const Tensor& x, const Tensor&) { return clamp(x, 0.5, 1.5); }},
    {"masked_fill_", [](Tensor& x, const Tensor& y) -> Tensor& { return x.masked_fill_(gt(y, 1), 7); },
     [](const Tensor& x, const Tensor& y) { return masked_fill(x, gt(y, 1), 7); }},
    {"scatter_", [](Tensor& x, const Tensor& y) -> Tensor& { return x.scatter_(-1, places(y), y); },
     [](const Tensor& x, const Tensor& y) { return scatter(x, -1, places(y), y); }},
    {"scatter_ number", [](Tensor& x, const Tensor& y) -> Tensor& { return x.scatter_(-1, places(y), 7); },
     [](const Tensor& x, const Tensor& y) { return scatter(x, -1, places(y), 7); }},
    {"scatter_add_", [](Tensor& x, const Tensor& y) -> Tensor& { return x.scatter_add_(-1, places(y), y); },
     [](const Tensor& x, const Tensor& y) { return scatter_add(x, -1, places(y), y); }},
    {"index_add_", [](Tensor& x, const Tensor& y) -> Tensor& { return x.index_add_(0, swapped(), y, 2); },
     [](const Tensor& x, const Tensor& y) { return index_add(x, 0, swapped(), y, 2); }},
    {"index_copy_", [](Tensor& x, const Tensor& y) -> Tensor& { return x.index_copy_(0, swapped(), y); },
     [](const Tensor& x, const Tensor& y) { return index_copy(x, 0, swapped(), y); }},
    {"index_fill_", [](Tensor& x, const Tensor&) -> Tensor& { return x.index_fill_(0, swapped(), 7); },
     [](const Tensor& x, const Tensor&) { return index_fill(x, 0, swapped(), 7); }},
    {"copy_", [](Tensor& x, const Tensor& y) -> Tensor& { return x.copy_(y); },
     [](const Tensor& x, const Tensor& y) { return x * 0 + y; }},
    {"fill_", [](Tensor& x, const Tensor&) -> Tensor& { return x.fill_(2); },
     [](const Tensor& x, const Tensor&) { return x * 0 + 2; }},
    {"zero_", [](Tensor& x, const Tensor&) -> Tensor& { return x.zero_(); },
     [](const Tensor& x, const Tensor&) { return x * 0; }},
    {"neg_", [](Tensor& x, const Tensor&) -> Tensor& { return x.neg_(); },
     [](const Tensor& x, const Tensor&) { return neg(x); }},
    {"abs_", [](Tensor& x, const Tensor&) -> Tensor& { return x.abs_(); },
     [](const Tensor& x, const Tensor&) { return abs(x); }},
    {"exp_", [](Tensor& x, const Tensor&) -> Tensor& { return x.exp_(); },
     [](const Tensor& x, const Tensor&) { return exp(x); }},
    {"log_", [](Tensor& x, const Tensor&) -> Tensor& { return x.log_(); },
     [](const Tensor& x, const Tensor&) { return log(x); }},
    {"sqrt_", [](Tensor& x, const Tensor&) -> Tensor& { return x.sqrt_(); },
     [](const Tensor& x, const Tensor&) { return sqrt(x); }},
    {"rsqrt_", [](Tensor& x, const Tensor&) -> Tensor& { return x.rsqrt_(); },
     [](const Tensor& x, const Tensor&) { return rsqrt(x); }},
    {"reciprocal_", [](Tensor& x, const Tensor&) -> Tensor& { return x.reciprocal_(); },
     [](const Tensor& x, const Tensor&) { return reciprocal(x); }},
    {"sigmoid_", [](Tensor& x, const Tensor&) -> Tensor& { return x.sigmoid_(); },
     [](const Tensor& x, const Tensor&) { return sigmoid(x); }},
    {"tanh_", [](Tensor& x, const Tensor&) -> Tensor& { return x.tanh_(); },
     [](const Tensor& x, const Tensor&) { return tanh(x); }},
    {"relu_", [](Tensor& x, const Tensor&) -> Tensor& { return x.relu_(); },
     [](const Tensor& x, const Tensor&) { return relu(x); }},
    {"floor_", [](Tensor& x, const Tensor&) -> Tensor& { return x.floor_(); },
     [](const Tensor& x, const Tensor&) { return floor(x); }},
    {"ceil_", [](Tensor& x, const Tensor&) -> Tensor& { return x.ceil_(); },
     [](const Tensor& x, const Tensor&) { return ceil(x); }},
    {"round_", [](Tensor& x, const Tensor&) -> Tensor& { return x.round_(); },
     [](const Tensor& x, const Tensor&) { return round(x); }},
};

/// What a program made of a, b: its result, and their gradients.
struct Outcome {
  std::vector<double> y, a, b;
};

Outcome outcome(const std::function<Tensor(const Inputs&)>& f, bool compiled) {
  const Inputs in = {Tensor::from_vector<double>({0.3, 1.7, 2.2, 0.9}, {2, 2}),
                     Tensor::from_vector<double>({1.2, 0.6, 2, 3}, {2, 2})};
  for (Tensor t : in) t.requires_grad_();
  const auto step = [&](const Inputs& t) {
    Tensor y = f(t);
    // What was overwritten entirely by constants has no history.
    if (y.requires_grad()) sum(y * Tensor::from_vector<double>({1, 2, 3, 4}, {2, 2})).backward();
    return y;
  };
  auto fast = compile(step);
  const Tensor y = compiled ? fast(in) : step(in);
  const auto grad = [](const Tensor& t) {
    return t.grad().defined() ? doubles(t.grad()) : std::vector<double>(4, 0);
  };
  return {doubles(y), grad(in[0]), grad(in[1])};
}

TEST(InPlace, IsTheFunctionWithItsGradient) {
  for (const Row& row : kRows)
    for (const bool compiled : {false, true}) {
      const Outcome want = outcome([&](const Inputs& t) { return row.function(t[0] * 1.0, t[1]); }, false);
      const Outcome got = outcome(
          [&](const Inputs& t) {
            Tensor x = t[0] * 1.0;
            row.write(x, t[1]);
            return x;
          },
          compiled);
      const std::string name = fmt::format("{} {}", row.name, compiled ? "compiled" : "eager");
      expect_close(got.y, want.y, name);
      expect_close(got.a, want.a, name + " a");
      expect_close(got.b, want.b, name + " b");
    }
}

/// Through a view: the rest of the base keeps its contents and its gradient.
TEST(InPlace, OfAViewReachesItsBase) {
  for (const Row& row : kRows)
    for (const bool compiled : {false, true}) {
      const Outcome want = outcome(
          [&](const Inputs& t) {
            return stack({t[0].select(0, 0) * 1.0, row.function(t[0].select(0, 1) * 1.0, t[1].select(0, 1))});
          },
          false);
      const Outcome got = outcome(
          [&](const Inputs& t) {
            Tensor x = t[0] * 1.0, line = x.select(0, 1);
            row.write(line, t[1].select(0, 1));
            return x;
          },
          compiled);
      const std::string name = fmt::format("{} {}", row.name, compiled ? "compiled" : "eager");
      expect_close(got.y, want.y, name);
      expect_close(got.a, want.a, name + " a");
      expect_close(got.b, want.b, name + " b");
    }
}

TEST(InPlace, SlicesWithStepsAreAssigned) {
  Tensor x = vec({1, 2, 3, 4, 5});
  x.slice(0, 0, 5, 2).copy_(vec({7, 8, 9}));
  EXPECT_EQ(values(x), (Floats{7, 2, 8, 4, 9}));
}

TEST(InPlace, WhatItOverwroteCannotBeDifferentiated) {
  Tensor w = vec({1, 2}, true), x = w * 2.0;
  const Tensor y = sum(x * x);
  x.add_(1);
  EXPECT_NE(error_of([&] { y.backward(); }), "no error");
  Tensor z = w * 2.0;
  const Tensor s = sum(exp(z));
  z.exp_();
  EXPECT_EQ(error_of([&] { s.backward(); }), "no error") << "exp is differentiated by its result";
}

TEST(InPlace, Dtypes) {
  Tensor i = ids({7, -7}), h = vec({1, 2}).to(DType::bf16);
  EXPECT_EQ(values(i.mul_(2)), (Floats{14, -14}));
  EXPECT_EQ(values(i.add_(ids({1, 1}))), (Floats{15, -13}));
  EXPECT_EQ(values(i.clamp_(0, std::nullopt)), (Floats{15, 0}));
  EXPECT_EQ(h.mul_(1.5).dtype(), DType::bf16);
  EXPECT_EQ(values(h), (Floats{1.5f, 3}));
  EXPECT_EQ(values(i.fill_(int64_t{1} << 40)), Floats(2, 0x1p40f));
  EXPECT_ERROR(i.div_(2), "invalid: div_ (@): a f32 result does not go into self i64[2] (cast it with to())");
  EXPECT_ERROR(i.exp_(), "invalid: exp_ (@): a f32 result does not go into self i64[2] (cast it with to())");
  EXPECT_ERROR(i.add_(0.5),
               "invalid: add_ (@): a f32 result does not go into self i64[2] (cast it with to())");
  Tensor b = gt(vec({1, -1}), 0);
  EXPECT_ERROR(b.add_(1),
               "invalid: add_ (@): a i64 result does not go into self bool[2] (cast it with to())");
  EXPECT_ERROR(i.uniform_(),
               "invalid: uniform_ (@): got self i64[2], expected a floating dtype (cast it with to())");
}

TEST(InPlace, Errors) {
  Tensor x = zeros({2}), w = vec({1}, true), u;
  EXPECT_ERROR(x.masked_fill_(x, 1),
               "invalid: masked_fill_ (@): got mask f32[2], expected bool (compare it, e.g. with 0)");
  EXPECT_ERROR(x.masked_fill_(gt(zeros({3}), 0), 1),
               "invalid: masked_fill_ (@): shapes do not broadcast; got self f32[2] and mask bool[3]");
  EXPECT_ERROR(x.addcmul_(x, zeros({3, 2})),
               "invalid: addcmul_ (@): b f32[3,2] does not broadcast into self f32[2]");
  EXPECT_ERROR(x.pow_(u), "invalid: pow_ (@): exponent is undefined (give it a value first)");
  EXPECT_ERROR(u.neg_(), "invalid: neg_ (@): self is undefined (give it a value first)");
  EXPECT_ERROR(x.uniform_(2, 1), "invalid: uniform_ (@): empty range [2, 1)");
  EXPECT_ERROR(x.normal_(0, -1), "invalid: normal_ (@): std is -1, expected none below 0");
  EXPECT_ERROR(x.bernoulli_(2), "invalid: bernoulli_ (@): p is 2, expected 0 to 1");
  EXPECT_ERROR(
      w.relu_(),
      "invalid: relu_ (@): f32[1] is a leaf that requires grad (write to it under no_grad, or to a copy of "
      "it)");
  EXPECT_ERROR(x += zeros({3}),
               "invalid: add_ (@): shapes do not broadcast; got self f32[2] and other f32[3]");
  Tensor wide = expand(zeros({1}), {3});
  EXPECT_ERROR(
      wide.neg_(),
      "invalid: neg_ (@): more than one element of f32[3] refers to a single memory location (write to a "
      "copy of it)");
}

TEST(InPlace, Draws) {
  for (const DType t : {DType::f32, DType::f64, DType::bf16}) {
    Tensor x = zeros({4000}, {t});
    manual_seed(5);
    x.uniform_(2, 4);
    double mean = 0;
    for (double v : doubles(x)) {
      EXPECT_TRUE(v >= 2 && v < 4);
      mean += v / 4000;
    }
    EXPECT_NEAR(mean, 3, 0.05);
    x.normal_(1, 2);
    double m = 0, s = 0;
    for (double v : doubles(x)) m += v / 4000;
    for (double v : doubles(x)) s += (v - m) * (v - m) / 4000;
    EXPECT_NEAR(m, 1, 0.15);
    EXPECT_NEAR(s, 4, 0.4);
    x.bernoulli_(0.25);
    m = 0;
    for (double v : doubles(x)) {
      EXPECT_TRUE(v == 0 || v == 1);
      m += v / 4000;
    }
    EXPECT_NEAR(m, 0.25, 0.03);
  }
  const auto drawn = [] {
    Tensor x = zeros({5});
    x.normal_();
    return x;
  };
  auto fast = compile(drawn);
  manual_seed(9);
  const std::vector<double> a = doubles(fast()), b = doubles(fast());
  EXPECT_NE(a, b);
  manual_seed(9);
  expect_close(doubles(drawn()), a, "normal_");
  expect_close(doubles(drawn()), b, "normal_");
}

// Elements that lie in one place of memory.

TEST(InPlace, RefusedWhereElementsOverlap) {
  const std::string why =
      "more than one element of f32[3,2] refers to a single memory location (write to a copy of it)";
  const auto write = [](const Tensor& x) {
    Tensor w = unfold_dim(x, 0, 2, 1);
    w.add_(1.0);
    return x;
  };
  const Tensor x = vec({1, 2, 3, 4});
  for (const std::string& got :
       {error_of([&] { write(x.clone()); }), error_of([&] { compile(write)(x.clone()); })}) {
    EXPECT_TRUE(got.starts_with("invalid: add_ (in_place_test.cpp:")) << got;
    EXPECT_NE(got.find(why), std::string::npos) << got;
  }
  EXPECT_EQ(values(x), (Floats{1, 2, 3, 4}));
  // Windows that lie side by side are no such case.
  Tensor y = vec({1, 2, 3, 4});
  unfold_dim(y, 0, 2, 2).mul_(10);
  EXPECT_EQ(values(y), (Floats{10, 20, 30, 40}));
}

TEST(InPlace, MemoryOfOthersWithOverlaps) {
  std::vector<float> memory(8, 1);
  const auto blob = [&](Sizes sizes, Sizes strides) {
    return Tensor::from_blob(memory.data(), std::move(sizes), DType::f32, std::move(strides));
  };
  if (get_default_device().is_cuda()) return;
  for (const Sizes& strides : {Sizes{1, 1}, {0, 1}, {1, 0}, {2, 2}})
    EXPECT_NE(error_of([&] {
                blob({2, 2}, strides).fill_(2);
              }).find("refers to a single memory location"),
              std::string::npos)
        << fmt::format("{}", fmt::join(strides, ","));
  EXPECT_EQ(memory, Floats(8, 1));
  for (const Sizes& strides : {Sizes{3, 2}, {2, 3}, {1, 2}, {5, 1}}) blob({2, 2}, strides).fill_(2);
  EXPECT_EQ(memory[0], 2);
}

/// State that lies strided, written through a view of another shape.
TEST(InPlace, StridedStateThroughAReshapingView) {
  using Write = std::function<void(Tensor&)>;
  struct Case {
    std::function<Tensor()> base;
    std::function<Tensor(const Tensor&)> state;
    Write write;
  };
  const auto counted = [](const Sizes& sizes) {
    int64_t n = 1;
    for (const int64_t d : sizes) n *= d;
    return arange(n, DType::f32).view(sizes).clone();
  };
  const Case cases[] = {
      {[&] {
         return counted({3, 4});
       },
       [](const Tensor& b) { return b.slice(1, 1, 3); }, [](Tensor& s) { s.unsqueeze(0).add_(1.0); }},
      {[&] {
         return counted({3, 1, 4});
       },
       [](const Tensor& b) { return b.slice(2, 1, 3); }, [](Tensor& s) { s.squeeze(1).mul_(3); }},
      {[&] {
         return counted({3, 4});
       },
       [](const Tensor& b) { return b.slice(1, 1, 3); },
       [](Tensor& s) {
         s.view({3, 2, 1}).add_(1);
       }},
      {[&] {
         return counted({7, 1});
       },
       [](const Tensor& b) { return b.t(); }, [](Tensor& s) { s.view({7}).add_(1); }},
      {[&] {
         return counted({4, 6});
       },
       [](const Tensor& b) { return b.t(); },
       [](Tensor& s) {
         s.copy_((s.reshape({24}) * 2.0).reshape({6, 4}));
       }},
  };
  for (const Case& c : cases) {
    const Tensor eager = c.base(), compiled = c.base();
    Tensor a = c.state(eager), b = c.state(compiled);
    auto fast = compile([&] { c.write(b); });
    for (int call = 0; call < 3; ++call) {
      c.write(a);
      fast();
      EXPECT_EQ(values(compiled), values(eager)) << a.type_str() << " call " << call;
    }
  }
}

TEST(InPlace, LongChainsOfViews) {
  Tensor x = vec({1, 2, 3, 4}, true);
  Tensor base = x * 1.0, y = base;
  for (int i = 0; i < 20000; ++i) y = y.view({2, 2}).transpose(0, 1).transpose(0, 1).unsqueeze(0).view({4});
  for (int i = 0; i < 2000; ++i) y = slice(y, 0, 0, 4).view({4});
  y.mul_(3);
  EXPECT_EQ(values(base), (Floats{3, 6, 9, 12}));
  sum(base * vec({1, 2, 3, 4})).backward();
  EXPECT_EQ(values(x.grad()), (Floats{3, 6, 9, 12}));
}

// What a permute of a permute shows, and what a write through it changes.
TEST(InPlace, ViewsOfPermutedViews) {
  Tensor x = arange(24, {DType::f32}).view({2, 3, 4}).clone().requires_grad_();
  Tensor base = x * 1.0;
  Tensor v = base.permute({1, 2, 0}).permute({2, 0, 1});
  EXPECT_EQ(v.sizes(), (Sizes{2, 3, 4}));
  Tensor w = base.permute({1, 2, 0}).permute({1, 2, 0});  // [4, 2, 3]
  select(w, 0, 1).mul_(10);
  sum(base * base.detach()).backward();
  const Tensor expected = x.detach().clone();
  select(expected, 2, 1).mul_(10);
  EXPECT_EQ(values(base), values(expected));
  Tensor factor = ones({2, 3, 4});
  select(factor, 2, 1).fill_(10);
  EXPECT_EQ(values(x.grad()), values(expected * factor));
}

}  // namespace KILN_FILE
}  // namespace kiln
