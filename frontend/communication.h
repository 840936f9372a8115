// SPDX-License-Identifier: Apache-2.0
// What the frontend knows of collectives: which groups those of a trace name by place, what a stage
// communicates, and the calls that ranks make together.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "frontend/tensor.h"
#include "ir/graph.h"
#include "runtime/agreement.h"

namespace kiln::detail {

/// The collectives of a program in the order of their starts, and per group what is agreed on.
struct Communication {
  std::vector<CollectiveSite> sites;
  std::vector<std::shared_ptr<const CommunicationPlan>> plans;  ///< by the group's place; null: not used
};
Communication communication_of(const Graph& g);
/// What programs that run one after the other communicate as a whole.
Communication joined(std::span<const Communication* const> parts);

/// While alive, collectives that this thread evaluates or runs find the groups of `communicators` by place.
/// The first of them begins a call of every group that `calls` uses: not before, for a step may fail by then,
/// and what has begun the other ranks wait for.
class GroupScope {
 public:
  explicit GroupScope(std::span<const std::shared_ptr<Communicator>> communicators,
                      const Communication& calls);
  ~GroupScope();
  GroupScope(const GroupScope&) = delete;
  GroupScope& operator=(const GroupScope&) = delete;

 private:
  std::vector<ProcessGroup*> groups_before_;
  std::function<void(bool)> announce_before_;
};

/// The group that distributed::init_process_group has made; null without.
std::shared_ptr<ProcessGroup> process_group();

/// The device whose memory `group` sends, for tensors that lie on `device`.
Device side_of(const ProcessGroup& group, Device device);

/// A bucket of an eager backward: the types of its tensors, and the dtype that they are sent as.
struct SentBucket {
  std::vector<Type> pieces;
  DType wire;
};
/// What ranks agree on before the sums of `buckets`.
std::shared_ptr<const CommunicationPlan> plan_of(const std::vector<SentBucket>& buckets, Loc loc);
/// `t` times a 0-d number of any dtype, in its own.
Tensor scaled(const Tensor& t, const Tensor& scale);
/// The part of a bucket's flat memory that begins at element `from` and is as `like`.
Tensor piece_of(const Tensor& flat, const Dim& from, const Tensor& like);

/// The ops of the trace that make the means of the tensors of `bucket` over the ranks of the group of `c`:
/// new tensors, in order. Sent as they are, they are scaled before, by `scale` (0-d), one by the number of
/// ranks; sent as another dtype, they are divided in that. Inside the body of an event only.
std::vector<Tensor> all_reduce(const std::shared_ptr<Communicator>& c, const std::vector<Tensor>& bucket,
                               DType wire, const Tensor& scale);

/// A step that communicates by `c` has begun: if it is recorded, the other ranks are told to wait.
void note_communicator(const std::shared_ptr<Communicator>& c);

}  // namespace kiln::detail
