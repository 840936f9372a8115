// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective_queue.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <thread>
#include <utility>

#include "runtime/signal_mask.h"
#include "runtime/timeline.h"
#include "runtime/turn_watch.h"
#include "runtime/wire.h"

namespace kiln {

namespace {

class QueuedWork final : public Work {
 public:
  explicit QueuedWork(Collective c) : call(std::move(c)) {}

  void wait() override {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return done_; });
    // Made here: copies of one exception share its text, whose owners no thread checker can follow.
    if (error_) throw Error(ErrorKind::comm, *error_, call.site.loc);
  }
  bool done() const override {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  Times times() const override {
    const std::lock_guard lock(mutex_);
    return times_;
  }
  void begin() {
    const std::lock_guard lock(mutex_);
    times_.begin_ns = timeline_now();
  }
  void end(std::optional<std::string> error) {
    const std::lock_guard lock(mutex_);
    times_.end_ns = timeline_now();
    done_ = true;
    error_ = std::move(error);
    ended_.notify_all();
  }

  const Collective call;

 private:
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::optional<std::string> error_;
  Times times_;
};

class QueuedGroup final : public CollectiveCalls<ProcessGroup> {
 public:
  QueuedGroup(int rank, int size, Seconds timeout, std::shared_ptr<Store> store, const std::string& prefix,
              std::unique_ptr<CollectiveEngine> engine)
      : rank_(rank),
        size_(size),
        control_(checked_time(timeout, "ProcessGroup")),
        store_(std::move(store)),
        engine_(std::move(engine)) {
    if (size_ > 1)
      watch_.emplace(rank_, store_, prefix, [this](const std::string& why) {
        control_.stop(why);
        engine_->interrupt();
      });
    const SignalsBlocked blocked;
    worker_ = std::thread([this] { work(); });
  }

  ~QueuedGroup() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    called_.notify_one();
    worker_.join();
    watch_.reset();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const char* backend() const override { return engine_->backend(); }
  std::shared_ptr<Store> store() const override { return store_; }

  void set_timeout(Seconds timeout) override {
    control_.set_timeout(checked_time(timeout, "set_timeout"));
    engine_->interrupt();
  }
  Seconds timeout() const override { return control_.timeout(); }
  void extend_timeout_once(Seconds extra) override {
    control_.extend(checked_time(extra, "extend_timeout_once"));
    engine_->interrupt();
  }
  std::optional<std::string> failure() override {
    if (auto why = failed()) return why;
    return watch_ ? watch_->difference() : std::nullopt;
  }
  std::optional<std::string> broken() override {
    if (auto why = failed()) return why;
    return engine_->broken();
  }
  void abort(const std::string& why) override {
    {
      const std::lock_guard lock(mutex_);
      control_.stop("aborted: " + why);
      if (!failure_) failure_ = fmt::format("rank {} aborted: {}", rank_, why);
    }
    called_.notify_one();
    engine_->interrupt();
  }

 private:
  WorkPtr start(Collective c) override {
    check_call(c, size_);
    const std::lock_guard lock(mutex_);
    c.number = c.kind == CollectiveKind::job ? started_ : ++started_;
    if (failure_) throw Error(ErrorKind::comm, failed_before(c), c.site.loc);
    auto work = std::make_shared<QueuedWork>(std::move(c));
    queue_.push_back(work);
    called_.notify_one();
    return work;
  }

