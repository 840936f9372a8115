// SPDX-License-Identifier: Apache-2.0
// flock() on a file that its holder removes before it lets go. Who got the lock of a file that is no longer
// at the path has got nothing, and opens it anew.
#include "ir/base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

namespace kiln {

namespace {

constexpr std::chrono::milliseconds kPause{2};

}  // namespace

bool detail::is_at(int fd, const std::string& path) {
  struct stat ours, there;
  return fstat(fd, &ours) == 0 && lstat(path.c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
         ours.st_dev == there.st_dev;
}

FileLock::FileLock(const std::string& path, std::chrono::milliseconds patience) : path_(path) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (try_take()) {
    if (std::chrono::steady_clock::now() >= end) {
      state_ = State::busy;
      break;
    }
    std::this_thread::sleep_for(kPause);
  }
  if (state_ == State::held) return;
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

// True while it is worth trying again. The open file is kept between tries.
bool FileLock::try_take() {
  while (true) {
    // Not blocking, and no link followed: whatever stands at the path must not hang or be written elsewhere.
    if (fd_ < 0) fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0600);
    if (fd_ < 0) {
      error_ = errno;
      return false;
    }
    if (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      error_ = errno;
      return error_ == EWOULDBLOCK || error_ == EINTR;
    }
    if (detail::is_at(fd_, path_)) {
      state_ = State::held;
      return false;
    }
    close(std::exchange(fd_, -1));
  }
}

FileLock::FileLock(FileLock&& from) noexcept { *this = std::move(from); }

FileLock& FileLock::operator=(FileLock&& from) noexcept {
  if (this == &from) return *this;
  release();
  path_ = std::move(from.path_);
  fd_ = std::exchange(from.fd_, -1);
  error_ = from.error_;
  state_ = std::exchange(from.state_, State::unavailable);
  return *this;
}

std::string FileLock::why() const { return std::strerror(error_); }

void FileLock::release() {
  // Who cleaned up behind our back may have let somebody else in: his file stays.
  if (state_ == State::held && detail::is_at(fd_, path_)) unlink(path_.c_str());
  if (fd_ >= 0) close(std::exchange(fd_, -1));
  state_ = State::unavailable;
}

}  // namespace kiln
