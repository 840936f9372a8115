// SPDX-License-Identifier: Apache-2.0
// Elementwise functions with an op of their own, and the vocabulary of the bodies.
#include <algorithm>
#include <cmath>
#include <limits>

#include "frontend/elementwise.h"
#include "frontend/ops_detail.h"
#include "frontend/state.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace detail {

int64_t wrap_dim(int64_t dim, int64_t rank, const char* name, Loc loc) {
  const int64_t n = std::max<int64_t>(rank, 1);
  KILN_CHECK(dim >= -n && dim < n, invalid, "{} ({}): dim {} is out of range; expected {} to {}", name,
             loc.str(), dim, -n, n - 1);
  return dim < 0 ? dim + n : dim;
}

int64_t size_along(const Tensor& x, int64_t dim, const char* name, Loc loc) {
  KILN_CHECK(dim >= -x.dim() && dim < x.dim(), invalid, "{} ({}): dim {} is out of range for x {}", name,
             loc.str(), dim, x.type_str());
  return x.size(dim);
}

Tensor rounded(Op o, const Tensor& x) {
  return is_floating(x.dtype()) || x.dtype() == DType::boolean ? unary(o, x) : copied(x);
}

void check_pieces(int64_t pieces, const char* name, Loc loc) {
  constexpr int64_t kMost = int64_t{1} << 20;
  KILN_CHECK(pieces <= kMost, invalid, "{} ({}): makes {} tensors, expected at most {}", name, loc.str(),
             pieces, kMost);
}

Sizes wrap_dims(const Sizes& dims, int64_t rank, const char* name, Loc loc) {
  Sizes out;
  out.reserve(static_cast<size_t>(rank) + dims.size() + 2);  // callers add flags
  for (int64_t d : dims) out.push_back(wrap_dim(d, rank, name, loc));
  if (dims.empty())
    for (int64_t d = 0; d < rank; ++d) out.push_back(d);
  std::sort(out.begin(), out.end());
  KILN_CHECK(std::adjacent_find(out.begin(), out.end()) == out.end(), invalid,
             "{} ({}): a dim is given twice in [{}]", name, loc.str(), fmt::join(dims, ","));
  if (rank == 0) out.clear();
  return out;
}

void require_broadcast(std::initializer_list<Arg> args, const char* name, Loc loc) {
  const auto there = [](const Arg& a) { return a.tensor && a.tensor->defined(); };
  for (const Arg* a = args.begin(); a != args.end(); ++a)
    for (const Arg* b = a + 1; there(*a) && b != args.end(); ++b) {
      if (!there(*b)) continue;
      const Sizes &x = a->tensor->sizes(), &y = b->tensor->sizes();
      for (size_t i = 1; i <= std::min(x.size(), y.size()); ++i) {
        const int64_t p = x[x.size() - i], q = y[y.size() - i];
        KILN_CHECK(p == q || p == 1 || q == 1, invalid,
                   "{} ({}): shapes do not broadcast; got {} {} and {} {}", name, loc.str(), a->name,
                   a->tensor->type_str(), b->name, b->tensor->type_str());
      }
    }
}

bool broadcasts_to(const Tensor& x, const Sizes& sizes) {
  const auto all = static_cast<int64_t>(sizes.size());
  bool fits = x.dim() <= all;
  for (int64_t d = 1; fits && d <= x.dim(); ++d)
    fits = x.size(-d) == 1 || x.size(-d) == sizes[static_cast<size_t>(all - d)];
  return fits;
}

