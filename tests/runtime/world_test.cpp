// SPDX-License-Identifier: Apache-2.0
// Worlds whose ranks are threads of this process, over the served store and Gloo as between processes:
// joining, leaving, joining again, and what is said when ranks are missing or meet the wrong world.
#include "runtime/world.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "runtime/rendezvous_file.h"
#include "runtime/reserved_port.h"

namespace kiln {
namespace KILN_FILE {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

Rendezvous place(int rank, int size, int port) {
  Rendezvous r;
  r.rank = r.local_rank = rank;
  r.world_size = r.local_world_size = size;
  r.address = "127.0.0.1";
  r.port = port;
  r.world = port == 0 ? fmt::format("world_test {}", getpid()) : "";
  return r;
}

/// The sum of (rank + 1) over the world, in which each then leaves.
std::string join_and_sum(const Rendezvous& at, double timeout) {
  World world(at, {.timeout = Seconds(timeout)});
  float v = static_cast<float>(at.rank + 1);
  world.group()->all_reduce(&v, 1, DType::f32, ReduceOp::sum, {})->wait();
  world.leave();
  return fmt::format("{}", v);
}

/// What each of these ranks, on threads, came to.
std::vector<std::string> on_threads(
    const std::vector<Rendezvous>& places, double timeout = 30,
    const std::function<std::string(const Rendezvous&, double)>& body = join_and_sum) {
  std::vector<std::string> out(places.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < places.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        out[i] = body(places[i], timeout);
      } catch (const Error& e) {
        out[i] = fmt::format("{}: {}", to_string(e.kind()), e.what());
      }
    });
  for (std::thread& t : threads) t.join();
  return out;
}

TEST(World, OfOneNeedsNothing) {
  World world(Rendezvous{}, {});
  EXPECT_EQ(world.group()->size(), 1);
  EXPECT_EQ(world.group()->timeout(), Seconds(300));
  world.leave();
  EXPECT_EQ(world.group(), nullptr);
}

TEST(World, MeetsOnAPort) {
  const ReservedPort port;
  EXPECT_THAT(
      on_threads({place(2, 3, port.number()), place(0, 3, port.number()), place(1, 3, port.number())}),
      Each("6"));
}

TEST(World, MeetsByAFileThatIsGoneAfterwards) {
  EXPECT_THAT(on_threads({place(1, 2, 0), place(0, 2, 0)}), Each("3"));
  EXPECT_FALSE(std::filesystem::exists(rendezvous_path(place(0, 2, 0).world)));
}

TEST(World, IsLeftAndMetAgainAtOnce) {
  const ReservedPort port;
  const auto again = [](const Rendezvous& at, double timeout) {
    std::string out;
    for (int i = 0; i < 5; ++i) out += join_and_sum(at, timeout);
    return out;
  };
  EXPECT_THAT(on_threads({place(0, 2, port.number()), place(1, 2, port.number())}, 30, again), Each("33333"));
  EXPECT_THAT(on_threads({place(0, 2, 0), place(1, 2, 0)}, 30, again), Each("33333"));
}

TEST(World, AGroupThatIsKeptDoesNotKeepTheStore) {
  const ReservedPort port;
  const auto keep = [](const Rendezvous& at, double timeout) {
    World world(at, {.timeout = Seconds(timeout)});
    const auto group = world.group();
    world.leave();
    try {
      group->store()->set("k", "v");
      return std::string("no error");
    } catch (const Error& e) {
      return std::string(e.what());
    }
  };
  EXPECT_THAT(on_threads({place(0, 2, port.number()), place(1, 2, port.number())}, 30, keep),
              Each("store: this rank has left its world"));
  EXPECT_THAT(on_threads({place(0, 2, port.number()), place(1, 2, port.number())}), Each("3"));
}

TEST(World, AllNameTheRanksThatAreMissing) {
  const ReservedPort port;
  const auto out = on_threads({place(0, 5, port.number()), place(3, 5, port.number())}, 0.5);
  EXPECT_EQ(out[0], "comm: rendezvous: rank 0 of 5 waited 0.5 s for ranks that have not come: 1, 2, 4");
  EXPECT_THAT(out[1], AllOf(HasSubstr("comm: "), HasSubstr("have not come: 1, 2, 4")));
}

