// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/graph.h"

#include <gmock/gmock.h>

#include <barrier>
#include <cmath>
#include <map>
#include <numeric>
#include <thread>

#include "tests/runtime/cuda/sim_kernels.h"

namespace kiln {
namespace KILN_FILE {

using ::testing::HasSubstr;
using testing::kernels;
using testing::PlanBuilder;

/// y = flip(x + s), and state += 1 in place beside it; through an arena of `rooms` more buffers.
Plan step(const Dim& n, int rooms = 0, int64_t work = 100'000) {
  PlanBuilder b;
  b.work = work;
  if (!n.is_const()) b.plan.symbols = {"N"};
  const int32_t x = b.external("x", n * 4), state = b.external("state", n * 4), s = b.scalar("s");
  const int32_t t = b.arena("%0", n * 4), y = b.output("y", n * 4);
  b.launch("add_scalar", {x, s, t}, n);
  b.launch("bump", {state}, n, false);
  for (int i = 0; i < rooms; ++i) b.launch("flip", {x, b.arena("room", n * 4)}, n, false);
  b.launch("flip", {t, y}, n);
  return b.plan;
}

std::vector<float> flipped(const std::vector<float>& x, float s) {
  std::vector<float> out;
  for (size_t i = x.size(); i-- > 0;) out.push_back((x[i] + s) * 1.5f);
  return out;
}
std::vector<float> plus(std::vector<float> x, float by) {
  for (float& v : x) v += by;
  return x;
}

class Graphs : public testing::OnSimulatedDevice {
 protected:
  CudaOptions options(size_t limit = size_t{1} << 30) {
    return {.graphs = true, .max_graph_bytes = limit, .name = "step (train.cpp:5)"};
  }
  void call(CudaExecutable& exe, cuda::Address x, cuda::Address state, cuda::Address y, float s,
            std::span<const int64_t> symbols = {}) {
    void* const externals[] = {reinterpret_cast<void*>(x), reinterpret_cast<void*>(state)};
    void* const outputs[] = {reinterpret_cast<void*>(y)};
    const uint64_t scalars[] = {scalar(s)};
    exe.run({.externals = externals, .outputs = outputs, .scalars = scalars, .symbols = symbols});
  }
};

TEST_F(Graphs, TheFirstCallIsPlainTheSecondRecordedTheOthersReplayed) {
  const std::vector<float> x = ramp(200, 1);
  CudaExecutable exe(step(200), kernels(), device(), options());
  const CudaMemory mx = put(x), state = put(x), y = room(200);
  for (int i = 0; i < 10; ++i) {
    call(exe, mx.address(), state.address(), y.address(), static_cast<float>(i));
    EXPECT_EQ(get(y), flipped(x, static_cast<float>(i)));
    EXPECT_EQ(get(state), plus(x, static_cast<float>(i + 1))) << "each call counts once";
    const CudaGraphStats s = exe.graph_stats();
    EXPECT_EQ(s.plain_calls, 1);
    EXPECT_EQ(s.recordings, i < 1 ? 0 : 1);
    EXPECT_EQ(s.replays, i);
    EXPECT_EQ(s.graphs, i < 1 ? 0u : 1u);
  }
  EXPECT_EQ(exe.graph_stats().bytes, 1024u + 256u) << "arena and scalars: no tensor moves";
}

/// Calls of the driver that put work on streams.
struct Calls {
  int launches = 0, graphs = 0, copies = 0, allocations = 0, records = 0;
};
Calls& calls() {
  static Calls c;
  return c;
}
const cuda::Driver& counting_driver() {
  static const cuda::Driver driver = [] {
    cuda::Driver d = cuda::simulated_driver();
    d.launch = [](auto... a) { return ++calls().launches, cuda::simulated_driver().launch(a...); };
    d.graph_launch = [](auto... a) { return ++calls().graphs, cuda::simulated_driver().graph_launch(a...); };
    d.copy_to_device = [](auto... a) {
      return ++calls().copies, cuda::simulated_driver().copy_to_device(a...);
    };
    d.copy_on_device = [](auto... a) {
      return ++calls().copies, cuda::simulated_driver().copy_on_device(a...);
    };
    d.allocate_async = [](auto... a) {
      return ++calls().allocations, cuda::simulated_driver().allocate_async(a...);
    };
    d.event_record = [](auto... a) { return ++calls().records, cuda::simulated_driver().event_record(a...); };
    return d;
  }();
  return driver;
}

TEST_F(Graphs, AReplayIsAnUploadAndALaunch) {
  CudaDevice counted(counting_driver(), 0);
  const std::vector<float> x = ramp(100, 1);
  const CudaMemory mx = put(x), other = put(x), state = put(x), y = room(100);
  device().synchronize();  // the other one has streams of its own
  CudaExecutable plain(step(100, 20), kernels(), counted);
  CudaExecutable exe(step(100, 20), kernels(), counted, options());
  calls() = {};
  call(plain, mx.address(), state.address(), y.address(), 1.0f);
  EXPECT_EQ(calls().launches, 23);
  EXPECT_EQ(calls().allocations, 1);
  EXPECT_EQ(calls().copies, 1);
  EXPECT_EQ(calls().records, 4) << "a fork and three joins";
  CudaExecutable small(step(100, 20, 8), kernels(), counted);
  calls() = {};
  call(small, mx.address(), state.address(), y.address(), 1.0f);
  EXPECT_EQ(calls().records, 0) << "too little work for that";
  for (int i = 0; i < 2; ++i) call(exe, mx.address(), state.address(), y.address(), 1.0f);
  calls() = {};
  call(exe, mx.address(), state.address(), y.address(), 1.0f);
  EXPECT_EQ(calls().launches + calls().allocations + calls().records, 0);
  EXPECT_EQ(calls().graphs, 1);
  EXPECT_EQ(calls().copies, 1);
  for (int i = 0; i < 2; ++i) call(exe, other.address(), state.address(), y.address(), 1.0f);
  calls() = {};
  call(exe, mx.address(), state.address(), y.address(), 1.0f);
  EXPECT_EQ(calls().graphs, 1);
  EXPECT_EQ(calls().copies, 2) << "x moves";
  counted.synchronize();
}

/// Two stages and their backwards, ten steps.
TEST_F(Graphs, OneRecordingForEachStageAndDirection) {
  const std::vector<float> x = ramp(100, 1);
  std::vector<std::unique_ptr<CudaExecutable>> stages;
  std::vector<CudaMemory> memory;
  for (int i = 0; i < 4; ++i) {
    stages.push_back(std::make_unique<CudaExecutable>(step(100), kernels(), device(), options()));
    for (int k = 0; k < 3; ++k) memory.push_back(put(x));
  }
  for (int i = 0; i < 10; ++i)
    for (size_t k = 0; k < 4; ++k)
      call(*stages[k], memory[3 * k].address(), memory[3 * k + 1].address(), memory[3 * k + 2].address(),
           1.0f);
  int64_t recordings = 0, replays = 0;
  for (const auto& s : stages) {
    recordings += s->graph_stats().recordings;
    replays += s->graph_stats().replays;
  }
  EXPECT_EQ(recordings, 4);
  EXPECT_EQ(replays, 4 * 9);
  EXPECT_EQ(get(memory[4]), plus(x, 10));
}

TEST_F(Graphs, WhatTheCallerHoldsIsNeverWrittenAgain) {
  CudaExecutable exe(step(200), kernels(), device(), options());
  const CudaMemory state = put(ramp(200, 0));
  std::vector<CudaMemory> in, out;
  for (int i = 0; i < 6; ++i) {
    in.push_back(put(ramp(200, static_cast<float>(i))));
    out.push_back(room(200));
    call(exe, in.back().address(), state.address(), out.back().address(), 0.5f);
  }
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(get(out[static_cast<size_t>(i)]), flipped(ramp(200, static_cast<float>(i)), 0.5f)) << i;
    EXPECT_EQ(get(in[static_cast<size_t>(i)]), ramp(200, static_cast<float>(i)));
  }
  EXPECT_EQ(get(state), plus(ramp(200, 0), 6));
  EXPECT_EQ(exe.graph_stats().recordings, 1);
  EXPECT_EQ(exe.graph_stats().bytes, 1024u + 256u + 2 * 1024u);
}

TEST_F(Graphs, TensorsThatBeginToMoveCostARecordingEach) {
  const std::vector<float> x = ramp(100, 1);
  CudaExecutable exe(step(100), kernels(), device(), options());
  std::vector<CudaMemory> in, states, out;
  for (int i = 0; i < 4; ++i) {
    in.push_back(put(plus(x, static_cast<float>(i))));
    states.push_back(put(x));
    out.push_back(room(100));
  }
  struct {
    size_t x, state, y;
    int64_t recordings;
  } const calls[] = {{0, 0, 0, 0}, {0, 0, 0, 1}, {0, 0, 0, 1}, {1, 0, 0, 2}, {2, 0, 0, 2},
                     {2, 1, 0, 3}, {0, 2, 1, 3}, {1, 0, 2, 3}, {3, 1, 3, 3}};
  std::vector<float> bumps(4);
  for (const auto& c : calls) {
    call(exe, in[c.x].address(), states[c.state].address(), out[c.y].address(), 2.0f);
    EXPECT_EQ(get(out[c.y]), flipped(plus(x, static_cast<float>(c.x)), 2.0f));
    EXPECT_EQ(get(states[c.state]), plus(x, ++bumps[c.state]));
    EXPECT_EQ(exe.graph_stats().recordings, c.recordings);
  }
}

TEST_F(Graphs, SmallOutputsMayMoveAtAnyTime) {
  CudaExecutable exe(step(16), kernels(), device(), options());
  const CudaMemory x = put(ramp(16, 1)), state = put(ramp(16, 1)), a = room(16), b = room(16);
  for (const CudaMemory* y : {&a, &a, &a, &b, &a, &b}) {
    device().fill(y->address(), 0, 64);
    call(exe, x.address(), state.address(), y->address(), 1.0f);
    EXPECT_EQ(get(*y), flipped(ramp(16, 1), 1.0f));
  }
  EXPECT_EQ(exe.graph_stats().recordings, 1);
}

TEST_F(Graphs, SizesHaveAGraphEach) {
  CudaOptions two = options();
  two.max_graphs = 2;
  CudaExecutable exe(step(Dim::symbol("N")), kernels(), device(), two);
  std::map<int64_t, std::vector<CudaMemory>> memory;
  for (const int64_t n : {64, 100, 64, 100, 64, 100, 7, 7, 64, 64}) {
    const std::vector<float> x = ramp(static_cast<size_t>(n), 1);
    auto& m = memory[n];
    if (m.empty())
      for (int k = 0; k < 3; ++k) m.push_back(put(x));
    call(exe, m[0].address(), m[1].address(), m[2].address(), 1.0f, {&n, 1});
    EXPECT_EQ(get(m[2]), flipped(x, 1.0f));
    EXPECT_LE(exe.graph_stats().graphs, 2u);
  }
  // 64 was the least recent when 7 came: forgotten, and begun anew.
  EXPECT_EQ(exe.graph_stats().recordings, 4);
  EXPECT_EQ(exe.graph_stats().plain_calls, 4);
  EXPECT_EQ(get(memory[64][1]), plus(ramp(64, 1), 5));
}

TEST_F(Graphs, PlansShareOneBlock) {
  const std::vector<float> x = ramp(100, 1);
  const CudaMemory mx = put(x), state = put(x), y = room(100);
  const size_t before = device().memory().in_use;
  std::vector<std::unique_ptr<CudaExecutable>> all;
  for (const int rooms : {40, 3, 20}) {
    all.push_back(std::make_unique<CudaExecutable>(step(100, rooms), kernels(), device(), options()));
    for (int i = 0; i < 3; ++i) {
      call(*all.back(), mx.address(), state.address(), y.address(), static_cast<float>(i));
      EXPECT_EQ(get(y), flipped(x, static_cast<float>(i)));
    }
  }
  for (const auto& exe : all) {  // and each again, after the others have used it
    call(*exe, mx.address(), state.address(), y.address(), 9.0f);
    EXPECT_EQ(get(y), flipped(x, 9.0f));
    EXPECT_EQ(exe->graph_stats().recordings, 1);
  }
  EXPECT_EQ(device().memory().in_use - before, all[0]->graph_stats().bytes);
  EXPECT_EQ(get(state), plus(x, 12));
  try {
    device().allocate(size_t{100} << 30, "outputs");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("CUDA graphs 0.0 MiB"));
    EXPECT_THAT(e.what(), HasSubstr(", 3 CUDA graphs 0.0 MiB (at most 8 of a program, and 1024.0 MiB but for "
                                    "programs with collectives) (hint:"));
  }
}