Sizes broadcast_shapes(const Tensor& a, const Tensor& b, const char* name, Loc loc, ArgNames args) {
  require_broadcast({{&a, args.a}, {&b, args.b}}, name, loc);
  const Sizes &x = a.sizes(), &y = b.sizes();
  Sizes out(std::max(x.size(), y.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t p = i < x.size() ? x[x.size() - 1 - i] : 1, q = i < y.size() ? y[y.size() - 1 - i] : 1;
    out[out.size() - 1 - i] = p == 1 ? q : p;
  }
  return out;
}

void require_pair(const Tensor& x, const Tensor& y, const char* name, Loc loc) {
  require(x, name, loc);
  require(y, name, loc, "y");
  require_broadcast({{&x, "x"}, {&y, "y"}}, name, loc);
}

void require_one_dtype(std::initializer_list<Arg> args, const char* name, Loc loc) {
  const Arg* first = nullptr;
  for (const Arg& a : args) {
    if (!a.tensor || !a.tensor->defined()) continue;
    if (!first) first = &a;
    KILN_CHECK(a.tensor->dtype() == first->tensor->dtype(), invalid,
               "{} ({}): dtypes differ; got {} {} and {} {} (cast one with to())", name, loc.str(),
               first->name, first->tensor->type_str(), a.name, a.tensor->type_str());
  }
}

namespace {
int category(DType t) { return is_floating(t) ? 2 : t == DType::boolean ? 0 : 1; }
}  // namespace

DType result_type(const Tensor& a, const Tensor& b) {
  const DType x = a.dtype(), y = b.dtype();
  if (a.dim() == 0 && b.dim() > 0 && category(x) <= category(y)) return y;
  if (b.dim() == 0 && a.dim() > 0 && category(y) <= category(x)) return x;
  return promote_types(x, y);
}

Tensor cast_to(const Tensor& x, DType dtype) {
  return x.dtype() == dtype ? x : apply(op("cast"), {&x}, {dtype});
}

Tensor expand_to(const Tensor& x, const Sizes& sizes) {
  return x.sizes() == sizes ? x : apply(op("expand"), {&x}, {Shape(sizes.begin(), sizes.end())});
}

Tensor reshape_to(const Tensor& x, const Sizes& sizes) {
  return x.sizes() == sizes ? x : apply(op("reshape"), {&x}, {Shape(sizes.begin(), sizes.end())});
}

Tensor permuted(const Tensor& x, const std::vector<int64_t>& dims) {
  return apply(op("permute"), {&x}, {dims});
}

Tensor unary(Op o, const Tensor& x) { return apply(o, {&x}); }

Tensor binary(Op o, const Tensor& a, const Tensor& b, Loc loc) {
  const char* name = kOpNames[o.id].data();
  const Sizes shape = broadcast_shapes(a, b, name, loc);
  const DType dtype = result_type(a, b);
  const Tensor x = expand_to(cast_to(a, dtype), shape), y = expand_to(cast_to(b, dtype), shape);
  return apply(o, {&x, &y});
}

Tensor constant_like(const Tensor& x, double value) {
  return apply(op("constant"), std::initializer_list<const Tensor*>{},
               {value, x.dtype(), Shape(x.sizes().begin(), x.sizes().end())});
}

Tensor lit(const Tensor& like, double value) {
  return apply(op("constant"), std::initializer_list<const Tensor*>{}, {value, like.dtype(), Shape{}});
}

Tensor select3(const Tensor& c, const Tensor& a, const Tensor& b) {
  const Tensor x = expand_to(a, c.sizes()), y = expand_to(b, c.sizes());
  return apply(op("where"), {&c, &x, &y});
}

Tensor iota(int64_t dim, const Sizes& sizes) {
  return apply(op("iota"), std::initializer_list<const Tensor*>{}, {dim, Shape(sizes.begin(), sizes.end())});
}

Tensor reduce(Op o, const Tensor& x, const Sizes& dims, bool keepdim) {
  const Tensor r = dims.empty() ? x : apply(o, {&x}, {dims});
  if (!keepdim) return r;
  Sizes kept = x.sizes();
  for (int64_t d : dims) kept[static_cast<size_t>(d)] = 1;
  return reshape_to(r, kept);
}

Tensor as_bool(const Tensor& x) {
  const Tensor zero = constant_like(x, 0);
  return x.dtype() == DType::boolean ? x : apply(op("ne"), {&x, &zero});
}

int64_t count(const Tensor& x, const Sizes& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= x.size(d);
  return n;
}

Tensor copied(const Tensor& x) {
  const Tensor zero = constant_like(x, 0);
  // Adding zero is no copy for -0.0 and bool; selecting is.
  const Tensor yes = apply(op("constant"), std::initializer_list<const Tensor*>{},
                           {1.0, DType::boolean, Shape(x.sizes().begin(), x.sizes().end())});
  return apply(op("where"), {&yes, &x, &zero});
}

Tensor constant_of(const Tensor& x) {
  NoGrad guard;
  return apply(op("reshape"), {&x}, {Shape(x.sizes().begin(), x.sizes().end())});
}

Tensor floating(const Tensor& x) { return is_floating(x.dtype()) ? x : cast_to(x, DType::f32); }

Tensor wide(const Tensor& x) {
  return x.dtype() == DType::bf16 || x.dtype() == DType::f16 ? cast_to(x, DType::f32) : x;
}

Tensor scalar_for(const Tensor& scalar, bool is_int, const Tensor& like) {
  DType t = like.dtype();
  if (!is_int && !is_floating(t)) t = DType::f32;
  if (is_int && t == DType::boolean) t = DType::i64;
  return cast_to(scalar, t);
}

void check_elements(const Tensor& values, const Tensor& bad, int64_t size, const char* name, Loc loc,
                    const char* what, const std::string& expected) {
  if (values.numel() == 0) return;
  const Tensor wide = cast_to(values, DType::i64);
  const Tensor none = constant_like(wide, static_cast<double>(kNothingWrong));
  // The least integer means "none". As an offending one a number stands for it that cannot be offending;
  // where there is none, its neighbour.
  const int64_t least = size > 0 ? 0 : kNothingWrong + 1;
  const Tensor other = size > 0 ? constant_like(wide, 0) : add2(wide, constant_like(wide, 1));
  const Tensor named = select3(apply(op("eq"), {&wide, &none}), other, wide);
  const Tensor wrong = apply(op("where"), {&bad, &named, &none});
  check_value(reduce(op("amax"), wrong, wrap_dims({}, wrong.dim(), name, loc), false),
              fmt::format("{} ({}): {} ", name, loc.str(), what),
              fmt::format(" is out of range; expected {}", expected), least);
}

void check_indices(const Tensor& index, int64_t size, const char* name, Loc loc, const char* arg,
                   const std::string& of) {
  if (index.numel() == 0) return;
  const Tensor wide = cast_to(index, DType::i64), zero = constant_like(wide, 0),
               end = constant_like(wide, static_cast<double>(size));
  const Tensor below = apply(op("lt"), {&wide, &zero}), above = apply(op("ge"), {&wide, &end});
  check_elements(wide, apply(op("logical_or"), {&below, &above}), size, name, loc, arg,
                 size > 0 ? fmt::format("0 to {}{}", size - 1, of) : "none" + of);
}

void require(const Tensor& x, const char* name, Loc loc, const char* arg) {
  if (x.defined()) return;
  throw Error(ErrorKind::invalid,
              fmt::format("{}{}: {} is undefined (give it a value first)", name,
                          loc.known() ? " (" + loc.str() + ")" : "", arg),
              loc);
}

void require_all(const std::vector<Tensor>& tensors, const char* name, Loc loc) {
  KILN_CHECK(!tensors.empty(), invalid, "{} ({}): tensors is empty, expected at least one", name, loc.str());
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!tensors[i].defined()) require(tensors[i], name, loc, fmt::format("tensors[{}]", i).c_str());
}

