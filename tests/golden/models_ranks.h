// SPDX-License-Identifier: Apache-2.0
// Training a model of models.json as one rank of several, threads or processes.
#pragma once

#include <string>
#include <vector>

#include "tests/golden/models.h"
#include "tests/golden/ranks.h"

namespace kiln::golden {

/// What one rank came to.
struct Trained {
  std::vector<double> losses;
  std::string bits;  ///< of the parameters
};

/// Trains the model of the case on this rank's rows of the batch. Returns what differs from the file, or "".
std::string train_rank(const Json& j, bool compiled, int rank, int world, const GroupPtr& group,
                       Trained& out);
/// What differs between the ranks, or in the mean of their losses from the file, or "".
std::string compare_ranks(const Json& j, const std::vector<Trained>& ranks);

}  // namespace kiln::golden
