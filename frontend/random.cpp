// SPDX-License-Identifier: Apache-2.0
// Random tensors and creation, in primitives.
#include "frontend/random.h"

#include <cmath>

#include "frontend/device.h"
#include "frontend/functional.h"
#include "frontend/window_detail.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace detail {

std::vector<Scalar> draw(int count) {
  std::vector<Scalar> s;
  for (int i = 0; i < count; ++i) {
    const GeneratorState g = next_random();
    s.emplace_back(static_cast<int64_t>(g.seed));
    s.emplace_back(static_cast<int64_t>(g.offset));
  }
  return s;
}

Tensor uniform(const Tensor& seed, const Tensor& offset, const Sizes& sizes) {
  return apply(op("random_uniform"), {&seed, &offset}, {Shape(sizes.begin(), sizes.end())});
}

Tensor uniform_of(const Tensor& seed, const Tensor& offset, const Sizes& sizes, DType dtype) {
  const Tensor u = uniform(seed, offset, sizes);
  if (dtype != DType::f16 && dtype != DType::bf16) return cast_to(u, dtype);
  const double steps = dtype == DType::f16 ? 0x1p11 : 0x1p8;  // rounded to its digits, one would be drawn
  return cast_to(mul2(unary(op("floor"), mul2(u, lit(u, steps))), lit(u, 1 / steps)), dtype);
}

Tensor normal_of(const Tensor& seed, const Tensor& offset, const Tensor& seed2, const Tensor& offset2,
                 const Sizes& sizes) {
  const Tensor u = uniform(seed, offset, sizes), v = uniform(seed2, offset2, sizes);
  const Tensor open = sub2(lit(u, 1), u);  // in (0, 1]: its logarithm is finite
  const Tensor radius = unary(op("sqrt"), mul2(lit(u, -2), unary(op("log"), open)));
  return mul2(radius, unary(op("cos"), mul2(lit(u, 2 * M_PI), v)));
}

Tensor dropped(const Tensor& x, const Sizes& noise, const Tensor& p64, const Tensor& seed,
               const Tensor& offset) {
  const Tensor u = uniform(seed, offset, noise);
  const Tensor p = cast_to(p64, DType::f32), keep = expand_to(binary(op("ge"), u, p), x.sizes());
  const Tensor kept = sub2(lit(u, 1), p), none = binary(op("le"), kept, lit(u, 0));
  const Tensor scale = select3(none, lit(u, 0), div2(lit(u, 1), kept));
  return select3(keep, mul2(x, cast_to(scale, x.dtype())), lit(x, 0));
}

}  // namespace detail

namespace {
TensorOptions like(const Tensor& t, const char* name, Loc loc) {
  require(t, name, loc, "t");
  return {.dtype = t.dtype(), .device = t.device()};
}
}  // namespace

Tensor full_like(const Tensor& t, Scalar value, Loc loc) {
  const TensorOptions o = like(t, "full_like", loc);
  return full(t.sizes(), value, o, loc);
}
Tensor empty_like(const Tensor& t, Loc loc) {
  const TensorOptions o = like(t, "empty_like", loc);
  return empty(t.sizes(), o, loc);
}
Tensor rand_like(const Tensor& t, Loc loc) {
  require_floating(t, "rand_like", loc, "t");
  return rand(t.sizes(), like(t, "rand_like", loc), loc);
}
Tensor randn_like(const Tensor& t, Loc loc) {
  require_floating(t, "randn_like", loc, "t");
  return randn(t.sizes(), like(t, "randn_like", loc), loc);
}

namespace {
/// The numbers of linspace in f64.
Tensor spaced(const Tensor& start, const Tensor& end, int64_t steps) {
  const Tensor i = cast_to(iota(0, {steps}), DType::f64);
  if (steps == 1) return copied(expand_to(start, {1}));
  const auto last = static_cast<double>(steps - 1);
  const Tensor step = div2(sub2(end, start), lit(end, last));
  const Tensor from_end = sub2(end, mul2(step, sub2(lit(i, last), i)));
  return select3(binary(op("lt"), i, lit(i, static_cast<double>(steps / 2))), add2(start, mul2(step, i)),
                 from_end);
}

Tensor made(const char* name, int64_t n, const Sizes& sizes, const std::vector<Scalar>& scalars,
            const TensorOptions& o, Loc loc, const std::function<Tensor(const std::vector<Tensor>&)>& body) {
  const Device device = o.device.value_or(get_default_device());
  const DType dtype = o.dtype.value_or(DType::f32);
  Sizes ints = sizes;
  ints.insert(ints.end(), {n, static_cast<int64_t>(dtype), static_cast<int64_t>(device.type), device.index});
  Tensor t = call({name, loc, {}, ints, scalars, device},
                  [&](const std::vector<Tensor>& s) { return cast_to(body(s), dtype); });
  if (!tracing() && !t.is_contiguous()) t = t.contiguous(loc);
  if (o.requires_grad) t.requires_grad_(true, loc);
  return t;
}
}  // namespace

