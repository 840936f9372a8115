// SPDX-License-Identifier: Apache-2.0
#include "cli/text.h"

#include <algorithm>
#include <iterator>

#include "ir/base/error.h"

namespace kiln::cli {

namespace {

std::string scaled(double n, double step, const char* const* units, size_t count) {
  size_t u = 0;
  for (; n >= step && u + 1 < count; ++u) n /= step;
  return u == 0 ? fmt::format("{:.0f} {}", n, units[0]) : fmt::format("{:.1f} {}", n, units[u]);
}

}  // namespace

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  return scaled(bytes, 1024, kUnits, std::size(kUnits));
}

std::string flops_text(double flops) {
  constexpr const char* kUnits[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"};
  return scaled(flops, 1000, kUnits, std::size(kUnits));
}

std::string time_text(double seconds) {
  constexpr const char* kUnits[] = {"us", "ms", "s"};
  double n = seconds * 1e6;
  size_t u = 0;
  for (; n >= 1000 && u + 1 < std::size(kUnits); ++u) n /= 1000;
  return fmt::format("{:.{}f} {}", n, n < 1 ? 3 : n < 10 ? 2 : n < 100 ? 1 : 0, kUnits[u]);
}

std::string age_text(int64_t seconds) {
  constexpr int64_t kMinute = 60, kHour = 60 * kMinute, kDay = 24 * kHour;
  if (seconds < 2 * kMinute) return fmt::format("{} s", std::max<int64_t>(seconds, 0));
  if (seconds < 2 * kHour) return fmt::format("{} min", seconds / kMinute);
  return seconds < 2 * kDay ? fmt::format("{} h", seconds / kHour) : fmt::format("{} d", seconds / kDay);
}

std::string count_text(int64_t n, std::string_view noun) {
  if (n == 1) return fmt::format("1 {}", noun);
  if (noun.ends_with("ch")) return fmt::format("{} {}es", n, noun);
  return noun.ends_with('y') ? fmt::format("{} {}ies", n, noun.substr(0, noun.size() - 1))
                             : fmt::format("{} {}s", n, noun);
}

std::string shortened(const std::string& text, size_t most) {
  return text.size() > most ? text.substr(0, most - 3) + "..." : text;
}

std::vector<NamedTarget> parse_targets(const std::string& names) {
  std::vector<NamedTarget> out;
  for (size_t at = 0; at <= names.size();) {
    const size_t end = std::min(names.find(',', at), names.size());
    const std::string name = names.substr(at, end - at);
    at = end + 1;
    const Target target = target_named(name);
    const auto same = [&](const NamedTarget& t) { return t.target == target; };
    if (std::none_of(out.begin(), out.end(), same)) out.push_back({name, target});
  }
  return out;
}

}  // namespace kiln::cli
