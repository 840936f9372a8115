// SPDX-License-Identifier: Apache-2.0
#include "frontend/norm.h"

#include "frontend/ops_detail.h"
#include "frontend/state.h"
#include "frontend/window_detail.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace {

bool is_half(const Tensor& x) { return x.dtype() == DType::bf16 || x.dtype() == DType::f16; }

/// Whatever of the named tensors there is must be [c] of x's dtype, or of f32 where x is of a half.
void check_channels(const Tensor& x, const char* name, Loc loc,
                    std::initializer_list<std::pair<const char*, const Tensor*>> given) {
  for (const auto& [what, t] : given)
    KILN_CHECK(!t->defined() || (t->sizes() == Sizes{x.size(1)} &&
                                 (t->dtype() == x.dtype() || (is_half(x) && t->dtype() == DType::f32))),
               invalid, "{} ({}): got {} {}, expected {}[{}] for x {}", name, loc.str(), what, t->type_str(),
               dtype_name(x.dtype()), x.size(1), x.type_str());
}
void check_input(const Tensor& x, const char* name, Loc loc) {
  require_floating(x, name, loc);
  KILN_CHECK(x.dim() >= 2, invalid, "{} ({}): got x {}, expected [n, c, ...]", name, loc.str(), x.type_str());
}

/// Statistics of halves are taken in f32.
Tensor widened(const Tensor& x) { return is_half(x) ? cast_to(x, DType::f32) : x; }

Tensor mean_of(const Tensor& x, const Sizes& dims) {
  double n = 1;
  for (int64_t d : dims) n *= static_cast<double>(x.size(d));
  const Tensor s = reduce(op("sum"), x, dims, true);
  return mul2(s, lit(s, 1 / n));
}
/// [c] beside the batch: [1, c, 1, ...].
Tensor per_channel(const Tensor& t, int64_t rank) {
  Sizes s(static_cast<size_t>(rank), 1);
  s[1] = t.numel();
  return reshape_to(t, s);
}
Tensor with_affine(Tensor y, const Tensor& weight, const Tensor& bias) {
  if (weight.defined()) y = mul2(y, per_channel(weight, y.dim()));
  return bias.defined() ? add2(y, per_channel(bias, y.dim())) : y;
}
/// running += momentum (seen - running).
void update(const Tensor& running, const Tensor& seen, const Tensor& momentum) {
  if (!running.defined()) return;
  NoGrad guard;
  const Tensor now = reshape_to(seen.detach(), running.sizes()), share = cast_to(momentum, running.dtype());
  const Tensor next = add2(mul2(running, sub2(lit(running, 1), share)), mul2(now, share));
  assign(running, cast_to(next, running.dtype()));
}
/// The estimate of the variance of which `n` elements were a sample.
Tensor unbiased(const Tensor& variance, int64_t n) {
  return mul2(variance, lit(variance, static_cast<double>(n) / static_cast<double>(n - 1)));
}

/// The statistics of x over `dims`, taken now: x without its mean, and both.
struct Moments {
  Tensor centred, mean, variance;
};
Moments moments(const Tensor& x, const Sizes& dims) {
  const Tensor mean = mean_of(x, dims), centred = sub2(x, mean);
  return {centred, mean, mean_of(mul2(centred, centred), dims)};
}
Tensor scaled(const Tensor& centred, const Tensor& variance, const Tensor& eps) {
  return mul2(centred, unary(op("rsqrt"), add2(variance, cast_to(eps, variance.dtype()))));
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight, const Tensor& bias, const BatchNormOptions& o, Loc loc) {
  constexpr const char* kName = "batch_norm";
  check_input(x, kName, loc);
  check_channels(
      x, kName, loc,
      {{"running_mean", &running_mean}, {"running_var", &running_var}, {"weight", &weight}, {"bias", &bias}});
  KILN_CHECK(o.training || (running_mean.defined() && running_var.defined()), invalid,
             "batch_norm ({}): evaluation needs running_mean and running_var (or training = true)",
             loc.str());
  const int64_t n = x.size(1) == 0 ? 0 : x.numel() / x.size(1);
  KILN_CHECK(!o.training || n != 1, invalid,
             "batch_norm ({}): training needs more than one value per channel; got x {}", loc.str(),
             x.type_str());
  return call(kName, loc, {&x, &running_mean, &running_var, &weight, &bias}, {o.training},
              {o.eps, o.momentum}, [&](const std::vector<Tensor>& s) {
                const Tensor wide = widened(x);
                Sizes dims{0};
                for (int64_t d = 2; d < x.dim(); ++d) dims.push_back(d);
                const auto result = [&](const Tensor& centred, const Tensor& variance) {
                  return cast_to(with_affine(scaled(centred, variance, s[0]), weight, bias), x.dtype());
                };
                if (!o.training)
                  return result(sub2(wide, per_channel(running_mean, x.dim())),
                                per_channel(running_var, x.dim()));
                if (n == 0) return cast_to(with_affine(wide, weight, bias), x.dtype());  // no statistics
                const Moments m = moments(wide, dims);
                update(running_mean, m.mean, s[1]);
                update(running_var, unbiased(m.variance, n), s[1]);
                return result(m.centred, m.variance);
              });
}

Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, double eps,
                  Loc loc) {
  constexpr const char* kName = "group_norm";
  check_input(x, kName, loc);
  KILN_CHECK(groups > 0 && x.size(1) % groups == 0, invalid,
             "group_norm ({}): {} channels do not divide into {} groups; got x {}", loc.str(), x.size(1),
             groups, x.type_str());
  KILN_CHECK(x.numel() != groups, invalid,
             "group_norm ({}): got x {} for {} groups, expected more than one value in each", loc.str(),
             x.type_str(), groups);
  return call(kName, loc, {&x, &weight, &bias}, {groups}, {eps},
              [&](const Tensor& x, const Tensor& weight, const Tensor& bias, const std::vector<Tensor>& s) {
                check_channels(x, kName, loc, {{"weight", &weight}, {"bias", &bias}});
                const Tensor wide = widened(x);
                if (x.numel() == 0) return cast_to(with_affine(wide, weight, bias), x.dtype());
                const Tensor g = reshape_to(wide, {x.size(0), groups, x.numel() / (x.size(0) * groups)});
                const Moments m = moments(g, {2});
                const Tensor y = reshape_to(scaled(m.centred, m.variance, s[0]), x.sizes());
                return cast_to(with_affine(y, weight, bias), x.dtype());
              });
}

