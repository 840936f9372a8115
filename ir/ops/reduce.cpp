// SPDX-License-Identifier: Apache-2.0
// Reductions. The order of additions is fixed by the shape: chunks of kChunk elements, lanes within a chunk,
// chunks combined in order. Sums of floats are carried in double and rounded once.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/ops/loops.h"
#include "ir/ops/rules.h"

namespace kiln {

namespace {

using namespace rules;  // NOLINT: the rows are written in terms of its words

// --- the combine functions: A is the type carried, C the compute type ---

struct Sum {
  template <typename C>
  using acc = std::conditional_t<std::is_floating_point_v<C>, double, int64_t>;
  template <typename A>
  static A identity() {
    return A(0);
  }
  template <typename A>
  static A combine(A a, A b) {
    if constexpr (std::is_same_v<A, int64_t>) return A(uint64_t(a) + uint64_t(b));
    else return a + b;
  }
};
struct Prod {
  template <typename C>
  using acc = C;
  template <typename A>
  static A identity() {
    return A(1);
  }
  template <typename A>
  static A combine(A a, A b) {
    if constexpr (std::is_same_v<A, int64_t>) return A(uint64_t(a) * uint64_t(b));
    else return a * b;
  }
};
template <typename A>
constexpr A lowest() {
  return std::is_floating_point_v<A> ? -std::numeric_limits<A>::infinity() : std::numeric_limits<A>::min();
}
template <typename A>
constexpr A highest() {
  return std::is_floating_point_v<A> ? std::numeric_limits<A>::infinity() : std::numeric_limits<A>::max();
}
struct Amax {
  template <typename C>
  using acc = C;
  template <typename A>
  static A identity() {
    return lowest<A>();
  }
  template <typename A>
  static A combine(A a, A b) {
    return (a > b || a != a) ? a : b;
  }
};
struct Amin {
  template <typename C>
  using acc = C;
  template <typename A>
  static A identity() {
    return highest<A>();
  }
  template <typename A>
  static A combine(A a, A b) {
    return (a < b || a != a) ? a : b;
  }
};

constexpr int64_t kChunk = 1 << 15;  // elements of a chunk along the reduced dims, when they lie dense
constexpr int64_t kRows = 1024;      // and when the kept dims do
constexpr int kLanes = 16;

/// The input as kept dims x reduced dims.
struct Split {
  std::vector<int64_t> kept_shape, kept_strides, shape, strides;
  int64_t outs = 1, count = 1;
};
Split split(const TensorRef& x, std::span<const int64_t> dims) {
  std::vector<int64_t> ks, kt, rs, rt;
  for (size_t d = 0; d < x.shape.size(); ++d) {
    const bool reduced = std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) != dims.end();
    (reduced ? rs : ks).push_back(x.shape[d]);
    (reduced ? rt : kt).push_back(x.strides[d]);
  }
  Split s;
  for (int64_t v : ks) s.outs *= v;
  for (int64_t v : rs) s.count *= v;
  if (s.outs == 0 || s.count == 0) return s;
  const std::vector<int64_t>* one[] = {&kt};
  loops::Loops l = loops::collapse(ks, one);
  s.kept_shape = l.shape, s.kept_strides = l.strides[0];
  one[0] = &rt;
  l = loops::collapse(rs, one);
  s.shape = l.shape, s.strides = l.strides[0];
  return s;
}

int64_t offset_of(int64_t flat, std::span<const int64_t> shape, std::span<const int64_t> strides) {
  int64_t offset = 0;
  for (size_t d = shape.size(); d-- > 0; flat /= shape[d]) offset += flat % shape[d] * strides[d];
  return offset;
}

template <typename F, typename C, typename A>
A fold(const C* x, int64_t n) {
  A lane[kLanes];
  std::fill(lane, lane + kLanes, F::template identity<A>());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) lane[l] = F::template combine<A>(lane[l], A(x[i + l]));
  for (int l = 0; i < n; ++i, ++l) lane[l] = F::template combine<A>(lane[l], A(x[i]));
  for (int w = kLanes / 2; w > 0; w /= 2)
    for (int l = 0; l < w; ++l) lane[l] = F::template combine<A>(lane[l], lane[l + w]);
  return lane[0];
}

/// partial[chunk][out]: each (out, chunk) reads its elements in blocks.
template <typename F, typename C, typename A>
void along_rows(const Split& s, const char* data, const loops::Move& load, int64_t chunks, A* partial) {
  const int64_t size = static_cast<int64_t>(load.from);
  parallel_for(
      s.outs * chunks, std::max<int64_t>(1, kChunk / std::min(s.count, kChunk)), [&](int64_t b, int64_t e) {
        alignas(64) C buffer[loops::kBlock];
        for (int64_t t = b; t < e; ++t) {
          const int64_t out = t / chunks, chunk = t % chunks;
          const char* from = data + offset_of(out, s.kept_shape, s.kept_strides) * size;
          A sum = F::template identity<A>();
          for (int64_t i = chunk * kChunk; i < std::min(s.count, (chunk + 1) * kChunk); i += loops::kBlock) {
            const int64_t n = std::min(loops::kBlock, s.count - i);
            const void* x = loops::read_block(from, s.shape, s.strides, load, i, n, buffer);
            sum = F::template combine<A>(sum, fold<F, C, A>(static_cast<const C*>(x), n));
          }
          partial[chunk * s.outs + out] = sum;
        }
      });
}

