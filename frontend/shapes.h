// SPDX-License-Identifier: Apache-2.0
// Functions of shape beside those of ops.h. What is a view in PyTorch is one here, and shares memory, but for
// what a comment says. Names, arguments and refusals are PyTorch's.
#pragma once

#include <optional>
#include <vector>

#include "frontend/ops.h"

namespace kiln {

// Dims. Views.
/// Without its dims of size 1; of those given, without the ones of size 1. Shapes: [a, 1, b, 1] -> [a, b].
/// Throws: nothing else.
Tensor squeeze(const Tensor& x, Loc loc = Loc::current());
Tensor squeeze(const Tensor& x, const Sizes& dims, Loc loc = Loc::current());
/// Dim source[i] becomes dim destination[i]; the others keep their order. Shapes: [a, b, c] -> [b, c, a]
/// for 0 and 2. Throws: invalid, on different numbers of dims.
Tensor movedim(const Tensor& x, const Sizes& source, const Sizes& destination, Loc loc = Loc::current());
Tensor movedim(const Tensor& x, int64_t source, int64_t destination, Loc loc = Loc::current());
/// transpose. Shapes: [.., m, .., n, ..] -> [.., n, .., m, ..]. Throws: nothing else.
Tensor swapaxes(const Tensor& x, int64_t a, int64_t b, Loc loc = Loc::current());
/// One dim as several; one of their sizes may be -1. Shapes: [.., n, ..] -> [.., sizes, ..]. Throws:
/// invalid, unless the sizes' product is n.
Tensor unflatten(const Tensor& x, int64_t dim, const Sizes& sizes, Loc loc = Loc::current());
/// expand to the shape of `like`. Shapes: x -> as like. Throws: invalid, as expand. Source:
/// torch.Tensor.expand_as.
Tensor expand_as(const Tensor& x, const Tensor& like, Loc loc = Loc::current());
/// view in the shape of `like`. Shapes: x -> as like. Throws: invalid, as view. Source:
/// torch.Tensor.view_as.
Tensor view_as(const Tensor& x, const Tensor& like, Loc loc = Loc::current());
/// expand. Shapes: x -> [sizes]. Throws: invalid, as expand.
Tensor broadcast_to(const Tensor& x, const Sizes& sizes, Loc loc = Loc::current());
/// Each expanded to the shape that all broadcast to. Shapes: [n, 1], [m] -> [n, m], [n, m]. Throws:
/// invalid, on no tensors.
std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& tensors, Loc loc = Loc::current());
/// With dims of size 1 in front. Shapes: [] -> [1] or [1, 1]; [n] -> [1, n] for atleast_2d. Throws: nothing
/// else.
Tensor atleast_1d(const Tensor& x, Loc loc = Loc::current());
Tensor atleast_2d(const Tensor& x, Loc loc = Loc::current());
/// With dims of size 1 around. Shapes: [] -> [1, 1, 1], [n] -> [1, n, 1], [n, m] -> [n, m, 1]. Throws:
/// nothing else.
Tensor atleast_3d(const Tensor& x, Loc loc = Loc::current());

// Pieces. Views. Shapes: as x, but the piece's size at dim.
/// Pieces of the given sizes. Throws: invalid, unless they add up to the dim's.
std::vector<Tensor> split_with_sizes(const Tensor& x, const Sizes& sizes, int64_t dim = 0,
                                     Loc loc = Loc::current());
/// `sections` pieces, the first ones longer by one where the size does not divide. Throws: invalid, on
/// fewer than one.
std::vector<Tensor> tensor_split(const Tensor& x, int64_t sections, int64_t dim = 0,
                                 Loc loc = Loc::current());
/// Pieces that end at the indices, and the rest. Throws: nothing else. Source: torch.tensor_split with
/// indices.
std::vector<Tensor> tensor_split_at(const Tensor& x, const Sizes& indices, int64_t dim = 0,
                                    Loc loc = Loc::current());
/// select of each index along `dim`. Shapes: as x, without dim. Throws: nothing else.
std::vector<Tensor> unbind(const Tensor& x, int64_t dim = 0, Loc loc = Loc::current());

// Joins. Throws: invalid, as cat.
/// cat along dim 1, of vectors along dim 0. Shapes: [a, n], [a, m] -> [a, n + m]; [n], [m] -> [n + m].
Tensor hstack(const std::vector<Tensor>& tensors, Loc loc = Loc::current());
/// cat of atleast_2d along dim 0. Shapes: [n, a], [m, a] -> [n + m, a]; [a], [a] -> [2, a].
Tensor vstack(const std::vector<Tensor>& tensors, Loc loc = Loc::current());
/// cat of atleast_3d along dim 2. Shapes: [a, b], [a, b] -> [a, b, 2].
Tensor dstack(const std::vector<Tensor>& tensors, Loc loc = Loc::current());

enum class MeshIndexing : uint8_t { ij, xy };
/// Vectors (or numbers) over the grid that they span: views. Shapes: [n], [m] -> [n, m] each; [m, n] for
/// xy. Throws: invalid, on no tensors, other ranks, and different dtypes.
std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, MeshIndexing indexing = MeshIndexing::ij,
                             Loc loc = Loc::current());

