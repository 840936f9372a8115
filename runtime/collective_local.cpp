// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads of one process. A collective is a meeting: its ranks arrive, then each works on a
// part of everybody's memory that no other rank writes, then all leave. Waiting has a time limit until all
// have arrived, and none after: what is left is work of threads that run. So nobody's memory is touched after
// his call has failed.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "runtime/collective_queue.h"
#include "runtime/reduce.h"

namespace kiln {

namespace {

std::byte* at(const Collective& c, int64_t element) {
  return static_cast<std::byte*>(c.out) + element * static_cast<int64_t>(dtype_size(c.dtype));
}
const std::byte* in_at(const Collective& c, int64_t element) {
  return static_cast<const std::byte*>(c.in) + element * static_cast<int64_t>(dtype_size(c.dtype));
}

void copy(void* to, const void* from, int64_t count, DType dtype) {
  if (count > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(count) * dtype_size(dtype));
}

/// The calls of all ranks for one number.
struct Meeting {
  explicit Meeting(int size) : calls(static_cast<size_t>(size)) {}
  std::vector<const Collective*> calls;  ///< by rank; null until it arrives
  int arrived = 0, done = 0;
};

/// What the ranks share.
class LocalWorld {
 public:
  explicit LocalWorld(int size) : size_(size), left_(static_cast<size_t>(size)) {}

  /// Everybody's calls, once all have arrived. Throws: comm, and then nobody goes on.
  std::shared_ptr<Meeting> arrive(int rank, const Collective& c, const CollectiveControl& control) {
    std::unique_lock lock(mutex_);
    KILN_CHECK(failure_.empty(), comm, "{}", failure_);
    std::shared_ptr<Meeting>& slot = meetings_[c.number];
    if (!slot) slot = std::make_shared<Meeting>(size_);
    const std::shared_ptr<Meeting> meeting = slot;
    compare(*meeting, rank, c);
    meeting->calls[static_cast<size_t>(rank)] = &c;
    if (++meeting->arrived == size_) {
      meetings_.erase(c.number);
      changed_.notify_all();
    }
    while (meeting->arrived < size_) {
      check(*meeting, rank, c, control);
      changed_.wait_until(lock, control.deadline());
    }
    return meeting;
  }

  /// Returns when all ranks have called it.
  void finish(Meeting& meeting) {
    std::unique_lock lock(mutex_);
    if (++meeting.done == size_) changed_.notify_all();
    changed_.wait(lock, [&] { return meeting.done == size_; });
  }

  void interrupt() {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  void fail(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = why;
    changed_.notify_all();
  }
  std::optional<std::string> failure() {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) return std::nullopt;
    return failure_;
  }
  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    left_[static_cast<size_t>(rank)] = true;
    changed_.notify_all();
  }

 private:
  void compare(const Meeting& meeting, int rank, const Collective& c) {
    for (int r = 0; r < size_; ++r) {
      const Collective* other = meeting.calls[static_cast<size_t>(r)];
      if (!other || same_call(*other, c)) continue;
      give_up(rank, c, mismatch(r, describe(*other), rank, describe(c)));
    }
  }

  void check(const Meeting& meeting, int rank, const Collective& c, const CollectiveControl& control) {
    KILN_CHECK(failure_.empty(), comm, "{}", failure_);
    if (const auto why = control.stopped()) give_up(rank, c, *why);
    std::vector<int> missing, gone;
    for (int r = 0; r < size_; ++r) {
      if (meeting.calls[static_cast<size_t>(r)]) continue;
      missing.push_back(r);
      if (left_[static_cast<size_t>(r)]) gone.push_back(r);
    }
    if (!gone.empty()) give_up(rank, c, fmt::format("{} left the group before it", rank_list(gone)));
    if (CollectiveControl::Clock::now() >= control.deadline())
      give_up(rank, c, not_started(missing, control.limit()));
  }

  /// Under the lock, so that no later arrival starts a meeting whose calls are about to end.
  [[noreturn]] void give_up(int rank, const Collective& c, const std::string& why) {
    failure_ = gave_up(rank, c, why);
    changed_.notify_all();
    throw Error(ErrorKind::comm, why);
  }

  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, std::shared_ptr<Meeting>> meetings_;  ///< by number, until all have arrived
  std::vector<bool> left_;
  std::string failure_;
};

class LocalEngine final : public CollectiveEngine {
 public:
  LocalEngine(std::shared_ptr<LocalWorld> world, int rank) : world_(std::move(world)), rank_(rank) {}
  ~LocalEngine() override { world_->leave(rank_); }

  const char* backend() const override { return "local"; }
  void interrupt() override { world_->interrupt(); }
  std::optional<std::string> broken() override { return world_->failure(); }
  void give_up(const std::string& why) override { world_->fail(why); }

  void run(const Collective& c, const CollectiveControl& control) override {
    const std::shared_ptr<Meeting> meeting = world_->arrive(rank_, c, control);
    try {
      move(c, meeting->calls);
    } catch (...) {
      world_->finish(*meeting);  // the others count on it
      throw;
    }
    world_->finish(*meeting);
  }

 private:
  using Calls = std::vector<const Collective*>;

  void move(const Collective& c, const Calls& calls) {
    switch (c.kind) {
      case CollectiveKind::all_reduce:
      case CollectiveKind::all_reduce_mean: all_reduce(c, calls); break;
      case CollectiveKind::broadcast:
        copy(c.out, calls[static_cast<size_t>(c.root)]->in, c.count, c.dtype);
        break;
      case CollectiveKind::all_gather:
        for (size_t r = 0; r < calls.size(); ++r)
          copy(at(c, static_cast<int64_t>(r) * c.count), calls[r]->in, c.count, c.dtype);
        break;
      case CollectiveKind::reduce_scatter: {
        std::vector<const void*> parts;
        for (const Collective* call : calls) parts.push_back(in_at(*call, rank_ * c.count));
        reduce_parts(parts, c.out, c.count, c.dtype, c.op);
        break;
      }
      case CollectiveKind::barrier:
      case CollectiveKind::job: break;
    }
  }

  /// This rank's part of the elements, for all ranks.
  void all_reduce(const Collective& c, const Calls& calls) {
    const int64_t size = static_cast<int64_t>(calls.size());
    const int64_t begin = c.count / size * rank_ + std::min<int64_t>(rank_, c.count % size);
    const int64_t count = c.count / size + (rank_ < c.count % size ? 1 : 0);
    std::vector<const void*> parts;
    for (const Collective* call : calls) parts.push_back(in_at(*call, begin));
    reduce_parts(parts, at(c, begin), count, c.dtype, c.op);
    for (const Collective* call : calls) copy(at(*call, begin), at(c, begin), count, c.dtype);
  }

  const std::shared_ptr<LocalWorld> world_;
  const int rank_;
};

}  // namespace

std::vector<std::shared_ptr<ProcessGroup>> make_local_groups(int size, Seconds timeout) {
  KILN_CHECK(size >= 1, invalid, "make_local_groups: a world has at least one rank; got {}", size);
  const auto world = std::make_shared<LocalWorld>(size);
  const std::shared_ptr<Store> store = make_local_store();
  std::vector<std::shared_ptr<ProcessGroup>> groups;
  for (int rank = 0; rank < size; ++rank)
    groups.push_back(
        make_queued_group(rank, size, timeout, store, "local/", std::make_unique<LocalEngine>(world, rank)));
  return groups;
}

}  // namespace kiln
