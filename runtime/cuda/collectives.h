// SPDX-License-Identifier: Apache-2.0
// The collectives of one call of a plan on a device.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "runtime/cuda/launches.h"

namespace kiln {

/// Whether a group's collectives work on device memory in the order of streams; others get a copy in host
/// memory, and the caller waits for it.
bool works_on_device(const ProcessGroup& group);

/// Its destructor waits for what was started, so that no memory is given back under it.
class CudaCollectives {
 public:
  CudaCollectives(const Plan& plan, CudaDevice& device, const CudaLaunches::Call& call);
  ~CudaCollectives();
  CudaCollectives(const CudaCollectives&) = delete;
  CudaCollectives& operator=(const CudaCollectives&) = delete;

  void announce();
  /// After what the compute stream has.
  void start(int32_t collective);
  /// What the compute stream gets from now on waits for it.
  void wait(int32_t collective);
  /// By collective. Blocks: until they have ended.
  std::vector<Work::Times> times() const;

 private:
  struct Started {
    WorkPtr work;
    bool waited = false;
    std::vector<std::byte> host;  ///< of a host group
  };
  size_t bytes(int32_t collective) const;

  const Plan& plan_;
  CudaDevice& device_;
  const CudaLaunches::Call& call_;
  std::vector<Started> started_;
};

/// Calls `launch`, which puts a recorded plan on the compute stream, in a turn of each group of GPUs that its
/// collectives are on.
void replay_in_turn(const Plan& plan, const Invocation& call, const std::string& name,
                    const std::function<void()>& launch);

}  // namespace kiln
