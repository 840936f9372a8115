// SPDX-License-Identifier: Apache-2.0
// Patterns that kernels treat as a whole: linear layers with what follows them, attention, convolutions,
// normalisation, embeddings, dropout, updates in place, derivatives. Shapes and details are drawn.
#include "tests/ir/random_values.h"

namespace kiln::testing {

Value RandomPatterns::pattern() {
  switch (rng_.below(8)) {
    case 0: return attention();
    case 1: return normalise();
    case 2: return embedding();
    case 3: return dropout();
    case 4: return views_into_matmul();
    case 5: return views_into_sum();
    case 6: return convolutions();
    default: return linear();
  }
}

Value RandomPatterns::tame() {
  Value x = any();
  x = clamp(cast(x, o_.f64 && rng_.chance(15) ? DType::f64 : DType::f32), -2, 2);
  return type(x).rank() > 0 ? x : b_.expand(x, {random_size()});
}

/// Rows of `a` by rows (transposed) or columns of the matrix `b`.
Value RandomPatterns::matmul(Value a, Value b, bool transposed) {
  const int64_t last = type(a).rank() - 1;
  return b_.emit(op("dot_general"), {a, b}, {Ints{}, Ints{}, Ints{last}, Ints{transposed ? 1 : 0}});
}

Value RandomPatterns::linear() {
  const Value x = tame();
  const Dim k = type(x).shape.back(), n = random_size();
  const bool transposed = rng_.chance(60);
  const Value w = input({type(x).dtype, transposed ? Shape{n, k} : Shape{k, n}}, InputKind::param);
  return epilogue(keep(matmul(x, w, transposed)));
}

/// What follows a contraction: bias, activation, residual, scales of rows, other readers.
Value RandomPatterns::epilogue(Value y) {
  const Type t = type(y);
  Shape rows = t.shape;
  if (!rows.empty()) rows.back() = 1;
  for (int64_t left = rng_.below(4); left > 0; --left) {
    switch (rng_.below(7)) {
      case 0: {
        const Type bias{t.dtype, t.shape.empty() ? Shape{} : Shape{t.shape.back()}};
        y = binary(op("add"), y, b_.expand(input(bias, InputKind::param), t.shape));
        break;
      }
      case 1: y = binary(op("maximum"), y, b_.constant_like(0, y)); break;
      case 2: y = unary(rng_.chance(50) ? op("tanh") : op("sigmoid"), y); break;
      case 3: y = binary(op("mul"), y, added(unary(op("erf"), scaled(y, 0.7071)), 1)); break;
      case 4: y = binary(op("add"), y, adapt(any(), t)); break;
      case 5: y = binary(op("mul"), y, b_.expand(adapt(tame(), {t.dtype, rows}), t.shape)); break;
      default: y = b_.emit(op("where"), {binary(op("gt"), y, b_.constant_like(0, y)), y, scaled(y, 0.1)});
    }
    if (rng_.chance(30)) keep(y);
  }
  return y;
}

Value RandomPatterns::softmax(Value x) {
  const Shape s = type(x).shape;
  Shape kept = s;
  kept.back() = 1;
  const Ints last = {static_cast<int64_t>(s.size()) - 1};
  const auto spread = [&](Value v) { return b_.expand(b_.reshape(v, kept), s); };
  const Value e = unary(op("exp"), binary(op("sub"), x, spread(b_.emit(op("amax"), {x}, {last}))));
  return binary(op("div"), e, spread(b_.sum(e, last)));
}

/// softmax(q k^T) v over heads that are cut out of the last dim.
Value RandomPatterns::attention() {
  const Dim b = 1 + rng_.below(2), h = 1 + rng_.below(3), t = random_size(), d = random_size();
  if (t.is(0)) return {};
  const auto heads = [&] {
    const Value x = clamp(adapt(any(), {DType::f32, {b, t, h * d}}), -2, 2);
    return b_.permute(b_.reshape(x, {b, t, h, d}), {0, 2, 1, 3});
  };
  const Value q = heads(), k = heads(), v = heads();
  Value s = b_.emit(op("dot_general"), {q, k}, {Ints{0, 1}, Ints{0, 1}, Ints{3}, Ints{3}});
  s = scaled(s, 0.5);
  if (rng_.chance(50)) {
    const Shape square = {t, t};
    const Value row = b_.emit(op("iota"), {}, {int64_t{0}, square}),
                col = b_.emit(op("iota"), {}, {int64_t{1}, square});
    s = b_.emit(op("where"),
                {b_.expand(binary(op("ge"), row, col), type(s).shape), s, b_.constant_like(-1e9, s)});
  }
  const Value y = b_.emit(op("dot_general"), {softmax(s), v}, {Ints{0, 1}, Ints{0, 1}, Ints{3}, Ints{2}});
  return b_.reshape(b_.permute(y, {0, 2, 1, 3}), {b, t, h * d});
}

/// One or two convolutions of lines or images, with what stands around them in a network.
Value RandomPatterns::convolutions() {
  Shape s = {1 + rng_.below(3), random_size()};
  for (int64_t left = 1 + rng_.below(2); left > 0; --left) s.push_back(3 + rng_.below(8));
  Value x = tame();
  x = clamp(adapt(x, {type(x).dtype, s}), -2, 2);
  for (int64_t left = 1 + rng_.below(2); left > 0; --left) {
    x = convolution(x);
    s = type(x).shape;
    Shape channels(s.size() - 1, Dim(1));
    channels[0] = s[1];
    const Value bias = input({type(x).dtype, channels}, InputKind::param);
    if (rng_.chance(40)) x = binary(op("add"), x, b_.expand(bias, s));
    Ints places = {0};
    for (size_t d = 2; d < s.size(); ++d) places.push_back(static_cast<int64_t>(d));
    if (rng_.chance(40)) x = normalised(x, places);
    if (rng_.chance(50)) x = binary(op("maximum"), x, b_.constant_like(0, x));
  }
  return b_.reshape(x, {s[0], s[1], numel(Shape(s.begin() + 2, s.end()))});
}

/// x [n, c, space...] with a kernel of one to three places a dim, padded or not.
Value RandomPatterns::convolution(Value x) {
  const int64_t rank = type(x).rank();
  const Dim c = type(x).shape[1];
  Shape kernel = {random_size(), c};
  Ints sums = {1}, order = {0}, of_kernel = {1};
  Shape low(static_cast<size_t>(rank), Dim(0));
  for (int64_t d = 2; d < rank; ++d) low[static_cast<size_t>(d)] = rng_.below(2);
  x = b_.emit(op("pad"), {x}, {low, low, Ints(static_cast<size_t>(rank), 0), 0.0});
  for (int64_t d = rank; d-- > 2;) {
    const int64_t n = type(x).shape[static_cast<size_t>(d)].value(),
                  size = 1 + rng_.below(std::min<int64_t>(n, 3));
    const int64_t dilation = size == 1 || rng_.chance(70) ? 1 : 1 + rng_.below((n - 1) / (size - 1));
    x = b_.emit(op("window"), {x}, {d, size, 1 + rng_.below(3), dilation});
    kernel.insert(kernel.begin() + 2, Dim(size));
  }
  for (int64_t d = 2; d < rank; ++d) sums.push_back(2 * d - 1), of_kernel.push_back(d);
  const Value w = input({type(x).dtype, kernel}, InputKind::param);
  const bool first = rng_.chance(50);
  const Value y = first ? b_.emit(op("dot_general"), {w, x}, {Ints{}, Ints{}, of_kernel, sums})
                        : b_.emit(op("dot_general"), {x, w}, {Ints{}, Ints{}, sums, of_kernel});
  const int64_t out = first ? 0 : rank - 1;
  for (int64_t d = 0; d < rank; ++d)
    if (d != out) order.push_back(d);
  order[0] = order[1];
  order[1] = out;
  return b_.permute(y, order);
}

/// (x - mean) / deviation over some dims, which need not be neighbours.
Value RandomPatterns::normalise() {
  const Value x = tame();
  Ints dims = random_dims(type(x).rank(), 60);
  if (dims.empty()) dims = {type(x).rank() - 1};
  const Value y = normalised(x, dims);
  if (!y.valid() || rng_.chance(50)) return y;
  return binary(op("mul"), y,
                b_.expand(input({type(x).dtype, {type(x).shape.back()}}, InputKind::param), type(x).shape));
}
Value RandomPatterns::normalised(Value x, const Ints& dims) {
  const Shape s = type(x).shape;
  int64_t n = 1;
  Shape kept = s;
  for (int64_t d : dims) n *= s[static_cast<size_t>(d)].value(), kept[static_cast<size_t>(d)] = 1;
  if (n == 0) return {};
  const auto mean = [&](Value v) {
    return b_.expand(b_.reshape(scaled(b_.sum(v, dims), 1.0 / static_cast<double>(n)), kept), s);
  };
  const Value c = binary(op("sub"), x, mean(x));
  return binary(op("mul"), c, unary(op("rsqrt"), added(mean(binary(op("mul"), c, c)), 0.1)));
}

/// Rows of a table, and now and then a gradient into it.
Value RandomPatterns::embedding() {
  const Dim n = random_size(), d = random_size();
  if (n.is(0)) return {};
  const Value table = input({DType::f32, {n, d}}, InputKind::param);
  const Value at = indices(Shape{random_size()}, n.value());
  const Value rows = keep(b_.emit(op("take"), {table, at}, {int64_t{0}}));
  if (rng_.chance(50)) return rows;
  const Value base = rng_.chance(50) ? b_.constant(0, {DType::f32, {n, d}}) : table;
  return b_.emit(op("index_add"), {base, at, adapt(any(), type(rows))}, {int64_t{0}});
}

Value RandomPatterns::dropout() {
  const Value x = tame();
  const Value seed = g_.add_input({DType::i64, {}}, InputKind::scalar, "seed");
  const Value r =
      b_.emit(op("random_uniform"), {seed, b_.constant(rng_.below(4), {DType::i64, {}})}, {type(x).shape});
  const Value keeps = binary(op("lt"), r, b_.constant_like(0.75, r));
  return b_.emit(op("where"), {keeps, scaled(x, 4.0 / 3), b_.constant_like(0, x)});
}

/// A view or two of x, of the same rank.
Value RandomPatterns::viewed(Value x) {
  for (int64_t left = rng_.below(3); left > 0; --left) {
    const Shape s = type(x).shape;
    Shape from, to, low, high;
    Ints step, interior;
    for (const Dim& d : s) {
      const int64_t cut = rng_.chance(40) && d.value() > 1 ? 1 : 0;
      from.push_back(cut), to.push_back(d), step.push_back(rng_.chance(25) ? 2 : 1);
      low.push_back(rng_.below(2)), high.push_back(rng_.below(2)), interior.push_back(0);
    }
    switch (rng_.below(5)) {
      case 0: x = b_.emit(op("slice"), {x}, {from, to, step}); break;
      case 1: x = b_.emit(op("pad"), {x}, {low, high, interior, 1.0}); break;
      case 2: x = b_.emit(op("flip"), {x}, {random_dims(type(x).rank(), 50)}); break;
      case 3: x = b_.permute(x, {1, 0}); break;
      default: x = b_.reshape(b_.expand(b_.reshape(x, {s[0], 1, s[1]}), {s[0], 2, s[1]}), {s[0] * 2, s[1]});
    }
  }
  return x;
}

/// A product of views of matrices, and a view of it.
Value RandomPatterns::views_into_matmul() {
  const Value x = tame();
  const DType t = type(x).dtype;
  const Value a = viewed(adapt(x, {t, {random_size(), random_size()}}));
  const bool transposed = rng_.chance(50);
  const Dim k = type(a).shape[1], n = random_size();
  Value b = viewed(clamp(adapt(any(), {t, {n, k}}), -2, 2));
  if (type(b).shape[1] != k) b = adapt(b, {t, {n, k}});
  if (!transposed) b = b_.permute(b, {1, 0});
  return viewed(epilogue(keep(matmul(a, b, transposed))));
}

/// A sum (or another reduction) of a value seen through merged, cut, turned and mirrored dims.
Value RandomPatterns::views_into_sum() {
  Value x = tame();
  for (int64_t left = 1 + rng_.below(4); left > 0; --left) {
    const Shape& s = type(x).shape;
    const int64_t rank = static_cast<int64_t>(s.size()), dim = rng_.below(std::max<int64_t>(rank, 1));
    const Dim n = numel(s);
    switch (rng_.below(5)) {
      case 0: x = b_.reshape(x, {n}); break;
      case 1:  // each even dim cut in two
        if (rank > 0 && s[static_cast<size_t>(dim)].value() % 2 == 0) {
          Shape cut = s;
          cut[static_cast<size_t>(dim)] = Dim(s[static_cast<size_t>(dim)].value() / 2);
          cut.insert(cut.begin() + dim + rng_.below(2), Dim(2));
          x = b_.reshape(x, cut);
        }
        break;
      case 2:
        if (rank > 1) {
          Ints order(static_cast<size_t>(rank));
          for (int64_t d = 0; d < rank; ++d) order[static_cast<size_t>(d)] = (d + dim) % rank;
          x = b_.permute(x, order);
        }
        break;
      default:
        if (rank > 0) x = b_.emit(op("flip"), {x}, {Ints{dim}});
    }
  }
  const Value y = rng_.chance(30) ? binary(op("mul"), x, b_.emit(op("flip"), {x}, {Ints{0}})) : x;
  const Ints dims = random_dims(type(y).rank(), 60);
  return rng_.chance(60) || numel(type(y).shape).is(0) ? b_.sum(y, dims) : b_.emit(op("amax"), {y}, {dims});
}

/// SGD, AdamW, or just another value in place of an input; now and then two inputs change places.
void RandomPatterns::updates() {
  const Value rate = g_.add_input({DType::f32, {}}, InputKind::scalar, "rate");
  const size_t before = g_.inputs.size();
  for (size_t i = 0; i < before; ++i)
    if (g_.inputs[i].kind != InputKind::scalar && rng_.chance(40)) update_of(static_cast<int>(i), rate);
  if (!rng_.chance(30)) return;
  const Type t = random_type();
  const int at = static_cast<int>(g_.inputs.size());
  const Value a = input(t), b = input(t);
  g_.add_output(a, at + 1, "swapped");
  g_.add_output(rng_.chance(50) ? b : adapt(any(), t), at, "swapped");
}

void RandomPatterns::update_of(int index, Value rate) {
  const Value p = g_.inputs[static_cast<size_t>(index)].value;
  const Type t = type(p);
  if (t.dtype != DType::f32 || rng_.chance(20)) {
    g_.add_output(adapt(any(), t), index, "replaced");
    return;
  }
  const Value g = clamp(adapt(any(), t), -2, 2), lr = b_.expand(rate, t.shape);
  if (rng_.chance(50)) {
    g_.add_output(binary(op("sub"), p, binary(op("mul"), g, lr)), index, "stepped");
    return;
  }
  const int m_index = static_cast<int>(g_.inputs.size());
  const Value m = g_.add_input(t, InputKind::state, "m"), v = g_.add_input(t, InputKind::state, "v");
  const Value m2 = binary(op("add"), scaled(m, 0.9), scaled(g, 0.1));
  const Value v2 =
      binary(op("add"), scaled(unary(op("abs"), v), 0.99), scaled(binary(op("mul"), g, g), 0.01));
  const Value step = binary(op("div"), binary(op("mul"), m2, lr), added(unary(op("sqrt"), v2), 1e-3));
  g_.add_output(binary(op("sub"), scaled(p, 0.99), step), index, "stepped");
  g_.add_output(m2, m_index, "m");
  g_.add_output(v2, m_index + 1, "v");
}

void RandomPatterns::derivative() {
  const auto at = std::find_if(pool_.rbegin(), pool_.rend(),
                               [&](Value v) { return is_floating(type(v).dtype) && g_.producer(v) >= 0; });
  if (at == pool_.rend()) return;
  const Value root = *at;
  const std::vector<Node> nodes = g_.nodes;  // emitting moves the graph's own
  std::vector<TapeEntry> tape;
  for (const Node& n : nodes) tape.push_back({n.op, n.in, n.out, &n.attrs, {}});
  const Value seed = adapt(tame(), type(root));
  const auto differentiable = [&](Value v) { return is_floating(type(v).dtype); };
  for (const auto& [v, gradient] : differentiate(b_, {tape, {{root, seed}}, differentiable, {}, {}}))
    if (g_.producer(v) < 0) g_.add_output(gradient, -1, "gradient");
}

}  // namespace kiln::testing
