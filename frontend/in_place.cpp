// SPDX-License-Identifier: Apache-2.0
// The in-place methods: each makes the new contents as the function of its name does, and assigns them.
#include <cmath>

#include "frontend/device.h"
#include "frontend/elementwise.h"
#include "frontend/index_detail.h"
#include "frontend/ops_detail.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace {

using Others = std::initializer_list<Arg>;

void check_target(const Tensor& self, Others others, const char* name, Loc loc) {
  require(self, name, loc, "self");
  for (const auto& [other, arg] : others) {
    require(*other, name, loc, arg);
    KILN_CHECK(broadcast_shapes(self, *other, name, loc, {"self", arg}) == self.sizes(), invalid,
               "{} ({}): {} {} does not broadcast into self {}", name, loc.str(), arg, other->type_str(),
               self.type_str());
    KILN_CHECK(other->device() == self.device() || is_number(*other->impl()), invalid,
               "{} ({}): {} {} does not go into self {} (move it with .to())", name, loc.str(), arg,
               type_beside(*other->impl(), *self.impl()), type_beside(*self.impl(), *other->impl()));
  }
}

/// `update(scalars)` gives the new contents, in any dtype and any shape that broadcasts.
template <typename Body>
Tensor& in_place(const char* name, Loc loc, Tensor& self, Others others, std::vector<Scalar> scalars,
                 Body&& update, std::initializer_list<int64_t> ints = {}) {
  check_target(self, others, name, loc);
  std::vector<const Tensor*> operands{&self};
  for (const Arg& other : others) operands.push_back(other.tensor);
  call_many(name, loc, operands, {ints.begin(), ints.size()}, scalars, [&](const std::vector<Tensor>& s) {
    const Tensor value = update(s);
    const bool kind_fits = is_floating(self.dtype()) || !is_floating(value.dtype());
    KILN_CHECK(kind_fits && (self.dtype() != DType::boolean || value.dtype() == DType::boolean), invalid,
               "{} ({}): a {} result does not go into self {} (cast it with to())", name, loc.str(),
               dtype_name(value.dtype()), self.type_str());
    assign(self, expand_to(cast_to(value, self.dtype()), self.sizes()));
    return std::vector<Tensor>{self};
  });
  return self;
}

/// The contents as derivatives may read them: eagerly the write takes the memory of `self`.
Tensor before_write(const Tensor& self) { return tracing() || !grad_enabled() ? self : copied(self); }

Tensor& unary_in_place(const char* name, Op o, Tensor& self, Loc loc) {
  return in_place(name, loc, self, {}, {}, [&](const auto&) {
    const Tensor x = before_write(self);
    return unary(o, x);
  });
}
Tensor& rounded_in_place(const char* name, Op o, Tensor& self, Loc loc) {
  return in_place(name, loc, self, {}, {}, [&](const auto&) { return rounded(o, before_write(self)); });
}
/// Of a function that makes integers floating.
Tensor& floating_in_place(const char* name, Op o, Tensor& self, Loc loc) {
  return in_place(name, loc, self, {}, {},
                  [&](const auto&) { return unary(o, floating(before_write(self))); });
}

/// self o other; division makes integers floating.
Tensor& pair_in_place(const char* name, Op o, Tensor& self, const Tensor& other, Loc loc,
                      const char* arg = "other") {
  return in_place(name, loc, self, {{&other, arg}}, {}, [&](const auto&) {
    const Tensor x = before_write(self), y = other.impl() == self.impl() ? x : other;
    const bool quotient = o.id == op("div").id && !is_floating(result_type(x, y));
    return binary(o, quotient ? floating(x) : x, quotient ? floating(y) : y, loc);
  });
}
Tensor& number_in_place(const char* name, Op o, Tensor& self, Scalar number, Loc loc,
                        const char* arg = "number") {
  require(self, name, loc, "self");
  if (number.is_int) require_fits(number, self.dtype(), name, loc, arg);
  return in_place(name, loc, self, {}, {number}, [&](const std::vector<Tensor>& s) {
    // Sums are not differentiated by what they read.
    const bool reads = o.id != op("add").id && o.id != op("sub").id;
    const Tensor x = reads ? before_write(self) : self, n = scalar_for(s[0], number.is_int, x);
    const bool quotient = o.id == op("div").id && !is_floating(x.dtype());
    return binary(o, quotient ? floating(x) : x, quotient ? floating(n) : n, loc);
  });
}

