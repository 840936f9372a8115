// SPDX-License-Identifier: Apache-2.0
// The layout pass. A convolution walks the windows of its input: with channels innermost its contraction
// reads rows of memory as they lie, and so does all that is computed element by element around it. Values
// are kept in another order of their dims than the graph says, from where a convolution's input is made to
// where somebody needs the old order: there is the only permute. No op changes but in the numbers of its
// dims.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "ir/access.h"
#include "ir/passes.h"
#include "ir/rewrite.h"

namespace kiln {

namespace {

using Ints = std::vector<int64_t>;
const Ints& ints(const Attrs& a, size_t i) { return std::get<Ints>(a[i]); }
const Shape& dims(const Attrs& a, size_t i) { return std::get<Shape>(a[i]); }
size_t integer(const Attrs& a, size_t i) { return static_cast<size_t>(std::get<int64_t>(a[i])); }

Ints in_order(size_t n) {
  Ints p(n);
  std::iota(p.begin(), p.end(), 0);
  return p;
}
bool is_in_order(const Ints& p) { return std::is_sorted(p.begin(), p.end()); }
bool holds(const Ints& list, int64_t d) { return std::find(list.begin(), list.end(), d) != list.end(); }
Ints inverse(const Ints& p) {
  Ints q(p.size());
  for (size_t i = 0; i < p.size(); ++i) q[static_cast<size_t>(p[i])] = static_cast<int64_t>(i);
  return q;
}
/// The places that the numbers would have if they were sorted.
Ints ranks(const Ints& p) {
  Ints sorted = p, r;
  std::sort(sorted.begin(), sorted.end());
  for (const int64_t d : p) r.push_back(std::lower_bound(sorted.begin(), sorted.end(), d) - sorted.begin());
  return r;
}

/// Blocks of a reshape. Dims of 1 belong to what stands before them.
std::vector<ReshapeBlock> blocks_of(const Shape& from, const Shape& to) {
  const ReshapeBlock whole{0, from.size(), 0, to.size()};
  std::vector<ReshapeBlock> out;
  for (const ReshapeBlock& b : reshape_blocks(from, to).value_or(std::vector{whole})) {
    const auto one = [](const Dim& d) { return d.is(1); };
    const bool ones = std::all_of(from.begin() + b.from, from.begin() + b.from_end, one) &&
                      std::all_of(to.begin() + b.to, to.begin() + b.to_end, one);
    if (ones && !out.empty()) out.back().from_end = b.from_end, out.back().to_end = b.to_end;
    else out.push_back(b);
  }
  return out;
}

/// The contractions over windows.
class Convolutions {
 public:
  explicit Convolutions(const Graph& g) : g_(g) {
    for (const Node& n : g.nodes)
      if (n.op == op("dot_general"))
        for (size_t i = 0; i < 2; ++i) look_above(n, i);
  }
  bool any() const { return !channels_.empty(); }
  /// Dims of the value that are channels, if it is what windows are of.
  const Ints* channels(Value v) const {
    const auto at = channels_.find(v.id);
    return at == channels_.end() ? nullptr : &at->second;
  }
  /// Whether v is a contraction that sums over all windows.
  bool is_weight_gradient(Value v) const { return weight_gradients_.count(v.id) > 0; }

 private:
  /// Dims are followed up to the value that the windows are of: those that are contracted, and the others
  /// but for batch dims. A contraction over windows themselves, for a weight's gradient, leaves the channels.
  void look_above(const Node& n, size_t operand) {
    Value v = n.in[operand];
    const Ints &sums = ints(n.attrs, 2 + operand), others = free_dims(g_, n, operand);
    std::set<int64_t> contracted(sums.begin(), sums.end()), free(others.begin(), others.end());
    bool over_places = false, over_windows = false;
    while (g_.producer(v) >= 0) {
      const Node& up = g_.nodes[static_cast<size_t>(g_.producer(v))];
      if (up.op == op("window")) {
        const auto d = static_cast<int64_t>(integer(up.attrs, 0));
        over_windows |= contracted.count(d) > 0;
        over_places |= contracted.count(d + 1) > 0;
        contracted = without_window(contracted, d);
        free = without_window(free, d);
      } else if (up.op == op("reshape")) {
        contracted = before_reshape(contracted, up);
        free = before_reshape(free, up);
      } else if (up.op == op("permute")) {
        contracted = before_permute(contracted, up);
        free = before_permute(free, up);
      } else if (up.op != op("pad")) {
        break;
      }
      v = up.in[0];
    }
    if (over_places == over_windows) return;
    if (over_windows) weight_gradients_.insert(n.out.id);
    const std::set<int64_t>& found = over_places ? contracted : free;
    if (!found.empty()) channels_.emplace(v.id, Ints(found.begin(), found.end()));
  }
  static std::set<int64_t> without_window(const std::set<int64_t>& s, int64_t d) {
    std::set<int64_t> out;
    for (const int64_t x : s)
      if (x != d && x != d + 1) out.insert(x > d ? x - 1 : x);
    return out;
  }
  static std::set<int64_t> before_permute(const std::set<int64_t>& s, const Node& n) {
    std::set<int64_t> out;
    for (const int64_t x : s) out.insert(ints(n.attrs, 0)[static_cast<size_t>(x)]);
    return out;
  }
  std::set<int64_t> before_reshape(const std::set<int64_t>& s, const Node& n) const {
    std::set<int64_t> out;
    const Shape &from = g_.type(n.in[0]).shape, &to = g_.type(n.out).shape;
    for (const ReshapeBlock& b : blocks_of(from, to))
      for (size_t d = b.to; d < b.to_end; ++d)
        if (s.count(static_cast<int64_t>(d)) && !to[d].is(1))
          for (size_t u = b.from; u < b.from_end; ++u)
            if (!from[u].is(1)) out.insert(static_cast<int64_t>(u));
    return out;
  }

