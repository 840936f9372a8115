// SPDX-License-Identifier: Apache-2.0
// backward() inside a compiled callable. Followed, it compares begin and leaf gradients and calls hooks with
// the recorded gradients; recorded, it appends the derivative to the path's graph. A recording that begins
// inside a hook repeats the walk: what the path already holds is recognised, node by node, not emitted again.
#include <algorithm>

#include "frontend/activation_memory.h"
#include "frontend/cursor.h"
#include "frontend/outer.h"
#include "frontend/region_builder.h"
#include "ir/autodiff.h"

namespace kiln::detail {

namespace {

/// Emits into a graph that already holds a prefix of what will be emitted.
class ResumingBuilder : public RegionBuilder {
 public:
  ResumingBuilder(Recorder& r, size_t next, Origin from)
      : RegionBuilder(r), origin(from), graph_(r.graph), next_(next) {}
  Value append(Op o, std::span<const Value> in, Attrs attrs) override {
    if (next_ == graph_.nodes.size()) {
      ++next_;
      return graph_.add_node(o, in, std::move(attrs), origin);
    }
    const Node& n = graph_.nodes[next_++];
    KILN_ASSERT(n.op == o, "resumed backward emits {}, the path holds {}", def(o).name, def(n.op).name);
    return n.out;
  }
  Type type(Value v) const override { return graph_.type(v); }
  std::optional<Made> made(Value v) const override { return graph_.made(v); }
  /// Goes on after the nodes that a hook's body added.
  void skip_to(size_t node) { next_ = node; }
  void skip_to_end() { next_ = graph_.nodes.size(); }
  Origin origin;

