// SPDX-License-Identifier: Apache-2.0
// Creation, shapes, views and indexing.
#include <algorithm>
#include <cmath>
#include <limits>

#include "frontend/device.h"
#include "frontend/index_detail.h"
#include "frontend/ops_detail.h"
#include "frontend/state.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace {

Shape dims(const Sizes& s) { return Shape(s.begin(), s.end()); }

DType float_or(const TensorOptions& o) { return o.dtype.value_or(DType::f32); }

Tensor create(const char* name, const Sizes& sizes, TensorOptions o, std::vector<Scalar> scalars, Loc loc,
              const std::function<Tensor(const std::vector<Tensor>&)>& body) {
  count_of(sizes, name, loc);
  Sizes ints = sizes;
  const Device device = o.device.value_or(get_default_device());
  require_device(device, name, loc);
  ints.insert(ints.end(),
              {static_cast<int64_t>(float_or(o)), static_cast<int64_t>(device.type), device.index});
  Tensor t = call({name, loc, {}, ints, scalars, device}, body);
  if (!tracing() && !t.is_contiguous()) t = t.contiguous(loc);
  if (o.requires_grad) t.requires_grad_(true, loc);
  return t;
}

Tensor constant(double value, DType dtype, const Sizes& sizes) {
  return apply(op("constant"), std::initializer_list<const Tensor*>{}, {value, dtype, dims(sizes)});
}

}  // namespace

Tensor full(Sizes sizes, Scalar value, TensorOptions o, Loc loc) {
  const DType dtype = o.dtype.value_or(value.is_bool  ? DType::boolean
                                       : value.is_int ? DType::i64
                                                      : DType::f32);
  o.dtype = dtype;
  require_fits(value, dtype, "full", loc);
  return create("full", sizes, o, {value}, loc, [&](const auto& s) {
    const Tensor number = cast_to(s[0], dtype);  // of the CPU: the op makes it one of the device
    return copied(apply(op("expand"), {&number}, {dims(sizes)}));
  });
}
Tensor zeros(Sizes sizes, TensorOptions o, Loc loc) {
  return create("zeros", sizes, o, {}, loc, [&](const auto&) { return constant(0, float_or(o), sizes); });
}
Tensor ones(Sizes sizes, TensorOptions o, Loc loc) {
  return create("ones", sizes, o, {}, loc, [&](const auto&) { return constant(1, float_or(o), sizes); });
}
Tensor empty(Sizes sizes, TensorOptions o, Loc loc) {
  return create("empty", sizes, o, {}, loc, [&](const auto&) { return constant(0, float_or(o), sizes); });
}
Tensor zeros_like(const Tensor& t, Loc loc) {
  require(t, "zeros_like", loc, "t");
  return zeros(t.sizes(), {.dtype = t.dtype(), .device = t.device()}, loc);
}
Tensor ones_like(const Tensor& t, Loc loc) {
  require(t, "ones_like", loc, "t");
  return ones(t.sizes(), {.dtype = t.dtype(), .device = t.device()}, loc);
}

namespace {
/// How many whole numbers from `start` on, in steps, lie before `end`.
int64_t steps_between(int64_t start, int64_t end, int64_t step, Loc loc) {
  // As unsigned numbers neither the way nor a step overflows.
  const uint64_t way = step > 0 ? uint64_t(end) - uint64_t(start) : uint64_t(start) - uint64_t(end);
  const uint64_t each = step > 0 ? uint64_t(step) : uint64_t{0} - uint64_t(step);
  const uint64_t count = way / each + (way % each != 0);
  KILN_CHECK(count <= uint64_t(INT64_MAX), invalid, "arange ({}): {} elements are too many", loc.str(),
             count);
  return static_cast<int64_t>(count);
}
}  // namespace

