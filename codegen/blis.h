// SPDX-License-Identifier: Apache-2.0
// Matmuls that BLIS does, as a builtin of the runtime (runtime/blas.h): which ones, and how they are called.
// Chooses nothing, and calls nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codegen/kernel_case.h"
#include "codegen/schedule.h"

namespace kiln {

/// A launch of the builtin. Buffers: a, b, c.
struct BlisCall {
  std::string builtin;
  std::vector<Dim> dims;
  Dim tasks;
};

/// Nothing where BLIS cannot do it with the operands where they lie: it takes sums in f32 or f64 of operands
/// stored so, of sizes that are known, with one stride from matrix to matrix, whose rows (or columns) neither
/// interleave nor repeat.
std::optional<BlisCall> blis_call(const MatmulSpec& spec, const BlisSchedule& s);

/// The tiles of eager calls (ir/base/matmul_tile.h). Nothing where BLIS cannot do the matmul: see blis_call;
/// nor can it where an operand is computed while it is packed.
std::optional<BlisSchedule> first_blis_schedule(const MatmulCase& c);

}  // namespace kiln
