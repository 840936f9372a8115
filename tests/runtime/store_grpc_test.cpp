// SPDX-License-Identifier: Apache-2.0
// Ranks here are connections of this process or processes of their own (store_member).
#include "runtime/store_grpc.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "ir/base/error.h"
#include "ir/base/options.h"
#include "tests/runtime/store_suite.h"

extern char** environ;

namespace kiln {
namespace KILN_FILE {

using namespace std::chrono_literals;  // NOLINT
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

double seconds_of(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return Seconds(std::chrono::steady_clock::now() - start).count();
}

StoreWorld grpc_world(int size) {
  const ServedStore served = serve_store(0, size, "127.0.0.1");
  StoreWorld world{{served.store}, [](StoreWorld& w, int rank) { w.ranks[rank].reset(); }};
  for (int r = 1; r < size; ++r)
    world.ranks.push_back(connect_store("127.0.0.1", served.port, r, size, Seconds(20)));
  return world;
}

INSTANTIATE_TEST_SUITE_P(Grpc, StoreSuite, ::testing::Values(grpc_world));

// A store_member, and what it says.
class Member {
 public:
  Member(const std::string& action, int port, int rank, int size) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    std::string args[] = {KILN_STORE_MEMBER, action, std::to_string(port), std::to_string(rank),
                          std::to_string(size)};
    char* argv[] = {args[0].data(), args[1].data(), args[2].data(), args[3].data(), args[4].data(), nullptr};
    EXPECT_EQ(posix_spawn(&pid_, argv[0], &actions, nullptr, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    out_ = ends[0];
  }
  ~Member() {
    if (pid_ > 0) kill();
    close(out_);
  }
  // The next line it says; "" when it ends, or says none for 30 s.
  std::string line() {
    std::string text;
    pollfd ready{out_, POLLIN, 0};
    for (char c = 0; poll(&ready, 1, 30'000) == 1 && read(out_, &c, 1) == 1 && c != '\n';) text += c;
    return text;
  }
  int port() { return std::stoi(line().substr(std::string("port ").size())); }
  void kill(int signal = SIGKILL) {
    ::kill(pid_, signal);
    ended();
  }
  // Its exit status, or minus the signal that ended it; -1000 if it does not end within 20 s.
  int ended() {
    int status = 0;
    for (int i = 0; i < 4000; ++i, std::this_thread::sleep_for(5ms)) {
      if (waitpid(pid_, &status, WNOHANG) != pid_) continue;
      pid_ = 0;
      return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    }
    return -1000;
  }

 private:
  pid_t pid_ = 0;
  int out_ = -1;
};

TEST(GrpcStore, AKilledProcessEndsTheWaitsOfAll) {
  const ServedStore served = serve_store(0, 4, "127.0.0.1");
  const auto one = connect_store("127.0.0.1", served.port, 1, 4, Seconds(20));
  Member other("wait", served.port, 2, 4), killed("wait", served.port, 3, 4);
  ASSERT_EQ(other.line(), "joined");
  ASSERT_EQ(killed.line(), "joined");
  std::string of_server;
  std::thread waiter([&] { of_server = error_of([&] { served.store->wait("k", Seconds(60)); }); });
  std::thread killer([&] {
    std::this_thread::sleep_for(50ms);
    killed.kill();
  });
  const double took = seconds_of([&] {
    EXPECT_EQ(error_of([&] { one->wait("k", Seconds(60)); }),
              "comm: rank 3 is lost: ended without destroy_process_group, or cut off (waiting for 'k')");
    waiter.join();
    EXPECT_EQ(of_server,
              "comm: rank 3 is lost: ended without destroy_process_group, or cut off (waiting for 'k')");
    EXPECT_EQ(other.line(),
              "rank 3 is lost: ended without destroy_process_group, or cut off (waiting for 'never')");
  });
  EXPECT_LT(took, 2);
  killer.join();
  EXPECT_EQ(other.ended(), 1);
}

TEST(GrpcStore, AKilledServerEndsEverything) {
  Member server("wait", 0, 0, 3);
  const int port = server.port();
  ASSERT_EQ(server.line(), "joined");
  const auto store = connect_store("127.0.0.1", port, 1, 3, Seconds(20));
  store->set("k", "v");
  std::thread killer([&] {
    std::this_thread::sleep_for(50ms);
    server.kill();
  });
  const auto gone = MatchesRegex(
      "comm: store: rank 0, which serves it at 127.0.0.1:[0-9]+, is lost: its process "
      "ended or the connection broke.*");
  EXPECT_LT(seconds_of([&] { EXPECT_THAT(error_of([&] { store->wait("never", Seconds(60)); }), gone); }), 2);
  killer.join();
  EXPECT_LT(seconds_of([&] {
              EXPECT_THAT(error_of([&] { store->get("k"); }), gone);
              EXPECT_THAT(error_of([&] { store->set("k", "v"); }), gone);
              EXPECT_THAT(error_of([&] { store->wait("k", Seconds(60)); }), gone);
              EXPECT_EQ(store->lost(), std::vector<int>{0});
              store->leave();
            }),
            2);
}

TEST(GrpcStore, WhoLeavesIsNotLost) {
  const ServedStore served = serve_store(0, 3, "127.0.0.1");
  for (const char* action : {"leave", "static_leave"}) {
    Member other(action, served.port, 1, 3);
    EXPECT_EQ(other.line(), "joined");
    EXPECT_EQ(other.ended(), 0);
  }
  EXPECT_EQ(served.store->wait("k", Seconds(0.05)), std::nullopt);
  EXPECT_TRUE(served.store->lost().empty());
}

// However a process ends, it ends, and others hear of it.
TEST(GrpcStore, WhoeverEndsWithoutLeavingIsLost) {
  for (const auto& [action, status] :
       {std::pair{"nothing", 0}, {"static", 0}, {"exit", 0}, {"throw", -SIGABRT}}) {
    const ServedStore served = serve_store(0, 3, "127.0.0.1");
    Member other(action, served.port, 1, 3);
    EXPECT_EQ(other.line(), "joined");
    EXPECT_EQ(error_of([&] { served.store->wait("k", Seconds(20)); }),
              "comm: rank 1 is lost: ended without destroy_process_group, or cut off (waiting for 'k')")
        << action;
    EXPECT_EQ(other.ended(), status) << action;
  }
}

TEST(GrpcStore, AForkedChildIsToldAndEnds) {
  const ServedStore served = serve_store(0, 2, "127.0.0.1");
  Member other("fork", served.port, 1, 2);
  EXPECT_EQ(other.line(), "joined");
  EXPECT_THAT(other.line(), HasSubstr("store: used in a forked child; got process "));
  EXPECT_EQ(other.ended(), 0);
  EXPECT_TRUE(served.store->lost().empty());
}

TEST(GrpcStore, AServerThatEndsIsMissed) {
  for (const auto& [action, status] :
       {std::pair{"nothing", 0}, {"static", 0}, {"exit", 0}, {"throw", -SIGABRT}}) {
    Member server(action, 0, 0, 2);
    server.port();
    EXPECT_EQ(server.line(), "joined");
    EXPECT_EQ(server.ended(), status) << action;
  }
}

TEST(GrpcStore, WhoeverAsksAServerThatHasEndedIsToldHow) {
  Member server("exit_later", 0, 0, 3);
  const int port = server.port();
  EXPECT_EQ(server.line(), "joined");
  const auto store = connect_store("127.0.0.1", port, 1, 3, Seconds(20));
  store->set("go", "!");
  EXPECT_THAT(error_of([&] { store->wait("k", Seconds(60)); }),
              AllOf(HasSubstr("rank 0"), HasSubstr("is lost: "),
                    HasSubstr("ended without destroy_process_group"), Not(HasSubstr("Cancelling"))));
  EXPECT_EQ(server.ended(), 0);
  EXPECT_THAT(
      error_of([&] { store->set("k", "v"); }),
      MatchesRegex("comm: store: rank 0, which serves it at 127.0.0.1:[0-9]+, is lost: its process ended "
                   "without destroy_process_group .its own output says why."));
}

TEST(GrpcStore, AServerThatLeavesWaitsForTheOthers) {
  Member server("go", 0, 0, 3);
  const int port = server.port();
  auto store = connect_store("127.0.0.1", port, 1, 3, Seconds(20));
  store->set("go", "!");
  std::this_thread::sleep_for(100ms);
  store->set("k", "still served");
  EXPECT_LT(seconds_of([&] {
              store->leave();
              EXPECT_EQ(server.ended(), 0);
            }),
            2);
  EXPECT_THAT(error_of([&] { store->get("k"); }), HasSubstr("has left"));
  EXPECT_TRUE(store->lost().empty());
}

// Whatever connects: the service goes on.
TEST(GrpcStore, StrangersDoNotDisturb) {
  const ServedStore served = serve_store(0, 2, "127.0.0.1");
  const auto store = connect_store("127.0.0.1", served.port, 1, 2, Seconds(20));
  for (const std::string& text : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100'000, '\xff'),
                                  std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x00", 28)}) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(served.port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    store->set("k", text);
    close(fd);
    EXPECT_EQ(served.store->wait("k", Seconds(20)), text);
  }
  EXPECT_TRUE(store->lost().empty());
}

TEST(GrpcStore, NoProxyIsAsked) {
  setenv("http_proxy", "http://127.0.0.1:1", 1);
  const ServedStore served = serve_store(0, 2, "127.0.0.1");
  EXPECT_EQ(error_of([&] { connect_store("localhost", served.port, 1, 2, Seconds(20)); }), "");
  unsetenv("http_proxy");
}

TEST(GrpcStore, RefusesWhoDoesNotBelong) {
  const ServedStore served = serve_store(0, 3, "127.0.0.1");
  const auto one = connect_store("127.0.0.1", served.port, 1, 3, Seconds(20));
  const std::string where =
      fmt::format("comm: connect_store: the store at 127.0.0.1:{} refuses: ", served.port);
  const auto refusal = [&](int rank, int size) {
    return error_of([&] { connect_store("127.0.0.1", served.port, rank, size, Seconds(20)); });
  };
  EXPECT_EQ(refusal(1, 3),
            where + "rank 1 of 3 is there already (two processes were started as the same rank)");
  EXPECT_EQ(refusal(0, 3),
            where + "rank 0 of 3 is there already (two processes were started as the same rank)");
  EXPECT_EQ(refusal(2, 4), where + "rank 2 belongs to a world of 4 ranks, this store to one of 3");
  EXPECT_TRUE(served.store->lost().empty()) << "nobody is lost who was never let in";
  Member(std::string("wait"), served.port, 2, 3).line();
  EXPECT_THAT(error_of([&] { one->wait("k", Seconds(20)); }), HasSubstr("rank 2 is lost"));
  EXPECT_EQ(refusal(2, 3), where + "rank 2 is lost and cannot join again (start all ranks anew)");
}

TEST(GrpcStore, ChecksWhatItIsGiven) {
  EXPECT_EQ(error_of([] { serve_store(65536, 2); }),
            "invalid: serve_store: no such port; got 65536, expected 0 to 65535");
  EXPECT_EQ(error_of([] { serve_store(0, 0); }),
            "invalid: serve_store: no such rank; got rank 0 of 0, expected 0 <= rank < size");
  EXPECT_EQ(error_of([] { connect_store("h", 0, 1, 2, Seconds(1)); }),
            "invalid: connect_store: no such port; got 0, expected 1 to 65535");
  EXPECT_EQ(error_of([] { connect_store("h", 1, 2, 2, Seconds(1)); }),
            "invalid: connect_store: no such rank; got rank 2 of 2, expected 0 <= rank < size");
  EXPECT_EQ(error_of([] { connect_store("", 1, 1, 2, Seconds(1)); }),
            "invalid: connect_store: no address; got '', expected a name or a number");
}

TEST(GrpcStore, NamesAPortInUse) {
  const ServedStore served = serve_store(0, 2, "127.0.0.1");
  EXPECT_THAT(error_of([&] { serve_store(served.port, 2, "127.0.0.1"); }),
              HasSubstr(fmt::format(
                  "comm: serve_store: cannot listen on port {} of 127.0.0.1: Address already in use "
                  "(choose another, by MASTER_PORT; or does another rank 0 run?)",
                  served.port)));
  EXPECT_THAT(
      error_of([&] { serve_store(served.port, 2); }),
      HasSubstr(fmt::format("cannot listen on port {} of this host: Address already in use ", served.port)));
}

TEST(GrpcStore, AnAddressWithoutAStoreIsNamed) {
  std::string error;
  const double took =
      seconds_of([&] { error = error_of([] { connect_store("127.0.0.1", 1, 1, 2, Seconds(0.5)); }); });
  EXPECT_THAT(error,
              HasSubstr("comm: connect_store: rank 1 of 2 cannot reach the store of rank 0 at 127.0.0.1:1 "
                        "within 0.5 s: "));
  EXPECT_THAT(error, HasSubstr("Connection refused"));
  EXPECT_GE(took, 0.5);
  EXPECT_LT(took, 3);
  EXPECT_THAT(error_of([] { connect_store("no-such-host.invalid", 1, 1, 2, Seconds(0.3)); }),
              HasSubstr("cannot reach the store of rank 0 at no-such-host.invalid:1 within 0.3 s: "));
}

TEST(GrpcStore, WaitsForAServerThatComesLate) {
  int port = 0;
  { port = serve_store(0, 2, "127.0.0.1").port; }
  std::string value;
  std::thread early([&] {
    const auto store = connect_store("127.0.0.1", port, 1, 2, Seconds(30));
    value = store->wait("k", Seconds(30)).value_or("nothing");
    store->leave();
  });
  std::this_thread::sleep_for(300ms);
  const ServedStore served = serve_store(port, 2, "127.0.0.1");
  served.store->set("k", "v");
  early.join();
  EXPECT_EQ(value, "v");
}

// A set and a get by another process take a millisecond together; ten here, since the machine is shared.
TEST(GrpcStore, AnswersSoon) {
  const ServedStore served = serve_store(0, 2, "127.0.0.1");
  const auto store = connect_store("127.0.0.1", served.port, 1, 2, Seconds(20));
  std::vector<double> took;
  for (int i = 0; i < 300; ++i)
    took.push_back(seconds_of([&] {
      store->set("k", "v");
      store->get("k");
    }));
  std::nth_element(took.begin(), took.begin() + 150, took.end());
  RecordProperty("set_and_get_us", static_cast<int>(took[150] * 1e6));
  EXPECT_LT(took[150], 0.01);
}

}  // namespace KILN_FILE
}  // namespace kiln
