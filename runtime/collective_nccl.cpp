// SPDX-License-Identifier: Apache-2.0
// Each call is a turn, and the group has two threads: one brings turns to the device, in order, and runs
// jobs; the other looks whether the oldest turn has ended, which is what this rank waits in, and for how
// long. What the ranks have to compare and to tell goes through the store.
#include "runtime/collective_nccl.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "ir/base/text.h"
#include "runtime/collective_alarm.h"
#include "runtime/collective_queue.h"
#include "runtime/collective_turn.h"
#include "runtime/cuda/nccl_comm.h"
#include "runtime/cuda/nccl_mean.h"
#include "runtime/signal_mask.h"
#include "runtime/turn_watch.h"

namespace kiln {

namespace {

using Clock = CollectiveControl::Clock;
using TurnPtr = std::shared_ptr<DeviceTurn>;

// Between two looks at the device: at first as soon as may be, later as seldom as nobody notices.
constexpr std::chrono::microseconds kShortLook{20}, kLongLook{1000};

/// What two ranks' calls must have in common, on one line.
std::string call_text(const Collective& c) {
  return fmt::format("{} {} {} {} {} {}", to_string(c.kind), dtype_name(c.given), dtype_name(c.dtype),
                     to_string(c.op), c.root, c.count);
}

class NcclGroup final : public CollectiveCalls<DeviceGroup> {
 public:
  NcclGroup(std::shared_ptr<Store> store, std::string prefix, int rank, int size, CudaDevice& device,
            const nccl::Library* library, Seconds timeout)
      : rank_(rank),
        size_(size),
        device_(device),
        store_(std::move(store)),
        prefix_(std::move(prefix)),
        control_(checked_time(timeout, "ProcessGroup")),
        mean_(device, size) {
    if (size_ > 1) {
      KILN_ASSERT(library, "a group of {} ranks without NCCL", size_);
      token_ = device_.allocate(1, "barriers");
      device_.fill(token_.address(), 0, 1);
      comm_.emplace(*library, device_, *store_, prefix_, rank_, size_, timeout);
      watch_.emplace(rank_, store_, prefix_, [this](const std::string& why) { fail(why, why); });
      alarm_.emplace(
          rank_, size_, store_, prefix_ + "alarm/",
          CollectiveAlarm::Hooks{[this] { return started(); }, [this](const std::string& why) { told(why); },
                                 [this](int r, uint64_t n) { note_left(r, n); }});
    }
    const SignalsBlocked blocked;
    worker_ = std::thread([this] { work(); });
    watcher_ = std::thread([this] { look_after(); });
  }

  ~NcclGroup() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    worker_.join();
    watcher_.join();
    if (alarm_ && !broken()) alarm_->leave(started());
    watch_.reset();
    alarm_.reset();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const char* backend() const override { return "nccl"; }
  Device device() const override { return Device::cuda(device_.index()); }
  CudaDevice& cuda() const override { return device_; }
  std::shared_ptr<Store> store() const override { return store_; }

  WorkPtr replay(const std::string& name, const std::function<void()>& launch,
                 const CollectiveSite& site) override;

  void set_timeout(Seconds timeout) override { control_.set_timeout(checked_time(timeout, "set_timeout")); }
  Seconds timeout() const override { return control_.timeout(); }
  void extend_timeout_once(Seconds extra) override {
    control_.extend(checked_time(extra, "extend_timeout_once"));
  }
  std::optional<std::string> broken() override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  std::optional<std::string> failure() override {
    if (auto why = broken()) return why;
    return watch_ ? watch_->difference() : std::nullopt;
  }
  void abort(const std::string& why) override {
    fail(fmt::format("rank {} aborted: {}", rank_, why), "aborted: " + why);
  }

