// SPDX-License-Identifier: Apache-2.0
// The words of the simulated device, for clang: calls through ir/sim_abi.h, the C library's functions, and
// what warp-level matrix instructions do, lane by lane. The same names as cuda_device.h.
// Source for the layouts: PTX ISA 8.0, "Warp-level matrix instructions".
#pragma once

#include "cuda_vec.h"
#include "sim_abi.h"

extern "C" __attribute__((visibility("default"))) const KnSimHooks* kn_sim;
const KnSimHooks* kn_sim;

extern "C" {
float acosf(float);
float acoshf(float);
float asinf(float);
float asinhf(float);
float atan2f(float, float);
float atanf(float);
float atanhf(float);
float ceilf(float);
float copysignf(float, float);
float cosf(float);
float coshf(float);
float erfcf(float);
float erff(float);
float exp2f(float);
float expf(float);
float expm1f(float);
float fabsf(float);
float floorf(float);
float fmaf(float, float, float);
float fmodf(float, float);
float log10f(float);
float log1pf(float);
float log2f(float);
float logf(float);
float powf(float, float);
float rintf(float);
float sinf(float);
float sinhf(float);
float sqrtf(float);
float tanf(float);
float tanhf(float);
float truncf(float);
double acos(double);
double acosh(double);
double asin(double);
double asinh(double);
double atan(double);
double atan2(double, double);
double atanh(double);
double ceil(double);
double copysign(double, double);
double cos(double);
double cosh(double);
double erf(double);
double erfc(double);
double exp(double);
double exp2(double);
double expm1(double);
double fabs(double);
double floor(double);
double fma(double, double, double);
double fmod(double, double);
double lgamma_r(double, int*);
double log(double);
double log10(double);
double log1p(double);
double log2(double);
double pow(double, double);
double rint(double);
double sin(double);
double sinh(double);
double sqrt(double);
double tan(double);
double tanh(double);
double trunc(double);
}

