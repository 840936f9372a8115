// SPDX-License-Identifier: Apache-2.0
// The side of libkiln_jit.so that lives in Kiln: finds and opens it, says how to compile, runs the threads.
// Must not include LLVM, and must not open the library before there is something to compile.
#include "codegen/compile_clang.h"

#include <algorithm>

#include "codegen/clang/jit_abi.h"
#include "codegen/kernel_imports.h"
#include "codegen/team.h"
#include "ir/base/dynlib.h"
#include "ir/base/error.h"
#include "ir/base/log.h"
#include "ir/base/options.h"

namespace kiln {

namespace {

#ifndef KILN_CLANG_VERSION
#define KILN_CLANG_VERSION "none"
#endif
constexpr std::string_view kClangVersion = KILN_CLANG_VERSION;

#define KILN_NAME(name) #name,
constexpr std::string_view kImports[] = {KILN_KERNEL_IMPORTS(KILN_NAME)};
#undef KILN_NAME

jit::Bytes bytes_of(std::string_view s) { return {s.data(), s.size()}; }
std::string_view view_of(const jit::Bytes& b) { return {b.data, b.size}; }

// ---- the library ----

struct OpenedJit {
  DynLib library;
  const jit::Api* api = nullptr;
};

OpenedJit open_jit() {
  KILN_CHECK(
      kClangVersion != "none", unsupported,
      "cpu compiler: this build of Kiln has no CPU compiler (configure with -DKILN_CPU_JIT=ON, or run where "
      "the kernels are in the cache already)");
  static const char anchor = 0;
  std::string path, tried;
  std::optional<DynLib> library = open_library("KILN_JIT_LIBRARY", "libkiln_jit.so", &anchor, path, tried);
  if (!library)
    throw Error(
        ErrorKind::unsupported,
        fmt::format(
            "cpu compiler: libkiln_jit.so cannot be opened; tried{}\n(build the target kiln_jit, or set "
            "KILN_JIT_LIBRARY to its path)",
            tried));
  const auto get = reinterpret_cast<jit::GetApiFn>(library->symbol(jit::kEntryPoint));
  const jit::Api* api = get ? get() : nullptr;
  KILN_CHECK(api && api->abi_version == jit::kAbiVersion && api->version == kClangVersion, unsupported,
             "cpu compiler: {} belongs to another build of Kiln; got version {} with {}, expected {} with "
             "clang {} "
             "(rebuild it, or unset KILN_JIT_LIBRARY)",
             path, api ? api->abi_version : 0, api ? fmt::format("clang {}", api->version) : "no compiler",
             jit::kAbiVersion, kClangVersion);
  log(LogLevel::debug, "opened {} (clang {})", path, api->version);
  return {std::move(*library), api};
}

const jit::Api& jit_api() {
  // A failed attempt is not remembered: the switch may be set right and the call made again.
  static const OpenedJit jit = open_jit();
  return *jit.api;
}

// ---- compile ----

std::vector<std::string> common_flags(const CpuTarget& target) {
  std::vector<std::string> flags = {
      // No auto-vectorizer: kernels are written in vectors, and a source that wants it says so in its flags.
      // It
      // would cost half as much again to compile, mostly for the tails of loops.
      "-triple", target.triple, "-std=c++20", "-O3",
      // One image is mapped anywhere and shows nothing but its kernels.
      "-mrelocation-model", "pic", "-pic-level", "2", "-fvisibility=hidden",
      // Contraction is the schedule's choice, made in the source; NaN and Inf behave as IEEE says.
      "-ffp-contract=off", "-nostdsysteminc", "-nobuiltininc", "-fno-rtti", "-Wno-unknown-pragmas",
      "-target-cpu", target.cpu, fmt::format("-DKILN_VECTOR_BYTES={}", target.vector_bytes)};
  for (size_t at = 0; at < target.features.size();) {
    const size_t end = std::min(target.features.find(',', at), target.features.size());
    flags.insert(flags.end(), {"-target-feature", target.features.substr(at, end - at)});
    at = end + 1;
  }
  // Without it the AVX-512 levels use 256-bit vectors.
  if (target.vector_bytes == 64) flags.push_back("-mprefer-vector-width=512");
  return flags;
}

std::string take_output(const jit::Api& api, jit::Output& output, std::string& log_text) {
  std::string bytes(view_of(output.bytes));
  log_text = view_of(output.log);
  api.release(&output);
  return bytes;
}

std::string compile_one(const jit::Api& api, const CpuSource& source, const std::vector<std::string>& common,
                        size_t together) {
  std::vector<const char*> args;
  for (const std::string& f : common) args.push_back(f.c_str());
  for (const std::string& f : source.flags) args.push_back(f.c_str());
  std::vector<jit::File> prelude;
  for (const PreludeFile& f : prelude_files(source.prelude))
    prelude.push_back({bytes_of(f.name), bytes_of(f.text)});
  const bool first = includes_prelude_first(source.text, source.prelude);
  const jit::CompileInput input = {{bytes_of(source.name), bytes_of(source.text)},
                                   prelude.data(),
                                   prelude.size(),
                                   first ? prelude[0].name : jit::Bytes{},
                                   together,
                                   args.data(),
                                   args.size()};
  jit::Output output{};
  const int rc = api.compile(&input, &output);
  std::string log_text;
  std::string object = take_output(api, output, log_text);
  if (rc != 0)
    throw Error(ErrorKind::compile,
                fmt::format("cpu compiler: {} does not compile; its source is kept in {}{}\n{}", source.name,
                            keep_failed_source(source.name, source.text, source.lines),
                            lines_text(source.lines), log_text));
  if (!log_text.empty()) log(LogLevel::debug, "{}: {}", source.name, log_text);
  return object;
}

}  // namespace

std::string compiler_key(const CpuTarget& target, Prelude prelude) {
  std::string key = fmt::format("clang {}\n{}\n", kClangVersion, target.str());
  for (const std::string& f : common_flags(target)) key += f + ' ';
  return key + fmt::format("\nprelude {}\n", prelude_digest(prelude));
}

void compile_each(std::span<const CpuSource> sources, const CpuTarget& target, int threads,
                  const std::function<bool(size_t)>& wanted,
                  const std::function<void(size_t, std::string&&)>& done) {
  const std::vector<std::string> flags = common_flags(target);
  in_team(sources.size(), threads, [&](size_t i) {
    if (wanted(i)) done(i, compile_one(jit_api(), sources[i], flags, sources.size()));
  });
}

std::vector<std::string> compile_objects(std::span<const CpuSource> sources, const CpuTarget& target,
                                         int threads) {
  std::vector<std::string> objects(sources.size());
  compile_each(
      sources, target, threads, [](size_t) { return true; },
      [&](size_t i, std::string&& o) { objects[i] = std::move(o); });
  return objects;
}

std::string link_shared(std::span<const std::string> objects, std::span<const std::string> names) {
  const jit::Api& api = jit_api();
  std::vector<jit::Bytes> object_bytes, exports, imports;
  for (const std::string& o : objects) object_bytes.push_back(bytes_of(o));
  for (const std::string& n : names) exports.push_back(bytes_of(n));
  for (const std::string_view i : kImports) imports.push_back(bytes_of(i));
  const jit::LinkInput input = {object_bytes.data(), object_bytes.size(), exports.data(),
                                exports.size(),      imports.data(),      imports.size()};
  jit::Output output{};
  const int rc = api.link(&input, &output);
  std::string log_text;
  std::string image = take_output(api, output, log_text);
  KILN_CHECK(rc == 0, compile, "cpu linker: {} objects with {} kernels do not link\n{}", objects.size(),
             names.size(), log_text);
  return image;
}

}  // namespace kiln
