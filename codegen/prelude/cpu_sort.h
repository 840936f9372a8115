// SPDX-License-Identifier: Apache-2.0
// Sorting for CPU kernels: stable, by merging.
#pragma once

#include "cpu_math.h"
#include "scan.h"

namespace kn {

namespace detail {

/// Sorts `order`, a run of few places, by insertion.
template <bool kDescending, class C> KN_FN void sort_run(const C* key, i64* order, i64 n) {
  for (i64 i = 1; i < n; ++i) {
    const i64 moved = order[i];
    i64 to = i;
    for (; to > 0 && before<kDescending>(key[moved], key[order[to - 1]]); --to) order[to] = order[to - 1];
    order[to] = moved;
  }
}
/// to = the runs [0, middle) and [middle, end) of from as one.
template <bool kDescending, class C>
KN_FN void merge_runs(const C* key, const i64* from, i64 middle, i64 end, i64* to) {
  i64 a = 0, b = middle;
  for (i64 i = 0; i < end; ++i) {
    const bool second = b < end && (a == middle || before<kDescending>(key[from[b]], key[from[a]]));
    to[i] = second ? from[b++] : from[a++];
  }
}

}  // namespace detail

/// The places 0 to n - 1 in the order of their keys, equal ones in theirs: in the first or second n elements
/// of `room`.
template <bool kDescending, class C> KN_FN const i64* sort_places(const C* key, i64 n, i64* room) {
  constexpr i64 kRun = 16;
  i64 *from = room, *to = room + n;
  for (i64 i = 0; i < n; ++i) from[i] = i;
  for (i64 first = 0; first < n; first += kRun)
    detail::sort_run<kDescending>(key, from + first, n - first < kRun ? n - first : kRun);
  for (i64 run = kRun; run < n; run *= 2) {
    for (i64 first = 0; first < n; first += 2 * run) {
      const i64 end = n - first < 2 * run ? n - first : 2 * run;
      detail::merge_runs<kDescending>(key, from + first, end < run ? end : run, end, to + first);
    }
    i64* const sorted = to;
    to = from;
    from = sorted;
  }
  return from;
}

}  // namespace kn
