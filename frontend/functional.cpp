// SPDX-License-Identifier: Apache-2.0
// Activations, normalisation, linear layers and attention, in primitives.
#include "frontend/functional.h"

#include <cmath>

#include "frontend/functional_detail.h"
#include "frontend/index_detail.h"
#include "frontend/state.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace {

/// exp(x - max) along `dims`, and its sum; the maximum carries no gradient (its contributions cancel).
struct Exponentials {
  Tensor shifted, sum;
};
Exponentials exponentials(const Tensor& x, const Sizes& dims) {
  const Tensor top = [&] {
    NoGrad guard;
    return reduce(op("amax"), x, dims, true);
  }();
  const Tensor shifted = sub2(x, top);
  return {shifted, reduce(op("sum"), unary(op("exp"), shifted), dims, true)};
}

Tensor softmax_body(const Tensor& x, const Sizes& dims) {
  if (x.numel() == 0) return unary(op("exp"), x);  // no maximum to shift by, and nothing to compute
  const Exponentials e = exponentials(wide(x), dims);
  return cast_to(div2(unary(op("exp"), e.shifted), e.sum), x.dtype());
}

}  // namespace

Tensor relu(const Tensor& x, Loc loc) {
  require(x, "relu", loc);
  return call("relu", loc, {&x}, {}, {}, [&](const auto&) {
    const Tensor zero = constant_like(x, 0), positive = apply(op("gt"), {&x, &zero}),
                 nan = unary(op("isnan"), x);
    // Not maximum: its gradient at 0 would be 1/2; PyTorch's is 0.
    return select3(apply(op("logical_or"), {&positive, &nan}), x, zero);
  });
}

Tensor gelu(const Tensor& x, GeluApproximate approximate, Loc loc) {
  require_floating(x, "gelu", loc);
  return call("gelu", loc, {&x}, {static_cast<int64_t>(approximate)}, {}, [&](const Tensor& x, const auto&) {
    const Tensor w = wide(x), half = mul2(w, lit(w, 0.5)), one = lit(w, 1);
    if (approximate == GeluApproximate::none)
      return cast_to(mul2(half, add2(unary(op("erf"), mul2(w, lit(w, M_SQRT1_2))), one)), x.dtype());
    const Tensor cubic = add2(mul2(mul2(mul2(w, w), w), lit(w, 0.044715)), w);
    const Tensor gate = unary(op("tanh"), mul2(cubic, lit(w, M_SQRT2 * M_2_SQRTPI * 0.5)));
    return cast_to(mul2(half, add2(gate, one)), x.dtype());
  });
}

Tensor silu(const Tensor& x, Loc loc) {
  return number_call("silu", x, {}, loc,
                     [](const Tensor& x, const auto&) { return mul2(x, unary(op("sigmoid"), x)); });
}

Tensor leaky_relu(const Tensor& x, double slope, Loc loc) {
  require_floating(x, "leaky_relu", loc);
  return call("leaky_relu", loc, {&x}, {}, {slope}, [&](const std::vector<Tensor>& s) {
    const Tensor zero = constant_like(x, 0);
    return select3(apply(op("gt"), {&x, &zero}), x, mul2(x, cast_to(s[0], x.dtype())));
  });
}

Tensor softplus(const Tensor& x, double beta, double threshold, Loc loc) {
  return number_call("softplus", x, {beta, threshold}, loc, [](const Tensor& x, const auto& s) {
    const Tensor scaled = mul2(x, s[0]), linear_part = binary(op("gt"), scaled, s[1]);
    const Tensor safe = select3(linear_part, lit(x, 0), scaled);
    return select3(linear_part, x, div2(unary(op("log1p"), unary(op("exp"), safe)), s[0]));
  });
}

Tensor softmax(const Tensor& x, int64_t dim, Loc loc) {
  require_floating(x, "softmax", loc);
  const Sizes dims = wrap_dims({dim}, x.dim(), "softmax", loc);
  return call("softmax", loc, {&x}, {dim}, {},
              [&](const Tensor& x, const auto&) { return softmax_body(x, dims); });
}

Tensor log_softmax(const Tensor& x, int64_t dim, Loc loc) {
  require_floating(x, "log_softmax", loc);
  const Sizes dims = wrap_dims({dim}, x.dim(), "log_softmax", loc);
  return call("log_softmax", loc, {&x}, {dim}, {}, [&](const Tensor& x, const auto&) {
    if (x.numel() == 0) return unary(op("exp"), x);
    const Exponentials e = exponentials(wide(x), dims);
    return cast_to(sub2(e.shifted, unary(op("log"), e.sum)), x.dtype());
  });
}

