// SPDX-License-Identifier: Apache-2.0
// Ops whose places are read from a tensor, and their adjoints. Negative indices count from the end; an index
// out of range is an error. Adjoints add in the order of the indices, so they are deterministic.
#include <algorithm>

#include "ir/ops/loops.h"
#include "ir/ops/rules.h"

namespace kiln {

namespace {

using namespace rules;  // NOLINT: the rows are written in terms of its words

constexpr AttrDef dim_attrs[] = {{"dim", AttrKind::integer}};

// --- type rules ---

void want_index(const InferArgs& a, size_t i) {
  const DType t = a.in[i].dtype;
  if (t != DType::i32 && t != DType::i64) a.fail("indices must be i32 or i64; got {}", a.in[i].str());
}
/// The attribute, checked against the rank of input 0.
size_t dim_of(const InferArgs& a) {
  const int64_t dim = integer(a.attrs, 0);
  want_dims(a, {&dim, 1}, a.in[0].rank(), "dim");
  return static_cast<size_t>(dim);
}
Shape taken(const Shape& x, const Shape& idx, size_t dim) {
  Shape s(x.begin(), x.begin() + static_cast<int64_t>(dim));
  s.insert(s.end(), idx.begin(), idx.end());
  s.insert(s.end(), x.begin() + static_cast<int64_t>(dim) + 1, x.end());
  return s;
}
/// Shapes: x [..., n, ...], idx [k...] -> [..., k..., ...]. Throws: invalid, unless idx is i32 or i64, on a
/// dim out of range, and, when it runs, on an index out of range.
Type take_infer(const InferArgs& a) {
  want_index(a, 1);
  return {a.in[0].dtype, taken(a.in[0].shape, a.in[1].shape, dim_of(a))};
}
/// Shapes: base [..., n, ...], idx [k...], src [..., k..., ...] -> as base. Throws: invalid, on another
/// src, bool, and as take.
Type index_add_infer(const InferArgs& a) {
  want_index(a, 1);
  want_number(a, 0);
  const Type expected{a.in[0].dtype, taken(a.in[0].shape, a.in[1].shape, dim_of(a))};
  if (a.in[2] != expected)
    a.fail("source has the wrong type; got {}, expected {}", a.in[2].str(), expected.str());
  return a.in[0];
}
/// Indices of x's rank, not larger than x beside `dim`.
void want_along(const InferArgs& a) {
  want_index(a, 1);
  const size_t dim = dim_of(a);
  const Shape &x = a.in[0].shape, &idx = a.in[1].shape;
  bool ok = x.size() == idx.size();
  for (size_t d = 0; ok && d < x.size(); ++d)
    ok = d == dim || x[d] == idx[d] ||
         (x[d].is_const() && idx[d].is_const() && idx[d].value() <= x[d].value());
  if (!ok)
    a.fail("indices do not fit; got {} for {}, expected the same rank and no larger size beside dim {}",
           a.in[1].str(), a.in[0].str(), dim);
}
/// Shapes: x of a rank, idx of that rank, no larger beside dim -> as idx. Throws: invalid, on another idx,
/// and as take.
Type take_along_infer(const InferArgs& a) {
  want_along(a);
  return {a.in[0].dtype, a.in[1].shape};
}
/// Shapes: base, idx as of take_along, src as idx -> as base. Throws: invalid, on another idx or src, and
/// as take.
Type scatter_infer(const InferArgs& a) {
  want_along(a);
  const Type expected{a.in[0].dtype, a.in[1].shape};
  if (a.in[2] != expected)
    a.fail("source has the wrong type; got {}, expected {}", a.in[2].str(), expected.str());
  return a.in[0];
}

/// Shapes: base, idx as of take_along, src as idx -> as base. Throws: invalid, on another idx or src, bool,
/// and as take.
Type scatter_number_infer(const InferArgs& a) {
  want_number(a, 0);
  return scatter_infer(a);
}

// --- evaluation ---

/// The indices as int64 from 0 to bound - 1. Checked here, before any thread runs.
std::vector<int64_t> read_indices(const TensorRef& idx, int64_t bound, std::string_view name) {
  std::vector<int64_t> out(static_cast<size_t>(idx.numel()));
  const HostTensor dense = contiguous({idx, nullptr});
  const bool wide = idx.dtype == DType::i64;
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t v = wide ? static_cast<const int64_t*>(dense.ref.data)[i]
                           : static_cast<const int32_t*>(dense.ref.data)[i];
    KILN_CHECK(v >= -bound && v < bound, invalid,
               "{}: index out of range; got {} at position {}, expected {} to {}", name, v, i, -bound,
               bound - 1);
    out[i] = v < 0 ? v + bound : v;
  }
  return out;
}

/// x as [outer, size, inner] around `dim`.
struct Blocks {
  int64_t outer = 1, size = 1, inner = 1;
};
Blocks blocks(std::span<const int64_t> shape, size_t dim) {
  Blocks b;
  for (size_t d = 0; d < shape.size(); ++d) (d < dim ? b.outer : d > dim ? b.inner : b.size) *= shape[d];
  return b;
}

void take_eval(const EvalArgs& a) {
  const size_t dim = static_cast<size_t>(integer(a.attrs, 0));
  const Blocks b = blocks(a.in[0].shape, dim);
  const std::vector<int64_t> idx = read_indices(a.in[1], b.size, "take");
  const HostTensor x = contiguous({a.in[0], nullptr});
  const int64_t n = static_cast<int64_t>(idx.size()),
                row = b.inner * static_cast<int64_t>(dtype_size(x.ref.dtype));
  if (row == 0) return;
  const char* from = static_cast<const char*>(x.ref.data);
  char* to = static_cast<char*>(a.out[0].data);
  parallel_for(b.outer * n, std::max<int64_t>(1, (1 << 15) / row), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::copy_n(from + (i / n * b.size + idx[i % n]) * row, row, to + i * row);
  });
}

