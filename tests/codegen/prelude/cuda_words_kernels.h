// SPDX-License-Identifier: Apache-2.0
// The kernels of cuda_words_test.cpp whose text is fixed: memory, threads, exchanges, copies, tiles, guards.
#pragma once

namespace kiln::testing {

/// Forms of access of `memory_*`: form f reads x and writes y[64 f, 64 f + 64). Widths are 4.
inline constexpr int kForms = 14;

inline constexpr const char* kMemoryKernels = R"(#include "kiln_cuda.h"
using namespace kn;
template <class S> KN_FN void forms(const S* x, S* y) {
  const auto v = load<4>(x);
  const Vec<i64, 4> far = iota<4>(i64(0)) * i64(3) + i64(1);
  const Vec<i32, 4> near = iota<4>(i32(0)) * i32(-2) + i32(9);
  const Mask<4> odd = eq(iota<4>(i32(0)) & i32(1), 1);
  store<4>(y, v);
  store<4>(y + 64, load_n<4>(x, 3));
  store_n<4>(y + 128, 3, v);
  store<4>(y + 192, load_strided<4>(x, 3));
  store<4>(y + 256, load_strided_n<4>(x + 40, -2, 3));
  store_strided<4>(y + 320, 5, v);
  store_strided_n<4>(y + 384, 5, 3, v);
  store<4>(y + 448, gather(x, far));
  store<4>(y + 512, gather_n(x, near, 2));
  store<4>(y + 576, gather_if(x, far, odd));
  scatter_if(y + 640, far, odd, v);
  store<4>(shared<S>(64) + 4, v);
  store<4>(y + 704, load<4>(shared<S>(64) + 4));
  store_n<4>(shared<S>(256) + 1, 3, v);
  store<4>(y + 768, load_n<4>(shared<S>(256) + 1, 3));
  store<8>(y + 832, load<8>(x + 8));
}
#define FORMS(S)                                                              \
  KILN_CUDA_KERNEL(memory_##S, 32, 2, 0) {                                    \
    if (thread() == 0) forms((const S*)buffers[0], (S*)buffers[1]);           \
  }
FORMS(f32) FORMS(f64) FORMS(i32) FORMS(i64) FORMS(u8) FORMS(bf16) FORMS(f16) FORMS(b8)

KILN_CUDA_KERNEL(narrow, 128, 6, 1) {
  for (i64 i = thread() * 4; i < dims[0]; i += 512) {
    const auto x = load<4>((const f32*)buffers[0] + i);
    store<4>((bf16*)buffers[1] + i, x), store<4>((f16*)buffers[2] + i, x);
    store<4>((f32*)buffers[4] + i, round_to<bf16>(x)), store<4>((f32*)buffers[5] + i, round_to<f16>(x));
    for (int k = 0; k < 4; ++k) {
      const u32 low = pack_bf16(x.at[k], x.at[3 - k]), high = pack_f16(x.at[k], x.at[3 - k]);
      i32* y = (i32*)buffers[3] + 2 * (i + k);
      store<1>(y, i32(low)), store<1>(y + 1, i32(high));
    }
  }
}
KILN_CUDA_KERNEL(wide, 128, 3, 1) {
  for (i64 i = thread() * 4; i < dims[0]; i += 512) {
    store<4>((f32*)buffers[1] + i, load<4>((const bf16*)buffers[0] + i));
    store<4>((f32*)buffers[2] + i, load<4>((const f16*)buffers[0] + i));
  }
}
KILN_CUDA_KERNEL(to_tf32, 32, 2, 1) {
  const i32 t = thread();
  if (t < dims[0]) store<1>((i32*)buffers[1] + t, i32(tf32(load<1>((const f32*)buffers[0] + t))));
}
KILN_CUDA_KERNEL(random, 128, 3, 3) {  // at width 4, and at width 2, which shares no block of the counter
  const i64 i = dims[2] + (block() * 128 + thread()) * 4, k = i - dims[2];
  store<4>((i32*)buffers[0] + k, convert<i32>(philox_bits(dims[0], dims[1], iota<4>(i))));
  store<2>((f32*)buffers[1] + k, philox_uniform(dims[0], dims[1], iota<2>(i)));
  store<2>((f32*)buffers[1] + k + 2, random_uniform(dims[0], dims[1], iota<2>(i + 2)));
  const auto others = philox_bits(broadcast<4>(dims[0]), iota<4>(dims[1]), iota<4>(i));
  store<4>((i32*)buffers[2] + k, convert<i32>(others));
}
KILN_CUDA_KERNEL(guarded, 32, 1, 0) { store<1>((i32*)buffers[0] + thread(), 7); }
KILN_CUDA_KERNEL_FEW(guarded_few, 32, 1, 0) { store<1>((i32*)buffers[0] + thread(), 7); }
KILN_CUDA_PARTS(parts, 32, 2, 1) {
  const i64 i = block_of_part * 32 + thread();
  const i32* x = (const i32*)buffers[0];
  if (i < dims[0]) store<1>((i32*)buffers[1] + i, load<1>(x + i) + i32(block_of_part) * 1000);
}

template <class Running, class R> KN_FN void line(const f32* x, void* y) {  // of all up to this thread's
  Running all;
  for (i32 i = 0; i <= thread(); ++i) {
    const f32 next = load<1>(x + i);
    all = i % 2 ? step(all, next, i64(i)) : then(all, start(all, next, i64(i)));
  }
  store<1>((R*)y + thread(), R(result(all)));
}
KILN_CUDA_KERNEL(lines, 32, 7, 0) {
  const f32* x = (const f32*)buffers[0];
  line<RunningSum<f32>, f32>(x, buffers[1]), line<RunningProduct<f32>, f32>(x, buffers[2]);
  line<RunningLogSumExp<f32>, f32>(x, buffers[3]);
  line<RunningMax<f32>, i64>(x, buffers[4]), line<RunningMin<f32>, i64>(x, buffers[5]);
  const f32 a = load<1>(x + thread()), b = load<1>(x + (31 - thread()));
  store<1>((i32*)buffers[6] + thread(), i32(before<false>(a, b)) + 2 * i32(before<true>(a, b)));
}
)";

