// SPDX-License-Identifier: Apache-2.0
// Loads, stores and conversions of generated CPU code: every storage type, width and tail, with the bytes
// around each buffer watched and one page beyond it unreadable.
#include <gtest/gtest.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "ir/base/dtype.h"
#include "tests/codegen/prelude/kernel.h"

namespace kiln {
namespace KILN_FILE {

using testing::build_kernels;
using testing::kernel_text;

struct Storage {
  const char* name;
  size_t bytes;
};
constexpr Storage kStorages[] = {{"f32", 4}, {"f64", 8}, {"i32", 4}, {"i64", 8},
                                 {"u8", 1},  {"b8", 1},  {"f16", 2}, {"bf16", 2}};
constexpr int kWidths[] = {1, 2, 4, 8, 16};

// Bytes that end where an unreadable page begins.
class GuardedBytes {
 public:
  explicit GuardedBytes(size_t size) : size_(size), page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    base_ = mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(base_, MAP_FAILED);
    EXPECT_EQ(mprotect(static_cast<char*>(base_) + page_, page_, PROT_NONE), 0);
    std::memset(base_, 0xa5, page_);
  }
  ~GuardedBytes() { munmap(base_, 2 * page_); }
  uint8_t* data() { return static_cast<uint8_t*>(base_) + page_ - size_; }
  // The byte before the buffer is as it was.
  bool intact() const { return *(static_cast<const uint8_t*>(base_) + page_ - size_ - 1) == 0xa5; }

