// SPDX-License-Identifier: Apache-2.0
#include "runtime/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "ir/base/error.h"

namespace kiln {
namespace KILN_FILE {

std::string names() { return "%7 (3.0 MiB)"; }

TEST(Arena, ReusesBlocksOfASizeClass) {
  ArenaPool pool;
  std::byte* first = nullptr;
  {
    const ArenaLease a = pool.lease(100'000, false, names);
    first = a.data();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 4096, 0u);
    EXPECT_EQ(pool.stats().in_use, 100'000u);
  }
  EXPECT_EQ(pool.stats().in_use, 0u);
  EXPECT_GE(pool.stats().cached, 100'064u);
  EXPECT_EQ(pool.lease(99'000, false, names).data(), first);
  const ArenaLease small = pool.lease(100, false, names);  // far too large a block for this
  EXPECT_NE(small.data(), first);
  const ArenaLease again = pool.lease(100'001, false, names);
  EXPECT_EQ(again.data(), first);
  EXPECT_EQ(pool.stats().peak, 100'101u);
}

TEST(Arena, TwoLeasesNeverShare) {
  ArenaPool pool;
  ArenaLease a = pool.lease(5000, false, names), b = pool.lease(5000, false, names);
  EXPECT_NE(a.data(), b.data());
  std::memset(a.data(), 1, 5000);
  std::memset(b.data(), 2, 5000);
  EXPECT_EQ(a.data()[4999], std::byte{1});
  a.check_guard();
  b.check_guard();
  a = std::move(b);
  EXPECT_EQ(a.data()[0], std::byte{2});
  EXPECT_EQ(pool.stats().in_use, 5000u);
}

TEST(Arena, LargeBlocksAreAlignedForHugePages) {
  ArenaPool pool;
  const ArenaLease a = pool.lease(size_t{5} << 20, false, names);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % (size_t{2} << 20), 0u);
  a.data()[0] = a.data()[(size_t{5} << 20) - 1] = std::byte{1};
}

TEST(Arena, EmptyLeaseHasNoBlock) {
  ArenaPool pool;
  const ArenaLease a = pool.lease(0, true, names);
  EXPECT_EQ(a.data(), nullptr);
  a.check_guard();
  EXPECT_EQ(pool.stats().cached, 0u);
}

TEST(Arena, PoisonIsNaNInEveryFloatFormat) {
  ArenaPool pool;
  const ArenaLease a = pool.lease(64, true, names);
  float f;
  double d;
  Half h;
  BFloat16 b;
  std::memcpy(&f, a.data(), sizeof f);
  std::memcpy(&d, a.data() + 56, sizeof d);
  std::memcpy(&h, a.data(), sizeof h);
  std::memcpy(&b, a.data(), sizeof b);
  EXPECT_TRUE(std::isnan(f) && std::isnan(d));
  EXPECT_TRUE(std::isnan(static_cast<float>(h)) && std::isnan(static_cast<float>(b)));
  int64_t i[3] = {};
  bool flags[2] = {};
  poison(i, 16, DType::i64);
  poison(flags, 2, DType::boolean);
  poison(nullptr, 0, DType::f32);
  EXPECT_LT(i[1], -1'000'000);
  EXPECT_EQ(i[2], 0);
  EXPECT_TRUE(flags[0] && flags[1]);
}

TEST(Arena, GuardSeesTheFirstByteBehindTheEnd) {
  ArenaPool pool;
  const ArenaLease a = pool.lease(101, false, names);
  a.data()[100] = std::byte{1};
  a.check_guard();
  a.data()[101 + 63] = std::byte{0};
  try {
    a.check_guard();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::internal);
    EXPECT_THAT(e.what(), ::testing::HasSubstr("wrote 63 bytes behind the end of the arena of 101 bytes"));
  }
}

TEST(Arena, OutOfMemorySaysHowMuchAndWhat) {
  ArenaPool pool;
  pool.set_limit(size_t{8} << 20);
  const ArenaLease held = pool.lease(size_t{1} << 20, false, names);
  try {
    pool.lease(size_t{100} << 20, false, names);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::device);
    EXPECT_STREQ(
        e.what(),
        "arena: out of memory; asked for 100.0 MiB with 1.0 MiB in use; largest buffers: %7 (3.0 MiB) "
        "(hint: a smaller batch needs less)");
  }
  EXPECT_THROW(pool.lease(SIZE_MAX - 10, false, names), Error);
  EXPECT_THROW(pool.lease(size_t{1} << 50, false, nullptr), Error);
  EXPECT_EQ(pool.stats().in_use, size_t{1} << 20);
}

TEST(Arena, FreesUnusedBlocksBeforeGivingUp) {
  ArenaPool pool;
  pool.set_limit(size_t{8} << 20);
  pool.lease(size_t{3} << 20, false, names).release();
  pool.lease(size_t{1} << 18, false, names).release();
  EXPECT_NE(pool.lease(size_t{6} << 20, false, names).data(), nullptr);
}

TEST(Arena, CacheKeepsTheLastAndDropsTheLargest) {
  ArenaPool pool;
  pool.set_cache_bound(size_t{1} << 20);
  {
    const ArenaLease a = pool.lease(3'000'000, false, names), b = pool.lease(300'000, false, names);
    const ArenaLease c = pool.lease(40'000, false, names);
  }                                            // given back in the order c, b, a
  EXPECT_GE(pool.stats().cached, 3'000'000u);  // a came last: kept, though beyond the bound
  EXPECT_LT(pool.stats().cached, 3'600'000u);
  pool.lease(50'000, false, names).release();
  EXPECT_LT(pool.stats().cached, size_t{1} << 20);
  pool.trim();
  EXPECT_EQ(pool.stats().cached, 0u);
}

TEST(Arena, ManyThreadsLease) {
  ArenaPool pool;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (size_t i = 0; i < 200; ++i) {
        const size_t bytes = 64 + 1777 * ((i * 7 + static_cast<size_t>(t)) % 13);
        const ArenaLease lease = pool.lease(bytes, false, names);
        std::memset(lease.data(), t, bytes);
        lease.check_guard();
        EXPECT_EQ(lease.data()[bytes - 1], static_cast<std::byte>(t));
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(pool.stats().in_use, 0u);
}

}  // namespace KILN_FILE
}  // namespace kiln
