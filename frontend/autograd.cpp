// SPDX-License-Identifier: Apache-2.0
// Eager backward: the tape reachable from the root, in order, through the walk of ir/autodiff.h.
#include <algorithm>
#include <unordered_map>

#include "frontend/boundary.h"
#include "frontend/checkpoint_region.h"
#include "frontend/device.h"
#include "frontend/dispatch.h"
#include "frontend/state.h"
#include "ir/autodiff.h"

namespace kiln::detail {

namespace {

/// Sets where this thread's ops go until it is destroyed: to the trace `cursor` (null: they run at once).
/// `aside` is the trace that hooks go back to.
class TraceSwitch {
 public:
  TraceSwitch(Cursor* cursor, Cursor* aside) : cursor_(state().cursor), aside_(state().aside) {
    state().cursor = cursor;
    state().aside = aside;
  }
  ~TraceSwitch() {
    state().cursor = cursor_;
    state().aside = aside_;
  }
  TraceSwitch(const TraceSwitch&) = delete;
  TraceSwitch& operator=(const TraceSwitch&) = delete;

 private:
  Cursor *cursor_, *aside_;
};

/// Evaluates what derivative rules emit. Saved values are checked for in-place writes when they are read.
class EagerBuilder : public Builder {
 public:
  using Builder::emit;
  /// What `region` has to make again, if that is set, is input `input` of its `node`, or the result.
  struct Source {
    const GradNode* node = nullptr;
    int input = -1;
  };
  Value add(Tensor t, uint32_t version = 0, bool saved = false, SourceLoc loc = {}) {
    return add_saved(std::move(t), version, saved, loc, {});
  }
  Value add_saved(Tensor t, uint32_t version, bool saved, SourceLoc loc, Source source) {
    values_.push_back({std::move(t), version, saved, loc, source});
    return {static_cast<int32_t>(values_.size()) - 1};
  }
  /// The memory of `v`, which a region made, is known from who read it outside.
  void supply(Value v, const ImplPtr& saved, uint32_t version) {
    Entry& e = values_[static_cast<size_t>(v.id)];
    e.tensor = Tensor(saved);
    e.version = version;
    e.source = {};
  }
  Value emit(Op o, std::span<const Value> in, Attrs attrs) override {
    std::vector<const Tensor*> operands;
    for (Value v : in) operands.push_back(&read(v));
    const DeviceScope device(device_);
    Tensor out = eager_apply(o, operands, std::move(attrs));
    return add(std::move(out));
  }
  Type type(Value v) const override { return values_[v.id].tensor.impl()->type(); }
  const Tensor& read(Value v) {
    Entry& e = values_[v.id];
    if (e.source.node && e.source.node->region && !e.tensor.impl()->storage) make_again(e);
    KILN_CHECK(e.tensor.defined(), internal, "a value without data was read by a derivative");
    KILN_CHECK(
        !e.saved || e.tensor.impl()->storage->version == e.version, invalid,
        "backward: a tensor {} needed by the op at {} was changed in place after that op (clone it first)",
        e.tensor.type_str(), e.loc.known() ? e.loc.str() : "an unknown line");
    return e.tensor;
  }
  /// What is emitted from here on belongs to `v`, the result of `node`.
  void go_to(Value v, const GradNode* node) {
    device_ = device(v);
    if (node && node->region) forget_all_but(node->region.get());
  }
  Device device(Value v) const { return values_[v.id].tensor.impl()->device; }
  ~EagerBuilder() override { forget_all_but(nullptr); }

 private:
  struct Entry {
    Tensor tensor;
    uint32_t version;
    bool saved;
    SourceLoc loc;
    Source source;
  };

  void make_again(Entry& e) {
    const GradNode& n = *e.source.node;
    const GradNode& again = n.region->again(n);
    const bool result = e.source.input < 0;
    const auto input = static_cast<size_t>(std::max(e.source.input, 0));
    restored_[n.region].emplace_back(&e - values_.data(), e.tensor);
    e.tensor = Tensor(result ? again.saved_output : again.inputs[input].saved);
    e.version = result ? again.output_version : again.inputs[input].version;
  }
  /// The walk has left the other regions: one at a time is in memory.
  void forget_all_but(const CheckpointRegion* region) {
    std::erase_if(restored_, [&](const auto& made) {
      if (made.first.get() == region) return false;
      for (const auto& [entry, shell] : made.second) values_[static_cast<size_t>(entry)].tensor = shell;
      made.first->forget();
      return true;
    });
  }

