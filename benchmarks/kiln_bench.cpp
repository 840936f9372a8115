// SPDX-License-Identifier: Apache-2.0
// kiln-bench: times one workload in one process and prints one line, for people or as JSON.
#include <fmt/core.h>
#include <sched.h>

#include <CLI/CLI.hpp>

#include "benchmarks/timing.h"
#include "benchmarks/workloads.h"
#include "ir/base/options.h"

namespace {

/// With one thread the peers run on core 1: so does Kiln.
void pin_to_core_1() {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(1, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0)
    fmt::print(stderr, "kiln-bench: cannot pin to core 1; going on unpinned\n");
}

int run(const std::string& workload, const std::string& mode, double secs, int threads, bool json,
        bool profile) {
  if (threads == 1) pin_to_core_1();
  kiln::set_option("KILN_NUM_THREADS", std::to_string(threads));
  const bool compiled = mode == "compiled";
  const auto w =
      kiln::bench::make_workload(workload, {.compiled = compiled, .threads = threads, .profile = profile});
  const kiln::bench::Measurement m = kiln::bench::measure([&] { return w->step(); }, secs);
  kiln::bench::Extra extra{workload, mode, threads};
  const kiln::CallableStats stats = w->stats();
  for (const kiln::Build& b : stats.builds) {
    extra.arena_mb = std::max(extra.arena_mb, static_cast<double>(b.arena_bytes) / (1 << 20));
    extra.compiled += b.compiled;
  }
  extra.builds = static_cast<int64_t>(stats.builds.size());
  extra.gnorm = w->gnorm();
  fmt::print("{}\n", json ? json_line(m, extra) : text_line(m, extra));
  if (profile) fmt::print(stderr, "{}", stats.profile);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times training steps of Kiln on the workloads of benchmarks/peers", "kiln-bench");
  std::string workload, mode = "compiled";
  double secs = 10;
  int threads = 2;
  bool json = false, profile = false;
  app.add_option("--workload", workload, "what to train")
      ->required()
      ->check(CLI::IsMember(kiln::bench::workload_names()));
  app.add_option("--mode", mode, "eager or compiled")
      ->check(CLI::IsMember({"eager", "compiled"}))
      ->capture_default_str();
  app.add_option("--secs", secs, "time to measure, seconds")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  app.add_option("--threads", threads, "threads; 1 pins to core 1 as the peers do")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_flag("--json", json, "one line of JSON");
  app.add_flag("--profile", profile, "print a table of kernels to stderr (the steps are slower)");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(workload, mode, secs, threads, json, profile);
  } catch (const kiln::Error& e) {
    fmt::print(stderr, "kiln-bench: {}\n", e.what());
    return 1;
  }
}
