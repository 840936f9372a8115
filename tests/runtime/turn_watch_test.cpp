// SPDX-License-Identifier: Apache-2.0
// Ranks that wait in turns of one number: what is asked of the store, and who hears that they differ.
#include "runtime/turn_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

namespace kiln {
namespace KILN_FILE {

using namespace std::chrono_literals;

/// Counts what is asked, and may be gone.
class CountedStore : public Store {
 public:
  std::atomic<int> asked{0};
  bool gone = false;

  void set(const std::string& key, const std::string& value) override { asking().set(key, value); }
  std::string set_once(const std::string& key, const std::string& value) override {
    return asking().set_once(key, value);
  }
  std::optional<std::string> get(const std::string& key) override { return asking().get(key); }
  std::optional<std::string> wait(const std::string& key, Seconds timeout,
                                  const std::string& known) override {
    return asking().wait(key, timeout, known);
  }
  int64_t add(const std::string& key, int64_t n) override { return asking().add(key, n); }
  void erase(const std::string& key) override { asking().erase(key); }
  std::vector<int> lost() override { return asking().lost(); }
  void leave() override { asking().leave(); }

 private:
  Store& asking() {
    ++asked;
    KILN_CHECK(!gone, comm, "the store is gone");
    return *store_;
  }
  const std::shared_ptr<Store> store_ = make_local_store();
};

Collective job(const char* name) {
  Collective c;
  c.kind = CollectiveKind::job;
  c.name = name;
  c.site = {"", {"train.cpp", 3}};
  return c;
}
Collective barrier(uint64_t number) {
  Collective c;
  c.number = number;
  c.site = {"", {"train.cpp", 9}};
  return c;
}

/// A watch whose word is a future.
struct Watched {
  Watched(int rank, const std::shared_ptr<Store>& store)
      : watch(rank, store, "g/", [this](const std::string& why) { word.set_value(why); }) {}
  std::string heard(std::chrono::milliseconds within = 20s) {
    return future.wait_for(within) == std::future_status::ready ? future.get() : "nothing";
  }
  std::promise<std::string> word;
  std::future<std::string> future = word.get_future();
  TurnWatch watch;
};

TEST(TurnWatch, BothHearThatTheyDiffer) {
  for (const bool zero_first : {true, false}) {
    const auto store = make_local_store();
    Watched zero(0, store), one(1, store);
    const Collective before = barrier(1), mine = job("call 2"), other = barrier(2);
    for (Watched* w : {&zero, &one}) {
      w->watch.begin(before);
      w->watch.end();
    }
    (zero_first ? zero : one).watch.begin(zero_first ? mine : other);
    std::this_thread::sleep_for(300ms);
    (zero_first ? one : zero).watch.begin(zero_first ? other : mine);
    const std::string text =
        "rank 0 is in call 2 (train.cpp:3), rank 1 in barrier #2 (train.cpp:9): neither can go on (all ranks "
        "must make the same steps and collectives in the same order; one of them makes fewer, or more, than "
        "the other)";
    EXPECT_EQ(zero.heard(), text);
    EXPECT_EQ(one.heard(), text);
  }
}

/// What collectives differ in they find out themselves, and better: they know who is there.
TEST(TurnWatch, AlikeTurnsAndCollectivesAreNotItsConcern) {
  const auto store = make_local_store();
  Watched zero(0, store), one(1, store);
  const Collective small = barrier(1), large = barrier(2), call = job("call 1");
  zero.watch.begin(small);
  one.watch.begin(large);
  EXPECT_EQ(zero.heard(400ms), "nothing");
  for (Watched* w : {&zero, &one}) {
    w->watch.end();
    w->watch.begin(call);
  }
  EXPECT_EQ(one.heard(400ms), "nothing");
}

TEST(TurnWatch, TurnsOfOtherNumbersAreNotCompared) {
  const auto store = make_local_store();
  Watched zero(0, store), one(1, store);
  const Collective a = barrier(1), b = job("call 1");
  zero.watch.begin(a);
  one.watch.begin(a);
  one.watch.end();
  one.watch.begin(b);  // rank 0 is about to hear of the end of its turn
  EXPECT_EQ(one.heard(400ms), "nothing");
  EXPECT_EQ(zero.heard(0ms), "nothing");
}

TEST(TurnWatch, ShortTurnsAskNothing) {
  const auto store = std::make_shared<CountedStore>();
  Watched zero(0, store);
  const Collective c = barrier(1);
  for (const auto end = std::chrono::steady_clock::now() + 500ms; std::chrono::steady_clock::now() < end;) {
    zero.watch.begin(c);
    std::this_thread::sleep_for(1ms);
    zero.watch.end();
  }
  EXPECT_EQ(store->asked, 0);
}

TEST(TurnWatch, NoKeysAreLeftBehind) {
  const auto store = make_local_store();
  Watched zero(0, store);
  const Collective c = barrier(1);
  zero.watch.begin(c);
  EXPECT_EQ(store->wait("g/turn/1", Seconds(20)), "0\ncollective\nbarrier #1 (train.cpp:9)");
  zero.watch.end();
  zero.watch.begin(c);
  for (int i = 0; i < 2000 && store->get("g/turn/1"); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(store->get("g/turn/1"), std::nullopt);
}

/// A store that is gone ends neither the watch nor the turn.
TEST(TurnWatch, LivesWithoutAStore) {
  const auto store = std::make_shared<CountedStore>();
  store->gone = true;
  Watched zero(0, store);
  const Collective c = barrier(1);
  for (int i = 1; i <= 2; ++i) {
    zero.watch.begin(c);
    for (int k = 0; k < 2000 && store->asked < i; ++k) std::this_thread::sleep_for(10ms);
    zero.watch.end();
  }
  EXPECT_EQ(store->asked, 2);
  EXPECT_EQ(zero.heard(0ms), "nothing");
}

}  // namespace KILN_FILE
}  // namespace kiln
