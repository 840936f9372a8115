// SPDX-License-Identifier: Apache-2.0
// The slot table of a recorded path: functional contents, views that follow writes to their base, rollback.
// Also the arithmetic of views that it shares with the eager tape.
#include <algorithm>

#include "frontend/trace.h"
#include "frontend/views.h"

namespace kiln::detail {

Slot Recorder::add_slot(SlotInfo info) {
  slots.push_back(std::move(info));
  return static_cast<Slot>(slots.size()) - 1;
}

void Recorder::change(Slot s, SlotInfo info) {
  journal.emplace_back(s, std::move(slots[s]));
  slots[s] = std::move(info);
}

void Recorder::rollback(const Event& e) {
  while (journal.size() > e.journal_size) {
    slots[journal.back().first] = std::move(journal.back().second);
    journal.pop_back();
  }
  slots.resize(static_cast<size_t>(e.slot_count));
  graph.truncate(e.value_count);
  auto later = [&](Value v) { return v.id >= e.value_count; };
  while (!external_inputs.empty() && later(external_inputs.back())) {
    external_inputs.pop_back();
    externals.pop_back();
  }
  while (!scalars.empty() && later(scalars.back())) scalars.pop_back();
  value_grad.resize(std::min<size_t>(value_grad.size(), static_cast<size_t>(e.value_count)));
  while (!checks.empty() && later(checks.back().worst)) checks.pop_back();
  std::erase_if(regions, [&](const TracedRegion& x) {
    return x.begin >= e.value_count || x.chosen_at >= e.value_count;
  });
  if (!regions.empty() && regions.back().end >= e.value_count) regions.back().end = -1;
  std::erase_if(hooked, [&](const auto& p) { return p.first >= e.value_count; });
  std::erase_if(leaf_values, [&](const auto& p) { return p.first >= e.value_count; });
  std::erase_if(histories, [&](const auto& p) { return p.first >= e.value_count; });
}

void Recorder::mark_region(bool begins, const Origin& origin) {
  // A value that nobody reads: rolling back takes it, and the mark with it.
  const Value mark = graph.add_node(op("constant"), {}, {0.0, DType::boolean, Shape{}}, origin);
  if (begins) regions.push_back({mark.id});
  else regions.back().end = mark.id;
}

int Recorder::region_of(Value v) const {
  if (regions.empty() || v.id >= graph.value_count() || graph.producer(v) < 0) return -1;
  const auto after = std::upper_bound(regions.begin(), regions.end(), v.id,
                                      [](int id, const TracedRegion& x) { return id < x.begin; });
  if (after == regions.begin()) return -1;
  const TracedRegion& x = *(after - 1);
  return v.id < x.end ? static_cast<int>(after - 1 - regions.begin()) : -1;
}

std::span<const Value> Recorder::history_operands(Value v) const {
  if (const auto h = histories.find(v.id); h != histories.end())
    return {&h->second, h->second.valid() ? size_t{1} : size_t{0}};
  const int node = graph.producer(v);
  if (node < 0) return {};
  return graph.nodes[static_cast<size_t>(node)].in;
}

void Recorder::consume(Value root) {
  consumed.resize(static_cast<size_t>(graph.value_count()), false);
  walk_history(root, [&](Value v) {
    if (graph.producer(v) < 0 || is_consumed(v) || !has_history(v)) return false;
    consumed[static_cast<size_t>(v.id)] = true;
    return true;
  });
}

bool Recorder::reaches_consumed(Value root) const {
  bool found = false;
  walk_history(root, [&](Value v) {
    if (graph.producer(v) < 0 || !has_history(v)) return false;
    found = found || is_consumed(v);
    return !found;
  });
  return found;
}

void Recorder::mark_grad(Value v, bool on) {
  if (static_cast<size_t>(v.id) >= value_grad.size()) value_grad.resize(static_cast<size_t>(v.id) + 1, false);
  value_grad[v.id] = on;
}

void Recorder::mark_from(int first_value) {
  size_t i = graph.nodes.size();
  while (i > 0 && graph.nodes[i - 1].out.id >= first_value) --i;
  for (; i < graph.nodes.size(); ++i) {
    const Node& n = graph.nodes[i];
    const std::span<const Value> in = history_operands(n.out);
    const bool any = std::any_of(in.begin(), in.end(), [&](Value v) { return wants_grad(v); });
    mark_grad(n.out, any && is_floating(graph.type(n.out).dtype) && !def(n.op).constant_gradient);
  }
}

bool Recorder::pending_write_near(Slot s) const {
  const SlotInfo& i = slots[s];
  return i.external >= 0 && i.written && !in_memory.count(i.value.id);
}

void Recorder::store(Value v, int external) {
  std::erase_if(in_memory, [&](const auto& p) { return p.second == external; });
  in_memory[v.id] = external;
}

bool Recorder::overlap_written() const {
  return std::any_of(externals.begin(), externals.end(),
                     [&](Slot s) { return slots[s].overlaps && pending_write_near(s); });
}

void Recorder::refresh_overlaps() {
  for (Slot s : externals) {
    if (!slots[s].overlaps) continue;
    SlotInfo fresh = slots[s];
    const Value input = graph.add_input(fresh.type, InputKind::captured, "");
    store(input, fresh.external);
    fresh.value = with_history(input, fresh.value, {});
    in_memory[fresh.value.id] = fresh.external;
    fresh.written = false;
    ++fresh.version;
    change(s, fresh);
  }
}

Value Recorder::with_history(Value data, Value history, const Origin& origin) {
  const bool on = history.valid() && wants_grad(history);
  if (!on && !wants_grad(data)) return data;
  const Value v = graph.add_node(op("reshape"), {&data, 1}, {graph.type(data).shape}, origin);
  histories[v.id] = on ? history : Value{};
  mark_grad(v, on);
  return v;
}

std::vector<TapeEntry> Recorder::tape(std::span<const Node> nodes) const {
  std::vector<TapeEntry> entries;
  for (const Node& n : nodes) {
    const std::span<const Value> in = history_operands(n.out);
    entries.push_back({n.op, {in.begin(), in.end()}, n.out, &n.attrs, n.origin.loc});
  }
  return entries;
}

ViewChain::Steps Recorder::chain_to(Slot s) const {
  return slots[s].chain.steps(slots[history_of(s)].chain.size());
}

Value Recorder::read(Slot s, const Origin& origin) {
  const Slot memory = memory_of(s), history = history_of(s);
  if (memory == s || slots[memory].version == slots[s].version) return slots[s].value;
  GraphBuilder b(graph);
  b.origin = origin;
  const Value source = history == s ? slots[memory].value : read(history, origin);
  SlotInfo fresh = slots[s];
  const int first = graph.value_count();
  Value shown = forward_view(b, source, history == s ? fresh.chain.steps() : chain_to(s));
  mark_from(first);
  fresh.value = history == s ? with_history(shown, fresh.value, origin) : shown;
  fresh.version = slots[memory].version;
  fresh.requires_grad = wants_grad(fresh.value);
  change(s, fresh);
  return fresh.value;
}

void Recorder::write(Slot s, Value v, bool grad, const Origin& origin) {
  GraphBuilder b(graph);
  b.origin = origin;
  const Slot memory = memory_of(s), history = history_of(s);
  const Value before = read(s, origin), owner = read(history, origin);
  const bool tracked = grad && (wants_grad(v) || wants_grad(owner));
  const bool plain = !wants_grad(v) && !wants_grad(before);
  const int first = graph.value_count();
  if (tracked && history != memory) {
    SlotInfo own = slots[history];
    own.value = backward_view(b, owner, chain_to(s), v);
    mark_from(first);
    own.requires_grad = wants_grad(own.value);
    own.leaf = !own.requires_grad;
    own.version = slots[memory].version + 1;
    change(history, own);
  }
  SlotInfo base = slots[memory];
  const Value former = base.value;
  base.value = backward_view(b, former, slots[s].chain.steps(), v);
  mark_from(first);
  if (!tracked || history != memory) {
    base.value = with_history(base.value, former, origin);
  } else {
    base.requires_grad = wants_grad(base.value);
    base.leaf = !base.requires_grad;
  }
  base.written = base.external >= 0;
  ++base.version;
  change(memory, base);
  if (s == memory || s == history || !(tracked || plain)) return;
  SlotInfo view = slots[s];
  view.value = v;
  view.version = base.version;
  change(s, view);
}

}  // namespace kiln::detail
