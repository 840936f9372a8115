// SPDX-License-Identifier: Apache-2.0
#include "frontend/frozen.h"

#include <algorithm>
#include <set>

#include "frontend/cursor.h"
#include "frontend/late.h"

namespace kiln::detail {

/// Where a replay finds a tensor of the first call.
struct FrozenSource {
  int arg = -1;            ///< index among the argument tensors, or
  Slot grad_of = kAbsent;  ///< the gradient of this slot, or
  ImplPtr captured;        ///< the tensor itself
};

struct FrozenGrad {
  Slot leaf = kAbsent;
  Slot slot = kAbsent;  ///< what its gradient is after the call; kAbsent: none
};

struct FrozenTensor {
  Slot slot = kAbsent;
  ImplPtr other;  ///< not of the trace; null: undefined
};

struct Frozen {
  std::vector<Event*> path;  ///< in order, the last is the end
  std::vector<FrozenSource> externals;
  std::vector<uint64_t> scalars;
  std::string host_bytes;
  std::vector<int> same;  ///< per argument tensor: the first one that is the same tensor; -1: undefined
  std::vector<FrozenGrad> grads;
  std::set<Slot> cleared;  ///< leaves whose gradient the callable drops before its backward
  std::vector<FrozenTensor> results;
};

namespace {
std::vector<int> identities(const std::vector<Tensor>& tensors) {
  std::vector<int> same;
  for (const Tensor& t : tensors) {
    const auto first =
        std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& x) { return x.impl() == t.impl(); });
    same.push_back(t.defined() ? static_cast<int>(first - tensors.begin()) : -1);
  }
  return same;
}

bool supported(const Event& e) {
  return e.kind != EventKind::hook && e.kind != EventKind::hook_end && e.kind != EventKind::host_read &&
         e.kind != EventKind::outer_backward;
}
}  // namespace

bool wants_frozen(Trie* trie) { return trie && trie->options.frozen && !tracing(); }

bool is_frozen(Trie& trie) {
  std::lock_guard lock(trie.mutex);
  return trie.frozen != nullptr;
}

std::vector<Tensor> run_frozen(Trie& trie, const FrozenArgs& args) {
  std::shared_ptr<const Frozen> frozen;
  {
    std::lock_guard lock(trie.mutex);
    frozen = trie.frozen;
  }
  const std::string& name = trie.options.name;
  KILN_CHECK(
      args.host_bytes == frozen->host_bytes, invalid,
      "{}: a host value among the arguments of this frozen callable changed since the first call (compile "
      "it without CompileOptions::frozen)",
      name);
  KILN_CHECK(
      identities(args.tensors) == frozen->same, invalid,
      "{}: got {} tensors, expected {}, the same ones of them undefined or equal as at the first call of "
      "this frozen callable",
      name, args.tensors.size(), frozen->same.size());
  if (!state().open) report_late();
  Cursor cursor(trie);
  try {
    return cursor.replay(*frozen, args.tensors);
  } catch (const std::exception& e) {
    cursor.note_exception(e.what());
    cursor.abandon();
    throw;
  }
}

void Cursor::freeze(const FrozenArgs& args, const FrozenResult& result) {
  const std::string& name = trie_.options.name;
  KILN_CHECK(!args.hidden && !result.hidden, unsupported,
             "{}: Kiln cannot look into an argument or result of this frozen callable (list its members by "
             "KILN_FIELDS)",
             name);
  auto f = std::make_shared<Frozen>();
  for (Event* e = at_; e != &trie_.root; e = e->parent) f->path.push_back(e);
  std::reverse(f->path.begin(), f->path.end());
  std::map<Slot, Slot> grad_slots;  // external that was a leaf's gradient -> that leaf
  for (const Event* e : f->path) {
    KILN_CHECK(supported(*e), unsupported, "{}: a frozen callable cannot have {}", name,
               e->kind == EventKind::host_read        ? "host reads"
               : e->kind == EventKind::outer_backward ? "a backward that leaves it"
                                                      : "hooks");
    if (e->kind != EventKind::backward_end) continue;
    for (size_t i = 0; i < e->operands.size(); i += 2) {
      const Slot leaf = e->operands[i];
      if (e->operands[i + 1] != kAbsent) grad_slots.emplace(e->operands[i + 1], leaf);
      if (std::find(cleared_.begin(), cleared_.end(), impl_of(leaf).get()) != cleared_.end())
        f->cleared.insert(leaf);
      const ImplPtr g = impl_of(leaf)->grad;
      f->grads.push_back({leaf, g ? slot_of(*g) : kAbsent});
    }
  }
  for (const ImplPtr& x : externals_) {
    FrozenSource s;
    const auto arg = std::find_if(args.tensors.begin(), args.tensors.end(),
                                  [&](const Tensor& t) { return t.impl() == x; });
    const auto grad = grad_slots.find(slot_of(*x));
    if (arg != args.tensors.end()) s.arg = static_cast<int>(arg - args.tensors.begin());
    else if (grad != grad_slots.end()) s.grad_of = grad->second;
    else s.captured = x;
    f->externals.push_back(std::move(s));
  }
  f->scalars = scalars_;
  f->host_bytes = args.host_bytes;
  f->same = identities(args.tensors);
  for (const Tensor& t : result.tensors) {
    FrozenTensor r;
    if (t.defined()) r.slot = slot_of(*t.impl());
    if (r.slot < 0) r = {kAbsent, t.impl()};
    f->results.push_back(std::move(r));
  }
  std::lock_guard lock(trie_.mutex);
  if (!trie_.frozen) trie_.frozen = std::move(f);
}

