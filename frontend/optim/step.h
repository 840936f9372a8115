// SPDX-License-Identifier: Apache-2.0
// What the formulas of optimizers share. Bodies only: never events.
#pragma once

#include <fmt/format.h>

#include "frontend/ops_detail.h"
#include "frontend/optim/optimizer.h"

namespace kiln::optim::detail {

using namespace kiln::detail;  // NOLINT: formulas are written in its vocabulary

/// a where the 0-d number `flag` is not zero, else b; of a's sizes.
inline Tensor pick(const Tensor& flag, const Tensor& a, const Tensor& b) {
  return select3(expand_to(binary(op("ne"), flag, lit(flag, 0)), a.sizes()), a, b);
}
inline Tensor less(const Tensor& a, const Tensor& b) { return binary(op("lt"), a, b); }
inline Tensor root(const Tensor& x) { return unary(op("sqrt"), x); }
inline Tensor squared(const Tensor& x) { return mul2(x, x); }
inline Tensor larger(const Tensor& a, const Tensor& b) { return binary(op("maximum"), a, b); }
inline Tensor smaller(const Tensor& a, const Tensor& b) { return binary(op("minimum"), a, b); }
/// a + (b - a) * weight.
inline Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight) {
  return add2(a, mul2(sub2(b, a), weight));
}
/// The gradient to go down along.
inline Tensor direction(const Update& u, bool maximize) {
  return maximize ? unary(op("neg"), u.grad) : u.grad;
}
/// g + decay * p. A decay of zero leaves g alone, whatever p is: an infinite weight makes no NaN.
inline Tensor with_decay(const Tensor& g, const Tensor& p, const Tensor& decay) {
  return pick(decay, add2(g, mul2(p, decay)), g);
}
/// The sum of all elements, 0-d.
inline Tensor total(const Tensor& x) {
  Sizes dims;
  for (int64_t d = 0; d < x.dim(); ++d) dims.push_back(d);
  return reduce(op("sum"), x, dims, false);
}
/// The 2-norm of all elements, 0-d.
inline Tensor norm2(const Tensor& x) { return root(total(squared(x))); }

/// Throws: invalid, "<who>: <name> is <value>, expected <expected>".
inline void expect(bool good, const char* who, const char* name, double value, const char* expected) {
  KILN_CHECK(good, invalid, "{}: {} is {}, expected {}", who, name, value, expected);
}
inline void expect_not_negative(const char* who, const char* name, double value) {
  expect(value >= 0, who, name, value, "at least 0");
}
inline void expect_share(const char* who, const char* name, double value) {
  expect(value >= 0 && value < 1, who, name, value, "at least 0 and below 1");
}

}  // namespace kiln::optim::detail
