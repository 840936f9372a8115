// SPDX-License-Identifier: Apache-2.0
// Losses: values by formula, reductions, gradients by differences, kinks and saturation, errors.
#include "frontend/losses.h"

#include <tuple>

#include "tests/frontend/everywhere.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

using Numbers = std::vector<double>;

Tensor f64(const Numbers& v, Sizes sizes) { return Tensor::from_vector(v, std::move(sizes)); }

/// A loss of pairs: f(x, y, reduction), and what it is for one pair.
struct PairRow {
  const char* name;
  std::function<Tensor(const Tensor&, const Tensor&, Reduction)> f;
  std::function<double(double, double)> formula;
  Numbers x, y;
  bool y_grad = true;
};

double log_sigmoid(double x) { return -std::log1p(std::exp(-x)); }
double hinge(double x) { return std::max(0.0, x); }

const Numbers kX = {-2, 0.3, 1.4, 3}, kY = {0.5, 0.1, 1.5, -1}, kP = {0.1, 0.35, 0.6, 0.9},
              kQ = {0, 1, 0.3, 1}, kSign = {1, -1, 1, -1}, kCounts = {0, 1, 2, 5};
const PairRow kPairRows[] = {
    {"smooth_l1", [](const auto& a, const auto& b, Reduction r) { return smooth_l1_loss(a, b, r, 0.7); },
     [](double a, double b) {
       const double d = std::abs(a - b);
       return d < 0.7 ? d * d / 1.4 : d - 0.35;
     },
     kX, kY},
    {"smooth_l1_0", [](const auto& a, const auto& b, Reduction r) { return smooth_l1_loss(a, b, r, 0); },
     [](double a, double b) { return std::abs(a - b); }, kX, kY},
    {"huber", [](const auto& a, const auto& b, Reduction r) { return huber_loss(a, b, r, 0.7); },
     [](double a, double b) {
       const double d = std::abs(a - b);
       return d <= 0.7 ? d * d / 2 : 0.7 * (d - 0.35);
     },
     kX, kY},
    {"bce", [](const auto& a, const auto& b, Reduction r) { return binary_cross_entropy(a, b, {}, r); },
     [](double a, double b) { return -(b * std::log(a) + (1 - b) * std::log1p(-a)); }, kP, kQ},
    {"bce_logits",
     [](const auto& a, const auto& b, Reduction r) {
       return binary_cross_entropy_with_logits(a, b, {}, {}, r);
     },
     [](double a, double b) { return -(b * log_sigmoid(a) + (1 - b) * log_sigmoid(-a)); }, kX, kQ},
    {"kl_div",
     [](const auto& a, const auto& b, Reduction r) {
       return kl_div(a, b,
                     r == Reduction::none   ? KlReduction::none
                     : r == Reduction::mean ? KlReduction::mean
                                            : KlReduction::sum);
     },
     [](double a, double b) { return b * (std::log(b) - a); }, kX, kP},
    {"kl_div_logs",
     [](const auto& a, const auto& b, Reduction r) {
       return kl_div(a, b,
                     r == Reduction::none   ? KlReduction::none
                     : r == Reduction::mean ? KlReduction::mean
                                            : KlReduction::sum,
                     true);
     },
     [](double a, double b) { return std::exp(b) * (b - a); }, kX, kY},
    {"poisson",
     [](const auto& a, const auto& b, Reduction r) { return poisson_nll_loss(a, b, true, false, 1e-8, r); },
     [](double a, double b) { return std::exp(a) - b * a; }, kX, kCounts},
    {"poisson_full",
     [](const auto& a, const auto& b, Reduction r) { return poisson_nll_loss(a, b, false, true, 0.01, r); },
     [](double a, double b) {
       return a - b * std::log(a + 0.01) + (b > 1 ? b * std::log(b) - b + std::log(2 * M_PI * b) / 2 : 0);
     },
     kP, kCounts, false},
    {"soft_margin", [](const auto& a, const auto& b, Reduction r) { return soft_margin_loss(a, b, r); },
     [](double a, double b) { return std::log1p(std::exp(-a * b)); }, kX, kSign},
    {"hinge", [](const auto& a, const auto& b, Reduction r) { return hinge_embedding_loss(a, b, 1.2, r); },
     [](double a, double b) { return b == 1 ? a : hinge(1.2 - a); }, kX, kSign, false},
    {"mse", [](const auto& a, const auto& b, Reduction r) { return mse_loss(a, b, r); },
     [](double a, double b) { return (a - b) * (a - b); }, kX, kY},
    {"ranking",
     [](const auto& a, const auto& b, Reduction r) {
       return margin_ranking_loss(a, b, ones(a.sizes(), {DType::f64}) * -1.0, 0.3, r);
     },
     [](double a, double b) { return hinge(a - b + 0.3); }, kX, kY},
    {"gaussian",
     [](const auto& a, const auto& b, Reduction r) {
       return gaussian_nll_loss(a, b * 0.0 + 0.5, b, true, 1e-6, r);
     },
     [](double a, double v) {
       return 0.5 * (std::log(v) + (a - 0.5) * (a - 0.5) / v) + 0.5 * std::log(2 * M_PI);
     },
     kX, kP},
};

