// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/driver.h"

#include "ir/base/options.h"
#include "runtime/cuda/open_driver.h"

namespace kiln::cuda {

namespace {

struct OpenedDriver {
  std::string why;
  std::unique_ptr<const Driver> driver = open_driver("libcuda.so.1", why);
};

}  // namespace

const Driver* find_driver(std::string& why) {
  const std::string wanted = option("KILN_CUDA_DRIVER");
  why.clear();
  if (wanted == "sim") {
    const Driver& sim = simulated_driver();
    if (sim.init(0) == kSuccess) return &sim;
    why = "the simulated driver has no device (KILN_SIM_DEVICES=0)";
    return nullptr;
  }
  if (wanted == "off") {
    why = "KILN_CUDA_DRIVER=off (unset it, or set it to sim for a simulated GPU)";
    return nullptr;
  }
  static const OpenedDriver& machine = *new OpenedDriver;  // tensors of static storage may outlive main()
  why = machine.why;
  return machine.driver.get();
}

}  // namespace kiln::cuda
