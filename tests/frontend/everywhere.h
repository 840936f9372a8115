// SPDX-License-Identifier: Apache-2.0
// Functions that must give the same eagerly and compiled, and derivatives that central differences must
// confirm.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "frontend/compile.h"
#include "tests/frontend/testing.h"

namespace kiln::testing {

using Inputs = std::vector<Tensor>;
using OfInputs = std::function<Tensor(const Inputs&)>;

/// Where `got` is not `want`, NaN and infinities included; "" if nowhere.
inline std::string difference(const std::vector<double>& got, const std::vector<double>& want,
                              double tolerance) {
  if (got.size() != want.size()) return fmt::format("{} elements, expected {}", got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    if (got[i] == want[i] || std::abs(got[i] - want[i]) <= tolerance * (1 + std::abs(want[i]))) continue;
    return fmt::format("element {} is {}, expected {}", i, got[i], want[i]);
  }
  return "";
}

inline void expect_close(const std::vector<double>& got, const std::vector<double>& want,
                         const std::string& name, double tolerance = 2e-6) {
  EXPECT_EQ(difference(got, want, tolerance), "") << name;
}

/// The elements of f(in): eagerly, and the same by both backends, built and followed once more.
inline std::vector<double> everywhere(const OfInputs& f, const Inputs& in, const std::string& name) {
  const Tensor eager = f(in);
  const std::vector<double> want = doubles(eager);
  for (const Backend backend : {Backend::reference, Backend::native}) {
    CompileOptions o;
    o.backend = backend;
    auto fast = compile([&](const Inputs& x) { return f(x); }, o);
    for (int call = 0; call < 2; ++call) {
      const Tensor got = fast(in);
      EXPECT_EQ(got.sizes(), eager.sizes()) << name;
      EXPECT_EQ(got.dtype(), eager.dtype()) << name;
      expect_close(doubles(got), want, name + " compiled");
    }
    EXPECT_EQ(fast.stats().builds.size(), 1u) << name;
  }
  return want;
}

/// A fixed number for element i, between 0.5 and 1.5.
inline double weight(size_t i) {
  return 0.5 + std::fmod(0.618033988749895 * static_cast<double>(i + 1), 1.0);
}

/// Gradients of a weighted sum of f(in) are those of central differences. `in` is f64; gradients are asked
/// for all.
inline void expect_gradients(const OfInputs& f, const std::vector<std::vector<double>>& numbers,
                             const std::vector<Sizes>& sizes, const std::string& name) {
  const auto make = [&](const std::vector<std::vector<double>>& v, bool grad) {
    Inputs in;
    for (size_t k = 0; k < v.size(); ++k) in.push_back(Tensor::from_vector(v[k], sizes[k]));
    for (Tensor& t : in) t.requires_grad_(grad);
    return in;
  };
  const auto total = [&](const Inputs& in) {
    const Tensor y = f(in);
    std::vector<double> w(static_cast<size_t>(y.numel()));
    for (size_t i = 0; i < w.size(); ++i) w[i] = weight(i);
    return sum(y * Tensor::from_vector(w, y.sizes()));
  };
  const Inputs in = make(numbers, true);
  total(in).backward();
  for (size_t k = 0; k < numbers.size(); ++k) {
    ASSERT_TRUE(in[k].grad().defined()) << name << " input " << k;
    std::vector<double> want;
    for (size_t i = 0; i < numbers[k].size(); ++i) {
      std::vector<std::vector<double>> up = numbers, down = numbers;
      constexpr double kStep = 1e-6;
      up[k][i] += kStep;
      down[k][i] -= kStep;
      want.push_back((total(make(up, false)).item() - total(make(down, false)).item()) / (2 * kStep));
    }
    expect_close(doubles(in[k].grad()), want, fmt::format("{} input {}", name, k), 1e-6);
  }
}

}  // namespace kiln::testing
