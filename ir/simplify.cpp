// SPDX-License-Identifier: Apache-2.0
// Local rewrites that keep every bit of every result (the sign and payload of a NaN aside). A rule looks at
// one node and the producers of its operands; its result is simplified in turn. Rules that would round
// differently, or drop a NaN, an infinity or the sign of a zero, have no place here.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ir/base/options.h"
#include "ir/interpret.h"
#include "ir/passes.h"
#include "ir/rewrite.h"

namespace kiln {

std::optional<double> detail::evaluate_numbers(Op o, const Attrs& attrs,
                                               std::span<const std::pair<double, DType>> operands) {
  std::vector<HostTensor> values;
  for (const auto& [number, dtype] : operands)
    values.push_back(evaluate(op("constant"), {}, {number, dtype, Shape{}}));
  try {
    const HostTensor result = evaluate(o, values, attrs);
    const HostTensor wide = evaluate(op("cast"), {{result}}, {DType::f64});
    const double v = *static_cast<const double*>(wide.ref.data);
    if (!is_floating(result.ref.dtype) && std::fabs(v) > 0x1p53) return std::nullopt;
    return v;
  } catch (const Error&) {
    return std::nullopt;
  }
}

namespace {

using Ints = std::vector<int64_t>;
const Ints& ints(const Attrs& a, size_t i) { return std::get<Ints>(a[i]); }
const Shape& dims(const Attrs& a, size_t i) { return std::get<Shape>(a[i]); }

class Simplifier {
 public:
  explicit Simplifier(const Graph& g) : r_(g), g_(r_.out) {}

  Graph run() {
    for (const Node& n : r_.from.nodes) {
      origin_ = n.origin;
      r_.set(n.out, emit(n.op, r_.mapped(n.in), n.attrs));
    }
    return r_.finish();
  }

 private:
  /// The result of a node: an equal value that exists or a simpler node, else the node itself.
  Value emit(Op o, const std::vector<Value>& in, Attrs attrs) {
    Value v = folded(o, in, attrs);
    if (v.valid()) return v;
    switch (def(o).kind) {
      case OpKind::elementwise: v = elementwise(o, in, attrs); break;
      case OpKind::reduce: v = reduce(o, in, attrs); break;
      case OpKind::view: v = view(o, in, attrs); break;
      default: break;
    }
    return v.valid() ? v : g_.add_node(o, in, std::move(attrs), origin_);
  }

  // --- looking at producers ---

  const Node* made_by(Value v, Op o) const { return detail::made_by(g_, v, o); }
  /// The operand of v's producer, if that is `o`.
  Value inside(Value v, Op o) const {
    const Node* n = made_by(v, o);
    return n ? n->in[0] : Value{};
  }
  std::optional<double> constant(Value v) const {
    const Node* n = made_by(v, op("constant"));
    if (!n) return std::nullopt;
    return std::get<double>(n->attrs[0]);
  }
  bool is(Value v, double want) const {
    const std::optional<double> c = constant(v);
    return c && *c == want && std::signbit(*c) == std::signbit(want);
  }
  Value constant_of(double v, const Type& t) { return emit(op("constant"), {}, {v, t.dtype, t.shape}); }
  Value reshape(Value x, const Shape& to) { return emit(op("reshape"), {x}, {to}); }

  /// Elementwise on constants of the result's shape.
  Value folded(Op o, const std::vector<Value>& in, const Attrs& attrs) {
    if (def(o).kind != OpKind::elementwise || in.empty()) return {};
    std::vector<std::pair<double, DType>> numbers;
    std::vector<Type> types;
    for (Value v : in) {
      const std::optional<double> c = constant(v);
      if (!c) return {};
      types.push_back(g_.type(v));
      numbers.emplace_back(*c, types.back().dtype);
    }
    const Type t = infer_type(o, types, attrs);
    if (t.shape != types[0].shape) return {};
    const std::optional<double> v = detail::evaluate_numbers(o, attrs, numbers);
    return v ? constant_of(*v, t) : Value{};  // what fails stays where it is, to fail when it runs
  }

  // --- elementwise ---

  Value elementwise(Op o, const std::vector<Value>& in, const Attrs& attrs) {
    if (o == op("cast")) return cast(in[0], std::get<DType>(attrs[0]));
    if (o == op("where")) return where(in);
    if (in.size() == 1) return unary(o, in[0]);
    if (in.size() == 2) return binary(o, in[0], in[1]);
    return {};
  }

