// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/executor.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "ir/base/options.h"
#include "runtime/profiler.h"
#include "tests/runtime/cuda/sim_kernels.h"
#include "tests/runtime/doubling_group.h"

namespace kiln {
namespace KILN_FILE {

using ::testing::HasSubstr;
using testing::kernels;
using testing::PlanBuilder;

class CudaExecutor : public testing::OnSimulatedDevice {};

/// ((x + s) flipped twice, through the arena) + table; and x + 1 in place beside it.
Plan chain(const Dim& n, const std::vector<float>& table = {}) {
  PlanBuilder b;
  if (!n.is_const()) b.plan.symbols = {"N"};
  const int32_t x = b.external("x", n * 4), state = b.external("state", n * 4), s = b.scalar("s");
  const int32_t t0 = b.arena("%0", n * 4), t1 = b.arena("%1", n * 4), y = b.output("y", n * 4);
  b.launch("add_scalar", {x, s, t0}, n);
  b.launch("bump", {state}, n, false);
  b.launch("flip", {t0, t1}, n);
  if (table.empty()) {
    b.launch("flip", {t1, y}, n);
  } else {
    b.launch("flip", {t1, t0}, n);
    b.launch("add", {t0, b.constant("table", table), y}, n);
  }
  return b.plan;
}

std::vector<float> expected(const std::vector<float>& x, float s, const std::vector<float>& table = {}) {
  std::vector<float> out;
  for (size_t i = 0; i < x.size(); ++i)
    out.push_back((x[i] + s) * 1.5f * 1.5f + (table.empty() ? 0.0f : table[i]));
  return out;
}
std::vector<float> plus(std::vector<float> x, float by) {
  for (float& v : x) v += by;
  return x;
}

TEST_F(CudaExecutor, RunsAPlanWithoutWaiting) {
  const std::vector<float> x = ramp(200, 0.25f), table = ramp(200, 7.0f);
  CudaExecutable exe(chain(200, table), kernels(), device());
  const CudaMemory mx = put(x), state = put(x), y = room(200);
  void* const externals[] = {mx.data(), state.data()};
  void* const outputs[] = {y.data()};
  const uint64_t s[] = {scalar(2.0f)};
  device().synchronize();
  exe.run({.externals = externals, .outputs = outputs, .scalars = s, .symbols = {}});
  EXPECT_GT(cuda::sim::pending_work(0), 0u);
  EXPECT_EQ(get(y), expected(x, 2.0f, table));
  EXPECT_EQ(get(state), plus(x, 1.0f));
  EXPECT_EQ(get(mx), x);
  const uint64_t t[] = {scalar(-1.0f)};
  exe.run({.externals = externals, .outputs = outputs, .scalars = t, .symbols = {}});
  EXPECT_EQ(get(y), expected(x, -1.0f, table));
  EXPECT_EQ(get(state), plus(x, 2.0f));
}

TEST_F(CudaExecutor, SizesAreEvaluatedAtEveryCall) {
  CudaExecutable exe(chain(Dim::symbol("N")), kernels(), device());
  for (const int64_t n : {1, 64, 65, 1000, 0}) {
    const std::vector<float> x = ramp(static_cast<size_t>(n), 1.0f);
    const CudaMemory mx = put(x), state = put(x), y = room(x.size());
    void* const externals[] = {mx.data(), state.data()};
    void* const outputs[] = {y.data()};
    const uint64_t s[] = {scalar(3.0f)};
    exe.run({.externals = externals, .outputs = outputs, .scalars = s, .symbols = {&n, 1}});
    EXPECT_EQ(get(y), expected(x, 3.0f));
    EXPECT_EQ(get(state), plus(x, 1.0f));
  }
  EXPECT_EQ(exe.arena_bytes(std::vector<int64_t>{100}), 2 * 448);
}

/// Pointers that kernels cannot take as they are.
TEST_F(CudaExecutor, TensorsThatLieUnalignedAreCopied) {
  const std::vector<float> x = ramp(103, 0.25f);
  CudaExecutable exe(chain(100), kernels(), device());
  const CudaMemory mx = put(x), state = put(x), y = put(x);
  const auto at = [](const CudaMemory& m, size_t floats) {
    return reinterpret_cast<void*>(m.address() + 4 * floats);
  };
  void* const externals[] = {at(mx, 1), at(state, 3)};
  void* const outputs[] = {at(y, 2)};
  const uint64_t s[] = {scalar(1.0f)};
  exe.run({.externals = externals, .outputs = outputs, .scalars = s, .symbols = {}});
  std::vector<float> want = x;
  const std::vector<float> inner = expected({x.begin() + 1, x.begin() + 101}, 1.0f);
  std::copy(inner.begin(), inner.end(), want.begin() + 2);
  EXPECT_EQ(get(y), want);
  want = x;
  std::for_each(want.begin() + 3, want.end(), [](float& v) { v += 1; });
  EXPECT_EQ(get(state), want);
  EXPECT_EQ(get(mx), x);
}

/// Many small launches between two barriers: the simulated device finds any that are not ordered.
TEST_F(CudaExecutor, IndependentLaunchesGoSideBySide) {
  PlanBuilder b;
  const int32_t x = b.external("x", 400), s = b.scalar("s");
  std::vector<int32_t> parts;
  for (int i = 0; i < 7; ++i) parts.push_back(b.arena("part", 400));
  for (int i = 0; i < 7; ++i) b.launch("add_scalar", {x, s, parts[static_cast<size_t>(i)]}, 100, i == 0);
  for (int i = 1; i < 7; ++i) {
    const int32_t sum = b.arena("sum", 400);
    b.launch("add", {parts[0], parts[static_cast<size_t>(i)], sum}, 100);
    parts[0] = sum;
  }
  const int32_t y = b.output("y", 400);
  b.launch("copy", {parts[0], y}, 400, true, true);
  CudaExecutable exe(b.plan, kernels(), device());
  const std::vector<float> in = ramp(100, 1.0f);
  const CudaMemory mx = put(in), my = room(100);
  void* const externals[] = {mx.data()};
  void* const outputs[] = {my.data()};
  const uint64_t scalars[] = {scalar(0.5f)};
  for (int round = 0; round < 3; ++round)
    exe.run({.externals = externals, .outputs = outputs, .scalars = scalars, .symbols = {}});
  std::vector<float> want(in.size());
  for (size_t i = 0; i < in.size(); ++i) want[i] = 7 * (in[i] + 0.5f);
  EXPECT_EQ(get(my), want);
}

TEST_F(CudaExecutor, SharedMemoryBeyondTheUsualIsAskedFor) {
  PlanBuilder b;
  const int32_t x = b.external("x", 256), y = b.output("y", 256);
  constexpr int64_t kShared = 200 << 10;
  Launch& l = b.launch("through_shared", {x, y}, kShared);
  l.tasks = b.dim(1);
  l.scratch_bytes = b.dim(kShared);
  CudaExecutable exe(b.plan, kernels(), device());
  std::vector<float> in = ramp(64, 1.0f);
  const CudaMemory mx = put(in), my = room(64);
  void* const externals[] = {mx.data()};
  void* const outputs[] = {my.data()};
  const Invocation call{.externals = externals, .outputs = outputs, .scalars = {}, .symbols = {}};
  exe.run(call);
  std::rotate(in.begin(), in.begin() + 1, in.end());
  EXPECT_EQ(get(my), in);

  b.plan.launches[0].scratch_bytes = b.dim(300 << 10);
  CudaExecutable more(b.plan, kernels(), device());
  try {
    more.run(call);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::device);
    EXPECT_THAT(e.what(), HasSubstr("cuda:0: kernel through_shared needs 307200 bytes of shared memory for a "
                                    "block; "));
  }
}

Plan guarded(int guards) {
  PlanBuilder b;
  const int32_t state = b.external("state", 400), from = b.external("from", 400);
  for (int i = 0; i < guards; ++i) b.plan.guards.push_back(b.output("guard", 8, DType::i64));
  for (int i = 0; i < guards; ++i)
    b.launch("guard", {b.scalar("s"), b.plan.guards[static_cast<size_t>(i)]}, 5 + i, i == 0);
  b.plan.guarded_from = guards;
  b.launch("bump", {state}, 100);
  const int32_t copied = b.external("copied", 403), zeroed = b.external("zeroed", 403);
  b.launch("copy", {from, copied}, 397, false, true);
  b.launch("fill_zero", {zeroed}, 397, false, true);
  return b.plan;
}

TEST_F(CudaExecutor, GuardsKeepTheRestFromRunning) {
  const std::vector<float> x = ramp(101, 1.0f);
  for (const int guards : {1, 2, 15, 16, 40}) {
    CudaExecutable exe(guarded(guards), kernels(), device());
    for (const int bad : {-1, 0, guards - 1}) {
      const CudaMemory state = put(x), from = put(plus(x, 9)), copied = put(x), zeroed = put(x);
      void* const externals[] = {state.data(), from.data(), copied.data(), zeroed.data()};
      std::vector<CudaMemory> words;
      std::vector<void*> outputs;
      std::vector<uint64_t> scalars(static_cast<size_t>(guards), scalar(1.0f));
      for (int i = 0; i < guards; ++i) words.push_back(device().allocate(8, "test"));
      for (const CudaMemory& w : words) outputs.push_back(w.data());
      if (bad >= 0) scalars[static_cast<size_t>(bad)] = scalar(2.0f);
      exe.run({.externals = externals, .outputs = outputs, .scalars = scalars, .symbols = {}});
      for (int i = 0; i < guards; ++i) {
        int64_t held = 0;
        device().copy_to_host(&held, words[static_cast<size_t>(i)].address(), 8);
        EXPECT_EQ(held, i == bad ? 5 + i : kNothingWrong);
      }
      std::vector<float> want = plus(x, 1);
      want.back() = x.back();
      EXPECT_EQ(get(state), bad < 0 ? want : x) << guards << " " << bad;
      want = plus(x, 9);
      // 397 bytes: one of the last number's four.
      EXPECT_EQ(bad < 0, get(copied)[98] == want[98] && get(copied)[100] == x[100]);
      EXPECT_EQ(get(zeroed)[98], bad < 0 ? 0.0f : x[98]);
      EXPECT_EQ(get(zeroed)[100], x[100]);
    }
  }
}

TEST_F(CudaExecutor, PoisonFillsArenaAndOutputs) {
  set_option("KILN_POISON", "1");
  PlanBuilder b;
  const int32_t t = b.arena("%0", 400), y = b.output("y", 400), z = b.output("z", 400);
  b.launch("copy", {t, y}, 400, true, true);
  (void)z;
  CudaExecutable exe(b.plan, kernels(), device());
  set_option("KILN_POISON", "");
  const CudaMemory my = put(ramp(100, 1)), mz = put(ramp(100, 1));
  void* const outputs[] = {my.data(), mz.data()};
  exe.run({.externals = {}, .outputs = outputs, .scalars = {}, .symbols = {}});
  for (const float v : get(my)) EXPECT_TRUE(std::isnan(v));
  for (const float v : get(mz)) EXPECT_TRUE(std::isnan(v));
}

TEST_F(CudaExecutor, ErrorsNameWhatIsMissing) {
  const std::vector<float> x = ramp(100, 1);
  CudaExecutable exe(chain(100), kernels(), device());
  const CudaMemory mx = put(x), y = room(100);
  void* const externals[] = {mx.data(), nullptr};
  void* const outputs[] = {y.data()};
  const uint64_t s[] = {scalar(1.0f)};
  const auto error = [](const auto& f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return std::string(to_string(e.kind())) + ": " + e.what();
    }
    return "none";
  };
  EXPECT_EQ(
      error([&] { exe.run({.externals = externals, .outputs = outputs, .scalars = s, .symbols = {}}); }),
      "invalid: executor: no memory given for state; expected 400 bytes");
  EXPECT_EQ(error([&] { exe.run({.externals = externals, .outputs = {}, .scalars = s, .symbols = {}}); }),
            "invalid: executor: number of outputs differs; got 0, expected 1");
  Plan unknown = chain(100);
  unknown.kernels[0].symbol = "other";
  EXPECT_THAT(error([&] { CudaExecutable(unknown, kernels(), device()); }),
              HasSubstr("no kernel named other"));
  unknown = chain(100);
  unknown.launches[0].dims.clear();
  EXPECT_THAT(error([&] { CudaExecutable(unknown, kernels(), device()); }),
              HasSubstr("launch 0 of add_scalar with 3 buffers and 0 dims; the kernel takes 3 and 1"));
}

