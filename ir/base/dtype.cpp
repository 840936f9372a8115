// SPDX-License-Identifier: Apache-2.0
#include "ir/base/dtype.h"

#include "ir/base/error.h"

namespace kiln {

namespace {
constexpr std::string_view kNames[kDTypeCount] = {"bool", "u8", "i32", "i64", "f16", "bf16", "f32", "f64"};
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

}  // namespace kiln
