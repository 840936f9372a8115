// SPDX-License-Identifier: Apache-2.0
// Convolutions against their definition as sums, in f64, with derivatives by finite differences; compiled
// against eager; and what they refuse.
#include "frontend/conv.h"

#include <cmath>

#include "frontend/compile.h"
#include "frontend/ops.h"
#include "tests/frontend/volumes.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

Tensor counted(Sizes sizes, double scale, DType t = DType::f64) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  std::vector<double> v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i) v[i] = std::sin(scale * static_cast<double>(i) + 1);
  return Tensor::from_vector(v, std::move(sizes)).to(t);
}

struct Case {
  Sizes x, w;
  int64_t stride, padding, dilation, groups;
};
constexpr auto name_of = [](const auto& info) {
  const Case& c = info.param;
  return fmt::format("x{}_w{}_s{}_p{}_d{}_g{}", fmt::join(c.x, "x"), fmt::join(c.w, "x"), c.stride, c.padding,
                     c.dilation, c.groups);
};

class Conv2d : public ::testing::TestWithParam<Case> {
 protected:
  static ConvOptions options() {
    const Case& c = GetParam();
    return {.stride = c.stride, .padding = c.padding, .dilation = c.dilation, .groups = c.groups};
  }
  static std::vector<double> by_definition(const std::vector<double>& x, const std::vector<double>& w) {
    const Case& c = GetParam();
    const int64_t h = c.x[2], q = c.x[3], kh = c.w[2], kw = c.w[3], per = c.w[1], outs = c.w[0];
    const auto out_size = [&](int64_t n, int64_t k) {
      return (n + 2 * c.padding - c.dilation * (k - 1) - 1) / c.stride + 1;
    };
    const int64_t oh = out_size(h, kh), ow = out_size(q, kw);
    std::vector<double> y;
    for (int64_t n = 0; n < c.x[0]; ++n)
      for (int64_t o = 0; o < outs; ++o)
        for (int64_t i = 0; i < oh; ++i)
          for (int64_t j = 0; j < ow; ++j) {
            double sum = 0;
            for (int64_t a = 0; a < per; ++a)
              for (int64_t u = 0; u < kh; ++u)
                for (int64_t v = 0; v < kw; ++v) {
                  const int64_t r = i * c.stride - c.padding + u * c.dilation;
                  const int64_t s = j * c.stride - c.padding + v * c.dilation;
                  if (r < 0 || r >= h || s < 0 || s >= q) continue;
                  const int64_t channel = o / (outs / c.groups) * per + a;
                  sum += x[static_cast<size_t>(((n * c.x[1] + channel) * h + r) * q + s)] *
                         w[static_cast<size_t>(((o * per + a) * kh + u) * kw + v)];
                }
            y.push_back(sum);
          }
    return y;
  }
};

TEST_P(Conv2d, IsItsDefinition) {
  const Tensor x = counted(GetParam().x, 0.7), w = counted(GetParam().w, 1.3);
  const std::vector<double> want = by_definition(doubles(x), doubles(w)),
                            got = doubles(conv2d(x, w, {}, options()));
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12) << i;
}

TEST_P(Conv2d, DerivativesAreThoseOfTheDefinition) {
  const auto upstream = [](const Tensor& y) { return counted(y.sizes(), 0.3); };
  Tensor x = counted(GetParam().x, 0.7), w = counted(GetParam().w, 1.3);
  x.requires_grad_();
  w.requires_grad_();
  const Tensor y = conv2d(x, w, {}, options());
  y.backward(upstream(y));
  const std::vector<double> g = doubles(upstream(y));
  // The definition is linear in each operand: a difference of any size is its derivative.
  const auto check = [&](const Tensor& t, bool is_x) {
    std::vector<double> v = doubles(t);
    const std::vector<double> other = doubles(is_x ? w : x), grad = doubles(t.grad());
    const std::vector<double> before = is_x ? by_definition(v, other) : by_definition(other, v);
    for (size_t i = 0; i < v.size(); i += 7) {
      std::vector<double> moved = v;
      moved[i] += 1;
      const std::vector<double> after = is_x ? by_definition(moved, other) : by_definition(other, moved);
      double slope = 0;
      for (size_t k = 0; k < g.size(); ++k) slope += (after[k] - before[k]) * g[k];
      EXPECT_NEAR(grad[i], slope, 1e-10) << (is_x ? "x " : "w ") << i;
    }
  };
  check(x, true);
  check(w, false);
}

TEST_P(Conv2d, CompiledAsEager) {
  Tensor x = counted(GetParam().x, 0.7, DType::f32), w = counted(GetParam().w, 1.3, DType::f32);
  x.requires_grad_();
  w.requires_grad_();
  const auto f = [&] {
    const Tensor y = conv2d(x, w, {}, options());
    sum(y * y).backward();
    return y;
  };
  const Floats want = values(f()), want_x = values(x.grad()), want_w = values(w.grad());
  x.set_grad({});
  w.set_grad({});
  auto compiled = compile(f);
  const Floats got = values(compiled());
  const auto near = [](const Floats& a, const Floats& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-4) << i;
  };
  near(got, want);
  near(values(x.grad()), want_x);
  near(values(w.grad()), want_w);
}