TEST(Losses, OfPairs) {
  for (const PairRow& row : kPairRows) {
    Numbers each;
    double total = 0;
    for (size_t i = 0; i < row.x.size(); ++i) {
      each.push_back(row.formula(row.x[i], row.y[i]));
      total += each.back();
    }
    const Inputs in = {f64(row.x, {4}), f64(row.y, {4})};
    for (const Reduction r : {Reduction::none, Reduction::sum, Reduction::mean}) {
      const auto f = [&](const Inputs& t) { return row.f(t[0], t[1], r); };
      const Numbers want = r == Reduction::none ? each : Numbers{r == Reduction::sum ? total : total / 4};
      expect_close(everywhere(f, in, row.name), want, row.name);
    }
    const Tensor y = in[1];
    if (row.y_grad)
      expect_gradients(
          [&](const Inputs& t) { return row.f(t[0], t[1], Reduction::mean); },
          {row.x, std::string(row.name).starts_with("bce") ? Numbers{0.2, 0.9, 0.3, 0.8} : row.y}, {{4}, {4}},
          row.name);
    else
      expect_gradients([&](const Inputs& t) { return row.f(t[0], y, Reduction::mean); }, {row.x}, {{4}},
                       row.name);
    const Tensor none = zeros({0}, {DType::f64});
    EXPECT_EQ(row.f(none, none, Reduction::sum).item(), 0) << row.name;
    EXPECT_TRUE(std::isnan(row.f(none, none, Reduction::mean).item())) << row.name;
  }
}

TEST(Losses, SaturatedProbabilities) {
  Tensor x = vec({0, 1, 0, 1}, true);
  const Tensor y = vec({0, 1, 1, 0}), each = binary_cross_entropy(x, y, {}, Reduction::none);
  EXPECT_EQ(values(each), (Floats{0, 0, 100, 100}));
  sum(each).backward();
  const Floats g = values(x.grad());
  EXPECT_EQ(g[0], 0);
  EXPECT_EQ(g[1], 0);
  EXPECT_FLOAT_EQ(g[2], -1e12f);
  EXPECT_FLOAT_EQ(g[3], 1e12f);
  EXPECT_EQ(binary_cross_entropy_with_logits(vec({1000, -1000}), vec({0, 1}), {}, {}, Reduction::sum).item(),
            2000);
  EXPECT_EQ(soft_margin_loss(vec({-1000}), vec({1})).item(), 1000);
  const Tensor bad = vec({0.5f, 1.5f});
  EXPECT_ERROR(binary_cross_entropy(bad, y.slice(0, 0, 2)),
               "invalid: binary_cross_entropy (@): probabilities are between 0 and 1; got x f32[2] with "
               "another at element 1");
}

