// SPDX-License-Identifier: Apache-2.0
// The run: data, model, loop, validation, checkpoints, sample, summary.
#pragma once

#include "examples/gpt/options.h"

namespace gpt {

/// Trains as asked. Throws: kiln::Error. Returns the exit status.
int train(const Options& options);

}  // namespace gpt