 private:
  // The caller's thread.
  WorkPtr start(Collective c) override;
  TurnPtr enqueue(Collective c, TurnKind kind);
  // The worker's.
  void work();
  void bring(DeviceTurn& turn);
  void run_job(const TurnPtr& turn);
  void put_on_device(DeviceTurn& turn);
  void run(const Collective& c, const DeviceTurn& turn);
  void put(const std::function<void()>& work);
  void alone(const Collective& c, cuda::Stream stream);
  void compare(const Collective& c);
  void end_failed(DeviceTurn& turn, std::unique_lock<std::mutex>& lock) {
    changed_.wait(lock, [&] { return failure_.has_value(); });
    turn.end(failed_before(turn.call));
  }
  // The watcher's.
  void look_after();
  void look(const TurnPtr& turn);
  void give_up_late(const TurnPtr& turn);
  void forget_compared(const Collective& c);
  // Any.
  uint64_t started() {
    const std::lock_guard lock(mutex_);
    return started_;
  }
  void fail_by(const NcclError& e, DeviceTurn& turn);
  void told(const std::string& why) { fail(why, why, nullptr, false); }
  void note_left(int rank, uint64_t started) {
    const std::lock_guard lock(mutex_);
    left_[rank] = started;
  }
  std::optional<int> gone_before(uint64_t number);
  void close();
  void fail(const std::string& failure, const std::string& reason, DeviceTurn* turn = nullptr,
            bool tell = true, bool forbidden = false);
  std::string failed_before(const Collective& c) const {
    return fmt::format("rank {}: {}: {}{}", rank_, describe(c),
                       forbidden_ ? "" : "the group has failed before: ", *failure_);
  }

  const int rank_, size_;
  CudaDevice& device_;
  const std::shared_ptr<Store> store_;
  const std::string prefix_;
  CollectiveControl control_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TurnPtr> queue_;        ///< that the worker has not come to
  std::deque<TurnPtr> turns_;        ///< that have not ended, the oldest first
  const DeviceTurn* job_ = nullptr;  ///< that the worker runs
  uint64_t started_ = 0;
  bool stopping_ = false, failing_ = false;
  std::optional<std::string> failure_;  ///< the first
  bool forbidden_ = false;              ///< it was a job's, which has kept the collectives from running
  std::map<int, uint64_t> left_;        ///< ranks, and how many collectives they had started
  std::mutex compared_mutex_;
  std::vector<uint64_t> compared_;  ///< numbers of calls whose text in the store is this rank's
  CudaMemory token_;                ///< what barriers reduce
  std::mutex closed_mutex_;         ///< held while the worker puts something there
  bool closed_ = false;             ///< the device, to this group
  NcclMean mean_;                   ///< the worker's
  std::optional<NcclComm> comm_;    ///< where there are others, as these two
  std::optional<TurnWatch> watch_;
  std::optional<CollectiveAlarm> alarm_;
  std::thread worker_, watcher_;
};

// ---- the caller's thread ----

WorkPtr NcclGroup::start(Collective c) {
  check_call(c, size_);
  const bool waits = c.kind == CollectiveKind::barrier || c.kind == CollectiveKind::job;
  return enqueue(std::move(c), waits ? TurnKind::host : TurnKind::device);
}

TurnPtr NcclGroup::enqueue(Collective c, TurnKind kind) {
  const bool job = c.kind == CollectiveKind::job;
  const bool captured = !job && device_.capturing(device_.compute());
  {
    const std::lock_guard lock(mutex_);
    // Ranks need not record alike, only replay.
    const bool counts = (!job || kind == TurnKind::replay) && !captured;
    c.number = counts ? ++started_ : started_;
    if (failure_) throw Error(ErrorKind::comm, failed_before(c), c.site.loc);
  }
  KILN_CHECK(!captured || c.kind != CollectiveKind::barrier, unsupported,
             "{}: the host cannot wait while a graph is captured (call it outside)",
             describe(to_string(c.kind), c.site));
  auto turn = std::make_shared<DeviceTurn>(std::move(c), kind, device_, captured);
  turn->note_before();
  const std::lock_guard lock(mutex_);
  if (failure_) throw Error(ErrorKind::comm, failed_before(turn->call), turn->call.site.loc);
  queue_.push_back(turn);
  if (!captured) turns_.push_back(turn);
  changed_.notify_all();
  return turn;
}

WorkPtr NcclGroup::replay(const std::string& name, const std::function<void()>& launch,
                          const CollectiveSite& site) {
  const TurnPtr turn =
      enqueue({CollectiveKind::job, 0, DType::u8, ReduceOp::sum, 0, 0, nullptr, nullptr, site, {}, name},
              TurnKind::replay);
  turn->await_open();
  try {
    device_.order(device_.collectives(), device_.compute());  // they have the memory of means in common
    launch();
    turn->launched();
  } catch (const std::exception& e) {
    fail(gave_up(rank_, turn->call, e.what()), e.what(), turn.get());
    throw;
  }
  changed_.notify_all();
  return turn;
}

// ---- the worker ----

void NcclGroup::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const TurnPtr turn = std::move(queue_.front());
    queue_.pop_front();
    if (failing_) {  // whoever makes it fail ends the turns that are counted
      if (turn->captured) end_failed(*turn, lock);
      continue;
    }
    const bool job = turn->call.kind == CollectiveKind::job && turn->call.job;
    job_ = job ? turn.get() : nullptr;
    lock.unlock();
    if (job) run_job(turn);
    else bring(*turn);
    lock.lock();
    job_ = nullptr;
    changed_.notify_all();
  }
}