 private:
  Graph& graph_;
  size_t next_;
};

/// First node whose value was made at or after `value_count`.
size_t node_at(const Graph& g, int value_count) {
  const auto at = std::lower_bound(g.nodes.begin(), g.nodes.end(), value_count,
                                   [](const Node& n, int count) { return n.out.id < count; });
  return static_cast<size_t>(at - g.nodes.begin());
}

}  // namespace

bool Cursor::backward_matches(const Event& e, const Tensor& root, const Tensor& gradient) const {
  if (e.kind != EventKind::backward || slot_of(*root.impl()) != e.operands[0]) return false;
  if (e.tf32 != allows_tf32()) return false;
  if (!hook_counts_match(e)) return false;
  if (!gradient.defined()) return e.operands[1] == kAbsent;
  const Slot s = slot_of(*gradient.impl());
  if (s != kUnbound) return s == e.operands[1];
  for (const SlotBinding& b : e.bindings)
    if (b.slot == e.operands[1]) return gradient.impl()->storage && meta_of(*gradient.impl()) == b.meta;
  return false;
}

/// How the leaves' gradients differ from those that `e` was recorded with; empty: not at all.
std::string Cursor::leaf_grads_difference(const Event& e) const {
  for (size_t i = 0; i < e.operands.size(); i += 2) {
    const ImplPtr leaf = impl_of(e.operands[i]);
    KILN_ASSERT(leaf, "leaf slot {} is unknown", e.operands[i]);
    const Slot expected = e.operands[i + 1];
    if (!leaf->grad) {
      if (expected != kAbsent) return fmt::format("{} has no gradient where one with was", describe(*leaf));
      continue;
    }
    if (expected == kAbsent) return fmt::format("{} has a gradient where one without was", describe(*leaf));
    const Slot s = slot_of(*leaf->grad);
    const auto b = std::find_if(e.bindings.begin(), e.bindings.end(),
                                [&](const SlotBinding& x) { return x.slot == expected; });
    const auto bound = [&](int leaf_number) {
      return impl_of(e.operands[2 * static_cast<size_t>(leaf_number)])->grad.get();
    };
    const bool same =
        s != kUnbound ? s == expected : b != e.bindings.end() && binds_alike(e, *b, *leaf->grad, bound);
    if (!same) return fmt::format("another gradient of {} was", describe(*leaf));
  }
  return "";
}

void Cursor::follow_leaf_grads(Event& e, GradWatch& watch) {
  std::vector<ImplPtr> leaves;
  leaves.reserve(e.operands.size() / 2);
  for (size_t i = 0; i < e.operands.size(); i += 2) leaves.push_back(impl_of(e.operands[i]));
  for (const SlotBinding& b : e.bindings) bind(b, leaves[static_cast<size_t>(b.operand)]->grad);
  at_ = &e;
  for (size_t i = 0; i < e.results.size(); ++i)
    leaves[static_cast<size_t>(e.ints[i])]->grad = hand_out(e, i, {}).impl();
  for (const ImplPtr& leaf : leaves) watch.ready(leaf, {});
}

/// The hooks of a tensor as they are when its gradient is ready.
const HookList& Cursor::hooks_of(Slot slot) {
  const auto known = hook_lists_.find(slot);
  if (known != hook_lists_.end()) return known->second;
  const ImplPtr t = impl_of(slot);
  return hook_lists_[slot] = t && t->hooks ? *t->hooks : HookList();
}

Tensor Cursor::run_hook(Slot slot, size_t index, const Tensor& gradient) {
  const HookList& hooks = hooks_of(slot);
  KILN_ASSERT(index < hooks.size(), "slot {} has no hook {}", slot, index);
  NoGrad guard;
  return hooks[index].fn(gradient);
}

/// Whether the hooked tensors have as many hooks as when `begin` was recorded.
bool Cursor::hook_counts_match(const Event& begin) const {
  return std::all_of(begin.hook_counts.begin(), begin.hook_counts.end(), [&](const auto& p) {
    const ImplPtr t = impl_of(p.first);
    return (t && t->hooks ? t->hooks->size() : 0) == p.second;
  });
}

/// The recorded hook call that comes next; null: none. `known` is false where a hook that ran before has
/// changed the hooks of others, so that what comes next was never recorded.
Event* Cursor::next_hook(bool& known) {
  Event *any = nullptr, *same = nullptr;
  known = true;
  for (Event* e = at_->first_child.load(std::memory_order_acquire); e; e = e->next_sibling) {
    if (e->kind != EventKind::hook) continue;
    const size_t count = hooks_of(e->operands[0]).size();
    if (count == 0) continue;
    known = known && (!any || any->operands == e->operands);  // of two tensors it may be either's turn
    any = e;
    if (count == static_cast<size_t>(e->ints[1])) same = e;
  }
  known = known && (same || !any);
  return same ? same : any;
}

/// Walks the hook events of a backward. False: recording began on the way.
bool Cursor::follow_hooks() {
  bool known = true;
  while (Event* h = next_hook(known)) {
    if (!known) {
      start_recording("a hook", h->loc);
      return false;
    }
    at_ = h;
    const Tensor g = hand_out(*h, 0, {});
    const Tensor result = run_hook(h->operands[0], static_cast<size_t>(h->ints[0]), g);
    const Slot returned = result.defined() ? slot_of(*result.impl()) : kAbsent;
    Event* end = nullptr;
    if (!recording())
      for (Event* c = at_->first_child.load(std::memory_order_acquire); c; c = c->next_sibling)
        if (c->kind == EventKind::hook_end && returned != kUnbound && c->operands[0] == returned) end = c;
    if (!end) {
      if (!recording()) start_recording("a hook's result", h->loc);
      pending_hook_result_ = result;
      pending_hook_ = h;
      return false;
    }
    at_ = end;
  }
  return true;
}

void Cursor::backward(const Tensor& root, const Tensor& gradient, bool retain_graph, SourceLoc loc,
                      GradWatch& watch) {
  struct Restore {
    std::map<Slot, HookList>& lists;
    std::map<Slot, HookList> outer;  // of the backward one of whose hooks calls this one
    ~Restore() { lists.swap(outer); }
  } restore{hook_lists_, {}};
  restore.outer.swap(hook_lists_);
  walk_backward(root, gradient, retain_graph, loc, watch);
}

void Cursor::walk_backward(const Tensor& root, const Tensor& gradient, bool retain_graph, SourceLoc loc,
                           GradWatch& watch) {
  if (!recording()) {
    for (Event* e = at_->first_child.load(std::memory_order_acquire); e; e = e->next_sibling) {
      if (!backward_matches(*e, root, gradient) || e->ints[0] != retain_graph) continue;
      for (const SlotBinding& b : e->bindings) bind(b, gradient.impl());
      at_ = e;
      if (!follow_hooks()) return record_backward(*e, watch);
      std::string detail;
      for (Event* end = at_->first_child.load(std::memory_order_acquire); end; end = end->next_sibling) {
        if (end->kind != EventKind::backward_end) continue;
        detail = leaf_grads_difference(*end);
        if (detail.empty()) return follow_leaf_grads(*end, watch);
      }
      start_recording("backward", loc, detail);
      return record_backward(*e, watch);
    }
    Event* const outside = match_run(EventKind::outer_backward, live_slots(), slot_of(*root.impl()));
    if (outside && outside->ints[0] == retain_graph)
      return backward_outside(outside, root, gradient, retain_graph, loc, watch);
    if (follow_flush()) return backward(root, gradient, retain_graph, loc, watch);
    start_recording("backward", loc);
  }
  if (recorder_->overlap_written()) flush_writes();
  if (leaves_trace(recorder_->read(slot_of(*root.impl()), origin())))
    return backward_outside(nullptr, root, gradient, retain_graph, loc, watch);
  Event& e = open_event(EventKind::backward, "backward", loc);
  e.device = root.device();
  const Slot seed = gradient.defined() ? bind_operand(e, gradient, 1) : kAbsent;
  e.operands = {slot_of(*root.impl()), seed};
  e.ints = {retain_graph};
  e.ints.push_back(recorder_->read(e.operands[0], origin()).id);
  if (seed != kAbsent) recorder_->read(seed, origin());
  for (const auto& [value, slot] : recorder_->hooked)
    if (const ImplPtr t = impl_of(slot); t && t->hooks) e.hook_counts.emplace_back(slot, t->hooks->size());
  close_event();
  pending_hook_ = nullptr;
  record_backward(e, watch);
}

/// Whether a gradient of `root` flows into the history of a tensor made outside.
bool Cursor::leaves_trace(Value root) const {
  const Recorder& r = *recorder_;
  bool leaves = false;
  r.walk_history(root, [&](Value v) {
    if (!r.has_history(v)) return false;
    leaves = leaves || r.graph.producer(v) < 0;
    return !leaves;
  });
  return leaves;
}

/// Follows `e`, or records it if null: runs the path up to here, then differentiates it and what comes before
/// it like a result outside. Hooks and the leaves' gradients are events of this trace again.
void Cursor::backward_outside(Event* e, const Tensor& root, const Tensor& gradient, bool retain_graph,
                              SourceLoc loc, GradWatch& watch) {
  KILN_CHECK(
      !trie_.options.full_graph, invalid,
      "backward ({}): {} depends on a tensor with a history made outside the compiled callable; to go on "
      "there is a host read, which full_graph forbids (detach that tensor, or make it inside)",
      loc.str(), describe(*root.impl()));
  KILN_ASSERT(depth_ == 0, "backward inside the body of an op");
  if (!e) {
    const Slot slot = slot_of(*root.impl());
    const Value value = recorder_->read(slot, origin());
    KILN_CHECK(
        !recorder_->reaches_consumed(value), invalid,
        "backward ({}): the graph was already consumed by a backward (pass retain_graph=true to the first)",
        loc.str());
    e = &record_run(EventKind::outer_backward, live_slots(), slot, loc);
    e->ints = {retain_graph, value.id};
    if (!retain_graph) recorder_->consume(value);
  }
  at_ = e;
  run_stage(*e);
  const std::shared_ptr<OuterBackward>& outer = e->stage->backward;
  const auto boundary = std::make_shared<CallBoundary>(outer, save_for(*outer));
  const std::vector<GradEdge> inputs = edges_to(outer->inputs());
  backward_from(boundary->result(*root.impl(), 0, inputs, loc), root, gradient, retain_graph, loc, watch);
}

/// Calls one hook live, recording an event pair around its ops; returns the gradient to go on with.
Value Cursor::record_hook(Slot slot, size_t index, Value g) {
  Event& h = open_event(EventKind::hook, "hook", state().user_loc());
  SlotInfo info;
  info.value = g;
  info.type = recorder_->graph.type(g);
  info.leaf = true;
  const Tensor handle =
      new_handle(recorder_->add_slot(info), contiguous_prototype(info.type, false, stage_device()));
  h.operands = {slot};
  h.ints = {static_cast<int64_t>(index), static_cast<int64_t>(hooks_of(slot).size())};
  h.results.push_back({-1, std::make_shared<TensorImpl>(*handle.impl()), handle.impl()});
  handles_.push_back({&h, 0, nullptr});
  close_event();
  return record_hook_end(run_hook(slot, index, handle), g);
}

Value Cursor::record_hook_end(const Tensor& result, Value g) {
  Event& end = open_event(EventKind::hook_end, "hook end", {});
  end.operands = {result.defined() ? bind_operand(end, result, 0) : kAbsent};
  if (result.defined()) {
    const Value replaced = recorder_->read(end.operands[0], origin());
    KILN_CHECK(recorder_->graph.type(replaced) == recorder_->graph.type(g), invalid,
               "hook: returned {} for a gradient of {}", recorder_->graph.type(replaced).str(),
               recorder_->graph.type(g).str());
    g = replaced;
  }
  close_event();
  return g;
}

/// The gradient that each finished hook call of the path after `begin` went on with, and the node after it.
std::vector<std::pair<Value, size_t>> Cursor::finished_hooks(const Event& begin) const {
  std::vector<std::pair<Value, size_t>> done;
  for (const Event* e = at_; e != &begin; e = e->parent) {
    if (e->kind != EventKind::hook_end) continue;
    const Event* h = e->parent;
    while (h->kind != EventKind::hook) h = h->parent;
    const Slot s = e->operands[0] == kAbsent ? h->results[0].prototype->slot : e->operands[0];
    done.emplace_back(recorder_->slots[s].value, node_at(recorder_->graph, e->value_count));
  }
  std::reverse(done.begin(), done.end());
  return done;
}

/// With a bound on activations: which of the path's ops the backward that `begin` begins makes again.
void Cursor::choose_regions(const Event& begin, Value root) {
  if (trie_.options.activation_memory == 0) return;
  Recorder path = *recorder_;
  path.rollback(begin);
  const int64_t bytes = fit_activations(path, {{&root, 1}, trie_.options.activation_memory, stage_device()});
  build_.activation_bytes = std::max(build_.activation_bytes, bytes);
  std::vector<TracedRegion>& regions = recorder_->regions;
  const auto chosen_now = [&](const TracedRegion& x) { return x.chosen_at == begin.value_count; };
  std::erase_if(regions, chosen_now);
  std::copy_if(path.regions.begin(), path.regions.end(), std::back_inserter(regions), chosen_now);
  std::sort(regions.begin(), regions.end(), [](auto& a, auto& b) { return a.begin < b.begin; });
}

void Cursor::record_backward(const Event& begin, GradWatch& watch) {
  Scope scope("backward", begin.loc);
  Recorder& r = *recorder_;
  if (pending_hook_) {  // the hook whose body or result diverged has just returned
    record_hook_end(pending_hook_result_, r.slots[pending_hook_->results[0].prototype->slot].value);
    pending_hook_ = nullptr;
    pending_hook_result_ = {};
  }
  const std::vector<std::pair<Value, size_t>> done = finished_hooks(begin);
  const size_t first = node_at(r.graph, begin.value_count);
  const Value root = r.slots[begin.operands[0]].value;
  KILN_CHECK(
      !r.reaches_consumed(root), invalid,
      "backward ({}): the graph was already consumed by a backward (pass retain_graph=true to the first)",
      begin.loc.str());
  choose_regions(begin, root);
  ResumingBuilder b(r, first, origin());
  const Value seed =
      begin.operands[1] == kAbsent ? b.constant(1, r.graph.type(root)) : r.slots[begin.operands[1]].value;

  std::vector<Node> nodes(r.graph.nodes.begin(), r.graph.nodes.begin() + static_cast<ptrdiff_t>(first));
  const std::vector<TapeEntry> tape = r.tape(nodes);
  BackwardRequest request;
  request.tape = tape;
  request.seeds = {{root, seed}};
  request.needs_grad = [&](Value v) { return r.wants_grad(v); };
  request.on_entry = [&](const TapeEntry& e) {
    b.origin = nodes[static_cast<size_t>(&e - tape.data())].origin;
    b.go_to(e.out);
  };
  size_t hook_calls = 0;
  request.on_grad = [&](Value v, Value g) {
    b.arrived(g);
    const auto hooked = r.hooked.find(v.id);
    if (hooked == r.hooked.end()) return g;
    const size_t count = hooks_of(hooked->second).size();
    for (size_t i = 0; i < count; ++i, ++hook_calls) {
      if (hook_calls < done.size()) {
        g = done[hook_calls].first;
        b.skip_to(done[hook_calls].second);
      } else {
        g = record_hook(hooked->second, i, g);
        b.skip_to_end();
      }
    }
    b.arrived(g);
    return g;
  };
  std::vector<std::pair<Slot, Value>> leaf_grads;
  for (const auto& [v, g] : differentiate(b, request)) {
    const auto leaf = r.leaf_values.find(v.id);
    if (leaf == r.leaf_values.end()) continue;
    const auto known =
        std::find_if(leaf_grads.begin(), leaf_grads.end(), [&](auto& p) { return p.first == leaf->second; });
    if (known == leaf_grads.end()) leaf_grads.emplace_back(leaf->second, g);
    else known->second = b.emit(op("add"), {known->second, g});
  }
  if (!begin.ints[0]) r.consume(root);
  record_leaf_grads(leaf_grads, watch);
}

void Cursor::record_leaf_grads(const std::vector<std::pair<Slot, Value>>& leaf_grads, GradWatch& watch) {
  Recorder& r = *recorder_;
  Event& e = open_event(EventKind::backward_end, "backward", state().user_loc());
  const Origin from = origin();
  for (const auto& [leaf, g] : leaf_grads) {
    const ImplPtr impl = impl_of(leaf);
    const auto index = static_cast<int>(e.operands.size() / 2);
    if (impl->grad) {
      const Slot s = bind_operand(e, Tensor(impl->grad), index);
      e.operands.insert(e.operands.end(), {leaf, s});
      const Value sum_operands[] = {r.read(s, from), g};
      r.write(s, r.graph.add_node(op("add"), sum_operands, {}, from), false, from);
      note_write(s);
      continue;
    }
    SlotInfo info;
    info.value = g;
    info.type = r.graph.type(g);
    info.leaf = true;
    const Tensor handle = new_handle(r.add_slot(info), contiguous_prototype(info.type, false, impl->device));
    e.operands.insert(e.operands.end(), {leaf, kAbsent});
    e.ints.push_back(index);
    e.results.push_back({-1, std::make_shared<TensorImpl>(*handle.impl()), handle.impl()});
    handles_.push_back({&e, e.results.size() - 1, nullptr});
    impl->grad = handle.impl();
  }
  close_event();
  for (const auto& [leaf, g] : leaf_grads) watch.ready(impl_of(leaf), {});
}

}  // namespace kiln::detail
