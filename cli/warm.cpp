// SPDX-License-Identifier: Apache-2.0
// `kiln warm`: compiles the programs of a job into the cache before the run that needs them, for any target.
// Nothing is loaded or run.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/text.h"
#include "cli/tuning.h"
#include "codegen/job.h"
#include "codegen/program.h"
#include "codegen/program_key.h"
#include "runtime/signal_mask.h"
#include "runtime/thread_pool.h"

namespace kiln::cli {

namespace {

struct WarmOptions {
  std::string job;
  std::string targets = "host";
  TuneArguments tune;
  int jobs = 0, threads = 0;
  bool json = false;
};

/// One program for one target and, where it is tuned, one number of threads; and what became of it.
struct Task {
  size_t program = 0;
  const NamedTarget* target = nullptr;
  int threads = 0;  ///< tuned for so many; 0: not tuned
  bool done = false;
  LowerOptions options;
  TuneStats tune;
  CompileStats stats;
  std::string error;
  int64_t bytes = 0;  ///< of the entry that a start will read

  std::string place() const {
    return threads ? fmt::format("{}, {}", target->name, count_text(threads, "thread")) : target->name;
  }
  bool is_cuda() const { return cuda_target(target->target) != nullptr; }
  /// "3 of 15 kernels compiled"; kernels of CUDA are compiled several at a time.
  std::string compiled_text() const {
    return is_cuda() ? fmt::format("{}, {} compiled", count_text(stats.kernels, "kernel"),
                                   count_text(stats.compiled, "source"))
                     : fmt::format("{} of {} kernels compiled", stats.compiled, stats.kernels);
  }
  const char* status() const { return !error.empty() ? "failed" : stats.from_cache ? "cached" : "compiled"; }
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// What a person sees meanwhile: a bar where stderr is a terminal, else a line for each task.
class Progress {
 public:
  Progress(size_t total, bool json) : total_(total), json_(json), terminal_(isatty(STDERR_FILENO) == 1) {}
  ~Progress() { clear(); }

  void show(const std::string& name, const Task& t) {
    const std::lock_guard lock(mutex_);
    ++done_;
    const std::string what = fmt::format("{} for {}", name, t.place());
    if (terminal_) {
      bar(done_, total_, what);
    } else if (!json_) {
      const std::string kernels = t.error.empty() ? ", " + t.compiled_text() : "";
      fmt::print("[{}/{}] {}: {}{}, {:.2f} s\n", done_, total_, what, t.status(), kernels,
                 t.stats.total_ms / 1000);
      std::fflush(stdout);
    }
  }
  /// While schedules are measured, which is before anything is compiled.
  void tuned(const std::string& name, const Task& t, int done, int all) {
    const std::lock_guard lock(mutex_);
    tuned_ = done;
    const std::string what = fmt::format("kernels of {} for {} tuned", name, t.place());
    if (terminal_) bar(static_cast<size_t>(done), static_cast<size_t>(all), what);
  }
  void interrupted() {
    const std::lock_guard lock(mutex_);
    clear();
    const std::string tuned = tuned_ > 0 ? fmt::format(", and {} tuned", count_text(tuned_, "kernel")) : "";
    fmt::print(stderr, "kiln: warm: interrupted; {} of {} are done and kept{}\n", done_, total_, tuned);
  }

 private:
  static void bar(size_t done, size_t total, const std::string& what) {
    constexpr size_t kWidth = 30;
    const size_t filled = kWidth * done / total;
    fmt::print(stderr, "\r\033[K[{}{}] {}/{} {}", std::string(filled, '#'), std::string(kWidth - filled, '.'),
               done, total, what.substr(0, 60));
    std::fflush(stderr);
  }
  void clear() const {
    if (terminal_) fmt::print(stderr, "\r\033[K");
  }
  std::mutex mutex_;
  size_t done_ = 0;
  int tuned_ = 0;
  const size_t total_;
  const bool json_, terminal_;
};

/// Ends the process on Ctrl-C, saying what was done. Other threads must have signals blocked.
class Interrupt {
 public:
  explicit Interrupt(Progress& progress)
      : thread_([this, &progress](const std::stop_token& stop) {
          sigset_t set;
          sigemptyset(&set);
          for (const int s : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, s);
          constexpr timespec kTick{0, 50'000'000};
          while (!stop.stop_requested()) {
            const int got = sigtimedwait(&set, nullptr, &kTick);
            if (got < 0) continue;
            progress.interrupted();
            _exit(128 + got);  // a compile cannot be stopped; what is stored is whole
          }
        }) {}