  std::vector<Entry> values_;
  /// Per region that has run again, the entries that got memory, with what they were without.
  std::map<std::shared_ptr<CheckpointRegion>, std::vector<std::pair<ptrdiff_t, Tensor>>> restored_;
  Device device_ = {};
};

/// The part of the tape that a root needs, numbered as values of an EagerBuilder.
class Tape {
 public:
  Tape(EagerBuilder& b, const std::shared_ptr<GradNode>& root, SourceLoc loc, GradWatch& watch)
      : b_(b), loc_(loc), watch_(watch) {
    collect(root);
    std::sort(nodes_.begin(), nodes_.end(), [](auto& x, auto& y) { return x->sequence < y->sequence; });
    for (const auto& n : nodes_) number(n);
    for (auto& [boundary, call] : calls_) entries[call.entry].region = rule_of(*boundary, call);
  }

  std::vector<TapeEntry> entries;
  std::unordered_map<int, GradNode*> node_of;
  std::unordered_map<int, ImplPtr> leaf_of;
  std::unordered_map<GradNode*, Value> value_of;

  /// The hooks that see the gradient of `v`, or null.
  const HookList* hooks_of(Value v) const {
    if (const auto leaf = leaf_of.find(v.id); leaf != leaf_of.end()) return leaf->second->hooks.get();
    const auto at = node_of.find(v.id);
    if (at == node_of.end()) return nullptr;
    const GradNode& n = *at->second;
    const bool inside =
        n.boundary && n.boundary->inner(n.boundary_output, calls_.at(n.boundary.get()).outputs);
    return inside ? nullptr : n.hooks.get();
  }

  /// Nothing on this tape can be differentiated again.
  void release() const {
    for (const auto& [boundary, call] : calls_) boundary->consume(call.outputs);
    for (const auto& n : nodes_) {
      n->released = true;
      n->inputs.clear();
      n->saved_output.reset();
      n->region.reset();
    }
  }

 private:
  /// A compiled forward on the tape: which of its results and inputs the entry's values are.
  struct Call {
    size_t entry = 0;
    std::vector<int> outputs, inputs;
  };

  void collect(const std::shared_ptr<GradNode>& root) {
    std::vector<std::shared_ptr<GradNode>> stack{root};
    while (!stack.empty()) {
      const auto n = stack.back();
      stack.pop_back();
      if (!seen_.insert({n.get(), true}).second) continue;
      KILN_CHECK(
          !n->released && !(n->boundary && n->boundary->consumed(n->boundary_output)), invalid,
          "backward ({}): the graph was already consumed by a backward (pass retain_graph=true to the first)",
          loc_.str());
      nodes_.push_back(n);
      for (const GradEdge& e : n->inputs)
        if (e.node) stack.push_back(e.node);
    }
  }

  void number(const std::shared_ptr<GradNode>& n) {
    TapeEntry e{n->op, {}, {}, &n->attrs, n->loc};
    for (size_t i = 0; i < n->inputs.size(); ++i) e.in.push_back(value_for(*n, i));
    e.out = b_.add_saved(Tensor(n->saved_output), n->output_version, true, n->loc, {n.get(), -1});
    value_of[n.get()] = e.out;
    node_of[e.out.id] = n.get();
    if (n->boundary) return join(*n, e);
    entries.push_back(std::move(e));
  }

  /// Results of one call are one entry, at the place of the first: nothing between them depends on any.
  void join(const GradNode& n, const TapeEntry& e) {
    const auto [at, fresh] = calls_.try_emplace(n.boundary.get(), Call{entries.size(), {}, {}});
    if (fresh) entries.push_back({{}, {}, {}, nullptr, n.loc});
    Call& call = at->second;
    TapeEntry& all = entries[call.entry];
    call.outputs.push_back(n.boundary_output);
    all.outs.push_back(e.out);
    for (size_t i = 0; i < e.in.size(); ++i) {
      if (std::find(call.inputs.begin(), call.inputs.end(), n.boundary_inputs[i]) != call.inputs.end())
        continue;
      call.inputs.push_back(n.boundary_inputs[i]);
      all.in.push_back(e.in[i]);
    }
  }