void require_bool(const Tensor& x, const char* name, Loc loc, const char* arg) {
  require(x, name, loc, arg);
  KILN_CHECK(x.dtype() == DType::boolean, invalid,
             "{} ({}): got {} {}, expected bool (compare it, e.g. with 0)", name, loc.str(), arg,
             x.type_str());
}

void require_fits(const Scalar& number, DType t, const char* name, Loc loc, const char* arg) {
  if (is_floating(t) || t == DType::boolean) return;
  const double v = number.d;  // NaN fails both comparisons
  bool fits = number.is_int || (v >= -0x1p63 && v < 0x1p63);
  if (t == DType::i32) fits = fits && v > -0x1p31 - 1 && v < 0x1p31;
  if (t == DType::u8) fits = fits && v > -256 && v < 256;
  KILN_CHECK(fits, invalid, "{} ({}): {} {} does not fit {} (cast the tensor with to())", name, loc.str(),
             arg, number.is_int ? fmt::format("{}", number.i) : fmt::format("{}", v), dtype_name(t));
}

void require_floating(const Tensor& x, const char* name, Loc loc, const char* arg) {
  require(x, name, loc, arg);
  KILN_CHECK(is_floating(x.dtype()), invalid,
             "{} ({}): got {} {}, expected a floating dtype (cast it with to())", name, loc.str(), arg,
             x.type_str());
}

}  // namespace detail

