// SPDX-License-Identifier: Apache-2.0
// Modules that call one function: that their arguments arrive, eagerly and compiled, in training and in eval.
// And that every name of torch.nn is there, or is said not to be.
#include <fstream>
#include <map>
#include <set>

#include "frontend/kiln.h"
#include "tests/frontend/everywhere.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

/// Calls `m` with as many tensors as there are.
Tensor call_module(nn::Module& m, const Inputs& in) {
  if (in.size() == 1) return m(in[0]);
  return in.size() == 2 ? m(in[0], in[1]) : m(in[0], in[1], in[2]);
}

/// What a module must do with `in`, told whether it trains.
using Function = std::function<Tensor(const Inputs&, bool)>;

struct ModuleCase {
  const char* name;
  std::function<std::unique_ptr<nn::Module>()> make;
  Inputs in;
  Function function;
};

template <typename M, typename... Args>
ModuleCase of(const char* name, Inputs in, Function function, const Args&... args) {
  return {name, [=] { return std::make_unique<M>(args...); }, std::move(in), std::move(function)};
}

void expect_is_function(const ModuleCase& c, bool training) {
  SCOPED_TRACE(fmt::format("{}, {}", c.name, training ? "training" : "eval"));
  const auto module = c.make();
  module->train(training);
  manual_seed(7);
  const Tensor want = c.function(c.in, training);
  manual_seed(7);
  const Tensor got = call_module(*module, c.in);
  EXPECT_EQ(got.sizes(), want.sizes());
  EXPECT_EQ(difference(doubles(got), doubles(want), 0), "");
  for (const Backend backend : {Backend::reference, Backend::native}) {
    if (backend == Backend::native && !training) continue;  // the code that training has, or less
    CompileOptions o;
    o.backend = backend;
    auto fast = compile([&](const Inputs& in) { return call_module(*module, in); }, o);
    for (int call = 0; call < 2; ++call) {
      manual_seed(7);
      expect_close(doubles(fast(c.in)), doubles(want), "compiled");
    }
    EXPECT_EQ(fast.stats().builds.size(), 1u);
  }
}

void expect_are_functions(const std::vector<ModuleCase>& cases) {
  for (const ModuleCase& c : cases)
    for (const bool training : {true, false}) expect_is_function(c, training);
}

/// A fixed number for each element, between -2 and 2.
Tensor ramp(Sizes sizes, double scale = 1.7) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return (sin(arange(n).to(DType::f32) * scale) * 2.0).reshape(std::move(sizes)).detach();
}

/// A function of x alone, or one that no mode changes.
template <typename F>
Function plain(F f) {
  return [f](const Inputs& in, bool) { return f(in[0]); };
}
template <typename F>
Function pair(F f) {
  return [f](const Inputs& in, bool) { return f(in[0], in[1]); };
}
template <typename F>
Function triple(F f) {
  return [f](const Inputs& in, bool) { return f(in[0], in[1], in[2]); };
}

#define KILN_UNARY(Module, call) of<nn::Module>(#Module, {x}, plain([](const Tensor& x) { return call; })

TEST(NnModules, Activations) {
  const Tensor x = ramp({4, 6});
  expect_are_functions({
      KILN_UNARY(ReLU6, relu6(x)))  , KILN_UNARY(SELU, selu(x))), KILN_UNARY(Mish, mish(x))),
      KILN_UNARY(LogSigmoid, logsigmoid(x))), KILN_UNARY(Hardsigmoid, hardsigmoid(x))),
      KILN_UNARY(Hardswish, hardswish(x))), KILN_UNARY(Softsign, softsign(x))),
      KILN_UNARY(Tanhshrink, tanhshrink(x))), KILN_UNARY(ELU, elu(x))), KILN_UNARY(ELU, elu(x, 0.5)), 0.5),
      KILN_UNARY(CELU, celu(x))), KILN_UNARY(CELU, celu(x, 2)), 2.0),
      KILN_UNARY(Hardshrink, hardshrink(x))), KILN_UNARY(Hardshrink, hardshrink(x, 1)), 1.0),
      KILN_UNARY(Softshrink, softshrink(x))), KILN_UNARY(Softshrink, softshrink(x, 1)), 1.0),
      KILN_UNARY(Hardtanh, hardtanh(x))), KILN_UNARY(Hardtanh, hardtanh(x, -0.5, 1.5)), -0.5, 1.5),
      KILN_UNARY(Softmin, softmin(x, 0)), int64_t{0}), KILN_UNARY(GLU, glu(x))),
      KILN_UNARY(GLU, glu(x, 0)), int64_t{0}), KILN_UNARY(Threshold, threshold(x, 0.3, -7)), 0.3, -7.0),
      KILN_UNARY(PReLU, prelu(x, full({1}, 0.25)))),
      KILN_UNARY(PReLU, prelu(x, full({6}, 0.1))), int64_t{6}, 0.1),
      of<nn::RReLU>("RReLU", {x}, [](const Inputs& in, bool on) {
    return rrelu(in[0], 1.0 / 8, 1.0 / 3, on); }),
      of<nn::RReLU>("RReLU", {x}, [](const Inputs& in, bool on) {
    return rrelu(in[0], 0.2, 0.9, on); }, 0.2, 0.9),
  });
  const Tensor image = ramp({2, 3, 2, 2});
  expect_are_functions(
      {of<nn::Softmax2d>("Softmax2d", {image}, plain([](const Tensor& x) { return softmax(x, 1); })),
       of<nn::Softmax2d>("Softmax2d", {select(image, 0, 1)},
                         plain([](const Tensor& x) { return softmax(x, 0); }))});
  nn::Softmax2d bad;
  EXPECT_ERROR(bad(x), "invalid: Softmax2d (@): got x f32[4,6], expected [n, c, h, w] or [c, h, w]");
  EXPECT_EQ(nn::PReLU(3).named_parameters()[0].first, "weight");
}

