// SPDX-License-Identifier: Apache-2.0
// Creation, shapes, views, indexing and the in-place methods.
#include <algorithm>
#include <cmath>

#include "frontend/ops_detail.h"
#include "frontend/state.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace {

/// One event with a list of integers as its structure.
template <typename Body>
Tensor shape_call(const char* name, Loc loc, const Tensor& x, const Sizes& ints, Body&& body) {
  require(x, name, loc);
  const Tensor* operands[] = {&x};
  return call({name, loc, operands, ints, {}}, [&](const auto&) { return body(); });
}

Shape dims(const Sizes& s) { return Shape(s.begin(), s.end()); }

Tensor create(const char* name, const Sizes& sizes, TensorOptions o, std::vector<Scalar> scalars, Loc loc,
              const std::function<Tensor(const std::vector<Tensor>&)>& body) {
  count_of(sizes, name, loc);
  Sizes ints = sizes;
  ints.push_back(static_cast<int64_t>(o.dtype));
  Tensor t = call({name, loc, {}, ints, scalars}, body);
  if (!tracing() && !t.is_contiguous()) t = t.contiguous(loc);
  if (o.requires_grad) t.requires_grad_(true, loc);
  return t;
}

Tensor constant(double value, DType dtype, const Sizes& sizes) {
  return apply(op("constant"), std::initializer_list<const Tensor*>{}, {value, dtype, dims(sizes)});
}

Tensor uniform(const Tensor& seed, const Tensor& offset, const Sizes& sizes) {
  return apply(op("random_uniform"), {&seed, &offset}, {dims(sizes)});
}

std::vector<Scalar> draw(int count) {
  std::vector<Scalar> s;
  for (int i = 0; i < count; ++i) {
    const GeneratorState g = next_random();
    s.emplace_back(static_cast<int64_t>(g.seed));
    s.emplace_back(static_cast<int64_t>(g.offset));
  }
  return s;
}

}  // namespace

Tensor full(Sizes sizes, Scalar value, TensorOptions o, Loc loc) {
  require_fits(value, o.dtype, "full", loc);
  return create("full", sizes, o, {value}, loc,
                [&](const auto& s) { return expand_to(cast_to(s[0], o.dtype), sizes); });
}
Tensor zeros(Sizes sizes, TensorOptions o, Loc loc) {
  return create("zeros", sizes, o, {}, loc, [&](const auto&) { return constant(0, o.dtype, sizes); });
}
Tensor ones(Sizes sizes, TensorOptions o, Loc loc) {
  return create("ones", sizes, o, {}, loc, [&](const auto&) { return constant(1, o.dtype, sizes); });
}
Tensor empty(Sizes sizes, TensorOptions o, Loc loc) { return zeros(std::move(sizes), o, loc); }
Tensor zeros_like(const Tensor& t, Loc loc) {
  require(t, "zeros_like", loc);
  return zeros(t.sizes(), {t.dtype()}, loc);
}
Tensor ones_like(const Tensor& t, Loc loc) {
  require(t, "ones_like", loc);
  return ones(t.sizes(), {t.dtype()}, loc);
}

Tensor arange(int64_t start, int64_t end, int64_t step, TensorOptions o, Loc loc) {
  KILN_CHECK(step != 0 && (start == end || (end > start) == (step > 0)), invalid,
             "arange ({}): no way from {} to {} in steps of {}", loc.str(), start, end, step);
  // As unsigned numbers neither the way nor a step overflows.
  const uint64_t way = step > 0 ? uint64_t(end) - uint64_t(start) : uint64_t(start) - uint64_t(end);
  const uint64_t each = step > 0 ? uint64_t(step) : uint64_t{0} - uint64_t(step);
  const uint64_t count = way / each + (way % each != 0);
  KILN_CHECK(count <= uint64_t(INT64_MAX), invalid, "arange ({}): {} elements are too many", loc.str(),
             count);
  const auto n = static_cast<int64_t>(count);
  const Scalar s0(start), s1(step);
  return create("arange", {n}, o, {s0, s1}, loc, [&](const std::vector<Tensor>& s) {
    const Tensor i = apply(op("iota"), std::initializer_list<const Tensor*>{}, {int64_t{0}, Shape{Dim(n)}});
    return cast_to(binary(op("add"), binary(op("mul"), i, s[1]), s[0]), o.dtype);
  });
}
Tensor arange(int64_t end, TensorOptions o, Loc loc) { return arange(0, end, 1, o, loc); }

