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
namespace KILN_FILE {

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
  size_t most = 4;         ///< that it takes at once
  bool stops = false;      ///< after that many
  bool takes_part = true;  ///< builds
};

/// A world of threads that share once.
class World {
 public:
  explicit World(int size) : ranks(static_cast<size_t>(size)) {}

  void run(Seconds wait = Seconds(5)) {
    std::vector<std::thread> threads;
    choices.assign(ranks.size(), {});
    took.assign(ranks.size(), Seconds(0));
    for (size_t r = 0; r < ranks.size(); ++r)
      if (ranks[r].takes_part) threads.emplace_back([=, this] { run_rank(static_cast<int>(r), wait); });
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
  std::vector<Seconds> took;                                // per rank, from its arrival
  std::map<std::string, int> measured;                      // how often
  std::map<int, int> measured_by;                           // how many

 private:
  void run_rank(int rank, Seconds wait) {
    const Rank& me = ranks[static_cast<size_t>(rank)];
    std::this_thread::sleep_for(me.arrives);
    const auto start = std::chrono::steady_clock::now();
    std::vector<SharedKernel> kernels;
    for (const std::string& id : me.ids) {
      const auto k = me.known.find(id);
      kernels.push_back({id, k == me.known.end() ? "" : k->second});
    }
    const auto measure = [&](const Take& take, const Publish& publish) {
      for (auto some = take(me.most); !some.empty(); some = take(me.most)) {
        EXPECT_LE(some.size(), me.most);
        for (const size_t i : some) {
          if (me.before_publish) me.before_publish(me.ids[i]);
          {
            const std::lock_guard lock(mutex_);
            ++measured[me.ids[i]];
            ++measured_by[rank];
          }
          publish(i, fmt::format("{} by {}", me.ids[i], rank));
        }
        if (me.stops) return;
      }
    };
    try {
      const ShareOptions options{.store = store.get(),
                                 .rank = rank,
                                 .size = static_cast<int>(ranks.size()),
                                 .prefix = "w",
                                 .wait = wait};
      const auto decided = share_choices(options, kernels, measure);
      for (size_t i = 0; i < decided.size(); ++i)
        choices[static_cast<size_t>(rank)][me.ids[i]] = decided[i].text;
    } catch (const std::runtime_error&) {  // a rank that the test kills
    }
    took[static_cast<size_t>(rank)] = std::chrono::steady_clock::now() - start;
  }
  std::mutex mutex_;
};

const auto kSlowly = [](const std::string&) { std::this_thread::sleep_for(Seconds(0.01)); };

TEST(Share, EveryKernelIsMeasuredOnceAndEverybodyGetsIt) {
  for (const int size : {1, 2, 4}) {
    World w(size);
    for (Rank& r : w.ranks) r.ids = numbered("k", 64), r.before_publish = kSlowly;
    w.run();
    w.expect_agreement();
    EXPECT_EQ(w.measured.size(), 64u);
    EXPECT_EQ(w.measurements(), 64);
    EXPECT_EQ(w.measured_by.size(), static_cast<size_t>(size)) << "somebody had nothing to do";
    for (const auto& mine : w.choices)
      for (const auto& [id, choice] : mine) EXPECT_NE(choice, "");
  }
}

TEST(Share, WhatMattersMostIsTakenFirst) {
  World w(1);
  w.ranks[0].ids = numbered("k", 9);
  Ids order;
  w.ranks[0].before_publish = [&](const std::string& id) { order.push_back(id); };
  w.run();
  EXPECT_EQ(order, w.ranks[0].ids);
}

TEST(Share, SharesGetSmallerTowardsTheEnd) {
  EXPECT_EQ(kernels_at_once(40, 1, 4), 4u);
  EXPECT_EQ(kernels_at_once(40, 2, 4), 4u);
  EXPECT_EQ(kernels_at_once(9, 2, 4), 3u);
  EXPECT_EQ(kernels_at_once(40, 4, 100), 5u);
  EXPECT_EQ(kernels_at_once(1, 4, 4), 1u);
}

TEST(Share, AFasterRankDoesMore) {
  World w(2);
  for (Rank& r : w.ranks) r.ids = numbered("k", 40);
  w.ranks[0].before_publish = [](const std::string&) { std::this_thread::sleep_for(Seconds(0.1)); };
  w.ranks[1].before_publish = kSlowly;
  w.run(Seconds(30));
  w.expect_agreement();
  EXPECT_EQ(w.measurements(), 40);
  EXPECT_GT(w.measured_by[1], 2 * w.measured_by[0]);
}

TEST(Share, WhatOneRankKnowsAllGet) {
  World w(4);
  for (Rank& r : w.ranks) r.ids = numbered("k", 40), r.arrives = Seconds(0.3);
  for (const std::string& id : w.ranks[2].ids) w.ranks[2].known[id] = "known to 2";
  w.ranks[2].arrives = Seconds(0);
  w.run();
  w.expect_agreement();
  EXPECT_EQ(w.measurements(), 0);
  EXPECT_EQ(w.choices[0]["k7"], "known to 2");
}

TEST(Share, RanksThatKnowDifferentThingsAgree) {
  World w(3);
  for (Rank& r : w.ranks) r.ids = numbered("k", 12);
  for (size_t r = 0; r < 3; ++r)
    for (const std::string& id : w.ranks[r].ids)
      if (r > 0 || id < "k5") w.ranks[r].known[id] = fmt::format("known to {}", r);
  w.run();
  w.expect_agreement();
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

// The others found everything in their caches, or run what they built long ago.
TEST(Share, ARankThatMissesAloneWaitsForNobody) {
  World w(3);
  w.ranks[0].ids = numbered("k", 12);
  w.ranks[1].takes_part = false;
  w.ranks[2].ids = numbered("other", 3);
  for (const std::string& id : w.ranks[2].ids) w.ranks[2].known[id] = "row";
  w.run(Seconds(30));
  w.expect_agreement();
  EXPECT_EQ(w.measured_by[0], 12);
  EXPECT_LT(w.took[0], Seconds(0.5));
}

// One that comes while the others work does what is left; one that comes afterwards gets everything.
TEST(Share, LateRanks) {
  World w(3);
  for (Rank& r : w.ranks) r.ids = numbered("k", 60), r.before_publish = kSlowly;
  w.ranks[1].arrives = Seconds(0.1);
  w.ranks[2].arrives = Seconds(2);
  w.ranks[2].ids.push_back("late");
  w.run(Seconds(30));
  w.expect_agreement();
  EXPECT_EQ(w.measurements(), 61);
  EXPECT_GT(w.measured_by[1], 5);
  EXPECT_EQ(w.measured_by[2], 1);
  EXPECT_EQ(w.choices[2]["late"], "late by 2");
  EXPECT_LT(w.took[0], Seconds(1.8)) << "waited for a rank that was not there";
}

// A rank whose time is up leaves defaults, and nobody waits for what nobody has begun.
TEST(Share, WhatIsNotTakenKeepsItsDefault) {
  World w(2);
  for (Rank& r : w.ranks) r.ids = numbered("k", 60), r.stops = true;
  w.run(Seconds(30));
  w.expect_agreement();
  EXPECT_LE(w.measurements(), 8);
  EXPECT_EQ(w.choices[0]["k59"], "");
  EXPECT_LT(w.took[0], Seconds(5));
}

// A-16's purpose: whatever fails, no rank picks differently.
TEST(Share, ASlowRankIsLeftBehindByAll) {
  World w(4);
  for (Rank& r : w.ranks) r.ids = numbered("k", 24), r.before_publish = kSlowly;
  w.ranks[1].before_publish = [](const std::string&) { std::this_thread::sleep_for(Seconds(1)); };
  w.run(Seconds(0.4));
  w.expect_agreement();
  int defaults = 0;
  for (const auto& [id, choice] : w.choices[1]) defaults += choice.empty();
  EXPECT_GT(defaults, 0);
  EXPECT_LT(defaults, 24);
}

TEST(Share, ARankThatDiesIsNoticed) {
  for (const bool noticed : {true, false}) {
    World w(4);
    for (Rank& r : w.ranks) r.ids = numbered("k", 24), r.before_publish = kSlowly;
    std::atomic<int> left{1};
    w.ranks[2].before_publish = [&](const std::string&) {
      if (--left >= 0) return;
      if (noticed) w.store->lose(2);
      // Not an exception of measuring, after which a rank settles its kernels: the thread just stops.
      std::this_thread::sleep_for(Seconds(2));
      throw std::runtime_error("killed");
    };
    w.run(Seconds(noticed ? 30 : 0.5));
    w.choices[2].clear();
    w.expect_agreement();
    int defaults = 0;
    for (const auto& [id, choice] : w.choices[0]) defaults += choice.empty();
    EXPECT_GT(defaults, 0);
    EXPECT_LT(defaults, 8);
    for (const size_t r : {0u, 1u, 3u}) {
      EXPECT_EQ(w.choices[r].size(), 24u);
      EXPECT_LT(w.took[r], Seconds(1.8));
    }
  }
}

TEST(Share, MeasuringThatThrowsLeavesItsKernelsTheirDefaults) {
  World w(3);
  for (Rank& r : w.ranks) r.ids = numbered("k", 24), r.before_publish = kSlowly;
  w.ranks[0].before_publish = [](const std::string&) { throw std::runtime_error("no compiler"); };
  w.run(Seconds(30));
  EXPECT_LT(w.took[1], Seconds(5));
  EXPECT_TRUE(w.choices[0].empty());
  w.expect_agreement();
  EXPECT_EQ(w.choices[1].size(), 24u);
  EXPECT_GE(w.measurements(), 20);
}

// A later build finds what an earlier one decided, the defaults included.
TEST(Share, ResultsOutliveTheBuild) {
  World w(2);
  for (Rank& r : w.ranks) r.ids = numbered("k", 8);
  w.run();
  const auto first = w.choices;
  for (Rank& r : w.ranks) r.ids = numbered("k", 10);
  w.run();
  w.expect_agreement();
  EXPECT_EQ(w.measurements(), 10);
  for (const auto& [id, choice] : first[0]) EXPECT_EQ(w.choices[1][id], choice);
}

TEST(Share, TheRankIsOneOfTheRanks) {
  LocalStore store;
  EXPECT_THROW(share_choices({.store = &store, .rank = 2, .size = 2}, {}, {}), Error);
}

}  // namespace KILN_FILE
}  // namespace kiln
