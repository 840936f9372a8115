// SPDX-License-Identifier: Apache-2.0
// Losses of rows: of vectors that should lie near or apart, and of the margins between classes.
#include <cmath>

#include "frontend/activation.h"
#include "frontend/losses.h"
#include "frontend/losses_detail.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

Tensor cosine_embedding_loss(const Tensor& x1, const Tensor& x2, const Tensor& y, double margin, Reduction r,
                             Loc loc) {
  constexpr const char* kName = "cosine_embedding_loss";
  require_floating(x1, kName, loc, "x1");
  require_floating(x2, kName, loc, "x2");
  require(y, kName, loc, "y");
  const bool fits = x1.sizes() == x2.sizes() && (x1.dim() == 1 || x1.dim() == 2) && y.dim() == x1.dim() - 1 &&
                    (y.dim() == 0 || y.size(0) == x1.size(0));
  KILN_CHECK(fits, invalid,
             "{} ({}): got x1 {}, x2 {} and y {}, expected [n, d] twice and [n], or [d] and []", kName,
             loc.str(), x1.type_str(), x2.type_str(), y.type_str());
  return call(kName, loc, {&x1, &x2, &y}, {static_cast<int64_t>(r)}, {margin},
              [&](const Tensor& x1, const Tensor& x2, const Tensor& y, const std::vector<Tensor>& s) {
                const Sizes last{x1.dim() - 1};
                const auto along = [&](const Tensor& a, const Tensor& b) {
                  return reduce(op("sum"), mul2(a, b), last, false);
                };
                const Tensor least = lit(x1, 1e-12), dot = along(x1, x2);
                const Tensor sizes = mul2(add2(along(x1, x1), least), add2(along(x2, x2), least));
                const Tensor cosine = div2(dot, unary(op("sqrt"), sizes)), zero = lit(cosine, 0);
                const Tensor apart = hinge(sub2(cosine, cast_to(s[0], cosine.dtype())));
                const Tensor near = sub2(lit(cosine, 1), cosine);
                return reduced(add2(select3(binary(op("eq"), y, lit(y, 1)), near, zero),
                                    select3(binary(op("eq"), y, lit(y, -1)), apart, zero)),
                               r);
              });
}

