// SPDX-License-Identifier: Apache-2.0
// Which columns of a loop's rows come to nothing: behind a causal mask, and before and behind a window,
// scores are minus infinity, their exponentials zero, and so is all that sums take of them. What masked
// values are is followed through the nodes of the loop; where every sum and contraction gets what changes
// nothing there, the columns are left out. (Zero times a factor counts as zero: infinities and NaN of keys
// that are masked are not looked at.)
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/rewrite.h"
#include "ir/tile_loops.h"

namespace kiln {

namespace {

using Known = std::optional<double>;

/// Far from any row.
constexpr int64_t kFar = std::numeric_limits<int64_t>::max() / 4;

/// Distances of columns from their row; kFar on either side: without end.
struct Range {
  Distance first = -kFar, last = kFar;
};

/// a - b, unless that has two scalars.
std::optional<Distance> operator-(const Distance& a, const Distance& b) {
  if (!a.is_number() && !b.is_number() && a.scalar != b.scalar) return {};
  const int times = a.times - b.times;
  return Distance(a.number - b.number, times, times == 0 ? Value() : a.is_number() ? b.scalar : a.scalar);
}
/// a * sign + by.
Distance moved(const Distance& a, int sign, int64_t by) {
  return {a.number * sign + by, a.times * sign, a.scalar};
}

/// Whether a <= b, whatever the scalars are.
bool is_below(const Distance& a, const Distance& b) {
  if (a.number <= -kFar || b.number >= kFar) return true;
  return a.times == b.times && a.scalar == b.scalar && a.number <= b.number;
}

/// A sum of its row's and its column's number, so often each, and a constant.
struct Line {
  int rows = 0, columns = 0;
  Distance offset = {};

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

  /// Distances behind which some mask is another than up to there; numbers come first.
  std::vector<Distance> cuts() const {
    std::vector<Distance> all;
    for (int i = loop_.begin; i < loop_.end; ++i) {
      const auto m = mask(node(i));
      if (m && m->range.first != Distance(-kFar)) all.push_back(moved(m->range.first, 1, -1));
      if (m && m->range.last != Distance(kFar)) all.push_back(m->range.last);
    }
    std::sort(all.begin(), all.end(), [](const Distance& a, const Distance& b) {
      return std::pair(!a.is_number(), a.number) < std::pair(!b.is_number(), b.number);
    });
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

  /// What a value is, before expand and reshape.
  Value source(Value v) const {
    for (int at = g_.producer(v); at >= 0; at = g_.producer(v)) {
      if (node(at).op != op("expand") && node(at).op != op("reshape")) break;
      v = node(at).in[0];
    }
    return v;
  }

  std::optional<Line> line(Value x) const {
    const Value v = source(x);
    const int at = g_.producer(v);
    if (at < loop_.begin) return line_of_scalar(v);
    const Node& n = node(at);
    if (n.op == op("iota")) return line_of_iota(n);
    if (n.op == op("constant")) return line_of_number(std::get<double>(n.attrs[0]));
    if (n.op == op("neg")) return difference(Line(), line(n.in[0]));
    if (n.op == op("sub")) return difference(line(n.in[0]), line(n.in[1]));
    if (n.op == op("add")) return difference(line(n.in[0]), difference(Line(), line(n.in[1])));
    return {};
  }
  /// A scalar that is made before the loop. Lists of reads are short.
  std::optional<Line> line_of_scalar(Value v) const {
    const Type& t = g_.type(v);
    const bool read = std::find(loop_.reads.begin(), loop_.reads.end(), v) != loop_.reads.end();
    if (!read || t.dtype != DType::i64 || !t.shape.empty()) return {};
    return Line{0, 0, {0, 1, v}};
  }
  static std::optional<Line> line_of_number(double x) {
    if (x != std::floor(x) || std::abs(x) > 0x1p40) return {};
    return Line{0, 0, static_cast<int64_t>(x)};
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
    const std::optional<Distance> offset = a->offset - b->offset;
    if (!offset) return {};
    return Line{a->rows - b->rows, a->columns - b->columns, *offset};
  }

  std::optional<Mask> mask(const Node& n) const {
    const bool ge = n.op == op("ge"), gt = n.op == op("gt"), le = n.op == op("le"), lt = n.op == op("lt");
    if (!ge && !gt && !le && !lt) return {};
    const bool less = lt || le;  // a - b <= most, or not
    const int64_t most = lt || ge ? -1 : 0;
    for (size_t i = 0; i < 2; ++i)
      if (const int at = g_.producer(source(n.in[i])); at >= 0 && node(at).op == op("abs"))
        return mask_of_size(line(node(at).in[0]), line(n.in[1 - i]), i == 0 ? most : -1 - most,
                            less == (i == 0));
    const std::optional<Line> d = difference(line(n.in[0]), line(n.in[1]));
    if (!d || !is_distance(*d)) return {};
    const Distance end = moved(d->offset, -d->columns, most * d->columns);
    return Mask{d->columns > 0 ? Range{-kFar, end} : Range{end, kFar}, less};
  }
  /// |x| - bound <= most, or not.
  static std::optional<Mask> mask_of_size(const std::optional<Line>& x, const std::optional<Line>& bound,
                                          int64_t most, bool less) {
    if (!x || !bound || !is_distance(*x) || !bound->is_constant()) return {};
    const Distance middle = moved(x->offset, -x->columns, 0), size = moved(bound->offset, 1, most);
    const std::optional<Distance> first = middle - size, last = middle - moved(size, -1, 0);
    if (!first || !last) return {};
    return Mask{{*first, *last}, less};
  }
  static bool is_distance(const Line& l) { return std::abs(l.columns) == 1 && l.rows == -l.columns; }

  /// What a mask is at all distances of the range.
  Known value(const Mask& m) const {
    if (is_below(m.range.first, range_.first) && is_below(range_.last, m.range.last)) return m.inside;
    if (is_below(moved(range_.last, 1, 1), m.range.first) ||
        is_below(moved(m.range.last, 1, 1), range_.first))
      return !m.inside;
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
  const std::vector<Distance> cuts = Masked(g, loop, {}).cuts();
  const auto numbers =
      std::find_if(cuts.begin(), cuts.end(), [](const Distance& d) { return !d.is_number(); });
  Band band;
  for (const Distance& d : cuts)
    if (!band.last && Masked(g, loop, {moved(d, 1, 1), kFar}).comes_to_nothing()) band.last = d;
  const auto try_first = [&](auto begin, auto end) {  // the largest
    for (auto at = end; at != begin && !band.first;)
      if (Masked(g, loop, {-kFar, *--at}).comes_to_nothing()) band.first = moved(*at, 1, 1);
  };
  try_first(cuts.begin(), numbers);
  try_first(numbers, cuts.end());
  return band;
}

}  // namespace kiln
