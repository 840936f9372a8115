// SPDX-License-Identifier: Apache-2.0
#include "ir/host_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <new>
#include <thread>
#include <vector>

namespace kiln {
namespace KILN_FILE {

constexpr size_t kMegabyte = size_t{1} << 20;

TEST(HostMemory, FreedBlocksServeCloseSizes) {
  release_host_blocks();
  void* first = host_block(kMegabyte).get();
  EXPECT_EQ(host_blocks_kept(), kMegabyte);
  const auto again = host_block(kMegabyte - 1000);
  EXPECT_EQ(again.get(), first);
  EXPECT_EQ(host_blocks_kept(), 0u);
  const auto other = host_block(kMegabyte);
  EXPECT_NE(other.get(), first);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(other.get()) % 64, 0u);
}

TEST(HostMemory, SmallBlocksAreNotKept) {
  release_host_blocks();
  for (size_t n : {size_t{0}, size_t{1}, size_t{5000}}) EXPECT_NE(host_block(n).get(), nullptr);
  EXPECT_EQ(host_blocks_kept(), 0u);
}

TEST(HostMemory, KeepsNoMoreThanItsBound) {
  release_host_blocks();
  std::vector<std::shared_ptr<void>> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(host_block(96 * kMegabyte));
  blocks.clear();
  EXPECT_EQ(host_blocks_kept(), 2 * 96 * kMegabyte);
  release_host_blocks();
  EXPECT_EQ(host_blocks_kept(), 0u);
}

TEST(HostMemory, CountsWhatIsHeld) {
  const size_t before = host_memory_stats().in_use;
  auto small = host_block(1000), large = host_block(kMegabyte);
  EXPECT_EQ(host_memory_stats().in_use, before + 1024 + kMegabyte);
  large.reset();
  EXPECT_EQ(host_memory_stats().in_use, before + 1024) << "a free block that is kept is held by nobody";
  EXPECT_GE(host_memory_stats().peak, before + 1024 + kMegabyte);
  reset_host_memory_peak();
  EXPECT_EQ(host_memory_stats().peak, before + 1024);
  small.reset();
  EXPECT_EQ(host_memory_stats().in_use, before);
  EXPECT_THROW(host_block(size_t{1} << 60), std::bad_alloc);
  EXPECT_EQ(host_memory_stats().in_use, before);
}

TEST(HostMemory, ImpossibleSizesThrow) { EXPECT_THROW(host_block(size_t{1} << 60), std::bad_alloc); }

TEST(HostMemory, ThreadsTakeAndGive) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 500; ++i) {
        const auto a = host_block(40000 + static_cast<size_t>(t)), b = host_block(40000);
        static_cast<char*>(a.get())[0] = static_cast<char>(t);
        static_cast<char*>(b.get())[39999] = 1;
        ASSERT_NE(a.get(), b.get());
        ASSERT_EQ(static_cast<char*>(a.get())[0], static_cast<char>(t));
      }
    });
  for (auto& t : threads) t.join();
}

}  // namespace KILN_FILE
}  // namespace kiln