TEST(NnModules, Dropouts) {
  const Tensor x = ramp({3, 4}), line = ramp({2, 5, 4}), image = ramp({2, 5, 3, 2}),
               cube = ramp({2, 5, 2, 2, 2});
  const auto with = [](auto f, double p) {
    return [=](const Inputs& in, bool on) { return f(in[0], p, on, Loc::current()); };
  };
  expect_are_functions(
      {of<nn::Dropout>("Dropout", {x}, with(dropout, 0.5)),
       of<nn::Dropout>("Dropout", {x}, with(dropout, 0.2), 0.2),
       of<nn::Dropout1d>("Dropout1d", {line}, with(dropout1d, 0.5)),
       of<nn::Dropout2d>("Dropout2d", {image}, with(dropout2d, 0.3), 0.3),
       of<nn::Dropout3d>("Dropout3d", {cube}, with(dropout3d, 0.5)),
       of<nn::AlphaDropout>("AlphaDropout", {x}, with(alpha_dropout, 0.5)),
       of<nn::FeatureAlphaDropout>("FeatureAlphaDropout", {image}, with(feature_alpha_dropout, 0.4), 0.4)});
}

TEST(NnModules, Paddings) {
  const Tensor line = ramp({2, 3, 5}), image = ramp({2, 3, 4, 5}), cube = ramp({1, 2, 3, 4, 3});
  const auto with = [](Sizes pads, PadMode mode, double value = 0) {
    return plain([=](const Tensor& x) { return pad(x, pads, mode, value); });
  };
  const SpatialArg one = 1, line_sides{2, 1}, sides{1, 2, 0, 1}, six{1, 0, 2, 1, 1, 1};
  const Sizes ones4(4, 1), ones6(6, 1);
  expect_are_functions({
      of<nn::ConstantPad1d>("ConstantPad1d", {line}, with({2, 1}, PadMode::constant, 3.5), line_sides, 3.5),
      of<nn::ConstantPad2d>("ConstantPad2d", {image}, with(sides.values, PadMode::constant, -1), sides, -1.0),
      of<nn::ConstantPad3d>("ConstantPad3d", {cube}, with(ones6, PadMode::constant, 2), one, 2.0),
      of<nn::ZeroPad1d>("ZeroPad1d", {line}, with({1, 1}, PadMode::constant), one),
      of<nn::ZeroPad2d>("ZeroPad2d", {image}, with(sides.values, PadMode::constant), sides),
      of<nn::ZeroPad3d>("ZeroPad3d", {cube}, with(six.values, PadMode::constant), six),
      of<nn::ReflectionPad1d>("ReflectionPad1d", {line}, with({2, 1}, PadMode::reflect), line_sides),
      of<nn::ReflectionPad2d>("ReflectionPad2d", {image}, with(ones4, PadMode::reflect), one),
      of<nn::ReflectionPad3d>("ReflectionPad3d", {cube}, with(ones6, PadMode::reflect), one),
      of<nn::ReplicationPad1d>("ReplicationPad1d", {line}, with({2, 1}, PadMode::replicate), line_sides),
      of<nn::ReplicationPad2d>("ReplicationPad2d", {image}, with(sides.values, PadMode::replicate), sides),
      of<nn::ReplicationPad3d>("ReplicationPad3d", {cube}, with(six.values, PadMode::replicate), six),
      of<nn::CircularPad1d>("CircularPad1d", {line}, with({2, 1}, PadMode::circular), line_sides),
      of<nn::CircularPad2d>("CircularPad2d", {image}, with(sides.values, PadMode::circular), sides),
      of<nn::CircularPad3d>("CircularPad3d", {cube}, with(six.values, PadMode::circular), six),
  });
  EXPECT_EQ(error_of([] {
              nn::ZeroPad2d({1, 2, 3});
            }),
            "invalid: Pad2d: got 3 numbers of padding, expected 1 or 4");
  nn::ReflectionPad2d bad(1);
  EXPECT_ERROR(bad(ramp({4, 4})), "invalid: Pad2d (@): got x f32[4,4], expected 3 or 4 dims");
}

