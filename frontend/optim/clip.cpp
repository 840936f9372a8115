// SPDX-License-Identifier: Apache-2.0
#include "frontend/optim/clip.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "frontend/optim/step.h"
#include "frontend/state.h"
#include "ir/plan.h"

namespace kiln::optim {

using namespace optim::detail;  // NOLINT: the bodies are written in its vocabulary

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<Tensor> gradients_of(const std::vector<Tensor>& params, const char* name, Loc loc) {
  std::vector<Tensor> out;
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor& p = params[i];
    if (!p.defined()) require(p, name, loc, fmt::format("params[{}]", i).c_str());
    if (p.grad().defined()) out.push_back(p.grad());
  }
  return out;
}

std::vector<const Tensor*> addresses(const std::vector<Tensor>& tensors) {
  std::vector<const Tensor*> out;
  for (const Tensor& t : tensors) out.push_back(&t);
  return out;
}

Tensor widened(const Tensor& x) {
  return x.dtype() == DType::f16 || x.dtype() == DType::bf16 ? cast_to(x, DType::f32) : x;
}

/// A norm in three parts: what an element, or the norm of a tensor, adds; how that is combined; and what the
/// norm is of all. So that a norm of norms is a norm of all elements.
class Norm {
 public:
  Norm(double order, const Tensor& exponent) : order_(order), exponent_(exponent) {}

  Tensor part(const Tensor& x) const {
    const Tensor size = unary(op("abs"), x);
    Tensor each = size;
    if (order_ == 0) each = cast_to(binary(op("ne"), x, lit(x, 0)), x.dtype());
    else if (order_ == 2) each = mul2(x, x);
    else if (order_ != 1 && std::abs(order_) != kInf)
      each = binary(op("pow"), size, cast_to(exponent_, x.dtype()));
    Sizes dims;
    for (int64_t d = 0; d < x.dim(); ++d) dims.push_back(d);
    const Tensor all = reduce(order_ == kInf    ? op("amax")
                              : order_ == -kInf ? op("amin")
                                                : op("sum"),
                              each, dims, false);
    // Of one tensor the zeroth norm is a count; as an element of all norms it counts as one.
    return order_ == 0 ? cast_to(binary(op("ne"), all, lit(all, 0)), all.dtype()) : all;
  }
  Tensor combined(const Tensor& a, const Tensor& b) const {
    return order_ == kInf ? larger(a, b) : order_ == -kInf ? smaller(a, b) : add2(a, b);
  }
  Tensor of(const Tensor& all) const {
    if (order_ == 2) return root(all);
    if (order_ == 0 || order_ == 1 || std::abs(order_) == kInf) return all;
    return binary(op("pow"), all, div2(lit(all, 1), cast_to(exponent_, all.dtype())));
  }

 private:
  double order_;
  Tensor exponent_;
};

/// The total must be finite; the first tensor with which it is not, is named.
void check_finite(const std::vector<Tensor>& running, const char* name, Loc loc, double order) {
  Tensor finite;  // how many are: totals do not become finite again
  for (const Tensor& t : running) {
    const Tensor one = cast_to(less(unary(op("abs"), t), lit(t, kInf)), DType::i64);
    finite = finite.defined() ? add2(finite, one) : one;
  }
  const Tensor all = lit(finite, static_cast<double>(running.size()));
  const Tensor worst = select3(less(finite, all), finite, lit(finite, static_cast<double>(kNothingWrong)));
  check_value(worst,
              fmt::format("{} ({}): the total norm of order {} is not finite, from gradient ", name,
                          loc.str(), order),
              fmt::format(" of {} on (without error_if_nonfinite it scales them all)", running.size()));
}

Tensor total_norm(const char* name, const std::vector<Tensor>& tensors, double order, const Tensor& exponent,
                  bool check, Loc loc) {
  const Norm norm(order, exponent);
  std::vector<Tensor> running;
  DType dtype = tensors[0].dtype();
  for (const Tensor& t : tensors) {
    if (t.numel() == 0 && order != -kInf) continue;
    dtype = promote_types(dtype, t.dtype());
    const Tensor part = norm.part(widened(t));
    running.push_back(running.empty() ? part : norm.combined(running.back(), part));
  }
  if (running.empty()) return constant_like(lit(tensors[0], 0), 0);
  if (check) check_finite(running, name, loc, order);
  return cast_to(norm.of(running.back()), dtype);
}

