// SPDX-License-Identifier: Apache-2.0
// The trie of traces. An Event is one thing the callable did to tensors; a path from the root to an `end`
// event is one trace. Events are immutable once attached to the trie, so cursors on several threads may
// follow at once; only the trie's primary cursor touches the reusable handles.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "frontend/impl.h"
#include "frontend/tensor.h"
#include "ir/autodiff.h"
#include "ir/graph.h"
#include "ir/split_buckets.h"

namespace kiln::detail {

using Slot = int32_t;
inline constexpr Slot kAbsent = -1;  ///< an undefined operand

struct Stage;
struct Recorder;

/// What an external tensor is compared by: metadata, never identity or value.
struct ExternalMeta {
  DType dtype = DType::f32;
  Sizes shape, strides;
  bool requires_grad = false, is_leaf = true;
  uint32_t hooks = 0;
  Device device = {};
  Slot alias_of = kAbsent;   ///< earliest external slot with the same storage
  int64_t alias_offset = 0;  ///< this offset minus that one's, in elements
  bool operator==(const ExternalMeta&) const = default;
  /// All members, in order.
  auto members() const {
    return std::tie(dtype, shape, strides, requires_grad, is_leaf, hooks, device, alias_of, alias_offset);
  }
};

/// An external tensor first used by an event, bound to the next external slot.
struct SlotBinding {
  Slot slot = kAbsent;
  int operand = -1;
  ExternalMeta meta;
};

enum class EventKind : uint8_t {
  root,
  call,
  backward,      ///< operands: root and seed gradient
  hook,          ///< operands: the hooked slot; result: the gradient given to the hook
  hook_end,      ///< operands: what the hook returned
  backward_end,  ///< operands: (leaf, its former gradient) pairs; results: the new gradients
  host_read,
  outer_backward,  ///< a backward that leaves the trace: runs up to here, then by the tape; operands: root
  end,
};

/// A result of an event: a new handle, or one of its operands returned again.
struct EventResult {
  int operand = -1;   ///< >= 0: the operand itself
  ImplPtr prototype;  ///< metadata of a new handle; immutable, never handed out
  ImplPtr handle;     ///< reusable handle; touched by the primary cursor alone
};

struct Event {
  EventKind kind = EventKind::root;
  const char* name = "";
  SourceLoc loc;
  bool grad_enabled = true;
  std::optional<Device> device;  ///< calls and backwards: where they run
  bool tf32 = false;             ///< the same: whether allows_tf32()
  uint32_t scalar_kinds = 0;     ///< bit i: scalar i is an integer
  uint32_t scalar_count = 0;
  std::vector<Slot> operands;
  std::vector<int64_t> ints;
  std::vector<SlotBinding> bindings;
  std::vector<EventResult> results;
  std::vector<std::pair<Slot, size_t>> hook_counts;  ///< backward: of every tensor that had hooks
  std::vector<Slot> writes;                          ///< externals that this event writes
  std::vector<std::pair<Slot, bool>> flags;  ///< in-place writes: slots whose requires_grad this event sets
  std::vector<Slot> live;                    ///< events that run a stage: slots that somebody else holds
  std::shared_ptr<Stage> stage;              ///< events that run one, like live
  std::shared_ptr<const Recorder> recorder;  ///< the same: state of the path just after this event

  // Marks for rolling a recorder back to just after this event.
  int value_count = 0, slot_count = 0;
  size_t journal_size = 0;

  Event* parent = nullptr;
  std::atomic<Event*> first_child{nullptr};
  Event* next_sibling = nullptr;  ///< set before attaching
};

/// What is known of one slot (a tensor handle of the path) at the current point.
struct SlotInfo {
  Value value;  ///< its current contents
  Type type;
  bool leaf = false, requires_grad = false;
  int external = -1;      ///< index of the external, or -1
  bool written = false;   ///< external whose contents changed
  bool overlaps = false;  ///< external that shares storage with another one
  Slot base = kAbsent;    ///< views: the slot whose memory this one shows
  ViewChain chain;        ///< view ops from the base
  /// Views: the slot whose history this one's follows. Absent for those made by detach() or under no_grad,
  /// which show the memory of their base but have a history of their own.
  Slot history = kAbsent;
  uint32_t version = 0;  ///< bases: writes so far; views: base version `value` was derived from
};

/// A promise about values that only a run can test: `worst` is an i64, kNothingWrong where all is well.
struct ValueCheck {
  Value worst;
  std::string before, after;          ///< the error's text around the value
  std::optional<int64_t> least = {};  ///< what stands for the least integer, if anything does
  std::string module;                 ///< whose forward asked, by its path; "": none

