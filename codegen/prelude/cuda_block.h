// SPDX-License-Identifier: Apache-2.0
// What the threads of a warp or block do together: shuffles of any value, reductions as fixed trees, copies
// from global to shared memory that go on meanwhile.
#pragma once

#include "cuda_memory.h"

namespace kn {
namespace detail {

/// Moves a value between lanes, 32 bits at a time, by `move`.
template <class V, class F> KN_FN V moved(V v, F move) {
  if constexpr (sizeof(V) < 4) {
    if constexpr (same<V, bool>) return move(u32(v)) != 0;
    else return V(move(u32(v)));
  } else {
    struct Words {
      u32 at[sizeof(V) / 4];
    };
    Words w = bits<Words>(v);
#pragma unroll
    for (u32 i = 0; i < sizeof(V) / 4; ++i) w.at[i] = move(w.at[i]);
    return bits<V>(w);
  }
}
template <class V, class F> KN_FN Mask<width<V>> moved_mask(V m, F move) {
  u32 all = 0;
#pragma unroll
  for (int i = 0; i < width<V>; ++i) all |= u32(lane(m, i)) << i;
  all = move(all);
  Mask<width<V>> r;
#pragma unroll
  for (int i = 0; i < width<V>; ++i) set_lane(r, i, (all >> i & 1) != 0);
  return r;
}
template <class V, class F> KN_FN V moved_any(V v, F move) {
  if constexpr (same<Elem<V>, bool>) return moved_mask(v, move);
  else if constexpr (sizeof(V) % 4 == 0) return moved(v, move);
  else return each<V>([&](Elem<V> x) KN_LAMBDA { return moved(x, move); }, v);
}

}  // namespace detail

/// The value of lane `lane() ^ mask`, and of lane `from` (taken modulo 32). All lanes of the warp meet.
template <class V> KN_FN V shuffle_xor(V v, i32 mask) {
  return detail::moved_any(v, [=](u32 x) KN_LAMBDA { return device::shuffle_xor_word(x, mask); });
}
template <class V> KN_FN V shuffle(V v, i32 from) {
  return detail::moved_any(v, [=](u32 x) KN_LAMBDA { return device::shuffle_word(x, from & 31); });
}

/// f over the lanes of the warp, in every lane: lane i meets lane i + 16, then i + 8, ... i + 1. f need not
/// commute.
template <class T, class F> KN_FN T warp_reduce(T x, F f) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = f(x, shuffle(x, lane() + step));
  return shuffle(x, 0);
}
/// f over the block, in every thread: warp by warp, in order. `room` holds Threads / 32 elements, of which
/// nothing is left to wait for when this returns.
template <int Threads, class T, class F> KN_FN T block_reduce(T x, F f, Shared<T> room) {
  static_assert(Threads % 32 == 0 && Threads <= 1024, "whole warps");
  x = warp_reduce(x, f);
  if constexpr (Threads == 32) return x;
  if (lane() == 0) store<1>(room + warp(), x);
  barrier();
  T r = load<1>(room);
#pragma unroll
  for (int i = 1; i < Threads / 32; ++i) r = f(r, load<1>(room + i));
  barrier();
  return r;
}

/// f over the lanes up to this one, in order. f need not commute.
template <class T, class F> KN_FN T warp_scan(T x, F f) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const T left = shuffle(x, lane() - step);
    if (lane() >= step) x = f(left, x);
  }
  return x;
}
/// f over `carry` and the threads up to this one, in order; carry becomes that of the last thread. `room` as
/// for block_reduce.
template <int Threads, class T, class F> KN_FN T block_scan(T x, T& carry, F f, Shared<T> room) {
  static_assert(Threads % 32 == 0 && Threads <= 1024, "whole warps");
  x = warp_scan(x, f);
  if (lane() == 31) store<1>(room + warp(), x);
  barrier();
  T before = carry;
#pragma unroll
  for (int i = 0; i < Threads / 32; ++i) {
    if (i == warp()) before = carry;
    carry = f(carry, load<1>(room + i));
  }
  barrier();
  return f(before, x);
}

/// Copies Bytes (4, 8 or 16) to shared memory at some moment before it is waited for; zeros if not `valid`,
/// without reading `from`.
template <int Bytes, class S> KN_FN void copy_async(Shared<S> to, const Same<S>* from, bool valid) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "4, 8 or 16");
  device::copy_async<Bytes>(to.at, from, valid);
}
/// Ends a group of copies; waits for all but the last Pending groups of this thread.
KN_FN void async_commit() { device::copy_commit(); }
template <int Pending> KN_FN void async_wait() { device::copy_wait<Pending>(); }

}  // namespace kn
