// SPDX-License-Identifier: Apache-2.0
#include "frontend/stored_type.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace kiln {
namespace KILN_FILE {

template <typename From, typename To>
std::vector<To> read(const StoredType& type, std::vector<From> from, bool swapped = false) {
  std::vector<To> out(from.size());
  EXPECT_EQ(type.size, sizeof(From));
  EXPECT_EQ(type.read(reinterpret_cast<const std::byte*>(from.data()), from.size(), swapped, out.data()),
            from.size());
  return out;
}

TEST(StoredType, NamesOfBothFormats) {
  EXPECT_EQ(stored_type("U16"), stored_type('u', 2));
  EXPECT_EQ(stored_type('u', 2)->dtype, DType::i32);
  EXPECT_EQ(stored_type("BF16")->dtype, DType::bf16);
  EXPECT_EQ(stored_type("F8_E4M3"), nullptr);
  EXPECT_EQ(stored_type('c', 8), nullptr);
  EXPECT_EQ(stored_type('f', 16), nullptr);
  EXPECT_EQ(stored_type('\0', 2), nullptr);
  EXPECT_EQ(stored_type_names(), "BF16 BOOL F16 F32 F64 I8 I16 I32 I64 U8 U16 U32 U64");
}

TEST(StoredType, ElementsAreWidened) {
  EXPECT_EQ((read<int8_t, int32_t>(*stored_type("I8"), {-128, 127})), (std::vector{-128, 127}));
  EXPECT_EQ((read<uint16_t, int32_t>(*stored_type("U16"), {65535})), (std::vector{65535}));
  EXPECT_EQ((read<uint32_t, int64_t>(*stored_type("U32"), {4294967295u})),
            (std::vector<int64_t>{4294967295}));
  EXPECT_EQ((read<double, double>(*stored_type("F64"), {-0.5, 1e300})), (std::vector{-0.5, 1e300}));
  const uint8_t bytes[] = {0, 1, 7};
  bool out[3];
  stored_type("BOOL")->read(reinterpret_cast<const std::byte*>(bytes), 3, false, out);
  EXPECT_TRUE(!out[0] && out[1] && out[2]);
}

TEST(StoredType, BytesInTheOtherOrder) {
  EXPECT_EQ((read<uint16_t, int32_t>(*stored_type("U16"), {0x0102}, true)), (std::vector{0x0201}));
  EXPECT_EQ((read<int16_t, int32_t>(*stored_type("I16"), {0x00ff}, true)), (std::vector{-256}));
  EXPECT_EQ((read<uint32_t, uint32_t>(*stored_type("F32"), {0x0000803f}, true)),
            (std::vector<uint32_t>{0x3f800000}));
  EXPECT_EQ((read<uint64_t, int64_t>(*stored_type("U64"), {uint64_t{1} << 56}, true)),
            (std::vector<int64_t>{1}));
}

TEST(StoredType, WhatDoesNotFitIsNamed) {
  const uint64_t values[] = {1, uint64_t{1} << 63, 2};
  int64_t out[3];
  EXPECT_EQ(stored_type("U64")->read(reinterpret_cast<const std::byte*>(values), 3, false, out), 1u);
}

}  // namespace KILN_FILE
}  // namespace kiln
