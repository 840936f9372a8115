// SPDX-License-Identifier: Apache-2.0
// Losses, in primitives. The target's class is picked by comparing with the class index, so that the
// derivative is row-local: one kernel computes the loss and the gradient of its row.
#include "frontend/losses_detail.h"
#include "frontend/state.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace detail {

Tensor sum_all(const Tensor& x) { return reduce(op("sum"), x, wrap_dims({}, x.dim(), "sum", {}), false); }

Tensor reduced(const Tensor& x, Reduction r) {
  if (r == Reduction::none) return x;
  const Tensor s = sum_all(wide(x));
  return cast_to(r == Reduction::sum ? s : mul2(s, lit(s, 1.0 / static_cast<double>(x.numel()))), x.dtype());
}

Tensor hinge(const Tensor& x) { return select3(binary(op("le"), x, lit(x, 0)), lit(x, 0), x); }

}  // namespace detail

namespace {

/// log-probabilities with classes last and everything else in one dim.
Tensor rows_of(const Tensor& x) {
  if (x.dim() <= 2) return reshape_to(x, {x.dim() == 1 ? 1 : x.size(0), x.size(-1)});
  Sizes order{0};
  for (int64_t d = 2; d < x.dim(); ++d) order.push_back(d);
  order.push_back(1);
  const Tensor last = apply(op("permute"), {&x}, {order});
  return reshape_to(last, {x.numel() / std::max<int64_t>(x.size(1), 1), x.size(1)});
}

Sizes sizes_without_classes(const Tensor& x) {
  Sizes s = x.sizes();
  if (!s.empty()) s.erase(s.begin() + (x.dim() == 1 ? 0 : 1));
  return s;
}

/// `arg`: what x is called.
void check_targets(const Tensor& x, const Tensor& target, const Tensor& weight, const char* name,
                   const char* arg, Loc loc) {
  require_floating(x, name, loc, arg);
  require(target, name, loc, "target");
  KILN_CHECK(x.dim() >= 1, invalid, "{} ({}): got {} {}, expected [n, classes]", name, loc.str(), arg,
             x.type_str());
  const bool indices = !is_floating(target.dtype());
  const Sizes expected = indices ? sizes_without_classes(x) : x.sizes();
  KILN_CHECK(target.sizes() == expected, invalid,
             "{} ({}): got {} {} and target {}, expected a target of [{}]", name, loc.str(), arg,
             x.type_str(), target.type_str(), fmt::join(expected, ","));
  const int64_t classes = x.size(x.dim() == 1 ? 0 : 1);
  KILN_CHECK(!weight.defined() || weight.sizes() == Sizes{classes}, invalid,
             "{} ({}): got weight {} for {} {}, expected [{}]", name, loc.str(), weight.type_str(), arg,
             x.type_str(), classes);
}

/// Every target is a class or the ignored one.
void check_classes(const Tensor& target, const Tensor& ignore, int64_t classes, const char* name, Loc loc) {
  const Tensor t = cast_to(target, DType::i64);
  const Tensor outside = binary(op("logical_or"), binary(op("lt"), t, lit(t, 0)),
                                binary(op("ge"), t, lit(t, static_cast<double>(classes))));
  check_elements(t, binary(op("logical_and"), outside, binary(op("ne"), t, ignore)), classes, name, loc,
                 "target", fmt::format("0 to {} or ignore_index", classes - 1));
}

/// Sum over classes of -weight * p * logp per row, for probability targets.
Tensor dense_rows(const Tensor& logp, const Tensor& probs, const Tensor& weight) {
  Tensor terms = mul2(logp, probs);
  if (weight.defined()) terms = mul2(terms, weight);
  return unary(op("neg"), reduce(op("sum"), terms, {1}, false));
}

struct IndexTerms {
  Tensor loss, weight;  ///< per row: unreduced loss, and the weight its mean divides by
};

IndexTerms index_rows(const Tensor& logp, const Tensor& target, const Tensor& weight, const Tensor& ignore,
                      const Tensor& smoothing) {
  const Sizes s = logp.sizes();
  const Tensor row_target = reshape_to(target, {s[0], 1});
  const Tensor classes =
      apply(op("iota"), std::initializer_list<const Tensor*>{}, {int64_t{1}, Shape(s.begin(), s.end())});
  const Tensor hit = binary(op("eq"), classes, cast_to(row_target, DType::i64)), zero = lit(logp, 0);
  const Tensor valid = binary(op("ne"), reshape_to(target, {s[0]}), cast_to(ignore, target.dtype()));
  auto pick = [&](const Tensor& x) { return reduce(op("sum"), select3(hit, x, zero), {1}, false); };
  Tensor row_weight = cast_to(valid, logp.dtype());
  if (weight.defined()) row_weight = mul2(row_weight, pick(weight));
  const Tensor weighted = weight.defined() ? mul2(logp, weight) : logp;
  Tensor loss = unary(op("neg"), pick(weighted));
  if (smoothing.defined()) {
    const Tensor uniform = mul2(unary(op("neg"), reduce(op("sum"), weighted, {1}, false)),
                                lit(logp, 1.0 / static_cast<double>(s[1])));
    loss = add2(mul2(loss, binary(op("sub"), lit(logp, 1), smoothing)), mul2(uniform, smoothing));
  }
  return {select3(valid, loss, zero), row_weight};
}

Tensor nll_body(const Tensor& logp_any, const Tensor& target, const Tensor& weight,
                const CrossEntropyOptions& o, const std::vector<Tensor>& s) {
  const Tensor logp = rows_of(logp_any);
  const Sizes shape = sizes_without_classes(logp_any);
  if (is_floating(target.dtype())) {
    Tensor probs = rows_of(target);
    if (o.label_smoothing != 0) {
      const Tensor smoothing = cast_to(s[1], logp.dtype());
      probs = add2(mul2(probs, binary(op("sub"), lit(logp, 1), smoothing)),
                   mul2(smoothing, lit(logp, 1.0 / static_cast<double>(logp.size(1)))));
    }
    return reduced(reshape_to(dense_rows(logp, probs, weight), shape), o.reduction);
  }
  const Tensor smoothing = o.label_smoothing != 0 ? cast_to(s[1], logp.dtype()) : Tensor();
  const IndexTerms t = index_rows(logp, target, weight, s[0], smoothing);
  if (o.reduction == Reduction::none) return reshape_to(t.loss, shape);
  const Tensor total = sum_all(t.loss);
  return o.reduction == Reduction::sum ? total : div2(total, sum_all(t.weight));
}

Tensor nll_call(const char* name, const Tensor& x, const Tensor& target, const Tensor& weight,
                const CrossEntropyOptions& o, Loc loc, bool from_logits) {
  check_targets(x, target, weight, name, from_logits ? "logits" : "log_probs", loc);
  KILN_CHECK(o.label_smoothing >= 0 && o.label_smoothing <= 1, invalid,
             "{} ({}): label_smoothing is {}, expected 0 to 1", name, loc.str(), o.label_smoothing);
  std::vector<Scalar> scalars{o.ignore_index};
  if (o.label_smoothing != 0) scalars.emplace_back(o.label_smoothing);
  const Tensor* operands[] = {&x, &target, &weight};
  const int64_t ints[] = {static_cast<int64_t>(o.reduction)};
  return call({name, loc, operands, ints, scalars},
              [&](const Tensor& x, const Tensor& target, const Tensor& weight, const std::vector<Tensor>& s) {
                if (!is_floating(target.dtype()))
                  check_classes(target, s[0], x.size(x.dim() == 1 ? 0 : 1), name, loc);
                const Tensor logp = from_logits ? log_softmax(x, x.dim() == 1 ? 0 : 1, loc) : x;
                return nll_body(logp, target, weight, o, s);
              });
}

template <typename Body>
Tensor pair_loss(const char* name, const Tensor& x, const Tensor& y, Reduction r, Loc loc, Body&& body) {
  require_floating(x, name, loc);
  require(y, name, loc, "y");
  return call(name, loc, {&x, &y}, {static_cast<int64_t>(r)}, {},
              [&](const Tensor& x, const Tensor& y, const auto&) {
                require_broadcast({{&x, "x"}, {&y, "y"}}, name, loc);
                return reduced(body(binary(op("sub"), x, y, loc)), r);
              });
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& target, const Tensor& weight,
                     const CrossEntropyOptions& o, Loc loc) {
  return nll_call("cross_entropy", logits, target, weight, o, loc, true);
}

Tensor nll_loss(const Tensor& log_probs, const Tensor& target, const Tensor& weight,
                const CrossEntropyOptions& o, Loc loc) {
  return nll_call("nll_loss", log_probs, target, weight, o, loc, false);
}

Tensor mse_loss(const Tensor& x, const Tensor& y, Reduction r, Loc loc) {
  return pair_loss("mse_loss", x, y, r, loc, [](const Tensor& d) { return mul2(d, d); });
}

Tensor l1_loss(const Tensor& x, const Tensor& y, Reduction r, Loc loc) {
  return pair_loss("l1_loss", x, y, r, loc, [](const Tensor& d) { return unary(op("abs"), d); });
}

}  // namespace kiln
