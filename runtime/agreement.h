// SPDX-License-Identifier: Apache-2.0
// Agreement: before the first collective of every call each rank posts, on the control channel, which call it
// is in and what it is about to communicate, and looks at what the others posted. Ranks that differ get an
// error that says where, instead of sums of unlike things; ranks that compile are waited for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/collective.h"

namespace kiln {

/// One collective that a call is about to do.
struct PlannedCollective {
  std::string text;  ///< all that ranks must agree on: "all_reduce f32[25088] of 784x32, 32"
  SourceLoc loc;     ///< the user's line, which they need not
};

/// What a call communicates, in order.
struct CommunicationPlan {
  explicit CommunicationPlan(std::vector<PlannedCollective> in_order);
  std::vector<PlannedCollective> collectives;
  std::string digest;  ///< hash of the texts
};
/// The same in a recorded graph: ranks must take that alike.
std::shared_ptr<const CommunicationPlan> in_graph(const CommunicationPlan& plan);

/// One rank's end of a process group for calls that ranks make together. Others like it, made in the same
/// order on every rank, have call numbers of their own. Threads: one call at a time.
class Communicator {
 public:
  /// `build_limit` is how long another rank may be building before that is an error.
  explicit Communicator(std::shared_ptr<ProcessGroup> group, Seconds build_limit = Seconds(1800));
  /// Tells the others that this rank makes no more calls.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  ProcessGroup& group() { return *group_; }
  const std::shared_ptr<ProcessGroup>& group_ptr() const { return group_; }
  /// Calls begun so far.
  int64_t calls() const { return call_; }
  /// Of its keys in the store: the same on all ranks.
  const std::string& prefix() const;
  /// Runs `job`, which all ranks run in the same turn and which may wait for theirs, named "<what> of ...".
  /// Blocks: until it has run. Throws what it throws, as comm: then the group has failed.
  void together(const std::string& what, std::function<void()> job, const CollectiveSite& site);
  /// What another rank sets `key` to, in a job of together(); nothing after the group's timeout. `here` is
  /// that turn's description. Throws: comm, at once, when nobody can come any more.
  std::optional<std::string> await(const std::string& key, const std::string& here);

  /// This rank records or compiles what it will communicate next: others wait for it, `what` tells them why.
  void building(const std::string& what);
  /// What was built communicates nothing, or its call has ended: nobody needs to wait.
  void built();
  /// The next call: posts it, and queues the check of the others' posts before all later collectives of the
  /// group. Returns at once. Those collectives throw comm when the ranks differ, when one has left, or when
  /// one is not at this call within the group's timeout.
  void begin_call(std::shared_ptr<const CommunicationPlan> plan, const CollectiveSite& site);
  /// What this rank does next is no longer that call.
  void end_call() { in_call_ = false; }
  /// The call that this rank was in, or about to make, ended in an error: what others say when they give up
  /// waiting for it, then and later.
  void failed(const std::string& why);
  /// What rank 0 gives as `mine`; all ranks call it, in the same turn, which is named as in together(). To be
  /// used once for a `name`. Blocks: as long as this rank would wait for the others in a call. Throws: comm,
  /// when that is over.
  std::string from_first(const std::string& name, const std::string& mine, const std::string& what,
                         const CollectiveSite& site);

 private:
  class End;
  const std::shared_ptr<ProcessGroup> group_;
  const std::shared_ptr<End> end_;  ///< shared with checks that are queued: an error may end this before them
  int64_t call_ = 0;
  bool in_call_ = false;
  std::string digest_;  ///< of that call
};

}  // namespace kiln
