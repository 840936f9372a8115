// SPDX-License-Identifier: Apache-2.0
// The hot path is run(): no allocation, no lock but the arena pool's, no clock for plans that one thread
// runs.
#include "runtime/executor.h"

#include <algorithm>
#include <cstring>

#include "ir/base/error.h"
#include "ir/base/options.h"
#include "ir/base/rounding.h"
#include "runtime/arena.h"
#include "runtime/blas.h"
#include "runtime/plan_call.h"
#include "runtime/profiler.h"
#include "runtime/thread_pool.h"

namespace kiln {

namespace {

constexpr int64_t kScratchAlign = 4096;
constexpr size_t kInlinePointers = 512;

/// Pointers of one call; on the stack for all but giant plans.
class PointerTable {
 public:
  explicit PointerTable(size_t count) : many_(count > kInlinePointers ? count : 0) {}
  void** data() { return many_.empty() ? few_ : many_.data(); }

 private:
  void* few_[kInlinePointers];
  std::vector<void*> many_;
};

/// The collectives of one call. The arena they work in outlives them.
class Collectives {
 public:
  Collectives(const Plan& plan, const BoundPlan& bound, const Invocation& call, void* const* buffers)
      : plan_(plan),
        bound_(bound),
        call_(call),
        buffers_(buffers),
        works_(plan.collectives.size()),
        times_(plan.collectives.size()) {}
  ~Collectives() {
    for (const WorkPtr& w : works_) {
      if (!w) continue;
      try {
        w->wait();
      } catch (const Error&) {  // of a call that has failed already
      }
    }
  }
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  void announce() {
    if (call_.announce && *call_.announce && !plan_.collectives.empty()) (*call_.announce)(false);
  }
  void start(int32_t i) {
    const PlanCollective& c = plan_.collectives[static_cast<size_t>(i)];
    const size_t at = static_cast<size_t>(i);
    works_[at] = all_reduce_as(*call_.groups[static_cast<size_t>(c.group)], buffers_[c.buffer],
                               bound_.dims[c.count], plan_.buffers[static_cast<size_t>(c.buffer)].dtype,
                               c.wire, at < call_.sites.size() ? call_.sites[at] : CollectiveSite{});
  }
  void wait(int32_t i) {
    const WorkPtr w = std::move(works_[static_cast<size_t>(i)]);
    w->wait();
    times_[static_cast<size_t>(i)] = w->times();
  }
  const std::vector<Work::Times>& times() const { return times_; }

 private:
  const Plan& plan_;
  const BoundPlan& bound_;
  const Invocation& call_;
  void* const* buffers_;
  std::vector<WorkPtr> works_;
  std::vector<Work::Times> times_;
};

}  // namespace

/// What the members of a team read while a call runs.
struct Executable::Frame {
  const BoundPlan* bound;
  const KernelFn* kernels;
  void* const* args;
  std::byte* scratch;
  int64_t scratch_stride;
  std::span<const int32_t> guards;
  void* const* buffers;
  Collectives* collectives;

