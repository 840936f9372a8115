// SPDX-License-Identifier: Apache-2.0
// Where a forward is cut at gradient buckets, by PyTorch's DDPOptimizer rule: ops as the user wrote them,
// from the last to the first, fill buckets with the bytes of the parameters that they take. Looks at ops and
// parameters alone; ir/split_graph.h cuts the graph.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ir/base/error.h"
#include "ir/buckets.h"

namespace kiln {

/// Where buckets close. A first cap larger than the cap of the others is an error, since the first reduction
/// should start early; PyTorch does not take a wrapper's explicit cap over as the first one.
struct SplitOptions {
  int64_t cap = kBucketCapBytes;      ///< bytes after which a bucket closes
  int64_t first = kFirstBucketBytes;  ///< the same for the bucket whose gradients are ready first
  std::vector<std::string> ignored;   ///< names of parameters that are not reduced: their bytes do not count
};

/// A parameter whose gradient is reduced.
struct SplitParam {
  std::string name;
  int64_t bytes = 0;  ///< of its whole storage: a view of a larger storage counts all of it
};

/// One op as the user wrote it. It is never cut, however many nodes it became.
struct SplitOp {
  std::vector<int> params;  ///< parameters that it takes, one per operand, in the order of operands
  std::vector<int> users;   ///< later ops that take one of its results
  bool output = false;      ///< a result is read outside these ops
  SourceLoc loc = {};
};

/// The buckets of one forward, and with them its partitions.
struct BucketTable {
  struct Bucket {
    int64_t bytes = 0;
    std::vector<std::string> params;  ///< from the last op to the first; per op in the order of operands
    int begin = 0, end = 0;           ///< its ops: all from `begin` to before `end`
    int extra_ops = 0;                ///< ops taken after it was full, to get a result that others read
    int64_t full_bytes = 0;           ///< with extra ops: bytes before the first of them
    SourceLoc loc = {};               ///< of its first op
  };
  SplitOptions options;
  std::vector<Bucket> buckets;  ///< in forward order; one: the forward is not cut

  /// A grid of index, size and parameter names. Index 0 is the bucket whose gradients are ready first.
  std::string to_string() const;
  /// A grid of the buckets with extra ops, or "".
  std::string extensions() const;
  /// Why bucket `b` (in forward order) is a partition of its own, and how not to have it.
  std::string reason(size_t b) const;
  /// Logs caps and number of buckets (info), the table (debug) and extended buckets (warn).
  void log() const;
};

/// From the last op to the first, each joins the open bucket and adds the bytes of its parameters, once for
/// each operand: a parameter that two ops share counts in both, an ignored one nowhere. Before that the
/// bucket is closed, if it holds its cap or more and one of its results is read outside it. Ops before the
/// first parameter join the bucket of that. Every op is in exactly one bucket, and there is at least one.
/// Throws: invalid, for caps that do not fit together.
BucketTable split_at_buckets(std::span<const SplitOp> ops, std::span<const SplitParam> params,
                             const SplitOptions& options);

}  // namespace kiln
