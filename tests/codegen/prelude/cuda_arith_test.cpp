// SPDX-License-Identifier: Apache-2.0
// Arithmetic, comparison, selection, conversion and lane reductions of CUDA words on the simulated device:
// the bits of the CPU's words, which cpu_arith_test.cpp compares with plain C++, at every width.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/codegen/prelude/cuda_words.h"
#include "tests/codegen/prelude/edge_values.h"
#include "tests/codegen/prelude/kernel.h"
#include "tests/codegen/sim_block.h"

namespace kiln {
namespace KILN_FILE {

using testing::cuda_kernel;
using testing::exact_words;
using testing::SimKernels;
using testing::ValueWord;

constexpr int kWidths[] = {1, 2, 4, 8};

size_t bytes_of(const std::string& type) { return type == "u8" ? 1 : type.substr(1) == "64" ? 8 : 4; }

bool same(const std::string& type, const char* a, const char* b) {
  if (std::memcmp(a, b, bytes_of(type)) == 0) return true;
  const auto nan = [&](const char* p) {
    float f;
    double d;
    if (type == "f32") return std::memcpy(&f, p, 4), std::isnan(f);
    return std::memcpy(&d, p, 8), std::isnan(d);
  };
  return type[0] == 'f' && nan(a) && nan(b);
}

/// One buffer for each word, of n elements.
struct Results {
  std::vector<std::vector<double>> room;
  std::vector<void*> buffers;
  Results(void* a, void* c, size_t words, size_t n) : room(words, std::vector<double>(n)), buffers{a, c} {
    for (auto& r : room) buffers.push_back(r.data());
  }
};

template <typename T>
void check(const std::string& type) {
  const std::vector<ValueWord> words = exact_words(type);
  std::vector<T> a, c;
  const std::vector<T> values = testing::edge_values<T>(std::is_floating_point_v<T> ? 14 : 20);
  for (const T x : values)
    for (const T y : values) a.push_back(x), c.push_back(y);
  while (a.size() % 8) a.push_back(1), c.push_back(1);
  const auto n = static_cast<int64_t>(a.size());
  const std::string loop = "for (kn::i64 i = 0; i < d[0]; i += {}) {{\n{}}}\n";

  const auto cpu = testing::build_kernels(
      testing::kernel_text("f", fmt::format(fmt::runtime(loop), 1, testing::store_words(words, 1))), {"f"});
  std::string text = "#include \"kiln_cuda.h\"\n";
  std::vector<std::string> names;
  for (const int w : kWidths) {
    names.push_back(fmt::format("f_{}", w));
    text += cuda_kernel(names.back(), 1, words.size() + 2, 1,
                        fmt::format(fmt::runtime(loop), w, testing::store_words(words, w)));
  }
  const SimKernels sim(text, names);

  Results want(a.data(), c.data(), words.size(), a.size());
  cpu.kernel("f")(want.buffers.data(), &n, 0, 1, nullptr);
  for (const std::string& name : names) {
    Results got(a.data(), c.data(), words.size(), a.size());
    sim.run(name, 1, 1, 0, got.buffers, {n});
    for (size_t w = 0; w < words.size(); ++w) {
      if (words[w].text.find("reduce") != std::string::npos && name != "f_1") continue;
      const size_t bytes = bytes_of(words[w].out);
      const auto* x = static_cast<const char*>(got.buffers[2 + w]);
      const auto* y = static_cast<const char*>(want.buffers[2 + w]);
      for (size_t i = 0; i < a.size(); ++i)
        ASSERT_TRUE(same(words[w].out, x + i * bytes, y + i * bytes))
            << fmt::format("{} of {} {}, {} at width {}", words[w].text, type, a[i], c[i], name);
    }
  }
}

TEST(CudaArith, FloatsHaveTheBitsOfTheCpu) {
  check<float>("f32");
  check<double>("f64");
}
TEST(CudaArith, IntegersHaveTheBitsOfTheCpu) {
  check<int32_t>("i32");
  check<int64_t>("i64");
  check<uint8_t>("u8");
}

TEST(CudaArith, FloatsBecomeIntegersByWayOfTheirValue) {
  std::string text = "#include \"kiln_cuda.h\"\n";
  const std::string body =
      "for (kn::i64 i = 0; i < d[0]; i += 4) {\nconst auto a = kn::load<4>((const kn::f32*)b[0] + i);\n"
      "kn::store<4>((kn::i32*)b[1] + i, kn::convert<kn::i32>(a));\n"
      "kn::store<4>((kn::i64*)b[2] + i, kn::convert<kn::i64>(a));\n"
      "kn::store<4>((kn::u8*)b[3] + i, kn::convert<kn::u8>(a));\n}";
  const SimKernels sim(text + cuda_kernel("f", 1, 4, 1, body), {"f"});
  alignas(16) float a[] = {0, 1.9f, -1.9f, 255, 100.5f, -1, 2147483520.0f, 77};
  alignas(16) int32_t x[8];
  alignas(16) int64_t y[8];
  alignas(16) uint8_t z[8];
  sim.run("f", 1, 1, 0, {a, x, y, z}, {8});
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(x[i], static_cast<int32_t>(a[i]));
    EXPECT_EQ(y[i], static_cast<int64_t>(a[i]));
    EXPECT_EQ(z[i], static_cast<uint8_t>(static_cast<int32_t>(a[i])));
  }
}

TEST(CudaReduce, SumsAsATreeOfHalves) {
  for (const int w : kWidths) {
    const std::string body =
        fmt::format("auto v = kn::load<{}>((const kn::f32*)b[0]);\n", w) +
        "auto* y = (kn::f32*)b[1];\n"
        "kn::store<1>(y, kn::reduce_sum(v)), kn::store<1>(y + 1, kn::reduce_max(v));\n"
        "kn::store<1>(y + 2, kn::reduce_min(v)), kn::store<1>(y + 3, kn::reduce_prod(v));\n"
        "auto m = kn::gt(v, decltype(v)(0.0f));\n"
        "kn::store<1>(y + 4, kn::f32(kn::any(m))), kn::store<1>(y + 5, kn::f32(kn::all(m)));\n"
        "kn::store<1>(y + 6, kn::f32(kn::count(m)));";
    const SimKernels sim("#include \"kiln_cuda.h\"\n" + cuda_kernel("f", 1, 2, 0, body), {"f"});
    std::mt19937 random(11);
    for (int round = 0; round < 50; ++round) {
      alignas(16) float x[8];
      float y[7];
      for (int i = 0; i < w; ++i)
        x[i] = std::uniform_real_distribution<float>(-2, round % 2 ? 2.0f : 200.0f)(random);
      if (round == 7) x[0] = NAN;
      if (round == 8) x[w - 1] = NAN;
      if (round == 9) std::fill(x, x + w, 1.0f);
      sim.run("f", 1, 1, 0, {x, y}, {});
      std::vector<float> sum(x, x + w), product = sum;
      for (size_t half = sum.size() / 2; half; half /= 2)
        for (size_t i = 0; i < half; ++i) sum[i] += sum[i + half], product[i] *= product[i + half];
      const bool nan = round == 7 || round == 8;
      const auto positive = std::count_if(x, x + w, [](float v) { return v > 0; });
      EXPECT_TRUE(nan ? std::isnan(y[0]) : y[0] == sum[0]);
      EXPECT_TRUE(nan ? std::isnan(y[1]) : y[1] == *std::max_element(x, x + w));
      EXPECT_TRUE(nan ? std::isnan(y[2]) : y[2] == *std::min_element(x, x + w));
      EXPECT_TRUE(nan ? std::isnan(y[3]) : y[3] == product[0]);
      EXPECT_EQ(y[4], positive > 0);
      EXPECT_EQ(y[5], positive == w);
      EXPECT_EQ(y[6], positive);
    }
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
