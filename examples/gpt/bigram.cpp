// SPDX-License-Identifier: Apache-2.0
#include "examples/gpt/bigram.h"

#include <cmath>
#include <vector>

namespace gpt {

double bigram_loss(std::span<const uint8_t> train, std::span<const uint8_t> valid, int64_t vocab) {
  const auto v = static_cast<size_t>(vocab);
  std::vector<double> pairs(v * v, 1), total(v, static_cast<double>(vocab));
  for (size_t i = 1; i < train.size(); ++i) {
    pairs[train[i - 1] * v + train[i]] += 1;
    total[train[i - 1]] += 1;
  }
  double sum = 0;
  for (size_t i = 1; i < valid.size(); ++i)
    sum -= std::log(pairs[valid[i - 1] * v + valid[i]] / total[valid[i - 1]]);
  return valid.size() > 1 ? sum / static_cast<double>(valid.size() - 1) : 0;
}

}  // namespace gpt
