// SPDX-License-Identifier: Apache-2.0
#include "tests/ir/random_graph.h"

#include "ir/bucket_layout.h"
#include "tests/ir/random_values.h"

namespace kiln::testing {

namespace {

class Generator : RandomPatterns {
 public:
  Generator(uint64_t seed, const RandomGraphOptions& o) : RandomPatterns(seed, o) {
    if (o.only.empty()) {
      for (const OpDef* d : all_ops()) ops_.push_back(*find_op(d->name));
    } else {
      for (std::string_view name : o.only) ops_.push_back(*find_op(name));
    }
  }

  Graph run() {
    for (int i = 0, n = 1 + static_cast<int>(rng_.below(3)); i < n; ++i) input(random_type());
    for (int made = 0, tries = 0; made < o_.nodes && tries < 50 * o_.nodes; ++tries) made += step();
    const int outs = 1 + static_cast<int>(rng_.below(o_.max_outputs));
    for (int i = 0; i < outs; ++i) {
      Value v = i == 0 ? pool_.back() : any();
      if (rng_.chance(10) && g_.producer(v) < 0) v = pool_.back();
      g_.add_output(v, -1, fmt::format("out{}", i));
    }
    if (o_.updates) updates();
    if (o_.derivative) derivative();
    verify(g_);
    return std::move(g_);
  }

 private:
  bool step() {
    if (o_.pattern_percent > 0 && rng_.chance(o_.pattern_percent)) {
      const Value v = pattern();
      if (v.valid()) keep(v);
      return v.valid();
    }
    const Op o = ops_[static_cast<size_t>(rng_.below(static_cast<int64_t>(ops_.size())))];
    Value v;
    switch (def(o).kind) {
      case OpKind::elementwise: v = elementwise(o); break;
      case OpKind::reduce: v = reduce(o); break;
      case OpKind::view: v = view(o); break;
      case OpKind::gather:
      case OpKind::scatter: v = indexed(o); break;
      case OpKind::scan: v = scan(o); break;
      case OpKind::sort: v = sort(o); break;
      case OpKind::contract: v = contract(); break;
      case OpKind::effect: v = effect(o); break;
    }
    if (!v.valid()) return false;
    keep(v);
    return true;
  }

  Value elementwise(Op o) {
    const OpDef& d = def(o);
    const Value x = any();
    if (o == op("cast")) return b_.emit(o, {rng_.chance(70) ? x : clamp(x, -4, 4)}, {random_dtype()});
    if (o == op("constant")) return constant(random_type());
    if (o == op("iota")) return iota(random_type().shape);
    if (o == op("random_uniform")) {
      const Value seed = rng_.chance(50) ? g_.add_input({DType::i64, {}}, InputKind::scalar, "seed")
                                         : b_.constant(7, {DType::i64, {}});
      return b_.emit(o, {seed, b_.constant(rng_.below(4), {DType::i64, {}})}, {random_type().shape});
    }
    if (o == op("where")) {
      const Value y = adapt(any(), type(x));
      return b_.emit(o, {adapt(any(), {DType::boolean, type(x).shape}), x, y});
    }
    // A dtype that the row takes.
    for (int tries = 0; tries < 12; ++tries) {
      const Type t{tries == 0 ? type(x).dtype : tries > 8 ? DType::i64 : random_dtype(), type(x).shape};
      const std::vector<Type> types(static_cast<size_t>(d.inputs), t);
      if (!accepts(o, types)) continue;
      std::vector<Value> in;
      for (int i = 0; i < d.inputs; ++i)
        in.push_back(operand(d, i == 0 ? cast(x, t.dtype) : adapt(any(), t)));
      if (o == op("floor_divide") || o == op("remainder") || o == op("fmod")) in[1] = nonzero(in[1]);
      return b_.emit(o, in, {});
    }
    return {};
  }
  static bool accepts(Op o, const std::vector<Type>& types) {
    try {
      infer_type(o, types, {});
      return true;
    } catch (const Error&) {
      return false;
    }
  }
  /// Clamped where the row says that its domain is not the usual one, or where products would explode.
  Value operand(const OpDef& d, Value v) {
    const bool usual = d.lo == OpDef{}.lo && d.hi == OpDef{}.hi;
    const bool grows = d.name == "mul" || rng_.chance(15);
    const bool as_it_comes = !o_.clamped && is_floating(type(v).dtype);
    return as_it_comes || (usual && !grows) ? v : clamp(v, d.lo, d.hi);
  }
  Value nonzero(Value v) {
    if (is_floating(type(v).dtype)) return v;
    return b_.emit(op("maximum"), {v, b_.constant_like(1 + rng_.below(3), v)});
  }
  Value constant(const Type& t) {
    constexpr double kValues[] = {0, 1, 2, 1, -1, 3, 0.5, -0.0};
    const double v = kValues[rng_.below(8)];
    if (t.dtype == DType::boolean) return b_.constant(v > 0 ? 1 : 0, t);
    return b_.constant(is_floating(t.dtype) ? v : std::fabs(std::trunc(v)), t);
  }
  Value reduce(Op o) {
    Value x = any();
    if (type(x).dtype == DType::boolean && (o == op("sum") || o == op("prod"))) x = cast(x, DType::f32);
    Ints dims = random_dims(type(x).rank(), 60);
    if (def(o).constant_gradient) {  // argmax, argmin
      if (type(x).rank() == 0) return {};
      dims = {rng_.below(type(x).rank())};
    }
    if (o == op("prod")) x = clamp(x, -2, 2);
    if (o != op("sum") && o != op("prod"))
      for (int64_t d : dims)
        if (type(x).shape[static_cast<size_t>(d)].is(0)) return {};
    return b_.emit(o, {x}, {dims});
  }

