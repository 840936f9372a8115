// SPDX-License-Identifier: Apache-2.0
#include "frontend/compile.h"

#include "frontend/cursor.h"
#include "frontend/late.h"
#include "ir/base/options.h"
#include "runtime/machine.h"
#include "runtime/profiler.h"
#include "runtime/thread_pool.h"

namespace kiln::detail {

namespace {

TuneOptions tuning_of(const CompileOptions& o, Loc loc) {
  KILN_CHECK(o.tune_budget_s >= 0 && o.tune_memory >= 0, invalid,
             "compile ({}): tune_budget_s is {} and tune_memory {}, expected at least 0", loc.str(),
             o.tune_budget_s, o.tune_memory);
  constexpr std::pair<Tune, TuneLevel> kLevels[] = {
      {Tune::off, TuneLevel::off}, {Tune::fast, TuneLevel::fast}, {Tune::max, TuneLevel::max}};
  TuneLevel level = parse_tune_level(option("KILN_TUNE"));
  for (const auto& [asked, known] : kLevels)
    if (asked == o.tune) level = known;
  TuneOptions tune = tune_options(level);
  if (o.tune_budget_s > 0) tune.budget_s = o.tune_budget_s;
  if (o.tune_memory > 0) tune.memory = o.tune_memory;
  const std::string file = o.tuning.empty() ? option("KILN_TUNING") : o.tuning;
  if (!file.empty()) tune.replay = std::make_shared<TuningFile>(TuningFile::read(file));
  return tune;
}

}  // namespace

std::shared_ptr<Trie> make_trie(const CompileOptions& o, Loc loc) {
  KILN_CHECK(o.threads >= 0, invalid, "compile ({}): threads is {}, expected at least 0", loc.str(),
             o.threads);
  KILN_CHECK(o.max_builds >= 1, invalid, "compile ({}): max_builds is {}, expected at least 1", loc.str(),
             o.max_builds);
  KILN_CHECK(o.activation_memory >= 0, invalid,
             "compile ({}): activation_memory is {}, expected a number of bytes, or 0 for no bound",
             loc.str(), o.activation_memory);
  const std::string mode = option("KILN_COMPILE");
  if (mode == "off") return nullptr;
  auto trie = std::make_shared<Trie>();
  StageOptions& s = trie->options;
  s.name = o.name;
  s.reference = o.backend == Backend::reference;
  s.full_graph = o.full_graph;
  s.check_numerics = o.check_numerics;
  s.check = mode == "check";
  s.max_builds = o.max_builds;
  s.threads = o.threads;
  s.activation_memory = o.activation_memory;
  s.frozen = o.frozen;
  s.split = o.split;
  if (o.mode == Mode::reduce_overhead) s.graphed = std::make_shared<GraphedPrograms>();
  s.tune = tuning_of(o, loc);
  if (o.profile) s.profiler = std::make_shared<Profiler>();
  s.loc = loc;
  return trie;
}

CallableStats trie_stats(Trie& trie) {
  CallableStats stats;
  stats.calls = trie.calls;
  if (const auto& p = trie.options.profiler) stats.profile = p->table(machine_limits(default_threads()));
  if (const auto& graphed = trie.options.graphed) stats.graphs = graphed->count();
  std::lock_guard lock(trie.mutex);
  for (const BuildRecord& b : trie.builds) {
    stats.builds.push_back({b.reason,
                            b.seconds,
                            b.nodes,
                            b.kernels,
                            b.compiled,
                            b.from_cache,
                            b.arena_bytes,
                            b.saved_bytes,
                            b.activation_bytes,
                            b.work,
                            b.buckets,
                            {},
                            b.tuned,
                            b.tune_found,
                            b.tune_received,
                            b.tune_seconds});
    for (const BucketTable& t : b.buckets)
      for (size_t i = 0; i < t.buckets.size() && t.buckets.size() > 1; ++i)
        stats.builds.back().breaks.push_back(t.reason(i));
  }
  return stats;
}

struct CompiledCall::Impl {
  explicit Impl(Trie& trie) : cursor(trie) {}
  Cursor cursor;
  bool finished = false;
};

/// Inside another trace the callable is inlined: its ops become events of the outer one.
CompiledCall::CompiledCall(Trie* trie) {
  if (!state().open) report_late();
  if (trie && !tracing()) impl_ = std::make_unique<Impl>(*trie);
}

CompiledCall::~CompiledCall() {
  if (impl_ && !impl_->finished) impl_->cursor.abandon();
}

void CompiledCall::finish() {
  if (!impl_) return;
  try {
    impl_->cursor.finish();
  } catch (const std::exception& e) {
    threw(e);
    throw;
  }
  impl_->finished = true;
}

void CompiledCall::threw(const std::exception& e) {
  if (impl_) impl_->cursor.note_exception(e.what());
}

void CompiledCall::freeze(const FrozenArgs& args, const FrozenResult& result) {
  if (impl_) impl_->cursor.freeze(args, result);
}

}  // namespace kiln::detail

namespace kiln {

double limit_seconds(const Build& build, int threads) {
  const MachineLimits limits = machine_limits(threads);
  double sum = 0;
  for (const auto& [bytes, flops] : build.work) sum += limits.seconds(bytes, flops);
  return sum;
}

}  // namespace kiln
