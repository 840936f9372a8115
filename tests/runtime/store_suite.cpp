// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/store_suite.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "ir/base/error.h"

namespace kiln {

using namespace std::chrono_literals;  // NOLINT

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return std::string(to_string(e.kind())) + ": " + e.what();
  }
  return "";
}

namespace {

TEST_P(StoreSuite, KeepsBytes) {
  StoreWorld world = GetParam()(2);
  Store &a = *world.ranks[0], &b = *world.ranks[1];
  const std::string key("k\0\xff", 3), value("\0x\xfe", 3);
  EXPECT_EQ(b.get(key), std::nullopt);
  a.set(key, value);
  EXPECT_EQ(b.get(key), value);
  EXPECT_EQ(b.set_once(key, "other"), value);
  EXPECT_EQ(b.set_once("b", "first"), "first");
  EXPECT_EQ(a.get("b"), "first");
  b.set("b", "");
  EXPECT_EQ(a.get("b"), "");
  a.set("", "empty");
  EXPECT_EQ(b.get(""), "empty");
  b.erase(key);
  EXPECT_EQ(a.get(key), std::nullopt);
  a.erase("never there");
}

TEST_P(StoreSuite, KeepsMegabytes) {
  StoreWorld world = GetParam()(2);
  std::string large(9 << 20, 'x');
  for (size_t i = 0; i < large.size(); i += 1000) large[i] = static_cast<char>(i / 1000);
  world.ranks[1]->set("large", large);
  EXPECT_TRUE(world.ranks[0]->get("large") == large);
  EXPECT_TRUE(world.ranks[1]->wait("large", Seconds(30)) == large);
  EXPECT_THAT(error_of([&] { world.ranks[1]->add("large", 1); }), testing::SizeIs(testing::Lt(1000)));
}

TEST_P(StoreSuite, Adds) {
  StoreWorld world = GetParam()(2);
  EXPECT_EQ(world.ranks[0]->add("n", 5), 5);
  EXPECT_EQ(world.ranks[1]->add("n", -7), -2);
  EXPECT_EQ(world.ranks[0]->get("n"), "-2");
  world.ranks[0]->set("s", "x1");
  EXPECT_EQ(error_of([&] { world.ranks[1]->add("s", 1); }),
            "invalid: Store::add: key 's' holds no integer; got 'x1' (set by set()?)");
}

TEST_P(StoreSuite, AddsOfManyThreadsAddUp) {
  StoreWorld world = GetParam()(4);
  std::vector<std::thread> threads;
  for (const auto& rank : world.ranks)
    for (int t = 0; t < 2; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 50; ++i) rank->add("n", 1);
      });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(world.ranks[0]->get("n"), "400");
}

TEST_P(StoreSuite, OneSetOnceWins) {
  StoreWorld world = GetParam()(4);
  std::vector<std::string> seen(4);
  std::vector<std::thread> threads;
  for (int r = 0; r < 4; ++r)
    threads.emplace_back([&, r] { seen[r] = world.ranks[r]->set_once("winner", std::to_string(r)); });
  for (std::thread& t : threads) t.join();
  EXPECT_THAT(seen, testing::Each(*world.ranks[0]->get("winner")));
}

TEST_P(StoreSuite, WaitsForAChange) {
  StoreWorld world = GetParam()(2);
  Store &a = *world.ranks[0], &b = *world.ranks[1];
  EXPECT_EQ(b.wait("k", Seconds(0.01), ""), std::nullopt);
  EXPECT_EQ(b.wait("k", Seconds(-1), ""), std::nullopt);
  std::thread setter([&] {
    std::this_thread::sleep_for(10ms);
    a.set("other", "x");
    a.set("k", "1");
    std::this_thread::sleep_for(10ms);
    a.set("k", "1");
    a.erase("k");
    a.add("k", 2);
  });
  const auto first = b.wait("k", Seconds(30), "");
  ASSERT_TRUE(first);
  EXPECT_EQ(*first == "2" ? first : b.wait("k", Seconds(1e300), "1"), "2");
  setter.join();
  EXPECT_EQ(a.wait("k", Seconds(0.01), "2"), std::nullopt);
  EXPECT_EQ(a.wait("k", Seconds(0), "1"), "2") << "what is there needs no time";
}

TEST_P(StoreSuite, AWaitHoldsUpNobody) {
  StoreWorld world = GetParam()(2);
  std::atomic<int> woken{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 40; ++i)
    waiters.emplace_back([&, i] {
      if (world.ranks[i % 2]->wait("go", Seconds(60), "") == "!") ++woken;
    });
  for (int i = 0; i < 100; ++i) {
    world.ranks[0]->set("k", std::to_string(i));
    EXPECT_EQ(world.ranks[1]->get("k"), std::to_string(i));
  }
  world.ranks[1]->set("go", "!");
  for (std::thread& t : waiters) t.join();
  EXPECT_EQ(woken, 40);
}

TEST_P(StoreSuite, ALostRankEndsWaits) {
  StoreWorld world = GetParam()(4);
  world.ranks[1]->set("there", "x");
  std::vector<std::string> errors(3);
  std::vector<std::thread> waiters;
  for (int r = 0; r < 3; ++r)
    waiters.emplace_back(
        [&, r] { errors[r] = error_of([&] { world.ranks[r]->wait("k", Seconds(60), ""); }); });
  std::this_thread::sleep_for(20ms);
  world.lose(world, 3);
  for (std::thread& t : waiters) t.join();
  EXPECT_THAT(errors,
              testing::Each(
                  "comm: rank 3 is lost: ended without destroy_process_group, or cut off (waiting for 'k')"));
  EXPECT_EQ(error_of([&] { world.ranks[0]->wait("k", Seconds(60), ""); }),
            "comm: rank 3 is lost: ended without destroy_process_group, or cut off (waiting for 'k')");
  EXPECT_EQ(world.ranks[2]->lost(), std::vector<int>{3});
  EXPECT_EQ(world.ranks[2]->wait("there", Seconds(60), ""), "x") << "what is there needs nobody";
  world.lose(world, 1);
  EXPECT_EQ(error_of([&] {
              for (int i = 0; i < 1000; ++i) {
                if (world.ranks[0]->lost().size() == 2) world.ranks[0]->wait("k", Seconds(60), "");
                std::this_thread::sleep_for(5ms);
              }
            }),
            "comm: ranks 3, 1 are lost: ended without destroy_process_group, or cut off (waiting for 'k')");
}

}  // namespace
}  // namespace kiln