  const Graph& g_;
  std::map<int, Ints> channels_;
  std::set<int> weight_gradients_;
};

class ChannelsLast {
 public:
  ChannelsLast(const Graph& g, const Convolutions& convolutions)
      : r_(g), g_(r_.out), convolutions_(convolutions), forms_(static_cast<size_t>(g.value_count())) {
    for (const GraphInput& in : g.inputs) {
      const Value v = r_.mapped({in.value})[0];
      define(in.value, {v, in_order(static_cast<size_t>(g.type(in.value).rank()))});
    }
  }

  Graph run() {
    for (const Node& n : r_.from.nodes) {
      origin_ = n.origin;
      define(n.out, rewritten(n));
    }
    for (const GraphOutput& o : r_.from.outputs) r_.set(o.value, plain(o.value));
    return r_.finish();
  }

 private:
  /// How a value of the old graph stands in the new one: its dim i is dim order[i] of v.
  struct Form {
    Value v;
    Ints order;
    bool windows = false;  ///< v is a view with windows
    bool moved() const { return !is_in_order(order); }
  };

  Form& form(Value old) { return forms_[static_cast<size_t>(old.id)]; }
  Value emit(Op o, const std::vector<Value>& in, Attrs attrs) {
    return g_.add_node(o, in, std::move(attrs), origin_);
  }
  Value permute(Value v, const Ints& p) { return is_in_order(p) ? v : emit(op("permute"), {v}, {p}); }
  /// A value made here goes on with its channels last.
  void define(Value old, Form f) {
    const Ints* channels = convolutions_.channels(old);
    if (channels && !f.moved()) {
      Ints p;
      for (int64_t d = 0; d < static_cast<int64_t>(f.order.size()); ++d)
        if (!holds(*channels, d)) p.push_back(d);
      p.insert(p.end(), channels->begin(), channels->end());
      f.v = permute(f.v, p);
      f.order = inverse(p);
    }
    form(old) = std::move(f);
  }
  /// The value with its dims as the old graph has them.
  Value plain(Value old) { return permute(form(old).v, form(old).order); }
  /// The value with its dim i at order[i].
  Value in_form(Value old, const Ints& order) {
    const Form& f = form(old);
    if (f.order == order) return f.v;
    Ints p(order.size());
    for (size_t i = 0; i < order.size(); ++i) p[static_cast<size_t>(order[i])] = f.order[i];
    return permute(f.v, p);
  }

  Form rewritten(const Node& n) {
    const auto moved = std::find_if(n.in.begin(), n.in.end(), [&](Value v) { return form(v).moved(); });
    if (moved != n.in.end() && !names_places(n)) {
      const Form f = form(*moved);
      if (def(n.op).kind == OpKind::elementwise || n.op == op("cat")) return alike(n, f.order);
      if (def(n.op).kind == OpKind::reduce) return reduced(n, f);
      if (def(n.op).kind == OpKind::view) return viewed(n, f);
      if (n.op == op("dot_general")) return contracted(n);
    }
    std::vector<Value> in;
    for (const Value v : n.in) in.push_back(plain(v));
    const Value v = emit(n.op, in, n.attrs);
    return {v, in_order(static_cast<size_t>(g_.type(v).rank())), is_windows(n)};
  }
  /// Whether the result says where elements stand in the old order.
  static bool names_places(const Node& n) {
    if (def(n.op).kind == OpKind::reduce) return def(n.op).body.empty() && ints(n.attrs, 0).size() > 1;
    return detail::numbers_elements(n.op);
  }
  bool is_windows(const Node& n) {
    return n.op == op("window") ||
           (def(n.op).kind == OpKind::view && n.op != op("cat") && !n.in.empty() && form(n.in[0]).windows);
  }

