// SPDX-License-Identifier: Apache-2.0
// What executors of plans on any device share: the check of a call, and what traces and errors say of
// it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/bound_plan.h"
#include "runtime/collective.h"
#include "runtime/executor.h"
#include "runtime/timeline.h"

namespace kiln {

/// Throws: invalid, on missing externals, outputs, scalars or groups of `call`.
void check_call(const Plan& plan, const Invocation& call);

/// The spans of a call that began at `start`: one for every launch, which took `ns`, one for the call, and
/// one for every collective.
std::vector<TimelineSpan> call_spans(const Plan& plan, const BoundPlan& bound, const Invocation& call,
                                     std::span<const int64_t> ns, int64_t start,
                                     std::span<const Work::Times> collectives);

/// "%12 (3.0 MiB), %14 (1.0 MiB)": what lies in the arena, for errors.
std::string largest_buffers(const Plan& plan, const BoundPlan& bound);

}  // namespace kiln
