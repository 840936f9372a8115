// SPDX-License-Identifier: Apache-2.0
// How a library matmul is cut into independent tiles. Part of a plan's numbers, so it knows the shape alone:
// never the thread count, never the machine.
#pragma once

#include <cstdint>

namespace kiln {

/// Rows and columns of the product that one task computes (the last of a row or column may be smaller).
struct MatmulTile {
  int64_t m, n;
};

/// The tile for `batch` products [m,k] x [k,n]; at least 1 x 1, also for empty shapes.
MatmulTile matmul_tile(int64_t batch, int64_t m, int64_t n, int64_t k);

}  // namespace kiln
