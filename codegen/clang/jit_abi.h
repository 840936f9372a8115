// SPDX-License-Identifier: Apache-2.0
// The C interface of libkiln_jit.so, the one library that maps LLVM, clang and lld. Plain data only: both
// sides may be built by different compilers, and no exception crosses. Change kAbiVersion with any
// change here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kiln::jit {

inline constexpr uint32_t kAbiVersion = 3;
/// Name of the one exported function, a `GetApiFn`.
inline constexpr const char* kEntryPoint = "kiln_jit_api";

extern "C" {

/// Bytes that somebody else owns; not zero-terminated.
struct Bytes {
  const char* data;
  size_t size;
};

/// A file of the compiler's in-memory file system.
struct File {
  Bytes name;
  Bytes text;
};

/// One C++ source to compile to an object.
struct CompileInput {
  File source;        ///< its name appears in diagnostics and in the object
  const File* files;  ///< what it may #include; there is nothing else
  size_t file_count;
  Bytes prefix;             ///< one of `files` to precompile, as the source includes it first; or empty
  size_t together;          ///< sources that are being compiled with these arguments, this one included
  const char* const* args;  ///< clang -cc1 arguments, without input and output
  size_t arg_count;
};

/// Objects to link to one ELF shared object.
struct LinkInput {
  const Bytes* objects;
  size_t object_count;
  const Bytes* exports;  ///< the only symbols that stay visible; each must be defined
  size_t export_count;
  const Bytes* imports;  ///< the only symbols that may stay undefined
  size_t import_count;
};

/// What a call made. `log` holds errors and warnings as text. Give it back with Api::release.
struct Output {
  Bytes bytes;
  Bytes log;
  void* owner;
};

/// The functions of the library. compile and link return 0 on success.
struct Api {
  uint32_t abi_version;
  const char* version;  ///< of clang and lld, e.g. "19.1.7"
  /// Threads: any number at once.
  int (*compile)(const CompileInput* input, Output* output);
  /// Threads: any; one link runs at a time, and no compile meanwhile.
  int (*link)(const LinkInput* input, Output* output);
  void (*release)(Output* output);
};

typedef const Api* (*GetApiFn)(void);

}  // extern "C"

}  // namespace kiln::jit
