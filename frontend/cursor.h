// SPDX-License-Identifier: Apache-2.0
// Cursor: one call of a compiled callable walking its trie. It follows recorded events while they match and
// records from the first one that does not. One cursor, one call, one thread.
#pragma once

#include <any>
#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <thread>

#include "frontend/address_table.h"
#include "frontend/communication.h"
#include "frontend/dispatch.h"
#include "frontend/late.h"
#include "frontend/stage.h"
#include "frontend/state.h"
#include "frontend/trace.h"

namespace kiln::detail {

struct Frozen;
struct FrozenArgs;
struct SavedCall;

/// The traces of one compiled callable.
struct Trie {
  Trie() = default;
  ~Trie();
  Event root;
  StageOptions options;
  std::vector<std::unique_ptr<Event>> owned;  ///< guarded by mutex
  std::vector<BuildRecord> builds;            ///< guarded by mutex
  std::mutex mutex;
  std::shared_ptr<const Frozen> frozen;                      ///< guarded by mutex
  std::any frozen_shape;                                     ///< guarded by mutex
  std::vector<std::shared_ptr<Communicator>> communicators;  ///< by place; guarded by mutex
  std::atomic<bool> primary_busy{false};
  std::atomic<uint64_t> calls{0};
  std::atomic<size_t> handles_hint{0};    ///< handles of the last call that ended,
  std::atomic<size_t> externals_hint{0};  ///< externals, and
  std::atomic<size_t> slots_hint{0};      ///< slots
};

/// Metadata of a new contiguous handle.
TensorImpl contiguous_prototype(const Type& t, bool requires_grad, Device device);

class Cursor {
 public:
  explicit Cursor(Trie& trie);
  ~Cursor();
  Cursor(const Cursor&) = delete;
  Cursor& operator=(const Cursor&) = delete;

  // Events, called through dispatch.h.
  bool follow(const CallInfo& info, std::vector<Tensor>* many, Tensor* one);
  void end_call(std::span<const Tensor> results, bool failed);
  std::vector<Tensor> call_scalars(std::span<const Scalar> scalars);
  Tensor emit(Op o, std::span<const Tensor* const> in, Attrs attrs);
  void assign(const Tensor& target, const Tensor& value);
  void check_later(const Tensor& worst, ValueCheck check);
  /// In the body of an event: a checkpoint begins or ends with it.
  void mark_region(bool begins) { recorder_->mark_region(begins, origin()); }
  void backward(const Tensor& root, const Tensor& gradient, bool retain_graph, SourceLoc loc,
                GradWatch& watch);
  /// requires_grad_ on a tensor of this trace, as an event.
  void set_leaf(const Tensor& t, bool on, SourceLoc loc);
  /// A hook is about to be added to `t`, as an event.
  void note_hook(const Tensor& t, SourceLoc loc);
  /// Whether `t` is a value of this trace.
  bool knows(const TensorImpl& t) const { return slot_of(t) != kUnbound; }
  /// Whether `t` is a value of this trace that a gradient flows through.
  bool has_history(const TensorImpl& t) const { return owns(t) && t.requires_grad && !t.is_leaf; }
  /// Whether `t` is a value this call has made.
  bool owns(const TensorImpl& t) const { return t.cursor_call == call_; }
  /// Runs what is pending so that `t` has memory, and that memory is up to date.
  void host_read(TensorImpl& t, const char* what, SourceLoc loc);
  /// The callable returned: runs the rest, publishes what was recorded.
  void finish();
  /// The callable threw: drops what is pending.
  void abandon();
  /// What it threw.
  void note_exception(const char* what) { failure_ = what; }

  /// Keeps this finished call for replays.
  void freeze(const FrozenArgs& args, const FrozenArgs& result);
  /// Runs a frozen call on other arguments.
  std::vector<Tensor> replay(const Frozen& f, const std::vector<Tensor>& args);
  /// The callable sets or drops a gradient itself.
  void note_grad_set(const TensorImpl& t) { cleared_.push_back(&t); }
  /// The host is about to count something that is pending.
  void note_count(std::function<void()> undo) { counts_.push_back(std::move(undo)); }
  /// The callable has drawn from the default generator.
  void note_draw(const GeneratorState& s);
  /// The place of `c` among the groups that this callable communicates in.
  int64_t place_of(const std::shared_ptr<Communicator>& c);
  /// This call will communicate by `c`.
  void note_communicator(const std::shared_ptr<Communicator>& c);
  const StageOptions& options() const { return trie_.options; }

