// SPDX-License-Identifier: Apache-2.0
// Graphs without the dot products that no template is for: of integers, and those with too little to reuse to
// be worth packing. As products and sums they are fused with what is around them.
#include <algorithm>

#include "codegen/lower_parts.h"
#include "ir/access.h"
#include "ir/rewrite.h"

namespace kiln::detail {

namespace {

using Ints = std::vector<int64_t>;

/// Attributes and operands of a dot_general, by sides.
struct Dot {
  Dot(const Graph& g, const Node& n) {
    for (size_t i = 0; i < 2; ++i) {
      shape[i] = g.type(n.in[i]).shape;
      batch[i] = std::get<Ints>(n.attrs[i]);
      summed[i] = std::get<Ints>(n.attrs[2 + i]);
      free[i] = free_dims(g, n, i);
    }
  }
  static bool is_one(const Shape& s, const Ints& dims) {
    return std::all_of(dims.begin(), dims.end(), [&](int64_t d) { return s[static_cast<size_t>(d)].is(1); });
  }
  Shape shape[2];
  Ints batch[2], summed[2], free[2];
};

/// Whether the dims lie innermost in memory. Of views but permutes it is not known, or elements repeat.
bool innermost(const Graph& g, Value v, Ints dims) {
  for (int p = g.producer(v); p >= 0 && def(g.nodes[static_cast<size_t>(p)].op).view; p = g.producer(v)) {
    const Node& n = g.nodes[static_cast<size_t>(p)];
    if (n.op != op("permute")) return false;
    const auto& order = std::get<Ints>(n.attrs[0]);
    for (int64_t& d : dims) d = order[static_cast<size_t>(d)];
    v = n.in[0];
  }
  const Shape& s = g.type(v).shape;
  size_t left = dims.size();
  for (size_t d = s.size(); d-- > 0 && left > 0;) {
    if (std::count(dims.begin(), dims.end(), static_cast<int64_t>(d))) --left;
    else if (!s[d].is(1)) return false;
  }
  return true;
}

/// Outer products, and rows of a matrix times one vector: each element of the matrix is read once, so that
/// a template would spend longer packing it than on the rest.
bool is_plain(const Graph& g, const Node& n) {
  if (n.op != op("dot_general")) return false;
  if (!is_floating(g.type(n.out).dtype)) return true;
  const Dot d(g, n);
  if (Dot::is_one(d.shape[0], d.summed[0])) return true;
  for (size_t i = 0; i < 2; ++i)
    if (Dot::is_one(d.shape[i], d.free[i]) && innermost(g, n.in[1 - i], d.summed[1 - i])) return true;
  return false;
}

/// The product as a sum, of f32 for halves: `in` are its operands in the graph that `b` builds.
Value emit_sum(GraphBuilder& b, const Graph& g, const Node& n, const std::vector<Value>& in) {
  const Dot d(g, n);
  Shape full, seen[2];  // batch, free of a, free of b, summed; each side with 1 where it has no such dim
  const auto add = [&](const Dim& size, bool first, bool second) {
    full.push_back(size);
    seen[0].push_back(first ? size : Dim(1));
    seen[1].push_back(second ? size : Dim(1));
  };
  const auto size = [&](size_t i, int64_t dim) { return d.shape[i][static_cast<size_t>(dim)]; };
  for (const int64_t dim : d.batch[0]) add(size(0, dim), true, true);
  for (const int64_t dim : d.free[0]) add(size(0, dim), true, false);
  for (const int64_t dim : d.free[1]) add(size(1, dim), false, true);
  Ints last;
  for (const int64_t dim : d.summed[0]) {
    last.push_back(static_cast<int64_t>(full.size()));
    add(size(0, dim), true, true);
  }
  const DType made = g.type(n.out).dtype, sums = dtype_size(made) == 2 ? DType::f32 : made;
  Value side[2];
  for (size_t i = 0; i < 2; ++i) {
    Ints order = d.batch[i];
    order.insert(order.end(), d.free[i].begin(), d.free[i].end());
    order.insert(order.end(), d.summed[i].begin(), d.summed[i].end());
    side[i] = b.expand(b.reshape(b.permute(b.cast(in[i], sums), order), seen[i]), full);
  }
  const Value products = b.emit(op("mul"), {side[0], side[1]});
  if (!Dot::is_one(d.shape[0], d.summed[0])) return b.cast(b.sum(products, last), made);
  // A sum of one product begins at zero, too: -0 is 0 then, as in longer ones.
  const Value sum =
      is_floating(sums) ? b.emit(op("add"), {products, b.constant_like(0, products)}) : products;
  return b.cast(b.reshape(sum, g.type(n.out).shape), made);
}

}  // namespace

bool has_plain_dots(const Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [&](const Node& n) { return is_plain(g, n); });
}

Graph without_plain_dots(const Graph& g, std::vector<int32_t>& source_of) {
  Rewrite r(g);
  GraphBuilder b(r.out);
  for (const Node& n : g.nodes) {
    const std::vector<Value> in = r.mapped(n.in);
    b.origin = n.origin;
    r.set(n.out, is_plain(g, n) ? emit_sum(b, g, n, in) : r.out.add_node(n.op, in, n.attrs, n.origin));
    source_of.resize(r.out.nodes.size(), static_cast<int32_t>(&n - g.nodes.data()));
  }
  return r.finish();
}

void rename_sources(Plan& plan, const std::vector<int32_t>& source_of) {
  for (ProfileRow& row : plan.profile) {
    for (int32_t& n : row.sources) n = source_of[static_cast<size_t>(n)];
    row.sources.erase(std::unique(row.sources.begin(), row.sources.end()), row.sources.end());
  }
  for (PlanCollective& c : plan.collectives) c.source = source_of[static_cast<size_t>(c.source)];
}

}  // namespace kiln::detail