/// 96 threads: three warps. Every result has 96 elements for each of the blocks.
inline constexpr const char* kBlockKernels = R"(#include "kiln_cuda.h"
using namespace kn;
KILN_CUDA_KERNEL(who, 96, 1, 0) {
  i64* y = (i64*)buffers[0] + (block() * 96 + thread()) * 6;
  store<1>(y, i64(thread())), store<1>(y + 1, i64(threads())), store<1>(y + 2, i64(lane()));
  store<1>(y + 3, i64(warp())), store<1>(y + 4, block()), store<1>(y + 5, blocks());
}
KILN_CUDA_KERNEL(meet, 96, 2, 0) {  // the block turned round, 40 times; then each warp
  const Shared<i32> room = shared<i32>(0);
  i32 x = thread() * 3 + i32(block());
  for (int i = 0; i < 40; ++i) {
    store<1>(room + thread(), x);
    barrier();
    x = load<1>(room + (95 - thread())) + i;
    barrier();
  }
  store<1>((i32*)buffers[0] + block() * 96 + thread(), x);
  for (int i = 0; i < 40; ++i) {
    store<1>(room + thread(), x);
    warp_barrier();
    x = load<1>(room + (warp() * 32 + 31 - lane())) + i;
    warp_barrier();
  }
  store<1>((i32*)buffers[1] + block() * 96 + thread(), x);
}
KILN_CUDA_KERNEL(exchange, 96, 3, 0) {
  const i32 t = thread();
  i64* y = (i64*)buffers[0] + t * 8;
  store<1>(y, i64(shuffle_xor(t, 5)));
  store<1>(y + 1, shuffle(i64(t) << 33, lane() + 7));
  store<1>(y + 2, i64(shuffle_xor(u8(t), 16)));
  store<1>(y + 3, i64(shuffle(f64(t) + 0.25, 40) * 4));
  const Mask<4> m = eq(iota<4>(i32(0)), t & 3);
  store<4>((u8*)buffers[1] + t * 8, convert<u8>(shuffle_xor(m, 1)));
  store<4>((u8*)buffers[1] + t * 8 + 4, shuffle(convert<u8>(iota<4>(t)), lane() + 1));
  store<4>((f32*)buffers[2] + t * 4, shuffle_xor(convert<f32>(iota<4>(t * 4)), 31));
  Mask<1> one = lt(lane(), 3);
  store<1>(y + 4, i64(any(shuffle(one, lane() + 1))));
  store<1>(y + 5, count(m)), store<1>(y + 6, i64(any(m)) + 2 * i64(all(m)));
  store<1>(y + 7, i64(all(first<4>(t))) + 2 * count(first<4>(t)));
}
KILN_CUDA_KERNEL(fold, 96, 4, 0) {  // does not commute, so the order is seen
  const auto minus = [](f32 p, f32 q) KN_LAMBDA { return p - 2.0f * q; };
  const auto sum = [](f64 p, f64 q) KN_LAMBDA { return p + q; };
  const auto whole_sum = [](i64 p, i64 q) KN_LAMBDA { return add(p, q); };
  const f32 x = load<1>((const f32*)buffers[0] + thread());
  store<1>((f32*)buffers[1] + thread(), warp_reduce(x, minus));
  store<1>((f32*)buffers[2] + thread(), block_reduce<96>(x, minus, shared<f32>(0)));
  const f64 d = block_reduce<96>(f64(thread()) / 8, sum, shared<f64>(64));
  const i64 n = block_reduce<96>(i64(thread()) << 33, whole_sum, shared<i64>(64));
  store<1>((i64*)buffers[3] + thread() * 2, i64(d * 8)), store<1>((i64*)buffers[3] + thread() * 2 + 1, n);
}
struct Affine {
  i64 m, c;
};
KILN_CUDA_KERNEL(scans, 96, 2, 0) {  // maps x -> m x + c, composed: the order counts
  const auto f = [](Affine a, Affine b) KN_LAMBDA { return Affine{a.m * b.m, a.c * b.m + b.c}; };
  const i32 t = thread();
  const Affine x = {t % 6 == 1 ? 2 : 1, t}, in_warp = warp_scan(x, f);
  i64 *p = (i64*)buffers[0] + 2 * t, *q = (i64*)buffers[1] + 2 * t;
  store<1>(p, in_warp.m), store<1>(p + 1, in_warp.c);
  Affine carry = {3, 5};
  for (int i = 0; i < 2; ++i, q += 2 * 96) {
    const Affine y = block_scan<96>(x, carry, f, shared<Affine>(64));
    store<1>(q, y.m), store<1>(q + 1, y.c);
  }
}
template <int Bytes> KN_FN void copies(const f32* x, f32* y, f32* z, i64 valid) {
  constexpr int N = Bytes / 4;
  const Shared<f32> one = shared<f32>(0) + thread() * N, two = one + 32 * N;
  copy_async<Bytes>(one, x + thread() * N, thread() < valid);
  async_commit();
  copy_async<Bytes>(two, x + (32 + thread()) * N, true);
  async_commit();
  async_wait<1>();
  store<N>(y + thread() * N, load<N>(one));
  async_wait<0>();
  barrier();
  store<N>(z + thread() * N, load<N>(shared<f32>(0) + (63 - thread()) * N));
}
#define COPIES(n)                                                                                 \
  KILN_CUDA_KERNEL(copies_##n, 32, 3, 1) {                                                        \
    copies<n>((const f32*)buffers[0], (f32*)buffers[1], (f32*)buffers[2], dims[0]);               \
  }