  bool recording() const { return recorder_ != nullptr; }
  /// The call that was running on this thread when this one began; null: none.
  Cursor* outer() const { return outer_; }

 private:
  struct Followed {
    Event* event;
    size_t result;
    ImplPtr fresh;  ///< when the trie's handle was not free
  };
  static constexpr Slot kUnbound = -2;

  // cursor.cpp: following.
  void leave();  ///< nothing that runs from here on is an event of this call
  Slot slot_of(const TensorImpl& t) const {
    if (t.cursor_call == call_) return t.slot;
    const Slot* known = external_slots_.find(&t);
    return known ? *known : kUnbound;
  }
  bool matches(const Event& e, const CallInfo& info) const;
  bool matches_binding(const Event& e, const Tensor& t, Slot expected, int operand, Operands all) const;
  /// Memory of an external: the earliest external slot that has the storage, and where in it, in elements.
  struct Place {
    Slot slot = kAbsent;
    int64_t offset = 0;
  };
  /// Beside what has that storage already; absent: nothing.
  Place beside_known(const TensorImpl& t) const;
  ExternalMeta meta_of(TensorImpl& t) const;
  static bool has_meta(const TensorImpl& t, Place beside, const ExternalMeta& m);
  /// Whether `t`, new to this call, is as the tensor that `e` bound by `b`. What `e` binds before is not
  /// known yet: operand(i) has it.
  template <typename Operand>
  bool binds_alike(const Event& e, const SlotBinding& b, TensorImpl& t, Operand&& operand) const {
    if (!t.storage) return false;
    if (t.base) refresh_view(t);
    Place beside = beside_known(t);
    for (const SlotBinding& before : e.bindings) {
      if (&before == &b) break;
      const TensorImpl* other = operand(before.operand);
      if (other == &t) return false;
      if (beside.slot == kAbsent && other->storage == t.storage)
        beside = {before.slot, t.offset - other->offset};
    }
    return has_meta(t, beside, b.meta);
  }
  void bind(const SlotBinding& b, const ImplPtr& t);
  Tensor hand_out(Event& e, size_t result, Operands operands);
  void set_flags(Slot slot, bool requires_grad);
  void check_device(const CallInfo& info) const;
  Device stage_device() const;
  bool stage_tf32() const;
  void advance(Event* e, std::span<const Scalar> scalars, Operands operands);

  // backward.cpp: a backward is one event, or, with hooks, a begin, a pair per hook call, and an end.
  bool backward_matches(const Event& e, const Tensor& root, const Tensor& gradient) const;
  std::string leaf_grads_difference(const Event& e) const;
  void follow_leaf_grads(Event& e, GradWatch& watch);
  bool follow_hooks();
  const HookList& hooks_of(Slot slot);
  bool hook_counts_match(const Event& begin) const;
  Event* next_hook(bool& known);
  void walk_backward(const Tensor& root, const Tensor& gradient, bool retain_graph, SourceLoc loc,
                     GradWatch& watch);
  Tensor run_hook(Slot slot, size_t index, const Tensor& gradient);
  Value record_hook(Slot slot, size_t index, Value gradient);
  Value record_hook_end(const Tensor& result, Value gradient);
  std::vector<std::pair<Value, size_t>> finished_hooks(const Event& begin) const;
  void choose_regions(const Event& begin, Value root);
  void record_backward(const Event& begin, GradWatch& watch);
  bool leaves_trace(Value root) const;
  void backward_outside(Event* e, const Tensor& root, const Tensor& gradient, bool retain_graph,
                        SourceLoc loc, GradWatch& watch);
  void record_leaf_grads(const std::vector<std::pair<Slot, Value>>& leaf_grads, GradWatch& watch);
  ImplPtr impl_of(Slot s) const;

