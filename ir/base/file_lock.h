// SPDX-License-Identifier: Apache-2.0
// A lock between processes: a file that exists while somebody holds it. The kernel lets go of it when its
// holder dies, and nobody waits longer than he says, so that no holder, dead, stopped or hung, blocks others.
// It saves work and orders writers; no result may depend on it.
#pragma once

#include <chrono>
#include <string>

namespace kiln {

namespace detail {
/// Whether what `path` names, a link not followed, is the open file.
bool is_at(int fd, const std::string& path);
}  // namespace detail

/// The lock `path`, while this lives. Movable. Threads: two FileLocks of one process exclude each other too.
class FileLock {
 public:
  enum class State : uint8_t {
    held,         ///< ours
    busy,         ///< somebody else's, for all of the patience
    unavailable,  ///< nobody's: a read-only or full folder, or a file system without locks
  };

  FileLock() = default;
  /// Takes the lock, trying for up to `patience`. Blocks: that long at most.
  FileLock(const std::string& path, std::chrono::milliseconds patience);
  ~FileLock() { release(); }
  FileLock(FileLock&& from) noexcept;
  FileLock& operator=(FileLock&& from) noexcept;

  State state() const { return state_; }
  bool held() const { return state_ == State::held; }
  /// Why it is unavailable: "Read-only file system".
  std::string why() const;
  /// Gives the lock back and removes its file. State: unavailable.
  void release();

 private:
  bool try_take();

  std::string path_;
  int fd_ = -1;
  int error_ = 0;
  State state_ = State::unavailable;
};

}  // namespace kiln