  RegionRule rule_of(GradBoundary& boundary, const Call& call) {
    return [this, &boundary, &call](std::span<const Value> grads,
                                    const std::function<void(size_t, Value)>& give) {
      BoundaryGrads known;
      for (size_t i = 0; i < grads.size(); ++i)
        if (grads[i].valid()) known.emplace_back(call.outputs[i], b_.read(grads[i]));
      const auto pass_on = [&](int input, const Tensor& g) {
        const auto at = std::find(call.inputs.begin(), call.inputs.end(), input);
        KILN_ASSERT(at != call.inputs.end(), "input {} of a compiled forward is not on the tape", input);
        give(static_cast<size_t>(at - call.inputs.begin()), b_.add(g));
      };
      boundary.backward(call.outputs, known, {pass_on, [this](bool begins) { watch_.compiles(begins); }},
                        loc_);
    };
  }

  /// One value per producing node or leaf, so that gradients meet; other operands each have their own.
  Value value_for(const GradNode& n, size_t i) {
    const GradEdge& in = n.inputs[i];
    if (in.node) {
      const Value v = value_of.at(in.node.get());
      if (in.node->region && in.node->region != n.region && in.saved->storage)
        b_.supply(v, in.saved, in.version);
      return v;
    }
    if (!in.leaf) return b_.add_saved(Tensor(in.saved), in.version, true, n.loc, {&n, static_cast<int>(i)});
    const auto it = leaf_values_.find(in.leaf.get());
    if (it != leaf_values_.end()) return it->second;
    const Value v = b_.add(Tensor(in.saved), in.version, true, n.loc);
    leaf_values_[in.leaf.get()] = v;
    leaf_of[v.id] = in.leaf;
    return v;
  }

