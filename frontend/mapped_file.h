// SPDX-License-Identifier: Apache-2.0
// A file as memory. Must not know any file format.
#pragma once

#include <cstddef>
#include <string>

namespace kiln {

/// A file mapped whole: pages are read when they are touched, and copied when they are written, so that the
/// file never changes. It must not be cut while it is mapped.
class MappedFile {
 public:
  /// Throws: io, if `path` is not a regular file that can be read.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::byte* data() const { return data_; }  ///< null for an empty file
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace kiln
