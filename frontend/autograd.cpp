// SPDX-License-Identifier: Apache-2.0
// Eager backward: the tape reachable from the root, in order, through the walk of ir/autodiff.h.
#include <algorithm>
#include <unordered_map>

#include "frontend/boundary.h"
#include "frontend/dispatch.h"
#include "frontend/state.h"
#include "ir/autodiff.h"

namespace kiln::detail {

namespace {

/// Evaluates what derivative rules emit. Saved values are checked for in-place writes when they are read.
class EagerBuilder : public Builder {
 public:
  using Builder::emit;
  Value add(Tensor t, uint32_t version = 0, bool saved = false, SourceLoc loc = {}) {
    values_.push_back({std::move(t), version, saved, loc});
    return {static_cast<int32_t>(values_.size()) - 1};
  }
  Value emit(Op o, std::span<const Value> in, Attrs attrs) override {
    std::vector<const Tensor*> operands;
    for (Value v : in) operands.push_back(&read(v));
    Tensor out = eager_apply(o, operands, std::move(attrs));
    return add(std::move(out));
  }
  Type type(Value v) const override { return values_[v.id].tensor.impl()->type(); }
  const Tensor& read(Value v) const {
    const Entry& e = values_[v.id];
    KILN_CHECK(e.tensor.defined(), internal, "a value without data was read by a derivative");
    KILN_CHECK(
        !e.saved || e.tensor.impl()->storage->version == e.version, invalid,
        "backward: a tensor {} needed by the op at {} was changed in place after that op (clone it first)",
        e.tensor.type_str(), e.loc.known() ? e.loc.str() : "an unknown line");
    return e.tensor;
  }

 private:
  struct Entry {
    Tensor tensor;
    uint32_t version;
    bool saved;
    SourceLoc loc;
  };
  std::vector<Entry> values_;
};

/// The part of the tape that a root needs, numbered as values of an EagerBuilder.
class Tape {
 public:
  Tape(EagerBuilder& b, const std::shared_ptr<GradNode>& root, SourceLoc loc) : b_(b) {
    collect(root, loc);
    std::sort(nodes_.begin(), nodes_.end(), [](auto& x, auto& y) { return x->sequence < y->sequence; });
    for (const auto& n : nodes_) number(n);
  }

  std::vector<TapeEntry> entries;
  std::unordered_map<int, GradNode*> node_of;
  std::unordered_map<int, ImplPtr> leaf_of;
  std::unordered_map<GradNode*, Value> value_of;
  const std::vector<std::shared_ptr<GradNode>>& nodes() const { return nodes_; }

 private:
  void collect(const std::shared_ptr<GradNode>& root, SourceLoc loc) {
    std::vector<std::shared_ptr<GradNode>> stack{root};
    while (!stack.empty()) {
      const auto n = stack.back();
      stack.pop_back();
      if (!seen_.insert({n.get(), true}).second) continue;
      KILN_CHECK(
          !n->released, invalid,
          "backward ({}): the graph was already consumed by a backward (pass retain_graph=true to the first)",
          loc.str());
      nodes_.push_back(n);
      for (const GradEdge& e : n->inputs)
        if (e.node) stack.push_back(e.node);
    }
  }

  void number(const std::shared_ptr<GradNode>& n) {
    TapeEntry e{n->op, {}, {}, &n->attrs, n->loc};
    for (const GradEdge& in : n->inputs) e.in.push_back(value_for(in, n->loc));
    e.out = b_.add(Tensor(n->saved_output), n->output_version, true, n->loc);
    value_of[n.get()] = e.out;
    node_of[e.out.id] = n.get();
    if (!n->boundary) entries.push_back(std::move(e));
  }

  /// One value per producing node or leaf, so that gradients meet; other operands each have their own.
  Value value_for(const GradEdge& in, SourceLoc loc) {
    if (in.node) return value_of.at(in.node.get());
    if (!in.leaf) return b_.add(Tensor(in.saved), in.version, true, loc);
    const auto it = leaf_values_.find(in.leaf.get());
    if (it != leaf_values_.end()) return it->second;
    const Value v = b_.add(Tensor(in.saved), in.version, true, loc);
    leaf_values_[in.leaf.get()] = v;
    leaf_of[v.id] = in.leaf;
    return v;
  }

