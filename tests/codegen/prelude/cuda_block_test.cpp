// SPDX-License-Identifier: Apache-2.0
// What threads of a warp and block do together, on the simulated device: shuffles of every type, reductions
// in their order, copies that land when they are waited for.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tests/codegen/prelude/cuda_words.h"
#include "tests/codegen/sim_block.h"

namespace kiln {
namespace KILN_FILE {

using testing::cuda_kernel;
using testing::SimKernels;

constexpr const char* kInclude = "#include \"kiln_cuda.h\"\n";

template <typename T>
void check_shuffles(const std::string& type, int width) {
  const std::string load =
      fmt::format("const auto x = kn::load<{0}>((const kn::{1}*)b[0] + kn::thread() * {0});\n", width, type);
  const std::string store = fmt::format("kn::store<{0}>((kn::{1}*)b[1] + kn::thread() * {0}, ", width, type);
  const SimKernels kernels(
      kInclude + cuda_kernel("by_xor", 64, 2, 1, load + store + "kn::shuffle_xor(x, kn::i32(d[0])));") +
          cuda_kernel("by_lane", 64, 2, 1, load + store + "kn::shuffle(x, kn::lane() * 5 + kn::i32(d[0])));"),
      {"by_xor", "by_lane"});
  const auto w = static_cast<size_t>(width);
  std::vector<T> x(64 * w), y(64 * w);
  std::mt19937_64 random(3);
  for (T& v : x) {
    const uint64_t bits = random() & 0x3fefffff3fefffff;  // no NaN
    std::memcpy(&v, &bits, sizeof(T));
    if (type == "b8") v = static_cast<T>(bits & 1);
  }
  for (const int64_t d : {0, 1, 2, 4, 8, 16, 31}) {
    kernels.run("by_xor", 64, 1, 0, {x.data(), y.data()}, {d});
    for (size_t t = 0; t < 64; ++t)
      ASSERT_EQ(std::memcmp(&y[t * w], &x[(t ^ static_cast<size_t>(d)) * w], w * sizeof(T)), 0) << type << t;
    kernels.run("by_lane", 64, 1, 0, {x.data(), y.data()}, {d});
    for (size_t t = 0; t < 64; ++t) {
      const size_t from = t / 32 * 32 + (t % 32 * 5 + static_cast<size_t>(d)) % 32;
      ASSERT_EQ(std::memcmp(&y[t * w], &x[from * w], w * sizeof(T)), 0) << type << t;
    }
  }
}

TEST(CudaShuffle, MovesValuesOfEveryTypeAndWidthWithinTheWarp) {
  for (const int w : {1, 4}) {
    check_shuffles<float>("f32", w);
    check_shuffles<double>("f64", w);
    check_shuffles<int32_t>("i32", w);
    check_shuffles<int64_t>("i64", w);
    check_shuffles<uint8_t>("u8", w);
    check_shuffles<uint8_t>("b8", w);
  }
  check_shuffles<double>("f64", 8);
}

float tree(std::vector<float> x, float (*f)(float, float)) {
  for (size_t step = x.size() / 2; step > 0; step /= 2)
    for (size_t i = 0; i < step; ++i) x[i] = f(x[i], x[i + step]);
  return x[0];
}

TEST(CudaReduction, EveryThreadHasTheSameTree) {
  for (const int threads : {32, 64, 128, 256, 1024}) {
    const auto n = static_cast<size_t>(threads);
    const SimKernels kernels(kInclude + cuda_kernel("f", threads, 3, 0,
                                                    fmt::format(R"(
const kn::f32 x = kn::load<1>((const kn::f32*)b[0] + kn::thread());
const auto minus = [](kn::f32 p, kn::f32 q) KN_LAMBDA {{ return p - 2 * q; }};
kn::store<1>((kn::f32*)b[1] + kn::thread(), kn::warp_reduce(x, minus));
const auto room = kn::shared<kn::f32>(64);
const kn::f32 once = kn::block_reduce<{0}>(x, minus, room);
const kn::f32 again = kn::block_reduce<{0}>(once + x, minus, room);
kn::store<1>((kn::f32*)b[2] + kn::thread(), again);)",
                                                                threads)),
                             {"f"});
    std::vector<float> x(n), warps(n), block(n);
    for (size_t i = 0; i < n; ++i) x[i] = 0.1f * static_cast<float>(i) + 0.7f;
    kernels.run("f", threads, 1, 256, {x.data(), warps.data(), block.data()}, {});
    const auto minus = [](float p, float q) { return std::fma(-2.0f, q, p); };
    const auto all = [&](const std::vector<float>& v) {
      float r = 0;
      for (size_t w = 0; w < n; w += 32) {
        const float part =
            tree({v.begin() + static_cast<ptrdiff_t>(w), v.begin() + static_cast<ptrdiff_t>(w) + 32}, minus);
        r = w == 0 ? part : minus(r, part);
      }
      return r;
    };
    std::vector<float> more = x;
    const float once = all(x);
    for (float& v : more) v += once;
    const float want = all(more);
    for (size_t i = 0; i < n; ++i) {
      const auto w = static_cast<ptrdiff_t>(i / 32 * 32);
      ASSERT_EQ(warps[i], tree({x.begin() + w, x.begin() + w + 32}, minus)) << i;
      ASSERT_EQ(block[i], want) << i << " of " << threads;
    }
  }
}

TEST(CudaReduction, DoublesAndIntegersToo) {
  const SimKernels kernels(kInclude + cuda_kernel("f", 96, 2, 0, R"(
const auto sum = [](auto p, auto q) KN_LAMBDA { return kn::add(p, q); };
const kn::f64 x = kn::block_reduce<96>(kn::f64(kn::thread()) / 8, sum, kn::shared<kn::f64>(0));
const kn::i64 n = kn::block_reduce<96>(kn::i64(kn::thread()) << 33, sum, kn::shared<kn::i64>(0));
kn::store<1>((kn::f64*)b[0] + kn::thread(), x), kn::store<1>((kn::i64*)b[1] + kn::thread(), n);)"),
                           {"f"});
  std::vector<double> x(96);
  std::vector<int64_t> n(96);
  kernels.run("f", 96, 1, 64, {x.data(), n.data()}, {});
  for (size_t i = 0; i < 96; ++i) {
    EXPECT_EQ(x[i], 95 * 96 / 2 / 8.0);
    EXPECT_EQ(n[i], int64_t{95 * 96 / 2} << 33);
  }
}

/// x -> m x + c, composed: the order counts, the grouping does not.
struct Affine {
  int64_t m = 1, c = 0;
  Affine then(Affine b) const { return {m * b.m, c * b.m + b.c}; }
};

TEST(CudaScan, EveryThreadGetsAllBeforeItInOrder) {
  for (const int threads : {32, 64, 256}) {
    const SimKernels kernels(kInclude + cuda_kernel("f", threads, 3, 0,
                                                    fmt::format(R"(
struct Affine {{
  kn::i64 m, c;
}};
const auto f = [](Affine a, Affine b) KN_LAMBDA {{ return Affine{{a.m * b.m, a.c * b.m + b.c}}; }};
const Affine x = {{kn::thread() % 3 == 1 ? 2 : 1, kn::thread()}};
const Affine w = kn::warp_scan(x, f);
kn::store<1>((kn::i64*)b[0] + 2 * kn::thread(), w.m);
kn::store<1>((kn::i64*)b[0] + 2 * kn::thread() + 1, w.c);
Affine carry = {{3, 5}};
for (int i = 1; i < 3; ++i) {{
  const Affine y = kn::block_scan<{0}>(x, carry, f, kn::shared<Affine>(64));
  kn::store<1>((kn::i64*)b[i] + 2 * kn::thread(), y.m);
  kn::store<1>((kn::i64*)b[i] + 2 * kn::thread() + 1, y.c);
}})",
                                                                threads)),
                             {"f"});
    const auto n = static_cast<size_t>(threads);
    std::vector<Affine> warps(n), once(n), again(n);
    kernels.run("f", threads, 1, 256, {warps.data(), once.data(), again.data()}, {});
    Affine in_warp, carry{3, 5};
    const auto own = [](size_t i) { return Affine{i % 3 == 1 ? 2 : 1, static_cast<int64_t>(i)}; };
    for (size_t i = 0; i < n; ++i) {
      in_warp = (i % 32 == 0 ? Affine{} : in_warp).then(own(i));
      ASSERT_EQ(warps[i].m, in_warp.m) << i;
      ASSERT_EQ(warps[i].c, in_warp.c) << i;
    }
    for (const std::vector<Affine>& got : {once, again})
      for (size_t i = 0; i < n; ++i) {
        carry = carry.then(own(i));
        ASSERT_EQ(got[i].c, carry.c) << i << " of " << threads;
        ASSERT_EQ(got[i].m, carry.m) << i << " of " << threads;
      }
  }
}