  /// Shares of one phase get the same answer: guards were written in phases before it, by nobody later.
  bool guards_hold() const {
    return std::all_of(guards.begin(), guards.end(),
                       [&](int32_t g) { return *static_cast<const int64_t*>(buffers[g]) == kNothingWrong; });
  }
  void launch(const BoundLaunch& l, int share, int size) const {
    if (l.parts > 0) return launch_parts(l, share, size);
    const int64_t part = l.solo ? share : (share + l.turn) % size;
    const int64_t begin = l.solo ? 0 : l.tasks * part / size;
    const int64_t end = l.solo ? l.tasks : l.tasks * (part + 1) / size;
    if (begin >= end || (l.solo && share != 0)) return;
    if (l.kind == LaunchKind::start) return collectives->start(l.kernel);
    if (l.kind == LaunchKind::wait) return collectives->wait(l.kernel);
    kernels[l.kernel](args + l.first_arg, bound->launch_dims.data() + l.first_dim, begin, end,
                      scratch + scratch_stride * share);
  }
  void launch_parts(const BoundLaunch& l, int share, int size) const {
    if (l.solo && share != 0) return;
    const BoundPart* parts = bound->parts.data() + l.first_part;
    const int64_t turn = l.solo ? 0 : (share + l.turn) % size, all = parts[l.parts - 1].end;
    const int64_t from = l.solo ? 0 : all * turn / size, to = l.solo ? all : all * (turn + 1) / size;
    for (int32_t i = 0; i < l.parts; ++i) {
      const int64_t begin = parts[i].tasks_before(from), end = parts[i].tasks_before(to);
      if (begin >= end) continue;
      kernels[l.kernel](args + l.first_arg + int64_t{i} * l.part_args,
                        bound->launch_dims.data() + l.first_dim + i * l.part_dims, begin, end,
                        scratch + scratch_stride * share);
    }
  }
  /// The launches of one phase.
  void phase(int i, int share, int size) const {
    if (i >= bound->guarded_phase && !guards_hold()) return;
    if (i == bound->announced_phase && share == 0) collectives->announce();
    for (int32_t l = bound->phases[static_cast<size_t>(i)]; l < bound->phases[static_cast<size_t>(i) + 1];
         ++l)
      launch(bound->launches[static_cast<size_t>(l)], share, size);
  }
};

Executable::Executable(Plan plan, const Resolver& resolve, std::shared_ptr<const void> image)
    : plan_(std::move(plan)), bounds_(plan_), image_(std::move(image)), poison_(option_flag("KILN_POISON")) {
  for (const PlanKernel& k : plan_.kernels) {
    kernels_.push_back(k.builtin ? find_builtin(k.symbol) : resolve(k));
    KILN_ASSERT(kernels_.back(), "executor: no {} named {}", k.builtin ? "builtin" : "kernel", k.symbol);
  }
  for (const Launch& l : plan_.launches) {
    args_.insert(args_.end(), l.buffers.begin(), l.buffers.end());
    starts_.insert(starts_.end(), l.starts.begin(), l.starts.end());
    starts_.resize(args_.size());
  }
  // Kernels load constants in whole vectors of up to 64 bytes.
  constants_storage_.resize(plan_.constants.size() + 64);
  void* at = constants_storage_.data();
  size_t room = constants_storage_.size();
  constants_ = static_cast<std::byte*>(std::align(64, plan_.constants.size(), at, room));
  std::memcpy(constants_, plan_.constants.data(), plan_.constants.size());
}

Executable::~Executable() = default;

void Executable::point(const BoundPlan& bound, const Invocation& call, std::byte* arena, void** table) const {
  for (size_t i = 0; i < plan_.buffers.size(); ++i) {
    const PlanBuffer& b = plan_.buffers[i];
    void* p = nullptr;
    switch (b.kind) {
      case BufferKind::external: p = call.externals[static_cast<size_t>(b.index)]; break;
      case BufferKind::output: p = call.outputs[static_cast<size_t>(b.index)]; break;
      case BufferKind::scalar: p = const_cast<uint64_t*>(&call.scalars[static_cast<size_t>(b.index)]); break;
      case BufferKind::arena: p = arena + bound.offsets[i]; break;
      case BufferKind::constant: p = constants_ + bound.offsets[i]; break;
    }
    KILN_CHECK(p || bound.sizes[i] == 0, invalid,
               "executor: no memory given for {} {} ({}); expected {} bytes",
               b.kind == BufferKind::output ? "output" : "external", b.index, b.name, bound.sizes[i]);
    if (poison_ && b.kind == BufferKind::output) poison(p, static_cast<size_t>(bound.sizes[i]), b.dtype);
    table[i] = p;
  }
}

std::vector<int64_t> Executable::dims(std::span<const int64_t> symbols) const {
  return bounds_.get(symbols)->dims;
}

int64_t Executable::arena_bytes(std::span<const int64_t> symbols) const {
  return bounds_.get(symbols)->arena_bytes;
}

int Executable::choose_threads(std::span<const int64_t> symbols, int available) const {
  return bounds_.get(symbols)->choose_threads(available, true);
}

void Executable::walk_timed(const Frame& frame, Team& team, const Invocation& call) const {
  std::vector<int64_t> ns(plan_.launches.size());
  size_t ran = 0;
  const int64_t start = timeline_now();
  int64_t last = start;
  for (size_t i = 0; i < ns.size() && (i < frame.bound->guarded_from || frame.guards_hold()); ++i) {
    if (i == frame.bound->announced_from) frame.collectives->announce();
    team.run(1, [&](int, int share) { frame.launch(frame.bound->launches[i], share, team.size()); });
    const int64_t now = timeline_now();
    ns[i] = now - last;
    last = now;
    ran = i + 1;
  }
  if (call.profiler) call.profiler->record(plan_, frame.bound->dims, ns, last - start);
  if (call.timeline)
    call.timeline->add(call_spans(plan_, *frame.bound, call, ns, start, frame.collectives->times()));
  if (!call.launch_ns) return;
  std::fill(ns.begin() + static_cast<ptrdiff_t>(ran), ns.end(), -1);
  *call.launch_ns = std::move(ns);
}

void Executable::run(const Invocation& call) const {
  check_call(plan_, call);
  std::shared_ptr<const BoundPlan> held;
  if (!bounds_.only() || !call.symbols.empty()) held = bounds_.get(call.symbols);
  const BoundPlan& bound = held ? *held : *bounds_.only();

  ThreadPool& pool = ThreadPool::shared();
  const bool small = bound.alone_ns < WorkModel::kHotGainNs;
  int threads = call.threads;
  const int available = call.max_threads > 0 ? call.max_threads : default_threads();
  if (threads <= 0) threads = small ? 1 : bound.choose_threads(available, pool.recently_used());
  const bool trial = call.threads <= 0 && threads > 1 && bound.alone_ns < WorkModel::kTrialNs;
  if (trial) threads = bound.trial.choose(threads);
  const int64_t start = trial ? timeline_now() : 0;
  Team team = pool.lease(threads);

  const int64_t stride = round_up(bound.scratch_bytes, kScratchAlign);
  const int64_t scratch_at = stride ? round_up(bound.arena_bytes, kScratchAlign) : bound.arena_bytes;
  const ArenaLease arena = ArenaPool::shared().lease(static_cast<size_t>(scratch_at + stride * team.size()),
                                                     poison_, [&] { return largest_buffers(plan_, bound); });
  PointerTable table(plan_.buffers.size() + args_.size());
  void** buffers = table.data();
  void** args = buffers + plan_.buffers.size();
  point(bound, call, arena.data(), buffers);
  for (size_t i = 0; i < args_.size(); ++i) args[i] = static_cast<std::byte*>(buffers[args_[i]]) + starts_[i];

  Collectives collectives(plan_, bound, call, buffers);
  const Frame frame{&bound, kernels_.data(), args,    stride ? arena.data() + scratch_at : nullptr,
                    stride, plan_.guards,    buffers, &collectives};
  if (call.profiler || call.timeline || call.launch_ns) walk_timed(frame, team, call);
  else team.run(bound.phase_count(), [&](int i, int share) { frame.phase(i, share, team.size()); });
  arena.check_guard();
  if (!small) pool.note_use();
  if (trial) bound.trial.note(team.size(), static_cast<double>(timeline_now() - start));
}

}  // namespace kiln