Tensor arange(Scalar start, Scalar end, Scalar step, TensorOptions o, Loc loc) {
  const bool whole = start.is_int && end.is_int && step.is_int;
  const bool leads = whole ? step.i != 0 && (start.i == end.i || (end.i > start.i) == (step.i > 0))
                           : step.d != 0 && (start.d == end.d || (end.d > start.d) == (step.d > 0));
  KILN_CHECK(leads, invalid, "arange ({}): no way from {} to {} in steps of {}", loc.str(), start.d, end.d,
             step.d);
  const double way = std::ceil((end.d - start.d) / step.d);
  KILN_CHECK(whole || (way >= 0 && way < 0x1p63), invalid, "arange ({}): {} elements are too many", loc.str(),
             way);
  const int64_t n = whole ? steps_between(start.i, end.i, step.i, loc) : static_cast<int64_t>(way);
  o.dtype = o.dtype.value_or(whole ? DType::i64 : DType::f32);
  if (!whole) start = start.d, step = step.d;
  return create("arange", {n}, o, {start, step}, loc, [&](const std::vector<Tensor>& s) {
    const Tensor i = cast_to(iota(0, {n}), whole ? DType::i64 : DType::f64);
    return cast_to(binary(op("add"), binary(op("mul"), i, s[1]), s[0]), *o.dtype);
  });
}
Tensor arange(Scalar end, TensorOptions o, Loc loc) { return arange(0, end, 1, o, loc); }

Tensor rand(Sizes sizes, TensorOptions o, Loc loc) {
  return create("rand", sizes, o, draw(1), loc,
                [&](const auto& s) { return uniform_of(s[0], s[1], sizes, float_or(o)); });
}

Tensor randn(Sizes sizes, TensorOptions o, Loc loc) {
  return create("randn", sizes, o, draw(2), loc, [&](const auto& s) {
    return cast_to(normal_of(s[0], s[1], s[2], s[3], sizes), float_or(o));
  });
}

namespace {
/// Whole numbers that a dtype holds, or an i64 of them.
std::pair<int64_t, int64_t> range_of(DType t) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  switch (t) {
    case DType::boolean: return {0, 1};
    case DType::u8: return {0, 255};
    case DType::i32: return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    default: return {-kMost - 1, kMost};
  }
}
}  // namespace

Tensor randint(int64_t low, int64_t high, Sizes sizes, TensorOptions o, Loc loc) {
  KILN_CHECK(low < high, invalid, "randint ({}): empty range [{}, {})", loc.str(), low, high);
  int64_t width = 0;
  KILN_CHECK(!__builtin_sub_overflow(high, low, &width), invalid,
             "randint ({}): the range [{}, {}) is too wide", loc.str(), low, high);
  const DType dtype = o.dtype.value_or(DType::i64);
  const auto [least, most] = range_of(dtype);
  KILN_CHECK(low >= least && high - 1 <= most, invalid, "randint ({}): [{}, {}) is out of the range of {}",
             loc.str(), low, high, dtype_name(dtype));
  // A draw has 24 bits.
  const bool wide = width > int64_t{1} << 24;
  std::vector<Scalar> s = draw(wide ? 2 : 1);
  s.emplace_back(low);
  s.emplace_back(width);
  o.dtype = dtype;
  return create("randint", sizes, o, s, loc, [&](const std::vector<Tensor>& t) {
    Tensor u = cast_to(uniform(t[0], t[1], sizes), DType::f64);
    if (wide) u = add2(u, mul2(cast_to(uniform(t[2], t[3], sizes), DType::f64), lit(u, 0x1p-24)));
    const Tensor &from = t[t.size() - 2], &numbers = t.back();
    const Tensor above = cast_to(binary(op("mul"), u, cast_to(numbers, DType::f64)), DType::i64);
    return cast_to(binary(op("add"), above, from), dtype);
  });
}

Tensor to(const Tensor& x, DType dtype, Loc loc) {
  return shape_call("to", loc, x, {static_cast<int64_t>(dtype)}, [&] { return cast_to(x, dtype); });
}

namespace {
Sizes resolve(const Tensor& x, Sizes sizes, const char* name, Loc loc) {
  int64_t known = 1, unknown = -1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    KILN_CHECK(sizes[i] >= -1, invalid, "{} ({}): bad sizes [{}]", name, loc.str(), fmt::join(sizes, ","));
    if (sizes[i] >= 0) {
      KILN_CHECK(!__builtin_mul_overflow(known, sizes[i], &known), invalid, "{} ({}): bad sizes [{}]", name,
                 loc.str(), fmt::join(sizes, ","));
    } else {
      KILN_CHECK(unknown < 0, invalid, "{} ({}): more than one -1 in [{}]", name, loc.str(),
                 fmt::join(sizes, ","));
      unknown = static_cast<int64_t>(i);
    }
  }
  const int64_t n = x.numel();
  const bool fits = unknown < 0 ? known == n : known != 0 && n % known == 0;
  KILN_CHECK(fits, invalid, "{} ({}): x {} does not fit sizes [{}]", name, loc.str(), x.type_str(),
             fmt::join(sizes, ","));
  if (unknown >= 0) sizes[static_cast<size_t>(unknown)] = n / known;
  return sizes;
}
}  // namespace

