// SPDX-License-Identifier: Apache-2.0
// Activations, in primitives, and what is made of norms.
#include "frontend/activation.h"

#include <cmath>

#include "frontend/ops_detail.h"
#include "frontend/reductions.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace {

Tensor zero_of(const Tensor& x) { return lit(x, 0); }
Tensor limit(const Tensor& x, const Tensor& lo, const Tensor& hi) {
  return select3(binary(op("le"), x, lo), lo, select3(binary(op("ge"), x, hi), hi, x));
}
/// relu6(x + 3) / 6.
Tensor hard_gate(const Tensor& x) {
  return div2(limit(add2(x, lit(x, 3)), zero_of(x), lit(x, 6)), lit(x, 6));
}
/// x where x > 0, else a (exp(x b) - 1): the exponential of nothing that is positive.
Tensor exponential_unit(const Tensor& x, const Tensor& a, const Tensor& b) {
  const Tensor zero = zero_of(x), positive = binary(op("gt"), x, zero);
  const Tensor below = select3(positive, zero, x);
  return select3(positive, x, mul2(a, unary(op("expm1"), mul2(below, b))));
}

}  // namespace

namespace detail {
Tensor log_sigmoid_body(const Tensor& x) {
  const Tensor zero = zero_of(x), below = binary(op("lt"), x, zero);
  // -|x|, with a derivative at 0 that makes the sum's 1/2.
  const Tensor down = select3(below, x, unary(op("neg"), x));
  return sub2(select3(below, x, zero), unary(op("log1p"), unary(op("exp"), down)));
}
}  // namespace detail

Tensor hardtanh(const Tensor& x, double lo, double hi, Loc loc) {
  KILN_CHECK(lo <= hi, invalid, "hardtanh ({}): the lower end {} is above the upper, {}", loc.str(), lo, hi);
  return number_call("hardtanh", x, {lo, hi}, loc,
                     [](const Tensor& x, const auto& s) { return limit(x, s[0], s[1]); });
}

Tensor relu6(const Tensor& x, Loc loc) {
  return number_call("relu6", x, {}, loc,
                     [](const Tensor& x, const auto&) { return limit(x, zero_of(x), lit(x, 6)); });
}

Tensor hardsigmoid(const Tensor& x, Loc loc) {
  return number_call("hardsigmoid", x, {}, loc, [](const Tensor& x, const auto&) { return hard_gate(x); });
}

Tensor hardswish(const Tensor& x, Loc loc) {
  return number_call("hardswish", x, {}, loc,
                     [](const Tensor& x, const auto&) { return mul2(x, hard_gate(x)); });
}

Tensor hardshrink(const Tensor& x, double lambda, Loc loc) {
  return number_call("hardshrink", x, {lambda}, loc, [](const Tensor& x, const auto& s) {
    const Tensor inside =
        binary(op("logical_and"), binary(op("ge"), x, unary(op("neg"), s[0])), binary(op("le"), x, s[0]));
    return select3(inside, zero_of(x), x);
  });
}

Tensor softshrink(const Tensor& x, double lambda, Loc loc) {
  KILN_CHECK(lambda >= 0, invalid, "softshrink ({}): lambda is {}, expected none below 0", loc.str(), lambda);
  return number_call("softshrink", x, {lambda}, loc, [](const Tensor& x, const auto& s) {
    const Tensor inside = select3(unary(op("isnan"), x), x, zero_of(x));
    const Tensor low = select3(binary(op("lt"), x, unary(op("neg"), s[0])), add2(x, s[0]), inside);
    return select3(binary(op("gt"), x, s[0]), sub2(x, s[0]), low);
  });
}

Tensor tanhshrink(const Tensor& x, Loc loc) {
  return number_call("tanhshrink", x, {}, loc,
                     [](const Tensor& x, const auto&) { return sub2(x, unary(op("tanh"), x)); });
}

Tensor softsign(const Tensor& x, Loc loc) {
  return number_call("softsign", x, {}, loc, [](const Tensor& x, const auto&) {
    return div2(x, add2(unary(op("abs"), x), lit(x, 1)));
  });
}