  /// Throws: invalid, if the run has left anything else than kNothingWrong; `late` ends the text.
  void require(int64_t found, const std::string& late = "") const;
};

/// Name of the events at which a checkpoint begins (ints: 1) and ends (0).
inline constexpr const char* kCheckpointEvent = "checkpoint";

/// Values of a path that a backward makes again: those of a checkpoint, between two marks, or those that
/// activation_memory.h chose.
struct TracedRegion {
  int begin = -1;
  int end = -1;        ///< -1: still open
  int chosen_at = -1;  ///< values that the path had when it was chosen; -1: a checkpoint
};

/// The state of a path being recorded. Copyable, and can be rolled back to any event of the path.
struct Recorder {
  Graph graph;
  std::vector<SlotInfo> slots;
  std::vector<std::pair<Slot, SlotInfo>> journal;  ///< old contents of changed slots
  std::vector<Slot> externals;                     ///< slot of each external, in binding order
  std::vector<Value> external_inputs;              ///< graph input of each external
  std::vector<Value> scalars;                      ///< graph input of each run-time scalar
  std::vector<bool> value_grad;                    ///< per value: a gradient flows through it
  std::map<int, Slot> leaf_values;                 ///< value id -> leaf slot whose contents it is (or was)
  /// Value id -> value whose gradient takes the place of its operand's (invalid: none): what a write that no
  /// derivative sees leaves behind.
  std::map<int, Value> histories;
  std::vector<TracedRegion> regions;  ///< in order
  std::vector<bool> consumed;         ///< per value: a backward has used up its history
  std::map<int, Slot> hooked;         ///< value id -> slot whose hooks see its gradient
  std::map<int, int> exported;        ///< value id -> carried buffer, after a host read
  std::map<int, Slot> export_owner;   ///< carried buffer -> slot whose handles show it
  std::map<int, int> in_memory;       ///< value id -> external that holds it now
  int carried_count = 0;
  std::vector<ValueCheck> checks;
  size_t checks_run = 0;  ///< of those, tested by stages that end at an earlier host read

  /// A checkpoint begins, or the open one ends.
  void mark_region(bool begins, const Origin& origin);
  /// The place in `regions` of the one that made `v`, or -1: none, or one that is open, or an input.
  int region_of(Value v) const;

  Slot add_slot(SlotInfo info);
  void change(Slot s, SlotInfo info);
  void rollback(const Event& e);

  /// The current contents of `s`, re-derived from its base if that was written.
  Value read(Slot s, const Origin& origin);
  /// The memory of `external` holds `v` from now on, and nothing else.
  void store(Value v, int external);
  /// Whether a write to an external that overlaps another is pending: memory must be brought up to date
  /// before anything else reads.
  bool overlap_written() const;
  /// After a run: overlapping externals are read from memory anew.
  void refresh_overlaps();
  /// Whether a pending write may lie in the storage of external slot `s`.
  bool pending_write_near(Slot s) const;
  /// Makes `v` the contents of `s` and of the memory it shows. With `grad`, derivatives see the write: it
  /// becomes part of the history that `s` follows. Other histories of that memory stay as they are.
  void write(Slot s, Value v, bool grad, const Origin& origin);
  /// `data` with the history of `history` (invalid: with none).
  Value with_history(Value data, Value history, const Origin& origin);
  Slot memory_of(Slot s) const { return slots[s].base == kAbsent ? s : slots[s].base; }
  /// The view ops that lead from what `s` follows in history to `s`.
  ViewChain::Steps chain_to(Slot s) const;
  Slot history_of(Slot s) const { return slots[s].history == kAbsent ? s : slots[s].history; }
  /// What the gradient of `v` flows to: the operands of its node, or what `histories` has in their place.
  /// None for inputs. Valid until the graph or `histories` change.
  std::span<const Value> history_operands(Value v) const;
  /// Visits the values that a gradient of `root` may flow through, each once and `root` first; visit(v) says
  /// whether to go on to what v came from.
  template <typename Visit>
  void walk_history(Value root, Visit&& visit) const {
    std::set<int> seen;
    std::vector<Value> stack{root};
    while (!stack.empty()) {
      const Value v = stack.back();
      stack.pop_back();
      if (!wants_grad(v) || !seen.insert(v.id).second || !visit(v)) continue;
      const std::span<const Value> in = history_operands(v);
      stack.insert(stack.end(), in.begin(), in.end());
    }
  }
  /// Entries for a backward over `nodes`, the first ones of the graph.
  std::vector<TapeEntry> tape(std::span<const Node> nodes) const;
  void mark_grad(Value v, bool on);
  /// After a backward from `root` without retain_graph: nothing it came from can be differentiated again.
  void consume(Value root);
  bool is_consumed(Value v) const { return v.id < static_cast<int>(consumed.size()) && consumed[v.id]; }
  /// Whether a part of what `root` came from is used up.
  bool reaches_consumed(Value root) const;
  /// Marks the nodes from value `first_value` on: a gradient flows where one flows through an operand.
  void mark_from(int first_value);
  bool has_history(Value v) const { return wants_grad(v) && !leaf_values.count(v.id); }
  bool wants_grad(Value v) const { return v.id < static_cast<int>(value_grad.size()) && value_grad[v.id]; }
};

/// Counters and the log of builds of one compiled callable.
struct BuildRecord {
  std::string reason;
  std::string ends;  ///< what the stage being built ends at: "host read net.cpp:42", or "" for the call
  double seconds = 0;
  int kernels = 0, nodes = 0, compiled = 0;
  int64_t arena_bytes = 0, saved_bytes = 0, activation_bytes = 0;
  bool from_cache = false;
  int tuned = 0, tune_found = 0, tune_received = 0;  ///< kernels, as of TuneStats
  double tune_seconds = 0;
  std::vector<std::pair<double, double>> work;  ///< bytes and FLOPs of each launch
  std::vector<BucketTable> buckets;             ///< with CompileOptions::split: of each stage with ops
};

}  // namespace kiln::detail
