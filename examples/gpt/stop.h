// SPDX-License-Identifier: Apache-2.0
// Ctrl-C and SIGTERM ask the loop to stop after the step at hand; a second one ends the process.
#pragma once

namespace gpt {

/// Installs the handlers for the rest of the process.
void catch_stop_signals();

/// The signal that came, or 0.
int stop_signal();

}  // namespace gpt