namespace {
/// The loss of distances that are known.
Tensor triplet_body(const Tensor& near, const Tensor& apart, const Tensor& margin, Reduction r) {
  const Tensor lead = sub2(near, apart);
  return reduced(hinge(add2(lead, cast_to(margin, lead.dtype()))), r);
}

using Triplet = std::initializer_list<Arg>;
void require_floats(Triplet args, const char* name, Loc loc) {
  for (const Arg& a : args) require_floating(*a.tensor, name, loc, a.name);
}
}  // namespace

Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                                         const DistanceFunction& distance, const TripletDistanceOptions& o,
                                         Loc loc) {
  constexpr const char* kName = "triplet_margin_with_distance_loss";
  const Triplet all = {{&anchor, "anchor"}, {&positive, "positive"}, {&negative, "negative"}};
  require_floats(all, kName, loc);
  if (!distance) require_broadcast(all, kName, loc);
  KILN_CHECK(o.margin > 0, invalid, "{} ({}): margin is {}, expected more than 0", kName, loc.str(),
             o.margin);
  const auto apart_by = [&](const Tensor& a, const Tensor& b) {
    return distance ? distance(a, b) : pairwise_distance(a, b, 2, 1e-6, false, loc);
  };
  const Tensor near = apart_by(anchor, positive);
  Tensor apart = apart_by(anchor, negative);
  if (o.swap) apart = minimum(TensorArg(apart, loc), TensorArg(apart_by(positive, negative), loc));
  return call(kName, loc, {&near, &apart}, {static_cast<int64_t>(o.reduction)}, {o.margin},
              [&](const std::vector<Tensor>& s) { return triplet_body(near, apart, s[0], o.reduction); });
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletOptions& o, Loc loc) {
  const Triplet all = {{&anchor, "anchor"}, {&positive, "positive"}, {&negative, "negative"}};
  require_floats(all, "triplet_margin_loss", loc);
  KILN_CHECK(
      anchor.dim() == positive.dim() && anchor.dim() == negative.dim() && anchor.dim() > 0, invalid,
      "triplet_margin_loss ({}): got anchor {}, positive {} and negative {}, expected as many dims each",
      loc.str(), anchor.type_str(), positive.type_str(), negative.type_str());
  require_broadcast(all, "triplet_margin_loss", loc);
  KILN_CHECK(o.margin > 0, invalid, "triplet_margin_loss ({}): margin is {}, expected more than 0", loc.str(),
             o.margin);
  const Norm kind = norm_kind(o.p);
  return call("triplet_margin_loss", loc, {&anchor, &positive, &negative},
              {static_cast<int64_t>(o.reduction), o.swap, static_cast<int64_t>(kind)}, {o.margin, o.p, o.eps},
              [&](const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                  const std::vector<Tensor>& s) {
                const auto distance = [&](const Tensor& a, const Tensor& b) {
                  const Tensor between = binary(op("sub"), a, b, loc), way = wide(between);
                  const Tensor moved = add2(way, cast_to(s[2], way.dtype()));
                  return cast_to(norm_body(moved, kind, s[1], {way.dim() - 1}, false), between.dtype());
                };
                const Tensor near = distance(anchor, positive);
                Tensor apart = distance(anchor, negative);
                if (o.swap) apart = binary(op("minimum"), apart, distance(positive, negative));
                return triplet_body(near, apart, s[0], o.reduction);
              });
}

Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& y, const Tensor& weight, Reduction r,
                                   Loc loc) {
  constexpr const char* kName = "multilabel_soft_margin_loss";
  require_floating(x, kName, loc);
  require(y, kName, loc, "y");
  KILN_CHECK(x.sizes() == y.sizes() && x.dim() > 0, invalid,
             "{} ({}): got x {} and y {}, expected [..., c] twice", kName, loc.str(), x.type_str(),
             y.type_str());
  KILN_CHECK(!weight.defined() || broadcast_shapes(x, weight, kName, loc, {"x", "weight"}) == x.sizes(),
             invalid, "{} ({}): weight {} does not broadcast to x {}", kName, loc.str(), weight.type_str(),
             x.type_str());
  return call(kName, loc, {&x, &y, &weight}, {static_cast<int64_t>(r)}, {},
              [&](const Tensor& x, const Tensor& y, const Tensor& weight, const auto&) {
                const Tensor t = cast_to(y, x.dtype()), rest = sub2(lit(t, 1), t);
                const Tensor logs =
                    add2(mul2(t, log_sigmoid_body(x)), mul2(rest, log_sigmoid_body(unary(op("neg"), x))));
                const Tensor each = unary(op("neg"), weight.defined() ? mul2(logs, weight) : logs);
                const Tensor rows = reduce(op("sum"), each, {x.dim() - 1}, false);
                return reduced(div2(rows, lit(rows, static_cast<double>(x.size(-1)))), r);
              });
}

namespace {
/// [n, c] with targets of `rank`, or one row less of both.
void check_rows(const Tensor& x, const Tensor& target, int64_t rank, const char* name, Loc loc) {
  require_floating(x, name, loc);
  require(target, name, loc, "target");
  Sizes expected = x.sizes();
  if (rank == 1 && !expected.empty()) expected.pop_back();
  KILN_CHECK((x.dim() == 1 || x.dim() == 2) && target.sizes() == expected && x.size(-1) > 0 &&
                 !is_floating(target.dtype()) && target.dtype() != DType::boolean,
             invalid, "{} ({}): got x {} and target {}, expected [n, c] and [{}] of integers", name,
             loc.str(), x.type_str(), target.type_str(), rank == 1 ? "n" : "n, c");
}
}  // namespace

