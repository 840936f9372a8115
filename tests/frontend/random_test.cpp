// SPDX-License-Identifier: Apache-2.0
// Random tensors and creation: distributions, draws that eager and compiled share, values by formula, errors.
#include "frontend/random.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "tests/frontend/everywhere.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

using Numbers = std::vector<double>;

struct Stats {
  double mean = 0, var = 0;
};
Stats stats(const Tensor& t) {
  const Numbers v = doubles(t);
  Stats s;
  const auto n = static_cast<double>(v.size());
  for (double x : v) s.mean += x / n;
  for (double x : v) s.var += (x - s.mean) * (x - s.mean) / n;
  return s;
}

/// f draws the same eagerly and compiled, from one seed on, and other numbers with each call.
void expect_shared_draws(const std::function<Tensor()>& f, const char* name) {
  auto fast = compile(f);
  manual_seed(11);
  const Numbers a = doubles(fast()), b = doubles(fast()), c = doubles(fast());
  manual_seed(11);
  expect_close(doubles(f()), a, name);
  expect_close(doubles(f()), b, name);
  expect_close(doubles(f()), c, name);
  EXPECT_NE(a, b) << name;
  EXPECT_NE(b, c) << name;
}

TEST(Random, UniformStaysBelowItsEnd) {
  for (const DType t : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    manual_seed(3);
    const Tensor u = rand({20000}, t);
    const Numbers v = doubles(u);
    EXPECT_LT(*std::max_element(v.begin(), v.end()), 1) << dtype_name(t);  // rounded, one would be drawn
    EXPECT_GE(*std::min_element(v.begin(), v.end()), 0);
    const Stats s = stats(u);
    EXPECT_NEAR(s.mean, 0.5, 0.01);
    EXPECT_NEAR(s.var, 1.0 / 12, 0.002);
    Tensor x = zeros({20000}, t);
    x.uniform_(-1, 1);
    const Numbers w = doubles(x);
    EXPECT_LT(*std::max_element(w.begin(), w.end()), 1) << dtype_name(t);
    EXPECT_GE(*std::min_element(w.begin(), w.end()), -1);
    EXPECT_EQ(doubles(x.uniform_(2, 2)), Numbers(20000, 2.0));
    EXPECT_ERROR(x.uniform_(0, INFINITY),
                 fmt::format("invalid: uniform_ (@): range [0, inf) is wider than what self {}[20000] holds",
                             dtype_name(t)));
    EXPECT_NE(error_of([&] { x.uniform_(-1.7e308, 1.7e308); }), "no error");
  }
}

TEST(Random, Bernoulli) {
  manual_seed(2);
  const Tensor p = cat({zeros({10}), ones({10}), full({4000}, 0.3)});
  const Tensor y = bernoulli(p);
  const Numbers v = doubles(y);
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(v[i], i >= 10);
  EXPECT_NEAR(stats(y.slice(0, 20, 4020)).mean, 0.3, 0.03);
  EXPECT_NEAR(stats(bernoulli(ids(std::vector<int64_t>(4000, 0)), 0.8)).mean, 0.8, 0.03);
  EXPECT_EQ(bernoulli(p.to(DType::f16)).dtype(), DType::f16);
  EXPECT_FALSE(bernoulli(vec({0.5f}, true)).requires_grad());
  expect_shared_draws([&] { return bernoulli(p); }, "bernoulli");
  const Tensor bad = vec({0.5f, 1.5f}), nan = vec({NAN}), i = ids({1});
  EXPECT_ERROR(
      bernoulli(bad),
      "invalid: bernoulli (@): probabilities are between 0 and 1; got p f32[2] with another at element 1");
  EXPECT_NE(error_of([&] { bernoulli(nan); }), "no error");
  EXPECT_NE(error_of([&] { compile([](const Tensor& t) { return bernoulli(t); })(bad); }), "no error");
  EXPECT_ERROR(bernoulli(i),
               "invalid: bernoulli (@): got p i64[1], expected a floating dtype (cast it with to())");
  EXPECT_ERROR(bernoulli(bad, -1), "invalid: bernoulli (@): p is -1, expected 0 to 1");
}

