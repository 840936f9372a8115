// SPDX-License-Identifier: Apache-2.0
#include "autotune/trial.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
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
      if (!c.program.kernels.empty()) all.push_back(&c);
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
  const size_t per = std::min(ceil_div(some.size(), static_cast<size_t>(threads_)), kMostInSource);
  std::vector<CpuSource> sources;
  std::vector<std::string> names;
  std::set<std::string> seen;  // schedules that differ may still print the same kernel
  for (const Candidate* c : some) {
    const KernelSource& k = c->program.kernels.front();
    if (!seen.insert(k.name).second) continue;
    if ((seen.size() - 1) % per == 0)
      sources.push_back({fmt::format("tune_{}.cpp", sources.size()), "", {"-ffp-contract=fast"}});
    sources.back().text += k.text;
    names.insert(names.end(), k.symbols.begin(), k.symbols.end());
  }
  try {
    const KernelImage built = build_image(sources, names, target_, nullptr, threads_);
    const auto image = std::make_shared<LoadedImage>(built.bytes);
    for (Candidate* c : some)
      c->exe = std::make_unique<Executable>(
          c->program.plan, [&](const PlanKernel& k) { return image->kernel(k.symbol); }, image);
  } catch (const Error& e) {
    if (some.size() == 1) return some.front()->drop(e.what());
    compile(some.first(some.size() / 2));
    compile(some.subspan(some.size() / 2));
  }
}

void Trials::check(std::vector<Candidate>& candidates, Operands& operands, TrialResult& result) const {
  const std::string numbers(numeric_part(candidates.front().schedule));
  for (Candidate& c : candidates) {
    if (!c.exe) continue;
    operands.poison();
    operands.restore();
    c.exe->run({.externals = operands.pointers(), .threads = threads_});
    if (&c == &candidates.front()) operands.keep_expected();
    // Sums in the same order, and still other bits: where an operation around them is contracted hangs on the
    // loop that it lies in. Nothing is wrong, but bits would change with the number of threads.
    const bool bound = numeric_part(c.schedule) == numbers;
    if (const std::string wrong = operands.difference(false); !wrong.empty()) c.drop(wrong);
    else if (bound && !operands.difference(true).empty()) c.drop("it rounds otherwise", LogLevel::debug);
    else ++result.compared;
  }
}

double Trials::time(const Candidate& c, Operands& operands) {
  if (!c.exe) return -1.0;
  parallel_for(static_cast<int64_t>(sweep_.size()), static_cast<int64_t>(kSweepBytes),
               [&](int64_t begin, int64_t end) {
                 for (int64_t at = begin; at < end; at += 64) ++sweep_[static_cast<size_t>(at)];
               });
  operands.restore();
  const auto start = std::chrono::steady_clock::now();
  c.exe->run({.externals = operands.pointers(), .threads = threads_});
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TrialResult Trials::run(size_t i, const MeasureLimits& limits) {
  std::vector<Candidate>& candidates = candidates_.at(i);
  TrialResult result;
  if (candidates.empty() || !candidates.front().exe) return result;
  Operands operands(*trials_[i].kernel);
  check(candidates, operands, result);
  const Comparison c = compare(
      static_cast<int>(candidates.size()),
      [&](int n) { return time(candidates[static_cast<size_t>(n)], operands); }, limits);
  result.winner = c.winner;
  result.seconds = c.median[static_cast<size_t>(c.winner)];
  result.default_seconds = c.median[0];
  return result;
}

}  // namespace kiln