Tensor linspace(double start, double end, int64_t steps, TensorOptions o, Loc loc) {
  KILN_CHECK(steps >= 0, invalid, "linspace ({}): {} steps, expected none below 0", loc.str(), steps);
  return made("linspace", steps, {}, {start, end}, o, loc,
              [&](const std::vector<Tensor>& s) { return spaced(s[0], s[1], steps); });
}

Tensor logspace(double start, double end, int64_t steps, double base, TensorOptions o, Loc loc) {
  KILN_CHECK(steps >= 0, invalid, "logspace ({}): {} steps, expected none below 0", loc.str(), steps);
  return made("logspace", steps, {}, {start, end, base}, o, loc, [&](const std::vector<Tensor>& s) {
    return binary(op("pow"), s[2], spaced(s[0], s[1], steps));
  });
}

Tensor eye(int64_t n, std::optional<int64_t> m, TensorOptions o, Loc loc) {
  const Sizes sizes{n, m.value_or(n)};
  count_of(sizes, "eye", loc);
  return made("eye", 0, sizes, {}, o, loc,
              [&](const auto&) { return binary(op("eq"), iota(0, sizes), iota(1, sizes)); });
}

namespace {
/// A number of `t` is out of [0, hi]: an error.
void check_range(const Tensor& t, double hi, const char* name, const char* arg, const char* what, Loc loc) {
  if (t.numel() == 0) return;
  const Tensor flat = reshape_to(t, {t.numel()}), at = iota(0, {t.numel()}), zero = lit(flat, 0);
  Tensor good = binary(op("ge"), flat, zero);
  good = binary(op("logical_and"), good, binary(op("le"), flat, lit(flat, hi)));
  const Tensor wrong = select3(good, lit(at, static_cast<double>(kNothingWrong)), at);
  check_value(reduce(op("amax"), wrong, {0}, false),
              fmt::format("{} ({}): {}; got {} {} with another at element ", name, loc.str(), what, arg,
                          t.type_str()),
              "");
}
}  // namespace

Tensor bernoulli(const Tensor& p, Loc loc) {
  require_floating(p, "bernoulli", loc, "p");
  const std::vector<Scalar> numbers = draw(1);
  const Tensor* operands[] = {&p};
  return call({"bernoulli", loc, operands, {}, numbers}, [&](const std::vector<Tensor>& s) {
    check_range(p, 1, "bernoulli", "p", "probabilities are between 0 and 1", loc);
    const DType wide = p.dtype() == DType::f64 ? DType::f64 : DType::f32;
    const Tensor u = cast_to(uniform(s[0], s[1], p.sizes()), wide), probability = cast_to(p, wide);
    return cast_to(apply(op("lt"), {&u, &probability}), p.dtype());
  });
}

Tensor bernoulli(const Tensor& x, double p, Loc loc) {
  require(x, "bernoulli", loc);
  KILN_CHECK(p >= 0 && p <= 1, invalid, "bernoulli ({}): p is {}, expected 0 to 1", loc.str(), p);
  const std::vector<Scalar> d = draw(1);
  return call("bernoulli", loc, {&x}, {}, {p, d[0], d[1]}, [&](const std::vector<Tensor>& s) {
    return cast_to(binary(op("lt"), uniform(s[1], s[2], x.sizes()), cast_to(s[0], DType::f32)), x.dtype());
  });
}

Tensor normal(const TensorArg& mean, const TensorArg& deviation) {
  const Loc loc = mean.loc;
  KILN_CHECK(mean.tensor || deviation.tensor, invalid,
             "normal ({}): both mean and deviation are numbers (give the sizes)", loc.str());
  for (const auto& [a, arg] : {std::pair{&mean, "mean"}, std::pair{&deviation, "deviation"}})
    if (a->tensor) require_floating(*a->tensor, "normal", loc, arg);
  if (!deviation.tensor)
    KILN_CHECK(deviation.scalar.d >= 0, invalid, "normal ({}): std is {}, expected none below 0", loc.str(),
               deviation.scalar.d);
  const Tensor& one = mean.tensor ? *mean.tensor : *deviation.tensor;
  const Sizes sizes = mean.tensor && deviation.tensor ? broadcast_shapes(*mean.tensor, *deviation.tensor,
                                                                         "normal", loc, {"mean", "deviation"})
                                                      : one.sizes();
  const Tensor n = randn(sizes, {.dtype = one.dtype(), .device = one.device()}, loc);
  Tensor scale;
  if (deviation.tensor) {
    const Tensor* operands[] = {deviation.tensor};
    scale = call({"normal", loc, operands, {}, {}}, [&](const auto&) {
      check_range(*deviation.tensor, INFINITY, "normal", "deviation", "std is not negative", loc);
      return copied(*deviation.tensor);
    });
  }
  return add(TensorArg(mul(TensorArg(n, loc), scale.defined() ? TensorArg(scale, loc) : deviation), loc),
             mean);
}

