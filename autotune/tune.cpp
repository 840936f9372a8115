// SPDX-License-Identifier: Apache-2.0
#include "autotune/tune.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "autotune/record.h"
#include "autotune/search.h"
#include "autotune/trial.h"
#include "codegen/program_key.h"
#include "ir/base/hash.h"
#include "ir/base/log.h"
#include "ir/base/options.h"

namespace kiln {

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr double kFlopsPerSecond = 20e9, kBytesPerSecond = 10e9;  // roughly, of one thread
constexpr double kLeastSeconds = 5e-6;                            // shorter launches are not worth a trial
constexpr double kKernelsTogether = 4;  // kernels whose candidates are compiled at once, per thread, at most

double estimate(const TunableKernel& k) {
  return std::max(k.flops / kFlopsPerSecond, k.bytes / kBytesPerSecond);
}

/// Of all that the kernel is given, which a trial allocates; it may touch less.
double operand_bytes(const TunableKernel& k) {
  double sum = 0;
  for (const TunableKernel::Buffer& b : k.buffers) sum += static_cast<double>(b.bytes);
  return sum;
}

class Tuning {
 public:
  Tuning(const Graph& g, const std::vector<ExternalLayout>& layouts, const CpuTarget& target,
         DiskCache* cache, const TuneOptions& options, TuneStats& stats)
      : g_(g),
        layouts_(layouts),
        target_(target),
        o_(options),
        record_(cache, options.threads),
        stats_(stats) {
    key_ = program_key(g, layouts, target, {}).str();
    if (options.replay) key_ += fmt::format("replayed {}\n", options.replay->digest());
  }

  ScheduleChoices run() {
    const auto start = Clock::now();
    const auto program = record_.program(key_);
    if (program && std::all_of(program->begin(), program->end(), [&](auto& r) { return suffices(r.row); }))
      rows_ = *program;
    else look_up();
    stats_.kernels = static_cast<int>(rows_.size());
    for (const ProgramRow& r : rows_) stats_.found += !r.row.empty();
    if (o_.level != TuneLevel::known && !o_.replay) share();
    const bool whole = std::none_of(rows_.begin(), rows_.end(), [](auto& r) { return r.row.empty(); });
    if (o_.level != TuneLevel::known && whole && (!program || changed_)) record_.store_program(key_, rows_);
    stats_.seconds = seconds_since(start);
    return choices();
  }

 private:
  // --- what is there ---

  /// Whether a known row spares this level its search.
  bool suffices(const std::string& row) const {
    if (o_.level != TuneLevel::max || o_.replay) return true;
    const auto parsed = TuneRow::parse(row);
    return parsed && parsed->wide;
  }

  /// The kernels of the program that are worth a trial. Whether one is depends on nothing but itself, so that
  /// all ranks agree.
  void load_kernels() {
    if (!kernels_.empty()) return;
    for (TunableKernel& k : tunable_kernels(g_, layouts_, target_)) {
      if (estimate(k) < kLeastSeconds || operand_bytes(k) > static_cast<double>(o_.memory)) continue;
      if (candidate_schedules(k).size() > 1) kernels_.push_back(std::move(k));
    }
  }
  void look_up() {
    load_kernels();
    for (const TunableKernel& k : kernels_) {
      if (o_.replay) {
        const TuningFile::Row* row = o_.replay->find(k.id, o_.threads);
        if (row) rows_.push_back({k.id, row->found.str()});
        continue;
      }
      const std::string row = record_.row(k).value_or("");
      rows_.push_back({k.id, suffices(row) ? row : ""});
    }
  }
  void keep(size_t i, const std::string& row) {
    if (rows_[i].row == row) return;
    changed_ = true;
    rows_[i].row = row;
    load_kernels();
    const auto k = std::find_if(kernels_.begin(), kernels_.end(),
                                [&](const TunableKernel& x) { return x.id == rows_[i].kernel; });
    if (k != kernels_.end() && !row.empty()) record_.store(*k, row);
  }
  ScheduleChoices choices() {
    ScheduleChoices out;
    for (const ProgramRow& r : rows_)
      if (const auto row = TuneRow::parse(r.row)) {
        out[r.kernel] = row->schedule;
        stats_.rows[r.kernel] = *row;
      }
    return out;
  }

