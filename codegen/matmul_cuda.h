// SPDX-License-Identifier: Apache-2.0
// The matmul template of CUDA: C[b,m,n] = epilogue(sum_k A[b,m,k] * B[b,k,n]) as readable source, by
// multiply-adds or tensor cores, with the hooks of matmul.h. Must not know graphs or regions.
#pragma once

#include <string>
#include <vector>

#include "codegen/dim_table.h"
#include "codegen/matmul.h"

namespace kiln {

/// What the schedule needs to know of a GPU.
struct CudaMatmulTarget {
  int sm_count = 108;
  int64_t shared_per_block = 99 << 10;  ///< bytes that one block can ask for
  bool tf32 = false;                    ///< products of f32 may round their operands to 10 bits of mantissa
};

/// Everything that is chosen about one matmul. Numeric part: tensor and split_k. By multiply-adds every
/// element is one chain of fused multiply-adds in the order of k, as on the CPU; tensor cores add 16 (bf16,
/// f16) or 8 (tf32) products at a time.
struct CudaMatmulSchedule {
  bool tensor = false;           ///< tensor cores: bf16 and f16 as they are, f32 as tf32
  int split_k = 1;               ///< ranges of k summed apart, then in order
  int tile_m = 64, tile_n = 64;  ///< of a block
  int tile_k = 8;                ///< of a stage
  int part_m = 4, part_n = 4;    ///< of a thread; of a warp with tensor cores
  int stages = 4;                ///< tiles in shared memory, all but one of them on their way
  bool operator==(const CudaMatmulSchedule&) const = default;

  int threads() const { return tile_m / part_m * (tile_n / part_n) * (tensor ? 32 : 1); }
};

/// The batch axes that a block's rows go over, outermost first: B is the same along them, and C goes on row
/// after row. A's rows need not be one stride apart for that.
std::vector<size_t> cuda_row_axes(const MatmulSpec& spec);

/// Whether a block can be cut like that: for a spec of some dtype.
bool is_sound(const CudaMatmulSchedule& s);

/// Parts of a schedule that are given; 0 is the model's to choose.
struct CudaMatmulWish {
  int tile_m = 0, tile_n = 0, split_k = 0;
};

/// A schedule for `spec` on `target`, from shape and target alone.
CudaMatmulSchedule choose_cuda_matmul_schedule(const MatmulSpec& spec, const CudaMatmulTarget& target,
                                               const CudaMatmulWish& wish = {});
/// Those that fit a spec of this dtype on the target, best for large sizes first, with split_k = 1.
std::vector<CudaMatmulSchedule> cuda_matmul_schedules(DType dtype, const CudaMatmulTarget& target);

/// One launch of a printed matmul.
struct CudaMatmulLaunch {
  std::string symbol;
  Dim tasks;                 ///< blocks
  int threads = 0;           ///< of a block
  int64_t shared_bytes = 0;  ///< dynamic
};

/// Source of a matmul. With split_k the second launch comes after the first, and both use buffer
/// `workspace_buffer` of `workspace_bytes`.
struct CudaMatmulSource {
  std::string text;
  std::vector<CudaMatmulLaunch> launches;
  int workspace_buffer = -1;
  Dim workspace_bytes = 0;
};

/// Prints the kernels `name` and, with split_k, `name`_combine, of `buffer_count` parameters. bf16 and f16
/// are summed in f32, which is what hooks see. Hooks for tasks are not for CUDA. Throws: internal, for a
/// schedule that does not fit the spec.
CudaMatmulSource print_matmul_cuda(const std::string& name, const MatmulSpec& spec,
                                   const CudaMatmulSchedule& schedule, const MatmulHooks& hooks,
                                   DimTable& dims, int buffer_count, int workspace_buffer = 3);

}  // namespace kiln
