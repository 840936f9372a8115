// SPDX-License-Identifier: Apache-2.0
#include "frontend/region_builder.h"

#include <cmath>
#include <limits>

namespace kiln::detail {

namespace {

/// A number that no value of `t` is below.
double lowest(DType t) {
  switch (t) {
    case DType::u8: return 0;
    case DType::i32: return std::numeric_limits<int32_t>::min();
    case DType::i64: return -0x1p63;
    default: return -INFINITY;
  }
}

}  // namespace

Value RegionBuilder::emit(Op o, std::span<const Value> in, Attrs attrs) {
  if (region_ < 0) return append(o, in, std::move(attrs));
  std::vector<Value> now;
  for (Value v : in) now.push_back(again(region_, v));
  return append(o, now, std::move(attrs));
}

/// `v` as rules of the region read it. Recursion is as deep as the region's longest chain of ops, so that is
/// walked with a stack.
Value RegionBuilder::again(int region, Value v) {
  if (recorder_.region_of(v) != region) return v;
  std::vector<Value> stack{v};
  while (!stack.empty()) {
    const Value at = stack.back();
    if (copies_.count({region, at.id})) {
      stack.pop_back();
      continue;
    }
    // A copy: append() may move the nodes.
    const Node n = recorder_.graph.nodes[static_cast<size_t>(recorder_.graph.producer(at))];
    if (def(n.op).kind == OpKind::effect) {  // what the world has seen is not done twice
      copies_[{region, at.id}] = at;
      continue;
    }
    std::vector<Value> in;
    for (Value operand : n.in) {
      if (recorder_.region_of(operand) != region) {
        in.push_back(entered(region, operand));
        continue;
      }
      const auto known = copies_.find({region, operand.id});
      if (known != copies_.end()) in.push_back(known->second);
      else stack.push_back(operand);
    }
    if (in.size() < n.in.size()) continue;
    copies_[{region, at.id}] = append(n.op, in, n.attrs);
    stack.pop_back();
  }
  return copies_.at({region, v.id});
}

/// What entered the region, for its copies. Parameters are there anyway, and stay what they are: what the
/// region makes of them alone is cheap to keep.
Value RegionBuilder::entered(int region, Value v) {
  if (recorder_.leaf_values.count(v.id)) return v;
  const auto [at, fresh] = copies_.try_emplace({region, v.id}, Value{});
  if (!fresh) return at->second;
  const Value signal = signal_of(region);
  return copies_[{region, v.id}] = waiting(v, signal);
}

/// False, but nobody knows before a gradient has reached the region.
Value RegionBuilder::signal_of(int region) {
  if (const auto known = signals_.find(region); known != signals_.end()) return known->second;
  const Type t = type(gradient_);
  Value one = gradient_;
  bool empty = false;
  for (const Dim& d : t.shape) empty = empty || d.is(0);
  if (empty) {
    one = append(op("constant"), {}, {0.0, t.dtype, Shape{}});
  } else if (!t.shape.empty()) {
    const size_t rank = t.shape.size();
    one =
        append(op("slice"), {one}, {Shape(rank, Dim(0)), Shape(rank, Dim(1)), std::vector<int64_t>(rank, 1)});
    one = append(op("reshape"), {one}, {Shape{}});
  }
  return signals_[region] = append(op("isnan"), {one}, {});
}

/// `v`, as an op that waits for `signal`. Passes over graphs merge nodes of equal operands, fusion joins what
/// reads the same, and a cut between forward and backward keeps what needs no gradient: all of them see
/// another value here, which they cannot have before the gradient is there, and so do the ops behind it.
/// maximum(v, lowest) is v, and no pass may say so of an operand that is not constant.
Value RegionBuilder::waiting(Value v, Value signal) {
  const Type t = type(v);
  if (t.dtype == DType::boolean) {
    const Value no = append(op("constant"), {}, {0.0, DType::boolean, Shape{}});
    const Value never = append(op("logical_and"), {signal, no}, {});
    return append(op("logical_or"), {v, append(op("expand"), {never}, {t.shape})}, {});
  }
  const Value low = append(op("constant"), {}, {lowest(t.dtype), t.dtype, Shape{}});
  const Value number = append(op("cast"), {signal}, {t.dtype});
  const Value least = append(op("minimum"), {number, low}, {});
  return append(op("maximum"), {v, append(op("expand"), {least}, {t.shape})}, {});
}

}  // namespace kiln::detail
