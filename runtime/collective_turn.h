// SPDX-License-Identifier: Apache-2.0
// One call of a group of GPUs on its way: what the caller waits for, the group's threads move along, and a
// failure ends. Knows its events on the device, but neither NCCL nor the other ranks.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/collective_queue.h"
#include "runtime/cuda/device.h"

namespace kiln {

enum class TurnKind : uint8_t {
  device,  ///< the compute stream waits for its end
  host,    ///< the host does
  replay,  ///< it runs on the compute stream itself
};

/// Threads: any.
class DeviceTurn final : public Work {
 public:
  /// Takes the streams of the thread that makes it.
  DeviceTurn(Collective c, TurnKind kind, CudaDevice& device, bool captured)
      : call(std::move(c)),
        kind(kind),
        captured(captured),
        device_(device),
        compute_(device.compute()),
        stream_(device.collectives()) {}

  const Collective call;
  const TurnKind kind;
  const bool captured;  ///< it becomes part of a graph: its events say nothing, and other ranks have no part

  // The caller's.
  /// The turn begins after what the compute stream has now.
  void note_before();
  /// Blocks: until open(). Throws: comm, when the group fails meanwhile; else launched() follows.
  void await_open();
  /// What it is about has been put on the compute stream.
  void launched();
  void wait() override;
  bool done() const override;
  /// Blocks: until it is over.
  Times times() const override;

  // The worker's.
  void open();
  /// Of a job.
  void begin();
  void begin_on_device();
  void started_on_device();
  cuda::Stream stream() const { return stream_; }

  // The watcher's.
  /// Looks at the device. Throws: device.
  bool finished();
  bool over() const;

  /// From here on wait() returns only after end(). True if the compute stream waits for this turn, or has it.
  bool begin_failing();
  /// It is over, in peace or with this error. Of several calls the first counts.
  void end(std::optional<std::string> error);

 private:
  enum class State : uint8_t { queued, open, started, over };
  void end_locked(std::optional<std::string> error);
  void throw_error() const;

  CudaDevice& device_;
  const cuda::Stream compute_, stream_;
  CudaEvent before_, begun_, ended_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  State state_ = State::queued;
  bool failing_ = false, waited_ = false;
  std::optional<std::string> error_;
  Times times_;
};

}  // namespace kiln
