// SPDX-License-Identifier: Apache-2.0
// The schedules worth trying for a kernel. From shape and target alone: no clock, no thread count. The first
// is what the rules choose, and all that is used without tuning.
#pragma once

#include <string>
#include <vector>

#include "codegen/tunable.h"

namespace kiln {

/// Candidate schedules of `k` as text, each once; the first is default_schedule(k). One alone: nothing to
/// tune.
std::vector<std::string> candidate_schedules(const TunableKernel& k);

}  // namespace kiln