TEST_F(CudaExecutor, AKernelThatWritesBehindItsBufferIsNamed) {
  PlanBuilder b;
  const int32_t x = b.external("x", 400);
  b.launch("overrun", {x}, 100);
  CudaExecutable exe(b.plan, kernels(), device(), {.name = "step", .places = {"net.cpp:12"}});
  const CudaMemory mx = room(200);
  void* const externals[] = {mx.data()};
  std::string what;
  try {
    exe.run({.externals = externals, .outputs = {}, .scalars = {}, .symbols = {}});
    device().synchronize();
  } catch (const Error& e) {
    what = e.what();
  }
  EXPECT_THAT(what, HasSubstr("overrun"));
  EXPECT_THAT(what, HasSubstr("last launches, the latest first: overrun_row (net.cpp:12)"));
  EXPECT_TRUE(device().failure());
}

TEST_F(CudaExecutor, OutOfMemoryNamesTheLargestBuffers) {
  PlanBuilder b;
  const int32_t big = b.arena("%7", int64_t{90} << 30);
  b.launch("bump", {big}, 100);
  CudaExecutable exe(b.plan, kernels(), device(), {.name = "step (train.cpp:3)"});
  const CudaMemory held = device().allocate(1 << 20, "parameters");
  try {
    exe.run({.externals = {}, .outputs = {}, .scalars = {}, .symbols = {}});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::device);
    EXPECT_THAT(e.what(),
                HasSubstr("out of memory; asked for 92160.0 MiB for arena of step (train.cpp:3) (%7 "
                          "(92160.0 MiB)), got "));
    EXPECT_THAT(e.what(), HasSubstr("with 1.0 MiB in use: parameters 1.0 MiB"));
  }
}

