// SPDX-License-Identifier: Apache-2.0
// Threads of a block: they meet at barriers and in their warps, in any order; where one stays away, the
// launch fails. Beside each fault stands the same kernel without it.
#include "runtime/cuda/sim_block.h"

#include <numeric>
#include <set>

#include "tests/runtime/cuda/sim_testing.h"

namespace kiln::cuda {
namespace KILN_FILE {

using testing::both;
using ::testing::HasSubstr;
using testing::in;
using testing::LaunchCase;
using testing::out;

class SimBlock : public testing::SimTest {
 protected:
  Address numbers(int count) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), 0.0f);
    const Address a = allocate(count * 4);
    ok(d.copy_to_device(a, values.data(), values.size() * 4, nullptr));
    return a;
  }
};

TEST_F(SimBlock, EveryThreadOfEveryBlockRuns) {
  const Function f = kernel(R"(
    const i64 i = block() * threads() + thread();
    store<1>((f32*)buffers[1] + i, load<1>((const f32*)buffers[0] + i) + f32(blocks()) + f32(dims[0]));)",
                            64, 2, 1);
  const Address x = numbers(192), y = allocate(768);
  ok(run(f, {.blocks = 3, .buffers = {in(x, 768, "x"), out(y, 768, "y")}, .dims = {5}}));
  const std::vector<float> got = read(y, 192);
  for (int i = 0; i < 192; ++i) EXPECT_EQ(got[i], static_cast<float>(i) + 8);
  EXPECT_EQ(sim::launches(), 1u);
}

TEST_F(SimBlock, ABarrierOrdersSharedMemory) {
  const Function f = kernel(R"(
    store<1>(shared<f32>(4 * thread()), load<1>((const f32*)buffers[0] + thread()));
    barrier();
    const f32 x = load<1>(shared<f32>(4 * (threads() - 1 - thread())));
    barrier();
    store<1>(shared<f32>(4 * thread()), x + 1);
    store<1>((f32*)buffers[1] + thread(), load<1>(shared<f32>(4 * thread())));)",
                            128);
  const Address x = numbers(128), y = allocate(512);
  ok(run(f, {.blocks = 1, .buffers = {in(x, 512, "x"), out(y, 512, "y")}, .shared_bytes = 512}));
  const std::vector<float> got = read(y, 128);
  for (int i = 0; i < 128; ++i) EXPECT_EQ(got[i], 128.0f - static_cast<float>(i));
}

// Two threads of two warps touch one word, `first` and `second`, with `between` in between.
std::string two(const char* first, const char* between, const char* second) {
  return std::string(
             "const Shared<f32> s = shared<f32>(8); if (thread() == 0) store<1>(s, 1.0f); barrier();") +
         "if (thread() == 5) {" + first + "}" + between + "if (thread() == 40) {" + second + "}";
}
constexpr const char* kRead = "if (load<1>(s) > 5.0f) store<1>(s, 0.0f);";
constexpr const char* kWrite = "store<1>(s, 2.0f);";

TEST_F(SimBlock, AMissingBarrierIsAFault) {
  // Whichever seed lets thread 5 come first.
  const auto text = [&](const char* first, const char* second) {
    for (uint64_t seed = 1; seed < 50; ++seed) {
      begin({.seed = seed});
      const std::string t = fault_of(kernel(two(first, "", second), 64, 0), {.shared_bytes = 16});
      if (t.find("block 0, thread 40 ") != std::string::npos) return t;
    }
    return std::string();
  };
  EXPECT_EQ(
      text(kWrite, kWrite),
      "missing barrier: kernel 'k', block 0, thread 40 writes 4 bytes at offset 8 of shared memory, which "
      "thread 5 has written with no barrier in between");
  EXPECT_EQ(
      text(kRead, kWrite),
      "missing barrier: kernel 'k', block 0, thread 40 writes 4 bytes at offset 8 of shared memory, which "
      "thread 5 has read with no barrier in between");
  EXPECT_EQ(
      text(kWrite, kRead),
      "missing barrier: kernel 'k', block 0, thread 40 reads 4 bytes at offset 8 of shared memory, which "
      "thread 5 has written with no barrier in between");
}

