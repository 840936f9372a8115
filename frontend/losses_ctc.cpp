// SPDX-License-Identifier: Apache-2.0
// Connectionist temporal classification: the forward recursion over times, in primitives. Its derivative is
// that of the recursion, so that it also holds for log-probabilities that do not add up to one.
#include <cmath>

#include "frontend/losses.h"
#include "frontend/losses_detail.h"
#include "frontend/shapes.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace {

constexpr const char* kName = "ctc_loss";

void check_operands(const Tensor& x, const Tensor& targets, const Tensor& input_lengths,
                    const Tensor& target_lengths, int64_t blank, Loc loc) {
  require_floating(x, kName, loc, "log_probs");
  for (const auto& [t, arg] : {std::pair{&targets, "targets"}, std::pair{&input_lengths, "input_lengths"},
                               std::pair{&target_lengths, "target_lengths"}}) {
    require(*t, kName, loc, arg);
    KILN_CHECK(!is_floating(t->dtype()) && t->dtype() != DType::boolean, invalid,
               "{} ({}): got {} {}, expected integers (cast it with to())", kName, loc.str(), arg,
               t->type_str());
  }
  const bool batched = x.dim() == 3;
  const Sizes lengths = batched ? Sizes{x.size(1)} : Sizes{};
  const bool fits = (batched || x.dim() == 2) && targets.dim() == x.dim() - 1 &&
                    input_lengths.sizes() == lengths && target_lengths.sizes() == lengths &&
                    (!batched || targets.size(0) == x.size(1)) && x.size(0) > 0;
  KILN_CHECK(
      fits, invalid,
      "{} ({}): got log_probs {}, targets {}, input_lengths {} and target_lengths {}, expected [t, n, c], "
      "[n, s], [n] and [n] with t > 0, or [t, c], [s], [] and []",
      kName, loc.str(), x.type_str(), targets.type_str(), input_lengths.type_str(),
      target_lengths.type_str());
  KILN_CHECK(blank >= 0 && blank < x.size(-1), invalid, "{} ({}): blank is {}, expected 0 to {}", kName,
             loc.str(), blank, x.size(-1) - 1);
}

void check_lengths(const Tensor& lengths, int64_t most, const char* what, Loc loc) {
  const Tensor wide = cast_to(lengths, DType::i64);
  const Tensor bad = binary(op("logical_or"), binary(op("lt"), wide, lit(wide, 0)),
                            binary(op("gt"), wide, lit(wide, static_cast<double>(most))));
  check_elements(wide, bad, most + 1, kName, loc, what, fmt::format("0 to {}", most));
}

/// x [n, l] moved by k places, with `value` in front.
Tensor delayed(const Tensor& x, int64_t k, double value) {
  const int64_t n = x.size(0), l = x.size(1), kept = std::max<int64_t>(0, l - k);
  const Tensor head =
      apply(op("slice"), {&x}, {Shape{Dim(0), Dim(0)}, Shape{Dim(n), Dim(kept)}, Sizes{1, 1}});
  return apply(op("pad"), {&head}, {Shape{Dim(0), Dim(l - kept)}, Shape{Dim(0), Dim(0)}, Sizes{0, 0}, value});
}

/// log of the sum of exponentials of three, elementwise: -inf for none, without a derivative there.
Tensor log_sum(const Tensor& a, const Tensor& b, const Tensor& c) {
  const Tensor zero = lit(a, 0), one = lit(a, 1), none = lit(a, -INFINITY);
  const Tensor top = constant_of(binary(op("maximum"), a, binary(op("maximum"), b, c)));
  const Tensor shift = select3(binary(op("eq"), top, none), zero, top);
  const auto power = [&](const Tensor& x) { return unary(op("exp"), sub2(x, shift)); };
  const Tensor sum = add2(power(a), add2(power(b), power(c))), empty = binary(op("eq"), sum, zero);
  return select3(empty, none, add2(unary(op("log"), select3(empty, one, sum)), shift));
}

/// The targets with blanks around each [n, 2 s + 1], and where a label may follow the last but one.
struct Labels {
  Tensor extended, may_skip;
};
Labels labels_of(const Tensor& targets, int64_t blank) {
  const int64_t n = targets.size(0), l = 2 * targets.size(1) + 1;
  const Tensor t = cast_to(targets, DType::i64), gap = lit(t, static_cast<double>(blank));
  const Tensor blanks = expand_to(gap, {n, l});
  if (l == 1) return {blanks, constant_like(cast_to(blanks, DType::boolean), 0)};
  const Tensor all = constant_like(cast_to(t, DType::boolean), 1);
  const auto spread = [&](const Tensor& x) {
    return apply(op("pad"), {&x}, {Shape{Dim(0), Dim(1)}, Shape{Dim(0), Dim(1)}, Sizes{0, 1}, 0.0});
  };
  const Tensor extended = select3(spread(all), spread(t), blanks);
  const Tensor two_before = delayed(extended, 2, static_cast<double>(blank));
  const Tensor differs = binary(op("ne"), extended, two_before), label = binary(op("ne"), extended, gap);
  return {extended, binary(op("logical_and"), differs, label)};
}

