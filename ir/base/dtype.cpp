// SPDX-License-Identifier: Apache-2.0
#include "ir/base/dtype.h"

#include <cmath>

#include "ir/base/error.h"

namespace kiln {

namespace {
constexpr std::string_view kNames[kDTypeCount] = {"bool", "u8",   "i32", "i64",
                                                  "f16",  "bf16", "f32", "f64"};
}  // namespace

std::string_view dtype_name(DType t) { return kNames[static_cast<int>(t)]; }

DType parse_dtype(std::string_view name) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (kNames[i] == name) return static_cast<DType>(i);
  throw Error(ErrorKind::invalid,
              fmt::format("unknown dtype '{}'; expected one of bool u8 i32 i64 f16 bf16 f32 f64", name));
}

DType promote_types(DType a, DType b) {
  if (a == b) return a;
  const bool halves = (a == DType::f16 && b == DType::bf16) || (a == DType::bf16 && b == DType::f16);
  if (halves) return DType::f32;
  return a > b ? a : b;
}

Half::Half(float f) {
  const uint32_t x = std::bit_cast<uint32_t>(f);
  const uint32_t sign = (x >> 16) & 0x8000u;
  const uint32_t mag = x & 0x7fffffffu;
  if (mag > 0x7f800000u) {  // NaN: keep it quiet
    bits = static_cast<uint16_t>(sign | 0x7e00u | ((mag >> 13) & 0x3ffu));
  } else if (mag >= 0x477ff000u) {  // rounds to 65536 or more
    bits = static_cast<uint16_t>(sign | 0x7c00u);
  } else if (mag < 0x38800000u) {  // subnormal half: let the FPU round at 2^-24
    const float scaled = std::bit_cast<float>(mag) * 16777216.0f;
    bits = static_cast<uint16_t>(sign | static_cast<uint32_t>(std::nearbyint(scaled)));
  } else {
    const uint32_t odd = (mag >> 13) & 1u;
    bits = static_cast<uint16_t>(sign | ((mag - 0x38000000u + 0xfffu + odd) >> 13));
  }
}

Half::operator float() const {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exp = (bits >> 10) & 0x1fu;
  const uint32_t man = bits & 0x3ffu;
  if (exp == 31) return std::bit_cast<float>(sign | 0x7f800000u | (man << 13));
  if (exp == 0) {
    const float f = static_cast<float>(man) * 5.9604644775390625e-8f;
    return sign ? -f : f;
  }
  return std::bit_cast<float>(sign | ((exp + 112u) << 23) | (man << 13));
}

BFloat16::BFloat16(float f) {
  const uint32_t x = std::bit_cast<uint32_t>(f);
  if ((x & 0x7fffffffu) > 0x7f800000u) {
    bits = static_cast<uint16_t>((x >> 16) | 0x40u);
  } else {
    bits = static_cast<uint16_t>((x + 0x7fffu + ((x >> 16) & 1u)) >> 16);
  }
}

}  // namespace kiln