void NcclGroup::run_job(const TurnPtr& turn) {
  turn->begin();
  try {
    turn->call.job();
  } catch (const std::exception& e) {
    fail(e.what(), e.what(), turn.get(), true, true);
    turn->end(e.what());
    return;
  }
  turn->end(std::nullopt);
}

void NcclGroup::bring(DeviceTurn& turn) {
  if (turn.kind == TurnKind::replay) return turn.open();
  try {
    put_on_device(turn);
  } catch (const NcclError& e) {
    fail_by(e, turn);
  } catch (const std::exception& e) {
    fail(gave_up(rank_, turn.call, e.what()), e.what(), &turn);
  }
  if (!turn.captured || turn.over()) return;
  std::unique_lock lock(mutex_);
  end_failed(turn, lock);
}

void NcclGroup::put_on_device(DeviceTurn& turn) {
  Collective c = turn.call;
  if (comm_ && !c.site.agreed && !turn.captured) compare(c);
  turn.begin_on_device();
  if (c.kind == CollectiveKind::barrier) {
    c.in = c.out = token_.data();
    c.count = comm_ ? 1 : 0;
  }
  if (c.kind == CollectiveKind::all_reduce_mean && c.count > 0) {
    Collective sum;
    put([&] { sum = mean_.encode(c, turn.stream(), turn.captured); });
    run(sum, turn);
    put([&] { mean_.decode(c, sum, turn.stream()); });
  } else {
    run(c, turn);
  }
  turn.started_on_device();
}

/// Calls what puts the group's own work on the device, unless no more may come there.
void NcclGroup::put(const std::function<void()>& work) {
  const std::lock_guard lock(closed_mutex_);
  KILN_CHECK(!closed_, comm, "the group has failed");
  work();
}

void NcclGroup::run(const Collective& c, const DeviceTurn& turn) {
  if (!comm_) return put([&] { alone(c, turn.stream()); });
  if (c.count == 0) return;
  comm_->start(c, turn.stream());
  const Seconds limit = control_.limit();
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  auto pause = kShortLook;
  while (!comm_->settled()) {
    KILN_CHECK(!turn.captured || Clock::now() < end, comm,  // which the watcher does not see
               "NCCL has not taken it within the timeout of {} (NCCL_DEBUG=INFO says more)",
               to_string(limit));
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongLook);
  }
}

