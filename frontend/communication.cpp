// SPDX-License-Identifier: Apache-2.0
#include "frontend/communication.h"

#include "frontend/cursor.h"
#include "frontend/ops_detail.h"
#include "ir/bucket_layout.h"
#include "runtime/cuda/collectives.h"

namespace kiln::detail {

namespace {

/// All that ranks must agree on: "all_reduce f32[48] as bf16 of [8,4] [4]".
std::string text_of(std::span<const Type> pieces, DType wire) {
  std::string sizes;
  for (const Type& t : pieces) {
    const std::string text = t.str();
    sizes += " " + text.substr(text.find('['));
  }
  const DType own = pieces[0].dtype;
  return fmt::format("all_reduce {}{} of{}", Type{own, {bucket_layout(pieces).total}}.str(),
                     wire == own ? "" : fmt::format(" as {}", dtype_name(wire)), sizes);
}

using Planned = std::vector<PlannedCollective>;

/// What each group agrees on, from its collectives in order.
std::vector<std::shared_ptr<const CommunicationPlan>> plans_of(std::vector<Planned> by_group) {
  std::vector<std::shared_ptr<const CommunicationPlan>> plans;
  for (Planned& p : by_group)
    plans.push_back(p.empty() ? nullptr : std::make_shared<const CommunicationPlan>(std::move(p)));
  return plans;
}

}  // namespace

Device side_of(const ProcessGroup& group, Device device) {
  return works_on_device(group) ? device : Device::cpu();
}

Communication communication_of(const Graph& g) {
  Communication c;
  std::vector<Planned> planned;
  for (const Node& n : g.nodes) {
    if (n.op != op("all_reduce")) continue;
    std::vector<Type> pieces;
    for (Value v : n.in) pieces.push_back(g.type(v));
    const auto place = static_cast<size_t>(std::get<int64_t>(n.attrs[0]));
    if (planned.size() <= place) planned.resize(place + 1);
    planned[place].push_back({text_of(pieces, std::get<DType>(n.attrs[1])), n.origin.loc});
    c.sites.push_back({"backward", n.origin.loc});
  }
  c.plans = plans_of(std::move(planned));
  return c;
}

Communication joined(std::span<const Communication* const> parts) {
  Communication c;
  std::vector<Planned> planned;
  for (const Communication* part : parts) {
    c.sites.insert(c.sites.end(), part->sites.begin(), part->sites.end());
    planned.resize(std::max(planned.size(), part->plans.size()));
    for (size_t i = 0; i < part->plans.size(); ++i) {
      if (!part->plans[i]) continue;
      const auto& more = part->plans[i]->collectives;
      planned[i].insert(planned[i].end(), more.begin(), more.end());
    }
  }
  c.plans = plans_of(std::move(planned));
  return c;
}

GroupScope::GroupScope(std::span<const std::shared_ptr<Communicator>> communicators,
                       const Communication& calls)
    : groups_before_(std::move(state().groups)), announce_before_(std::move(state().announce)) {
  State& s = state();
  s.groups.clear();
  for (const auto& c : communicators) s.groups.push_back(&c->group());
  s.announce = nullptr;
  if (calls.plans.empty()) return;
  s.announce = [communicators, plans = calls.plans](bool replayed) mutable {
    for (size_t i = 0; i < plans.size(); ++i)
      if (plans[i])
        communicators[i]->begin_call(replayed ? in_graph(*plans[i]) : plans[i],
                                     {"agreement", plans[i]->collectives[0].loc});
    plans.clear();
  };
}
GroupScope::~GroupScope() {
  state().groups = std::move(groups_before_);
  state().announce = std::move(announce_before_);
}

std::shared_ptr<const CommunicationPlan> plan_of(const std::vector<SentBucket>& buckets, Loc loc) {
  Planned planned;
  for (const SentBucket& b : buckets) planned.push_back({text_of(b.pieces, b.wire), loc});
  return std::make_shared<const CommunicationPlan>(std::move(planned));
}

Tensor scaled(const Tensor& t, const Tensor& scale) { return mul2(t, cast_to(scale, t.dtype())); }

Tensor piece_of(const Tensor& flat, const Dim& from, const Tensor& like) {
  const Tensor piece =
      apply(op("slice"), {&flat}, {Shape{from}, Shape{from + Dim(like.numel())}, std::vector<int64_t>{1}});
  return reshape_to(piece, like.sizes());
}

std::vector<Tensor> all_reduce(const std::shared_ptr<Communicator>& c, const std::vector<Tensor>& bucket,
                               DType wire, const Tensor& scale) {
  KILN_ASSERT(state().cursor, "all_reduce: no trace is there");
  const int64_t place = state().cursor->place_of(c);
  std::vector<Tensor> pieces;
  std::vector<const Tensor*> operands;
  std::vector<Type> types;
  for (const Tensor& t : bucket) pieces.push_back(wire == t.dtype() ? scaled(t, scale) : t);
  for (const Tensor& t : pieces) {
    operands.push_back(&t);
    types.push_back(t.impl()->type());
  }
  const Tensor flat = apply(op("all_reduce"), operands, {place, wire});
  const std::vector<Dim> offsets = bucket_layout(types).offsets;
  std::vector<Tensor> out;
  for (size_t i = 0; i < pieces.size(); ++i) out.push_back(piece_of(flat, offsets[i], pieces[i]));
  return out;
}

void note_communicator(const std::shared_ptr<Communicator>& c) {
  if (Cursor* cursor = state().cursor) cursor->note_communicator(c);
}

// --- Cursor ---

int64_t Cursor::place_of(const std::shared_ptr<Communicator>& c) {
  std::lock_guard lock(trie_.mutex);
  auto& all = trie_.communicators;
  const auto at = std::find(all.begin(), all.end(), c);
  if (at != all.end()) return at - all.begin();
  all.push_back(c);
  return static_cast<int64_t>(all.size()) - 1;
}

std::vector<std::shared_ptr<Communicator>> Cursor::communicators() const {
  std::lock_guard lock(trie_.mutex);
  return trie_.communicators;
}

void Cursor::note_communicator(const std::shared_ptr<Communicator>& c) {
  place_of(c);
  if (recording()) c->building(reason_);
}

/// Ranks that communicate choose their kernels' schedules together, and build nothing for a group that is
/// broken: a build may take longer than any of them would wait.
StageOptions Cursor::options_among_ranks(const Stage& stage) const {
  StageOptions options = trie_.options;
  options.device = stage.device;
  options.tf32 = stage.tf32;
  const auto all = communicators();
  if (all.empty()) return options;
  ProcessGroup& group = all[0]->group();
  options.tune.store = group.store();
  options.tune.rank = group.rank();
  options.tune.size = group.size();
  options.tune.prefix = all[0]->prefix();
  options.go_on = [all, place = fmt::format("{}: the build for {}", options.name, reason_)] {
    for (const auto& c : all) {
      try {
        c->group().check();
      } catch (const Error& e) {
        throw e.in(place);
      }
    }
  };
  return options;
}

void Cursor::tell_building() {
  for (const auto& c : communicators()) c->building(reason_);
}

void Cursor::tell_built() {
  for (const auto& c : communicators()) c->built();
}

/// Others that wait for this call say why it does not come.
void Cursor::tell_failed() {
  for (const auto& c : communicators()) {
    try {
      c->failed(failure_.empty() ? "an exception left the callable" : failure_);
    } catch (const Error&) {  // they find out when they cannot reach this rank either
    }
  }
}

}  // namespace kiln::detail