TEST_F(Graphs, APlanThatNeedsTooMuchRunsPlainlyAndSaysSoOnce) {
  const std::vector<float> x = ramp(100, 1);
  CudaExecutable exe(step(100), kernels(), device(), options(512));
  const CudaMemory mx = put(x), state = put(x), y = room(100);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) call(exe, mx.address(), state.address(), y.address(), 1.0f);
  EXPECT_EQ(
      ::testing::internal::GetCapturedStderr(),
      "kiln warning: cuda:0: a graph of step (train.cpp:5) would need 768 bytes beside others, more than "
      "the 512 allowed; it runs without\n");
  EXPECT_EQ(get(y), flipped(x, 1.0f));
  EXPECT_EQ(get(state), plus(x, 3));
  EXPECT_EQ(exe.graph_stats().recordings, 0);
  EXPECT_EQ(exe.graph_stats().plain_calls, 3);
}

TEST_F(Graphs, UnalignedTensorsMove) {
  const std::vector<float> x = ramp(103, 1);
  CudaExecutable exe(step(100), kernels(), device(), options());
  const CudaMemory mx = put(x), state = put(x), y = room(103);
  for (int i = 0; i < 4; ++i) call(exe, mx.address() + 4, state.address() + 12, y.address() + 8, 1.0f);
  EXPECT_EQ(get(y.address() + 8, 100), flipped({x.begin() + 1, x.begin() + 101}, 1.0f));
  std::vector<float> want = x;
  for (size_t i = 3; i < 103; ++i) want[i] += 4;
  EXPECT_EQ(get(state), want);
  EXPECT_EQ(exe.graph_stats().recordings, 1);
}