  EagerBuilder& b_;
  std::vector<std::shared_ptr<GradNode>> nodes_;
  std::unordered_map<GradNode*, bool> seen_;
  std::unordered_map<TensorImpl*, Value> leaf_values_;
};

void release(const Tape& tape) {
  for (const auto& n : tape.nodes()) {
    n->released = true;
    n->inputs.clear();
    n->saved_output.reset();
  }
}

Tensor seed_gradient(const Tensor& root, const Tensor& gradient, SourceLoc loc) {
  const TensorImpl& r = *root.impl();
  if (!gradient.defined()) {
    KILN_CHECK(root.numel() == 1, invalid,
               "backward ({}): the tensor is {}, not a scalar (pass its gradient)", loc.str(), describe(r));
    const Tensor one =
        apply(op("constant"), std::span<const Tensor* const>{}, {1.0, r.dtype, r.type().shape});
    return one;
  }
  KILN_CHECK(gradient.sizes() == root.sizes() && gradient.dtype() == root.dtype(), invalid,
             "backward ({}): gradient has another type; got {}, expected {}", loc.str(), gradient.type_str(),
             root.type_str());
  return gradient;
}

}  // namespace

Tensor run_hooks(const HookList& hooks, Tensor g) {
  for (const HookEntry& h : HookList(hooks)) {
    const Tensor replaced = h.fn(g);
    if (!replaced.defined()) continue;
    KILN_CHECK(replaced.sizes() == g.sizes() && replaced.dtype() == g.dtype(), invalid,
               "hook: returned {} for a gradient of {}", replaced.type_str(), g.type_str());
    g = replaced;
  }
  return g;
}

void accumulate_grads(std::vector<std::pair<ImplPtr, Tensor>> grads) {
  NoGrad guard;
  for (auto& [leaf, g] : grads) {
    if (leaf->grad) {
      const Tensor old(leaf->grad);
      eager_assign(old, apply(op("add"), {&old, &g}));
      continue;
    }
    const bool shared = g.impl()->storage.use_count() > 1 || !g.is_contiguous();
    leaf->grad = shared ? g.detach().clone().impl() : g.impl();
  }
}

void eager_backward(const Tensor& root, const Tensor& gradient, bool retain_graph, SourceLoc loc) {
  const ImplPtr r = root.impl();
  KILN_CHECK(r->requires_grad, invalid, "backward ({}): {} does not require grad", loc.str(), describe(*r));
  NoGrad guard;
  Tensor seed = seed_gradient(root, gradient, loc);
  if (!r->grad_fn) {
    if (r->hooks) seed = run_hooks(*r->hooks, seed);
    return accumulate_grads({{r, seed}});
  }
  std::vector<std::pair<ImplPtr, Tensor>> leaf_grads;
  std::map<GradBoundary*, BoundaryGrads> boundaries;
  {
    EagerBuilder b;
    Tape tape(b, r->grad_fn, loc);
    BackwardRequest request;
    request.tape = tape.entries;
    request.seeds = {{tape.value_of.at(r->grad_fn.get()), b.add(seed)}};
    request.needs_grad = [&](Value v) { return tape.node_of.count(v.id) || tape.leaf_of.count(v.id); };
    request.on_grad = [&](Value v, Value g) {
      const auto node = tape.node_of.find(v.id);
      const auto leaf = tape.leaf_of.find(v.id);
      const HookList* hooks = node != tape.node_of.end() ? node->second->hooks.get() : nullptr;
      if (leaf != tape.leaf_of.end()) hooks = leaf->second->hooks.get();
      return hooks && !hooks->empty() ? b.add(run_hooks(*hooks, b.read(g))) : g;
    };
    for (const auto& [v, g] : differentiate(b, request)) {
      const auto leaf = tape.leaf_of.find(v.id);
      const auto node = tape.node_of.find(v.id);
      if (leaf != tape.leaf_of.end()) leaf_grads.emplace_back(leaf->second, b.read(g));
      if (node != tape.node_of.end() && node->second->boundary)
        boundaries[node->second->boundary.get()].push_back({node->second->boundary_output, b.read(g)});
    }
    std::vector<std::shared_ptr<GradBoundary>> keep;
    for (const auto& n : tape.nodes())
      if (n->boundary) keep.push_back(n->boundary);
    for (auto& [boundary, grads] : boundaries) boundary->backward(grads, retain_graph, loc);
    if (!retain_graph) release(tape);
  }
  seed = {};
  accumulate_grads(std::move(leaf_grads));
}

}  // namespace kiln::detail