/// Calls add(C* acc, const C* src) with base and src dense in the compute type; acc ends in `out`.
template <typename C, typename F>
void accumulate(const EvalArgs& a, const F& add) {
  const TensorRef& out = a.out[0];
  HostTensor base{a.in[0], nullptr}, src{a.in[2], nullptr}, acc{out, nullptr};
  const bool same = out.dtype == dtype_of<C>();
  if (!same) {
    base = evaluate(op("cast"), {{base}}, {dtype_of<C>()});
    src = evaluate(op("cast"), {{src}}, {dtype_of<C>()});
    acc = make_host_tensor(dtype_of<C>(), out.shape);
  }
  copy_elements(base.ref, acc.ref);
  src = contiguous(src);
  add(static_cast<C*>(acc.ref.data), static_cast<const C*>(src.ref.data));
  if (!same) loops::store_of(out.dtype).loop(acc.ref.data, 1, out.data, out.numel());
}
template <typename F>
void accumulate(const EvalArgs& a, const F& add) {
  switch (loops::compute_dtype(a.out[0].dtype)) {
    case DType::f32: return accumulate<float>(a, add);
    case DType::f64: return accumulate<double>(a, add);
    default: return accumulate<int64_t>(a, add);
  }
}
template <typename C>
void add_to(C& to, C v) {
  if constexpr (std::is_same_v<C, int64_t>) to = C(uint64_t(to) + uint64_t(v));
  else to += v;
}

void index_add_eval(const EvalArgs& a) {
  const Blocks b = blocks(a.in[0].shape, static_cast<size_t>(integer(a.attrs, 0)));
  const std::vector<int64_t> idx = read_indices(a.in[1], b.size, "index_add");
  const int64_t n = static_cast<int64_t>(idx.size());
  constexpr int64_t kTile = 256;
  const int64_t tiles = (b.inner + kTile - 1) / kTile;
  accumulate(a, [&](auto* acc, const auto* src) {
    parallel_for(b.outer * tiles, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t o = t / tiles, first = t % tiles * kTile, m = std::min(kTile, b.inner - first);
        for (int64_t i = 0; i < n; ++i) {
          auto* to = acc + (o * b.size + idx[i]) * b.inner + first;
          const auto* from = src + (o * n + i) * b.inner + first;
          for (int64_t j = 0; j < m; ++j) add_to(to[j], from[j]);
        }
      }
    });
  });
}