TEST(Losses, Weights) {
  const Inputs in = {f64({0.2, 0.7, 0.9, 0.4}, {2, 2}), f64({1, 0, 1, 1}, {2, 2}), f64({2, 3}, {2}),
                     f64({0.5, 4}, {2})};
  const auto weighted = [](const Inputs& t) {
    return binary_cross_entropy(t[0], t[1], t[2], Reduction::none);
  };
  expect_close(everywhere(weighted, in, "bce"),
               {-2 * std::log(0.2), -3 * std::log(0.3), -2 * std::log(0.9), -3 * std::log(0.4)}, "bce");
  const auto logits = [](const Inputs& t) {
    return binary_cross_entropy_with_logits(t[0], t[1], t[2], t[3], Reduction::none);
  };
  expect_close(everywhere(logits, in, "logits"),
               {-2 * 0.5 * log_sigmoid(0.2), -3 * log_sigmoid(-0.7), -2 * 0.5 * log_sigmoid(0.9),
                -3 * 4 * log_sigmoid(0.4)},
               "logits");
  expect_gradients(logits, {{0.2, 0.7, 0.9, 0.4}, {1, 0, 0.3, 1}, {2, 3}, {0.5, 4}},
                   {{2, 2}, {2, 2}, {2}, {2}}, "logits");
  const Inputs logs = {f64({-1, -2, -3, -4}, {2, 2}), f64({0.25, 0.75, 0.5, 0.5}, {2, 2})};
  const Numbers whole =
      everywhere([](const Inputs& t) { return kl_div(t[0], t[1], KlReduction::sum); }, logs, "kl");
  EXPECT_DOUBLE_EQ(kl_div(logs[0], logs[1], KlReduction::batchmean).item(), whole[0] / 2);
}

TEST(Losses, OfVectors) {
  const Numbers a = {1, 2, -1, 0.5}, b = {2, 1, 1, 1};
  const Tensor sign = ids({1, -1});
  const auto cosine = [&](const Inputs& t) {
    return cosine_embedding_loss(t[0], t[1], sign, -0.9, Reduction::none);
  };
  const double c0 = 4 / 5.0, c1 = -0.5 / std::sqrt(1.25 * 2);
  expect_close(everywhere(cosine, {f64(a, {2, 2}), f64(b, {2, 2})}, "cosine"), {1 - c0, c1 + 0.9}, "cosine");
  expect_gradients(cosine, {a, b}, {{2, 2}, {2, 2}}, "cosine");
  EXPECT_EQ(cosine_embedding_loss(vec({1, 0}), vec({1, 0}), full({}, 1.0)).item(), 0);
  const Numbers n = {3, 1, 0, 2};
  for (const bool swap : {false, true}) {
    TripletOptions o;
    o.swap = swap;
    o.eps = 0;
    o.reduction = Reduction::none;
    const auto f = [&](const Inputs& t) { return triplet_margin_loss(t[0], t[1], t[2], o); };
    const auto distance = [](const Numbers& u, const Numbers& v, size_t row) {
      return std::hypot(u[2 * row] - v[2 * row], u[2 * row + 1] - v[2 * row + 1]);
    };
    Numbers want;
    for (size_t row = 0; row < 2; ++row) {
      const double apart = distance(a, n, row), other = distance(b, n, row);
      want.push_back(hinge(1 + distance(a, b, row) - (swap ? std::min(apart, other) : apart)));
    }
    expect_close(everywhere(f, {f64(a, {2, 2}), f64(b, {2, 2}), f64(n, {2, 2})}, "triplet"), want, "triplet");
    expect_gradients(f, {a, b, n}, {{2, 2}, {2, 2}, {2, 2}}, "triplet");
  }
}

