// SPDX-License-Identifier: Apache-2.0
// kiln-autotune: worlds of 1, 2, 4, ... processes, started by `kiln run` on CPUs of their own, tune the
// kernels of one workload with a cache and a thread each. Reports, as Google Benchmark does, the wall time of
// each world, and as counters: the most that a process computed, how even the work was, what the exchange
// cost, how many different plans came out (one), and what a second start tunes (nothing).
#include <benchmark/benchmark.h>
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "autotune/tune.h"
#include "benchmarks/workloads.h"
#include "frontend/distributed.h"
#include "ir/base/hash.h"
#include "ir/base/options.h"
#include "ir/graph.h"
#include "runtime/collective.h"

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct Settings {
  std::string workload = "gpt-small", ranks = "1,2,4", folder;
  double budget = 120;
  std::string graph, world;  // the latter of a process of a world: where its results go
};

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  KILN_CHECK(in, io, "kiln-autotune: cannot read {}", path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

// --- one process of a world ---

/// The monotonic clock is one for all processes.
double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// What this process has computed: what it would take alone on its CPU.
double cpu_now() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

int run_rank(const Settings& s) {
  const auto group = kiln::distributed::init_process_group();
  const kiln::Graph graph = kiln::parse_graph(read(s.graph));
  kiln::DiskCache cache(fmt::format("{}/cache{}", s.folder, group->rank()), int64_t{1} << 32);
  const kiln::TuneOptions o{.level = kiln::TuneLevel::fast,
                            .budget_s = s.budget,
                            .store = group->store(),
                            .rank = group->rank(),
                            .size = group->size(),
                            .prefix = "bench"};
  group->barrier({"start", {}})->wait();
  const double start = now(), cpu_start = cpu_now();
  kiln::TuneStats stats;
  kiln::LowerOptions lower;
  lower.schedules = choose_schedules(graph, {}, kiln::host_target(), &cache, o, &stats);
  const double end = now(), cpu = cpu_now() - cpu_start;
  const kiln::LoweredProgram program = kiln::lower(graph, {}, kiln::host_target(), lower);
  std::string plan = serialize(program.plan);
  for (const kiln::KernelSource& k : program.kernels) plan += k.text;
  std::ofstream(fmt::format("{}/rank{}.json", s.world, group->rank()))
      << Json{{"start", start},
              {"end", end},
              {"measure", stats.measure_seconds},
              {"exchange", stats.exchange_seconds},
              {"cpu", cpu},
              {"kernels", stats.kernels},
              {"tuned", stats.tuned},
              {"plan", kiln::hash128(plan).hex()}};
  kiln::distributed::destroy_process_group();
  return 0;
}

// --- worlds ---

struct Rank {
  double start, end, measure, exchange, cpu;
  int kernels, tuned;
  std::string plan;
};

/// Runs a command to its end. Throws: comm, when it fails.
void run_command(std::vector<std::string> words) {
  std::vector<char*> args;
  for (std::string& w : words) args.push_back(w.data());
  args.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    execv(args[0], args.data());
    _exit(127);
  }
  int status = 0;
  KILN_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, comm,
             "kiln-autotune: failed: {}; its output says why", fmt::join(words, " "));
}

std::vector<Rank> run_world(const Settings& s, int size, const fs::path& world) {
  fs::remove_all(world);
  fs::create_directories(world);
  const fs::path self = fs::read_symlink("/proc/self/exe");
  run_command({self.parent_path() / "kiln", "run", "--nproc", std::to_string(size), "--", self, "--world",
               world, "--folder", s.folder, "--graph", s.graph, "--budget", std::to_string(s.budget)});
  std::vector<Rank> out;
  for (int r = 0; r < size; ++r) {
    const Json j = Json::parse(read(world / fmt::format("rank{}.json", r)));
    out.push_back(
        {j["start"], j["end"], j["measure"], j["exchange"], j["cpu"], j["kernels"], j["tuned"], j["plan"]});
  }
  return out;
}

