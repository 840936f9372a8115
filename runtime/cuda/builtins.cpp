// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/builtins.h"

namespace kiln {

namespace {

constexpr const char* kSource = R"(#include "kiln_cuda.h"
using namespace kn;

KILN_CUDA_KERNEL(kiln_all_hold, 1, 16, 1) {  // the result may be its guard: nobody else may look
  constexpr i64 kNothingWrong = -9223372036854775807ll - 1;
  i64 first = kNothingWrong;
  for (i64 i = dims[0]; i > 0; --i) {
    const i64 guard = load<1>((const i64*)buffers[i]);
    if (guard != kNothingWrong) first = guard;
  }
  store<1>((i64*)buffers[0], first);
}

KILN_CUDA_KERNEL(kiln_copy, 256, 2, 1) {
  const i64 whole = dims[0] / 16, step = blocks() * 256, me = block() * 256 + thread();
  for (i64 i = me; i < whole; i += step)
    store<4>((i32*)buffers[1] + 4 * i, load<4>((const i32*)buffers[0] + 4 * i));
  for (i64 i = whole * 16 + me; i < dims[0]; i += step)
    store<1>((u8*)buffers[1] + i, load<1>((const u8*)buffers[0] + i));
}

KILN_CUDA_KERNEL(kiln_fill_zero, 256, 1, 1) {
  const i64 whole = dims[0] / 16, step = blocks() * 256, me = block() * 256 + thread();
  for (i64 i = me; i < whole; i += step) store<4>((i32*)buffers[0] + 4 * i, broadcast<4>(i32(0)));
  for (i64 i = whole * 16 + me; i < dims[0]; i += step) store<1>((u8*)buffers[0] + i, u8(0));
}
)";

// The same for every device, made from that by the toolkit's compiler. The driver translates it when it is
// loaded: the runtime has no compiler, and these kernels are small.
constexpr const char* kPtx = R"(.version 7.0
.target sm_80
.address_size 64
.visible .entry kiln_all_hold(
  .param .align 8 .b8 kiln_all_hold_param_0[144]
)
.maxntid 1, 1, 1
{
  .reg .pred  %p<11>;
  .reg .b64   %rd<29>;
  mov.b64   %rd14, kiln_all_hold_param_0;
  add.s64   %rd2, %rd14, 136;
  ld.param.u64  %rd3, [kiln_all_hold_param_0+136];
  setp.eq.s64   %p4, %rd3, 0;
  mov.pred  %p10, 0;
  @%p4 bra  $L__BB0_2;
  cvta.to.global.u64  %rd15, %rd3;
  ld.global.u64   %rd16, [%rd15];
  setp.ne.s64   %p10, %rd16, -9223372036854775808;
$L__BB0_2:
  @%p10 bra   $L__BB0_7;
  ld.param.u64  %rd4, [%rd2+-8];
  setp.lt.s64   %p7, %rd4, 1;
  mov.u64   %rd28, -9223372036854775808;
  @%p7 bra  $L__BB0_6;
  shl.b64   %rd19, %rd4, 3;
  add.s64   %rd26, %rd14, %rd19;
  add.s64   %rd25, %rd4, 1;
  mov.u64   %rd28, -9223372036854775808;
$L__BB0_5:
  .pragma "nounroll";
  ld.param.u64  %rd20, [%rd26];
  cvta.to.global.u64  %rd21, %rd20;
  ld.global.u64   %rd22, [%rd21];
  setp.eq.s64   %p8, %rd22, -9223372036854775808;
  selp.b64  %rd28, %rd28, %rd22, %p8;
  add.s64   %rd26, %rd26, -8;
  add.s64   %rd25, %rd25, -1;
  setp.gt.s64   %p9, %rd25, 1;
  @%p9 bra  $L__BB0_5;
$L__BB0_6:
  ld.param.u64  %rd23, [%rd2+-136];
  cvta.to.global.u64  %rd24, %rd23;
  st.global.u64   [%rd24], %rd28;
$L__BB0_7:
  ret;
}
.visible .entry kiln_copy(
  .param .align 8 .b8 kiln_copy_param_0[32]
)
.maxntid 256, 1, 1
{
  .reg .pred  %p<7>;
  .reg .b16   %rs<2>;
  .reg .b32   %r<12>;
  .reg .b64   %rd<46>;
  mov.b64   %rd22, kiln_copy_param_0;
  add.s64   %rd1, %rd22, 24;
  ld.param.u64  %rd2, [kiln_copy_param_0+24];
  setp.eq.s64   %p1, %rd2, 0;
  @%p1 bra  $L__BB1_2;
  cvta.to.global.u64  %rd24, %rd2;
  ld.global.u64   %rd25, [%rd24];
  setp.ne.s64   %p2, %rd25, -9223372036854775808;
  @%p2 bra  $L__BB1_8;
$L__BB1_2:
  ld.param.u64  %rd26, [%rd1+-8];
  shr.s64   %rd27, %rd26, 63;
  shr.u64   %rd28, %rd27, 60;
  add.s64   %rd29, %rd26, %rd28;
  shr.s64   %rd3, %rd29, 4;
  mov.u32   %r1, %nctaid.x;
  cvt.u64.u32   %rd4, %r1;
  mul.wide.u32  %rd5, %r1, 256;
  mov.u32   %r2, %ctaid.x;
  mul.wide.u32  %rd30, %r2, 256;
  mov.u32   %r3, %tid.x;
  cvt.u64.u32   %rd31, %r3;
  add.s64   %rd6, %rd30, %rd31;
  setp.ge.s64   %p3, %rd6, %rd3;
  @%p3 bra  $L__BB1_5;
  ld.param.u64  %rd32, [%rd1+-16];
  cvta.to.global.u64  %rd33, %rd32;
  ld.param.u64  %rd34, [%rd1+-24];
  cvta.to.global.u64  %rd35, %rd34;
  shl.b64   %rd36, %rd6, 4;
  add.s64   %rd43, %rd35, %rd36;
  shl.b64   %rd8, %rd4, 12;
  add.s64   %rd42, %rd33, %rd36;
  mov.u64   %rd44, %rd6;
$L__BB1_4:
  .pragma "nounroll";
  ld.global.v4.u32  {%r4, %r5, %r6, %r7}, [%rd43];
  st.global.v4.u32  [%rd42], {%r4, %r5, %r6, %r7};
  add.s64   %rd43, %rd43, %rd8;
  add.s64   %rd42, %rd42, %rd8;
  add.s64   %rd44, %rd44, %rd5;
  setp.lt.s64   %p4, %rd44, %rd3;
  @%p4 bra  $L__BB1_4;
$L__BB1_5:
  shl.b64   %rd37, %rd3, 4;
  add.s64   %rd45, %rd37, %rd6;
  ld.param.u64  %rd17, [%rd1+-8];
  setp.ge.s64   %p5, %rd45, %rd17;
  @%p5 bra  $L__BB1_8;
  ld.param.u64  %rd38, [%rd1+-24];
  cvta.to.global.u64  %rd18, %rd38;
  ld.param.u64  %rd39, [%rd1+-16];
  cvta.to.global.u64  %rd19, %rd39;
$L__BB1_7:
  .pragma "nounroll";
  add.s64   %rd40, %rd18, %rd45;
  ld.global.u8  %rs1, [%rd40];
  add.s64   %rd41, %rd19, %rd45;
  st.global.u8  [%rd41], %rs1;
  add.s64   %rd45, %rd45, %rd5;
  setp.lt.s64   %p6, %rd45, %rd17;
  @%p6 bra  $L__BB1_7;
$L__BB1_8:
  ret;
}
.visible .entry kiln_fill_zero(
  .param .align 8 .b8 kiln_fill_zero_param_0[24]
)
.maxntid 256, 1, 1
{
  .reg .pred  %p<7>;
  .reg .b16   %rs<2>;
  .reg .b32   %r<5>;
  .reg .b64   %rd<37>;
  mov.b64   %rd18, kiln_fill_zero_param_0;
  add.s64   %rd1, %rd18, 16;
  ld.param.u64  %rd2, [kiln_fill_zero_param_0+16];
  setp.eq.s64   %p1, %rd2, 0;
  @%p1 bra  $L__BB2_2;
  cvta.to.global.u64  %rd20, %rd2;
  ld.global.u64   %rd21, [%rd20];
  setp.ne.s64   %p2, %rd21, -9223372036854775808;
  @%p2 bra  $L__BB2_8;
$L__BB2_2:
  ld.param.u64  %rd22, [%rd1+-8];
  shr.s64   %rd23, %rd22, 63;
  shr.u64   %rd24, %rd23, 60;
  add.s64   %rd25, %rd22, %rd24;
  shr.s64   %rd3, %rd25, 4;
  mov.u32   %r1, %nctaid.x;
  cvt.u64.u32   %rd4, %r1;
  mul.wide.u32  %rd5, %r1, 256;
  mov.u32   %r2, %ctaid.x;
  mul.wide.u32  %rd26, %r2, 256;
  mov.u32   %r3, %tid.x;
  cvt.u64.u32   %rd27, %r3;
  add.s64   %rd6, %rd26, %rd27;
  setp.ge.s64   %p3, %rd6, %rd3;
  @%p3 bra  $L__BB2_5;
  ld.param.u64  %rd28, [%rd1+-16];
  cvta.to.global.u64  %rd29, %rd28;
  shl.b64   %rd30, %rd6, 4;
  add.s64   %rd34, %rd29, %rd30;
  shl.b64   %rd8, %rd4, 12;
  mov.u64   %rd35, %rd6;
$L__BB2_4:
  .pragma "nounroll";
  mov.u32   %r4, 0;
  st.global.v4.u32  [%rd34], {%r4, %r4, %r4, %r4};
  add.s64   %rd34, %rd34, %rd8;
  add.s64   %rd35, %rd35, %rd5;
  setp.lt.s64   %p4, %rd35, %rd3;
  @%p4 bra  $L__BB2_4;
$L__BB2_5:
  shl.b64   %rd31, %rd3, 4;
  add.s64   %rd36, %rd31, %rd6;
  ld.param.u64  %rd14, [%rd1+-8];
  setp.ge.s64   %p5, %rd36, %rd14;
  @%p5 bra  $L__BB2_8;
  ld.param.u64  %rd32, [%rd1+-16];
  cvta.to.global.u64  %rd15, %rd32;
$L__BB2_7:
  .pragma "nounroll";
  add.s64   %rd33, %rd15, %rd36;
  mov.u16   %rs1, 0;
  st.global.u8  [%rd33], %rs1;
  add.s64   %rd36, %rd36, %rd5;
  setp.lt.s64   %p6, %rd36, %rd14;
  @%p6 bra  $L__BB2_7;
$L__BB2_8:
  ret;
}
)";

}  // namespace

CudaModule cuda_builtins() {
  CudaModule m;
  m.name = "kiln_builtins.cu";
  m.source = kSource;
  m.cubin = kPtx;
  m.kernels = {
      {"kiln_all_hold", 1, kMostGuards + 1, 1}, {"kiln_copy", 256, 2, 1}, {"kiln_fill_zero", 256, 1, 1}};
  return m;
}

}  // namespace kiln
