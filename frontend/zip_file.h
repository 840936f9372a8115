// SPDX-License-Identifier: Apache-2.0
// Reading zip archives, stored and deflated, as numpy's .npz are.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "frontend/mapped_file.h"

namespace kiln {

/// Source: APPNOTE.TXT 6.3.10 of PKWARE, with its 64-bit sizes; RFC 1951 by zlib.
class ZipFile {
 public:
  struct Member {
    std::string name;
    uint64_t packed = 0, bytes = 0;  ///< in the archive, and unpacked
    uint32_t crc = 0;
    uint16_t method = 0, flags = 0;
    uint64_t header = 0;  ///< place of the member's own header
  };

  /// Reads the list of members. Throws: io; invalid, if it is no zip archive or damaged.
  explicit ZipFile(const std::string& path);

  const std::vector<Member>& members() const { return members_; }
  /// The content of a member. Throws: invalid, if it is damaged (its checksum is compared); unsupported, if
  /// it is encrypted or packed by another method than deflate.
  std::vector<std::byte> read(const Member& member) const;
  const std::string& path() const { return path_; }

 private:
  uint64_t number(uint64_t at, size_t bytes) const;
  uint64_t find_end() const;
  void read_members();
  Member read_member(uint64_t* at) const;
  std::vector<std::byte> inflate(const Member& member, const std::byte* from) const;

  std::string path_;
  std::shared_ptr<const MappedFile> file_;
  std::vector<Member> members_;
};

}  // namespace kiln
