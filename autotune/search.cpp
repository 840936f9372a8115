// SPDX-License-Identifier: Apache-2.0
#include "autotune/search.h"

namespace kiln {

Search::Search(const TunableKernel& k, SpaceSize size, const std::string& settled)
    : space_(k, size), size_(size), numbers_(settled) {
  if (size == SpaceSize::few && numbers_.empty()) numbers_ = numeric_part(space_.first());
  trial_.kernel = &k;
  row_.wide = size == SpaceSize::wide;
  go_on_from(settled.empty() ? space_.first() : space_.with_numbers(settled));
}

void Search::go_on_from(const std::string& best) {
  trial_.schedules = {best};
  for (std::string& s : space_.around(best))
    if (numbers_.empty() || numeric_part(s) == numbers_) trial_.schedules.push_back(std::move(s));
}

void Search::note(const TrialResult& r) {
  const std::string winner = trial_.schedules[static_cast<size_t>(r.winner)];
  if (r.compared > 0) {
    // Only what was timed side by side is compared: the gain of each trial counts on top of those before.
    row_.default_seconds =
        row_.compared == 0 ? r.default_seconds : row_.default_seconds * r.default_seconds / row_.seconds;
    row_.seconds = r.seconds;
    row_.schedule = winner;
    row_.compared += r.compared;
  }
  if (size_ == SpaceSize::wide && r.winner > 0) go_on_from(winner);
  else trial_.schedules = {winner};
}

std::optional<TuneRow> Search::found() const {
  return row_.compared > 0 ? std::optional(row_) : std::nullopt;
}

}  // namespace kiln
