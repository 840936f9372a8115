// SPDX-License-Identifier: Apache-2.0
// For tests of the prelude: compiles a few lines that use it, for this machine, and calls them.
#pragma once

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "codegen/compile_clang.h"
#include "ir/base/intrinsics.h"
#include "runtime/image.h"

namespace kiln {
/// So that a failing case prints its name and not its bytes.
inline void PrintTo(const Intrinsic& f, std::ostream* out) { *out << f.name; }
}  // namespace kiln

namespace kiln::testing {

/// A source around the body of a kernel of that name; its buffers are `b`, its dims `d`.
inline std::string kernel_text(const std::string& name, const std::string& body) {
  return fmt::format(
      "KILN_KERNEL void {}(void* const* b, const int64_t* d, int64_t, int64_t, void*) {{\n{}\n}}\n",
      name, body);
}

/// Kernels of one source, loaded.
inline LoadedImage build_kernels(const std::string& text, const std::vector<std::string>& names) {
  const std::vector<CpuSource> sources = {{"prelude_test.cpp", "#include \"kiln_cpu.h\"\n" + text, {}}};
  return LoadedImage(link_shared(compile_objects(sources, host_target(), 1), names));
}

/// Distance of `got` from the true value `want` in units in the last place of the format of T; 0 for two
/// NaNs or equal infinities; infinite for a NaN, infinity or sign of zero that is wrong.
template <typename T>
double ulp_distance(T got, long double want) {
  constexpr int kDigits = std::numeric_limits<T>::digits, kMinExp = std::numeric_limits<T>::min_exponent;
  const T rounded = static_cast<T>(want);
  if (std::isnan(got) || std::isnan(rounded))
    return std::isnan(got) && std::isnan(rounded) ? 0 : INFINITY;
  if (std::isinf(got) && std::isinf(rounded)) return got == rounded ? 0 : INFINITY;
  if (got == 0 && rounded == 0) return std::signbit(got) == std::signbit(rounded) ? 0 : INFINITY;
  if (std::isinf(got)) got = std::copysign(std::numeric_limits<T>::max(), got);  // overflow one step early
  if (std::isinf(rounded)) want = std::copysign(std::ldexp(1.0L, std::numeric_limits<T>::max_exponent), want);
  int exponent;
  std::frexp(want, &exponent);
  exponent = std::max(exponent, kMinExp);
  return static_cast<double>(std::fabs(got - want) / std::ldexp(1.0L, exponent - kDigits));
}

}  // namespace kiln::testing