double wall(const std::vector<Rank>& ranks) {
  double start = ranks[0].start, end = ranks[0].end;
  for (const Rank& r : ranks) start = std::min(start, r.start), end = std::max(end, r.end);
  return end - start;
}

/// A world tunes from nothing, then starts once more.
void tune(benchmark::State& state, const Settings& s, int size) {
  for (auto _ : state) {
    for (int r = 0; r < size; ++r) fs::remove_all(fmt::format("{}/cache{}", s.folder, r));
    const fs::path world = fs::path(s.folder) / fmt::format("world{}", size);
    const std::vector<Rank> cold = run_world(s, size, world), warm = run_world(s, size, world);
    state.SetIterationTime(wall(cold));
    std::set<std::string> plans;
    double longest = 0, sum = 0, exchange = 0, cpu = 0;
    int tuned = 0, again = 0;
    for (const Rank& r : cold) {
      plans.insert(r.plan);
      longest = std::max(longest, r.measure), sum += r.measure, tuned += r.tuned;
      exchange = std::max(exchange, r.exchange), cpu = std::max(cpu, r.cpu);
    }
    for (const Rank& r : warm) plans.insert(r.plan), again += r.tuned;
    state.counters["kernels"] = cold[0].kernels;
    state.counters["tuned"] = tuned;
    state.counters["cpu_s"] = cpu;
    state.counters["balance"] = sum > 0 ? longest * size / sum : 1;
    state.counters["exchange_s"] = exchange;
    state.counters["plans"] = static_cast<double>(plans.size());
    state.counters["second_start_s"] = wall(warm);
    state.counters["second_start_tunes"] = again;
    if (plans.size() != 1) state.SkipWithError("the ranks chose different plans");
    if (again != 0) state.SkipWithError("the second start tuned");
  }
}

/// The graph that the workload's step compiles, as text in `folder`.
std::string graph_of(const Settings& s) {
  const fs::path dumps = fs::path(s.folder) / "dump";
  kiln::set_option("KILN_NUM_THREADS", "1");
  kiln::set_option("KILN_DUMP", "grad");
  kiln::set_option("KILN_DUMP_DIR", dumps.string());
  kiln::bench::make_workload(s.workload, {.threads = 1})->step();
  kiln::set_option("KILN_DUMP", "");
  fs::path largest;
  for (const auto& file : fs::directory_iterator(dumps))
    if (largest.empty() || file.file_size() > fs::file_size(largest)) largest = file.path();
  KILN_CHECK(!largest.empty(), internal, "kiln-autotune: no graph was dumped");
  return largest.string();
}

int run_worlds(Settings s) {
  const bool own = s.folder.empty();
  if (own) s.folder = (fs::temp_directory_path() / fmt::format("kiln-autotune-{}", getpid())).string();
  fs::create_directories(s.folder);
  s.graph = graph_of(s);
  std::stringstream list(s.ranks);
  for (std::string word; std::getline(list, word, ',');) {
    const int size = std::stoi(word);
    benchmark::RegisterBenchmark(fmt::format("tune/{}/ranks:{}", s.workload, size).c_str(),
                                 [s, size](benchmark::State& state) { tune(state, s, size); })
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kSecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  if (own) fs::remove_all(s.folder);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  CLI::App app("Times tuning the kernels of a workload by 1, 2, ... processes", "kiln-autotune");
  Settings s;
  app.add_option("--workload", s.workload, "whose kernels")
      ->check(CLI::IsMember(kiln::bench::workload_names()));
  app.add_option("--ranks", s.ranks, "sizes of the worlds")->capture_default_str();
  app.add_option("--budget", s.budget, "seconds that a rank may measure for")->capture_default_str();
  app.add_option("--folder", s.folder, "where caches and results go; default a temporary folder");
  app.add_option("--world", s.world, "(of a process of a world)")->group("");
  app.add_option("--graph", s.graph, "")->group("");
  CLI11_PARSE(app, argc, argv);
  try {
    return !s.world.empty() ? run_rank(s) : run_worlds(s);
  } catch (const std::exception& e) {
    fmt::print(stderr, "kiln-autotune: {}\n", e.what());
    return 1;
  }
}
