// SPDX-License-Identifier: Apache-2.0
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
#include <iterator>
#include <tuple>
#include <vector>

#include "ir/base/atomic_file.h"
#include "ir/base/error.h"
#include "ir/base/hash.h"
#include "ir/base/log.h"
#include "ir/base/options.h"

namespace kiln {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kMinute = 60, kDay = 24 * 3600;

// Code is run from here: folders that Kiln makes are the user's alone.
void make_folders(const fs::path& folder) {
  std::error_code unknown;  // mkdir says it better
  if (folder.empty() || fs::is_directory(folder, unknown)) return;
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
// What a killed process leaves behind: half an entry, or a claim that nobody holds.
bool is_temporary_name(std::string_view name) {
  return name.starts_with('.') && (name.ends_with(".tmp") || name.ends_with(".lock"));
}

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

DiskCache::DiskCache(std::string folder, int64_t limit_bytes, std::chrono::milliseconds patience)
    : folder_(std::move(folder)), limit_(limit_bytes), patience_(patience) {}

DiskCache::DiskCache() : DiskCache(default_folder(), option_int("KILN_CACHE_LIMIT_MB") << 20) {}

std::string DiskCache::folder_of(std::string_view kind) const {
  KILN_ASSERT(std::count(std::begin(kCacheKinds), std::end(kCacheKinds), kind) == 1,
              "cache: unknown kind '{}' (kCacheKinds lists them)", kind);
  return fmt::format("{}/{}", folder_, kind);
}

std::string DiskCache::path_of(std::string_view kind, std::string_view key) const {
  return fmt::format("{}/{}", folder_of(kind), hash128(entry_key(kind, key)).hex());
}

std::optional<std::string> DiskCache::load(std::string_view kind, std::string_view key, bool again) {
  const std::string path = path_of(kind, key);
  EntryContent found = read_entry(path, true);
  bool hit = found.state == EntryState::good && found.full_key == entry_key(kind, key);
  if (hit && writable_by_all(folder_of(kind))) {
    complain(fmt::format("cannot be trusted: everybody may write to its folder {} (chmod o-w)", kind));
    hit = false;
  }
  if (hit) {
    ++hits_;
    return std::move(found.payload);
  }
  if (again) return std::nullopt;
  ++misses_;
  if (found.state == EntryState::damaged) {
    ++damaged_;
    log(LogLevel::info, "cache entry {} is damaged: {}; it is made again", path, found.why);
  }
  return std::nullopt;
}

void DiskCache::store(std::string_view kind, std::string_view key, std::string_view payload) {
  const std::string path = path_of(kind, key);
  const std::string bytes = encode_entry(entry_key(kind, key), payload);
  try {
    make_folders(fs::path(path).parent_path());
    write_file_atomically(path, bytes);
  } catch (const std::exception& e) {
    if (failed_stores_++ == 0) {
      const std::lock_guard lock(error_mutex_);
      store_error_ = e.what();
    }
    complain(fmt::format("cannot be written: {}", e.what()));
    return;
  }
  ++stores_;
  account(static_cast<int64_t>(bytes.size()));
}

FileLock DiskCache::claim(std::string_view kind, std::string_view key, bool wait) {
  const fs::path path = path_of(kind, key);
  try {
    make_folders(path.parent_path());
  } catch (const std::exception&) {
    return {};  // store() says why
  }
  const std::string name = fmt::format("{}/.{}.lock", path.parent_path().string(), path.filename().string());
  return FileLock(name, wait ? patience_ : std::chrono::milliseconds(0));
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

void DiskCache::check_writable() const {
  try {
    make_folders(folder_);
    AtomicFile probe(folder_ + "/probe");
    probe.write("probe", 5);
  } catch (const std::exception& e) {
    throw Error(ErrorKind::io, fmt::format("cache folder {} cannot be written: {}", folder_, e.what()));
  }
}

std::vector<DiskCache::Entry> DiskCache::entries() const {
  std::error_code ec;
  const fs::directory_iterator folder(folder_, ec);
  KILN_CHECK(!ec, io, "cache folder {}: {}", folder_, ec.message());
  for (const fs::directory_entry& kind : folder) {
    std::error_code closed;
    if (!kind.is_directory(closed)) continue;
    const fs::directory_iterator inside(kind.path(), closed);
    KILN_CHECK(!closed || closed == std::errc::no_such_file_or_directory, io, "cache folder {}: {}",
               kind.path().string(), closed.message());
  }
  std::vector<Entry> out;
  for_each_file(folder_, [&](const std::string& name, const File& file) {
    if (!is_entry_name(name)) return;
    struct statx more {};
    const bool born = statx(AT_FDCWD, file.path.c_str(), AT_SYMLINK_NOFOLLOW, STATX_BTIME, &more) == 0 &&
                      (more.stx_mask & STATX_BTIME);
    out.push_back({fs::path(file.path).parent_path().filename().string(), name, file.size, file.used,
                   born ? static_cast<int64_t>(more.stx_btime.tv_sec) : 0});
  });
  std::sort(out.begin(), out.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.kind, a.name) < std::tie(b.kind, b.name);
  });
  return out;
}

EntryContent DiskCache::read(const Entry& entry) const {
  EntryContent out = read_entry(fmt::format("{}/{}/{}", folder_, entry.kind, entry.name), false);
  if (out.state != EntryState::good) return out;
  if (!out.full_key.starts_with(entry.kind + "\n") || hash128(out.full_key).hex() != entry.name)
    return {EntryState::damaged, {}, {}, "it stands under another entry's name"};
  return out;
}

bool DiskCache::remove(const Entry& entry) const {
  const std::string path = fmt::format("{}/{}/{}", folder_, entry.kind, entry.name);
  errno = 0;
  const bool removed = remove_if_older(path, entry.used + 1);
  const int error = errno;
  KILN_CHECK(removed || error == 0 || error == ENOENT, io, "cache entry {} cannot be removed: {}", path,
             std::strerror(error));
  return removed;
}

std::string DiskCache::store_error() const {
  const std::lock_guard lock(error_mutex_);
  return store_error_;
}

DiskCache::Stats DiskCache::stats() const { return {hits_, misses_, damaged_, stores_, failed_stores_}; }

}  // namespace kiln