TEST_F(Graphs, GuardsAreLookedAtInEveryReplay) {
  PlanBuilder b;
  const int32_t state = b.external("state", 400);
  for (int i = 0; i < 2; ++i) b.plan.guards.push_back(b.output("guard", 8, DType::i64));
  for (int i = 0; i < 2; ++i)
    b.launch("guard", {b.scalar("s"), b.plan.guards[static_cast<size_t>(i)]}, 5 + i, i == 0);
  b.plan.guarded_from = 2;
  b.launch("bump", {state}, 100);
  CudaExecutable exe(b.plan, kernels(), device(), options());
  const CudaMemory ms = put(ramp(100, 1)), g0 = device().allocate(8, "test"),
                   g1 = device().allocate(8, "test");
  void* const externals[] = {ms.data()};
  void* const outputs[] = {g0.data(), g1.data()};
  float bumps = 0;
  for (int i = 0; i < 8; ++i) {
    const bool good = i % 3 != 2;
    const uint64_t scalars[] = {scalar(1), scalar(good ? 1.0f : 2.0f)};
    exe.run({.externals = externals, .outputs = outputs, .scalars = scalars, .symbols = {}});
    bumps += good ? 1 : 0;
    EXPECT_EQ(get(ms), plus(ramp(100, 1), bumps)) << i;
  }
  EXPECT_EQ(exe.graph_stats().recordings, 1);
}

