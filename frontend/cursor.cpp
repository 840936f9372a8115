// SPDX-License-Identifier: Apache-2.0
// Following: the hot path of a compiled call. Compares each event with the recorded ones and hands out the
// recorded handles; nothing here allocates when the trie's handles are free.
#include "frontend/cursor.h"

#include <bit>
#include <tuple>

#include "frontend/late.h"

namespace kiln::detail {

namespace {
std::atomic<uint64_t> next_call{1};

uint32_t kinds_of(std::span<const Scalar> scalars) {
  uint32_t bits = 0;
  for (size_t i = 0; i < scalars.size(); ++i) bits |= uint32_t{scalars[i].is_int} << (i & 31);
  return bits;
}

uint32_t hook_count(const TensorImpl& t) { return t.hooks ? static_cast<uint32_t>(t.hooks->size()) : 0; }
}  // namespace

Trie::~Trie() = default;

Cursor::Cursor(Trie& trie)
    : trie_(trie),
      primary_(!trie.primary_busy.exchange(true)),
      call_(next_call++),
      number_(++trie.calls),
      thread_(std::this_thread::get_id()),
      outer_(state().open),
      at_(&trie.root) {
  state().cursor = state().open = this;
  handles_.reserve(trie.handles_hint.load(std::memory_order_relaxed));
  const size_t externals = trie.externals_hint.load(std::memory_order_relaxed);
  externals_.reserve(externals);
  external_slots_.reserve(externals);
  storages_.reserve(externals);
  slot_impls_.reserve(trie.slots_hint.load(std::memory_order_relaxed));
}

void Cursor::leave() {
  state().cursor = nullptr;
  state().open = outer_;
}

Cursor::~Cursor() {
  leave();
  if (primary_) trie_.primary_busy = false;
  if (!outer_) take_back_late();
}

Cursor::Place Cursor::beside_known(const TensorImpl& t) const {
  const Place* first = storages_.find(t.storage.get());
  return first ? Place{first->slot, t.offset - first->offset} : Place{};
}

ExternalMeta Cursor::meta_of(TensorImpl& t) const {
  if (t.base) refresh_view(t);
  const Place beside = beside_known(t);
  return {t.dtype,       t.shape,  t.strides,   t.requires_grad, t.is_leaf,
          hook_count(t), t.device, beside.slot, beside.offset};
}

/// What meta_of gives, compared without being made: following does this for every external.
bool Cursor::has_meta(const TensorImpl& t, Place beside, const ExternalMeta& m) {
  const uint32_t hooks = hook_count(t);
  return std::tie(t.dtype, t.shape, t.strides, t.requires_grad, t.is_leaf, hooks, t.device, beside.slot,
                  beside.offset) == m.members();
}

bool Cursor::matches_binding(const Event& e, const Tensor& t, Slot expected, int operand,
                             Operands all) const {
  for (const SlotBinding& b : e.bindings) {
    if (b.slot != expected) continue;
    if (b.operand != operand) return all[static_cast<size_t>(b.operand)]->impl() == t.impl();
    return binds_alike(e, b, *t.impl(), [&](int i) { return all[static_cast<size_t>(i)]->impl().get(); });
  }
  return false;
}

bool Cursor::matches(const Event& e, const CallInfo& info) const {
  if (e.kind != EventKind::call || e.name != info.name || e.grad_enabled != state().grad_enabled)
    return false;
  if (e.tf32 != allows_tf32()) return false;
  if (e.operands.size() != info.operands.size() || e.scalar_count != info.scalars.size()) return false;
  if (e.scalar_kinds != kinds_of(info.scalars)) return false;
  if (e.ints.size() != info.ints.size()) return false;
  if (!e.ints.empty() && !std::equal(e.ints.begin(), e.ints.end(), info.ints.begin())) return false;
  for (size_t i = 0; i < e.operands.size(); ++i) {
    const Tensor* t = info.operands[i];
    const Slot expected = e.operands[i];
    if (!t || !t->defined()) {
      if (expected != kAbsent) return false;
      continue;
    }
    const Slot s = slot_of(*t->impl());
    if (s == kUnbound ? !matches_binding(e, *t, expected, static_cast<int>(i), info.operands) : s != expected)
      return false;
  }
  return true;
}

void Cursor::bind(const SlotBinding& b, const ImplPtr& t) {
  KILN_CHECK(!t->pending() || t->storage, invalid, "{}: a pending tensor of another trace is used here",
             describe(*t));
  externals_.push_back(t);
  external_slots_.insert(t.get(), b.slot);
  storages_.insert(t->storage.get(), {b.slot, t->offset});
  if (slot_impls_.size() <= static_cast<size_t>(b.slot)) slot_impls_.resize(static_cast<size_t>(b.slot) + 1);
  slot_impls_[static_cast<size_t>(b.slot)] = t;
}

/// The handle of a followed result: the trie's own if nobody else holds it, else a new one in its place.
Tensor Cursor::hand_out(Event& e, size_t i, Operands operands) {
  EventResult& r = e.results[i];
  if (r.operand >= 0) return *operands[static_cast<size_t>(r.operand)];
  ImplPtr h;
  if (primary_ && r.handle && r.handle.use_count() == 1) {
    h = r.handle;
    h->grad.reset();
    h->hooks.reset();
    h->grad_fn.reset();
    h->base.reset();
    h->dropped = {};
    h->requires_grad = r.prototype->requires_grad;
    h->is_leaf = r.prototype->is_leaf;
    h->spare = std::move(h->storage);
    h->device = r.prototype->device;
    h->strides = r.prototype->strides;
    h->offset = r.prototype->offset;
  } else {
    h = std::make_shared<TensorImpl>(*r.prototype);
    if (primary_) r.handle = h;
  }
  h->cursor = this;
  h->cursor_call = call_;
  handles_.push_back({&e, i, primary_ ? nullptr : h});
  return Tensor(std::move(h));
}

void Cursor::advance(Event* e, std::span<const Scalar> scalars, Operands operands) {
  for (const SlotBinding& b : e->bindings) bind(b, operands[static_cast<size_t>(b.operand)]->impl());
  for (const Scalar& s : scalars)
    scalars_.push_back(s.is_int ? static_cast<uint64_t>(s.i) : std::bit_cast<uint64_t>(s.d));
  at_ = e;
  // The walk is a chain of dependent loads: have the next event on its way while the callable goes on.
  const auto* next = reinterpret_cast<const char*>(e->first_child.load(std::memory_order_relaxed));
  for (size_t at = 0; at < sizeof(Event); at += 64) __builtin_prefetch(next + at);
  for (const auto& [slot, on] : e->flags) set_flags(slot, on);
}

void Cursor::set_flags(Slot slot, bool requires_grad) {
  const ImplPtr t = impl_of(slot);
  if (!t) return;
  if (!owns(*t)) flags_.push_back({t, t->requires_grad, t->is_leaf});
  t->requires_grad = requires_grad;
  t->is_leaf = !requires_grad;
}

void Cursor::note_draw(const GeneratorState& s) {
  if (draws_++ == 0) first_draw_ = s;
}

bool Cursor::follow(const CallInfo& info, std::vector<Tensor>* many, Tensor* one) {
  if (depth_ > 0) {
    ++depth_;
    return false;
  }
  if (!recording()) {
    for (Event* e = at_->first_child.load(std::memory_order_acquire); e; e = e->next_sibling) {
      if (!matches(*e, info)) continue;
      advance(e, info.scalars, info.operands);
      if (one) *one = hand_out(*e, 0, info.operands);
      for (size_t i = 0; many && i < e->results.size(); ++i) many->push_back(hand_out(*e, i, info.operands));
      return true;
    }
    if (follow_flush()) return follow(info, many, one);
    check_device(info);
    std::string detail;
    for (Event* e = at_->first_child.load(std::memory_order_acquire); e && detail.empty();
         e = e->next_sibling)
      if (e->kind == EventKind::call && e->name == info.name)
        detail = difference(*e, info) + fmt::format(" ({}) was", e->loc.str());
    start_recording(info.name, info.loc, detail);
  } else {
    check_device(info);
  }
  if (recorder_->overlap_written() || pending_write_under(info.operands)) flush_writes();
  Event& e = open_event(EventKind::call, info.name, info.loc);
  e.device = device_of(info);
  e.ints.assign(info.ints.begin(), info.ints.end());
  e.scalar_count = static_cast<uint32_t>(info.scalars.size());
  e.scalar_kinds = kinds_of(info.scalars);
  for (size_t i = 0; i < info.operands.size(); ++i) {
    const Tensor* t = info.operands[i];
    e.operands.push_back(t && t->defined() ? bind_operand(e, *t, static_cast<int>(i)) : kAbsent);
  }
  for (const Scalar& s : info.scalars)
    scalars_.push_back(s.is_int ? static_cast<uint64_t>(s.i) : std::bit_cast<uint64_t>(s.d));
  depth_ = 1;
  open_operands_.assign(info.operands.begin(), info.operands.end());
  return false;
}

/// A stage runs on one device.
void Cursor::check_device(const CallInfo& info) const {
  const Device here = device_of(info);
  for (const Event* e = at_; e && !e->stage; e = e->parent) {
    if (!e->device) continue;
    KILN_CHECK(*e->device == here, unsupported,
               "{} ({}): runs on {}, and `{}` ({}) before it on {}: ops between two run points of a compiled "
               "callable run on one device (move the tensors with .to(), or compile what runs on each device "
               "by itself)",
               info.name, info.loc.str(), here.str(), e->name, e->loc.str(), e->device->str());
    return;
  }
}

/// Where the stage that ends at the current point runs.
Device Cursor::stage_device() const {
  for (const Event* e = at_; e; e = e->parent)
    if (e->device) return *e->device;
  return Device::cpu();
}

/// The same: whether all its ops allow tf32.
bool Cursor::stage_tf32() const {
  for (const Event* e = at_; e && !e->stage; e = e->parent)
    if (e->device && !e->tf32) return false;
  return true;
}

/// Whether an operand seen for the first time lies in storage that this trace has written but not yet run.
bool Cursor::pending_write_under(Operands operands) const {
  for (const Tensor* t : operands) {
    if (!t || !t->defined() || !t->impl()->storage || slot_of(*t->impl()) != kUnbound) continue;
    const Place* near = storages_.find(t->impl()->storage.get());
    if (near && recorder_->pending_write_near(near->slot)) return true;
  }
  return false;
}

ImplPtr Cursor::impl_of(Slot s) const {
  if (static_cast<size_t>(s) < slot_impls_.size() && slot_impls_[static_cast<size_t>(s)])
    return slot_impls_[static_cast<size_t>(s)];
  // From the end: results of a call are mostly among the last values.
  for (size_t i = handles_.size(); i-- > 0;) {
    const EventResult& r = handles_[i].event->results[handles_[i].result];
    if (r.prototype->slot == s) return handles_[i].fresh ? handles_[i].fresh : r.handle;
  }
  return nullptr;
}

}  // namespace kiln::detail
