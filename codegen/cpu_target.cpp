// SPDX-License-Identifier: Apache-2.0
#include "codegen/cpu_target.h"

#include <algorithm>
#include <array>
#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "ir/base/error.h"

namespace kiln {

namespace {

// Register state that the operating system must save for a feature to be usable (bits of XCR0).
constexpr uint64_t kAlways = 0, kYmm = 0x6, kZmm = 0xe6;

enum Reg : uint8_t { eax, ebx, ecx, edx };

// One instruction-set feature. `level`: the psABI level (1..4) that includes it, 5 if none does.
struct Feature {
  std::string_view name;  // LLVM's
  uint32_t leaf, subleaf;
  Reg reg;
  uint8_t bit;
  uint64_t state;
  int level;
};

// Sorted by name. Source: Intel SDM vol. 2A, CPUID; x86-64 psABI, table of levels.
constexpr Feature kFeatures[] = {
    {"avx", 1, 0, ecx, 28, kYmm, 3},
    {"avx2", 7, 0, ebx, 5, kYmm, 3},
    {"avx512bf16", 7, 1, eax, 5, kZmm, 5},
    {"avx512bitalg", 7, 0, ecx, 12, kZmm, 5},
    {"avx512bw", 7, 0, ebx, 30, kZmm, 4},
    {"avx512cd", 7, 0, ebx, 28, kZmm, 4},
    {"avx512dq", 7, 0, ebx, 17, kZmm, 4},
    {"avx512f", 7, 0, ebx, 16, kZmm, 4},
    {"avx512fp16", 7, 0, edx, 23, kZmm, 5},
    {"avx512ifma", 7, 0, ebx, 21, kZmm, 5},
    {"avx512vbmi", 7, 0, ecx, 1, kZmm, 5},
    {"avx512vbmi2", 7, 0, ecx, 6, kZmm, 5},
    {"avx512vl", 7, 0, ebx, 31, kZmm, 4},
    {"avx512vnni", 7, 0, ecx, 11, kZmm, 5},
    {"avx512vpopcntdq", 7, 0, ecx, 14, kZmm, 5},
    {"avxvnni", 7, 1, eax, 4, kYmm, 5},
    {"bmi", 7, 0, ebx, 3, kAlways, 3},
    {"bmi2", 7, 0, ebx, 8, kAlways, 3},
    {"f16c", 1, 0, ecx, 29, kYmm, 3},
    {"fma", 1, 0, ecx, 12, kYmm, 3},
    {"gfni", 7, 0, ecx, 8, kAlways, 5},
    {"lzcnt", 0x80000001, 0, ecx, 5, kAlways, 3},
    {"movbe", 1, 0, ecx, 22, kAlways, 3},
    {"popcnt", 1, 0, ecx, 23, kAlways, 2},
    {"sse3", 1, 0, ecx, 0, kAlways, 2},
    {"sse4.1", 1, 0, ecx, 19, kAlways, 2},
    {"sse4.2", 1, 0, ecx, 20, kAlways, 2},
    {"ssse3", 1, 0, ecx, 9, kAlways, 2},
};
constexpr size_t kCount = std::size(kFeatures);
using FeatureSet = std::array<bool, kCount>;

bool covers(const FeatureSet& set, int level) {
  for (size_t i = 0; i < kCount; ++i)
    if (kFeatures[i].level <= level && !set[i]) return false;
  return true;
}

CpuTarget x86_target(const FeatureSet& set) {
  CpuTarget t;
  t.triple = "x86_64-unknown-linux-gnu";
  t.cpu = "x86-64";
  for (int level = 2; level <= 4; ++level)
    if (covers(set, level)) t.cpu = fmt::format("x86-64-v{}", level);
  for (size_t i = 0; i < kCount; ++i)
    t.features += fmt::format("{}{}{}", i ? "," : "", set[i] ? '+' : '-', kFeatures[i].name);
  t.has_fma = t.has("fma");
  const bool avx512 =
      t.has("avx512f") && t.has("avx512bw") && t.has("avx512dq") && t.has("avx512vl") && t.has_fma;
  t.vector_bytes = avx512 ? 64 : t.has("avx2") ? 32 : 16;
  return t;
}

// NEON, which they all have. Code for one runs on every other, so there is nothing to detect.
CpuTarget aarch64_target() { return {"aarch64-unknown-linux-gnu", "generic", "+neon", 16, true}; }

#if defined(__x86_64__)
uint64_t enabled_state() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  constexpr uint32_t kOsxsave = 1u << 27;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & kOsxsave)) return 0;
  uint32_t lo = 0, hi = 0;
  __asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  return uint64_t{hi} << 32 | lo;
}

CpuTarget detect_host() {
  const uint64_t state = enabled_state();
  FeatureSet set{};
  for (size_t i = 0; i < kCount; ++i) {
    const Feature& f = kFeatures[i];
    uint32_t r[4] = {};
    // __get_cpuid_count answers 0 for leaves the CPU does not have; so does the hardware for unknown
    // subleaves.
    if (!__get_cpuid_count(f.leaf, f.subleaf, &r[eax], &r[ebx], &r[ecx], &r[edx])) continue;
    set[i] = (r[f.reg] >> f.bit & 1) && (state & f.state) == f.state;
  }
  return x86_target(set);
}
#elif defined(__aarch64__)
CpuTarget detect_host() { return aarch64_target(); }
#else
CpuTarget detect_host() {
  throw Error(ErrorKind::unsupported,
              "cpu target: no code generator for this architecture; x86-64 and aarch64 have one");
}
#endif

}  // namespace

bool CpuTarget::has(std::string_view name) const {
  return fmt::format(",{},", features).find(fmt::format(",+{},", name)) != std::string::npos;
}

std::string CpuTarget::str() const { return fmt::format("{} {} {}", triple, cpu, features); }

const CpuTarget& host_target() {
  static const CpuTarget host = detect_host();
  return host;
}

CpuTarget parse_target(std::string_view name) {
  if (name == "host") return host_target();
  if (name == "aarch64") return aarch64_target();
  const int level = name == "x86-64-v3" ? 3 : name == "x86-64-v4" ? 4 : 0;
  KILN_CHECK(level != 0, invalid,
             "cpu target: unknown target; got '{}', expected host, x86-64-v3, x86-64-v4 or aarch64", name);
  FeatureSet set{};
  for (size_t i = 0; i < kCount; ++i) set[i] = kFeatures[i].level <= level;
  return x86_target(set);
}

void check_runs_here(const CpuTarget& target) {
  const CpuTarget& host = host_target();
  KILN_CHECK(target.triple == host.triple, unsupported,
             "cpu target: code for {} cannot run on {} (set KILN_TARGET=host)", target.triple, host.triple);
  std::string missing;
  for (size_t at = 0; at < target.features.size();) {
    const size_t end = std::min(target.features.find(',', at), target.features.size());
    const std::string_view feature = std::string_view(target.features).substr(at, end - at);
    if (feature.starts_with('+') && !host.has(feature.substr(1)))
      missing += fmt::format(" {}", feature.substr(1));
    at = end + 1;
  }
  KILN_CHECK(missing.empty(), unsupported,
             "cpu target: this CPU cannot run code made for {}; it lacks{} (set KILN_TARGET=host)",
             target.cpu, missing);
}

}  // namespace kiln