/// A group of one.
void NcclGroup::alone(const Collective& c, cuda::Stream stream) {
  if (c.in == c.out || c.count == 0) return;
  device_.copy_on_device(reinterpret_cast<cuda::Address>(c.out), reinterpret_cast<cuda::Address>(c.in),
                         static_cast<size_t>(c.count) * dtype_size(c.dtype), stream);
}

/// NCCL does not: ranks that differ hang, or get wrong numbers. The first rank to come leaves its call in the
/// store.
void NcclGroup::compare(const Collective& c) {
  const std::string key = fmt::format("{}call/{}", prefix_, c.number);
  const std::string mine = fmt::format("{}\n{}\n{}", call_text(c), rank_, describe(c));
  const std::string found = store_->set_once(key, mine);
  if (found == mine) {
    const std::lock_guard lock(compared_mutex_);
    compared_.push_back(c.number);
    return;
  }
  const std::vector<std::string> other = split(found, '\n');
  KILN_CHECK(other[0] == call_text(c), comm, "{}",
             mismatch(std::stoi(other[1]), other[2], rank_, describe(c)));
}

// ---- the watcher ----

void NcclGroup::look_after() {
  std::unique_lock lock(mutex_);
  bool inside = false;
  auto pause = kShortLook;
  while (true) {
    // The worker need not have come to what has failed: such turns are in its queue alone.
    changed_.wait(lock, [&] { return stopping_ || !turns_.empty(); });
    if (turns_.empty()) return;
    const TurnPtr oldest = turns_.front();
    if (!std::exchange(inside, true)) {  // also of those that are over: ranks count them
      pause = kShortLook;
      control_.begin();
      if (watch_) watch_->begin(oldest->call);
    }
    if (oldest->over()) {
      inside = false;
      if (watch_) watch_->end();
      control_.end();
      turns_.pop_front();
      lock.unlock();
      forget_compared(oldest->call);
      lock.lock();
      continue;
    }
    if (oldest.get() == job_) {
      changed_.wait(lock, [&] { return oldest.get() != job_; });
      continue;
    }
    changed_.wait_for(lock, pause);
    pause = std::min(2 * pause, kLongLook);
    lock.unlock();
    look(oldest);
    lock.lock();
  }
}

void NcclGroup::look(const TurnPtr& turn) {
  const bool job = turn->call.kind == CollectiveKind::job && turn->kind == TurnKind::host;
  if (job || turn->over()) return;
  try {
    if (turn->finished()) return;
    if (comm_) comm_->settled();
  } catch (const NcclError& e) {
    return fail_by(e, *turn);
  } catch (const std::exception& e) {
    return fail(gave_up(rank_, turn->call, e.what()), e.what(), turn.get());
  }
  if (const auto rank = gone_before(turn->call.number)) {
    const std::string why = fmt::format("rank {} left the group before it", *rank);
    fail(gave_up(rank_, turn->call, why), why, turn.get());
  } else if (Clock::now() >= control_.deadline()) {
    give_up_late(turn);
  }
}

std::optional<int> NcclGroup::gone_before(uint64_t number) {
  const std::lock_guard lock(mutex_);
  for (const auto& [rank, started] : left_)
    if (started < number) return rank;
  return std::nullopt;
}

void NcclGroup::give_up_late(const TurnPtr& turn) {
  std::vector<int> missing, silent;
  const Seconds limit = control_.limit();
  if (alarm_) {
    const std::vector<std::optional<uint64_t>> started = alarm_->ask();
    for (int r = 0; r < size_; ++r) {
      const auto& n = started[static_cast<size_t>(r)];
      if (!n) silent.push_back(r);
      else if (*n < turn->call.number) missing.push_back(r);
    }
  }
  if (turn->over()) return;
  std::string why = !missing.empty() ? not_started(missing, limit)
                    : silent.empty()
                        ? fmt::format(
                              "it has not ended within the timeout of {}, though all ranks have "
                              "started it (a slow network? then set_timeout; NCCL_DEBUG=INFO says "
                              "more)",
                              to_string(limit))
                        : fmt::format("it has not ended within the timeout of {}", to_string(limit));
  if (!silent.empty())
    why += fmt::format("; {} {} not answer: stopped, dead or cut off", rank_list(silent),
                       silent.size() == 1 ? "does" : "do");
  fail(gave_up(rank_, turn->call, why), why, turn.get());
}

