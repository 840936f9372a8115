// SPDX-License-Identifier: Apache-2.0
// What the user sees while training: a bar on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace gpt {

/// What a bar or a line shows.
struct Status {
  int64_t step = 0, steps = 0;
  double loss = 0, tokens_per_s = 0;
  double eta_s = 0;
};

/// One line of at most `width` columns: step, a bar if there is room, loss, tokens/s, time left.
std::string bar_text(const Status& s, int width);
/// The same as a plain line.
std::string line_text(const Status& s);

/// Draws on stderr (terminal) or prints about 20 lines on stdout (no terminal), or nothing.
class Progress {
 public:
  enum class Kind { bar, lines, none };
  /// Bar on a terminal, lines elsewhere; none if not wanted.
  static Kind kind_for(bool wanted);

  Progress(Kind kind, int64_t begin, int64_t steps, int64_t tokens_per_step);
  /// After each step.
  void update(int64_t step, double loss);
  /// Prints a line of its own, above the bar.
  void say(const std::string& text);
  /// Leaves the last state on the screen.
  void finish();
  /// Time spent elsewhere (validation, saving) does not count as training.
  void pause();

 private:
  using Clock = std::chrono::steady_clock;

  Kind kind_;
  int64_t begin_, steps_, tokens_;
  double speed_ = 0;  ///< smoothed seconds a step
  Clock::time_point last_, drawn_;
  bool open_ = false;
};

}  // namespace gpt