Tensor reshape(const Tensor& x, Sizes sizes, Loc loc) {
  require(x, "reshape", loc);
  const Sizes shape = resolve(x, std::move(sizes), "reshape", loc);
  return shape_call("reshape", loc, x, shape, [&] { return reshape_to(x, shape); });
}

Tensor view(const Tensor& x, Sizes sizes, Loc loc) {
  require(x, "view", loc);
  const Sizes shape = resolve(x, std::move(sizes), "view", loc);
  const auto layout = def(op("reshape")).view({x.dtype(), nullptr, x.sizes(), x.strides()}, {dims(shape)});
  KILN_CHECK(layout, invalid,
             "view ({}): strides [{}] of x {} do not allow sizes [{}] without a copy (use reshape)",
             loc.str(), fmt::join(x.strides(), ","), x.type_str(), fmt::join(shape, ","));
  return shape_call("view", loc, x, shape, [&] { return reshape_to(x, shape); });
}

Tensor flatten(const Tensor& x, int64_t start, int64_t end, Loc loc) {
  require(x, "flatten", loc);
  const int64_t a = wrap_dim(start, x.dim(), "flatten", loc), b = wrap_dim(end, x.dim(), "flatten", loc);
  KILN_CHECK(a <= b, invalid, "flatten ({}): start {} is after end {}", loc.str(), start, end);
  if (x.dim() == 0) return reshape(x, {1}, loc);
  Sizes shape(x.sizes().begin(), x.sizes().begin() + a);
  int64_t n = 1;
  for (int64_t d = a; d <= b; ++d) n *= x.size(d);
  shape.push_back(n);
  shape.insert(shape.end(), x.sizes().begin() + b + 1, x.sizes().end());
  return reshape(x, shape, loc);
}

Tensor permute(const Tensor& x, Sizes order, Loc loc) {
  require(x, "permute", loc);
  bool complete = static_cast<int64_t>(order.size()) == x.dim();
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = wrap_dim(order[i], x.dim(), "permute", loc);
    const auto before = order.begin() + static_cast<ptrdiff_t>(i);
    complete = complete && std::find(order.begin(), before, order[i]) == before;
  }
  KILN_CHECK(complete, invalid, "permute ({}): dims [{}] are no order of those of x {}", loc.str(),
             fmt::join(order, ","), x.type_str());
  return shape_call("permute", loc, x, order, [&] { return apply(op("permute"), {&x}, {order}); });
}

Tensor transpose(const Tensor& x, int64_t a, int64_t b, Loc loc) {
  require(x, "transpose", loc);
  Sizes order(static_cast<size_t>(x.dim()));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  if (!order.empty())
    std::swap(order[static_cast<size_t>(wrap_dim(a, x.dim(), "transpose", loc))],
              order[static_cast<size_t>(wrap_dim(b, x.dim(), "transpose", loc))]);
  return permute(x, order, loc);
}

Tensor t(const Tensor& x, Loc loc) {
  require(x, "t", loc);
  KILN_CHECK(x.dim() <= 2, invalid, "t ({}): got x {}, expected at most two dims", loc.str(), x.type_str());
  return x.dim() < 2 ? x : transpose(x, 0, 1, loc);
}

Tensor expand(const Tensor& x, Sizes sizes, Loc loc) {
  require(x, "expand", loc);
  const auto lead = static_cast<int64_t>(sizes.size()) - x.dim();
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t from = static_cast<int64_t>(i) - lead;
    const int64_t had = from >= 0 ? x.size(from) : 1;
    if (sizes[i] == -1 && from >= 0) sizes[i] = had;
    KILN_CHECK(lead >= 0 && sizes[i] >= 0 && (had == 1 || had == sizes[i]), invalid,
               "expand ({}): x {} does not expand to [{}]", loc.str(), x.type_str(), fmt::join(sizes, ","));
  }
  KILN_CHECK(lead >= 0, invalid, "expand ({}): x {} does not expand to [{}]", loc.str(), x.type_str(),
             fmt::join(sizes, ","));
  count_of(sizes, "expand", loc);
  return shape_call("expand", loc, x, sizes, [&] { return expand_to(x, sizes); });
}