TEST(Random, Normal) {
  manual_seed(3);
  const Stats s = stats(normal(5, 3, {4000}));
  EXPECT_NEAR(s.mean, 5, 0.2);
  EXPECT_NEAR(s.var, 9, 0.8);
  const Stats wide = stats(normal(full({4000}, -2.0), 0.5));
  EXPECT_NEAR(wide.mean, -2, 0.05);
  EXPECT_NEAR(wide.var, 0.25, 0.03);
  EXPECT_EQ(normal(1.0, ones({2, 3})).sizes(), (Sizes{2, 3}));
  EXPECT_EQ(normal(zeros({2, 1}), ones({3})).sizes(), (Sizes{2, 3}));
  EXPECT_EQ(normal(0, 1, {3}, {DType::f64}).dtype(), DType::f64);
  expect_shared_draws([] { return normal(1, 2, {7}); }, "normal");
  const Tensor deviations = vec({1, -1});
  EXPECT_ERROR(normal(0, deviations),
               "invalid: normal (@): std is not negative; got deviation f32[2] with another at element 1");
  EXPECT_ERROR(normal(0, -1, {2}), "invalid: normal (@): std is -1, expected none below 0");
  EXPECT_EQ(rand_like(zeros({2, 3}, {DType::f64})).dtype(), DType::f64);
  EXPECT_EQ(randn_like(zeros({2, 3})).sizes(), (Sizes{2, 3}));
  const Tensor i = ids({1});
  EXPECT_ERROR(rand_like(i),
               "invalid: rand_like (@): got t i64[1], expected a floating dtype (cast it with to())");
  EXPECT_ERROR(randn_like(i),
               "invalid: randn_like (@): got t i64[1], expected a floating dtype (cast it with to())");
}

TEST(Random, Multinomial) {
  manual_seed(4);
  const Tensor w = vec({1, 0, 3, 6});
  std::map<int64_t, double> share;
  for (int64_t i : multinomial(w, 4000, true).to_vector<int64_t>()) share[i] += 1.0 / 4000;
  EXPECT_NEAR(share[0], 0.1, 0.03);
  EXPECT_EQ(share[1], 0);
  EXPECT_NEAR(share[2], 0.3, 0.04);
  EXPECT_NEAR(share[3], 0.6, 0.04);
  std::map<int64_t, double> first;
  for (int k = 0; k < 400; ++k) {
    const std::vector<int64_t> drawn = multinomial(w, 3).to_vector<int64_t>();
    EXPECT_EQ(drawn[0] + drawn[1] + drawn[2], 5) << "0, 2 and 3, each once";
    first[drawn[0]] += 1.0 / 400;
  }
  EXPECT_NEAR(first[3], 0.6, 0.12);
  const Tensor rows = mat({0, 1, 1, 0}, {2, 2});
  EXPECT_EQ(values(multinomial(rows, 3, true)), (Floats{1, 1, 1, 0, 0, 0}));
  expect_shared_draws([&] { return multinomial(ones({3, 50}), 4); }, "multinomial");
  EXPECT_ERROR(multinomial(w, 5), "invalid: multinomial (@): 5 samples of weights f32[4], expected 1 to 4");
  EXPECT_ERROR(multinomial(w, 0, true),
               "invalid: multinomial (@): 0 samples of weights f32[4], expected 1 to any number");
  const Tensor negative = vec({1, -1}), nothing = mat({1, 1, 0, 0}, {2, 2}), cube = zeros({1, 1, 1});
  EXPECT_ERROR(multinomial(negative, 1),
               "invalid: multinomial (@): weights are finite and not negative; got weights f32[2] with "
               "another at element 1");
  EXPECT_NE(error_of([&] { multinomial(nothing, 1); }), "no error");
  EXPECT_ERROR(multinomial(cube, 1),
               "invalid: multinomial (@): got weights f32[1,1,1], expected [n] or [m, n] with "
               "n > 0");
}

TEST(Random, Integers) {
  manual_seed(5);
  int64_t odd = 0;
  for (int64_t i : randint(0, int64_t{1} << 40, {1000}).to_vector<int64_t>()) odd += i % 2;
  EXPECT_NEAR(static_cast<double>(odd), 500, 80) << "all bits are drawn";
  EXPECT_EQ(randint(0, 256, {2}, {DType::u8}).dtype(), DType::u8);
  EXPECT_ERROR(randint(0, 257, {2}, {DType::u8}), "invalid: randint (@): [0, 257) is out of the range of u8");
  EXPECT_ERROR(randint(-5, 3, {2}, {DType::u8}), "invalid: randint (@): [-5, 3) is out of the range of u8");
  EXPECT_ERROR(randint(0, int64_t{1} << 32, {2}, {DType::i32}),
               "invalid: randint (@): [0, 4294967296) is out of the range of i32");
}