  Value cast(Value x, DType to) {
    if (g_.type(x).dtype == to) return x;
    const Value before = inside(x, op("cast"));
    if (before.valid() && holds(g_.type(x).dtype, g_.type(before).dtype))
      return emit(op("cast"), {before}, {to});
    return {};
  }
  /// Whether every value of `small` is one of `big`.
  static bool holds(DType big, DType small) {
    switch (small) {
      case DType::boolean: return true;
      case DType::u8: return big != DType::boolean;
      case DType::i32: return big == DType::i64 || big == DType::f64;
      case DType::f16:
      case DType::bf16: return big == DType::f32 || big == DType::f64;
      case DType::f32: return big == DType::f64;
      default: return false;
    }
  }

  Value where(const std::vector<Value>& in) {
    if (in[1] == in[2]) return in[1];
    if (const std::optional<double> c = constant(in[0])) return *c != 0 ? in[1] : in[2];
    const Value positive = inside(in[0], op("logical_not"));
    return positive.valid() ? emit(op("where"), {positive, in[2], in[1]}, {}) : Value{};
  }

  Value unary(Op o, Value x) {
    for (Op twice : {op("neg"), op("logical_not"), op("bitwise_not")})
      if (o == twice) return inside(x, o);
    const bool settled =
        o == op("abs") || o == op("floor") || o == op("ceil") || o == op("round") || o == op("trunc");
    if (settled && made_by(x, o)) return x;
    if (o == op("abs") && made_by(x, op("neg"))) return emit(o, {inside(x, op("neg"))}, {});
    return {};
  }

  Value binary(Op o, Value a, Value b) {
    const bool real = is_floating(g_.type(a).dtype);
    if (o == op("mul")) {
      if (is(b, 1)) return a;
      if (is(a, 1)) return b;
      if (is(b, -1)) return emit(op("neg"), {a}, {});
      if (is(a, -1)) return emit(op("neg"), {b}, {});
      if (!real && (is(a, 0) || is(b, 0))) return constant_of(0, g_.type(a));
    }
    if ((o == op("div") || o == op("floor_divide")) && is(b, 1) && (o == op("div") || !real)) return a;
    if (o == op("pow") && is(b, 1)) return a;
    if (o == op("add")) return sum(a, b, real);
    if (o == op("sub")) {
      if (is(b, 0)) return a;
      const Value n = inside(b, op("neg"));
      if (n.valid()) return emit(op("add"), {a, n}, {});
    }
    const bool idempotent = o == op("maximum") || o == op("minimum") || o == op("logical_and") ||
                            o == op("logical_or") || o == op("bitwise_and") || o == op("bitwise_or");
    return idempotent && a == b ? a : Value{};
  }
  /// Floats: only -0 is neutral, for -0 + 0 is 0.
  Value sum(Value a, Value b, bool real) {
    const double neutral = real ? -0.0 : 0.0;
    if (is(b, neutral)) return a;
    if (is(a, neutral)) return b;
    if (const Value n = inside(b, op("neg")); n.valid()) return emit(op("sub"), {a, n}, {});
    if (const Value n = inside(a, op("neg")); n.valid()) return emit(op("sub"), {b, n}, {});
    return {};
  }

  // --- reductions ---

  Value reduce(Op o, const std::vector<Value>& in, const Attrs& attrs) {
    if (ints(attrs, 0).empty()) return in[0];
    const bool extremum = o == op("amax") || o == op("amin");
    if (const std::optional<double> c = constant(in[0]); c && extremum)
      return constant_of(*c, infer_type(o, {{g_.type(in[0])}}, attrs));
    return {};
  }

  // --- views ---

  Value view(Op o, const std::vector<Value>& in, const Attrs& attrs) {
    const Value x = in[0];
    if (o == op("cat")) return cat(in, attrs);
    if (o == op("pad")) return pad(x, attrs);
    if (o == op("skew")) return skew(x, attrs);
    if (const std::optional<double> c = constant(x))
      return constant_of(*c, infer_type(o, {{g_.type(x)}}, attrs));
    if (o == op("expand")) return expand(x, dims(attrs, 0));
    if (o == op("reshape")) return reshaped(x, dims(attrs, 0));
    if (o == op("permute")) return permute(x, ints(attrs, 0));
    if (o == op("slice")) return slice(x, attrs);
    if (o == op("flip")) return flip(x, ints(attrs, 0));
    if (o == op("window")) return window(x, attrs);
    return {};
  }