 private:
  std::jthread thread_;
};

class Warm {
 public:
  explicit Warm(const WarmOptions& o)
      : options_(o),
        targets_(parse_targets(o.targets)),
        job_(read_job(o.job)),
        jobs_(o.jobs > 0 ? o.jobs : default_threads()),
        schedules_(o.tune) {
    const bool tune = o.tune.on();
    KILN_CHECK(tune || o.threads == 0, invalid,
               "warm: --threads is the number to tune for; got {} without --tune or --tuning", o.threads);
    for (const NamedTarget& t : targets_) {
      const auto* cpu = std::get_if<CpuTarget>(&t.target);
      KILN_CHECK(!tune || cpu, invalid, "warm: --tune and --tuning are for CPUs; got --target {}", t.name);
      if (measures()) check_runs_here(*cpu);  // to measure is to run
      for (size_t i = 0; i < job_.programs.size(); ++i) {
        const JobProgram& p = job_.programs[i];
        for (const int threads : tune ? thread_counts(p, o.threads) : std::vector{0})
          tasks_.push_back({i, &t, threads, false, p.options});
      }
    }
    KILN_CHECK(!tasks_.empty(), invalid, "{}: the job holds no program", o.job);
  }

  void run() {
    cache_.check_writable();
    const auto start = std::chrono::steady_clock::now();
    {
      const SignalsBlocked blocked;
      Progress progress(tasks_.size(), options_.json);
      const Interrupt interrupt(progress);
      for (Task& t : tasks_)
        if (t.threads) choose(t, progress);
      std::vector<std::jthread> team;
      for (size_t i = 0; i < workers(); ++i) team.emplace_back([&] { work(progress); });
    }
    seconds_ = seconds_since(start);
    options_.json ? print_json() : print_text();
    check();
  }

 private:
  bool measures() const { return options_.tune.level != "off" && options_.tune.file.empty(); }
  const JobProgram& program(const Task& t) const { return job_.programs[t.program]; }
  int64_t count(std::string_view status) const {
    return std::count_if(tasks_.begin(), tasks_.end(),
                         [&](const Task& t) { return t.done && t.status() == status; });
  }
  int64_t bytes() const {
    int64_t sum = 0;
    for (const Task& t : tasks_) sum += t.bytes;
    return sum;
  }

  /// Measures alone: other work would blur the times.
  void choose(Task& t, Progress& progress) {
    const auto show = [&](int done, int all) { progress.tuned(program(t).name, t, done, all); };
    try {
      t.options.schedules =
          schedules_.of(program(t), t.target->target, cache_, measures(), t.threads, &t.tune, show);
    } catch (const std::exception& e) {
      t.error = e.what();
    }
  }

  void work(Progress& progress) {
    for (size_t i = next_++; i < tasks_.size() && cache_.stats().failed_stores == 0; i = next_++) {
      Task& t = tasks_[i];
      compile(t);
      t.done = true;
      try {
        progress.show(program(t).name, t);
      } catch (const std::exception&) {
        // Nobody reads it any more; the work goes on.
      }
    }
  }

  size_t workers() const { return std::min<size_t>(static_cast<size_t>(jobs_), tasks_.size()); }
  /// Of each worker: several, where there are fewer programs than threads.
  int threads() const { return jobs_ / static_cast<int>(workers()); }

  void compile(Task& t) {
    if (!t.error.empty()) return;
    const JobProgram& p = program(t);
    const auto start = std::chrono::steady_clock::now();
    try {
      const Target& target = t.target->target;
      const bool machine_code = t.is_cuda();
      t.stats =
          compile_program(p.graph, p.layouts, target, t.options, &cache_, threads(), {}, machine_code).stats;
      const std::string key = program_key(p.graph, p.layouts, target, t.options, machine_code).str();
      if (!cache_.load(kPlanKind, key, true)) t.error = "its entry cannot be read back";
      std::error_code ec;
      const auto size = std::filesystem::file_size(cache_.path_of(kPlanKind, key), ec);
      t.bytes = ec ? 0 : static_cast<int64_t>(size);
    } catch (const std::exception& e) {
      t.error = e.what();
    }
    t.stats.total_ms = 1000 * seconds_since(start);
  }