namespace {
Sizes normalized_dims(const Tensor& x, const Sizes& shape, const Tensor& w, const Tensor& b, const char* name,
                      Loc loc) {
  require_floating(x, name, loc);
  const auto n = static_cast<int64_t>(shape.size());
  const bool fits = n > 0 && n <= x.dim() && std::equal(shape.begin(), shape.end(), x.sizes().end() - n);
  KILN_CHECK(fits, invalid, "{} ({}): the last dims of x {} are not normalized_shape [{}]", name, loc.str(),
             x.type_str(), fmt::join(shape, ","));
  for (const auto& [p, arg] : {std::pair{&w, "weight"}, std::pair{&b, "bias"}})
    KILN_CHECK(!p->defined() || p->sizes() == shape, invalid, "{} ({}): got {} {}, expected [{}] for x {}",
               name, loc.str(), arg, p->type_str(), fmt::join(shape, ","), x.type_str());
  Sizes dims;
  for (int64_t d = x.dim() - n; d < x.dim(); ++d) dims.push_back(d);
  return dims;
}

/// y of x and its parameters, in their dtype, which y has unless they are halves.
Tensor of_halves(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& b) {
  DType t = x.dtype();
  for (const Tensor* p : {&w, &b})
    if (p->defined()) t = promote_types(t, p->dtype());
  return cast_to(y, t);
}

Tensor mean_over(const Tensor& x, const Sizes& dims) {
  double n = 1;
  for (int64_t d : dims) n *= static_cast<double>(x.size(d));
  // Divided, so that the mean of equal numbers is that number: a product with 1 / n may be contracted into
  // the subtraction that follows, which then leaves what 1 / n has lost.
  const Tensor s = reduce(op("sum"), x, dims, true), count = constant_like(s, n);
  return apply(op("div"), {&s, &count});
}
}  // namespace

Tensor layer_norm(const Tensor& x, Sizes shape, const Tensor& w, const Tensor& b, double eps, Loc loc) {
  const Sizes dims = normalized_dims(x, shape, w, b, "layer_norm", loc);
  return call("layer_norm", loc, {&x, &w, &b}, {static_cast<int64_t>(shape.size())}, {eps},
              [&](const Tensor& x, const Tensor& w, const Tensor& b, const std::vector<Tensor>& s) {
                const Tensor v = wide(x), centred = sub2(v, mean_over(v, dims));
                const Tensor variance = mean_over(mul2(centred, centred), dims);
                Tensor y = mul2(centred, unary(op("rsqrt"), add2(variance, cast_to(s[0], v.dtype()))));
                if (w.defined()) y = mul2(y, w);
                return of_halves(b.defined() ? add2(y, b) : y, x, w, b);
              });
}

namespace {
/// The distance of 1 to the next number.
double epsilon(DType t) {
  return t == DType::f64 ? 0x1p-52 : t == DType::f32 ? 0x1p-23 : t == DType::f16 ? 0x1p-10 : 0x1p-7;
}
}  // namespace

Tensor rms_norm(const Tensor& x, Sizes shape, const Tensor& w, std::optional<double> eps, Loc loc) {
  const Sizes dims = normalized_dims(x, shape, w, {}, "rms_norm", loc);
  const Tensor* operands[] = {&x, &w};
  const int64_t ints[] = {static_cast<int64_t>(shape.size())};
  std::vector<Scalar> scalars;
  if (eps) scalars.emplace_back(*eps);
  return call({"rms_norm", loc, operands, ints, scalars},
              [&](const Tensor& x, const Tensor& w, const std::vector<Tensor>& s) {
                const Tensor v = wide(x), square_mean = mean_over(mul2(v, v), dims);
                const Tensor added = eps ? cast_to(s[0], v.dtype()) : lit(v, epsilon(x.dtype()));
                const Tensor y = mul2(v, unary(op("rsqrt"), add2(square_mean, added)));
                return of_halves(w.defined() ? mul2(y, w) : y, x, w, {});
              });
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Loc loc) {
  require(x, "linear", loc);
  require(weight, "linear", loc, "weight");
  KILN_CHECK(x.dim() >= 1 && (weight.dim() == 2 || weight.dim() == 1) && x.size(-1) == weight.size(-1),
             invalid,
             "linear ({}): got x {} and weight {}, expected x [..., in] and weight [out, in] of one dtype",
             loc.str(), x.type_str(), weight.type_str());
  const bool bias_fits =
      !bias.defined() || (weight.dim() == 2 ? bias.sizes() == Sizes{weight.size(0)} : bias.numel() == 1);
  KILN_CHECK(bias_fits, invalid, "linear ({}): got bias {} for weight {}, expected {}", loc.str(),
             bias.type_str(), weight.type_str(),
             weight.dim() == 2 ? fmt::format("[{}]", weight.size(0)) : "one element");
  return call("linear", loc, {&x, &weight, &bias}, {}, {},
              [&](const Tensor& x, const Tensor& weight, const Tensor& bias, const auto&) {
                KILN_CHECK(x.dtype() == weight.dtype(), invalid,
                           "linear ({}): got x {} and weight {}, expected one dtype (cast one with to())",
                           loc.str(), x.type_str(), weight.type_str());
                using Ints = std::vector<int64_t>;
                const Tensor y = apply(op("dot_general"), {&x, &weight},
                                       {Ints{}, Ints{}, Ints{x.dim() - 1}, Ints{weight.dim() - 1}});
                return bias.defined() ? add2(y, bias) : y;
              });
}

