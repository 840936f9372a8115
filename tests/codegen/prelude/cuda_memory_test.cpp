// SPDX-License-Identifier: Apache-2.0
// Loads and stores of CUDA words on the simulated device: every storage type, width and tail, global and
// shared, with the bytes around each buffer watched; formats of 16 bits; what is misaligned is a fault.
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "ir/base/dtype.h"
#include "tests/codegen/prelude/cuda_words.h"
#include "tests/codegen/sim_block.h"

namespace kiln {
namespace KILN_FILE {

using testing::cuda_kernel;
using testing::SimKernels;

struct Storage {
  const char* name;
  size_t bytes;
};
constexpr Storage kStorages[] = {{"f32", 4}, {"f64", 8}, {"i32", 4}, {"i64", 8},
                                 {"u8", 1},  {"b8", 1},  {"f16", 2}, {"bf16", 2}};
constexpr int kWidths[] = {1, 2, 4, 8};

/// Values that each storage type holds exactly: 0 and 1 for bool, small whole numbers elsewhere.
void put(const Storage& s, uint8_t* at, int i) {
  const std::string_view name = s.name;
  const int v = name == "b8" ? (i * 7 / 3) % 2 : (i * 37) % 120 + 1;
  const auto write = [&](auto x) { std::memcpy(at, &x, sizeof x); };
  if (name == "f32") write(static_cast<float>(v));
  else if (name == "f64") write(static_cast<double>(v));
  else if (name == "i32") write(static_cast<int32_t>(v - 60));
  else if (name == "i64") write(static_cast<int64_t>(v - 60));
  else if (name == "f16") write(Half(static_cast<float>(v)));
  else if (name == "bf16") write(BFloat16(static_cast<float>(v)));
  else write(static_cast<uint8_t>(v));
}

/// What each kernel does with d[0] = n elements, d[1] apart.
struct Form {
  const char* name;
  const char* body;  ///< {w} the width, {t} the type
};
constexpr Form kForms[] = {
    {"whole", "kn::store<{w}>(y, kn::load<{w}>(x));"},
    {"part", "kn::store_n<{w}>(y, d[0], kn::load_n<{w}>(x, d[0]));"},
    {"strided", "kn::store_strided<{w}>(y, d[1], kn::load_strided<{w}>(x, d[1]));"},
    {"strided_part", "kn::store_strided_n<{w}>(y, d[1], d[0], kn::load_strided_n<{w}>(x, d[1], d[0]));"},
    {"indexed",
     "const auto index = kn::iota<{w}>(kn::i64(0)) * kn::broadcast<{w}>(d[1]);\n"
     "kn::scatter_if(y, index, kn::first<{w}>(d[0]), kn::gather_if(x, index, kn::first<{w}>(d[0])));"},
    {"gathered",
     "const auto index = kn::iota<{w}>(kn::i32(0)) * kn::broadcast<{w}>(kn::i32(d[1]));\n"
     "kn::store_strided<{w}>(y, d[1], kn::gather(x, index));"},
    {"gathered_part",
     "const auto index = kn::iota<{w}>(kn::i64(0)) * kn::broadcast<{w}>(d[1]);\n"
     "kn::store_strided_n<{w}>(y, d[1], d[0], kn::gather_n(x, index, d[0]));"},
    {"through_shared",
     "const auto s = kn::shared<kn::{t}>(64) + {w};\nkn::store<{w}>(s, kn::load<{w}>(x));\n"
     "kn::store<{w}>(y, kn::load<{w}>(s));"},
    {"part_through_shared",
     "const auto s = kn::shared<kn::{t}>(64) + 1;\nkn::store_n<{w}>(s, d[0], kn::load_n<{w}>(x, d[0]));\n"
     "kn::store_n<{w}>(y, d[0], kn::load_n<{w}>(s, d[0]));"},
    {"tail_is_zero", "kn::store<{w}>(y, kn::load_n<{w}>(x, d[0]));"},
    {"masked_is_zero",
     "kn::store<{w}>(y, kn::gather_if(x, kn::iota<{w}>(kn::i64(0)), kn::first<{w}>(d[0])));"},
};

class CudaMemory : public ::testing::TestWithParam<Storage> {
 protected:
  static std::string name(const Form& f, int w) { return fmt::format("{}_{}", f.name, w); }
  SimKernels build() {
    std::string text = "#include \"kiln_cuda.h\"\n";
    std::vector<std::string> names;
    for (const int w : kWidths)
      for (const Form& f : kForms) {
        names.push_back(name(f, w));
        text += cuda_kernel(
            names.back(), 1, 2, 2,
            fmt::format("auto* x = (const kn::{0}*)b[0];\nauto* y = (kn::{0}*)b[1];\n", GetParam().name) +
                fmt::format(fmt::runtime(f.body), fmt::arg("w", w), fmt::arg("t", GetParam().name)));
      }
    return SimKernels(text, names);
  }
  /// n elements, `step` apart, out of `span`: those are copied and no other byte.
  void expect_copies(const SimKernels& kernels, const std::string& kernel, int n, int64_t step) {
    const size_t bytes = GetParam().bytes, span = n ? static_cast<size_t>((n - 1) * step + 1) : 0;
    alignas(16) uint8_t x[1024], y[1024];
    std::memset(x, 0x5a, sizeof x), std::memset(y, 0xa5, sizeof y);
    for (size_t i = 0; i < span; ++i) put(GetParam(), x + 16 + i * bytes, static_cast<int>(i));
    kernels.run(kernel, 1, 1, 256, {x + 16, y + 16}, {n, step});
    uint8_t want[1024];
    std::memset(want, 0xa5, sizeof want);
    for (size_t i = 0; i < span; i += static_cast<size_t>(step))
      std::memcpy(want + 16 + i * bytes, x + 16 + i * bytes, bytes);
    EXPECT_EQ(std::memcmp(y, want, sizeof y), 0) << kernel << " n = " << n << " step = " << step;
  }
};

TEST_P(CudaMemory, CopiesWhatIsAskedAndNoMore) {
  const SimKernels kernels = build();
  for (const int w : kWidths)
    for (const Form& f : kForms) {
      const std::string_view form = f.name;
      if (form.ends_with("is_zero")) continue;
      const bool part = form.find("part") != form.npos || form == "indexed";
      const bool strided =
          form.find("strided") != form.npos || form.find("gathered") != form.npos || form == "indexed";
      for (int n = part ? 0 : w; n <= w; ++n)
        for (const int64_t step : {1, 5})
          if (step == 1 || strided) expect_copies(kernels, name(f, w), n, step);
    }
}

TEST_P(CudaMemory, LanesThatAreLeftOutAreZero) {
  const SimKernels kernels = build();
  const size_t bytes = GetParam().bytes;
  for (const int w : kWidths)
    for (const char* form : {"tail_is_zero", "masked_is_zero"})
      for (int n = 0; n <= w; ++n) {
        alignas(16) uint8_t x[128], y[128];
        for (int i = 0; i < w; ++i) put(GetParam(), x + static_cast<size_t>(i) * bytes, i);
        kernels.run(fmt::format("{}_{}", form, w), 1, 1, 0, {x, y}, {n, 1});
        std::memset(x + static_cast<size_t>(n) * bytes, 0, static_cast<size_t>(w - n) * bytes);
        EXPECT_EQ(std::memcmp(x, y, static_cast<size_t>(w) * bytes), 0) << form << " " << n << " of " << w;
      }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaMemory, ::testing::ValuesIn(kStorages),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(CudaFormats, SixteenBitsRoundToNearestEvenAndBack) {
  const SimKernels kernels(
      "#include \"kiln_cuda.h\"\n" +
          cuda_kernel("narrow", 1, 3, 1,
                      "for (kn::i64 i = 0; i < d[0]; i += 4) {\nconst auto x = kn::load<4>((const "
                      "kn::f32*)b[0] + i);\n"
                      "kn::store<4>((kn::bf16*)b[1] + i, x), kn::store<4>((kn::f16*)b[2] + i, x);\n}") +
          cuda_kernel("wide", 1, 3, 1,
                      "for (kn::i64 i = 0; i < d[0]; i += 4) {\n"
                      "kn::store<4>((kn::f32*)b[1] + i, kn::load<4>((const kn::bf16*)b[0] + i));\n"
                      "kn::store<4>((kn::f32*)b[2] + i, kn::load<4>((const kn::f16*)b[0] + i));\n}"),
      {"narrow", "wide"});
  std::vector<float> x = {0, -0.0f, 1, -1, 65504, 65519.9f, 65520, 1e30f, 1e-8f, 6e-8f, INFINITY, -INFINITY};
  for (uint32_t i = 0; i < 4000; ++i) x.push_back(std::bit_cast<float>(i * 1071643u));
  // Halfway between two neighbours, even and odd, and next to it: of bf16 16 bits are dropped, of f16 13.
  for (const uint32_t half : {0x8000u, 0x1000u})
    for (uint32_t i = 0; i < 400; ++i)
      for (const int32_t off : {-1, 0, 1})
        x.push_back(std::bit_cast<float>(((0x38000000u + i * 0x12000u) & ~(2 * half - 1)) + half + off +
                                         (i % 2 << 31)));
  while (x.size() % 4) x.push_back(NAN);
  std::vector<uint16_t> bf(x.size()), half(x.size());
  kernels.run("narrow", 1, 1, 0, {x.data(), bf.data(), half.data()}, {static_cast<int64_t>(x.size())});
  for (size_t i = 0; i < x.size(); ++i) {
    const uint16_t want_bf = std::isnan(x[i]) ? 0x7fff : BFloat16(x[i]).bits;
    const uint16_t want_half = std::isnan(x[i]) ? 0x7fff : Half(x[i]).bits;
    ASSERT_EQ(bf[i], want_bf) << x[i];
    ASSERT_EQ(half[i], want_half) << x[i];
  }
  std::vector<uint16_t> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  std::vector<float> from_bf(all.size()), from_half(all.size());
  kernels.run("wide", 1, 1, 0, {all.data(), from_bf.data(), from_half.data()}, {1 << 16});
  for (size_t i = 0; i < all.size(); ++i) {
    BFloat16 b;
    Half h;
    b.bits = h.bits = all[i];
    ASSERT_TRUE(from_bf[i] == static_cast<float>(b) || std::isnan(static_cast<float>(b))) << i;
    ASSERT_TRUE(from_half[i] == static_cast<float>(h) || std::isnan(static_cast<float>(h))) << i;
  }
}

TEST(CudaMemoryFaults, AnAccessOfSixteenBytesWantsItsAlignment) {
  const SimKernels kernels(
      "#include \"kiln_cuda.h\"\n" +
          cuda_kernel("global", 1, 1, 0, "kn::store<4>((kn::f32*)b[0] + 1, kn::broadcast<4>(1.0f));") +
          cuda_kernel("shared", 1, 1, 0, "kn::store<4>(kn::shared<kn::f32>(8), kn::broadcast<4>(1.0f));"),
      {"global", "shared"});
  alignas(16) float x[8];
  for (const char* name : {"global", "shared"})
    EXPECT_THROW(kernels.run(name, 1, 1, 64, {x}, {}), std::runtime_error) << name;
}

}  // namespace KILN_FILE
}  // namespace kiln
