// SPDX-License-Identifier: Apache-2.0
// What the fuzzers of code generation share: how a result is judged, and how inputs lie.
#pragma once

#include <random>

#include "ir/passes.h"
#include "ir/rounding.h"
#include "tests/codegen/compiled.h"
#include "tests/ir/random_graph.h"
#include "tests/ir/reduce_graph.h"
#include "tests/ir/testing.h"

namespace kiln::testing {

/// Same bits in every element.
inline bool equal_bits(const HostTensor& a, const HostTensor& b) {
  return std::memcmp(a.ref.data, b.ref.data, static_cast<size_t>(a.ref.numel()) * dtype_size(a.ref.dtype)) ==
         0;
}

/// The interpreter with every float result moved by a few units in the last place of f32, halves by up to one
/// of their own (kernels round them where they are stored, not at every op), and sums by as much of what
/// their terms are without their signs: what rounding alone may do, also where a comparison or a cast to an
/// integer turns a small difference into a large one. Odd seeds move all elements of a result alike, as a
/// kernel does that leaves one rounding out: of many equal ones, the largest moves down only if all do.
inline std::vector<HostTensor> interpret_moved(const Graph& g, const std::vector<HostTensor>& inputs,
                                               uint32_t seed) {
  std::mt19937 rng(seed);
  double alike = 0;
  const auto some = [&] { return seed % 2 == 1 ? alike : static_cast<double>(rng() % 5) - 2; };
  std::vector<HostTensor> values(static_cast<size_t>(g.value_count()));
  for (size_t i = 0; i < inputs.size(); ++i) values[static_cast<size_t>(g.inputs[i].value.id)] = inputs[i];
  return interpret(g, inputs, [&](int node, const HostTensor& t) {
    const Node& n = g.nodes[static_cast<size_t>(node)];
    const OpKind kind = def(n.op).kind;
    HostTensor& kept = values[static_cast<size_t>(n.out.id)];
    kept = t;
    if (kind == OpKind::view || kind == OpKind::gather || n.in.empty()) return;
    alike = rng() % 2 ? 1 : -1;
    std::vector<HostTensor> operands;
    for (const Value v : n.in) operands.push_back(values[static_cast<size_t>(v.id)]);
    const HostTensor terms = copy_of(kind == OpKind::effect ? t : rounding_terms(n, operands, t));
    dispatch(t.ref.dtype, [&](auto zero) {
      using T = decltype(zero);
      T* p = static_cast<T*>(t.ref.data);
      const T* scale = static_cast<const T*>(terms.ref.data);
      for (int64_t i = 0; i < t.ref.numel(); ++i) {
        if constexpr (std::is_floating_point_v<T>) {
          if (std::isfinite(scale[i])) p[i] += T(0x1p-22 * some()) * scale[i];
        } else if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>) {
          const double own = std::is_same_v<T, Half> ? 0x1p-11 : 0x1p-8;
          const auto by = static_cast<float>(scale[i]);
          p[i] = static_cast<T>(static_cast<float>(p[i]) * float(1 + own * some()) +
                                (std::isfinite(by) ? by * float(0x1p-22 * some()) : 0));
        }
      }
    });
  });
}

/// "" if every output is as close as rounding allows, else which is not, and where.
inline std::string fault(const GraphCase& c, const std::vector<HostTensor>& got) {
  const std::vector<HostTensor> want = interpret(c.graph, c.inputs);
  std::vector<std::vector<HostTensor>> moved(want.size());
  uint32_t seed = 0;
  for (size_t k = 0; k < want.size(); ++k) {
    std::string d = difference(got[k], want[k], 64, moved[k]);
    while (!d.empty() && seed < 16) {
      std::vector<HostTensor> other = interpret_moved(c.graph, c.inputs, ++seed);
      for (size_t i = 0; i < other.size(); ++i) moved[i].push_back(std::move(other[i]));
      d = difference(got[k], want[k], 64, moved[k]);
    }
    if (!d.empty()) return fmt::format("output {}: {}", k, d);
  }
  return "";
}

using Layouts = std::vector<ExternalLayout>;

/// A graph in the form it is compiled, and what a report calls it.
struct Variant {
  uint64_t seed;
  bool optimised;
  Graph graph;
  Layouts layouts;
};

/// Elements in another order of dims, with gaps, behind an offset: how views of larger tensors lie.
inline ExternalLayout scattered(const Shape& shape, Rng& rng) {
  std::vector<size_t> order;
  for (size_t d = 0; d < shape.size(); ++d)
    order.insert(order.begin() + rng.below(static_cast<int64_t>(d) + 1), d);
  ExternalLayout l{std::vector<Dim>(shape.size(), Dim(0)), Dim(rng.below(3))};
  int64_t stride = 1 + rng.below(2);
  for (size_t d : order) {
    l.strides[d] = Dim(stride);
    stride = stride * std::max<int64_t>(shape[d].value(), 1) + rng.below(2);
  }
  return l;
}

/// Where every third graph finds its inputs; the others find them row-major. Some updates in place need that.
inline Layouts layouts_for(const Graph& g, uint64_t seed, const Target& target = host_target()) {
  if (seed % 3 != 0) return {};
  Rng rng{seed};
  Layouts out;
  for (const GraphInput& in : g.inputs)
    if (in.kind != InputKind::scalar) out.push_back(scattered(g.type(in.value).shape, rng));
  try {
    lower(g, out, target);
    lower(g, out, target, {.fuse = false});
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::unsupported) throw;
    return {};
  }
  return out;
}

}  // namespace kiln::testing