Tensor embedding(const Tensor& ids, const Tensor& weight, std::optional<int64_t> padding_idx, Loc loc) {
  require_index(ids, "embedding", loc, "ids");
  require(weight, "embedding", loc, "weight");
  KILN_CHECK(weight.dim() == 2, invalid, "embedding ({}): got weight {}, expected [n, d]", loc.str(),
             weight.type_str());
  const int64_t n = weight.size(0), given = padding_idx.value_or(-1);
  KILN_CHECK(!padding_idx || (given >= -n && given < n), invalid,
             "embedding ({}): padding_idx {} is outside the {} rows of weight {}", loc.str(), given, n,
             weight.type_str());
  const int64_t padding = !padding_idx ? -1 : given < 0 ? given + n : given;
  return call("embedding", loc, {&ids, &weight}, {padding}, {}, [&](const auto&) {
    check_indices(ids, n, "embedding", loc, "ids", ", the rows of weight " + weight.type_str());
    const Tensor rows = apply(op("take"), {&weight, &ids}, {int64_t{0}});
    if (!padding_idx) return rows;
    Tensor constant_rows;
    {
      NoGrad guard;
      constant_rows = apply(op("reshape"), {&rows}, {Shape(rows.sizes().begin(), rows.sizes().end())});
    }
    const Tensor pad = lit(ids, static_cast<double>(padding)), is_pad = binary(op("eq"), ids, pad);
    Shape column(ids.sizes().begin(), ids.sizes().end());
    column.emplace_back(1);
    const Tensor per_row = apply(op("reshape"), {&is_pad}, {column});
    return select3(expand_to(per_row, rows.sizes()), constant_rows, rows);
  });
}

Tensor dropout(const Tensor& x, double p, bool training, Loc loc) {
  require_floating(x, "dropout", loc);
  KILN_CHECK(p >= 0 && p <= 1, invalid, "dropout ({}): p is {}, expected 0 to 1", loc.str(), p);
  if (!training || p == 0) return x;
  const GeneratorState g = next_random();
  return call("dropout", loc, {&x}, {}, {p, static_cast<int64_t>(g.seed), static_cast<int64_t>(g.offset)},
              [&](const std::vector<Tensor>& s) { return dropped(x, x.sizes(), s[0], s[1], s[2]); });
}

Tensor detail::safe_softmax(const Tensor& half) {
  const Sizes last{half.dim() - 1};
  if (half.size(-1) == 0) return half;
  const Tensor scores = wide(half);
  const Tensor top = [&] {
    NoGrad guard;
    const Tensor m = reduce(op("amax"), scores, last, true);
    return select3(binary(op("eq"), m, lit(m, -INFINITY)), lit(m, 0), m);
  }();
  const Tensor e = unary(op("exp"), sub2(scores, top));
  const Tensor sum = reduce(op("sum"), e, last, true);
  return cast_to(div2(e, select3(binary(op("eq"), sum, lit(sum, 0)), lit(sum, 1), sum)), half.dtype());
}

Tensor detail::repeat_heads(const Tensor& x, int64_t heads) {
  Sizes s = x.sizes();
  const size_t h = s.size() - 3;
  const int64_t group = heads / s[h];
  s.insert(s.begin() + static_cast<int64_t>(h) + 1, 1);
  Sizes wide = s;
  wide[h + 1] = group;
  Sizes merged = x.sizes();
  merged[h] = heads;
  return reshape_to(expand_to(reshape_to(x, s), wide), merged);
}

