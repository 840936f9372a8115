// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/init.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "frontend/ops.h"

namespace kiln::nn::init {

namespace {

using Doubles = std::vector<double>;

void check(const Tensor& t, const char* name, Loc loc) {
  KILN_CHECK(t.defined() && is_floating(t.dtype()), invalid, "{} ({}): got {}, expected a floating tensor",
             name, loc.str(), t.type_str());
}
void check_matrix(const Tensor& t, const char* name, Loc loc) {
  check(t, name, loc);
  KILN_CHECK(t.dim() == 2, invalid, "{} ({}): got {}, expected a matrix", name, loc.str(), t.type_str());
}

/// How random numbers for t are drawn.
TensorOptions drawn_for(const Tensor& t) {
  return {.dtype = t.dtype() == DType::f64 ? DType::f64 : DType::f32, .device = t.device()};
}
Tensor set(Tensor t, const Tensor& values, Loc loc) {
  NoGrad guard;
  t.copy_(values, loc);
  return t;
}
Tensor set_from_host(Tensor t, const Doubles& values, Loc loc) {
  return set(t, Tensor::from_vector(values, t.sizes(), loc).to(t.device(), loc), loc);
}
Doubles drawn_normal(const Tensor& t, Loc loc) {
  NoGrad guard;
  return randn(t.sizes(), drawn_for(t), loc).to(DType::f64, loc).to_vector<double>(loc);
}
Doubles drawn_uniform(const Tensor& t, Loc loc) {
  NoGrad guard;
  return rand(t.sizes(), drawn_for(t), loc).to(DType::f64, loc).to_vector<double>(loc);
}

/// Source: Giles, Approximating the erfinv function, 2010; two Newton steps take it to double precision.
double inverse_erf(double x) {
  if (x <= -1 || x >= 1) return std::copysign(INFINITY, x);
  double w = -std::log((1 - x) * (1 + x)), y = 0;
  constexpr double kNear[] = {2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
                              -0.00125372503, -0.00417768164, 0.246640727,    1.50140941};
  constexpr double kFar[] = {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
                             -0.0076224613,   0.00943887047,  1.00167406,    2.83297682};
  const bool near = w < 5;
  w = near ? w - 2.5 : std::sqrt(w) - 3;
  for (const double c : near ? kNear : kFar) y = y * w + c;
  y *= x;
  for (int i = 0; i < 2; ++i) y -= (std::erf(y) - x) / (M_2_SQRTPI * std::exp(-y * y));
  return y;
}

double normal_cdf(double x) { return (1 + std::erf(x * M_SQRT1_2)) / 2; }

/// Q of the QR decomposition of a [rows, cols], rows >= cols, with the signs that make R's diagonal positive.
Doubles orthonormal_columns(Doubles a, size_t rows, size_t cols) {
  std::vector<Doubles> reflectors(cols);
  Doubles sign(cols, 1);
  const auto reflect = [&](Doubles& m, const Doubles& v, size_t k, size_t from) {
    for (size_t j = from; j < cols; ++j) {
      double dot = 0;
      for (size_t i = k; i < rows; ++i) dot += v[i - k] * m[i * cols + j];
      for (size_t i = k; i < rows; ++i) m[i * cols + j] -= 2 * dot * v[i - k];
    }
  };
  for (size_t k = 0; k < cols; ++k) {
    Doubles v(rows - k);
    double norm = 0;
    for (size_t i = k; i < rows; ++i) norm += a[i * cols + k] * a[i * cols + k];
    norm = std::sqrt(norm);
    for (size_t i = k; i < rows; ++i) v[i - k] = a[i * cols + k];
    const double alpha = v[0] > 0 ? -norm : norm;
    v[0] -= alpha;
    const double length = std::sqrt(std::inner_product(v.begin(), v.end(), v.begin(), 0.0));
    if (length > 0)
      for (double& x : v) x /= length;
    reflect(a, v, k, k);
    sign[k] = alpha < 0 ? -1 : 1;
    reflectors[k] = std::move(v);
  }
  Doubles q(rows * cols, 0);
  for (size_t k = 0; k < cols; ++k) q[k * cols + k] = 1;
  for (size_t k = cols; k-- > 0;) reflect(q, reflectors[k], k, 0);
  for (size_t i = 0; i < rows; ++i)
    for (size_t k = 0; k < cols; ++k) q[i * cols + k] *= sign[k];
  return q;
}

double kaiming_std(const Tensor& t, double a, FanMode mode, Nonlinearity nonlinearity, Loc loc) {
  const auto [in, out] = calculate_fan_in_and_fan_out(t, loc);
  const auto fan = static_cast<double>(mode == FanMode::fan_in ? in : out);
  return fan > 0 ? calculate_gain(nonlinearity, a) / std::sqrt(fan) : 0;
}
double xavier_std(const Tensor& t, double gain, Loc loc) {
  const auto [in, out] = calculate_fan_in_and_fan_out(t, loc);
  return in + out > 0 ? gain * std::sqrt(2 / static_cast<double>(in + out)) : 0;
}

}  // namespace

Tensor uniform_(Tensor t, double a, double b, Loc loc) {
  check(t, "uniform_", loc);
  KILN_CHECK(a <= b, invalid, "uniform_ ({}): the bounds {} and {} are in the wrong order", loc.str(), a, b);
  NoGrad guard;
  return set(t, add(TensorArg(mul({rand(t.sizes(), drawn_for(t), loc), loc}, {b - a, loc}), loc), {a, loc}),
             loc);
}

Tensor normal_(Tensor t, double mean, double std, Loc loc) {
  check(t, "normal_", loc);
  KILN_CHECK(std >= 0, invalid, "normal_ ({}): std is {}, expected at least 0", loc.str(), std);
  NoGrad guard;
  const Tensor drawn = randn(t.sizes(), drawn_for(t), loc);
  return set(t, add(TensorArg(mul({drawn, loc}, {std, loc}), loc), {mean, loc}), loc);
}

Tensor trunc_normal_(Tensor t, double mean, double std, double a, double b, Loc loc) {
  check(t, "trunc_normal_", loc);
  KILN_CHECK(std > 0 && a <= b, invalid,
             "trunc_normal_ ({}): got std {} and the bounds {} and {}, expected std > 0 and bounds in order",
             loc.str(), std, a, b);
  const double low = normal_cdf((a - mean) / std), high = normal_cdf((b - mean) / std);
  Doubles values = drawn_uniform(t, loc);
  for (double& v : values)
    v = std::clamp(mean + std * M_SQRT2 * inverse_erf(2 * (low + v * (high - low)) - 1), a, b);
  return set_from_host(t, values, loc);
}

Tensor constant_(Tensor t, double value, Loc loc) {
  check(t, "constant_", loc);
  NoGrad guard;
  t.fill_(value, loc);
  return t;
}
Tensor zeros_(Tensor t, Loc loc) { return constant_(std::move(t), 0, loc); }
Tensor ones_(Tensor t, Loc loc) { return constant_(std::move(t), 1, loc); }

Tensor eye_(Tensor t, Loc loc) {
  check_matrix(t, "eye_", loc);
  Doubles values(static_cast<size_t>(t.numel()), 0);
  for (int64_t i = 0; i < std::min(t.size(0), t.size(1)); ++i)
    values[static_cast<size_t>(i * t.size(1) + i)] = 1;
  return set_from_host(t, values, loc);
}

Tensor dirac_(Tensor t, int64_t groups, Loc loc) {
  check(t, "dirac_", loc);
  KILN_CHECK(t.dim() >= 3 && t.dim() <= 5 && groups > 0 && t.size(0) % groups == 0, invalid,
             "dirac_ ({}): got {} and {} groups, expected [out, in, kernel...] of 3 to 5 dims with out a "
             "multiple of groups",
             loc.str(), t.type_str(), groups);
  const int64_t each = t.size(0) / groups;
  int64_t kernel = 1, middle = 0;
  for (int64_t d = 2; d < t.dim(); ++d) {
    middle = middle * t.size(d) + t.size(d) / 2;
    kernel *= t.size(d);
  }
  Doubles values(static_cast<size_t>(t.numel()), 0);
  for (int64_t g = 0; g < groups && kernel > 0; ++g)
    for (int64_t c = 0; c < std::min(each, t.size(1)); ++c)
      values[static_cast<size_t>(((g * each + c) * t.size(1) + c) * kernel + middle)] = 1;
  return set_from_host(t, values, loc);
}

double calculate_gain(Nonlinearity nonlinearity, double slope) {
  switch (nonlinearity) {
    case Nonlinearity::linear:
    case Nonlinearity::sigmoid: return 1;
    case Nonlinearity::tanh: return 5.0 / 3;
    case Nonlinearity::relu: return std::sqrt(2.0);
    case Nonlinearity::leaky_relu: return std::sqrt(2 / (1 + slope * slope));
    case Nonlinearity::selu: return 0.75;
  }
  KILN_ASSERT(false, "a nonlinearity");
  return 0;
}

std::pair<int64_t, int64_t> calculate_fan_in_and_fan_out(const Tensor& t, Loc loc) {
  check(t, "calculate_fan_in_and_fan_out", loc);
  KILN_CHECK(t.dim() >= 2, invalid, "calculate_fan_in_and_fan_out ({}): got {}, expected at least 2 dims",
             loc.str(), t.type_str());
  int64_t kernel = 1;
  for (int64_t d = 2; d < t.dim(); ++d) kernel *= t.size(d);
  return {t.size(1) * kernel, t.size(0) * kernel};
}

Tensor xavier_uniform_(Tensor t, double gain, Loc loc) {
  const double bound = std::sqrt(3.0) * xavier_std(t, gain, loc);
  return uniform_(std::move(t), -bound, bound, loc);
}
Tensor xavier_normal_(Tensor t, double gain, Loc loc) {
  const double std = xavier_std(t, gain, loc);
  return normal_(std::move(t), 0, std, loc);
}
Tensor kaiming_uniform_(Tensor t, double a, FanMode mode, Nonlinearity nonlinearity, Loc loc) {
  const double bound = std::sqrt(3.0) * kaiming_std(t, a, mode, nonlinearity, loc);
  return uniform_(std::move(t), -bound, bound, loc);
}
Tensor kaiming_normal_(Tensor t, double a, FanMode mode, Nonlinearity nonlinearity, Loc loc) {
  const double std = kaiming_std(t, a, mode, nonlinearity, loc);
  return normal_(std::move(t), 0, std, loc);
}

Tensor orthogonal_(Tensor t, double gain, Loc loc) {
  check(t, "orthogonal_", loc);
  KILN_CHECK(t.dim() >= 2, invalid, "orthogonal_ ({}): got {}, expected at least 2 dims", loc.str(),
             t.type_str());
  if (t.numel() == 0) return t;
  const auto rows = static_cast<size_t>(t.size(0)), cols = static_cast<size_t>(t.numel()) / rows;
  const bool wide = rows < cols;
  const size_t m = wide ? cols : rows, n = wide ? rows : cols;
  const Doubles q = orthonormal_columns(drawn_normal(t, loc), m, n);
  Doubles values(q.size());
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) values[wide ? j * m + i : i * n + j] = gain * q[i * n + j];
  return set_from_host(t, values, loc);
}

Tensor sparse_(Tensor t, double sparsity, double std, Loc loc) {
  check_matrix(t, "sparse_", loc);
  KILN_CHECK(sparsity >= 0 && sparsity <= 1 && std >= 0, invalid,
             "sparse_ ({}): got sparsity {} and std {}, expected 0 to 1, and at least 0", loc.str(), sparsity,
             std);
  const auto rows = static_cast<size_t>(t.size(0)), cols = static_cast<size_t>(t.size(1));
  const auto none = static_cast<size_t>(std::ceil(sparsity * static_cast<double>(rows)));
  Doubles values = drawn_normal(t, loc);
  const Doubles order = drawn_uniform(t, loc);
  std::vector<size_t> row(rows);
  for (size_t c = 0; c < cols; ++c) {
    std::iota(row.begin(), row.end(), size_t{0});
    std::stable_sort(row.begin(), row.end(),
                     [&](size_t a, size_t b) { return order[a * cols + c] < order[b * cols + c]; });
    for (size_t r = 0; r < rows; ++r) {
      double& v = values[row[r] * cols + c];
      v = r < none ? 0 : v * std;
    }
  }
  return set_from_host(t, values, loc);
}

}  // namespace kiln::nn::init