/// The tensor that stands for external `index` in this call.
ImplPtr Cursor::frozen_external(const Frozen& f, const SlotBinding& b,
                                const std::vector<Tensor>& args) const {
  const FrozenSource& s = f.externals[externals_.size()];
  const ImplPtr t = s.arg >= 0       ? args[static_cast<size_t>(s.arg)].impl()
                    : s.grad_of >= 0 ? impl_of(s.grad_of)->grad
                                     : s.captured;
  const std::string what =
      s.arg >= 0 ? fmt::format("tensor {} of the arguments", s.arg) : "a captured tensor";
  KILN_CHECK(t, invalid, "{}: a gradient that the first call of this frozen callable added to is gone",
             trie_.options.name);
  materialise(*t, trie_.options.name.c_str(), trie_.options.loc);
  KILN_CHECK(
      !external_slots_.find(t.get()) && meta_of(*t) == b.meta, invalid,
      "{}: {} of this frozen callable is {} with strides [{}]; expected {} with strides [{}], and memory, "
      "gradient and hooks like at the first call",
      trie_.options.name, what, describe(*t), fmt::join(t->strides, ","),
      type_text({b.meta.dtype, Shape(b.meta.shape.begin(), b.meta.shape.end())}, b.meta.device),
      fmt::join(b.meta.strides, ","));
  return t;
}

void Cursor::replay_leaf_grads(const Frozen& f, Event& e) {
  for (size_t i = 0; i < e.operands.size(); i += 2) {
    if (e.operands[i + 1] != kAbsent) continue;
    const ImplPtr leaf = impl_of(e.operands[i]);
    KILN_CHECK(
        !leaf->grad || f.cleared.count(e.operands[i]), invalid,
        "{}: {} has a gradient, and had none at the first call of this frozen callable (clear it before or "
        "inside each call)",
        trie_.options.name, describe(*leaf));
  }
  for (size_t i = 0; i < e.results.size(); ++i) {
    ImplPtr& grad = impl_of(e.operands[2 * static_cast<size_t>(e.ints[i])])->grad;
    grad.reset();  // its handle may be free now
    grad = hand_out(e, i, {}).impl();
  }
}

std::vector<Tensor> Cursor::replay(const Frozen& f, const std::vector<Tensor>& args) {
  leave();  // nothing that runs here is an event
  scalars_ = f.scalars;
  std::vector<Tensor> held;  // keeps handles of this call from being taken for free ones
  for (Event* e : f.path) {
    for (const SlotBinding& b : e->bindings) bind(b, frozen_external(f, b, args));
    at_ = e;
    for (const auto& [slot, on] : e->flags) set_flags(slot, on);
    if (e->kind == EventKind::backward_end) replay_leaf_grads(f, *e);
    for (size_t i = 0; e->kind == EventKind::call && i < e->results.size(); ++i)
      if (e->results[i].operand < 0) held.push_back(hand_out(*e, i, {}));
  }
  run_stage(*at_);
  attach_boundaries(*at_->stage);
  for (const FrozenGrad& g : f.grads) impl_of(g.leaf)->grad = g.slot >= 0 ? impl_of(g.slot) : nullptr;
  std::vector<Tensor> out;
  for (const FrozenTensor& r : f.results) out.emplace_back(r.slot >= 0 ? impl_of(r.slot) : r.other);
  for (const Followed& h : handles_) {
    handle_of(h)->cursor = nullptr;
    handle_of(h)->spare.reset();
  }
  return out;
}

void forbid_frozen(std::string_view what, std::string_view of) {
  const Cursor* c = state().cursor;
  KILN_CHECK(!c || !c->options().frozen, unsupported,
             "{}: {}{} differ from call to call, which CompileOptions::frozen forbids", c->options().name,
             what, of);
}

void set_frozen_shape(Trie& trie, std::any shape) {
  std::lock_guard lock(trie.mutex);
  if (!trie.frozen_shape.has_value()) trie.frozen_shape = std::move(shape);
}

std::any frozen_shape(Trie& trie) {
  std::lock_guard lock(trie.mutex);
  return trie.frozen_shape;
}

void frozen_type_mismatch(Trie& trie) {
  throw Error(ErrorKind::invalid,
              fmt::format("{}: the result of a frozen callable must be of one type, and copyable",
                          trie.options.name));
}

}  // namespace kiln::detail
