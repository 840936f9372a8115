// SPDX-License-Identifier: Apache-2.0
// Element types of kernels of all targets, and the little that their words need to tell types apart. Read by
// clang and NVRTC.
#pragma once

namespace kn {

using i8 = signed char;
using u8 = unsigned char;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long;
using u64 = unsigned long;
using f32 = float;
using f64 = double;

/// Storage-only element types: loads give float (bf16, f16) or a mask (b8), stores round to nearest even.
struct bf16 { u16 bits; };
struct f16 { u16 bits; };
struct b8 { u8 byte; };

namespace detail {
template <class A, class B> inline constexpr bool same = false;
template <class A> inline constexpr bool same<A, A> = true;
template <class T> struct Ident { using type = T; };
template <bool kFirst, class A, class B> struct Choice { using type = A; };
template <class A, class B> struct Choice<false, A, B> { using type = B; };
}  // namespace detail

/// A parameter that takes no part in deduction, so that constants convert: max(x, 0.0f).
template <class T> using Same = typename detail::Ident<T>::type;

}  // namespace kn
