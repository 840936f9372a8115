// SPDX-License-Identifier: Apache-2.0
// One choice for all ranks (threads here), whatever each of them knows, does or fails to do.
#include "autotune/share.h"

#include <gmock/gmock.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "ir/base/error.h"
#include "runtime/store_local.h"

namespace kiln {
namespace {

using Ids = std::vector<std::string>;

Ids numbered(const char* prefix, int count) {
  Ids out;
  for (int i = 0; i < count; ++i) out.push_back(fmt::format("{}{}", prefix, i));
  return out;
}

/// What one rank brings, and how it behaves.
struct Rank {
  Ids ids;
  std::map<std::string, std::string> known;
  std::function<void(const std::string&)> before_publish;  ///< of each kernel it measures
  Seconds arrives{0};
  bool takes_part = true;
};

/// A world of threads that share once.
class World {
 public:
  explicit World(int size) : ranks(static_cast<size_t>(size)) {}

  void run(const std::string& round = "1", Seconds gather = Seconds(5), Seconds wait = Seconds(5)) {
    std::vector<std::thread> threads;
    choices.assign(ranks.size(), {});
    for (size_t r = 0; r < ranks.size(); ++r)
      if (ranks[r].takes_part)
        threads.emplace_back([=, this] { run_rank(static_cast<int>(r), round, gather, wait); });
    for (auto& t : threads) t.join();
  }

  /// Every kernel got the same from everybody who has it.
  void expect_agreement() const {
    std::map<std::string, std::set<std::string>> seen;
    for (const auto& mine : choices)
      for (const auto& [id, choice] : mine) seen[id].insert(choice);
    for (const auto& [id, values] : seen)
      EXPECT_EQ(values.size(), 1u) << id << ": " << ::testing::PrintToString(values);
  }
  int measurements() const {
    int n = 0;
    for (const auto& [id, count] : measured) n += count;
    return n;
  }

  std::vector<Rank> ranks;
  std::shared_ptr<LocalStore> store = std::make_shared<LocalStore>();
  std::vector<std::map<std::string, std::string>> choices;  // per rank
  std::map<std::string, int> measured;                      // how often
  std::set<int> measurers;

