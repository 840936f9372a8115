// SPDX-License-Identifier: Apache-2.0
// Special functions that the C++ library lacks, in double: the reference of the rows and intrinsics.
#pragma once

namespace kiln::special {

/// log |gamma(x)|, without the global that std::lgamma writes.
double log_gamma(double x);
/// Derivative of log_gamma: -inf at 0 (inf at -0), NaN at negative integers.
/// Source: recurrence to x >= 10, then Abramowitz & Stegun 6.3.18; reflection 6.3.7 below 0.
double digamma(double x);
/// Derivative of digamma: inf at 0 and at negative integers. Source: Abramowitz & Stegun 6.4.12 and 6.4.7.
double trigamma(double x);
/// Inverse of erf: infinite at -1 and 1, NaN beyond.
/// Source: Giles 2012 (single precision) and, beyond it, Abramowitz & Stegun 7.1.23; then two steps of
/// Halley's method.
double erfinv(double x);

}  // namespace kiln::special
