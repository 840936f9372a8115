// SPDX-License-Identifier: Apache-2.0
#include "cli/cpu_sets.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <tuple>

#include "ir/base/error.h"

namespace kiln::cli {

namespace {

/// A number of /sys/devices/system/cpu/cpu<cpu>/topology; 0 where the kernel has none.
int topology(int cpu, const char* name) {
  std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/{}", cpu, name));
  int value = 0;
  return file >> value ? value : 0;
}

}  // namespace

std::vector<int> usable_cpus() {
  std::vector<std::tuple<int, int, int>> places;
  // The kernel refuses a set that is smaller than its own.
  for (int size = CPU_SETSIZE; size <= (1 << 20); size *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(size));
    KILN_CHECK(set, io, "run: no memory for a set of {} CPUs", size);
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(size));
    const int error = sched_getaffinity(0, bytes, set) == 0 ? 0 : errno;
    for (int cpu = 0; error == 0 && cpu < size; ++cpu)
      if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set))
        places.emplace_back(topology(cpu, "physical_package_id"), topology(cpu, "core_id"), cpu);
    CPU_FREE(set);
    if (error == 0) break;
    KILN_CHECK(error == EINVAL, io, "run: the CPUs of this process are unknown; {}", std::strerror(error));
  }
  std::sort(places.begin(), places.end());
  std::vector<int> out;
  for (const auto& place : places) out.push_back(std::get<2>(place));
  KILN_CHECK(!out.empty(), io, "run: the system names no CPU for this process");
  return out;
}

std::vector<std::vector<int>> share_cpus(const std::vector<int>& cpus, int ranks) {
  const auto n = static_cast<int64_t>(cpus.size());
  std::vector<std::vector<int>> out;
  for (int64_t r = 0; r < ranks; ++r) {
    const int64_t first = r * n / ranks, last = std::max(first + 1, (r + 1) * n / ranks);
    out.emplace_back(cpus.begin() + first, cpus.begin() + last);
  }
  return out;
}

}  // namespace kiln::cli
