// SPDX-License-Identifier: Apache-2.0
#include "runtime/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "ir/base/error.h"
#include "ir/base/options.h"
#include "runtime/arena.h"
#include "runtime/profiler.h"

namespace kiln {
namespace KILN_FILE {

// Kernels by hand: each task is a chunk of kChunk elements; dims = {n}.
constexpr int64_t kChunk = 100;

std::pair<int64_t, int64_t> range(int64_t n, int64_t begin, int64_t end) {
  return {begin * kChunk, std::min(n, end * kChunk)};
}
/// out = in + scalar
void add_scalar(void* const* b, const int64_t* dims, int64_t begin, int64_t end, void*) {
  const auto [from, to] = range(dims[0], begin, end);
  float s;
  std::memcpy(&s, b[1], sizeof s);
  for (int64_t i = from; i < to; ++i) static_cast<float*>(b[2])[i] = static_cast<const float*>(b[0])[i] + s;
}
/// out[i] = in[n-1-i] * 1.5: reads what other threads wrote
void flip(void* const* b, const int64_t* dims, int64_t begin, int64_t end, void*) {
  const auto [from, to] = range(dims[0], begin, end);
  for (int64_t i = from; i < to; ++i)
    static_cast<float*>(b[1])[i] = static_cast<const float*>(b[0])[dims[0] - 1 - i] * 1.5f;
}
/// partial[task] = sum of a chunk, through scratch
void chunk_sums(void* const* b, const int64_t* dims, int64_t begin, int64_t end, void* scratch) {
  EXPECT_EQ(reinterpret_cast<uintptr_t>(scratch) % 64, 0u);
  auto* tmp = static_cast<float*>(scratch);
  for (int64_t t = begin; t < end; ++t) {
    const auto [from, to] = range(dims[0], t, t + 1);
    std::memcpy(tmp, static_cast<const float*>(b[0]) + from, sizeof(float) * static_cast<size_t>(to - from));
    float sum = 0;
    for (int64_t i = 0; i < to - from; ++i) sum += std::sqrt(tmp[i]);
    static_cast<float*>(b[1])[t] = sum;
  }
}
/// out = sum of the partials, in order
void combine(void* const* b, const int64_t* dims, int64_t, int64_t, void*) {
  float sum = 0;
  for (int64_t t = 0; t < (dims[0] + kChunk - 1) / kChunk; ++t) sum += static_cast<const float*>(b[0])[t];
  *static_cast<float*>(b[1]) = sum;
}
/// x += 1
void bump(void* const* b, const int64_t* dims, int64_t begin, int64_t end, void*) {
  const auto [from, to] = range(dims[0], begin, end);
  for (int64_t i = from; i < to; ++i) static_cast<float*>(b[0])[i] += 1;
}
void nothing(void* const*, const int64_t*, int64_t, int64_t, void*) {}
void overrun(void* const* b, const int64_t* dims, int64_t, int64_t, void*) {
  static_cast<char*>(b[0])[dims[0]] = 1;
}

/// guard = n, unless the scalar is 1
void guard(void* const* b, const int64_t* dims, int64_t, int64_t, void*) {
  float s;
  std::memcpy(&s, b[0], sizeof s);
  *static_cast<int64_t*>(b[1]) = s == 1 ? kNothingWrong : dims[0];
}

KernelFn resolve(const PlanKernel& k) {
  const std::pair<const char*, KernelFn> all[] = {
      {"add_scalar", add_scalar}, {"flip", flip},  {"chunk_sums", chunk_sums},
      {"combine", combine},       {"bump", bump},  {"nothing", nothing},
      {"overrun", overrun},       {"guard", guard}};
  for (const auto& [name, fn] : all)
    if (k.symbol == name) return fn;
  return nullptr;
}

/// (x + s) flipped `rounds` times between two arena buffers; outputs it and the sum of its roots.
Plan chain(const Dim& n, int rounds) {
  Plan p;
  if (!n.is_const()) p.symbols = {"N"};
  const auto dim = [&](const Dim& d) {
    p.dims.push_back(d);
    return static_cast<DimIndex>(p.dims.size() - 1);
  };
  const DimIndex count = dim(n), bytes = dim(n * 4), tasks = dim(ceildiv(n, Dim(kChunk))), zero = dim(0),
                 one = dim(1);
  const Dim room = ceildiv(n * 4, Dim(64)) * 64;
  const DimIndex second = dim(room), third = dim(room * 2), part_bytes = dim(ceildiv(n, Dim(kChunk)) * 4);
  const DimIndex work = dim(n * 100'000), scratch = dim(kChunk * 4);  // much work: split however small n is
  p.arena_bytes = dim(room * 3);
  p.external_count = p.scalar_count = 1;
  p.output_count = 2;
  p.buffers = {{BufferKind::external, DType::f32, 0, bytes, -1, "x"},
               {BufferKind::scalar, DType::f32, 0, -1, -1, "s"},
               {BufferKind::arena, DType::f32, -1, bytes, zero, "%1"},
               {BufferKind::arena, DType::f32, -1, bytes, second, "%2"},
               {BufferKind::arena, DType::f32, -1, part_bytes, third, "%3"},
               {BufferKind::output, DType::f32, 0, bytes, -1, "y"},
               {BufferKind::output, DType::f32, 1, one, -1, "sum"}};
  p.kernels = {{false, "add_scalar"}, {false, "flip"}, {false, "chunk_sums"}, {false, "combine"}};
  p.profile = {{"add", "add", bytes, work, {3}},
               {"flip", "mul", bytes, work, {4}},
               {"sum", "sqrt sum", bytes, work, {5}}};
  p.launches.push_back({0, {0, 1, 2}, {count}, tasks, -1, true, 0});
  for (int r = 0; r < rounds; ++r)
    p.launches.push_back({1, {r % 2 ? 3 : 2, r % 2 ? 2 : 3}, {count}, tasks, -1, true, 1});
  const int32_t last = rounds % 2 ? 3 : 2;
  p.launches.push_back({1, {last, 5}, {count}, tasks, -1, true, 1});
  p.launches.push_back({2, {last, 4}, {count}, tasks, scratch, false, 2});
  p.launches.push_back({3, {4, 6}, {count}, one, -1, true, -1});
  return p;
}

struct Result {
  std::vector<float> y;
  float sum = -1;
  bool operator==(const Result&) const = default;
};

Result run(const Executable& exe, int64_t n, int threads, bool symbolic = false,
           Profiler* profiler = nullptr) {
  std::vector<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.25f + 1e-3f * static_cast<float>(i % 997);
  Result r{std::vector<float>(x.size(), -7.0f), -1.0f};
  void* const externals[] = {x.data()};
  void* const outputs[] = {r.y.data(), &r.sum};
  uint64_t s = 0;
  const float value = 0.5f;
  std::memcpy(&s, &value, sizeof value);
  const int64_t symbols[] = {n};
  Invocation call{.externals = externals,
                  .outputs = outputs,
                  .scalars = {&s, 1},
                  .symbols = {},
                  .threads = threads,
                  .profiler = profiler};
  if (symbolic) call.symbols = symbols;
  exe.run(call);
  return r;
}

TEST(Executor, SameBitsForAnyNumberOfThreads) {
  for (const int64_t n : {1, 99, 100, 101, 777, 5000}) {
    const Executable exe(chain(n, 5), resolve);
    const Result expected = run(exe, n, 1);
    ASSERT_GT(expected.sum, 0.0f);
    ASSERT_NE(expected.y.back(), -7.0f);
    for (int threads = 2; threads <= 8; ++threads)
      EXPECT_EQ(run(exe, n, threads), expected) << n << " " << threads;
    EXPECT_EQ(run(exe, n, 0), expected);
  }
}

TEST(Executor, ComputesThePlan) {
  const Executable exe(chain(3, 1), resolve);
  const Result r = run(exe, 3, 2);
  EXPECT_THAT(r.y, ::testing::ElementsAre(::testing::FloatEq(1.6875f), ::testing::FloatEq(1.68975f),
                                          ::testing::FloatEq(1.692f)));
}

/// Every task of every part is some thread's, and no other's, wherever the threads cut.
TEST(Executor, PartsOfALaunchAreDoneOnce) {
  const std::vector<int64_t> sizes = {1000, 0, 50, 1, 730, 100, 101, 3};
  Plan p;
  const auto dim = [&](int64_t d) {
    p.dims.push_back(d);
    return static_cast<DimIndex>(p.dims.size() - 1);
  };
  p.kernels = {{false, "bump"}};
  p.profile = {{"bump", "add", dim(1), dim(100'000'000), {}}};
  Launch l{0, {}, {}, -1, -1, true, 0};
  int64_t all = 0;
  for (const int64_t n : sizes) {
    const int64_t tasks = (n + kChunk - 1) / kChunk;
    all += tasks;
    l.buffers.push_back(static_cast<int32_t>(p.buffers.size()));
    l.writes.push_back(l.buffers.back());
    l.dims.push_back(dim(n));
    l.parts.push_back({dim(tasks), l.dims.back()});
    p.buffers.push_back({BufferKind::external, DType::f32, p.external_count++, dim(4 * n), -1, "x"});
  }
  l.tasks = dim(all);
  p.launches = {l};
  const Executable exe(p, resolve);
  std::vector<std::vector<float>> x;
  for (const int64_t n : sizes) x.emplace_back(static_cast<size_t>(n), 0.0f);
  std::vector<void*> externals;
  for (auto& v : x) externals.push_back(v.data());
  for (int threads = 1; threads <= 7; ++threads) {
    exe.run({.externals = externals, .outputs = {}, .scalars = {}, .symbols = {}, .threads = threads});
    for (const auto& v : x)
      EXPECT_EQ(std::count(v.begin(), v.end(), static_cast<float>(threads)), std::ssize(v)) << threads;
  }
}

TEST(Executor, StopsAtAGuardThatDoesNotHold) {
  // Everybody flips x into itself behind a guard, long enough to be split.
  const int64_t n = 5000;
  Plan p = chain(Dim(n), 1);
  p.dims.push_back(Dim(8));
  p.buffers.push_back({BufferKind::output, DType::i64, 2, static_cast<DimIndex>(p.dims.size()) - 1, -1, ""});
  const auto guard_buffer = static_cast<int32_t>(p.buffers.size()) - 1;
  p.output_count = 3;
  p.kernels.push_back({false, "guard"});
  p.launches.insert(p.launches.begin(), Launch{4, {1, guard_buffer}, {0}, -1, -1, true, -1});
  p.launches[2].buffers = {2, 0};
  p.launches[3].buffers = {0, 5};
  p.guards = {guard_buffer};
  p.guarded_from = 2;
  const Executable exe(p, resolve);
  for (const int threads : {1, 2, 3}) {
    for (const bool profiled : {false, true}) {
      for (const float s : {1.0f, 2.0f, 1.0f}) {
        std::vector<float> x(n, 0.5f), y(n, -7);
        float sum = -7;
        int64_t guard = 0;
        uint64_t scalar = 0;
        std::memcpy(&scalar, &s, sizeof s);
        void* const externals[] = {x.data()};
        void* const outputs[] = {y.data(), &sum, &guard};
        Profiler profiler;
        std::vector<int64_t> ns;
        exe.run({externals, outputs, {&scalar, 1}, {}, threads, 0, profiled ? &profiler : nullptr,
                 profiled ? &ns : nullptr});
        for (size_t i = 0; i < ns.size(); ++i) EXPECT_EQ(ns[i] >= 0, s == 1 || i < 2) << i;
        EXPECT_EQ(ns.size(), profiled ? p.launches.size() : 0u);
        EXPECT_EQ(guard, s == 1 ? kNothingWrong : n);
        EXPECT_THAT(x, ::testing::Each(s == 1 ? 2.25f : 0.5f));
        EXPECT_EQ(y[7] == 3.375f, s == 1);  // what was not run may be poisoned
        EXPECT_NE(y[7], 5.625f);
      }
    }
  }
}

TEST(Executor, EmptyTensorsRunNoTask) {
  const Executable exe(chain(0, 3), resolve);
  for (int threads = 0; threads <= 3; ++threads) EXPECT_EQ(run(exe, 0, threads).sum, 0.0f);
}

TEST(Executor, EvaluatesSymbolsAtEveryCall) {
  const Executable exe(chain(Dim::symbol("N"), 4), resolve);
  for (int round = 0; round < 2; ++round) {
    for (const int64_t n : {7, 100, 1001, 0, 7, 300, 301, 302, 303, 304, 305, 306, 307}) {
      const Executable fixed(chain(n, 4), resolve);
      EXPECT_EQ(run(exe, n, 3, true), run(fixed, n, 1)) << n;
      const int64_t symbols[] = {n};
      EXPECT_EQ(exe.arena_bytes(symbols), (n * 4 + 63) / 64 * 64 * 3);
      EXPECT_EQ(exe.dims(symbols)[1], 4 * n);
    }
  }
}

TEST(Executor, LongTasksOfOneIntervalRunOnDifferentThreads) {
  static std::atomic<int> inside{0}, most{0};
  const auto meet = [](void* const*, const int64_t*, int64_t, int64_t, void*) {
    const int now = ++inside;
    for (int i = 0; i < 2000 && most < 2; ++i) {
      if (now > most) most = now;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    --inside;
  };
  Plan p;
  p.dims = {Dim(1), Dim(1'000'000)};
  p.kernels = {{false, "meet"}};
  p.profile = {{"meet", "", -1, 1, {}}};
  p.launches = {{0, {}, {}, 0, -1, true, 0}, {0, {}, {}, 0, -1, false, 0}};
  const Executable exe(p, [&](const PlanKernel&) -> KernelFn { return meet; });
  Invocation call;
  call.threads = 2;
  exe.run(call);
  EXPECT_EQ(most, 2);
}

TEST(Executor, HostThreadsRunOneExecutableAtOnce) {
  const Executable exe(chain(Dim::symbol("N"), 6), resolve);
  const Executable fixed(chain(3000, 6), resolve);
  const Result expected = run(fixed, 3000, 1);
  std::atomic<int> wrong{0};
  std::vector<std::thread> hosts;
  for (int h = 0; h < 4; ++h) {
    hosts.emplace_back([&, h] {
      for (int i = 0; i < 40; ++i) {
        if (run(exe, 3000, 1 + (h + i) % 4, true) != expected) ++wrong;
        if (run(fixed, 3000, 2) != expected) ++wrong;
      }
    });
  }
  for (auto& h : hosts) h.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Executor, PoisonReachesWhatNobodyWrote) {
  Plan p = chain(500, 2);
  p.launches.erase(p.launches.begin());  // nobody writes %1
  set_option("KILN_POISON", "1");
  const Executable bad(p, resolve), good(chain(500, 2), resolve);
  set_option("KILN_POISON", "");
  EXPECT_TRUE(std::isnan(run(bad, 500, 2).y[0]));
  EXPECT_EQ(run(good, 500, 2), run(Executable(chain(500, 2), resolve), 500, 1));
  p.launches.clear();
  set_option("KILN_POISON", "1");
  EXPECT_TRUE(std::isnan(run(Executable(p, resolve), 500, 1).y[499]));  // fresh outputs, too
  set_option("KILN_POISON", "");
}

std::string error_of(const std::function<void()>& f, ErrorKind kind) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    return e.what();
  }
  return "no error";
}

TEST(Executor, NamesWhatIsMissing) {
  const Executable exe(chain(10, 1), resolve);
  float x[10] = {}, y[10], sum;
  void* const externals[] = {x};
  void* const outputs[] = {y, &sum};
  void* const no_outputs[] = {y, nullptr};
  const uint64_t s = 0;
  const auto fails = [&](const Invocation& call) {
    return error_of([&] { exe.run(call); }, ErrorKind::invalid);
  };
  EXPECT_EQ(fails({}), "executor: number of externals differs; got 0, expected 1");
  EXPECT_EQ(fails({externals, externals, {&s, 1}}), "executor: number of outputs differs; got 1, expected 2");
  EXPECT_EQ(fails({externals, outputs, {}}), "executor: number of scalars differs; got 0, expected 1");
  EXPECT_EQ(fails({externals, no_outputs, {&s, 1}}),
            "executor: no memory given for output 1 (sum); expected 1 bytes");
  const int64_t one = 1;
  EXPECT_EQ(fails({externals, outputs, {&s, 1}, {&one, 1}}),
            "executor: number of symbol values differs; got 1, expected 0");
}

TEST(Executor, RefusesUnsoundPlans) {
  Plan p = chain(10, 1);
  p.kernels[1].symbol = "none";
  EXPECT_THAT(error_of([&] { Executable(p, resolve); }, ErrorKind::internal),
              ::testing::HasSubstr("no kernel named none"));
  p.kernels[1] = {true, "none"};
  EXPECT_THAT(error_of([&] { Executable(p, resolve); }, ErrorKind::internal),
              ::testing::HasSubstr("no builtin named none"));
  p = chain(10, 1);
  p.launches[0].kernel = 77;
  EXPECT_THAT(error_of([&] { Executable(p, resolve); }, ErrorKind::internal),
              ::testing::HasSubstr("kernel of launch 0"));
  p = chain(10, 1);
  p.arena_bytes = p.buffers[2].bytes;
  EXPECT_THAT(error_of([&] { Executable(p, resolve); }, ErrorKind::internal),
              ::testing::HasSubstr("buffer 3 (%2) ends at"));
}

TEST(Executor, FindsWritesBehindTheArena) {
  Plan p;
  p.dims = {Dim(0), Dim(100)};
  p.arena_bytes = 1;
  p.buffers = {{BufferKind::arena, DType::u8, -1, 1, 0, "%0"}};
  p.kernels = {{false, "overrun"}};
  p.launches = {{0, {0}, {1}, -1, -1, true, -1}};
  const Executable exe(p, resolve);
  EXPECT_THAT(error_of([&] { exe.run({}); }, ErrorKind::internal),
              ::testing::HasSubstr("behind the end of the arena"));
  EXPECT_EQ(ArenaPool::shared().stats().in_use, 0u);
}

TEST(Executor, OutOfMemoryNamesTheLargestBuffers) {
  Plan p;
  p.dims = {Dim(0), Dim(int64_t{3} << 20), Dim(int64_t{1} << 46)};
  p.arena_bytes = 2;
  p.buffers = {{BufferKind::arena, DType::f32, -1, 1, 0, "%small"},
               {BufferKind::arena, DType::f32, -1, 2, 0, "%large"}};
  const Executable exe(p, resolve);
  const std::string e = error_of([&] { exe.run({}); }, ErrorKind::device);
  EXPECT_THAT(e, ::testing::HasSubstr("arena: out of memory; asked for 67108864.0 MiB"));
  EXPECT_THAT(e, ::testing::HasSubstr("largest buffers: %large (67108864.0 MiB), %small (3.0 MiB)"));
}

TEST(Executor, ConstantsAreAligned) {
  static void* seen;
  const auto keep = [](void* const* b, const int64_t*, int64_t, int64_t, void*) { seen = b[0]; };
  Plan p;
  p.dims = {Dim(0), Dim(64), Dim(3)};
  p.constants = std::string(64, 'a') + "xyz";
  p.buffers = {{BufferKind::constant, DType::u8, -1, 2, 1, "c"}};
  p.kernels = {{false, "keep"}};
  p.launches = {{0, {0}, {}, -1, -1, true, -1}};
  const Executable exe(p, [&](const PlanKernel&) -> KernelFn { return keep; });
  exe.run({});
  EXPECT_EQ(std::string(static_cast<char*>(seen), 3), "xyz");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(seen) % 64, 0u);
}

TEST(Executor, ProfilesEveryLaunch) {
  Profiler profiler;
  const Executable exe(chain(1000, 5), resolve);
  for (int i = 0; i < 3; ++i) run(exe, 1000, 1 + i, false, &profiler);
  const auto entries = profiler.entries();
  ASSERT_EQ(entries.size(), 4u);
  int64_t launches = 0;
  for (const auto& e : entries) {
    launches += e.launches;
    EXPECT_GE(e.seconds, 0.0);
    if (e.name == "flip") {
      EXPECT_EQ(e.launches, 18);
      EXPECT_EQ(e.bytes, 18 * 4000.0);
      EXPECT_THAT(e.sources, ::testing::ElementsAre(4));
    }
  }
  EXPECT_EQ(launches, 27);
  EXPECT_EQ(profiler.calls(), 3);
}

}  // namespace KILN_FILE
}  // namespace kiln
