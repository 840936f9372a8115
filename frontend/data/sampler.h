// SPDX-License-Identifier: Apache-2.0
// In which order an epoch takes a dataset's examples. Must not know tensors.
#pragma once

#include <cstdint>
#include <vector>

namespace kiln::data {

/// 0 to n - 1 in an order drawn by (seed, epoch): the same on every machine and for any number of threads.
/// Source: Fisher and Yates, by the words of Philox4x32-10.
std::vector<int64_t> permutation(int64_t n, uint64_t seed, int64_t epoch);

struct SamplerOptions {
  bool shuffle = false;
  uint64_t seed = 0;
  int64_t num_replicas = 1, rank = 0;  ///< every rank takes each num_replicas-th example, from `rank` on
  /// What num_replicas does not divide: left out, else made up by examples from the start.
  bool drop_last = false;
};

/// How many examples of `n` an epoch has for each rank.
int64_t share_of(int64_t n, const SamplerOptions& options);
/// The examples of one epoch, of which all ranks have the same number.
/// Source: torch.utils.data.DistributedSampler.
std::vector<int64_t> epoch_order(int64_t n, const SamplerOptions& options, int64_t epoch);

}  // namespace kiln::data