COPIES(4) COPIES(8) COPIES(16)

template <class S, bool Turned> KN_FN void tiles(i32* y) {  // rows are 48 bytes apart
  const Shared<S> row = shared<S>(64) + lane() * 24;
  for (int i = 0; i < 8; ++i) store<1>(row + i, f32(lane() * 8 + i));
  barrier();
  u32 r[4];
  if constexpr (Turned) ldmatrix4_transposed(r, row);
  else ldmatrix4(r, row);
  for (int i = 0; i < 4; ++i) store<1>(y + lane() * 4 + i, i32(r[i]));
}
KILN_CUDA_KERNEL(tiles_plain, 32, 1, 0) { tiles<bf16, false>((i32*)buffers[0]); }
KILN_CUDA_KERNEL(tiles_turned, 32, 1, 0) { tiles<f16, true>((i32*)buffers[0]); }
// d += a b: 6 registers of operands and 4 sums for each lane.
#define PRODUCT(word)                                                                            \
  KILN_CUDA_KERNEL(k_##word, 32, 2, 0) {                                                         \
    const i32* x = (const i32*)buffers[0] + thread() * 6;                                        \
    f32* y = (f32*)buffers[1] + thread() * 4;                                                    \
    u32 a[4], b[2];                                                                              \
    f32 d[4];                                                                                    \
    for (int i = 0; i < 4; ++i) a[i] = u32(load<1>(x + i)), d[i] = load<1>(y + i);               \
    for (int i = 0; i < 2; ++i) b[i] = u32(load<1>(x + 4 + i));                                  \
    word(d, a, b);                                                                               \
    for (int i = 0; i < 4; ++i) store<1>(y + i, d[i]);                                           \
  }
PRODUCT(mma_bf16) PRODUCT(mma_f16) PRODUCT(mma_tf32)
)";

}  // namespace kiln::testing
