// SPDX-License-Identifier: Apache-2.0
// What every generated CUDA source includes as "kiln_cuda.h". Includes no header of a toolkit. All is written
// in the words of one of two files that give the same names: cuda_device.h (inline PTX, for NVRTC) and
// cuda_sim.h (calls into the simulated device, for clang).
//
// One thread computes W elements of a row at once, as the CPU's vectors do: the words for values are those of
// kiln_cpu.h, so that one printer of bodies, indices and masks serves both targets.
//
// V is f32, f64, i32, i64, u8 or Vec of W of them; Mask<W> holds W truth values. W is a power of two up to 8.
//
//   values     Vec<T, W>  Mask<W>  Elem<V>  width<V>  Like<V, T>          Vec<T, 1> is T
//              broadcast<W>(x)  broadcast_mask<W>(bool)  iota<W>(start)  first<W>(n)  inf<T>  nan<T>
//   compare    eq ne lt le gt ge  isnan isinf isfinite
//   masks      a & b, a | b, a ^ b, !a;  any(m) all(m) -> bool;  count(m) -> i64     lanes of one thread
//   select     select(m, a, b)
//   convert    convert<T>(V or Mask)  to_mask(V)  round_to<S>(V)
//   arithmetic, math, random, lines (but sort_places)                    as kiln_cpu.h
//   fold       reduce_sum reduce_prod reduce_max reduce_min (V) -> Elem<V>   lanes of one thread, fixed tree
//
//   global     load<W>(p) store<W>(p, v) load_n store_n load_strided load_strided_n store_strided
//              store_strided_n gather gather_n gather_if scatter_if        as kiln_cpu.h, p a global pointer.
//              load<W>, store<W>: p is a multiple of W elements, up to 16 bytes.
//   shared     Shared<T> shared<T>(byte_offset): a place in the block's dynamic shared memory; + elements.
//              load<W>(s) store<W>(s, v) load_n<W>(s, n) store_n<W>(s, n, v)
//   who        thread() threads() lane() warp() -> i32    block() blocks() -> i64
//   meet       barrier()  warp_barrier()
//   between    shuffle_xor(x, mask) shuffle(x, lane) of any V or Mask, whole warps
//              warp_reduce(x, f)                  x: Elem; every lane gets f over the warp, as a fixed tree
//              block_reduce<Threads>(x, f, room)  every thread gets f over the block, warps in order; room:
//                                                 Shared<Elem> of Threads / 32 elements; two barriers
//              warp_scan(x, f)                    f over the lanes up to this one
//              block_scan<Threads>(x, carry, f, room)   f over carry and the threads up to this one; carry
//                                                 becomes that of the last
//   copies     copy_async<Bytes>(Shared<T> to, const T* from, bool valid)  4, 8 or 16; zeros if not
//              async_commit()  async_wait<Pending>()
//   tiles      ldmatrix4(u32 (&r)[4], Shared<T> row)  ldmatrix4_transposed(...)     16-bit T; row: 16 bytes
//              mma_bf16(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2])          m16n8k16, d += a b
//              mma_f16(...)                                                         m16n8k16
//              mma_tf32(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2])          m16n8k8
//              tf32(f32) -> u32   rounded;  pack_bf16(f32 low, f32 high) -> u32  pack_f16
//
//   KILN_CUDA_KERNEL(name, threads, buffer_count, dim_count) { ... }
//              a kernel as ir/kernel_image.h says; its body has void* const* buffers and const i64* dims.
//              Ends at once where the guard of its parameters does not hold.
//   KILN_CUDA_PARTS(name, threads, buffer_count, dim_count) { ... }
//              a kernel of several parts; its body also has block_of_part, and `blocks` means nothing.
//   KILN_CUDA_KERNEL_FEW(...)   the same, of so few blocks that registers matter more than room for a second
#pragma once

#include "cuda_vec.h"
#include "cuda_words.h"  // cuda_device.h or cuda_sim.h, as the compiler of the source chooses
#include "cuda_kernel.h"
#include "cuda_arith.h"
#include "cuda_math.h"
#include "cuda_memory.h"
#include "cuda_random.h"
#include "cuda_block.h"
#include "scan.h"
#include "special.h"
#include "cuda_tiles.h"
