// SPDX-License-Identifier: Apache-2.0
#include "frontend/zip_file.h"

#include <zlib.h>

#include <algorithm>
#include <limits>

#include "ir/base/error.h"

namespace kiln {

namespace {

constexpr uint64_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kEnd64Locator = 0x07064b50;
constexpr uint64_t kMember = 0x02014b50, kLocal = 0x04034b50;
constexpr uint64_t kEndBytes = 22, kLocatorBytes = 20, kMemberBytes = 46, kLocalBytes = 30;
constexpr uint64_t kMaxComment = 0xffff;
// zlib takes 32-bit counts.
constexpr uint64_t kPiece = uint64_t{1} << 30;
// A deflated byte stands for at most 1032: what says more is damaged, and must not be given memory.
constexpr uint64_t kMaxRatio = 1032;

uint32_t crc_of(const std::byte* data, uint64_t size) {
  uLong crc = crc32(0, nullptr, 0);
  for (uint64_t at = 0; at < size; at += kPiece)
    crc =
        crc32(crc, reinterpret_cast<const Bytef*>(data + at), static_cast<uInt>(std::min(kPiece, size - at)));
  return static_cast<uint32_t>(crc);
}

}  // namespace

ZipFile::ZipFile(const std::string& path) : path_(path), file_(std::make_shared<MappedFile>(path)) {
  read_members();
}

/// A little-endian number. Throws: invalid, outside the file.
uint64_t ZipFile::number(uint64_t at, size_t bytes) const {
  KILN_CHECK(at <= file_->size() && bytes <= file_->size() - at, invalid,
             "zip {}: truncated or damaged; a part at byte {} is beyond the end ({})", path_, at,
             file_->size());
  uint64_t value = 0;
  for (size_t i = bytes; i-- > 0;) value = value << 8 | std::to_integer<uint64_t>(file_->data()[at + i]);
  return value;
}

/// The record at the end; a comment may follow it.
uint64_t ZipFile::find_end() const {
  const uint64_t size = file_->size();
  for (uint64_t comment = 0; comment <= kMaxComment && comment + kEndBytes <= size; ++comment) {
    const uint64_t at = size - kEndBytes - comment;
    if (number(at, 4) == kEnd && number(at + 20, 2) == comment) return at;
  }
  throw Error(ErrorKind::invalid, fmt::format("zip {}: not a zip archive, or truncated; {} bytes without its "
                                              "end record",
                                              path_, size));
}

void ZipFile::read_members() {
  const uint64_t end = find_end();
  uint64_t count = number(end + 10, 2), at = number(end + 16, 4);
  if (end >= kLocatorBytes && number(end - kLocatorBytes, 4) == kEnd64Locator) {
    const uint64_t end64 = number(end - kLocatorBytes + 8, 8);
    KILN_CHECK(number(end64, 4) == kEnd64, invalid, "zip {}: damaged; no 64-bit end record at byte {}", path_,
               end64);
    count = number(end64 + 32, 8);
    at = number(end64 + 48, 8);
  }
  KILN_CHECK(count <= file_->size() / kMemberBytes, invalid, "zip {}: damaged; {} members in {} bytes", path_,
             count, file_->size());
  for (uint64_t i = 0; i < count; ++i) members_.push_back(read_member(&at));
}

ZipFile::Member ZipFile::read_member(uint64_t* at) const {
  const uint64_t head = *at;
  KILN_CHECK(number(head, 4) == kMember, invalid, "zip {}: damaged; no member's entry at byte {}", path_,
             head);
  Member m;
  m.flags = static_cast<uint16_t>(number(head + 8, 2));
  m.method = static_cast<uint16_t>(number(head + 10, 2));
  m.crc = static_cast<uint32_t>(number(head + 16, 4));
  m.packed = number(head + 20, 4);
  m.bytes = number(head + 24, 4);
  m.header = number(head + 42, 4);
  const uint64_t name = number(head + 28, 2), extra = number(head + 30, 2), comment = number(head + 32, 2);
  *at = head + kMemberBytes + name + extra + comment;
  number(*at, 0);
  m.name.assign(reinterpret_cast<const char*>(file_->data()) + head + kMemberBytes, name);
  // Where 32 bits are too few, the extra field 1 has the number, in this order.
  const uint64_t stop = head + kMemberBytes + name + extra;
  for (uint64_t field = stop - extra; field + 4 <= stop; field += 4 + number(field + 2, 2)) {
    if (number(field, 2) != 1) continue;
    uint64_t value = field + 4;
    for (uint64_t* n : {&m.bytes, &m.packed, &m.header}) {
      if (*n != std::numeric_limits<uint32_t>::max()) continue;
      *n = number(value, 8);
      value += 8;
    }
  }
  return m;
}

std::vector<std::byte> ZipFile::inflate(const Member& m, const std::byte* from) const {
  KILN_CHECK(m.bytes / kMaxRatio <= m.packed, invalid, "zip {}: damaged; '{}' has {} bytes for {} unpacked",
             path_, m.name, m.packed, m.bytes);
  std::vector<std::byte> out(m.bytes);
  z_stream z{};
  KILN_CHECK(inflateInit2(&z, -MAX_WBITS) == Z_OK, device, "zip {}: no memory to unpack '{}'", path_, m.name);
  uint64_t taken = 0, made = 0;
  int status = Z_OK;
  while (status == Z_OK) {
    const auto in = static_cast<uInt>(std::min(kPiece, m.packed - taken));
    const auto room = static_cast<uInt>(std::min(kPiece, m.bytes - made));
    z.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(from + taken));
    z.avail_in = in;
    z.next_out = reinterpret_cast<Bytef*>(out.data() + made);
    z.avail_out = room;
    status = ::inflate(&z, Z_NO_FLUSH);
    taken += in - z.avail_in;
    made += room - z.avail_out;
    // Nothing went in or out: the stream wants more than there is.
    if (in == z.avail_in && room == z.avail_out && status == Z_OK) status = Z_BUF_ERROR;
  }
  inflateEnd(&z);
  KILN_CHECK(status == Z_STREAM_END && made == m.bytes && taken == m.packed, invalid,
             "zip {}: '{}' is damaged; {} of {} bytes could be unpacked", path_, m.name, made, m.bytes);
  return out;
}

std::vector<std::byte> ZipFile::read(const Member& m) const {
  KILN_CHECK((m.flags & 1) == 0, unsupported, "zip {}: '{}' is encrypted", path_, m.name);
  KILN_CHECK(m.method == 0 || m.method == 8, unsupported,
             "zip {}: '{}' is packed by method {}; expected 0 (stored) or 8 (deflated)", path_, m.name,
             m.method);
  KILN_CHECK(number(m.header, 4) == kLocal, invalid, "zip {}: damaged; no header of '{}' at byte {}", path_,
             m.name, m.header);
  const uint64_t at = m.header + kLocalBytes + number(m.header + 26, 2) + number(m.header + 28, 2);
  number(at, 0);
  KILN_CHECK(m.packed <= file_->size() - at && (m.method == 8 || m.packed == m.bytes), invalid,
             "zip {}: truncated or damaged; '{}' does not lie within the file", path_, m.name);
  const std::byte* from = file_->data() + at;
  std::vector<std::byte> out =
      m.method == 8 ? inflate(m, from) : std::vector<std::byte>(from, from + m.bytes);
  KILN_CHECK(crc_of(out.data(), out.size()) == m.crc, invalid,
             "zip {}: '{}' is damaged; its checksum is not the one that was stored", path_, m.name);
  return out;
}

}  // namespace kiln