Tensor multi_margin_loss(const Tensor& x, const Tensor& target, int64_t p, double margin,
                         const Tensor& weight, Reduction r, Loc loc) {
  constexpr const char* kName = "multi_margin_loss";
  check_rows(x, target, 1, kName, loc);
  KILN_CHECK(p == 1 || p == 2, invalid, "{} ({}): p is {}, expected 1 or 2", kName, loc.str(), p);
  const int64_t classes = x.size(-1), n = x.numel() / classes;
  KILN_CHECK(!weight.defined() || weight.sizes() == Sizes{classes}, invalid,
             "{} ({}): got weight {} for x {}, expected [{}]", kName, loc.str(), weight.type_str(),
             x.type_str(), classes);
  return call(kName, loc, {&x, &target, &weight}, {static_cast<int64_t>(r), p}, {margin},
              [&](const Tensor& x, const Tensor& target, const Tensor& weight, const std::vector<Tensor>& s) {
                check_indices(target, classes, kName, loc, "target");
                const Tensor rows = reshape_to(x, {n, classes}), zero = lit(x, 0);
                const Tensor t = reshape_to(cast_to(target, DType::i64), {n, 1});
                const Tensor hit = binary(op("eq"), iota(1, {n, classes}), t);
                const Tensor own = reduce(op("sum"), select3(hit, rows, zero), {1}, true);
                Tensor each = hinge(add2(sub2(cast_to(s[0], x.dtype()), own), rows));
                if (p == 2) each = mul2(each, each);
                if (weight.defined())
                  each = mul2(each, reduce(op("sum"), select3(hit, weight, lit(weight, 0)), {1}, true));
                const Tensor sums = reduce(op("sum"), select3(hit, zero, each), {1}, false);
                const Tensor row_loss = div2(sums, lit(sums, static_cast<double>(classes)));
                return reduced(x.dim() == 1 ? reshape_to(row_loss, {}) : row_loss, r);
              });
}

Tensor multilabel_margin_loss(const Tensor& x, const Tensor& target, Reduction r, Loc loc) {
  constexpr const char* kName = "multilabel_margin_loss";
  check_rows(x, target, 2, kName, loc);
  const int64_t c = x.size(-1), n = x.numel() / c;
  return call(kName, loc, {&x, &target}, {static_cast<int64_t>(r)}, {},
              [&](const Tensor& x, const Tensor& target, const auto&) {
                const Tensor t = reshape_to(cast_to(target, DType::i64), {n, 1, c});
                const Sizes cube{n, c, c};
                // Target k counts if none up to it is negative.
                const Tensor ended = binary(op("logical_and"), binary(op("lt"), t, lit(t, 0)),
                                            binary(op("le"), iota(2, cube), iota(1, cube)));
                const Tensor counts = unary(op("logical_not"), reduce(op("amax"), ended, {2}, true));
                const Tensor place = reshape_to(t, {n, c, 1});
                const Tensor beyond = binary(op("ge"), place, lit(place, static_cast<double>(c)));
                check_elements(place, binary(op("logical_and"), beyond, counts), c, kName, loc, "target",
                               fmt::format("0 to {}, or less than 0 at the end", c - 1));
                // [n, k, i]: class i is target k.
                const Tensor hit = binary(op("logical_and"), binary(op("eq"), iota(2, cube), place), counts);
                const Tensor row = reshape_to(x, {n, 1, c}), zero = lit(x, 0);
                const Tensor own = reduce(op("sum"), select3(hit, row, zero), {2}, true);
                const Tensor is_target = reduce(op("amax"), hit, {1}, true);
                const Tensor pairs = binary(op("logical_and"), counts, unary(op("logical_not"), is_target));
                const Tensor each = hinge(add2(sub2(lit(x, 1), own), row));
                const Tensor sums = reduce(op("sum"), select3(pairs, each, zero), {1, 2}, false);
                const Tensor row_loss = div2(sums, lit(sums, static_cast<double>(c)));
                return reduced(x.dim() == 1 ? reshape_to(row_loss, {}) : row_loss, r);
              });
}

}  // namespace kiln
