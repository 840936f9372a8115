// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/nccl.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>

#include "ir/base/dynlib.h"

namespace kiln::nccl {
namespace KILN_FILE {

TEST(Nccl, FindsEveryFunction) {
  std::string why;
  const std::unique_ptr<const Library> library = open_library(KILN_FAKE_LIBNCCL, why);
  ASSERT_NE(library, nullptr) << why;
  EXPECT_EQ(why, "");
  EXPECT_EQ(library->path, KILN_FAKE_LIBNCCL);
  EXPECT_EQ(library->version, 22809);
#define KILN_FOUND(member, name, result, parameters) EXPECT_NE(library->member, nullptr) << name;
  KILN_NCCL_FUNCTIONS(KILN_FOUND)
#undef KILN_FOUND
}

TEST(Nccl, SaysWhyItCannotBeUsed) {
  std::string why;
  EXPECT_EQ(open_library("/nonexistent/libnccl.so.2", why), nullptr);
  EXPECT_EQ(why, "/nonexistent/libnccl.so.2: cannot open shared object file: No such file or directory");
  EXPECT_EQ(open_library(KILN_OLD_LIBNCCL, why), nullptr);
  EXPECT_EQ(why, KILN_OLD_LIBNCCL
            " is no NCCL that can be used: it lacks ncclGetUniqueId, ncclCommInitRankConfig, "
            "ncclCommGetAsyncError, ncclCommFinalize, ncclCommDestroy, ncclCommAbort, ncclGetErrorString, "
            "ncclGetLastError, ncclAllReduce, ncclBroadcast, ncclAllGather, ncclReduceScatter");
  std::string reason;
  const auto opened = DynLib::open(KILN_OLD_LIBNCCL, reason);
  ASSERT_TRUE(opened) << reason;
  *static_cast<int*>(opened->symbol("fake_version")) = 21306;
  EXPECT_EQ(open_library(KILN_OLD_LIBNCCL, why), nullptr);
  EXPECT_EQ(why, KILN_OLD_LIBNCCL " is too old; got NCCL 2.13.6, expected 2.14.0 or newer");
}

// The folder has no library.
TEST(Nccl, SaysWhereItWasLookedFor) {
  ASSERT_EQ(setenv("KILN_CUDA_PATH", "tests/runtime", 1), 0);
  std::string why;
  EXPECT_EQ(find_library(why), nullptr);
  EXPECT_EQ(why, "NCCL is not there: no libnccl.so.2 in tests/runtime (KILN_CUDA_PATH)");
}

TEST(Nccl, Versions) {
  EXPECT_EQ(version_text(2708), "2.7.8");
  EXPECT_EQ(version_text(21400), "2.14.0");
  EXPECT_EQ(version_text(23007), "2.30.7");
}

}  // namespace KILN_FILE
}  // namespace kiln::nccl
