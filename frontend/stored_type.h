// SPDX-License-Identifier: Apache-2.0
// The element types of array files, among them integers that tensors have not, and reading their elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ir/base/dtype.h"

namespace kiln {

/// An element type of files, and the dtype as which its elements are read: that itself, or the least that
/// holds all its values (64 bits for u64, which must do).
struct StoredType {
  std::string_view name;  ///< "U16", as safetensors says
  char kind;              ///< numpy's: 'b', 'i', 'u', 'f'; 0: it has none
  size_t size;            ///< bytes of an element
  DType dtype;
  bool same;  ///< the elements of a tensor of `dtype` are those of the file
  /// Copies `count` elements to `out`, of `dtype`; with `swapped` their bytes are in the other order.
  /// Returns the place of the first element that does not fit (a u64 beyond i64), or `count`.
  size_t (*read)(const std::byte* from, size_t count, bool swapped, void* out);
};

/// The type that safetensors calls `name`, or null.
const StoredType* stored_type(std::string_view name);
/// The type that numpy calls `kind` and `size`, as in "<f4", or null.
const StoredType* stored_type(char kind, size_t size);
/// Names of all types: "BF16 BOOL F16 ...".
std::string stored_type_names();

}  // namespace kiln