  // frozen.cpp: replaying.
  ImplPtr frozen_external(const Frozen& f, const SlotBinding& b, const std::vector<Tensor>& args) const;
  void replay_leaf_grads(const Frozen& f, Event& e);

  // record.cpp: recording.
  void start_recording(const std::string& what, SourceLoc loc, const std::string& detail = "");
  Event& open_event(EventKind kind, const char* name, SourceLoc loc);
  void mark(Event& e) const;
  void close_event();
  bool pending_write_under(Operands operands) const;
  void note_write(Slot s);
  Slot bind_operand(Event& e, const Tensor& t, int operand);
  Tensor new_handle(Slot s, const TensorImpl& prototype);
  Origin origin() const;
  std::string divergence(const std::string& what, SourceLoc loc, const std::string& detail) const;
  std::string difference(const Event& e, const CallInfo& info) const;

  // communication.cpp
  std::vector<std::shared_ptr<Communicator>> communicators() const;
  StageOptions options_among_ranks(const Stage& stage) const;
  void tell_building();
  void tell_built();
  void tell_failed();

  // finish.cpp: running.
  /// What the checks of a stage have found; null where it has none.
  using Answers = std::shared_ptr<std::vector<int64_t>>;
  std::vector<Slot> live_slots() const;
  Event* match_run(EventKind kind, const std::vector<Slot>& live, Slot read) const;
  Event& record_run(EventKind kind, const std::vector<Slot>& live, Slot read, SourceLoc loc);
  void put_inputs(const Stage& stage, std::vector<DeviceTensor>& inputs);
  Answers put_outputs(const Stage& stage, std::vector<DeviceTensor>& outputs);
  ImplPtr carried_memory(const Stage& stage, const StageOutput& o) const;
  void run_stage(Event& e);
  void run_program(const std::shared_ptr<Stage>& stage, std::span<const DeviceTensor> inputs,
                   std::span<const DeviceTensor> outputs, const Answers& worst);
  std::function<void(bool late)> check_of(const std::shared_ptr<Stage>& stage, const Answers& worst) const;
  GuardedCall guarded_call(const std::shared_ptr<Stage>& stage, const Answers& worst);
  void flush_writes();
  bool follow_flush();
  bool write_pending(const Storage* storage) const;
  void attach();
  const ImplPtr& handle_of(const Followed& f) const;
  std::vector<Value> choose_outputs(const Event& e, Stage& stage);
  void build(Stage& stage, const std::vector<Value>& wanted);
  SavedCall save_for(const OuterBackward& backward) const;
  std::vector<GradEdge> edges_to(const std::vector<Slot>& slots) const;
  void attach_boundaries(const Stage& stage);

  Trie& trie_;
  const bool primary_;
  const uint64_t call_;
  const uint64_t number_;  ///< among the calls of the callable, from 1
  const std::thread::id thread_;
  Cursor* const outer_;
  Event* at_;
  int depth_ = 0;

  std::vector<ImplPtr> externals_;
  AddressTable<Slot> external_slots_;
  AddressTable<Place> storages_;  ///< the first external of each
  std::vector<uint64_t> scalars_;
  std::vector<ImplPtr> slot_impls_;  ///< per slot: the handle or external of this call, as far as known
  std::vector<Followed> handles_;
  std::vector<ImplPtr> carried_;
  std::vector<const TensorImpl*> cleared_;

  // What has happened on the host since the last run point, and is undone when the pending ops are dropped.
  struct FormerFlags {
    ImplPtr tensor;
    bool requires_grad, is_leaf;
  };
  std::vector<FormerFlags> flags_;
  std::vector<std::function<void()>> counts_;  ///< take back what the host has counted
  GeneratorState first_draw_;
  uint64_t draws_ = 0;

  std::unique_ptr<Recorder> recorder_;
  std::vector<std::unique_ptr<Event>> recorded_;
  Event* open_ = nullptr;
  std::vector<const Tensor*> open_operands_;
  std::map<Slot, HookList> hook_lists_;  ///< of this backward: a hook may remove or add some
  Event* pending_hook_ = nullptr;        ///< a hook that was running when recording began
  Tensor pending_hook_result_;
  std::string reason_, failure_;
  BuildRecord build_;
};

}  // namespace kiln::detail
