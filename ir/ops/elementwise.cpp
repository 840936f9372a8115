// SPDX-License-Identifier: Apache-2.0
// Arithmetic on one, two or three operands of equal type, and cast. Integers wrap around; NaN propagates.
#include <cmath>
#include <concepts>
#include <limits>

#include "ir/ops/loops.h"
#include "ir/ops/rules.h"

namespace kiln {

namespace {

using namespace rules;  // NOLINT: the rows are written in terms of its words
using I = int64_t;
using U = uint64_t;

// --- evaluation: one function per compute type ---

struct Neg {
  template <std::floating_point T>
  static T f(T x) {
    return -x;
  }
  static I f(I x) { return I(U{0} - U(x)); }
};
struct Abs {
  template <std::floating_point T>
  static T f(T x) {
    return std::fabs(x);
  }
  static I f(I x) { return x < 0 ? I(U{0} - U(x)) : x; }
};
struct Sign {
  template <typename T>
  static T f(T x) {
    return T(T(0) < x) - T(x < T(0));
  }
};
struct Add {
  template <std::floating_point T>
  static T f(T a, T b) {
    return a + b;
  }
  static I f(I a, I b) { return I(U(a) + U(b)); }
};
struct Sub {
  template <std::floating_point T>
  static T f(T a, T b) {
    return a - b;
  }
  static I f(I a, I b) { return I(U(a) - U(b)); }
};
struct Mul {
  template <std::floating_point T>
  static T f(T a, T b) {
    return a * b;
  }
  static I f(I a, I b) { return I(U(a) * U(b)); }
};
struct Div {
  template <std::floating_point T>
  static T f(T a, T b) {
    return a / b;
  }
};
struct Pow {
  template <std::floating_point T>
  static T f(T a, T b) {
    return std::pow(a, b);
  }
  /// A negative exponent gives the quotient cut to an integer: 0 unless the base is 1 or -1.
  static I f(I a, I b) {
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    U r = 1, base = U(a);
    for (; b; b >>= 1, base *= base)
      if (b & 1) r *= base;
    return I(r);
  }
};
struct Maximum {
  template <typename T>
  static T f(T a, T b) {
    return (a > b || a != a) ? a : b;
  }
};
struct Minimum {
  template <typename T>
  static T f(T a, T b) {
    return (a < b || a != a) ? a : b;
  }
};
struct Fmod {
  static constexpr std::string_view kName = "fmod";
  template <std::floating_point T>
  static T f(T a, T b) {
    return std::fmod(a, b);
  }
  static I f(I a, I b) { return b == -1 ? 0 : a % b; }
};
struct Remainder {
  static constexpr std::string_view kName = "remainder";
  template <std::floating_point T>
  static T f(T a, T b) {
    const T m = std::fmod(a, b);
    return m != 0 && (b < 0) != (m < 0) ? m + b : m;
  }
  static I f(I a, I b) {
    const I m = b == -1 ? 0 : a % b;
    return m != 0 && (b < 0) != (m < 0) ? m + b : m;
  }
};
struct FloorDivide {
  static constexpr std::string_view kName = "floor_divide";
  /// Source: c10::div_floor_floating, which follows Python's //.
  template <std::floating_point T>
  static T f(T a, T b) {
    if (b == 0) return a / b;
    const T m = std::fmod(a, b);
    T q = (a - m) / b;
    if (m != 0 && (b < 0) != (m < 0)) q -= 1;
    if (q == 0) return std::copysign(T(0), a / b);
    const T whole = std::floor(q);
    return q - whole > T(0.5) ? whole + 1 : whole;
  }
  static I f(I a, I b) {
    if (b == -1) return I(U{0} - U(a));
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
  }
};
struct Atan2 {
  template <std::floating_point T>
  static T f(T a, T b) {
    return std::atan2(a, b);
  }
};

/// Found before any thread starts. Throws: invalid, on integer division by zero.
template <typename F>
void eval_divides(const EvalArgs& a) {
  const TensorRef& b = a.in[1];
  if (!is_floating(b.dtype)) {
    const HostTensor dense = contiguous({b, nullptr});
    dispatch(b.dtype, [&](auto zero) {
      using T = decltype(zero);
      if constexpr (std::integral<T>) {
        const T* p = static_cast<const T*>(dense.ref.data);
        for (int64_t i = 0, n = b.numel(); i < n; ++i)
          KILN_CHECK(p[i] != 0, invalid, "{}: integer division by zero at element {}", F::kName, i);
      }
    });
  }
  loops::eval<F, 2>(a);
}

template <typename T>
void select(const void* const* in, void* out, int64_t n) {
  const uint8_t* c = static_cast<const uint8_t*>(in[0]);
  const T *x = static_cast<const T*>(in[1]), *y = static_cast<const T*>(in[2]);
  T* o = static_cast<T*>(out);
  for (int64_t i = 0; i < n; ++i) o[i] = c[i] ? x[i] : y[i];
}
void where_eval(const EvalArgs& a) {
  const DType t = a.out[0].dtype;
  const size_t size = dtype_size(t);
  const loops::Move raw = loops::raw_of(t);
  const loops::Move loads[] = {loops::raw_of(DType::boolean), raw, raw};
  loops::run(a.in, loads, a.out[0], raw,
             size == 1   ? select<uint8_t>
             : size == 2 ? select<uint16_t>
             : size == 4 ? select<uint32_t>
                         : select<uint64_t>);
}

/// float -> integer cuts towards zero; NaN and what does not fit give the lowest value, as x86 does.
template <typename To, typename From>
To convert(From v) {
  if constexpr (std::integral<To> && std::floating_point<From>) {
    constexpr From lo = From(std::numeric_limits<To>::min());
    return v >= lo && v < -lo ? To(v) : std::numeric_limits<To>::min();
  } else {
    return To(v);
  }
}
template <typename From, typename Via, typename To>
void convert_loop(const void* const* in, void* out, int64_t n) {
  const From* x = static_cast<const From*>(in[0]);
  To* o = static_cast<To*>(out);
  for (int64_t i = 0; i < n; ++i) o[i] = To(convert<Via>(x[i]));
}
template <typename From>
void nonzero_loop(const void* const* in, void* out, int64_t n) {
  const From* x = static_cast<const From*>(in[0]);
  bool* o = static_cast<bool*>(out);
  for (int64_t i = 0; i < n; ++i) o[i] = x[i] != 0;
}
template <typename From>
loops::Kernel cast_loop(DType to) {
  if (to == DType::boolean) return nonzero_loop<From>;
  if (to == DType::f64) return convert_loop<From, double, double>;
  if (is_floating(to)) return convert_loop<From, float, float>;
  if (to == DType::i32)
    return convert_loop<From, std::conditional_t<std::floating_point<From>, int32_t, I>, I>;
  return convert_loop<From, I, I>;
}
void cast_eval(const EvalArgs& a) {
  const DType from = a.in[0].dtype, to = a.out[0].dtype;
  const loops::Move load = loops::load_of(from);
  const DType c = loops::compute_dtype(from);
  const loops::Kernel k = c == DType::f64   ? cast_loop<double>(to)
                          : c == DType::f32 ? cast_loop<float>(to)
                                            : cast_loop<I>(to);
  loops::run(a.in, {&load, 1}, a.out[0], to == DType::boolean ? loops::raw_of(to) : loops::store_of(to), k);
}

// --- type rules ---

/// Shapes: [...] three times -> [...]. Throws: invalid, unless a is bool, and b and c of one type and a's
/// shape.
Type where_infer(const InferArgs& a) {
  want_bool(a, 0);
  want_equal(a, 1, 2);
  if (a.in[0].shape != a.in[1].shape)
    a.fail("operands differ; got condition {} for {}, expected equal shapes (expand first)", a.in[0].str(),
           a.in[1].str());
  return a.in[1];
}
constexpr AttrDef cast_attrs[] = {{"dtype", AttrKind::dtype}};
/// Shapes: [...] -> [...]. Throws: nothing, whatever the dtypes.
Type cast_infer(const InferArgs& a) { return {dtype(a.attrs, 0), a.in[0].shape}; }

// --- derivatives ---

std::vector<Value> neg_grad(const GradArgs& a) { return {neg(a.b, a.grad[0])}; }
std::vector<Value> abs_grad(const GradArgs& a) {
  return {mul(a.b, a.grad[0], a.b.emit(op("sign"), {a.in[0]}))};
}
std::vector<Value> add_grad(const GradArgs& a) { return {a.grad[0], a.grad[0]}; }
std::vector<Value> sub_grad(const GradArgs& a) {
  return {a.grad[0], a.needs[1] ? neg(a.b, a.grad[0]) : Value{}};
}
std::vector<Value> mul_grad(const GradArgs& a) {
  return {a.needs[0] ? mul(a.b, a.grad[0], a.in[1]) : Value{},
          a.needs[1] ? mul(a.b, a.grad[0], a.in[0]) : Value{}};
}
std::vector<Value> div_grad(const GradArgs& a) {
  const Value q = div(a.b, a.grad[0], a.in[1]);
  return {q, a.needs[1] ? neg(a.b, mul(a.b, q, a.out[0])) : Value{}};
}
/// x^0 has derivative 0 in x even at 0; 0^p has derivative 0 in p where it is defined.
std::vector<Value> pow_grad(const GradArgs& a) {
  Builder& b = a.b;
  const Value x = a.in[0], p = a.in[1], g = a.grad[0], zero = zeros_like(b, x);
  Value gx, gp;
  if (a.needs[0]) {
    const Value d = mul(b, p, b.emit(op("pow"), {x, plus(b, p, -1)}));
    gx = where(b, b.emit(op("eq"), {p, zero}), zero, mul(b, g, d));
  }
  if (a.needs[1]) {
    const Value flat = b.emit(op("logical_and"), {b.emit(op("eq"), {x, zero}), b.emit(op("ge"), {p, zero})});
    gp = where(b, flat, zero, mul(b, g, mul(b, a.out[0], b.emit(op("log"), {x}))));
  }
  return {gx, gp};
}
/// Ties give each side half, as torch does.
std::vector<Value> extremum_grad(const GradArgs& a, Value beaten_a, Value beaten_b) {
  Builder& b = a.b;
  const Value zero = zeros_like(b, a.in[0]);
  const Value g = where(b, b.emit(op("eq"), {a.in[0], a.in[1]}), scale(b, a.grad[0], 0.5), a.grad[0]);
  return {a.needs[0] ? where(b, beaten_a, zero, g) : Value{},
          a.needs[1] ? where(b, beaten_b, zero, g) : Value{}};
}
std::vector<Value> maximum_grad(const GradArgs& a) {
  return extremum_grad(a, a.b.emit(op("lt"), {a.in[0], a.in[1]}), a.b.emit(op("gt"), {a.in[0], a.in[1]}));
}
std::vector<Value> minimum_grad(const GradArgs& a) {
  return extremum_grad(a, a.b.emit(op("gt"), {a.in[0], a.in[1]}), a.b.emit(op("lt"), {a.in[0], a.in[1]}));
}
/// a - q(a / b) * b: the whole quotient q counts as a constant.
std::vector<Value> modulo_grad(const GradArgs& a, Op whole) {
  if (!a.needs[1]) return {a.grad[0], Value{}};
  const Value q = a.b.emit(whole, {div(a.b, a.in[0], a.in[1])});
  return {a.grad[0], neg(a.b, mul(a.b, a.grad[0], q))};
}
std::vector<Value> fmod_grad(const GradArgs& a) { return modulo_grad(a, op("trunc")); }
std::vector<Value> remainder_grad(const GradArgs& a) { return modulo_grad(a, op("floor")); }
std::vector<Value> atan2_grad(const GradArgs& a) {
  Builder& b = a.b;
  const Value y = a.in[0], x = a.in[1];
  const Value g = div(b, a.grad[0], add(b, mul(b, y, y), mul(b, x, x)));
  return {a.needs[0] ? mul(b, g, x) : Value{}, a.needs[1] ? neg(b, mul(b, g, y)) : Value{}};
}
std::vector<Value> where_grad(const GradArgs& a) {
  const Value zero = zeros_like(a.b, a.grad[0]);
  return {Value{}, a.needs[1] ? where(a.b, a.in[0], a.grad[0], zero) : Value{},
          a.needs[2] ? where(a.b, a.in[0], zero, a.grad[0]) : Value{}};
}
std::vector<Value> cast_grad(const GradArgs& a) {
  const DType from = a.b.type(a.in[0]).dtype;
  if (!is_floating(from) || !is_floating(a.b.type(a.out[0]).dtype)) return {Value{}};
  return {a.b.cast(a.grad[0], from)};
}

// clang-format off
constinit const OpDef rows[] = {
    {.name = "neg", .infer = same_number, .grad = neg_grad, .eval = loops::eval<Neg, 1>,
     .body = "kn::neg({0})",
     .doc = "-x.", .source = "torch.neg"},
    {.name = "abs", .infer = same_number, .grad = abs_grad, .eval = loops::eval<Abs, 1>,
     .body = "kn::abs({0})",
     .doc = "Magnitude; gradient 0 at 0.", .source = "torch.abs"},
    {.name = "sign", .infer = same_number, .grad = zero_grad, .eval = loops::eval<Sign, 1>,
     .body = "kn::sign({0})",
     .doc = "-1, 0 or 1; 0 for NaN.", .source = "torch.sign"},
    {.name = "add", .inputs = 2, .infer = pair_number, .grad = add_grad,
     .eval = loops::eval<Add, 2>, .body = "kn::add({0}, {1})",
     .doc = "a + b.", .source = "torch.add"},
    {.name = "sub", .inputs = 2, .infer = pair_number, .grad = sub_grad,
     .eval = loops::eval<Sub, 2>, .body = "kn::sub({0}, {1})",
     .doc = "a - b.", .source = "torch.sub"},
    {.name = "mul", .inputs = 2, .infer = pair_number, .grad = mul_grad,
     .eval = loops::eval<Mul, 2>, .body = "kn::mul({0}, {1})",
     .doc = "a * b.", .source = "torch.mul"},
    {.name = "div", .inputs = 2, .infer = pair_floating, .grad = div_grad,
     .eval = loops::eval<Div, 2>, .body = "{0} / {1}", .flops = 4, .lo = 0.3, .hi = 3,
     .doc = "True division a / b.", .source = "torch.div"},
    {.name = "pow", .inputs = 2, .infer = pair_number, .grad = pow_grad,
     .eval = loops::eval<Pow, 2>, .body = "kn::pow({0}, {1})", .flops = 30, .lo = 0.3, .hi = 3,
     .doc = "a to the power b.", .source = "torch.pow"},
    {.name = "maximum", .inputs = 2, .infer = pair_any, .grad = maximum_grad,
     .eval = loops::eval<Maximum, 2>, .body = "kn::max({0}, {1})",
     .doc = "The larger; NaN if either is. Ties share the gradient.", .source = "torch.maximum"},
    {.name = "minimum", .inputs = 2, .infer = pair_any, .grad = minimum_grad,
     .eval = loops::eval<Minimum, 2>, .body = "kn::min({0}, {1})",
     .doc = "The smaller; NaN if either is. Ties share the gradient.", .source = "torch.minimum"},
    {.name = "fmod", .inputs = 2, .infer = pair_number, .grad = fmod_grad,
     .eval = eval_divides<Fmod>, .body = "kn::fmod({0}, {1})", .flops = 10, .lo = 0.3, .hi = 3,
     .doc = "Remainder with the sign of a. Integers: throws on b = 0.", .source = "torch.fmod"},
    {.name = "remainder", .inputs = 2, .infer = pair_number, .grad = remainder_grad,
     .eval = eval_divides<Remainder>, .body = "kn::remainder({0}, {1})", .flops = 10, .lo = 0.3,
     .hi = 3,
     .doc = "Remainder with the sign of b. Integers: throws on b = 0.",
     .source = "torch.remainder"},
    {.name = "floor_divide", .inputs = 2, .infer = pair_number, .grad = zero_grad,
     .eval = eval_divides<FloorDivide>, .body = "kn::floor_divide({0}, {1})", .flops = 10,
     .lo = 0.3, .hi = 3,
     .doc = "Quotient rounded down. Integers: throws on b = 0.", .source = "torch.floor_divide"},
    {.name = "atan2", .inputs = 2, .infer = pair_floating, .grad = atan2_grad,
     .eval = loops::eval<Atan2, 2>, .body = "kn::atan2({0}, {1})", .flops = 20,
     .doc = "Angle of the point (b, a).", .source = "torch.atan2"},
    {.name = "where", .inputs = 3, .infer = where_infer, .grad = where_grad, .eval = where_eval,
     .body = "kn::select({0}, {1}, {2})",
     .doc = "a where the condition holds, else b.", .source = "torch.where"},
    {.name = "cast", .attrs = cast_attrs, .infer = cast_infer, .grad = cast_grad, .eval = cast_eval,
     .body = "kn::convert<{T}>({0})",
     .doc = "Changes the dtype. Float to integer cuts; what does not fit gives the lowest value.",
     .source = "torch.Tensor.to"},
};
// clang-format on

}  // namespace

std::span<const OpDef> elementwise_ops() { return rows; }

}  // namespace kiln
