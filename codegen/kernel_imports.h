// SPDX-License-Identifier: Apache-2.0
// What a CPU kernel may leave undefined: memory and math functions of the C library. Whoever maps kernels has
// them. Includes nothing, so that programs for other CPUs can read it, too.
#pragma once

// The compiler makes calls to the first five by itself.
// clang-format off
#define KILN_KERNEL_IMPORTS(X) X(memcpy) X(memmove) X(memset) X(memcmp) X(bcmp) X(acos) X(acosf)          \
  X(acosh) X(acoshf) X(asin) X(asinf) X(asinh) X(asinhf) X(atanhf) X(atan) X(atan2) X(atan2f) X(atanf)    \
  X(atanh) X(cbrt) X(cbrtf) X(ceil) X(ceilf) X(cos) X(cosf) X(cosh) X(coshf) X(erf) X(erfc) X(erfcf)      \
  X(erff) X(exp) X(exp2) X(exp2f) X(expf) X(expm1) X(expm1f) X(floor) X(floorf) X(fma) X(fmaf) X(fmax)    \
  X(fmaxf) X(fmin) X(fminf) X(fmod) X(fmodf) X(ldexp) X(ldexpf) X(lgamma) X(lgamma_r) X(lgammaf) X(log)   \
  X(log10) X(log10f) X(log1p) X(log1pf) X(log2) X(log2f) X(logf) X(nearbyint) X(nearbyintf) X(pow)        \
  X(powf) X(remainder) X(remainderf) X(rint) X(rintf) X(round) X(roundeven) X(roundevenf) X(roundf)       \
  X(sin) X(sincos) X(sincosf) X(sinf) X(sinh) X(sinhf) X(sqrt) X(sqrtf) X(tan) X(tanf) X(tanh) X(tanhf)   \
  X(tgamma) X(tgammaf) X(trunc) X(truncf)
// clang-format on