Tensor rand(Sizes sizes, TensorOptions o, Loc loc) {
  return create("rand", sizes, o, draw(1), loc,
                [&](const auto& s) { return cast_to(uniform(s[0], s[1], sizes), o.dtype); });
}

Tensor randn(Sizes sizes, TensorOptions o, Loc loc) {
  return create("randn", sizes, o, draw(2), loc, [&](const auto& s) {
    const Tensor u = uniform(s[0], s[1], sizes), v = uniform(s[2], s[3], sizes);
    const Tensor one = constant_like(u, 1), minus_two = constant_like(u, -2),
                 two_pi = constant_like(u, 2 * M_PI);
    const Tensor open = binary(op("sub"), one, u);  // in (0, 1]: its logarithm is finite
    const Tensor radius = unary(op("sqrt"), binary(op("mul"), minus_two, unary(op("log"), open)));
    return cast_to(binary(op("mul"), radius, unary(op("cos"), binary(op("mul"), two_pi, v))), o.dtype);
  });
}

Tensor randint(int64_t low, int64_t high, Sizes sizes, Loc loc) {
  KILN_CHECK(low < high, invalid, "randint ({}): empty range [{}, {})", loc.str(), low, high);
  int64_t width = 0;
  KILN_CHECK(!__builtin_sub_overflow(high, low, &width), invalid,
             "randint ({}): the range [{}, {}) is too wide", loc.str(), low, high);
  std::vector<Scalar> s = draw(1);
  s.emplace_back(low);
  s.emplace_back(width);
  return create("randint", sizes, {DType::i64}, s, loc, [&](const std::vector<Tensor>& t) {
    const Tensor u = cast_to(uniform(t[0], t[1], sizes), DType::f64);
    return binary(op("add"), cast_to(binary(op("mul"), u, cast_to(t[3], DType::f64)), DType::i64), t[2]);
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
  KILN_CHECK(fits, invalid, "{} ({}): {} does not fit sizes [{}]", name, loc.str(), x.type_str(),
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
             "view ({}): strides [{}] of {} do not allow sizes [{}] without a copy (use reshape)", loc.str(),
             fmt::join(x.strides(), ","), x.type_str(), fmt::join(shape, ","));
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
  KILN_CHECK(complete, invalid, "permute ({}): [{}] is no order of the dims of {}", loc.str(),
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
  KILN_CHECK(x.dim() <= 2, invalid, "t ({}): expected a matrix, got {}", loc.str(), x.type_str());
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
               "expand ({}): {} does not expand to [{}]", loc.str(), x.type_str(), fmt::join(sizes, ","));
  }
  KILN_CHECK(lead >= 0, invalid, "expand ({}): {} does not expand to [{}]", loc.str(), x.type_str(),
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
             "slice ({}): got {} and step {}, expected at least one dim and step >= 1", loc.str(),
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
  const int64_t n = x.size(dim, loc), from = start < 0 ? start + n : start;
  KILN_CHECK(from >= 0 && length >= 0 && from <= n && length <= n - from, invalid,
             "narrow ({}): {} elements from {} on are outside dim {} of {}", loc.str(), length, start, dim,
             x.type_str());
  return slice(x, dim, from, from + length, 1, loc);
}

Tensor select(const Tensor& x, int64_t dim, int64_t index, Loc loc) {
  require(x, "select", loc);
  const int64_t n = x.size(dim, loc), i = index < 0 ? index + n : index;
  KILN_CHECK(i >= 0 && i < n, invalid, "select ({}): index {} is out of range for dim {} of {}", loc.str(),
             index, dim, x.type_str());
  return squeeze(slice(x, dim, i, i + 1, 1, loc), dim, loc);
}

Tensor flip(const Tensor& x, Sizes order, Loc loc) {
  require(x, "flip", loc);
  for (int64_t& d : order) d = wrap_dim(d, x.dim(), "flip", loc);
  return shape_call("flip", loc, x, order, [&] { return apply(op("flip"), {&x}, {order}); });
}

Tensor cat(const std::vector<Tensor>& tensors, int64_t dim, Loc loc) {
  KILN_CHECK(!tensors.empty(), invalid, "cat ({}): no tensors", loc.str());
  std::vector<const Tensor*> operands;
  for (const Tensor& x : tensors) {
    require(x, "cat", loc);
    operands.push_back(&x);
  }
  // torch's exception: an empty 1-d tensor goes with any shape.
  const auto free = [](const Tensor& x) { return x.dim() == 1 && x.numel() == 0; };
  const auto shaped = std::find_if_not(tensors.begin(), tensors.end(), free);
  const Tensor& model = shaped == tensors.end() ? tensors[0] : *shaped;
  const int64_t d = wrap_dim(dim, model.dim(), "cat", loc);
  return call({"cat", loc, operands, {&d, 1}, {}}, [&](const auto&) {
    Sizes none = model.sizes();
    if (!none.empty()) none[static_cast<size_t>(d)] = 0;
    DType dtype = tensors[0].dtype();
    for (const Tensor& x : tensors) dtype = promote_types(dtype, x.dtype());
    std::vector<Tensor> cast;
    std::vector<const Tensor*> in;
    for (const Tensor& x : tensors)
      cast.push_back(free(x) ? reshape_to(cast_to(x, dtype), none) : cast_to(x, dtype));
    for (const Tensor& x : cast) in.push_back(&x);
    return apply(op("cat"), in, {d});
  });
}

Tensor stack(const std::vector<Tensor>& tensors, int64_t dim, Loc loc) {
  KILN_CHECK(!tensors.empty(), invalid, "stack ({}): no tensors", loc.str());
  std::vector<Tensor> lifted;
  for (const Tensor& x : tensors) lifted.push_back(unsqueeze(x, dim, loc));
  return cat(lifted, dim, loc);
}

std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim, Loc loc) {
  require(x, "split", loc);
  KILN_CHECK(size > 0, invalid, "split ({}): size {} is not positive", loc.str(), size);
  const int64_t n = x.size(dim, loc);
  std::vector<Tensor> parts;
  for (int64_t at = 0; at < std::max<int64_t>(n, 1); at += size)
    parts.push_back(slice(x, dim, at, std::min(at + size, n), 1, loc));
  return parts;
}

std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim, Loc loc) {
  require(x, "chunk", loc);
  KILN_CHECK(chunks > 0, invalid, "chunk ({}): {} chunks, expected at least one", loc.str(), chunks);
  return split(x, std::max<int64_t>(1, (x.size(dim, loc) + chunks - 1) / chunks), dim, loc);
}

