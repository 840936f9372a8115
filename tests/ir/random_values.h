// SPDX-License-Identifier: Apache-2.0
// Inside of random_graph.cpp and random_patterns.cpp: the graph in the making, its pool of values, and ways
// to bring any of them to a type or a domain.
#pragma once

#include <algorithm>

#include "tests/ir/random_graph.h"
#include "tests/ir/testing.h"

namespace kiln::testing {

class RandomValues {
 protected:
  using Ints = std::vector<int64_t>;

  RandomValues(uint64_t seed, const RandomGraphOptions& o) : rng_{seed}, o_(o), b_(g_) {}

  DType random_dtype() {
    std::vector<DType> t = {DType::f32, DType::f32, DType::f32, DType::boolean};
    if (o_.f64) t.push_back(DType::f64);
    if (o_.halves) t.insert(t.end(), {DType::f16, DType::bf16});
    if (o_.integers) t.insert(t.end(), {DType::i64, DType::i32, DType::u8});
    return t[static_cast<size_t>(rng_.below(static_cast<int64_t>(t.size())))];
  }
  Dim random_size() {
    if (rng_.chance(o_.empty_percent)) return 0;
    return o_.sizes[static_cast<size_t>(rng_.below(static_cast<int64_t>(o_.sizes.size())))];
  }
  Type random_type() {
    Type t{random_dtype(), {}};
    for (int64_t r = rng_.below(o_.max_rank + 1); r > 0; --r) t.shape.push_back(random_size());
    return t;
  }
  Value input(const Type& t) { return input(t, static_cast<InputKind>(rng_.below(3))); }
  Value input(const Type& t, InputKind kind) {
    return keep(g_.add_input(t, kind, fmt::format("in{}", g_.inputs.size())));
  }
  /// A value of the pool, the newer the likelier; now and then a fresh input.
  Value any() {
    if (rng_.chance(5)) return input(random_type());
    const int64_t n = static_cast<int64_t>(pool_.size());
    if (o_.chain && rng_.chance(80)) return pool_.back();
    return pool_[static_cast<size_t>(n - 1 - std::min(rng_.below(n), rng_.below(n)))];
  }
  Value keep(Value v) {
    pool_.push_back(v);
    return v;
  }
  Type type(Value v) const { return g_.type(v); }  // a copy: emitting moves the graph's types
  Ints random_dims(int rank, int percent) {
    Ints d;
    for (int i = 0; i < rank; ++i)
      if (rng_.chance(percent)) d.push_back(i);
    return d;
  }
  /// Any value, as dtype `t`.
  Value cast(Value v, DType t) { return b_.cast(v, t); }
  /// Any value brought to that type: reduced, broadcast or sliced away.
  Value adapt(Value v, const Type& to) {
    v = cast(v, to.dtype);
    if (type(v) == to) return v;
    if (numel(type(v).shape) == numel(to.shape) && rng_.chance(60)) return b_.reshape(v, to.shape);
    Shape s = type(v).shape;
    if (s.size() > to.shape.size() || !expands(s, to.shape)) {
      Ints all;
      for (int d = 0; d < static_cast<int>(s.size()); ++d) all.push_back(d);
      const bool number = to.dtype != DType::boolean;
      const bool some = !numel(s).is(0);
      if (!number && !some) return b_.constant(1, to);
      v = b_.emit(number && (rng_.chance(50) || !some) ? op("sum") : op("amax"), {v}, {all});
    }
    return b_.expand(v, to.shape);
  }
  static bool expands(const Shape& from, const Shape& to) {
    for (size_t i = 0; i < from.size(); ++i) {
      const Dim& d = from[from.size() - 1 - i];
      if (!d.is(1) && d != to[to.size() - 1 - i]) return false;
    }
    return true;
  }
  /// x within [lo, hi], NaN kept. Booleans pass.
  Value clamp(Value v, double lo, double hi) {
    if (type(v).dtype == DType::boolean) return v;
    if (!is_floating(type(v).dtype))
      lo = std::max(lo, type(v).dtype == DType::u8 ? 0.0 : -8.0), hi = std::ceil(hi);
    v = b_.emit(op("maximum"), {v, b_.constant_like(is_floating(type(v).dtype) ? lo : std::ceil(lo), v)});
    return b_.emit(op("minimum"), {v, b_.constant_like(hi, v)});
  }
  Value iota(const Shape& s) {
    if (s.empty()) return {};
    return b_.emit(op("iota"), {}, {rng_.below(static_cast<int64_t>(s.size())), s});
  }
  /// Indices of that shape within [-bound, bound).
  Value indices(const Shape& s, int64_t bound) {
    Value v = cast(clamp(adapt(any(), {DType::f32, s}), -50, 50), DType::i64);
    if (!s.empty() && rng_.chance(50)) v = iota(s);
    // NaN becomes the lowest value, which has a remainder like any other.
    v = b_.emit(op("remainder"), {v, b_.constant_like(static_cast<double>(bound), v)});
    if (rng_.chance(30)) v = b_.emit(op("sub"), {v, b_.constant_like(static_cast<double>(bound), v)});
    return rng_.chance(30) ? cast(v, DType::i32) : v;
  }

  Rng rng_;
  const RandomGraphOptions& o_;
  Graph g_;
  GraphBuilder b_;
  std::vector<Value> pool_;
};

/// What training steps are made of, over values of the pool.
class RandomPatterns : public RandomValues {
 protected:
  using RandomValues::RandomValues;
  /// One of them; its last value, or nothing where sizes leave none.
  Value pattern();
  /// Outputs that are written over inputs.
  void updates();
  /// The derivative of the last value that has one, as outputs.
  void derivative();

 private:
  Value linear();
  Value epilogue(Value y);
  Value attention();
  Value convolutions();
  Value convolution(Value x);
  Value normalise();
  Value normalised(Value x, const Ints& dims);
  Value embedding();
  Value dropout();
  Value views_into_matmul();
  Value views_into_sum();
  Value viewed(Value x);
  Value matmul(Value a, Value b, bool transposed);
  Value softmax(Value x);
  Value unary(Op o, Value x) { return b_.emit(o, {x}); }
  Value binary(Op o, Value x, Value y) { return b_.emit(o, {x, y}); }
  Value scaled(Value x, double by) { return binary(op("mul"), x, b_.constant_like(by, x)); }
  Value added(Value x, double what) { return binary(op("add"), x, b_.constant_like(what, x)); }
  /// A float value of at least one dim within [-2, 2].
  Value tame();
  void update_of(int input, Value rate);
};

}  // namespace kiln::testing