  Value view(Op o) {
    const Value x = any();
    const Shape& s = type(x).shape;
    const int rank = type(x).rank();
    if (o == op("expand")) return b_.emit(o, {x}, {expanded(s)});
    if (o == op("reshape")) return b_.emit(o, {x}, {reshaped(s)});
    if (o == op("flip")) return b_.emit(o, {x}, {random_dims(rank, 50)});
    if (o == op("slice")) return slice(x);
    if (o == op("pad")) return pad(x);
    if (o == op("cat")) return cat(x);
    if (o == op("window")) return window(x);
    if (o == op("skew")) return skew(x);
    Ints p;
    for (int i = 0; i < rank; ++i) p.insert(p.begin() + rng_.below(i + 1), i);
    return b_.emit(op("permute"), {x}, {p});
  }
  Shape expanded(Shape s) {
    for (Dim& d : s)
      if (d.is(1) && rng_.chance(70)) d = random_size();
    while (static_cast<int>(s.size()) < o_.max_rank && rng_.chance(40)) s.insert(s.begin(), random_size());
    return s;
  }
  Shape reshaped(Shape s) {
    if (rng_.chance(40)) return {numel(s)};
    if (s.size() > 1 && rng_.chance(60)) {  // two neighbours become one, or swap
      const size_t at = static_cast<size_t>(rng_.below(static_cast<int64_t>(s.size()) - 1));
      if (rng_.chance(50)) {
        s[at] = s[at] * s[at + 1];
        s.erase(s.begin() + static_cast<int64_t>(at) + 1);
      } else {
        std::swap(s[at], s[at + 1]);
      }
      return s;
    }
    if (static_cast<int>(s.size()) < o_.max_rank)
      s.insert(s.begin() + rng_.below(static_cast<int64_t>(s.size()) + 1), 1);
    return s;
  }
  Value slice(Value x) {
    Shape from, to;
    Ints step;
    for (const Dim& d : type(x).shape) {
      const int64_t n = d.value(), a = rng_.below(n + 1), z = a + rng_.below(n - a + 1);
      const bool whole = rng_.chance(30) || (a == z && !rng_.chance(o_.empty_percent));
      from.push_back(whole ? 0 : a);
      to.push_back(whole ? n : z);
      step.push_back(1 + (rng_.chance(30) ? rng_.below(3) : 0));
    }
    return b_.emit(op("slice"), {x}, {from, to, step});
  }
  Value pad(Value x) {
    Shape low, high;
    Ints interior;
    for (int i = 0; i < type(x).rank(); ++i) {
      low.push_back(rng_.below(3));
      high.push_back(rng_.below(3));
      interior.push_back(rng_.chance(25) ? 1 + rng_.below(2) : 0);
    }
    const double value = type(x).dtype == DType::boolean ? rng_.below(2) : rng_.below(3);
    return b_.emit(op("pad"), {x}, {low, high, interior, value});
  }
  Value cat(Value x) {
    if (type(x).rank() == 0) return {};
    const int64_t dim = rng_.below(type(x).rank());
    std::vector<Value> in = {x};
    for (int64_t n = rng_.below(3); n > 0; --n) {
      Type t = type(x);
      t.shape[static_cast<size_t>(dim)] = random_size();
      in.push_back(adapt(any(), t));
    }
    return b_.emit(op("cat"), in, {dim});
  }
  Value window(Value x) {
    if (type(x).rank() == 0 || type(x).rank() >= o_.max_rank + 1) return {};
    const int64_t dim = rng_.below(type(x).rank()), n = type(x).shape[static_cast<size_t>(dim)].value();
    if (n == 0) return {};
    const int64_t size = 1 + rng_.below(std::min<int64_t>(n, 3));
    const int64_t dilation = size == 1 || rng_.chance(60) ? 1 : 1 + rng_.below((n - 1) / (size - 1));
    return b_.emit(op("window"), {x}, {dim, size, 1 + rng_.below(3), dilation});
  }
  Value skew(Value x) {
    if (type(x).rank() < 2) return {};
    const int64_t dim = rng_.below(type(x).rank() - 1);
    return b_.emit(op("skew"), {x}, {dim, rng_.below(5) - 2, Shape{random_size()}});
  }

