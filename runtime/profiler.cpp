// SPDX-License-Identifier: Apache-2.0
#include "runtime/profiler.h"

#include <algorithm>

#include "ir/base/error.h"
#include "runtime/machine.h"

namespace kiln {

ProfileEntry& Profiler::entry(const std::string& name, const std::string& ops, Device device) {
  for (ProfileEntry& e : entries_)
    if (e.name == name && e.ops == ops && e.device == device) return e;
  entries_.push_back({name, ops, device});
  return entries_.back();
}

void Profiler::record(const Plan& plan, std::span<const int64_t> dims, std::span<const int64_t> launch_ns,
                      int64_t total_ns, Device device) {
  KILN_ASSERT(launch_ns.size() == plan.launches.size(), "{} times for {} launches", launch_ns.size(),
              plan.launches.size());
  const auto size = [&](DimIndex d) {
    return d >= 0 ? static_cast<double>(dims[static_cast<size_t>(d)]) : 0.0;
  };
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < plan.launches.size(); ++i) {
    const Launch& l = plan.launches[i];
    const ProfileRow* row = l.profile >= 0 ? &plan.profile[static_cast<size_t>(l.profile)] : nullptr;
    ProfileEntry& e = row ? entry(row->name, row->ops, device)
                          : entry(plan.kernels[static_cast<size_t>(l.kernel)].symbol, "", device);
    ++e.launches;
    e.seconds += static_cast<double>(launch_ns[i]) * 1e-9;
    if (!row) continue;
    e.bytes += size(row->bytes);
    e.flops += size(row->flops);
    for (const int32_t s : row->sources)
      if (std::find(e.sources.begin(), e.sources.end(), s) == e.sources.end()) e.sources.push_back(s);
  }
  ++calls_;
  total_ns_ += total_ns;
}

std::vector<ProfileEntry> Profiler::entries() const {
  std::vector<ProfileEntry> out;
  {
    std::lock_guard lock(mutex_);
    out = entries_;
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const ProfileEntry& a, const ProfileEntry& b) { return a.seconds > b.seconds; });
  return out;
}

int64_t Profiler::calls() const {
  std::lock_guard lock(mutex_);
  return calls_;
}

double Profiler::seconds() const {
  std::lock_guard lock(mutex_);
  return static_cast<double>(total_ns_) * 1e-9;
}

void Profiler::reset() {
  std::lock_guard lock(mutex_);
  entries_.clear();
  calls_ = total_ns_ = 0;
}

namespace {
std::string rate(double amount, double seconds) {
  return amount > 0 && seconds > 0 ? fmt::format("{:.1f}", amount / seconds * 1e-9) : "-";
}
}  // namespace

std::string Profiler::table(const MachineLimits& limits) const {
  const std::vector<ProfileEntry> all = entries();
  const double total = seconds();
  size_t width = 20;
  for (const ProfileEntry& e : all) width = std::max(width, std::min<size_t>(e.name.size(), 60));
  std::string out = fmt::format("{:<{}} {:>9} {:>12} {:>10} {:>6} {:>8} {:>9} {:>7}\n", "kernel", width,
                                "launches", "total us", "mean us", "share", "GB/s", "GFLOP/s", "% limit");
  double in_kernels = 0, limit_total = 0;
  const auto line = [&](const ProfileEntry& e) {
    const double limit = e.device.is_cuda() ? 0 : limits.seconds(e.bytes, e.flops);
    in_kernels += e.seconds;
    limit_total += limit;
    out += fmt::format(
        "{:<{}} {:>9} {:>12.1f} {:>10.2f} {:>5.1f}% {:>8} {:>9} {:>7}\n", e.name, width, e.launches,
        e.seconds * 1e6, e.launches ? e.seconds * 1e6 / static_cast<double>(e.launches) : 0.0,
        total > 0 ? 100 * e.seconds / total : 0.0, rate(e.bytes, e.seconds), rate(e.flops, e.seconds),
        limit > 0 && e.seconds > 0 ? fmt::format("{:.0f}", 100 * limit / e.seconds) : "-");
  };
  for (const ProfileEntry& e : all) line(e);
  line({"(between launches)", "", {}, calls(), std::max(0.0, total - in_kernels)});
  const bool gpu = !all.empty() && all[0].device.is_cuda();
  const std::string where = gpu ? all[0].device.str() : fmt::format("{} threads", limits.threads);
  out += fmt::format("total {:.1f} us in {} calls on {}", total * 1e6, calls(), where);
  if (limit_total > 0 && total > 0)
    out += fmt::format(", {:.0f}% of the machine's limit", 100 * limit_total / total);
  return out + "\n";
}

}  // namespace kiln
