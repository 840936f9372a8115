// SPDX-License-Identifier: Apache-2.0
// kiln-ddp: times data-parallel training steps of a workload among the ranks of a launcher, as
// benchmarks/peers/ddp.py does. Rank 0 prints one line of JSON.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "benchmarks/workloads.h"
#include "frontend/distributed.h"
#include "ir/base/options.h"
#include "runtime/collective.h"

namespace {

using Clock = std::chrono::steady_clock;
using Compression = kiln::nn::GradientCompression;

Compression compression_of(const std::string& name) {
  return name == "fp16" ? Compression::fp16 : name == "bf16" ? Compression::bf16 : Compression::none;
}

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}
double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}

struct Options {
  std::string workload = "gpt-small", mode = "compiled";
  std::string compression = "none";
  double bucket_mb = 25;
  int64_t batches = 1;
  int steps = 20;
  int threads = 1;
  bool profile = false;
};

/// What the sums of as many numbers take, in buckets of as many. Units: ms.
double all_reduce_alone(kiln::ProcessGroup& group, int64_t elements, const Options& o) {
  const auto cap = std::max<int64_t>(1, static_cast<int64_t>(o.bucket_mb * (1 << 20) / 4));
  const kiln::DType wire = o.compression == "none"
                               ? kiln::DType::f32
                               : kiln::parse_dtype(o.compression == "fp16" ? "f16" : "bf16");
  std::vector<float> data(static_cast<size_t>(elements), 1);
  std::vector<double> times;
  for (int i = 0; i < 6; ++i) {
    group.barrier({"alone", {}})->wait();
    const auto start = Clock::now();
    std::vector<kiln::WorkPtr> works;
    for (int64_t at = 0; at < elements; at += cap)
      works.push_back(kiln::all_reduce_as(group, data.data() + at, std::min(cap, elements - at),
                                          kiln::DType::f32, wire, {"alone", {}}));
    for (const kiln::WorkPtr& w : works) w->wait();
    if (i > 0) times.push_back(ms_since(start));
  }
  return median(times);
}

int run(const Options& o) {
  kiln::set_option("KILN_NUM_THREADS", std::to_string(o.threads));
  const std::shared_ptr<kiln::ProcessGroup> group = kiln::distributed::init_process_group();
  const auto w = kiln::bench::make_workload(o.workload, {.compiled = o.mode == "compiled",
                                                         .threads = o.threads,
                                                         .profile = o.profile,
                                                         .group = group,
                                                         .bucket_cap_mb = o.bucket_mb,
                                                         .compression = compression_of(o.compression),
                                                         .batches = o.batches});
  const auto start = Clock::now();
  std::vector<double> losses{w->step()};
  const double first_ms = ms_since(start);
  for (int i = 0; i < 2; ++i) losses.push_back(w->step());
  std::vector<double> times;
  group->barrier({"timing", {}})->wait();
  for (int i = 0; i < o.steps; ++i) {
    const auto begin = Clock::now();
    w->step();
    times.push_back(ms_since(begin));
  }
  nlohmann::json j = {{"world", group->size()},
                      {"workload", o.workload},
                      {"mode", o.mode},
                      {"bucket_mb", o.bucket_mb},
                      {"compression", o.compression},
                      {"batches", o.batches},
                      {"median_ms", median(times)},
                      {"min_ms", *std::min_element(times.begin(), times.end())},
                      {"n", times.size()},
                      {"first_step_s", first_ms / 1e3},
                      {"losses", losses},
                      {"builds", w->stats().builds.size()},
                      {"allreduce_alone_ms", all_reduce_alone(*group, w->parameter_count(), o)}};
  if (group->rank() == 0) fmt::print("{}\n", j.dump());
  if (group->rank() == 0 && o.profile) fmt::print(stderr, "{}", w->stats().profile);
  kiln::distributed::destroy_process_group();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times data-parallel training steps among the ranks of kiln run, torchrun or mpirun",
               "kiln-ddp");
  Options o;
  app.add_option("--workload", o.workload, "what to train")
      ->check(CLI::IsMember({"gpt-small", "mlp", "tiny-mlp"}))
      ->capture_default_str();
  app.add_option("--mode", o.mode, "eager or compiled")
      ->check(CLI::IsMember({"eager", "compiled"}))
      ->capture_default_str();
  app.add_option("--bucket", o.bucket_mb, "bucket cap, MiB")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--compression", o.compression, "what gradients are sent as")
      ->check(CLI::IsMember({"none", "fp16", "bf16"}))
      ->capture_default_str();
  app.add_option("--batches", o.batches, "each rank's batch in a step, as a multiple of the workload's")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--steps", o.steps, "timed steps")->check(CLI::Range(1, 100000))->capture_default_str();
  app.add_option("--threads", o.threads, "threads of each rank")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_flag("--profile", o.profile, "rank 0 prints times by kernel (adds barriers)");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(o);
  } catch (const std::exception& e) {
    fmt::print(stderr, "kiln-ddp: {}\n", e.what());
    return 1;
  }
}
