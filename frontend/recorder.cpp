// SPDX-License-Identifier: Apache-2.0
// The slot table of a recorded path: functional contents, views that follow writes to their base, rollback.
// Also the arithmetic of views that it shares with the eager tape.
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
  std::erase_if(hooked, [&](const auto& p) { return p.first >= e.value_count; });
  std::erase_if(leaf_values, [&](const auto& p) { return p.first >= e.value_count; });
}

void Recorder::consume(Value root) {
  consumed.resize(static_cast<size_t>(graph.value_count()), false);
  std::vector<Value> stack{root};
  while (!stack.empty()) {
    const Value v = stack.back();
    stack.pop_back();
    const int node = graph.producer(v);
    if (node < 0 || consumed[static_cast<size_t>(v.id)] || !wants_grad(v)) continue;
    consumed[static_cast<size_t>(v.id)] = true;
    for (Value in : graph.nodes[static_cast<size_t>(node)].in) stack.push_back(in);
  }
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
    bool any = false;
    for (Value v : n.in) any = any || wants_grad(v);
    mark_grad(n.out, any && is_floating(graph.type(n.out).dtype) && !def(n.op).constant_gradient);
  }
}

bool Recorder::pending_write_near(Slot s) const {
  const SlotInfo& i = slots[s];
  return i.external >= 0 && i.written && !in_memory.count(i.value.id);
}

void Recorder::refresh_overlaps() {
  flush = false;
  for (Slot s : externals) {
    if (!slots[s].overlaps) continue;
    SlotInfo fresh = slots[s];
    fresh.value = graph.add_input(fresh.type, InputKind::captured, "");
    fresh.written = false;
    ++fresh.version;
    mark_grad(fresh.value, fresh.requires_grad);
    if (fresh.leaf && fresh.requires_grad) leaf_values[fresh.value.id] = s;
    in_memory[fresh.value.id] = fresh.external;
    change(s, fresh);
  }
}

Value Recorder::read(Slot s, const Origin& origin) {
  const SlotInfo& info = slots[s];
  if (info.base == kAbsent || slots[info.base].version == info.version) return info.value;
  GraphBuilder b(graph);
  b.origin = origin;
  SlotInfo fresh = info;
  const int first = graph.value_count();
  fresh.value = forward_view(b, slots[info.base].value, info.chain);
  fresh.version = slots[info.base].version;
  mark_from(first);
  fresh.requires_grad = wants_grad(fresh.value);
  change(s, fresh);
  return fresh.value;
}

void Recorder::write(Slot s, Value v, const Origin& origin) {
  GraphBuilder b(graph);
  b.origin = origin;
  const Slot base = slots[s].base == kAbsent ? s : slots[s].base;
  SlotInfo changed = slots[base];
  if (base == s) {
    changed.value = v;
  } else {
    // The former contents of a leaf are no part of its new ones' history: it stays a leaf.
    const bool leaf = changed.leaf && changed.requires_grad;
    const int first = graph.value_count();
    if (leaf) {
      changed.value = b.emit(op("reshape"), {changed.value}, {changed.type.shape});
      mark_grad(changed.value, false);
    }
    changed.value = backward_view(b, changed.value, slots[s].chain, 0, v);
    if (leaf) leaf_values[changed.value.id] = base;
    else mark_from(first);
    if (leaf) mark_grad(changed.value, true);
    else changed.requires_grad = wants_grad(changed.value);
  }
  changed.written = changed.external >= 0;
  flush = flush || changed.overlaps;
  ++changed.version;
  change(base, changed);
  if (base == s) return;
  SlotInfo view = slots[s];
  view.value = v;
  view.version = changed.version;
  change(s, view);
}

}  // namespace kiln::detail