Tensor elu(const Tensor& x, double alpha, Loc loc) {
  return number_call("elu", x, {alpha}, loc,
                     [](const Tensor& x, const auto& s) { return exponential_unit(x, s[0], lit(x, 1)); });
}

Tensor celu(const Tensor& x, double alpha, Loc loc) {
  KILN_CHECK(alpha != 0, invalid, "celu ({}): alpha is 0", loc.str());
  return number_call("celu", x, {alpha}, loc, [](const Tensor& x, const auto& s) {
    return exponential_unit(x, s[0], unary(op("reciprocal"), s[0]));
  });
}

Tensor selu(const Tensor& x, Loc loc) {
  return number_call("selu", x, {}, loc, [](const Tensor& x, const auto&) {
    constexpr double kScale = 1.0507009873554804934193349852946, kAlpha = 1.6732632423543772848170429916717;
    return mul2(lit(x, kScale), exponential_unit(x, lit(x, kAlpha), lit(x, 1)));
  });
}

Tensor mish(const Tensor& x, Loc loc) {
  return number_call("mish", x, {}, loc, [](const Tensor& x, const auto&) {
    const Tensor linear_part = binary(op("gt"), x, lit(x, 20)), safe = select3(linear_part, zero_of(x), x);
    const Tensor soft = select3(linear_part, x, unary(op("log1p"), unary(op("exp"), safe)));
    return mul2(x, unary(op("tanh"), soft));
  });
}

Tensor logsigmoid(const Tensor& x, Loc loc) {
  return number_call("logsigmoid", x, {}, loc,
                     [](const Tensor& x, const auto&) { return log_sigmoid_body(x); });
}

Tensor glu(const Tensor& x, int64_t dim, Loc loc) {
  require_floating(x, "glu", loc);
  const int64_t d = wrap_dim(dim, x.dim(), "glu", loc);
  KILN_CHECK(x.dim() > 0 && x.size(d) % 2 == 0, invalid, "glu ({}): dim {} of x {} does not halve", loc.str(),
             dim, x.type_str());
  return call("glu", loc, {&x}, {d}, {}, [&](const auto&) {
    const int64_t half = x.size(d) / 2;
    const Tensor gate = unary(op("sigmoid"), wide(narrow(x, d, half, half, loc)));
    return cast_to(mul2(wide(narrow(x, d, 0, half, loc)), gate), x.dtype());
  });
}

Tensor prelu(const Tensor& x, const Tensor& weight, Loc loc) {
  require_floating(x, "prelu", loc);
  require(weight, "prelu", loc, "weight");
  const int64_t channels = x.dim() > 1 ? x.size(1) : 1;
  KILN_CHECK(weight.dim() <= 1 && (weight.numel() == 1 || weight.numel() == channels), invalid,
             "prelu ({}): got weight {} for x {}, expected one element or one for each channel (dim 1)",
             loc.str(), weight.type_str(), x.type_str());
  return call("prelu", loc, {&x, &weight}, {}, {}, [&](const Tensor& x, const Tensor& weight, const auto&) {
    require_one_dtype({{&x, "x"}, {&weight, "weight"}}, "prelu", loc);
    Sizes s(static_cast<size_t>(x.dim()), 1);
    if (weight.numel() != 1) s[1] = channels;
    const Tensor zero = constant_like(x, 0);
    return select3(apply(op("gt"), {&x, &zero}), x, mul2(x, reshape_to(weight, s)));
  });
}

Tensor rrelu(const Tensor& x, double lower, double upper, bool training, Loc loc) {
  require_floating(x, "rrelu", loc);
  KILN_CHECK(lower <= upper, invalid, "rrelu ({}): the lower slope {} is above the upper, {}", loc.str(),
             lower, upper);
  if (!training) return leaky_relu(x, (lower + upper) / 2, loc);
  std::vector<Scalar> numbers{lower, upper};
  for (const Scalar& s : draw(1)) numbers.push_back(s);
  const Tensor* operands[] = {&x};
  return call({"rrelu", loc, operands, {}, numbers}, [&](const std::vector<Tensor>& s) {
    const Tensor u = uniform(s[2], s[3], x.sizes()), lo = cast_to(s[0], DType::f32);
    const Tensor slope = add2(lo, mul2(u, sub2(cast_to(s[1], DType::f32), lo)));
    return select3(binary(op("gt"), x, zero_of(x)), x, mul2(x, cast_to(slope, x.dtype())));
  });
}

