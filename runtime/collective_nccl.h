// SPDX-License-Identifier: Apache-2.0
// NCCL among GPUs: a group whose collectives take the memory of a device and run on its collectives stream,
// in the order of the calls, while the host goes on.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/collective.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/nccl.h"

namespace kiln {

/// A group of GPUs, one for each rank. A collective begins after what the device's compute stream had when it
/// was called; Work::wait() makes the compute stream wait for its end, and the host only until it has been
/// put on the device, which needs the ranks' agreement (Communicator) and, the first time, their connection.
/// The host waits for the end of a barrier and of a job. A collective may be called while the compute stream
/// is captured, by all ranks or none; the graphs are then launched by replay().
///
/// What ends too late, or on another rank, is taken off the device, and the group has failed; what the
/// compute stream has been made to wait for it went on with is wrong then, so the device says the same error
/// at every later call. Results are the same bits on all ranks, and with the same ranks and libraries in
/// every run; the order of the sums is NCCL's, and so are the roundings of a sum of halves: all_reduce_mean
/// of more than two ranks is rounded at every step, as by PyTorch's hooks over NCCL.
class DeviceGroup : public ProcessGroup {
 public:
  virtual CudaDevice& cuda() const = 0;
  /// Calls `launch`, which puts what was captured on the compute stream, in its turn among the collectives.
  /// All ranks replay the same, by one `name`. Blocks: until its turn. Throws: comm, and nothing was
  /// launched; what `launch` throws, and the group has failed.
  virtual WorkPtr replay(const std::string& name, const std::function<void()>& launch,
                         const CollectiveSite& site) = 0;
};

/// The group of one rank, whose memory is `device`'s. Keys begin with `prefix`, which is never used twice. A
/// group of one needs no library. Blocks: until all ranks are here. Throws: comm, naming the ranks that did
/// not come within `timeout`, or what NCCL says.
std::shared_ptr<DeviceGroup> make_nccl_group(std::shared_ptr<Store> store, const std::string& prefix,
                                             int rank, int size, CudaDevice& device,
                                             const nccl::Library* library, Seconds timeout);

}  // namespace kiln