/// For every place of idx in row-major order: f(place, the offset it names in a dense x).
template <typename F>
void each_along(const TensorRef& x, const TensorRef& index, size_t dim, std::string_view name, const F& f) {
  const std::vector<int64_t> idx = read_indices(index, x.shape[dim], name);
  const std::vector<int64_t> strides = contiguous_strides(x.shape), own = contiguous_strides(index.shape);
  for (size_t i = 0; i < idx.size(); ++i) {
    int64_t at = idx[i] * strides[dim];
    for (size_t d = 0; d < own.size(); ++d)
      if (d != dim) at += static_cast<int64_t>(i) / own[d] % index.shape[d] * strides[d];
    f(static_cast<int64_t>(i), at);
  }
}
void take_along_eval(const EvalArgs& a) {
  const HostTensor x = contiguous({a.in[0], nullptr});
  const int64_t size = static_cast<int64_t>(dtype_size(x.ref.dtype));
  const char* from = static_cast<const char*>(x.ref.data);
  char* to = static_cast<char*>(a.out[0].data);
  each_along(x.ref, a.in[1], static_cast<size_t>(integer(a.attrs, 0)), "take_along",
             [&](int64_t i, int64_t at) { std::copy_n(from + at * size, size, to + i * size); });
}
/// F::f(old, new) for every source, in the order of the indices.
template <typename F>
void scatter_eval(const EvalArgs& a) {
  accumulate(a, [&](auto* acc, const auto* src) {
    each_along(a.in[0], a.in[1], static_cast<size_t>(integer(a.attrs, 0)), F::kName,
               [&](int64_t i, int64_t at) { F::f(acc[at], src[i]); });
  });
}
struct ScatterAdd {
  static constexpr const char* kName = "scatter_add";
  template <typename C>
  static void f(C& to, C v) {
    add_to(to, v);
  }
};
struct ScatterProd {
  static constexpr const char* kName = "scatter_prod";
  template <typename C>
  static void f(C& to, C v) {
    if constexpr (std::is_same_v<C, int64_t>) to = C(uint64_t(to) * uint64_t(v));
    else to *= v;
  }
};
struct ScatterAmax {
  static constexpr const char* kName = "scatter_amax";
  template <typename C>
  static void f(C& to, C v) {
    to = to > v || to != to ? to : v;
  }
};
struct ScatterAmin {
  static constexpr const char* kName = "scatter_amin";
  template <typename C>
  static void f(C& to, C v) {
    to = to < v || to != to ? to : v;
  }
};
/// Moves elements as they are.
void scatter_set_eval(const EvalArgs& a) {
  copy_elements(a.in[0], a.out[0]);
  const HostTensor src = contiguous({a.in[2], nullptr});
  const auto size = static_cast<int64_t>(dtype_size(src.ref.dtype));
  const char* from = static_cast<const char*>(src.ref.data);
  char* to = static_cast<char*>(a.out[0].data);
  each_along(a.in[0], a.in[1], static_cast<size_t>(integer(a.attrs, 0)), "scatter",
             [&](int64_t i, int64_t at) { std::copy_n(from + i * size, size, to + at * size); });
}

// --- derivatives ---

std::vector<Value> take_grad(const GradArgs& a) {
  return {a.b.emit(op("index_add"), {zeros_like(a.b, a.in[0]), a.in[1], a.grad[0]}, a.attrs), Value{}};
}
std::vector<Value> index_add_grad(const GradArgs& a) {
  return {a.grad[0], Value{}, a.needs[2] ? a.b.emit(op("take"), {a.grad[0], a.in[1]}, a.attrs) : Value{}};
}
std::vector<Value> take_along_grad(const GradArgs& a) {
  return {a.b.emit(op("scatter_add"), {zeros_like(a.b, a.in[0]), a.in[1], a.grad[0]}, a.attrs), Value{}};
}
std::vector<Value> scatter_add_grad(const GradArgs& a) {
  return {a.grad[0], Value{},
          a.needs[2] ? a.b.emit(op("take_along"), {a.grad[0], a.in[1]}, a.attrs) : Value{}};
}
/// What was overwritten gets nothing; each source that of its place, also one that a later one overwrote, as
/// in PyTorch.
std::vector<Value> scatter_grad(const GradArgs& a) {
  Builder& b = a.b;
  Value base, src;
  if (a.needs[0]) {
    const Value none = b.constant(0, b.type(a.in[2]));
    base = b.emit(op("scatter"), {a.grad[0], a.in[1], none}, a.attrs);
  }
  if (a.needs[2]) src = b.emit(op("take_along"), {a.grad[0], a.in[1]}, a.attrs);
  return {base, Value{}, src};
}
/// out / x times the gradient, as for prod: a single zero gets the product of the others.
/// Source: PyTorch's scatter_reduce_backward.
std::vector<Value> scatter_prod_grad(const GradArgs& a) {
  Builder& b = a.b;
  const Value base = a.in[0], idx = a.in[1], src = a.in[2], g = a.grad[0];
  const auto is_zero = [&](Value x) { return b.emit(op("eq"), {x, zeros_like(b, x)}); };
  const auto along = [&](Value x) { return b.emit(op("take_along"), {x, idx}, a.attrs); };
  Value for_base, for_src;
  if (a.needs[0]) {
    const Value masked = where(b, is_zero(base), b.constant_like(1, base), base);
    const Value result = b.emit(op("scatter_prod"), {masked, idx, src}, a.attrs);
    for_base = div(b, mul(b, g, result), masked);
  }
  if (a.needs[2]) {
    const Value one = b.constant_like(1, src), zero = is_zero(src);
    const Value counted =
        b.emit(op("scatter_add"), {zeros_like(b, base), idx, b.cast(zero, b.type(src).dtype)}, a.attrs);
    const Value single = b.emit(op("logical_and"), {zero, b.emit(op("eq"), {along(counted), one})});
    const Value others = b.emit(op("scatter_prod"), {base, idx, where(b, single, one, src)}, a.attrs);
    const Value quotient = div(b, along(mul(b, g, a.out[0])), where(b, zero, one, src));
    for_src = where(b, single, mul(b, along(g), along(others)), quotient);
  }
  return {for_base, Value{}, for_src};
}
/// All that are as large as the result share the gradient evenly.
std::vector<Value> scatter_extremum_grad(const GradArgs& a) {
  Builder& b = a.b;
  const Value idx = a.in[1], out = a.out[0];
  const DType t = b.type(out).dtype;
  const Value base_hits = b.cast(b.emit(op("eq"), {a.in[0], out}), t);
  const Value best = b.emit(op("take_along"), {out, idx}, a.attrs);
  const Value src_hits = b.cast(b.emit(op("eq"), {a.in[2], best}), t);
  const Value share = div(b, a.grad[0], b.emit(op("scatter_add"), {base_hits, idx, src_hits}, a.attrs));
  return {mul(b, base_hits, share), Value{},
          a.needs[2] ? mul(b, src_hits, b.emit(op("take_along"), {share, idx}, a.attrs)) : Value{}};
}