TEST_F(Graphs, ThreadsReplayOneGraph) {
  CudaExecutable exe(step(100), kernels(), device(), options());
  std::vector<std::thread> threads;
  std::vector<int> good(4);
  for (size_t t = 0; t < good.size(); ++t)
    threads.emplace_back([&, t] {
      const std::vector<float> x = ramp(100, static_cast<float>(t));
      const CudaMemory mx = put(x), state = put(x), y = room(100);
      for (int i = 0; i < 6; ++i) {
        const float s = static_cast<float>(10 * t) + static_cast<float>(i);
        call(exe, mx.address(), state.address(), y.address(), s);
        good[t] += get(y) == flipped(x, s) && get(state) == plus(x, static_cast<float>(i + 1));
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_THAT(good, ::testing::Each(6));
  EXPECT_LE(exe.graph_stats().recordings, 4);
}

/// Their copies and launches take turns in the memory that they share.
TEST_F(Graphs, ThreadsReplayPlansThatShareABlock) {
  constexpr size_t kCalls = 1000;
  std::vector<std::thread> threads;
  std::vector<int> good(3);
  std::barrier begin(3);
  for (size_t t = 0; t < good.size(); ++t)
    threads.emplace_back([&, t] {
      CudaExecutable exe(step(100), kernels(), device(), options());
      const std::vector<float> x = ramp(100, static_cast<float>(t));
      const CudaMemory state = put(x);
      std::vector<CudaMemory> in, out;
      for (int i = 0; i < 100; ++i) {
        in.push_back(put(plus(x, static_cast<float>(i))));
        out.push_back(room(100));
      }
      begin.arrive_and_wait();
      for (size_t i = 0; i < kCalls; ++i) {  // without waiting: calls of all threads alternate
        call(exe, in[i % 100].address(), state.address(), out[i % 100].address(), static_cast<float>(t));
        std::this_thread::yield();
      }
      for (size_t i = 0; i < 100; ++i)
        good[t] += get(out[i]) == flipped(plus(x, static_cast<float>(i)), static_cast<float>(t));
    });
  for (std::thread& t : threads) t.join();
  EXPECT_THAT(good, ::testing::Each(100));
}

TEST_F(Graphs, AReplayThatOverwritesWhatSomebodyHoldsIsFound) {
  CudaExecutable exe(step(100), kernels(), device(), options());
  const CudaMemory x = put(ramp(100, 1)), state = put(ramp(100, 1)), y = room(100);
  const auto replay = [&] { call(exe, x.address(), state.address(), y.address(), 2); };
  for (int i = 0; i < 4; ++i) replay();
  {
    const CudaHold held = device().hold(y.address(), y.bytes());
    const CudaMemory other = room(100);
    call(exe, x.address(), state.address(), other.address(), 2);
    EXPECT_EQ(get(y), get(other));
  }
  replay();  // nobody has it any more
  EXPECT_EQ(get(y), flipped(ramp(100, 1), 2));
  const CudaHold held = device().hold(y.address(), y.bytes());
  try {
    replay();
    device().synchronize();
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("overwritten output: "));
  }
}

TEST_F(Graphs, AFailureInAReplayNamesTheGraph) {
  CudaExecutable exe(step(100), kernels(), device(), options());
  const CudaMemory x = put(ramp(100, 1)), state = put(ramp(100, 1)), y = room(100);
  for (int i = 0; i < 3; ++i) call(exe, x.address(), state.address(), y.address(), 1.0f);
  device().synchronize();
  cuda::sim::fail_launch(2);
  std::string what;
  try {
    call(exe, x.address(), state.address(), y.address(), 1.0f);
    device().synchronize();
  } catch (const Error& e) {
    what = e.what();
  }
  EXPECT_THAT(what, HasSubstr("planned failure of a launch: kernel '"));
  EXPECT_THAT(what, HasSubstr("last launches, the latest first: graph of step (train.cpp:5) [3 launches, the "
                              "latest first: flip_row, bump_row, add_scalar_row], graph of step"));
}

/// As a GPU has it: nothing but an error, after all calls have returned.
TEST_F(Graphs, AFailureInAReplayNamesItsKernelsAndLinesByItself) {
  cuda::Driver silent = cuda::simulated_driver();
  silent.fault = [] { return std::string(); };
  CudaDevice gpu(silent, 0);
  const CudaMemory state = put(ramp(100, 1));
  device().synchronize();
  PlanBuilder b;
  const int32_t s = b.external("state", 400);
  CudaOptions lines = options();
  for (int i = 0; i < 40; ++i) {
    b.launch("bump", {s}, 100);
    lines.places.push_back(fmt::format("net.cpp:{}", 100 + i / 2));
  }
  lines.places.back() = "net.cpp:7 net.cpp:8";
  CudaExecutable exe(b.plan, kernels(), gpu, lines);
  void* const externals[] = {state.data()};
  const auto run = [&] { exe.run({.externals = externals, .outputs = {}, .scalars = {}, .symbols = {}}); };
  for (int i = 0; i < 3; ++i) run();
  gpu.synchronize();
  cuda::sim::fail_launch(5);
  std::string what;
  try {
    run();
    gpu.synchronize();
  } catch (const Error& e) {
    what = e.what();
  }
  EXPECT_THAT(what, ::testing::Not(HasSubstr("planned failure")));
  EXPECT_THAT(what,
              HasSubstr("; last launches, the latest first: graph of step (train.cpp:5) [40 launches, the "
                        "latest first: bump_row (net.cpp:7 net.cpp:8), bump_row (net.cpp:119), bump_row "
                        "(net.cpp:118), "));
  EXPECT_THAT(what, HasSubstr(", bump_row (net.cpp:105) and 10 before them], graph of step (train.cpp:5), "
                              "graph of step (train.cpp:5), bump_row (net.cpp:7 net.cpp:8), bump_row "
                              "(net.cpp:119), bump_row (net.cpp:118), "));
  EXPECT_THROW(device().synchronize(), Error);  // it is one device
}

TEST_F(Graphs, OthersMayWaitForTheDeviceWhileAThreadRecords) {
  const CudaMemory a = room(10);
  device().begin_recording("step");
  device().fill(a.address(), 0xFF, 40);
  std::thread([&] {
    const CudaMemory b = put(ramp(10, 1));
    device().synchronize();
    device().copy_on_device(a.address(), b.address(), 40);
    EXPECT_EQ(get(a), ramp(10, 1));
  }).join();
  CudaGraph graph(device(), device().end_recording(), "step");
  EXPECT_EQ(get(a), ramp(10, 1)) << "nothing of it has run";
  graph.launch();
  EXPECT_TRUE(std::isnan(get(a)[3]));
}

TEST_F(Graphs, WhatCannotBeRecordedIsNamed) {
  const CudaMemory a = room(10);
  const auto error = [](const auto& f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "none";
  };
  device().begin_recording("step");
  float value = 0;
  EXPECT_EQ(
      error([&] { device().copy_to_device(a.address(), &value, 4); }),
      "cuda:0: while a graph of step was recorded: copy_to_device of 4 bytes: a copy from memory of the "
      "host that may change cannot be recorded");
  EXPECT_THAT(error([&] { device().synchronize(device().compute()); }),
              HasSubstr("cuda:0: while a graph of step was recorded: cuStreamSynchronize: "));
  EXPECT_THAT(error([&] { device().end_recording(); }),
              HasSubstr("cuStreamEndCapture of the graph of step: "));
  device().fill(a.address(), 0, 40);
  EXPECT_EQ(get(a), std::vector<float>(10));
}

}  // namespace KILN_FILE
}  // namespace kiln
