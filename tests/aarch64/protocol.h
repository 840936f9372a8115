// SPDX-License-Identifier: Apache-2.0
// What a test tells the runner of another CPU, on its standard input, and what that answers. Numbers are
// int64_t, blobs a size and as many bytes. Includes nothing of Kiln: the runner has no dependencies.
//
//   load  image blob, symbol count, symbol blobs               answer: 0
//         images are numbered from 0, in the order of their loads
//   run   image (-1: none)                                     answer: 0, and the bytes of each segment that
//         segment count; for each: size, address modulo 64,            is wanted back
//           whether it is wanted back, content blob (or an
//           empty one: then it is filled with 0xff)
//         buffer count; for each: segment (-1: null), offset
//         scratch bytes
//         launch count; for each: symbol of the image or a
//           builtin, tasks, buffer count, buffers, as many bytes
//           from where each begins, dim count, dims
//         guard count, guards (buffers), launches before the
//           guarded ones
//
// Any other answer is a blob that says what is wrong.
#pragma once

#include <cstdint>

namespace kiln::emulated {

inline constexpr int64_t kLoad = 1, kRun = 2;
inline constexpr int64_t kAlignment = 64;
/// Builtins of runtime/blas.h, in place of a symbol.
inline constexpr int64_t kCopy = -1, kFillZero = -2;
/// What a guard holds where all is well (ir/plan.h).
inline constexpr int64_t kGuardHolds = INT64_MIN;

}  // namespace kiln::emulated