/// The kept dims are dense: a tile of outputs is carried over a chunk of rows.
template <typename F, typename C, typename A>
void along_columns(const Split& s, const char* data, const loops::Move& load, int64_t chunks, A* partial) {
  const int64_t size = static_cast<int64_t>(load.from), tiles = (s.outs + loops::kBlock - 1) / loops::kBlock;
  parallel_for(tiles * chunks, 1, [&](int64_t b, int64_t e) {
    alignas(64) C buffer[loops::kBlock];
    for (int64_t t = b; t < e; ++t) {
      const int64_t first = t / chunks * loops::kBlock, chunk = t % chunks;
      const int64_t n = std::min(loops::kBlock, s.outs - first);
      A* sum = partial + chunk * s.outs + first;
      std::fill(sum, sum + n, F::template identity<A>());
      for (int64_t i = chunk * kRows; i < std::min(s.count, (chunk + 1) * kRows); ++i) {
        const char* row = data + offset_of(i, s.shape, s.strides) * size;
        const C* x = static_cast<const C*>(
            loops::read_block(row, s.kept_shape, s.kept_strides, load, first, n, buffer));
        for (int64_t j = 0; j < n; ++j) sum[j] = F::template combine<A>(sum[j], A(x[j]));
      }
    }
  });
}

template <typename F, typename C>
void reduce(const Split& s, const TensorRef& x, const TensorRef& out) {
  using A = typename F::template acc<C>;
  const loops::Move load = loops::load_of(x.dtype), store = loops::store_of(out.dtype);
  const bool columns =
      s.count > 0 && std::abs(s.kept_strides.back()) < std::abs(s.strides.back()) && s.outs > 1;
  const int64_t per = columns ? kRows : kChunk, chunks = (s.count + per - 1) / per;
  std::vector<A> partial(static_cast<size_t>(s.outs * std::max<int64_t>(1, chunks)),
                         F::template identity<A>());
  const char* data = static_cast<const char*>(x.data);
  if (chunks > 0)
    (columns ? along_columns<F, C, A> : along_rows<F, C, A>)(s, data, load, chunks, partial.data());
  for (int64_t c = 1; c < chunks; ++c)
    for (int64_t o = 0; o < s.outs; ++o)
      partial[o] = F::template combine<A>(partial[o], partial[c * s.outs + o]);
  std::vector<C> result(partial.begin(), partial.begin() + s.outs);
  store.loop(result.data(), 1, out.data, s.outs);
}

template <typename F>
void eval(const EvalArgs& a) {
  const Split s = split(a.in[0], ints(a.attrs, 0));
  if (s.outs == 0) return;
  switch (loops::compute_dtype(a.in[0].dtype)) {
    case DType::f32: return reduce<F, float>(s, a.in[0], a.out[0]);
    case DType::f64: return reduce<F, double>(s, a.in[0], a.out[0]);
    default: return reduce<F, int64_t>(s, a.in[0], a.out[0]);
  }
}

/// First place of the best element; a NaN beats all.
template <typename C, bool kMax>
int64_t best_place(const C* x, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 1; i < n && x[best] == x[best]; ++i)
    if ((kMax ? x[i] > x[best] : x[i] < x[best]) || x[i] != x[i]) best = i;
  return best;
}
template <bool kMax>
void eval_place(const EvalArgs& a) {
  const TensorRef& x = a.in[0];
  const Split s = split(x, ints(a.attrs, 0));
  if (s.outs == 0) return;
  const loops::Move load = loops::load_of(x.dtype);
  int64_t* out = static_cast<int64_t*>(a.out[0].data);
  parallel_for(s.outs, std::max<int64_t>(1, kChunk / s.count), [&](int64_t b, int64_t e) {
    std::vector<uint64_t> buffer(static_cast<size_t>(s.count));
    for (int64_t o = b; o < e; ++o) {
      const char* from = static_cast<const char*>(x.data) +
                         offset_of(o, s.kept_shape, s.kept_strides) * static_cast<int64_t>(load.from);
      const void* row = loops::read_block(from, s.shape, s.strides, load, 0, s.count, buffer.data());
      switch (loops::compute_dtype(x.dtype)) {
        case DType::f32: out[o] = best_place<float, kMax>(static_cast<const float*>(row), s.count); break;
        case DType::f64: out[o] = best_place<double, kMax>(static_cast<const double*>(row), s.count); break;
        default: out[o] = best_place<int64_t, kMax>(static_cast<const int64_t*>(row), s.count);
      }
    }
  });
}

// --- type rules ---

constexpr AttrDef reduce_attrs[] = {{"dims", AttrKind::ints}};

