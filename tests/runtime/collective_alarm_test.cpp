// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective_alarm.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "ir/base/error.h"
#include "runtime/store_local.h"

namespace kiln {
namespace KILN_FILE {

/// What one rank has heard.
class Rank {
 public:
  Rank(int rank, int size, std::shared_ptr<Store> store, uint64_t started)
      : alarm(rank, size, std::move(store), "g/",
              {[started] { return started; }, [this](const std::string& why) { note(why); },
               [this](int r, uint64_t n) { note(fmt::format("rank {} left after {}", r, n)); }}) {}

  /// The next thing that it hears; "" after ten seconds.
  std::string heard() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(10), [&] { return !heard_.empty(); });
    return std::exchange(heard_, "");
  }

 private:
  void note(const std::string& what) {
    const std::lock_guard lock(mutex_);
    heard_ += what;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string heard_;

 public:
  CollectiveAlarm alarm;
};

using Answers = std::vector<std::optional<uint64_t>>;

TEST(CollectiveAlarm, TellsTheFirstReason) {
  const auto store = make_local_store();
  Rank a(0, 3, store, 1), b(1, 3, store, 1), c(2, 3, store, 1);
  EXPECT_EQ(a.alarm.reason(Seconds(0.01)), std::nullopt);
  b.alarm.fail("rank 1 aborted");
  EXPECT_EQ(a.heard(), "rank 1 aborted");
  EXPECT_EQ(c.heard(), "rank 1 aborted");
  a.alarm.fail("another");
  EXPECT_EQ(a.alarm.reason(Seconds(10)), "rank 1 aborted");
  EXPECT_EQ(b.heard(), "rank 1 aborted");
}

TEST(CollectiveAlarm, AsksHowFarTheOthersAre) {
  const auto store = make_local_store();
  Rank a(0, 2, store, 7), b(1, 2, store, 5);
  EXPECT_EQ(a.alarm.ask(), (Answers{7, 5}));
  EXPECT_EQ(b.alarm.ask(), (Answers{7, 5}));
}

TEST(CollectiveAlarm, SomeDoNotAnswer) {
  const auto store = make_local_store();
  Rank a(0, 3, store, 7), c(2, 3, store, 6);
  EXPECT_EQ(a.alarm.ask(), (Answers{7, std::nullopt, 6}));
}

TEST(CollectiveAlarm, TellsWhoLeaves) {
  const auto store = make_local_store();
  Rank a(0, 3, store, 7), b(1, 3, store, 7);
  b.alarm.leave(7);
  EXPECT_EQ(a.heard(), "rank 1 left after 7");
  Rank(2, 3, store, 6).alarm.leave(6);
  EXPECT_EQ(a.heard(), "rank 2 left after 6");  // each once
}

TEST(CollectiveAlarm, NoticesALostRank) {
  const auto store = std::make_shared<LocalStore>();
  class Losing : public Store {
   public:
    explicit Losing(std::shared_ptr<Store> s) : store_(std::move(s)) {}
    void set(const std::string& k, const std::string& v) override { store_->set(k, v); }
    std::string set_once(const std::string& k, const std::string& v) override {
      return store_->set_once(k, v);
    }
    std::optional<std::string> get(const std::string& k) override { return store_->get(k); }
    std::optional<std::string> wait(const std::string&, Seconds, const std::string&) override {
      throw Error(ErrorKind::comm, "rank 1 is lost");
    }
    int64_t add(const std::string& k, int64_t n) override { return store_->add(k, n); }
    void erase(const std::string& k) override { store_->erase(k); }
    std::vector<int> lost() override { return {1}; }
    void leave() override {}

   private:
    const std::shared_ptr<Store> store_;
  };
  {
    Rank a(0, 2, std::make_shared<Losing>(store), 3);
    EXPECT_EQ(a.heard(), "rank 1 is lost");
    EXPECT_EQ(a.alarm.ask(), (Answers{3, std::nullopt}));
  }
  store->set("g/failure", "rank 1 gave up on barrier #4");
  Rank a(0, 2, std::make_shared<Losing>(store), 3);
  EXPECT_EQ(a.heard(), "rank 1 gave up on barrier #4");
}

}  // namespace KILN_FILE
}  // namespace kiln
