// SPDX-License-Identifier: Apache-2.0
// Pieces of work as streams and graphs hold them. Plain data; sim_perform.cpp does them.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "runtime/cuda/driver.h"
#include "runtime/cuda/sim_block.h"
#include "runtime/cuda/sim_order.h"
#include "runtime/cuda/sim_reach.h"
#include "runtime/image.h"

namespace kiln::cuda::sim {

/// A kernel of a loaded module.
struct Kernel {
  std::shared_ptr<LoadedImage> image;
  CudaKernel info;
  void (*entry)(const void*) = nullptr;
  size_t parameter_bytes() const { return 8 * static_cast<size_t>(parameter_words(info)); }
};

/// Nothing: an event, or a wait for one.
struct Mark {};

struct Launch {
  std::shared_ptr<const Kernel> kernel;
  std::vector<uint64_t> parameters;
  int64_t blocks = 0;
  unsigned shared_bytes = 0;
  bool declared = false;
  std::vector<Buffer> buffers;  ///< that were declared
};

/// Either end may be of the host. `staged`: what a source that is not pinned held when the copy was asked
/// for.
struct Copy {
  Address to = 0, from = 0;
  uint64_t bytes = 0;
  std::vector<std::byte> staged;
};

/// `width` 1 or 4.
struct Fill {
  Address to = 0;
  uint32_t value = 0;
  unsigned width = 1;
  uint64_t bytes = 0;
};

struct HostCall {
  HostFn function = nullptr;
  void* data = nullptr;
};

/// The moment from which memory of a pool is there.
struct Begin {
  Address address = 0;
  uint64_t bytes = 0;
};

/// The moment from which it is no longer; it takes `taken` bytes of the pool.
struct End {
  Address address = 0;
  uint64_t bytes = 0, taken = 0;
};

/// Contents that are no longer of use.
struct Forget {
  Address address = 0;
  uint64_t bytes = 0;
};

/// A whole graph.
struct Replay {
  std::shared_ptr<const struct GraphPlan> plan;
};

using Action = std::variant<Mark, Launch, Copy, Fill, HostCall, Begin, End, Forget, Replay>;

/// "kernel 'add'", "a copy".
std::string name_of(const Action& action);
/// The bytes that it uses, as far as that is known before it runs.
std::vector<Use> uses_of(const Action& action);

/// A node of a graph: an action, and those that come before it.
struct Node {
  Action action;
  std::vector<int> after;
};

/// What a graph does, and all bytes that it uses; `race` says which of its nodes collide.
struct GraphPlan {
  std::vector<Node> nodes;
  std::vector<Use> uses;
  std::string race;
};

/// An action in a stream.
struct Work {
  enum class State : uint8_t { queued, running, done };
  Action action;
  ContextObject* context = nullptr;
  std::vector<std::shared_ptr<Work>> after;  ///< until they are done
  Clock clock;                               ///< with this work in it
  Fault fault;                               ///< found when it was asked for
  State state = State::queued;
  std::chrono::steady_clock::time_point finished;
};
using WorkPtr = std::shared_ptr<Work>;
inline bool is_done(const WorkPtr& w) { return !w || w->state == Work::State::done; }

}  // namespace kiln::cuda::sim