void scale(const std::vector<Tensor>& grads, const Tensor& limit, const Tensor& norm) {
  const Tensor wide = widened(norm), one = lit(wide, 1);
  const Tensor ratio = div2(cast_to(limit, wide.dtype()), add2(wide, lit(wide, 1e-6)));
  const Tensor factor = smaller(ratio, one);
  for (const Tensor& g : grads) {
    const Tensor x = widened(g);
    assign(g, cast_to(mul2(x, cast_to(factor, x.dtype())), g.dtype()));
  }
}

/// What selects the formula of an order; others are run-time numbers.
int64_t kind_of(double order, const char* name, Loc loc) {
  KILN_CHECK(!std::isnan(order), invalid, "{} ({}): norm_type is nan", name, loc.str());
  if (order == kInf) return 1;
  if (order == -kInf) return 2;
  if (order == 0 || order == 1 || order == 2) return 3 + static_cast<int64_t>(order);
  return 0;
}

void require_floats(const std::vector<Tensor>& tensors, const char* name, Loc loc) {
  for (size_t i = 0; i < tensors.size(); ++i)
    require_floating(tensors[i], name, loc, fmt::format("tensors[{}]", i).c_str());
}

}  // namespace

Tensor get_total_norm(const std::vector<Tensor>& tensors, double norm_type, bool error_if_nonfinite,
                      Loc loc) {
  constexpr const char* kName = "get_total_norm";
  require_floats(tensors, kName, loc);
  if (tensors.empty()) return zeros({}, {}, loc);
  const int64_t ints[] = {kind_of(norm_type, kName, loc), error_if_nonfinite};
  const Scalar scalars[] = {norm_type};
  return call_many(kName, loc, addresses(tensors), ints, scalars, [&](const std::vector<Tensor>& s) {
    return std::vector{total_norm(kName, tensors, norm_type, s[0], error_if_nonfinite, loc)};
  })[0];
}

void clip_grads_with_norm_(const std::vector<Tensor>& params, double max_norm, const Tensor& total_norm,
                           Loc loc) {
  constexpr const char* kName = "clip_grads_with_norm_";
  const NoGrad guard;
  const std::vector<Tensor> grads = gradients_of(params, kName, loc);
  require_floating(total_norm, kName, loc, "total_norm");
  KILN_CHECK(total_norm.numel() == 1, invalid, "{} ({}): total_norm is {}, expected one element", kName,
             loc.str(), total_norm.type_str());
  if (grads.empty()) return;
  std::vector<const Tensor*> operands = addresses(grads);
  operands.push_back(&total_norm);
  const Scalar scalars[] = {max_norm};
  call_many(kName, loc, operands, {}, scalars, [&](const std::vector<Tensor>& s) {
    scale(grads, s[0], reshape_to(total_norm, {}));
    return std::vector<Tensor>{};
  });
}

Tensor clip_grad_norm_(const std::vector<Tensor>& params, double max_norm, double norm_type,
                       bool error_if_nonfinite, Loc loc) {
  constexpr const char* kName = "clip_grad_norm_";
  const NoGrad guard;
  const std::vector<Tensor> grads = gradients_of(params, kName, loc);
  if (grads.empty()) return zeros({}, {}, loc);
  const int64_t ints[] = {kind_of(norm_type, kName, loc), error_if_nonfinite};
  const Scalar scalars[] = {max_norm, norm_type};
  return call_many(kName, loc, addresses(grads), ints, scalars, [&](const std::vector<Tensor>& s) {
    const Tensor norm = total_norm(kName, grads, norm_type, s[1], error_if_nonfinite, loc);
    scale(grads, s[0], norm);
    return std::vector<Tensor>{norm};
  })[0];
}

void clip_grad_value_(const std::vector<Tensor>& params, double clip_value, Loc loc) {
  constexpr const char* kName = "clip_grad_value_";
  const NoGrad guard;
  const std::vector<Tensor> grads = gradients_of(params, kName, loc);
  if (grads.empty()) return;
  const Scalar scalars[] = {clip_value, -clip_value};
  call_many(kName, loc, addresses(grads), {}, scalars, [&](const std::vector<Tensor>& s) {
    for (const Tensor& g : grads)
      assign(g, smaller(larger(g, cast_to(s[1], g.dtype())), cast_to(s[0], g.dtype())));
    return std::vector<Tensor>{};
  });
}

}  // namespace kiln::optim