// Repetition and order.
/// x repeated along each dim; more repeats than dims add dims in front. Shapes: [n, m] -> [n a, m b] for
/// {a, b}. Throws: invalid, on fewer repeats than dims, and on one below 0. Source: torch.Tensor.repeat.
Tensor repeat(const Tensor& x, const Sizes& repeats, Loc loc = Loc::current());
/// repeat, where fewer repeats than dims count for the last ones. Shapes: as repeat. Throws: invalid, on
/// repeats below 0.
Tensor tile(const Tensor& x, const Sizes& repeats, Loc loc = Loc::current());
/// Each element `repeats` times along `dim`; without a dim, of x flattened. Shapes: [.., n, ..] ->
/// [.., n repeats, ..]. Throws: invalid, on repeats below 0.
Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim = {},
                         Loc loc = Loc::current());
/// Element i repeats[i] times. A host read of `repeats`. Shapes: repeats [size of the dim] or one element
/// -> their sum at dim. Throws: invalid, on other repeats, and on one below 0.
Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, std::optional<int64_t> dim = {},
                         Loc loc = Loc::current());
/// Elements move by shifts[i] along dims[i], those beyond the end to the front; without dims, of x
/// flattened. Shapes: x [...] -> [...]. Throws: invalid, unless there is a shift for each dim.
Tensor roll(const Tensor& x, const Sizes& shifts, const Sizes& dims = {}, Loc loc = Loc::current());
/// k quarter turns from the first of two dims towards the second. Shapes: [n, m] -> [m, n] for an odd k.
/// Throws: invalid, unless there are two dims.
Tensor rot90(const Tensor& x, int64_t k = 1, const Sizes& dims = {0, 1}, Loc loc = Loc::current());

// Diagonals.
/// The diagonal of the matrices in two dims, as last dim; `offset` above the main one. A view where the two
/// dims lie as in a contiguous matrix or its transpose, else a copy. Shapes: [n, m, ..] -> [.., length].
/// Throws: invalid, unless there are two dims.
Tensor diagonal(const Tensor& x, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1,
                Loc loc = Loc::current());
/// Zeros with the last dim of x on a diagonal of two new dims. Shapes: [.., n] -> [.., n + |offset|, n +
/// |offset|]. Throws: invalid, on a 0-d x, and when both dims are the same.
Tensor diag_embed(const Tensor& x, int64_t offset = 0, int64_t dim1 = -2, int64_t dim2 = -1,
                  Loc loc = Loc::current());
/// A vector's matrix, or a copy of a matrix's diagonal. Shapes: [n] -> [n + |offset|, n + |offset|]; [n, m]
/// -> [length]. Throws: invalid, on other ranks.
Tensor diag(const Tensor& x, int64_t offset = 0, Loc loc = Loc::current());
/// Row and column of the elements of a lower (upper) triangle of [rows, columns]; i64. Shapes: [2, n].
/// Throws: invalid, on a size below 0.
Tensor tril_indices(int64_t rows, int64_t columns, int64_t offset = 0, Loc loc = Loc::current());
Tensor triu_indices(int64_t rows, int64_t columns, int64_t offset = 0, Loc loc = Loc::current());

// Copies with other elements.
/// x with its slice replaced by src. Shapes: src as slice(x, ...) -> as x. Throws: invalid, when src has
/// another shape or dtype, and on a step below 1.
Tensor slice_scatter(const Tensor& x, const Tensor& src, int64_t dim = 0, int64_t start = 0,
                     int64_t end = INT64_MAX, int64_t step = 1, Loc loc = Loc::current());
/// x with x[index] along `dim` replaced by src. Shapes: src as x without dim -> as x. Throws: invalid, when
/// src has another shape or dtype, and on an index out of range.
Tensor select_scatter(const Tensor& x, const Tensor& src, int64_t dim, int64_t index,
                      Loc loc = Loc::current());
/// Differences of neighbours along `dim`, n times; bool: whether they differ. Shapes: as x, but n fewer at
/// dim. Throws: invalid, on a 0-d x, and when n < 0.
Tensor diff(const Tensor& x, int64_t n = 1, int64_t dim = -1, Loc loc = Loc::current());
/// Elements of contiguous x at offset + sum of index * stride. A copy: writes to it do not reach x. Shapes:
/// x [...] -> [sizes]. Throws: invalid, when x is not contiguous or an element lies outside it.
Tensor as_strided(const Tensor& x, const Sizes& sizes, const Sizes& strides, int64_t offset = 0,
                  Loc loc = Loc::current());

// Indexing.
/// gather with x and index broadcast to each other but for `dim`; without a dim, of both flattened. Shapes:
/// as index, with the broadcast sizes beside dim. Throws: invalid, as gather, and on different ranks.
Tensor take_along_dim(const Tensor& x, const Tensor& index, std::optional<int64_t> dim = {},
                      Loc loc = Loc::current());
/// 1 at each index, else 0; i64. Without `classes` as many as the largest index asks for: a host read.
/// Shapes: index [...] -> [..., classes]. Throws: invalid, on a dtype of no integers, and on an index out
/// of range (inside a compiled callable when the stage has run). Source: torch.nn.functional.one_hot.
Tensor one_hot(const Tensor& index, int64_t classes = -1, Loc loc = Loc::current());
/// How often each number from 0 on occurs (i64), or the sum of its weights; `minlength` numbers at least. A
/// host read. Shapes: x [n], weights [n] -> [largest + 1 or minlength]. Throws: invalid, on other shapes, a
/// dtype of no integers, and negative numbers.
Tensor bincount(const Tensor& x, const Tensor& weights = {}, int64_t minlength = 0, Loc loc = Loc::current());

}  // namespace kiln
