// SPDX-License-Identifier: Apache-2.0
#include "ir/autodiff.h"

#include <algorithm>
#include <unordered_map>

#include "ir/graph.h"

namespace kiln {

namespace {

/// The reverse walk. A value's gradient is complete when no entry that may still contribute is left.
class Walk {
 public:
  Walk(Builder& b, const BackwardRequest& r) : b_(b), r_(r) {}

  std::vector<std::pair<Value, Value>> run() {
    mark_reached();
    for (const auto& [v, g] : r_.seeds) accumulate(v, g);
    for (const auto& [v, g] : r_.seeds)
      if (pending_[v.id] == 0) complete(v);
    for (size_t i = r_.tape.size(); i-- > 0;)
      if (reached_[i]) visit(r_.tape[i]);
    return std::move(done_);
  }

 private:
  bool wanted(const TapeEntry& e, Value v) const {
    return r_.needs_grad(v) && (e.region || !def(e.op).constant_gradient);
  }

  static std::span<const Value> results(const TapeEntry& e) {
    return e.region ? std::span<const Value>(e.outs) : std::span<const Value>(&e.out, 1);
  }

  /// Entries on a path from a wanted value to a seed, and how many of them use each value.
  void mark_reached() {
    std::unordered_map<int, bool> live;
    for (const auto& seed : r_.seeds) live[seed.first.id] = true;
    reached_.assign(r_.tape.size(), false);
    for (size_t i = r_.tape.size(); i-- > 0;) {
      const TapeEntry& e = r_.tape[i];
      const std::span<const Value> outs = results(e);
      if (!std::any_of(outs.begin(), outs.end(),
                       [&](Value v) { return live.count(v.id) && r_.needs_grad(v); }))
        continue;
      reached_[i] = true;
      for (Value v : e.in) {
        if (!wanted(e, v)) continue;
        live[v.id] = true;
        ++pending_[v.id];
      }
    }
  }

  void accumulate(Value v, Value g) {
    Value& slot = grads_[v.id];
    slot = slot.valid() ? b_.emit(op("add"), {slot, g}) : g;
  }

  void complete(Value v) {
    const auto it = grads_.find(v.id);
    if (it == grads_.end() || completed_[v.id]) return;
    completed_[v.id] = true;
    if (r_.on_grad) it->second = r_.on_grad(v, it->second);
    done_.emplace_back(v, it->second);
  }

  /// Entry `e` passes nothing more on to `v`, one of its operands.
  void settle(const TapeEntry& e, Value v) {
    if (wanted(e, v) && --pending_[v.id] == 0) complete(v);
  }

  void visit_region(const TapeEntry& e) {
    std::vector<Value> grads;
    bool any = false;
    for (Value v : e.outs) {
      const auto g = grads_.find(v.id);
      grads.push_back(g == grads_.end() ? Value{} : g->second);
      any = any || grads.back().valid();
    }
    std::vector<bool> given(e.in.size(), false);
    const auto give = [&](size_t i, Value g) {
      KILN_ASSERT(i < given.size() && !given[i], "a region gives input {} twice", i);
      given[i] = true;
      if (!wanted(e, e.in[i])) return;
      accumulate(e.in[i], g);
      settle(e, e.in[i]);
    };
    if (any) e.region(grads, give);
    for (size_t i = 0; i < e.in.size(); ++i)
      if (!given[i]) settle(e, e.in[i]);
  }

  void visit(const TapeEntry& e) {
    if (r_.on_entry) r_.on_entry(e);
    if (e.region) return visit_region(e);
    const OpDef& d = def(e.op);
    const auto grad = grads_.find(e.out.id);
    std::vector<Value> in_grads(e.in.size());
    if (grad != grads_.end() && !d.constant_gradient) {
      KILN_CHECK(d.grad, unsupported, "backward through {}{}: it has no derivative", d.name,
                 e.loc.known() ? fmt::format(" ({})", e.loc.str()) : "");
      GradArgs args{b_, e.in, {&e.out, 1}, {&grad->second, 1}, *e.attrs, {}};
      for (Value v : e.in) args.needs.push_back(wanted(e, v));
      in_grads = d.grad(args);
      KILN_ASSERT(in_grads.size() == e.in.size(), "{}: derivative gives {} gradients", d.name,
                  in_grads.size());
    }
    for (size_t i = 0; i < e.in.size(); ++i) {
      if (in_grads[i].valid() && wanted(e, e.in[i])) accumulate(e.in[i], in_grads[i]);
      settle(e, e.in[i]);
    }
  }

  Builder& b_;
  const BackwardRequest& r_;
  std::vector<bool> reached_;
  std::unordered_map<int, int> pending_;
  std::unordered_map<int, Value> grads_;
  std::unordered_map<int, bool> completed_;
  std::vector<std::pair<Value, Value>> done_;
};

}  // namespace

std::vector<std::pair<Value, Value>> differentiate(Builder& b, const BackwardRequest& request) {
  return Walk(b, request).run();
}

}  // namespace kiln