INSTANTIATE_TEST_SUITE_P(All, Conv2d,
                         ::testing::Values(Case{{2, 3, 6, 5}, {4, 3, 3, 3}, 1, 1, 1, 1},
                                           Case{{1, 4, 7, 8}, {6, 2, 3, 2}, 2, 1, 2, 2},
                                           Case{{2, 3, 9, 9}, {3, 1, 3, 3}, 2, 0, 1, 3},
                                           Case{{2, 2, 9, 7}, {6, 1, 2, 3}, 3, 2, 2, 2},
                                           Case{{1, 5, 4, 4}, {2, 5, 1, 1}, 1, 0, 1, 1},
                                           Case{{1, 1, 5, 5}, {1, 1, 5, 5}, 4, 2, 1, 1}),
                         name_of);

// The transpose of a convolution is its derivative with respect to the input.
TEST(ConvTranspose, IsTheAdjointOfConv) {
  for (const int64_t groups : {1, 2})
    for (const int64_t stride : {1, 2, 3})
      for (const int64_t dilation : {1, 2}) {
        const Tensor w = counted({4, 6 / groups, 3, 2}, 1.1);
        Tensor x = counted({2, 6, 11, 10}, 0.3);
        x.requires_grad_();
        const ConvOptions o{.stride = stride, .padding = 1, .dilation = dilation, .groups = groups};
        const Tensor y = conv2d(x, w, {}, o);
        const Tensor g = counted(y.sizes(), 0.9);
        y.backward(g);
        // What the strides skip at the far end comes back by output_padding.
        const auto left = [&](int64_t n, int64_t k) { return (n + 2 - dilation * (k - 1) - 1) % stride; };
        const ConvTransposeOptions t{.stride = stride,
                                     .padding = 1,
                                     .output_padding = Sizes{left(11, 3), left(10, 2)},
                                     .groups = groups,
                                     .dilation = dilation};
        const Tensor back = conv_transpose2d(g, w, {}, t);
        ASSERT_EQ(back.sizes(), x.sizes());
        const std::vector<double> got = doubles(back), want = doubles(x.grad());
        for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-11) << groups << stride << i;
      }
}

/// Of volumes: x[n, a, i] w[a, b, u] adds to y[n, o, i stride - padding + u dilation], where o is channel b
/// of a's group.
TEST(ConvTranspose, OfVolumesIsItsDefinition) {
  const Sizes x_sizes{2, 4, 3, 4, 2}, w_sizes{4, 3, 2, 3, 2};
  const Tensor x = volume(x_sizes), w = volume(w_sizes, 1.3);
  const std::vector<double> xs = doubles(x), ws = doubles(w);
  for (const int64_t groups : {1, 2})
    for (const bool plain : {true, false}) {
      const Sizes ones{1, 1, 1},
          stride = plain ? ones : Sizes{2, 1, 3}, dilation = plain ? ones : Sizes{1, 2, 2},
          padding = plain ? Sizes{0, 0, 0} : Sizes{1, 0, 2}, more = plain ? Sizes{0, 0, 0} : Sizes{1, 0, 2};
      Sizes y_sizes{2, 3 * groups};
      for (size_t d = 0; d < 3; ++d)
        y_sizes.push_back((x_sizes[d + 2] - 1) * stride[d] - 2 * padding[d] +
                          dilation[d] * (w_sizes[d + 2] - 1) + more[d] + 1);
      std::vector<Term> of_x, of_w;
      each_place(x_sizes, [&](const Sizes& i) {
        each_place(w_sizes, [&](const Sizes& u) {
          Sizes to{i[0], i[1] / (4 / groups) * 3 + u[1]};
          bool inside = u[0] == i[1];
          for (size_t d = 0; d < 3; ++d) {
            to.push_back(i[d + 2] * stride[d] - padding[d] + u[d + 2] * dilation[d]);
            inside &= to[d + 2] >= 0 && to[d + 2] < y_sizes[d + 2];
          }
          if (!inside) return;
          const int64_t y = place(y_sizes, to), a = place(x_sizes, i), b = place(w_sizes, u);
          of_x.push_back({y, a, ws[static_cast<size_t>(b)]});
          of_w.push_back({y, b, xs[static_cast<size_t>(a)]});
        });
      });
      const ConvTransposeOptions o{.stride = stride,
                                   .padding = padding,
                                   .output_padding = more,
                                   .groups = groups,
                                   .dilation = dilation};
      const std::string name = fmt::format("{} groups, {}", groups, plain ? "plain" : "spread");
      expect_terms([&](const Tensor& t) { return conv_transpose3d(t, w, {}, o); }, x, y_sizes, of_x, name);
      expect_terms([&](const Tensor& t) { return conv_transpose3d(x, t, {}, o); }, w, y_sizes, of_w,
                   name + ", by the weight");
    }
}