/// self + sign * alpha * other.
Tensor& sum_in_place(const char* name, Op o, Tensor& self, const Tensor& other, double alpha, Loc loc) {
  if (other.defined() && !is_floating(other.dtype())) {
    KILN_CHECK(alpha == std::trunc(alpha), invalid,
               "{} ({}): alpha is {} for other {}, expected a whole number", name, loc.str(), alpha,
               other.type_str());
    require_fits(alpha, other.dtype(), name, loc, "alpha");
  }
  return in_place(name, loc, self, {{&other, "other"}}, {alpha}, [&](const std::vector<Tensor>& s) {
    return binary(o, self, binary(op("mul"), other, cast_to(s[0], other.dtype())), loc);
  });
}

Tensor& add_term_in_place(const char* name, Op o, Tensor& self, const Tensor& a, const Tensor& b,
                          double value, Loc loc) {
  return in_place(name, loc, self, {{&a, "a"}, {&b, "b"}}, {value}, [&](const std::vector<Tensor>& s) {
    const Tensor x = before_write(self), p = a.impl() == self.impl() ? x : a,
                 q = b.impl() == self.impl() ? x : b, term = binary(o, p, q, loc);
    return binary(op("add"), x, mul2(term, cast_to(s[0], term.dtype())), loc);
  });
}

/// f64 numbers and the draws of `count` uniforms, as numbers of an event.
std::vector<Scalar> with_draws(std::vector<Scalar> numbers, int count) {
  for (const Scalar& s : draw(count)) numbers.push_back(s);
  return numbers;
}

}  // namespace

Tensor& detail::write(const char* name, Tensor& self, const Tensor& value, Loc loc) {
  return in_place(name, loc, self, {{&value, "x"}}, {}, [&](const auto&) { return value; });
}

