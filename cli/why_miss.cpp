// SPDX-License-Identifier: Apache-2.0
// `kiln cache why-miss`: for each program of a job, whether a start would find it, and else the entry that
// comes nearest and the part of the key in which it differs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "autotune/record.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/text.h"
#include "cli/tuning.h"
#include "codegen/disk_cache.h"
#include "codegen/job.h"
#include "codegen/key_summary.h"
#include "codegen/program_key.h"
#include "ir/base/error.h"
#include "ir/base/text.h"
#include "runtime/thread_pool.h"

namespace kiln::cli {

namespace {

using Json = nlohmann::ordered_json;

/// Words of one text that the other lacks: "-avx512f" for what it would have to have.
std::string words_apart(const std::string& here, const std::string& there, char at) {
  const std::vector<std::string> a = split(here, at), b = split(there, at);
  std::string out;
  for (const std::string& w : b)
    if (std::find(a.begin(), a.end(), w) == a.end()) out += " " + w;
  out += ", here";
  for (const std::string& w : a)
    if (std::find(b.begin(), b.end(), w) == b.end()) out += " " + w;
  return "there" + out;
}

/// "line 12: there `x`, here `y`".
std::string first_line_apart(const std::string& here, const std::string& there) {
  const std::vector<std::string> a = split(here, '\n'), b = split(there, '\n');
  size_t i = 0;
  while (i < a.size() && i < b.size() && a[i] == b[i]) ++i;
  const auto line = [&](const std::vector<std::string>& lines) {
    const size_t from = i < lines.size() ? std::min(lines[i].find_first_not_of(' '), lines[i].size()) : 0;
    return i < lines.size() ? lines[i].substr(from) : "";
  };
  return fmt::format("line {}: there `{}`, here `{}`", i + 1, line(b), line(a));
}

/// A difference: which part, and how.
struct Apart {
  std::string part, how;
};

std::vector<Apart> differences(const ProgramKey& here, const ProgramKey& there) {
  std::vector<Apart> out;
  if (here.graph != there.graph) out.push_back({"graph", first_line_apart(here.graph, there.graph)});
  if (here.layouts != there.layouts)
    out.push_back({"layouts", first_line_apart(here.layouts, there.layouts)});
  if (here.options != there.options)
    out.push_back({"options", fmt::format("there {}, here {}", there.options, here.options)});
  if (here.target != there.target)
    out.push_back(
        {"target", words_apart(split(here.target, ' ').back(), split(there.target, ' ').back(), ',')});
  if (here.sources != there.sources)
    out.push_back(
        {"Kiln", fmt::format("there built from sources {:.12}, here {:.12}", there.sources, here.sources)});
  // The target is among the compiler's flags; a different one is said once.
  if (here.compiler != there.compiler && (here.target == there.target || out.empty()))
    out.push_back({"compiler", words_apart(here.compiler, there.compiler, ' ')});
  return out;
}

/// How much two keys have in common: the graph first, then its lines, then the other parts.
std::tuple<bool, int64_t, int> likeness(const ProgramKey& a, const ProgramKey& b) {
  const std::vector<std::string> x = split(a.graph, '\n'), y = split(b.graph, '\n');
  int64_t lines = 0;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) lines += x[i] == y[i];
  const auto longer = static_cast<int64_t>(std::max(x.size(), y.size()));
  return {a.graph == b.graph, lines - longer,
          (a.target == b.target) + (a.layouts == b.layouts) + (a.options == b.options) +
              (a.sources == b.sources)};
}

/// Every program of the cache, by its key.
struct Found {
  std::string entry;
  ProgramKey key;
};
std::vector<Found> programs_of(const DiskCache& cache) {
  std::vector<Found> out;
  const std::string head = fmt::format("{}\n", kPlanKind);
  for (const DiskCache::Entry& e : cache.entries()) {
    if (e.kind != kPlanKind) continue;
    const EntryContent content = cache.read(e);
    Found found{e.name, {}};
    if (content.state == EntryState::good &&
        parse_program_key(std::string_view(content.full_key).substr(head.size()), found.key))
      out.push_back(std::move(found));
  }
  return out;
}

struct Answer {
  bool hit = false;
  std::string why, nearest;
  std::vector<Apart> apart;
};

Answer look(const DiskCache& cache, const std::vector<Found>& there, const ProgramKey& key) {
  Answer a;
  const std::string name = std::filesystem::path(cache.path_of(kPlanKind, key.str())).filename();
  const EntryContent own = cache.read({std::string(kPlanKind), name, 0, 0, 0});
  a.hit = own.state == EntryState::good;
  if (a.hit) return a;
  if (own.state == EntryState::damaged) {
    a.why = fmt::format("its entry {} is damaged: {}", name, own.why);
    return a;
  }
  const auto best = std::max_element(there.begin(), there.end(), [&](const Found& x, const Found& y) {
    return likeness(key, x.key) < likeness(key, y.key);
  });
  if (best == there.end()) {
    a.why = "the cache holds no program";
    return a;
  }
  a.nearest = best->entry;
  a.apart = differences(key, best->key);
  a.why = fmt::format("the nearest entry, {:.12}, {}", best->entry,
                      best->key.graph == key.graph ? "has the same graph and differs in" : "differs in");
  return a;
}

/// Looks for the rows of tuning; without them all a run that tunes measures first. Returns the schedules
/// that are known.
ScheduleChoices look_for_rows(const JobSchedules& schedules, DiskCache& cache, const std::set<int>& tuned,
                              const JobProgram& p, const Target& target, int threads, Answer& a) {
  const auto known = [&](int count, TuneStats& stats) {
    return schedules.of(p, target, cache, false, count, &stats);
  };
  TuneStats here;
  ScheduleChoices out = known(threads, here);
  if (here.found == here.kernels) return out;
  std::vector<std::string> others;
  for (const int count : tuned) {
    TuneStats there;
    if (count != threads) known(count, there);
    if (there.found > here.found) others.push_back(std::to_string(count));
  }
  a.why = fmt::format("{} of {} are not tuned for {}", here.kernels - here.found,
                      count_text(here.kernels, "kernel"), count_text(threads, "thread"));
  if (!others.empty()) {
    const std::string there = fmt::format("{}", fmt::join(others, ", "));
    a.why += fmt::format(" but for {} (kiln warm --tune fast --threads {})", there, threads);
    a.apart.push_back({"threads", fmt::format("there {}, here {}", there, threads)});
  }
  return out;
}

struct WhyMissOptions {
  std::string job, target = "host";
  TuneArguments tune;
  int threads = 0;
  bool json = false;
};

void why_miss(const WhyMissOptions& o) {
  const bool tune = o.tune.on();
  KILN_CHECK(
      tune || o.threads == 0, invalid,
      "cache why-miss: --threads is the number that a run tunes for; got {} without --tune or --tuning",
      o.threads);
  const JobSchedules schedules(o.tune);
  const std::vector<NamedTarget> targets = parse_targets(o.target);
  const Job job = read_job(o.job);
  DiskCache cache;
  const std::vector<Found> there = programs_of(cache);
  const std::set<int> tuned = tune ? tuned_thread_counts(cache) : std::set<int>();
  Json rows = Json::array();
  int64_t hits = 0, all = 0;
  const auto answer = [&](const NamedTarget& t, const JobProgram& p, int threads) {
    LowerOptions lower = p.options;
    Answer a;
    if (tune) lower.schedules = look_for_rows(schedules, cache, tuned, p, t.target, threads, a);
    if (a.why.empty())
      a = look(cache, there, program_key(p.graph, p.layouts, t.target, lower, cuda_target(t.target)));
    hits += a.hit;
    ++all;
    const std::string place = tune ? fmt::format("{}, {}", t.name, count_text(threads, "thread")) : t.name;
    if (!o.json) {
      fmt::print("{} for {}: {}\n", p.name, place, a.hit ? "hit" : "miss: " + a.why);
      for (const Apart& d : a.apart) fmt::print("  {}: {}\n", d.part, d.how);
      return;
    }
    rows.push_back(
        {{"name", p.name}, {"target", t.name}, {"hit", a.hit}, {"why", a.why}, {"nearest", a.nearest}});
    if (tune) rows.back()["threads"] = threads;
    for (const Apart& d : a.apart) rows.back()["differs"][d.part] = d.how;
  };
  for (const NamedTarget& t : targets)
    for (const JobProgram& p : job.programs)
      for (const int threads : tune ? thread_counts(p, o.threads) : std::vector{0}) answer(t, p, threads);
  if (o.json) fmt::print("{}\n", rows.dump());
  else fmt::print("{} of {} would be found\n", hits, count_text(all, "program"));
}

}  // namespace

void add_why_miss_command(CLI::App& cache) {
  CLI::App* command = cache.add_subcommand("why-miss", "Says why programs of a job are not found");
  const auto o = std::make_shared<WhyMissOptions>();
  add_job(*command, o->job);
  add_targets(*command, o->target,
              "What was compiled for, of host, x86-64-v3, x86-64-v4, aarch64, sm_80, sm_90a, ...");
  add_tune(*command, o->tune, "For a run under this KILN_TUNE, with what it would find");
  add_number(*command, "--threads", o->threads, 0, ThreadPool::kMaxThreads,
             "Threads of such a run; 0: each number that a recorded run had");
  add_json(*command, o->json);
  command->callback([o] { why_miss(*o); });
}

}  // namespace kiln::cli
