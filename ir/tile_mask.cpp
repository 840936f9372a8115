// SPDX-License-Identifier: Apache-2.0
// Which columns of a loop's rows come to nothing: behind a causal mask, and before and behind a window,
// scores are minus infinity, their exponentials zero, and so is all that sums take of them. What masked
// values are is followed through the nodes of the loop; where every sum and contraction gets what changes
// nothing there, the columns are left out. (Zero times a factor counts as zero: infinities and NaN of keys
// that are masked are not looked at.)
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "ir/rewrite.h"
#include "ir/tile_loops.h"

namespace kiln {

namespace {

using Known = std::optional<double>;

/// Far from any row.
constexpr int64_t kFar = std::numeric_limits<int64_t>::max() / 4;

/// Distances of columns from their row; kFar on either side: without end.
struct Range {
  int64_t first = -kFar, last = kFar;
};

/// A sum of its row's and its column's number, so often each, and a constant.
struct Line {
  int rows = 0, columns = 0;
  int64_t offset = 0;

  bool is_constant() const { return rows == 0 && columns == 0; }
};

/// A comparison of a row's number with a column's: `inside` where their distance is in the range.
struct Mask {
  Range range;
  bool inside;
};

/// What is known of the values of columns whose distance from their row is in the range.
class Masked {
 public:
  Masked(const Graph& g, const TileLoop& loop, Range range) : g_(g), loop_(loop), range_(range) {}

  /// Distances behind which some mask is another than up to there.
  std::set<int64_t> cuts() const {
    std::set<int64_t> all;
    for (int i = loop_.begin; i < loop_.end; ++i) {
      const auto m = mask(node(i));
      if (m && m->range.first > -kFar) all.insert(m->range.first - 1);
      if (m && m->range.last < kFar) all.insert(m->range.last);
    }
    return all;
  }

  /// Whether nothing is taken of these columns.
  bool comes_to_nothing() {
    for (int i = loop_.begin; i < loop_.end; ++i) {
      const Node& n = node(i);
      if (takes_columns(n) && !takes_nothing(n)) return false;
      if (const Known v = value(n)) known_[n.out.id] = *v;
    }
    return true;
  }

 private:
  const Node& node(int i) const { return g_.nodes[static_cast<size_t>(i)]; }
  Known known(Value v) const {
    const auto at = known_.find(v.id);
    return at == known_.end() ? Known() : at->second;
  }

  // --- masks ---

  /// The node that makes a value, behind expand and reshape.
  const Node* maker(Value v) const {
    for (int at = g_.producer(v); at >= 0; at = g_.producer(node(at).in[0]))
      if (node(at).op != op("expand") && node(at).op != op("reshape")) return &node(at);
    return nullptr;
  }

  std::optional<Line> line(Value v) const {
    const Node* n = maker(v);
    if (!n) return {};
    if (n->op == op("iota")) return line_of_iota(*n);
    if (n->op == op("constant")) {
      const double x = std::get<double>(n->attrs[0]);
      if (x != std::floor(x) || std::abs(x) > 0x1p40) return {};
      return Line{0, 0, static_cast<int64_t>(x)};
    }
    if (n->op == op("neg")) return difference(Line(), line(n->in[0]));
    if (n->op == op("sub")) return difference(line(n->in[0]), line(n->in[1]));
    if (n->op == op("add")) return difference(line(n->in[0]), difference(Line(), line(n->in[1])));
    return {};
  }
  std::optional<Line> line_of_iota(const Node& n) const {
    const auto at = loop_.axes.find(n.out.id);
    if (at == loop_.axes.end()) return {};
    const int axis = at->second[static_cast<size_t>(std::get<int64_t>(n.attrs[0]))];
    if (axis < loop_.rows()) return {};
    return Line{axis == loop_.rows(), axis == loop_.columns(), 0};
  }
  static std::optional<Line> difference(const std::optional<Line>& a, const std::optional<Line>& b) {
    if (!a || !b) return {};
    return Line{a->rows - b->rows, a->columns - b->columns, a->offset - b->offset};
  }

  std::optional<Mask> mask(const Node& n) const {
    const bool ge = n.op == op("ge"), gt = n.op == op("gt"), le = n.op == op("le"), lt = n.op == op("lt");
    if (!ge && !gt && !le && !lt) return {};
    const bool less = lt || le;  // a - b <= most, or not
    const int64_t most = lt || ge ? -1 : 0;
    for (size_t i = 0; i < 2; ++i)
      if (const Node* size = maker(n.in[i]); size && size->op == op("abs"))
        return mask_of_size(line(size->in[0]), line(n.in[1 - i]), i == 0 ? most : -1 - most,
                            less == (i == 0));
    const std::optional<Line> d = difference(line(n.in[0]), line(n.in[1]));
    if (!d || !is_distance(*d)) return {};
    const int64_t end = (most - d->offset) * d->columns;
    return Mask{d->columns > 0 ? Range{-kFar, end} : Range{end, kFar}, less};
  }
  /// |x| - bound <= most, or not.
  static std::optional<Mask> mask_of_size(const std::optional<Line>& x, const std::optional<Line>& bound,
                                          int64_t most, bool less) {
    if (!x || !bound || !is_distance(*x) || !bound->is_constant()) return {};
    const int64_t middle = -x->offset * x->columns, size = bound->offset + most;
    return Mask{{middle - size, middle + size}, less};
  }
  static bool is_distance(const Line& l) { return std::abs(l.columns) == 1 && l.rows == -l.columns; }

  /// What a mask is at all distances of the range.
  Known value(const Mask& m) const {
    if (m.range.first <= range_.first && range_.last <= m.range.last) return m.inside;
    if (range_.last < m.range.first || m.range.last < range_.first) return !m.inside;
    return {};
  }

  // --- what values are there ---

  Known value(const Node& n) const {
    if (const auto m = mask(n)) return value(*m);
    if (n.op == op("constant")) return std::get<double>(n.attrs[0]);
    if (n.op == op("permute") || n.op == op("reshape") || n.op == op("expand")) return known(n.in[0]);
    if (def(n.op).kind != OpKind::elementwise || n.in.empty()) return {};
    const auto is = [&](size_t i, double v) { return known(n.in[i]) == v; };
    if (n.op == op("where")) {
      const Known c = known(n.in[0]), yes = known(n.in[1]), no = known(n.in[2]);
      if (c) return *c != 0 ? yes : no;
      return yes == no ? yes : Known();
    }
    const bool both = n.op == op("mul") || n.op == op("logical_and") || n.op == op("bitwise_and");
    if (both && (is(0, 0) || is(1, 0))) return 0;
    if (n.op == op("logical_or") && (is(0, 1) || is(1, 1))) return 1;
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
  const Range range_;
  std::map<int, double> known_;
};

}  // namespace

Band taken_columns(const Graph& g, const TileLoop& loop) {
  const std::set<int64_t> cuts = Masked(g, loop, {}).cuts();
  Band band;
  for (auto at = cuts.begin(); at != cuts.end() && !band.last; ++at)
    if (Masked(g, loop, {*at + 1, kFar}).comes_to_nothing()) band.last = *at;
  for (auto at = cuts.rbegin(); at != cuts.rend() && !band.first; ++at)
    if (Masked(g, loop, {-kFar, *at}).comes_to_nothing()) band.first = *at + 1;
  return band;
}

}  // namespace kiln