Tensor normal(double mean, double deviation, Sizes sizes, TensorOptions o, Loc loc) {
  KILN_CHECK(deviation >= 0, invalid, "normal ({}): std is {}, expected none below 0", loc.str(), deviation);
  const bool grad = o.requires_grad;
  o.requires_grad = false;
  const Tensor n = mul(TensorArg(randn(std::move(sizes), o, loc), loc), TensorArg(deviation, loc));
  Tensor t = add(TensorArg(n, loc), TensorArg(mean, loc));
  if (grad) t.requires_grad_(true, loc);
  return t;
}

namespace {
void check_multinomial(const Tensor& w, int64_t samples, bool replacement, Loc loc) {
  require_floating(w, "multinomial", loc, "weights");
  KILN_CHECK((w.dim() == 1 || w.dim() == 2) && w.size(-1) > 0, invalid,
             "multinomial ({}): got weights {}, expected [n] or [m, n] with n > 0", loc.str(), w.type_str());
  KILN_CHECK(samples > 0 && (replacement || samples <= w.size(-1)), invalid,
             "multinomial ({}): {} samples of weights {}, expected 1 to {}", loc.str(), samples, w.type_str(),
             replacement ? std::string("any number") : fmt::format("{}", w.size(-1)));
}

/// Draws of the exponential distribution, whose logarithms are Gumbel noise.
Tensor waiting(const Tensor& u) {
  const Tensor open = sub2(lit(u, 1), u);
  return binary(op("maximum"), unary(op("neg"), unary(op("log"), open)), lit(u, 0x1p-126));
}
/// log(w) with Gumbel noise, of which the largest is a draw.
Tensor noisy(const Tensor& w, const Tensor& u) {
  return sub2(unary(op("log"), w), unary(op("log"), waiting(u)));
}
}  // namespace

Tensor multinomial(const Tensor& weights, int64_t samples, bool replacement, Loc loc) {
  check_multinomial(weights, samples, replacement, loc);
  const std::vector<Scalar> numbers = draw(1);
  const Tensor* operands[] = {&weights};
  const int64_t ints[] = {samples, replacement};
  return call({"multinomial", loc, operands, ints, numbers}, [&](const std::vector<Tensor>& s) {
    NoGrad guard;
    check_range(weights, 0x1.FFFFFEp127, "multinomial", "weights", "weights are finite and not negative",
                loc);
    const int64_t n = weights.size(-1), rows = weights.numel() / n;
    const Tensor w = cast_to(reshape_to(weights, {rows, n}), DType::f32);
    check_range(unary(op("reciprocal"), reduce(op("amax"), w, {1}, false)), 0x1.FFFFFEp127, "multinomial",
                "weights", "a row has a weight that is not zero", loc);
    Sizes out = weights.sizes();
    out.back() = samples;
    if (replacement) {
      const Sizes each{rows, samples, n};
      const Tensor score = noisy(expand_to(reshape_to(w, {rows, 1, n}), each), uniform(s[0], s[1], each));
      return reshape_to(apply(op("argmax"), {&score}, {Sizes{2}}), out);
    }
    const Tensor score = noisy(w, uniform(s[0], s[1], {rows, n}));
    return reshape_to(cut(apply(op("argsort"), {&score}, {1, true}), 1, 0, samples), out);
  });
}

Tensor randperm(int64_t n, TensorOptions o, Loc loc) {
  KILN_CHECK(n >= 0, invalid, "randperm ({}): n is {}, expected none below 0", loc.str(), n);
  if (!o.dtype) o.dtype = DType::i64;
  return made("randperm", n, {}, draw(2), o, loc, [&](const std::vector<Tensor>& s) {
    // Draws have 24 bits: two of them make ties as rare as they need be.
    const Tensor high = cast_to(uniform(s[0], s[1], {n}), DType::f64);
    const Tensor low = cast_to(uniform(s[2], s[3], {n}), DType::f64);
    const Tensor key = add2(high, mul2(low, lit(low, 0x1p-24)));
    return apply(op("argsort"), {&key}, {0, false});
  });
}

