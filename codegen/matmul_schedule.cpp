// SPDX-License-Identifier: Apache-2.0
// Chooses blocks, tiles and packing of a matmul from its shape and the target. Must not look at thread
// counts.
#include <algorithm>

#include "codegen/matmul.h"

namespace kiln {

namespace {
int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }
int64_t value_or(const Dim& d, int64_t other) {
  return d.is_const() ? std::max<int64_t>(1, d.value()) : other;
}
}  // namespace

MatmulSchedule choose_matmul_schedule(const MatmulSpec& spec, const MatmulTarget& target) {
  const auto size = static_cast<int64_t>(dtype_size(spec.dtype));
  MatmulSchedule s;
  s.width = static_cast<int>(target.vector_bytes / size);
  const int64_t m = value_or(spec.m, 1024), n = value_or(spec.n, 1024);
  s.mr = target.vector_registers >= 32 ? 8 : 6;
  s.nv = target.vector_registers >= 32 ? 3 : 2;
  const int64_t nr = int64_t{s.nv} * s.width;
  s.kc = 1024;
  s.pack_a = spec.a.row_stride.is(1) && !spec.a.col_stride.is(1) ? PackA::cols : PackA::rows;
  s.mc = s.pack_a == PackA::cols ? 4 * s.mr : s.mr;
  s.tile_m = std::min<int64_t>(round_up(m, s.mc), round_up(128, s.mc));
  s.tile_n = std::min<int64_t>(round_up(n, nr), round_up(96, nr));
  s.pack_b = true;
  s.split_k = 1;
  return s;
}

}  // namespace kiln