Tensor squeeze(const Tensor& x, int64_t dim, Loc loc) {
  require(x, "squeeze", loc);
  const int64_t d = wrap_dim(dim, x.dim(), "squeeze", loc);
  if (x.dim() == 0 || x.size(d) != 1) return x;
  Sizes s = x.sizes();
  s.erase(s.begin() + d);
  return view(x, s, loc);
}

Tensor unsqueeze(const Tensor& x, int64_t dim, Loc loc) {
  require(x, "unsqueeze", loc);
  Sizes s = x.sizes();
  s.insert(s.begin() + wrap_dim(dim, x.dim() + 1, "unsqueeze", loc), 1);
  return view(x, s, loc);
}

Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t end, int64_t step, Loc loc) {
  require(x, "slice", loc);
  KILN_CHECK(x.dim() > 0 && step > 0, invalid,
             "slice ({}): got x {} and step {}, expected at least one dim and step >= 1", loc.str(),
             x.type_str(), step);
  const int64_t d = wrap_dim(dim, x.dim(), "slice", loc), n = x.size(d);
  auto limit = [n](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n); };
  const int64_t from = limit(start), stop = std::max(from, limit(end));
  step = std::min(step, std::max<int64_t>(1, n));  // a longer one finds no more
  return shape_call("slice", loc, x, {d, from, stop, step}, [&] {
    Shape starts(static_cast<size_t>(x.dim()), Dim(0)), stops = dims(x.sizes());
    Sizes steps(static_cast<size_t>(x.dim()), 1);
    starts[static_cast<size_t>(d)] = from;
    stops[static_cast<size_t>(d)] = stop;
    steps[static_cast<size_t>(d)] = step;
    return apply(op("slice"), {&x}, {starts, stops, steps});
  });
}

Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length, Loc loc) {
  require(x, "narrow", loc);
  const int64_t n = size_along(x, dim, "narrow", loc), from = start < 0 ? start + n : start;
  KILN_CHECK(from >= 0 && length >= 0 && from <= n && length <= n - from, invalid,
             "narrow ({}): {} elements from {} on are outside dim {} of x {}", loc.str(), length, start, dim,
             x.type_str());
  return slice(x, dim, from, from + length, 1, loc);
}

Tensor select(const Tensor& x, int64_t dim, int64_t index, Loc loc) {
  require(x, "select", loc);
  const int64_t n = size_along(x, dim, "select", loc), i = index < 0 ? index + n : index;
  KILN_CHECK(i >= 0 && i < n, invalid, "select ({}): index {} is out of range for dim {} of x {}", loc.str(),
             index, dim, x.type_str());
  return squeeze(slice(x, dim, i, i + 1, 1, loc), dim, loc);
}

Tensor flip(const Tensor& x, Sizes order, Loc loc) {
  require(x, "flip", loc);
  for (int64_t& d : order) d = wrap_dim(d, x.dim(), "flip", loc);
  return shape_call("flip", loc, x, order, [&] { return copied(apply(op("flip"), {&x}, {order})); });
}

namespace {
/// torch's exception: an empty 1-d tensor goes with any shape.
bool joins_any(const Tensor& x) { return x.dim() == 1 && x.numel() == 0; }
}  // namespace

Tensor detail::cat(const char* name, const std::vector<Tensor>& tensors, const std::vector<Tensor>& given,
                   int64_t dim, Loc loc) {
  require_all(tensors, name, loc);
  const size_t model =
      static_cast<size_t>(std::find_if_not(tensors.begin(), tensors.end(), joins_any) - tensors.begin()) %
      tensors.size();
  const Tensor& first = tensors[model];
  const int64_t d = wrap_dim(dim, first.dim(), name, loc);
  std::vector<const Tensor*> operands;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& x = tensors[i];
    bool fits = x.dim() == first.dim() && x.dim() > 0;
    for (int64_t k = 0; fits && k < x.dim(); ++k) fits = k == d || x.size(k) == first.size(k);
    KILN_CHECK(fits || (joins_any(x) && first.dim() > 0), invalid,
               "{} ({}): got tensors[{}] {} beside tensors[{}] {}, expected one shape but for dim {}", name,
               loc.str(), i, given[i].type_str(), model, given[model].type_str(), d);
    operands.push_back(&x);
  }
  return call({"cat", loc, operands, {&d, 1}, {}}, [&](const auto&) {
    Sizes none = first.sizes();
    if (!none.empty()) none[static_cast<size_t>(d)] = 0;
    DType dtype = tensors[0].dtype();
    for (const Tensor& x : tensors) dtype = promote_types(dtype, x.dtype());
    std::vector<Tensor> cast;
    std::vector<const Tensor*> in;
    for (const Tensor& x : tensors)
      cast.push_back(joins_any(x) ? reshape_to(cast_to(x, dtype), none) : cast_to(x, dtype));
    for (const Tensor& x : cast) in.push_back(&x);
    return apply(op("cat"), in, {d});
  });
}
Tensor cat(const std::vector<Tensor>& tensors, int64_t dim, Loc loc) {
  return detail::cat("cat", tensors, tensors, dim, loc);
}

