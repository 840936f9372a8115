// SPDX-License-Identifier: Apache-2.0
// What all process groups share: checks of arguments, the queue and its thread, timeouts, and what an error
// says. An engine runs one collective at a time; it knows nothing of works and queues.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "runtime/collective.h"

namespace kiln {

enum class CollectiveKind : uint8_t {
  all_reduce,
  all_reduce_mean,  ///< for an engine a sum like the one above
  broadcast,
  all_gather,
  reduce_scatter,
  barrier,
  job,  ///< of this rank alone, in its turn; never seen by an engine
};
/// "all_reduce", ...
const char* to_string(CollectiveKind kind);
constexpr bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::all_reduce_mean ||
         kind == CollectiveKind::reduce_scatter;
}

/// One call of a collective on one rank.
struct Collective {
  CollectiveKind kind = CollectiveKind::barrier;
  uint64_t number = 0;      ///< 1 is the first of its group
  DType dtype = DType::u8;  ///< of what an engine moves and adds
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  int64_t count = 0;  ///< as in the call: of one block, if there are several
  const void* in = nullptr;
  void* out = nullptr;  ///< also the operand, where the collective works in place
  CollectiveSite site;
  std::function<void()> job = {};
  std::string name = {};    ///< the job's
  DType given = DType::u8;  ///< of a mean: the dtype of the caller's memory
};

/// "call 3 (agreement, train.cpp:42)", of the first part alone.
std::string describe(const std::string& what, const CollectiveSite& site);
/// "all_reduce #12 of f32[25088] (backward, train.cpp:42)".
std::string describe(const Collective& c);
/// True if ranks that call these can run them together.
bool same_call(const Collective& a, const Collective& b);

/// Throws: invalid, with the caller's line, when the arguments do not fit each other or a group of that size.
void check_call(const Collective& c, int size);

/// A process group, or one with more to it, whose calls are all started in one place.
template <typename Group>
class CollectiveCalls : public Group {
 public:
  WorkPtr all_reduce(void* data, int64_t count, DType dtype, ReduceOp op,
                     const CollectiveSite& site) override {
    return start({CollectiveKind::all_reduce, 0, dtype, op, 0, count, data, data, site});
  }
  WorkPtr all_reduce_mean(void* data, int64_t count, DType dtype, DType wire,
                          const CollectiveSite& site) override {
    Collective c{CollectiveKind::all_reduce_mean, 0, wire, ReduceOp::sum, 0, count, data, data, site};
    c.given = dtype;
    return start(std::move(c));
  }
  WorkPtr broadcast(void* data, int64_t count, DType dtype, int root, const CollectiveSite& site) override {
    return start({CollectiveKind::broadcast, 0, dtype, ReduceOp::sum, root, count, data, data, site});
  }
  WorkPtr all_gather(const void* in, void* out, int64_t count, DType dtype,
                     const CollectiveSite& site) override {
    return start({CollectiveKind::all_gather, 0, dtype, ReduceOp::sum, 0, count, in, out, site});
  }
  WorkPtr reduce_scatter(const void* in, void* out, int64_t count, DType dtype, ReduceOp op,
                         const CollectiveSite& site) override {
    return start({CollectiveKind::reduce_scatter, 0, dtype, op, 0, count, in, out, site});
  }
  WorkPtr barrier(const CollectiveSite& site) override {
    return start({CollectiveKind::barrier, 0, DType::u8, ReduceOp::sum, 0, 0, nullptr, nullptr, site});
  }
  WorkPtr run(const std::string& name, std::function<void()> job, const CollectiveSite& site) override {
    return start({CollectiveKind::job, 0, DType::u8, ReduceOp::sum, 0, 0, nullptr, nullptr, site,
                  std::move(job), name});
  }

 protected:
  virtual WorkPtr start(Collective c) = 0;
};

/// Beyond any run of a program; what the clock counts in would overflow before long.
inline constexpr Seconds kLongestTime{1e9};
/// At most that. Throws: invalid, naming `what`, when it is not positive.
Seconds checked_time(Seconds t, const char* what);

/// How long the collective that runs may take, and whether it shall stop. Threads: any.
class CollectiveControl {
 public:
  using Clock = std::chrono::steady_clock;
  /// How long to wait for what others have to say of a failure.
  static constexpr Seconds kReasonTime{0.5};

  explicit CollectiveControl(Seconds timeout) : timeout_(timeout) {}

  /// When the running collective has failed. It moves when the timeout is extended.
  Clock::time_point deadline() const;
  /// The timeout that deadline() is made of.
  Seconds limit() const;
  /// Why to stop at once, if so.
  std::optional<std::string> stopped() const;

  Seconds timeout() const;
  void set_timeout(Seconds timeout);
  void extend(Seconds extra);
  void stop(const std::string& why);
  void begin();
  void end();

 private:
  mutable std::mutex mutex_;
  Clock::time_point begin_ = Clock::now();
  Seconds timeout_, extra_{0};
  std::optional<std::string> stopped_;
};

/// Moves the data of one rank's group. Threads: the group's, unless it is said.
class CollectiveEngine {
 public:
  CollectiveEngine() = default;
  virtual ~CollectiveEngine() = default;
  CollectiveEngine(const CollectiveEngine&) = delete;
  CollectiveEngine& operator=(const CollectiveEngine&) = delete;

  virtual const char* backend() const = 0;
  /// Runs `c` to its end, which is here or an exception: afterwards nobody touches its memory. Throws: comm,
  /// with the reason alone; the queue says what failed and where.
  virtual void run(const Collective& c, const CollectiveControl& control) = 0;
  /// Makes run() look at its control again. Threads: any.
  virtual void interrupt() = 0;
  /// Why nothing can run any more, though nothing has failed here yet: who is gone. Threads: any.
  virtual std::optional<std::string> broken() = 0;
  /// Tells the other ranks that nothing will run here any more. Must not throw.
  virtual void give_up(const std::string& why) = 0;
};

/// "30 s", "0.25 s".
std::string to_string(Seconds s);
/// "rank 2", "ranks 2, 3".
std::string rank_list(const std::vector<int>& ranks);
/// "rank 2 gave up on all_reduce #12 ...: why", for the other ranks.
std::string gave_up(int rank, const Collective& c, const std::string& why);
/// The reason when one rank calls another collective than the rest; each side as describe() says it.
std::string mismatch(int rank_a, const std::string& a, int rank_b, const std::string& b);
/// The reason when `ranks` have not joined a collective in time.
std::string not_started(const std::vector<int>& ranks, Seconds limit);

/// The group of one rank, whose collectives `engine` runs. Its destructor waits for what was started. What it
/// says to the others is below `prefix` in the store.
std::shared_ptr<ProcessGroup> make_queued_group(int rank, int size, Seconds timeout,
                                                std::shared_ptr<Store> store, const std::string& prefix,
                                                std::unique_ptr<CollectiveEngine> engine);

}  // namespace kiln
