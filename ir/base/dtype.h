// SPDX-License-Identifier: Apache-2.0
// Element types: their sizes, names, PyTorch's promotion rules, and the two half formats.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace kiln {

/// Element type of a tensor. The order is the promotion order within a category.
enum class DType : uint8_t { boolean, u8, i32, i64, f16, bf16, f32, f64 };
inline constexpr int kDTypeCount = 8;

/// Bytes of one element.
constexpr size_t dtype_size(DType t) {
  constexpr size_t kSize[kDTypeCount] = {1, 1, 4, 8, 2, 2, 4, 8};
  return kSize[static_cast<int>(t)];
}
constexpr bool is_floating(DType t) { return t >= DType::f16; }
constexpr bool is_integer(DType t) { return t == DType::u8 || t == DType::i32 || t == DType::i64; }

/// Short name used in types and errors: "f32", "i64", "bool".
std::string_view dtype_name(DType t);
/// Inverse of dtype_name. Throws: invalid, listing the valid names.
DType parse_dtype(std::string_view name);
/// Result dtype of a binary op over two tensors of the same rank class.
/// Source: torch.promote_types.
DType promote_types(DType a, DType b);

/// IEEE binary16 in storage; arithmetic is done in float.
struct Half {
  uint16_t bits = 0;
  Half() = default;
  explicit Half(float f);  ///< rounds to nearest even, from 65520 on to infinity
  explicit operator float() const;
};
/// bfloat16 in storage (round to nearest even); arithmetic is done in float.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float f);
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

// Every case is computed and one chosen, so that loops over halves become vectors.
inline Half::Half(float f) {
  const uint32_t x = std::bit_cast<uint32_t>(f), mag = x & 0x7fffffffu;
  const uint32_t normal = (mag - 0x38000000u + 0xfffu + ((mag >> 13) & 1u)) >> 13;
  // Next to 0.5 the FPU rounds at 2^-24, the step of subnormal halves.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(mag) + 0.5f) - 0x3f000000u;
  const uint32_t nan = 0x7e00u | ((mag >> 13) & 0x3ffu);
  const uint32_t finite = mag < 0x38800000u ? subnormal : normal;
  const uint32_t limited = mag >= 0x477ff000u ? 0x7c00u : finite;  // rounds to 65536 or more
  bits = static_cast<uint16_t>(((x >> 16) & 0x8000u) | (mag > 0x7f800000u ? nan : limited));
}

inline Half::operator float() const {
  const uint32_t mag = uint32_t{bits & 0x7fffu} << 13;
  const uint32_t normal = mag + 0x38000000u, special = mag + 0x70000000u;  // infinity and NaN
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(mag + 0x38800000u) - std::bit_cast<float>(0x38800000u));
  const uint32_t finite = mag < 0x00800000u ? subnormal : normal;
  return std::bit_cast<float>((uint32_t{bits & 0x8000u} << 16) | (mag >= 0x0f800000u ? special : finite));
}

inline BFloat16::BFloat16(float f) {
  const uint32_t x = std::bit_cast<uint32_t>(f);
  const uint32_t rounded = x + 0x7fffu + ((x >> 16) & 1u), quiet = x | 0x400000u;
  bits = static_cast<uint16_t>(((x & 0x7fffffffu) > 0x7f800000u ? quiet : rounded) >> 16);
}

/// C++ type -> DType, for the types a tensor can hold.
template <typename T>
constexpr DType dtype_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, bool>) return DType::boolean;
  else if constexpr (std::is_same_v<U, uint8_t>) return DType::u8;
  else if constexpr (std::is_same_v<U, int32_t>) return DType::i32;
  else if constexpr (std::is_same_v<U, int64_t> || std::is_same_v<U, long long>) return DType::i64;
  else if constexpr (std::is_same_v<U, Half>) return DType::f16;
  else if constexpr (std::is_same_v<U, BFloat16>) return DType::bf16;
  else if constexpr (std::is_same_v<U, float>) return DType::f32;
  else {
    static_assert(std::is_same_v<U, double>, "no tensor dtype for this C++ type");
    return DType::f64;
  }
}

/// Calls f with a value-initialised element of dtype `t`:
/// dispatch(t, [&](auto zero) { using T = decltype(zero); ... }).
template <typename F>
decltype(auto) dispatch(DType t, F&& f) {
  switch (t) {
    case DType::boolean: return f(bool{});
    case DType::u8: return f(uint8_t{});
    case DType::i32: return f(int32_t{});
    case DType::i64: return f(int64_t{});
    case DType::f16: return f(Half{});
    case DType::bf16: return f(BFloat16{});
    case DType::f32: return f(float{});
    default: return f(double{});
  }
}

}  // namespace kiln