  EagerBuilder& b_;
  SourceLoc loc_;
  GradWatch& watch_;
  std::vector<std::shared_ptr<GradNode>> nodes_;
  std::unordered_map<GradNode*, bool> seen_;
  std::unordered_map<TensorImpl*, Value> leaf_values_;
  std::map<GradBoundary*, Call> calls_;
};

Tensor seed_gradient(const Tensor& like, const Tensor& gradient, SourceLoc loc) {
  const TensorImpl& r = *like.impl();
  const DeviceScope device(r.device);
  if (!gradient.defined()) {
    KILN_CHECK(like.numel() == 1, invalid,
               "backward ({}): the tensor is {}, not a scalar (pass its gradient)", loc.str(), describe(r));
    const Tensor one =
        apply(op("constant"), std::span<const Tensor* const>{}, {1.0, r.dtype, r.type().shape});
    return one;
  }
  KILN_CHECK(gradient.sizes() == like.sizes() && gradient.dtype() == like.dtype(), invalid,
             "backward ({}): gradient has another type; got {}, expected {}", loc.str(), gradient.type_str(),
             like.type_str());
  return gradient;
}

/// Gives each leaf its gradient: sets or adds in place, as an event where there is a trace.
void accumulate_grads(std::vector<std::pair<ImplPtr, Tensor>> grads) {
  NoGrad guard;
  for (auto& [leaf, g] : grads) {
    if (leaf->grad) {
      const Tensor old(leaf->grad);
      call("accumulate_grad", state().user_loc(), {&old, &g}, {}, {}, [&](const auto&) {
        assign(old, apply(op("add"), {&old, &g}));
        return old;
      });
      continue;
    }
    const TraceSwitch eager(nullptr, state().aside);
    const bool shared = g.impl().use_count() > 1 || g.impl()->storage.use_count() > 1 || !g.is_contiguous();
    leaf->grad = shared ? g.detach().clone().impl() : g.impl();
  }
}

bool holds(const std::vector<std::shared_ptr<GradObserver>>& all, const std::shared_ptr<GradObserver>& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

}  // namespace

void GradWatch::expect(const TensorImpl& leaf) {
  if (leaf.observer && !holds(expected_, leaf.observer)) expected_.push_back(leaf.observer);
}

void GradWatch::ready(const ImplPtr& leaf, const Tensor& gradient) {
  if (!leaf->observer) return;
  if (!holds(told_, leaf->observer)) told_.push_back(leaf->observer);
  expect(*leaf);
  const TraceSwitch trace(state().aside ? state().aside : state().cursor, nullptr);
  leaf->observer->ready(leaf, gradient, loc_);
}

void GradWatch::compiles(bool begins) {
  for (const auto& observer : expected_) observer->compiles(begins, loc_);
}

void GradWatch::end() {
  for (const auto& observer : told_) observer->end(loc_);
}

void GradWatch::failed(const std::string& why) {
  for (const auto& observer : expected_) observer->failed(why, loc_);
}

Tensor run_hooks(const HookList& hooks, Tensor g) {
  const TraceSwitch trace(state().aside ? state().aside : state().cursor, nullptr);
  for (const HookEntry& h : HookList(hooks)) {
    const Tensor replaced = h.fn(g);
    if (!replaced.defined()) continue;
    const bool fits =
        replaced.sizes() == g.sizes() && replaced.dtype() == g.dtype() && replaced.device() == g.device();
    KILN_CHECK(fits, invalid, "hook: returned {} for a gradient of {}", replaced.type_str(), g.type_str());
    materialise(*replaced.impl(), "hook", state().user_loc());
    g = replaced;
  }
  return g;
}

void backward_from(const std::shared_ptr<GradNode>& node, const Tensor& like, const Tensor& gradient,
                   bool retain_graph, SourceLoc loc, GradWatch& watch) {
  NoGrad guard;
  std::vector<std::pair<ImplPtr, Tensor>> leaf_grads;
  {
    // A backward is no part of the trace that it interrupts, but the hooks it calls are.
    const TraceSwitch aside(nullptr, state().cursor);
    EagerBuilder b;
    Tape tape(b, node, loc, watch);
    BackwardRequest request;
    request.tape = tape.entries;
    request.seeds = {{tape.value_of.at(node.get()), b.add(seed_gradient(like, gradient, loc))}};
    request.needs_grad = [&](Value v) { return tape.node_of.count(v.id) || tape.leaf_of.count(v.id); };
    request.on_entry = [&](const TapeEntry& e) {
      const Value v = e.region ? e.outs[0] : e.out;
      b.go_to(v, tape.node_of.at(v.id));
    };
    request.on_grad = [&](Value v, Value g) {
      if (b.device(v) != b.device(g))  // a number that met tensors of a GPU
        g = b.add(Tensor(transferred(*b.read(g).impl(), b.device(v))));
      const HookList* hooks = tape.hooks_of(v);
      if (hooks && !hooks->empty()) g = b.add(run_hooks(*hooks, b.read(g)));
      const auto leaf = tape.leaf_of.find(v.id);
      if (leaf == tape.leaf_of.end()) return g;
      leaf_grads.emplace_back(leaf->second, b.read(g));
      watch.ready(leaf->second, leaf_grads.back().second);
      return g;
    };
    for (const auto& leaf : tape.leaf_of) watch.expect(*leaf.second);
    differentiate(b, request);
    if (!retain_graph) tape.release();
  }
  accumulate_grads(std::move(leaf_grads));
}

void eager_backward(const Tensor& root, const Tensor& gradient, bool retain_graph, SourceLoc loc,
                    GradWatch& watch) {
  const ImplPtr r = root.impl();
  KILN_CHECK(r->requires_grad, invalid, "backward ({}): {} does not require grad", loc.str(), describe(*r));
  if (r->grad_fn) return backward_from(r->grad_fn, root, gradient, retain_graph, loc, watch);
  NoGrad guard;
  Tensor seed;
  {
    const TraceSwitch eager(nullptr, state().aside);
    seed = seed_gradient(root, gradient, loc);
  }
  if (r->hooks) seed = run_hooks(*r->hooks, seed);
  watch.ready(r, seed);
  accumulate_grads({{r, std::move(seed)}});
}

}  // namespace kiln::detail