  /// Windows of one element, each the next one.
  Value window(Value x, const Attrs& attrs) {
    if (std::get<int64_t>(attrs[1]) != 1 || std::get<int64_t>(attrs[2]) != 1) return {};
    return reshape(x, infer_type(op("window"), {{g_.type(x)}}, attrs).shape);
  }
  Value skew(Value x, const Attrs& attrs) {
    const Dim& size = g_.type(x).shape[static_cast<size_t>(std::get<int64_t>(attrs[0]))];
    return std::get<int64_t>(attrs[1]) == 0 && dims(attrs, 2)[0] == size ? x : Value{};
  }

  Value pad(Value x, const Attrs& attrs) {
    const Shape &low = dims(attrs, 0), &high = dims(attrs, 1);
    for (size_t d = 0; d < low.size(); ++d)
      if (!low[d].is(0) || !high[d].is(0) || ints(attrs, 2)[d] != 0) return {};
    return x;
  }

  static Shape without_lead(const Shape& s) {
    return {std::find_if(s.begin(), s.end(), [](const Dim& d) { return !d.is(1); }), s.end()};
  }
  Value expand(Value x, const Shape& to) {
    const Shape& from = g_.type(x).shape;
    if (from == to) return x;
    if (without_lead(from) == without_lead(to)) return reshape(x, to);
    if (const Node* n = made_by(x, op("expand"))) return emit(op("expand"), {n->in[0]}, {to});
    const Node* n = made_by(x, op("reshape"));
    // A reshape that only adds or drops 1s on the left says nothing that expand does not say.
    if (n && g_.type(n->in[0]).rank() <= static_cast<int>(to.size()) &&
        without_lead(g_.type(n->in[0]).shape) == without_lead(from))
      return emit(op("expand"), {n->in[0]}, {to});
    return {};
  }

  Value reshaped(Value x, const Shape& to) {
    if (g_.type(x).shape == to) return x;
    const Value before = inside(x, op("reshape"));
    return before.valid() ? reshape(before, to) : Value{};
  }

  Value permute(Value x, const Ints& p) {
    const Shape& from = g_.type(x).shape;
    Ints moved;  // dims that hold more than one element, in their new order
    Shape to;
    for (int64_t d : p) {
      to.push_back(from[static_cast<size_t>(d)]);
      if (!to.back().is(1)) moved.push_back(d);
    }
    if (std::is_sorted(moved.begin(), moved.end())) return reshape(x, to);
    const Node* n = made_by(x, op("permute"));
    if (!n) return {};
    Ints both;
    for (int64_t d : p) both.push_back(ints(n->attrs, 0)[static_cast<size_t>(d)]);
    return emit(op("permute"), {n->in[0]}, {both});
  }

  Value flip(Value x, const Ints& which) {
    const Shape& shape = g_.type(x).shape;
    Ints kept;
    for (int64_t d : which)
      if (!shape[static_cast<size_t>(d)].is(1)) kept.push_back(d);
    std::sort(kept.begin(), kept.end());
    if (kept.empty()) return x;
    if (kept != which) return emit(op("flip"), {x}, {kept});
    const Node* n = made_by(x, op("flip"));
    if (!n) return {};
    Ints odd;
    std::set_symmetric_difference(kept.begin(), kept.end(), ints(n->attrs, 0).begin(),
                                  ints(n->attrs, 0).end(), std::back_inserter(odd));
    return emit(op("flip"), {n->in[0]}, {odd});
  }

