// SPDX-License-Identifier: Apache-2.0
// What the child says and returns goes through a pipe: messages of one int, then kEnd and the text.
#include "autotune/apart.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ir/base/error.h"
#include "runtime/pipe.h"

namespace kiln {

namespace {

constexpr int kEnd = -1, kFailed = -2;  // what follows is the result, or what was thrown

void write_all(int fd, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = write(fd, at, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(1);  // nobody is there to read it
    at += n, bytes -= static_cast<size_t>(n);
  }
}

[[noreturn]] void work_in_child(const std::function<std::string(const Say&)>& work, int fd, pid_t parent) {
  const rlimit none{};
  setrlimit(RLIMIT_CORE, &none);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  const auto say = [fd](int what) { write_all(fd, &what, sizeof what); };
  std::string text;
  int how = kEnd;
  try {
    text = work(say);
  } catch (const std::exception& e) {
    how = kFailed, text = e.what();
  }
  say(how);
  write_all(fd, text.data(), text.size());
  _exit(0);  // nothing that the parent has to end is ended here
}

/// What has come so far.
class Messages {
 public:
  explicit Messages(int fd) : fd_(fd) {}
  /// False: that was all.
  bool read_more() {
    char buffer[4096];
    const ssize_t n = read(fd_, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) return true;
    if (n <= 0) return false;
    bytes_.append(buffer, static_cast<size_t>(n));
    while (how_ == 0 && bytes_.size() - at_ >= sizeof(int)) {
      int what = 0;
      std::memcpy(&what, bytes_.data() + at_, sizeof what);
      at_ += sizeof what;
      if (what < 0) how_ = what;
      else last_ = what;
    }
    return true;
  }
  ApartResult result(const std::string& otherwise) const {
    ApartResult r{std::nullopt, last_, otherwise};
    if (how_ == kEnd) r.text = bytes_.substr(at_), r.why.clear();
    if (how_ == kFailed) r.why = bytes_.substr(at_);
    return r;
  }

 private:
  int fd_;
  std::string bytes_;
  size_t at_ = 0;
  int how_ = 0, last_ = -1;
};

/// How the child ended, in words.
std::string await_end(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return "is lost";
  if (WIFSIGNALED(status))
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return fmt::format("ended with status {}", WEXITSTATUS(status));
}

}  // namespace

ApartResult run_apart(const std::function<std::string(const Say&)>& work, Seconds silence) {
  Pipe pipe("tuning: no pipe to a child process");
  const pid_t parent = getpid(), child = fork();
  KILN_CHECK(child >= 0, io, "tuning: the system refuses another process; {} (ulimit -u)",
             std::strerror(errno));
  if (child == 0) work_in_child(work, pipe.write, parent);
  pipe.close_write();
  Messages messages(pipe.read);
  std::string killed;
  pollfd ready{pipe.read, POLLIN, 0};
  while (true) {
    const int n = poll(&ready, 1, static_cast<int>(silence.count() * 1000));
    if (n < 0 && errno == EINTR) continue;
    if (n > 0 && messages.read_more()) continue;
    if (n <= 0) {
      kill(child, SIGKILL);
      killed = fmt::format("said nothing for {:.3g} s", silence.count());
    }
    break;
  }
  const std::string ended = await_end(child);
  return messages.result(killed.empty() ? ended : killed);
}

}  // namespace kiln
