// SPDX-License-Identifier: Apache-2.0
#include "codegen/cuda_target.h"

#include <gtest/gtest.h>

#include "codegen/target.h"
#include "ir/base/error.h"

namespace kiln {
namespace KILN_FILE {

TEST(CudaTarget, NamesAnArchitectureAndItsLimits) {
  const CudaTarget t = parse_cuda_target("sm_90a");
  EXPECT_EQ(t.str(), "sm_90a");
  EXPECT_EQ(t.capability, 90);
  EXPECT_EQ(t.shared_per_block, 227 << 10);
  EXPECT_EQ(t.threads_per_sm, 2048);
  EXPECT_EQ(parse_cuda_target("sm_100f").capability, 100);
  EXPECT_EQ(parse_cuda_target("sm_120").shared_per_block, 99 << 10);
  EXPECT_NE(parse_cuda_target("sm_90"), t);
}

TEST(CudaTarget, SaysWhatItDoesNotKnow) {
  for (const char* name : {"sm_", "sm_75", "sm_80a", "sm_90f", "sm_9x", "host", "sm_90aa"}) {
    try {
      parse_cuda_target(name);
      ADD_FAILURE() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::invalid);
      EXPECT_NE(std::string(e.what()).find(std::string("cuda target: unknown architecture; got '") + name +
                                           "', expected one of sm_80, sm_86"),
                std::string::npos)
          << e.what();
    }
  }
}

TEST(Target, IsACpuOrAnArchitecture) {
  EXPECT_EQ(std::get<CpuTarget>(target_named("x86-64-v3")), parse_target("x86-64-v3"));
  EXPECT_EQ(str(target_named("sm_80")), "sm_80");
  EXPECT_EQ(cuda_target(target_named("host")), nullptr);
  EXPECT_THROW(target_named("sm_1"), Error);
}

}  // namespace KILN_FILE
}  // namespace kiln