  /// The group's thread.
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      called_.wait(lock, [&] { return stopping_ || !queue_.empty() || (failure_ && !told_); });
      if (failure_ && !told_) tell(lock);
      if (queue_.empty()) {
        if (stopping_) return;
        continue;
      }
      const std::shared_ptr<QueuedWork> next = std::move(queue_.front());
      queue_.pop_front();
      if (failure_) next->end(failed_before(next->call));
      else run(lock, *next);
    }
  }

  void run(std::unique_lock<std::mutex>& lock, QueuedWork& next) {
    lock.unlock();
    std::optional<std::string> reason;
    control_.begin();
    next.begin();
    if (watch_) watch_->begin(next.call);
    const bool job = next.call.kind == CollectiveKind::job;
    try {
      if (job) next.call.job();
      else if (next.call.kind == CollectiveKind::all_reduce_mean) run_mean(next.call);
      else engine_->run(next.call, control_);
    } catch (const std::exception& e) {
      reason = e.what();
    }
    if (watch_) watch_->end();
    control_.end();
    if (!reason) {
      next.end(std::nullopt);
      lock.lock();
      return;
    }
    lock.lock();
    if (!failure_) {
      failure_ = job ? *reason : gave_up(rank_, next.call, *reason);
      forbidden_ = job;
    }
    tell(lock);
    next.end(job ? *reason : fmt::format("rank {}: {}: {}", rank_, describe(next.call), *reason));
  }

  std::optional<std::string> failed() {
    const std::lock_guard lock(mutex_);
    return failure_ ? failure_ : control_.stopped();
  }

  void run_mean(const Collective& c) {
    wire_.resize(std::max(wire_.size(), static_cast<size_t>(c.count) * dtype_size(c.dtype)));
    Collective sum = c;
    sum.in = sum.out = wire_.data();
    encode_mean(c.in, c.given, wire_.data(), c.dtype, c.count, size_);
    engine_->run(sum, control_);
    decode(wire_.data(), c.dtype, c.out, c.given, c.count);
  }

  /// Before the caller hears of it: his next act may be to end the process.
  void tell(std::unique_lock<std::mutex>& lock) {
    told_ = true;
    const std::string why = *failure_;
    lock.unlock();
    engine_->give_up(why);
    lock.lock();
  }

  std::string failed_before(const Collective& c) const {
    return fmt::format("rank {}: {}: {}{}", rank_, describe(c),
                       forbidden_ ? "" : "the group has failed before: ", *failure_);
  }

  const int rank_, size_;
  CollectiveControl control_;
  std::mutex mutex_;
  std::condition_variable called_;
  std::deque<std::shared_ptr<QueuedWork>> queue_;
  uint64_t started_ = 0;
  bool stopping_ = false, told_ = false;
  std::optional<std::string> failure_;  ///< the first
  bool forbidden_ = false;              ///< it was a job's, which has kept the collectives from running
  const std::shared_ptr<Store> store_;
  std::unique_ptr<CollectiveEngine> engine_;
  std::optional<TurnWatch> watch_;  ///< where there are others
  std::vector<std::byte> wire_;     ///< what engines move of means; the group's thread's
  std::thread worker_;
};

}  // namespace

CollectiveControl::Clock::time_point CollectiveControl::deadline() const {
  const std::lock_guard lock(mutex_);
  return begin_ + std::chrono::duration_cast<Clock::duration>(timeout_ + extra_);
}
Seconds CollectiveControl::limit() const {
  const std::lock_guard lock(mutex_);
  return timeout_ + extra_;
}
std::optional<std::string> CollectiveControl::stopped() const {
  const std::lock_guard lock(mutex_);
  return stopped_;
}
Seconds CollectiveControl::timeout() const {
  const std::lock_guard lock(mutex_);
  return timeout_;
}
void CollectiveControl::set_timeout(Seconds timeout) {
  const std::lock_guard lock(mutex_);
  timeout_ = timeout;
}
void CollectiveControl::extend(Seconds extra) {
  const std::lock_guard lock(mutex_);
  extra_ = std::min(extra_ + extra, kLongestTime);
}
void CollectiveControl::stop(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!stopped_) stopped_ = why;
}
void CollectiveControl::begin() {
  const std::lock_guard lock(mutex_);
  begin_ = Clock::now();
}
void CollectiveControl::end() {
  const std::lock_guard lock(mutex_);
  extra_ = Seconds(0);
}

std::shared_ptr<ProcessGroup> make_queued_group(int rank, int size, Seconds timeout,
                                                std::shared_ptr<Store> store, const std::string& prefix,
                                                std::unique_ptr<CollectiveEngine> engine) {
  return std::make_shared<QueuedGroup>(rank, size, timeout, std::move(store), prefix, std::move(engine));
}

}  // namespace kiln
