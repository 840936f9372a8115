// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/graph.h"

#include <algorithm>
#include <utility>

#include "ir/base/error.h"
#include "ir/base/log.h"
#include "ir/base/rounding.h"
#include "runtime/cuda/collectives.h"
#include "runtime/cuda/device_plan.h"

namespace kiln {

using cuda::Address;

namespace {

constexpr size_t kSmallOutput = 64;    // losses and guards: callers keep them, and a copy is nothing
constexpr int kPatientRecordings = 2;  // of one graph, before all that can move does

}  // namespace

// --- blocks ---

std::shared_ptr<CudaGraphBlock> CudaGraphBlocks::get(CudaDevice& device, size_t bytes, size_t limit) {
  const std::lock_guard lock(mutex_);
  std::erase_if(blocks_, [](const auto& b) { return b.expired(); });
  size_t all = 0;
  std::shared_ptr<CudaGraphBlock> best;
  for (const auto& weak : blocks_) {
    const std::shared_ptr<CudaGraphBlock> b = weak.lock();
    if (!b) continue;
    all += b->memory.bytes();
    if (b->memory.bytes() >= bytes && (!best || b->memory.bytes() < best->memory.bytes())) best = b;
  }
  if (best) return best;
  if (all + bytes > limit) return nullptr;
  best = std::make_shared<CudaGraphBlock>();
  best->memory = device.allocate(bytes, kCudaGraphHolder);
  blocks_.push_back(best);
  return best;
}

// --- graphs ---

CudaGraph::CudaGraph(CudaDevice& device, const CudaRecording& recorded, const std::string& name)
    : device_(&device),
      name_("graph of " + name),
      launches_(std::make_shared<const std::string>(recorded.launches)) {
  const cuda::Result r = device.driver().graph_instantiate(&exec_, recorded.graph, 0);
  device.driver().graph_destroy(recorded.graph);
  device.check(r, "cuGraphInstantiate", name_);
  device.count_graphs(1);
}

CudaGraph& CudaGraph::operator=(CudaGraph&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(exec_, other.exec_);
  std::swap(name_, other.name_);
  std::swap(launches_, other.launches_);
  return *this;
}

CudaGraph::~CudaGraph() {
  if (!exec_) return;
  device_->count_graphs(-1);
  try {
    device_->synchronize(device_->compute());  // it may be running
    device_->driver().graph_exec_destroy(exec_);
  } catch (const Error&) {  // a device that has failed has lost its graphs
  }
}

void CudaGraph::launch() { device_->launch(exec_, name_, launches_); }

namespace {

/// While it lives, what this thread puts on the device's streams is recorded.
class Recording {
 public:
  Recording(CudaDevice& device, const std::string& name) : device_(device) { device_.begin_recording(name); }
  ~Recording() {
    if (finished_) return;
    try {
      if (const CudaRecording r = device_.end_recording(); r.graph) device_.driver().graph_destroy(r.graph);
    } catch (const Error&) {  // on the way of the one that ended it
    }
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  CudaRecording finish() {
    finished_ = true;
    return device_.end_recording();
  }

 private:
  CudaDevice& device_;
  bool finished_ = false;
};

}  // namespace

// --- plans ---

/// What is known of the calls of one set of sizes.
struct CudaGraphs::Entry {
  explicit Entry(std::shared_ptr<const BoundPlan> b) : bound(std::move(b)) {}

  const std::shared_ptr<const BoundPlan> bound;
  std::mutex mutex;
  bool called = false;
  std::vector<Address> last;          // by slot: of the first call; then those that the graph has
  std::vector<bool> moves;            // by slot
  std::vector<size_t> inside;         // by slot: where in the block, of those that move
  std::vector<ProcessGroup*> groups;  // that it was recorded with
  std::shared_ptr<CudaGraphBlock> block;
  CudaGraph graph;
  int recordings = 0;
  size_t bytes = 0;

