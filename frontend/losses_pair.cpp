// SPDX-License-Identifier: Apache-2.0
// Losses of an element and its target, in primitives.
#include <cmath>

#include "frontend/elementwise.h"
#include "frontend/losses.h"
#include "frontend/losses_detail.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace {

/// `body(operands..., numbers)` gives the loss of each element; numbers are cast to x's dtype.
template <typename Body>
Tensor loss_call(const char* name, std::initializer_list<const Tensor*> operands, std::vector<int64_t> ints,
                 std::initializer_list<Scalar> numbers, Reduction r, Loc loc, Body&& body,
                 const char* arg = "x") {
  const Tensor& x = **operands.begin();
  require_floating(x, name, loc, arg);
  ints.push_back(static_cast<int64_t>(r));
  return call({name, loc, {operands.begin(), operands.size()}, ints, {numbers.begin(), numbers.size()}},
              [&](Operands in, const std::vector<Tensor>& s) {
                std::vector<Tensor> cast;
                for (const Tensor& n : s) cast.push_back(cast_to(n, in[0]->dtype()));
                return reduced(run_body(body, in, cast), r);
              });
}

/// `weight` broadcasts to x, or is absent.
void check_weight(const Tensor& x, const Tensor& weight, const char* what, const char* name, Loc loc) {
  KILN_CHECK(!weight.defined() || broadcast_shapes(x, weight, name, loc, {"x", what}) == x.sizes(), invalid,
             "{} ({}): {} {} does not broadcast to x {}", name, loc.str(), what, weight.type_str(),
             x.type_str());
}

void check_same(const Tensor& x, const Tensor& y, const char* name, Loc loc, ArgNames args = {"x", "y"}) {
  require(x, name, loc, args.a);
  require(y, name, loc, args.b);
  KILN_CHECK(x.sizes() == y.sizes(), invalid, "{} ({}): got {} {} and {} {}, expected one shape", name,
             loc.str(), args.a, x.type_str(), args.b, y.type_str());
}

Tensor half(const Tensor& x) { return mul2(x, lit(x, 0.5)); }
Tensor one_minus(const Tensor& x) { return sub2(lit(x, 1), x); }

}  // namespace

Tensor smooth_l1_loss(const Tensor& x, const Tensor& y, Reduction r, double beta, Loc loc) {
  require_pair(x, y, "smooth_l1_loss", loc);
  KILN_CHECK(beta >= 0, invalid, "smooth_l1_loss ({}): beta is {}, expected none below 0", loc.str(), beta);
  return loss_call("smooth_l1_loss", {&x, &y}, {beta == 0}, {beta}, r, loc,
                   [&](const Tensor& x, const Tensor& y, const auto& s) {
                     const Tensor d = binary(op("sub"), x, y, loc), size = unary(op("abs"), d);
                     if (beta == 0) return size;
                     return select3(binary(op("lt"), size, s[0]), div2(half(mul2(d, d)), s[0]),
                                    sub2(size, half(s[0])));
                   });
}

Tensor huber_loss(const Tensor& x, const Tensor& y, Reduction r, double delta, Loc loc) {
  require_pair(x, y, "huber_loss", loc);
  KILN_CHECK(delta > 0, invalid, "huber_loss ({}): delta is {}, expected more than 0", loc.str(), delta);
  return loss_call(
      "huber_loss", {&x, &y}, {}, {delta}, r, loc, [&](const Tensor& x, const Tensor& y, const auto& s) {
        const Tensor d = binary(op("sub"), x, y, loc), size = unary(op("abs"), d);
        return select3(binary(op("le"), size, s[0]), half(mul2(d, d)), mul2(s[0], sub2(size, half(s[0]))));
      });
}

namespace {
/// max(log(p), -100), differentiable by what multiplies it alone.
Tensor limited_log(const Tensor& p) {
  const Tensor l = unary(op("log"), constant_of(p));
  return binary(op("maximum"), l, lit(l, -100));
}
Tensor limited_log_of_rest(const Tensor& p) {
  const Tensor l = unary(op("log1p"), unary(op("neg"), constant_of(p)));
  return binary(op("maximum"), l, lit(l, -100));
}

/// -(y a + (1 - y) b)
Tensor mixed(const Tensor& y, const Tensor& a, const Tensor& b) {
  return unary(op("neg"), add2(mul2(y, a), mul2(one_minus(y), b)));
}

/// Near 0 and 1, where the logarithms are limited, PyTorch's derivative is (x - y) / 1e-12.
Tensor bce_body(const Tensor& x, const Tensor& y) {
  const Tensor room = mul2(one_minus(x), x), least = lit(x, 1e-12);
  const Tensor saturated = binary(op("lt"), constant_of(room), least);
  const Tensor p = select3(saturated, lit(x, 0.5), x);
  const Tensor inside = mixed(y, unary(op("log"), p), unary(op("log1p"), unary(op("neg"), p)));
  const Tensor slope = constant_of(div2(sub2(x, y), least)),
               value = mixed(y, limited_log(x), limited_log_of_rest(x));
  return select3(saturated, add2(value, mul2(slope, sub2(x, constant_of(x)))), inside);
}
}  // namespace