  // --- with other ranks ---

  /// Rows in the order in which they matter: kernels that the program spends most time in come first.
  std::vector<size_t> by_weight() const {
    std::vector<size_t> order(rows_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (kernels_.empty()) return order;  // all rows are known
    const auto weight = [&](size_t i) { return estimate(kernels_[i]) * kernels_[i].launches; };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return weight(a) > weight(b); });
    return order;
  }

  void share() {
    const auto start = Clock::now();
    const std::vector<size_t> order = by_weight();
    std::vector<SharedKernel> shared;
    for (const size_t i : order)
      shared.push_back(
          {hash128(fmt::format("{} threads {}", rows_[i].kernel, o_.threads)).hex(), rows_[i].row});
    const std::vector<SharedChoice> decided = decide(order, shared);
    stats_.exchange_seconds = seconds_since(start) - stats_.measure_seconds;
    for (size_t n = 0; n < order.size(); ++n) {
      stats_.received +=
          !decided[n].own && !decided[n].text.empty() && decided[n].text != rows_[order[n]].row;
      keep(order[n], decided[n].text);
    }
  }

  std::vector<SharedChoice> decide(const std::vector<size_t>& order, std::vector<SharedKernel>& shared) {
    const auto among = [&](Store& store, int rank, int size) {
      const ShareOptions options{
          .store = &store, .rank = rank, .size = size, .prefix = prefix(), .wait = Seconds(o_.budget_s + 20)};
      return share_choices(options, shared, [&](const Take& take, const Publish& publish) {
        if (runs_here()) measure(order, take, publish);
      });
    };
    if (o_.store) {
      try {
        return among(*o_.store, o_.rank, o_.size);
      } catch (const Error& e) {
        if (o_.all_build || e.kind() != ErrorKind::comm) throw;
        log(LogLevel::warn, "tuning: goes on alone: {}", e.what());
      }
    }
    return among(*make_local_store(), 0, 1);
  }
  /// A default is for the life of the store: what one program had no time for, another may have.
  std::string prefix() const {
    return o_.all_build ? o_.prefix : fmt::format("{}/{}", o_.prefix, hash128(key_).hex());
  }

  // --- measuring ---

  /// Takes and publishes places in `order`: at first few, then as many as there is time for.
  void measure(const std::vector<size_t>& order, const Take& take, const Publish& publish) {
    const auto start = Clock::now();
    size_t together = static_cast<size_t>(o_.threads), done = 0;
    // However slow the machine, a start tries something, or none would ever get further.
    const auto in_time = [&] { return !tried_ || seconds_since(start) < o_.budget_s; };
    while (together > 0 && seconds_since(start) < o_.budget_s) {
      if (o_.go_on) o_.go_on();
      const std::vector<size_t> some = take(together);
      if (some.empty()) break;
      const auto begin = Clock::now();
      std::vector<Search> searches;
      for (const size_t n : some) searches.push_back(search_for(kernels_[order[n]]));
      search(searches, in_time, [&](size_t i) {
        const std::string row = row_of(searches[i], kernels_[order[some[i]]]);
        if (publish(some[i], row)) keep(order[some[i]], row);
        stats_.tuned += !row.empty();
        if (o_.progress) o_.progress(stats_.tuned, stats_.kernels - stats_.found);
      });
      stats_.measure_seconds += seconds_since(begin);
      done += some.size();
      const double each = seconds_since(start) / static_cast<double>(done);
      together = static_cast<size_t>(
          std::min(kKernelsTogether * o_.threads, (o_.budget_s - seconds_since(start)) / each));
    }
  }
  Search search_for(const TunableKernel& k) const {
    return {k, o_.level == TuneLevel::max ? SpaceSize::wide : SpaceSize::few,
            record_.numeric(k).value_or("")};
  }

