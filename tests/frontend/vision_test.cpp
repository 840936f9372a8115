// SPDX-License-Identifier: Apache-2.0
// Padding and resampling at their edges, and what they refuse.
#include "frontend/vision.h"

#include <cmath>

#include "frontend/compile.h"
#include "tests/frontend/volumes.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

TEST(Pad, ModesAtTheBorder) {
  const Tensor x = vec({1, 2, 3});
  EXPECT_EQ(values(pad(x, {2, 2}, PadMode::reflect)), (Floats{3, 2, 1, 2, 3, 2, 1}));
  EXPECT_EQ(values(pad(x, {2, 1}, PadMode::replicate)), (Floats{1, 1, 1, 2, 3, 3}));
  EXPECT_EQ(values(pad(x, {3, 2}, PadMode::circular)), (Floats{1, 2, 3, 1, 2, 3, 1, 2}));
  EXPECT_EQ(values(pad(x, {1, -1}, PadMode::constant, 9)), (Floats{9, 1, 2}));
  EXPECT_EQ(pad(zeros({2, 0}), {1, 2}).sizes(), (Sizes{2, 3}));
  EXPECT_EQ(pad(ids({1}), {1, 0}, PadMode::constant, 4).to_vector<int64_t>(), (std::vector<int64_t>{4, 1}));
}

TEST(Pad, TheValueIsOfTheCall) {
  double value = 1;
  auto f = compile([&](const Tensor& x) { return pad(x, {1, 0}, PadMode::constant, value); });
  EXPECT_EQ(values(f(vec({5}))), (Floats{1, 5}));
  value = 2;
  EXPECT_EQ(values(f(vec({5}))), (Floats{2, 5}));
  EXPECT_EQ(f.stats().builds.size(), 1u);
}

TEST(Pad, GradientsAddUp) {
  Tensor x = vec({1, 2, 3}, true);
  sum(pad(x, {2, 1}, PadMode::replicate)).backward();
  EXPECT_EQ(values(x.grad()), (Floats{3, 1, 2}));
}

TEST(Interpolate, CornersAndSingles) {
  const Tensor x = mat({0, 10}, {1, 1, 2});
  EXPECT_EQ(values(interpolate(x, {.size = {3}, .mode = InterpolateMode::linear, .align_corners = true})),
            (Floats{0, 5, 10}));
  EXPECT_EQ(values(interpolate(x, {.size = {4}, .mode = InterpolateMode::linear})),
            (Floats{0, 2.5f, 7.5f, 10}));
  EXPECT_EQ(values(interpolate(x, {.size = {1}, .mode = InterpolateMode::linear, .align_corners = true})),
            Floats{0});
  EXPECT_EQ(values(interpolate(x, {.scale_factor = {2}})), (Floats{0, 0, 10, 10}));
  EXPECT_EQ(values(interpolate(mat({1, 2, 3, 6}, {1, 1, 4}), {.size = {2}, .mode = InterpolateMode::area})),
            (Floats{1.5f, 4.5f}));
  // A constant image stays one, also beyond its border.
  for (float v :
       values(interpolate(full({1, 1, 3, 4}, 2.0), {.size = {7, 5}, .mode = InterpolateMode::bicubic})))
    EXPECT_FLOAT_EQ(v, 2);
}

TEST(Interpolate, AnUnchangedSizeIsACopy) {
  Tensor x = mat({1, 2}, {1, 1, 2});
  interpolate(x, {.size = {2}}).zero_();
  EXPECT_EQ(values(x), (Floats{1, 2}));
}

/// Between the two neighbours of a place in each of three dims: eight terms for each element.
TEST(Interpolate, VolumesByTheirDefinition) {
  const Sizes from{1, 2, 3, 4, 5};
  const Tensor x = volume(from);
  const auto check = [&](const Sizes& size, const std::vector<double>& factors, bool align) {
    const InterpolateOptions o{.size = factors.empty() ? size : Sizes{},
                               .scale_factor = factors,
                               .mode = InterpolateMode::linear,
                               .align_corners = align};
    const Sizes to{1, 2, size[0], size[1], size[2]};
    std::vector<Term> terms;
    each_place(to, [&](const Sizes& at) {
      each_place({2, 2, 2}, [&](const Sizes& corner) {
        Sizes source{at[0], at[1]};
        double by = 1;
        for (size_t d = 0; d < 3; ++d) {
          const auto n = static_cast<double>(from[d + 2]), m = static_cast<double>(size[d]),
                     i = static_cast<double>(at[d + 2]);
          const double steps = factors.empty() ? n / m : 1 / factors[d];
          const double where =
              align ? (m > 1 ? i * (n - 1) / (m - 1) : 0) : std::max((i + 0.5) * steps - 0.5, 0.0);
          const auto low = static_cast<int64_t>(where);
          const double part = where - static_cast<double>(low);
          source.push_back(std::min(low + corner[d], from[d + 2] - 1));
          by *= corner[d] ? part : 1 - part;
        }
        terms.push_back({place(to, at), place(from, source), by});
      });
    });
    expect_terms([&](const Tensor& t) { return interpolate(t, o); }, x, to, terms,
                 fmt::format("to {}{}", fmt::join(size, " "), align ? ", aligned" : ""));
  };
  for (const bool align : {false, true}) {
    check({6, 8, 10}, {}, align);
    check({2, 7, 1}, {}, align);
  }
  check({4, 10, 3}, {1.5, 2.5, 0.75}, false);
}

TEST(Shuffles, UndoEachOther) {
  const Tensor x = arange(2 * 8 * 3 * 4, {.dtype = DType::f32}).view({2, 8, 3, 4});
  EXPECT_EQ(values(pixel_unshuffle(pixel_shuffle(x, 2), 2)), values(x));
  EXPECT_EQ(values(channel_shuffle(channel_shuffle(x, 2), 4)), values(x));
}

TEST(Vision, Refusals) {
  const Tensor few = zeros({1, 4, 2, 2});
  EXPECT_ERROR(pixel_shuffle(few, int64_t{1} << 40),
               "invalid: pixel_shuffle (@): got x f32[1,4,2,2] and upscale_factor 1099511627776, expected "
               "[..., c r^2, h, w]");
  const Tensor x = zeros({1, 2, 3});
  EXPECT_ERROR(pad(x, {1}),
               "invalid: pad (@): got pads [1] for x f32[1,2,3], expected two numbers for each of "
               "its last dims");
  EXPECT_ERROR(pad(x, {3, 0}, PadMode::reflect),
               "invalid: pad (@): got pads 3 and 0 for dim 2 of x f32[1,2,3], expected at most 2");
  EXPECT_ERROR(interpolate(x, {}), "invalid: interpolate (@): give either size or scale_factor");
  EXPECT_ERROR(interpolate(x, {.size = {4}, .align_corners = true}),
               "invalid: interpolate (@): align_corners is for linear and bicubic only");
  EXPECT_ERROR(interpolate(x, {.size = {0}}),
               "invalid: interpolate (@): got output size 0 for dim 2 of x f32[1,2,3], expected both from 1 "
               "to 2^31 - 1");
  EXPECT_ERROR(interpolate(x, {.size = {4}, .mode = InterpolateMode::bicubic}),
               "invalid: interpolate (@): bicubic takes two dims of space; got x f32[1,2,3]");
  EXPECT_ERROR(
      pixel_shuffle(zeros({3, 2, 2}), 2),
      "invalid: pixel_shuffle (@): got x f32[3,2,2] and upscale_factor 2, expected [..., c r^2, h, w]");
}

}  // namespace KILN_FILE
}  // namespace kiln