Tensor instance_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                     const Tensor& weight, const Tensor& bias, const InstanceNormOptions& o, Loc loc) {
  constexpr const char* kName = "instance_norm";
  check_input(x, kName, loc);
  check_channels(
      x, kName, loc,
      {{"running_mean", &running_mean}, {"running_var", &running_var}, {"weight", &weight}, {"bias", &bias}});
  KILN_CHECK(o.use_input_stats || (running_mean.defined() && running_var.defined()), invalid,
             "instance_norm ({}): without use_input_stats it needs running_mean and running_var", loc.str());
  int64_t space = 1;
  for (int64_t d = 2; d < x.dim(); ++d) space *= x.size(d);
  KILN_CHECK(!o.use_input_stats || space != 1, invalid,
             "instance_norm ({}): needs more than one element of space; got x {}", loc.str(), x.type_str());
  return call(kName, loc, {&x, &running_mean, &running_var, &weight, &bias}, {o.use_input_stats},
              {o.eps, o.momentum}, [&](const std::vector<Tensor>& s) {
                const Tensor wide = widened(x);
                const auto result = [&](const Tensor& centred, const Tensor& variance) {
                  return cast_to(with_affine(scaled(centred, variance, s[0]), weight, bias), x.dtype());
                };
                if (!o.use_input_stats)
                  return result(sub2(wide, per_channel(running_mean, x.dim())),
                                per_channel(running_var, x.dim()));
                if (x.numel() == 0) return cast_to(with_affine(wide, weight, bias), x.dtype());
                Sizes dims;
                for (int64_t d = 2; d < x.dim(); ++d) dims.push_back(d);
                const Moments m = moments(wide, dims);
                update(running_mean, mean_of(m.mean, {0}), s[1]);
                update(running_var, unbiased(mean_of(m.variance, {0}), space), s[1]);
                return result(m.centred, m.variance);
              });
}

Tensor local_response_norm(const Tensor& x, int64_t size, double alpha, double beta, double k, Loc loc) {
  constexpr const char* kName = "local_response_norm";
  require_floating(x, kName, loc);
  KILN_CHECK(x.dim() >= 3 && size > 0, invalid,
             "local_response_norm ({}): got x {} and size {}, expected [n, c, space...] and at least 1",
             loc.str(), x.type_str(), size);
  return call(kName, loc, {&x}, {size}, {alpha / static_cast<double>(size), beta, k},
              [&](const Tensor& x, const std::vector<Tensor>& s) {
                const Tensor padded = pad_dims(mul2(x, x), 1, {size / 2}, {(size - 1) / 2}, 0);
                const Tensor sum = reduce(op("sum"), windows(padded, 1, size, 1, 1), {2}, false);
                const auto as = [&](size_t i) { return cast_to(s[i], x.dtype()); };
                return div2(x, binary(op("pow"), add2(mul2(sum, as(0)), as(2)), as(1)));
              });
}

}  // namespace kiln
