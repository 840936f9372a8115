// SPDX-License-Identifier: Apache-2.0
// Layout of an entry: Header, key text, payload. The checksum covers all of it, its own field as zero.
#include "codegen/disk_cache.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <vector>

#include "ir/base/atomic_file.h"
#include "ir/base/error.h"
#include "ir/base/hash.h"
#include "ir/base/log.h"
#include "ir/base/options.h"

namespace kiln {

namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'K', 'I', 'L', 'N', 'E', 'N', 'T', 'R'};
constexpr uint32_t kVersion = 1;
constexpr int64_t kMinute = 60, kDay = 24 * 3600;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t header_size;
  uint64_t key_size, payload_size;
  uint64_t check_hi, check_lo;
};
static_assert(sizeof(Header) == 48);

std::string full_key(std::string_view kind, std::string_view key) { return fmt::format("{}\n{}", kind, key); }

Header make_header(size_t key_size, size_t payload_size) {
  Header h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.version = kVersion;
  h.header_size = sizeof h;
  h.key_size = key_size;
  h.payload_size = payload_size;
  return h;
}

std::string encode(std::string_view key, std::string_view payload) {
  Header h = make_header(key.size(), payload.size());
  std::string bytes(reinterpret_cast<const char*>(&h), sizeof h);
  bytes.append(key).append(payload);
  const Hash128 check = hash128(bytes);
  h.check_hi = check.hi;
  h.check_lo = check.lo;
  std::memcpy(bytes.data(), &h, sizeof h);
  return bytes;
}

enum class Found { entry, absent, other_key, damaged };

// True if these first bytes can begin an entry of `size` bytes.
bool header_fits(const Header& h, uint64_t size) {
  const Header expected = make_header(h.key_size, h.payload_size);
  if (std::memcmp(&h, &expected, offsetof(Header, check_hi)) != 0) return false;
  const uint64_t body = size - sizeof h;
  return h.key_size <= body && h.payload_size == body - h.key_size;
}

// Turns the bytes of an entry whose header fits into its payload.
Found decode(std::string& bytes, std::string_view key) {
  Header h;
  std::memcpy(&h, bytes.data(), sizeof h);
  const Header unchecked = make_header(h.key_size, h.payload_size);
  std::memcpy(bytes.data(), &unchecked, sizeof unchecked);
  if (hash128(bytes) != Hash128{h.check_hi, h.check_lo}) return Found::damaged;
  if (std::string_view(bytes).substr(sizeof h, h.key_size) != key) return Found::other_key;
  bytes.erase(0, sizeof h + h.key_size);
  return Found::entry;
}

struct Fd {
  int fd;
  ~Fd() {
    if (fd >= 0) close(fd);
  }
};

// Whole content of an open file that looks like an entry. False on any error, also when it is shorter than it
// was.
bool read_all(int fd, std::string& out) {
  struct stat st;
  Header h;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return false;
  // First the header alone: no memory is taken on the word of a damaged file.
  if (pread(fd, &h, sizeof h, 0) != sizeof h || !header_fits(h, static_cast<uint64_t>(st.st_size)))
    return false;
  out.resize(static_cast<size_t>(st.st_size));
  for (size_t at = 0; at < out.size();) {
    const ssize_t n = pread(fd, out.data() + at, out.size() - at, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += static_cast<size_t>(n);
  }
  return std::memcmp(out.data(), &h, sizeof h) == 0;
}

Found read_entry(const std::string& path, std::string_view key, std::string& bytes) {
  // Not blocking: whatever stands under the name, a pipe included, must not hang a start.
  const Fd file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return errno == ENOENT || errno == ENOTDIR ? Found::absent : Found::damaged;
  if (!read_all(file.fd, bytes)) return Found::damaged;
  const Found found = decode(bytes, key);
  // The time of last use; a read-only folder keeps its order of writing.
  if (found == Found::entry) futimens(file.fd, nullptr);
  return found;
}

// Code is run from here: folders that Kiln makes are the user's alone.
void make_folders(const fs::path& folder) {
  if (folder.empty() || fs::is_directory(folder)) return;
  make_folders(folder.parent_path());
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw Error(ErrorKind::io, fmt::format("{}: {}", folder.string(), std::strerror(errno)));
}

bool writable_by_all(const std::string& folder) {
  struct stat st;
  return stat(folder.c_str(), &st) == 0 && (st.st_mode & S_IWOTH);
}

std::string default_folder() {
  const std::string chosen = option("KILN_CACHE_DIR");
  if (!chosen.empty()) return chosen;
  const std::string xdg = system_env("XDG_CACHE_HOME");
  if (xdg.starts_with('/')) return xdg + "/kiln";
  const std::string home = system_env("HOME");
  if (!home.empty()) return home + "/.cache/kiln";
  const passwd* user = getpwuid(getuid());
  return fmt::format("{}/.cache/kiln", user ? user->pw_dir : "");
}

struct File {
  std::string path;
  int64_t used = 0, size = 0;
};

bool is_entry_name(std::string_view name) {
  return name.size() == 32 && name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}
bool is_temporary_name(std::string_view name) { return name.starts_with('.') && name.ends_with(".tmp"); }

// Calls f(name, file) for every regular file two levels down. Files that vanish meanwhile are skipped.
template <typename F>
void for_each_file(const std::string& folder, F f) {
  std::error_code ec;
  for (fs::directory_iterator kinds(folder, ec), end; !ec && kinds != end; kinds.increment(ec)) {
    std::error_code inner;
    for (fs::directory_iterator it(kinds->path(), inner); !inner && it != end; it.increment(inner)) {
      struct stat st;
      if (lstat(it->path().c_str(), &st) != 0 || !S_ISREG(st.st_mode)) continue;
      f(it->path().filename().string(), File{it->path().string(), st.st_mtime, st.st_size});
    }
  }
}

// Looks again before it deletes: the entry may have been used or rewritten since the folder was listed.
bool remove_if_older(const std::string& path, int64_t time) {
  struct stat st;
  return lstat(path.c_str(), &st) == 0 && st.st_mtime < time && unlink(path.c_str()) == 0;
}

}  // namespace

