// SPDX-License-Identifier: Apache-2.0
// Stream capture under the driver's rules, and graphs: what they replay, in which order, and what races.
#include <thread>

#include "tests/runtime/cuda/sim_testing.h"

namespace kiln::cuda {
namespace KILN_FILE {

using testing::both;
using ::testing::HasSubstr;
using testing::in;
using testing::out;

class SimCapture : public testing::SimTest {
 protected:
  SimCapture() { set_up(); }
  void set_up(uint64_t seed = 1) {
    begin({.seed = seed});
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
  Result add_on(Stream s, Address from, Address to) {
    return launch(add, {.buffers = {in(from, 256, "from"), both(to, 256, "to")}, .stream = s});
  }
  void start(int mode = kCaptureGlobal) { ok(d.capture_begin(a, mode)); }
  GraphExec finish() {
    Graph g = nullptr;
    GraphExec exec = nullptr;
    ok(d.capture_end(a, &g));
    ok(d.graph_instantiate(&exec, g, 0));
    ok(d.graph_destroy(g));
    return exec;
  }
  int status(Stream s) {
    int v = -1;
    ok(d.capture_status(s, &v));
    return v;
  }
  void order(Stream first, Stream then) {
    const Event e = event();
    ok(d.event_record(e, first));
    ok(d.stream_wait(then, e, 0));
  }
  /// The capture is invalid now: it takes nothing more, and ends without a graph.
  void expect_invalid() {
    EXPECT_EQ(status(a), kCaptureStatusInvalidated);
    refused(add_on(a, x, y), kCaptureInvalidated, "capture: an earlier call has made this capture invalid");
    Graph g = nullptr;
    refused(d.capture_end(a, &g), kCaptureInvalidated, "capture: an earlier call has made it invalid");
    EXPECT_EQ(g, nullptr);
    EXPECT_EQ(status(a), kCaptureStatusNone);
    ok(add_on(a, x, y));
    ok(d.context_synchronize());
  }
  Address x = 0, y = 0;
  Stream a = nullptr, b = nullptr;
  Function add = nullptr;
};

TEST_F(SimCapture, AGraphReplaysWhatWasCaptured) {
  start();
  EXPECT_EQ(status(a), kCaptureStatusActive);
  ok(add_on(a, x, y));
  ok(d.set_words(x, 0x3f800000, 64, a));
  ok(add_on(a, x, y));
  const GraphExec g = finish();
  EXPECT_EQ(status(a), kCaptureStatusNone);
  ok(d.context_synchronize());
  EXPECT_EQ(read(y, 1)[0], 2);  // nothing has run
  for (int i = 0; i < 3; ++i) ok(d.graph_launch(g, a));
  ok(d.stream_synchronize(a));
  EXPECT_EQ(read(y, 1)[0], 8);
  ok(d.graph_exec_destroy(g));
  refused(d.graph_launch(g, a), kInvalidHandle, "no such graph to launch");
}

TEST_F(SimCapture, ForkAndJoin) {
  for (uint64_t seed = 1; seed < 8; ++seed) {
    set_up(seed);
    const Address z = filled(64, 5);
    ok(d.context_synchronize());
    start();
    ok(add_on(a, x, y));
    order(a, b);
    EXPECT_EQ(status(b), kCaptureStatusActive);
    ok(add_on(a, x, y));
    ok(add_on(b, x, z));
    order(b, a);
    ok(add_on(a, z, y));
    const GraphExec g = finish();
    EXPECT_EQ(status(b), kCaptureStatusNone);
    ok(d.graph_launch(g, a));
    ok(d.stream_synchronize(a));
    EXPECT_EQ(read(y, 1)[0], 10);
  }
}

TEST_F(SimCapture, BranchesThatCollideAreARace) {
  start();
  ok(add_on(a, x, y));
  order(a, b);
  ok(add_on(a, x, y));
  ok(add_on(b, x, y));
  order(b, a);
  const GraphExec g = finish();
  ok(d.graph_launch(g, a));
  EXPECT_EQ(d.stream_synchronize(a), kLaunchFailed);
  EXPECT_EQ(d.fault(),
            "graph race: kernel 'k' (node 2) writes bytes 0 to 256 of 'to', which kernel 'k' (node 1) "
            "writes, with no dependency between them");
}

TEST_F(SimCapture, AGraphIsOrderedInItsStream) {
  start();
  ok(add_on(a, x, y));
  const GraphExec g = finish();
  ok(add_on(b, x, y));
  ok(d.graph_launch(g, a));
  EXPECT_EQ(d.context_synchronize(), kLaunchFailed);
  EXPECT_EQ(d.fault(),
            "stream race: a graph on stream 1 writes bytes 0 to 256 of 'to' of kernel 'k' (node 0), which "
            "kernel 'k' on stream "
            "2 writes, with no event between them");
}

TEST_F(SimCapture, OneGraphRunsOnceAtATime) {
  start();
  ok(add_on(a, x, y));
  const GraphExec g = finish();
  ok(d.graph_launch(g, a));
  ok(d.graph_launch(g, b));
  ok(d.context_synchronize());
  EXPECT_EQ(read(y, 1)[0], 4);
}

TEST_F(SimCapture, AReplayUsesTheAddressesOfTheCapture) {
  start();
  ok(add_on(a, x, y));
  const GraphExec g = finish();
  ok(d.graph_launch(g, a));
  ok(d.release(x));
  ok(d.graph_launch(g, a));
  EXPECT_EQ(d.stream_synchronize(a), kIllegalAddress);
  EXPECT_EQ(d.fault(),
            fmt::format("in a graph: use after free: kernel 'k': buffer 'from' (256 bytes at {:#x}) is "
                        "freed memory (256 bytes were allocated)",
                        x));
}

TEST_F(SimCapture, AReplayMayNotOverwriteAHeldOutput) {
  start();
  ok(add_on(a, x, y));
  const GraphExec g = finish();
  ok(d.graph_launch(g, a));
  ok(d.hold(y, 256, true));
  ok(d.stream_synchronize(a));
  ok(d.graph_launch(g, a));
  EXPECT_EQ(d.stream_synchronize(a), kLaunchFailed);
  EXPECT_THAT(d.fault(),
              HasSubstr("overwritten output: a graph writes 'to' of kernel 'k' (node 0) (256 bytes"));
}

TEST_F(SimCapture, CopiesLookWhenTheyAreReplayed) {
  auto* host = static_cast<float*>(pinned(512));
  host[0] = 10;
  std::fill_n(host, 64, 10.0f);
  start();
  ok(d.copy_to_device(x, host, 256, a));
  ok(add_on(a, x, y));
  ok(d.copy_to_host(host + 64, y, 256, a));
  const GraphExec g = finish();
  std::fill_n(host, 64, 20.0f);
  ok(d.graph_launch(g, a));
  ok(d.stream_synchronize(a));
  EXPECT_EQ(host[64], 22);
}

TEST_F(SimCapture, HostFunctionsAreReplayed) {
  int count = 0;
  start();
  ok(d.host_function(
      a, [](void* p) { ++*static_cast<int*>(p); }, &count));
  const GraphExec g = finish();
  EXPECT_EQ(count, 0);
  ok(d.graph_launch(g, a));
  ok(d.graph_launch(g, a));
  ok(d.stream_synchronize(a));
  EXPECT_EQ(count, 2);
}

TEST_F(SimCapture, NobodyWaitsDuringACapture) {
  const auto forbidden = [&](auto call, const char* what) {
    set_up();
    start();
    ok(add_on(a, x, y));
    refused(call(), kCaptureUnsupported,
            fmt::format("capture: {} is not allowed while the stream is captured", what));
    expect_invalid();
  };
  Address z = 0;
  void* p = nullptr;
  const auto pool = [&] {
    Pool of = nullptr;
    ok(d.default_pool(&of, 0));
    return of;
  };
  forbidden([&] { return d.stream_synchronize(a); }, "cuStreamSynchronize");
  forbidden([&] { return d.stream_query(a); }, "cuStreamQuery");
  forbidden([&] { return d.stream_synchronize(b); }, "cuStreamSynchronize");
  forbidden([&] { return d.context_synchronize(); }, "cuCtxSynchronize");
  forbidden([&] { return d.allocate(&z, 8); }, "cuMemAlloc");
  forbidden([&] { return d.release(x); }, "cuMemFree");
  forbidden([&] { return d.host_allocate(&p, 8, 0); }, "cuMemHostAlloc");
  forbidden([&] { return d.event_query(event()); }, "cuEventQuery");
  forbidden([&] { return d.event_synchronize(event()); }, "cuEventSynchronize");
  forbidden([&] { return d.allocate_async(&z, 8, pool(), a); }, "cuMemAllocFromPoolAsync");
  forbidden([&] { return d.release_async(x, a); }, "cuMemFreeAsync");
}

TEST_F(SimCapture, OtherModesForbidLess) {
  Address z = 0;
  start(kCaptureRelaxed);
  ok(d.allocate(&z, 8));
  ok(d.stream_synchronize(b));
  ok(d.event_query(event()));
  finish();
  start(kCaptureRelaxed);
  EXPECT_EQ(d.context_synchronize(), kCaptureUnsupported);  // that would wait for the capture itself
  expect_invalid();
  start(kCaptureThreadLocal);
  std::thread([&] {
    EXPECT_EQ(d.context_set(context), kSuccess);
    EXPECT_EQ(d.allocate(&z, 8), kSuccess);
  }).join();
  EXPECT_EQ(d.allocate(&z, 8), kCaptureUnsupported);
  expect_invalid();
  start(kCaptureGlobal);
  std::thread([&] {
    EXPECT_EQ(d.context_set(context), kSuccess);
    EXPECT_EQ(d.allocate(&z, 8), kCaptureUnsupported);
  }).join();
  expect_invalid();
}

TEST_F(SimCapture, ForksMustBeJoined) {
  start();
  order(a, b);
  ok(add_on(b, x, y));
  Graph g = nullptr;
  refused(d.capture_end(a, &g), kCaptureUnjoined,
          "capture: the work of stream 2 is not waited for by stream 1, where the capture began");
  EXPECT_EQ(status(a), kCaptureStatusNone);
  EXPECT_EQ(status(b), kCaptureStatusNone);
}

TEST_F(SimCapture, ItEndsWhereItBegan) {
  start();
  order(a, b);
  Graph g = nullptr;
  refused(d.capture_end(b, &g), kCaptureUnmatched, "capture: ends on stream 2, but began on stream 1");
  refused(d.capture_end(stream(), &g), kIllegalState, "capture: stream 3 is not captured");
  expect_invalid();
  start();
  std::thread([&] {
    EXPECT_EQ(d.context_set(context), kSuccess);
    refused(d.capture_end(a, &g), kCaptureWrongThread, "capture: ends on another thread than it began on");
  }).join();
  ok(d.capture_end(a, &g));
}

TEST_F(SimCapture, ItBeginsOnce) {
  start();
  refused(d.capture_begin(a, kCaptureGlobal), kIllegalState, "capture: stream 1 is captured already");
  refused(d.capture_begin(nullptr, kCaptureGlobal), kCaptureUnsupported,
          "capture: the legacy stream cannot be captured");
  refused(d.capture_begin(b, 7), kInvalidValue, "capture: no mode 7");
}

TEST_F(SimCapture, NothingFromOutsideIsWaitedFor) {
  const Event e = event();
  ok(d.event_record(e, b));
  start();
  refused(d.stream_wait(a, e, 0), kCaptureIsolation,
          "capture: stream 1 waits for an event that was recorded outside of the capture");
  expect_invalid();
}

TEST_F(SimCapture, TwoCapturesDoNotMerge) {
  start();
  ok(d.capture_begin(b, kCaptureGlobal));
  const Event e = event();
  ok(d.event_record(e, b));
  refused(d.stream_wait(a, e, 0), kCaptureMerge, "capture: a stream of one waits for an event of another");
  EXPECT_EQ(status(b), kCaptureStatusInvalidated);
  Graph g = nullptr;
  EXPECT_EQ(d.capture_end(b, &g), kCaptureInvalidated);
  expect_invalid();
}

TEST_F(SimCapture, EventsOfACaptureAreNotOfTheDevice) {
  const Event e = event();
  start(kCaptureRelaxed);
  ok(d.event_record(e, a));
  const std::string text = "cuEventQuery: the event was last recorded in a capture";
  refused(d.event_query(e), kCapturedEvent, text);
  finish();
  refused(d.event_query(e), kCapturedEvent, text);
  refused(d.stream_wait(b, e, 0), kCapturedEvent,
          "capture: an event was last recorded in a capture that has ended");
  ok(d.event_record(e, a));
  ok(d.stream_wait(b, e, 0));
}

TEST_F(SimCapture, TheLegacyStreamIsNotUsedMeanwhile) {
  Stream blocking = nullptr;
  ok(d.stream_create(&blocking, 0, 0));
  ok(d.capture_begin(blocking, kCaptureGlobal));
  refused(add_on(nullptr, x, y), kCaptureImplicit,
          "capture: the legacy stream is used, and stream 3, which it waits for, is captured");
  Graph g = nullptr;
  EXPECT_EQ(d.capture_end(blocking, &g), kCaptureInvalidated);
  start();  // not blocking
  ok(add_on(nullptr, x, y));
  finish();
}

TEST_F(SimCapture, AStreamUnderCaptureIsNotDestroyed) {
  start();
  order(a, b);
  ok(d.stream_destroy(b));
  expect_invalid();
}

}  // namespace KILN_FILE
}  // namespace kiln::cuda