TEST(Losses, OfClasses) {
  const Numbers x = {0.1, 0.9, 0.4, -0.2, 0.3, 0.8};
  const Tensor target = ids({1, 0}), weight = Tensor::from_vector<double>({2, 3, 4}, {3});
  for (const int64_t p : {1, 2}) {
    const auto f = [&](const Inputs& t) {
      return multi_margin_loss(t[0], target, p, 0.7, weight, Reduction::none);
    };
    Numbers want;
    for (int row = 0; row < 2; ++row) {
      const int own = row == 0 ? 1 : 0;
      double s = 0;
      for (int i = 0; i < 3; ++i)
        if (i != own)
          s += std::pow(
              hinge(0.7 - x[static_cast<size_t>(3 * row + own)] + x[static_cast<size_t>(3 * row + i)]),
              static_cast<double>(p));
      want.push_back(s * (own == 1 ? 3 : 2) / 3);
    }
    expect_close(everywhere(f, {f64(x, {2, 3})}, "multi_margin"), want, "multi_margin");
    expect_gradients(f, {x}, {{2, 3}}, "multi_margin");
  }
  EXPECT_FLOAT_EQ(multi_margin_loss(vec({1, 0}), ids({1}).view({})).item<float>(), 1);
  const Tensor labels = ids({2, 0, -1, 1, -1, 2}).view({2, 3});
  const auto many = [&](const Inputs& t) { return multilabel_margin_loss(t[0], labels, Reduction::none); };
  const double first = hinge(1 - x[2] + x[1]) + hinge(1 - x[0] + x[1]),
               second = hinge(1 - x[4] + x[3]) + hinge(1 - x[4] + x[5]);
  expect_close(everywhere(many, {f64(x, {2, 3})}, "multilabel"), {first / 3, second / 3}, "multilabel");
  expect_gradients(many, {x}, {{2, 3}}, "multilabel");
  const Tensor y = f64({1, 0, 1, 0, 0, 1}, {2, 3});
  const auto soft = [&](const Inputs& t) {
    return multilabel_soft_margin_loss(t[0], y, weight, Reduction::none);
  };
  Numbers want;
  for (size_t row = 0; row < 2; ++row) {
    double s = 0;
    for (size_t i = 0; i < 3; ++i) {
      const double hit = doubles(y)[3 * row + i];
      s -= static_cast<double>(i + 2) *
           (hit * log_sigmoid(x[3 * row + i]) + (1 - hit) * log_sigmoid(-x[3 * row + i]));
    }
    want.push_back(s / 3);
  }
  expect_close(everywhere(soft, {f64(x, {2, 3})}, "soft"), want, "soft");
  expect_gradients(soft, {x}, {{2, 3}}, "soft");
}

/// What is left of a path when repeats are joined and blanks (0) dropped.
std::vector<int64_t> transcript(const std::vector<int64_t>& path) {
  std::vector<int64_t> out;
  for (size_t t = 0; t < path.size(); ++t)
    if (path[t] != 0 && (t == 0 || path[t] != path[t - 1])) out.push_back(path[t]);
  return out;
}

/// -log of the sum over all paths of `times` classes of c that leave `target`. x: log-probabilities [t, c].
double over_all_paths(const Numbers& x, int64_t times, int64_t c, const std::vector<int64_t>& target) {
  int64_t paths = 1;
  for (int64_t t = 0; t < times; ++t) paths *= c;
  double p = 0;
  for (int64_t i = 0; i < paths; ++i) {
    std::vector<int64_t> path;
    double score = 0;
    for (int64_t t = 0, rest = i; t < times; ++t, rest /= c) {
      path.push_back(rest % c);
      score += x[static_cast<size_t>(t * c + rest % c)];
    }
    if (transcript(path) == target) p += std::exp(score);
  }
  return -std::log(p);
}