  void print_text() const {
    int kernels = 0, sources = 0;
    int tuned = 0, found = 0;
    for (const Task& t : tasks_) {
      (t.is_cuda() ? sources : kernels) += t.stats.compiled;
      tuned += t.tune.tuned;
      found += t.tune.found;
    }
    if (options_.tune.on()) fmt::print("{} tuned, {} known\n", count_text(tuned, "kernel"), found);
    std::string compiled = count_text(kernels, "kernel");
    const bool all_cuda =
        std::all_of(tasks_.begin(), tasks_.end(), [](const Task& t) { return t.is_cuda(); });
    if (sources > 0 || all_cuda)
      compiled = (kernels > 0 ? compiled + " and " : "") + count_text(sources, "CUDA source");
    fmt::print("{} for {}: {} compiled, {} from the cache, {} failed; {} compiled, {} to load, {:.2f} s\n",
               count_text(static_cast<int64_t>(job_.programs.size()), "program"),
               count_text(static_cast<int64_t>(targets_.size()), "target"), count("compiled"),
               count("cached"), count("failed"), compiled, bytes_text(static_cast<double>(bytes())),
               seconds_);
  }

  void print_json() const {
    nlohmann::ordered_json out = {
        {"job", options_.job},       {"cache", cache_.folder()},  {"compiled", count("compiled")},
        {"cached", count("cached")}, {"failed", count("failed")}, {"seconds", seconds_},
        {"bytes", bytes()}};
    for (const Task& t : tasks_) {
      if (!t.done) continue;
      nlohmann::ordered_json row = {{"program", t.program},
                                    {"name", program(t).name},
                                    {"target", t.target->name},
                                    {"status", t.status()},
                                    {"kernels", t.stats.kernels},
                                    {"kernels_compiled", t.stats.compiled},
                                    {"seconds", t.stats.total_ms / 1000},
                                    {"bytes", t.bytes},
                                    {"tuned", t.tune.tuned},
                                    {"tune_found", t.tune.found}};
      if (t.threads) row["threads"] = t.threads;
      if (!t.error.empty()) row["error"] = t.error;
      out["programs"].push_back(std::move(row));
    }
    fmt::print("{}\n", out.dump());
  }

  /// A warm that left nothing, or not all, has failed.
  void check() const {
    KILN_CHECK(cache_.stats().failed_stores == 0, io, "warm: cache folder {} cannot be written: {}",
               cache_.folder(), cache_.store_error());
    for (const Task& t : tasks_)
      KILN_CHECK(t.error.empty(), compile, "warm: {} of {} failed; the first, {} for {}: {}", count("failed"),
                 tasks_.size(), program(t).name, t.place(), t.error);
    KILN_CHECK(bytes() <= cache_.limit_bytes(), io,
               "warm: the programs take {}, more than the cache may hold; got a limit of {} (raise "
               "KILN_CACHE_LIMIT_MB, also for the run)",
               bytes_text(static_cast<double>(bytes())),
               bytes_text(static_cast<double>(cache_.limit_bytes())));
  }

  const WarmOptions& options_;
  std::vector<NamedTarget> targets_;
  Job job_;
  int jobs_;
  JobSchedules schedules_;
  DiskCache cache_;
  std::vector<Task> tasks_;
  std::atomic<size_t> next_{0};
  double seconds_ = 0;
};

}  // namespace

void add_warm_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("warm", "Compiles a recorded job into the cache");
  const auto o = std::make_shared<WarmOptions>();
  add_job(*command, o->job);
  add_targets(*command, o->targets,
              "What to compile for, of host, x86-64-v3, x86-64-v4, aarch64, sm_80, sm_90a, ...");
  add_tune(*command, o->tune, "Measure schedules first, as this KILN_TUNE does in a run");
  add_number(*command, "--threads", o->threads, 0, ThreadPool::kMaxThreads,
             "Threads to tune for; 0: each number that a recorded run had");
  add_number(*command, "-j,--jobs", o->jobs, 0, 1024, "Programs compiled at once; 0: one per CPU");
  add_json(*command, o->json);
  command->callback([o] { Warm(*o).run(); });
}

}  // namespace kiln::cli