Tensor& Tensor::copy_(const Tensor& src, Loc loc) {
  if (defined() && src.defined() && src.device() != device()) return copy_(src.to(device(), loc), loc);
  return in_place("copy_", loc, *this, {{&src, "src"}}, {},
                  [&](const auto&) { return cast_to(src, dtype()); });
}
Tensor& Tensor::add_(const Tensor& other, double alpha, Loc loc) {
  return sum_in_place("add_", op("add"), *this, other, alpha, loc);
}
Tensor& Tensor::sub_(const Tensor& other, double alpha, Loc loc) {
  return sum_in_place("sub_", op("sub"), *this, other, alpha, loc);
}
Tensor& Tensor::add_(Scalar n, Loc loc) { return number_in_place("add_", op("add"), *this, n, loc); }
Tensor& Tensor::sub_(Scalar n, Loc loc) { return number_in_place("sub_", op("sub"), *this, n, loc); }
Tensor& Tensor::mul_(const Tensor& other, Loc loc) {
  return pair_in_place("mul_", op("mul"), *this, other, loc);
}
Tensor& Tensor::mul_(Scalar n, Loc loc) {
  return number_in_place("mul_", op("mul"), *this, n, loc, "factor");
}
Tensor& Tensor::div_(const Tensor& other, Loc loc) {
  return pair_in_place("div_", op("div"), *this, other, loc);
}
Tensor& Tensor::div_(Scalar n, Loc loc) {
  return number_in_place("div_", op("div"), *this, n, loc, "divisor");
}
Tensor& Tensor::pow_(const Tensor& exponent, Loc loc) {
  return pair_in_place("pow_", op("pow"), *this, exponent, loc, "exponent");
}
Tensor& Tensor::pow_(Scalar n, Loc loc) {
  return number_in_place("pow_", op("pow"), *this, n, loc, "exponent");
}
Tensor& Tensor::addcmul_(const Tensor& a, const Tensor& b, double value, Loc loc) {
  return add_term_in_place("addcmul_", op("mul"), *this, a, b, value, loc);
}
Tensor& Tensor::addcdiv_(const Tensor& a, const Tensor& b, double value, Loc loc) {
  return add_term_in_place("addcdiv_", op("div"), *this, a, b, value, loc);
}
Tensor& Tensor::lerp_(const Tensor& end, double weight, Loc loc) {
  return in_place("lerp_", loc, *this, {{&end, "end"}}, {weight}, [&](const std::vector<Tensor>& s) {
    const Tensor x = before_write(*this);
    return add2(x, mul2(sub2(end, x), cast_to(s[0], x.dtype())));
  });
}
Tensor& Tensor::clamp_(std::optional<double> lo, std::optional<double> hi, Loc loc) {
  require(*this, "clamp_", loc, "self");
  // Each bound is an event: clamp says what it may be.
  const Tensor limited = detail::clamp("clamp_", before_write(*this), lo, hi, loc);
  return write("clamp_", *this, limited, loc);
}
Tensor& Tensor::masked_fill_(const Tensor& mask, Scalar value, Loc loc) {
  require(*this, "masked_fill_", loc, "self");
  require_bool(mask, "masked_fill_", loc, "mask");
  require_fits(value, dtype(), "masked_fill_", loc);
  return in_place("masked_fill_", loc, *this, {{&mask, "mask"}}, {value}, [&](const std::vector<Tensor>& s) {
    return select3(expand_to(mask, sizes()), cast_to(s[0], dtype()), *this);
  });
}
Tensor& Tensor::scatter_(int64_t dim, const Tensor& index, const Tensor& src, Loc loc) {
  constexpr const char* kName = "scatter_";
  return write(kName, *this, detail::scatter(kName, *this, dim, index, src, loc), loc);
}
Tensor& Tensor::scatter_(int64_t dim, const Tensor& index, double value, Loc loc) {
  constexpr const char* kName = "scatter_";
  return write(kName, *this, detail::scatter(kName, *this, dim, index, value, loc), loc);
}
Tensor& Tensor::scatter_add_(int64_t dim, const Tensor& index, const Tensor& src, Loc loc) {
  constexpr const char* kName = "scatter_add_";
  return write(kName, *this, detail::scatter_add(kName, *this, dim, index, src, loc), loc);
}
Tensor& Tensor::index_add_(int64_t dim, const Tensor& index, const Tensor& src, Scalar alpha, Loc loc) {
  constexpr const char* kName = "index_add_";
  return write(kName, *this, detail::index_add(kName, *this, dim, index, src, alpha, loc), loc);
}
Tensor& Tensor::index_copy_(int64_t dim, const Tensor& index, const Tensor& src, Loc loc) {
  constexpr const char* kName = "index_copy_";
  return write(kName, *this, detail::index_copy(kName, *this, dim, index, src, loc), loc);
}
Tensor& Tensor::index_fill_(int64_t dim, const Tensor& index, double value, Loc loc) {
  constexpr const char* kName = "index_fill_";
  return write(kName, *this, detail::index_fill(kName, *this, dim, index, value, loc), loc);
}
Tensor& Tensor::fill_(Scalar value, Loc loc) {
  if (defined()) require_fits(value, dtype(), "fill_", loc);
  return in_place("fill_", loc, *this, {}, {value},
                  [&](const std::vector<Tensor>& s) { return cast_to(s[0], dtype()); });
}
Tensor& Tensor::zero_(Loc loc) {
  return in_place("zero_", loc, *this, {}, {}, [&](const auto&) { return lit(*this, 0); });
}

