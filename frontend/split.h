// SPDX-License-Identifier: Apache-2.0
// CompileOptions::split: the forward of a stage, its ops and parameters, as the rule of ir/split_buckets.h
// sees them, and a program that runs the stage part by part.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "frontend/stage.h"

namespace kiln::detail {

/// The buckets of a stage, on its path.
struct StageSplit {
  BucketTable table;
  int begin = 0;                  ///< the first value of the path that the forward made
  std::vector<int> ends;          ///< per bucket, the value behind its last one
  bool more = false;              ///< the stage goes on behind the forward: with a backward, and what follows
  std::map<Slot, int> bucket_of;  ///< per parameter, the first bucket that takes it: whose gradient is last
};

/// Cuts the stage that `run`, an event of the path, ends. Its forward is the ops since the last run point and
/// before the first backward of the call. Parameters are leaves that require grad and have a name.
/// `externals`: the path's. Throws: as split_at_buckets.
StageSplit split_stage(const Event& run, const Recorder& r, std::span<const ImplPtr> externals,
                       const SplitOptions& options);

/// The bucket of each parameter of the path up to `run`; those of later stages have higher numbers.
std::map<Slot, int> buckets_of_path(const Event& run);

/// A program of a program per part, each compiled and cached by itself. `x` is what the stage computes,
/// `strides` those of its inputs. Fills in `record`.
std::unique_ptr<Program> build_split_program(const Extracted& x, const StageSplit& split,
                                             std::span<const Sizes> strides, const StageOptions& options,
                                             BuildRecord& record);

}  // namespace kiln::detail