TEST(Losses, CtcIsTheSumOverPaths) {
  constexpr int64_t kTimes = 4, kClasses = 3;
  Numbers x;
  for (int i = 0; i < 2 * kTimes * kClasses; ++i) x.push_back(-0.3 - 0.35 * ((5 * i) % 7));
  const auto row = [&](int64_t n) {
    Numbers own;
    for (int64_t t = 0; t < kTimes; ++t)
      for (int64_t c = 0; c < kClasses; ++c)
        own.push_back(x[static_cast<size_t>((t * 2 + n) * kClasses + c)]);
    return own;
  };
  using Target = std::vector<int64_t>;
  for (const auto& [a, b, ta, tb] : std::vector<std::tuple<Target, Target, int64_t, int64_t>>{
           {{1, 2}, {2}, 4, 3}, {{1, 1}, {2, 1}, 4, 2}, {{}, {1}, 2, 1}, {{2, 2}, {1, 2}, 2, 4}}) {
    const Numbers want = {over_all_paths(row(0), ta, kClasses, a), over_all_paths(row(1), tb, kClasses, b)};
    std::vector<int64_t> padded(4, 1);
    std::copy(a.begin(), a.end(), padded.begin());
    std::copy(b.begin(), b.end(), padded.begin() + 2);
    const Tensor targets = ids(padded).view({2, 2}), times = ids({ta, tb}),
                 lengths = ids({static_cast<int64_t>(a.size()), static_cast<int64_t>(b.size())});
    const auto f = [&](const Inputs& t) {
      return ctc_loss(t[0], targets, times, lengths, 0, Reduction::none);
    };
    expect_close(everywhere(f, {f64(x, {kTimes, 2, kClasses})}, "ctc"), want, "ctc");
    if (std::isfinite(want[0]) && std::isfinite(want[1]))
      expect_gradients(f, {x}, {{kTimes, 2, kClasses}}, "ctc");
    const Tensor finite =
        ctc_loss(f64(x, {kTimes, 2, kClasses}), targets, times, lengths, 0, Reduction::mean, true);
    double mean = 0;
    for (size_t n = 0; n < 2; ++n)
      if (std::isfinite(want[n]))
        mean += want[n] / std::max<double>(1, static_cast<double>(n ? b.size() : a.size())) / 2;
    EXPECT_NEAR(finite.item(), mean, 1e-9);
  }
  const Numbers own = row(0);
  EXPECT_NEAR(ctc_loss(f64(own, {kTimes, kClasses}), ids({1, 2}), full({}, 4, {DType::i64}),
                       full({}, 2, {DType::i64}), 0, Reduction::sum)
                  .item(),
              over_all_paths(own, kTimes, kClasses, {1, 2}), 1e-9);
}

TEST(Losses, CtcErrors) {
  const Tensor x = zeros({4, 1, 3}), t = ids({1, 2}).view({1, 2}), four = ids({4}), two = ids({2});
  EXPECT_ERROR(ctc_loss(x, ids({1, 3}).view({1, 2}), four, two),
               "invalid: ctc_loss (@): targets 3 is out of range; expected 0 to 2");
  EXPECT_ERROR(ctc_loss(x, t, ids({5}), two),
               "invalid: ctc_loss (@): input_lengths 5 is out of range; expected 0 to 4");
  EXPECT_ERROR(ctc_loss(x, t, four, ids({-1})),
               "invalid: ctc_loss (@): target_lengths -1 is out of range; expected 0 to 2");
  EXPECT_ERROR(ctc_loss(x, t, four, two, 3), "invalid: ctc_loss (@): blank is 3, expected 0 to 2");
  EXPECT_ERROR(
      ctc_loss(x, two, four, two),
      "invalid: ctc_loss (@): got log_probs f32[4,1,3], targets i64[1], input_lengths i64[1] and "
      "target_lengths i64[1], expected [t, n, c], [n, s], [n] and [n] with t > 0, or [t, c], [s], [] and []");
}

