// SPDX-License-Identifier: Apache-2.0
// The safetensors file format: named arrays with a JSON header, and nothing that runs code.
// Works on plain memory; must not know Tensor or Module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/atomic_file.h"  // IWYU pragma: export
#include "ir/base/dtype.h"
#include "ir/base/error.h"  // IWYU pragma: export

namespace kiln {

/// One array to write. `data` holds the row-major elements and is read during the call only.
struct SafetensorsItem {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  const void* data = nullptr;
};

/// A safetensors file mapped for reading. Copies share the mapping.
/// Source: the format description of huggingface/safetensors.
class SafetensorsFile {
 public:
  /// One array of the file; `data` stays valid while a copy of the file object lives.
  struct Entry {
    std::string name;
    DType dtype = DType::f32;  ///< I8, I16 and U16 of a file are read as i32; U32 and U64 as i64
    std::vector<int64_t> shape;
    /// Aligned to the element size. Of the mapping, which is this object's own: a write is seen by no file.
    std::byte* data = nullptr;
    size_t bytes = 0;
  };

  /// Maps and checks the whole header; elements are read when they are touched, so the file must not be cut
  /// while it is open. Throws: io, if the file cannot be opened or read; invalid, if it is not a well-formed
  /// safetensors file (the message says what in it is wrong).
  explicit SafetensorsFile(const std::string& path);

  /// All arrays, sorted by name.
  std::span<const Entry> entries() const;
  /// The array called `name`, or null.
  const Entry* find(std::string_view name) const;
  /// The array called `name`. Throws: invalid, if it is missing or of another dtype or shape.
  const Entry& at(std::string_view name, DType dtype, std::span<const int64_t> shape) const;
  /// The strings of "__metadata__".
  const std::map<std::string, std::string>& metadata() const;
  /// The path given at construction.
  const std::string& path() const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

/// Replaces `path` by a file with these arrays, atomically (see AtomicFile).
/// Arrays are stored by falling element size, then name, so that each is aligned to its elements.
/// Throws: io (nothing is left behind; by a process that is killed, until the next call for `path`); invalid,
/// for two arrays of one name or a bad shape.
void write_safetensors(const std::string& path, std::span<const SafetensorsItem> items,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace kiln
