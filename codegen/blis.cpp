// SPDX-License-Identifier: Apache-2.0
#include "codegen/blis.h"

#include <algorithm>

#include "ir/base/matmul_tile.h"

namespace kiln {

namespace {

bool is_size(const Dim& d) { return d.is_const() && d.value() >= 1; }

/// Whether the runtime passes a matrix of such strides to BLIS: elsewhere it sums by itself, slowly.
bool plain_strides(const MatmulOperand& x, const Dim& rows, const Dim& cols) {
  if (x.half || !x.offset.is(0) || !x.row_stride.is_const() || !x.col_stride.is_const()) return false;
  const int64_t rs = x.row_stride.value(), cs = x.col_stride.value(), m = rows.value(), n = cols.value();
  if (m == 1 || n == 1) return (m == 1 || rs > 0) && (n == 1 || cs > 0);
  return rs > 0 && cs > 0 && (cs >= rs * m || rs >= cs * n);
}

/// From matrix to matrix of an operand, if one stride walks all batch axes.
std::optional<int64_t> batch_stride(const MatmulSpec& spec, const MatmulOperand& x) {
  std::optional<int64_t> stride;
  int64_t inner = 1;  // matrices below this axis
  for (size_t i = spec.batch.size(); i-- > 0;) {
    if (spec.batch[i].is(1)) continue;
    if (!x.batch_stride[i].is_const()) return std::nullopt;
    const int64_t here = x.batch_stride[i].value();
    if (stride && here != *stride * inner) return std::nullopt;
    if (!stride) stride = here;
    inner *= spec.batch[i].value();
  }
  return stride.value_or(0);
}

}  // namespace

std::optional<BlisCall> blis_call(const MatmulSpec& spec, const BlisSchedule& s) {
  const bool known = is_size(spec.m) && is_size(spec.n) && is_size(spec.k) &&
                     std::all_of(spec.batch.begin(), spec.batch.end(), is_size);
  if (!known || !spec.k_outer.empty() || (spec.dtype != DType::f32 && spec.dtype != DType::f64)) return {};
  if (!plain_strides(spec.a, spec.m, spec.k) || !plain_strides(spec.b, spec.k, spec.n) ||
      !plain_strides(spec.c, spec.m, spec.n))
    return {};
  const Dim batch = numel(spec.batch);
  BlisCall call{spec.dtype == DType::f32 ? "blis_sgemm" : "blis_dgemm", {batch, spec.m, spec.n, spec.k}, 0};
  for (const MatmulOperand* x : {&spec.a, &spec.b, &spec.c}) {
    const auto stride = batch_stride(spec, *x);
    if (!stride) return {};
    call.dims.insert(call.dims.end(), {Dim(*stride), x->row_stride, x->col_stride});
  }
  call.dims.insert(call.dims.end(), {Dim(s.tile_m), Dim(s.tile_n)});
  call.tasks = batch * ceildiv(spec.m, Dim(s.tile_m)) * ceildiv(spec.n, Dim(s.tile_n));
  return call;
}

std::optional<BlisSchedule> first_blis_schedule(const MatmulCase& c) {
  if (c.fused.prologue[0] || c.fused.prologue[1] || !blis_call(c.spec, {})) return {};
  const MatmulTile tile =
      matmul_tile(numel(c.spec.batch).value(), c.spec.m.value(), c.spec.n.value(), c.spec.k.value());
  return BlisSchedule{tile.m, tile.n};
}

}  // namespace kiln