// clang-format off
constinit const OpDef rows[] = {
    {.name = "take", .kind = OpKind::gather, .attrs = dim_attrs, .inputs = 2, .infer = take_infer,
     .grad = take_grad, .eval = take_eval, .flops = 0,
     .doc = "x[..., idx, ...]: idx of any rank stands in for the dim.",
     .source = "torch.index_select"},
    {.name = "take_along", .kind = OpKind::gather, .attrs = dim_attrs, .inputs = 2,
     .infer = take_along_infer, .grad = take_along_grad, .eval = take_along_eval, .flops = 0,
     .doc = "Element of x at each place of idx, with idx's value along the dim.",
     .source = "torch.gather"},
    {.name = "index_add", .kind = OpKind::scatter, .attrs = dim_attrs, .inputs = 3,
     .infer = index_add_infer, .grad = index_add_grad, .eval = index_add_eval,
     .body = "kn::add({0}, {1})",
     .doc = "base with src added at the places take reads.", .source = "torch.Tensor.index_add"},
    {.name = "scatter_add", .kind = OpKind::scatter, .attrs = dim_attrs, .inputs = 3,
     .infer = scatter_number_infer, .grad = scatter_add_grad, .eval = scatter_eval<ScatterAdd>,
     .body = "kn::add({0}, {1})",
     .doc = "base with src added at the places take_along reads.",
     .source = "torch.Tensor.scatter_add"},
    {.name = "scatter", .kind = OpKind::scatter, .attrs = dim_attrs, .inputs = 3,
     .infer = scatter_infer, .grad = scatter_grad, .eval = scatter_set_eval,
     .body = "{1}", .flops = 0,
     .doc = "base with src put at the places take_along reads; the last one stays.",
     .source = "torch.Tensor.scatter"},
    {.name = "scatter_prod", .kind = OpKind::scatter, .attrs = dim_attrs, .inputs = 3,
     .infer = scatter_number_infer, .grad = scatter_prod_grad, .eval = scatter_eval<ScatterProd>,
     .body = "kn::mul({0}, {1})",
     .doc = "base times src at the places take_along reads.",
     .source = "torch.Tensor.scatter_reduce"},
    {.name = "scatter_amax", .kind = OpKind::scatter, .attrs = dim_attrs, .inputs = 3,
     .infer = scatter_number_infer, .grad = scatter_extremum_grad, .eval = scatter_eval<ScatterAmax>,
     .body = "kn::max({0}, {1})",
     .doc = "The larger of base and src at the places take_along reads. Ties share the gradient.",
     .source = "torch.Tensor.scatter_reduce"},
    {.name = "scatter_amin", .kind = OpKind::scatter, .attrs = dim_attrs, .inputs = 3,
     .infer = scatter_number_infer, .grad = scatter_extremum_grad, .eval = scatter_eval<ScatterAmin>,
     .body = "kn::min({0}, {1})",
     .doc = "The smaller of base and src at the places take_along reads. Ties share the gradient.",
     .source = "torch.Tensor.scatter_reduce"},
};
// clang-format on

}  // namespace

std::span<const OpDef> index_ops() { return rows; }

}  // namespace kiln
