// SPDX-License-Identifier: Apache-2.0
#include "ir/base/dtype.h"
#include "runtime/cuda/builtins.h"

namespace kiln {

namespace {

static_assert(static_cast<int>(DType::f16) == 4 && static_cast<int>(DType::bf16) == 5 &&
              static_cast<int>(DType::f32) == 6 && static_cast<int>(DType::f64) == 7);

constexpr const char* kCastSource = R"(#include "kiln_cuda.h"
using namespace kn;

constexpr i64 F16 = 4, BF16 = 5, F32 = 6;  // as DType has them

template <int W> KN_FN Vec<f32, W> read(const void* p, i64 dtype, i64 at) {
  if (dtype == F16) return load<W>((const f16*)p + at);
  if (dtype == BF16) return load<W>((const bf16*)p + at);
  if (dtype == F32) return load<W>((const f32*)p + at);
  return convert<f32>(load<W>((const f64*)p + at));
}
template <int W> KN_FN void write(void* p, i64 dtype, i64 at, Vec<f32, W> x) {
  if (dtype == F16) store<W>((f16*)p + at, x);
  else if (dtype == BF16) store<W>((bf16*)p + at, x);
  else if (dtype == F32) store<W>((f32*)p + at, x);
  else store<W>((f64*)p + at, convert<f64>(x));
}
template <int W> KN_FN void cast(void* const* buffers, const i64* dims, i64 at) {
  Vec<f32, W> x = read<W>(buffers[0], dims[1], at);
  if (dims[3] > 0) {
    const Vec<f32, W> rounded = dims[2] == F16 ? round_to<f16>(x) : round_to<bf16>(x);
    x = rounded / Vec<f32, W>(f32(dims[3]));
  }
  write<W>(buffers[1], dims[2], at, x);
}

KILN_CUDA_KERNEL(kiln_cast, 256, 2, 4) {
  const bool aligned = (((u64)buffers[0] | (u64)buffers[1]) & 15) == 0;
  const i64 whole = aligned ? dims[0] / 4 : 0, step = blocks() * 256, me = block() * 256 + thread();
  for (i64 i = me; i < whole; i += step) cast<4>(buffers, dims, 4 * i);
  for (i64 i = whole * 4 + me; i < dims[0]; i += step) cast<1>(buffers, dims, i);
}
)";

// As those of builtins.cpp.
constexpr const char* kCastPtx = R"(.version 7.0
.target sm_80
.address_size 64
.visible .entry kiln_cast(
  .param .align 8 .b8 kiln_cast_param_0[56]
)
.maxntid 256, 1, 1
{
  .reg .pred %p<24>;
  .reg .b16 %rs<43>;
  .reg .f32 %f<110>;
  .reg .b32 %r<27>;
  .reg .f64 %fd<15>;
  .reg .b64 %rd<81>;
  mov.b64 %rd28, kiln_cast_param_0;
  add.s64 %rd1, %rd28, 48;
  ld.param.u64 %rd2, [kiln_cast_param_0+48];
  setp.eq.s64 %p1, %rd2, 0;
  @%p1 bra $L__BB0_2;
  cvta.to.global.u64 %rd30, %rd2;
  ld.global.u64 %rd31, [%rd30];
  setp.ne.s64 %p2, %rd31, -9223372036854775808;
  @%p2 bra $L__BB0_48;
$L__BB0_2:
  ld.param.u64 %rd33, [%rd1+-40];
  mov.u64 %rd78, 0;
  ld.param.u64 %rd34, [%rd1+-48];
  or.b64 %rd35, %rd33, %rd34;
  and.b64 %rd36, %rd35, 15;
  setp.ne.s64 %p3, %rd36, 0;
  @%p3 bra $L__BB0_4;
  ld.param.u64 %rd37, [%rd1+-32];
  shr.s64 %rd38, %rd37, 63;
  shr.u64 %rd39, %rd38, 62;
  add.s64 %rd40, %rd37, %rd39;
  shr.s64 %rd78, %rd40, 2;
$L__BB0_4:
  mov.u32 %r1, %ctaid.x;
  mul.wide.u32 %rd41, %r1, 256;
  mov.u32 %r2, %tid.x;
  cvt.s64.s32 %rd42, %r2;
  add.s64 %rd79, %rd41, %rd42;
  setp.ge.s64 %p4, %rd79, %rd78;
  @%p4 bra $L__BB0_26;
  ld.param.u64 %rd6, [%rd1+-48];
  ld.param.u64 %rd7, [%rd1+-24];
  ld.param.u64 %rd8, [%rd1+-16];
  ld.param.u64 %rd9, [%rd1+-40];
  ld.param.u64 %rd10, [%rd1+-8];
  cvt.rn.f32.s64 %f1, %rd10;
  mov.u32 %r19, %nctaid.x;
$L__BB0_6:
  cvta.to.global.u64 %rd43, %rd6;
  shl.b64 %rd12, %rd79, 2;
  shl.b64 %rd44, %rd79, 3;
  add.s64 %rd13, %rd43, %rd44;
  setp.eq.s64 %p5, %rd7, 4;
  @%p5 bra $L__BB0_12;
  bra.uni $L__BB0_7;
$L__BB0_12:
  ld.global.v4.u16 {%rs13, %rs14, %rs15, %rs16}, [%rd13];
  cvt.f32.f16 %f98, %rs16;
  cvt.f32.f16 %f97, %rs15;
  cvt.f32.f16 %f96, %rs14;
  cvt.f32.f16 %f95, %rs13;
  bra.uni $L__BB0_13;
$L__BB0_7:
  setp.eq.s64 %p6, %rd7, 5;
  @%p6 bra $L__BB0_11;
  bra.uni $L__BB0_8;
$L__BB0_11:
  ld.global.v4.u16 {%rs1, %rs2, %rs3, %rs4}, [%rd13];
  cvt.u32.u16 %r3, %rs1;
  shl.b32 %r4, %r3, 16;
  cvt.u32.u16 %r5, %rs2;
  shl.b32 %r6, %r5, 16;
  cvt.u32.u16 %r7, %rs3;
  shl.b32 %r8, %r7, 16;
  cvt.u32.u16 %r9, %rs4;
  shl.b32 %r10, %r9, 16;
  mov.b32 %f98, %r10;
  mov.b32 %f97, %r8;
  mov.b32 %f96, %r6;
  mov.b32 %f95, %r4;
  bra.uni $L__BB0_13;
$L__BB0_8:
  setp.eq.s64 %p7, %rd7, 6;
  @%p7 bra $L__BB0_10;
  bra.uni $L__BB0_9;
$L__BB0_10:
  shl.b64 %rd49, %rd12, 2;
  add.s64 %rd50, %rd43, %rd49;
  ld.global.v4.f32 {%f95, %f96, %f97, %f98}, [%rd50];
  bra.uni $L__BB0_13;
$L__BB0_9:
  shl.b64 %rd46, %rd12, 3;
  add.s64 %rd47, %rd43, %rd46;
  ld.global.v2.f64 {%fd1, %fd2}, [%rd47];
  ld.global.v2.f64 {%fd5, %fd6}, [%rd47+16];
  cvt.rn.f32.f64 %f98, %fd6;
  cvt.rn.f32.f64 %f97, %fd5;
  cvt.rn.f32.f64 %f96, %fd2;
  cvt.rn.f32.f64 %f95, %fd1;
$L__BB0_13:
  setp.lt.s64 %p8, %rd10, 1;
  @%p8 bra $L__BB0_18;
  setp.eq.s64 %p9, %rd8, 4;
  @%p9 bra $L__BB0_16;
  bra.uni $L__BB0_15;
$L__BB0_16:
  cvt.rn.f16.f32 %rs21, %f95;
  cvt.rn.f16.f32 %rs23, %f96;
  cvt.rn.f16.f32 %rs25, %f97;
  cvt.rn.f16.f32 %rs27, %f98;
  cvt.f32.f16 %f102, %rs27;
  cvt.f32.f16 %f101, %rs25;
  cvt.f32.f16 %f100, %rs23;
  cvt.f32.f16 %f99, %rs21;
  bra.uni $L__BB0_17;
$L__BB0_15:
  cvt.rn.bf16.f32 %rs17, %f95;
  cvt.u32.u16 %r11, %rs17;
  shl.b32 %r12, %r11, 16;
  cvt.rn.bf16.f32 %rs18, %f96;
  cvt.u32.u16 %r13, %rs18;
  shl.b32 %r14, %r13, 16;
  cvt.rn.bf16.f32 %rs19, %f97;
  cvt.u32.u16 %r15, %rs19;
  shl.b32 %r16, %r15, 16;
  cvt.rn.bf16.f32 %rs20, %f98;
  cvt.u32.u16 %r17, %rs20;
  shl.b32 %r18, %r17, 16;
  mov.b32 %f102, %r18;
  mov.b32 %f101, %r16;
  mov.b32 %f100, %r14;
  mov.b32 %f99, %r12;
$L__BB0_17:
  div.rn.f32 %f95, %f99, %f1;
  div.rn.f32 %f96, %f100, %f1;
  div.rn.f32 %f97, %f101, %f1;
  div.rn.f32 %f98, %f102, %f1;
$L__BB0_18:
  cvta.to.global.u64 %rd51, %rd9;
  shl.b64 %rd52, %rd12, 1;
  add.s64 %rd14, %rd51, %rd52;
  setp.eq.s64 %p10, %rd8, 4;
  @%p10 bra $L__BB0_24;
  bra.uni $L__BB0_19;
$L__BB0_24:
  cvt.rn.f16.f32 %rs36, %f98;
  cvt.rn.f16.f32 %rs35, %f97;
  cvt.rn.f16.f32 %rs34, %f96;
  cvt.rn.f16.f32 %rs33, %f95;
  st.global.v4.u16 [%rd14], {%rs33, %rs34, %rs35, %rs36};
  bra.uni $L__BB0_25;
$L__BB0_19:
  setp.eq.s64 %p11, %rd8, 5;
  @%p11 bra $L__BB0_23;
  bra.uni $L__BB0_20;
$L__BB0_23:
  cvt.rn.bf16.f32 %rs32, %f98;
  cvt.rn.bf16.f32 %rs31, %f97;
  cvt.rn.bf16.f32 %rs30, %f96;
  cvt.rn.bf16.f32 %rs29, %f95;
  st.global.v4.u16 [%rd14], {%rs29, %rs30, %rs31, %rs32};
  bra.uni $L__BB0_25;
$L__BB0_20:
  setp.eq.s64 %p12, %rd8, 6;
  @%p12 bra $L__BB0_22;
  bra.uni $L__BB0_21;
$L__BB0_22:
  shl.b64 %rd57, %rd12, 2;
  add.s64 %rd58, %rd51, %rd57;
  st.global.v4.f32 [%rd58], {%f95, %f96, %f97, %f98};
  bra.uni $L__BB0_25;
$L__BB0_21:
  shl.b64 %rd54, %rd12, 3;
  add.s64 %rd55, %rd51, %rd54;
  cvt.f64.f32 %fd9, %f96;
  cvt.f64.f32 %fd10, %f95;
  st.global.v2.f64 [%rd55], {%fd10, %fd9};
  cvt.f64.f32 %fd11, %f98;
  cvt.f64.f32 %fd12, %f97;
  st.global.v2.f64 [%rd55+16], {%fd12, %fd11};
$L__BB0_25:
  mul.wide.u32 %rd59, %r19, 256;
  add.s64 %rd79, %rd79, %rd59;
  setp.lt.s64 %p13, %rd79, %rd78;
  @%p13 bra $L__BB0_6;
$L__BB0_26:
  shl.b64 %rd60, %rd78, 2;
  add.s64 %rd63, %rd41, %rd42;
  add.s64 %rd80, %rd60, %rd63;
  ld.param.u64 %rd17, [%rd28+16];
  setp.ge.s64 %p14, %rd80, %rd17;
  @%p14 bra $L__BB0_48;
  ld.param.u64 %rd66, [%rd28];
  cvta.to.global.u64 %rd18, %rd66;
  ld.param.u64 %rd19, [%rd28+24];
  ld.param.u64 %rd20, [%rd28+32];
  ld.param.u64 %rd67, [%rd28+8];
  cvta.to.global.u64 %rd21, %rd67;
  ld.param.u64 %rd22, [%rd28+40];
  cvt.rn.f32.s64 %f50, %rd22;
  mov.u32 %r22, %nctaid.x;
  mul.wide.u32 %rd23, %r22, 256;
$L__BB0_28:
  shl.b64 %rd68, %rd80, 1;
  add.s64 %rd25, %rd18, %rd68;
  setp.eq.s64 %p15, %rd19, 4;
  @%p15 bra $L__BB0_34;
  bra.uni $L__BB0_29;
$L__BB0_34:
  ld.global.u16 %rs37, [%rd25];
  cvt.f32.f16 %f107, %rs37;
  bra.uni $L__BB0_35;
$L__BB0_29:
  setp.eq.s64 %p16, %rd19, 5;
  @%p16 bra $L__BB0_33;
  bra.uni $L__BB0_30;
$L__BB0_33:
  ld.global.u16 %r23, [%rd25];
  shl.b32 %r24, %r23, 16;
  mov.b32 %f107, %r24;
  bra.uni $L__BB0_35;
$L__BB0_30:
  setp.eq.s64 %p17, %rd19, 6;
  @%p17 bra $L__BB0_32;
  bra.uni $L__BB0_31;
$L__BB0_32:
  shl.b64 %rd71, %rd80, 2;
  add.s64 %rd72, %rd18, %rd71;
  ld.global.f32 %f107, [%rd72];
  bra.uni $L__BB0_35;
$L__BB0_31:
  shl.b64 %rd69, %rd80, 3;
  add.s64 %rd70, %rd18, %rd69;
  ld.global.f64 %fd13, [%rd70];
  cvt.rn.f32.f64 %f107, %fd13;
$L__BB0_35:
  setp.lt.s64 %p18, %rd22, 1;
  @%p18 bra $L__BB0_40;
  setp.eq.s64 %p19, %rd20, 4;
  @%p19 bra $L__BB0_38;
  bra.uni $L__BB0_37;
$L__BB0_38:
  cvt.rn.f16.f32 %rs39, %f107;
  cvt.f32.f16 %f108, %rs39;
  bra.uni $L__BB0_39;
$L__BB0_37:
  cvt.rn.bf16.f32 %rs38, %f107;
  cvt.u32.u16 %r25, %rs38;
  shl.b32 %r26, %r25, 16;
  mov.b32 %f108, %r26;
$L__BB0_39:
  div.rn.f32 %f107, %f108, %f50;
$L__BB0_40:
  add.s64 %rd26, %rd21, %rd68;
  setp.eq.s64 %p20, %rd20, 4;
  @%p20 bra $L__BB0_46;
  bra.uni $L__BB0_41;
$L__BB0_46:
  cvt.rn.f16.f32 %rs42, %f107;
  st.global.u16 [%rd26], %rs42;
  bra.uni $L__BB0_47;
$L__BB0_41:
  setp.eq.s64 %p21, %rd20, 5;
  @%p21 bra $L__BB0_45;
  bra.uni $L__BB0_42;
$L__BB0_45:
  cvt.rn.bf16.f32 %rs41, %f107;
  st.global.u16 [%rd26], %rs41;
  bra.uni $L__BB0_47;
$L__BB0_42:
  setp.eq.s64 %p22, %rd20, 6;
  @%p22 bra $L__BB0_44;
  bra.uni $L__BB0_43;
$L__BB0_44:
  shl.b64 %rd76, %rd80, 2;
  add.s64 %rd77, %rd21, %rd76;
  st.global.f32 [%rd77], %f107;
  bra.uni $L__BB0_47;
$L__BB0_43:
  shl.b64 %rd74, %rd80, 3;
  add.s64 %rd75, %rd21, %rd74;
  cvt.f64.f32 %fd14, %f107;
  st.global.f64 [%rd75], %fd14;
$L__BB0_47:
  add.s64 %rd80, %rd80, %rd23;
  setp.lt.s64 %p23, %rd80, %rd17;
  @%p23 bra $L__BB0_28;
$L__BB0_48:
  ret;
}
)";

}  // namespace

CudaModule cuda_cast() {
  CudaModule m;
  m.name = "kiln_cast.cu";
  m.source = kCastSource;
  m.cubin = kCastPtx;
  m.kernels = {{"kiln_cast", 256, 2, 4}};
  return m;
}

}  // namespace kiln