TEST(Random, PermutationsAreFair) {
  manual_seed(7);
  for (int64_t n : {0, 1, 5, 5000}) {
    std::vector<int64_t> p = randperm(n).to_vector<int64_t>(), sorted(p.size());
    std::iota(sorted.begin(), sorted.end(), 0);
    if (n == 5000) {
      EXPECT_NE(p, randperm(n).to_vector<int64_t>());
    }
    std::sort(p.begin(), p.end());
    EXPECT_EQ(p, sorted);
  }
  std::map<std::vector<int64_t>, int> seen;
  for (int k = 0; k < 600; ++k) ++seen[randperm(3).to_vector<int64_t>()];
  EXPECT_EQ(seen.size(), 6);
  for (const auto& [p, count] : seen) EXPECT_NEAR(count, 100, 45);
  EXPECT_EQ(randperm(3, {DType::f32}).dtype(), DType::f32);
  expect_shared_draws([] { return randperm(9); }, "randperm");
  EXPECT_ERROR(randperm(-1), "invalid: randperm (@): n is -1, expected none below 0");
}

TEST(Random, GumbelSoftmax) {
  manual_seed(8);
  const Tensor shares = vec({0.1f, 0, 0.3f, 0.6f}), logits = log(shares).expand({3000, 4}).contiguous();
  const Numbers mean = doubles(kiln::mean(gumbel_softmax(logits, 1, true), {0}));
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(mean[i], doubles(shares)[i], 0.03);
  Tensor x = vec({1, -1, 0.5f}, true);
  manual_seed(9);
  const Tensor soft = gumbel_softmax(x, 0.5);
  EXPECT_NEAR(doubles(sum(soft))[0], 1, 1e-6);
  sum(soft * vec({1, 2, 3})).backward();
  const Numbers g = doubles(x.grad());
  x.set_grad({});
  manual_seed(9);
  const Tensor hard = gumbel_softmax(x, 0.5, true);
  sum(hard * vec({1, 2, 3})).backward();
  expect_close(doubles(x.grad()), g, "the gradient of the soft one");
  EXPECT_EQ(doubles(amax(hard, {0}))[0], 1);
  EXPECT_EQ(gumbel_softmax(zeros({0, 3})).sizes(), (Sizes{0, 3}));
  expect_shared_draws(
      [&] {
        return gumbel_softmax(log(mat({1, 2, 3, 4}, {2, 2})), 2, false, 0);
      },
      "gumbel_softmax");
  const Tensor i = ids({1});
  EXPECT_ERROR(
      gumbel_softmax(i),
      "invalid: gumbel_softmax (@): got logits i64[1], expected a floating dtype (cast it with to())");
}

TEST(Random, DropoutOfChannels) {
  manual_seed(6);
  struct Row {
    const char* name;
    Tensor (*f)(const Tensor&, double, bool, Loc);
    Sizes sizes;
    int64_t channels;
  };
  for (const Row& r :
       {Row{"1d", dropout1d, {30, 20, 3}, 600}, Row{"1d", dropout1d, {400, 3}, 400},
        Row{"2d", dropout2d, {30, 20, 2, 2}, 600}, Row{"2d", dropout2d, {30, 20, 3}, 600},
        Row{"3d", dropout3d, {30, 20, 2, 1, 2}, 600}, Row{"3d", dropout3d, {400, 2, 1, 2}, 400}}) {
    Tensor x = ones(r.sizes, {DType::f32, true});
    const Tensor y = r.f(x, 0.5, true, Loc::current());
    sum(y).backward();
    EXPECT_EQ(values(x.grad()), values(y)) << r.name;
    const Tensor rows = y.detach().reshape({r.channels, -1});
    EXPECT_EQ(values(amin(rows, {1})), values(amax(rows, {1}))) << r.name;
    EXPECT_NEAR(stats(y).mean, 1, 0.2) << r.name;
    EXPECT_NEAR(stats(y).var, 1, 0.1) << r.name;
    EXPECT_EQ(values(r.f(x, 0.5, false, Loc::current())), values(x)) << r.name;
    EXPECT_EQ(values(r.f(x, 1, true, Loc::current())), Floats(static_cast<size_t>(x.numel()), 0)) << r.name;
    expect_shared_draws([&] { return r.f(x, 0.5, true, Loc::current()) + 0.0; }, r.name);
  }
  const Tensor x = zeros({2}), image = zeros({2, 3, 4, 5});
  EXPECT_ERROR(dropout1d(x), "invalid: dropout1d (@): got x f32[2], expected 2 or 3 dims");
  EXPECT_ERROR(dropout3d(zeros({2, 3})), "invalid: dropout3d (@): got x f32[2,3], expected 4 or 5 dims");
  EXPECT_ERROR(dropout2d(image, 1.5), "invalid: dropout2d (@): p is 1.5, expected 0 to 1");
}