 private:
  void* base_;
  size_t size_, page_;
};

// Values that each storage type holds exactly: 0 and 1 for bool, small whole numbers elsewhere.
void put(const Storage& s, uint8_t* at, int i) {
  const std::string_view name = s.name;
  const int v = name == "b8" ? (i * 7 / 3) % 2 : (i * 37) % 120 + 1;
  if (name == "f32") {
    const float x = static_cast<float>(v);
    std::memcpy(at, &x, 4);
  } else if (name == "f64") {
    const double x = v;
    std::memcpy(at, &x, 8);
  } else if (name == "i32") {
    const int32_t x = v - 60;
    std::memcpy(at, &x, 4);
  } else if (name == "i64") {
    const int64_t x = v - 60;
    std::memcpy(at, &x, 8);
  } else if (name == "f16") {
    const Half x(static_cast<float>(v));
    std::memcpy(at, &x, 2);
  } else if (name == "bf16") {
    const BFloat16 x(static_cast<float>(v));
    std::memcpy(at, &x, 2);
  } else *at = static_cast<uint8_t>(v);
}

std::string copy_kernels(const Storage& s, int w, std::vector<std::string>& names) {
  const auto add = [&](const char* what, const std::string& body) {
    names.push_back(fmt::format("{}_{}_{}", what, s.name, w));
    return kernel_text(
        names.back(),
        fmt::format("auto* x = (const kn::{0}*)b[0]; auto* y = (kn::{0}*)b[1];\n{1}", s.name, body));
  };
  return add("whole", fmt::format("kn::store<{0}>(y, kn::load<{0}>(x));", w)) +
         add("part", fmt::format("kn::store_n<{0}>(y, d[0], kn::load_n<{0}>(x, d[0]));", w)) +
         add("strided", fmt::format("kn::store_strided<{0}>(y, d[1], kn::load_strided<{0}>(x, d[1]));", w)) +
         add("strided_part", fmt::format("kn::store_strided_n<{0}>(y, d[1], d[0], "
                                         "kn::load_strided_n<{0}>(x, d[1], d[0]));",
                                         w)) +
         add("tail_is_zero", fmt::format("kn::store<{0}>(y, kn::load_n<{0}>(x, d[0]));", w));
}

class CpuMemory : public ::testing::TestWithParam<Storage> {
 protected:
  // Runs a copy over n elements, `step` apart, and compares byte by byte.
  void expect_copies(const LoadedImage& image, const std::string& kernel, int n, int64_t step) {
    const size_t bytes = GetParam().bytes;
    const size_t span = n ? static_cast<size_t>((n - 1) * step + 1) : 0;
    GuardedBytes x(span * bytes), y(span * bytes);
    for (size_t i = 0; i < span; ++i) put(GetParam(), x.data() + i * bytes, static_cast<int>(i));
    void* buffers[] = {x.data(), y.data()};
    const int64_t dims[] = {n, step};
    image.kernel(kernel)(buffers, dims, 0, 1, nullptr);
    EXPECT_TRUE(y.intact()) << kernel << " n = " << n;
    const std::vector<uint8_t> untouched(bytes, 0xa5);
    for (size_t i = 0; i < span; ++i) {
      const bool copied = i % static_cast<size_t>(step) == 0;
      const uint8_t* want = copied ? x.data() + i * bytes : untouched.data();
      EXPECT_EQ(std::memcmp(y.data() + i * bytes, want, bytes), 0) << kernel << " n = " << n << " at " << i;
    }
  }
};

TEST_P(CpuMemory, CopiesWhatIsAskedAndNoMore) {
  std::string text;
  std::vector<std::string> names;
  for (const int w : kWidths) text += copy_kernels(GetParam(), w, names);
  const LoadedImage image = build_kernels(text, names);
  for (const int w : kWidths) {
    const auto name = [&](const char* what) { return fmt::format("{}_{}_{}", what, GetParam().name, w); };
    expect_copies(image, name("whole"), w, 1);
    expect_copies(image, name("strided"), w, 1);
    expect_copies(image, name("strided"), w, 5);
    for (int n = 0; n <= w; ++n) {
      expect_copies(image, name("part"), n, 1);
      expect_copies(image, name("strided_part"), n, 3);
    }
  }
}

TEST_P(CpuMemory, LanesBeyondTheTailAreZero) {
  std::string text;
  std::vector<std::string> names;
  for (const int w : kWidths) text += copy_kernels(GetParam(), w, names);
  const LoadedImage image = build_kernels(text, names);
  const size_t bytes = GetParam().bytes;
  for (const int w : kWidths)
    for (int n = 0; n <= w; ++n) {
      GuardedBytes x(static_cast<size_t>(n) * bytes), y(static_cast<size_t>(w) * bytes);
      for (int i = 0; i < n; ++i) put(GetParam(), x.data() + static_cast<size_t>(i) * bytes, i);
      void* buffers[] = {x.data(), y.data()};
      const int64_t dims[] = {n, 1};
      image.kernel(fmt::format("tail_is_zero_{}_{}", GetParam().name, w))(buffers, dims, 0, 1, nullptr);
      std::vector<uint8_t> want(static_cast<size_t>(w) * bytes, 0);
      if (n) std::memcpy(want.data(), x.data(), static_cast<size_t>(n) * bytes);
      EXPECT_EQ(std::memcmp(y.data(), want.data(), want.size()), 0) << w << " lanes, n = " << n;
    }
}

INSTANTIATE_TEST_SUITE_P(All, CpuMemory, ::testing::ValuesIn(kStorages),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(CpuGather, ReadsByIndexOnlyWhereTheMaskHolds) {
  const LoadedImage image =
      build_kernels(kernel_text("all",
                                "kn::store<8>((kn::f32*)b[2], kn::gather((const kn::f32*)b[0], "
                                "kn::load<8>((const kn::i64*)b[1])));") +
                        kernel_text("some",
                                    "auto i = kn::load<8>((const kn::i64*)b[1]);\n"
                                    "kn::store<8>((kn::f32*)b[2], kn::gather_if((const kn::f32*)b[0], i, "
                                    "kn::ge(i, (kn::Vec<kn::i64, 8>)(0l))));") +
                        kernel_text("few",
                                    "kn::store<8>((kn::f32*)b[2], kn::gather_n((const kn::f32*)b[0], "
                                    "kn::load<8>((const kn::i64*)b[1]), d[0]));") +
                        kernel_text("scatter",
                                    "auto i = kn::load<8>((const kn::i64*)b[1]);\n"
                                    "kn::scatter_if((kn::f32*)b[2], i, kn::ge(i, (kn::Vec<kn::i64, 8>)(0l)), "
                                    "kn::load<8>((const kn::f32*)b[0]));"),
                    {"all", "some", "few", "scatter"});
  float x[8] = {0, 10, 20, 30, 40, 50, 60, 70}, y[8];
  int64_t index[8] = {7, 0, 3, 3, 1, 6, 2, 5};
  void* buffers[] = {x, index, y};
  image.kernel("all")(buffers, nullptr, 0, 1, nullptr);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(y[i], x[index[i]]);
  index[2] = index[5] = -1'000'000'000'000;
  image.kernel("some")(buffers, nullptr, 0, 1, nullptr);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(y[i], index[i] < 0 ? 0 : x[index[i]]);
  const int64_t two = 2;
  image.kernel("few")(buffers, &two, 0, 1, nullptr);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(y[i], i < 2 ? x[index[i]] : 0);
  std::fill(y, y + 8, -1.0f);
  image.kernel("scatter")(buffers, nullptr, 0, 1, nullptr);
  EXPECT_EQ(std::vector<float>(y, y + 8), (std::vector<float>{10, 40, 60, 30, -1, 70, -1, 0}));
}

// Every bf16 and f16 value, and floats that must round, against the host's conversions.
TEST(CpuHalf, RoundsAsTheHostDoes) {
  for (const char* type : {"bf16", "f16"}) {
    const LoadedImage image = build_kernels(
        kernel_text("down",
                    fmt::format("for (kn::i64 i = 0; i < d[0]; i += 16) kn::store<16>((kn::{}*)b[1] + i, "
                                "kn::load<16>((const kn::f32*)b[0] + i));",
                                type)) +
            kernel_text(
                "up", fmt::format("for (kn::i64 i = 0; i < d[0]; i += 16) kn::store<16>((kn::f32*)b[1] + i, "
                                  "kn::load<16>((const kn::{}*)b[0] + i));",
                                  type)),
        {"down", "up"});
    const bool brain = std::string_view(type) == "bf16";
    std::vector<float> x;
    for (uint64_t i = 0; i < (uint64_t{1} << 32); i += 4099) x.push_back(std::bit_cast<float>(uint32_t(i)));
    for (uint32_t h = 0; h < 0x10000; ++h)
      for (const uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0x1000u, 0x0fffu, 0x1001u})
        x.push_back(std::bit_cast<float>(h << 16 | low));
    x.resize(x.size() / 16 * 16);
    std::vector<uint16_t> y(x.size());
    void* down[] = {x.data(), y.data()};
    const int64_t n = static_cast<int64_t>(x.size());
    image.kernel("down")(down, &n, 0, 1, nullptr);
    size_t wrong = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const uint16_t want = brain ? BFloat16(x[i]).bits : Half(x[i]).bits;
      wrong += std::isnan(x[i]) ? (y[i] & 0x7fff) <= (brain ? 0x7f80 : 0x7c00) : y[i] != want;
    }
    EXPECT_EQ(wrong, 0u) << type;
    std::vector<uint16_t> h(0x10000);
    std::vector<float> f(h.size());
    for (size_t i = 0; i < h.size(); ++i) h[i] = static_cast<uint16_t>(i);
    void* up[] = {h.data(), f.data()};
    const int64_t all = 0x10000;
    image.kernel("up")(up, &all, 0, 1, nullptr);
    for (size_t i = 0; i < h.size(); ++i) {
      const float want = brain ? static_cast<float>(std::bit_cast<BFloat16>(h[i]))
                               : static_cast<float>(std::bit_cast<Half>(h[i]));
      EXPECT_TRUE(f[i] == want || (std::isnan(f[i]) && std::isnan(want))) << type << " " << i;
    }
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