namespace {
Tensor copied(const Tensor& x) {
  const Tensor zero = constant_like(x, 0);
  // Adding zero is no copy for -0.0 and bool; selecting is.
  const Tensor yes = constant(1, DType::boolean, x.sizes());
  return apply(op("where"), {&yes, &x, &zero});
}
}  // namespace

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
  KILN_CHECK(x.dim() >= 2, invalid, "{} ({}): expected at least two dims, got {}", name, loc.str(),
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
template <typename... T>
Tensor index_call(const char* name, Op o, int64_t dim, Loc loc, const Tensor& x, const Tensor& index,
                  const T&... src) {
  require(x, name, loc);
  require(index, name, loc);
  (require(src, name, loc), ...);
  KILN_CHECK(index.dtype() == DType::i64 || index.dtype() == DType::i32, invalid,
             "{} ({}): got index {}, expected i64 or i32", name, loc.str(), index.type_str());
  const int64_t d = wrap_dim(dim, x.dim(), name, loc);
  return call(name, loc, {&x, &index, &src...}, {d}, {}, [&](const auto&) {
    if (x.dim() > 0) check_indices(index, x.size(d), name, loc);
    return apply(o, {&x, &index, &src...}, {d});
  });
}
}  // namespace

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index, Loc loc) {
  return index_call("index_select", op("take"), dim, loc, x, index);
}
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index, Loc loc) {
  return index_call("gather", op("take_along"), dim, loc, x, index);
}
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, Loc loc) {
  return index_call("scatter_add", op("scatter_add"), dim, loc, x, index, src);
}
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, Loc loc) {
  return index_call("index_add", op("index_add"), dim, loc, x, index, src);
}

// Methods.

Tensor Tensor::detach(Loc loc) const {
  return shape_call("detach", loc, *this, {}, [&] {
    NoGrad guard;
    const Tensor r = apply(op("reshape"), {this}, {dims(sizes())});
    r.impl()->no_grad_view = false;  // writes to it are allowed a history, its own
    return r;
  });
}

