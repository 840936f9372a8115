// SPDX-License-Identifier: Apache-2.0
// The words of a real device, for NVRTC: what C++ has no name for, in inline PTX. From sm_80 on. The same
// names as cuda_sim.h. Source: PTX ISA 8.0, chapters "Instruction Set" and "Special Registers".
#pragma once

#include "cuda_vec.h"

namespace kn {

// ---- who ----

KN_FN i32 thread() { return i32(threadIdx.x); }
KN_FN i32 threads() { return i32(blockDim.x); }
KN_FN i32 lane() { return i32(threadIdx.x & 31u); }
KN_FN i32 warp() { return i32(threadIdx.x >> 5); }
KN_FN i64 block() { return i64(blockIdx.x); }
KN_FN i64 blocks() { return i64(gridDim.x); }

// ---- meet ----

KN_FN void barrier() { __syncthreads(); }
KN_FN void warp_barrier() { __syncwarp(); }

namespace device {

// ---- one access; P has as many bytes as it is aligned to ----

template <class P> KN_FN P load_global(const void* p) { return *static_cast<const P*>(p); }
template <class P> KN_FN void store_global(void* p, P x) { *static_cast<P*>(p) = x; }

extern __shared__ __align__(128) unsigned char shared_bytes[];
template <class P> KN_FN P load_shared(u32 at) { return *reinterpret_cast<const P*>(shared_bytes + at); }
template <class P> KN_FN void store_shared(u32 at, P x) { *reinterpret_cast<P*>(shared_bytes + at) = x; }
/// An address as PTX wants it.
KN_FN u32 shared_address(u32 at) { return u32(__cvta_generic_to_shared(shared_bytes + at)); }

// ---- between lanes ----

KN_FN u32 shuffle_word(u32 x, i32 from) { return __shfl_sync(~0u, x, from); }
KN_FN u32 shuffle_xor_word(u32 x, i32 mask) { return __shfl_xor_sync(~0u, x, mask); }

// ---- copies ----

template <int Bytes> KN_FN void copy_async(u32 to, const void* from, bool valid) {
  const u64 global = u64(__cvta_generic_to_global(from));
  const u32 count = valid ? Bytes : 0;
  if constexpr (Bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(global),
                 "r"(count) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)), "l"(global),
                 "n"(Bytes), "r"(count) : "memory");
}
KN_FN void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Pending> KN_FN void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// ---- formats; a NaN becomes 0x7fff ----

KN_FN u16 to_bf16(f32 x) {
  u16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
KN_FN u16 to_f16(f32 x) {
  u16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
KN_FN f32 from_f16(u16 h) {
  f32 r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(h));
  return r;
}
KN_FN u32 to_tf32(f32 x) {
  u32 r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
}
KN_FN u32 pack_bf16(f32 low, f32 high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
KN_FN u32 pack_f16(f32 low, f32 high) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
KN_FN f32 log_gamma(f32 x) { return ::lgammaf(x); }
KN_FN f64 log_gamma(f64 x) { return ::lgamma(x); }

// ---- tiles ----

KN_FN void ldmatrix4(u32 (&r)[4], u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(at)));
}
KN_FN void ldmatrix4_transposed(u32 (&r)[4], u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(at)));
}
#define KN_MMA(name, shape_and_types)                                                                \
  KN_FN void name(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {                               \
    asm volatile("mma.sync.aligned." shape_and_types                                                 \
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                  \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                \
  }
KN_MMA(mma_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32")
KN_MMA(mma_f16, "m16n8k16.row.col.f32.f16.f16.f32")
KN_MMA(mma_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32")
#undef KN_MMA

}  // namespace device
}  // namespace kn

#define KILN_CUDA_KERNEL(name, threads, buffer_count, dim_count) \
  KN_KERNEL(name, __launch_bounds__(threads), buffer_count, dim_count)
#define KILN_CUDA_KERNEL_FEW(name, threads, buffer_count, dim_count) \
  KN_KERNEL(name, __launch_bounds__(threads, 1), buffer_count, dim_count)
#define KILN_CUDA_PARTS(name, threads, buffer_count, dim_count)                                       \
  KN_FN void name##_body(void* const* buffers, const kn::i64* dims, kn::i64 block_of_part);           \
  extern "C" __global__ void __launch_bounds__(threads)                                               \
      name(const __grid_constant__ kn::device::Parts<buffer_count, dim_count> parameters) {           \
    if (!kn::device::runs(parameters.guard)) return;                                                  \
    const int part = kn::device::part_of(parameters.first, kn::block());                              \
    name##_body(parameters.buffers[part], parameters.dims[part],                                      \
                kn::block() - parameters.first[part]);                                                \
  }                                                                                                   \
  KN_FN void name##_body([[maybe_unused]] void* const* buffers, [[maybe_unused]] const kn::i64* dims, \
                         [[maybe_unused]] kn::i64 block_of_part)
#define KN_KERNEL(name, bounds, buffer_count, dim_count)                                              \
  KN_FN void name##_body(void* const* buffers, const kn::i64* dims);                                  \
  extern "C" __global__ void bounds                                                                   \
      name(const __grid_constant__ kn::device::Parameters<buffer_count, dim_count> parameters) {      \
    if (kn::device::runs(parameters.guard)) name##_body(parameters.buffers, parameters.dims);         \
  }                                                                                                   \
  KN_FN void name##_body([[maybe_unused]] void* const* buffers, [[maybe_unused]] const kn::i64* dims)