Tensor threshold(const Tensor& x, double limit_at, double value, Loc loc) {
  return number_call("threshold", x, {limit_at, value}, loc, [](const Tensor& x, const auto& s) {
    return select3(binary(op("le"), x, s[0]), s[1], x);
  });
}

Tensor softmin(const Tensor& x, int64_t dim, Loc loc) {
  require_floating(x, "softmin", loc);
  return softmax(neg(x, loc), dim, loc);
}
namespace {
/// What dtype is asked for it has, also under Autocast.
template <typename Body>
Tensor of_dtype(const char* name, const Tensor& x, int64_t dim, DType dtype, Loc loc, Body&& body) {
  require(x, name, loc);
  const int64_t d = wrap_dim(dim, x.dim(), name, loc);
  return call(name, loc, {&x}, {d, static_cast<int64_t>(dtype)}, {},
              [&](const Tensor& x, const auto&) { return body(cast_to(x, dtype), d, loc); });
}
}  // namespace

Tensor softmax(const Tensor& x, int64_t dim, DType dtype, Loc loc) {
  return of_dtype("softmax", x, dim, dtype, loc, [](const auto&... in) { return softmax(in...); });
}
Tensor log_softmax(const Tensor& x, int64_t dim, DType dtype, Loc loc) {
  return of_dtype("log_softmax", x, dim, dtype, loc, [](const auto&... in) { return log_softmax(in...); });
}

Tensor normalize(const Tensor& x, double p, int64_t dim, double eps, Loc loc) {
  require_floating(x, "normalize", loc);
  const Tensor norm = clamp(vector_norm(x, p, {dim}, true, loc), eps, std::nullopt, loc);
  return div(TensorArg(x, loc), TensorArg(norm, loc));
}

namespace {
/// x over its norm; a norm below `eps` counts as eps, but is differentiated as it is.
Tensor unit(const Tensor& x, const Sizes& dims, const Tensor& eps) {
  const Tensor norm = norm2(x, dims), missing = sub2(binary(op("maximum"), norm, eps), norm);
  return div2(x, add2(norm, constant_of(missing)));
}
}  // namespace

Tensor cosine_similarity(const Tensor& x, const Tensor& y, int64_t dim, double eps, Loc loc) {
  require_floating(x, "cosine_similarity", loc);
  require_floating(y, "cosine_similarity", loc, "y");
  const Sizes shape = broadcast_shapes(x, y, "cosine_similarity", loc, {"x", "y"});
  const int64_t d = wrap_dim(dim, static_cast<int64_t>(shape.size()), "cosine_similarity", loc);
  return call("cosine_similarity", loc, {&x, &y}, {d}, {eps},
              [&](const Tensor& x, const Tensor& y, const std::vector<Tensor>& s) {
                const DType t = result_type(x, y);
                const Tensor a = expand_to(cast_to(x, t), shape), b = expand_to(cast_to(y, t), shape),
                             least = cast_to(s[0], t);
                const Sizes dims = shape.empty() ? Sizes{} : Sizes{d};
                return reduce(op("sum"), mul2(unit(a, dims, least), unit(b, dims, least)), dims, false);
              });
}

Tensor pairwise_distance(const Tensor& x, const Tensor& y, double p, double eps, bool keepdim, Loc loc) {
  require_floating(x, "pairwise_distance", loc);
  require_floating(y, "pairwise_distance", loc, "y");
  require_broadcast({{&x, "x"}, {&y, "y"}}, "pairwise_distance", loc);
  const Tensor way = add(TensorArg(sub(TensorArg(x, loc), TensorArg(y, loc)), loc), TensorArg(eps, loc));
  return vector_norm(way, p, {-1}, keepdim, loc);
}

}  // namespace kiln
