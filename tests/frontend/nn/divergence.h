// SPDX-License-Identifier: Apache-2.0
// Trainings by DistributedDataParallel in which one rank does something else than the others in one step, and
// how they end. Ranks are threads (distributed_data_parallel_divergence_test.cpp) or processes
// (divergence_test.py).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "frontend/kiln.h"
#include "frontend/nn/distributed_data_parallel.h"

namespace kiln::nn {

/// It computes something else in eval().
struct DivergingNet : Module {
  DivergingNet();
  Tensor forward(const Tensor& x) override;
  Linear fc0, fc1, fc2;
  bool other_branch = false, without_fc1 = false;
};

/// One rank's model and what trains it.
struct Trainer {
  Trainer(int rank, const std::shared_ptr<ProcessGroup>& group);
  /// The loss; everything that a step is made of follows.
  Tensor forward(const Tensor& x, const Tensor& y) { return mse_loss(ddp(x), y); }
  void step(const Tensor& x, const Tensor& y);

  const int rank;
  const std::shared_ptr<ProcessGroup> group;
  DivergingNet net;
  DistributedDataParallel ddp;
  optim::SGD sgd;
  std::vector<HookHandle> hooks;
};

struct Scenario {
  std::string name;
  /// The step of the one rank: all that is in the callable. Empty: as the others'.
  std::function<void(Trainer&, const Tensor& x, const Tensor& y)> odd = {};
  /// What that rank does before this step, outside the callable. What it throws ends the rank.
  std::function<void(Trainer&)> before = {};
  /// Empty: it ends as training alike does. Else with an error on all ranks; this regular expression is in
  /// that of one of them, "RANK" being the rank that diverged.
  std::string error = {};
  /// Also in that error, when compiled.
  std::string why = {};
  /// In those of both ranks.
  std::string both = {};
  int at = 2;                  ///< which step
  bool leaves = false;         ///< the rank that diverged ends there
  bool skips = false;          ///< it goes on after an Error
  int64_t rows = 5;            ///< of that rank's batch in that step
  bool eager_goes_on = false;  ///< it is an error only when compiled
};

constexpr int kDivergenceSteps = 5;
const std::vector<Scenario>& scenarios();
const Scenario& scenario(const std::string& name);

struct Outcome {
  std::string error;  ///< "comm: ...", or ""
  std::vector<float> parameters;
  double longest = 0;  ///< seconds of the step, or other call, that took longest after the first step
};

/// Trains as `rank`, of which `odd_rank` diverges; compiled or not. What is thrown ends it, but for what a
/// scenario throws itself. `end` is what ranks that come to the end do there, or
/// else they wait for each other.
Outcome diverge(const Scenario& s, int odd_rank, int rank, const std::shared_ptr<ProcessGroup>& group,
                bool compiled, const std::function<void()>& end = {});

}  // namespace kiln::nn