TEST_F(SimBlock, WithTheBarrierThereIsNone) {
  for (const auto& [first, second] : {std::pair(kWrite, kWrite), std::pair(kRead, kWrite),
                                      std::pair(kWrite, kRead), std::pair(kRead, kRead)})
    EXPECT_EQ(fault_of(kernel(two(first, "barrier();", second), 64, 0), {.shared_bytes = 16}), "");
  EXPECT_EQ(fault_of(kernel(two(kRead, "", kRead), 64, 0), {.shared_bytes = 16}), "");
}

TEST_F(SimBlock, GlobalMemoryNeedsTheBarrierToo) {
  const std::string body = R"(
    f32* const x = (f32*)buffers[0];
    store<1>(x + thread(), 1.0f); %
    store<1>((f32*)buffers[1] + thread(), load<1>(x + (thread() + 1) % threads()));)";
  const auto text = [&](const char* between) {
    std::string b = body;
    b.replace(b.find(" %\n"), 2, between);
    const Address x = filled(64, 0), y = allocate(256);
    return fault_of(kernel(b, 64), {.buffers = {both(x, 256, "x"), out(y, 256, "y")}});
  };
  EXPECT_EQ(text("barrier();"), "");
  EXPECT_THAT(text(""),
              ::testing::MatchesRegex(
                  "missing barrier: kernel 'k', block 0, thread [0-9]+ (reads|writes) 4 bytes at offset "
                  "[0-9]+ of 'x' \\(256 bytes\\), which thread [0-9]+ has (read|written) with no barrier "
                  "in between"));
}

TEST_F(SimBlock, AWarpBarrierOrdersOneWarp) {
  const std::string body = R"(
    store<1>(shared<f32>(4 * thread()), 1.0f);
    warp_barrier();
    const f32 x = load<1>(shared<f32>(4 * (thread() ^ %)));
    store<1>((f32*)buffers[0] + thread(), x);)";
  const auto text = [&](const char* other) {
    std::string b = body;
    b.replace(b.find('%'), 1, other);
    const Address y = allocate(256);
    return fault_of(kernel(b, 64, 1), {.buffers = {out(y, 256, "y")}, .shared_bytes = 256});
  };
  EXPECT_EQ(text("1"), "");
  EXPECT_EQ(text("31"), "");
  EXPECT_THAT(text("32"), ::testing::MatchesRegex("(missing barrier: .* with no barrier in between|"
                                                  "uninitialised read: .*)"));
}

TEST_F(SimBlock, AShuffleDoesNotOrderMemory) {
  const Address y = allocate(128);
  const std::string text = fault_of(kernel(R"(
    store<1>((f32*)buffers[0] + thread(), shuffle_xor(f32(thread()), 1));
    const i32 other = shuffle_xor(thread(), 1);
    const f32 x = load<1>((f32*)buffers[0] + other);
    warp_barrier();
    store<1>((f32*)buffers[0] + thread(), x);)",
                                           32, 1),
                                    {.buffers = {both(y, 128, "y")}});
  EXPECT_THAT(text, HasSubstr("missing barrier"));
}

TEST_F(SimBlock, LanesExchangeValues) {
  const Address y = allocate(256);
  ok(run(kernel(R"(
    f32 x = f32(thread());
    for (int i = 0; i < 100; ++i) x = shuffle_xor(x, 1 + i % 31) + 1;
    store<1>((f32*)buffers[0] + thread(), warp_reduce(x, [](f32 a, f32 b) { return a + b; }));)",
                64, 1),
         {.buffers = {out(y, 256, "y")}}));
  const std::vector<float> got = read(y, 64);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(got[i], i < 32 ? 496.0f + 3200 : 1520.0f + 3200) << i;
}

TEST_F(SimBlock, AThreadThatEndsEarlyIsMissed) {
  const auto text = [&](const char* condition) {
    return fault_of(kernel(std::string("if (") + condition + ") return; barrier();", 64, 0), {});
  };
  EXPECT_EQ(text("thread() > 63"), "");
  EXPECT_EQ(text("thread() == 7"),
            "barrier divergence: kernel 'k', block 0: thread 0 waits at a barrier, thread 7 has ended");
}

