// SPDX-License-Identifier: Apache-2.0
// Library matmuls on fixed tiles, and the runtime's builtin kernels.
// The library is always called single-threaded: the tiles, and so every bit, depend on the shape alone.
#pragma once

#include <cstdint>
#include <string_view>

#include "ir/base/dtype.h"
#include "ir/kernel_image.h"

namespace kiln {

/// A batch of matrices in memory. Strides count elements; any sign, and 0 repeats.
struct MatrixView {
  void* data = nullptr;
  int64_t batch_stride = 0, row_stride = 0, col_stride = 0;
};

/// c[i] = a[i] b[i] for `batch` matrices, in parallel on the shared pool.
/// bf16 and f16 accumulate in f32 and round once; integers wrap. `c` must not overlap itself or the operands.
/// Shapes: a [m,k], b [k,n], c [m,n]; any may be 0 (k = 0 gives zeros).
/// Tiles are those of matmul_tile() (ir/base/matmul_tile.h).
/// Throws: unsupported, for bool; device, without memory for copies of operands with odd strides.
void matmul(DType dtype, int64_t batch, int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b,
            MatrixView c);

/// The builtin kernel of that name, or null.
/// "blis_sgemm", "blis_dgemm": buffers {A, B, C}, dims {batch, m, n, k, bsA, rsA, csA, bsB, rsB, csB, bsC,
/// rsC,
///   csC, tile_m, tile_n}, tasks batch * ceil(m/tile_m) * ceil(n/tile_n), tiles row by row within a matrix.
/// "copy": buffers {from, to}, dims {bytes, chunk}, tasks ceil(bytes/chunk).
/// "fill_zero": buffers {to}, dims {bytes, chunk}, tasks as for copy.
KernelFn find_builtin(std::string_view name);

}  // namespace kiln