Tensor binary_cross_entropy(const Tensor& x, const Tensor& y, const Tensor& weight, Reduction r, Loc loc) {
  check_same(x, y, "binary_cross_entropy", loc);
  check_weight(x, weight, "weight", "binary_cross_entropy", loc);
  return loss_call(
      "binary_cross_entropy", {&x, &y, &weight}, {}, {}, r, loc,
      [&](const Tensor& x, const Tensor& y, const Tensor& weight, const auto&) {
        const Tensor inside =  // NaN is not
            binary(op("logical_and"), binary(op("ge"), x, lit(x, 0)), binary(op("le"), x, lit(x, 1)));
        const Tensor outside = unary(op("logical_not"), inside);
        const Tensor flat = reshape_to(outside, {x.numel()}), at = iota(0, {x.numel()});
        if (x.numel() > 0)
          check_value(
              reduce(op("amax"), select3(flat, at, lit(at, static_cast<double>(kNothingWrong))), {0}, false),
              fmt::format(
                  "binary_cross_entropy ({}): probabilities are between 0 and 1; got x {} with another "
                  "at element ",
                  loc.str(), x.type_str()),
              "");
        const Tensor each = bce_body(x, cast_to(y, x.dtype()));
        return weight.defined() ? mul2(each, weight) : each;
      });
}

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& y, const Tensor& weight,
                                        const Tensor& pos_weight, Reduction r, Loc loc) {
  constexpr const char* kName = "binary_cross_entropy_with_logits";
  check_same(x, y, kName, loc);
  check_weight(x, weight, "weight", kName, loc);
  check_weight(x, pos_weight, "pos_weight", kName, loc);
  return loss_call(
      kName, {&x, &y, &weight, &pos_weight}, {}, {}, r, loc,
      [&](const Tensor& x, const Tensor& y, const Tensor& weight, const Tensor& pos_weight, const auto&) {
        const Tensor t = cast_to(y, x.dtype()), log_p = log_sigmoid_body(x);
        Tensor of_logs = log_p;
        if (pos_weight.defined())
          of_logs = mul2(add2(mul2(sub2(pos_weight, lit(pos_weight, 1)), t), lit(t, 1)), log_p);
        const Tensor each = sub2(mul2(one_minus(t), x), of_logs);
        return weight.defined() ? mul2(each, weight) : each;
      });
}

Tensor kl_div(const Tensor& x, const Tensor& y, KlReduction r, bool log_target, Loc loc) {
  require_pair(x, y, "kl_div", loc);
  require_floating(x, "kl_div", loc);
  require_floating(y, "kl_div", loc, "y");
  return call("kl_div", loc, {&x, &y}, {static_cast<int64_t>(r), log_target}, {},
              [&](const Tensor& x, const Tensor& y, const auto&) {
                const Tensor each = log_target
                                        ? mul2(unary(op("exp"), y), binary(op("sub"), y, x, loc))
                                        : sub2(xlogy(TensorArg(y, loc), TensorArg(y, loc)), mul2(y, x));
                if (r == KlReduction::none) return each;
                if (r == KlReduction::mean) return reduced(each, Reduction::mean);
                const Tensor total = sum_all(each);
                if (r == KlReduction::sum) return total;
                return div2(total, lit(total, static_cast<double>(x.dim() == 0 ? 1 : x.size(0))));
              });
}

Tensor poisson_nll_loss(const Tensor& x, const Tensor& y, bool log_input, bool full, double eps, Reduction r,
                        Loc loc) {
  require_pair(x, y, "poisson_nll_loss", loc);
  return loss_call("poisson_nll_loss", {&x, &y}, {log_input, full}, {eps}, r, loc,
                   [&](const Tensor& x, const Tensor& y, const auto& s) {
                     const Tensor t = cast_to(y, x.dtype());
                     Tensor each = log_input ? sub2(unary(op("exp"), x), mul2(t, x))
                                             : sub2(x, mul2(t, unary(op("log"), add2(x, s[0]))));
                     if (!full) return each;
                     const Tensor small = binary(op("le"), t, lit(t, 1)), safe = select3(small, lit(t, 2), t);
                     const Tensor stirling = add2(sub2(mul2(safe, unary(op("log"), safe)), safe),
                                                  half(unary(op("log"), mul2(safe, lit(t, 2 * M_PI)))));
                     return add2(each, select3(small, lit(t, 0), stirling));
                   });
}