TEST(Losses, Errors) {
  const Tensor nan = vec({0.5f, NAN});
  EXPECT_ERROR(binary_cross_entropy(nan, nan),
               "invalid: binary_cross_entropy (@): probabilities are between 0 and 1; got x f32[2] with "
               "another at element 1");
  const Tensor x = zeros({2, 3}), v = zeros({2}), i = ids({1, 2}), wrong = ids({1, 3});
  EXPECT_ERROR(smooth_l1_loss(x, v),
               "invalid: smooth_l1_loss (@): shapes do not broadcast; got x f32[2,3] and y f32[2]");
  EXPECT_ERROR(smooth_l1_loss(x, x, Reduction::mean, -1),
               "invalid: smooth_l1_loss (@): beta is -1, expected none below 0");
  EXPECT_ERROR(huber_loss(x, x, Reduction::mean, 0),
               "invalid: huber_loss (@): delta is 0, expected more than 0");
  EXPECT_ERROR(binary_cross_entropy(x, v),
               "invalid: binary_cross_entropy (@): got x f32[2,3] and y f32[2], expected one shape");
  EXPECT_ERROR(
      binary_cross_entropy_with_logits(v, v, {}, zeros({3, 1})),
      "invalid: binary_cross_entropy_with_logits (@): pos_weight f32[3,1] does not broadcast to x f32[2]");
  EXPECT_ERROR(kl_div(i, v),
               "invalid: kl_div (@): got x i64[2], expected a floating dtype (cast it with to())");
  EXPECT_ERROR(gaussian_nll_loss(x, x, v.slice(0, 0, 1)),
               "invalid: gaussian_nll_loss (@): got var f32[1] for x f32[2,3], expected its shape, or "
               "without its last dim");
  EXPECT_ERROR(gaussian_nll_loss(x, x, v - 1.0),
               "invalid: gaussian_nll_loss (@): var f32[2] is negative at element 1");
  EXPECT_ERROR(multi_margin_loss(x, wrong),
               "invalid: multi_margin_loss (@): target 3 is out of range; expected 0 to 2");
  EXPECT_ERROR(multi_margin_loss(x, i, 3), "invalid: multi_margin_loss (@): p is 3, expected 1 or 2");
  EXPECT_ERROR(multi_margin_loss(x, v),
               "invalid: multi_margin_loss (@): got x f32[2,3] and target f32[2], expected [n, c] "
               "and [n] of integers");
  EXPECT_ERROR(
      multilabel_margin_loss(x.slice(1, 0, 2), ids({0, 1, 5, 0}).view({2, 2})),
      "invalid: multilabel_margin_loss (@): target 5 is out of range; expected 0 to 1, or less than 0 at the "
      "end");
  EXPECT_ERROR(
      cosine_embedding_loss(x, x, ids({1})),
      "invalid: cosine_embedding_loss (@): got x1 f32[2,3], x2 f32[2,3] and y i64[1], expected [n, d] twice "
      "and [n], or [d] and []");
  EXPECT_ERROR(triplet_margin_loss(x, x, v),
               "invalid: triplet_margin_loss (@): got anchor f32[2,3], positive f32[2,3] and negative "
               "f32[2], expected as many dims each");
  EXPECT_ERROR(triplet_margin_loss(x, x, x, {.margin = 0}),
               "invalid: triplet_margin_loss (@): margin is 0, expected more than 0");
  EXPECT_ERROR(soft_margin_loss(i, i),
               "invalid: soft_margin_loss (@): got x i64[2], expected a floating dtype (cast it with to())");
  EXPECT_ERROR(multilabel_soft_margin_loss(x, v),
               "invalid: multilabel_soft_margin_loss (@): got x f32[2,3] and y "
               "f32[2], expected [..., c] twice");
}

}  // namespace KILN_FILE
}  // namespace kiln