  /// Marks those that have moved since. True if there are none.
  bool stays(const CudaSlots& slots) {
    bool all = true;
    for (size_t s = 0; s < moves.size(); ++s) {
      if (moves[s] || slots.bytes[s] == 0) continue;
      moves[s] = slots.addresses[s] != last[s] || slots.addresses[s] % kCudaTensorAlign != 0;
      all = all && !moves[s];
    }
    return all;
  }
};

CudaGraphs::CudaGraphs(CudaDevicePlan& plan) : plan_(plan) {}
CudaGraphs::~CudaGraphs() = default;

bool CudaGraphs::takes(const Invocation& call) const {
  const Plan& p = plan_.plan();
  // Ranks record and replay together: sizes of their own would part them.
  const bool together = p.collectives.empty() || p.symbols.empty();
  return plan_.options().graphs && together && !call.profiler && !call.timeline && !p.launches.empty() &&
         plan_.launches().only_streams(call.groups);
}

std::shared_ptr<CudaGraphs::Entry> CudaGraphs::find(const std::shared_ptr<const BoundPlan>& bound) {
  const std::lock_guard lock(mutex_);
  const auto it = std::find_if(entries_.begin(), entries_.end(),
                               [&](const auto& e) { return e->bound->symbols == bound->symbols; });
  if (it != entries_.end()) {
    std::rotate(entries_.begin(), it, it + 1);
  } else {
    entries_.insert(entries_.begin(), std::make_shared<Entry>(bound));
    if (entries_.size() > static_cast<size_t>(std::max(plan_.options().max_graphs, 1))) entries_.pop_back();
  }
  return entries_.front();
}

bool CudaGraphs::run(const std::shared_ptr<const BoundPlan>& bound, const Invocation& call,
                     const CudaSlots& slots) {
  const std::shared_ptr<Entry> entry = find(bound);
  Entry& e = *entry;
  const std::lock_guard lock(e.mutex);
  if (!std::exchange(e.called, true)) {
    e.last = slots.addresses;
    e.moves.resize(slots.addresses.size());
    count(&CudaGraphStats::plain_calls);
    return false;
  }
  const bool stays = e.stays(slots);
  const bool same_groups =
      std::equal(e.groups.begin(), e.groups.end(), call.groups.begin(), call.groups.end());
  if (e.recordings == 0 || !stays || !same_groups) {
    if (!record(e, call, slots)) {
      count(&CudaGraphStats::plain_calls);
      return false;
    }
  }
  replay(e, call, slots);
  return true;
}

bool CudaGraphs::record(Entry& e, const Invocation& call, const CudaSlots& slots) {
  CudaDevice& device = plan_.device();
  for (size_t s = 0; s < e.moves.size(); ++s) {
    const bool small = !plan_.is_read(s) && slots.bytes[s] <= kSmallOutput;
    const bool impatient = e.recordings >= kPatientRecordings && !(plan_.is_read(s) && plan_.is_written(s));
    e.moves[s] = e.moves[s] || small || impatient;
  }
  e.inside.assign(e.moves.size(), 0);
  size_t bytes = round_up(plan_.call_bytes(*e.bound), kCudaPartAlign);
  for (size_t s = 0; s < e.moves.size(); ++s) {
    if (!e.moves[s]) continue;
    e.inside[s] = bytes;
    bytes += round_up(slots.bytes[s], kCudaPartAlign);
  }
  // Where ranks meet, one that does not record would part them.
  const size_t limit = plan_.plan().collectives.empty() ? plan_.options().max_graph_bytes : SIZE_MAX;
  const auto block = device.graph_blocks().get(device, std::max(bytes, kCudaPartAlign), limit);
  if (!block) {
    tell(bytes, limit);
    return false;
  }
  std::vector<Address> addresses = slots.addresses;
  for (size_t s = 0; s < addresses.size(); ++s)
    if (e.moves[s]) addresses[s] = block->memory.address() + e.inside[s];
  Invocation quiet = call;
  quiet.announce = nullptr;  // a replay does it
  device.set_graph_caps({plan_.options().max_graphs, plan_.options().max_graph_bytes});
  Recording recording(device, plan_.options().name);
  plan_.enqueue(*e.bound, quiet, addresses, block->memory.address());
  e.graph = CudaGraph(device, recording.finish(), plan_.options().name);
  e.block = block;
  e.bytes = bytes;
  e.last = slots.addresses;
  e.groups.assign(call.groups.begin(), call.groups.end());
  ++e.recordings;
  count(&CudaGraphStats::recordings);
  return true;
}

void CudaGraphs::replay(Entry& e, const Invocation& call, const CudaSlots& slots) {
  if (call.announce && *call.announce && !plan_.plan().collectives.empty()) (*call.announce)(true);
  replay_in_turn(plan_.plan(), call, plan_.options().name, [&] { put_on_compute(e, slots, call); });
  count(&CudaGraphStats::replays);
}

void CudaGraphs::put_on_compute(Entry& e, const CudaSlots& slots, const Invocation& call) {
  CudaDevice& device = plan_.device();
  const std::lock_guard turn(e.block->mutex);
  const Address own = e.block->memory.address();
  plan_.upload_scalars(*e.bound, call, own);
  for (size_t s = 0; s < e.moves.size(); ++s)
    if (e.moves[s] && plan_.is_read(s))
      device.copy_on_device(own + e.inside[s], slots.addresses[s], slots.bytes[s]);
  e.graph.launch();
  for (size_t s = 0; s < e.moves.size(); ++s)
    if (e.moves[s] && (plan_.is_written(s) || !plan_.is_read(s)))
      device.copy_on_device(slots.addresses[s], own + e.inside[s], slots.bytes[s]);
}

void CudaGraphs::count(int64_t CudaGraphStats::*what) {
  const std::lock_guard lock(mutex_);
  ++(stats_.*what);
}

void CudaGraphs::tell(size_t bytes, size_t limit) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(told_, true)) return;
  log(LogLevel::warn,
      "cuda:{}: a graph of {} would need {} bytes beside others, more than the {} allowed; it runs "
      "without",
      plan_.device().index(), plan_.options().name, bytes, limit);
}

CudaGraphStats CudaGraphs::stats() const {
  std::vector<std::shared_ptr<Entry>> entries;
  CudaGraphStats out;
  {
    const std::lock_guard lock(mutex_);
    out = stats_;
    entries = entries_;
  }
  for (const auto& e : entries) {
    const std::lock_guard lock(e->mutex);
    out.graphs += e->recordings > 0;
    out.bytes += e->bytes;
  }
  return out;
}

}  // namespace kiln
