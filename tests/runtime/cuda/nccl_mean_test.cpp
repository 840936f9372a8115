// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/nccl_mean.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "runtime/wire.h"
#include "tests/runtime/cuda/sim_kernels.h"

namespace kiln {
namespace KILN_FILE {

class CudaMeans : public testing::OnSimulatedDevice {
 protected:
  /// `count` numbers of that dtype from some of f32, the first at so many elements from an aligned address.
  CudaMemory numbers(DType dtype, int64_t count, int64_t skew) {
    std::vector<std::byte> bytes(static_cast<size_t>(skew + count) * dtype_size(dtype));
    for (int64_t i = 0; i < count; ++i)
      put_number(bytes.data() + (skew + i) * static_cast<int64_t>(dtype_size(dtype)), dtype, number(i));
    CudaMemory m = device().allocate(bytes.size(), "test");
    device().copy_to_device(m.address(), bytes.data(), bytes.size());
    return m;
  }
  /// Of all sizes, ties and what is no number among them.
  static float number(int64_t i) {
    constexpr float kSome[] = {0.f,           -0.f,   1.f,      1.00390625f, 1.01171875f, 65519.f,
                               65520.f,       1e-7f,  INFINITY, -2e-8f,      3.3e38f,     NAN,
                               5.9604645e-8f, -7.25f, 1e-40f,   2049.f};
    return i < 16 ? kSome[i]
                  : static_cast<float>(i * 7919 % 1009 - 500) * std::exp2(static_cast<float>(i % 40 - 20));
  }
  static void put_number(std::byte* to, DType dtype, float x) {
    dispatch(dtype, [&](auto element) {
      const auto v = static_cast<decltype(element)>(x);
      std::memcpy(to, &v, sizeof v);
    });
  }
  std::vector<std::byte> bytes_of(const CudaMemory& m) {
    std::vector<std::byte> out(m.bytes());
    device().copy_to_host(out.data(), m.address(), out.size());
    return out;
  }
};

Collective mean(const CudaMemory& m, DType given, DType wire, int64_t count, int64_t skew = 0) {
  Collective c;
  c.kind = CollectiveKind::all_reduce_mean;
  c.dtype = wire;
  c.given = given;
  c.count = count;
  c.in = c.out = reinterpret_cast<void*>(m.address() + static_cast<size_t>(skew) * dtype_size(given));
  return c;
}

/// Equal to the bit, but for the kind of NaN.
void expect_same(const std::byte* got, const std::byte* want, DType dtype, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    dispatch(dtype, [&](auto element) {
      using T = decltype(element);
      T g, w;
      std::memcpy(&g, got + i * static_cast<int64_t>(sizeof(T)), sizeof g);
      std::memcpy(&w, want + i * static_cast<int64_t>(sizeof(T)), sizeof w);
      const auto x = static_cast<double>(static_cast<float>(g)),
                 y = static_cast<double>(static_cast<float>(w));
      ASSERT_TRUE((std::isnan(x) && std::isnan(y)) || std::memcmp(&g, &w, sizeof g) == 0)
          << dtype_name(dtype) << ", element " << i << " of " << count << ": " << x << ", not " << y;
    });
}

// As runtime/wire.h has it for the host's memory, whatever is aligned how, and not one element more.
TEST_F(CudaMeans, BothEndsAreThoseOfTheHost) {
  for (const DType given : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    for (const DType wire : {DType::f16, DType::bf16}) {
      for (const int64_t count : {1, 4, 1027}) {
        for (const int64_t skew : {0, 1}) {
          NcclMean means(device(), 3);
          const CudaMemory m = numbers(given, count + 1, skew);  // the last is somebody else's
          const std::vector<std::byte> before = bytes_of(m);
          const auto* const first = before.data() + static_cast<size_t>(skew) * dtype_size(given);
          const Collective c = mean(m, given, wire, count, skew);
          const Collective sum = means.encode(c, device().collectives(), false);
          EXPECT_EQ(sum.kind, CollectiveKind::all_reduce);
          EXPECT_EQ(sum.in, sum.out);
          const size_t wire_bytes = static_cast<size_t>(count) * dtype_size(wire);
          std::vector<std::byte> want(wire_bytes), got(wire_bytes);
          encode_mean(first, given, want.data(), wire, count, 3);
          device().order(device().collectives(), device().compute());
          device().copy_to_host(got.data(), reinterpret_cast<cuda::Address>(sum.out), wire_bytes);
          expect_same(got.data(), want.data(), wire, count);

          means.decode(c, sum, device().collectives());
          device().order(device().collectives(), device().compute());
          std::vector<std::byte> all = before;
          decode(got.data(), wire, all.data() + static_cast<size_t>(skew) * dtype_size(given), given, count);
          expect_same(bytes_of(m).data(), all.data(), given, skew + count + 1);
        }
      }
    }
  }
}

TEST_F(CudaMeans, TakesAsMuchMemoryAsItNeeds) {
  NcclMean means(device(), 2);
  const CudaMemory m = numbers(DType::f32, 3000, 0);
  const size_t before = device().memory().in_use;
  const auto used = [&](int64_t count) {
    means.encode(mean(m, DType::f32, DType::bf16, count), device().collectives(), false);
    return device().memory().in_use - before;
  };
  EXPECT_EQ(used(100), 200u);
  EXPECT_EQ(used(80), 200u);
  EXPECT_EQ(used(120), 600u);  // and twice as many, for graphs may know where the first were
  EXPECT_EQ(used(200), 600u);
  EXPECT_EQ(used(3000), 6600u);
}

TEST_F(CudaMeans, SaysThatACaptureHasNoRoom) {
  NcclMean means(device(), 2);
  const CudaMemory m = numbers(DType::f32, 4, 0);
  const cuda::Driver& driver = device().driver();
  device().check(driver.capture_begin(device().compute(), cuda::kCaptureThreadLocal), "cuStreamBeginCapture");
  try {
    means.encode(mean(m, DType::f32, DType::bf16, 4), device().compute(), true);
    ADD_FAILURE() << "its memory would be the graph's";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::unsupported);
    EXPECT_THAT(e.what(), ::testing::HasSubstr("8 bytes are not allocated while the compute stream itself is "
                                               "captured (reduce as many once before)"));
  }
  cuda::Graph graph = nullptr;
  device().check(driver.capture_end(device().compute(), &graph), "cuStreamEndCapture");
  driver.graph_destroy(graph);
}

}  // namespace KILN_FILE
}  // namespace kiln
