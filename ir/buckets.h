// SPDX-License-Identifier: Apache-2.0
// Gradient buckets by PyTorch's rule: which gradients are reduced together, and in which order reductions
// start. Plain numbers in, lists of indices out; knows no tensor, no group and no graph.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/base/dtype.h"

namespace kiln {

/// Bytes after which the first bucket of each dtype and device closes, so that reductions start early.
inline constexpr int64_t kFirstBucketBytes = 1 << 20;
/// Bytes after which every other bucket closes.
inline constexpr int64_t kBucketCapBytes = 25 << 20;
/// A limit that no bucket reaches.
inline constexpr int64_t kNoBucketLimit = INT64_MAX;

/// What a bucket needs to know of a parameter.
struct BucketParam {
  int64_t bytes = 0;  ///< elements * bytes of one
  DType dtype = DType::f32;
  int device = 0;       ///< index of the device that the gradient is on
  bool sparse = false;  ///< a sparse gradient is expected: it is a bucket of its own
};

/// Buckets in the order in which they are reduced, and the limit that each was built under.
struct Buckets {
  std::vector<std::vector<size_t>> params;  ///< indices of the parameters, in the order of their gradients
  std::vector<int64_t> limits;              ///< bytes; 0 for the bucket of a sparse gradient
  bool operator==(const Buckets&) const = default;
};

/// Appends each parameter to the open bucket of its (dtype, device) and closes that when it holds `limits[k]`
/// bytes or more; k counts the closed buckets of the pair, and the last limit repeats. A parameter over the
/// limit closes the bucket that it joins. `indices` names the parameters (params[i] is parameter indices[i],
/// and gradients get ready in this order); empty: params[i] is parameter i, and buckets are sorted by their
/// smallest index. With `indices` buckets stand in the order of their last parameters, open ones too (PyTorch
/// leaves the order of several open ones to a hash map).
/// Throws: invalid, for no parameters, no limits, a negative size or limit, or indices that are not a
/// permutation of 0..n-1.
/// Source: PyTorch, compute_bucket_assignment_by_size.
Buckets assign_buckets(std::span<const BucketParam> params, std::span<const int64_t> limits,
                       std::span<const size_t> indices = {});

/// The sizes that a user may choose.
struct BucketCaps {
  int64_t first = kFirstBucketBytes;  ///< cap of the first bucket
  int64_t others = kBucketCapBytes;   ///< cap of each further bucket
  std::vector<int64_t> list;          ///< if not empty, the cap of each bucket, in place of both
};

/// Caps as the list that assign_buckets takes: the first cap counts only if it is the smaller one.
/// Throws: invalid, for a cap that is not positive.
std::vector<int64_t> bucket_limits(const BucketCaps& caps);

/// The buckets before any backward has run, those of the last-registered parameters first.
/// `rebuilt`: the order of the gradients will be known after the first backward (rebuild_buckets); until then
/// all gradients of a (dtype, device) are one bucket, since ranks could differ in the order of partial ones,
/// unless `caps` lists the buckets.
Buckets initial_buckets(std::span<const BucketParam> params, const BucketCaps& caps, bool rebuilt);

/// The buckets after the first backward. `params` in order of registration; `ready`: indices of all
/// parameters in the order in which their gradients got ready. `small_last`: the first cap falls on the
/// bucket that is reduced last, and buckets list their parameters from the last ready one. Throws: as
/// assign_buckets.
Buckets rebuild_buckets(std::span<const BucketParam> params, const BucketCaps& caps,
                        std::span<const size_t> ready, bool small_last = false);

/// Checks buckets that came from elsewhere (another rank, a user): each holds parameters of one dtype and one
/// device, a sparse one is alone, none is empty, and every parameter is in exactly one.
/// Throws: invalid, naming bucket and parameter.
void check_buckets(std::span<const BucketParam> params, std::span<const std::vector<size_t>> buckets);

}  // namespace kiln
