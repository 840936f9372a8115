// SPDX-License-Identifier: Apache-2.0
// Random numbers of CUDA words on the simulated device equal the host's bit for bit.
#include <gtest/gtest.h>

#include "ir/base/philox.h"
#include "tests/codegen/prelude/cuda_words.h"
#include "tests/codegen/sim_block.h"

namespace kiln {
namespace KILN_FILE {

using testing::SimKernels;

constexpr int kWidths[] = {1, 2, 4, 8};

TEST(CudaRandom, EqualsTheHostBitForBit) {
  std::string text = "#include \"kiln_cuda.h\"\n";
  std::vector<std::string> names;
  for (const int w : kWidths)
    for (const bool packs : {false, true}) {
      const auto wide = [&](const char* x) { return packs ? fmt::format("kn::broadcast<{}>({})", w, x) : x; };
      names.push_back(fmt::format("f_{}_{}", w, packs));
      text += testing::cuda_kernel(
          names.back(), 1, 1, 4,
          fmt::format("for (kn::i64 i = 0; i < d[3]; i += {0}) kn::store<{0}>((kn::f32*)b[0] + i, "
                      "kn::random_uniform({1}, {2}, kn::iota<{0}>(d[2] + i)));",
                      w, wide("d[0]"), wide("d[1]")));
    }
  const SimKernels kernels(text, names);
  for (const std::string& name : names)
    for (const int64_t seed : {int64_t{0}, int64_t{42}, int64_t{-1}, int64_t{0x123456789abcdef}})
      for (const int64_t offset : {int64_t{0}, int64_t{3}, int64_t{1} << 40})
        for (const int64_t start : {int64_t{0}, int64_t{5}, (int64_t{1} << 34) + 3}) {
          std::vector<float> y(64);
          kernels.run(name, 1, 1, 0, {y.data()}, {seed, offset, start, 64});
          for (int64_t i = 0; i < 64; ++i)
            ASSERT_EQ(y[static_cast<size_t>(i)],
                      philox_uniform(uint64_t(seed), uint64_t(offset), uint64_t(start + i)))
                << name << ", element " << start + i;
        }
}

// Neighbours share a block of the counter; lanes that are none, or have draws of their own, must not.
TEST(CudaRandom, LanesWithPlacesAndDrawsOfTheirOwn) {
  const SimKernels kernels(
      "#include \"kiln_cuda.h\"\n" +
          testing::cuda_kernel(
              "f", 1, 4, 0,
              "kn::store<4>((kn::f32*)b[3], kn::random_uniform(kn::load<4>((const kn::i64*)b[0]), "
              "kn::load<4>((const kn::i64*)b[1]), kn::load<4>((const kn::i64*)b[2])));"),
      {"f"});
  struct Lanes {
    int64_t seed[4], offset[4], element[4];
  };
  for (const Lanes& l :
       {Lanes{{1, 1, 1, 1}, {2, 2, 2, 2}, {8, 9, 10, 12}}, Lanes{{1, 1, 1, 1}, {2, 2, 2, 2}, {8, 8, 8, 8}},
        Lanes{{1, 1, 1, 1}, {2, 2, 2, 2}, {11, 10, 9, 8}}, Lanes{{1, 1, 1, 7}, {2, 2, 2, 2}, {8, 9, 10, 11}},
        Lanes{{1, 1, 1, 1}, {2, 2, 3, 2}, {8, 9, 10, 11}},
        Lanes{{1, 1, 1, 1}, {2, 2, 2, 2}, {8, 9, 10, 11}}}) {
    alignas(16) Lanes x = l;
    alignas(16) float y[4];
    kernels.run("f", 1, 1, 0, {x.seed, x.offset, x.element, y}, {});
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(y[i], philox_uniform(uint64_t(l.seed[i]), uint64_t(l.offset[i]), uint64_t(l.element[i])))
          << i;
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