Tensor gumbel_softmax(const Tensor& logits, double tau, bool hard, int64_t dim, Loc loc) {
  require_floating(logits, "gumbel_softmax", loc, "logits");
  const int64_t d = wrap_dim(dim, logits.dim(), "gumbel_softmax", loc);
  const std::vector<Scalar> g = draw(1);
  return call("gumbel_softmax", loc, {&logits}, {d, hard}, {tau, g[0], g[1]},
              [&](const Tensor& logits, const std::vector<Tensor>& s) {
                const Tensor wait = waiting(uniform(s[1], s[2], logits.sizes()));
                const Tensor noise = cast_to(unary(op("log"), wait), logits.dtype());
                const Tensor soft = softmax(div2(sub2(logits, noise), cast_to(s[0], logits.dtype())), d, loc);
                if (!hard || soft.numel() == 0) return soft;
                Sizes one = soft.sizes();
                one[static_cast<size_t>(d)] = 1;
                const Tensor best = reshape_to(apply(op("argmax"), {&soft}, {Sizes{d}}), one);
                const Tensor chosen = cast_to(binary(op("eq"), iota(d, soft.sizes()), best), soft.dtype());
                return add2(constant_of(sub2(chosen, soft)), soft);
              });
}

namespace {
void check_probability(double p, const char* name, Loc loc) {
  KILN_CHECK(p >= 0 && p <= 1, invalid, "{} ({}): p is {}, expected 0 to 1", name, loc.str(), p);
}

/// `batched`: dims before the channels.
Tensor channel_dropout(const char* name, const Tensor& x, double p, bool training, bool batched, Loc loc) {
  check_probability(p, name, loc);
  if (!training || p == 0) return x;
  const std::vector<Scalar> d = draw(1);
  return call(name, loc, {&x}, {}, {p, d[0], d[1]}, [&](const std::vector<Tensor>& s) {
    Sizes noise(static_cast<size_t>(x.dim()), 1);
    for (size_t i = 0; i < (batched ? 2 : 1); ++i) noise[i] = x.sizes()[i];
    return dropped(x, noise, s[0], s[1], s[2]);
  });
}

void check_rank(const Tensor& x, int64_t lo, int64_t hi, const char* name, Loc loc) {
  require_floating(x, name, loc);
  KILN_CHECK(x.dim() >= lo && x.dim() <= hi, invalid, "{} ({}): got x {}, expected {} or {} dims", name,
             loc.str(), x.type_str(), lo, hi);
}

Tensor alpha_call(const char* name, const Tensor& x, double p, bool training, bool channels, Loc loc) {
  require_floating(x, name, loc);
  check_probability(p, name, loc);
  KILN_CHECK(!channels || x.dim() >= 2, invalid, "{} ({}): got x {}, expected [n, channels, ...]", name,
             loc.str(), x.type_str());
  if (!training || p == 0) return x;
  const std::vector<Scalar> d = draw(1);
  return call(name, loc, {&x}, {}, {p, d[0], d[1]}, [&](const std::vector<Tensor>& s) {
    Sizes noise = x.sizes();
    for (size_t i = 2; channels && i < noise.size(); ++i) noise[i] = 1;
    const Tensor q = cast_to(s[0], DType::f32), u = uniform(s[1], s[2], noise), one = lit(u, 1);
    const Tensor limit = lit(u, -1.7580993408473766);
    const Tensor spread = mul2(add2(mul2(mul2(limit, limit), q), one), sub2(one, q));
    const Tensor all = binary(op("le"), spread, lit(u, 0)), zero = lit(u, 0);
    const Tensor a = select3(all, zero, unary(op("rsqrt"), select3(all, one, spread)));
    const Tensor shift = unary(op("neg"), mul2(a, mul2(q, limit)));
    const Tensor keep = expand_to(binary(op("ge"), u, q), x.sizes());
    const auto own = [&](const Tensor& t) { return cast_to(t, x.dtype()); };
    return select3(keep, add2(mul2(x, own(a)), own(shift)), own(add2(mul2(a, limit), shift)));
  });
}
}  // namespace

Tensor dropout1d(const Tensor& x, double p, bool training, Loc loc) {
  check_rank(x, 2, 3, "dropout1d", loc);
  return channel_dropout("dropout1d", x, p, training, x.dim() == 3, loc);
}
Tensor dropout2d(const Tensor& x, double p, bool training, Loc loc) {
  check_rank(x, 3, 4, "dropout2d", loc);
  return channel_dropout("dropout2d", x, p, training, true, loc);
}
Tensor dropout3d(const Tensor& x, double p, bool training, Loc loc) {
  check_rank(x, 4, 5, "dropout3d", loc);
  return channel_dropout("dropout3d", x, p, training, x.dim() == 5, loc);
}
Tensor alpha_dropout(const Tensor& x, double p, bool training, Loc loc) {
  return alpha_call("alpha_dropout", x, p, training, false, loc);
}
Tensor feature_alpha_dropout(const Tensor& x, double p, bool training, Loc loc) {
  return alpha_call("feature_alpha_dropout", x, p, training, true, loc);
}

}  // namespace kiln
