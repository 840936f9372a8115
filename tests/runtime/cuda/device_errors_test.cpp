// SPDX-License-Identifier: Apache-2.0
// What is said when a device or a call of its driver fails, on a driver that fails where it is told to.
#include <gmock/gmock.h>

#include <functional>
#include <numeric>

#include "ir/base/error.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/staging.h"
#include "tests/runtime/cuda/fake_driver.h"

namespace kiln {
namespace KILN_FILE {

using cuda::fake;
using cuda::fake_driver;

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::device);
    return e.what();
  }
  return "no error";
}

class DeviceErrors : public ::testing::Test {
 protected:
  void SetUp() override { fake() = {}; }
  void TearDown() override { EXPECT_EQ(fake().used, 0u); }
};

TEST_F(DeviceErrors, KnowsWhatItIs) {
  const CudaDevice device(fake_driver(), 1);
  EXPECT_EQ(device.name(), "Fake 100");
  EXPECT_EQ(device.arch(), "sm_90a");
  EXPECT_EQ(device.limits().shared_per_block, 1024u + cuda::kMaxSharedPerBlockOptin);
  EXPECT_EQ(device.limits().memory_bytes, fake().total);
  EXPECT_THAT(fake().calls, ::testing::Contains("keep 18446744073709551615"));
  const std::pair<std::pair<int, int>, const char*> arches[] = {
      {{8, 0}, "sm_80"}, {{8, 9}, "sm_89"}, {{10, 0}, "sm_100a"}, {{10, 3}, "sm_103"}, {{12, 0}, "sm_120"}};
  for (const auto& [version, arch] : arches) {
    fake().major = version.first;
    fake().minor = version.second;
    EXPECT_EQ(CudaDevice(fake_driver(), 0).arch(), arch);
  }
}

TEST_F(DeviceErrors, RefusesWhatItCannotUse) {
  EXPECT_EQ(error_of([] { CudaDevice(fake_driver(), 2); }),
            "cuda:2: no such device; got index 2, expected 0 to 1 (hint: CUDA_VISIBLE_DEVICES chooses which "
            "devices this process has)");
  fake().pools = 0;
  EXPECT_THAT(error_of([] { CudaDevice(fake_driver(), 0); }), ::testing::HasSubstr("has no memory pools"));
  fake().major = 7;
  fake().minor = 5;
  EXPECT_EQ(error_of([] { CudaDevice(fake_driver(), 0); }),
            "cuda:0: Fake 100 is too old; got compute capability 7.5, expected 8.0 or higher");
  fake().major = 9;
  fake().pools = 1;
  fake().fails["cuStreamCreateWithPriority"] = 801;
  EXPECT_EQ(error_of([] { CudaDevice(fake_driver(), 0); }),
            "cuda:0: cuStreamCreateWithPriority: CUDA_ERROR_SOME (801): some error");
}

TEST_F(DeviceErrors, AFailureOfTheDeviceIsSaidOnceInFullAndThenBriefly) {
  CudaDevice device(fake_driver(), 0);
  CudaMemory held = device.allocate(1000, "state");
  for (int i = 0; i < 10; ++i) {
    const std::string name = "k" + std::to_string(i);
    device.launch({.blocks = 1, .threads = 32, .name = name.c_str(), .place = i == 9 ? "net.cpp:12" : ""},
                  device.compute());
  }
  fake().fails["cuStreamSynchronize"] = cuda::kIllegalAddress;
  const std::string what =
      "cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered";
  EXPECT_EQ(error_of([&] { device.synchronize(device.compute()); }),
            "cuda:0: " + what +
                "; last launches, the latest first: k9 (net.cpp:12), k8, k7, k6, k5, k4, k3, k2 (hint: the "
                "device takes no more work of this process; start it again)");
  EXPECT_EQ(device.failure(), what);
  fake().fails.clear();
  const std::string before = "cuda:0: the device failed before: " + what;
  EXPECT_EQ(error_of([&] { device.synchronize(); }), before);
  EXPECT_EQ(error_of([&] { device.allocate(16, "more"); }), before);
  EXPECT_EQ(error_of([&] { device.launch({.blocks = 1, .threads = 32, .name = "k"}, device.compute()); }),
            before);
}

