// SPDX-License-Identifier: Apache-2.0
#include "cli/rank_process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ir/base/error.h"
#include "runtime/pipe.h"

namespace kiln::cli {

namespace {

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const std::string& s : strings) out.push_back(const_cast<char*>(s.c_str()));
  out.push_back(nullptr);
  return out;
}

/// Everything that the child needs, made before the fork: between fork and exec it allocates nothing.
struct Prepared {
  std::vector<char*> arguments, environment;
  cpu_set_t* cpus = nullptr;
  size_t cpu_bytes = 0;
  pid_t launcher = getpid();

  explicit Prepared(const RankStart& start)
      : arguments(pointers(start.command)), environment(pointers(start.environment)) {
    if (start.cpus.empty()) return;
    const auto count = static_cast<size_t>(*std::max_element(start.cpus.begin(), start.cpus.end())) + 1;
    cpus = CPU_ALLOC(count);
    KILN_CHECK(cpus, io, "run: no memory for a set of {} CPUs", count);
    cpu_bytes = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(cpu_bytes, cpus);
    for (int cpu : start.cpus) CPU_SET_S(static_cast<size_t>(cpu), cpu_bytes, cpus);
  }
  ~Prepared() { CPU_FREE(cpus); }
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
};

/// In the child: becomes the rank, or returns with errno.
void become(const Prepared& p, int out, int err) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return;
  if (getppid() != p.launcher) _exit(1);  // it died before it could be told to us
  if (setpgid(0, 0) != 0) return;
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0 || dup2(nothing, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) return;
  if (p.cpus && sched_setaffinity(0, p.cpu_bytes, p.cpus) != 0) return;
  sigset_t none;
  sigemptyset(&none);
  if (sigprocmask(SIG_SETMASK, &none, nullptr) != 0) return;
  execvpe(p.arguments[0], p.arguments.data(), p.environment.data());
}

/// What the child says of its failure: its errno; 0, if it runs the program.
int reported(int fd) {
  int error = 0;
  ssize_t n = 0;
  do n = read(fd, &error, sizeof error);
  while (n < 0 && errno == EINTR);
  return n == sizeof error ? error : 0;
}

/// Why `program` did not start, and what may have been meant.
std::string why(const std::string& program, int error) {
  if (error != ENOENT) return std::strerror(error);
  if (program.find('/') != std::string::npos)
    return access(program.c_str(), F_OK) != 0
               ? std::strerror(error)
               : "it is there, but the interpreter or loader that it names is not";
  const std::string here = "./" + program;
  return access(here.c_str(), X_OK) == 0
             ? fmt::format("it is not on PATH (to run the one in this folder: {})", here)
             : "it is not on PATH";
}

}  // namespace

RankProcess start_rank(const RankStart& start) {
  const Prepared prepared(start);
  constexpr const char* kNoPipe = "run: no pipe for a rank";
  Pipe out(kNoPipe), err(kNoPipe), report(kNoPipe);
  const pid_t pid = fork();
  KILN_CHECK(pid >= 0, io, "run: the system refuses another process; {} (ulimit -u)", std::strerror(errno));
  if (pid == 0) {
    become(prepared, out.write, err.write);
    const int error = errno;
    const ssize_t n = write(report.write, &error, sizeof error);
    _exit(n == sizeof error ? 127 : 126);
  }
  report.close_write();
  if (const int error = reported(report.read)) {
    waitpid(pid, nullptr, 0);
    throw Error(ErrorKind::invalid,
                fmt::format("run: cannot start '{}'; {}", start.command[0], why(start.command[0], error)));
  }
  fcntl(out.read, F_SETFL, O_NONBLOCK);
  fcntl(err.read, F_SETFL, O_NONBLOCK);
  return {pid, std::exchange(out.read, -1), std::exchange(err.read, -1)};
}

}  // namespace kiln::cli