TEST_F(CudaExecutor, DevicesDoNotMixUp) {
  CudaDevice other(cuda::simulated_driver(), 1);
  const std::vector<float> x = ramp(200, 0.25f);
  struct Place {
    CudaExecutable exe;
    CudaMemory x, state, y;
  };
  std::vector<std::unique_ptr<Place>> places;
  for (CudaDevice* d : {&device(), &other}) {
    places.push_back(std::unique_ptr<Place>(new Place{{chain(200), kernels(), *d, {.graphs = true}},
                                                      d->allocate(800, "test"),
                                                      d->allocate(800, "test"),
                                                      d->allocate(800, "test")}));
    for (const CudaMemory* m : {&places.back()->x, &places.back()->state})
      d->copy_to_device(m->address(), x.data(), 800);
  }
  for (int i = 0; i < 4; ++i)
    for (const auto& p : places) {
      void* const externals[] = {p->x.data(), p->state.data()};
      void* const outputs[] = {p->y.data()};
      const uint64_t s[] = {scalar(static_cast<float>(i))};
      p->exe.run({.externals = externals, .outputs = outputs, .scalars = s, .symbols = {}});
    }
  for (const auto& p : places) {
    std::vector<float> y(200), state(200);
    p->exe.device().copy_to_host(y.data(), p->y.address(), 800);
    p->exe.device().copy_to_host(state.data(), p->state.address(), 800);
    EXPECT_EQ(y, expected(x, 3.0f));
    EXPECT_EQ(state, plus(x, 4));
  }
}

