// SPDX-License-Identifier: Apache-2.0
// Running results along one dim: element i combines the elements 0 to i, in that order.
#include <cmath>
#include <limits>

#include "ir/ops/loops.h"
#include "ir/ops/rules.h"

namespace kiln {

namespace {

using namespace rules;  // NOLINT: the rows are written in terms of its words

constexpr AttrDef dim_attrs[] = {{"dim", AttrKind::integer}};

// --- type rules ---

Type along(const InferArgs& a, DType t) {
  const int64_t dim = integer(a.attrs, 0);
  want_dims(a, {&dim, 1}, a.in[0].rank(), "dim");
  return {t, a.in[0].shape};
}
/// Shapes: [...] -> [...]. Throws: invalid, on bool, and a dim out of range.
Type number_infer(const InferArgs& a) {
  want_number(a, 0);
  return along(a, a.in[0].dtype);
}
/// Shapes: [...] -> [...]. Throws: invalid, unless it is floating, and on a dim out of range.
Type floating_infer(const InferArgs& a) {
  want_floating(a, 0);
  return along(a, a.in[0].dtype);
}
/// Shapes: [...] -> [...], i64. Throws: invalid, on a dim out of range.
Type place_infer(const InferArgs& a) { return along(a, DType::i64); }

// --- evaluation ---

/// F<C>::line(x, out, n, stride) for every line of the dim; x and out are dense in the compute type.
template <template <typename> typename F>
void eval(const EvalArgs& a) {
  const auto dim = static_cast<size_t>(integer(a.attrs, 0));
  const DType c = loops::compute_dtype(a.in[0].dtype);
  const bool same = a.in[0].dtype == c;
  const HostTensor x = contiguous(same ? HostTensor{a.in[0], nullptr}
                                       : evaluate(op("cast"), {{HostTensor{a.in[0], nullptr}}}, {c}));
  int64_t outer = 1, inner = 1;
  const std::vector<int64_t>& shape = x.ref.shape;
  for (size_t d = 0; d < shape.size(); ++d) (d < dim ? outer : inner) *= d == dim ? 1 : shape[d];
  const int64_t n = shape[dim];
  const auto run = [&]<typename C>(C) {
    using O = typename F<C>::Out;
    const bool direct = a.out[0].dtype == dtype_of<O>();
    const HostTensor result =
        direct ? HostTensor{a.out[0], nullptr} : make_host_tensor(dtype_of<O>(), a.out[0].shape);
    const C* from = static_cast<const C*>(x.ref.data);
    O* to = static_cast<O*>(result.ref.data);
    parallel_for(outer * inner, std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(1, n)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t first = i / inner * n * inner + i % inner;
                     F<C>::line(from + first, to + first, n, inner);
                   }
                 });
    if (!direct) loops::store_of(a.out[0].dtype).loop(result.ref.data, 1, a.out[0].data, a.out[0].numel());
  };
  if (x.ref.numel() == 0) return;
  switch (c) {
    case DType::f32: return run(float{});
    case DType::f64: return run(double{});
    default: return run(int64_t{});
  }
}

/// Floats are carried in double and rounded at each element.
template <typename C>
struct Cumsum {
  using Out = C;
  using Acc = std::conditional_t<std::is_floating_point_v<C>, double, uint64_t>;
  static void line(const C* x, C* out, int64_t n, int64_t stride) {
    Acc sum = 0;
    for (int64_t i = 0; i < n; ++i) out[i * stride] = C(sum += Acc(x[i * stride]));
  }
};
template <typename C>
struct Cumprod {
  using Out = C;
  using Acc = std::conditional_t<std::is_floating_point_v<C>, double, uint64_t>;
  static void line(const C* x, C* out, int64_t n, int64_t stride) {
    Acc p = 1;
    for (int64_t i = 0; i < n; ++i) out[i * stride] = C(p *= Acc(x[i * stride]));
  }
};
/// The place of the best so far: the last of equals, and the last NaN, as in PyTorch.
template <typename C, bool kMax>
struct Place {
  using Out = int64_t;
  static void line(const C* x, int64_t* out, int64_t n, int64_t stride) {
    int64_t best = 0;
    for (int64_t i = 0; i < n; ++i) {
      const C v = x[i * stride], b = x[best * stride];
      if (v != v || (b == b && (kMax ? v >= b : v <= b))) best = i;
      out[i * stride] = best;
    }
  }
};
template <typename C>
struct Cumargmax : Place<C, true> {};
template <typename C>
struct Cumargmin : Place<C, false> {};
/// log(e^a + e^b) = max + log1p(e^(min - max)).
template <typename C>
struct Logcumsumexp {
  using Out = C;
  static void line(const C* x, C* out, int64_t n, int64_t stride) {
    double sum = -std::numeric_limits<double>::infinity();
    for (int64_t i = 0; i < n; ++i) {
      const double v = static_cast<double>(x[i * stride]);
      const double high = v > sum || v != v ? v : sum, low = v > sum || v != v ? sum : v;
      sum = std::isinf(high) && high == low ? high : high + std::log1p(std::exp(low - high));
      out[i * stride] = static_cast<C>(sum);
    }
  }
};