namespace {
/// `update(scalars)` gives the new contents, in any dtype and any shape that broadcasts.
template <typename Body>
Tensor& in_place(const char* name, Loc loc, Tensor& self, const Tensor* other, std::vector<Scalar> scalars,
                 Body&& update) {
  require(self, name, loc);
  if (other) {
    require(*other, name, loc);
    KILN_CHECK(broadcast_shapes(self, *other, name, loc) == self.sizes(), invalid,
               "{} ({}): {} does not broadcast into {}", name, loc.str(), other->type_str(), self.type_str());
  }
  for (size_t d = 0; d < self.sizes().size(); ++d)
    KILN_CHECK(self.sizes()[d] <= 1 || self.strides()[d] != 0, invalid,
               "{} ({}): elements of {} share memory (write to a copy)", name, loc.str(), self.type_str());
  const Tensor* operands[] = {&self, other};
  call_many(name, loc, operands, {}, scalars, [&](const std::vector<Tensor>& s) {
    const Tensor value = update(s);
    KILN_CHECK(is_floating(self.dtype()) || !is_floating(value.dtype()), invalid,
               "{} ({}): a {} result does not go into {}", name, loc.str(), dtype_name(value.dtype()),
               self.type_str());
    assign(self, expand_to(cast_to(value, self.dtype()), self.sizes()));
    return std::vector<Tensor>{self};
  });
  return self;
}
}  // namespace

Tensor& Tensor::copy_(const Tensor& src, Loc loc) {
  return in_place("copy_", loc, *this, &src, {}, [&](const auto&) { return cast_to(src, dtype()); });
}
Tensor& Tensor::add_(const Tensor& other, double alpha, Loc loc) {
  if (other.defined() && !is_floating(other.dtype())) {
    KILN_CHECK(alpha == std::trunc(alpha), invalid, "add_ ({}): alpha is {} for {}, expected a whole number",
               loc.str(), alpha, other.type_str());
    require_fits(alpha, other.dtype(), "add_", loc);
  }
  return in_place("add_", loc, *this, &other, {alpha}, [&](const std::vector<Tensor>& s) {
    return binary(op("add"), *this, binary(op("mul"), other, cast_to(s[0], other.dtype())), loc);
  });
}
Tensor& Tensor::mul_(const Tensor& other, Loc loc) {
  return in_place("mul_", loc, *this, &other, {}, [&](const auto&) {
    // The derivative reads the factors, and eagerly the write takes their memory.
    const Tensor self = tracing() || !grad_enabled() ? *this : copied(*this);
    return binary(op("mul"), self, other.impl() == impl() ? self : other, loc);
  });
}
Tensor& Tensor::mul_(double factor, Loc loc) {
  return in_place("mul_", loc, *this, nullptr, {factor}, [&](const std::vector<Tensor>& s) {
    return binary(op("mul"), *this, scalar_for(s[0], false, *this));
  });
}
Tensor& Tensor::fill_(double value, Loc loc) {
  if (defined()) require_fits(value, dtype(), "fill_", loc);
  return in_place("fill_", loc, *this, nullptr, {value},
                  [&](const std::vector<Tensor>& s) { return cast_to(s[0], dtype()); });
}
Tensor& Tensor::zero_(Loc loc) {
  return in_place("zero_", loc, *this, nullptr, {}, [&](const auto&) { return constant(0, dtype(), {}); });
}

Tensor Tensor::to(DType t, Loc loc) const { return kiln::to(*this, t, loc); }
Tensor Tensor::view(Sizes s, Loc loc) const { return kiln::view(*this, std::move(s), loc); }
Tensor Tensor::reshape(Sizes s, Loc loc) const { return kiln::reshape(*this, std::move(s), loc); }
Tensor Tensor::transpose(int64_t a, int64_t b, Loc loc) const { return kiln::transpose(*this, a, b, loc); }
Tensor Tensor::permute(Sizes s, Loc loc) const { return kiln::permute(*this, std::move(s), loc); }
Tensor Tensor::contiguous(Loc loc) const { return kiln::contiguous(*this, loc); }
Tensor Tensor::clone(Loc loc) const { return kiln::clone(*this, loc); }
Tensor Tensor::sum(Loc loc) const { return kiln::sum(*this, {}, false, loc); }
Tensor Tensor::mean(Loc loc) const { return kiln::mean(*this, {}, false, loc); }

}  // namespace kiln
