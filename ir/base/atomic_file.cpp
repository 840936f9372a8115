// SPDX-License-Identifier: Apache-2.0
#include "ir/base/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "ir/base/error.h"
#include "ir/base/file_lock.h"

namespace kiln {

namespace {

constexpr int kMostWriters = 1000;  // of one file at once

std::string folder_beside(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// A link is followed, so that the file it names is replaced and not the link itself.
std::string resolve(const std::string& path) {
  struct stat st;
  if (lstat(path.c_str(), &st) != 0 || !S_ISLNK(st.st_mode)) return path;
  char* real = realpath(path.c_str(), nullptr);
  if (!real) return path;
  std::string out(real);
  std::free(real);
  return out;
}

/// Removes the temporary of a writer that no longer lives. False, with ENOENT: there is none; with EEXIST: a
/// living one's, or not ours to remove.
bool remove_if_dead(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT) return false;
  struct stat st;
  const bool dead = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
                    flock(fd, LOCK_EX | LOCK_NB) == 0 && detail::is_at(fd, path) && unlink(path.c_str()) == 0;
  if (fd >= 0) close(fd);
  errno = EEXIST;
  return dead;
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : target_(resolve(path)) {
  struct stat st;
  if (stat(target_.c_str(), &st) == 0)
    KILN_CHECK(S_ISREG(st.st_mode), io, "write {}: not a regular file", target_);
  const size_t slash = target_.rfind('/');
  const std::string name = slash == std::string::npos ? target_ : target_.substr(slash + 1);
  KILN_CHECK(!name.empty(), io, "write '{}': no file name", target_);
  const auto numbered = [&](int n) { return fmt::format("{}/.{}.{}.tmp", folder_beside(target_), name, n); };
  int n = 0;
  for (; n < kMostWriters && fd_ < 0; ++n)
    if (!try_create(numbered(n)) && errno != EEXIST) break;
  if (fd_ < 0) fail("cannot create a temporary in its folder", errno);
  while (remove_if_dead(numbered(n))) ++n;  // of several that were killed together
}

/// Creates the temporary, over what a dead writer has left there. False, with EEXIST: a living one has it.
bool AtomicFile::try_create(const std::string& path) {
  while (true) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
      if (errno == EEXIST && (remove_if_dead(path) || errno == ENOENT)) continue;
      return false;
    }
    // Until it is locked, another writer may take it for a dead one's. Where nothing can be locked nobody
    // does.
    const bool busy = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!busy && detail::is_at(fd, path)) {
      temporary_ = path;
      fd_ = fd;
      return true;
    }
    close(fd);
  }
}

AtomicFile::~AtomicFile() {
  // While it is locked: what stands there later may be another writer's.
  if (!temporary_.empty() && detail::is_at(fd_, temporary_)) unlink(temporary_.c_str());
  if (fd_ >= 0) close(fd_);
}

void AtomicFile::fail(const char* what, int error) const {
  throw Error(ErrorKind::io, fmt::format("write {}: {}; {}", target_, what, std::strerror(error)));
}

void AtomicFile::write(const void* bytes, size_t size) {
  KILN_ASSERT(fd_ >= 0, "write after commit");
  const char* p = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t n = ::write(fd_, p, std::min(size, size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("the bytes do not fit", n == 0 ? ENOSPC : errno);
    p += n;
    size -= static_cast<size_t>(n);
  }
}

void AtomicFile::commit() {
  KILN_ASSERT(fd_ >= 0, "commit twice");
  if (fsync(fd_) != 0) fail("fsync failed", errno);
  // Closing may fail, too, but lets go of the lock only with the last descriptor.
  const int written = fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (written < 0 || close(written) != 0) fail("close failed", errno);
  if (!detail::is_at(fd_, temporary_)) fail("its temporary was removed", ENOENT);
  if (rename(temporary_.c_str(), target_.c_str()) != 0) fail("rename failed", errno);
  temporary_.clear();
  close(fd_);
  fd_ = -1;
  // The rename is durable only when its folder is; not every file system can sync a folder.
  const int dir = open(folder_beside(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) return;
  const bool bad = fsync(dir) != 0 && errno == EIO;
  close(dir);
  if (bad) fail("fsync of its folder failed", EIO);
}

void write_file_atomically(const std::string& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

}  // namespace kiln
