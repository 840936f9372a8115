// SPDX-License-Identifier: Apache-2.0
#include "frontend/optim/number.h"

#include <algorithm>
#include <cmath>

#include "frontend/ops_detail.h"

namespace kiln::optim {

using namespace kiln::detail;  // NOLINT: formulas are written in its vocabulary

namespace {
/// `like` is one of the operands, on the device.
Tensor tensor_of(const Number& x, const Tensor& like) { return x.on_host() ? lit(like, x.value) : x.tensor; }

/// The function of the host, or the primitive.
template <typename F>
Number pair(Op o, const Number& a, const Number& b, F&& host) {
  if (a.on_host() && b.on_host()) return static_cast<double>(host(a.value, b.value));
  const Tensor& like = a.on_host() ? b.tensor : a.tensor;
  return Number(cast_to(binary(o, tensor_of(a, like), tensor_of(b, like)), DType::f64));
}
}  // namespace

Number operator+(const Number& a, const Number& b) {
  return pair(op("add"), a, b, [](double x, double y) { return x + y; });
}
Number operator-(const Number& a, const Number& b) {
  return pair(op("sub"), a, b, [](double x, double y) { return x - y; });
}
Number operator*(const Number& a, const Number& b) {
  return pair(op("mul"), a, b, [](double x, double y) { return x * y; });
}
Number operator/(const Number& a, const Number& b) {
  return pair(op("div"), a, b, [](double x, double y) { return x / y; });
}
Number pow(const Number& base, const Number& exponent) {
  return pair(op("pow"), base, exponent, [](double x, double y) { return std::pow(x, y); });
}
Number larger(const Number& a, const Number& b) {
  return pair(op("maximum"), a, b, [](double x, double y) { return std::max(x, y); });
}
Number smaller(const Number& a, const Number& b) {
  return pair(op("minimum"), a, b, [](double x, double y) { return std::min(x, y); });
}
Number equal(const Number& a, const Number& b) {
  return pair(op("eq"), a, b, [](double x, double y) { return x == y; });
}
Number less(const Number& a, const Number& b) {
  return pair(op("lt"), a, b, [](double x, double y) { return x < y; });
}

Number sqrt(const Number& x) {
  return x.on_host() ? Number(std::sqrt(x.value)) : Number(unary(op("sqrt"), x.tensor));
}

Number either(const Number& flag, const Number& a, const Number& b) {
  if (flag.on_host()) return flag.value != 0 ? a : b;
  const Tensor set = binary(op("ne"), flag.tensor, lit(flag.tensor, 0));
  return Number(select3(set, tensor_of(a, flag.tensor), tensor_of(b, flag.tensor)));
}

Number Pace::operator()(const double& member) const {
  if (hypers.empty()) return member;
  const auto at =
      std::find_if(hypers.begin(), hypers.end(), [&](const auto& h) { return h.first == &member; });
  KILN_ASSERT(at != hypers.end(), "a step's numbers are computed from what is no hyper-parameter");
  return Number(at->second);
}

}  // namespace kiln::optim