namespace {

Tensor unary_call(Op o, const Tensor& x, Loc loc, bool to_float) {
  const char* name = kOpNames[o.id].data();
  require(x, name, loc);
  return call(name, loc, {&x}, {}, {},
              [&](const Tensor& x, const auto&) { return unary(o, to_float ? floating(x) : x); });
}

Tensor rounded_call(Op o, const Tensor& x, Loc loc) {
  const char* name = kOpNames[o.id].data();
  require(x, name, loc);
  return call(name, loc, {&x}, {}, {}, [&](const auto&) { return rounded(o, x); });
}

Tensor binary_op(Op o, const TensorArg& a, const TensorArg& b) {
  return binary_call(kOpNames[o.id].data(), a, b,
                     [&](const Tensor& x, const Tensor& y) { return binary(o, x, y, a.loc); });
}

/// The elements of an integer divisor must not be zero.
void check_divisor(const Tensor& b, DType dtype, const char* name, Loc loc) {
  const Tensor flat = reshape_to(cast_to(b, dtype), {b.numel()}), zero = constant_like(flat, 0),
               at = iota(0, {b.numel()}), none = constant_like(at, static_cast<double>(kNothingWrong));
  const Tensor wrong = select3(apply(op("eq"), {&flat, &zero}), at, none);
  check_value(reduce(op("amax"), wrong, {0}, false),
              fmt::format("{} ({}): integer division by zero; got b {} with a 0 at element ", name, loc.str(),
                          b.type_str()),
              "");
}

/// Quotients and remainders, which integers have only for a divisor other than zero.
template <typename Body>
Tensor whole_division(const char* name, const TensorArg& a, const TensorArg& b, Body&& body) {
  if (a.tensor && a.tensor->defined() && !b.tensor && b.scalar.is_int && !is_floating(a.tensor->dtype()))
    KILN_CHECK(b.scalar.i != 0, invalid, "{} ({}): integer division by zero; got a {} and b 0", name,
               a.loc.str(), a.tensor->type_str());
  return binary_call(name, a, b, [&](const Tensor& x, const Tensor& y) {
    const DType t = result_type(x, y);
    if (b.tensor && !is_floating(t) && x.numel() > 0 && y.numel() > 0) check_divisor(y, t, name, a.loc);
    return body(x, y);
  });
}
Tensor whole_division(Op o, const TensorArg& a, const TensorArg& b, const char* name = nullptr) {
  return whole_division(name ? name : kOpNames[o.id].data(), a, b,
                        [&](const Tensor& x, const Tensor& y) { return binary(o, x, y, a.loc); });
}

/// Sums and products, which for bool are "or" and "and".
Tensor binary_or_logical(Op o, Op logical, const TensorArg& a, const TensorArg& b) {
  return binary_call(kOpNames[o.id].data(), a, b, [&](const Tensor& x, const Tensor& y) {
    return binary(result_type(x, y) == DType::boolean ? logical : o, x, y, a.loc);
  });
}

Tensor logical_op(Op o, const TensorArg& a, const TensorArg& b) {
  return binary_call(kOpNames[o.id].data(), a, b, [&](const Tensor& x, const Tensor& y) {
    return binary(o, as_bool(x), as_bool(y), a.loc);
  });
}

}  // namespace

