// SPDX-License-Identifier: Apache-2.0
// Which columns of a loop's rows come to nothing: behind a causal mask scores are minus infinity, their
// exponentials zero, and so is all that sums take of them. What masked values are is followed through the
// nodes of the loop; where every sum and contraction gets what changes nothing there, the columns are left
// out. (Zero times a factor counts as zero: infinities and NaN of keys behind the mask are not looked at.)
#include <algorithm>
#include <cmath>

#include "ir/rewrite.h"
#include "ir/tile_loops.h"

namespace kiln {

namespace {

using Known = std::optional<double>;

/// The number of its row or column, moved by a constant.
struct Line {
  int axis = -1;
  int64_t offset = 0;
};

class Masked {
 public:
  Masked(const Graph& g, const TileLoop& loop) : g_(g), loop_(loop) {}

  /// The largest distance from the diagonal at which some mask begins.
  std::optional<int64_t> diagonal() const {
    std::optional<int64_t> most;
    for (int i = loop_.begin; i < loop_.end; ++i)
      if (const auto m = mask(node(i))) most = std::max(most.value_or(m->diagonal), m->diagonal);
    return most;
  }

  /// Whether nothing is taken of columns behind that.
  bool comes_to_nothing() {
    for (int i = loop_.begin; i < loop_.end; ++i) {
      const Node& n = node(i);
      if (takes_columns(n) && !takes_nothing(n)) return false;
      if (const Known v = value(n)) known_[n.out.id] = *v;
    }
    return true;
  }

 private:
  struct Mask {
    int64_t diagonal;  ///< columns further from the row's number are masked
    double value;      ///< what the comparison is there
  };

  const Node& node(int i) const { return g_.nodes[static_cast<size_t>(i)]; }
  Known known(Value v) const {
    const auto at = known_.find(v.id);
    return at == known_.end() ? Known() : at->second;
  }

  // --- masks ---

  std::optional<Line> line(Value v) const {
    const int at = g_.producer(v);
    if (at < loop_.begin || at >= loop_.end) return {};
    const Node& n = node(at);
    if (n.op == op("iota"))
      return Line{loop_.axes.at(v.id)[static_cast<size_t>(std::get<int64_t>(n.attrs[0]))], 0};
    if (n.op == op("expand") || n.op == op("reshape")) return line(n.in[0]);
    const bool add = n.op == op("add"), sub = n.op == op("sub");
    if (!add && !sub) return {};
    for (size_t i = 0; i < (add ? 2u : 1u); ++i) {
      const std::optional<Line> l = line(n.in[i]);
      const Known by = constant(n.in[1 - i]);
      if (!l || !by) continue;
      const auto offset = static_cast<int64_t>(*by);
      return Line{l->axis, l->offset + (add ? offset : -offset)};
    }
    return {};
  }

  /// The number that all elements are.
  Known constant(Value v) const {
    const int at = g_.producer(v);
    if (at < 0) return {};
    if (node(at).op == op("expand") || node(at).op == op("reshape")) return constant(node(at).in[0]);
    return node(at).op == op("constant") ? Known(std::get<double>(node(at).attrs[0])) : Known();
  }

  std::optional<Mask> mask(const Node& n) const {
    const bool ge = n.op == op("ge"), gt = n.op == op("gt"), le = n.op == op("le"), lt = n.op == op("lt");
    if (!ge && !gt && !le && !lt) return {};
    const std::optional<Line> a = line(n.in[0]), b = line(n.in[1]);
    if (!a || !b) return {};
    const bool straight = a->axis == loop_.rows() && b->axis == loop_.columns();
    if (!straight && !(a->axis == loop_.columns() && b->axis == loop_.rows())) return {};
    // row + p against column + q
    const int64_t p = straight ? a->offset : b->offset, q = straight ? b->offset : a->offset;
    const bool keeps_before = straight ? ge || gt : le || lt, strict = straight ? gt || le : lt || ge;
    return Mask{p - q - strict, keeps_before ? 0.0 : 1.0};
  }

  // --- what values are behind the mask ---

  Known value(const Node& n) const {
    if (const auto m = mask(n)) return m->value;
    if (n.op == op("constant")) return std::get<double>(n.attrs[0]);
    if (n.op == op("permute") || n.op == op("reshape") || n.op == op("expand")) return known(n.in[0]);
    if (def(n.op).kind != OpKind::elementwise || n.in.empty()) return {};
    const auto is = [&](size_t i, double v) { return known(n.in[i]) == v; };
    if (n.op == op("where")) {
      const Known c = known(n.in[0]);
      return c ? known(n.in[*c != 0 ? 1 : 2]) : Known();
    }
    if (n.op == op("mul") && (is(0, 0) || is(1, 0))) return 0;
    if (n.op == op("div") && is(0, 0)) return 0;
    if ((n.op == op("add") || n.op == op("sub")) && is(0, -INFINITY) && !known(n.in[1])) return -INFINITY;
    if (n.op == op("add") && is(1, -INFINITY) && !known(n.in[0])) return -INFINITY;
    return evaluated(n);
  }

  /// An op of known numbers.
  Known evaluated(const Node& n) const {
    std::vector<std::pair<double, DType>> operands;
    for (const Value v : n.in) {
      const Known k = known(v);
      if (!k) return {};
      operands.emplace_back(*k, g_.type(v).dtype);
    }
    return detail::evaluate_numbers(n.op, n.attrs, operands);
  }

  // --- what takes columns ---

  bool has_columns(Value v) const { return loop_.has(v, loop_.columns()); }
  bool is_square(Value v) const { return has_columns(v) && loop_.has(v, loop_.rows()); }
  bool takes_columns(const Node& n) const {
    if (def(n.op).kind == OpKind::reduce) return has_columns(n.in[0]) && !has_columns(n.out);
    return n.op == op("dot_general") && !is_square(n.out);
  }
  bool takes_nothing(const Node& n) const {
    if (n.op == op("dot_general")) return known(n.in[is_square(n.in[0]) ? 0 : 1]) == 0.0;
    if (n.op == op("sum")) return known(n.in[0]) == 0.0;
    return n.op == op("amax") && known(n.in[0]) == -INFINITY;
  }

  const Graph& g_;
  const TileLoop& loop_;
  std::map<int, double> known_;
};

}  // namespace

std::optional<int64_t> masked_diagonal(const Graph& g, const TileLoop& loop) {
  Masked m(g, loop);
  const std::optional<int64_t> diagonal = m.diagonal();
  return diagonal && m.comes_to_nothing() ? diagonal : std::nullopt;
}

}  // namespace kiln
