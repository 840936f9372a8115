// SPDX-License-Identifier: Apache-2.0
// Opens the machine's own CUDA driver.
#pragma once

#include <memory>
#include <string>

#include "runtime/cuda/driver.h"

namespace kiln::cuda {

/// Opens `library` ("libcuda.so.1", found as the system finds libraries), starts it and looks for a device.
/// The driver stays open for the life of the process. Null where it cannot be used; `why` then says so, with
/// what to do.
std::unique_ptr<const Driver> open_driver(const std::string& library, std::string& why);

}  // namespace kiln::cuda
