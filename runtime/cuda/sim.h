// SPDX-License-Identifier: Apache-2.0
// What tests ask of the simulated device beside the driver's functions: a fresh start, and failures at chosen
// moments. See simulated_driver() in runtime/cuda/driver.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kiln::cuda::sim {

#ifdef __SANITIZE_THREAD__  // leaves few addresses
inline constexpr size_t kDeviceMemory = size_t{8} << 30;
#else
inline constexpr size_t kDeviceMemory = size_t{80} << 30;
#endif

/// The machine that is simulated.
struct Config {
  int devices = 2;
  size_t memory = kDeviceMemory;  ///< of each device, in bytes: what can be allocated there
  uint64_t seed = 1;              ///< of every random order
};
/// As KILN_SIM_DEVICES and KILN_SIM_SEED say.
Config default_config();

/// A machine as if the process had just begun: nothing allocated or loaded, no failure, no plan of failures.
/// Every handle and address of before is void. Nothing may be running. Threads: any.
void reset(const Config& config);

// Each counts from now on, 1 is the next. 0 takes the plan back.
/// The n-th allocation of device memory finds none.
void fail_allocation(int64_t nth);
/// The n-th kernel fails while it runs, also one in a graph.
void fail_launch(int64_t nth);
/// The device is lost at the n-th call of the driver: that one and all after it fail.
void lose_device(int64_t nth);

/// How much work of a device waits in streams and has yet to run.
size_t pending_work(int device);
/// Kernels that have run to their end since the start.
uint64_t launches();
/// Calls since the start that made the host wait: for a stream, an event or a context.
uint64_t host_waits();

}  // namespace kiln::cuda::sim
