// SPDX-License-Identifier: Apache-2.0
#include "cli/launcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "cli/cpu_sets.h"
#include "cli/rank_output.h"
#include "cli/rank_process.h"
#include "ir/base/error.h"
#include "ir/base/options.h"
#include "runtime/reserved_port.h"

namespace kiln::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
/// Output that waits for a slow reader; beyond it the ranks wait too.
constexpr size_t kMostWaiting = size_t{64} << 20;

/// Signals as a file descriptor, while it lives.
class SignalFile {
 public:
  SignalFile() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (int signal : kForwarded) sigaddset(&set, signal);
    pthread_sigmask(SIG_BLOCK, &set, &before_);
    fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    KILN_CHECK(fd_ >= 0, io, "run: no file for signals; {}", std::strerror(errno));
  }
  ~SignalFile() {
    close(fd_);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SignalFile(const SignalFile&) = delete;
  SignalFile& operator=(const SignalFile&) = delete;

  int fd() const { return fd_; }
  /// The next signal that has come; 0 if none has.
  int next() const {
    signalfd_siginfo info;
    return read(fd_, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t before_;
  int fd_ = -1;
};

/// A rank while it is watched.
struct Rank {
  struct Stream {
    int fd;
    LinePrefix lines;
  };
  Rank(int number, const RankProcess& process, OutputQueue& out)
      : pid(process.pid),
        streams{Stream{process.out, LinePrefix(fmt::format("[{}] ", number), STDOUT_FILENO, out)},
                Stream{process.err, LinePrefix(fmt::format("[{}] ", number), STDERR_FILENO, out)}} {}
  pid_t pid;
  bool running = true;
  Stream streams[2];
};

/// How a process ended.
struct Death {
  int rank = 0;
  pid_t pid = 0;
  int wait_status = 0;

  bool failed() const { return wait_status != 0; }
  bool by_signal() const { return WIFSIGNALED(wait_status); }
  int status() const { return by_signal() ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status); }
  std::string str() const {
    if (!by_signal()) return fmt::format("rank {} (pid {}) exited with status {}", rank, pid, status());
    const char* name = sigabbrev_np(WTERMSIG(wait_status));
    return fmt::format("rank {} (pid {}) was killed by {}", rank, pid,
                       name ? fmt::format("SIG{}", name) : fmt::format("signal {}", status() - 128));
  }
  /// Of ranks found dead together, the likeliest cause ranks highest: others end by an error, or abort for
  /// one that nobody caught, because they lost a peer.
  int blame() const { return !failed() ? 0 : !by_signal() || WTERMSIG(wait_status) == SIGABRT ? 1 : 2; }
};

class Launcher {
 public:
  explicit Launcher(const LaunchOptions& options) : options_(options) {}
  ~Launcher() {
    signal_all(SIGKILL);
    for (const auto& rank : ranks_) {
      if (rank->running) waitpid(rank->pid, nullptr, 0);
      for (const Rank::Stream& s : rank->streams)
        if (s.fd >= 0) close(s.fd);
    }
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  void start();
  int watch();

 private:
  void step();
  void read_stream(Rank::Stream& stream);
  void take_signals();
  void bury();
  std::optional<Death> reap_one();
  void end_others(const Death& first);
  void signal_all(int signal) const;
  bool any_running() const;
  int poll_time() const;
  void say(const std::string& text) { out_.push(STDERR_FILENO, "kiln run: " + text + "\n"); }

  const LaunchOptions& options_;
  const SignalFile signals_;
  const ReservedPort port_;
  OutputQueue out_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::optional<Death> first_failure_;
  std::optional<Clock::time_point> kill_at_;
};

void Launcher::start() {
  std::vector<std::vector<int>> cpus(static_cast<size_t>(options_.ranks));
  if (options_.pin) cpus = share_cpus(usable_cpus(), options_.ranks);
  const std::string size = std::to_string(options_.ranks);
  for (int r = 0; r < options_.ranks; ++r) {
    const std::string rank = std::to_string(r);
    // An outer launcher's variables would speak of its world, not of this one.
    const RankStart start{options_.command,
                          environment_with({{"RANK", rank},
                                            {"WORLD_SIZE", size},
                                            {"LOCAL_RANK", rank},
                                            {"LOCAL_WORLD_SIZE", size},
                                            {"MASTER_ADDR", "127.0.0.1"},
                                            {"MASTER_PORT", std::to_string(port_.number())}},
                                           {"TORCHELASTIC_USE_AGENT_STORE"}),
                          cpus[static_cast<size_t>(r)]};
    ranks_.push_back(std::make_unique<Rank>(r, start_rank(start), out_));
  }
}

bool Launcher::any_running() const {
  for (const auto& rank : ranks_)
    if (rank->running) return true;
  return false;
}

void Launcher::signal_all(int signal) const {
  // The rank leads its process group: what it has started hears of it too.
  for (const auto& rank : ranks_)
    if (rank->running) kill(-rank->pid, signal);
}

void Launcher::read_stream(Rank::Stream& stream) {
  char bytes[1 << 16];
  const ssize_t n = read(stream.fd, bytes, sizeof bytes);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) return stream.lines.take({bytes, static_cast<size_t>(n)});
  stream.lines.finish();
  close(std::exchange(stream.fd, -1));
}

std::optional<Death> Launcher::reap_one() {
  siginfo_t info{};
  if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return std::nullopt;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r]->pid != info.si_pid) continue;
    // What it leaves behind ends with it. Its number names no other group before it is waited for.
    kill(-info.si_pid, SIGKILL);
    Death death{static_cast<int>(r), info.si_pid, 0};
    waitpid(info.si_pid, &death.wait_status, 0);
    ranks_[r]->running = false;
    return death;
  }
  waitpid(info.si_pid, nullptr, 0);  // a child of whoever became this program
  return Death{};
}

