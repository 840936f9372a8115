// SPDX-License-Identifier: Apache-2.0
// Choosing for whole programs: measured once, found ever after, the same on all ranks.
#include "autotune/tune.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <thread>

#include "codegen/program.h"
#include "ir/base/options.h"
#include "runtime/store_local.h"
#include "tests/autotune/graphs.h"
#include "tests/codegen/compiled.h"

namespace kiln {
namespace KILN_FILE {

namespace fs = std::filesystem;

/// A cache folder of the test's own.
struct Folder {
  explicit Folder(const std::string& name)
      : path((fs::temp_directory_path() / fmt::format("kiln_tune_test.{}.{}", getpid(), name)).string()) {
    fs::remove_all(path);
  }
  ~Folder() {
    fs::permissions(path, fs::perms::owner_all, fs::perm_options::add, ignored);
    fs::remove_all(path, ignored);
  }
  std::error_code ignored;
  std::string path;
};

const Graph& graph() {
  static const Graph g = parse_graph(R"(graph layers {
  %0 = input f32[256,256] arg
  %1 = input f32[256,256] param
  %2 = input f32[256,512] param
  %3 = f32[256,256] dot_general %0, %1 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(1)}
  %4 = f32[256,256] tanh %3
  %5 = f32[256,512] dot_general %4, %2 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(0)}
  %6 = f32[256] sum %5 {dims=(1)}
  output %5
  output %6
})");
  return g;
}

ScheduleChoices choose(const Graph& g, DiskCache* cache, TuneOptions o, TuneStats* stats = nullptr) {
  o.level = TuneLevel::fast;
  if (o.budget_s == TuneOptions{}.budget_s) o.budget_s = 200;  // a slow machine, too, comes to its end
  return choose_schedules(g, {}, host_target(), cache, o, stats);
}

[[maybe_unused]] ScheduleChoices choose_max(const Graph& g, DiskCache* cache, TuneOptions o,
                                            TuneStats* stats = nullptr) {
  o.level = TuneLevel::max;
  o.kernel_s = 0;
  o.budget_s = 200;  // a slow machine, too, comes to its end
  return choose_schedules(g, {}, host_target(), cache, o, stats);
}

TEST(Tune, OffChoosesNothing) {
  TuneStats stats;
  EXPECT_TRUE(choose_schedules(graph(), {}, host_target(), nullptr, {}, &stats).empty());
  EXPECT_EQ(stats.kernels, 0);
}

// A third start tunes nothing.
TEST(Tune, MeasuredOnceThenFound) {
  const Folder folder("once");
  DiskCache cache(folder.path, 1 << 30);
  TuneStats first, second, third;
  const ScheduleChoices a = choose(graph(), &cache, {}, &first);
  EXPECT_GE(first.kernels, 2);
  EXPECT_EQ(first.tuned, first.kernels);
  EXPECT_EQ(first.found, 0);
  EXPECT_EQ(a.size(), static_cast<size_t>(first.kernels));
  EXPECT_EQ(choose(graph(), &cache, {}, &second), a);
  EXPECT_EQ(second.tuned, 0);
  EXPECT_EQ(second.found, first.kernels);
  // Another program with some of the same kernels finds those.
  Graph part = graph();
  part.outputs.pop_back();
  EXPECT_NE(choose(part, &cache, {}, &third).size(), 0u);
  EXPECT_GT(third.found, 0);
}

/// No line says that a kernel takes as long as before instead of what it took.
TEST(Tune, SaysWhatWonOrThatTheDefaultStays) {
  set_option("KILN_LOG", "info");
  ::testing::internal::CaptureStderr();
  TuneStats stats;
  choose(graph(), nullptr, {}, &stats);
  std::istringstream said(::testing::internal::GetCapturedStderr());
  set_option("KILN_LOG", "warn");
  const std::regex stays(
      "kiln info: tuning: \\d+ candidates of kernel [0-9a-f]+; the default stays, at [0-9.]+ us");
  const std::regex better(
      "kiln info: tuning: \\d+ candidates of kernel [0-9a-f]+; ([0-9.]+) us instead of the default's "
      "([0-9.]+) us by '.+'");
  int lines = 0;
  for (std::string line; std::getline(said, line); ++lines) {
    if (std::regex_match(line, stays)) continue;
    std::smatch m;
    ASSERT_TRUE(std::regex_match(line, m, better)) << line;
    EXPECT_LT(std::stod(m[1]), std::stod(m[2])) << line;
  }
  EXPECT_EQ(lines, stats.tuned);
}

