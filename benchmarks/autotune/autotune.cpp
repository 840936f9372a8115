// SPDX-License-Identifier: Apache-2.0
// kiln-autotune: worlds of 1, 2, 4, ... processes tune the kernels of one workload, each process with its own
// cache and pinned to a CPU with one thread. Reports, as Google Benchmark does, the wall time of each world,
// and as counters: how even the work was, what the exchange cost, how many different plans came out (one),
// and what a second start tunes (nothing).
#include <benchmark/benchmark.h>
#include <fmt/core.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
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
#include "benchmarks/autotune/file_store.h"
#include "benchmarks/workloads.h"
#include "ir/base/hash.h"
#include "ir/base/options.h"
#include "ir/graph.h"

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct Settings {
  std::string workload = "gpt-small", ranks = "1,2,4", folder;
  double budget = 120;
  // Of one process of a world.
  int rank = -1, size = 0;
  std::string world, graph;
};

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  KILN_CHECK(in, io, "kiln-autotune: cannot read {}", path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

// --- one process of a world ---

/// Pins to one of the CPUs that this process may run on.
void pin(int rank) {
  cpu_set_t all, one;
  CPU_ZERO(&one);
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  int left = rank % CPU_COUNT(&all);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &all) || left-- > 0) continue;
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

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
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  pin(s.rank);
  const kiln::Graph graph = kiln::parse_graph(read(s.graph));
  const auto store = std::make_shared<kiln::bench::FileStore>(s.world + "/store");
  kiln::DiskCache cache(fmt::format("{}/cache{}", s.folder, s.rank), int64_t{1} << 32);
  kiln::TuneOptions o{.level = kiln::TuneLevel::fast,
                      .budget_s = s.budget,
                      .store = store,
                      .rank = s.rank,
                      .prefix = "bench"};
  for (int r = 0; r < s.size; ++r) o.ranks.push_back(r);
  if (store->add("ready", 1) == s.size) store->set("go", "go");
  store->wait("go", kiln::Seconds(60), "");
  const double start = now(), cpu_start = cpu_now();
  kiln::TuneStats stats;
  kiln::LowerOptions lower;
  lower.schedules = choose_schedules(graph, {}, kiln::host_target(), &cache, o, &stats);
  const double end = now();
  const kiln::LoweredProgram program = lower_cpu(graph, {}, kiln::host_target(), lower);
  std::string plan = serialize(program.plan);
  for (const kiln::KernelSource& k : program.kernels) plan += k.text;
  std::ofstream(fmt::format("{}/rank{}.json", s.world, s.rank)) << Json{{"start", start},
                                                                        {"end", end},
                                                                        {"measure", stats.measure_seconds},
                                                                        {"cpu", cpu_now() - cpu_start},
                                                                        {"kernels", stats.kernels},
                                                                        {"tuned", stats.tuned},
                                                                        {"received", stats.received},
                                                                        {"plan", kiln::hash128(plan).hex()}};
  return 0;
}

// --- worlds ---

struct Rank {
  double start, end, measure, cpu;
  int kernels, tuned, received;
  std::string plan;
};

/// Starts the processes of a world and waits for them. Throws: comm, when one fails.
std::vector<Rank> run_world(const Settings& s, int size, const fs::path& world) {
  fs::remove_all(world);
  fs::create_directories(world);
  std::vector<pid_t> children;
  for (int r = 0; r < size; ++r) {
    std::vector<std::string> words = {"/proc/self/exe",
                                      "--rank",
                                      std::to_string(r),
                                      "--size",
                                      std::to_string(size),
                                      "--world",
                                      world.string(),
                                      "--folder",
                                      s.folder,
                                      "--graph",
                                      s.graph,
                                      "--budget",
                                      std::to_string(s.budget)};
    std::vector<char*> args;
    for (std::string& w : words) args.push_back(w.data());
    args.push_back(nullptr);
    const pid_t pid = fork();
    if (pid == 0) {
      execv("/proc/self/exe", args.data());
      _exit(127);
    }
    KILN_CHECK(pid > 0, comm, "kiln-autotune: cannot start rank {} of {}", r, size);
    children.push_back(pid);
  }
  bool ok = true;
  for (const pid_t pid : children) {
    int status = 0;
    ok = waitpid(pid, &status, 0) == pid && status == 0 && ok;
  }
  KILN_CHECK(ok, comm, "kiln-autotune: a rank of a world of {} failed", size);
  std::vector<Rank> out;
  for (int r = 0; r < size; ++r) {
    const Json j = Json::parse(read(world / fmt::format("rank{}.json", r)));
    out.push_back(
        {j["start"], j["end"], j["measure"], j["cpu"], j["kernels"], j["tuned"], j["received"], j["plan"]});
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
    double longest = 0, sum = 0, cpu = 0;
    int tuned = 0, again = 0;
    for (const Rank& r : cold) {
      plans.insert(r.plan);
      longest = std::max(longest, r.measure), sum += r.measure, tuned += r.tuned;
      cpu = std::max(cpu, r.cpu);
    }
    for (const Rank& r : warm) plans.insert(r.plan), again += r.tuned;
    state.counters["kernels"] = cold[0].kernels;
    state.counters["tuned"] = tuned;
    state.counters["cpu_s"] = cpu;
    state.counters["balance"] = sum > 0 ? longest * size / sum : 1;
    state.counters["not_measuring_s"] = wall(cold) - longest;
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
  app.add_option("--rank", s.rank, "(of a process of a world)")->group("");
  app.add_option("--size", s.size, "")->group("");
  app.add_option("--world", s.world, "")->group("");
  app.add_option("--graph", s.graph, "")->group("");
  CLI11_PARSE(app, argc, argv);
  try {
    return s.rank >= 0 ? run_rank(s) : run_worlds(s);
  } catch (const kiln::Error& e) {
    fmt::print(stderr, "kiln-autotune: {}\n", e.what());
    return 1;
  }
}