Tensor neg(const Tensor& x, Loc loc) { return unary_call(op("neg"), x, loc, false); }
Tensor abs(const Tensor& x, Loc loc) { return unary_call(op("abs"), x, loc, false); }
Tensor sign(const Tensor& x, Loc loc) {
  require(x, "sign", loc);
  return call("sign", loc, {&x}, {}, {},
              [&](const auto&) { return x.dtype() == DType::boolean ? copied(x) : unary(op("sign"), x); });
}
Tensor exp(const Tensor& x, Loc loc) { return unary_call(op("exp"), x, loc, true); }
Tensor exp2(const Tensor& x, Loc loc) { return unary_call(op("exp2"), x, loc, true); }
Tensor expm1(const Tensor& x, Loc loc) { return unary_call(op("expm1"), x, loc, true); }
Tensor log(const Tensor& x, Loc loc) { return unary_call(op("log"), x, loc, true); }
Tensor log1p(const Tensor& x, Loc loc) { return unary_call(op("log1p"), x, loc, true); }
Tensor log2(const Tensor& x, Loc loc) { return unary_call(op("log2"), x, loc, true); }
Tensor log10(const Tensor& x, Loc loc) {
  require(x, "log10", loc);
  return call("log10", loc, {&x}, {}, {}, [&](const Tensor& x, const auto&) {
    const Tensor y = unary(op("log"), floating(x));
    return binary(op("mul"), y, constant_like(y, 1 / M_LN10));
  });
}
Tensor sqrt(const Tensor& x, Loc loc) { return unary_call(op("sqrt"), x, loc, true); }
Tensor rsqrt(const Tensor& x, Loc loc) { return unary_call(op("rsqrt"), x, loc, true); }
Tensor reciprocal(const Tensor& x, Loc loc) { return unary_call(op("reciprocal"), x, loc, true); }
Tensor sin(const Tensor& x, Loc loc) { return unary_call(op("sin"), x, loc, true); }
Tensor cos(const Tensor& x, Loc loc) { return unary_call(op("cos"), x, loc, true); }
Tensor tan(const Tensor& x, Loc loc) { return unary_call(op("tan"), x, loc, true); }
Tensor asin(const Tensor& x, Loc loc) { return unary_call(op("asin"), x, loc, true); }
Tensor acos(const Tensor& x, Loc loc) { return unary_call(op("acos"), x, loc, true); }
Tensor atan(const Tensor& x, Loc loc) { return unary_call(op("atan"), x, loc, true); }
Tensor sinh(const Tensor& x, Loc loc) { return unary_call(op("sinh"), x, loc, true); }
Tensor cosh(const Tensor& x, Loc loc) { return unary_call(op("cosh"), x, loc, true); }
Tensor tanh(const Tensor& x, Loc loc) { return unary_call(op("tanh"), x, loc, true); }
Tensor sigmoid(const Tensor& x, Loc loc) { return unary_call(op("sigmoid"), x, loc, true); }
Tensor erf(const Tensor& x, Loc loc) { return unary_call(op("erf"), x, loc, true); }
Tensor erfc(const Tensor& x, Loc loc) { return unary_call(op("erfc"), x, loc, true); }
Tensor floor(const Tensor& x, Loc loc) { return rounded_call(op("floor"), x, loc); }
Tensor ceil(const Tensor& x, Loc loc) { return rounded_call(op("ceil"), x, loc); }
Tensor round(const Tensor& x, Loc loc) { return rounded_call(op("round"), x, loc); }
Tensor trunc(const Tensor& x, Loc loc) { return rounded_call(op("trunc"), x, loc); }
Tensor isnan(const Tensor& x, Loc loc) { return unary_call(op("isnan"), x, loc, false); }

Tensor square(const Tensor& x, Loc loc) {
  require(x, "square", loc);
  return call("square", loc, {&x}, {}, {}, [&](const Tensor& x, const auto&) {
    const Tensor number = x.dtype() == DType::boolean ? cast_to(x, DType::i64) : x;
    return mul2(number, number);
  });
}

Tensor logical_not(const Tensor& x, Loc loc) {
  require(x, "logical_not", loc);
  return call("logical_not", loc, {&x}, {}, {},
              [&](const auto&) { return unary(op("logical_not"), as_bool(x)); });
}

