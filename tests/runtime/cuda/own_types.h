// SPDX-License-Identifier: Apache-2.0
// Types of NVIDIA's headers as Kiln declares them, for tests that compare the two.
#pragma once

#include <type_traits>

namespace kiln::cuda {

// Kiln's type in place of the toolkit's, one level of pointer after the other.
template <typename T>
struct Own {
  using type = std::conditional_t<std::is_enum_v<T>, int, T>;
};
#define KILN_SAME(theirs, ours) \
  template <>                   \
  struct Own<theirs> {          \
    using type = ours;          \
  };
template <typename T>
struct Own<const T> {
  using type = const typename Own<T>::type;
};
template <typename T>
struct Own<T*> {
  using type = typename Own<T>::type*;
};
template <typename R, typename... A>
struct Own<R (*)(A...)> {
  using type = typename Own<R>::type (*)(typename Own<A>::type...);
};

// Numbers may be of another name, never of another size; what is pointed to may be const.
template <typename A, typename B>
struct Alike : std::is_same<A, B> {};
template <typename A, typename B>
requires(std::is_arithmetic_v<A>&& std::is_integral_v<A> == std::is_integral_v<B> &&
         !std::is_same_v<A, B>) struct Alike<A, B> : std::bool_constant<sizeof(A) == sizeof(B)> {
};
template <typename A, typename B>
struct Alike<A*, B*> : Alike<std::remove_const_t<A>, std::remove_const_t<B>> {};
template <typename R, typename... A, typename Q, typename... B>
requires(sizeof...(A) == sizeof...(B)) struct Alike<R (*)(A...), Q (*)(B...)>
    : std::conjunction<Alike<R, Q>, Alike<A, B>...> {
};

}  // namespace kiln::cuda