namespace {
/// The mask broadcasts to the scores, aligned at the right.
void check_mask(const Tensor& q, const Tensor& k, const Tensor& mask, Loc loc) {
  Sizes scores = q.sizes();
  scores.back() = k.size(-2);
  KILN_CHECK(
      broadcasts_to(mask, scores), invalid,
      "scaled_dot_product_attention ({}): got mask {} for scores [{}] of {}, expected one that broadcasts "
      "to them, bool or of their dtype",
      loc.str(), mask.type_str(), fmt::join(scores, ","), dtype_name(q.dtype()));
}

void check_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                     const AttentionOptions& o, Loc loc) {
  for (const auto& [t, arg] : {std::pair{&q, "q"}, std::pair{&k, "k"}, std::pair{&v, "v"}})
    require_floating(*t, "scaled_dot_product_attention", loc, arg);
  const bool shapes = q.dim() >= 2 && k.dim() == q.dim() && v.dim() == q.dim() && q.size(-1) == k.size(-1) &&
                      k.size(-2) == v.size(-2);
  KILN_CHECK(shapes, invalid,
             "scaled_dot_product_attention ({}): got q {}, k {}, v {}; expected [..., t, d], [..., s, d], "
             "[..., s, e]",
             loc.str(), q.type_str(), k.type_str(), v.type_str());
  KILN_CHECK(!(mask.defined() && o.is_causal), invalid,
             "scaled_dot_product_attention ({}): give a mask or is_causal, not both", loc.str());
  KILN_CHECK(o.dropout_p >= 0 && o.dropout_p <= 1, invalid,
             "scaled_dot_product_attention ({}): dropout_p is {}, expected 0 to 1", loc.str(), o.dropout_p);
  if (o.enable_gqa)
    KILN_CHECK(q.dim() >= 3 && k.size(-3) > 0 && q.size(-3) % k.size(-3) == 0 && k.size(-3) == v.size(-3),
               invalid, "scaled_dot_product_attention ({}): {} query heads do not divide among {} key heads",
               loc.str(), q.size(-3), k.size(-3));
  if (mask.defined()) check_mask(q, k, mask, loc);
}
}  // namespace

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                                    const AttentionOptions& o, Loc loc) {
  check_attention(q, k, v, mask, o, loc);
  const double scale = o.scale.value_or(1 / std::sqrt(static_cast<double>(std::max<int64_t>(q.size(-1), 1))));
  const bool drop = o.dropout_p > 0;
  const GeneratorState g = drop ? next_random() : GeneratorState{};
  std::vector<Scalar> scalars{scale};
  if (drop)
    scalars.insert(scalars.end(),
                   {o.dropout_p, static_cast<int64_t>(g.seed), static_cast<int64_t>(g.offset)});
  const Tensor* operands[] = {&q, &k, &v, &mask};
  const int64_t ints[] = {o.is_causal, o.enable_gqa, drop};
  return call({"attention", loc, operands, ints, scalars}, [&](const Tensor& q, const Tensor& k,
                                                               const Tensor& v, const Tensor& mask,
                                                               const std::vector<Tensor>& s) {
    KILN_CHECK(q.dtype() == k.dtype() && q.dtype() == v.dtype() &&
                   (!mask.defined() || mask.dtype() == DType::boolean || mask.dtype() == q.dtype()),
               invalid,
               "scaled_dot_product_attention ({}): dtypes differ; got q {}, k {}, v {}{}; a mask is bool or "
               "of their dtype",
               loc.str(), q.type_str(), k.type_str(), v.type_str(),
               mask.defined() ? ", mask " + mask.type_str() : "");
    const Tensor keys = o.enable_gqa ? repeat_heads(k, q.size(-3)) : k,
                 vals = o.enable_gqa ? repeat_heads(v, q.size(-3)) : v;
    Tensor scores = mul2(matmul(q, keys.transpose(-1, -2, loc), loc), cast_to(s[0], q.dtype()));
    const Tensor hidden = lit(scores, -INFINITY);
    if (o.is_causal) {
      const int64_t r = scores.dim();
      scores =
          select3(binary(op("ge"), iota(r - 2, scores.sizes()), iota(r - 1, scores.sizes())), scores, hidden);
    }
    if (mask.defined() && mask.dtype() == DType::boolean)
      scores = select3(expand_to(mask, scores.sizes()), scores, hidden);
    else if (mask.defined()) scores = add2(scores, mask);
    Tensor p = safe_softmax(scores);
    if (drop) p = dropped(p, p.sizes(), s[1], s[2], s[3]);
    return matmul(p, vals, loc);
  });
}

}  // namespace kiln
