// SPDX-License-Identifier: Apache-2.0
// Fibers keep their places, their registers and their stacks.
#include "runtime/cuda/sim_fiber.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace kiln::cuda::sim {
namespace KILN_FILE {

// Of the fiber that a test runs: its entry has no argument.
struct Scene {
  Fiber* main = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers;
  size_t now = 0;
  std::vector<int> order;
};
Scene* scene = nullptr;

void hop(Fiber& from, Fiber& to) { to.switch_from(from); }

Fiber* twice() {
  const size_t me = scene->now;
  Fiber& self = *scene->fibers[me];
  double keeps = 1.5 + static_cast<double>(me);
  scene->order.push_back(static_cast<int>(me));
  hop(self, *scene->main);
  keeps *= 2;
  scene->order.push_back(static_cast<int>(keeps * 10));
  return scene->main;
}

TEST(SimFiber, GoesOnWhereItStopped) {
  Scene r;
  Fiber main;
  r.main = &main;
  scene = &r;
  for (int i = 0; i < 3; ++i) {
    r.fibers.push_back(std::make_unique<Fiber>(64 << 10));
    r.fibers.back()->prepare(&twice);
  }
  for (const size_t i : {2, 0, 1, 0, 2, 1}) {
    r.now = i;
    r.fibers[i]->switch_from(main);
  }
  EXPECT_EQ(r.order, (std::vector<int>{2, 0, 1, 30, 70, 50}));
}

TEST(SimFiber, MayBeginAnew) {
  Scene r;
  Fiber main;
  r.main = &main;
  scene = &r;
  r.fibers.push_back(std::make_unique<Fiber>(64 << 10));
  for (int i = 0; i < 3; ++i) {
    r.fibers[0]->prepare(&twice);
    r.fibers[0]->switch_from(main);
  }
  EXPECT_EQ(r.order, (std::vector<int>{0, 0, 0}));
}

void stop_below(int n) {
  volatile int room = n;
  if (n == 0) hop(*scene->fibers[0], *scene->main);
  else stop_below(room - 1);
  room = 0;
}

Fiber* stop_in_the_midst() {
  stop_below(100);
  return scene->main;
}

// The thread sanitizer has a stack of its own for every fiber: 65536 calls that have not returned.
TEST(SimFiber, MayBeginAnewAsOftenAsItLikes) {
  constexpr int kEnded = 50'000, kStopped = 1'000;
  Scene r;
  Fiber main;
  r.main = &main;
  scene = &r;
  r.fibers.push_back(std::make_unique<Fiber>(64 << 10));
  for (int i = 0; i < kEnded; ++i) {
    r.fibers[0]->prepare(&twice);
    r.fibers[0]->switch_from(main);
    r.fibers[0]->switch_from(main);
  }
  EXPECT_EQ(r.order.size(), size_t{2} * kEnded);
  for (int i = 0; i < kStopped; ++i) {
    r.fibers[0]->prepare(&stop_in_the_midst);
    r.fibers[0]->switch_from(main);
  }
  r.fibers[0]->switch_from(main);  // to the end
}

int depth(int n) {
  volatile char room[512];
  room[0] = 1;
  return n == 0 ? 0 : depth(n - 1) + room[0];  // read behind the call, so that the frame must stay
}

Fiber* deep() {
  scene->order.push_back(depth(100));
  return scene->main;
}

TEST(SimFiber, HasAStackOfItsOwn) {
  Scene r;
  Fiber main;
  r.main = &main;
  scene = &r;
  r.fibers.push_back(std::make_unique<Fiber>(256 << 10));
  r.fibers[0]->prepare(&deep);
  r.fibers[0]->switch_from(main);
  EXPECT_EQ(r.order, (std::vector<int>{100}));
}

Fiber* endless() {
  depth(1 << 20);
  return scene->main;
}

TEST(SimFiber, AStackThatIsTooSmallEndsTheProcess) {
  Scene r;
  Fiber main;
  r.main = &main;
  scene = &r;
  r.fibers.push_back(std::make_unique<Fiber>(64 << 10));
  r.fibers[0]->prepare(&endless);
  EXPECT_DEATH(r.fibers[0]->switch_from(main), "");
}

}  // namespace KILN_FILE
}  // namespace kiln::cuda::sim