TEST(NnModules, PoolsAndResampling) {
  const Tensor line = ramp({2, 3, 8}), image = ramp({2, 4, 4, 6}), cube = ramp({1, 2, 4, 4, 4});
  const LPPoolOptions steps{.stride = 1, .ceil_mode = true};
  const InterpolateOptions twice{.scale_factor = {2}}, size{.size = {5, 7}};
  InterpolateOptions bilinear = size;
  bilinear.mode = InterpolateMode::linear;
  bilinear.align_corners = true;
  const SpatialArg two = 2, three = 3;
  expect_are_functions({
      of<nn::LPPool1d>("LPPool1d", {line}, plain([](const Tensor& x) { return lp_pool1d(x, 2, 2); }), 2.0,
                       two),
      of<nn::LPPool2d>("LPPool2d", {image}, plain([=](const Tensor& x) { return lp_pool2d(x, 2, 3, steps); }),
                       2.0, three, steps),
      of<nn::LPPool3d>("LPPool3d", {abs(cube)}, plain([](const Tensor& x) { return lp_pool3d(x, 3, 2); }),
                       3.0, two),
      of<nn::UpsamplingNearest2d>("UpsamplingNearest2d", {image},
                                  plain([=](const Tensor& x) { return interpolate(x, twice); }), twice),
      of<nn::UpsamplingBilinear2d>("UpsamplingBilinear2d", {image},
                                   plain([=](const Tensor& x) { return interpolate(x, bilinear); }), size),
      of<nn::PixelShuffle>("PixelShuffle", {image},
                           plain([](const Tensor& x) { return pixel_shuffle(x, 2); }), int64_t{2}),
      of<nn::PixelUnshuffle>("PixelUnshuffle", {image},
                             plain([](const Tensor& x) { return pixel_unshuffle(x, 2); }), int64_t{2}),
      of<nn::ChannelShuffle>("ChannelShuffle", {image},
                             plain([](const Tensor& x) { return channel_shuffle(x, 2); }), int64_t{2}),
      of<nn::MaxPool1d>("MaxPool1d", {line}, plain([](const Tensor& x) { return max_pool1d(x, 3); }), three),
  });
}