/// Loss of each sequence. x [t, n, c], targets [n, s], lengths [n].
Tensor sequence_losses(const Tensor& x, const Tensor& targets, const Tensor& times, const Tensor& lengths,
                       int64_t blank) {
  const int64_t steps = x.size(0), n = x.size(1), l = 2 * targets.size(1) + 1;
  const Labels labels = labels_of(targets, blank);
  const Tensor places = expand_to(reshape_to(labels.extended, {1, n, l}), {steps, n, l});
  const Tensor scores = apply(op("take_along"), {&x, &places}, {int64_t{2}}), none = lit(x, -INFINITY);
  const auto at = [&](int64_t t) {
    return reshape_to(
        apply(op("slice"), {&scores},
              {Shape{Dim(t), Dim(0), Dim(0)}, Shape{Dim(t + 1), Dim(n), Dim(l)}, Sizes{1, 1, 1}}),
        {n, l});
  };
  const Tensor place = iota(1, {n, l}), time = reshape_to(cast_to(times, DType::i64), {n, 1});
  const Tensor last = mul2(reshape_to(cast_to(lengths, DType::i64), {n, 1}), lit(time, 2));
  // Before the first time nothing has been seen: a path begins with the blank or with the first label.
  Tensor alpha = select3(binary(op("le"), place, lit(place, 1)), at(0), none);
  for (int64_t t = 1; t < steps; ++t) {
    const Tensor skipped = select3(labels.may_skip, delayed(alpha, 2, -INFINITY), none);
    const Tensor next = add2(log_sum(alpha, delayed(alpha, 1, -INFINITY), skipped), at(t));
    const Tensor running = expand_to(binary(op("gt"), time, lit(time, static_cast<double>(t))), {n, l});
    alpha = select3(running, next, alpha);
  }
  // A path ends with the last label or the blank after it. Of no time at all only no label is the transcript.
  const Tensor ends = binary(op("logical_or"), binary(op("eq"), place, last),
                             binary(op("eq"), place, sub2(last, lit(last, 1))));
  const Tensor final_scores = select3(ends, alpha, none);
  const Tensor top = constant_of(reduce(op("amax"), final_scores, {1}, true));
  const Tensor shift = select3(binary(op("eq"), top, none), lit(x, 0), top);
  const Tensor sum = reduce(op("sum"), unary(op("exp"), sub2(final_scores, shift)), {1}, true);
  const Tensor empty = binary(op("eq"), sum, lit(sum, 0));
  const Tensor likelihood =
      select3(empty, none, add2(unary(op("log"), select3(empty, lit(sum, 1), sum)), shift));
  const Tensor untimed = binary(op("eq"), time, lit(time, 0));
  const Tensor of_nothing = select3(binary(op("eq"), last, lit(last, 0)), lit(x, 0), lit(x, INFINITY));
  return reshape_to(select3(untimed, of_nothing, unary(op("neg"), likelihood)), {n});
}

}  // namespace

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, int64_t blank, Reduction r, bool zero_infinity, Loc loc) {
  check_operands(log_probs, targets, input_lengths, target_lengths, blank, loc);
  const bool batched = log_probs.dim() == 3;
  const int64_t n = batched ? log_probs.size(1) : 1;
  return call(kName, loc, {&log_probs, &targets, &input_lengths, &target_lengths},
              {blank, static_cast<int64_t>(r), zero_infinity}, {}, [&](const auto&) {
                check_indices(targets, log_probs.size(-1), kName, loc, "targets");
                check_lengths(input_lengths, log_probs.size(0), "input_lengths", loc);
                check_lengths(target_lengths, targets.size(-1), "target_lengths", loc);
                const Tensor x = reshape_to(log_probs, {log_probs.size(0), n, log_probs.size(-1)});
                const Tensor lengths = reshape_to(target_lengths, {n});
                Tensor each = sequence_losses(x, reshape_to(targets, {n, targets.size(-1)}),
                                              reshape_to(input_lengths, {n}), lengths, blank);
                if (zero_infinity)
                  each = select3(binary(op("eq"), each, lit(each, INFINITY)), lit(each, 0), each);
                if (r == Reduction::mean) {
                  const Tensor counted = binary(op("maximum"), lengths, lit(lengths, 1));
                  each = div2(each, cast_to(counted, each.dtype()));
                }
                return reduced(batched ? each : reshape_to(each, {}), r);
              });
}

}  // namespace kiln