TEST_F(DeviceErrors, LongPlacesAreCutBetweenLines) {
  CudaDevice device(fake_driver(), 0);
  const std::string one(150, 'n');
  std::string many = "net.cpp:1000";
  for (int i = 1001; i < 1020; ++i) many += " net.cpp:" + std::to_string(i);
  for (const std::string& place : {one, many})
    device.launch({.blocks = 1, .threads = 32, .name = "k", .place = place.c_str()}, device.compute());
  fake().fails["cuStreamSynchronize"] = cuda::kIllegalAddress;
  const std::string what = error_of([&] { device.synchronize(device.compute()); });
  EXPECT_THAT(what, ::testing::HasSubstr(": k (" + many.substr(0, many.find(" net.cpp:1009")) + "), k (" +
                                         one + ") (hint: "));
}

TEST_F(DeviceErrors, ALaunchThatFailsNamesKernelAndLine) {
  CudaDevice device(fake_driver(), 0);
  fake().fails["cuLaunchKernel"] = cuda::kLaunchOutOfResources;
  const CudaLaunch launch{.blocks = 7, .threads = 256, .shared_bytes = 99, .name = "add", .place = "a.cpp:3"};
  EXPECT_EQ(error_of([&] { device.launch(launch, device.compute()); }),
            "cuda:0: cuLaunchKernel of add (a.cpp:3) on 7 blocks of 256 threads with 99 bytes of shared "
            "memory: CUDA_ERROR_SOME (701): some error");
  EXPECT_EQ(device.failure(), std::nullopt) << "that launch alone has failed";
  fake().fails.clear();
  device.launch(launch, device.compute());
}

TEST_F(DeviceErrors, OutOfMemorySaysWhoHoldsIt) {
  fake().total = size_t{64} << 20;
  CudaDevice device(fake_driver(), 0);
  const CudaMemory a = device.allocate(size_t{10} << 20, "parameters");
  const CudaMemory b = device.allocate(size_t{20} << 20, "arena of step (train.cpp:22)");
  CudaMemory c = device.allocate(size_t{20} << 20, "arena of step (train.cpp:22)");
  device.count_graphs(2);
  device.set_graph_caps({.per_plan = 8, .bytes = size_t{1} << 30});
  EXPECT_EQ(
      error_of([&] { device.allocate(size_t{15} << 20, "outputs"); }),
      "cuda:0: out of memory; asked for 15.0 MiB for outputs, got 14.0 MiB free of 64.0 MiB, with 50.0 "
      "MiB in use: arena of step (train.cpp:22) 40.0 MiB, parameters 10.0 MiB; the pool has 50.0 MiB of "
      "the device, 2 CUDA graphs 0.0 MiB (at most 8 of a program, and 1024.0 MiB but for programs with "
      "collectives) (hint: a smaller batch needs less; another process may hold the rest)");
  EXPECT_EQ(fake().trimmed, 1u) << "and has first tried with what was left over";
  EXPECT_THAT(error_of([&] { device.allocate(SIZE_MAX, "a mistake"); }),
              ::testing::HasSubstr("out of memory"));
  c.release();
  const CudaMemory d = device.allocate(size_t{15} << 20, "outputs");
  const CudaMemoryStats stats = device.memory();
  EXPECT_EQ(stats.in_use, size_t{45} << 20);
  EXPECT_EQ(stats.peak, size_t{50} << 20);
  EXPECT_EQ(stats.free, size_t{19} << 20);
}

TEST_F(DeviceErrors, EventsAreUsedAgain) {
  CudaDevice device(fake_driver(), 0);
  for (int i = 0; i < 3; ++i) const CudaEvent e = device.event(), t = device.event(true);
  EXPECT_THAT(fake().calls, ::testing::Contains("event").Times(1));
  EXPECT_THAT(fake().calls, ::testing::Contains("timed event").Times(1));
  const CudaEvent e = device.event();
  fake().fails["cuEventQuery"] = cuda::kNotReady;
  EXPECT_FALSE(device.done(e));
  fake().fails.clear();
  EXPECT_TRUE(device.done(e));
}

TEST_F(DeviceErrors, UploadsGoThroughARingOfPinnedBlocks) {
  CudaDevice device(fake_driver(), 0);
  std::vector<uint32_t> from(3'000'001), back(from.size());
  std::iota(from.begin(), from.end(), 1u);
  const size_t bytes = from.size() * 4;
  const CudaMemory memory = device.allocate(bytes, "test");
  for (int round = 0; round < 2; ++round) {
    fake().calls.clear();
    from[7] = static_cast<uint32_t>(round);
    device.copy_to_device(memory.address(), from.data(), bytes);
    EXPECT_GE(fake().calls.size(), bytes / CudaStaging::kBlockBytes);
    device.copy_to_host(back.data(), memory.address(), bytes);
    EXPECT_EQ(back, from);
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