TEST_F(CudaExecutor, ManyThreadsCallOnePlan) {
  const std::vector<float> table = ramp(300, 7.0f);
  CudaExecutable exe(chain(300, table), kernels(), device());
  std::vector<std::thread> threads;
  std::vector<int> good(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const std::vector<float> x = ramp(300, static_cast<float>(t));
      const CudaMemory mx = put(x), state = put(x), y = room(300);
      void* const externals[] = {mx.data(), state.data()};
      void* const outputs[] = {y.data()};
      for (int i = 0; i < 5; ++i) {
        const uint64_t s[] = {scalar(static_cast<float>(10 * t + i))};
        exe.run({.externals = externals, .outputs = outputs, .scalars = s, .symbols = {}});
        good[static_cast<size_t>(t)] += get(y) == expected(x, static_cast<float>(10 * t + i), table);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_THAT(good, ::testing::Each(5));
}

/// bump(x), its sum over ranks, and that twice more; behind a guard, if there is one.
Plan reduced(bool guarded) {
  PlanBuilder b;
  const int32_t x = b.external("x", 400), y = b.output("y", 400);
  if (guarded) {
    b.plan.guards = {b.output("guard", 8, DType::i64)};
    b.launch("guard", {b.scalar("s"), b.plan.guards[0]}, 5);
    b.plan.guarded_from = 1;
  }
  b.launch("bump", {x}, 100);
  b.plan.collectives.push_back({"all_reduce", DType::f32, 0, x, b.dim(100), {}, -1});
  const auto communicate = [&](LaunchKind kind) {
    Launch l;
    l.kind = kind;
    l.kernel = 0;
    l.buffers = {x};
    l.profile = static_cast<int32_t>(b.plan.profile.size());
    b.plan.profile.push_back(
        {kind == LaunchKind::start ? "start all_reduce" : "wait all_reduce", "", -1, -1, {}});
    b.plan.launches.push_back(std::move(l));
  };
  communicate(LaunchKind::start);
  communicate(LaunchKind::wait);
  b.launch("flip", {x, y}, 100);
  return b.plan;
}

TEST_F(CudaExecutor, SumsOverRanksGoThroughTheHostOfAHostGroup) {
  const std::vector<float> x = ramp(100, 1);
  for (const bool guarded : {false, true}) {
    testing::DoublingGroup group;
    ProcessGroup* const groups[] = {&group};
    CudaExecutable exe(reduced(guarded), kernels(), device(), {.graphs = true});
    int announced = 0;
    const std::function<void(bool)> announce = [&](bool) { ++announced; };
    for (const bool good : {true, true, false, true}) {
      const CudaMemory mx = put(x), y = room(100), guard = device().allocate(8, "test");
      void* const externals[] = {mx.data()};
      std::vector<void*> outputs{y.data()};
      if (guarded) outputs.push_back(guard.data());
      const uint64_t s[] = {scalar(good ? 1.0f : 2.0f)};
      const int before = announced;
      Profiler profiler;
      exe.run({.externals = externals,
               .outputs = outputs,
               .scalars = std::span(s).first(guarded ? 1 : 0),
               .symbols = {},
               .profiler = before == 1 ? &profiler : nullptr,
               .groups = groups,
               .announce = &announce});
      const bool runs = good || !guarded;
      EXPECT_EQ(announced - before, runs ? 1 : 0);
      std::vector<float> want = x;
      for (float& v : want) v = runs ? 2 * (v + 1) : v;
      EXPECT_EQ(get(mx), want);
      std::reverse(want.begin(), want.end());
      for (float& v : want) v *= 1.5f;
      if (runs) {
        EXPECT_EQ(get(y), want);
      }
    }
    EXPECT_EQ(group.waited, guarded ? 3 : 4);
    EXPECT_EQ(exe.graph_stats().recordings, 0);
  }
}

TEST_F(CudaExecutor, ASumThatFailsEndsTheCall) {
  testing::DoublingGroup group;
  group.fail_at = 0;
  ProcessGroup* const groups[] = {&group};
  CudaExecutable exe(reduced(false), kernels(), device());
  const CudaMemory mx = put(ramp(100, 1)), y = room(100);
  void* const externals[] = {mx.data()};
  void* const outputs[] = {y.data()};
  const Invocation call{
      .externals = externals, .outputs = outputs, .scalars = {}, .symbols = {}, .groups = groups};
  EXPECT_THROW(exe.run(call), Error);
  exe.run(call);
  std::vector<float> want = ramp(100, 1);
  for (float& v : want) v = 2 * (v + 2);
  EXPECT_EQ(get(mx), want);
}

TEST_F(CudaExecutor, ATraceHasEveryLaunch) {
  const std::vector<float> x = ramp(100, 1);
  testing::DoublingGroup group;
  ProcessGroup* const groups[] = {&group};
  CudaExecutable exe(reduced(false), kernels(), device());
  const CudaMemory mx = put(x), y = room(100);
  void* const externals[] = {mx.data()};
  void* const outputs[] = {y.data()};
  const std::string prefix = ::testing::TempDir() + "/kiln_cuda_trace";
  Timeline timeline(prefix);
  exe.run({.externals = externals,
           .outputs = outputs,
           .scalars = {},
           .symbols = {},
           .timeline = &timeline,
           .name = "step (train.cpp:5)",
           .number = 7,
           .groups = groups});
  std::stringstream text;
  text << std::ifstream(fmt::format("{}.{}.json", prefix, getpid())).rdbuf();
  for (const char* name :
       {"bump_row", "start all_reduce", "wait all_reduce", "flip_row", "step (train.cpp:5)", "all_reduce 0"})
    EXPECT_THAT(text.str(), HasSubstr(fmt::format("\"name\":\"{}\"", name)));
  EXPECT_THAT(text.str(), HasSubstr("\"call\":7"));
}

TEST_F(CudaExecutor, TheProfilerSeesEveryLaunch) {
  const std::vector<float> x = ramp(200, 0.25f);
  CudaExecutable exe(chain(200), kernels(), device());
  const CudaMemory mx = put(x), state = put(x), y = room(200);
  void* const externals[] = {mx.data(), state.data()};
  void* const outputs[] = {y.data()};
  const uint64_t s[] = {scalar(2.0f)};
  Profiler profiler;
  for (int i = 0; i < 2; ++i)
    exe.run({.externals = externals, .outputs = outputs, .scalars = s, .symbols = {}, .profiler = &profiler});
  EXPECT_EQ(profiler.calls(), 2);
  std::map<std::string, int64_t> launches;
  for (const ProfileEntry& e : profiler.entries()) launches[e.name] += e.launches;
  EXPECT_EQ(launches,
            (std::map<std::string, int64_t>{{"add_scalar_row", 2}, {"bump_row", 2}, {"flip_row", 4}}));
  EXPECT_EQ(get(y), expected(x, 2.0f));
}

}  // namespace KILN_FILE
}  // namespace kiln
