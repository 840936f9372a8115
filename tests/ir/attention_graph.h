// SPDX-License-Identifier: Apache-2.0
// Attention and its backward as a graph, for tests of loops over tiles.
#pragma once

#include <cmath>
#include <vector>

#include "ir/autodiff.h"
#include "ir/passes.h"

namespace kiln::testing {

struct Attention {
  int64_t batch = 2, heads = 3, queries = 40, keys = 40, size = 8;
  bool causal = false, bias = false;
  int64_t shift = 0;     ///< of the causal mask: row r sees columns up to r + shift
  int64_t window = 0;    ///< row r sees columns behind r - window and, unless causal, before r + window
  bool dropout = false;  ///< of half of the weights
  bool turned = false;   ///< keys are columns, as of k.transpose(-1, -2), and so are their gradients
  bool loss = false;     ///< the gradient of the result is known when the result is
  DType dtype = DType::f32;
};

/// Which of the scores count.
inline Value attention_mask(GraphBuilder& b, const Attention& a, const Shape& scores) {
  const Value rows = b.emit(op("iota"), {}, {int64_t{2}, scores}),
              columns = b.emit(op("iota"), {}, {int64_t{3}, scores});
  const Type t{DType::i64, scores};
  const auto number = [&](int64_t x) { return b.constant(static_cast<double>(x), t); };
  Value before;
  if (a.causal) {
    const Value last = a.shift == 0 ? rows : b.emit(op("add"), {rows, number(a.shift)});
    before = b.emit(op("ge"), {last, columns});
  }
  if (a.window == 0) return before;
  const Value distance = b.emit(op("sub"), {rows, columns});
  if (!a.causal) return b.emit(op("lt"), {b.emit(op("abs"), {distance}), number(a.window)});
  return b.emit(op("logical_and"), {before, b.emit(op("lt"), {distance, number(a.window)})});
}

/// softmax(q k^T / 3 + bias) v and the gradients of q, k and v, for a given gradient of the result or, with a
/// loss, for one that is made of it. Inputs: q, k, v, the gradient, and a bias and the
/// generator's state if there are any.
inline Graph attention_graph(const Attention& a) {
  using Ints = std::vector<int64_t>;
  Graph g;
  GraphBuilder b(g);
  const Dim n(a.batch), h(a.heads), t(a.queries), s(a.keys), d(a.size);
  const Type of_q{a.dtype, {n, h, t, d}}, of_k{a.dtype, {n, h, s, d}}, all{a.dtype, {n, h, t, s}};
  const Type of_turned{a.dtype, {n, h, d, s}};
  const Value q = g.add_input(of_q, InputKind::arg, "q"),
              k = g.add_input(a.turned ? of_turned : of_k, InputKind::arg, "k"),
              v = g.add_input(of_k, InputKind::arg, "v"), by = g.add_input(of_q, InputKind::arg, "by");
  Value x = b.emit(op("dot_general"), {q, k}, {Ints{0, 1}, Ints{0, 1}, Ints{3}, Ints{a.turned ? 2 : 3}});
  x = b.emit(op("mul"), {x, b.constant(1.0 / 3, all)});
  if (a.bias)
    x = b.emit(op("add"),
               {x, b.expand(g.add_input({a.dtype, {h, t, s}}, InputKind::arg, "bias"), all.shape)});
  if (a.causal || a.window != 0)
    x = b.emit(op("where"), {attention_mask(b, a, all.shape), x, b.constant(-INFINITY, all)});
  // The largest of a row only keeps exponentials in range: no gradient flows through it.
  const size_t before = g.nodes.size();
  const Shape row{n, h, t, Dim(1)};
  const Value most = b.reshape(b.emit(op("amax"), {x}, {Ints{3}}), row);
  const size_t behind = g.nodes.size();
  const Value e = b.emit(op("exp"), {b.emit(op("sub"), {x, b.expand(most, all.shape)})});
  Value p = b.emit(op("div"), {e, b.expand(b.reshape(b.sum(e, {3}), row), all.shape)});
  if (a.dropout) {
    const Value seed = g.add_input({DType::i64, {}}, InputKind::scalar, "seed"),
                offset = g.add_input({DType::i64, {}}, InputKind::scalar, "offset");
    const Value u = b.emit(op("random_uniform"), {seed, offset}, {all.shape});
    const Value kept = b.emit(op("ge"), {u, b.constant(0.5, {DType::f32, all.shape})});
    p = b.emit(op("where"), {kept, b.emit(op("mul"), {p, b.constant(2, all)}), b.constant(0, all)});
  }
  const Value y = b.emit(op("dot_general"), {p, v}, {Ints{0, 1}, Ints{0, 1}, Ints{3}, Ints{2}});
  const Value end = a.loss ? b.emit(op("mul"), {y, b.emit(op("tanh"), {y})}) : y;
  const std::vector<Node> nodes = g.nodes;
  std::vector<TapeEntry> tape;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (i < before || i >= behind)
      tape.push_back({nodes[i].op, nodes[i].in, nodes[i].out, &nodes[i].attrs, {}});
  const auto floating = [&](Value w) { return is_floating(g.type(w).dtype); };
  g.add_output(y);
  for (const auto& [w, gradient] : differentiate(b, {tape, {{end, by}}, floating, {}, {}}))
    if (w == q || w == k || w == v) g.add_output(gradient);
  return optimize(g);
}

}  // namespace kiln::testing
