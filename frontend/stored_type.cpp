// SPDX-License-Identifier: Apache-2.0
#include "frontend/stored_type.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace kiln {

namespace {

/// Floating types go as the integers of their bits.
template <typename From, typename To>
size_t convert(const std::byte* from, size_t count, bool swapped, void* out) {
  To* to = static_cast<To*>(out);
  for (size_t i = 0; i < count; ++i, from += sizeof(From)) {
    std::byte bytes[sizeof(From)];
    std::memcpy(bytes, from, sizeof(From));
    if (swapped) std::reverse(std::begin(bytes), std::end(bytes));
    if constexpr (std::is_same_v<To, bool>) {
      to[i] = bytes[0] != std::byte{0};
    } else {
      From value;
      std::memcpy(&value, bytes, sizeof(From));
      if constexpr (std::is_same_v<From, uint64_t>)
        if (value > static_cast<uint64_t>(INT64_MAX)) return i;
      to[i] = static_cast<To>(value);
    }
  }
  return count;
}

constexpr StoredType kTypes[] = {
    {"BF16", 0, 2, DType::bf16, true, convert<uint16_t, uint16_t>},
    {"BOOL", 'b', 1, DType::boolean, true, convert<uint8_t, bool>},
    {"F16", 'f', 2, DType::f16, true, convert<uint16_t, uint16_t>},
    {"F32", 'f', 4, DType::f32, true, convert<uint32_t, uint32_t>},
    {"F64", 'f', 8, DType::f64, true, convert<int64_t, int64_t>},
    {"I8", 'i', 1, DType::i32, false, convert<int8_t, int32_t>},
    {"I16", 'i', 2, DType::i32, false, convert<int16_t, int32_t>},
    {"I32", 'i', 4, DType::i32, true, convert<int32_t, int32_t>},
    {"I64", 'i', 8, DType::i64, true, convert<int64_t, int64_t>},
    {"U8", 'u', 1, DType::u8, true, convert<uint8_t, uint8_t>},
    {"U16", 'u', 2, DType::i32, false, convert<uint16_t, int32_t>},
    {"U32", 'u', 4, DType::i64, false, convert<uint32_t, int64_t>},
    {"U64", 'u', 8, DType::i64, false, convert<uint64_t, int64_t>},
};

}  // namespace

const StoredType* stored_type(std::string_view name) {
  const auto* it =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](auto& t) { return t.name == name; });
  return it != std::end(kTypes) ? it : nullptr;
}

const StoredType* stored_type(char kind, size_t size) {
  if (kind == 0) return nullptr;
  const auto* it = std::find_if(std::begin(kTypes), std::end(kTypes),
                                [&](auto& t) { return t.kind == kind && t.size == size; });
  return it != std::end(kTypes) ? it : nullptr;
}

std::string stored_type_names() {
  std::string out;
  for (const StoredType& t : kTypes) out += (out.empty() ? "" : " ") + std::string(t.name);
  return out;
}

}  // namespace kiln
