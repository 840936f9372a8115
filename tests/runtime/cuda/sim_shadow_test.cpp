// SPDX-License-Identifier: Apache-2.0
// The shadow of memory says the same as a list of every touch: random programs of a few threads, in which
// every rule of order matters.
#include "runtime/cuda/sim_shadow.h"

#include <gtest/gtest.h>

#include <array>

#include "runtime/cuda/sim_random.h"

namespace kiln::cuda::sim {
namespace KILN_FILE {

constexpr int kBytes = 32, kThreads = 96, kWarps = kThreads / 32;

struct Seen {
  uint32_t block, thread, tick;
  bool write;
};

// Remembers everything.
class Oracle {
 public:
  bool touch(unsigned offset, unsigned bytes, bool write, uint32_t block, const Now& now) {
    for (unsigned i = offset; i < offset + bytes; ++i)
      for (const Seen& s : seen_[i])
        if ((s.write || write) && !ordered(s, block, now)) return true;
    for (unsigned i = offset; i < offset + bytes; ++i)
      seen_[i].push_back({block, now.thread, now.tick, write});
    return false;
  }
  void begin_launch() { seen_ = {}; }

 private:
  static bool ordered(const Seen& s, uint32_t block, const Now& now) {
    if (s.block != block) return false;
    if (s.thread == now.thread || s.tick < now.phase) return true;
    return s.thread / 32 == now.thread / 32 && s.tick < now.warp;
  }
  std::array<std::vector<Seen>, kBytes> seen_;
};

struct Program {
  explicit Program(uint64_t seed) : random(seed) {}

  void begin_launch() {
    splits.clear();
    oracle.begin_launch();
    now.floor = ++now.tick;
    begin_block();
  }
  void begin_block() {
    ++block;
    now.block = now.phase = ++now.tick;
    if (shared) {  // what another block left says nothing
      now.floor = now.block;
      oracle.begin_launch();
    }
    met.fill(now.tick);
  }
  void meet() {
    const uint32_t what = random.below(crowded ? 200 : 20) / (crowded ? 5 : 1);
    if (what == 0) begin_block();
    if (what > 0 && what < 5) now.phase = ++now.tick;
    if (what >= 5 && what < 30) met[random.below(kWarps)] = ++now.tick;
  }
  // True if both agree; `found` if what they agree on is a collision.
  bool step(bool& found) {
    now.thread =
        crowded || shared ? random.below(2) + 32 * random.below(2) : random.below(4) + 31 * random.below(3);
    now.warp = met[now.thread / 32];
    unsigned bytes = crowded ? 4 : 1u << random.below(5);
    if (shared && !crowded) bytes = random.below(2) == 0 ? 1 : Cell::kBytes;
    const unsigned offset = shared && bytes == 1 ? random.below(2) : random.below(kBytes / bytes) * bytes;
    const bool write = random.below(few_writes) == 0;
    const bool expected = oracle.touch(offset, bytes, write, block, now);
    const Conflict c = shared ? touch_shared(cells.data(), rows.data(), offset, bytes, write, now, splits)
                              : touch_bytes(cells.data(), offset, bytes, write, now, splits);
    found = c.other != 0;
    return found == expected;
  }

  Random random;
  Oracle oracle;
  Now now;
  std::array<uint32_t, kWarps> met{};
  std::array<Cell, kBytes / Cell::kBytes> cells{};
  std::array<Row, kBytes / Cell::kBytes> rows{};
  Splits splits;
  uint32_t block = 0, few_writes = 2;
  bool shared = false;   ///< with touch_shared, and most reads of whole rows
  bool crowded = false;  ///< two threads each of two warps, whole words, few barriers
};

void compare(bool shared) {
  int collisions = 0;
  int64_t steps = 0;
  for (uint64_t seed = 1; seed <= 12000; ++seed) {
    Program p(seed);
    p.few_writes = shared ? 2 + seed / 2 % 4 * 3 : 2 + seed % 4 * 25;
    p.crowded = seed % 2 == 0;
    p.shared = shared;
    for (int launch = 0; launch < 4; ++launch) {
      p.begin_launch();
      for (bool found = false; !found;) {
        ASSERT_TRUE(p.step(found)) << "seed " << seed << ", launch " << launch;
        collisions += found;
        ++steps;
        p.meet();
        if (steps % 100 == 0) break;
      }
    }
  }
  EXPECT_GT(collisions, 20000);
  EXPECT_GT(steps, 50000);
}

TEST(SimShadow, SaysWhatAListOfAllTouchesSays) { compare(false); }

TEST(SimShadow, SaysItOfSharedMemory) { compare(true); }

// Bytes told apart before a barrier, one of them written after it: that row is not known to be untouched.
TEST(SimShadow, ARowWithAByteWrittenIsNotClean) {
  std::array<Cell, 1> cells{};
  std::array<Row, 1> rows{};
  Splits splits;
  Now now;
  const auto touch = [&](uint32_t thread, unsigned bytes, bool write) {
    now.thread = thread;
    return touch_shared(cells.data(), rows.data(), 0, bytes, write, now, splits).other != 0;
  };
  EXPECT_FALSE(touch(0, 1, false));
  now.phase = now.warp = ++now.tick;
  EXPECT_FALSE(touch(0, 1, true));
  EXPECT_FALSE(touch(0, 16, false));
  EXPECT_TRUE(touch(32, 16, false));
}

}  // namespace KILN_FILE
}  // namespace kiln::cuda::sim