  /// All operands and the result in one order.
  Form alike(const Node& n, const Ints& order) {
    std::vector<Value> in;
    for (const Value v : n.in) in.push_back(in_form(v, order));
    Attrs attrs = n.attrs;
    if (n.op == op("cat")) attrs[0] = order[integer(attrs, 0)];
    return {emit(n.op, in, std::move(attrs)), order};
  }

  Form reduced(const Node& n, const Form& f) {
    const Ints& which = ints(n.attrs, 0);
    Form out;
    Attrs attrs = n.attrs;
    Ints now, left;
    for (size_t d = 0; d < f.order.size(); ++d)
      (holds(which, static_cast<int64_t>(d)) ? now : left).push_back(f.order[d]);
    std::sort(now.begin(), now.end());
    attrs[0] = now;
    out.v = emit(n.op, {f.v}, std::move(attrs));
    out.order = ranks(left);
    return out;
  }

  // --- views ---

  template <typename List>
  static List moved(const List& list, const Ints& order) {
    List out = list;
    for (size_t i = 0; i < list.size(); ++i) out[static_cast<size_t>(order[i])] = list[i];
    return out;
  }
  Form viewed(const Node& n, const Form& f) {
    Form out = view_of(n, f);
    out.windows = is_windows(n);
    return out;
  }
  Form view_of(const Node& n, const Form& f) {
    const Attrs& a = n.attrs;
    if (n.op == op("permute")) {
      Ints order;
      for (const int64_t d : ints(a, 0)) order.push_back(f.order[static_cast<size_t>(d)]);
      return {f.v, order};
    }
    if (n.op == op("expand")) return expanded(n, f);
    if (n.op == op("reshape")) return reshaped(n, f);
    if (n.op == op("window")) return windowed(n, f);
    if (n.op == op("skew")) return skewed(n, f);
    Attrs attrs = a;
    if (n.op == op("flip")) {
      Ints which;
      for (const int64_t d : ints(a, 0)) which.push_back(f.order[static_cast<size_t>(d)]);
      std::sort(which.begin(), which.end());
      attrs[0] = which;
    } else {  // slice, pad: three lists of a number per dim
      for (size_t i = 0; i < 2; ++i) attrs[i] = moved(dims(a, i), f.order);
      attrs[2] = moved(ints(a, 2), f.order);
    }
    return {emit(n.op, {f.v}, std::move(attrs)), f.order};
  }
  Form expanded(const Node& n, const Form& f) {
    const Shape& to = dims(n.attrs, 0);
    const auto lead = static_cast<int64_t>(to.size() - f.order.size());
    Ints order = in_order(to.size());
    for (size_t i = 0; i < f.order.size(); ++i) order[static_cast<size_t>(lead) + i] = lead + f.order[i];
    return {emit(op("expand"), {f.v}, {moved(to, order)}), order};
  }
  /// A dim that is cut is cut where it stands. Dims that become one are brought together where the first of
  /// them is.
  Form reshaped(const Node& n, const Form& f) {
    const Shape &from = r_.from.type(n.in[0]).shape, &to = dims(n.attrs, 0);
    const std::vector<ReshapeBlock> blocks = blocks_of(from, to);
    struct Place {
      int64_t at;
      const ReshapeBlock* block;
    };
    std::vector<Place> places;
    for (const ReshapeBlock& b : blocks) {
      int64_t at = b.from < b.from_end ? f.order[b.from] : -1;
      for (size_t d = b.from; d < b.from_end; ++d)
        if (!from[d].is(1)) {
          at = f.order[d];
          break;
        }
      places.push_back({at, &b});
    }
    std::stable_sort(places.begin(), places.end(),
                     [](const Place& x, const Place& y) { return x.at < y.at; });
    Ints p, order(to.size());
    Shape shape;
    for (const Place& place : places) {
      for (size_t d = place.block->from; d < place.block->from_end; ++d) p.push_back(f.order[d]);
      for (size_t d = place.block->to; d < place.block->to_end; ++d) {
        order[d] = static_cast<int64_t>(shape.size());
        shape.push_back(to[d]);
      }
    }
    return {emit(op("reshape"), {permute(f.v, p)}, {shape}), order};
  }
  Form windowed(const Node& n, const Form& f) {
    const size_t d = integer(n.attrs, 0);
    const int64_t at = f.order[d];
    Attrs attrs = n.attrs;
    attrs[0] = at;
    Ints order;
    for (const int64_t x : f.order) order.push_back(x > at ? x + 1 : x);
    order.insert(order.begin() + static_cast<ptrdiff_t>(d) + 1, at + 1);
    return {emit(op("window"), {f.v}, std::move(attrs)), order};
  }
  /// Its two dims must stand side by side.
  Form skewed(const Node& n, const Form& f) {
    const size_t d = integer(n.attrs, 0);
    Ints p;
    for (int64_t x = 0; x < static_cast<int64_t>(f.order.size()); ++x) {
      if (x == f.order[d + 1]) continue;
      p.push_back(x);
      if (x == f.order[d]) p.push_back(f.order[d + 1]);
    }
    const Ints to = inverse(p);
    Ints order;
    for (const int64_t x : f.order) order.push_back(to[static_cast<size_t>(x)]);
    Attrs attrs = n.attrs;
    attrs[0] = order[d];
    return {emit(op("skew"), {permute(f.v, p)}, std::move(attrs)), order};
  }

