// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/open_driver.h"

#include <gmock/gmock.h>

#include <string>

#include "ir/base/dynlib.h"

namespace kiln::cuda {
namespace KILN_FILE {

/// The fake driver, which answers what a test has put in its variables.
class OpenDriver : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    auto opened = DynLib::open(KILN_FAKE_LIBCUDA, why);
    ASSERT_TRUE(opened) << why;
    library_ = std::move(*opened);
  }
  void set(const char* name, int value) const { *static_cast<int*>(library_.symbol(name)) = value; }
  std::string refused() const {
    std::string why;
    EXPECT_EQ(open_driver(KILN_FAKE_LIBCUDA, why), nullptr);
    EXPECT_EQ(why.find(KILN_FAKE_LIBCUDA " "), 0u) << why;
    return why.substr(sizeof KILN_FAKE_LIBCUDA);
  }

 private:
  DynLib library_;
};

TEST_F(OpenDriver, FindsEveryFunctionByItsExportedName) {
  std::string why;
  const std::unique_ptr<const Driver> driver = open_driver(KILN_FAKE_LIBCUDA, why);
  ASSERT_NE(driver, nullptr) << why;
  EXPECT_EQ(why, "");
  EXPECT_FALSE(driver->simulated);
  EXPECT_EQ(driver->load_source, nullptr);
  int version = 0;
  EXPECT_EQ(driver->driver_version(&version), kSuccess);
  EXPECT_EQ(version, 13000);
#define KILN_FOUND(member, name, parameters) EXPECT_NE(driver->member, nullptr) << name;
  KILN_CUDA_DRIVER_FUNCTIONS(KILN_FOUND)
#undef KILN_FOUND
}

TEST_F(OpenDriver, SaysWhyItCannotBeUsed) {
  set("fake_version", 11080);
  EXPECT_EQ(refused(), "is too old; got CUDA 11.8, expected 12.0 or newer (hint: update NVIDIA's driver)");
  set("fake_version", 12000);
  set("fake_init", kStubLibrary);
  EXPECT_EQ(refused(),
            "is the toolkit's library for linking, not a driver (hint: take the toolkit's folder of such "
            "libraries off LD_LIBRARY_PATH, and install NVIDIA's driver)");
  set("fake_init", kSystemDriverMismatch);
  EXPECT_EQ(refused(),
            "and the kernel's module of NVIDIA's driver are of different versions (hint: restart the machine "
            "after an update of the driver; a container must not bring a driver of its own)");
  set("fake_init", kUnknown);
  EXPECT_EQ(refused(),
            "does not start: cuInit gave 999 (CUDA_ERROR_UNKNOWN: unknown error) (hint: nvidia-smi may say "
            "more)");
  set("fake_init", 12345);
  EXPECT_EQ(refused(),
            "does not start: cuInit gave 12345 (unknown error: no text) (hint: nvidia-smi may say more)");
  const std::string no_device =
      "finds no device (hint: look at CUDA_VISIBLE_DEVICES; a container must be started with its devices)";
  set("fake_init", kNoDevice);
  EXPECT_EQ(refused(), no_device);
  set("fake_init", kSuccess);
  set("fake_count", 0);
  EXPECT_EQ(refused(), no_device);
}

TEST(OpenDriverLibrary, NamesWhatIsMissing) {
  std::string why;
  EXPECT_EQ(open_driver("/nonexistent/libcuda.so.1", why), nullptr);
  EXPECT_EQ(
      why,
      "/nonexistent/libcuda.so.1 cannot be opened: /nonexistent/libcuda.so.1: cannot open shared object "
      "file: No such file or directory (hint: install NVIDIA's driver)");
  EXPECT_EQ(open_driver(KILN_OLD_LIBCUDA, why), nullptr);
  int count = 0;
#define KILN_COUNT(member, name, parameters) ++count;
  KILN_CUDA_DRIVER_FUNCTIONS(KILN_COUNT)
#undef KILN_COUNT
  EXPECT_EQ(why, KILN_OLD_LIBCUDA
                     " is too old: it lacks cuDeviceGet, cuDeviceGetName, cuDeviceGetAttribute, "
                     "cuDeviceTotalMem_v2 and " +
                     std::to_string(count - 5 - 4) +
                     " others (hint: CUDA 12.0 or newer is needed; update NVIDIA's driver)");
}

}  // namespace KILN_FILE
}  // namespace kiln::cuda