/// All ranks have compared their calls with what is in the store once a collective has ended that needs all
/// of them: what was left there for it and before it can go.
void NcclGroup::forget_compared(const Collective& c) {
  if (c.kind == CollectiveKind::broadcast || c.kind == CollectiveKind::job || broken()) return;
  std::vector<uint64_t> old;
  {
    const std::lock_guard lock(compared_mutex_);
    const auto end =
        std::partition_point(compared_.begin(), compared_.end(), [&](uint64_t n) { return n <= c.number; });
    old.assign(compared_.begin(), end);
    compared_.erase(compared_.begin(), end);
  }
  try {
    for (const uint64_t n : old) store_->erase(fmt::format("{}call/{}", prefix_, n));
  } catch (const Error&) {  // the store is gone, and they with it
  }
}

// ---- failure ----

/// NCCL may have noticed that another rank has given up, and that one says why.
void NcclGroup::fail_by(const NcclError& e, DeviceTurn& turn) {
  if (const auto why = alarm_->reason(CollectiveControl::kReasonTime)) fail(*why, *why, &turn, false);
  else fail(gave_up(rank_, turn.call, e.what()), e.what(), &turn);
}

/// `failure` is for all later calls and the other ranks, `reason` for `turn` or, if there is none, the oldest
/// collective. First the others are told: the next act of whoever hears of it here may be to end the process.
void NcclGroup::fail(const std::string& failure, const std::string& reason, DeviceTurn* turn, bool tell,
                     bool forbidden) {
  std::deque<TurnPtr> pending;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(failing_, true)) return;
  }
  if (tell && alarm_) alarm_->fail(failure);
  {
    const std::lock_guard lock(mutex_);
    failure_ = failure;
    forbidden_ = forbidden;
    pending = turns_;
    // A running job ends by itself, and says what it thinks.
    std::erase_if(pending, [&](const TurnPtr& t) { return t.get() == job_ || t->over(); });
  }
  if (!turn && !pending.empty()) turn = pending.front().get();
  std::vector<std::string> texts;
  for (const TurnPtr& t : pending) {
    const bool culprit = t.get() == turn;
    texts.push_back(culprit ? fmt::format("rank {}: {}: {}", rank_, describe(t->call), reason)
                            : failed_before(t->call));
    if (t->begin_failing())
      device_.fail(ErrorKind::comm, fmt::format("{} (what the device has computed since then is wrong: begin "
                                                "again in a new process, with the last checkpoint)",
                                                texts.back()));
  }
  if (comm_) comm_->abort();
  close();
  for (size_t i = 0; i < pending.size(); ++i) pending[i]->end(texts[i]);
  changed_.notify_all();
}

/// Nothing more comes on the collectives stream, and what is there still ends, before the memory that it
/// touches is anybody else's.
void NcclGroup::close() {
  {
    const std::lock_guard lock(closed_mutex_);
    closed_ = true;
  }
  try {
    device_.order(device_.collectives(), device_.compute());
  } catch (const Error&) {  // the device has failed
  }
}

}  // namespace

std::shared_ptr<DeviceGroup> make_nccl_group(std::shared_ptr<Store> store, const std::string& prefix,
                                             int rank, int size, CudaDevice& device,
                                             const nccl::Library* library, Seconds timeout) {
  return std::make_shared<NcclGroup>(std::move(store), prefix, rank, size, device, library, timeout);
}

}  // namespace kiln
