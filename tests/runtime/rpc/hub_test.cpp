// SPDX-License-Identifier: Apache-2.0
// What the served store does between threads, without gRPC and so under sanitizers.
#include "runtime/rpc/hub.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "tests/runtime/store_suite.h"

namespace kiln {
namespace KILN_FILE {

using rpc::Hub;

// A rank of a hub as a store; what gRPC does, by a condition variable.
class HubStore final : public Store {
 public:
  HubStore(std::shared_ptr<Hub> hub, int rank, int size) : hub_(std::move(hub)), rank_(rank) {
    hub_->join(rank, size, presence_);
  }
  ~HubStore() override { hub_->part(rank_, presence_.get()); }
  void set(const std::string& key, const std::string& value) override { hub_->set(key, value); }
  std::string set_once(const std::string& key, const std::string& value) override {
    return hub_->set_once(key, value);
  }
  std::optional<std::string> get(const std::string& key) override { return hub_->get(key); }
  std::optional<std::string> wait(const std::string& key, Seconds timeout,
                                  const std::string& known) override {
    Waiting waiting;
    hub_->wait(key, known, &waiting);
    std::unique_lock lock(waiting.mutex);
    if (!waiting.told.wait_for(lock, bounded(timeout), [&] { return waiting.done; })) {
      lock.unlock();
      if (hub_->forget(key, &waiting)) return std::nullopt;
      lock.lock();
      waiting.told.wait(lock, [&] { return waiting.done; });
    }
    if (waiting.error) throw Error(ErrorKind::comm, *waiting.error);
    return waiting.value;
  }
  int64_t add(const std::string& key, int64_t n) override { return hub_->add(key, n); }
  void erase(const std::string& key) override { hub_->erase(key); }
  std::vector<int> lost() override { return hub_->lost(); }
  void leave() override { hub_->leave(rank_); }
  bool closed() const { return presence_->closed; }
  std::string fault() const { return presence_->fault; }

 private:
  struct Waiting final : rpc::Waiter {
    void found(const std::string& v) override {
      tell([&] { value = v; });
    }
    void failed(const std::string& why) override {
      tell([&] { error = why; });
    }
    void tell(const std::function<void()>& what) {
      const std::lock_guard lock(mutex);
      what();
      done = true;
      told.notify_all();
    }
    std::mutex mutex;
    std::condition_variable told;
    bool done = false;
    std::string value;
    std::optional<std::string> error;
  };
  struct Connection final : rpc::Presence {
    void close(const std::string& f) override { closed = true, fault = f; }
    std::string fault;
    std::atomic<bool> closed{false};
  };
  std::shared_ptr<Hub> hub_;
  const int rank_;
  const std::shared_ptr<Connection> presence_ = std::make_shared<Connection>();
};

StoreWorld hub_world(int size) {
  const auto hub = std::make_shared<Hub>(size);
  StoreWorld world{{}, [](StoreWorld& w, int rank) { w.ranks[rank].reset(); }};
  for (int r = 0; r < size; ++r) world.ranks.push_back(std::make_shared<HubStore>(hub, r, size));
  return world;
}

INSTANTIATE_TEST_SUITE_P(Hub, StoreSuite, ::testing::Values(hub_world));

TEST(Hub, ARankThatLeftMayComeAgainAndOneThatIsLostMayNot) {
  const auto hub = std::make_shared<Hub>(3);
  auto first = std::make_unique<HubStore>(hub, 1, 3);
  EXPECT_EQ(error_of([&] { HubStore(hub, 1, 3); }),
            "comm: rank 1 of 3 is there already (two processes were started as the same rank)");
  first->leave();
  auto second = std::make_unique<HubStore>(hub, 1, 3);
  first.reset();
  EXPECT_TRUE(hub->lost().empty()) << "it is the second that is there now";
  second.reset();
  EXPECT_EQ(hub->lost(), std::vector<int>{1});
  EXPECT_EQ(error_of([&] { HubStore(hub, 1, 3); }),
            "comm: rank 1 is lost and cannot join again (start all ranks anew)");
  EXPECT_EQ(error_of([&] { HubStore(hub, -1, 3); }), "comm: got rank -1, expected one of 0 to 2");
}

TEST(Hub, ClosesInPeace) {
  const auto hub = std::make_shared<Hub>(3);
  HubStore one(hub, 1, 3), two(hub, 2, 3);
  std::string error;
  std::thread waiter([&] { error = error_of([&] { one.wait("k", Seconds(60), ""); }); });
  EXPECT_FALSE(hub->wait_for_others(0, Seconds(0.02)));
  two.leave();
  EXPECT_TRUE(hub->wait_for_others(1, Seconds(60)));
  hub->close(true);
  waiter.join();
  EXPECT_EQ(error, "comm: rank 0, which serves the store, has left (waiting for 'k')");
  EXPECT_EQ(one.fault(), "");
  EXPECT_TRUE(one.closed());
  EXPECT_TRUE(two.closed()) << "it may still ask";
}

TEST(Hub, SaysSoWhenItEndsOtherwise) {
  const auto hub = std::make_shared<Hub>(2);
  HubStore one(hub, 1, 2);
  std::string error;
  std::thread waiter([&] { error = error_of([&] { one.wait("k", Seconds(60), ""); }); });
  EXPECT_FALSE(hub->wait_for_others(0, Seconds(0.1)));
  hub->close(false);
  waiter.join();
  EXPECT_EQ(error,
            "comm: rank 0, which serves the store, is lost: its process ended without "
            "destroy_process_group (waiting for 'k')");
  EXPECT_EQ(one.fault(), "its process ended without destroy_process_group");
}

}  // namespace KILN_FILE
}  // namespace kiln
