// SPDX-License-Identifier: Apache-2.0
// The simulated machine: the one object of a process, with its devices, streams, events, modules and graphs.
// All of it is guarded by Machine::mutex, which is let go only while a host function runs.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ir/base/error.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/sim.h"
#include "runtime/cuda/sim_work.h"

namespace kiln::cuda {

/// A stream under capture and all that have joined it.
struct CaptureState;

struct StreamObject {
  ContextObject* context = nullptr;
  int number = 0;
  bool blocking = true;  ///< ordered with the legacy stream
  uint64_t ticks = 0;    ///< works so far
  sim::WorkPtr last;
  std::deque<sim::WorkPtr> queue;  ///< asked for; done ones leave at the front
  std::shared_ptr<CaptureState> capture;
  std::vector<int> tail;  ///< nodes of the capture that the next one comes after
};

struct EventObject {
  ContextObject* context = nullptr;
  bool timing = true;
  sim::WorkPtr work;  ///< null: never recorded, or under capture
  std::shared_ptr<CaptureState> capture;
  std::vector<int> nodes;
};

struct FunctionObject {
  ContextObject* context = nullptr;
  std::shared_ptr<const sim::Kernel> kernel;
  int max_dynamic_shared = 48 << 10;
};

struct ModuleObject {
  ContextObject* context = nullptr;
  std::map<std::string, std::unique_ptr<FunctionObject>> functions;
};

struct GraphObject {
  ContextObject* context = nullptr;
  std::vector<sim::Node> nodes;
};

struct GraphExecObject {
  ContextObject* context = nullptr;
  std::shared_ptr<const sim::GraphPlan> plan;
  sim::WorkPtr last;  ///< launches of one graph run one after the other
};

struct PoolObject {
  ContextObject* context = nullptr;
  uint64_t threshold = 0, used = 0, used_high = 0, reserved = 0, reserved_high = 0;
};

/// The primary context of a device.
struct ContextObject {
  ContextObject(int ordinal, int stream_number);
  int device = 0;
  int retained = 0;
  sim::DeviceSpace space;
  uint64_t allocated = 0;  ///< bytes outside the pool
  PoolObject pool;
  StreamObject legacy;
  std::map<const StreamObject*, std::unique_ptr<StreamObject>> streams;
  std::map<const EventObject*, std::unique_ptr<EventObject>> events;
  std::map<const ModuleObject*, std::unique_ptr<ModuleObject>> modules;
  std::set<const FunctionObject*> functions;  ///< of those
  std::map<const GraphObject*, std::unique_ptr<GraphObject>> graphs;
  std::map<const GraphExecObject*, std::unique_ptr<GraphExecObject>> execs;
  std::map<Address, uint64_t> held;  ///< outputs that somebody has: begin and bytes
  sim::Fault error;                  ///< every call fails from here on
};

namespace sim {

using Lock = std::unique_lock<std::mutex>;

/// What tests asked to fail.
struct FailurePlan {
  int64_t allocation = 0, launch = 0, call = 0;  ///< calls until then; 0: never
  bool lost = false;
  /// True once, when the count that `n` began with has been reached.
  static bool due(int64_t& n) { return n > 0 && --n == 0; }
};

class Machine {
 public:
  Machine();

  // Objects that a caller names; null if it does not exist.
  ContextObject* context(ContextObject* handle);
  ContextObject* current();
  ContextObject* of_address(Address address);

  // Streams: sim_stream.cpp.
  StreamObject* stream(ContextObject& context, Stream handle);
  /// Puts an action into a stream or the graph that it is captured to.
  Result submit(StreamObject& stream, Action action, Lock& lock, WorkPtr after = nullptr);
  /// Does a work and all before it, and nothing else: as late as can be.
  void finish(const WorkPtr& work, Lock& lock);
  void finish_all(ContextObject& context, Lock& lock);
  /// One work of those that `work` waits for, or itself: time passes for who asks again and again.
  void advance(const WorkPtr& work, Lock& lock);
  Result synchronize(ContextObject& context, const WorkPtr& work, Lock& lock);

  /// Does what the action says: sim_perform.cpp.
  Fault perform(const Action& action, ContextObject& context, Lock& lock);
  /// Frees device memory.
  void release(ContextObject& context, const Allocation& allocation);
  /// Before every call but those for errors: may it go on?
  Result begin_call();
  /// The words of a failure that is reported at once, and its code.
  Result refuse(Result code, std::string text);

  std::mutex mutex;
  std::condition_variable changed;  ///< a work is done
  Config config = default_config();
  bool initialized = false;
  std::vector<std::unique_ptr<ContextObject>> contexts;  ///< by device; null where none is retained
  std::map<uint64_t, uint64_t> pinned;                   ///< host memory: begin and bytes
  std::vector<std::shared_ptr<CaptureState>> captures;   ///< that have begun
  BlockRunner runner;
  KnSimHooks hooks;
  Random random;
  FailurePlan failures;
  std::string fault;  ///< the last failure
  Clock host;         ///< what the host has waited for
  History history;
  int streams = 0;  ///< made so far
  uint64_t launches = 0, host_waits = 0;
  SimCompile compile = nullptr;

 private:
  void run(const WorkPtr& work, Lock& lock);
  void enqueue(StreamObject& stream, Action&& action, const WorkPtr& after);
  WorkPtr first_before(const WorkPtr& work);
  void forget_the_past();
  std::string check_order(const std::vector<Use>& uses, const StreamObject& stream, const Work& work);
  std::string check_held(const std::vector<Use>& uses, const Action& action);
  Fault perform_launch(const Launch& launch, ContextObject& context);
  Fault perform_copy(const Copy& copy);
  Fault perform_replay(const Replay& replay, ContextObject& context, Lock& lock);
};

/// The machine of this process.
Machine& machine();
/// What this thread made current; it may be no more.
ContextObject*& current_context();
/// What the next launch of this thread may touch, if it has said so. Of the thread and not of the stream:
/// threads share streams, and each says it just before it launches.
std::optional<std::vector<Buffer>>& declared();
/// True while this thread runs a host function: it may not call the driver.
bool& in_host_function();

}  // namespace sim
}  // namespace kiln::cuda
