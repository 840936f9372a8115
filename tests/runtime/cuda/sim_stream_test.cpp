// SPDX-License-Identifier: Apache-2.0
// Streams and events: what is ordered, what is not, and when work is done.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/runtime/cuda/sim_testing.h"

namespace kiln::cuda {
namespace KILN_FILE {

using testing::both;
using ::testing::HasSubstr;
using testing::in;
using testing::out;

class SimStream : public testing::SimTest {
 protected:
  SimStream() { set_up(); }
  void set_up() {
    x = filled(64, 1);
    y = filled(64, 2);
    a = stream();
    b = stream();
    ok(d.context_synchronize());
    add = kernel(
        "const i64 i = thread(); store<1>((f32*)buffers[1] + i, load<1>((f32*)buffers[1] + i) + "
        "load<1>((const f32*)buffers[0] + i));",
        64);
  }
  void again() {
    begin({});
    set_up();
  }
  void add_on(Stream s, Address from, Address to) {
    ok(launch(add, {.buffers = {in(from, 256, "from"), both(to, 256, "to")}, .stream = s}));
  }
  Address x = 0, y = 0;
  Stream a = nullptr, b = nullptr;
  Function add = nullptr;
};

TEST_F(SimStream, WorkWaitsUntilSomebodyWaits) {
  add_on(a, x, y);
  EXPECT_EQ(sim::pending_work(0), 1u);
  add_on(b, x, x);
  EXPECT_EQ(sim::pending_work(0), 2u);
}

TEST_F(SimStream, OnlyWhatIsWaitedForIsDone) {
  add_on(a, x, y);
  ok(d.set_bytes(allocate(4), 0, 4, b));
  ok(d.stream_synchronize(b));
  EXPECT_EQ(sim::pending_work(0), 1u);
  ok(d.stream_synchronize(a));
  EXPECT_EQ(sim::pending_work(0), 0u);
  EXPECT_EQ(read(y, 1)[0], 3);
}

TEST_F(SimStream, AnEventOrdersTwoStreams) {
  const Event e = event();
  add_on(a, x, y);
  ok(d.event_record(e, a));
  ok(d.stream_wait(b, e, 0));
  add_on(b, x, y);
  ok(d.stream_synchronize(b));
  EXPECT_EQ(read(y, 1)[0], 4);
}

TEST_F(SimStream, WithoutItThatIsARace) {
  add_on(a, x, y);
  add_on(b, x, y);
  EXPECT_EQ(d.context_synchronize(), kLaunchFailed);
  EXPECT_EQ(d.fault(),
            "stream race: kernel 'k' on stream 2 writes bytes 0 to 256 of 'to', which kernel 'k' on "
            "stream 1 writes, with no event between them");
}

TEST_F(SimStream, AnEventFromBeforeOrdersNothing) {
  const Event e = event();
  ok(d.event_record(e, a));
  add_on(a, x, y);
  ok(d.stream_wait(b, e, 0));
  add_on(b, y, x);
  EXPECT_EQ(d.context_synchronize(), kLaunchFailed);
  EXPECT_EQ(d.fault(),
            "stream race: kernel 'k' on stream 2 reads bytes 0 to 256 of 'from', which kernel 'k' on "
            "stream 1 writes, with no event between them");
}

TEST_F(SimStream, EventsOrderThroughAThirdStream) {
  const Stream c = stream();
  const Event e = event(), f = event();
  add_on(a, x, y);
  ok(d.event_record(e, a));
  ok(d.stream_wait(c, e, 0));
  ok(d.event_record(f, c));
  ok(d.stream_wait(b, f, 0));
  add_on(b, x, y);
  ok(d.context_synchronize());
}

TEST_F(SimStream, ReadersDoNotRace) {
  const Address z = filled(64, 0);
  ok(d.context_synchronize());
  add_on(a, x, y);
  add_on(b, x, z);
  ok(d.context_synchronize());
}

TEST_F(SimStream, PartsOfABufferDoNotRace) {
  const Function half = kernel("store<1>((f32*)buffers[0] + thread(), 1.0f);", 32, 1);
  ok(launch(half, {.buffers = {out(x, 128, "low")}, .stream = a}));
  ok(launch(half, {.buffers = {out(x + 128, 128, "high")}, .stream = b}));
  ok(d.context_synchronize());
  ok(launch(half, {.buffers = {out(x, 128, "low")}, .stream = a}));
  ok(launch(half, {.buffers = {out(x + 64, 128, "middle")}, .stream = b}));
  EXPECT_EQ(d.context_synchronize(), kLaunchFailed);
  EXPECT_THAT(d.fault(),
              HasSubstr("kernel 'k' on stream 2 writes bytes 0 to 64 of 'middle', which kernel 'k' on "
                        "stream 1 writes"));
}

TEST_F(SimStream, AWriteOfAPartLeavesTheRestAsItWas) {
  const Stream c = stream();
  ok(d.set_words(x, 0, 64, a));
  const Event e = event();
  ok(d.event_record(e, a));
  ok(d.stream_wait(b, e, 0));
  ok(d.stream_wait(c, e, 0));
  ok(d.set_words(x + 64, 1, 16, b));
  ok(d.set_words(x, 2, 16, c));
  ok(d.set_words(x + 128, 2, 32, c));
  ok(d.context_synchronize());
}

TEST_F(SimStream, ReadersAreRemembered) {
  const Address z = filled(64, 0);
  ok(d.context_synchronize());
  add_on(a, x, y);
  add_on(b, x, z);
  const Event e = event();
  ok(d.event_record(e, b));
  const Stream c = stream();
  ok(d.stream_wait(c, e, 0));
  ok(d.set_words(x, 0, 64, c));  // after the reader on b, not after that on a
  EXPECT_EQ(d.context_synchronize(), kLaunchFailed);
  EXPECT_THAT(d.fault(), HasSubstr("stream race: a fill on stream 3 writes bytes 0 to 256 of device memory"));
  EXPECT_THAT(d.fault(), HasSubstr("which kernel 'k' on stream 1 reads, with no event between them"));
}

TEST_F(SimStream, CopiesRaceToo) {
  auto* host = static_cast<float*>(pinned(256));
  add_on(a, x, y);
  ok(d.copy_to_host(host, y, 256, b));
  EXPECT_EQ(d.stream_synchronize(b), kLaunchFailed);
  EXPECT_THAT(d.fault(),
              HasSubstr("stream race: a copy to the host on stream 2 reads bytes 0 to 256 of device "
                        "memory"));
  again();
  host = static_cast<float*>(pinned(256));
  ok(d.copy_to_host(host, x, 256, a));
  ok(d.copy_to_device(y, host, 256, b));  // of host memory that the first has yet to fill
  EXPECT_EQ(d.context_synchronize(), kLaunchFailed);
  EXPECT_THAT(d.fault(),
              HasSubstr("stream race: a copy to the device on stream 2 reads bytes 0 to 256 of host "
                        "memory"));
}

TEST_F(SimStream, TheHostOrdersWhatItWaitsFor) {
  ok(d.set_bytes(allocate(4), 0, 4, stream()));  // something that nobody waits for
  add_on(a, x, y);
  ok(d.stream_synchronize(a));
  add_on(b, x, y);
  const Event e = event();
  ok(d.event_record(e, b));
  ok(d.event_synchronize(e));
  add_on(a, x, y);
  EXPECT_GT(sim::pending_work(0), 1u);
  ok(d.context_synchronize());
  EXPECT_EQ(read(y, 1)[0], 5);
}

TEST_F(SimStream, TheLegacyStreamWaitsForBlockingStreams) {
  Stream blocking = nullptr;
  ok(d.stream_create(&blocking, 0, 0));
  add_on(blocking, x, y);
  add_on(nullptr, x, y);
  add_on(blocking, x, y);
  ok(d.context_synchronize());
  EXPECT_EQ(read(y, 1)[0], 5);
  add_on(a, x, y);  // not blocking
  add_on(nullptr, x, y);
  EXPECT_EQ(d.context_synchronize(), kLaunchFailed);
  EXPECT_EQ(d.fault(),
            "stream race: kernel 'k' on the legacy stream writes bytes 0 to 256 of 'to', which kernel "
            "'k' on stream 1 writes, with no event between them");
}

TEST_F(SimStream, MemoryOfAPoolBelongsToItsStream) {
  Pool pool = nullptr;
  ok(d.default_pool(&pool, 0));
  Address z = 0;
  ok(d.allocate_async(&z, 256, pool, a));
  const Event e = event();
  ok(d.event_record(e, a));
  ok(d.stream_wait(b, e, 0));
  ok(d.set_words(z, 0, 64, b));
  ok(d.stream_synchronize(b));
  ok(d.release_async(z, a));
  ok(d.stream_synchronize(a));
  ok(d.allocate_async(&z, 256, pool, a));
  ok(d.set_words(z, 0, 64, b));
  EXPECT_EQ(d.stream_synchronize(b), kLaunchFailed);
  EXPECT_THAT(d.fault(), HasSubstr("which an allocation on stream 1 writes, with no event between them"));
}

TEST_F(SimStream, AFreeWhileAnotherStreamUsesItIsARace) {
  Pool pool = nullptr;
  ok(d.default_pool(&pool, 0));
  Address z = 0;
  ok(d.allocate_async(&z, 256, pool, a));
  ok(d.stream_synchronize(a));
  ok(d.set_words(z, 0, 64, b));
  ok(d.release_async(z, a));
  EXPECT_EQ(d.context_synchronize(), kLaunchFailed);
  EXPECT_THAT(d.fault(), HasSubstr("stream race: a free on stream 1 writes bytes 0 to 256"));
}

TEST_F(SimStream, AfterAFaultEveryCallFails) {
  ok(launch(kernel("store<1>((f32*)buffers[0] + 64, 1.0f);", 1, 1),
            {.buffers = {out(x, 256, "x")}, .stream = a}));
  add_on(a, x, y);  // asked for before anybody knows
  const uint64_t before = sim::launches();
  EXPECT_EQ(d.stream_synchronize(a), kIllegalAddress);
  EXPECT_EQ(sim::launches(), before);
  const std::string text = d.fault();
  EXPECT_THAT(text, HasSubstr("out of bounds"));
  Address z = 0;
  refused(d.allocate(&z, 4), kIllegalAddress, text);
  refused(d.stream_synchronize(b), kIllegalAddress, text);
  refused(d.context_synchronize(), kIllegalAddress, text);
  refused(launch(add, {.buffers = {}, .declared = false}), kIllegalAddress, text);
}

TEST_F(SimStream, APlannedLaunchFails) {
  sim::fail_launch(2);
  add_on(a, x, y);
  add_on(a, x, y);
  EXPECT_EQ(d.stream_synchronize(a), kLaunchFailed);
  EXPECT_EQ(d.fault(), "planned failure of a launch: kernel 'k'");
}

TEST_F(SimStream, ALostDeviceAnswersNothing) {
  sim::lose_device(2);
  ok(d.stream_synchronize(a));
  refused(d.stream_synchronize(a), kUnknown, "planned loss of the device");
  int n = 0;
  refused(d.device_count(&n), kUnknown, "planned loss of the device");
}

TEST_F(SimStream, WhoAsksAgainAndAgainIsAnswered) {
  add_on(a, x, y);
  const Event e = event();
  ok(d.event_record(e, a));
  add_on(a, x, y);
  EXPECT_EQ(d.event_query(e), kNotReady);
  EXPECT_EQ(d.event_query(e), kSuccess);
  EXPECT_EQ(d.stream_query(a), kSuccess);
  EXPECT_EQ(d.stream_query(b), kSuccess);
  EXPECT_EQ(d.event_query(event()), kSuccess);  // never recorded
}

TEST_F(SimStream, EventsKeepTime) {
  const Event e = event(), f = event();
  ok(d.event_record(e, a));
  for (int i = 0; i < 20; ++i) add_on(a, x, y);
  ok(d.event_record(f, a));
  float ms = -1;
  EXPECT_EQ(d.event_elapsed(&ms, e, f), kNotReady);
  ok(d.event_synchronize(f));
  ok(d.event_elapsed(&ms, e, f));
  EXPECT_GT(ms, 0);
  EXPECT_LT(ms, 10000);
  Event quiet = nullptr;
  ok(d.event_create(&quiet, kEventDisableTiming));
  ok(d.event_record(quiet, a));
  ok(d.event_synchronize(quiet));
  EXPECT_EQ(d.event_elapsed(&ms, e, quiet), kInvalidHandle);
}

TEST_F(SimStream, HostFunctionsRunInOrder) {
  std::vector<int> order;
  struct Item {
    std::vector<int>* order;
    int n;
    Result answer = kSuccess;
  } first{&order, 1}, second{&order, 2};
  const HostFn note = [](void* p) {
    auto* item = static_cast<Item*>(p);
    item->order->push_back(item->n);
    item->answer = simulated_driver().context_synchronize();
  };
  ok(d.host_function(a, note, &first));
  ok(d.host_function(a, note, &second));
  EXPECT_TRUE(order.empty());
  ok(d.stream_synchronize(a));
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_EQ(first.answer, kNotPermitted);
}

// Two ranks, each in a host function that waits for the other.
TEST_F(SimStream, HostFunctionsOfTwoThreadsMayWaitForEachOther) {
  struct Meeting {
    std::mutex mutex;
    std::condition_variable changed;
    int here = 0;
  } meeting;
  const HostFn meet = [](void* p) {
    auto& m = *static_cast<Meeting*>(p);
    std::unique_lock lock(m.mutex);
    ++m.here;
    m.changed.notify_all();
    m.changed.wait(lock, [&] { return m.here == 2; });
  };
  const auto rank = [&](Stream s) {
    EXPECT_EQ(d.context_set(context), kSuccess);
    EXPECT_EQ(d.host_function(s, meet, &meeting), kSuccess);
    EXPECT_EQ(d.stream_synchronize(s), kSuccess);
  };
  std::thread one(rank, a), two(rank, b);
  one.join();
  two.join();
  EXPECT_EQ(meeting.here, 2);
}

TEST_F(SimStream, AnEndlessQueueIsWorkedOff) {
  for (int i = 0; i < 3000; ++i) ok(d.set_words(x, static_cast<unsigned>(i), 4, a));
  EXPECT_LE(sim::pending_work(0), 1024u);
  ok(d.stream_synchronize(a));
}

TEST_F(SimStream, HandlesAreChecked) {
  ok(d.stream_destroy(b));
  refused(d.stream_synchronize(b), kInvalidHandle, "no such stream in the current context");
  const Event e = event();
  ok(d.event_destroy(e));
  refused(d.event_record(e, a), kInvalidHandle, "no such event in the current context");
  refused(d.stream_destroy(nullptr), kInvalidHandle, "the legacy stream cannot be destroyed");
}

TEST_F(SimStream, WorkOfADestroyedStreamIsDone) {
  add_on(a, x, y);
  ok(d.stream_destroy(a));
  ok(d.context_synchronize());
  EXPECT_EQ(read(y, 1)[0], 3);
}

}  // namespace KILN_FILE
}  // namespace kiln::cuda
