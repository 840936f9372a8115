// SPDX-License-Identifier: Apache-2.0
// Errors of calls on a GPU that the host sees when they have returned: where it looks for them, and what it
// takes back for them.
#pragma once

#include "frontend/device.h"
#include "runtime/cuda/guards.h"

namespace kiln::detail {

/// Waits for the checks of all calls on `device`, if there are any.
/// Throws: what the first call that failed would have thrown, once.
void settle(Device device);
/// The same of the checks that have come to the host, on all devices, without waiting.
void report_late();
/// The call of this thread that has run on `device` is complete. Throws: as report_late().
void complete(Device device, GuardedCall call);

/// Runs what waits for the calls of this thread to end. Called when one has.
void take_back_late();

}  // namespace kiln::detail
