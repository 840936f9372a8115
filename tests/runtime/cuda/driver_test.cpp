// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/driver.h"

#include <gmock/gmock.h>

#include "ir/base/error.h"
#include "ir/base/options.h"
#include "runtime/cuda/device.h"

namespace kiln {
namespace KILN_FILE {

/// Sets a switch for a test.
class Chosen {
 public:
  explicit Chosen(const char* driver) { set_option("KILN_CUDA_DRIVER", driver); }
  ~Chosen() { set_option("KILN_CUDA_DRIVER", ""); }
  Chosen(const Chosen&) = delete;
  Chosen& operator=(const Chosen&) = delete;
};

TEST(CudaDriver, OffIsNone) {
  const Chosen off("off");
  std::string why;
  EXPECT_EQ(cuda::find_driver(why), nullptr);
  EXPECT_EQ(why, "KILN_CUDA_DRIVER=off (unset it, or set it to sim for a simulated GPU)");
  EXPECT_EQ(cuda_device_count(), 0);
  try {
    cuda_device(0);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::device);
    EXPECT_EQ(e.what(), "cuda:0: no CUDA device can be used: " + why);
  }
}

TEST(CudaDriver, AutoIsTheMachines) {
  const Chosen automatic("auto");
  std::string why;
  const cuda::Driver* driver = cuda::find_driver(why);
  EXPECT_EQ(driver == nullptr, !why.empty()) << why;
  if (driver) {
    EXPECT_FALSE(driver->simulated);
    EXPECT_GT(cuda_device_count(), 0);
  } else {
    EXPECT_THAT(why, ::testing::StartsWith("libcuda.so.1 "));
    EXPECT_THAT(why, ::testing::HasSubstr("(hint: "));
  }
}

TEST(CudaDriver, SimIsTheSimulatedDevice) {
  const Chosen sim("sim");
  std::string why;
  const cuda::Driver* driver = cuda::find_driver(why);
  ASSERT_EQ(driver, &cuda::simulated_driver()) << why;
  EXPECT_TRUE(driver->simulated);
  EXPECT_EQ(cuda_device_count(), 2);
  CudaDevice& device = cuda_device(1);
  EXPECT_EQ(&device, &cuda_device(1));
  EXPECT_NE(&device, &cuda_device(0));
  EXPECT_EQ(device.index(), 1);
  EXPECT_EQ(device.arch(), "sm_90a");
  EXPECT_THROW(cuda_device(-1), Error);
  try {
    cuda_device(2);
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "cuda:2: no such device; got index 2, expected 0 to 1 (hint: KILN_SIM_DEVICES says how many "
                 "the simulated driver has)");
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