Tensor& Tensor::neg_(Loc loc) { return unary_in_place("neg_", op("neg"), *this, loc); }
Tensor& Tensor::abs_(Loc loc) { return unary_in_place("abs_", op("abs"), *this, loc); }
Tensor& Tensor::exp_(Loc loc) { return floating_in_place("exp_", op("exp"), *this, loc); }
Tensor& Tensor::log_(Loc loc) { return floating_in_place("log_", op("log"), *this, loc); }
Tensor& Tensor::sqrt_(Loc loc) { return floating_in_place("sqrt_", op("sqrt"), *this, loc); }
Tensor& Tensor::rsqrt_(Loc loc) { return floating_in_place("rsqrt_", op("rsqrt"), *this, loc); }
Tensor& Tensor::reciprocal_(Loc loc) {
  return floating_in_place("reciprocal_", op("reciprocal"), *this, loc);
}
Tensor& Tensor::sigmoid_(Loc loc) { return floating_in_place("sigmoid_", op("sigmoid"), *this, loc); }
Tensor& Tensor::tanh_(Loc loc) { return floating_in_place("tanh_", op("tanh"), *this, loc); }
Tensor& Tensor::floor_(Loc loc) { return rounded_in_place("floor_", op("floor"), *this, loc); }
Tensor& Tensor::ceil_(Loc loc) { return rounded_in_place("ceil_", op("ceil"), *this, loc); }
Tensor& Tensor::round_(Loc loc) { return rounded_in_place("round_", op("round"), *this, loc); }
Tensor& Tensor::relu_(Loc loc) {
  return in_place("relu_", loc, *this, {}, {}, [&](const auto&) {
    const Tensor x = before_write(*this), zero = lit(x, 0);
    return select3(binary(op("le"), x, zero), zero, x);
  });
}

Tensor& operator+=(Tensor& x, const TensorArg& y) {
  return y.tensor ? x.add_(*y.tensor, 1, y.loc) : x.add_(y.scalar, y.loc);
}
Tensor& operator-=(Tensor& x, const TensorArg& y) {
  return y.tensor ? x.sub_(*y.tensor, 1, y.loc) : x.sub_(y.scalar, y.loc);
}
Tensor& operator*=(Tensor& x, const TensorArg& y) {
  return y.tensor ? x.mul_(*y.tensor, y.loc) : x.mul_(y.scalar, y.loc);
}
Tensor& operator/=(Tensor& x, const TensorArg& y) {
  return y.tensor ? x.div_(*y.tensor, y.loc) : x.div_(y.scalar, y.loc);
}

Tensor& Tensor::uniform_(double from, double to, Loc loc) {
  if (defined()) require_floating(*this, "uniform_", loc, "self");
  KILN_CHECK(from <= to, invalid, "uniform_ ({}): empty range [{}, {})", loc.str(), from, to);
  const DType of = defined() ? dtype() : DType::f32, made = of == DType::f64 ? of : DType::f32;
  KILN_CHECK(from >= -largest_finite(of) && to <= largest_finite(of) && to - from <= largest_finite(made),
             invalid, "uniform_ ({}): range [{}, {}) is wider than what self {} holds", loc.str(), from, to,
             type_str());
  return in_place("uniform_", loc, *this, {}, with_draws({from, to}, 1), [&](const std::vector<Tensor>& s) {
    const Tensor u = cast_to(uniform(s[2], s[3], sizes()), made), lo = cast_to(s[0], made);
    const Tensor drawn = add2(lo, mul2(u, sub2(cast_to(s[1], made), lo)));
    const Tensor x = cast_to(drawn, dtype()), first = cast_to(s[0], dtype()), end = cast_to(s[1], dtype());
    return select3(binary(op("ge"), x, end), first, x);  // rounding reaches the end, which is not drawn
  });
}
Tensor& Tensor::normal_(double mean, double deviation, Loc loc) {
  if (defined()) require_floating(*this, "normal_", loc, "self");
  KILN_CHECK(deviation >= 0, invalid, "normal_ ({}): std is {}, expected none below 0", loc.str(), deviation);
  const std::vector<Scalar> numbers = with_draws({mean, deviation}, 2);
  return in_place("normal_", loc, *this, {}, numbers, [&](const std::vector<Tensor>& s) {
    const Tensor n = normal_of(s[2], s[3], s[4], s[5], sizes());
    return add2(mul2(n, cast_to(s[1], DType::f32)), cast_to(s[0], DType::f32));
  });
}
Tensor& Tensor::bernoulli_(double p, Loc loc) {
  KILN_CHECK(p >= 0 && p <= 1, invalid, "bernoulli_ ({}): p is {}, expected 0 to 1", loc.str(), p);
  return in_place("bernoulli_", loc, *this, {}, with_draws({p}, 1), [&](const std::vector<Tensor>& s) {
    return cast_to(binary(op("lt"), uniform(s[1], s[2], sizes()), cast_to(s[0], DType::f32)), dtype());
  });
}

}  // namespace kiln
