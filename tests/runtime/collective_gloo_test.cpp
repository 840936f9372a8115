// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "runtime/host_address.h"
#include "tests/runtime/collective_suite.h"

namespace kiln::testing {
namespace KILN_FILE {

using Clock = std::chrono::steady_clock;

/// A world of threads that talk over TCP: what each rank's make_gloo_group() gave or threw.
Groups make_gloo_groups(int size, Seconds timeout) {
  const std::shared_ptr<Store> store = make_local_store();
  Groups groups(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back(
        [&, r] { groups[static_cast<size_t>(r)] = make_gloo_group(store, "g", r, size, "", timeout); });
  for (std::thread& t : threads) t.join();
  return groups;
}

INSTANTIATE_TEST_SUITE_P(Gloo, Collectives, ::testing::Values(Backend{"gloo", make_gloo_groups}),
                         backend_name);

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return std::string(to_string(e.kind())) + ": " + e.what();
  }
  return "no error";
}

TEST(GlooGroup, NamesWhoDidNotArrive) {
  const auto store = make_local_store();
  std::string second;
  std::thread other([&] { second = error_of([&] { make_gloo_group(store, "g", 2, 4, "", Seconds(0.3)); }); });
  const std::string first = error_of([&] { make_gloo_group(store, "g", 0, 4, "", Seconds(0.3)); });
  other.join();
  // By its own clock, or as it is told by the other, which may be first.
  for (const auto& [said, rank] : {std::pair{first, 0}, {second, 2}}) {
    EXPECT_EQ(said.find(fmt::format("comm: rank {}: gloo group 'g/': ra", rank)), 0u) << said;
    EXPECT_NE(
        said.find("gloo group 'g/': ranks 1, 3 of 4 did not arrive within 0.3 s (were all started, and do "
                  "they reach the store?)"),
        std::string::npos)
        << said;
  }
}

TEST(GlooGroup, WrongArguments) {
  const auto store = make_local_store();
  EXPECT_EQ(error_of([&] { make_gloo_group(store, "g", 2, 2, "", kAmple); }),
            "invalid: make_gloo_group: no such rank; got 2 of 2, expected 0 to size - 1");
  EXPECT_EQ(error_of([&] { make_gloo_group(store, "g", 0, 1, "", Seconds(0)); }),
            "invalid: make_gloo_group: the timeout must be positive; got 0 s");
  const std::string no_interface = error_of([&] { make_gloo_group(store, "g", 0, 1, "nic7", kAmple); });
  EXPECT_EQ(no_interface.find("invalid: gloo group 'g/': no network interface 'nic7'; this host has "), 0u)
      << no_interface;
  const std::string foreign = error_of([&] { make_gloo_group(store, "g", 0, 1, "192.0.2.1", kAmple); });
  EXPECT_EQ(foreign.find("invalid: gloo group 'g/': 192.0.2.1 is no address of this host; it has "), 0u)
      << foreign;
}

TEST(GlooGroup, TakesAnInterfaceOrAnAddress) {
  for (const char* interface : {"lo", "127.0.0.1"}) {
    const auto store = make_local_store();
    std::thread other([&] { make_gloo_group(store, "g", 1, 2, interface, kAmple)->barrier({})->wait(); });
    make_gloo_group(store, "g", 0, 2, interface, kAmple)->barrier({})->wait();
    other.join();
  }
}

// Several groups of the same ranks run at once: each has its connections and its thread.
TEST(GlooGroup, GroupsSideBySide) {
  const Groups a = make_gloo_groups(2, kAmple), b = make_gloo_groups(2, kAmple);
  for (int r = 0; r < 2; ++r) {
    std::vector<float> x(100'000, 1), y(100'000, 2);
    std::thread other([&] {
      std::vector<float> u(100'000, 3), v(100'000, 4);
      // In another order than below: only within a group the order matters.
      const WorkPtr first = b[1]->all_reduce(v.data(), 100'000, DType::f32, ReduceOp::sum, {});
      a[1]->all_reduce(u.data(), 100'000, DType::f32, ReduceOp::sum, {})->wait();
      first->wait();
      EXPECT_EQ(u[99'999], 4);
      EXPECT_EQ(v[0], 6);
    });
    a[0]->all_reduce(x.data(), 100'000, DType::f32, ReduceOp::sum, {})->wait();
    b[0]->all_reduce(y.data(), 100'000, DType::f32, ReduceOp::sum, {})->wait();
    other.join();
    EXPECT_EQ(x[0], 4);
    EXPECT_EQ(y[99'999], 6);
  }
}

// ---- processes ----

/// A store in the parent's memory that its children reach through a socket each: one line of bytes asks, one
/// answers. It knows of no lost ranks, so that what is found out is the groups' own work.
class PipeStore final : public Store {
 public:
  explicit PipeStore(int fd) : fd_(fd) {}

  void set(const std::string& key, const std::string& value) override { ask("s", key, value); }
  std::string set_once(const std::string& key, const std::string& value) override {
    return ask("o", key, value).value_or("");
  }
  std::optional<std::string> get(const std::string& key) override { return ask("g", key, ""); }
  std::optional<std::string> wait(const std::string& key, Seconds timeout,
                                  const std::string& known) override {
    for (const auto end = Clock::now() + timeout;;
         std::this_thread::sleep_for(std::chrono::milliseconds(2))) {
      auto value = get(key);
      if (value && *value != known) return value;
      if (Clock::now() >= end) return std::nullopt;
    }
  }
  int64_t add(const std::string&, int64_t) override { return 0; }
  void erase(const std::string&) override {}
  std::vector<int> lost() override { return {}; }
  void leave() override {}

  /// Answers one question; false at the end of the connection.
  static bool serve(int fd, Store& store) {
    char text[8192];
    const ssize_t n = recv(fd, text, sizeof text, 0);
    if (n <= 0) return false;
    const std::string key(text + 1), value(text + 2 + key.size(), static_cast<size_t>(n) - 2 - key.size());
    std::optional<std::string> answer = "";
    if (text[0] == 's') store.set(key, value);
    if (text[0] == 'o') answer = store.set_once(key, value);
    if (text[0] == 'g') answer = store.get(key);
    const std::string reply = answer ? "+" + *answer : "-";
    return send(fd, reply.data(), reply.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(reply.size());
  }

 private:
  std::optional<std::string> ask(const char* what, const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    const std::string question = what + key + std::string(1, '\0') + value;
    char text[8192];
    ssize_t n = send(fd_, question.data(), question.size(), MSG_NOSIGNAL);
    if (n > 0) n = recv(fd_, text, sizeof text, 0);
    KILN_CHECK(n > 0, comm, "the store is gone");
    if (text[0] == '-') return std::nullopt;
    return std::string(text + 1, static_cast<size_t>(n) - 1);
  }

  const int fd_;
  std::mutex mutex_;
};

/// Ranks as child processes. Each runs `body` and reports what it threw through its socket's store.
class Processes {
 public:
  Processes(int size, Seconds timeout, const std::function<void(ProcessGroup&)>& body) {
    for (int r = 0; r < size; ++r) {
      int ends[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
      const pid_t pid = fork();
      if (pid == 0) {
        ::close(ends[0]);
        for (const int fd : ours_) ::close(fd);
        run(r, size, timeout, ends[1], body);
      }
      ::close(ends[1]);
      pids_.push_back(pid);
      ours_.push_back(ends[0]);
    }
    for (const int fd : ours_)
      servers_.emplace_back([this, fd] {
        while (PipeStore::serve(fd, *store_)) {
        }
      });
  }
  ~Processes() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
    for (std::thread& t : servers_) t.join();
    for (const int fd : ours_) ::close(fd);
  }

  void signal(int rank, int number) { kill(pids_[static_cast<size_t>(rank)], number); }
  /// What a rank has set, within ample time.
  std::string value(const std::string& key) {
    return store_->wait(key, kAmple).value_or("nothing came under " + key);
  }
  std::string outcome(int rank) { return value("outcome/" + std::to_string(rank)); }

 private:
  [[noreturn]] static void run(int rank, int size, Seconds timeout, int fd,
                               const std::function<void(ProcessGroup&)>& body) {
    const auto store = std::make_shared<PipeStore>(fd);
    std::string outcome = "done";
    try {
      const auto group = make_gloo_group(store, "g", rank, size, "", timeout);
      store->set("ready/" + std::to_string(rank), "1");
      body(*group);
    } catch (const std::exception& e) {
      outcome = e.what();
    }
    store->set("outcome/" + std::to_string(rank), outcome);
    _exit(0);
  }

  const std::shared_ptr<Store> store_ = make_local_store();
  std::vector<pid_t> pids_;
  std::vector<int> ours_;
  std::vector<std::thread> servers_;
};

/// One all_reduce after another, of `count` elements.
std::function<void(ProcessGroup&)> reduces(int64_t count) {
  return [count](ProcessGroup& group) {
    std::vector<float> x(static_cast<size_t>(count), 1);
    while (true) group.all_reduce(x.data(), count, DType::f32, ReduceOp::max, site_at(77))->wait();
  };
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct Fault {
  int signal;
  int64_t count;
  int milliseconds;  ///< after all are ready
};

class Faults : public ::testing::TestWithParam<Fault> {};

// A peer that dies is noticed at once; one that stops, at the timeout. All others end, and name it.
TEST_P(Faults, NameTheRank) {
  constexpr Seconds kTimeout{1.5};
  constexpr int kSize = 3, kVictim = 1;
  Processes world(kSize, kTimeout, reduces(GetParam().count));
  for (int r = 0; r < kSize; ++r) ASSERT_EQ(world.value("ready/" + std::to_string(r)), "1");
  std::this_thread::sleep_for(std::chrono::milliseconds(GetParam().milliseconds));
  const auto begin = Clock::now();
  world.signal(kVictim, GetParam().signal);
  for (const int r : {0, 2}) {
    const std::string text = world.outcome(r);
    EXPECT_EQ(text.find(fmt::format("rank {}: all_reduce #", r)), 0u) << text;
    EXPECT_TRUE(has(text, fmt::format("of f32[{}] by max (backward, train.cpp:77): ", GetParam().count)))
        << text;
    EXPECT_TRUE(has(text, "rank 1 ")) << text;
    if (GetParam().signal == SIGSTOP) {
      EXPECT_TRUE(has(text, "within the timeout of 1.5 s")) << text;
    }
  }
  const Seconds limit = GetParam().signal == SIGSTOP ? kTimeout + Seconds(5) : Seconds(5);
  EXPECT_LT(Seconds(Clock::now() - begin), limit);
}

std::string fault_name(const ::testing::TestParamInfo<Fault>& info) {
  return fmt::format("{}_{}_{}ms", info.param.signal == SIGKILL ? "Kill" : "Stop", info.param.count,
                     info.param.milliseconds);
}
INSTANTIATE_TEST_SUITE_P(Gloo, Faults,
                         ::testing::Values(Fault{SIGKILL, 1, 0}, Fault{SIGKILL, 1, 13},
                                           Fault{SIGKILL, 1'000'000, 0}, Fault{SIGKILL, 1'000'000, 29},
                                           Fault{SIGKILL, 1'000'000, 61}, Fault{SIGSTOP, 1, 10},
                                           Fault{SIGSTOP, 1'000'000, 41}),
                         fault_name);

// Also by a rank that is doing something else.
TEST(GlooProcesses, WhoAsksIsToldThatARankIsGone) {
  Processes world(3, kAmple, [](ProcessGroup& group) {
    while (true) {
      group.check();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  for (int r = 0; r < 3; ++r) ASSERT_EQ(world.value("ready/" + std::to_string(r)), "1");
  const auto begin = Clock::now();
  world.signal(1, SIGKILL);
  for (const int r : {0, 2}) {
    const std::string text = world.outcome(r);
    EXPECT_EQ(text.find(fmt::format("rank {}: rank 1 is gone: ", r)), 0u) << text;
  }
  EXPECT_LT(Seconds(Clock::now() - begin), Seconds(5));
}

// Nothing is lost when a rank ends right after its last collective: the rest is on its way.
TEST(GlooProcesses, TheLastCollectiveIsComplete) {
  for (const int64_t count : {10, 20, 30, 1'000'000}) {  // several, for it takes luck to meet the end
    Processes world(3, kAmple, [count](ProcessGroup& group) {
      std::vector<float> x(static_cast<size_t>(count), 1);
      group.all_reduce(x.data(), count, DType::f32, ReduceOp::sum, {})->wait();
      KILN_CHECK(x.back() == 3, comm, "got {}", x.back());
    });
    for (int r = 0; r < 3; ++r) EXPECT_EQ(world.outcome(r), "done");
  }
}

// Nor is what the others need lost, if it ends without a word.
TEST(GlooProcesses, AfterTheLastCollectiveNobodyIsMissed) {
  for (const int64_t count : {10, 20, 30, 1'000'000}) {  // several, for it takes luck to meet the end
    Processes world(3, kAmple, [count](ProcessGroup& group) {
      std::vector<float> x(static_cast<size_t>(count), 1);
      group.all_reduce(x.data(), count, DType::f32, ReduceOp::sum, {})->wait();
      if (group.rank() != 1) _exit(0);
      KILN_CHECK(x.back() == 3, comm, "got {}", x.back());
    });
    EXPECT_EQ(world.outcome(1), "done");
  }
}

}  // namespace KILN_FILE
}  // namespace kiln::testing