  /// Trial after trial for all that is not found yet, while it is in time; says which ones have ended.
  void search(std::vector<Search>& searches, const std::function<bool()>& in_time,
              const std::function<void(size_t)>& ended) {
    std::vector<size_t> open(searches.size());
    std::iota(open.begin(), open.end(), size_t{0});
    while (!open.empty() && in_time()) {
      std::vector<Trial> trials;
      for (const size_t i : open) trials.push_back(searches[i].trial());
      Trials compiled(trials, target_, o_.threads);
      std::vector<size_t> left;
      for (size_t t = 0; t < open.size(); ++t) {
        const size_t i = open[t];
        if (in_time()) try_next(compiled, t, searches[i]);
        if (searches[i].trial().schedules.size() > 1) left.push_back(i);
        else ended(i);
      }
      open = left;
    }
    for (const size_t i : open)
      if (searches[i].found()) ended(i);
  }
  void try_next(Trials& compiled, size_t t, Search& search) {
    if (o_.go_on) o_.go_on();
    tried_ = true;
    const MeasureLimits limits{.seconds = o_.kernel_s};
    search.note(o_.level == TuneLevel::max ? compiled.run_apart(t, limits) : compiled.run(t, limits));
  }

  /// The row of a kernel; empty, where nothing could be compared.
  std::string row_of(const Search& search, const TunableKernel& k) {
    const auto row = search.found();
    if (!row) return "";
    const bool stays = row->schedule == default_schedule(k);
    const std::string outcome =
        stays ? fmt::format("the default stays, at {:.2f} us", row->seconds * 1e6)
              : fmt::format("{:.2f} us instead of the default's {:.2f} us by '{}'", row->seconds * 1e6,
                            row->default_seconds * 1e6, row->schedule);
    log(LogLevel::info, "tuning: {} candidates of kernel {}; {}", row->compared, k.id, outcome);
    return row->str();
  }
  bool runs_here() const {
    try {
      check_runs_here(target_);
    } catch (const Error&) {
      return false;
    }
    return true;
  }

  const Graph& g_;
  const std::vector<ExternalLayout>& layouts_;
  const CpuTarget& target_;
  const TuneOptions& o_;
  TuneRecord record_;
  TuneStats& stats_;
  std::string key_;
  std::vector<TunableKernel> kernels_;  // empty while a program row says enough
  std::vector<ProgramRow> rows_;        // of the kernels, in their order; a row may be empty
  bool changed_ = false;
  bool tried_ = false;
};

}  // namespace

TuneLevel parse_tune_level(std::string_view word) {
  constexpr std::pair<std::string_view, TuneLevel> kWords[] = {
      {"off", TuneLevel::off}, {"fast", TuneLevel::fast}, {"max", TuneLevel::max}};
  for (const auto& [name, level] : kWords)
    if (name == word) return level;
  throw Error(ErrorKind::invalid, fmt::format("tuning: got level '{}', expected off, fast or max", word));
}

TuneOptions tune_options(TuneLevel level) {
  constexpr double kFastSeconds = 1, kMostSeconds = 3600;
  const auto asked = static_cast<double>(option_int("KILN_TUNE_BUDGET_S"));
  const double own = level == TuneLevel::max ? kMostSeconds : kFastSeconds;
  return {
      .level = level, .budget_s = asked > 0 ? asked : own, .memory = option_int("KILN_TUNE_MEMORY_MB") << 20};
}

ScheduleChoices choose_schedules(const Graph& g, const std::vector<ExternalLayout>& layouts,
                                 const CpuTarget& target, DiskCache* cache, const TuneOptions& options,
                                 TuneStats* stats) {
  TuneStats unseen;
  if (options.level == TuneLevel::off && !options.replay) return {};
  return Tuning(g, layouts, target, cache, options, stats ? *stats : unseen).run();
}

}  // namespace kiln
