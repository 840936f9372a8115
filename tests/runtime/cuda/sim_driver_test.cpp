// SPDX-License-Identifier: Apache-2.0
// The simulated machine as a whole: its devices, contexts and errors, and that it can begin again.
#include <set>
#include <thread>

#include "ir/base/options.h"
#include "tests/runtime/cuda/sim_testing.h"

namespace kiln::cuda {
namespace KILN_FILE {

using testing::in;
using testing::out;

using SimDriver = testing::SimTest;

TEST_F(SimDriver, EveryFunctionIsThere) {
#define KILN_PRESENT(member, name, parameters) EXPECT_NE(d.member, nullptr) << name;
  KILN_CUDA_DRIVER_FUNCTIONS(KILN_PRESENT)
#undef KILN_PRESENT
  EXPECT_TRUE(d.simulated);
  EXPECT_TRUE(d.load_source && d.declare && d.forget && d.hold && d.fault);
}

TEST_F(SimDriver, DevicesAreAnH100) {
  int n = 0, value = 0;
  ok(d.device_count(&n));
  EXPECT_EQ(n, 2);
  DeviceId device = -1;
  ok(d.device_get(&device, 1));
  char name[64];
  ok(d.device_name(name, sizeof name, device));
  EXPECT_STREQ(name, "Kiln simulated GPU");
  ok(d.device_name(name, 5, device));
  EXPECT_STREQ(name, "Kiln");
  const auto attribute = [&](int a) {
    ok(d.device_attribute(&value, a, device));
    return value;
  };
  EXPECT_EQ(attribute(kComputeMajor) * 10 + attribute(kComputeMinor), 90);
  EXPECT_EQ(attribute(kMultiprocessorCount), 132);
  EXPECT_EQ(attribute(kMaxSharedPerBlockOptin), 232448);
  EXPECT_EQ(attribute(kMaxRegistersPerBlock), 65536);
  EXPECT_EQ(attribute(kWarpSize), 32);
  size_t bytes = 0;
  ok(d.device_memory(&bytes, device));
  EXPECT_EQ(bytes, sim::kDeviceMemory);
  refused(d.device_attribute(&value, 9999, device), kInvalidValue, "device attribute 9999 is not simulated");
  refused(d.device_get(&device, 2), kInvalidDevice, "device 2 of 2");
}

TEST_F(SimDriver, AMachineMayHaveOtherNumbers) {
  begin({.devices = 3, .memory = 1 << 20});
  int n = 0;
  ok(d.device_count(&n));
  EXPECT_EQ(n, 3);
  size_t bytes = 0;
  ok(d.device_memory(&bytes, 2));
  EXPECT_EQ(bytes, 1u << 20);
  sim::reset({.devices = 0});
  EXPECT_EQ(d.init(0), kNoDevice);
}

TEST_F(SimDriver, SwitchesSayHowManyAndWhichOrder) {
  set_option("KILN_SIM_DEVICES", "5");
  set_option("KILN_SIM_SEED", "7");
  EXPECT_EQ(sim::default_config().devices, 5);
  EXPECT_EQ(sim::default_config().seed, 7u);
  set_option("KILN_SIM_DEVICES", "17");
  EXPECT_THROW(sim::default_config(), Error);
  set_option("KILN_SIM_DEVICES", "");
  set_option("KILN_SIM_SEED", "");
  EXPECT_EQ(sim::default_config().devices, 2);
}

TEST_F(SimDriver, NothingGoesBeforeInit) {
  sim::reset({});
  int n = 0;
  refused(d.device_count(&n), kNotInitialized, "cuInit has not been called");
  EXPECT_EQ(d.init(1), kInvalidValue);
  ok(d.driver_version(&n));
  EXPECT_EQ(n, 13000);
}

TEST_F(SimDriver, ErrorsHaveNames) {
  const char* text = nullptr;
  ok(d.error_name(kIllegalAddress, &text));
  EXPECT_STREQ(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
  ok(d.error_string(kOutOfMemory, &text));
  EXPECT_STREQ(text, "out of memory");
  EXPECT_EQ(d.error_name(12345, &text), kInvalidValue);
  EXPECT_EQ(text, nullptr);
}

TEST_F(SimDriver, EachThreadHasItsCurrentContext) {
  std::thread([&] {
    Address a = 0;
    refused(d.allocate(&a, 8), kInvalidContext, "no context is current on this thread");
    EXPECT_EQ(d.context_set(context), kSuccess);
    EXPECT_EQ(d.allocate(&a, 8), kSuccess);
  }).join();
  ok(d.context_set(nullptr));
  EXPECT_EQ(d.context_synchronize(), kInvalidContext);
}

TEST_F(SimDriver, AContextLastsAsLongAsItIsRetained) {
  Context again = nullptr;
  ok(d.context_retain(&again, 0));
  EXPECT_EQ(again, context);
  allocate(1024);
  ok(d.context_release(0));
  ok(d.context_synchronize());
  ok(d.context_release(0));
  refused(d.context_synchronize(), kInvalidContext, "no context is current on this thread");
  refused(d.context_set(context), kInvalidContext, "no such context");
  refused(d.context_release(0), kInvalidContext, "device 0 has no context to release");
  ok(d.context_retain(&context, 0));
  ok(d.context_set(context));
  size_t free = 0, total = 0;
  ok(d.memory_info(&free, &total));
  EXPECT_EQ(free, total);
}

TEST_F(SimDriver, DevicesHaveAddressesOfTheirOwn) {
  const Address a = allocate(8);
  Context other = nullptr;
  ok(d.context_retain(&other, 1));
  ok(d.context_set(other));
  EXPECT_NE(allocate(8) >> 40, a >> 40);
  const Stream s = stream();
  ok(d.context_set(context));
  refused(d.stream_synchronize(s), kInvalidHandle, "no such stream in the current context");
}

TEST_F(SimDriver, AFaultOfOneDeviceLeavesTheOther) {
  const Address x = allocate(4);
  EXPECT_EQ(run(kernel("store<1>((f32*)buffers[0] + 1, 1.0f);", 1, 1), {.buffers = {out(x, 4, "x")}}),
            kIllegalAddress);
  Context other = nullptr;
  ok(d.context_retain(&other, 1));
  ok(d.context_set(other));
  allocate(8);
  ok(d.context_synchronize());
}

TEST_F(SimDriver, ItBeginsAgain) {
  const Address x = allocate(4);
  EXPECT_EQ(run(kernel("store<1>((f32*)buffers[0] + 1, 1.0f);", 1, 1), {.buffers = {out(x, 4, "x")}}),
            kIllegalAddress);
  begin({});
  EXPECT_EQ(d.fault(), "");
  EXPECT_EQ(allocate(4), x);
  ok(d.context_synchronize());
}

}  // namespace KILN_FILE
}  // namespace kiln::cuda
