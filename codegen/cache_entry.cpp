// SPDX-License-Identifier: Apache-2.0
// Layout of an entry: Header, key text, payload. The checksum covers all of it, its own field as zero.
#include "codegen/cache_entry.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "ir/base/error.h"
#include "ir/base/hash.h"

namespace kiln {

namespace {

constexpr char kMagic[8] = {'K', 'I', 'L', 'N', 'E', 'N', 'T', 'R'};
constexpr uint32_t kVersion = 1;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t header_size;
  uint64_t key_size, payload_size;
  uint64_t check_hi, check_lo;
};
static_assert(sizeof(Header) == 48);

Header make_header(size_t key_size, size_t payload_size) {
  Header h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.version = kVersion;
  h.header_size = sizeof h;
  h.key_size = key_size;
  h.payload_size = payload_size;
  return h;
}

// True if these first bytes can begin an entry of `size` bytes.
bool header_fits(const Header& h, uint64_t size) {
  const Header expected = make_header(h.key_size, h.payload_size);
  if (std::memcmp(&h, &expected, offsetof(Header, check_hi)) != 0) return false;
  const uint64_t body = size - sizeof h;
  return h.key_size <= body && h.payload_size == body - h.key_size;
}

struct Fd {
  int fd;
  ~Fd() {
    if (fd >= 0) close(fd);
  }
};

// Whole content of an open file that looks like an entry; else why not, also when it is shorter than it was.
std::string read_all(int fd, std::string& out) {
  struct stat st;
  Header h;
  if (fstat(fd, &st) != 0) return std::strerror(errno);
  if (!S_ISREG(st.st_mode)) return "not a file";
  // First the header alone: no memory is taken on the word of a damaged file.
  if (pread(fd, &h, sizeof h, 0) != sizeof h) return "shorter than a header";
  if (!header_fits(h, static_cast<uint64_t>(st.st_size)))
    return "its header does not fit its size (cut short, or not an entry)";
  out.resize(static_cast<size_t>(st.st_size));
  for (size_t at = 0; at < out.size();) {
    const ssize_t n = pread(fd, out.data() + at, out.size() - at, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::strerror(errno);
    if (n == 0) return "cut short while it was read";
    at += static_cast<size_t>(n);
  }
  return std::memcmp(out.data(), &h, sizeof h) == 0 ? "" : "changed while it was read";
}

// Turns the bytes of an entry whose header fits into its key and payload.
EntryContent decode(std::string bytes) {
  Header h;
  std::memcpy(&h, bytes.data(), sizeof h);
  const Header unchecked = make_header(h.key_size, h.payload_size);
  std::memcpy(bytes.data(), &unchecked, sizeof unchecked);
  if (hash128(bytes) != Hash128{h.check_hi, h.check_lo})
    return {EntryState::damaged, {}, {}, "its checksum differs"};
  EntryContent out{EntryState::good, bytes.substr(sizeof h, h.key_size), {}, {}};
  out.payload = std::move(bytes.erase(0, sizeof h + h.key_size));
  return out;
}

}  // namespace

std::string entry_key(std::string_view kind, std::string_view key) {
  return fmt::format("{}\n{}", kind, key);
}

std::string encode_entry(std::string_view full_key, std::string_view payload) {
  Header h = make_header(full_key.size(), payload.size());
  std::string bytes(reinterpret_cast<const char*>(&h), sizeof h);
  bytes.append(full_key).append(payload);
  const Hash128 check = hash128(bytes);
  h.check_hi = check.hi;
  h.check_lo = check.lo;
  std::memcpy(bytes.data(), &h, sizeof h);
  return bytes;
}

EntryContent read_entry(const std::string& path, bool touch) {
  // Not blocking: whatever stands under the name, a pipe included, must not hang a start.
  const Fd file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) {
    const bool absent = errno == ENOENT || errno == ENOTDIR;
    return {absent ? EntryState::absent : EntryState::damaged, {}, {}, std::strerror(errno)};
  }
  std::string bytes;
  const std::string why = read_all(file.fd, bytes);
  if (!why.empty()) return {EntryState::damaged, {}, {}, why};
  EntryContent out = decode(std::move(bytes));
  // The time of last use; a read-only folder keeps its order of writing.
  if (touch && out.state == EntryState::good) futimens(file.fd, nullptr);
  return out;
}

}  // namespace kiln
