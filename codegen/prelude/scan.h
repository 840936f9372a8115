// SPDX-License-Identifier: Apache-2.0
// What a line carries from element to element, and the order of elements: the same words for all targets.
// Included after the words for values and functions.
#pragma once

namespace kn {

/// Floats are summed in f64.
template <class C> using Carried = typename detail::Choice<is_float<C>, f64, C>::type;

// A default one is of no elements; start is of one, `i`th of its line; then(a, b) is of a's and the b's after
// them; result is the element of a scan.
template <class C> struct RunningSum {
  Carried<C> sum = 0;
};
template <class C> KN_FN RunningSum<C> start(RunningSum<C>, C x, i64) { return {Carried<C>(x)}; }
template <class C> KN_FN RunningSum<C> then(RunningSum<C> a, RunningSum<C> b) { return {add(a.sum, b.sum)}; }
template <class C> KN_FN C result(RunningSum<C> a) { return C(a.sum); }

template <class C> struct RunningProduct {
  Carried<C> product = 1;
};
template <class C> KN_FN RunningProduct<C> start(RunningProduct<C>, C x, i64) { return {Carried<C>(x)}; }
template <class C> KN_FN RunningProduct<C> then(RunningProduct<C> a, RunningProduct<C> b) {
  return {mul(a.product, b.product)};
}
template <class C> KN_FN C result(RunningProduct<C> a) { return C(a.product); }

/// The best element so far: the last of equals, and the last NaN.
template <class C> struct RunningMax {
  C best = 0;
  i64 at = -1;
};
template <class C> KN_FN RunningMax<C> start(RunningMax<C>, C x, i64 i) { return {x, i}; }
template <class C> KN_FN RunningMax<C> then(RunningMax<C> a, RunningMax<C> b) {
  if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
  return b.best != b.best || (a.best == a.best && b.best >= a.best) ? b : a;
}
template <class C> KN_FN i64 result(RunningMax<C> a) { return a.at; }

template <class C> struct RunningMin {
  C best = 0;
  i64 at = -1;
};
template <class C> KN_FN RunningMin<C> start(RunningMin<C>, C x, i64 i) { return {x, i}; }
template <class C> KN_FN RunningMin<C> then(RunningMin<C> a, RunningMin<C> b) {
  if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
  return b.best != b.best || (a.best == a.best && b.best <= a.best) ? b : a;
}
template <class C> KN_FN i64 result(RunningMin<C> a) { return a.at; }

/// log(e^a + e^b) = max + log1p(e^(min - max)).
template <class C> struct RunningLogSumExp {
  f64 log = -inf<f64>;
};
template <class C> KN_FN RunningLogSumExp<C> start(RunningLogSumExp<C>, C x, i64) { return {f64(x)}; }
template <class C> KN_FN RunningLogSumExp<C> then(RunningLogSumExp<C> a, RunningLogSumExp<C> b) {
  const bool second = b.log > a.log || b.log != b.log;
  const f64 high = second ? b.log : a.log, low = second ? a.log : b.log;
  if (high == low && (high == inf<f64> || high == -inf<f64>)) return {high};
  return {high + log1p(exp(low - high))};
}
template <class C> KN_FN C result(RunningLogSumExp<C> a) { return C(a.log); }

template <class S, class C> KN_FN S step(S a, C x, i64 i) { return then(a, start(a, x, i)); }

/// Whether a stands before b, and not beside it. NaN is larger than every number.
template <bool kDescending, class C> KN_FN bool before(C a, C b) {
  if constexpr (kDescending) return before<false>(b, a);
  else return a < b || (b != b && a == a);
}

}  // namespace kn
