// SPDX-License-Identifier: Apache-2.0
// Ops that only say where elements come from. Eager reads through a layout where strides can say it; pad and
// cat copy.
#include <algorithm>
#include <numeric>

#include "ir/ops/loops.h"
#include "ir/ops/rules.h"
#include "ir/ops/unwindow.h"

namespace kiln {

namespace {

using namespace rules;  // NOLINT: the rows are written in terms of its words

/// A part of `whole`, with its own shape and strides.
TensorRef part(const TensorRef& whole, ViewLayout l) {
  char* data = static_cast<char*>(whole.data) + l.offset * static_cast<int64_t>(dtype_size(whole.dtype));
  return {whole.dtype, data, std::move(l.shape), std::move(l.strides)};
}

// --- expand ---

constexpr AttrDef shape_attrs[] = {{"shape", AttrKind::dims}};

/// Shapes: [...] -> [shape]. Throws: invalid, unless dims are 1 or equal, from the right.
Type expand_infer(const InferArgs& a) {
  const Type& x = a.in[0];
  const Shape& to = dims(a.attrs, 0);
  const size_t n = x.shape.size();
  bool ok = n <= to.size();
  for (size_t i = 0; ok && i < n; ++i)
    ok = x.shape[n - 1 - i].is(1) || x.shape[n - 1 - i] == to[to.size() - 1 - i];
  if (!ok)
    a.fail("cannot broadcast; got {} to {}, expected dims that are equal or 1 from the right", x.str(),
           shape_str(to));
  return {x.dtype, to};
}
std::optional<ViewLayout> expand_view(const TensorRef& x, const Attrs& attrs) {
  ViewLayout v{values(dims(attrs, 0)), {}, 0};
  const size_t lead = v.shape.size() - x.shape.size();
  v.strides.assign(v.shape.size(), 0);
  for (size_t i = 0; i < x.shape.size(); ++i)
    if (x.shape[i] != 1) v.strides[lead + i] = x.strides[i];
  return v;
}
std::vector<Value> expand_grad(const GradArgs& a) { return {a.b.sum_to(a.grad[0], a.b.type(a.in[0]).shape)}; }

// --- permute, flip ---

constexpr AttrDef dims_attrs[] = {{"dims", AttrKind::ints}};

/// Shapes: [...] -> its dims in the order of dims. Throws: invalid, unless each dim is there once.
Type permute_infer(const InferArgs& a) {
  const auto& d = ints(a.attrs, 0);
  if (static_cast<int>(d.size()) != a.in[0].rank())
    a.fail("needs every dim once; got ({}) for {}", fmt::join(d, ","), a.in[0].str());
  want_dims(a, d, a.in[0].rank());
  Type t{a.in[0].dtype, {}};
  for (int64_t i : d) t.shape.push_back(a.in[0].shape[i]);
  return t;
}
std::optional<ViewLayout> permute_view(const TensorRef& x, const Attrs& attrs) {
  ViewLayout v;
  for (int64_t i : ints(attrs, 0)) {
    v.shape.push_back(x.shape[i]);
    v.strides.push_back(x.strides[i]);
  }
  return v;
}
std::vector<Value> permute_grad(const GradArgs& a) {
  const auto& d = ints(a.attrs, 0);
  std::vector<int64_t> inverse(d.size());
  for (size_t i = 0; i < d.size(); ++i) inverse[d[i]] = static_cast<int64_t>(i);
  return {a.b.permute(a.grad[0], inverse)};
}
/// Shapes: [...] -> [...]. Throws: invalid, on dims out of range or given twice.
Type flip_infer(const InferArgs& a) {
  want_dims(a, ints(a.attrs, 0), a.in[0].rank());
  return a.in[0];
}
std::optional<ViewLayout> flip_view(const TensorRef& x, const Attrs& attrs) {
  ViewLayout v{x.shape, x.strides, 0};
  if (x.numel() == 0) return v;
  for (int64_t d : ints(attrs, 0)) {
    v.offset += (x.shape[d] - 1) * x.strides[d];
    v.strides[d] = -x.strides[d];
  }
  return v;
}
std::vector<Value> flip_grad(const GradArgs& a) { return {a.b.emit(op("flip"), {a.grad[0]}, a.attrs)}; }

// --- reshape ---

/// Shapes: [...] -> [shape]. Throws: invalid, when the number of elements differs.
Type reshape_infer(const InferArgs& a) {
  const Shape& to = dims(a.attrs, 0);
  if (numel(a.in[0].shape) != numel(to))
    a.fail("element counts differ; got {} to {}, expected {} == {}", a.in[0].str(), shape_str(to),
           numel(a.in[0].shape).str(), numel(to).str());
  return {a.in[0].dtype, to};
}
/// Walks both shapes from the right and splits each merged run of the old dims. Source: at::computeStride.
std::optional<ViewLayout> reshape_view(const TensorRef& x, const Attrs& attrs) {
  ViewLayout v{values(dims(attrs, 0)), {}, 0};
  v.strides.assign(v.shape.size(), 1);
  if (x.numel() == 0) {
    v.strides = contiguous_strides(v.shape);
    return v;
  }
  const std::vector<int64_t>* one[] = {&x.strides};
  const loops::Loops l = loops::collapse(x.shape, one);
  size_t to = v.shape.size();
  for (size_t d = l.shape.size(); d-- > 0;) {
    int64_t stride = l.strides[0][d], left = l.shape[d];
    while (to > 0 && (left > 1 || v.shape[to - 1] == 1)) {
      --to;
      if (left % v.shape[to] != 0) return std::nullopt;
      v.strides[to] = stride;
      stride *= v.shape[to];
      left /= v.shape[to];
    }
  }
  return v;
}
void reshape_eval(const EvalArgs& a) {
  TensorRef out = a.out[0];
  out.shape = a.in[0].shape;
  out.strides = contiguous_strides(out.shape);
  copy_elements(a.in[0], out);
}
std::vector<Value> reshape_grad(const GradArgs& a) {
  return {a.b.reshape(a.grad[0], a.b.type(a.in[0]).shape)};
}

// --- slice ---

constexpr AttrDef slice_attrs[] = {
    {"starts", AttrKind::dims}, {"stops", AttrKind::dims}, {"steps", AttrKind::ints}};

/// Shapes: [...] -> [ceil((stop - start) / step), ...]. Throws: invalid, on bounds outside of a dim, and a
/// step below 1.
Type slice_infer(const InferArgs& a) {
  const Type& x = a.in[0];
  const Shape &from = dims(a.attrs, 0), &to = dims(a.attrs, 1);
  const auto& step = ints(a.attrs, 2);
  const size_t n = x.shape.size();
  if (from.size() != n || to.size() != n || step.size() != n)
    a.fail("needs a start, stop and step for every dim of {}; got {}, {} and {}", x.str(), from.size(),
           to.size(), step.size());
  Type t{x.dtype, {}};
  for (size_t d = 0; d < n; ++d) {
    if (step[d] < 1) a.fail("step of dim {} must be positive; got {} (flip first)", d, step[d]);
    const Dim span = to[d] - from[d], after = x.shape[d] - to[d];
    if ((from[d].is_const() && from[d].value() < 0) || (span.is_const() && span.value() < 0) ||
        (after.is_const() && after.value() < 0))
      a.fail("bounds of dim {} out of range; got {} to {}, expected 0 <= start <= stop <= {}", d,
             from[d].str(), to[d].str(), x.shape[d].str());
    t.shape.push_back(ceildiv(span, step[d]));
  }
  return t;
}
std::optional<ViewLayout> slice_view(const TensorRef& x, const Attrs& attrs) {
  const std::vector<int64_t> from = values(dims(attrs, 0)), to = values(dims(attrs, 1));
  const auto& step = ints(attrs, 2);
  ViewLayout v;
  bool empty = false;
  for (size_t d = 0; d < from.size(); ++d) {
    v.shape.push_back((to[d] - from[d] + step[d] - 1) / step[d]);
    v.strides.push_back(x.strides[d] * step[d]);
    v.offset += from[d] * x.strides[d];
    empty |= v.shape.back() == 0;
  }
  if (empty) v.offset = 0;
  return v;
}
/// The slice's elements go back to their places, zeros between.
std::vector<Value> slice_grad(const GradArgs& a) {
  const Shape &from = dims(a.attrs, 0), size = a.b.type(a.in[0]).shape, n = a.b.type(a.out[0]).shape;
  const auto& step = ints(a.attrs, 2);
  Shape high;
  std::vector<int64_t> interior;
  for (size_t d = 0; d < size.size(); ++d) {
    const Dim span = step[d] == 1 ? n[d] : max((n[d] - Dim(1)) * Dim(step[d]) + Dim(1), Dim(0));
    high.push_back(size[d] - from[d] - span);
    interior.push_back(step[d] - 1);
  }
  return {a.b.emit(op("pad"), {a.grad[0]}, {from, high, interior, 0.0})};
}

// --- pad ---

constexpr AttrDef pad_attrs[] = {{"low", AttrKind::dims},
                                 {"high", AttrKind::dims},
                                 {"interior", AttrKind::ints},
                                 {"value", AttrKind::real}};

/// Shapes: [n, ...] -> [low + n + (n - 1) interior + high, ...]. Throws: invalid, on a number below 0.
Type pad_infer(const InferArgs& a) {
  const Type& x = a.in[0];
  const Shape &low = dims(a.attrs, 0), &high = dims(a.attrs, 1);
  const auto& interior = ints(a.attrs, 2);
  const size_t n = x.shape.size();
  if (low.size() != n || high.size() != n || interior.size() != n)
    a.fail("needs low, high and interior for every dim of {}; got {}, {} and {}", x.str(), low.size(),
           high.size(), interior.size());
  Type t{x.dtype, {}};
  for (size_t d = 0; d < n; ++d) {
    if ((low[d].is_const() && low[d].value() < 0) || (high[d].is_const() && high[d].value() < 0) ||
        interior[d] < 0)
      a.fail("padding of dim {} is negative; got {}, {}, {} (slice instead)", d, low[d].str(), high[d].str(),
             interior[d]);
    const Dim gaps = interior[d] == 0 ? Dim(0) : max(x.shape[d] - Dim(1), Dim(0)) * Dim(interior[d]);
    t.shape.push_back(low[d] + x.shape[d] + gaps + high[d]);
  }
  return t;
}
void pad_eval(const EvalArgs& a) {
  const std::vector<int64_t> low = values(dims(a.attrs, 0));
  const auto& interior = ints(a.attrs, 2);
  const TensorRef &x = a.in[0], &out = a.out[0];
  const DType t = out.dtype;
  const Attrs fill = {a.attrs[3], t, Shape(out.shape.begin(), out.shape.end())};
  def(op("constant")).eval({{}, a.out, fill});
  if (x.numel() == 0) return;
  ViewLayout v{x.shape, out.strides, 0};
  for (size_t d = 0; d < low.size(); ++d) {
    v.offset += low[d] * out.strides[d];
    v.strides[d] *= interior[d] + 1;
  }
  copy_elements(x, part(out, v));
}
std::vector<Value> pad_grad(const GradArgs& a) {
  Shape low = dims(a.attrs, 0);
  const Shape &high = dims(a.attrs, 1), n = a.b.type(a.out[0]).shape, inside = a.b.type(a.in[0]).shape;
  std::vector<int64_t> step = ints(a.attrs, 2);
  Value g = a.grad[0];
  Shape stop;
  for (size_t d = 0; d < n.size(); ++d) {
    stop.push_back(n[d] - high[d]);
    const bool known = step[d]++ == 0 && low[d].is_const() && inside[d].is_const();
    const Value part = known ? detail::narrowed(a.b, g, d, low[d].value(), inside[d].value()) : Value{};
    if (!part.valid()) continue;
    g = part;
    low[d] = 0;
    stop[d] = inside[d];
  }
  if (a.b.type(g).shape == inside) return {g};
  return {a.b.emit(op("slice"), {g}, {low, stop, step})};
}

// --- cat ---

constexpr AttrDef dim_attrs[] = {{"dim", AttrKind::integer}};

/// Shapes: equal beside dim -> the same, sizes added up there. Throws: invalid, on no operands, other
/// shapes, and different dtypes.
Type cat_infer(const InferArgs& a) {
  if (a.in.empty()) a.fail("needs at least one operand");
  Type t = a.in[0];
  const int64_t dim = integer(a.attrs, 0);
  want_dims(a, {&dim, 1}, t.rank(), "dim");
  for (size_t i = 1; i < a.in.size(); ++i) {
    Type other = a.in[i];
    if (other.rank() == t.rank()) other.shape[dim] = t.shape[dim];
    if (other != t) a.fail("operands differ beside dim {}; got {} and {}", dim, a.in[0].str(), a.in[i].str());
    t.shape[dim] = t.shape[dim] + a.in[i].shape[dim];
  }
  return t;
}
void cat_eval(const EvalArgs& a) {
  const int64_t dim = integer(a.attrs, 0);
  int64_t at = 0;
  for (const TensorRef& x : a.in) {
    if (x.numel() > 0)
      copy_elements(x, part(a.out[0], {x.shape, a.out[0].strides, at * a.out[0].strides[dim]}));
    at += x.shape[dim];
  }
}
std::vector<Value> cat_grad(const GradArgs& a) {
  const int64_t dim = integer(a.attrs, 0);
  std::vector<Value> out;
  Dim at = 0;
  for (size_t i = 0; i < a.in.size(); ++i) {
    Shape from(a.b.type(a.in[i]).shape.size(), Dim(0)), to = a.b.type(a.in[i]).shape;
    const Dim next = at + to[dim];
    from[dim] = at, to[dim] = next, at = next;
    const std::vector<int64_t> step(from.size(), 1);
    out.push_back(a.needs[i] ? a.b.emit(op("slice"), {a.grad[0]}, {from, to, step}) : Value{});
  }
  return out;
}
// --- window, skew ---

constexpr AttrDef window_attrs[] = {{"dim", AttrKind::integer},
                                    {"size", AttrKind::integer},
                                    {"step", AttrKind::integer},
                                    {"dilation", AttrKind::integer}};

/// Shapes: [..., n, ...] -> [..., (n - dilation (size - 1) - 1) / step + 1, size, ...]. Throws: invalid, on
/// a number below 1, and a window larger than the dim.
Type window_infer(const InferArgs& a) {
  const Type& x = a.in[0];
  const int64_t dim = integer(a.attrs, 0), size = integer(a.attrs, 1), step = integer(a.attrs, 2),
                dilation = integer(a.attrs, 3);
  want_dims(a, {&dim, 1}, x.rank(), "dim");
  if (size < 1 || step < 1 || dilation < 1)
    a.fail("size, step and dilation must be positive; got {}, {} and {}", size, step, dilation);
  const Dim n = x.shape[dim], span = Dim(dilation) * Dim(size - 1) + Dim(1);
  if (n.is_const() && n.value() < span.value())
    a.fail("dim {} of {} is shorter than a window; expected at least {}", dim, x.str(), span.value());
  Type t = x;
  t.shape[dim] = floordiv(n - span, Dim(step)) + Dim(1);
  t.shape.insert(t.shape.begin() + dim + 1, Dim(size));
  return t;
}
std::optional<ViewLayout> window_view(const TensorRef& x, const Attrs& attrs) {
  const auto dim = static_cast<ptrdiff_t>(integer(attrs, 0));
  const int64_t size = integer(attrs, 1), step = integer(attrs, 2), dilation = integer(attrs, 3);
  ViewLayout v{x.shape, x.strides, 0};
  v.shape[dim] = (x.shape[dim] - dilation * (size - 1) - 1) / step + 1;
  v.shape.insert(v.shape.begin() + dim + 1, size);
  v.strides[dim] *= step;
  v.strides.insert(v.strides.begin() + dim + 1, x.strides[dim] * dilation);
  return v;
}
/// x with dim `dim` cut off or filled with zeros to `size`.
Value resized(Builder& b, Value x, size_t dim, const Dim& size, const Dim& at_most) {
  const Shape shape = b.type(x).shape;
  const Shape none(shape.size(), Dim(0));
  const std::vector<int64_t> gaps(shape.size(), 0);
  if (shape[dim] == size) return x;
  const bool shorter = shape[dim].is_const() && size.is_const() && shape[dim].value() < size.value();
  const Dim to = shorter ? size : at_most;
  if (!(shape[dim].is_const() && size.is_const()) || shorter) {
    Shape high = none;
    high[dim] = to - shape[dim];
    x = b.emit(op("pad"), {x}, {none, high, gaps, 0.0});
  }
  if (shorter) return x;
  Shape stops = shape;
  stops[dim] = size;
  return b.emit(op("slice"), {x}, {none, stops, std::vector<int64_t>(shape.size(), 1)});
}

/// Element t is the sum over k of x[t - by k, k], dims `dim` and the one after it; `size` elements. A few are
/// added one by one, so that a kernel can do it wherever an element is wanted.
Value sum_of_shifted(Builder& b, Value x, size_t dim, int64_t by, const Dim& size) {
  const Shape shape = b.type(x).shape;
  const auto at = static_cast<int64_t>(dim);
  constexpr int64_t kFew = 8;
  const Dim& parts = shape[dim + 1];
  if (!parts.is_const() || parts.value() > kFew || parts.is(0))
    return b.sum(b.emit(op("skew"), {x}, {at, by, Shape{size}}), {at + 1});
  Value sum;
  for (int64_t k = 0; k < parts.value(); ++k) {
    Shape from(shape.size(), Dim(0)), to = shape;
    from[dim + 1] = k;
    to[dim + 1] = k + 1;
    Value part = b.emit(op("slice"), {x}, {from, to, std::vector<int64_t>(shape.size(), 1)});
    to.erase(to.begin() + at + 1);
    part = b.reshape(part, to);
    Shape low(to.size(), Dim(0)), high = low;
    low[dim] = by * k;
    high[dim] = size - shape[dim] - Dim(by * k);
    part = b.emit(op("pad"), {part}, {low, high, std::vector<int64_t>(to.size(), 0), 0.0});
    sum = sum.valid() ? b.emit(op("add"), {sum, part}, {}) : part;
  }
  return sum;
}

/// Of windows without dilation: place k = step a + r of window w is element step (w + a) + r, so the a of one
/// r are added up as windows of step 1 are, and the r lie side by side.
Value coarse_window_grad(Builder& b, Value g, size_t dim, int64_t size, int64_t step, const Dim& n) {
  const int64_t parts = (size + step - 1) / step;
  g = resized(b, g, dim + 1, Dim(parts * step), Dim(parts * step));
  Shape shape = b.type(g).shape;
  const auto at = static_cast<int64_t>(dim);
  if (parts > 1) {
    shape[dim + 1] = Dim(parts);
    shape.insert(shape.begin() + at + 2, Dim(step));
    const Value split = b.reshape(g, shape);
    g = sum_of_shifted(b, split, dim, 1, shape[dim] + Dim(parts - 1));
    shape = b.type(g).shape;
  }
  shape[dim] = shape[dim] * Dim(step);
  shape.erase(shape.begin() + at + 1);
  return resized(b, b.reshape(g, shape), dim, n, n + Dim(step));
}

/// Windows are laid out at their steps with gaps between, each element moved to its place, and added up.
std::vector<Value> window_grad(const GradArgs& a) {
  Builder& b = a.b;
  const int64_t dim = integer(a.attrs, 0), step = integer(a.attrs, 2), dilation = integer(a.attrs, 3);
  const Dim n = b.type(a.in[0]).shape[dim];
  Value g = a.grad[0];
  if (const Value sums = detail::unwindowed(b, g, static_cast<size_t>(dim), step, dilation, n); sums.valid())
    return {sums};
  if (step > 1 && dilation == 1)
    return {coarse_window_grad(b, g, static_cast<size_t>(dim), integer(a.attrs, 1), step, n)};
  if (step > 1) {
    const size_t rank = b.type(g).shape.size();
    std::vector<int64_t> gaps(rank, 0);
    gaps[static_cast<size_t>(dim)] = step - 1;
    const Shape none(rank, Dim(0));
    g = b.emit(op("pad"), {g}, {none, none, gaps, 0.0});
  }
  return {sum_of_shifted(b, g, static_cast<size_t>(dim), dilation, n)};
}

constexpr AttrDef skew_attrs[] = {
    {"dim", AttrKind::integer}, {"by", AttrKind::integer}, {"size", AttrKind::dims}};

/// Shapes: [..., n, k, ...] -> [..., size, k, ...]. Throws: invalid, on a dim without a next one, and a
/// size below 0.
Type skew_infer(const InferArgs& a) {
  const int64_t dim = integer(a.attrs, 0), next = dim + 1;
  want_dims(a, {&dim, 1}, a.in[0].rank(), "dim");
  want_dims(a, {&next, 1}, a.in[0].rank(), "the dim after dim");
  const Shape& size = dims(a.attrs, 2);
  if (size.size() != 1 || (size[0].is_const() && size[0].value() < 0))
    a.fail("takes one size, not negative; got {}", shape_str(size));
  Type t = a.in[0];
  t.shape[dim] = size[0];
  return t;
}
void skew_eval(const EvalArgs& a) {
  const auto dim = static_cast<size_t>(integer(a.attrs, 0));
  const int64_t by = integer(a.attrs, 1);
  const TensorRef &x = a.in[0], &out = a.out[0];
  const Attrs fill = {0.0, out.dtype, Shape(out.shape.begin(), out.shape.end())};
  def(op("constant")).eval({{}, a.out, fill});
  if (x.numel() == 0 || out.numel() == 0) return;
  for (int64_t k = 0; k < x.shape[dim + 1]; ++k) {
    const int64_t begin = std::max<int64_t>(0, k * by);
    const int64_t end = std::min(out.shape[dim], x.shape[dim] + k * by);
    if (begin >= end) continue;
    const auto column = [&](const TensorRef& whole, int64_t first) {
      ViewLayout v{whole.shape, whole.strides, first * whole.strides[dim] + k * whole.strides[dim + 1]};
      v.shape[dim] = end - begin;
      v.shape[dim + 1] = 1;
      return part(whole, v);
    };
    copy_elements(column(x, begin - k * by), column(out, begin));
  }
}
std::vector<Value> skew_grad(const GradArgs& a) {
  const int64_t dim = integer(a.attrs, 0);
  return {
      a.b.emit(op("skew"), {a.grad[0]}, {dim, -integer(a.attrs, 1), Shape{a.b.type(a.in[0]).shape[dim]}})};
}

// clang-format off
constinit const OpDef rows[] = {
    {.name = "expand", .kind = OpKind::view, .attrs = shape_attrs, .infer = expand_infer,
     .grad = expand_grad, .view = expand_view, .flops = 0,
     .doc = "Broadcasts to a shape, aligned at the right.", .source = "torch.Tensor.expand"},
    {.name = "permute", .kind = OpKind::view, .attrs = dims_attrs, .infer = permute_infer,
     .grad = permute_grad, .view = permute_view, .flops = 0,
     .doc = "Reorders dims: dim i of the result is dim dims[i] of x.", .source = "torch.permute"},
    {.name = "reshape", .kind = OpKind::view, .attrs = shape_attrs, .infer = reshape_infer,
     .grad = reshape_grad, .eval = reshape_eval, .view = reshape_view, .flops = 0,
     .doc = "Same elements in row-major order, new shape.", .source = "torch.reshape"},
    {.name = "slice", .kind = OpKind::view, .attrs = slice_attrs, .infer = slice_infer,
     .grad = slice_grad, .view = slice_view, .flops = 0,
     .doc = "Every step-th element from start up to stop, per dim.",
     .source = "torch.Tensor.__getitem__"},
    {.name = "pad", .kind = OpKind::view, .attrs = pad_attrs, .infer = pad_infer, .grad = pad_grad,
     .eval = pad_eval, .flops = 0,
     .doc = "Puts `value` before, after and between the elements of each dim.",
     .source = "xla::Pad"},
    {.name = "flip", .kind = OpKind::view, .attrs = dims_attrs, .infer = flip_infer,
     .grad = flip_grad, .view = flip_view, .flops = 0,
     .doc = "Reverses dims.", .source = "torch.flip"},
    {.name = "cat", .kind = OpKind::view, .attrs = dim_attrs, .inputs = -1, .infer = cat_infer,
     .grad = cat_grad, .eval = cat_eval, .flops = 0,
     .doc = "Joins operands along a dim.", .source = "torch.cat"},
    {.name = "window", .kind = OpKind::view, .attrs = window_attrs, .infer = window_infer,
     .grad = window_grad, .view = window_view, .flops = 0,
     .doc = "Windows of a dim: it becomes two, the window and the place in it, i * step + k * dilation.",
     .source = "torch.Tensor.unfold"},
    {.name = "skew", .kind = OpKind::view, .attrs = skew_attrs, .infer = skew_infer,
     .grad = skew_grad, .eval = skew_eval, .flops = 0,
     .doc = "Element [i, k] of dims (dim, dim + 1) is x[i - k * by, k], 0 where there is none.",
     .source = "the adjoint of torch.Tensor.unfold before its sum"},
};
// clang-format on

}  // namespace

std::span<const OpDef> view_ops() { return rows; }

}  // namespace kiln
