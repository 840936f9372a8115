// SPDX-License-Identifier: Apache-2.0
// What every generated CPU source includes as "kiln_cpu.h". No system headers, no target but what clang
// offers on all of them; the few target intrinsics stand in cpu_target.h beside portable versions with the
// same bits.
//
// V is f32, f64, i32, i64, u8 or a vector of W lanes of one of them; Mask<W> holds W truth values (Mask<1>
// a bool). Every function takes and gives scalars and vectors alike, and a lane's bits never depend on W.
//
//   values     Vec<T, W>  Mask<W>  Elem<V>  width<V>  Like<V, T>         Vec<T, 1> is T
//              broadcast<W>(x) -> Vec<T, W>      broadcast_mask<W>(bool)
//              iota<W>(start) -> Vec<T, W>       first<W>(n) -> Mask<W>   lanes [0, n)
//              inf<T>  nan<T>
//   compare    eq ne lt le gt ge (V, V) -> Mask     isnan isinf isfinite (V) -> Mask
//   masks      a & b, a | b, a ^ b, !a;  any(m) all(m) -> bool;  count(m) -> i64
//   select     select(m, a, b)     m ? a : b, of values or of masks
//   convert    convert<T>(V or Mask) -> Like<V, T>  (a mask gives 1 and 0);  to_mask(V)   nonzero is true
//              round_to<S>(V)    what a store as S, bf16 or f16, leaves of f32
//   arithmetic the operators of C++ (floats, vectors);  add sub mul neg wrap for integers
//              max min (NaN wins)  abs sign copysign floor ceil trunc round (half to even)  fma(a, b, c)
//              sqrt  rsqrt
//              fmod remainder floor_divide trunc_divide (integers too; by zero gives 0)  pow (integers too)
//              shift_left shift_right
//   math       exp exp2 expm1 log log2 log10 log1p sigmoid erf erfc erfinv lgamma digamma trigamma
//              sin cos tan asin acos atan atan2(y, x) sinh cosh tanh asinh acosh atanh
//   reduce     reduce_sum reduce_prod reduce_max reduce_min (V) -> Elem<V>     fixed tree
//   random     philox_bits philox_uniform (= random_uniform) (seed, offset, i64 elements)
//   lines      RunningSum<C> and its kin of scan.h: start(state, C, i) then(a, b) step(state, C, i) result(a)
//              before<kDescending>(C, C)   sort_places<kDescending>(const C* key, n, i64* room)
//   memory     S is f32 f64 i32 i64 u8, or stored-only bf16, f16 (values f32) and b8 (values Mask)
//              load<W>(p)                    store<W>(p, v)
//              load_n<W>(p, n)               store_n<W>(p, n, v)             lanes [0, n), 0 <= n <= W
//              load_strided<W>(p, s)         store_strided<W>(p, s, v)       p[i * s]
//              load_strided_n<W>(p, s, n)    store_strided_n<W>(p, s, n, v)
//              gather(p, index)  gather_n(p, index, n)  gather_if(p, index, m)  scatter_if(p, index, m, v)
#pragma once

#include "cpu_arith.h"
#include "cpu_math.h"
#include "cpu_memory.h"
#include "cpu_random.h"
#include "cpu_reduce.h"
#include "cpu_sort.h"
#include "cpu_vec.h"
#include "special.h"

/// Marks a kernel: its name is exported as written.
#define KILN_KERNEL extern "C" __attribute__((visibility("default")))