// --- derivatives ---

/// Of element i: the sum of what comes after it, itself included.
Value cumsum_back(Builder& b, Value g, int64_t dim) {
  const Value turned = b.emit(op("flip"), {g}, {std::vector<int64_t>{dim}});
  return b.emit(op("flip"), {b.emit(op("cumsum"), {turned}, {dim})}, {std::vector<int64_t>{dim}});
}
std::vector<Value> cumsum_grad(const GradArgs& a) {
  return {cumsum_back(a.b, a.grad[0], integer(a.attrs, 0))};
}
/// Before the first zero g out / x summed back; at it the same with 1 in its place; after it nothing.
std::vector<Value> cumprod_grad(const GradArgs& a) {
  Builder& b = a.b;
  const Value x = a.in[0], one = b.constant_like(1, x), zero = zeros_like(b, x);
  const int64_t dim = integer(a.attrs, 0);
  const Value is_zero = b.emit(op("eq"), {x, zero});
  const Value zeros = b.emit(op("cumsum"), {b.cast(is_zero, b.type(x).dtype)}, {dim});
  const Value before = b.emit(op("eq"), {zeros, zero});
  const Value first = b.emit(op("logical_and"), {is_zero, b.emit(op("eq"), {zeros, one})});
  const Value usual = div(b, cumsum_back(b, mul(b, a.grad[0], a.out[0]), dim), where(b, is_zero, one, x));
  const Value filled = b.emit(op("cumprod"), {where(b, first, one, x)}, {dim});
  const Value at_first = cumsum_back(b, mul(b, a.grad[0], filled), dim);
  return {where(b, before, usual, where(b, first, at_first, zero))};
}
/// e^x times the sum of g e^-out from there on, by logarithms of g's positive and negative part.
/// Source: PyTorch's logcumsumexp_backward.
std::vector<Value> logcumsumexp_grad(const GradArgs& a) {
  Builder& b = a.b;
  const Value x = a.in[0], g = a.grad[0], zero = zeros_like(b, x);
  const int64_t dim = integer(a.attrs, 0);
  const Value nothing = b.constant_like(-std::numeric_limits<double>::infinity(), x);
  const auto part = [&](Value positive) {
    const Value is = b.emit(op("gt"), {positive, zero});
    const Value safe = where(b, is, positive, b.constant_like(1, x));
    const Value log = where(b, is, sub(b, b.emit(op("log"), {safe}), a.out[0]), nothing);
    const std::vector<int64_t> dims = {dim};
    const Value turned = b.emit(op("flip"), {log}, {dims});
    const Value summed = b.emit(op("flip"), {b.emit(op("logcumsumexp"), {turned}, {dim})}, {dims});
    return b.emit(op("exp"), {add(b, summed, x)});
  };
  return {sub(b, part(g), part(neg(b, g)))};
}

// clang-format off
constinit const OpDef rows[] = {
    {.name = "cumsum", .kind = OpKind::scan, .attrs = dim_attrs, .infer = number_infer,
     .grad = cumsum_grad, .eval = eval<Cumsum>,
     .body = "RunningSum",
     .doc = "Running sum along a dim.", .source = "torch.cumsum"},
    {.name = "cumprod", .kind = OpKind::scan, .attrs = dim_attrs, .infer = number_infer,
     .grad = cumprod_grad, .eval = eval<Cumprod>,
     .body = "RunningProduct",
     .doc = "Running product along a dim. Gradients are exact with zeros.", .source = "torch.cumprod"},
    {.name = "cumargmax", .kind = OpKind::scan, .attrs = dim_attrs, .infer = place_infer,
     .constant_gradient = true, .eval = eval<Cumargmax>,
     .body = "RunningMax",
     .doc = "Place of the largest element so far, the last of equals; the last NaN wins.",
     .source = "torch.cummax"},
    {.name = "cumargmin", .kind = OpKind::scan, .attrs = dim_attrs, .infer = place_infer,
     .constant_gradient = true, .eval = eval<Cumargmin>,
     .body = "RunningMin",
     .doc = "Place of the smallest element so far, the last of equals; the last NaN wins.",
     .source = "torch.cummin"},
    {.name = "logcumsumexp", .kind = OpKind::scan, .attrs = dim_attrs, .infer = floating_infer,
     .grad = logcumsumexp_grad, .eval = eval<Logcumsumexp>,
     .body = "RunningLogSumExp", .flops = 25,
     .doc = "Logarithm of the running sum of e^x along a dim.", .source = "torch.logcumsumexp"},
};
// clang-format on

}  // namespace

std::span<const OpDef> scan_ops() { return rows; }

}  // namespace kiln
