// SPDX-License-Identifier: Apache-2.0
// Streams, memory and copies on the simulated device, which runs work as late and in as odd an order as it
// may.
#include "runtime/cuda/device.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>

#include "tests/runtime/cuda/sim_kernels.h"

namespace kiln {
namespace KILN_FILE {

class Device : public testing::OnSimulatedDevice {};

/// More than the ring of pinned blocks holds, from memory that is changed at once.
TEST_F(Device, UploadsMayBeChangedAtOnce) {
  std::vector<uint32_t> values(700'000);
  std::vector<CudaMemory> memory;
  for (uint32_t round = 0; round < 8; ++round) {
    memory.push_back(device().allocate(values.size() * 4, "test"));
    std::iota(values.begin(), values.end(), round);
    device().copy_to_device(memory.back().address(), values.data(), values.size() * 4);
    std::fill(values.begin(), values.end(), 0u);
  }
  for (uint32_t round = 0; round < 8; ++round) {
    device().copy_to_host(values.data(), memory[round].address(), values.size() * 4);
    for (size_t i = 0; i < values.size(); i += 1013) ASSERT_EQ(values[i], round + i);
  }
}

/// Work on the compute stream that has yet to run.
class Uploads : public Device {
 protected:
  static constexpr size_t kFloats = CudaDevice::kSmallUpload / sizeof(float);
  void keep_busy(const CudaMemory& memory) {
    for (unsigned char i = 0; i < kWorks; ++i) device().fill(memory.address(), i, memory.bytes());
  }
  CudaMemory upload(const std::vector<float>& x) { return device().upload(x.data(), x.size() * 4, "test"); }
  size_t left() {
    device().synchronize(device().uploads());
    return cuda::sim::pending_work(0);
  }
  static constexpr size_t kWorks = 50;
};

TEST_F(Uploads, OfABatchGoOnWhileTheComputeStreamIsBusy) {
  const CudaMemory busy = room(1000), out = room(kFloats);
  device().synchronize();
  keep_busy(busy);
  const std::vector<float> want = ramp(kFloats, 1);
  std::vector<float> x = want;
  const CudaMemory a = upload(x);
  x.assign(kFloats, 0);
  // What the compute stream gets later waits for it, and it has been made where uploads are: the simulated
  // device finds fault with both copies if that is not so.
  device().copy_on_device(out.address(), a.address(), a.bytes());
  const PinnedMemory there = device().allocate_pinned(a.bytes());
  device().copy_to_host(there.data(), a.address(), a.bytes(), device().uploads());
  EXPECT_GE(left(), kWorks) << "nothing that the compute stream had is done";
  EXPECT_EQ(std::memcmp(there.data(), want.data(), a.bytes()), 0);
  EXPECT_EQ(get(out), want);
}

TEST_F(Uploads, SmallOnesAreInTheOrderOfTheComputeStream) {
  const CudaMemory busy = room(1000);
  device().synchronize();
  keep_busy(busy);
  const CudaMemory a = upload(ramp(kFloats - 1, 1));
  EXPECT_GE(left(), kWorks + 1) << "the copy waits as well";
  EXPECT_EQ(get(a), ramp(kFloats - 1, 1));
  EXPECT_FALSE(upload({}));
}

/// Or a host far ahead of its device would fill the memory with batches.
TEST_F(Uploads, AreNoMoreThanAFewAheadOfTheComputeStream) {
  const CudaMemory busy = room(1000);
  device().synchronize();
  const std::vector<float> x = ramp(kFloats, 1);
  for (size_t i = 0; i < CudaDevice::kUploadsAhead + 1; ++i) {
    upload(x);  // given back at once, by the compute stream
    keep_busy(busy);
  }
  EXPECT_GE(left(), (CudaDevice::kUploadsAhead + 1) * kWorks);
  upload(x);
  EXPECT_LT(left(), (CudaDevice::kUploadsAhead + 1) * kWorks) << "the first step must have run";
  EXPECT_GE(left(), CudaDevice::kUploadsAhead * kWorks);
}

TEST_F(Device, MemoryIsOrderedByTheComputeStream) {
  const std::vector<float> x = ramp(1000, 1);
  const CudaMemory out = room(1000);
  {
    const CudaMemory a = put(x);
    device().copy_on_device(out.address(), a.address(), 4000);
  }  // given back before the copy has run
  const CudaMemory b = device().allocate(4000, "test");
  device().fill(b.address(), 0, 4000);
  EXPECT_EQ(get(out), x);
}

TEST_F(Device, SpoiltMemoryIsAsIfNeverWritten) {
  const CudaMemory a = put(ramp(10, 1));
  device().spoil(a.address() + 4, 0x11, 36);
  const std::vector<float> got = get(a);
  EXPECT_EQ(got[0], ramp(10, 1)[0]);
  EXPECT_TRUE(std::isnan(got[1]));  // and no 0x11111111
}

TEST_F(Device, StreamsWaitForEachOther) {
  const std::vector<float> x = ramp(1000, 1);
  const CudaMemory a = put(x), b = room(1000), c = room(1000);
  device().order(device().compute(), device().side(0));
  device().copy_on_device(b.address(), a.address(), 4000, device().side(0));
  device().order(device().side(0), device().side(1));
  device().copy_on_device(c.address(), b.address(), 4000, device().side(1));
  const CudaEvent end = device().event();
  device().record(end, device().side(1));
  device().wait(device().compute(), end);
  EXPECT_FALSE(device().done(end));
  EXPECT_EQ(get(c), x);
  device().synchronize(end);
  EXPECT_TRUE(device().done(end));
}

TEST_F(Device, TimesBetweenEvents) {
  const CudaMemory a = room(1000);
  const CudaEvent begin = device().event(true), end = device().event(true);
  device().record(begin, device().compute());
  device().fill(a.address(), 0, 4000);
  device().record(end, device().compute());
  device().synchronize(end);
  EXPECT_GE(device().milliseconds(begin, end), 0.0);
}

TEST_F(Device, WhatTheSimulatorFindsIsSaid) {
  const CudaMemory a = room(10), b = room(10);
  std::string what;
  try {
    device().copy_on_device(b.address(), a.address(), 1 << 20);
    device().synchronize();
  } catch (const Error& e) {
    what = e.what();
  }
  EXPECT_THAT(what,
              ::testing::AllOf(::testing::HasSubstr("cuda:0: "), ::testing::HasSubstr("1048576 bytes")));
}

TEST_F(Device, AllocationThatFailsOnceIsTriedAgain) {
  cuda::sim::fail_allocation(1);
  const CudaMemory a = device().allocate(1000, "test");
  EXPECT_TRUE(a);
}

TEST_F(Device, ADeviceThatIsLostSaysSo) {
  const CudaMemory a = room(10);
  cuda::sim::lose_device(1);
  EXPECT_THROW(device().synchronize(), Error);
  try {
    device().fill(a.address(), 0, 40);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("the device failed before: "));
    EXPECT_THAT(e.what(), ::testing::HasSubstr("planned loss of the device"));
  }
}

TEST_F(Device, OtherThreadsUseItToo) {
  std::vector<std::thread> threads;
  std::vector<int> good(4);
  for (size_t t = 0; t < good.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        const std::vector<float> x = ramp(5000, static_cast<float>(t * 10));
        const CudaMemory a = put(x);
        good[t] += get(a) == x;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_THAT(good, ::testing::Each(5));
}

}  // namespace KILN_FILE
}  // namespace kiln
