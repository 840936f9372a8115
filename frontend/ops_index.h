// SPDX-License-Identifier: Apache-2.0
// Reading and writing at places that tensors name. Names, arguments and numerics are PyTorch's; writes to one
// place more than once end with the last one, in row-major order of the indices. Indices are i32 or i64;
// where one is out of range the error names it (inside a compiled callable when its stage has run).
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "frontend/ops.h"

namespace kiln {

/// begin:end:step, with Python's clamping; step > 0.
struct Slice {
  std::optional<int64_t> begin = {}, end = {};
  int64_t step = 1;
};
struct Ellipsis {};
struct NewDim {};
/// One place of x[...]: a number, a slice, `...`, a new dim, a tensor of integers, or a mask (bool).
struct TensorIndex {
  TensorIndex(int64_t i) : v(i) {}                // NOLINT: as in Python
  TensorIndex(int i) : v(int64_t{i}) {}           // NOLINT
  TensorIndex(Slice s) : v(s) {}                  // NOLINT
  TensorIndex(Ellipsis e) : v(e) {}               // NOLINT
  TensorIndex(NewDim n) : v(n) {}                 // NOLINT
  TensorIndex(const Tensor& index) : v(index) {}  // NOLINT
  std::variant<int64_t, Slice, Ellipsis, NewDim, Tensor> v;
};
using TensorIndices = std::vector<TensorIndex>;

// Throws: invalid, on an index out of range, other indices, dtypes and shapes.
/// x[indices...]: numbers and slices give a view; tensors broadcast together and take elements, their dims
/// standing where they stood (first, when others stand between them). A mask counts as the places where it
/// is set, which is a host read. Negative indices count from the end. Shapes: numbers take dims away,
/// tensors of indices [...] stand for theirs. Throws: invalid, on more indices than dims, and two Ellipsis.
/// Source: torch.Tensor.__getitem__.
Tensor index(const Tensor& x, const TensorIndices& indices, Loc loc = Loc::current());
/// x with `values` at x[indices...]; accumulate: added there, also where an index comes twice. Shapes:
/// values broadcast to x[indices...] -> as x. Throws: unsupported, on numbers, slices that are no whole
/// dims, and new dims. Source: torch.Tensor.index_put.
Tensor index_put(const Tensor& x, const TensorIndices& indices, const Tensor& values, bool accumulate = false,
                 Loc loc = Loc::current());
/// index_put in place. Shapes: as index_put. Throws: unsupported, as index_put; invalid, as other writes in
/// place (Tensor::copy_). Source: torch.Tensor.index_put_.
Tensor& index_put_(Tensor& x, const TensorIndices& indices, const Tensor& values, bool accumulate = false,
                   Loc loc = Loc::current());

// Along a dim. Throws: invalid, on an index out of range, other indices, dtypes and shapes.
/// x with rows of `src` (or a number) in place of those that `index` names along `dim`. Shapes: index [n],
/// src like x but n at `dim` -> as x.
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                  Loc loc = Loc::current());
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, double value, Loc loc = Loc::current());

// Along a dim. Throws: invalid, on an index out of range, other indices, dtypes and shapes.
/// x with src[..., i, ...] (or a number) at [..., index[..., i, ...], ...] along `dim`. Shapes: index no
/// larger than src, and than x beside `dim` -> as x.
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
               Loc loc = Loc::current());
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, double value, Loc loc = Loc::current());
enum class ScatterReduce : uint8_t { sum, prod, mean, amax, amin };
/// As scatter, but all that goes to one place is combined, with what x has there if include_self. Shapes:
/// as scatter.
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                      ScatterReduce reduce, bool include_self = true, Loc loc = Loc::current());

/// x as one line, at `index`, where negative ones count from the end. Shapes: as index. Throws: invalid, on
/// an empty x, an index out of range, and other indices.
Tensor take(const Tensor& x, const Tensor& index, Loc loc = Loc::current());

/// Places of the elements that are not zero, in row-major order, i64. The count is a host read. Shapes: x
/// [...] -> [count, dims of x]. Throws: nothing else.
Tensor nonzero(const Tensor& x, Loc loc = Loc::current());
/// Elements of x where `mask` is set, as one line. A host read. Shapes: x and mask broadcast -> [count].
/// Throws: invalid, on a mask that is not bool.
Tensor masked_select(const Tensor& x, const Tensor& mask, Loc loc = Loc::current());
/// x with the next element of `source` wherever `mask` is set. Shapes: mask broadcasts to x; source [...]
/// -> as x. Throws: invalid, on more set elements than source has (inside a compiled callable when the
/// stage has run), and unless mask is bool and source has x's dtype.
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source, Loc loc = Loc::current());

enum class BagMode : uint8_t { sum, mean, max };
struct EmbeddingBagOptions {
  BagMode mode = BagMode::mean;
  std::optional<int64_t> padding_idx = {};  ///< left out of every bag
  bool include_last_offset = false;         ///< the last offset is the end of the last bag
};
/// Rows of `weight` combined bag by bag; empty bags are zeros. Shapes: ids [bags, n], or [all] with the
/// beginnings of bags `offsets` [bags]; weight [rows, d]; per_sample_weights like ids, for sums -> [bags,
/// d]. Throws: invalid, on other shapes, an index or offset out of range, a padding_idx that is no row, a
/// first offset that is not 0, and a weight that is not floating. Source:
/// torch.nn.functional.embedding_bag.
Tensor embedding_bag(const Tensor& ids, const Tensor& weight, const Tensor& offsets = {},
                     const EmbeddingBagOptions& options = {}, const Tensor& per_sample_weights = {},
                     Loc loc = Loc::current());

}  // namespace kiln