Tensor add(const TensorArg& a, const TensorArg& b) {
  return binary_or_logical(op("add"), op("logical_or"), a, b);
}
Tensor sub(const TensorArg& a, const TensorArg& b) { return binary_op(op("sub"), a, b); }
Tensor mul(const TensorArg& a, const TensorArg& b) {
  return binary_or_logical(op("mul"), op("logical_and"), a, b);
}
Tensor pow(const TensorArg& a, const TensorArg& b) {
  if (a.tensor && a.tensor->defined() && !b.tensor && b.scalar.is_int && !is_floating(a.tensor->dtype()))
    KILN_CHECK(b.scalar.i >= 0, invalid, "pow ({}): got a {} and b {}, expected b of at least 0 for integers",
               a.loc.str(), a.tensor->type_str(), b.scalar.i);
  return binary_op(op("pow"), a, b);
}
Tensor maximum(const TensorArg& a, const TensorArg& b) {
  return binary_or_logical(op("maximum"), op("logical_or"), a, b);
}
Tensor minimum(const TensorArg& a, const TensorArg& b) {
  return binary_or_logical(op("minimum"), op("logical_and"), a, b);
}
Tensor fmod(const TensorArg& a, const TensorArg& b) { return whole_division(op("fmod"), a, b); }
Tensor remainder(const TensorArg& a, const TensorArg& b) { return whole_division(op("remainder"), a, b); }
Tensor floor_divide(const TensorArg& a, const TensorArg& b) {
  return whole_division(op("floor_divide"), a, b);
}
Tensor atan2(const TensorArg& a, const TensorArg& b) { return binary_op(op("atan2"), a, b); }
Tensor eq(const TensorArg& a, const TensorArg& b) { return binary_op(op("eq"), a, b); }
Tensor ne(const TensorArg& a, const TensorArg& b) { return binary_op(op("ne"), a, b); }
Tensor lt(const TensorArg& a, const TensorArg& b) { return binary_op(op("lt"), a, b); }
Tensor le(const TensorArg& a, const TensorArg& b) { return binary_op(op("le"), a, b); }
Tensor gt(const TensorArg& a, const TensorArg& b) { return binary_op(op("gt"), a, b); }
Tensor ge(const TensorArg& a, const TensorArg& b) { return binary_op(op("ge"), a, b); }
Tensor logical_and(const TensorArg& a, const TensorArg& b) { return logical_op(op("logical_and"), a, b); }
Tensor logical_or(const TensorArg& a, const TensorArg& b) { return logical_op(op("logical_or"), a, b); }
Tensor logical_xor(const TensorArg& a, const TensorArg& b) { return logical_op(op("logical_xor"), a, b); }

Tensor div(const TensorArg& a, const TensorArg& b) {
  return binary_call(!a.tensor && state().autocast ? "rdiv" : "div", a, b,
                     [&](const Tensor& x, const Tensor& y) {
                       const bool integers = !is_floating(result_type(x, y));
                       return binary(op("div"), integers ? cast_to(x, DType::f32) : x,
                                     integers ? cast_to(y, DType::f32) : y, a.loc);
                     });
}

Tensor div(const TensorArg& a, const TensorArg& b, RoundingMode mode) {
  if (mode == RoundingMode::floor) return whole_division(op("floor_divide"), a, b, "div");
  return whole_division("div", a, b, [&](const Tensor& x, const Tensor& y) {
    if (is_floating(result_type(x, y))) return unary(op("trunc"), binary(op("div"), x, y, a.loc));
    // What fmod leaves is a multiple of the divisor, so that rounding it down changes nothing.
    const Tensor whole = binary(op("sub"), x, binary(op("fmod"), x, y, a.loc), a.loc);
    return binary(op("floor_divide"), whole, y, a.loc);
  });
}

