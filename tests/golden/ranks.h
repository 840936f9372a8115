// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process, and what the cases of several ranks expect of each of them
// (tests/goldens/README.md, "Results of several ranks").
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "frontend/tensor.h"
#include "runtime/collective.h"
#include "tests/golden/support.h"

namespace kiln::golden {

using GroupPtr = std::shared_ptr<ProcessGroup>;

/// How the groups of ranks talk: they share memory, by Gloo, or as the first with groups of GPUs (the NCCL of
/// tests among simulated devices, one for each rank).
enum class Between { threads, gloo, gpus };

/// Runs `body` on a thread per rank. Returns what the ranks returned or threw ("comm: ..."), in rank order.
std::vector<std::string> on_ranks(int world, Between between,
                                  const std::function<std::string(int, GroupPtr)>& body,
                                  Seconds timeout = Seconds(20));

/// The first that is not empty, as "rank 1: ..."; "" if there is none.
std::string first_difference(const std::vector<std::string>& of_ranks);

/// The expectations of one case, met by all its ranks. Threads: any.
class RankResults {
 public:
  /// `half`: how far elements may be off, relative to the largest, where halves were sent.
  explicit RankResults(const Json& one, double half = 0);
  /// Compares a result of `rank` at once, and remembers its bits. Throws: std::runtime_error, saying what
  /// differs. An undefined tensor stands for "no gradient".
  void put(int rank, const std::string& name, const Tensor& t);
  void fact(int rank, const std::string& name, const Json& value);
  /// At the end: the names of which nothing was said, or bits that should be the same on all ranks and are
  /// not. `facts_left` are those that are not looked at.
  std::string missing(const std::function<bool(const std::string&)>& facts_left) const;

 private:
  const Json& one_;
  const int world_;
  const double half_;
  std::mutex mutex_;
  std::map<std::string, std::map<int, std::string>> bits_;  ///< by name and rank
  std::map<std::string, std::set<int>> facts_;
};

}  // namespace kiln::golden
