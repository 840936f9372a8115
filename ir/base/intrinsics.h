// SPDX-License-Identifier: Apache-2.0
// The table of scalar functions that generated kernels may call: spellings per target, the reference that
// eager code and tests use, and how far a kernel may be from it. Must not know anything of ops or graphs.
#pragma once

#include <span>
#include <string_view>

namespace kiln {

/// One function of floating-point numbers, for f32 and f64. The same rows serve the writers (spelling), the
/// interpreter (reference) and the tests (bounds).
struct Intrinsic {
  std::string_view name;
  int args;                   ///< 1 to 3
  std::string_view cpu;       ///< in CPU kernels, for scalars and vectors, f32 and f64
  std::string_view cuda_f32;  ///< in CUDA kernels
  std::string_view cuda_f64;
  float (*f32)(const float* args);     ///< reference: computed in double, rounded once
  double (*f64)(const double* args);   ///< reference: the C library's
  double ulp_f32;  ///< largest distance of a CPU kernel from the true value, in units in the last place
  double ulp_f64;
  std::string_view doc;
};

/// All rows, sorted by name.
std::span<const Intrinsic> intrinsics();

/// The row of that name. Throws: internal, if there is none.
const Intrinsic& intrinsic(std::string_view name);

}  // namespace kiln