TEST(ConvTranspose, OfVolumesAddsItsBiasAndTakesOneSample) {
  const Tensor x = volume({2, 4, 3, 4, 2}), w = volume({4, 3, 2, 3, 2}, 1.3), bias = volume({3}, 0.4);
  const Tensor y = conv_transpose3d(x, w, bias);
  EXPECT_EQ(difference(doubles(y), doubles(conv_transpose3d(x, w) + bias.view({3, 1, 1, 1})), 1e-12), "");
  EXPECT_EQ(difference(doubles(conv_transpose3d(select(x, 0, 1), w, bias)), doubles(select(y, 0, 1)), 1e-12),
            "");
}

TEST(Conv, EmptyBatchesStayEmpty) {
  EXPECT_EQ(conv2d(zeros({0, 3, 5, 5}), ones({2, 3, 3, 3})).sizes(), (Sizes{0, 2, 3, 3}));
  EXPECT_EQ(conv1d(zeros({3, 5}), ones({2, 3, 3})).sizes(), (Sizes{2, 3}));
}

TEST(Conv, NaNStaysInItsWindows) {
  Tensor x = zeros({1, 1, 1, 6});
  select(x, 3, 5).fill_(NAN);
  const Floats y = values(conv2d(x, ones({1, 1, 1, 3})));
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[2], 0);
  EXPECT_TRUE(std::isnan(y[3]));
}

TEST(Conv, Refusals) {
  const Tensor x = zeros({2, 4, 5, 5}), w = zeros({6, 4, 3, 3});
  EXPECT_ERROR(
      conv2d(zeros({5}), w),
      "invalid: conv2d (@): got x f32[5] and weight f32[6,4,3,3], expected 4 (or 3 without a batch) and "
      "4 dims");
  EXPECT_ERROR(
      conv2d(x, zeros({6, 3, 3, 3})),
      "invalid: conv2d (@): channels do not fit; got x f32[2,4,5,5], weight f32[6,3,3,3] and groups 1, "
      "expected weight [o, c / groups, ...]");
  EXPECT_ERROR(conv2d(x, w, zeros({5})), "invalid: conv2d (@): got bias f32[5] for 6 output channels");
  EXPECT_ERROR(conv2d(x, w.to(DType::f64)),
               "invalid: conv2d (@): dtypes differ; got x f32[2,4,5,5], weight f64[6,4,3,3]");
  EXPECT_ERROR(conv2d(x, w, {}, {.stride = 0}), "invalid: conv2d (@): stride is 0, expected 1 to 2147483647");
  EXPECT_ERROR(conv2d(x, w, {}, {.padding = Sizes{1, 2, 3}}),
               "invalid: conv2d (@): padding has 3 numbers, expected one, or 2 for its dims of space");
  EXPECT_ERROR(
      conv2d(x, zeros({6, 4, 7, 3})),
      "invalid: conv2d (@): the kernel is larger than the input; got x f32[2,4,5,5] padded by 0 and 0, "
      "weight f32[6,4,7,3], dilation 1");
  EXPECT_ERROR(conv2d(x, w, {}, {.stride = 2, .padding = ConvPadding::same_size()}),
               "invalid: conv2d (@): padding \"same\" needs stride 1, got 2");
  EXPECT_ERROR(
      conv_transpose2d(x, zeros({4, 6, 3, 3}), {}, {.output_padding = 1}),
      "invalid: conv_transpose2d (@): output_padding 1 must be less than the stride 1 or the dilation 1");
  EXPECT_ERROR(fold(zeros({1, 8, 5}), Sizes{4, 4}, 2),
               "invalid: fold (@): got x f32[1,8,5], expected a multiple of 4 rows and 3 x 3 columns");
  EXPECT_ERROR(unfold_dim(zeros({4}), 0, 5, 1),
               "invalid: unfold_dim (@): got size 5 and step 1 for dim 0 of x f32[4], expected at least 1, "
               "and no window larger than the dim");
}

/// Any integer stands for all dims of space.
TEST(Conv, OptionsOfAnyInteger) {
  const Tensor x = ones({1, 1, 4, 4}), w = ones({1, 1, 2, 2});
  const std::vector<int> two(2);
  long long wide = 2;  // NOLINT: the type is the point
  EXPECT_EQ(conv2d(x, w, {}, {.stride = two.size(), .padding = wide}).sizes(), (Sizes{1, 1, 4, 4}));
  EXPECT_EQ(conv2d(x, w, {}, {.stride = uint8_t{2}, .padding = 0}).sizes(), (Sizes{1, 1, 2, 2}));
}

}  // namespace KILN_FILE
}  // namespace kiln
