// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/builtins.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace kiln {
namespace KILN_FILE {

void check_contract(const CudaModule& m) {
  for (const CudaKernel& k : m.kernels) {
    const std::string bytes = std::to_string(8 * (k.buffer_count + k.dim_count + 1));
    EXPECT_THAT(m.cubin, ::testing::HasSubstr(".visible .entry " + k.symbol + "("));
    EXPECT_THAT(m.cubin, ::testing::HasSubstr(".b8 " + k.symbol + "_param_0[" + bytes + "]"));
    const size_t at = m.cubin.find(".entry " + k.symbol + "(");
    const size_t threads = m.cubin.find(".maxntid ", at);
    EXPECT_EQ(m.cubin.compare(threads, 9 + std::to_string(k.threads).size() + 1,
                              ".maxntid " + std::to_string(k.threads) + ","),
              0);
    EXPECT_THAT(m.source, ::testing::HasSubstr(
                              "KILN_CUDA_KERNEL(" + k.symbol + ", " + std::to_string(k.threads) + ", " +
                              std::to_string(k.buffer_count) + ", " + std::to_string(k.dim_count) + ")"));
  }
}

/// The machine's text takes the parameter block that launches give, and has the threads that they have.
TEST(CudaBuiltins, TheTextForGpusKeepsTheContract) {
  ASSERT_EQ(cuda_builtins().kernels.size(), 3u);
  check_contract(cuda_builtins());
  ASSERT_EQ(cuda_cast().kernels.size(), 1u);
  check_contract(cuda_cast());
}

#ifdef KILN_PTXAS
TEST(CudaBuiltins, TheToolkitTranslatesThem) {
  const std::string path = ::testing::TempDir() + "/kiln_builtins.ptx";
  for (const CudaModule& m : {cuda_builtins(), cuda_cast()}) {
    std::ofstream(path) << m.cubin;
    for (const char* arch : {"sm_80", "sm_90a", "sm_100a", "sm_120"})
      EXPECT_EQ(std::system((std::string(KILN_PTXAS) + " -arch=" + arch + " -o /dev/null " + path).c_str()),
                0);
  }
}
#endif

}  // namespace KILN_FILE
}  // namespace kiln