TEST(World, ManyMissingRanksAreCounted) {
  const auto out = on_threads({place(0, 100, 0)}, 0.2);
  EXPECT_THAT(out[0], HasSubstr("have not come: 1, 2, 3, 4, 5, 6, 7, 8 and 91 more"));
  EXPECT_FALSE(std::filesystem::exists(rendezvous_path(place(0, 100, 0).world)));
}

TEST(World, RankZeroDoesNotCome) {
  const ReservedPort port;
  EXPECT_THAT(
      on_threads({place(1, 2, port.number())}, 0.5)[0],
      AllOf(HasSubstr("comm: "), HasSubstr("rank 1 of 2 cannot reach the store of rank 0 at 127.0.0.1")));
  EXPECT_THAT(on_threads({place(1, 2, 0)}, 0.2)[0],
              AllOf(HasSubstr("comm: rendezvous: rank 1 of 2 waited 0.2 s for rank 0, which has not come"),
                    HasSubstr(rendezvous_path(place(1, 2, 0).world))));
}

TEST(World, OfAnotherSize) {
  const ReservedPort port;
  const auto out = on_threads({place(0, 3, port.number()), place(1, 2, port.number())}, 1);
  EXPECT_THAT(out[0],
              HasSubstr("have not come: 1, 2; one was refused: rank 1 belongs to a world of 2 ranks"));
  EXPECT_THAT(out[1], HasSubstr("rank 1 belongs to a world of 2 ranks, this store to one of 3"));
}

TEST(World, TwoOfTheSameRank) {
  const ReservedPort port;
  const auto out =
      on_threads({place(0, 3, port.number()), place(1, 3, port.number()), place(1, 3, port.number())}, 1);
  EXPECT_THAT(out, ::testing::Contains(HasSubstr("rank 1 of 3 is there already")));
}

TEST(World, AnotherOneIsAtTheAddress) {
  const ReservedPort port;
  Rendezvous mine = place(1, 2, port.number()), theirs = place(0, 2, port.number());
  mine.world = "srun 1.0", theirs.world = "srun 2.0";
  EXPECT_THAT(on_threads({theirs, mine}, 1)[1], HasSubstr("rank 1 of 2 found another world at 127.0.0.1:"));
}

TEST(World, ThePortIsInUse) {
  const int other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(other, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(other, 1), 0);
  getsockname(other, reinterpret_cast<sockaddr*>(&address), &size);
  const int port = ntohs(address.sin_port);
  EXPECT_THAT(
      on_threads({place(0, 2, port)}, 1)[0],
      AllOf(HasSubstr("comm: "), HasSubstr(fmt::format("cannot listen on port {} of 127.0.0.1", port))));
  close(other);
}

TEST(World, ABadInterfaceIsSaid) {
  const ReservedPort port;
  const auto body = [](const Rendezvous& at, double timeout) {
    World world(at, {.timeout = Seconds(timeout), .interface = "nosuch0"});
    return std::string("no error");
  };
  EXPECT_THAT(on_threads({place(0, 2, port.number()), place(1, 2, port.number())}, 5, body),
              Each(HasSubstr("no network interface 'nosuch0'")));
}

// It is rank 0 or another that fails: the rest say why, and not that it is lost.
TEST(World, WhatOneRankFailsForIsSaidByAll) {
  for (const int bad : {0, 1, 2}) {
    const ReservedPort port;
    const auto body = [&](const Rendezvous& at, double timeout) {
      World world(at, {.timeout = Seconds(timeout), .interface = at.rank == bad ? "nosuch0" : ""});
      return std::string("no error");
    };
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(
        on_threads({place(0, 3, port.number()), place(1, 3, port.number()), place(2, 3, port.number())}, 20,
                   body),
        Each(HasSubstr("no network interface 'nosuch0'")));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  }
}