  Value scan(Op o) {
    Value x = any();
    if (type(x).rank() == 0) return {};
    const bool number = o != op("cumargmax") && o != op("cumargmin");
    if (o == op("logcumsumexp") && !is_floating(type(x).dtype)) x = cast(x, DType::f32);
    if (number && type(x).dtype == DType::boolean) x = cast(x, DType::f32);
    if (o == op("cumprod")) x = clamp(x, -2, 2);
    return b_.emit(o, {x}, {rng_.below(type(x).rank())});
  }
  Value sort(Op o) {
    Value x = any();
    if (type(x).rank() == 0) return {};
    if (o == op("argsort")) {
      // What was computed may be equal but for rounding, in any order: whole numbers are equal, or apart.
      if (is_floating(type(x).dtype) && g_.producer(x) >= 0) x = b_.emit(op("round"), {x});
      return b_.emit(o, {x}, {rng_.below(type(x).rank()), rng_.chance(50)});
    }
    if (type(x).dtype == DType::boolean) x = cast(x, DType::f32);
    // A running sum of magnitudes is sorted.
    const Type line{type(x).dtype, {random_size()}};
    const Value steps = b_.emit(op("abs"), {clamp(adapt(any(), line), -2, 2)});
    return b_.emit(o, {b_.emit(op("cumsum"), {steps}, {int64_t{0}}), x}, {rng_.chance(50)});
  }

  Value indexed(Op o) {
    const Value x = any();
    const Type t = type(x);
    if (t.rank() == 0) return {};
    const int64_t dim = rng_.below(t.rank());
    const int64_t bound = t.shape[static_cast<size_t>(dim)].value();
    if (bound == 0) return {};
    const bool along = o == op("take_along") || def(o).name.starts_with("scatter");
    Shape s = along ? t.shape : random_type().shape;
    if (along) s[static_cast<size_t>(dim)] = random_size();
    if (!along && s.size() > 2) s.pop_back();
    const Value idx = indices(s, bound);
    if (def(o).inputs == 2) return b_.emit(o, {x, idx}, {dim});
    if (t.dtype == DType::boolean && o != op("scatter")) return {};
    const Op reads = along ? op("take_along") : op("take");
    const std::vector<Type> types = {t, type(idx)};
    return b_.emit(o, {x, idx, adapt(any(), infer_type(reads, types, {dim}))}, {dim});
  }

