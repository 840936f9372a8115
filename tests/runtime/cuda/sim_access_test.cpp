// SPDX-License-Identifier: Apache-2.0
// What a kernel may not do to memory, each fault beside the same kernel without it.
#include <gmock/gmock.h>

#include "tests/runtime/cuda/sim_testing.h"

namespace kiln::cuda {
namespace KILN_FILE {

using testing::both;
using ::testing::HasSubstr;
using testing::in;
using testing::LaunchCase;
using testing::out;

class SimAccess : public testing::SimTest {
 protected:
  /// One thread runs `body` with x, of 100 floats that are 1, to be read, and y, of as many, to be written.
  std::string one(const std::string& body, Result code = kLaunchFailed) {
    begin({});
    const Address x = filled(100, 1), y = allocate(400);
    return fault_of(kernel("const f32* const x = (const f32*)buffers[0]; f32* const y = (f32*)buffers[1];"
                           "(void)x; (void)y;" +
                               body,
                           1),
                    {.buffers = {in(x, 400, "x"), out(y, 400, "fc1.weight")}, .shared_bytes = 64}, code);
  }
};

TEST_F(SimAccess, InsideIsFine) {
  EXPECT_EQ(one("store<1>(y + 99, load<1>(x + 99)); store<4>(y, load<4>(x + 96));"), "");
}

TEST_F(SimAccess, OutOfBoundsNamesTheBuffer) {
  EXPECT_EQ(one("store<1>(y, load<1>(x + 100));", kIllegalAddress),
            "out of bounds: kernel 'k', block 0, thread 0 reads 4 bytes at offset 400 of 'x' (400 bytes)");
  EXPECT_EQ(one("store<4>(y + 100, load<4>(x));", kIllegalAddress),
            "out of bounds: kernel 'k', block 0, thread 0 writes 16 bytes at offset 400 of 'fc1.weight' (400 "
            "bytes)");
  EXPECT_EQ(one("store<1>(y, load<1>(x - 1));", kIllegalAddress),
            "out of bounds: kernel 'k', block 0, thread 0 reads 4 bytes at offset -4 of 'x' (400 bytes)");
  EXPECT_EQ(one("store<1>(y, load<1>(x + 10000000));", kIllegalAddress),
            "out of bounds: kernel 'k', block 0, thread 0 reads 4 bytes at 0xd0000002625b00, which is near "
            "no buffer "
            "of the launch");
  EXPECT_EQ(
      one("store<1>(y, load<1>((const f32*)nullptr));", kIllegalAddress),
      "out of bounds: kernel 'k', block 0, thread 0 reads 4 bytes at 0x0, which is near no buffer of the "
      "launch");
}

TEST_F(SimAccess, NoAddressIsOutOfTheOrdinary) {
  for (const char* at :
       {"-1", "(i64(1) << 61) - 1", "-(i64(1) << 61)", "i64(1) << 46", "(i64(1) << 38) + 77"})
    EXPECT_THAT(
        one(fmt::format("store<1>(y, load<1>(x)); store<1>(y, load<1>((const f32*)nullptr + ({})));", at),
            kIllegalAddress),
        HasSubstr("out of bounds"))
        << at;
}

TEST_F(SimAccess, OnlyWhatIsDeclaredMayBeWritten) {
  EXPECT_EQ(
      one("store<1>((f32*)x + 2, 1.0f);", kIllegalAddress),
      "write to a read-only buffer: kernel 'k', block 0, thread 0 writes 4 bytes at offset 8 of 'x' (400 "
      "bytes), which the launch only reads");
}

TEST_F(SimAccess, PartsOfOneBufferHaveRulesOfTheirOwn) {
  const Address x = filled(8, 1);
  const Function f = kernel("store<4>((f32*)buffers[0] + 4, load<4>((const f32*)buffers[0]));", 1, 1);
  const auto declared = [&](std::vector<DeclaredAccess> parts) {
    LaunchCase c = {.buffers = std::move(parts)};
    return fault_of(f, c, kIllegalAddress);
  };
  EXPECT_EQ(declared({in(x, 16, "head"), out(x + 16, 16, "tail")}), "");
  // What crosses from one part to the next is allowed by both.
  EXPECT_EQ(declared({both(x, 4, "a"), both(x + 4, 20, "b"), both(x + 24, 8, "c")}), "");
  EXPECT_EQ(declared({both(x, 32, "all"), in(x + 16, 4, "again")}), "");
  EXPECT_EQ(declared({in(x, 16, "head"), out(x + 20, 12, "tail")}),
            "out of bounds: kernel 'k', block 0, thread 0 writes 16 bytes at offset 16 of 'head' (16 bytes)");
}

TEST_F(SimAccess, MisalignedAccess) {
  EXPECT_EQ(
      one("store<4>(y, load<4>(x + 1));", kMisalignedAddress),
      "misaligned access: kernel 'k', block 0, thread 0 reads 16 bytes at offset 4 of 'x' (400 bytes), an "
      "address that is no multiple of 16");
  EXPECT_EQ(
      one("store<2>(shared<f32>(4), Vec<f32, 2>{});", kMisalignedAddress),
      "misaligned access: kernel 'k', block 0, thread 0 writes 8 bytes at offset 4 of shared memory, an "
      "offset that is no multiple of 8");
}

TEST_F(SimAccess, WhatNobodyHasWrittenCannotBeRead) {
  EXPECT_EQ(one("store<1>(y + 3, 1.0f); store<1>(y + 4, load<1>(y + 3));"), "");
  EXPECT_EQ(
      one("store<1>(y + 3, 1.0f); store<1>(y, load<1>(y + 4));"),
      "uninitialised read: kernel 'k', block 0, thread 0 reads 4 bytes at offset 16 of 'fc1.weight' (400 "
      "bytes), which nothing has written");
  // One byte of four.
  EXPECT_THAT(one("store<1>((u8*)y, u8(1)); store<1>(y + 1, load<1>(y));"), HasSubstr("uninitialised read"));
  EXPECT_EQ(one("for (int i = 0; i < 4; ++i) store<1>((u8*)y + i, u8(1)); store<1>(y + 1, load<1>(y));"), "");
  EXPECT_EQ(
      one("store<1>(shared<f32>(0), 1.0f); store<1>(y, load<1>(shared<f32>(4)));"),
      "uninitialised read: kernel 'k', block 0, thread 0 reads 4 bytes at offset 4 of shared memory, which "
      "this block has not written");
}

TEST_F(SimAccess, GapsAreReadThough) {
  const Address x = allocate(32), y = allocate(16);
  const Function f = kernel("store<4>((f32*)buffers[1], load<4>((const f32*)buffers[0]));", 1, 2);
  const auto declared = [&](bool gaps) {
    DeclaredAccess part = in(x, 16, "x");
    part.gaps = gaps;
    return fault_of(f, {.buffers = {part, out(y, 16, "y")}});
  };
  EXPECT_EQ(declared(true), "");
  EXPECT_THAT(declared(false), HasSubstr("uninitialised read"));
}

TEST_F(SimAccess, EveryBlockBeginsWithFreshSharedMemory) {
  const Function f = kernel(
      "if (block() == 1) store<1>(shared<f32>(0), 1.0f); else store<1>((f32*)buffers[0], 1.0f);", 1, 1);
  const Address y = allocate(4);
  EXPECT_EQ(fault_of(f, {.blocks = 2, .buffers = {out(y, 4, "y")}, .shared_bytes = 4}), "");
  const Function reads = kernel(
      "if (block() < 40) store<1>(shared<f32>(0), 1.0f); else store<1>((f32*)buffers[0], "
      "load<1>(shared<f32>(0)));",
      1, 1);
  EXPECT_THAT(fault_of(reads, {.blocks = 41, .buffers = {out(y, 4, "y")}, .shared_bytes = 4}),
              HasSubstr("uninitialised read: kernel 'k', block 40"));
}

TEST_F(SimAccess, SharedMemoryHasTheBytesOfTheLaunch) {
  EXPECT_EQ(one("store<1>(shared<f32>(60), 1.0f);"), "");
  EXPECT_EQ(
      one("store<1>(shared<f32>(64), 1.0f);", kIllegalAddress),
      "out of bounds: kernel 'k', block 0, thread 0 writes 4 bytes at offset 64 of shared memory, which has "
      "64 bytes");
  EXPECT_THAT(one("store<1>(shared<f32>(-4), 1.0f);", kIllegalAddress), HasSubstr("out of bounds"));
}

TEST_F(SimAccess, BlocksMayNotShareWhatOneWrites) {
  const auto text = [&](const std::string& body) {
    begin({});
    const Address x = filled(64, 1);
    return fault_of(kernel("f32* const x = (f32*)buffers[0];" + body, 32, 1),
                    {.blocks = 2, .buffers = {both(x, 256, "x")}});
  };
  EXPECT_EQ(text("store<1>(x + block() * 32 + thread(), load<1>(x + block() * 32 + thread()));"), "");
  EXPECT_EQ(text("if (load<1>(x + thread()) > 3.0f) store<1>(x, 1.0f);"), "");
  EXPECT_THAT(
      text("store<1>(x + thread(), 1.0f);"),
      ::testing::MatchesRegex(
          "blocks collide: kernel 'k', block [01], thread [0-9]+ writes 4 bytes at offset [0-9]+ of 'x' "
          "\\(256 bytes\\), which block [01], thread [0-9]+, has written; blocks run in any order"));
  EXPECT_THAT(
      text("store<1>(x + 32 * block() + thread(), load<1>(x + 32 * (1 - block()) + thread()));"),
      ::testing::MatchesRegex("blocks collide: .* which block [01], thread [0-9]+, has (read|written); "
                              "blocks run in any order"));
}

TEST_F(SimAccess, ReadersOfManyBlocksAreRemembered) {
  const Address x = filled(1, 1);
  // Whoever writes has read last itself.
  const std::string text = fault_of(
      kernel("f32* const x = (f32*)buffers[0]; const f32 v = load<1>(x); if (block() == 3) store<1>(x, v);",
             1, 1),
      {.blocks = 8, .buffers = {both(x, 4, "x")}});
  EXPECT_THAT(text, HasSubstr("blocks collide: kernel 'k', block "));
}

TEST_F(SimAccess, NextLaunchesAreOrderedByTheirStream) {
  const Address x = filled(32, 1);
  const Function f =
      kernel("f32* const x = (f32*)buffers[0] + 31 - thread(); store<1>(x, load<1>(x) + 1);", 32, 1);
  for (int i = 0; i < 3; ++i) ok(launch(f, {.buffers = {both(x, 128, "x")}}));
  EXPECT_EQ(read(x, 1)[0], 4.0f);
}

TEST_F(SimAccess, BytesOfOneWordMayBeOfManyThreads) {
  const auto text = [&](const std::string& body) {
    begin({});
    const Address x = allocate(128);
    ok(d.set_bytes(x, 1, 128, nullptr));
    return fault_of(kernel("u8* const x = (u8*)buffers[0];" + body, 128, 1),
                    {.buffers = {both(x, 128, "x")}});
  };
  EXPECT_EQ(text("store<1>(x + thread(), u8(load<1>(x + thread()) + 1));"), "");
  EXPECT_EQ(text("store<1>(x + thread(), u8(1)); barrier(); store<1>(x + (thread() ^ 1), u8(2));"), "");
  EXPECT_EQ(
      text("store<1>(x + thread(), u8(1)); barrier(); if (thread() < 32) store<1>((i32*)x + thread(), 2);"
           "barrier(); store<1>(x + thread(), u8(3));"),
      "");
  EXPECT_THAT(
      text("store<1>(x + (thread() | 1), u8(1));"),
      ::testing::MatchesRegex("missing barrier: kernel 'k', block 0, thread [0-9]+ writes 1 bytes at offset "
                              "[0-9]+ of 'x' .*"));
  EXPECT_THAT(text("store<1>(x + thread(), u8(1)); if (thread() < 32) store<1>((i32*)x + thread(), 2);"),
              HasSubstr("missing barrier"));
}

TEST_F(SimAccess, WithoutADeclarationAllThatIsAllocatedCounts) {
  const Address x = allocate(256), y = allocate(256);
  const auto text = [&](const std::string& body, Result code) {
    return fault_of(kernel("f32* const x = (f32*)buffers[0];" + body, 1, 2),
                    {.buffers = {both(x, 0, "x"), both(y, 0, "y")}, .declared = false}, code);
  };
  EXPECT_EQ(text("store<1>(x + 63, 1.0f); store<1>((f32*)buffers[1], 1.0f);", kSuccess), "");
  EXPECT_EQ(
      text("store<1>(x + 64, 1.0f);", kIllegalAddress),
      fmt::format("out of bounds: kernel 'k', block 0, thread 0 writes 4 bytes at offset 256 of 'allocation "
                  "at {:#x}' (256 bytes)",
                  x));
}

TEST_F(SimAccess, FreedMemoryIsNotUsedAgain) {
  const Address x = allocate(256), y = allocate(256);
  ok(d.release(x));
  const Function f = kernel("store<1>((f32*)buffers[0] + 1, 1.0f);", 1, 2);
  EXPECT_EQ(
      fault_of(f, {.buffers = {out(x, 256, "x"), out(y, 256, "y")}}, kIllegalAddress),
      fmt::format("use after free: kernel 'k': buffer 'x' (256 bytes at {:#x}) is freed memory (256 bytes "
                  "were allocated)",
                  x));
  begin({});
  const Address z = allocate(1024);
  ok(d.release(z));
  EXPECT_EQ(
      fault_of(kernel("store<1>((f32*)buffers[0] + 1, 1.0f);", 1, 1),
               {.buffers = {out(z, 0, "z")}, .declared = false}, kIllegalAddress),
      fmt::format("use after free: kernel 'k', block 0, thread 0 writes 4 bytes at {:#x}, which is near no "
                  "buffer of the launch (freed, 1024 bytes)",
                  z + 4));
}

TEST_F(SimAccess, ABufferIsWhatIsAllocated) {
  const Address x = allocate(256);
  const Function f = kernel("store<1>((f32*)buffers[0] + 1, 1.0f);", 1, 1);
  EXPECT_EQ(
      fault_of(f, {.buffers = {out(x + 128, 256, "x")}}, kIllegalAddress),
      fmt::format("use after free: kernel 'k': buffer 'x' (256 bytes at {:#x}) is an allocation of 256 bytes "
                  "only, at its offset 128",
                  x + 128));
}

class SimCopyAsync : public SimAccess {};

TEST_F(SimCopyAsync, ArrivesWhenItIsWaitedFor) {
  EXPECT_EQ(one("copy_async<16>(shared<f32>(0), x, true); async_commit();"
                "copy_async<4>(shared<f32>(16), x, true); async_commit();"
                "copy_async<8>(shared<f32>(32), (const f32*)nullptr, false); async_commit();"
                "async_wait<2>(); store<1>(y, load<1>(shared<f32>(12)));"
                "async_wait<1>(); store<1>(y + 1, load<1>(shared<f32>(16)));"
                "async_wait<0>(); store<1>(y + 2, load<1>(shared<f32>(36)));"),
            "");
}

TEST_F(SimCopyAsync, ZerosWhereItIsNotValid) {
  const Address x = filled(4, 3), y = allocate(32);
  ok(run(
      kernel("copy_async<16>(shared<f32>(0), (const f32*)buffers[0], true);"
             "copy_async<16>(shared<f32>(16), (const f32*)nullptr, false); async_commit(); async_wait<0>();"
             "store<8>((f32*)buffers[1], load<8>(shared<f32>(0)));",
             1),
      {.buffers = {in(x, 16, "x"), out(y, 32, "y")}, .shared_bytes = 32}));
  EXPECT_EQ(read(y, 8), (std::vector<float>{3, 3, 3, 3, 0, 0, 0, 0}));
}

TEST_F(SimCopyAsync, NotBefore) {
  const std::string begun = "copy_async<16>(shared<f32>(0), x, true); async_commit();";
  const std::string text =
      "copy not waited for: kernel 'k', block 0, thread 0 {} 4 bytes at offset 4 of shared "
      "memory, where a copy_async is on its way";
  EXPECT_EQ(one(begun + "store<1>(y, load<1>(shared<f32>(4)));"), fmt::format(fmt::runtime(text), "reads"));
  EXPECT_EQ(one(begun + "store<1>(shared<f32>(4), 1.0f);"), fmt::format(fmt::runtime(text), "writes"));
  EXPECT_EQ(one(begun + "async_wait<1>(); store<1>(y, load<1>(shared<f32>(4)));"),
            fmt::format(fmt::runtime(text), "reads"));
  // A copy that no group holds is not waited for.
  EXPECT_THAT(one("copy_async<16>(shared<f32>(0), x, true); async_wait<0>();"
                  "store<1>(y, load<1>(shared<f32>(4)));"),
              HasSubstr("copy not waited for"));
}

TEST_F(SimCopyAsync, TheSourceStaysAsItWas) {
  EXPECT_EQ(
      one("store<4>(y, load<4>(x)); copy_async<16>(shared<f32>(0), (const f32*)y, true); async_commit();"
          "async_wait<0>(); store<1>(y + 2, 9.0f);"),
      "");
  EXPECT_EQ(
      one("store<4>(y, load<4>(x)); copy_async<16>(shared<f32>(0), (const f32*)y, true); async_commit();"
          "store<1>(y + 2, 9.0f); async_wait<0>();"),
      "source of a copy changed: kernel 'k', block 0, thread 0 reads 16 bytes at offset 0 of 'fc1.weight' "
      "(400 bytes) by copy_async, written before its wait");
}

TEST_F(SimCopyAsync, OthersNeedABarrierBesidesTheWait) {
  const auto text = [&](const char* between) {
    begin({});
    const Address x = filled(64, 1), y = allocate(256);
    return fault_of(
        kernel(std::string("copy_async<4>(shared<f32>(4 * thread()), (const f32*)buffers[0] + thread(), "
                           "true); async_commit(); async_wait<0>();") +
                   between +
                   "store<1>((f32*)buffers[1] + thread(), load<1>(shared<f32>(4 * ((thread() "
                   "+ 1) % 64))));",
               64),
        {.buffers = {in(x, 256, "x"), out(y, 256, "y")}, .shared_bytes = 256});
  };
  EXPECT_EQ(text("barrier();"), "");
  EXPECT_THAT(text(""), ::testing::MatchesRegex("(missing barrier|uninitialised read): .*"));
}

TEST_F(SimCopyAsync, MayNotOverwriteWhatOthersStillRead) {
  const auto text = [&](const char* between) {
    begin({});
    const Address x = filled(64, 1), y = allocate(256);
    return fault_of(
        kernel(
            std::string(
                "store<1>(shared<f32>(4 * thread()), 1.0f); barrier();"
                "store<1>((f32*)buffers[1] + thread(), load<1>(shared<f32>(4 * ((thread() + 1) % 64))));") +
                between +
                "copy_async<4>(shared<f32>(4 * thread()), (const f32*)buffers[0] + thread(), true); "
                "async_commit(); async_wait<0>();",
            64),
        {.buffers = {in(x, 256, "x"), out(y, 256, "y")}, .shared_bytes = 256});
  };
  EXPECT_EQ(text("barrier();"), "");
  EXPECT_THAT(text(""), ::testing::MatchesRegex("(missing barrier|copy not waited for): .*"));
}

TEST_F(SimCopyAsync, ChecksBothEnds) {
  EXPECT_THAT(one("copy_async<16>(shared<f32>(0), x + 100, true);", kIllegalAddress),
              HasSubstr("out of bounds"));
  EXPECT_THAT(one("copy_async<16>(shared<f32>(64), x, true);", kIllegalAddress), HasSubstr("out of bounds"));
  EXPECT_THAT(one("copy_async<16>(shared<f32>(4), x, true);", kMisalignedAddress), HasSubstr("misaligned"));
  EXPECT_EQ(one("kn_sim->copy_async(0, x, 2, 1);"),
            "copy_async: kernel 'k', block 0, thread 0 copies 2 bytes, not 4, 8 or 16");
}

}  // namespace KILN_FILE
}  // namespace kiln::cuda
