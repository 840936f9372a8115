// SPDX-License-Identifier: Apache-2.0
// Memory of the simulated device: how much there is, what it holds, who frees it, and when copies happen.
#include <cmath>
#include <cstring>

#include "runtime/cuda/sim_space.h"
#include "tests/runtime/cuda/sim_testing.h"

namespace kiln::cuda {
namespace KILN_FILE {

using testing::both;
using ::testing::HasSubstr;
using testing::in;
using testing::out;

constexpr size_t kMiB = 1 << 20;

class SimDriverMemory : public testing::SimTest {
 protected:
  size_t free_bytes() {
    size_t free = 0, total = 0;
    ok(d.memory_info(&free, &total));
    return free;
  }
  Pool pool() {
    Pool p = nullptr;
    ok(d.default_pool(&p, 0));
    return p;
  }
  uint64_t of_pool(int attribute) {
    uint64_t v = 0;
    ok(d.pool_get(pool(), attribute, &v));
    return v;
  }
};

TEST_F(SimDriverMemory, ThereIsSoMuchAndNoMore) {
  begin({.memory = 10 * kMiB});
  const Address a = allocate(6 * kMiB);
  EXPECT_EQ(free_bytes(), 4 * kMiB);
  Address b = 0;
  refused(d.allocate(&b, 5 * kMiB), kOutOfMemory,
          "out of memory: 5242880 bytes asked for, 4194304 of 10485760 are free");
  ok(d.release(a));
  EXPECT_EQ(free_bytes(), 10 * kMiB);
  ok(d.allocate(&b, 10 * kMiB));
  refused(d.allocate(&b, 0), kInvalidValue, "an allocation of 0 bytes");
}

TEST_F(SimDriverMemory, AddressesAreNoneOfTheHost) {
  const Address a = filled(4, 1);
  EXPECT_EQ(a % 256, 0u);
  EXPECT_GT(a >> 47, 0u);
  EXPECT_DEATH(std::memset(reinterpret_cast<void*>(a), 0, 4), "");
}

TEST_F(SimDriverMemory, AddressesAreNotGivenOutAgainSoon) {
  const Address a = allocate(1000);
  ok(d.release(a));
  EXPECT_GT(allocate(1000), a);
}

// The sizes of these two are of the space's: under the thread sanitizer it has fewer addresses.
TEST_F(SimDriverMemory, WhenAllAddressesWereUsedTheOldestComeBack) {
  begin({.memory = sim::DeviceSpace::kBytes});
  const size_t half = sim::DeviceSpace::kBytes / 2;  // with the gap behind it, more than half
  const Address a = allocate(half);
  ok(d.copy_to_device(a + half - 4, "abc", 4, nullptr));
  ok(d.release(a));
  const Address b = allocate(half);
  EXPECT_EQ(a, b);
  // And they are as fresh memory.
  EXPECT_TRUE(std::isnan(read(b + half - 4, 1)[0]));
}

TEST_F(SimDriverMemory, WhatIsFreeIsOnePieceWithWhatWasNeverUsed) {
  begin({.memory = sim::DeviceSpace::kBytes});
  const size_t quarter = sim::DeviceSpace::kBytes / 4;
  const Address a = allocate(quarter), b = allocate(quarter);
  ok(d.release(b));
  ok(d.release(a));
  EXPECT_EQ(allocate(3 * quarter), a);
  EXPECT_GT(allocate(quarter / 8), a + 3 * quarter);
}

TEST_F(SimDriverMemory, FreshMemoryReadsAsNaN) {
  const Address a = allocate(16);
  ok(d.set_words(a + 4, 0, 1, nullptr));
  const std::vector<float> v = read(a, 4);
  EXPECT_TRUE(std::isnan(v[0]));
  EXPECT_EQ(v[1], 0);
  EXPECT_TRUE(std::isnan(v[3]));
}

TEST_F(SimDriverMemory, ACopyOfWhatWasNeverWrittenIsNotWritten) {
  const Address a = allocate(16), b = allocate(16);
  ok(d.set_words(a + 4, 0, 1, nullptr));
  ok(d.copy_on_device(b, a, 16, nullptr));
  const Function f =
      kernel("store<1>((f32*)buffers[1], load<1>((const f32*)buffers[0] + dims[0]));", 1, 2, 1);
  EXPECT_EQ(fault_of(f, {.buffers = {in(b, 16, "b"), out(a, 16, "a")}, .dims = {1}}), "");
  EXPECT_EQ(
      fault_of(f, {.buffers = {in(b, 16, "b"), out(a, 16, "a")}, .dims = {2}}),
      "uninitialised read: kernel 'k', block 0, thread 0 reads 4 bytes at offset 8 of 'b' (16 bytes), which "
      "nothing has written");
}

TEST_F(SimDriverMemory, ForgottenMemoryIsAsFresh) {
  const Address x = filled(4, 1);
  const Function f = kernel("store<1>((f32*)buffers[0], load<1>((const f32*)buffers[0] + 1));", 1, 1);
  ok(launch(f, {.buffers = {both(x, 16, "x")}}));
  ok(d.forget(x, 16, nullptr));
  EXPECT_THAT(fault_of(f, {.buffers = {both(x, 16, "x")}}), HasSubstr("uninitialised read"));
}

TEST_F(SimDriverMemory, DoubleFree) {
  const Address a = allocate(100);
  ok(d.release(a));
  refused(d.release(a), kInvalidValue,
          fmt::format("double free: {:#x}, an allocation of 100 bytes, has been freed before", a));
  refused(d.release(a + 4), kInvalidValue, fmt::format("invalid free: no allocation begins at {:#x}", a + 4));
  refused(d.release(0), kInvalidValue, "invalid free: no allocation begins at 0x0");
}

TEST_F(SimDriverMemory, DoubleFreeInAStream) {
  const Stream s = stream();
  Address a = 0;
  ok(d.allocate_async(&a, 100, pool(), s));
  ok(d.release_async(a, s));
  const std::string text =
      fmt::format("double free: {:#x}, an allocation of 100 bytes, has been freed before", a);
  refused(d.release_async(a, s), kInvalidValue, text);
  ok(d.stream_synchronize(s));
  refused(d.release_async(a, s), kInvalidValue, text);
  const Address b = allocate(100);
  refused(d.release_async(b, s), kInvalidValue, fmt::format("invalid free: {:#x} is not of a pool", b));
}

TEST_F(SimDriverMemory, AFreeWaitsForWhoUsesIt) {
  const Address x = filled(4, 1), y = allocate(16);
  const Stream s = stream();
  ok(d.context_synchronize());
  const Function f = kernel("store<4>((f32*)buffers[1], load<4>((const f32*)buffers[0]));", 1);
  ok(launch(f, {.buffers = {in(x, 16, "x"), out(y, 16, "y")}, .stream = s}));
  ok(d.release(x));
  EXPECT_EQ(sim::pending_work(0), 0u);
  EXPECT_EQ(read(y, 4)[2], 1.0f);
}

TEST_F(SimDriverMemory, UseAfterFreeInAStream) {
  const Stream s = stream();
  Address a = 0;
  ok(d.allocate_async(&a, 100, pool(), s));
  ok(d.release_async(a, s));
  ok(d.set_words(a, 0, 4, s));
  EXPECT_EQ(d.stream_synchronize(s), kIllegalAddress);
  EXPECT_EQ(d.fault(), "use after free: a fill writes freed memory (100 bytes were allocated)");
  begin({});
  ok(d.allocate_async(&a, 100, pool(), nullptr));
  ok(d.release_async(a, nullptr));
  float x[4];
  EXPECT_EQ(d.copy_to_host(x, a, 16, nullptr), kIllegalAddress);
  EXPECT_EQ(d.fault(),
            fmt::format("use after free: a copy to the host reads 16 bytes at {:#x}, freed memory (100 "
                        "bytes were allocated)",
                        a));
}

TEST_F(SimDriverMemory, APoolKeepsWhatItWasGivenUntilSomebodyWaits) {
  begin({.memory = 10 * kMiB});
  const Stream s = stream();
  uint64_t threshold = 3 * kMiB;
  ok(d.pool_set(pool(), kPoolReleaseThreshold, &threshold));
  Address a = 0, b = 0;
  ok(d.allocate_async(&a, 4 * kMiB, pool(), s));
  ok(d.allocate_async(&b, 2 * kMiB, pool(), s));
  EXPECT_EQ(of_pool(kPoolUsedCurrent), 6 * kMiB);
  EXPECT_EQ(free_bytes(), 4 * kMiB);
  ok(d.release_async(a, s));
  ok(d.release_async(b, s));
  EXPECT_EQ(of_pool(kPoolUsedCurrent), 6 * kMiB);  // the stream has not come to it
  ok(d.stream_synchronize(s));
  EXPECT_EQ(of_pool(kPoolUsedCurrent), 0u);
  EXPECT_EQ(of_pool(kPoolReservedCurrent), 3 * kMiB);
  EXPECT_EQ(of_pool(kPoolUsedHigh), 6 * kMiB);
  EXPECT_EQ(free_bytes(), 7 * kMiB);
  ok(d.pool_trim(pool(), kMiB));
  EXPECT_EQ(of_pool(kPoolReservedCurrent), kMiB);
  ok(d.allocate_async(&a, 10 * kMiB, pool(), s));
  refused(d.allocate_async(&b, 1, pool(), s), kOutOfMemory,
          "out of memory: 256 bytes asked for, 0 of 10485760 are free");
  // What a stream is about to free is there for who asks.
  ok(d.release_async(a, s));
  ok(d.allocate_async(&b, 10 * kMiB, pool(), s));
}

TEST_F(SimDriverMemory, APlannedAllocationFails) {
  sim::fail_allocation(2);
  Address a = 0;
  ok(d.allocate(&a, 8));
  refused(d.allocate_async(&a, 8, pool(), nullptr), kOutOfMemory,
          "out of memory: planned failure of an allocation of 256 bytes");
  ok(d.allocate(&a, 8));
}

TEST_F(SimDriverMemory, CopiesToTheHostLandAtTheEnd) {
  const Address x = filled(4, 2);
  auto* host = static_cast<float*>(pinned(16));
  host[1] = 7;
  ok(d.copy_to_host(host, x, 16, nullptr));
  EXPECT_TRUE(std::isnan(host[1]));
  ok(d.stream_synchronize(nullptr));
  EXPECT_EQ(host[1], 2);
  // What is not pinned is there when the call returns.
  EXPECT_EQ(read(x, 4)[3], 2);
}

TEST_F(SimDriverMemory, CopiesFromPinnedMemoryLookAtTheEnd) {
  const Address x = allocate(16);
  auto* host = static_cast<float*>(pinned(16));
  std::fill_n(host, 4, 1.0f);
  ok(d.copy_to_device(x, host, 16, nullptr));
  std::fill_n(host, 4, 2.0f);  // too early
  EXPECT_EQ(read(x, 1)[0], 2);
  std::vector<float> own(4, 3.0f);
  ok(d.copy_to_device(x, own.data(), 16, nullptr));
  own[0] = 4;  // copied when it was asked for
  EXPECT_EQ(read(x, 1)[0], 3);
}

TEST_F(SimDriverMemory, AStagingBufferMayGoThereAndBack) {
  const Address x = allocate(16), y = filled(4, 5);
  auto* host = static_cast<float*>(pinned(16));
  std::fill_n(host, 4, 1.0f);
  ok(d.copy_to_device(x, host, 16, nullptr));
  ok(d.copy_to_host(host, y, 16, nullptr));  // in order: it may not destroy what the first is yet to read
  ok(d.stream_synchronize(nullptr));
  EXPECT_EQ(host[0], 5);
  EXPECT_EQ(read(x, 1)[0], 1);
}

TEST_F(SimDriverMemory, RangesAreCheckedAtOnce) {
  const Address a = allocate(100);
  float x[100] = {};
  refused(d.copy_to_device(a, x, 101, nullptr), kInvalidValue,
          fmt::format("a copy to the device: 101 bytes at {:#x} reach beyond their allocation", a));
  refused(d.copy_to_host(x, a + 96, 5, nullptr), kInvalidValue,
          fmt::format("a copy to the host: 5 bytes at {:#x} reach beyond their allocation", a + 96));
  refused(d.copy_on_device(a, reinterpret_cast<Address>(x), 4, nullptr), kInvalidValue,
          fmt::format("a copy on the device: 4 bytes at {:#x} are not device memory",
                      reinterpret_cast<Address>(x)));
  refused(d.copy_on_device(a, a + 4, 8, nullptr), kInvalidValue,
          fmt::format("a copy on the device: 8 bytes at {:#x} and {:#x} overlap", a + 4, a));
  refused(d.copy_to_device(a, reinterpret_cast<void*>(a), 4, nullptr), kInvalidValue,
          fmt::format("a copy to the device: {:#x} is no host memory", a));
  refused(d.set_words(a + 2, 0, 1, nullptr), kInvalidValue,
          fmt::format("a fill: {:#x} is no multiple of 4", a + 2));
  ok(d.release(a));
  refused(d.set_bytes(a, 0, 1, nullptr), kInvalidValue, fmt::format("a fill: 1 bytes at {:#x} are freed", a));
}

TEST_F(SimDriverMemory, FillsWriteBytesAndWords) {
  const Address a = allocate(8);
  ok(d.set_bytes(a, 0x3f, 8, nullptr));
  EXPECT_NEAR(read(a, 2)[1], 0.7470588f, 1e-3);
  ok(d.set_words(a, 0x40000000, 1, nullptr));
  EXPECT_EQ(read(a, 1)[0], 2);
}

TEST_F(SimDriverMemory, PinnedMemoryIsFreedOnce) {
  void* p = pinned(10);
  const Address x = allocate(8);
  ok(d.copy_to_device(x, p, 8, nullptr));
  ok(d.host_release(p));
  EXPECT_EQ(sim::pending_work(0), 0u);  // the copy did not look too late
  refused(d.host_release(p), kInvalidValue, fmt::format("invalid free: no pinned memory begins at {}", p));
}

TEST_F(SimDriverMemory, BetweenDevices) {
  const Address a = filled(4, 3);
  Context other = nullptr;
  ok(d.context_synchronize());
  ok(d.context_retain(&other, 1));
  ok(d.context_set(other));
  const Address b = allocate(16);
  ok(d.copy_on_device(b, a, 16, nullptr));
  EXPECT_EQ(read(b, 4)[3], 3);
  // A kernel does not reach there.
  EXPECT_THAT(fault_of(kernel("store<1>((f32*)buffers[0], 1.0f);", 1, 1), {.buffers = {out(a, 16, "a")}},
                       kIllegalAddress),
              HasSubstr("memory that is not allocated"));
}

TEST_F(SimDriverMemory, AHeldOutputIsNotOverwritten) {
  const Address x = filled(8, 1);
  const Function f = kernel("store<4>((f32*)buffers[0], load<4>((const f32*)buffers[0]));", 1, 1);
  ok(launch(f, {.buffers = {both(x, 16, "%12")}}));
  ok(d.hold(x, 16, true));
  ok(d.context_synchronize());  // what was asked for before may write it
  ok(run(f, {.buffers = {both(x + 16, 16, "%12")}}));
  ok(run(kernel("store<4>((f32*)buffers[1], load<4>((const f32*)buffers[0]));", 1),
         {.buffers = {in(x, 16, "x"), out(x + 16, 16, "y")}}));
  ok(d.hold(x, 16, false));
  ok(run(f, {.buffers = {both(x, 16, "%12")}}));
  ok(d.hold(x, 16, true));
  EXPECT_EQ(
      fault_of(f, {.buffers = {both(x, 16, "%12")}}),
      fmt::format("overwritten output: kernel 'k' writes '%12' (16 bytes at {:#x}), of which 16 bytes at "
                  "{:#x} are an output that is still held",
                  x, x));
}

TEST_F(SimDriverMemory, AHeldOutputIsNotOverwrittenByCopiesOrUnknownKernels) {
  const Address x = filled(8, 1);
  ok(d.hold(x + 16, 4, true));
  ok(d.set_words(x, 0, 4, nullptr));
  ok(d.context_synchronize());
  ok(d.set_words(x, 0, 5, nullptr));
  EXPECT_EQ(d.context_synchronize(), kLaunchFailed);
  EXPECT_THAT(d.fault(), HasSubstr("overwritten output: a fill writes device memory"));
  begin({});
  const Address y = filled(8, 1);
  ok(d.hold(y + 16, 4, true));
  const Function f =
      kernel("store<1>((f32*)buffers[0] + dims[0], load<1>((const f32*)buffers[0] + 4));", 1, 1, 1);
  EXPECT_EQ(fault_of(f, {.buffers = {both(y, 0, "")}, .dims = {3}, .declared = false}), "");
  EXPECT_EQ(fault_of(f, {.buffers = {both(y, 0, "")}, .dims = {4}, .declared = false}, kIllegalAddress),
            "write to a read-only buffer: kernel 'k', block 0, thread 0 writes 4 bytes at offset 0 of 'held "
            "output' "
            "(4 bytes), which the launch only reads");
}

}  // namespace KILN_FILE
}  // namespace kiln::cuda