TEST(Tune, WhatIsKnownIsFoundWithoutMeasuring) {
  const Folder folder("known");
  DiskCache cache(folder.path, 1 << 30);
  const TuneOptions known{.level = TuneLevel::known};
  TuneStats before, after;
  EXPECT_TRUE(choose_schedules(graph(), {}, host_target(), &cache, known, &before).empty());
  EXPECT_GE(before.kernels, 2);
  EXPECT_EQ(before.tuned, 0);
  EXPECT_FALSE(fs::exists(folder.path + "/tune"));
  const ScheduleChoices chosen = choose(graph(), &cache, {});
  EXPECT_EQ(choose_schedules(graph(), {}, host_target(), &cache, known, &after), chosen);
  EXPECT_EQ(after.found, after.kernels);
}

#if !defined(__SANITIZE_THREAD__)  // TSan forbids new threads in the child of a threaded process
// Tuned at another thread count, the bits stay: the numeric part is settled.
TEST(Tune, NumericPartsDoNotFollowTheThreads) {
  const Folder folder("threads");
  DiskCache cache(folder.path, 1 << 30);
  const Graph deep = parse_graph(testing::kDeep);
  TuneStats one, two, three;
  const ScheduleChoices a = choose_max(deep, &cache, {.threads = 1}, &one);
  const ScheduleChoices b = choose_max(deep, &cache, {.threads = 2}, &two);
  const ScheduleChoices c = choose(deep, &cache, {.threads = 3}, &three);
  EXPECT_EQ(one.tuned, 1);
  EXPECT_EQ(two.tuned, 1);
  EXPECT_EQ(three.tuned, 1);
  for (const auto& [id, schedule] : a) {
    EXPECT_EQ(numeric_part(schedule), numeric_part(b.at(id)));
    EXPECT_EQ(numeric_part(schedule), numeric_part(c.at(id)));
  }
}

TEST(Tune, FastChangesNoBitAndMaxSearchesAgain) {
  const Folder folder("levels");
  DiskCache cache(folder.path, 1 << 30);
  TuneStats fast, max, again, after;
  const ScheduleChoices few = choose(graph(), &cache, {}, &fast);
  for (const TunableKernel& k : tunable_kernels(graph(), {}, host_target()))
    if (const auto at = few.find(k.id); at != few.end()) {
      EXPECT_EQ(numeric_part(at->second), numeric_part(default_schedule(k)));
    }
  std::vector<std::pair<int, int>> shown;
  TuneOptions o;
  o.progress = [&](int done, int all) { shown.emplace_back(done, all); };
  const ScheduleChoices many = choose_max(graph(), &cache, o, &max);
  EXPECT_EQ(max.found, 0) << "a narrow search is none";
  EXPECT_EQ(max.tuned, max.kernels);
  ASSERT_EQ(shown.size(), static_cast<size_t>(max.kernels));
  EXPECT_EQ(shown.back(), (std::pair{max.kernels, max.kernels}));
  EXPECT_EQ(choose_max(graph(), &cache, {}, &again), many);
  EXPECT_EQ(again.found, again.kernels);
  EXPECT_EQ(choose(graph(), &cache, {}, &after), many) << "what max has found, fast takes";
  EXPECT_EQ(after.tuned, 0);
}
#endif