TEST(Random, AlphaDropoutKeepsMeanAndVariance) {
  manual_seed(7);
  const Tensor x = randn({20000});
  const Tensor y = alpha_dropout(x, 0.3);
  EXPECT_NEAR(stats(y).mean, 0, 0.05);
  EXPECT_NEAR(stats(y).var, 1, 0.06);
  const Tensor channels = feature_alpha_dropout(zeros({10, 20, 4}), 0.5).reshape({200, 4});
  EXPECT_EQ(values(amin(channels, {1})), values(amax(channels, {1})));
  EXPECT_EQ(values(alpha_dropout(vec({1, 2}), 1)), (Floats{0, 0}));
  EXPECT_EQ(values(alpha_dropout(vec({1, 2}), 0.5, false)), (Floats{1, 2}));
  expect_shared_draws([&] { return alpha_dropout(x.slice(0, 0, 50), 0.3); }, "alpha_dropout");
  EXPECT_ERROR(alpha_dropout(x, -1), "invalid: alpha_dropout (@): p is -1, expected 0 to 1");
  EXPECT_ERROR(feature_alpha_dropout(x, 0.5),
               "invalid: feature_alpha_dropout (@): got x f32[20000], expected [n, channels, ...]");
}

TEST(Create, Spaced) {
  const auto created = [](const std::function<Tensor()>& f, const char* name) {
    return everywhere([&](const Inputs&) { return f(); }, {}, name);
  };
  expect_close(created([] { return linspace(-1, 2, 7); }, "linspace"), {-1, -0.5, 0, 0.5, 1, 1.5, 2},
               "linspace");
  EXPECT_EQ(values(linspace(3, 9, 1)), (Floats{3}));
  EXPECT_EQ(linspace(3, 9, 0).numel(), 0);
  EXPECT_EQ(linspace(0, 1, 3, {DType::f64}).dtype(), DType::f64);
  expect_close(created([] { return logspace(0, 3, 4); }, "logspace"), {1, 10, 100, 1000}, "logspace");
  expect_close(created([] { return logspace(0, 3, 4, 2); }, "logspace"), {1, 2, 4, 8}, "logspace");
  EXPECT_EQ(created([] { return eye(2, 3); }, "eye"), (Numbers{1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(eye(2, {}, {DType::i64}).dtype(), DType::i64);
  expect_close(created([] { return arange(0.5, 2, 0.5); }, "arange"), {0.5, 1, 1.5}, "arange");
  expect_close(created([] { return arange(1, -1.1, -0.5); }, "arange"), {1, 0.5, 0, -0.5, -1}, "arange");
  EXPECT_EQ(arange(2.5).dtype(), DType::f32);
  EXPECT_EQ(arange(3).dtype(), DType::i64);
  EXPECT_EQ(values(arange(2.5)), (Floats{0, 1, 2}));
  EXPECT_EQ(values(full_like(ids({1, 2}), 7)), (Floats{7, 7}));
  EXPECT_EQ(empty_like(vec({1, 2})).sizes(), (Sizes{2}));
  EXPECT_ERROR(linspace(0, 1, -1), "invalid: linspace (@): -1 steps, expected none below 0");
  EXPECT_ERROR(logspace(0, 1, -1), "invalid: logspace (@): -1 steps, expected none below 0");
  EXPECT_ERROR(eye(-1), "invalid: eye (@): bad sizes [-1,-1]");
  EXPECT_ERROR(arange(0.5, 2, -0.5), "invalid: arange (@): no way from 0.5 to 2 in steps of -0.5");
}

}  // namespace KILN_FILE
}  // namespace kiln
