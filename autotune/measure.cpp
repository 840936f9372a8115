// SPDX-License-Identifier: Apache-2.0
#include "autotune/measure.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kiln {

namespace {

constexpr int kLeastRounds = 3;      // before time may be up
constexpr double kHopeless = 1.2;    // slower than the best by this factor after two rounds
constexpr double kLeastGain = 0.02;  // no winner by less, whatever the noise
constexpr double kInfinite = std::numeric_limits<double>::infinity();

double median_of(std::vector<double> v) {
  if (v.empty()) return kInfinite;
  std::sort(v.begin(), v.end());
  const size_t half = v.size() / 2;
  return v.size() % 2 ? v[half] : (v[half - 1] + v[half]) / 2;
}

/// Standard error of a median, from the median of the deviations: a few disturbed timings do not move it.
double uncertainty(const std::vector<double>& v) {
  const double m = median_of(v);
  std::vector<double> away;
  for (const double x : v) away.push_back(std::abs(x - m));
  return 1.25 * 1.48 * median_of(away) / std::sqrt(static_cast<double>(v.size()));
}

/// The timings of some candidates, round after round.
class Rounds {
 public:
  Rounds(size_t count, const std::function<double(int)>& time, const MeasureLimits& limits)
      : times_(count), out_(count, false), time_(time), limits_(limits) {}

  void run(bool drop_hopeless) {
    double spent = 0;
    for (int round = 0; round < limits_.rounds; ++round) {
      if (round >= kLeastRounds && spent >= limits_.seconds) break;
      for (size_t i = 0; i < times_.size(); ++i) spent += run_one(i);
      if (round == 1 && drop_hopeless) drop_slow();
    }
  }
  void leave_out(size_t i) { out_[i] = true; }
  double median(size_t i) const { return median_of(times_[i]); }
  /// By how much the default must be slower than candidate i.
  double noise(size_t i) const {
    if (times_[0].empty()) return 0;
    return kLeastGain * median(0) + 2 * (uncertainty(times_[0]) + uncertainty(times_[i]));
  }
  bool wins(size_t i) const { return median(0) - median(i) > noise(i); }

 private:
  double run_one(size_t i) {
    if (out_[i]) return 0;
    const double t = time_(static_cast<int>(i));
    if (t >= 0) times_[i].push_back(t);
    else times_[i].clear(), out_[i] = true;
    return std::max(t, 0.0);
  }
  void drop_slow() {
    double best = kInfinite;
    for (const auto& t : times_) best = std::min(best, median_of(t));
    for (size_t i = 1; i < times_.size(); ++i)
      if (median(i) > kHopeless * best) out_[i] = true;
  }

  std::vector<std::vector<double>> times_;
  std::vector<bool> out_;
  const std::function<double(int)>& time_;
  const MeasureLimits& limits_;
};

}  // namespace

Comparison compare(int count, const std::function<double(int)>& time, const MeasureLimits& limits) {
  const auto n = static_cast<size_t>(count);
  Rounds all(n, time, limits);
  all.run(true);
  Comparison c;
  for (size_t i = 0; i < n; ++i) c.median.push_back(all.median(i));
  const auto best =
      static_cast<size_t>(std::min_element(c.median.begin(), c.median.end()) - c.median.begin());
  if (best == 0 || !all.wins(best)) return c;
  // The best of many is also the luckiest: it must win once more, alone against the default.
  Rounds again(n, time, limits);
  for (size_t i = 1; i < n; ++i)
    if (i != best) again.leave_out(i);
  again.run(false);
  c.median[0] = again.median(0);
  c.median[best] = again.median(best);
  c.noise = again.noise(best);
  if (again.median(best) < kInfinite && again.wins(best)) c.winner = static_cast<int>(best);
  return c;
}

}  // namespace kiln