/// Who leaves has nothing more to do; who still has is told by whom it is left, though all keep the group.
TEST(World, ARankThatLeavesEarlyIsToldToTheOthers) {
  for (const int early : {0, 1}) {
    const ReservedPort port;
    const auto begin = std::chrono::steady_clock::now();
    const auto body = [&](const Rendezvous& at, double timeout) {
      World world(at, {.timeout = Seconds(timeout)});
      const auto group = world.group();
      if (at.rank != early) group->barrier({"", {"train.cpp", 5}})->wait();
      world.leave({"train.cpp", 7});
      return std::string("left");
    };
    const auto out = on_threads({place(0, 2, port.number()), place(1, 2, port.number())}, 60, body);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
    EXPECT_EQ(out[static_cast<size_t>(early)], "left");
    EXPECT_THAT(out[static_cast<size_t>(1 - early)],
                AllOf(HasSubstr("barrier #1 (train.cpp:5)"), HasSubstr("destroy_process_group (train.cpp:7)"),
                      HasSubstr("neither can go on")));
  }
}

/// However long the others take: nothing is wrong with that.
TEST(World, LeavingWaitsForTheLate) {
  const ReservedPort port;
  const auto body = [](const Rendezvous& at, double timeout) {
    World world(at, {.timeout = Seconds(timeout)});
    world.group()->barrier({})->wait();
    if (at.rank == 0) std::this_thread::sleep_for(Seconds(0.8));
    world.leave();
    return std::string("left");
  };
  EXPECT_THAT(on_threads({place(0, 2, port.number()), place(1, 2, port.number())}, 30, body), Each("left"));
}

TEST(World, LeavingDoesNotWaitForTheLost) {
  const ReservedPort port;
  const auto begin = std::chrono::steady_clock::now();
  const auto body = [](const Rendezvous& at, double timeout) {
    World world(at, {.timeout = Seconds(timeout)});
    if (at.rank != 1) world.leave();
    return std::string("out");
  };
  EXPECT_THAT(on_threads({place(0, 3, port.number()), place(1, 3, port.number()), place(2, 3, port.number())},
                         60, body),
              Each("out"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

// ---- GPUs ----

class WorldOfDevices : public ::testing::Test {
 protected:
  void SetUp() override { setenv("KILN_CUDA_DRIVER", "sim", 1); }
  void TearDown() override {
    unsetenv("KILN_CUDA_DRIVER");
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
};

TEST_F(WorldOfDevices, OneRankHasAGroupOfItsGpu) {
  World world(place(0, 1, 0), {});
  const std::shared_ptr<ProcessGroup> group = world.group(), gpu = group->device_group(1);
  EXPECT_EQ(gpu->device(), Device::cuda(1));
  EXPECT_EQ(gpu, world.device_group(1));
  EXPECT_EQ(gpu->size(), 1);
  gpu->barrier({})->wait();
  EXPECT_THROW(world.device_group(99), Error);
  EXPECT_EQ(world.device_group(0)->device(), Device::cuda(0));
  world.leave();
  EXPECT_EQ(group->device_group(1), nullptr);
  EXPECT_EQ(World(place(0, 1, 0), {.nccl = false}).group()->device_group(1), nullptr);
}

TEST_F(WorldOfDevices, SeveralRanksNeedNccl) {
  const auto texts =
      on_threads({place(0, 2, 0), place(1, 2, 0)}, 30, [](const Rendezvous& at, double timeout) {
        World world(at, {.timeout = Seconds(timeout)});
        std::string text;
        try {
          world.group()->device_group(at.rank);
        } catch (const Error& e) {
          text = fmt::format("{}: {}", to_string(e.kind()), e.what());
        }
        world.leave();
        return text;
      });
  EXPECT_EQ(texts[1],
            "unsupported: cuda:1: NCCL knows no simulated devices (init_process_group({.backend = \"gloo\"}) "
            "sends what is on them through the host)");
}

TEST_F(WorldOfDevices, EachRankHasTheGpuOfItsNumber) {
  EXPECT_EQ(device_of_rank(place(1, 2, 0)), 1);
  try {
    device_of_rank(place(2, 3, 0));
    ADD_FAILURE() << "the simulated machine has two";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::device);
    EXPECT_EQ(
        std::string(e.what()),
        "there is no GPU for this process: LOCAL_RANK is 2, but it sees 2 GPUs (start as many processes "
        "on a machine as it has GPUs; CUDA_VISIBLE_DEVICES chooses which are seen)");
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
