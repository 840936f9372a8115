// SPDX-License-Identifier: Apache-2.0
// Which runs of a path's ops a backward makes again, so that what the forward leaves for it fits in a given
// number of bytes (CompileOptions::activation_memory). Marks regions as a checkpoint does, and knows nothing
// of how they are made again: frontend/region_builder.h.
#pragma once

#include <set>
#include <span>

#include "frontend/device.h"
#include "frontend/trace.h"

namespace kiln::detail {

/// A backward that is about to be recorded, or speculated.
struct ActivationRequest {
  std::span<const Value> roots;
  int64_t budget = 0;    ///< bytes, above 0
  Device device = {};    ///< that it runs on: what is fused differs
  bool outside = false;  ///< it runs after the call: what it reads is handed over, not found by fusion, ...
  std::set<int> live = {};  ///< ... but for these values, which somebody holds anyway
};

/// Marks the regions of `r` that keep the results of the path's ops which are alive at once (those that wait
/// for the backward, and those of one region that is made again) within the budget, at the least FLOPs done
/// twice. Regions that were chosen for a backward at this point of the path before are chosen anew. Returns
/// the bytes: above the budget, with a warning, where nothing less can be had. Shapes: all static.
int64_t fit_activations(Recorder& r, const ActivationRequest& request);

}  // namespace kiln::detail