  /// One of the summed pieces, or of those whose mean is taken in bf16: what lies between them is
  /// unspecified.
  Value effect(Op o) {
    const DType t = rng_.chance(50) ? DType::f32 : DType::f64;
    std::vector<Value> pieces;
    std::vector<Type> types;
    for (int64_t i = 0, n = 1 + rng_.below(3); i < n; ++i) {
      pieces.push_back(cast(clamp(any(), -2, 2), t));
      types.push_back(type(pieces.back()));
    }
    const Value sums = b_.emit(o, pieces, {int64_t{0}, rng_.chance(30) ? DType::bf16 : t});
    const auto i = static_cast<size_t>(rng_.below(static_cast<int64_t>(pieces.size())));
    const Dim from = bucket_layout(types).offsets[i];
    const Value piece =
        b_.emit(op("slice"), {sums}, {Shape{from}, Shape{from + numel(types[i].shape)}, Ints{1}});
    return b_.reshape(piece, types[i].shape);
  }

  Value contract() {
    Value a = any();
    if (type(a).dtype == DType::boolean) a = cast(a, DType::f32);
    a = clamp(a, -2, 2);
    const Type ta = type(a);
    Ints batch_a, batch_b, contract_a, contract_b;
    Type tb{ta.dtype, {}};
    for (int d = 0; d < ta.rank();
         ++d) {  // b gets a's shared dims in front, in a's order, then turned around
      const int64_t role = rng_.below(3);
      if (role == 0) continue;
      (role == 1 ? batch_a : contract_a).push_back(d);
      (role == 1 ? batch_b : contract_b).push_back(static_cast<int64_t>(tb.shape.size()));
      tb.shape.push_back(ta.shape[static_cast<size_t>(d)]);
    }
    for (int64_t n = rng_.below(2); n > 0; --n) tb.shape.push_back(random_size());
    Value b = clamp(adapt(any(), tb), -2, 2);
    if (rng_.chance(40)) {
      const int64_t last = static_cast<int64_t>(tb.shape.size()) - 1;
      Ints p;
      for (int64_t d = last; d >= 0; --d) p.push_back(d);
      b = b_.permute(b, p);
      for (Ints* dims : {&batch_b, &contract_b})
        for (int64_t& d : *dims) d = last - d;
    }
    return b_.emit(op("dot_general"), {a, b}, {batch_a, batch_b, contract_a, contract_b});
  }

  std::vector<Op> ops_;
};

}  // namespace

Graph random_graph(uint64_t seed, const RandomGraphOptions& options) {
  return Generator(seed, options).run();
}

RandomGraphOptions fuzz_options(uint64_t seed) {
  RandomGraphOptions o;
  o.nodes = 2 + static_cast<int>(seed % 13);
  o.chain = seed % 3 == 0;
  o.pattern_percent = 15;
  o.updates = seed % 3 == 1;
  o.derivative = seed % 5 == 2;
  o.halves = seed % 4 == 2;
  if (seed % 5 == 0) o.sizes = {1, 2, 7, 16, 33, 70};
  if (seed % 11 == 0) o.sizes = {1, 6, 64, 130, 300}, o.max_rank = 2;
  if (seed % 13 == 0) o.max_rank = 5, o.sizes = {1, 2, 3, 6};
  return o;
}

std::vector<HostTensor> random_inputs(const Graph& g, uint64_t seed) {
  Rng rng{seed ^ 0x5EED};
  std::vector<HostTensor> out;
  for (const GraphInput& in : g.inputs) {
    const Type& t = g.type(in.value);
    const bool number = t.dtype != DType::boolean;
    const double lo = !number || t.dtype == DType::u8 ? 0 : is_floating(t.dtype) ? -2 : -5;
    out.push_back(random_tensor(t.dtype, static_shape(t), rng, lo,
                                !number                ? 1
                                : is_floating(t.dtype) ? 2
                                                       : 5));
  }
  return out;
}

}  // namespace kiln::testing