Tensor stack(const std::vector<Tensor>& tensors, int64_t dim, Loc loc) {
  require_all(tensors, "stack", loc);
  for (size_t i = 1; i < tensors.size(); ++i)
    KILN_CHECK(tensors[i].sizes() == tensors[0].sizes(), invalid,
               "stack ({}): got tensors[{}] {} beside tensors[0] {}, expected one shape", loc.str(), i,
               tensors[i].type_str(), tensors[0].type_str());
  std::vector<Tensor> lifted;
  for (const Tensor& x : tensors) lifted.push_back(unsqueeze(x, dim, loc));
  return cat(lifted, dim, loc);
}

std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim, Loc loc) {
  require(x, "split", loc);
  KILN_CHECK(size > 0, invalid, "split ({}): size {} is not positive", loc.str(), size);
  const int64_t n = size_along(x, dim, "split", loc);
  check_pieces(n / size, "split", loc);
  std::vector<Tensor> parts;
  for (int64_t at = 0; at < std::max<int64_t>(n, 1); at += size)
    parts.push_back(slice(x, dim, at, std::min(at + size, n), 1, loc));
  return parts;
}

std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim, Loc loc) {
  require(x, "chunk", loc);
  KILN_CHECK(chunks > 0, invalid, "chunk ({}): {} chunks, expected at least one", loc.str(), chunks);
  const int64_t n = size_along(x, dim, "chunk", loc);
  check_pieces(n == 0 ? chunks : std::min(n, chunks), "chunk", loc);
  if (n == 0) return std::vector<Tensor>(static_cast<size_t>(chunks), x);
  return split(x, n / chunks + (n % chunks != 0), dim, loc);
}

Tensor clone(const Tensor& x, Loc loc) {
  return shape_call("clone", loc, x, {}, [&] { return copied(x); });
}

Tensor contiguous(const Tensor& x, Loc loc) {
  require(x, "contiguous", loc);
  return x.is_contiguous() ? x : clone(x, loc);
}

namespace {
Tensor triangle(const char* name, const Tensor& x, int64_t diagonal, bool lower, Loc loc) {
  require(x, name, loc);
  KILN_CHECK(x.dim() >= 2, invalid, "{} ({}): got x {}, expected at least two dims", name, loc.str(),
             x.type_str());
  const Scalar d(diagonal);
  return call(name, loc, {&x}, {}, {d}, [&](const std::vector<Tensor>& s) {
    auto index = [&](int64_t dim) {
      return apply(op("iota"), std::initializer_list<const Tensor*>{}, {dim, dims(x.sizes())});
    };
    const Tensor offset = binary(op("sub"), index(x.dim() - 1), index(x.dim() - 2));
    const Tensor keep = binary(lower ? op("le") : op("ge"), offset, s[0]);
    const Tensor zero = constant_like(x, 0);
    return apply(op("where"), {&keep, &x, &zero});
  });
}
}  // namespace

Tensor tril(const Tensor& x, int64_t diagonal, Loc loc) { return triangle("tril", x, diagonal, true, loc); }
Tensor triu(const Tensor& x, int64_t diagonal, Loc loc) { return triangle("triu", x, diagonal, false, loc); }

