// SPDX-License-Identifier: Apache-2.0
#include "frontend/data/dataset.h"

#include <numeric>

#include "frontend/data/sampler.h"
#include "frontend/ops.h"

namespace kiln::data {

TensorDataset::TensorDataset(std::vector<Tensor> tensors, Loc loc) : tensors_(std::move(tensors)) {
  KILN_CHECK(!tensors_.empty(), invalid, "TensorDataset ({}): got no tensors", loc.str());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& t = tensors_[i];
    KILN_CHECK(t.defined() && t.dim() > 0, invalid,
               "TensorDataset ({}): tensor {} has no rows; got {}, expected [n, ...]", loc.str(), i,
               t.type_str());
    KILN_CHECK(t.size(0) == tensors_[0].size(0), invalid,
               "TensorDataset ({}): tensor {} has {} rows ({}), tensor 0 has {} ({})", loc.str(), i,
               t.size(0), t.type_str(), tensors_[0].size(0), tensors_[0].type_str());
  }
}

Example TensorDataset::get(int64_t index) const {
  Example out;
  for (const Tensor& t : tensors_) out.push_back(select(t, 0, index));
  return out;
}

Subset::Subset(DatasetPtr dataset, std::vector<int64_t> indices, Loc loc)
    : dataset_(std::move(dataset)), indices_(std::move(indices)) {
  KILN_CHECK(dataset_, invalid, "Subset ({}): no dataset", loc.str());
  for (const int64_t i : indices_)
    KILN_CHECK(i >= 0 && i < dataset_->size(), invalid, "Subset ({}): no example {}; the dataset has {}",
               loc.str(), i, dataset_->size());
}

Example Subset::get(int64_t index) const {
  KILN_CHECK(index >= 0 && index < size(), invalid, "Subset: no example {}; it has {}", index, size());
  return dataset_->get(indices_[static_cast<size_t>(index)]);
}

std::vector<std::shared_ptr<Subset>> random_split(const DatasetPtr& dataset,
                                                  const std::vector<int64_t>& lengths, uint64_t seed,
                                                  Loc loc) {
  KILN_CHECK(dataset, invalid, "random_split ({}): no dataset", loc.str());
  int64_t sum = 0;
  bool fit = true;
  for (const int64_t n : lengths) fit = fit && n >= 0 && !__builtin_add_overflow(sum, n, &sum);
  KILN_CHECK(fit && sum == dataset->size(), invalid,
             "random_split ({}): the lengths [{}] do not make up the {} examples", loc.str(),
             fmt::join(lengths, ","), dataset->size());
  const std::vector<int64_t> order = permutation(dataset->size(), seed, 0);
  std::vector<std::shared_ptr<Subset>> out;
  auto at = order.begin();
  for (const int64_t n : lengths) {
    out.push_back(std::make_shared<Subset>(dataset, std::vector<int64_t>(at, at + n), loc));
    at += n;
  }
  return out;
}

}  // namespace kiln::data