void Launcher::bury() {
  std::optional<Death> worst;
  while (const auto death = reap_one())
    if (!worst || death->blame() > worst->blame()) worst = death;
  if (worst && worst->failed() && !first_failure_) end_others(*worst);
}

void Launcher::end_others(const Death& first) {
  first_failure_ = first;
  say(first.str() + (any_running() ? "; ending the others" : ""));
  signal_all(SIGTERM);
  kill_at_ = Clock::now() + options_.grace;
}

void Launcher::take_signals() {
  while (const int signal = signals_.next())
    if (signal != SIGCHLD) signal_all(signal);
  bury();
}

int Launcher::poll_time() const {
  if (!kill_at_ || !any_running()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*kill_at_ - Clock::now());
  return static_cast<int>(std::max<int64_t>(0, left.count()));
}

void Launcher::step() {
  std::vector<pollfd> files{{signals_.fd(), POLLIN, 0}};
  std::vector<Rank::Stream*> streams;
  if (!out_.empty()) files.push_back({out_.fd(), POLLOUT, 0});
  const size_t first_stream = files.size();
  for (const auto& rank : ranks_)
    for (Rank::Stream& s : rank->streams)
      if (s.fd >= 0 && out_.size() < kMostWaiting) {
        files.push_back({s.fd, POLLIN, 0});
        streams.push_back(&s);
      }
  if (poll(files.data(), files.size(), poll_time()) < 0) {
    KILN_CHECK(errno == EINTR, io, "run: poll failed; {}", std::strerror(errno));
    return;
  }
  if (first_stream == 2 && files[1].revents) out_.write_some();
  for (size_t i = 0; i < streams.size(); ++i)
    if (files[first_stream + i].revents) read_stream(*streams[i]);
  if (files[0].revents) take_signals();
  if (kill_at_ && any_running() && Clock::now() >= *kill_at_) {
    say(fmt::format("ranks still run {:g} s after SIGTERM; killing them",
                    std::chrono::duration<double>(options_.grace).count()));
    signal_all(SIGKILL);
    kill_at_.reset();
  }
}

int Launcher::watch() {
  while (any_running()) step();
  // What they wrote before they ended is in the pipes. Whoever else holds these open is not waited for.
  for (const auto& rank : ranks_)
    for (Rank::Stream& s : rank->streams) {
      for (pollfd file{s.fd, POLLIN, 0}; s.fd >= 0 && poll(&file, 1, 0) > 0;) read_stream(s);
      s.lines.finish();
    }
  while (!out_.empty()) step();
  return first_failure_ ? first_failure_->status() : 0;
}

}  // namespace

int launch(const LaunchOptions& options) {
  KILN_CHECK(!options.command.empty() && !options.command[0].empty(), invalid,
             "run: no program (kiln run --nproc 2 -- program arguments)");
  KILN_CHECK(options.ranks >= 1 && options.ranks <= kMostRanks, invalid,
             "run: bad number of ranks; got {}, expected 1 to {}", options.ranks, kMostRanks);
  rlimit files{};
  const auto needed = static_cast<rlim_t>(2 * options.ranks + 32);
  KILN_CHECK(getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= needed, io,
             "run: {} ranks need {} open files; got {} (ulimit -n {})", options.ranks, needed, files.rlim_cur,
             needed);
  Launcher launcher(options);
  launcher.start();
  return launcher.watch();
}

}  // namespace kiln::cli
