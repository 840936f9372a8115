// SPDX-License-Identifier: Apache-2.0
// What ops that are given places share. Bodies only, never events.
#pragma once

#include "frontend/ops_detail.h"

namespace kiln::detail {

/// Throws: invalid, unless `index` is a tensor of integers.
inline void require_index(const Tensor& index, const char* name, Loc loc, const char* arg = "index") {
  require(index, name, loc, arg);
  KILN_CHECK(index.dtype() == DType::i64 || index.dtype() == DType::i32, invalid,
             "{} ({}): got {} {}, expected i64 or i32 (cast it with to())", name, loc.str(), arg,
             index.type_str());
}
/// The elements of x along `dim` at the places that `index` names.
inline Tensor take(const Tensor& x, const Tensor& index, int64_t dim) {
  return apply(op("take"), {&x, &index}, {dim});
}
// The functions of these names for one that writes what they give: `name` is what the user called, and what
// their errors name.
Tensor scatter(const char* name, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
               Loc loc);
Tensor scatter(const char* name, const Tensor& x, int64_t dim, const Tensor& index, double value, Loc loc);
Tensor scatter_add(const char* name, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                   Loc loc);
Tensor index_add(const char* name, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                 const Scalar& alpha, Loc loc);
Tensor index_copy(const char* name, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                  Loc loc);
Tensor index_fill(const char* name, const Tensor& x, int64_t dim, const Tensor& index, double value, Loc loc);
/// `self` now holds `value`, which has its sizes. Throws: invalid, as writes in place, of `name`.
Tensor& write(const char* name, Tensor& self, const Tensor& value, Loc loc);

/// How many elements there are of such sizes.
inline int64_t product(const Sizes& s) {
  int64_t n = 1;
  for (int64_t v : s) n *= v;
  return n;
}
/// A library's integer as a 0-d tensor of the dtype of `like`.
inline Tensor number(const Tensor& like, int64_t v) { return lit(like, static_cast<double>(v)); }

}  // namespace kiln::detail