namespace {
/// Whether `index` has x's rank and reaches no further beside dim d, where it must; and the type of src.
void check_places(Op o, const std::vector<Tensor>& operands, int64_t d, const char* name, Loc loc) {
  const Tensor &x = operands[0], &index = operands[1];
  const bool along = o == op("take_along") || o == op("scatter_add");
  bool fits = !along || index.dim() == x.dim();
  for (int64_t k = 0; along && fits && k < x.dim(); ++k) fits = k == d || index.size(k) <= x.size(k);
  KILN_CHECK(fits, invalid,
             "{} ({}): got index {} for x {}, expected as many dims, none larger beside dim {}", name,
             loc.str(), index.type_str(), x.type_str(), d);
  if (operands.size() < 3) return;
  const Tensor& src = operands[2];
  Sizes expected = index.sizes();
  if (!along) {
    expected.insert(expected.begin(), x.sizes().begin(), x.sizes().begin() + d);
    expected.insert(expected.end(), x.sizes().begin() + d + 1, x.sizes().end());
  }
  KILN_CHECK(src.sizes() == expected && src.dtype() == x.dtype(), invalid,
             "{} ({}): got src {} for x {} and index {}, expected {}[{}]", name, loc.str(), src.type_str(),
             x.type_str(), index.type_str(), dtype_name(x.dtype()), fmt::join(expected, ","));
}

template <typename... T>
Tensor index_call(const char* event, const char* name, Op o, int64_t dim, Loc loc, const Tensor& x,
                  const Tensor& index, const T&... src) {
  require(x, name, loc);
  require_index(index, name, loc);
  (require(src, name, loc, "src"), ...);
  const int64_t d = wrap_dim(dim, x.dim(), name, loc);
  return call(event, loc, {&x, &index, &src...}, {d}, {},
              [&](const Tensor& x, const Tensor& index, const T&... src, const std::vector<Tensor>&) {
                const auto line = [&](const Tensor& t) {
                  return x.dim() == 0 && t.dim() == 0 ? reshape_to(t, {1}) : t;
                };
                const std::vector<Tensor> lines{line(x), line(index), line(src)...};  // of 0-d tensors
                check_places(o, lines, d, name, loc);
                check_indices(index, lines[0].size(d), name, loc);
                std::vector<const Tensor*> operands;
                for (const Tensor& t : lines) operands.push_back(&t);
                const Tensor y = apply(o, operands, {d});
                if (x.dim() > 0) return y;
                return reshape_to(y, sizeof...(src) > 0 ? Sizes{} : index.sizes());
              });
}
}  // namespace

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index, Loc loc) {
  require(x, "index_select", loc);
  require_index(index, "index_select", loc);
  KILN_CHECK(index.dim() <= 1 && (x.dim() > 0 || index.numel() == 1), invalid,
             "index_select ({}): got index {} for x {}, expected {}", loc.str(), index.type_str(),
             x.type_str(), x.dim() > 0 ? "at most one dim" : "one index");
  return index_call("index_select", "index_select", op("take"), dim, loc, x, index);
}
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index, Loc loc) {
  return index_call("gather", "gather", op("take_along"), dim, loc, x, index);
}
Tensor detail::scatter_add(const char* name, const Tensor& x, int64_t dim, const Tensor& index,
                           const Tensor& src, Loc loc) {
  require(x, name, loc);
  require_index(index, name, loc);
  require(src, name, loc, "src");
  Tensor covered = src;  // by the index
  for (int64_t d = 0; src.dim() == index.dim() && d < src.dim(); ++d)
    if (src.size(d) > index.size(d)) covered = slice(covered, d, 0, index.size(d), 1, loc);
  return index_call("scatter_add", name, op("scatter_add"), dim, loc, x, index, covered);
}
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, Loc loc) {
  return detail::scatter_add("scatter_add", x, dim, index, src, loc);
}
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, Scalar alpha,
                 Loc loc) {
  return detail::index_add("index_add", x, dim, index, src, alpha, loc);
}
Tensor detail::index_add(const char* name, const Tensor& x, int64_t dim, const Tensor& index,
                         const Tensor& src, const Scalar& alpha, Loc loc) {
  require(x, name, loc);
  require_index(index, name, loc);
  require(src, name, loc, "src");
  const bool plain = alpha.is_int && alpha.i == 1;
  return index_call("index_add", name, op("index_add"), dim, loc, x, index,
                    plain ? src : mul(TensorArg(src, loc), TensorArg(alpha, loc)));
}

// Methods.

Tensor Tensor::detach(Loc loc) const {
  checked(*this, "detach", loc);
  return shape_call("detach", loc, *this, {}, [&] {
    NoGrad guard;
    const Tensor r = apply(op("reshape"), {this}, {dims(sizes())});
    r.impl()->no_grad_view = false;  // writes to it are allowed a history, its own
    return r;
  });
}

}  // namespace kiln
