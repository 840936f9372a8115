// SPDX-License-Identifier: Apache-2.0
#include "ir/base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "ir/base/error.h"

namespace kiln {

namespace {

std::string folder_of(const std::string& path) {
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

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : target_(resolve(path)) {
  struct stat st;
  if (stat(target_.c_str(), &st) == 0)
    KILN_CHECK(S_ISREG(st.st_mode), io, "write {}: not a regular file", target_);
  static std::atomic<unsigned> counter{0};
  const size_t slash = target_.rfind('/');
  const std::string name = slash == std::string::npos ? target_ : target_.substr(slash + 1);
  KILN_CHECK(!name.empty(), io, "write '{}': no file name", target_);
  // The number may be taken: by a killed process of our id, or by a container that shares the folder.
  for (int tries = 0; tries < 1000 && fd_ < 0; ++tries) {
    temporary_ = fmt::format("{}/.{}.{}.{}.tmp", folder_of(target_), name, getpid(), counter++);
    fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST) break;
  }
  if (fd_ < 0) fail("cannot create a temporary in its folder", errno);
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
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
  const int closed = close(fd_);
  fd_ = -1;
  if (closed != 0) fail("close failed", errno);
  if (rename(temporary_.c_str(), target_.c_str()) != 0) fail("rename failed", errno);
  temporary_.clear();
  // The rename is durable only when its folder is; not every file system can sync a folder.
  const int dir = open(folder_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
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
