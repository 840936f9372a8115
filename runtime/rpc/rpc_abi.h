// SPDX-License-Identifier: Apache-2.0
// The C interface of libkiln_rpc.so, the one library that maps gRPC. Plain data only: both sides may be built
// by different compilers, and no exception crosses. Change kAbiVersion with any change here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kiln::rpc {

inline constexpr uint32_t kAbiVersion = 2;
/// Name of the one exported function, a `GetApiFn`.
inline constexpr const char* kEntryPoint = "kiln_rpc_api";

extern "C" {

/// Bytes that somebody else owns; not zero-terminated.
struct Bytes {
  const char* data;
  size_t size;
};

/// What a call came to.
enum Outcome : int32_t {
  kDone,         ///< a get or a wait found `bytes`
  kNothing,      ///< a get or a wait found nothing
  kInvalid,      ///< the caller's fault; `bytes` says which
  kComm,         ///< the store or a rank cannot be reached; `bytes` says which
  kUnsupported,  ///< `bytes` says why
};

/// What a call made. Give it back with Api::release.
struct Output {
  Bytes bytes;     ///< a value; lost ranks, as int32_t; or the text of an error
  int64_t number;  ///< of serve(), the port; of add(), the sum
  void* owner;
};

enum CallKind : int32_t { kSet, kSetOnce, kGet, kWait, kAdd, kErase, kLost, kLeave };

/// One call of kiln::Store.
struct Call {
  CallKind kind;
  Bytes key;
  Bytes value;     ///< of wait(), the known one
  int64_t number;  ///< of add()
  double seconds;  ///< of wait()
};

/// Who joins which world where.
struct Place {
  Bytes address;  ///< of serve(), to bind; empty: all
  int32_t port;
  int32_t rank;
  int32_t size;
  double seconds;  ///< of connect()
};

struct Handle;

/// The functions of the library. Those that return an Outcome leave its text in `out`.
struct Api {
  uint32_t abi_version;
  Outcome (*serve)(const Place* place, Handle** handle, Output* out);
  Outcome (*connect)(const Place* place, Handle** handle, Output* out);
  /// Threads: any number at once.
  Outcome (*call)(Handle* handle, const Call* call, Output* out);
  /// No call may be running.
  void (*close)(Handle* handle);
  void (*release)(Output* out);
};

typedef const Api* (*GetApiFn)(void);

}  // extern "C"

}  // namespace kiln::rpc
