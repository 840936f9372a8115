// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/timing.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

namespace kiln::bench {

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return 0.5 * (v[(v.size() - 1) / 2] + v[v.size() / 2]);
}

}  // namespace

double Measurement::median_ms() const { return 1e3 * median(times_s); }

double Measurement::low_ms() const {
  std::vector<double> v = times_s;
  std::sort(v.begin(), v.end());
  v.resize((v.size() + 1) / 2);
  return 1e3 * median(v);
}

double Measurement::min_ms() const {
  return times_s.empty() ? 0 : 1e3 * *std::min_element(times_s.begin(), times_s.end());
}

double Measurement::startup_s() const { return first_step_s - median_ms() / 1e3; }

Measurement measure(const std::function<double()>& step, double secs) {
  Measurement m;
  double last = 0;
  for (int i = 0; i < 3; ++i) {
    const auto begin = Clock::now();
    m.losses.push_back(step());
    last = since(begin);
    if (i == 0) m.first_step_s = last;
  }
  if (last < 2)
    for (int i = 0; i < 2; ++i) step();
  const auto begin = Clock::now();
  while (true) {
    const auto one = Clock::now();
    step();
    m.times_s.push_back(since(one));
    const double passed = since(begin);
    const size_t n = m.times_s.size();
    const bool many = n >= 20 && passed >= std::min(4.0, secs);
    if (many || (passed >= secs && n >= 5) || passed > 40) return m;
  }
}

double peak_rss_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

std::string json_line(const Measurement& m, const Extra& extra) {
  const auto rounded = [](double v, double unit) { return std::round(v * unit) / unit; };
  nlohmann::ordered_json j;
  j["framework"] = "kiln";
  j["workload"] = extra.workload;
  j["mode"] = extra.mode;
  j["threads"] = extra.threads;
  j["median_ms"] = rounded(m.median_ms(), 1e4);
  j["low_ms"] = rounded(m.low_ms(), 1e4);
  j["min_ms"] = rounded(m.min_ms(), 1e4);
  j["n"] = m.times_s.size();
  j["first_step_s"] = rounded(m.first_step_s, 1e4);
  j["startup_s"] = rounded(m.startup_s(), 1e4);
  j["peak_rss_mb"] = rounded(peak_rss_mb(), 10);
  j["arena_mb"] = rounded(extra.arena_mb, 1e3);
  if (extra.device_peak_mb > 0) j["device_peak_mb"] = rounded(extra.device_peak_mb, 10);
  j["builds"] = extra.builds;
  j["compiled"] = extra.compiled;
  j["losses"] = m.losses;
  for (const auto& [name, norm] : extra.gnorm) j["gnorm"][name] = norm;
  return j.dump();
}

std::string text_line(const Measurement& m, const Extra& extra) {
  return fmt::format(
      "{} {} threads {}: median {:.4g} ms, min {:.4g} ms of {} steps; first step {:.3g} s ({:.3g} s of it to "
      "start, "
      "{} kernels compiled); peak {:.0f} MB, arena {:.1f} MB; {} builds; losses {:.6f}",
      extra.workload, extra.mode, extra.threads, m.median_ms(), m.min_ms(), m.times_s.size(), m.first_step_s,
      m.startup_s(), extra.compiled, peak_rss_mb(), extra.arena_mb, extra.builds, fmt::join(m.losses, " "));
}

}  // namespace kiln::bench
