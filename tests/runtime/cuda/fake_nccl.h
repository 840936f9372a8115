// SPDX-License-Identifier: Apache-2.0
// An NCCL whose ranks are threads of this process, each with a simulated device. It moves the data by the
// driver's functions, in the order of the streams: to host memory, where it is reduced in the order of the
// ranks, and back. A call is in progress until all ranks have made it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/collective_nccl.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/nccl.h"

namespace kiln::testing {

const nccl::Library& fake_nccl();
/// The simulated driver, but for streams that stuck collectives are on, and those that wait for them.
const cuda::Driver& fake_nccl_driver();

/// A machine of so many devices as if nothing had happened yet. Nothing may be running.
void reset_fake_nccl(int devices);
/// Collectives of that rank are taken, and never end, as kernels that wait for a peer do.
void stick_fake_nccl(int rank);
/// From now on the communicator of that rank is in this state.
void fail_fake_nccl(int rank, nccl::Result state, const std::string& last_error);
/// Communicators that were made and not ended.
int fake_nccl_comms();

/// A world of threads, each with a device of its own. It owns the devices.
struct FakeWorld {
  std::vector<std::unique_ptr<CudaDevice>> devices;
  std::shared_ptr<Store> store;
  std::vector<std::shared_ptr<DeviceGroup>> groups;

  FakeWorld(int size, Seconds timeout);
};

/// Groups of threads that have groups of GPUs by it, of this process's devices: GPU r for rank r, or any
/// other.
std::vector<std::shared_ptr<ProcessGroup>> make_groups_with_gpus(int size, Seconds timeout);

}  // namespace kiln::testing