 private:
  void run_rank(int rank, const std::string& round, Seconds gather, Seconds wait) {
    const Rank& me = ranks[static_cast<size_t>(rank)];
    std::this_thread::sleep_for(me.arrives);
    std::vector<int> all;
    for (size_t r = 0; r < ranks.size(); ++r) all.push_back(static_cast<int>(r));
    std::vector<SharedKernel> kernels;
    for (const std::string& id : me.ids) {
      const auto k = me.known.find(id);
      kernels.push_back({id, k == me.known.end() ? "" : k->second});
    }
    const auto measure = [&](const std::vector<size_t>& which, const Publish& publish) {
      for (const size_t i : which) {
        if (me.before_publish) me.before_publish(me.ids[i]);
        {
          const std::lock_guard lock(mutex_);
          ++measured[me.ids[i]];
          measurers.insert(rank);
        }
        publish(i, fmt::format("{} by {}", me.ids[i], rank));
      }
    };
    try {
      const auto decided = share_choices({.store = store.get(),
                                          .rank = rank,
                                          .ranks = all,
                                          .prefix = "w",
                                          .round = round,
                                          .gather = gather,
                                          .wait = wait},
                                         kernels, measure);
      for (size_t i = 0; i < decided.size(); ++i)
        choices[static_cast<size_t>(rank)][me.ids[i]] = decided[i].text;
    } catch (const std::runtime_error&) {  // a rank that the test kills
    }
  }
  std::mutex mutex_;
};

TEST(Share, EveryKernelIsMeasuredOnceAndEverybodyGetsIt) {
  for (const int size : {1, 2, 3, 4, 8}) {
    World w(size);
    for (Rank& r : w.ranks) r.ids = numbered("k", 64);
    w.run();
    w.expect_agreement();
    EXPECT_EQ(w.measured.size(), 64u);
    EXPECT_EQ(w.measurements(), 64);
    EXPECT_EQ(w.measurers.size(), static_cast<size_t>(size)) << "somebody had nothing to do";
    for (const auto& mine : w.choices)
      for (const auto& [id, choice] : mine) EXPECT_NE(choice, "");
  }
}

TEST(Share, AWarmCacheMovesNoOwner) {
  World w(4);
  for (Rank& r : w.ranks) r.ids = numbered("k", 40);
  for (const std::string& id : w.ranks[2].ids) w.ranks[2].known[id] = "known to 2";
  w.run();
  w.expect_agreement();
  // What rank 2 owns is published from its cache; the rest is measured by its owners, once.
  int from_cache = 0;
  for (const auto& [id, choice] : w.choices[0]) from_cache += choice == "known to 2";
  EXPECT_GT(from_cache, 0);
  EXPECT_EQ(w.measurements(), 40 - from_cache);
  EXPECT_FALSE(w.measurers.count(2));
}

TEST(Share, AThirdStartMeasuresNothing) {
  World w(3);
  for (Rank& r : w.ranks) r.ids = numbered("k", 12);
  for (Rank& r : w.ranks)
    for (const std::string& id : r.ids) r.known[id] = "row";
  w.run();
  w.expect_agreement();
  EXPECT_EQ(w.measurements(), 0);
}

// ranks with other kernels take part only for those they have.
TEST(Share, RanksWithOtherKernels) {
  World w(4);
  for (Rank& r : w.ranks) r.ids = numbered("both", 20);
  w.ranks[3].ids = numbered("mine", 10);
  w.ranks[1].ids.push_back("only1");
  w.run();
  w.expect_agreement();
  EXPECT_EQ(w.measurements(), 31);
  EXPECT_EQ(w.choices[1]["only1"], "only1 by 1");
  for (const auto& [id, choice] : w.choices[3]) EXPECT_EQ(choice, id + " by 3");
  for (const auto& [id, choice] : w.choices[0]) EXPECT_FALSE(choice.ends_with("by 3"));
}

TEST(Share, RanksWithoutKernelsHoldNobodyUp) {
  World w(3);
  w.ranks[0].ids = numbered("k", 6);
  w.ranks[2].ids = numbered("k", 6);
  const auto start = std::chrono::steady_clock::now();
  w.run();
  EXPECT_LT(std::chrono::steady_clock::now() - start, Seconds(3));
  w.expect_agreement();
  EXPECT_EQ(w.measurements(), 6);
}

// Nobody waits long for a rank that does not announce, and it owns nothing.
TEST(Share, AnAbsentRankOwnsNothing) {
  World w(3);
  for (Rank& r : w.ranks) r.ids = numbered("k", 12);
  w.ranks[1].takes_part = false;
  w.run("1", Seconds(0.1));
  w.expect_agreement();
  EXPECT_EQ(w.measurements(), 12);
}

TEST(Share, ALateRankTakesWhatWasDecided) {
  World w(3);
  for (Rank& r : w.ranks) r.ids = numbered("k", 12);
  w.ranks[1].arrives = Seconds(0.4);
  w.ranks[1].ids.push_back("late");
  w.run("1", Seconds(0.05));
  w.expect_agreement();
  EXPECT_EQ(w.measurements(), 13);
  EXPECT_EQ(w.choices[1]["late"], "late by 1");
}

// A-16's purpose: whatever fails, no rank picks differently.
TEST(Share, ASlowOwnerIsLeftBehindByAll) {
  World w(4);
  for (Rank& r : w.ranks) r.ids = numbered("k", 24);
  w.ranks[1].before_publish = [](const std::string&) { std::this_thread::sleep_for(Seconds(0.1)); };
  w.run("1", Seconds(0.05), Seconds(0.2));
  w.expect_agreement();
  int defaults = 0;
  for (const auto& [id, choice] : w.choices[1]) defaults += choice.empty();
  EXPECT_GT(defaults, 0);
  EXPECT_LT(defaults, 24);
}

TEST(Share, AnOwnerThatDiesIsNoticed) {
  for (const bool noticed : {true, false}) {
    World w(4);
    for (Rank& r : w.ranks) r.ids = numbered("k", 24);
    std::atomic<int> left{2};
    w.ranks[2].before_publish = [&](const std::string&) {
      if (--left >= 0) return;
      if (noticed) w.store->lose(2);
      // Not an exception of measuring, after which a rank settles its kernels: the thread just stops.
      std::this_thread::sleep_for(Seconds(0.5));
      throw std::runtime_error("killed");
    };
    const auto start = std::chrono::steady_clock::now();
    w.run("1", Seconds(0.1), Seconds(noticed ? 30 : 0.2));
    EXPECT_LT(std::chrono::steady_clock::now() - start, Seconds(10));
    w.choices[2].clear();
    w.expect_agreement();
    int defaults = 0;
    for (const auto& [id, choice] : w.choices[0]) defaults += choice.empty();
    EXPECT_GT(defaults, 0);
    for (const size_t r : {0u, 1u, 3u}) EXPECT_EQ(w.choices[r].size(), 24u);
  }
}

TEST(Share, MeasuringThatThrowsLeavesDefaultsToAll) {
  World w(3);
  for (Rank& r : w.ranks) r.ids = numbered("k", 24);
  w.ranks[0].before_publish = [](const std::string&) { throw std::runtime_error("no compiler"); };
  const auto start = std::chrono::steady_clock::now();
  w.run("1", Seconds(5), Seconds(30));
  EXPECT_LT(std::chrono::steady_clock::now() - start, Seconds(5));
  EXPECT_TRUE(w.choices[0].empty());
  w.expect_agreement();
  EXPECT_EQ(w.choices[1].size(), 24u);
}

// A later build finds what an earlier one decided, the defaults included.
TEST(Share, ResultsOutliveTheRound) {
  World w(2);
  for (Rank& r : w.ranks) r.ids = numbered("k", 8);
  w.run("1");
  const auto first = w.choices;
  for (Rank& r : w.ranks) r.ids = numbered("k", 10);
  w.run("2");
  w.expect_agreement();
  EXPECT_EQ(w.measurements(), 10);
  for (const auto& [id, choice] : first[0]) EXPECT_EQ(w.choices[1][id], choice);
}

TEST(Share, TheRankIsOneOfTheRanks) {
  LocalStore store;
  EXPECT_THROW(share_choices({.store = &store, .rank = 2, .ranks = {0, 1}}, {}, {}), Error);
}

}  // namespace
}  // namespace kiln