Tensor where(const Tensor& condition, const TensorArg& a, const TensorArg& b) {
  require_bool(condition, "where", a.loc, "condition");
  if (a.tensor) require(*a.tensor, "where", a.loc, "a");
  if (b.tensor) require(*b.tensor, "where", b.loc, "b");
  if (a.tensor && !b.tensor && b.scalar.is_int)
    require_fits(b.scalar, a.tensor->dtype(), "where", a.loc, "b");
  if (b.tensor && !a.tensor && a.scalar.is_int)
    require_fits(a.scalar, b.tensor->dtype(), "where", a.loc, "a");
  const Tensor* operands[] = {&condition, a.tensor, b.tensor};
  std::vector<Scalar> scalars;
  if (!a.tensor) scalars.push_back(a.scalar);
  if (!b.tensor) scalars.push_back(b.scalar);
  return call({"where", a.loc, operands, {}, scalars}, [&](const std::vector<Tensor>& s) {
    Tensor x = a.tensor ? *a.tensor : s[0], y = b.tensor ? *b.tensor : s.back();
    if (!a.tensor && b.tensor) x = scalar_for(x, a.scalar.is_int, y);
    if (!b.tensor && a.tensor) y = scalar_for(y, b.scalar.is_int, x);
    if (!a.tensor && !b.tensor && !(a.scalar.is_int && b.scalar.is_int))
      x = cast_to(x, DType::f32), y = cast_to(y, DType::f32);
    require_broadcast({{&condition, "condition"}, {&x, "a"}, {&y, "b"}}, "where", a.loc);
    const DType dtype = result_type(x, y);
    Sizes shape = broadcast_shapes(x, y, "where", a.loc);
    shape = broadcast_shapes(condition, expand_to(x, shape), "where", a.loc);
    const Tensor c = expand_to(condition, shape);
    x = expand_to(cast_to(x, dtype), shape);
    y = expand_to(cast_to(y, dtype), shape);
    return apply(op("where"), {&c, &x, &y});
  });
}

namespace {
/// A bound as a number of dtype `t`. For integers one that lies outside becomes the nearest that does not.
Scalar bound_of(double v, DType t, const char* arg, const char* name, Loc loc) {
  KILN_CHECK(!std::isnan(v), invalid, "{} ({}): {} is NaN, expected a number", name, loc.str(), arg);
  if (is_floating(t)) return v;
  KILN_CHECK(v == std::trunc(v), invalid, "{} ({}): {} is {}, expected a whole number for {} elements", name,
             loc.str(), arg, v, dtype_name(t));
  const double lo = t == DType::i64 ? -0x1p63 : t == DType::i32 ? -0x1p31 : 0;
  const double hi = t == DType::i64 ? 0x1p63 : t == DType::i32 ? 0x1p31 - 1 : t == DType::u8 ? 255 : 1;
  const double near = std::clamp(v, lo, hi);
  return near >= 0x1p63 ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(near);
}
}  // namespace

Tensor clamp(const Tensor& x, std::optional<double> lo, std::optional<double> hi, Loc loc) {
  return detail::clamp("clamp", x, lo, hi, loc);
}
Tensor detail::clamp(const char* name, const Tensor& x, std::optional<double> lo, std::optional<double> hi,
                     Loc loc) {
  require(x, name, loc);
  KILN_CHECK(lo || hi, invalid, "{} ({}): got neither lo nor hi, expected a bound", name, loc.str());
  std::vector<Scalar> scalars;
  if (lo) scalars.push_back(bound_of(*lo, x.dtype(), "lo", name, loc));
  if (hi) scalars.push_back(bound_of(*hi, x.dtype(), "hi", name, loc));
  const Tensor* operands[] = {&x};
  const int64_t ints[] = {lo.has_value(), hi.has_value()};
  return call({"clamp", loc, operands, ints, scalars}, [&](const std::vector<Tensor>& s) {
    Tensor y = x;
    // The gradient passes where lo < x < hi, ends excluded; min and max would split it at ties.
    const DType t = x.dtype();
    if (lo) {
      const Tensor bound = expand_to(cast_to(s[0], t), x.sizes()), below = apply(op("le"), {&y, &bound});
      y = apply(op("where"), {&below, &bound, &y});
    }
    if (hi) {
      const Tensor bound = expand_to(cast_to(s.back(), t), x.sizes()), above = apply(op("ge"), {&y, &bound});
      y = apply(op("where"), {&above, &bound, &y});
    }
    return y;
  });
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value, Loc loc) {
  require(x, "masked_fill", loc);
  require_bool(mask, "masked_fill", loc, "mask");
  require_fits(value, x.dtype(), "masked_fill", loc);
  return call("masked_fill", loc, {&mask, &x}, {}, {value}, [&](const std::vector<Tensor>& s) {
    const Sizes shape = broadcast_shapes(x, mask, "masked_fill", loc, {"x", "mask"});
    return select3(expand_to(mask, shape), cast_to(s[0], x.dtype()), expand_to(x, shape));
  });
}

}  // namespace kiln
