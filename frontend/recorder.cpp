// SPDX-License-Identifier: Apache-2.0
// The slot table of a recorded path: functional contents, views that follow writes to their base, rollback.
#include "frontend/trace.h"

namespace kiln::detail {

namespace {
using Chain = std::vector<std::pair<Op, Attrs>>;

/// The contents of a view, given its base's.
Value forward_view(GraphBuilder& b, Value base, const Chain& chain) {
  for (const auto& [o, attrs] : chain) base = b.emit(o, {base}, attrs);
  return base;
}

/// What `before` becomes when the elements shown by one view op are replaced by `update`.
Value scatter_view(GraphBuilder& b, Op o, const Attrs& attrs, Value before, Value update) {
  const Type t = b.type(before);
  if (o == op("reshape")) return b.reshape(update, t.shape);
  if (o == op("permute")) {
    const auto& dims = std::get<std::vector<int64_t>>(attrs[0]);
    std::vector<int64_t> inverse(dims.size());
    for (size_t i = 0; i < dims.size(); ++i) inverse[static_cast<size_t>(dims[i])] = static_cast<int64_t>(i);
    return b.permute(update, inverse);
  }
  if (o == op("flip")) return b.emit(o, {update}, attrs);
  if (o == op("slice")) {
    const auto& starts = std::get<Shape>(attrs[0]);
    const auto& steps = std::get<std::vector<int64_t>>(attrs[2]);
    const Type ut = b.type(update);
    Shape low, high;
    std::vector<int64_t> interior;
    for (size_t i = 0; i < steps.size(); ++i) {
      const int64_t n = ut.shape[i].value(), size = t.shape[i].value(), start = starts[i].value();
      low.emplace_back(n ? start : 0);
      interior.push_back(steps[i] - 1);
      high.emplace_back(n ? size - start - (n - 1) * steps[i] - 1 : size);
    }
    auto pad = [&](Value v) { return b.emit(op("pad"), {v}, {low, high, interior, 0.0}); };
    const Value mask = pad(b.constant(1, {DType::boolean, ut.shape}));
    return b.emit(op("where"), {mask, pad(update), before});
  }
  throw Error(ErrorKind::unsupported,
              fmt::format("in-place write through a view made by {}: its elements overlap (write to a copy)",
                          def(o).name));
}

Value backward_view(GraphBuilder& b, Value base, const Chain& chain, size_t from, Value update) {
  if (from == chain.size()) return update;
  const Value inner = b.emit(chain[from].first, {base}, chain[from].second);
  const Value changed = backward_view(b, inner, chain, from + 1, update);
  return scatter_view(b, chain[from].first, chain[from].second, base, changed);
}
}  // namespace

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
  fresh.value = forward_view(b, slots[info.base].value, info.chain);
  fresh.version = slots[info.base].version;
  mark_grad(fresh.value, info.requires_grad);
  change(s, fresh);
  return fresh.value;
}

void Recorder::write(Slot s, Value v, const Origin& origin) {
  GraphBuilder b(graph);
  b.origin = origin;
  const Slot base = slots[s].base == kAbsent ? s : slots[s].base;
  SlotInfo changed = slots[base];
  changed.value = base == s ? v : backward_view(b, changed.value, slots[s].chain, 0, v);
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
