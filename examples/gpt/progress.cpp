// SPDX-License-Identifier: Apache-2.0
#include "examples/gpt/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace gpt {

namespace {

std::string time_left(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

int terminal_width() {
  winsize w{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

}  // namespace

std::string line_text(const Status& s) {
  return fmt::format("step {}/{}  loss {:.4f}  {:.0f} tokens/s  {} left", s.step, s.steps, s.loss,
                     s.tokens_per_s, time_left(s.eta_s));
}

std::string bar_text(const Status& s, int width) {
  const std::string left = fmt::format("{}/{} ", s.step, s.steps);
  const std::string right =
      fmt::format(" loss {:.3f} {:.0f} tok/s {}", s.loss, s.tokens_per_s, time_left(s.eta_s));
  const int room = width - static_cast<int>(left.size() + right.size()) - 2;
  if (room < 4) return (left + right).substr(0, static_cast<size_t>(std::max(0, width)));
  const int cells = std::min(room, 40);
  const int full = s.steps > 0 ? static_cast<int>(cells * s.step / s.steps) : 0;
  return left + "[" + std::string(static_cast<size_t>(full), '#') +
         std::string(static_cast<size_t>(cells - full), '.') + "]" + right;
}

Progress::Kind Progress::kind_for(bool wanted) {
  if (!wanted) return Kind::none;
  return isatty(STDERR_FILENO) ? Kind::bar : Kind::lines;
}

Progress::Progress(Kind kind, int64_t begin, int64_t steps, int64_t tokens_per_step)
    : kind_(kind), begin_(begin), steps_(steps), tokens_(tokens_per_step), last_(Clock::now()) {}

void Progress::pause() { last_ = Clock::now(); }

void Progress::update(int64_t step, double loss) {
  const Clock::time_point now = Clock::now();
  const double passed = std::chrono::duration<double>(now - last_).count();
  last_ = now;
  // The first step compiles; it says nothing about the speed of the others.
  if (step > begin_ + 1) speed_ = speed_ == 0 ? passed : 0.95 * speed_ + 0.05 * passed;
  if (kind_ == Kind::none) return;
  const double rate = speed_ > 0 ? static_cast<double>(tokens_) / speed_ : 0;
  const Status s{step, steps_, loss, rate, speed_ * static_cast<double>(steps_ - step)};
  if (kind_ == Kind::lines) {
    const int64_t every = std::max<int64_t>(1, steps_ / 20);
    if (step % every != 0 && step != steps_ && step != begin_ + 1) return;
    std::printf("%s\n", line_text(s).c_str());
    std::fflush(stdout);
    return;
  }
  const bool due = std::chrono::duration<double>(now - drawn_).count() > 0.1;
  if (!due && step != steps_) return;
  drawn_ = now;
  open_ = true;
  std::fprintf(stderr, "\r%s\033[K", bar_text(s, terminal_width() - 1).c_str());
  std::fflush(stderr);
}

void Progress::say(const std::string& text) {
  if (open_) std::fprintf(stderr, "\r\033[K");
  std::fflush(stderr);
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

void Progress::finish() {
  if (open_) std::fprintf(stderr, "\n");
  open_ = false;
}

}  // namespace gpt
