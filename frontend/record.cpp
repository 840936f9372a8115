// SPDX-License-Identifier: Apache-2.0
// Recording: what a cursor does from the first event that no recorded path has. Appends to the path's graph
// and collects the new events; nothing is visible to other cursors before attach().
#include <algorithm>

#include "frontend/cuda.h"
#include "frontend/cursor.h"

namespace kiln::detail {

namespace {
/// Any recorded end or host read below `e`: its recorder can be rolled back to `e`.
const Event* recorded_below(const Event* e) {
  for (const Event* c = e; c; c = c->first_child.load(std::memory_order_acquire))
    if (c->recorder) return c;
  return nullptr;
}

const Event* last_run(const Event* e) {
  while (e && e->kind != EventKind::host_read && e->kind != EventKind::outer_backward) e = e->parent;
  return e;
}

std::string event_text(const Event& e) {
  switch (e.kind) {
    case EventKind::call: return fmt::format("`{}`", e.name);
    case EventKind::backward:
    case EventKind::outer_backward: return "`backward`";
    case EventKind::host_read: return "a host read";
    case EventKind::end: return "the end of the call";
    case EventKind::hook: return "a hook";
    default: return "another end of a hook or of `backward`";
  }
}

std::string meta_text(const ExternalMeta& m) {
  return type_text({m.dtype, Shape(m.shape.begin(), m.shape.end())}, m.device);
}

/// How an external tensor differs from the recorded one.
std::string meta_difference(const ExternalMeta& now, const ExternalMeta& then) {
  if (now.dtype != then.dtype || now.shape != then.shape || now.device != then.device)
    return fmt::format("{} where {}", meta_text(now), meta_text(then));
  if (now.strides != then.strides)
    return fmt::format("{} of strides [{}] where [{}]", meta_text(now), fmt::join(now.strides, ","),
                       fmt::join(then.strides, ","));
  if (now.requires_grad != then.requires_grad)
    return fmt::format("{} that {} where one that {}", meta_text(now),
                       now.requires_grad ? "requires grad" : "does not require grad",
                       then.requires_grad ? "does" : "does not");
  if (now.is_leaf != then.is_leaf)
    return fmt::format("{} that is {} where one that is {}", meta_text(now),
                       now.is_leaf ? "a leaf" : "no leaf", then.is_leaf ? "a leaf" : "not");
  if (now.hooks != then.hooks)
    return fmt::format("{} with {} hooks where one with {}", meta_text(now), now.hooks, then.hooks);
  return fmt::format("{} that shares other memory than the one", meta_text(now));
}
}  // namespace

/// What keeps a call from following `e`, an event of the same op.
std::string Cursor::difference(const Event& e, const CallInfo& info) const {
  if (e.grad_enabled != state().grad_enabled)
    return e.grad_enabled ? "under no_grad where with gradients" : "with gradients where under no_grad";
  if (e.tf32 != allows_tf32())
    return fmt::format("with float32_matmul_precision '{}' where with '{}'", get_float32_matmul_precision(),
                       e.tf32 ? "high" : "highest");
  for (size_t i = 0; i < std::min(e.operands.size(), info.operands.size()); ++i) {
    const Tensor* t = info.operands[i];
    const bool given = t && t->defined();
    if (given != (e.operands[i] != kAbsent))
      return fmt::format("operand {} {}given where it was{}", i + 1, given ? "" : "not ",
                         given ? " not" : "");
    if (!given) continue;
    const Slot s = slot_of(*t->impl());
    const auto b = std::find_if(e.bindings.begin(), e.bindings.end(),
                                [&](const SlotBinding& x) { return x.slot == e.operands[i]; });
    if (s != kUnbound || b == e.bindings.end()) {
      if (s == e.operands[i]) continue;
      return fmt::format("operand {}, {}, is another tensor than the one", i + 1, describe(*t->impl()));
    }
    if (matches_binding(e, *t, e.operands[i], static_cast<int>(i), info.operands)) continue;
    return fmt::format("operand {}: {}", i + 1, meta_difference(meta_of(*t->impl()), b->meta));
  }
  if (!std::equal(e.ints.begin(), e.ints.end(), info.ints.begin(), info.ints.end()))
    return fmt::format("attributes [{}] where [{}]", fmt::join(info.ints, ","), fmt::join(e.ints, ","));
  return "other numbers of operands or kinds of numbers than those";
}

std::string Cursor::divergence(const std::string& what, SourceLoc loc, const std::string& detail) const {
  const Event* other = at_->first_child.load(std::memory_order_acquire);
  if (!other) return "first call";
  const std::string where = loc.known() ? loc.str() + ": " : "";
  if (!detail.empty()) return fmt::format("{}`{}`, {} traced", where, what, detail);
  const std::string at = other->loc.known() ? fmt::format(" ({})", other->loc.str()) : "";
  return fmt::format("{}`{}` where {}{} was traced", where, what, event_text(*other), at);
}

void Cursor::start_recording(const std::string& what, SourceLoc loc, const std::string& detail) {
  if (reason_.empty()) {
    reason_ = divergence(what, loc, detail);
    std::lock_guard lock(trie_.mutex);
    KILN_CHECK(
        static_cast<int>(trie_.builds.size()) < trie_.options.max_builds, invalid,
        "{}: {} builds reached CompileOptions::max_builds; the next one is for {} (keep what changes out of "
        "the callable: select with where, pad to one shape; or raise max_builds)",
        trie_.options.name, trie_.builds.size(), reason_);
  }
  tell_building();
  recorder_ = std::make_unique<Recorder>();
  const Event* known = recorded_below(at_);
  if (!known) return;
  *recorder_ = *known->recorder;
  recorder_->rollback(*at_);
  recorder_->consumed.clear();
  bool ended = false;  // a backward that is still calling hooks has consumed nothing
  for (const Event* e = at_; e; e = e->parent) {
    ended = ended || e->kind == EventKind::backward_end || e->kind == EventKind::outer_backward;
    if (e->kind != EventKind::backward && e->kind != EventKind::outer_backward) continue;
    if (ended && !e->ints[0]) recorder_->consume({static_cast<int32_t>(e->ints[1])});
    ended = false;
  }
  const Event* run = last_run(at_);
  recorder_->exported = run ? run->recorder->exported : std::map<int, int>();
  recorder_->export_owner = run ? run->recorder->export_owner : std::map<int, Slot>();
  recorder_->in_memory = run ? run->recorder->in_memory : std::map<int, int>();
  recorder_->carried_count = run ? run->recorder->carried_count : 0;
  recorder_->checks_run = run ? run->recorder->checks_run : 0;
}

Event& Cursor::open_event(EventKind kind, const char* name, SourceLoc loc) {
  recorded_.push_back(std::make_unique<Event>());
  Event& e = *recorded_.back();
  e.kind = kind;
  e.name = name;
  e.loc = loc;
  e.grad_enabled = state().grad_enabled;
  e.tf32 = allows_tf32();
  e.parent = at_;
  open_ = &e;
  return e;
}

void Cursor::mark(Event& e) const {
  e.value_count = recorder_->graph.value_count();
  e.slot_count = static_cast<int>(recorder_->slots.size());
  e.journal_size = recorder_->journal.size();
}

void Cursor::close_event() {
  mark(*open_);
  at_ = open_;
  open_ = nullptr;
}

Origin Cursor::origin() const {
  const State& s = state();
  return {s.user_loc(), s.scopes.empty() ? -1 : recorder_->graph.intern_scope(s.scope_path())};
}

Slot Cursor::bind_operand(Event& e, const Tensor& t, int operand) {
  const ImplPtr& impl = t.impl();
  const Slot known = slot_of(*impl);
  if (known != kUnbound) return known;
  KILN_CHECK(!impl->dropped.known(), invalid,
             "dropped: the tensor made at {} was lost when the compiled callable threw", impl->dropped.str());
  KILN_CHECK(impl->storage, invalid, "{} ({}): a pending tensor of another trace is used here", e.name,
             e.loc.str());
  KILN_CHECK(
      !e.device || *e.device == impl->device || !impl->requires_grad, unsupported,
      "{} ({}): {} requires grad, and its gradient would have to come back from {} inside the compiled "
      "callable (move it there before, with .to())",
      e.name, e.loc.str(), describe(*impl), e.device->str());
  SlotBinding b{kAbsent, operand, meta_of(*impl)};
  SlotInfo info;
  info.type = impl->type();
  info.leaf = impl->is_leaf;
  info.requires_grad = impl->requires_grad;
  info.external = static_cast<int>(externals_.size());
  const InputKind kind = impl->requires_grad && impl->is_leaf ? InputKind::param : InputKind::arg;
  info.value = recorder_->graph.add_input(info.type, kind, impl->name);
  recorder_->mark_grad(info.value, info.requires_grad);
  recorder_->external_inputs.push_back(info.value);
  if (b.meta.alias_of != kAbsent) {
    info.overlaps = true;
    SlotInfo first = recorder_->slots[b.meta.alias_of];
    first.overlaps = true;
    recorder_->change(b.meta.alias_of, first);
  }
  b.slot = recorder_->add_slot(info);
  recorder_->externals.push_back(b.slot);
  if (info.leaf && info.requires_grad) recorder_->leaf_values[info.value.id] = b.slot;
  if (b.meta.hooks > 0) recorder_->hooked[info.value.id] = b.slot;
  bind(b, impl);
  e.bindings.push_back(std::move(b));
  return e.bindings.back().slot;
}

Tensor Cursor::new_handle(Slot s, const TensorImpl& prototype) {
  auto h = std::make_shared<TensorImpl>(prototype);
  h->cursor = this;
  h->cursor_call = call_;
  h->slot = s;
  return Tensor(std::move(h));
}

TensorImpl contiguous_prototype(const Type& t, bool requires_grad, Device device) {
  TensorImpl p;
  p.dtype = t.dtype;
  p.device = device;
  for (const Dim& d : t.shape) p.shape.push_back(d.value());
  p.strides = contiguous_strides(p.shape);
  p.requires_grad = requires_grad;
  p.is_leaf = !requires_grad;
  return p;
}

std::vector<Tensor> Cursor::call_scalars(std::span<const Scalar> scalars) {
  std::vector<Tensor> out;
  for (const Scalar& s : scalars) {
    SlotInfo info;
    info.type = {s.is_int ? DType::i64 : DType::f64, {}};
    info.value = recorder_->graph.add_input(info.type, InputKind::scalar, "");
    recorder_->scalars.push_back(info.value);
    out.push_back(
        new_handle(recorder_->add_slot(info), contiguous_prototype(info.type, false, Device::cpu())));
  }
  return out;
}

Tensor Cursor::emit(Op o, std::span<const Tensor* const> in, Attrs attrs) {
  const Origin from = origin();
  std::vector<Value> values;
  bool grad = false;
  for (const Tensor* t : in) {
    const Slot s = slot_of(*t->impl());
    KILN_ASSERT(s != kUnbound, "{}: operand {} is not an operand of the open event", def(o).name,
                describe(*t->impl()));
    values.push_back(recorder_->read(s, from));
    grad = grad || recorder_->wants_grad(values.back());
  }
  SlotInfo info;
  info.value = recorder_->graph.add_node(o, values, attrs, from);
  info.type = recorder_->graph.type(info.value);
  grad = grad && state().grad_enabled && is_floating(info.type.dtype) && !def(o).constant_gradient;
  info.requires_grad = grad;
  recorder_->mark_grad(info.value, grad);
  TensorImpl prototype = contiguous_prototype(info.type, grad, *open_->device);
  if (def(o).view && in.size() == 1) {
    const TensorImpl& source = *in[0]->impl();
    const auto layout = def(o).view({source.dtype, nullptr, source.shape, source.strides}, attrs);
    if (layout) {
      const Slot s = slot_of(source);
      const SlotInfo& from_slot = recorder_->slots[s];
      info.base = recorder_->memory_of(s);
      if (state().grad_enabled) info.history = recorder_->history_of(s);
      info.chain = from_slot.chain;
      info.chain.add(o, attrs);
      info.version = recorder_->slots[info.base].version;
      prototype.strides = layout->strides;
      prototype.offset = source.offset + layout->offset;
      prototype.no_grad_view = source.no_grad_view || !state().grad_enabled;
    }
  }
  return new_handle(recorder_->add_slot(std::move(info)), prototype);
}

void Cursor::assign(const Tensor& target, const Tensor& value) {
  const Origin from = origin();
  const Slot s = slot_of(*target.impl());
  KILN_ASSERT(s != kUnbound, "in-place target {} is not an operand of the open event",
              describe(*target.impl()));
  auto is_leaf = [&](Slot x) { return recorder_->slots[x].leaf && recorder_->slots[x].requires_grad; };
  const Slot history = recorder_->history_of(s);
  KILN_CHECK(!is_leaf(history) || !state().grad_enabled, invalid, "{}",
             write_to_leaf(*target.impl(), history != s));
  const Value source = recorder_->read(slot_of(*value.impl()), from);
  const bool grad = recorder_->wants_grad(source) && state().grad_enabled;
  KILN_CHECK(!grad || !target.impl()->no_grad_view, invalid, "{}", write_to_no_grad_view(*target.impl()));
  // A value of its own, so that marking it says nothing about the source.
  const Value v =
      recorder_->graph.add_node(op("reshape"), {&source, 1}, {recorder_->graph.type(source).shape}, from);
  recorder_->mark_grad(v, grad);
  const bool before = recorder_->wants_grad(recorder_->read(history, from));
  recorder_->write(s, v, state().grad_enabled, from);
  note_write(s);
  const bool after = recorder_->wants_grad(recorder_->read(history, from));
  if (before == after) return;
  for (Slot x = 0; x < static_cast<Slot>(recorder_->slots.size()); ++x) {
    if (recorder_->history_of(x) != history) continue;
    set_flags(x, after);
    open_->flags.emplace_back(x, after);
  }
}

/// Slot `s` has been written, and with it its base.
void Cursor::note_write(Slot s) {
  const Slot memory = recorder_->memory_of(s);
  if (recorder_->slots[memory].external >= 0) open_->writes.push_back(memory);
}

void Cursor::check_later(const Tensor& worst, ValueCheck check) {
  check.worst = recorder_->read(slot_of(*worst.impl()), origin());
  recorder_->checks.push_back(std::move(check));
}

void Cursor::end_call(std::span<const Tensor> results, bool failed) {
  if (--depth_ > 0) return;
  Event& e = *open_;
  if (failed) {
    for (size_t i = e.bindings.size(); i-- > 0;) {  // backwards: the last external is the last binding's
      const Slot slot = e.bindings[i].slot;
      const ImplPtr& t = externals_.back();
      external_slots_.erase(t.get());
      if (const Place* first = storages_.find(t->storage.get()); first && first->slot == slot)
        storages_.erase(t->storage.get());
      externals_.pop_back();
      slot_impls_[static_cast<size_t>(slot)].reset();
    }
    scalars_.resize(scalars_.size() - e.scalar_count);
    recorder_->rollback(*at_);
    recorded_.pop_back();
    open_ = nullptr;
    if (recorded_.empty()) recorder_.reset();  // still on a recorded path: go on following
    return;
  }
  for (const Tensor& r : results) {
    EventResult result;
    for (size_t i = 0; i < open_operands_.size(); ++i)
      if (open_operands_[i] && open_operands_[i]->impl() == r.impl()) result.operand = static_cast<int>(i);
    if (result.operand < 0) {
      result.handle = r.impl();
      result.prototype = std::make_shared<TensorImpl>(*r.impl());
      handles_.push_back({&e, e.results.size(), nullptr});
    }
    e.results.push_back(std::move(result));
  }
  close_event();
}

void Cursor::set_leaf(const Tensor& t, bool on, SourceLoc loc) {
  const Tensor* operands[] = {&t};
  const int64_t ints[] = {on};
  call_many("requires_grad_", loc, operands, ints, {}, [&](const std::vector<Tensor>&) {
    const Slot s = slot_of(*t.impl());
    SlotInfo info = recorder_->slots[s];
    info.leaf = true;
    info.requires_grad = on;
    // A value of its own: what was computed before keeps its gradient.
    const Value before = recorder_->read(s, origin());
    if (recorder_->wants_grad(before) != on)
      info.value = recorder_->graph.add_node(op("reshape"), {&before, 1}, {info.type.shape}, origin());
    recorder_->mark_grad(info.value, on);
    if (on) recorder_->leaf_values[info.value.id] = s;
    recorder_->change(s, info);
    return std::vector<Tensor>{t};
  });
  if (!owns(*t.impl())) flags_.push_back({t.impl(), t.impl()->requires_grad, t.impl()->is_leaf});
  t.impl()->requires_grad = on;
}

void Cursor::note_hook(const Tensor& t, SourceLoc loc) {
  const Tensor* operands[] = {&t};
  call_many("register_hook", loc, operands, {}, {}, [&](const std::vector<Tensor>&) {
    const Slot s = slot_of(*t.impl());
    int value = recorder_->read(s, origin()).id;
    for (const auto& [id, leaf] : recorder_->leaf_values)
      if (leaf == s) value = id;
    for (const auto& [id, slot] : recorder_->hooked)
      KILN_CHECK(
          slot != s || id == value || recorder_->leaf_values.count(id), unsupported,
          "register_hook ({}): {} was written in place after a hook was added to it (add all hooks before "
          "the write, or hook a copy)",
          loc.str(), describe(*t.impl()));
    recorder_->hooked[value] = s;
    return std::vector<Tensor>{t};
  });
}

}  // namespace kiln::detail
