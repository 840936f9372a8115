// SPDX-License-Identifier: Apache-2.0
// A pipe to a child process.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "ir/base/error.h"

namespace kiln {

/// Closes both of its ends, and is none of a program that is started.
struct Pipe {
  int read = -1, write = -1;
  /// Throws: io, beginning with `failure`, when the process may have no more files.
  explicit Pipe(const char* failure) {
    int ends[2];
    KILN_CHECK(pipe2(ends, O_CLOEXEC) == 0, io, "{}; {} (ulimit -n)", failure, std::strerror(errno));
    read = ends[0], write = ends[1];
  }
  ~Pipe() { close_read(), close_write(); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_read() {
    if (read >= 0) close(std::exchange(read, -1));
  }
  void close_write() {
    if (write >= 0) close(std::exchange(write, -1));
  }
};

}  // namespace kiln