TEST(Tune, KernelsThatNeedMoreMemoryKeepTheirDefaults) {
  TuneStats stats;
  EXPECT_TRUE(choose(graph(), nullptr, {.memory = 100'000}, &stats).empty());
  EXPECT_EQ(stats.kernels, 0);
}

// The choices are the file's, whatever the cache holds, and nothing is measured.
TEST(Tune, AFileIsReplayed) {
  const Folder folder("replay");
  DiskCache cache(folder.path, 1 << 30);
  const ScheduleChoices known = choose(graph(), &cache, {});
  TuneOptions o{.level = TuneLevel::max};
  o.replay = std::make_shared<TuningFile>(TuningFile::of(cache));
  for (const TuneLevel level : {TuneLevel::off, TuneLevel::known, TuneLevel::max})
    for (int start = 0; start < 2; ++start) {
      o.level = level;
      TuneStats stats;
      EXPECT_EQ(choose_schedules(graph(), {}, host_target(), &cache, o, &stats), known);
      EXPECT_EQ(stats.tuned, 0);
      EXPECT_EQ(stats.found, static_cast<int>(known.size()));
    }
  EXPECT_EQ(choose_schedules(graph(), {}, host_target(), nullptr, o), known) << "without a cache";
  o.replay = std::make_shared<TuningFile>();
  EXPECT_TRUE(choose_schedules(graph(), {}, host_target(), &cache, o).empty());
}

/// What `g` gives on made-up operands with these choices, in bytes.
std::vector<std::string> results(const Graph& g, const ScheduleChoices& choices, int threads) {
  const CompiledProgram p = compile_program(g, {}, host_target(), {.schedules = choices}, nullptr, 1);
  const testing::Loaded loaded = testing::load(p);
  std::vector<HostTensor> inputs;
  for (const GraphInput& i : g.inputs) {
    HostTensor& t =
        inputs.emplace_back(make_host_tensor(g.type(i.value).dtype, testing::values(g.type(i.value).shape)));
    for (int64_t n = 0; n < t.ref.numel(); ++n)
      static_cast<float*>(t.ref.data)[n] = static_cast<float>(n * 37 % 101) / 101 - 0.5f;
  }
  std::vector<std::string> out;
  for (const HostTensor& t : testing::execute(g, *loaded.exe, inputs, threads))
    out.emplace_back(static_cast<const char*>(t.ref.data),
                     static_cast<size_t>(t.ref.numel()) * sizeof(float));
  return out;
}

TEST(Tune, AFileThatNamesALibraryGivesTheSameBits) {
  const Folder folder("library");
  DiskCache cache(folder.path, 1 << 30);
  int matmuls = 0;
  for (const TunableKernel& k : tunable_kernels(graph(), {}, host_target())) {
    if (!std::holds_alternative<MatmulCase>(k.what)) continue;
    ++matmuls;
    TuneRecord(&cache, 2).store(k, TuneRow{"blis tile=64x128;", 1e-5, 2e-5, 7, true}.str());
  }
  ASSERT_EQ(matmuls, 2);
  TuneOptions o{.level = TuneLevel::off};
  o.replay = std::make_shared<TuningFile>(TuningFile::of(cache));
  TuneStats stats;
  const ScheduleChoices first = choose_schedules(graph(), {}, host_target(), nullptr, o, &stats);
  EXPECT_EQ(first.size(), 2u);
  EXPECT_EQ(stats.rows.begin()->second.schedule, "blis tile=64x128;");
  EXPECT_EQ(stats.rows.begin()->second.compared, 7);
  o.threads = 8;
  const ScheduleChoices again = choose_schedules(graph(), {}, host_target(), nullptr, o);
  EXPECT_EQ(again, first);
  const std::vector<std::string> want = results(graph(), first, 1);
  EXPECT_TRUE(results(graph(), again, 1) == want);
  EXPECT_TRUE(results(graph(), again, 8) == want);
}

TEST(Tune, WhatWasMeasuredIsKeptWhenTuningIsLeft) {
  const Folder folder("kept");
  DiskCache cache(folder.path, 1 << 30);
  TuneStats stats, later;
  TuneOptions o;
  o.go_on = [&] { KILN_CHECK(stats.tuned == 0, comm, "enough"); };
  EXPECT_THROW(choose(graph(), &cache, o, &stats), Error);
  choose(graph(), &cache, {}, &later);
  EXPECT_EQ(later.found, 1);
}

TEST(Tune, BeyondTheBudgetKernelsKeepTheirDefaults) {
  const Folder folder("budget");
  DiskCache cache(folder.path, 1 << 30);
  TuneStats stats;
  EXPECT_TRUE(choose(graph(), &cache, {.budget_s = 0}, &stats).empty());
  EXPECT_EQ(stats.tuned, 0);
  TuneStats later;
  choose(graph(), &cache, {}, &later);
  EXPECT_EQ(later.tuned, later.kernels);
}

TEST(Tune, IsLeftWhenNobodyWantsIt) {
  const Folder folder("left");
  DiskCache cache(folder.path, 1 << 30);
  TuneStats stats;
  TuneOptions o;
  o.go_on = [&] { KILN_CHECK(stats.tuned == 0, comm, "enough"); };
  EXPECT_THROW(choose(graph(), &cache, o, &stats), Error);
  EXPECT_EQ(stats.tuned, 1);
}

TEST(Tune, ATargetThatDoesNotRunHereIsNotMeasured) {
  CpuTarget alien = host_target();
  alien.features += ",+nosuchfeature";
  TuneStats stats;
  EXPECT_TRUE(choose_schedules(graph(), {}, alien, nullptr, {.level = TuneLevel::fast}, &stats).empty());
  EXPECT_GE(stats.kernels, 2);
  EXPECT_EQ(stats.tuned, 0);
}

/// Ranks as threads, each with its cache (null: none).
std::vector<ScheduleChoices> choose_together(const std::vector<DiskCache*>& caches,
                                             std::vector<TuneStats>& stats, const std::string& world) {
  const std::shared_ptr<Store> store = make_local_store();
  std::vector<ScheduleChoices> out(caches.size());
  stats.assign(caches.size(), {});
  const int size = static_cast<int>(caches.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < caches.size(); ++r)
    threads.emplace_back([&, r] {
      out[r] =
          choose(graph(), caches[r],
                 {.store = store, .rank = static_cast<int>(r), .size = size, .prefix = world}, &stats[r]);
    });
  for (auto& t : threads) t.join();
  return out;
}

TEST(Tune, RanksChooseAlikeWhateverTheirCachesHold) {
  const Folder cold("cold"), warm("warm"), closed("closed");
  DiskCache a(cold.path, 1 << 30), b(warm.path, 1 << 30), c(closed.path, 1 << 30);
  choose(graph(), &b, {});
  fs::create_directories(closed.path + "/tune");
  fs::permissions(closed.path + "/tune", fs::perms::owner_read | fs::perms::owner_exec);
  std::vector<TuneStats> stats;
  const auto first = choose_together({&a, &b, &c}, stats, "w");
  EXPECT_EQ(first[0], first[1]);
  EXPECT_EQ(first[0], first[2]);
  EXPECT_EQ(first[0].size(), static_cast<size_t>(stats[0].kernels));
  int tuned = 0;
  for (const TuneStats& s : stats) tuned += s.tuned;
  EXPECT_LE(tuned, stats[0].kernels);
  // Each can start alone from what it has kept.
  const auto again = choose_together({&a, &b}, stats, "w2");
  EXPECT_EQ(again[0], again[1]);
  EXPECT_EQ(again[0], first[0]);
  EXPECT_EQ(stats[0].tuned + stats[1].tuned, 0);
}

TEST(Tune, WhatOneProgramHadNoTimeForAnotherMay) {
  TuneOptions o{.store = make_local_store(), .rank = 0, .size = 2, .prefix = "w", .all_build = false};
  Graph part = graph();
  part.outputs.pop_back();
  TuneStats stats;
  o.budget_s = 0;
  EXPECT_TRUE(choose(graph(), nullptr, o).empty());
  o.budget_s = 10;
  EXPECT_TRUE(choose(graph(), nullptr, o).empty()) << "decided, for all who build it";
  EXPECT_FALSE(choose(part, nullptr, o, &stats).empty());
  EXPECT_EQ(stats.tuned, stats.kernels);
}

/// Lost after so many writes.
class LostStore final : public Store {
 public:
  explicit LostStore(int writes) : left_(writes) {}
  std::string set_once(const std::string& key, const std::string& value) override {
    KILN_CHECK(left_-- > 0, comm, "the store is lost");
    return store_.set_once(key, value);
  }
  std::optional<std::string> wait(const std::string& key, Seconds timeout,
                                  const std::string& known) override {
    return store_.wait(key, timeout, known);
  }
  void set(const std::string& key, const std::string& value) override { store_.set(key, value); }
  std::optional<std::string> get(const std::string& key) override { return store_.get(key); }
  int64_t add(const std::string& key, int64_t n) override { return store_.add(key, n); }
  void erase(const std::string& key) override { store_.erase(key); }
  std::vector<int> lost() override { return store_.lost(); }
  void leave() override {}

 private:
  LocalStore store_;
  int left_;
};

TEST(Tune, AStoreThatIsLostIsDoneWithoutWhereRanksNeedNotAgree) {
  for (const int calls : {0, 3}) {
    TuneOptions o{.store = std::make_shared<LostStore>(calls), .rank = 0, .size = 2, .prefix = "w"};
    EXPECT_THROW(choose(graph(), nullptr, o), Error);
    TuneStats stats;
    o.store = std::make_shared<LostStore>(calls);
    o.all_build = false;
    const ScheduleChoices chosen = choose(graph(), nullptr, o, &stats);
    EXPECT_GE(stats.kernels, 2);
    EXPECT_EQ(chosen.size(), static_cast<size_t>(stats.kernels)) << calls;
  }
}

TEST(Tune, EntriesOfDifferentRanksAreEqual) {
  const Folder x("x"), y("y");
  DiskCache a(x.path, 1 << 30), b(y.path, 1 << 30);
  std::vector<TuneStats> stats;
  choose_together({&a, &b}, stats, "w");
  size_t entries = 0;
  for (const auto& file : fs::directory_iterator(x.path + "/tune")) {
    const auto name = file.path().filename();
    std::ifstream one(file.path(), std::ios::binary),
        other(fs::path(y.path) / "tune" / name, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(one), {});
    EXPECT_EQ(bytes, std::string(std::istreambuf_iterator<char>(other), {})) << name;
    ++entries;
  }
  EXPECT_GE(entries, 4u);
}

}  // namespace KILN_FILE
}  // namespace kiln
