// SPDX-License-Identifier: Apache-2.0
// Programs of stages that run on a GPU.
#pragma once

#include "frontend/stage.h"

namespace kiln::detail {

/// As build_program, of an optimised graph for options.device.
/// Throws: device, when there is no such GPU, or it does not take the kernels.
std::unique_ptr<Program> build_cuda(const Graph& g, std::span<const Sizes> input_strides,
                                    const StageOptions& options, BuildRecord& record);

}  // namespace kiln::detail
