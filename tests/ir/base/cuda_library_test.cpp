// SPDX-License-Identifier: Apache-2.0
#include "ir/base/cuda_library.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "ir/base/options.h"

namespace kiln {
namespace KILN_FILE {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CudaLibrary : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("kiln_cuda_library_" + std::to_string(getpid()));
    fs::create_directories(root_);
    set_option("KILN_CUDA_PATH", root_.string());
  }
  void TearDown() override {
    set_option("KILN_CUDA_PATH", "");
    fs::remove_all(root_);
  }
  void make(const std::string& file, const std::string& bytes = "") {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << bytes;
  }
  fs::path root_;
};

TEST_F(CudaLibrary, LooksIntoAToolkitAndPipsPackages) {
  make("lib64/libnvrtc.so.13");
  make("lib64/linking/libcuda.so");
  make("nvidia/nccl/lib/libnccl.so.2");
  make("nvidia/cu13/lib/libnvrtc.so.13");
  EXPECT_THAT(cuda_library_folders(),
              ElementsAre(root_.string(), (root_ / "lib64").string(), (root_ / "nvidia/cu13/lib").string(),
                          (root_ / "nvidia/nccl/lib").string()));
}

TEST_F(CudaLibrary, OpensTheFirstThatIsOne) {
  // A file that is no library is passed over, and named if nothing else is found.
  make("lib64/libm.so.6", "no library");
  std::string path, tried;
  EXPECT_FALSE(open_cuda_library({"libm.so.6"}, path, tried));
  EXPECT_THAT(tried, HasSubstr("no libm.so.6 in " + root_.string()));
  EXPECT_THAT(tried, HasSubstr("(KILN_CUDA_PATH)\n  " + (root_ / "lib64/libm.so.6").string()));
  set_option("KILN_CUDA_PATH", "");
  EXPECT_TRUE(open_cuda_library({"libm.so.6"}, path, tried));
  EXPECT_EQ(path, "libm.so.6");
}

TEST_F(CudaLibrary, NamesAllThatItLookedFor) {
  std::string path, tried;
  EXPECT_FALSE(open_cuda_library({"libnone.so.2", "libnone.so.1"}, path, tried));
  EXPECT_EQ(tried, "no libnone.so.2 or libnone.so.1 in " + root_.string() + " (KILN_CUDA_PATH)");
  EXPECT_EQ(path, "");
}

}  // namespace KILN_FILE
}  // namespace kiln
