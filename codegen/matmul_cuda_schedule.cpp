// SPDX-License-Identifier: Apache-2.0
// Chooses how a CUDA matmul is cut, from its shape and the target, by a small model: waves of blocks, and
// what a tile of each size reaches of the peak. Must not look at anything that changes from run to run.
#include <algorithm>
#include <limits>
#include <span>

#include "codegen/matmul_cuda.h"
#include "ir/base/rounding.h"

namespace kiln {

namespace {

constexpr int64_t kUnknown = 1024;    // a symbolic size counts as this
constexpr int64_t kSplitRange = 256;  // shortest range of a split k
constexpr int64_t kMostRanges = 64;
constexpr double kBlockStart = 512;  // multiply-adds of a thread that a block's start and end cost

int64_t known(const Dim& d) { return d.is_const() ? std::max<int64_t>(1, d.value()) : kUnknown; }

/// How a block is cut, and what it reaches of the peak where nothing is left over.
struct Cut {
  int tile_m, tile_n, tile_k, part_m, part_n, stages;
  double peak;
};
// By multiply-adds: an element in shared memory serves part_m or part_n of them.
constexpr Cut kSimtF32[] = {
    {128, 128, 8, 8, 8, 4, 1.0}, {128, 64, 8, 8, 4, 4, 0.85}, {64, 128, 8, 4, 8, 4, 0.85},
    {64, 64, 16, 4, 4, 3, 0.7},  {32, 64, 16, 4, 4, 3, 0.6},  {64, 32, 16, 4, 4, 3, 0.6},
    {32, 32, 16, 2, 4, 4, 0.45}, {16, 64, 16, 2, 4, 4, 0.4},  {64, 16, 16, 4, 2, 4, 0.4},
    {8, 128, 16, 1, 4, 4, 0.3},  {128, 8, 16, 4, 1, 4, 0.3},  {4, 128, 16, 1, 4, 4, 0.25},
};
constexpr Cut kSimtF64[] = {
    {64, 64, 8, 4, 4, 3, 1.0},  {32, 64, 8, 4, 4, 3, 0.9}, {64, 32, 8, 4, 4, 3, 0.9},
    {32, 32, 8, 2, 4, 4, 0.75}, {16, 64, 8, 2, 4, 4, 0.7}, {8, 128, 8, 1, 4, 4, 0.5},
    {4, 128, 8, 1, 4, 4, 0.4},
};
// With tensor cores.
constexpr Cut kTensor16[] = {
    {128, 128, 32, 64, 32, 4, 1.0}, {128, 64, 32, 32, 32, 4, 0.85}, {64, 128, 32, 32, 32, 4, 0.85},
    {64, 64, 32, 32, 32, 4, 0.65},  {32, 64, 64, 16, 32, 4, 0.45},  {64, 32, 64, 32, 16, 4, 0.45},
    {16, 128, 64, 16, 32, 4, 0.4},  {16, 64, 64, 16, 16, 4, 0.3},
};
constexpr Cut kTensorTf32[] = {
    {128, 128, 16, 64, 32, 4, 1.0}, {128, 64, 16, 32, 32, 4, 0.85}, {64, 128, 16, 32, 32, 4, 0.85},
    {64, 64, 16, 32, 32, 4, 0.65},  {32, 64, 32, 16, 32, 3, 0.45},  {64, 32, 32, 32, 16, 3, 0.45},
    {16, 128, 32, 16, 32, 3, 0.4},
};

std::span<const Cut> cuts(DType t, bool tensor) {
  if (t == DType::f64) return kSimtF64;
  if (dtype_size(t) == 2) return kTensor16;
  if (tensor) return kTensorTf32;
  return kSimtF32;
}
bool uses_tensor_cores(DType t, const CudaMatmulTarget& target) {
  return dtype_size(t) == 2 || (t == DType::f32 && target.tf32);
}
/// Bytes of the stages, whatever the layout of the operands: tiles and their padding.
int64_t stage_bytes(const Cut& c, DType t) {
  const auto size = static_cast<int64_t>(dtype_size(t));
  const int64_t lines = c.tile_m + c.tile_n, pad = size == 2 ? 0 : std::max(lines * 4, 16L * c.tile_k);
  return (lines * c.tile_k + pad) * size * c.stages;
}
CudaMatmulSchedule schedule_of(const Cut& c, bool tensor) {
  return {tensor, 1, c.tile_m, c.tile_n, c.tile_k, c.part_m, c.part_n, c.stages};
}

int64_t blocks_of(const CudaMatmulSchedule& s, int64_t m, int64_t n, int64_t batch) {
  return ceil_div(m, s.tile_m) * ceil_div(n, s.tile_n) * batch;
}

}  // namespace

std::vector<size_t> cuda_row_axes(const MatmulSpec& spec) {
  std::vector<size_t> axes;
  Dim next = spec.c.row_stride * spec.m;
  for (size_t i = spec.batch.size(); i-- > 0;) {
    if (!spec.b.batch_stride[i].is(0) || spec.c.batch_stride[i] != next) continue;
    axes.insert(axes.begin(), i);
    next = next * spec.batch[i];
  }
  return axes;
}

bool is_sound(const CudaMatmulSchedule& s) {
  const auto group = [](int n) { return n == 1 || n == 2 || n % 4 == 0; };
  const bool cut = s.part_m > 0 && s.part_n > 0 && s.tile_m % s.part_m == 0 && s.tile_n % s.part_n == 0 &&
                   s.tile_m % 4 == 0 && s.tile_n % 4 == 0 && 64 % s.tile_k == 0 && s.tile_k >= 8;
  const bool parts = s.tensor ? s.part_m % 16 == 0 && s.part_n % 16 == 0
                              : group(s.part_m) && group(s.part_n) && s.part_m <= 16 && s.part_n <= 16;
  return s.split_k > 0 && s.stages >= 2 && s.stages <= 8 && cut && parts && s.threads() % 32 == 0 &&
         s.threads() <= 1024;
}

std::vector<CudaMatmulSchedule> cuda_matmul_schedules(DType dtype, const CudaMatmulTarget& target) {
  std::vector<CudaMatmulSchedule> all;
  const bool tensor = uses_tensor_cores(dtype, target);
  for (const Cut& c : cuts(dtype, tensor))
    if (stage_bytes(c, dtype) <= target.shared_per_block) all.push_back(schedule_of(c, tensor));
  return all;
}

CudaMatmulSchedule choose_cuda_matmul_schedule(const MatmulSpec& spec, const CudaMatmulTarget& target,
                                               const CudaMatmulWish& wish) {
  const std::vector<size_t> row_axes = cuda_row_axes(spec);
  const int64_t n = known(spec.n), k = known(spec.products());
  int64_t m = known(spec.m), batch = 1;
  for (size_t i = 0; i < spec.batch.size(); ++i)
    (std::ranges::count(row_axes, i) ? m : batch) *= known(spec.batch[i]);
  const bool tensor = uses_tensor_cores(spec.dtype, target);
  CudaMatmulSchedule best;
  double least = std::numeric_limits<double>::max();
  for (const Cut& c : cuts(spec.dtype, tensor)) {
    if ((wish.tile_m && wish.tile_m != c.tile_m) || (wish.tile_n && wish.tile_n != c.tile_n)) continue;
    if (stage_bytes(c, spec.dtype) > target.shared_per_block) continue;
    CudaMatmulSchedule s = schedule_of(c, tensor);
    const int64_t blocks = blocks_of(s, m, n, batch);
    // Ranges of k fill what tiles leave idle; each costs a pass over C.
    if (wish.split_k) s.split_k = wish.split_k;
    else if (spec.products().is_const() && blocks * 2 <= target.sm_count)
      s.split_k = static_cast<int>(
          std::clamp<int64_t>(std::min(k / kSplitRange, target.sm_count / blocks), 1, kMostRanges));
    const double tile = static_cast<double>(c.tile_m) * c.tile_n / c.peak;
    const auto waves = static_cast<double>(ceil_div(blocks * s.split_k, target.sm_count));
    const double depth = static_cast<double>(ceil_div(k, s.split_k)) + kBlockStart / 4;
    const double passes =
        s.split_k > 1 ? static_cast<double>(s.split_k + 1) * static_cast<double>(m * n * batch) : 0;
    const double cost = waves * tile * depth + 16 * passes / target.sm_count;
    if (cost < least) least = cost, best = s;
  }
  return best;
}

}  // namespace kiln
