// SPDX-License-Identifier: Apache-2.0
// Sums gradients over ranks outside compiled callables, bucket by bucket, while the backward that makes them
// goes on. Source: torch.nn.parallel's Reducer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "frontend/tensor.h"
#include "runtime/agreement.h"

namespace kiln::nn {

/// Threads: one at a time.
class BucketReducer {
 public:
  /// `wire`: what gradients are sent as; unset, their own dtype.
  BucketReducer(std::shared_ptr<Communicator> communicator, std::vector<Tensor> parameters,
                std::optional<DType> wire);
  /// Blocks: until what was started is over.
  ~BucketReducer();
  BucketReducer(const BucketReducer&) = delete;
  BucketReducer& operator=(const BucketReducer&) = delete;

  /// Places in `parameters`, by bucket, in the order of the starts. What was added before is kept for it.
  void arrange(const std::vector<std::vector<size_t>>& buckets, Loc loc);
  /// The end of the backward at `loc` will add `gradient` to the parameter's. Starts the buckets that are
  /// complete, each after its predecessor, so that all ranks start them in one order. Throws: comm, when the
  /// group has failed.
  void add(size_t parameter, const Tensor& gradient, Loc loc);
  /// All were added, and the backward has ended: leaves the means over the ranks in every `.grad`. Blocks:
  /// until they are there. Throws: comm; no collective runs then either.
  void finish();
  /// This rank cannot finish: ranks that have started with it fail, ranks that wait for it learn `why`.
  /// Blocks: until no collective of this step runs.
  void abandon(const std::string& why);

 private:
  struct Bucket {
    std::vector<size_t> parameters;
    size_t missing = 0;          ///< of these
    Tensor flat;                 ///< what is sent, made at the first start
    std::vector<Tensor> pieces;  ///< views of it, one for each parameter
    WorkPtr work;                ///< null: not started
  };
  void start_complete(Loc loc);
  void start(Bucket& b, Loc loc);
  DType dtype_of(const Bucket& b) const { return parameters_[b.parameters[0]].dtype(); }
  DType wire_of(const Bucket& b) const { return wire_.value_or(dtype_of(b)); }
  void lay_out(Bucket& b);
  void agree(Loc loc);
  std::exception_ptr wait_all();

  const std::shared_ptr<Communicator> communicator_;
  const std::vector<Tensor> parameters_;
  const std::optional<DType> wire_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;
  std::vector<Tensor> totals_;  ///< what `.grad` will be, until its bucket is started
  size_t next_ = 0;             ///< the bucket to start
};

}  // namespace kiln::nn