Type reduced(const InferArgs& a, DType t) {
  const Type& x = a.in[0];
  const std::vector<int64_t>& dims = ints(a.attrs, 0);
  want_dims(a, dims, x.rank());
  Type out{t, {}};
  for (int d = 0; d < x.rank(); ++d)
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) out.shape.push_back(x.shape[d]);
  return out;
}
void want_some(const InferArgs& a) {
  for (int64_t d : ints(a.attrs, 0))
    if (a.in[0].shape[d].is(0))
      a.fail("dim {} of {} is empty, so there is no element to take", d, a.in[0].str());
}
/// Shapes: [...] -> without dims. Throws: invalid, on bool, and dims out of range or given twice.
Type sum_infer(const InferArgs& a) {
  want_number(a, 0);
  return reduced(a, a.in[0].dtype);
}
/// Shapes: [...] -> without dims. Throws: invalid, on an empty dim, and dims out of range or given twice.
Type extremum_infer(const InferArgs& a) {
  const Type t = reduced(a, a.in[0].dtype);
  want_some(a);
  return t;
}
/// Shapes: [...] -> without the dim, i64. Throws: invalid, on an empty dim, one out of range, and more
/// than one.
Type place_infer(const InferArgs& a) {
  if (ints(a.attrs, 0).size() != 1) a.fail("takes one dim; got ({})", fmt::join(ints(a.attrs, 0), ","));
  const Type t = reduced(a, DType::i64);
  want_some(a);
  return t;
}

// --- derivatives ---

std::vector<Value> sum_grad(const GradArgs& a) {
  return {unreduce(a.b, a.grad[0], a.in[0], ints(a.attrs, 0))};
}
/// g * p / x without zeros; with one zero only it gets p, the product of the others; with more nobody does.
std::vector<Value> prod_grad(const GradArgs& a) {
  Builder& b = a.b;
  const Value x = a.in[0], one = b.constant_like(1, x), zero = zeros_like(b, x);
  const auto& dims = ints(a.attrs, 0);
  const Value is_zero = b.emit(op("eq"), {x, zero});
  const Value zeros = unreduce(b, b.sum(b.cast(is_zero, b.type(x).dtype), dims), x, dims);
  const Value nonzero = where(b, is_zero, one, x);
  const Value p = mul(b, a.grad[0], b.emit(op("prod"), {nonzero}, {dims}));
  const Value alone = where(b, b.emit(op("eq"), {zeros, one}), one, zero);
  const Value others = where(b, b.emit(op("eq"), {zeros, zero}), div(b, one, nonzero), zero);
  return {mul(b, unreduce(b, p, x, dims), where(b, is_zero, alone, others))};
}
/// Ties share the gradient evenly.
std::vector<Value> extremum_grad(const GradArgs& a) {
  Builder& b = a.b;
  const Value x = a.in[0];
  const auto& dims = ints(a.attrs, 0);
  const Value hit = b.cast(b.emit(op("eq"), {x, unreduce(b, a.out[0], x, dims)}), b.type(x).dtype);
  return {mul(b, hit, unreduce(b, div(b, a.grad[0], b.sum(hit, dims)), x, dims))};
}

// clang-format off
constinit const OpDef rows[] = {
    {.name = "sum", .kind = OpKind::reduce, .attrs = reduce_attrs, .infer = sum_infer,
     .grad = sum_grad, .eval = eval<Sum>, .body = "kn::add({0}, {1})",
     .doc = "Sum over dims; 0 over nothing.", .source = "torch.sum"},
    {.name = "prod", .kind = OpKind::reduce, .attrs = reduce_attrs, .infer = sum_infer,
     .grad = prod_grad, .eval = eval<Prod>, .body = "kn::mul({0}, {1})",
     .doc = "Product over dims; 1 over nothing. Gradients are exact with zeros, second ones without.",
     .source = "torch.prod"},
    {.name = "amax", .kind = OpKind::reduce, .attrs = reduce_attrs, .infer = extremum_infer,
     .grad = extremum_grad, .eval = eval<Amax>, .body = "kn::max({0}, {1})",
     .doc = "Largest over dims, NaN if there is one; bool: any. Ties share the gradient.",
     .source = "torch.amax"},
    {.name = "amin", .kind = OpKind::reduce, .attrs = reduce_attrs, .infer = extremum_infer,
     .grad = extremum_grad, .eval = eval<Amin>, .body = "kn::min({0}, {1})",
     .doc = "Smallest over dims, NaN if there is one; bool: all. Ties share the gradient.",
     .source = "torch.amin"},
    {.name = "argmax", .kind = OpKind::reduce, .attrs = reduce_attrs, .infer = place_infer,
     .constant_gradient = true, .eval = eval_place<true>,
     .doc = "First index of the largest element along one dim; the first NaN wins.",
     .source = "torch.argmax"},
    {.name = "argmin", .kind = OpKind::reduce, .attrs = reduce_attrs, .infer = place_infer,
     .constant_gradient = true, .eval = eval_place<false>,
     .doc = "First index of the smallest element along one dim; the first NaN wins.",
     .source = "torch.argmin"},
};
// clang-format on

}  // namespace

std::span<const OpDef> reduce_ops() { return rows; }

}  // namespace kiln
