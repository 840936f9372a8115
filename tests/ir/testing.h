// SPDX-License-Identifier: Apache-2.0
// Small tools for tests on graphs and host tensors: make, read, compare, differentiate.
#pragma once

#include <cmath>
#include <cstring>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "ir/autodiff.h"
#include "ir/graph.h"
#include "ir/interpret.h"

namespace kiln::testing {

/// A small generator with the same numbers on every platform. Source: splitmix64.
struct Rng {
  uint64_t state = 0;
  uint64_t next() {
    uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  /// In [0, n).
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  double uniform(double lo, double hi) {
    return lo + (hi - lo) * static_cast<double>(next() >> 11) * 0x1p-53;
  }
  bool chance(int percent) { return below(100) < percent; }
};

/// A contiguous tensor of those values, rounded to the dtype.
inline HostTensor tensor(DType t, std::vector<int64_t> shape, const std::vector<double>& v) {
  HostTensor wide = make_host_tensor(DType::f64, std::move(shape));
  KILN_ASSERT(wide.ref.numel() == static_cast<int64_t>(v.size()), "{} values", v.size());
  std::copy(v.begin(), v.end(), static_cast<double*>(wide.ref.data));
  return evaluate(op("cast"), {{wide}}, {t});
}
inline HostTensor scalar(DType t, double v) { return tensor(t, {}, {v}); }

/// The elements as doubles, in row-major order.
inline std::vector<double> numbers(const HostTensor& t) {
  const HostTensor wide = evaluate(op("cast"), {{t}}, {DType::f64});
  const HostTensor dense = contiguous(wide);
  const double* p = static_cast<const double*>(dense.ref.data);
  return {p, p + dense.ref.numel()};
}

inline HostTensor random_tensor(DType t, const std::vector<int64_t>& shape, Rng& rng, double lo, double hi) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  std::vector<double> v(static_cast<size_t>(n));
  for (double& x : v) x = is_floating(t) ? rng.uniform(lo, hi) : std::floor(rng.uniform(lo, hi + 1));
  return tensor(t, shape, v);
}

inline std::vector<int64_t> static_shape(const Type& t) {
  std::vector<int64_t> s;
  for (const Dim& d : t.shape) s.push_back(d.value());
  return s;
}

/// Equal dtype, shape and bits; NaNs are all the same. The fault, or "".
inline std::string bit_difference(const HostTensor& a, const HostTensor& b) {
  if (a.ref.dtype != b.ref.dtype || a.ref.shape != b.ref.shape) return "types differ";
  const HostTensor x = contiguous(a), y = contiguous(b);
  const size_t size = dtype_size(a.ref.dtype);
  const std::vector<double> vx = numbers(a), vy = numbers(b);
  for (size_t i = 0; i < vx.size(); ++i) {
    const bool same = std::memcmp(static_cast<const char*>(x.ref.data) + i * size,
                                  static_cast<const char*>(y.ref.data) + i * size, size) == 0;
    if (!same && !(std::isnan(vx[i]) && std::isnan(vy[i])))
      return fmt::format("element {}: {} and {}", i, vx[i], vy[i]);
  }
  return "";
}

/// Appends the gradients of the 0-d `loss`; invalid where none flows.
inline std::vector<Value> gradients(Graph& g, Value loss, const std::vector<Value>& wrt) {
  const std::deque<Node> nodes(g.nodes.begin(), g.nodes.end());
  std::vector<TapeEntry> tape;
  std::set<int> live;
  for (Value v : wrt) live.insert(v.id);
  for (const Node& n : nodes) {
    tape.push_back({n.op, n.in, n.out, &n.attrs, n.origin.loc});
    bool any = false;
    for (Value v : n.in) any = any || live.count(v.id);
    if (any && is_floating(g.type(n.out).dtype) && !def(n.op).constant_gradient) live.insert(n.out.id);
  }
  GraphBuilder b(g);
  const Value one = b.constant_like(1, loss);
  const auto done =
      differentiate(b, {tape, {{loss, one}}, [&](Value v) { return live.count(v.id) > 0; }, {}, {}});
  std::vector<Value> out;
  for (Value v : wrt) {
    out.push_back({});
    for (const auto& [value, grad] : done)
      if (value == v) out.back() = grad;
  }
  return out;
}

}  // namespace kiln::testing
