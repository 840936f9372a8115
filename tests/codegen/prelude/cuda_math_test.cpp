// SPDX-License-Identifier: Apache-2.0
// Every function of the intrinsics table as CUDA kernels call it, on the simulated device, against the
// table's reference: over all exponents and the edges of IEEE numbers, with the same bits at every width.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "ir/base/intrinsics.h"
#include "tests/codegen/prelude/cuda_words.h"
#include "tests/codegen/prelude/kernel.h"
#include "tests/codegen/prelude/special_truth.h"
#include "tests/codegen/sim_block.h"

namespace kiln {
namespace KILN_FILE {

using testing::SimKernels;

constexpr int kWidths[] = {1, 4, 8};

template <typename T>
std::vector<T> arguments(int seed) {
  using L = std::numeric_limits<T>;
  std::vector<T> v = {0,  L::denorm_min(), L::min(), L::max(), L::infinity(), L::quiet_NaN(), 0.5, 1, 1.5, 2,
                      2.5};
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  for (int i = 0; i < 200; ++i)
    v.push_back(std::ldexp(T(1 + static_cast<double>(random() % 1000000) * 1e-6), int(random() % 40) - 24));
  for (size_t i = 0, n = v.size(); i < n; ++i) v.push_back(-v[i]);
  std::shuffle(v.begin(), v.end(), random);
  v.resize(416);
  return v;
}

template <typename T>
std::string body(const Intrinsic& f, const char* type, int width) {
  static const char* const kArgs[] = {"x0", "x0, x1", "x0, x1, x2"};
  std::string s;
  for (int i = 0; i < f.args; ++i)
    s += fmt::format("const auto x{0} = kn::load<{1}>((const kn::{2}*)b[{0}] + i);\n", i, width, type);
  return fmt::format(
      "for (kn::i64 i = 0; i < d[0]; i += {0}) {{\n{1}kn::store<{0}>((kn::{2}*)b[3] + i, {3}({4}));\n}}\n",
      width, s, type, f.cpu, kArgs[f.args - 1]);
}

/// `slack` units beside what the table allows a CPU kernel: the C library rounds less well.
template <typename T>
void check(const char* type, T (*reference)(const Intrinsic&, const T*), double slack) {
  std::string text = "#include \"kiln_cuda.h\"\n";
  std::vector<std::string> names;
  for (const Intrinsic& f : intrinsics())
    for (const int w : kWidths) {
      names.push_back(fmt::format("{}_{}", f.name, w));
      text += testing::cuda_kernel(names.back(), 1, 4, 1, body<T>(f, type, w));
    }
  const SimKernels sim(text, names);
  std::vector<T> x[3] = {arguments<T>(1), arguments<T>(2), arguments<T>(3)};
  const auto n = static_cast<int64_t>(x[0].size());
  for (const Intrinsic& f : intrinsics()) {
    const double own = sizeof(T) == 4 ? f.ulp_f32 : f.ulp_f64;
    std::vector<T> first;
    for (const int w : kWidths) {
      std::vector<T> y(x[0].size());
      sim.run(fmt::format("{}_{}", f.name, w), 1, 1, 0, {x[0].data(), x[1].data(), x[2].data(), y.data()},
              {n});
      if (w == 1) first = y;
      EXPECT_EQ(std::memcmp(first.data(), y.data(), y.size() * sizeof(T)), 0) << f.name << " at width " << w;
    }
    for (size_t i = 0; i < first.size(); ++i) {
      const T a[] = {x[0][i], x[1][i], x[2][i]};
      const T want = reference(f, a);
      ASSERT_LE(testing::units_apart(f.name, a[0], first[i], static_cast<long double>(want)),
                own == 0 ? 0 : std::max(own, slack))
          << fmt::format("{} of {} {}: {}, not {}", f.name, a[0], a[1], first[i], want);
    }
  }
}

TEST(CudaMath, FunctionsOfFloatsAreTheTablesToAFewUnits) {
  check<float>(
      "f32", [](const Intrinsic& f, const float* a) { return f.f32(a); }, 3);
}
TEST(CudaMath, FunctionsOfDoublesAreTheTablesToAFewUnits) {
  check<double>(
      "f64", [](const Intrinsic& f, const double* a) { return f.f64(a); }, 3);
}

}  // namespace KILN_FILE
}  // namespace kiln
