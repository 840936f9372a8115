// SPDX-License-Identifier: Apache-2.0
#include "ir/autodiff.h"

#include <algorithm>
#include <set>
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
  /// What one use of a value passes on to it: the gradient, or that of the slice of it that was used.
  struct Passed {
    Value grad;
    const TapeEntry* slice = nullptr;
  };

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

  void accumulate(Value v, Value g) { passed_[v.id].push_back({g, nullptr}); }

  /// The gradient of v: the sum of what was passed on to it; invalid if nothing was.
  Value total(Value v) {
    const auto at = passed_.find(v.id);
    if (at == passed_.end()) return {};
    std::vector<Passed>& list = at->second;
    Value sum = join(v, list);
    for (const Passed& p : list) {
      const Value g = p.slice ? gradients(*p.slice, p.grad)[0] : p.grad;
      sum = sum.valid() ? b_.emit(op("add"), {sum, g}) : g;
    }
    list = {{sum, nullptr}};
    return sum;
  }

  /// Takes slices along one dim that do not meet out of the list: they lie side by side in one cat, with
  /// zeros between. As a sum of tensors with zeros around, n slices would cost n times as much.
  Value join(Value v, std::vector<Passed>& list) {
    std::vector<Passed> parts;
    for (const Passed& p : list)
      if (p.slice && (parts.empty() || sliced_dim(*p.slice) == sliced_dim(*parts[0].slice)))
        parts.push_back(p);
    if (parts.size() < 2) return {};
    const int dim = sliced_dim(*parts[0].slice);
    const auto from = [&](const Passed& p) { return bound(*p.slice, 0, dim); };
    const auto to = [&](const Passed& p) { return bound(*p.slice, 1, dim); };
    std::stable_sort(parts.begin(), parts.end(),
                     [&](const Passed& a, const Passed& b) { return from(a) < from(b); });
    const Type type = b_.type(v);
    std::vector<Value> pieces;
    std::set<const TapeEntry*> joined;
    int64_t at = 0;
    const auto fill = [&](int64_t until) {
      Type gap = type;
      gap.shape[dim] = Dim(until - at);
      if (until > at) pieces.push_back(b_.constant(0, gap));
    };
    for (const Passed& p : parts) {
      if (from(p) < at || from(p) == to(p)) continue;
      fill(from(p));
      pieces.push_back(p.grad);
      joined.insert(p.slice);
      at = to(p);
    }
    if (joined.size() < 2) return {};
    fill(type.shape[dim].value());
    std::erase_if(list, [&](const Passed& p) { return joined.count(p.slice) > 0; });
    return b_.emit(op("cat"), pieces, {int64_t{dim}});
  }
  static int64_t bound(const TapeEntry& slice, size_t attr, int dim) {
    return std::get<Shape>((*slice.attrs)[attr])[dim].value();
  }
  /// The dim that a slice takes a part of, in steps of 1 between known places; -1 if it is not like that.
  int sliced_dim(const TapeEntry& e) const {
    if (e.region || e.op != op("slice")) return -1;
    const Shape &from = std::get<Shape>((*e.attrs)[0]), &to = std::get<Shape>((*e.attrs)[1]);
    const auto& step = std::get<std::vector<int64_t>>((*e.attrs)[2]);
    const Shape& all = b_.type(e.in[0]).shape;
    int dim = -1;
    for (size_t d = 0; d < all.size(); ++d) {
      if (step[d] != 1) return -1;
      if (from[d].is(0) && to[d] == all[d]) continue;
      if (dim >= 0 || !from[d].is_const() || !to[d].is_const() || !all[d].is_const()) return -1;
      dim = static_cast<int>(d);
    }
    return dim;
  }

  void complete(Value v) {
    const Value g = total(v);
    if (!g.valid() || completed_[v.id]) return;
    completed_[v.id] = true;
    const Value seen = r_.on_grad ? r_.on_grad(v, g) : g;
    passed_[v.id] = {{seen, nullptr}};
    done_.emplace_back(v, seen);
  }

  /// Entry `e` passes nothing more on to `v`, one of its operands.
  void settle(const TapeEntry& e, Value v) {
    if (wanted(e, v) && --pending_[v.id] == 0) complete(v);
  }

  void visit_region(const TapeEntry& e) {
    std::vector<Value> grads;
    bool any = false;
    for (Value v : e.outs) {
      grads.push_back(total(v));
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
    const Value grad = total(e.out);
    std::vector<Value> in_grads(e.in.size());
    if (grad.valid() && sliced_dim(e) >= 0 && wanted(e, e.in[0])) passed_[e.in[0].id].push_back({grad, &e});
    else if (grad.valid() && !def(e.op).constant_gradient) in_grads = gradients(e, grad);
    for (size_t i = 0; i < e.in.size(); ++i) {
      if (in_grads[i].valid() && wanted(e, e.in[i])) accumulate(e.in[i], in_grads[i]);
      settle(e, e.in[i]);
    }
  }
  /// What the derivative of an op passes on to its operands.
  std::vector<Value> gradients(const TapeEntry& e, Value grad) {
    const OpDef& d = def(e.op);
    KILN_CHECK(d.grad, unsupported, "backward through {}{}: it has no derivative", d.name,
               e.loc.known() ? fmt::format(" ({})", e.loc.str()) : "");
    GradArgs args{b_, e.in, {&e.out, 1}, {&grad, 1}, *e.attrs, {}};
    for (Value v : e.in) args.needs.push_back(wanted(e, v));
    std::vector<Value> out = d.grad(args);
    KILN_ASSERT(out.size() == e.in.size(), "{}: derivative gives {} gradients", d.name, out.size());
    return out;
  }

  Builder& b_;
  const BackwardRequest& r_;
  std::vector<bool> reached_;
  std::unordered_map<int, int> pending_;
  std::unordered_map<int, std::vector<Passed>> passed_;
  std::unordered_map<int, bool> completed_;
  std::vector<std::pair<Value, Value>> done_;
};

}  // namespace

std::vector<std::pair<Value, Value>> differentiate(Builder& b, const BackwardRequest& request) {
  return Walk(b, request).run();
}

}  // namespace kiln
