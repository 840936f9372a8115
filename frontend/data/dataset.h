// SPDX-License-Identifier: Apache-2.0
// Datasets: examples by number. Names of torch.utils.data.
#pragma once

#include <memory>
#include <vector>

#include "frontend/tensor.h"

namespace kiln::data {

/// The fields of one example, or of a batch of them: an image and its class, say.
using Example = std::vector<Tensor>;

/// Examples by number, of the same fields each. An example should follow from its number alone: then an epoch
/// is the same for any number of workers, and a resumed one goes on as it would have.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  /// Example `index`, from 0 to size() - 1. Runs under no_grad. Threads: workers call it at the same time.
  virtual Example get(int64_t index) const = 0;
};
using DatasetPtr = std::shared_ptr<const Dataset>;

/// Example i is row i of every tensor.
class TensorDataset : public Dataset {
 public:
  /// Shapes: [n, ...] each. Throws: invalid, for none, one without rows, or unequal numbers of rows.
  explicit TensorDataset(std::vector<Tensor> tensors, Loc loc = Loc::current());
  int64_t size() const override { return tensors_[0].size(0); }
  Example get(int64_t index) const override;

 private:
  std::vector<Tensor> tensors_;
};

/// Some examples of another dataset, in this order.
class Subset : public Dataset {
 public:
  /// Throws: invalid, for an index that `dataset` has not.
  Subset(DatasetPtr dataset, std::vector<int64_t> indices, Loc loc = Loc::current());
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  Example get(int64_t index) const override;
  const std::vector<int64_t>& indices() const { return indices_; }

 private:
  DatasetPtr dataset_;
  std::vector<int64_t> indices_;
};

/// Disjoint subsets of those lengths, drawn by `seed`; the same on every machine. Throws: invalid, when the
/// lengths do not sum up to the size. Source: torch.utils.data.random_split.
std::vector<std::shared_ptr<Subset>> random_split(const DatasetPtr& dataset,
                                                  const std::vector<int64_t>& lengths, uint64_t seed = 0,
                                                  Loc loc = Loc::current());

}  // namespace kiln::data
