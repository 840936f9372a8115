// SPDX-License-Identifier: Apache-2.0
// The numbers of an optimizer's step: computed on the host from its counts, or by the same formulas on the
// device, where that counts.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "frontend/tensor.h"

namespace kiln::optim {

/// A double of the host, or a 0-d f64 tensor. Results are tensors where an operand is.
struct Number {
  Number(double v = 0) : value(v) {}  // NOLINT: formulas mix both
  explicit Number(Tensor t) : tensor(std::move(t)) {}
  bool on_host() const { return !tensor.defined(); }

  double value = 0;
  Tensor tensor;
};

Number operator+(const Number& a, const Number& b);
Number operator-(const Number& a, const Number& b);
Number operator*(const Number& a, const Number& b);
Number operator/(const Number& a, const Number& b);
Number pow(const Number& base, const Number& exponent);
Number sqrt(const Number& x);
Number larger(const Number& a, const Number& b);
Number smaller(const Number& a, const Number& b);
/// 1 or 0.
Number equal(const Number& a, const Number& b);
Number less(const Number& a, const Number& b);
/// a where `flag` is not 0, else b.
Number either(const Number& flag, const Number& a, const Number& b);

/// What the numbers of a step are computed from.
struct Pace {
  Number step;                    ///< this one counted
  Number with_state;              ///< likewise, of the steps since there are state tensors
  std::array<Number, 2> numbers;  ///< what the class keeps from step to step: take_step() may change them
  /// Members of the options with their numbers on the device; empty on the host.
  std::vector<std::pair<const double*, Tensor>> hypers = {};

  /// A hyper-parameter, by the member of the options. All of them are read in this way, since none may
  /// become a constant of what is recorded.
  Number operator()(const double& member) const;
};

}  // namespace kiln::optim
