// SPDX-License-Identifier: Apache-2.0
// Writing a file so that a crash, a full disk or a reader at the wrong moment never sees half of it.
// Must not know any file format.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kiln {

/// A file being replaced: bytes go to a temporary of its own in the same folder, ".name.0.tmp" or the next
/// number; commit() syncs and renames it over the target. Without commit() the temporary is removed and the
/// target untouched. A process that is killed leaves its temporary, which goes when the same file is written
/// the next time: the kernel knows whose writer lives, also in another container or, over NFS, machine.
class AtomicFile {
 public:
  /// Throws: io, if the folder is missing or not writable, or the target is not a regular file.
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends bytes. Throws: io (full disk, size limit).
  void write(const void* bytes, size_t size);
  /// Makes the new content the target's, durably: fsync, rename, fsync of the folder. Throws: io.
  void commit();

 private:
  bool try_create(const std::string& path);
  [[noreturn]] void fail(const char* what, int error) const;

  std::string target_;
  std::string temporary_;
  int fd_ = -1;
};

/// AtomicFile in one call. Throws: io.
void write_file_atomically(const std::string& path, std::string_view bytes);

}  // namespace kiln
