// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/cuda/fake_nccl.h"

#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "runtime/cuda/sim.h"
#include "tests/runtime/cuda/nccl_calls.h"

namespace kiln {

namespace testing {
namespace {

struct Meeting;
struct World;

/// One rank's call of a collective.
struct Call : NcclCall {
  Call() = default;
  explicit Call(const NcclCall& c) : NcclCall(c) {}
  cuda::Event ready = nullptr;  ///< its operand is on the host
  std::byte *from = nullptr, *to = nullptr;
};

/// The calls of all ranks for one number.
struct Meeting {
  explicit Meeting(World& w, size_t size) : world(w), calls(size) {}
  World& world;
  std::vector<Call> calls;
  size_t arrived = 0;
  // For those in graphs.
  size_t inside = 0;
  uint64_t times = 0;
};

struct World {
  size_t size = 0, joined = 0;
  bool aborted = false;
  std::set<size_t> ended;  ///< ranks that have: nobody else's abort ends what waits on a device
  std::map<uint64_t, std::unique_ptr<Meeting>> meetings;
  // Of what runs in graphs, by how much of it each rank has run: it meets when it runs, not when it is asked
  // for.
  std::map<uint64_t, std::unique_ptr<Meeting>> replays;
  std::map<size_t, uint64_t> replayed;
};

}  // namespace
}  // namespace testing

struct nccl::CommObject {
  std::shared_ptr<testing::World> world;
  size_t rank = 0;
  uint64_t calls = 0;
  testing::Meeting* pending = nullptr;
  std::thread::id caller = {};  ///< of the call in progress: the thread on which its device is current
};

namespace testing {
namespace {

struct Task {
  World* world;
  Meeting* meeting;  ///< null in graphs
  size_t rank;
  Call call;
};

/// All of it; guarded by its mutex.
struct State {
  std::mutex mutex;
  std::condition_variable changed;
  int ids = 0, comms = 0;
  std::map<std::string, std::shared_ptr<World>> worlds;
  std::map<size_t, bool> stuck;  ///< ranks
  std::map<size_t, nccl::Result> failed;
  std::string last_error;
  std::map<cuda::Stream, nccl::Comm> held_streams;
  std::map<cuda::Event, nccl::Comm> held_events;
  std::vector<std::unique_ptr<Task>> tasks;
};
State& state() {
  static State* const s = new State;
  return *s;
}
using Lock = std::unique_lock<std::mutex>;

const cuda::Driver& driver() { return cuda::simulated_driver(); }

// ---- the driver, with streams that are stuck ----

cuda::Result record(cuda::Event event, cuda::Stream stream) {
  {
    const Lock lock(state().mutex);
    state().held_events.erase(event);
    const auto at = state().held_streams.find(stream);
    if (at != state().held_streams.end()) state().held_events[event] = at->second;
  }
  return driver().event_record(event, stream);
}
cuda::Result query(cuda::Event event) {
  {
    const Lock lock(state().mutex);
    if (state().held_events.count(event)) return cuda::kNotReady;
  }
  return driver().event_query(event);
}
cuda::Result wait(cuda::Stream stream, cuda::Event event, unsigned flags) {
  {
    const Lock lock(state().mutex);
    const auto at = state().held_events.find(event);
    if (at != state().held_events.end()) state().held_streams[stream] = at->second;
  }
  return driver().stream_wait(stream, event, flags);
}
cuda::Result synchronize(cuda::Stream stream) {
  {
    Lock lock(state().mutex);
    state().changed.wait(lock, [&] { return !state().held_streams.count(stream); });
  }
  return driver().stream_synchronize(stream);
}

// ---- what a collective does ----

/// From everybody's operands, which are on the host, to this rank's result.
void compute(Meeting& m, size_t rank) {
  const Call& c = m.calls[rank];
  std::vector<const std::byte*> operands;
  for (const Call& other : m.calls) operands.push_back(other.from);
  run_call(c, rank, operands, c.to);
}

void compute_task(void* data) {
  const Task& task = *static_cast<Task*>(data);
  compute(*task.meeting, task.rank);
}

/// All ranks meet; false if this one has aborted.
bool meet(Meeting& m, size_t rank, Lock& lock) {
  const uint64_t now = m.times;
  if (++m.inside == m.calls.size()) {
    m.inside = 0;
    ++m.times;
    state().changed.notify_all();
  }
  state().changed.wait(lock, [&] { return m.times != now || m.world.ended.count(rank); });
  return !m.world.ended.count(rank);
}

/// In a graph: before it and after it, so that nobody's next operand comes too early.
void meet_task(void* data) {
  const Task& task = *static_cast<Task*>(data);
  World& w = *task.world;
  Lock lock(state().mutex);
  std::unique_ptr<Meeting>& slot = w.replays[++w.replayed[task.rank]];
  if (!slot) slot = std::make_unique<Meeting>(w, w.size);
  Meeting& m = *slot;
  m.calls[task.rank] = task.call;
  if (!meet(m, task.rank, lock)) return;
  lock.unlock();
  compute(m, task.rank);
  lock.lock();
  meet(m, task.rank, lock);
}

cuda::Result give_result(World& world, Meeting* m, size_t rank, const Call& c) {
  if (m)
    for (size_t r = 0; r < world.size; ++r)
      if (r != rank)
        if (const auto e = driver().stream_wait(c.stream, m->calls[r].ready, 0)) return e;
  state().tasks.push_back(std::make_unique<Task>(Task{&world, m, rank, c}));
  if (const auto e =
          driver().host_function(c.stream, m ? compute_task : meet_task, state().tasks.back().get()))
    return e;
  return driver().copy_to_device(reinterpret_cast<cuda::Address>(c.out), c.to, out_bytes(c, world.size),
                                 c.stream);
}

cuda::Result take_operand(Call& c, size_t rank, size_t size) {
  const size_t in = in_bytes(c, rank, size);
  const auto memory = [](std::byte*& p, size_t bytes) {
    return driver().host_allocate(reinterpret_cast<void**>(&p), std::max<size_t>(bytes, 1),
                                  cuda::kHostAllocPortable);
  };
  if (const auto e = memory(c.from, in)) return e;
  if (const auto e = memory(c.to, out_bytes(c, size))) return e;
  if (in == 0) return cuda::kSuccess;
  return driver().copy_to_host(c.from, reinterpret_cast<cuda::Address>(c.in), in, c.stream);
}

nccl::Result start(nccl::Comm comm, const NcclCall& asked) {
  Call call(asked);
  State& s = state();
  const Lock lock(s.mutex);
  World& w = *comm->world;
  if (w.aborted) return nccl::kRemoteError;
  if (comm->pending) return nccl::kInvalidUsage;  // nobody may call while it is in progress
  if (s.stuck.count(comm->rank)) {
    s.held_streams[call.stream] = comm;
    return nccl::kSuccess;
  }
  int status = cuda::kCaptureStatusNone;
  if (driver().capture_status(call.stream, &status)) return nccl::kUnhandledCudaError;
  if (take_operand(call, comm->rank, w.size)) return nccl::kUnhandledCudaError;
  if (status != cuda::kCaptureStatusNone)
    return give_result(w, nullptr, comm->rank, call) ? nccl::kUnhandledCudaError : nccl::kSuccess;
  if (driver().event_create(&call.ready, cuda::kEventDisableTiming) ||
      driver().event_record(call.ready, call.stream))
    return nccl::kUnhandledCudaError;
  std::unique_ptr<Meeting>& slot = w.meetings[++comm->calls];
  if (!slot) slot = std::make_unique<Meeting>(w, w.size);
  slot->calls[comm->rank] = call;
  ++slot->arrived;
  comm->pending = slot.get();
  comm->caller = std::this_thread::get_id();
  return nccl::kInProgress;
}

/// Once all have called.
nccl::Result progress(nccl::Comm comm) {
  if (!comm->pending) return nccl::kSuccess;
  if (comm->pending->arrived < comm->world->size || comm->caller != std::this_thread::get_id())
    return nccl::kInProgress;
  Meeting& m = *comm->pending;
  comm->pending = nullptr;
  return give_result(*comm->world, &m, comm->rank, m.calls[comm->rank]) ? nccl::kUnhandledCudaError
                                                                        : nccl::kSuccess;
}

// ---- the library ----

nccl::Result get_unique_id(nccl::UniqueId* id) {
  const Lock lock(state().mutex);
  std::memset(id->internal, 0, sizeof id->internal);
  std::memcpy(id->internal, &++state().ids, sizeof(int));
  return nccl::kSuccess;
}

nccl::Result comm_init(nccl::Comm* comm, int size, nccl::UniqueId id, int rank, nccl::Config* config) {
  if (config->blocking != 0 || config->magic != 0xcafebeef) return nccl::kInvalidArgument;
  State& s = state();
  const Lock lock(s.mutex);
  std::shared_ptr<World>& world = s.worlds[std::string(id.internal, sizeof id.internal)];
  if (!world) world = std::make_shared<World>();
  world->size = static_cast<size_t>(size);
  ++world->joined;
  ++s.comms;
  *comm = new nccl::CommObject{world, static_cast<size_t>(rank)};
  return nccl::kInProgress;
}

nccl::Result comm_error(nccl::Comm comm, nccl::Result* error) {
  State& s = state();
  const Lock lock(s.mutex);
  const auto failed = s.failed.find(comm->rank);
  if (failed != s.failed.end()) *error = failed->second;
  else if (comm->world->joined < comm->world->size) *error = nccl::kInProgress;
  else *error = progress(comm);
  return nccl::kSuccess;
}

nccl::Result end(nccl::Comm comm, bool aborted) {
  State& s = state();
  const Lock lock(s.mutex);
  if (aborted) {
    comm->world->aborted = true;
    comm->world->ended.insert(comm->rank);
    std::erase_if(s.held_streams, [&](const auto& h) { return h.second == comm; });
    std::erase_if(s.held_events, [&](const auto& h) { return h.second == comm; });
  }
  --s.comms;
  delete comm;
  s.changed.notify_all();
  return nccl::kSuccess;
}

nccl::Library make_library() {
  using nccl::Comm;
  using nccl::Op;
  using nccl::Type;
  nccl::Library l;
  l.path = "fake";
  l.version = 22809;
  l.get_version = [](int* v) { return *v = 22809, nccl::kSuccess; };
  l.get_unique_id = get_unique_id;
  l.comm_init = comm_init;
  l.comm_error = comm_error;
  l.comm_finalize = [](Comm) { return nccl::kSuccess; };
  l.comm_destroy = [](Comm c) { return end(c, false); };
  l.comm_abort = [](Comm c) { return end(c, true); };
  l.error_string = [](nccl::Result r) { return r == nccl::kRemoteError ? "remote error" : "some error"; };
  l.last_error = [](Comm) { return state().last_error.c_str(); };
  set_calls<start>(l);
  return l;
}

}  // namespace

const nccl::Library& fake_nccl() {
  static const nccl::Library library = make_library();
  return library;
}

const cuda::Driver& fake_nccl_driver() {
  static const cuda::Driver held = [] {
    cuda::Driver d = driver();
    d.event_record = record;
    d.event_query = query;
    d.stream_wait = wait;
    d.stream_synchronize = synchronize;
    return d;
  }();
  return held;
}

void reset_fake_nccl(int devices) {
  State& s = state();
  const Lock lock(s.mutex);
  s.worlds.clear();
  s.stuck.clear();
  s.failed.clear();
  s.last_error.clear();
  s.held_streams.clear();
  s.held_events.clear();
  s.tasks.clear();
  cuda::sim::Config config = cuda::sim::default_config();
  config.devices = devices;
  cuda::sim::reset(config);
  driver().init(0);
}

void stick_fake_nccl(int rank) {
  const Lock lock(state().mutex);
  state().stuck[static_cast<size_t>(rank)] = true;
}

void fail_fake_nccl(int rank, nccl::Result result, const std::string& last_error) {
  const Lock lock(state().mutex);
  state().failed[static_cast<size_t>(rank)] = result;
  state().last_error = last_error;
}

int fake_nccl_comms() {
  const Lock lock(state().mutex);
  return state().comms;
}

FakeWorld::FakeWorld(int size, Seconds timeout) : store(make_local_store()) {
  reset_fake_nccl(size);
  groups.resize(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) devices.push_back(std::make_unique<CudaDevice>(fake_nccl_driver(), r));
  std::vector<std::thread> threads;
  std::exception_ptr error;
  std::mutex mutex;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, at = static_cast<size_t>(r), r] {
      try {
        groups[at] = make_nccl_group(store, "nccl/", r, size, *devices[at], &fake_nccl(), timeout);
      } catch (const Error&) {
        const Lock lock(mutex);
        error = std::current_exception();
      }
    });
  for (std::thread& t : threads) t.join();
  if (error) std::rethrow_exception(error);
}

std::vector<std::shared_ptr<ProcessGroup>> make_groups_with_gpus(int size, Seconds timeout) {
  std::vector<std::shared_ptr<ProcessGroup>> groups = make_local_groups(size, timeout);
  for (int r = 0; r < size; ++r) {
    // Each rank makes them in the same order, whatever their indices are.
    auto made = std::make_shared<std::map<int, std::shared_ptr<ProcessGroup>>>();
    ProcessGroup* const host = groups[static_cast<size_t>(r)].get();
    host->set_device_groups([made, host, timeout](int index) {
      std::shared_ptr<ProcessGroup>& group = (*made)[index];
      if (!group)
        group = make_nccl_group(host->store(), fmt::format("gpus/{}/", made->size()), host->rank(),
                                host->size(), cuda_device(index), &fake_nccl(), timeout);
      return group;
    });
  }
  return groups;
}

}  // namespace testing
}  // namespace kiln