namespace {
/// var in a shape that broadcasts to x: it may lack the last dim.
Sizes variance_shape(const Tensor& x, const Tensor& var, Loc loc) {
  Sizes row = x.sizes();
  if (!row.empty()) row.back() = 1;
  if (var.sizes() == x.sizes() || var.sizes() == row) return var.sizes();
  Sizes without = x.sizes();
  if (!without.empty()) without.pop_back();
  KILN_CHECK(var.sizes() == without && !x.sizes().empty(), invalid,
             "gaussian_nll_loss ({}): got var {} for x {}, expected its shape, or without its last dim",
             loc.str(), var.type_str(), x.type_str());
  return row;
}
}  // namespace

Tensor gaussian_nll_loss(const Tensor& x, const Tensor& y, const Tensor& var, bool full, double eps,
                         Reduction r, Loc loc) {
  require_pair(x, y, "gaussian_nll_loss", loc);
  require_floating(var, "gaussian_nll_loss", loc, "var");
  KILN_CHECK(broadcast_shapes(x, y, "gaussian_nll_loss", loc) == x.sizes(), invalid,
             "gaussian_nll_loss ({}): y {} does not broadcast to x {}", loc.str(), y.type_str(),
             x.type_str());
  KILN_CHECK(eps > 0, invalid, "gaussian_nll_loss ({}): eps is {}, expected more than 0", loc.str(), eps);
  const Sizes shape = variance_shape(x, var, loc);
  return loss_call(
      "gaussian_nll_loss", {&x, &y, &var}, {full}, {eps}, r, loc,
      [&](const Tensor& x, const Tensor& y, const Tensor& var, const auto& s) {
        const Tensor negative = reshape_to(binary(op("lt"), var, lit(var, 0)), {var.numel()}),
                     at = iota(0, {var.numel()});
        if (var.numel() > 0)
          check_value(reduce(op("amax"), select3(negative, at, lit(at, static_cast<double>(kNothingWrong))),
                             {0}, false),
                      fmt::format("gaussian_nll_loss ({}): var {} is negative at element ", loc.str(),
                                  var.type_str()),
                      "");
        const Tensor own = reshape_to(cast_to(var, x.dtype()), shape);
        const Tensor missing = constant_of(sub2(binary(op("maximum"), own, s[0]), own));
        // A variance below eps counts as eps, but is differentiated as it is.
        const Tensor v = add2(own, missing), d = binary(op("sub"), x, y, loc);
        const Tensor each = half(add2(unary(op("log"), v), div2(mul2(d, d), v)));
        return full ? add2(each, lit(each, 0.5 * std::log(2 * M_PI))) : each;
      });
}

Tensor soft_margin_loss(const Tensor& x, const Tensor& y, Reduction r, Loc loc) {
  check_same(x, y, "soft_margin_loss", loc);
  return loss_call("soft_margin_loss", {&x, &y}, {}, {}, r, loc,
                   [&](const Tensor& x, const Tensor& y, const auto&) {
                     return unary(op("neg"), log_sigmoid_body(mul2(cast_to(y, x.dtype()), x)));
                   });
}

Tensor margin_ranking_loss(const Tensor& x1, const Tensor& x2, const Tensor& y, double margin, Reduction r,
                           Loc loc) {
  check_same(x1, x2, "margin_ranking_loss", loc, {"x1", "x2"});
  check_same(x1, y, "margin_ranking_loss", loc, {"x1", "y"});
  return loss_call(
      "margin_ranking_loss", {&x1, &x2, &y}, {}, {margin}, r, loc,
      [&](const Tensor& x1, const Tensor& x2, const Tensor& y, const auto& s) {
        const Tensor ahead = mul2(cast_to(y, x1.dtype()), binary(op("sub"), x1, x2, loc));
        return hinge(sub2(s[0], ahead));
      },
      "x1");
}

Tensor hinge_embedding_loss(const Tensor& x, const Tensor& y, double margin, Reduction r, Loc loc) {
  require_pair(x, y, "hinge_embedding_loss", loc);
  return loss_call("hinge_embedding_loss", {&x, &y}, {}, {margin}, r, loc,
                   [&](const Tensor& x, const Tensor& y, const auto& s) {
                     const Sizes shape = broadcast_shapes(x, y, "hinge_embedding_loss", loc);
                     const Tensor t = expand_to(cast_to(y, x.dtype()), shape), own = expand_to(x, shape),
                                  zero = lit(x, 0);
                     const Tensor apart = hinge(sub2(s[0], own));
                     return add2(select3(binary(op("ne"), t, lit(t, 1)), apart, zero),
                                 select3(binary(op("ne"), t, lit(t, -1)), own, zero));
                   });
}

}  // namespace kiln