DiskCache::DiskCache(std::string folder, int64_t limit_bytes)
    : folder_(std::move(folder)), limit_(limit_bytes) {}

DiskCache::DiskCache() : DiskCache(default_folder(), option_int("KILN_CACHE_LIMIT_MB") << 20) {}

std::string DiskCache::path_of(std::string_view kind, std::string_view key) const {
  KILN_ASSERT(!kind.empty() && kind.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == kind.npos,
              "cache: bad kind '{}'", kind);
  return fmt::format("{}/{}/{}", folder_, kind, hash128(full_key(kind, key)).hex());
}

std::optional<std::string> DiskCache::load(std::string_view kind, std::string_view key) {
  const std::string path = path_of(kind, key);
  std::string bytes;
  Found found = read_entry(path, full_key(kind, key), bytes);
  if (found == Found::entry && writable_by_all(fmt::format("{}/{}", folder_, kind))) {
    complain(fmt::format("cannot be trusted: everybody may write to its folder {} (chmod o-w)", kind));
    found = Found::absent;
  }
  if (found == Found::entry) {
    ++hits_;
    return bytes;
  }
  ++misses_;
  if (found == Found::damaged) {
    ++damaged_;
    log(LogLevel::info, "cache entry {} is damaged; it is made again", path);
  }
  return std::nullopt;
}

void DiskCache::store(std::string_view kind, std::string_view key, std::string_view payload) {
  const std::string path = path_of(kind, key);
  const std::string bytes = encode(full_key(kind, key), payload);
  try {
    make_folders(fs::path(path).parent_path());
    write_file_atomically(path, bytes);
  } catch (const std::exception& e) {
    ++failed_stores_;
    complain(fmt::format("cannot be written: {}", e.what()));
    return;
  }
  ++stores_;
  account(static_cast<int64_t>(bytes.size()));
}

void DiskCache::complain(const std::string& why) {
  if (complained_.exchange(true)) return;
  log(LogLevel::warn, "cache folder {} {}; going on without", folder_, why);
}

void DiskCache::account(int64_t stored) {
  const auto now = std::chrono::steady_clock::now();
  {
    const std::lock_guard lock(sweep_mutex_);
    total_ += stored;
    // The first store of a process looks at the folder: others may have filled it.
    if (now < next_sweep_ && (total_ <= limit_ || now < next_forced_sweep_)) return;
    next_sweep_ = now + std::chrono::hours(1);
  }
  if (sweep() <= limit_) return;
  // All that is there is too young to go; looking again at every store would not help.
  const std::lock_guard lock(sweep_mutex_);
  next_forced_sweep_ = now + std::chrono::seconds(10);
}

int64_t DiskCache::sweep() {
  const std::lock_guard lock(sweep_mutex_);
  const int64_t now = time(nullptr);
  std::vector<File> entries;
  int64_t total = 0;
  for_each_file(folder_, [&](const std::string& name, const File& file) {
    if (is_temporary_name(name) && file.used < now - kDay) remove_if_older(file.path, now - kDay);
    if (!is_entry_name(name)) return;
    total += file.size;
    entries.push_back(file);
  });
  if (total > limit_) {
    std::sort(entries.begin(), entries.end(), [](const File& a, const File& b) { return a.used < b.used; });
    const int64_t goal = limit_ - limit_ / 10;
    for (const File& file : entries) {
      if (total <= goal || file.used >= now - kMinute) break;
      if (remove_if_older(file.path, now - kMinute)) total -= file.size;
    }
  }
  total_ = total;
  return total;
}

DiskCache::Stats DiskCache::stats() const { return {hits_, misses_, damaged_, stores_, failed_stores_}; }

}  // namespace kiln