  Value slice(Value x, const Attrs& attrs) {
    const Shape &from = dims(attrs, 0), &to = dims(attrs, 1), &shape = g_.type(x).shape;
    const Ints& step = ints(attrs, 2);
    bool whole = true, unit = true;
    for (size_t d = 0; d < shape.size(); ++d) {
      whole = whole && from[d].is(0) && to[d] == shape[d] && step[d] == 1;
      unit = unit && step[d] == 1;
    }
    if (whole) return x;
    if (const Node* n = made_by(x, op("slice"))) return slice_of_slice(*n, from, to, unit);
    if (const Node* n = made_by(x, op("cat")); n && unit) return slice_of_cat(*n, from, to);
    return {};
  }
  Value slice_of_slice(const Node& inner, const Shape& from, const Shape& to, bool unit) {
    const Ints& step = ints(inner.attrs, 2);
    if (!unit || std::any_of(step.begin(), step.end(), [](int64_t s) { return s != 1; })) return {};
    Shape start = dims(inner.attrs, 0), stop = start;
    for (size_t d = 0; d < start.size(); ++d) {
      stop[d] = start[d] + to[d];
      start[d] = start[d] + from[d];
    }
    return emit(op("slice"), {inner.in[0]}, {start, stop, step});
  }
  /// A part of one operand of the cat.
  Value slice_of_cat(const Node& cat, const Shape& from, const Shape& to) {
    const size_t dim = static_cast<size_t>(std::get<int64_t>(cat.attrs[0]));
    const std::vector<Value> operands = cat.in;
    Dim at = 0;
    for (Value v : operands) {
      const Dim first = from[dim] - at, last = to[dim] - at, size = g_.type(v).shape[dim];
      const Dim after = size - last;
      const bool inside = first.is_const() && first.value() >= 0 && after.is_const() && after.value() >= 0;
      if (inside) {
        Shape start = from, stop = to;
        start[dim] = first, stop[dim] = last;
        return emit(op("slice"), {v}, {start, stop, Ints(start.size(), 1)});
      }
      at = at + size;
    }
    return {};
  }
  /// No kernel joins more tensors than this: a device takes only so many addresses.
  static constexpr size_t kMostJoined = 128;
  Value cat_inside_cat(const std::vector<Value>& in, const Attrs& attrs) {
    std::vector<Value> flat;
    for (const Value v : in) {
      const Node* n = made_by(v, op("cat"));
      if (n && n->attrs == attrs) flat.insert(flat.end(), n->in.begin(), n->in.end());
      else flat.push_back(v);
    }
    return flat.size() > in.size() && flat.size() <= kMostJoined ? emit(op("cat"), flat, attrs) : Value{};
  }
  Value cat(const std::vector<Value>& in, const Attrs& attrs) {
    const auto dim = static_cast<size_t>(std::get<int64_t>(attrs[0]));
    std::vector<Value> full = in;
    std::erase_if(full, [&](Value v) { return g_.type(v).shape[dim].is(0); });
    if (full.empty() || in.size() == 1) return in[0];
    if (full.size() < in.size()) return emit(op("cat"), full, attrs);
    if (in.size() <= kMostJoined) return cat_inside_cat(in, attrs);
    std::vector<Value> parts;
    for (size_t i = 0; i < in.size(); i += kMostJoined)
      parts.push_back(
          emit(op("cat"), {in.begin() + i, in.begin() + std::min(i + kMostJoined, in.size())}, attrs));
    return emit(op("cat"), parts, attrs);
  }

  detail::Rewrite r_;
  Graph& g_;
  Origin origin_;
};

Graph simplify_all(Graph now) {
  struct Pass {
    const char* name;
    Graph (*run)(const Graph&);
  };
  static constexpr Pass kPasses[] = {
      {"simplify", simplify}, {"CSE", eliminate_common_subexpressions}, {"DCE", eliminate_dead_code}};
  for (std::string before, text = print(now, {.canonical = true}); before != text;) {
    before = std::move(text);
    for (const Pass& pass : kPasses) {
      now = pass.run(now);
      check_graph(now, pass.name);
    }
    text = print(now, {.canonical = true});
  }
  return now;
}

}  // namespace

Graph simplify(const Graph& g) { return Simplifier(g).run(); }

Graph optimize(const Graph& g) {
  struct Pass {
    const char* name;
    std::optional<Graph> (*run)(const Graph&);
  };
  Graph now = simplify_all(g);
  bool changed = false;
  for (const Pass& pass : {Pass{"row updates", update_rows}, Pass{"channels last", place_channels_last}})
    if (std::optional<Graph> next = pass.run(now)) {
      now = std::move(*next);
      check_graph(now, pass.name);
      changed = true;
    }
  return changed ? simplify_all(std::move(now)) : now;
}

void check_graph(const Graph& g, const char* what) {
  if (!option_flag("KILN_VERIFY")) return;
  verify(g);
  const std::string text = print(g, {.origins = false});
  KILN_ASSERT(print(parse_graph(text), {.origins = false}) == text,
              "{}: the graph's text does not read back:\n{}", what, text);
}

}  // namespace kiln