  // --- contractions ---

  /// What lies with its channels last is operand a, so that the other's free dims, the channels made, become
  /// the last of the result. A weight's gradient goes back to the weight's own order at once.
  Form contracted(const Node& n) {
    const bool windows[2] = {form(n.in[0]).windows, form(n.in[1]).windows};
    const size_t first = windows[0] != windows[1] ? (windows[1] ? 1 : 0) : (form(n.in[0]).moved() ? 0 : 1);
    const Form a = form(n.in[first]), b = with_longest_last(n, 1 - first);
    const Ints &batch_a = ints(n.attrs, first), &batch_b = ints(n.attrs, 1 - first);
    const Ints &sum_a = ints(n.attrs, 2 + first), &sum_b = ints(n.attrs, 3 - first);
    const auto at = [](const Ints& list, const Ints& order) {
      Ints out;
      for (const int64_t d : list) out.push_back(order[static_cast<size_t>(d)]);
      return out;
    };
    std::vector<std::pair<int64_t, int64_t>> sums;
    for (size_t i = 0; i < sum_a.size(); ++i)
      sums.push_back({a.order[static_cast<size_t>(sum_a[i])], b.order[static_cast<size_t>(sum_b[i])]});
    std::sort(sums.begin(), sums.end());
    Ints over_a, over_b;
    for (const auto& [x, y] : sums) over_a.push_back(x), over_b.push_back(y);
    const Value v =
        emit(op("dot_general"), {a.v, b.v}, {at(batch_a, a.order), at(batch_b, b.order), over_a, over_b});
    // The old result: batch dims, free dims of its a, of its b.
    const Ints free_a = ranks(at(free_dims(r_.from, n, first), a.order)),
               free_b = ranks(at(free_dims(r_.from, n, 1 - first), b.order));
    const auto batches = static_cast<int64_t>(batch_a.size()), count_a = static_cast<int64_t>(free_a.size());
    Ints of_a, of_b;
    for (const int64_t d : free_a) of_a.push_back(batches + d);
    for (const int64_t d : free_b) of_b.push_back(batches + count_a + d);
    Form out{v, in_order(batch_a.size())};
    for (const Ints* part : {first == 0 ? &of_a : &of_b, first == 0 ? &of_b : &of_a})
      out.order.insert(out.order.end(), part->begin(), part->end());
    if (!convolutions_.is_weight_gradient(n.out)) return out;
    return {permute(v, out.order), in_order(out.order.size())};
  }
  /// The operand with its longest free dim innermost: that is what vectors walk.
  Form with_longest_last(const Node& n, size_t operand) {
    Form f = form(n.in[operand]);
    if (f.moved() || f.windows) return f;
    const Shape& shape = r_.from.type(n.in[operand]).shape;
    int64_t longest = -1;
    for (const int64_t d : free_dims(r_.from, n, operand)) {
      const auto size = [&](int64_t i) {
        const Dim& x = shape[static_cast<size_t>(i)];
        return x.is_const() ? x.value() : int64_t{1} << 40;
      };
      if (longest < 0 || size(d) >= size(longest)) longest = d;
    }
    if (longest < 0) return f;
    Ints p;
    for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d)
      if (d != longest) p.push_back(d);
    p.push_back(longest);
    return {permute(f.v, p), inverse(p)};
  }

  detail::Rewrite r_;
  Graph& g_;
  const Convolutions& convolutions_;
  std::vector<Form> forms_;
  Origin origin_;
};

}  // namespace

std::optional<Graph> place_channels_last(const Graph& g) {
  const Convolutions convolutions(g);
  return convolutions.any() ? std::optional(ChannelsLast(g, convolutions).run()) : std::nullopt;
}

}  // namespace kiln
