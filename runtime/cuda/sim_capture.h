// SPDX-License-Identifier: Apache-2.0
// Stream capture: what streams are asked for becomes nodes of a graph, under the driver's rules. Source: CUDA
// Driver API reference, "Stream Management" and error codes 900 to 908.
#pragma once

#include <thread>
#include <vector>

#include "runtime/cuda/sim_state.h"

namespace kiln::cuda {

struct CaptureState {
  StreamObject* origin = nullptr;
  int mode = kCaptureGlobal;
  std::thread::id thread;
  bool invalid = false, ended = false;
  std::vector<sim::Node> nodes;
  std::vector<StreamObject*> streams;  ///< that take part, the origin first
};

namespace sim {

/// Adds a node; the streams that take part in an invalid capture take none.
Result capture(StreamObject& stream, Action action);
/// A call that no capture allows, on a stream or event of one: it fails, and so does the capture.
Result forbid_in_capture(const std::shared_ptr<CaptureState>& capture, const char* what);
/// A call that waits for a whole context, of which a stream is under capture.
Result check_whole(const ContextObject& context, const char* what);
/// Use of the legacy stream while a stream that waits for it is under capture.
Result check_legacy(const StreamObject& stream);
/// A call that may wait for the device or change what a capture relies on.
Result check_unsafe(const char* what);

Result capture_begin(StreamObject& stream, int mode);
Result capture_end(StreamObject& stream, Graph* graph);
/// `stream` waits for an event; either may be under capture.
Result capture_wait(StreamObject& stream, EventObject& event);
void capture_record(StreamObject& stream, EventObject& event);
/// Leaves the captures that a stream takes part in: it is going to be destroyed.
void capture_leave(StreamObject& stream);

/// A graph that can be launched.
std::shared_ptr<const GraphPlan> plan_of(const std::vector<Node>& nodes);

}  // namespace sim
}  // namespace kiln::cuda