namespace kn {

// ---- who ----

KN_FN i32 thread() { return kn_sim->self->thread; }
KN_FN i32 threads() { return kn_sim->self->threads; }
KN_FN i32 lane() { return thread() & 31; }
KN_FN i32 warp() { return thread() >> 5; }
KN_FN i64 block() { return kn_sim->self->block; }
KN_FN i64 blocks() { return kn_sim->self->blocks; }

// ---- meet ----

KN_FN void barrier() { kn_sim->barrier(); }
KN_FN void warp_barrier() { kn_sim->warp_barrier(); }

namespace device {

// ---- one access; P has as many bytes as it is aligned to ----

template <class P> KN_FN P copied(const void* from) {
  P x;
  __builtin_memcpy(&x, from, sizeof(P));
  return x;
}
template <class P> KN_FN P load_global(const void* p) {
  return copied<P>(kn_sim->global(p, sizeof(P), kn_sim_read));
}
template <class P> KN_FN void store_global(void* p, P x) {
  __builtin_memcpy(kn_sim->global(p, sizeof(P), kn_sim_write), &x, sizeof(P));
}
template <class P> KN_FN P load_shared(u32 at) {
  return copied<P>(kn_sim->shared(at, sizeof(P), kn_sim_read));
}
template <class P> KN_FN void store_shared(u32 at, P x) {
  __builtin_memcpy(kn_sim->shared(at, sizeof(P), kn_sim_write), &x, sizeof(P));
}

// ---- between lanes ----

/// What lane `from` brought to this meeting of the warp.
template <class T> struct Rows {
  const char* rows;
  KN_FN T of(i32 from) const { return copied<T>(rows + from * 32); }
};
template <class T> KN_FN Rows<T> meet(const char* word, const T& mine) {
  static_assert(sizeof(T) <= 32, "a row of an exchange");
  return {static_cast<const char*>(kn_sim->exchange(word, &mine, sizeof(T)))};
}
KN_FN u32 shuffle_word(u32 x, i32 from) { return meet("shuffle", x).of(from & 31); }
KN_FN u32 shuffle_xor_word(u32 x, i32 mask) { return meet("shuffle_xor", x).of((lane() ^ mask) & 31); }

// ---- copies ----

template <int Bytes> KN_FN void copy_async(u32 to, const void* from, bool valid) {
  kn_sim->copy_async(to, from, Bytes, valid);
}
KN_FN void copy_commit() { kn_sim->copy_commit(); }
template <int Pending> KN_FN void copy_wait() { kn_sim->copy_wait(Pending); }

// ---- formats; a NaN becomes 0x7fff ----

KN_FN u32 bits_of(f32 x) { return __builtin_bit_cast(u32, x); }
KN_FN f32 f32_of(u32 x) { return __builtin_bit_cast(f32, x); }

KN_FN u16 to_bf16(f32 x) {
  const u32 u = bits_of(x);
  return x != x ? u16(0x7fff) : u16((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
KN_FN u16 to_f16(f32 x) { return x != x ? u16(0x7fff) : __builtin_bit_cast(u16, _Float16(x)); }
KN_FN f32 from_f16(u16 h) { return f32(__builtin_bit_cast(_Float16, h)); }
KN_FN f32 from_bf16(u16 h) { return f32_of(u32(h) << 16); }
KN_FN u32 to_tf32(f32 x) {
  const u32 u = bits_of(x);
  if (x != x) return 0x7fffffffu;
  return (u & 0x7f800000u) == 0x7f800000u ? u : (u + 0x1000u) & ~0x1fffu;
}
KN_FN u32 pack_bf16(f32 low, f32 high) { return u32(to_bf16(low)) | u32(to_bf16(high)) << 16; }
KN_FN u32 pack_f16(f32 low, f32 high) { return u32(to_f16(low)) | u32(to_f16(high)) << 16; }
KN_FN f64 log_gamma(f64 x) {
  int sign;
  return ::lgamma_r(x, &sign);
}
KN_FN f32 log_gamma(f32 x) { return f32(log_gamma(f64(x))); }

// ---- tiles ----

/// Lane 4 g + t gets elements (g, 2 t) and (g, 2 t + 1) of each matrix, as the lanes' rows lie in memory.
inline void ldmatrix4(u32 (&r)[4], u32 at) {
  kn_sim->shared(at, 16, kn_sim_read);  // the lane's own row
  const auto rows = meet("ldmatrix", at);
  for (int i = 0; i < 4; ++i) r[i] = load_shared<u32>(rows.of(8 * i + lane() / 4) + u32(lane() % 4) * 4);
}
/// The same of the transposed matrices: (2 t, g) and (2 t + 1, g) of what lies in memory.
inline void ldmatrix4_transposed(u32 (&r)[4], u32 at) {
  kn_sim->shared(at, 16, kn_sim_read);
  const auto rows = meet("ldmatrix.trans", at);
  for (int i = 0; i < 4; ++i) {
    u32 half[2];
    for (int h = 0; h < 2; ++h)
      half[h] = load_shared<u16>(rows.of(8 * i + lane() % 4 * 2 + h) + u32(lane() / 4) * 2);
    r[i] = half[0] | half[1] << 16;
  }
}

/// The operands that a lane brings to a product.
struct Operands {
  u32 a[4], b[2];
};
/// Element e (0, 1) of a register that holds a pair.
KN_FN f32 half_bf16(u32 r, int e) { return from_bf16(u16(r >> 16 * e)); }
KN_FN f32 half_f16(u32 r, int e) { return from_f16(u16(r >> 16 * e)); }
/// All that the tensor core looks at.
KN_FN f32 whole_tf32(u32 r, int) { return f32_of(r & ~0x1fffu); }

/// d += a b, summed in f32 in the order of k. A register holds `Pair` neighbours of k. With lane = 4 g + t:
/// a[0..3] are rows g, g + 8, g, g + 8 and pairs t, t, t + 4, t + 4 of k; b[0..1] are pairs t, t + 4 of k in
/// column g; d[0..3] are rows g, g, g + 8, g + 8 and columns 2 t, 2 t + 1, 2 t, 2 t + 1.
template <int Pair, class Part>
inline void product(f32 (&d)[4], const char* word, const u32 (&a)[4], const u32 (&b)[2], Part part) {
  const Operands mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  const auto rows = meet(word, mine);
  const int g = lane() / 4, t = lane() % 4;
  for (int high = 0; high < 2; ++high)
    for (int pair = 0; pair < 4; ++pair)
      for (int e = 0; e < Pair; ++e) {
        const Operands row = rows.of(4 * g + pair);
        for (int i = 0; i < 4; ++i) {
          const Operands column = rows.of(4 * (2 * t + i % 2) + pair);
          d[i] = ::fmaf(part(row.a[i / 2 + 2 * high], e), part(column.b[high], e), d[i]);
        }
      }
}
inline void mma_bf16(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  product<2>(d, "mma.bf16", a, b, half_bf16);
}
inline void mma_f16(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  product<2>(d, "mma.f16", a, b, half_f16);
}
inline void mma_tf32(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  product<1>(d, "mma.tf32", a, b, whole_tf32);
}

}  // namespace device
}  // namespace kn

#define KILN_CUDA_KERNEL(name, threads, buffer_count, dim_count)                                        \
  static void name##_body(void* const* buffers, const kn::i64* dims);                                   \
  extern "C" __attribute__((visibility("default"))) void name(const void* parameters) {                 \
    const auto& p = *static_cast<const kn::device::Parameters<buffer_count, dim_count>*>(parameters);   \
    if (kn::device::runs(p.guard)) name##_body(p.buffers, p.dims);                                      \
  }                                                                                                     \
  static void name##_body([[maybe_unused]] void* const* buffers, [[maybe_unused]] const kn::i64* dims)
#define KILN_CUDA_KERNEL_FEW KILN_CUDA_KERNEL
#define KILN_CUDA_PARTS(name, threads, buffer_count, dim_count)                                          \
  static void name##_body(void* const* buffers, const kn::i64* dims, kn::i64 block_of_part);             \
  extern "C" __attribute__((visibility("default"))) void name(const void* parameters) {                  \
    const auto& p = *static_cast<const kn::device::Parts<buffer_count, dim_count>*>(parameters);         \
    if (!kn::device::runs(p.guard)) return;                                                              \
    const int part = kn::device::part_of(p.first, kn::block());                                          \
    name##_body(p.buffers[part], p.dims[part], kn::block() - p.first[part]);                             \
  }                                                                                                      \
  static void name##_body([[maybe_unused]] void* const* buffers, [[maybe_unused]] const kn::i64* dims,   \
                          [[maybe_unused]] kn::i64 block_of_part)
