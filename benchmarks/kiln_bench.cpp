// SPDX-License-Identifier: Apache-2.0
// kiln-bench: times one workload in one process and prints one line, for people or as JSON.
#include <fmt/format.h>
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

/// What the command line says.
struct Arguments {
  std::string workload, mode = "compiled", device = "cpu", precision = "highest", autocast = "off";
  double secs = 10, activation_mb = 0;
  int threads = 2;
  bool json = false, profile = false;
};

int run(const Arguments& a) {
  if (a.threads == 1) pin_to_core_1();
  kiln::set_option("KILN_NUM_THREADS", std::to_string(a.threads));
  kiln::set_float32_matmul_precision(a.precision);
  const bool compiled = a.mode != "eager";
  const kiln::Autocast autocast(a.autocast == "f16" ? kiln::DType::f16 : kiln::DType::bf16,
                                a.autocast != "off");
  const auto w = kiln::bench::make_workload(
      a.workload, {.compiled = compiled,
                   .threads = a.threads,
                   .profile = a.profile,
                   .device = a.device == "cuda" ? kiln::Device::cuda() : kiln::Device::cpu(),
                   .graphs = a.mode == "graphs",
                   .activation_memory = static_cast<int64_t>(a.activation_mb * (1 << 20))});
  const kiln::bench::Measurement m = kiln::bench::measure([&] { return w->step(); }, a.secs);
  kiln::bench::Extra extra{a.workload, a.mode, a.threads};
  const kiln::CallableStats stats = w->stats();
  for (const kiln::Build& b : stats.builds) {
    extra.arena_mb = std::max(extra.arena_mb, static_cast<double>(b.arena_bytes) / (1 << 20));
    extra.compiled += b.compiled;
  }
  extra.builds = static_cast<int64_t>(stats.builds.size());
  extra.gnorm = w->gnorm();
  if (a.device == "cuda")
    extra.device_peak_mb = static_cast<double>(kiln::cuda::max_memory_allocated()) / (1 << 20);
  fmt::print("{}\n", a.json ? json_line(m, extra) : text_line(m, extra));
  if (a.profile) fmt::print(stderr, "{}", stats.profile);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times training steps of Kiln on the workloads of benchmarks/peers", "kiln-bench");
  Arguments a;
  app.add_option(
         "--workload", a.workload,
         fmt::format(
             "one of {}, mlp-B-W-L (B rows, L layers of W to W), gpt-B-T-W-L (T positions), matmul-N (one "
             "product of N x N matrices), attention-N (over N positions), flex-KIND-N (causal, window or "
             "alibi, by flex_attention); "
             "attention-forward-N and flex-KIND-forward-N are without backward",
             fmt::join(kiln::bench::workload_names(), ", ")))
      ->required();
  app.add_option("--mode", a.mode, "eager, compiled, or graphs: compiled and replayed as CUDA graphs")
      ->check(CLI::IsMember({"eager", "compiled", "graphs"}))
      ->capture_default_str();
  app.add_option("--device", a.device, "where to train")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--precision", a.precision, "of f32 matrix products: highest, or high for tf32 (CUDA)")
      ->check(CLI::IsMember({"highest", "high"}))
      ->capture_default_str();
  app.add_option("--autocast", a.autocast, "dtype of matrix products and convolutions; parameters stay f32")
      ->check(CLI::IsMember({"off", "bf16", "f16"}))
      ->capture_default_str();
  app.add_option("--secs", a.secs, "time to measure, seconds")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  app.add_option("--threads", a.threads, "threads; 1 pins to core 1 as the peers do")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--activation-memory", a.activation_mb,
                 "MiB that results of the forward may take while they wait for the backward; 0: no bound")
      ->check(CLI::Range(0.0, 1e9));
  app.add_flag("--json", a.json, "one line of JSON");
  app.add_flag("--profile", a.profile, "print a table of kernels to stderr (the steps are slower)");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(a);
  } catch (const kiln::Error& e) {
    fmt::print(stderr, "kiln-bench: {}\n", e.what());
    return 1;
  }
}
