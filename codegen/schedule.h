// SPDX-License-Identifier: Apache-2.0
// What may be chosen about a kernel, and its text: "<kind> <numeric part>; <free part>". The text is what
// tuning remembers and ranks exchange. Knows neither graphs nor who chooses.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "codegen/matmul.h"
#include "codegen/matmul_cuda.h"

namespace kiln {

/// What is chosen about a row kernel; 0 leaves it to the rules of the writer. Numeric part: width and
/// accumulators, which say in what order a row is summed. Free part: rows.
struct RowSchedule {
  int width = 0;         ///< elements of a vector, a power of two
  int accumulators = 0;  ///< vectors that a reduction sums side by side, 1 to 8
  int64_t rows = 0;      ///< rows of a task; only for kernels without partial results
  bool operator==(const RowSchedule&) const = default;
};

/// How a library does a matmul: BLIS, called by one thread for each tile, and what is fused into the matmul
/// is a launch of its own. All numeric part: which kernels BLIS takes, and so the order of sums, hangs on the
/// sizes of a call.
struct BlisSchedule {
  int64_t tile_m = 1, tile_n = 1;  ///< rows and columns of a task
  bool operator==(const BlisSchedule&) const = default;
};

/// "matmul split_k=1; width=16 mr=14 nv=2 kc=512 mc=14 tile_m=112 tile_n=96 pack_a=none pack_b=1"; with pairs
/// it begins "matmul pairs split_k=1", with the epilogue apart "matmul apart split_k=1" (or "matmul pairs
/// apart"); with tasks by rows it ends in " by_rows".
std::string str(const MatmulSchedule& s);
/// "blis tile=192x256;".
std::string str(const BlisSchedule& s);
/// "cuda_matmul tensor split_k=1; tile=128x128x32 part=64x32 stages=4", or "simt" for "tensor".
std::string str(const CudaMatmulSchedule& s);
/// "rows width=16 accumulators=4; rows=0".
std::string str(const RowSchedule& s);
/// The inverses; nothing for any other text, or for numbers that no kernel can have.
std::optional<MatmulSchedule> parse_matmul_schedule(std::string_view text);
std::optional<BlisSchedule> parse_blis_schedule(std::string_view text);
std::optional<CudaMatmulSchedule> parse_cuda_matmul_schedule(std::string_view text);
std::optional<RowSchedule> parse_row_schedule(std::string_view text);

/// Whether what is fused behind a matmul of the generated template is a launch of its own.
bool has_epilogue_apart(std::string_view schedule);

/// The part of a schedule's text that decides bits: what stands before the semicolon.
std::string_view numeric_part(std::string_view schedule);

/// Schedules by kernel_id; kernels that are not named keep what the rules choose.
using ScheduleChoices = std::map<std::string, std::string, std::less<>>;

}  // namespace kiln
