// SPDX-License-Identifier: Apache-2.0
// Generated C++ -> objects -> one shared object, by clang and lld in this process. The library that maps them
// (libkiln_jit.so) is opened on the first call; a warm start never makes one.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "codegen/cpu_target.h"
#include "codegen/failed_source.h"
#include "codegen/prelude_files.h"

namespace kiln {

/// One generated source. It may #include the first file of its prelude, "kiln_cpu.h", and nothing else. Loops
/// are vectorized and contracted only where the text says so (vector types, #pragma clang loop
/// vectorize(enable), __builtin_fma); constant and other loops may be unrolled, and "-fno-unroll-loops"
/// halves the compile time of a source that does not need it.
struct CpuSource {
  std::string name;  ///< a file name without folders, for diagnostics and debuggers: "gelu_linear.cpp"
  std::string text;
  std::vector<std::string> flags;  ///< clang -cc1 flags added to the common ones, e.g. "-ffp-contract=fast"
  Prelude prelude = Prelude::cpu;
  KernelLines lines = {};  ///< of its kernels, for errors; no part of the key
};

/// All that decides the object of a source besides its own text and flags: target, compiler version, common
/// flags and prelude. Found without LLVM; belongs in the key of whatever is compiled.
std::string compiler_key(const CpuTarget& target, Prelude prelude = Prelude::cpu);

/// One object (ELF bytes) per source, in order, compiled by up to `threads` threads. Same input, same bytes.
/// Throws: unsupported, when there is no compiler library (the message says where it was looked for);
/// compile, with the log, the file the source was kept in, and the user's lines.
std::vector<std::string> compile_objects(std::span<const CpuSource> sources, const CpuTarget& target,
                                         int threads);

/// As compile_objects, but asks before each source whether it is `wanted`, and hands over each object as soon
/// as it is made, both on the thread that makes it.
void compile_each(std::span<const CpuSource> sources, const CpuTarget& target, int threads,
                  const std::function<bool(size_t)>& wanted,
                  const std::function<void(size_t, std::string&&)>& done);

/// Links objects to one ELF shared object that exports exactly `names`. It may import memory and math
/// functions of the C library only. Throws: compile, naming undefined or missing symbols.
std::string link_shared(std::span<const std::string> objects, std::span<const std::string> names);

}  // namespace kiln
