// SPDX-License-Identifier: Apache-2.0
// Every f32 there is, through every function of one argument, against the f64 function of the same name
// (which cpu_math_test.cpp holds to its own bound). Minutes, so labelled slow.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "ir/base/intrinsics.h"
#include "tests/codegen/prelude/kernel.h"

namespace kiln {
namespace KILN_FILE {

// The largest distance over the bit patterns d[0], d[0] + d[2], ... below d[1], in units in the last place;
// and the pattern. Infinite where one side alone is NaN or where a zero has the wrong sign.
std::string distance_kernel(const Intrinsic& f) {
  return testing::kernel_text("distance", fmt::format(R"(
    using F = kn::Vec<kn::f32, 16>;
    using D = kn::Vec<kn::f64, 16>;
    const D nan = (D)(__builtin_nan(""));
    kn::f64 worst = 0;
    kn::i64 at = 0;
    for (kn::i64 i = d[0]; i < d[1]; i += 16 * d[2]) {{
      const auto pattern = kn::convert<kn::u32>(i + kn::iota<16>(0l) * d[2]);
      const F x = __builtin_bit_cast(F, pattern), y = {0}(x);
      const D want = {0}(kn::convert<kn::f64>(x)), got = kn::convert<kn::f64>(y);
      const F rounded = kn::convert<kn::f32>(want);
      const D power = __builtin_bit_cast(D, __builtin_bit_cast(kn::Vec<kn::i64, 16>,
                                                               want) & 0x7ff0000000000000l);
      D e = kn::abs(got - want) / (kn::max(power, (D)(0x1p-126)) * 0x1p-23);
      const auto signs = kn::copysign((F)(1.0f), y) * kn::copysign((F)(1.0f), rounded);
      e = kn::select(kn::eq(y, rounded), kn::select(kn::isinf(y), (D)(0.0), e), e);
      e = kn::select(kn::isnan(y) & kn::isnan(rounded), (D)(0.0), e);
      e = kn::select(kn::eq(y, (F)(0.0f)) & kn::eq(rounded, (F)(0.0f)) & kn::lt(signs, (F)(0.0f)), nan, e);
      const kn::f64 m = kn::reduce_max(kn::select(kn::isnan(e), (D)(__builtin_inf()), e));
      if (m > worst) worst = m, at = i;
    }}
    *(kn::f64*)b[0] = worst;
    *(kn::i64*)b[1] = at;)",
                                                      f.cpu));
}

struct Worst {
  double ulp = 0;
  int64_t at = 0;
};

Worst worst_of_all(const LoadedImage& image, int64_t step) {
  constexpr int64_t kAll = int64_t{1} << 32, kBlock = int64_t{1} << 26;
  std::atomic<int64_t> next{0};
  std::vector<Worst> each(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::jthread> team;
  for (Worst& w : each)
    team.emplace_back([&image, &next, &w, step] {
      for (int64_t begin = next.fetch_add(kBlock); begin < kAll; begin = next.fetch_add(kBlock)) {
        Worst block;
        void* buffers[] = {&block.ulp, &block.at};
        const int64_t dims[] = {begin, begin + kBlock, step};
        image.kernel("distance")(buffers, dims, 0, 1, nullptr);
        if (block.ulp > w.ulp) w = block;
      }
    });
  team.clear();
  Worst worst;
  for (const Worst& w : each)
    if (w.ulp > worst.ulp) worst = w;
  return worst;
}

class CpuMathEvery : public ::testing::TestWithParam<Intrinsic> {};

TEST_P(CpuMathEvery, StaysWithinItsBound) {
  const Intrinsic& f = GetParam();
  const LoadedImage image = testing::build_kernels(distance_kernel(f), {"distance"});
  // Where f64 goes through the C library lane by lane, one in 31.
  constexpr std::string_view kByLane =
      " acos acosh asin asinh atan atanh cos cosh erfc erfinv lgamma log10 log2 sin sinh tan ";
  const bool by_lane = kByLane.find(fmt::format(" {} ", f.name)) != std::string_view::npos;
  const Worst w = worst_of_all(image, by_lane ? 31 : 1);
  EXPECT_LE(w.ulp, f.ulp_f32) << fmt::format("{} at the 16 patterns from {:#x}", f.name, w.at);
  fmt::print("{:10} worst {:.4f} ulp of {}\n", f.name, w.ulp, f.ulp_f32);
}

std::vector<Intrinsic> smooth_functions() {
  std::vector<Intrinsic> v;
  for (const Intrinsic& f : intrinsics())
    if (f.args == 1 && f.ulp_f32 > 0) v.push_back(f);
  return v;
}
INSTANTIATE_TEST_SUITE_P(All, CpuMathEvery, ::testing::ValuesIn(smooth_functions()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace KILN_FILE
}  // namespace kiln
