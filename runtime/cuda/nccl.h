// SPDX-License-Identifier: Apache-2.0
// NCCL as a table of functions, opened at run time. Declares what it uses of the library's binary interface
// itself, in the oldest form that every release since 2.14 takes, so that Kiln builds where no header is and
// runs with whatever PyTorch or the toolkit brought; a test compares with nccl.h where there is one.
// Source: NVIDIA Collective Communication Library, API reference; nccl.h of 2.14 and 2.28.
#pragma once

#include <climits>
#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>

#include "runtime/cuda/driver.h"

namespace kiln::nccl {

// --- types, as in nccl.h ---

using Result = int;  ///< ncclResult_t
inline constexpr Result kSuccess = 0, kUnhandledCudaError = 1, kSystemError = 2, kInternalError = 3,
                        kInvalidArgument = 4, kInvalidUsage = 5, kRemoteError = 6, kInProgress = 7;

using Op = int;  ///< ncclRedOp_t
inline constexpr Op kSum = 0, kProduct = 1, kMax = 2, kMin = 3;

using Type = int;  ///< ncclDataType_t
inline constexpr Type kUint8 = 1, kInt32 = 2, kInt64 = 4, kFloat16 = 6, kFloat32 = 7, kFloat64 = 8,
                      kBfloat16 = 9;

struct CommObject;
using Comm = CommObject*;  ///< ncclComm_t

struct UniqueId {  ///< ncclUniqueId
  char internal[128];
};

/// ncclConfig_t of 2.14: later releases have added members at the end, and read as many as `version` has.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = INT_MIN;  ///< undefined
};

/// The functions that Kiln calls. X(member, exported name, result, parameters).
#define KILN_NCCL_FUNCTIONS(X)                                                                      \
  X(get_version, "ncclGetVersion", Result, (int* version))                                          \
  X(get_unique_id, "ncclGetUniqueId", Result, (UniqueId * id))                                      \
  X(comm_init, "ncclCommInitRankConfig", Result,                                                    \
    (Comm * comm, int size, UniqueId id, int rank, Config* config))                                 \
  X(comm_error, "ncclCommGetAsyncError", Result, (Comm comm, Result * error))                       \
  X(comm_finalize, "ncclCommFinalize", Result, (Comm comm))                                         \
  X(comm_destroy, "ncclCommDestroy", Result, (Comm comm))                                           \
  X(comm_abort, "ncclCommAbort", Result, (Comm comm))                                               \
  X(error_string, "ncclGetErrorString", const char*, (Result result))                               \
  X(last_error, "ncclGetLastError", const char*, (Comm comm))                                       \
  X(all_reduce, "ncclAllReduce", Result,                                                            \
    (const void* in, void* out, size_t count, Type type, Op op, Comm comm, cuda::Stream stream))    \
  X(broadcast, "ncclBroadcast", Result,                                                             \
    (const void* in, void* out, size_t count, Type type, int root, Comm comm, cuda::Stream stream)) \
  X(all_gather, "ncclAllGather", Result,                                                            \
    (const void* in, void* out, size_t count, Type type, Comm comm, cuda::Stream stream))           \
  X(reduce_scatter, "ncclReduceScatter", Result,                                                    \
    (const void* in, void* out, size_t count, Type type, Op op, Comm comm, cuda::Stream stream))

/// The library that a group uses. Results of all but `error_string` and `last_error` are checked by it.
struct Library {
#define KILN_NCCL_MEMBER(member, name, result, parameters) result(*member) parameters = nullptr;
  KILN_NCCL_FUNCTIONS(KILN_NCCL_MEMBER)
#undef KILN_NCCL_MEMBER
  std::string path;  ///< its file
  int version = 0;   ///< 10000 * major + 100 * minor + patch
};

/// "2.28.9".
std::string version_text(int version);

/// Opens the library of that file. Null if it cannot be used; `why` then says so in words.
/// It stays open for the life of the process.
std::unique_ptr<const Library> open_library(const std::string& path, std::string& why);

/// The machine's NCCL, which is looked for as all of NVIDIA's libraries (ir/base/cuda_library.h). Null where
/// there is none; `why` then says where it was looked for. Threads: any. Opened once.
const Library* find_library(std::string& why);

}  // namespace kiln::nccl
