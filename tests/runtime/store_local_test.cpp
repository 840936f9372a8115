// SPDX-License-Identifier: Apache-2.0
#include "runtime/store_local.h"

#include <gtest/gtest.h>

#include <thread>

#include "ir/base/error.h"

namespace kiln {
namespace {

using namespace std::chrono_literals;  // NOLINT

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return std::string(to_string(e.kind())) + ": " + e.what();
  }
  return "";
}

TEST(LocalStore, KeepsValues) {
  const auto store = make_local_store();
  EXPECT_EQ(store->get("a"), std::nullopt);
  store->set("a", std::string("\0x", 2));
  EXPECT_EQ(store->get("a"), std::string("\0x", 2));
  EXPECT_EQ(store->set_once("a", "other"), std::string("\0x", 2));
  EXPECT_EQ(store->set_once("b", "first"), "first");
  store->erase("a");
  EXPECT_EQ(store->get("a"), std::nullopt);
  store->leave();
  EXPECT_TRUE(store->lost().empty());
}

TEST(LocalStore, Adds) {
  LocalStore store;
  EXPECT_EQ(store.add("n", 5), 5);
  EXPECT_EQ(store.add("n", -7), -2);
  EXPECT_EQ(store.get("n"), "-2");
  store.set("s", "x1");
  EXPECT_EQ(error_of([&] { store.add("s", 1); }),
            "invalid: Store::add: key 's' holds no integer; got 'x1' (set by set()?)");
}

TEST(LocalStore, WaitsForAChange) {
  LocalStore store;
  EXPECT_EQ(store.wait("k", Seconds(0.01), ""), std::nullopt);
  std::thread setter([&] {
    std::this_thread::sleep_for(10ms);
    store.set("k", "1");
    std::this_thread::sleep_for(10ms);
    store.set("k", "2");
  });
  const auto first = store.wait("k", Seconds(30), "");
  ASSERT_TRUE(first);
  const auto last = *first == "2" ? first : store.wait("k", Seconds(30), "1");
  EXPECT_EQ(last, "2");
  setter.join();
  EXPECT_EQ(store.wait("k", Seconds(0.01), "2"), std::nullopt);
}

TEST(LocalStore, ALostRankEndsWaits) {
  LocalStore store;
  store.set("there", "x");
  std::thread loser([&] {
    std::this_thread::sleep_for(10ms);
    store.lose(3);
    store.lose(3);
  });
  EXPECT_EQ(error_of([&] { store.wait("k", Seconds(30), ""); }), "comm: waiting for 'k': rank 3 is lost");
  loser.join();
  EXPECT_EQ(store.lost(), std::vector<int>{3});
  EXPECT_EQ(store.wait("there", Seconds(30), ""), "x");
}

}  // namespace
}  // namespace kiln
