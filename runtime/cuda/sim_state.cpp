// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/sim_state.h"

#include <fmt/format.h>

#include "ir/base/options.h"
#include "runtime/cuda/sim_capture.h"

namespace kiln::cuda {

ContextObject::ContextObject(int ordinal, int stream_number) : device(ordinal), space(ordinal) {
  pool.context = this;
  legacy.context = this;
  legacy.number = stream_number;
}

void set_sim_compile(SimCompile compile) {
  const sim::Lock lock(sim::machine().mutex);
  sim::machine().compile = compile;
}

namespace sim {

Config default_config() {
  Config c;
  c.devices = static_cast<int>(option_int("KILN_SIM_DEVICES"));
  KILN_CHECK(c.devices <= 16, invalid, "KILN_SIM_DEVICES: got {}, expected up to 16", c.devices);
  c.seed = static_cast<uint64_t>(option_int("KILN_SIM_SEED"));
  return c;
}

Machine::Machine() : hooks(runner.hooks()), random(config.seed) { contexts.resize(config.devices); }

// Never destroyed: others may give their memory back while the process ends.
Machine& machine() {
  static Machine& m = *new Machine;
  return m;
}

ContextObject*& current_context() {
  thread_local ContextObject* current = nullptr;
  return current;
}

std::optional<std::vector<Buffer>>& declared() {
  thread_local std::optional<std::vector<Buffer>> buffers;
  return buffers;
}

bool& in_host_function() {
  thread_local bool inside = false;
  return inside;
}

ContextObject* Machine::context(ContextObject* handle) {
  for (const auto& c : contexts)
    if (handle && c.get() == handle) return handle;
  return nullptr;
}

ContextObject* Machine::current() { return context(current_context()); }

ContextObject* Machine::of_address(Address address) {
  const int device = device_of(address);
  return device >= 0 && device < static_cast<int>(contexts.size()) ? contexts[device].get() : nullptr;
}

Result Machine::refuse(Result code, std::string text) {
  fault = std::move(text);
  return code;
}

Result Machine::begin_call() {
  if (in_host_function()) return refuse(kNotPermitted, "a host function calls the driver");
  if (!initialized) return refuse(kNotInitialized, "cuInit has not been called");
  if (FailurePlan::due(failures.call)) failures.lost = true;
  if (failures.lost) return refuse(kUnknown, "planned loss of the device");
  return kSuccess;
}

void reset(const Config& config) {
  Machine& m = machine();
  const Lock lock(m.mutex);
  m.contexts.clear();
  m.contexts.resize(config.devices);
  for (const auto& [address, bytes] : m.pinned) std::free(reinterpret_cast<void*>(address));
  m.pinned.clear();
  m.captures.clear();
  m.config = config;
  m.initialized = false;
  m.random = Random(config.seed);
  m.failures = {};
  m.fault.clear();
  m.host.clear();
  m.history.clear();
  m.streams = 0;
  m.launches = 0;
}

void fail_allocation(int64_t nth) {
  const Lock lock(machine().mutex);
  machine().failures.allocation = nth;
}

void fail_launch(int64_t nth) {
  const Lock lock(machine().mutex);
  machine().failures.launch = nth;
}

void lose_device(int64_t nth) {
  const Lock lock(machine().mutex);
  machine().failures.call = nth;
  if (nth == 0) machine().failures.lost = false;
}

size_t pending_work(int device) {
  Machine& m = machine();
  const Lock lock(m.mutex);
  const ContextObject* c = m.contexts.at(device).get();
  if (!c) return 0;
  const auto waiting = [](const StreamObject& s) {
    return static_cast<size_t>(std::count_if(s.queue.begin(), s.queue.end(),
                                             [](const WorkPtr& w) { return w->state != Work::State::done; }));
  };
  size_t n = waiting(c->legacy);
  for (const auto& [key, s] : c->streams) n += waiting(*s);
  return n;
}

uint64_t host_waits() {
  const Lock lock(machine().mutex);
  return machine().host_waits;
}

uint64_t launches() {
  const Lock lock(machine().mutex);
  return machine().launches;
}

}  // namespace sim
}  // namespace kiln::cuda
