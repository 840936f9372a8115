// SPDX-License-Identifier: Apache-2.0
// An NCCL whose ranks are processes of this machine, each with a simulated device. Operands meet in a file
// that all have mapped, in the order of the streams, and are reduced in the order of the ranks.
#pragma once

#include "runtime/cuda/nccl.h"

namespace kiln::testing {

const nccl::Library& shared_nccl();

/// The next collective of this process that its device comes to says "in a collective" on the standard
/// output, and never ends.
void stop_shared_nccl();

}  // namespace kiln::testing