TEST_F(SimBlock, AThreadThatWaitsElsewhereIsMissed) {
  EXPECT_EQ(
      fault_of(
          kernel("if (thread() < 32) barrier(); else if (thread() != 33) warp_barrier(); else barrier();", 64,
                 0),
          {}),
      "barrier divergence: kernel 'k', block 0: thread 0 waits at a barrier, thread 63 waits for its warp in "
      "warp_barrier");
  begin({});
  EXPECT_EQ(
      fault_of(kernel("if (thread() != 3) warp_barrier();", 32, 0), {}),
      "barrier divergence: kernel 'k', block 0: thread 0 waits for its warp in warp_barrier, thread 3 has "
      "ended");
}

TEST_F(SimBlock, LanesOfOneWarpMustMeetInOneWord) {
  const std::string text = fault_of(
      kernel("if (thread() % 2) warp_barrier(); else store<1>((f32*)buffers[0], shuffle(1.0f, 0));", 32, 1),
      {.buffers = {out(allocate(4), 4, "y")}});
  EXPECT_THAT(text,
              ::testing::MatchesRegex(
                  "lanes diverge: kernel 'k', block 0, thread [0-9]+ is in (shuffle while other lanes of its "
                  "warp are in warp_barrier|warp_barrier while other lanes of its warp are in shuffle)"));
}

TEST_F(SimBlock, LanesBringEquallyMuch) {
  EXPECT_THAT(
      fault_of(kernel("const f64 x = 1; kn_sim->exchange(\"w\", &x, thread() == 3 ? 8 : 4);", 32, 0), {}),
      ::testing::MatchesRegex("lanes diverge: kernel 'k', block 0, thread [0-9]+ is in w with [48] bytes, "
                              "other lanes of its warp with [48]"));
  begin({});
  EXPECT_EQ(fault_of(kernel("char x[40] = {}; kn_sim->exchange(\"w\", x, 40);", 1, 0), {}),
            "exchange: kernel 'k', block 0, thread 0 brings 40 bytes, over 32");
}

TEST_F(SimBlock, WarpsMayMeetInDifferentWords) {
  const Address y = allocate(256);
  EXPECT_EQ(fault_of(kernel("if (warp() == 0) warp_barrier();"
                            "store<1>((f32*)buffers[0] + thread(), warp() == 1 ? shuffle(1.0f, 0) : 2.0f);",
                            64, 1),
                     {.buffers = {out(y, 256, "y")}}),
            "");
}

TEST_F(SimBlock, ThreadsRunInAnyOrder) {
  std::set<std::string> texts;
  for (uint64_t seed = 1; seed < 20; ++seed) {
    begin({.seed = seed});
    texts.insert(fault_of(kernel(two(kWrite, "", kWrite), 64, 0), {.shared_bytes = 16}).substr(0, 50));
  }
  EXPECT_EQ(texts.size(), 2u);
}

TEST_F(SimBlock, OneSeedIsOneOrder) {
  std::set<std::string> texts;
  for (int i = 0; i < 3; ++i) {
    begin({});
    const Address x = filled(1024, 0);
    texts.insert(fault_of(kernel("store<1>((f32*)buffers[0] + thread() / 2, 1.0f);", 1024, 1),
                          {.blocks = 3, .buffers = {both(x, 4096, "x")}}));
  }
  EXPECT_EQ(texts.size(), 1u);
}

TEST_F(SimBlock, AKernelSaysItsOwnFault) {
  EXPECT_EQ(fault_of(kernel("if (thread() == 2) kn_sim->fault(\"no such thing\");", 32, 0), {.blocks = 1}),
            "kernel 'k', block 0, thread 2: no such thing");
}

TEST_F(SimBlock, ManyThreadsManyBarriers) {
  const Address y = allocate(4096);
  ok(run(kernel(R"(
    f32 x = 0;
    for (int i = 0; i < 8; ++i) {
      x = block_reduce<1024>(1.0f, [](f32 a, f32 b) { return a + b; }, shared<f32>(0));
    }
    store<1>((f32*)buffers[0] + thread(), x);)",
                1024, 1),
         {.buffers = {out(y, 4096, "y")}, .shared_bytes = 128}));
  for (const float v : read(y, 1024)) EXPECT_EQ(v, 1024.0f);
}

}  // namespace KILN_FILE
}  // namespace kiln::cuda