TEST(CudaCopies, LandWhenTheyAreWaitedForAndAreZeroWhereNotValid) {
  for (const int bytes : {4, 8, 16}) {
    const SimKernels kernels(kInclude + cuda_kernel("f", 32, 3, 1,
                                                    fmt::format(R"(
const kn::f32* const from = (const kn::f32*)b[0] + kn::thread() * {1};
const kn::Shared<kn::f32> one = kn::shared<kn::f32>(0) + kn::thread() * {1}, two = one + 32 * {1};
kn::copy_async<{0}>(one, from, kn::thread() < d[0]);
kn::async_commit();
kn::copy_async<{0}>(two, from + 32 * {1}, true);
kn::async_commit();
kn::async_wait<1>();
kn::store<{1}>((kn::f32*)b[1] + kn::thread() * {1}, kn::load<{1}>(one));
kn::async_wait<0>();
kn::barrier();
const kn::Shared<kn::f32> other = kn::shared<kn::f32>(0) + (63 - kn::thread()) * {1};
kn::store<{1}>((kn::f32*)b[2] + kn::thread() * {1}, kn::load<{1}>(other));)",
                                                                bytes, bytes / 4)),
                             {"f"});
    const auto w = static_cast<size_t>(bytes / 4);
    std::vector<float> x(64 * w), y(32 * w), z(32 * w);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i + 1);
    kernels.run("f", 32, 1, 2048, {x.data(), y.data(), z.data()}, {20});
    for (size_t i = 0; i < 32 * w; ++i) {
      EXPECT_EQ(y[i], i / w < 20 ? x[i] : 0.0f) << i;
      EXPECT_EQ(z[i], x[(63 - i / w) * w + i % w]) << i;
    }
  }
}

TEST(CudaMeetings, LanesInDifferentWordsAreAFault) {
  const SimKernels kernels(
      kInclude +
          cuda_kernel("f", 32, 1, 0,
                      "const kn::i32 x = kn::lane() < 16 ? kn::shuffle(1, 0) : kn::shuffle_xor(1, 1);\n"
                      "kn::store<1>((kn::i32*)b[0], x);"),
      {"f"});
  int32_t x = 0;
  EXPECT_THROW(kernels.run("f", 32, 1, 0, {&x}, {}), std::runtime_error);
}

}  // namespace KILN_FILE
}  // namespace kiln