TEST(NnModules, AveragesAndBins) {
  const Tensor line = ramp({2, 3, 8}), image = ramp({2, 3, 4, 6}), cube = ramp({1, 2, 4, 5, 4});
  const SpatialArg two = 2, three = 3, all = 1, pair_of{3, 2}, bins2{3, -1}, bins3{3, 2, 4};
  const AvgPoolOptions steps{.stride = 1, .padding = 1, .ceil_mode = true, .count_include_pad = false},
      divided{.divisor_override = 3};
#define KILN_POOL(Module, in, call, ...) \
  of<nn::Module>(#Module, {in}, plain([=](const Tensor& x) { return call; }), __VA_ARGS__)
  expect_are_functions({
      KILN_POOL(AvgPool1d, line, avg_pool1d(x, 2), two),
      KILN_POOL(AvgPool1d, line, avg_pool1d(x, 3, steps), three, steps),
      KILN_POOL(AvgPool2d, image, avg_pool2d(x, 3), three),
      KILN_POOL(AvgPool2d, image, avg_pool2d(x, pair_of, steps), pair_of, steps),
      KILN_POOL(AvgPool3d, cube, avg_pool3d(x, 2), two),
      KILN_POOL(AvgPool3d, cube, avg_pool3d(x, 2, divided), two, divided),
      KILN_POOL(MaxPool3d, cube, max_pool3d(x, 2), two),
      KILN_POOL(AdaptiveAvgPool1d, line, adaptive_avg_pool1d(x, 3), three),
      KILN_POOL(AdaptiveAvgPool2d, image, adaptive_avg_pool2d(x, bins2), bins2),
      KILN_POOL(AdaptiveAvgPool3d, cube, adaptive_avg_pool3d(x, bins3), bins3),
      KILN_POOL(AdaptiveAvgPool3d, cube, adaptive_avg_pool3d(x, 1), all),
      KILN_POOL(AdaptiveMaxPool1d, line, adaptive_max_pool1d(x, 3), three),
      KILN_POOL(AdaptiveMaxPool2d, image, adaptive_max_pool2d(x, bins2), bins2),
      KILN_POOL(AdaptiveMaxPool3d, cube, adaptive_max_pool3d(x, bins3), bins3),
  });
#undef KILN_POOL
}

TEST(NnModules, UpsampleIsInterpolate) {
  const auto as = [](InterpolateOptions o) {
    return plain([=](const Tensor& x) { return interpolate(x, o); });
  };
  const InterpolateOptions nearest{.scale_factor = {2}},
      exact{.size = {5}, .mode = InterpolateMode::nearest_exact},
      linear{.size = {5, 7}, .mode = InterpolateMode::linear},
      corners{.size = {5, 2, 7}, .mode = InterpolateMode::linear, .align_corners = true},
      cubic{.scale_factor = {1.5, 2}, .mode = InterpolateMode::bicubic};
  const Tensor line = ramp({2, 3, 8}), image = ramp({2, 3, 4, 6}), cube = ramp({1, 2, 4, 5, 4});
  expect_are_functions({of<nn::Upsample>("nearest", {cube}, as(nearest), nearest),
                        of<nn::Upsample>("nearest_exact", {line}, as(exact), exact),
                        of<nn::Upsample>("bilinear", {image}, as(linear), linear),
                        of<nn::Upsample>("trilinear", {cube}, as(corners), corners),
                        of<nn::Upsample>("bicubic", {image}, as(cubic), cubic)});
}

TEST(NnModules, UnpoolingPutsElementsBack) {
  const auto check = [](auto&& pool, auto&& unpool, const Tensor& x, auto&& function) {
    const auto [values, at] = pool.forward_with_indices(x);
    EXPECT_EQ(doubles(values), doubles(pool(x)));
    const Tensor back = unpool(values, at);
    EXPECT_EQ(back.sizes(), x.sizes());
    EXPECT_EQ(doubles(back), doubles(function(values, at)));
    EXPECT_EQ(doubles(pool(back * 1.0 + eq(back, 0.0).to(DType::f32) * -9.0)), doubles(values));
    auto fast = compile([&](const Tensor& v, const Tensor& i) { return unpool(v, i); });
    for (int call = 0; call < 2; ++call) EXPECT_EQ(doubles(fast(values, at)), doubles(back));
  };
  check(nn::MaxPool1d(2), nn::MaxUnpool1d(2), ramp({2, 3, 8}),
        [](const Tensor& v, const Tensor& i) { return max_unpool1d(v, i, 2); });
  check(nn::MaxPool2d(2), nn::MaxUnpool2d(2), ramp({2, 3, 4, 6}),
        [](const Tensor& v, const Tensor& i) { return max_unpool2d(v, i, 2); });
  check(nn::MaxPool3d(2), nn::MaxUnpool3d(2), ramp({2, 2, 2, 4}),
        [](const Tensor& v, const Tensor& i) { return max_unpool3d(v, i, 2); });
  // A size that the usual one does not tell: [3, 5] pools to the same as [2, 4].
  nn::MaxPool2d pool(2);
  nn::MaxUnpool2d unpool(2);
  const auto [values, at] = pool.forward_with_indices(ramp({1, 3, 5}));
  EXPECT_EQ(unpool.forward_to(values, at, {3, 5}).sizes(), (Sizes{1, 3, 5}));
  EXPECT_ERROR(
      unpool.forward_to(values, at, {4, 5}),
      "invalid: max_unpool2d (@): output_size 4 in dim 0 of space, expected more than 0 and less than 4");
  const Tensor far = full({1, 1, 2}, int64_t{9}, {.dtype = DType::i64});
  EXPECT_NE(error_of([&] { unpool(values, far); }).find("max_unpool2d ("), std::string::npos);
}

TEST(NnModules, UnpoolingAndPowersHaveDerivatives) {
  const std::vector<double> x{0.3, -1.2, 0.7, 2.1}, all{1, 2, 3, -4, 5, 6, 7, -8};
  const Tensor at = Tensor::from_vector<int64_t>({1, 3, 4, 6}, {1, 4});
  expect_gradients([&](const Inputs& in) { return max_unpool1d(in[0], at, 2); }, {x}, {{1, 4}},
                   "max_unpool1d");
  expect_gradients([](const Inputs& in) { return lp_pool1d(in[0], 2, 2); }, {all}, {{1, 8}}, "lp_pool1d");
  Tensor nothing = zeros({1, 4}).requires_grad_();
  sum(lp_pool1d(nothing, 2, 2)).backward();
  EXPECT_EQ(values(nothing.grad()), (Floats{0, 0, 0, 0}));
}

TEST(NnModules, Distances) {
  const Tensor x = ramp({3, 4}), y = ramp({3, 4}, 0.9);
  expect_are_functions({
      of<nn::CosineSimilarity>("CosineSimilarity", {x, y}, pair([](const Tensor& a, const Tensor& b) {
                                 return cosine_similarity(a, b);
                               })),
      of<nn::CosineSimilarity>("CosineSimilarity", {x, y}, pair([](const Tensor& a, const Tensor& b) {
                                 return cosine_similarity(a, b, 0, 3.0);
                               }),
                               int64_t{0}, 3.0),
      of<nn::PairwiseDistance>("PairwiseDistance", {x, y}, pair([](const Tensor& a, const Tensor& b) {
                                 return pairwise_distance(a, b);
                               })),
      of<nn::PairwiseDistance>("PairwiseDistance", {x, y}, pair([](const Tensor& a, const Tensor& b) {
                                 return pairwise_distance(a, b, 1, 0.5, true);
                               }),
                               1.0, 0.5, true),
  });
}

TEST(NnModules, LossesOfElements) {
  const Tensor x = ramp({3, 4}), y = ramp({3, 4}, 0.9), p = sigmoid(x), q = sigmoid(y),
               w = abs(ramp({4}, 0.4)) + 0.1;
  const Tensor signs = sign(y + 0.01), half = Tensor::from_vector<float>({0.3f}, {1});
  using T = const Tensor&;
  expect_are_functions({
      of<nn::HuberLoss>("HuberLoss", {x, y}, pair([](T a, T b) { return huber_loss(a, b); })),
      of<nn::HuberLoss>("HuberLoss", {x, y},
                        pair([](T a, T b) { return huber_loss(a, b, Reduction::sum, 0.4); }), Reduction::sum,
                        0.4),
      of<nn::SmoothL1Loss>("SmoothL1Loss", {x, y}, pair([](T a, T b) { return smooth_l1_loss(a, b); })),
      of<nn::SmoothL1Loss>("SmoothL1Loss", {x, y},
                           pair([](T a, T b) { return smooth_l1_loss(a, b, Reduction::none, 0.4); }),
                           Reduction::none, 0.4),
      of<nn::BCELoss>("BCELoss", {p, q}, pair([](T a, T b) { return binary_cross_entropy(a, b); })),
      of<nn::BCELoss>("BCELoss", {p, q},
                      pair([w](T a, T b) { return binary_cross_entropy(a, b, w, Reduction::sum); }), w,
                      Reduction::sum),
      of<nn::BCEWithLogitsLoss>("BCEWithLogitsLoss", {x, q},
                                pair([](T a, T b) { return binary_cross_entropy_with_logits(a, b); })),
      of<nn::BCEWithLogitsLoss>("BCEWithLogitsLoss", {x, q}, pair([=](T a, T b) {
                                  return binary_cross_entropy_with_logits(a, b, w, half, Reduction::none);
                                }),
                                w, Reduction::none, half),
      of<nn::KLDivLoss>("KLDivLoss", {log(p), q}, pair([](T a, T b) { return kl_div(a, b); })),
      of<nn::KLDivLoss>("KLDivLoss", {log(p), log(q)},
                        pair([](T a, T b) { return kl_div(a, b, KlReduction::batchmean, true); }),
                        KlReduction::batchmean, true),
      of<nn::PoissonNLLLoss>("PoissonNLLLoss", {x, q}, pair([](T a, T b) { return poisson_nll_loss(a, b); })),
      of<nn::PoissonNLLLoss>("PoissonNLLLoss", {p, q * 3.0}, pair([](T a, T b) {
                               return poisson_nll_loss(a, b, false, true, 0.01, Reduction::sum);
                             }),
                             false, true, 0.01, Reduction::sum),
      of<nn::GaussianNLLLoss>("GaussianNLLLoss", {x, y, p},
                              triple([](T a, T b, T v) { return gaussian_nll_loss(a, b, v); })),
      of<nn::GaussianNLLLoss>("GaussianNLLLoss", {x, y, p}, triple([](T a, T b, T v) {
                                return gaussian_nll_loss(a, b, v, true, 0.4, Reduction::none);
                              }),
                              true, 0.4, Reduction::none),
      of<nn::SoftMarginLoss>("SoftMarginLoss", {x, signs},
                             pair([](T a, T b) { return soft_margin_loss(a, b, Reduction::sum); }),
                             Reduction::sum),
      of<nn::HingeEmbeddingLoss>("HingeEmbeddingLoss", {x, signs},
                                 pair([](T a, T b) { return hinge_embedding_loss(a, b); })),
      of<nn::HingeEmbeddingLoss>("HingeEmbeddingLoss", {x, signs}, pair([](T a, T b) {
                                   return hinge_embedding_loss(a, b, 0.3, Reduction::none);
                                 }),
                                 0.3, Reduction::none),
      of<nn::MarginRankingLoss>("MarginRankingLoss", {x, y, signs},
                                triple([](T a, T b, T s) { return margin_ranking_loss(a, b, s); })),
      of<nn::MarginRankingLoss>("MarginRankingLoss", {x, y, signs}, triple([](T a, T b, T s) {
                                  return margin_ranking_loss(a, b, s, 0.3, Reduction::sum);
                                }),
                                0.3, Reduction::sum),
  });
  EXPECT_EQ(nn::BCELoss().state_dict().size(), 0u);
  EXPECT_EQ(nn::BCEWithLogitsLoss(w, Reduction::mean, half).state_dict().size(), 2u);
}

TEST(NnModules, LossesOfRows) {
  const Tensor x = ramp({3, 4}), y = ramp({3, 4}, 0.9), z = ramp({3, 4}, 0.3), w = abs(ramp({4}, 0.4)) + 0.1;
  const Tensor together = vec({1, -1, 1}), target = ids({3, 0, 2}), some = gt(y, 0.0).to(DType::f32);
  const Tensor listed = Tensor::from_vector<int64_t>({1, 3, -1, 0, 0, -1, 2, 2, 3, 2, 1, 0}, {3, 4});
  const DistanceFunction squares = [](const Tensor& a, const Tensor& b) { return sum(square(a - b), {-1}); };
  const TripletOptions triplet{.margin = 0.4, .p = 1, .eps = 0.1, .swap = true, .reduction = Reduction::none};
  const TripletDistanceOptions distance{.margin = 0.4, .swap = true, .reduction = Reduction::sum};
  using T = const Tensor&;
  expect_are_functions({
      of<nn::CosineEmbeddingLoss>("CosineEmbeddingLoss", {x, y, together},
                                  triple([](T a, T b, T s) { return cosine_embedding_loss(a, b, s); })),
      of<nn::CosineEmbeddingLoss>("CosineEmbeddingLoss", {x, y, together}, triple([](T a, T b, T s) {
                                    return cosine_embedding_loss(a, b, s, -0.5, Reduction::none);
                                  }),
                                  -0.5, Reduction::none),
      of<nn::MultiLabelMarginLoss>("MultiLabelMarginLoss", {x, listed},
                                   pair([](T a, T b) { return multilabel_margin_loss(a, b); })),
      of<nn::MultiLabelSoftMarginLoss>("MultiLabelSoftMarginLoss", {x, some}, pair([w](T a, T b) {
                                         return multilabel_soft_margin_loss(a, b, w, Reduction::none);
                                       }),
                                       w, Reduction::none),
      of<nn::MultiMarginLoss>("MultiMarginLoss", {x, target},
                              pair([](T a, T b) { return multi_margin_loss(a, b); })),
      of<nn::MultiMarginLoss>("MultiMarginLoss", {x, target}, pair([w](T a, T b) {
                                return multi_margin_loss(a, b, 2, 0.3, w, Reduction::sum);
                              }),
                              int64_t{2}, 0.3, w, Reduction::sum),
      of<nn::TripletMarginLoss>("TripletMarginLoss", {x, y, z},
                                triple([](T a, T b, T c) { return triplet_margin_loss(a, b, c); })),
      of<nn::TripletMarginLoss>("TripletMarginLoss", {x, y, z},
                                triple([=](T a, T b, T c) { return triplet_margin_loss(a, b, c, triplet); }),
                                triplet),
      of<nn::TripletMarginWithDistanceLoss>(
          "TripletMarginWithDistanceLoss", {x, y, z},
          triple([](T a, T b, T c) { return triplet_margin_loss(a, b, c); })),
      of<nn::TripletMarginWithDistanceLoss>("TripletMarginWithDistanceLoss", {x, y, z},
                                            triple([=](T a, T b, T c) {
                                              const Tensor near = squares(a, b);
                                              const Tensor apart = minimum(squares(a, c), squares(b, c));
                                              return sum(relu(near - apart + 0.4));
                                            }),
                                            squares, distance),
  });
  nn::CTCLoss ctc(0, Reduction::sum, true);
  const Tensor logs = log_softmax(ramp({5, 2, 4}), 2),
               labels = Tensor::from_vector<int64_t>({1, 2, 3, 3}, {2, 2});
  const auto of_lengths = [&](auto&& loss) { return loss(logs, labels, ids({5, 4}), ids({2, 2})); };
  const Tensor want =
      of_lengths([](T a, T b, T c, T d) { return ctc_loss(a, b, c, d, 0, Reduction::sum, true); });
  EXPECT_EQ(of_lengths(ctc).item(), want.item());
  auto fast = compile([&] { return of_lengths(ctc); });
  EXPECT_NEAR(fast().item(), want.item(), 1e-5);
  int hooks = 0;
  ctc.register_forward_hook(
      [&](nn::Module&, const std::vector<Tensor>& in, Tensor&) { hooks += static_cast<int>(in.size()); });
  of_lengths(ctc);
  EXPECT_EQ(hooks, 4);
}

TEST(NnModules, LazyOnesTakeChannelsFromWhatTheySee) {
  nn::LazyConvTranspose2d up(6, 3, {.stride = 2, .groups = 2});
  EXPECT_FALSE(up.weight.defined());
  EXPECT_EQ(up(ramp({1, 4, 3, 3})).sizes(), (Sizes{1, 6, 7, 7}));
  EXPECT_EQ(up.weight.sizes(), (Sizes{4, 3, 3, 3}));
  nn::LazyConvTranspose2d loaded(6, 3, {.stride = 2, .groups = 2});
  loaded.load_state_dict(up.state_dict());
  EXPECT_EQ(doubles(loaded(ramp({1, 4, 3, 3}))), doubles(up(ramp({1, 4, 3, 3}))));
  nn::LazyInstanceNorm1d norm({.affine = true, .track_running_stats = true});
  const Tensor x = ramp({2, 3, 5});
  EXPECT_EQ(doubles(norm(x)), doubles(nn::InstanceNorm1d(3, {.affine = true})(x)));
  EXPECT_EQ(norm.running_mean.sizes(), Sizes{3});
  nn::LazyInstanceNorm1d again({.affine = true, .track_running_stats = true});
  again.load_state_dict(norm.state_dict());
  EXPECT_EQ(again.weight.sizes(), Sizes{3});
  nn::LazyInstanceNorm2d plain;
  EXPECT_EQ(plain(ramp({3, 4, 4})).sizes(), (Sizes{3, 4, 4}));
}

#define KILN_HAS(name) {#name, sizeof(nn::name)},

/// Names that compile.
const std::map<std::string, size_t>& modules_there() {
  // clang-format off
  static const std::map<std::string, size_t> there = {
      KILN_HAS(AdaptiveAvgPool1d) KILN_HAS(AdaptiveAvgPool2d) KILN_HAS(AdaptiveAvgPool3d)
      KILN_HAS(AdaptiveMaxPool1d) KILN_HAS(AdaptiveMaxPool2d) KILN_HAS(AdaptiveMaxPool3d)
      KILN_HAS(AdaptiveLogSoftmaxWithLoss)
      KILN_HAS(AlphaDropout) KILN_HAS(AvgPool1d) KILN_HAS(AvgPool2d) KILN_HAS(AvgPool3d)
      KILN_HAS(BatchNorm1d) KILN_HAS(BatchNorm2d) KILN_HAS(BatchNorm3d) KILN_HAS(BCELoss)
      KILN_HAS(BCEWithLogitsLoss) KILN_HAS(Bilinear) KILN_HAS(CELU) KILN_HAS(ChannelShuffle)
      KILN_HAS(CircularPad1d) KILN_HAS(CircularPad2d) KILN_HAS(CircularPad3d)
      KILN_HAS(ConstantPad1d) KILN_HAS(ConstantPad2d) KILN_HAS(ConstantPad3d) KILN_HAS(Conv1d)
      KILN_HAS(Conv2d) KILN_HAS(Conv3d) KILN_HAS(ConvTranspose1d) KILN_HAS(ConvTranspose2d)
      KILN_HAS(ConvTranspose3d) KILN_HAS(CosineEmbeddingLoss) KILN_HAS(CosineSimilarity)
      KILN_HAS(CrossEntropyLoss) KILN_HAS(CTCLoss) KILN_HAS(Dropout) KILN_HAS(Dropout1d)
      KILN_HAS(Dropout2d) KILN_HAS(Dropout3d) KILN_HAS(ELU) KILN_HAS(Embedding)
      KILN_HAS(EmbeddingBag) KILN_HAS(FeatureAlphaDropout) KILN_HAS(Flatten) KILN_HAS(Fold)
      KILN_HAS(GaussianNLLLoss) KILN_HAS(GELU) KILN_HAS(GLU) KILN_HAS(GroupNorm) KILN_HAS(GRU)
      KILN_HAS(GRUCell) KILN_HAS(Hardshrink) KILN_HAS(Hardsigmoid) KILN_HAS(Hardswish)
      KILN_HAS(Hardtanh) KILN_HAS(HingeEmbeddingLoss) KILN_HAS(HuberLoss) KILN_HAS(Identity)
      KILN_HAS(InstanceNorm1d) KILN_HAS(InstanceNorm2d) KILN_HAS(InstanceNorm3d) KILN_HAS(KLDivLoss)
      KILN_HAS(L1Loss) KILN_HAS(LayerNorm) KILN_HAS(LazyBatchNorm1d) KILN_HAS(LazyBatchNorm2d)
      KILN_HAS(LazyBatchNorm3d) KILN_HAS(LazyConv1d) KILN_HAS(LazyConv2d) KILN_HAS(LazyConv3d)
      KILN_HAS(LazyConvTranspose1d) KILN_HAS(LazyConvTranspose2d) KILN_HAS(LazyConvTranspose3d)
      KILN_HAS(LazyInstanceNorm1d) KILN_HAS(LazyInstanceNorm2d) KILN_HAS(LazyInstanceNorm3d)
      KILN_HAS(LazyLinear) KILN_HAS(LeakyReLU) KILN_HAS(Linear) KILN_HAS(LocalResponseNorm)
      KILN_HAS(LogSigmoid) KILN_HAS(LogSoftmax) KILN_HAS(LPPool1d) KILN_HAS(LPPool2d)
      KILN_HAS(LPPool3d) KILN_HAS(LSTM) KILN_HAS(LSTMCell) KILN_HAS(MarginRankingLoss)
      KILN_HAS(MaxPool1d) KILN_HAS(MaxPool2d) KILN_HAS(MaxPool3d) KILN_HAS(MaxUnpool1d)
      KILN_HAS(MaxUnpool2d) KILN_HAS(MaxUnpool3d) KILN_HAS(Mish) KILN_HAS(Module)
      KILN_HAS(ModuleDict) KILN_HAS(ModuleList) KILN_HAS(MSELoss) KILN_HAS(MultiheadAttention)
      KILN_HAS(MultiLabelMarginLoss) KILN_HAS(MultiLabelSoftMarginLoss) KILN_HAS(MultiMarginLoss)
      KILN_HAS(NLLLoss) KILN_HAS(PairwiseDistance) KILN_HAS(ParameterDict) KILN_HAS(ParameterList)
      KILN_HAS(PixelShuffle) KILN_HAS(PixelUnshuffle) KILN_HAS(PoissonNLLLoss) KILN_HAS(PReLU)
      KILN_HAS(ReflectionPad1d) KILN_HAS(ReflectionPad2d) KILN_HAS(ReflectionPad3d) KILN_HAS(ReLU)
      KILN_HAS(ReLU6) KILN_HAS(ReplicationPad1d) KILN_HAS(ReplicationPad2d)
      KILN_HAS(ReplicationPad3d) KILN_HAS(RMSNorm) KILN_HAS(RNN) KILN_HAS(RNNCell) KILN_HAS(RReLU)
      KILN_HAS(SELU) KILN_HAS(Sequential) KILN_HAS(Sigmoid) KILN_HAS(SiLU) KILN_HAS(SmoothL1Loss)
      KILN_HAS(SoftMarginLoss) KILN_HAS(Softmax) KILN_HAS(Softmax2d) KILN_HAS(Softmin)
      KILN_HAS(Softplus) KILN_HAS(Softshrink) KILN_HAS(Softsign) KILN_HAS(Tanh) KILN_HAS(Tanhshrink)
      KILN_HAS(Threshold) KILN_HAS(Transformer) KILN_HAS(TransformerDecoder)
      KILN_HAS(TransformerDecoderLayer) KILN_HAS(TransformerEncoder)
      KILN_HAS(TransformerEncoderLayer) KILN_HAS(TripletMarginLoss)
      KILN_HAS(TripletMarginWithDistanceLoss) KILN_HAS(Unflatten) KILN_HAS(Unfold)
      KILN_HAS(Upsample) KILN_HAS(UpsamplingBilinear2d) KILN_HAS(UpsamplingNearest2d)
      KILN_HAS(ZeroPad1d) KILN_HAS(ZeroPad2d) KILN_HAS(ZeroPad3d)
  };
  // clang-format on
  return there;
}

TEST(NnModules, EveryNameOfTorchIsThereOrIsSaidNotToBe) {
  std::ifstream file("tests/frontend/nn/torch_nn.txt");
  ASSERT_TRUE(file);
  std::set<std::string> there, seen;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t colon = line.find(": ");
    const std::string name = line.substr(0, colon);
    EXPECT_TRUE(seen.insert(name).second) << name << " is listed twice";
    if (colon == std::string::npos) there.insert(name);
    else EXPECT_GT(line.size(), colon + 12) << name << ": why?";
  }
  std::set<std::string> compiled;
  for (const auto& [name, size] : modules_there()) compiled.insert(name);
  EXPECT_EQ(there, compiled);
}

}  // namespace KILN_FILE
}  // namespace kiln
