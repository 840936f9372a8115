// SPDX-License-Identifier: Apache-2.0
#include "autotune/trial.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "autotune/operands.h"
#include "codegen/kernel_cache.h"
#include "ir/base/log.h"
#include "ir/base/rounding.h"
#include "runtime/executor.h"
#include "runtime/image.h"
#include "runtime/thread_pool.h"

namespace kiln {

namespace {

constexpr size_t kMostInSource = 24;      // kernels to a source: most of a compile is reading the prelude
constexpr size_t kSweepBytes = 4u << 20;  // per thread: more than the second cache

}  // namespace

struct Trials::Candidate {
  const TunableKernel* kernel = nullptr;
  std::string schedule;
  LoweredProgram program;
  std::unique_ptr<Executable> exe;  // null: out

  void drop(const std::string& why, LogLevel level = LogLevel::warn) {
    log(level, "tuning: '{}' of kernel {} is left out: {}", schedule, kernel->id, why);
    exe.reset();
  }
};

/// What running the candidates of a trial has shown.
struct Trials::Finding {
  TrialResult result;
  std::map<int, std::string> wrong;  // candidates, and what is wrong with them
  std::set<int> otherwise;           // that round otherwise

  bool is_out(int n) const { return wrong.count(n) > 0 || otherwise.count(n) > 0; }
  std::string str() const {
    const TrialResult& r = result;
    return nlohmann::json{r.winner, r.seconds, r.default_seconds, r.compared, wrong, otherwise}.dump();
  }
  static Finding parse(const std::string& text) {
    const nlohmann::json j = nlohmann::json::parse(text);
    return {{j[0], j[1], j[2], j[3]}, j[4], j[5]};
  }
};

Trials::Trials(std::vector<Trial> trials, const CpuTarget& target, int threads, const LowerAlone& lower)
    : trials_(std::move(trials)), target_(target), threads_(threads) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<Candidate*> all;
  candidates_.resize(trials_.size());
  for (size_t i = 0; i < trials_.size(); ++i) {
    for (const std::string& s : trials_[i].schedules) {
      Candidate& c = candidates_[i].emplace_back(Candidate{trials_[i].kernel, s, {}, nullptr});
      try {
        c.program = lower(*c.kernel, s, target_);
      } catch (const Error& e) {
        c.drop(e.what());
      }
    }
    for (Candidate& c : candidates_[i])
      if (!c.program.plan.launches.empty()) all.push_back(&c);
  }
  compile(all);
  log(LogLevel::debug, "tuning: {} candidates of {} kernels made in {:.0f} ms", all.size(), trials_.size(),
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  sweep_.resize(kSweepBytes * static_cast<size_t>(threads));
}

Trials::~Trials() = default;

/// Where some do not compile, halves of them are tried apart, until the guilty one stands alone.
void Trials::compile(std::span<Candidate*> some) {
  if (some.empty()) return;
  std::map<std::string, const KernelSource*> kernels;  // schedules that differ may still print the same one
  for (const Candidate* c : some)
    for (const KernelSource& k : c->program.kernels) kernels.emplace(k.name, &k);
  const size_t per = std::min(ceil_div(kernels.size(), static_cast<size_t>(threads_)), kMostInSource);
  std::vector<CpuSource> sources;
  std::vector<std::string> names;
  size_t n = 0;
  for (const auto& [name, k] : kernels) {
    if (n++ % per == 0)
      sources.push_back({fmt::format("tune_{}.cpp", sources.size()), "", {"-ffp-contract=fast"}});
    sources.back().text += k->text;
    names.insert(names.end(), k->symbols.begin(), k->symbols.end());
  }
  try {
    std::shared_ptr<LoadedImage> image;  // none where a library does it all
    if (!sources.empty())
      image = std::make_shared<LoadedImage>(build_image(sources, names, target_, nullptr, threads_).bytes);
    for (Candidate* c : some)
      c->exe = std::make_unique<Executable>(
          c->program.plan, [&](const PlanKernel& k) { return image->kernel(k.symbol); }, image);
  } catch (const Error& e) {
    if (some.size() == 1) return some.front()->drop(e.what());
    compile(some.first(some.size() / 2));
    compile(some.subspan(some.size() / 2));
  }
}

void Trials::check(const std::vector<Candidate>& candidates, Operands& operands, const Say& begin,
                   Finding& finding) const {
  const std::string numbers(numeric_part(candidates.front().schedule));
  for (int n = 0; n < static_cast<int>(candidates.size()); ++n) {
    const Candidate& c = candidates[static_cast<size_t>(n)];
    if (!c.exe) continue;
    operands.poison();
    operands.restore();
    begin(n);
    c.exe->run({.externals = operands.pointers(), .threads = threads_});
    if (n == 0) operands.keep_expected();
    // Sums in the same order, and still other bits: where an operation around them is contracted hangs on the
    // loop that it lies in. Nothing is wrong, but bits would change with the number of threads.
    const bool bound = numeric_part(c.schedule) == numbers;
    if (const std::string wrong = operands.difference(false); !wrong.empty()) finding.wrong[n] = wrong;
    else if (bound && !operands.difference(true).empty()) finding.otherwise.insert(n);
    else ++finding.result.compared;
  }
}

double Trials::time(const Candidate& c, Operands& operands) {
  parallel_for(static_cast<int64_t>(sweep_.size()), static_cast<int64_t>(kSweepBytes),
               [&](int64_t begin, int64_t end) {
                 for (int64_t at = begin; at < end; at += 64) ++sweep_[static_cast<size_t>(at)];
               });
  operands.restore();
  const auto start = std::chrono::steady_clock::now();
  c.exe->run({.externals = operands.pointers(), .threads = threads_});
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Trials::Finding Trials::find(size_t i, const MeasureLimits& limits, const Say& begin) {
  const std::vector<Candidate>& candidates = candidates_.at(i);
  Finding finding;
  if (candidates.empty() || !candidates.front().exe) return finding;
  Operands operands(*trials_[i].kernel);
  check(candidates, operands, begin, finding);
  const auto time_of = [&](int n) {
    const Candidate& c = candidates[static_cast<size_t>(n)];
    if (!c.exe || finding.is_out(n)) return -1.0;
    begin(n);
    return time(c, operands);
  };
  const Comparison c = compare(static_cast<int>(candidates.size()), time_of, limits);
  finding.result.winner = c.winner;
  finding.result.seconds = c.median[static_cast<size_t>(c.winner)];
  finding.result.default_seconds = c.median[0];
  return finding;
}

TrialResult Trials::tell(size_t i, const Finding& finding) {
  std::vector<Candidate>& candidates = candidates_.at(i);
  for (const auto& [n, why] : finding.wrong) candidates[static_cast<size_t>(n)].drop(why);
  for (const int n : finding.otherwise)
    candidates[static_cast<size_t>(n)].drop("it rounds otherwise", LogLevel::debug);
  return finding.result;
}

TrialResult Trials::run(size_t i, const MeasureLimits& limits) {
  return tell(i, find(i, limits, [](int) {}));
}

TrialResult Trials::run_apart(size_t i, const MeasureLimits& limits, Seconds patience) {
  std::vector<Candidate>& candidates = candidates_.at(i);
  while (true) {
    const ApartResult r =
        kiln::run_apart([&](const Say& begin) { return find(i, limits, begin).str(); }, patience);
    if (r.text) return tell(i, Finding::parse(*r.text));
    if (r.last < 0) {
      log(LogLevel::warn, "tuning: kernel {} keeps its default: trying it {}", trials_[i].kernel->id, r.why);
      return {};
    }
    candidates[static_cast<size_t>(r.last)].drop("it " + r.why);
  }
}

}  // namespace kiln
