// SPDX-License-Identifier: Apache-2.0
// What runtime/cuda/nccl.h declares for itself, against NCCL's own header and, where it can be opened, the
// library beside it: without a device that tells its version and makes an identity.
#include <cuda.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

#include "ir/base/cuda_library.h"
#include "runtime/cuda/nccl.h"
#include "tests/runtime/cuda/own_types.h"

namespace kiln::cuda {

KILN_SAME(ncclComm, nccl::CommObject)
KILN_SAME(ncclUniqueId, nccl::UniqueId)
KILN_SAME(ncclConfig_t, nccl::Config)
KILN_SAME(CUstream_st, StreamObject)

}  // namespace kiln::cuda

namespace kiln::nccl {
namespace KILN_FILE {

using cuda::Alike;
using cuda::Own;

constexpr std::pair<int, int> kNumbers[] = {
    {kSuccess, ncclSuccess},
    {kUnhandledCudaError, ncclUnhandledCudaError},
    {kSystemError, ncclSystemError},
    {kInternalError, ncclInternalError},
    {kInvalidArgument, ncclInvalidArgument},
    {kInvalidUsage, ncclInvalidUsage},
    {kRemoteError, ncclRemoteError},
    {kInProgress, ncclInProgress},
    {kSum, ncclSum},
    {kProduct, ncclProd},
    {kMax, ncclMax},
    {kMin, ncclMin},
    {kUint8, ncclUint8},
    {kInt32, ncclInt32},
    {kInt64, ncclInt64},
    {kFloat16, ncclFloat16},
    {kFloat32, ncclFloat32},
    {kFloat64, ncclFloat64},
    {kBfloat16, ncclBfloat16},
};

TEST(NcclAbi, NumbersAreTheHeaders) {
  for (const auto& [ours, theirs] : kNumbers) EXPECT_EQ(ours, theirs);
  static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
}

// The library reads the members of the version that it is told, which are the first of today's.
TEST(NcclAbi, TheOldConfigIsTheBeginningOfTheNewOne) {
  static_assert(offsetof(Config, size) == offsetof(ncclConfig_t, size));
  static_assert(offsetof(Config, magic) == offsetof(ncclConfig_t, magic));
  static_assert(offsetof(Config, version) == offsetof(ncclConfig_t, version));
  static_assert(offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const Config ours;
  EXPECT_EQ(ours.magic, theirs.magic);
  EXPECT_EQ(ours.blocking, theirs.blocking);
  EXPECT_EQ(ours.version, static_cast<unsigned>(NCCL_VERSION(2, 14, 0)));
  EXPECT_LE(ours.size, theirs.size);
}

#define KILN_CHECK_FUNCTION(member, theirs)                                                               \
  static_assert(Alike<decltype(Library::member), typename Own<decltype(&theirs)>::type>::value, #theirs); \
  EXPECT_EQ(exported(#member), #theirs);                                                                  \
  ++checked;

std::string exported(const std::string& member) {
#define KILN_NAME(m, name, result, parameters) \
  if (member == #m) return name;
  KILN_NCCL_FUNCTIONS(KILN_NAME)
#undef KILN_NAME
  return "";
}

TEST(NcclAbi, FunctionsAreTheHeaders) {
  int checked = 0, listed = 0;
  KILN_CHECK_FUNCTION(get_version, ncclGetVersion)
  KILN_CHECK_FUNCTION(get_unique_id, ncclGetUniqueId)
  KILN_CHECK_FUNCTION(comm_init, ncclCommInitRankConfig)
  KILN_CHECK_FUNCTION(comm_error, ncclCommGetAsyncError)
  KILN_CHECK_FUNCTION(comm_finalize, ncclCommFinalize)
  KILN_CHECK_FUNCTION(comm_destroy, ncclCommDestroy)
  KILN_CHECK_FUNCTION(comm_abort, ncclCommAbort)
  KILN_CHECK_FUNCTION(error_string, ncclGetErrorString)
  KILN_CHECK_FUNCTION(last_error, ncclGetLastError)
  KILN_CHECK_FUNCTION(all_reduce, ncclAllReduce)
  KILN_CHECK_FUNCTION(broadcast, ncclBroadcast)
  KILN_CHECK_FUNCTION(all_gather, ncclAllGather)
  KILN_CHECK_FUNCTION(reduce_scatter, ncclReduceScatter)
#define KILN_COUNT(member, name, result, parameters) ++listed;
  KILN_NCCL_FUNCTIONS(KILN_COUNT)
#undef KILN_COUNT
  EXPECT_EQ(checked, listed);
}

TEST(NcclAbi, TheLibraryAnswers) {
  std::string why;
  const Library* library = find_library(why);
  if (!library) GTEST_SKIP() << why;
  EXPECT_GE(library->version, 21400) << library->path;
  UniqueId a, b;
  ASSERT_EQ(library->get_unique_id(&a), kSuccess);
  ASSERT_EQ(library->get_unique_id(&b), kSuccess);
  EXPECT_NE(std::string(a.internal, sizeof a.internal), std::string(b.internal, sizeof b.internal));
  EXPECT_STREQ(library->error_string(kSuccess), "no error");
}

}  // namespace KILN_FILE
}  // namespace kiln::nccl
