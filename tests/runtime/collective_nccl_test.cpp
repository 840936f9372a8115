// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective_nccl.h"

#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include <gmock/gmock.h>

#include "codegen/compile_sim.h"
#include "codegen/disk_cache.h"
#include "tests/runtime/collective_suite.h"
#include "tests/runtime/cuda/fake_nccl.h"

namespace kiln::testing {
namespace KILN_FILE {

/// Memory of the host that has its like on the device while collectives use it.
struct Mirror {
  CudaMemory memory;
  size_t bytes = 0;
  int users = 0;
};

/// A group of GPUs as one of the host's: what collectives take is copied to the device before, and back when
/// they are waited for.
class MirroredGroup final : public ProcessGroup {
 public:
  MirroredGroup(std::shared_ptr<FakeWorld> world, int rank)
      : world_(std::move(world)), rank_(rank), group_(world_->groups[static_cast<size_t>(rank)]) {
    world_->groups[static_cast<size_t>(rank)].reset();
  }
  ~MirroredGroup() override {
    for (const auto& w : works_) {
      try {
        if (!w->waited) w->wait();
      } catch (const Error&) {  // it has been seen, or nobody cares
      }
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  const char* backend() const override { return group_->backend(); }

  WorkPtr all_reduce(void* data, int64_t count, DType dtype, ReduceOp op,
                     const CollectiveSite& site) override {
    return with(data, bytes(count, dtype), nullptr, 0,
                [&](void* d, void*) { return group_->all_reduce(d, count, dtype, op, site); });
  }
  WorkPtr all_reduce_mean(void* data, int64_t count, DType dtype, DType wire,
                          const CollectiveSite& site) override {
    return with(data, bytes(count, dtype), nullptr, 0,
                [&](void* d, void*) { return group_->all_reduce_mean(d, count, dtype, wire, site); });
  }
  WorkPtr broadcast(void* data, int64_t count, DType dtype, int root, const CollectiveSite& site) override {
    return with(data, bytes(count, dtype), nullptr, 0,
                [&](void* d, void*) { return group_->broadcast(d, count, dtype, root, site); });
  }
  WorkPtr all_gather(const void* in, void* out, int64_t count, DType dtype,
                     const CollectiveSite& site) override {
    return with(out, bytes(count, dtype) * static_cast<size_t>(size()), in, bytes(count, dtype),
                [&](void* o, void* i) { return group_->all_gather(i, o, count, dtype, site); });
  }
  WorkPtr reduce_scatter(const void* in, void* out, int64_t count, DType dtype, ReduceOp op,
                         const CollectiveSite& site) override {
    return with(out, bytes(count, dtype), in, bytes(count, dtype) * static_cast<size_t>(size()),
                [&](void* o, void* i) { return group_->reduce_scatter(i, o, count, dtype, op, site); });
  }
  WorkPtr barrier(const CollectiveSite& site) override { return group_->barrier(site); }
  WorkPtr run(const std::string& name, std::function<void()> job, const CollectiveSite& site) override {
    return group_->run(name, std::move(job), site);
  }
  std::shared_ptr<Store> store() const override { return group_->store(); }
  void set_timeout(Seconds timeout) override { group_->set_timeout(timeout); }
  Seconds timeout() const override { return group_->timeout(); }
  void extend_timeout_once(Seconds extra) override { group_->extend_timeout_once(extra); }
  std::optional<std::string> broken() override { return group_->broken(); }
  std::optional<std::string> failure() override { return group_->failure(); }
  void abort(const std::string& why) override { group_->abort(why); }

 private:
  class MirroredWork final : public Work {
   public:
    MirroredWork(MirroredGroup& g, WorkPtr work, void* out, void* in)
        : group_(g), work_(std::move(work)), out_(out), in_(in) {}
    void wait() override {
      waited = true;
      work_->wait();
      group_.bring_back(out_);
      group_.mirrors_[in_].users = 0;
      work_->wait();  // perhaps it has failed meanwhile
    }
    bool done() const override { return work_->done(); }
    Times times() const override { return work_->times(); }

    bool waited = false;

   private:
    MirroredGroup& group_;
    const WorkPtr work_;
    void* const out_;
    void* const in_;
  };

  static size_t bytes(int64_t count, DType dtype) {
    return static_cast<size_t>(std::max<int64_t>(count, 0)) * dtype_size(dtype);
  }
  CudaDevice& device() { return group_->cuda(); }

  /// Calls `f` with the device's memory for both; one may lie in the other.
  template <typename F>
  WorkPtr with(void* out, size_t out_bytes, const void* in, size_t in_bytes, const F& f) {
    const auto inside = [](const void* a, size_t na, const void* b, size_t nb) {
      const auto* x = static_cast<const std::byte*>(a);
      const auto* y = static_cast<const std::byte*>(b);
      return na > 0 && x >= y && x + na <= y + nb;
    };
    std::byte *o = nullptr, *i = nullptr;
    if (inside(in, in_bytes, out, out_bytes)) {
      o = mirror(out, out_bytes);
      i = o + (static_cast<const std::byte*>(in) - static_cast<std::byte*>(out));
    } else if (inside(out, out_bytes, in, in_bytes)) {
      i = mirror(const_cast<void*>(in), in_bytes);
      o = i + (static_cast<std::byte*>(out) - static_cast<const std::byte*>(in));
      out = const_cast<void*>(in);
    } else {
      o = mirror(out, out_bytes);
      if (in) i = mirror(const_cast<void*>(in), in_bytes);
    }
    works_.push_back(std::make_shared<MirroredWork>(*this, f(o, i), out, const_cast<void*>(in)));
    return works_.back();
  }

  /// What is on its way already keeps what the collectives before this have made of it.
  std::byte* mirror(void* host, size_t n) {
    if (!host) return nullptr;
    Mirror& m = mirrors_[host];
    if (!m.memory || m.bytes < n || m.users == 0) {
      if (m.bytes < n || !m.memory) m.memory = device().allocate(std::max<size_t>(n, 1), "a test");
      m.bytes = n;
      if (n > 0) device().copy_to_device(m.memory.address(), host, n);
    }
    ++m.users;
    return static_cast<std::byte*>(m.memory.data());
  }
  void bring_back(void* host) {
    Mirror& m = mirrors_[host];
    if (m.bytes > 0) device().copy_to_host(host, m.memory.address(), m.bytes);
    m.users = 0;
  }

  const std::shared_ptr<FakeWorld> world_;
  const int rank_;
  std::map<void*, Mirror> mirrors_;
  const std::shared_ptr<DeviceGroup> group_;
  std::vector<std::shared_ptr<MirroredWork>> works_;
};

/// The simulated device compiles what it is given.
class SimulatedKernels : public ::testing::Environment {
  void SetUp() override {
    cuda::set_sim_compile([](const CudaModule& m) {
      static DiskCache cache;
      return compile_sim(m, &cache);
    });
  }
};
::testing::Environment* const kKernels = ::testing::AddGlobalTestEnvironment(new SimulatedKernels);

Groups make_mirrored(int size, Seconds timeout) {
  const auto world = std::make_shared<FakeWorld>(size, timeout);
  Groups out;
  for (int r = 0; r < size; ++r) out.push_back(std::make_shared<MirroredGroup>(world, r));
  return out;
}

INSTANTIATE_TEST_SUITE_P(Nccl, Collectives, ::testing::Values(Backend{"nccl", make_mirrored}), backend_name);

using ::testing::HasSubstr;

/// Runs f(group) for all ranks side by side. What they throw, by rank; "" where that is nothing.
std::vector<std::string> on_ranks(FakeWorld& world, const std::function<void(DeviceGroup&)>& f) {
  std::vector<std::string> texts(world.groups.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < texts.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        f(*world.groups[r]);
      } catch (const Error& e) {
        texts[r] = fmt::format("{}: {}", to_string(e.kind()), e.what());
      }
    });
  for (std::thread& t : threads) t.join();
  return texts;
}

CudaMemory on_device(CudaDevice& device, const std::vector<float>& values) {
  CudaMemory m = device.allocate(values.size() * sizeof(float), "a test");
  device.copy_to_device(m.address(), values.data(), m.bytes());
  return m;
}
std::vector<float> on_host(CudaDevice& device, const CudaMemory& m) {
  std::vector<float> out(m.bytes() / sizeof(float));
  device.copy_to_host(out.data(), m.address(), m.bytes());
  return out;
}
WorkPtr sum(DeviceGroup& g, const CudaMemory& m, uint32_t line = 8) {
  return g.all_reduce(m.data(), static_cast<int64_t>(m.bytes() / sizeof(float)), DType::f32, ReduceOp::sum,
                      site_at(line));
}

// On both sides of a collective, and of one that works on what the one before has left.
TEST(NcclGroup, OrdersTheStreams) {
  FakeWorld world(2, kAmple);
  EXPECT_EQ(on_ranks(world,
                     [](DeviceGroup& g) {
                       CudaDevice& d = g.cuda();
                       EXPECT_EQ(g.device(), Device::cuda(g.rank()));
                       CudaMemory a = on_device(d, {1, 2}), b = on_device(d, {0, 0});
                       const WorkPtr work = sum(g, a);
                       work->wait();
                       d.copy_on_device(b.address(), a.address(), a.bytes());
                       d.fill(a.address(), 0, a.bytes());
                       const WorkPtr second = sum(g, b);
                       second->wait();
                       EXPECT_EQ(on_host(d, b), (std::vector<float>{4, 8}));
                       EXPECT_TRUE(work->done() && second->done());
                       EXPECT_LE(work->times().begin_ns, work->times().end_ns);
                       EXPECT_LE(work->times().end_ns, second->times().end_ns);
                     }),
            std::vector<std::string>(2));
}

TEST(NcclGroup, NamesWhoDidNotCome) {
  reset_fake_nccl(1);
  CudaDevice device(fake_nccl_driver(), 0);
  const auto make = [&](int rank, int size) -> std::string {
    try {
      make_nccl_group(make_local_store(), "g/", rank, size, device, &fake_nccl(), Seconds(0.05));
    } catch (const Error& e) {
      return fmt::format("{}: {}", to_string(e.kind()), e.what());
    }
    return "";
  };
  EXPECT_EQ(make(0, 3),
            "comm: NCCL 2.28.9 on cuda:0: rank 0 of 3: waited 0.05 s for ranks that have not come: 1, 2");
  EXPECT_EQ(make(1, 2),
            "comm: NCCL 2.28.9 on cuda:0: rank 1 of 2: waited 0.05 s for ranks that have not come: 0");
  fail_fake_nccl(0, nccl::kInvalidUsage,
                 "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000");
  EXPECT_EQ(make(0, 2),
            "comm: NCCL 2.28.9 on cuda:0: rank 0 of 2: NCCL: some error: Duplicate GPU detected : rank 1 and "
            "rank 0 both on CUDA device 1000");
  EXPECT_EQ(fake_nccl_comms(), 0);
}

TEST(NcclGroup, OneRankNeedsNoLibrary) {
  reset_fake_nccl(1);
  CudaDevice d(fake_nccl_driver(), 0);
  const auto g = make_nccl_group(make_local_store(), "g/", 0, 1, d, nullptr, kAmple);
  CudaMemory a = on_device(d, {1, 2}), b = on_device(d, {0, 0}), c = on_device(d, {0, 0});
  sum(*g, a)->wait();
  g->broadcast(a.data(), 2, DType::f32, 0, {})->wait();
  g->all_gather(a.data(), b.data(), 2, DType::f32, {})->wait();
  g->reduce_scatter(b.data(), c.data(), 2, DType::f32, ReduceOp::max, {})->wait();
  g->barrier({})->wait();
  EXPECT_EQ(on_host(d, a), (std::vector<float>{1, 2}));
  EXPECT_EQ(on_host(d, c), (std::vector<float>{1, 2}));
}

TEST(NcclGroup, LeavesNothingBehind) {
  FakeWorld world(2, kAmple);
  EXPECT_EQ(on_ranks(world,
                     [](DeviceGroup& g) {
                       CudaMemory a = on_device(g.cuda(), {1});
                       for (int i = 0; i < 5; ++i) g.broadcast(a.data(), 1, DType::f32, 0, {})->wait();
                       sum(g, a)->wait();
                       g.barrier({})->wait();
                     }),
            std::vector<std::string>(2));
  world.groups.clear();
  EXPECT_EQ(fake_nccl_comms(), 0);
  for (int n = 1; n <= 7; ++n) EXPECT_EQ(world.store->get(fmt::format("nccl/call/{}", n)), std::nullopt) << n;
}

// Where nobody else has a part, numbers are rounded all the same.
TEST(NcclGroup, AMeanOfOneIsRounded) {
  reset_fake_nccl(1);
  CudaDevice d(fake_nccl_driver(), 0);
  const auto g = make_nccl_group(make_local_store(), "g/", 0, 1, d, nullptr, kAmple);
  CudaMemory a = on_device(d, {1.001f, 70000, -3, 0});
  g->all_reduce_mean(a.data(), 4, DType::f32, DType::f16, site_at(3))->wait();
  EXPECT_EQ(on_host(d, a), (std::vector<float>{1.0009765625f, INFINITY, -3, 0}));
}

// Each larger than the one before, with nobody waiting in between, and among others.
TEST(NcclGroup, MeansFollowEachOther) {
  FakeWorld world(2, kAmple);
  EXPECT_EQ(on_ranks(world,
                     [](DeviceGroup& g) {
                       std::vector<CudaMemory> memory;
                       std::vector<WorkPtr> works;
                       for (int i = 0; i < 8; ++i) {
                         const std::vector<float> values(size_t{100} << (i % 5), static_cast<float>(i + 2));
                         memory.push_back(on_device(g.cuda(), values));
                         const CudaMemory& m = memory.back();
                         if (i == 3) works.push_back(sum(g, m));
                         else
                           works.push_back(g.all_reduce_mean(m.data(), static_cast<int64_t>(values.size()),
                                                             DType::f32, DType::bf16, {}));
                       }
                       for (const WorkPtr& w : works) w->wait();
                       for (size_t i = 0; i < memory.size(); ++i)
                         for (const float x : on_host(g.cuda(), memory[i]))
                           ASSERT_EQ(x, static_cast<float>(i + 2) * (i == 3 ? 2.f : 1.f)) << i;
                     }),
            std::vector<std::string>(2));
  world.groups.clear();
  for (const auto& d : world.devices) EXPECT_EQ(d->memory().in_use, 0u);
}

// Rank 0's kernel waits for rank 1, which never comes; the compute stream waits for the kernel.
TEST(NcclGroup, WhatHangsOnTheDeviceIsTakenOff) {
  FakeWorld world(2, Seconds(0.3));
  stick_fake_nccl(0);
  const auto texts = on_ranks(world, [](DeviceGroup& g) {
    if (g.rank() == 1) return;
    CudaMemory a = on_device(g.cuda(), {1, 2});
    const WorkPtr work = sum(g, a);
    work->wait();
    EXPECT_FALSE(work->done());
    try {
      on_host(g.cuda(), a);
      ADD_FAILURE() << "a number that is wrong";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::comm);
      EXPECT_EQ(
          std::string(e.what()),
          "cuda:0: the device failed before: rank 0: all_reduce #1 of f32[2] (backward, train.cpp:8): "
          "rank 1 has not started it within the timeout of 0.3 s (dead, stuck, or slow: then "
          "set_timeout) (what the device has computed since then is wrong: begin again in a new process, "
          "with the last checkpoint)");
    }
    EXPECT_THROW(work->wait(), Error);
    EXPECT_TRUE(work->done());
    work->wait();
  });
  EXPECT_EQ(texts[0],
            "comm: rank 0: all_reduce #1 of f32[2] (backward, train.cpp:8): rank 1 has not started it within "
            "the timeout of 0.3 s (dead, stuck, or slow: then set_timeout)");
  EXPECT_EQ(texts[1], "");
}

// Before the group's threads have come to it, or anywhere on its way.
TEST(NcclGroup, EndsThoughWhatWasStartedIsAborted) {
  reset_fake_nccl(1);
  CudaDevice d(fake_nccl_driver(), 0);
  const CudaMemory a = on_device(d, {1, 2});
  for (int i = 0; i < 300; ++i) {
    const auto g = make_nccl_group(make_local_store(), "g/", 0, 1, d, nullptr, kAmple);
    const WorkPtr first = sum(*g, a), second = sum(*g, a);
    if (i % 2) std::this_thread::yield();
    g->abort("stop");
    for (const WorkPtr& w : {first, second}) {
      try {
        w->wait();
      } catch (const Error& e) {  // unless it was there before
        EXPECT_THAT(e.what(), HasSubstr("aborted: stop"));
      }
    }
  }
}

// Nobody has waited for it on the device: what is there is what was there.
TEST(NcclGroup, TheDeviceIsWholeIfNothingDependedOnIt) {
  FakeWorld world(2, kAmple);
  stick_fake_nccl(0);
  const auto texts = on_ranks(world, [](DeviceGroup& g) {
    CudaMemory a = on_device(g.cuda(), {1, 2});
    const WorkPtr work = sum(g, a);
    if (g.rank() == 1) {
      work->wait();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      g.abort("out of patience");
      EXPECT_EQ(on_host(g.cuda(), a), (std::vector<float>{1, 2}));
      work->wait();
    }
  });
  EXPECT_EQ(texts[0],
            "comm: rank 0: all_reduce #1 of f32[2] (backward, train.cpp:8): aborted: out of patience");
  EXPECT_EQ(texts[1],
            "comm: rank 1: all_reduce #1 of f32[2] (backward, train.cpp:8): rank 0 aborted: out of patience");
}

// What is left of it runs after the end of NCCL's part, and may find its memory in other hands.
TEST(NcclGroup, AMeanThatWasAbortedTouchesNobodysMemory) {
  for (int i = 0; i < 20; ++i) {
    FakeWorld world(2, kAmple);
    stick_fake_nccl(0);
    DeviceGroup& g = *world.groups[0];
    CudaDevice& d = g.cuda();
    CudaMemory a = on_device(d, {1, 2});
    const WorkPtr work = g.all_reduce_mean(a.data(), 2, DType::f32, DType::bf16, site_at(8));
    if (i % 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    g.abort("out of patience");
    EXPECT_THROW(work->wait(), Error);
    a = {};
    const CudaMemory other = on_device(d, {5, 6});
    d.synchronize();
    EXPECT_EQ(on_host(d, other), (std::vector<float>{5, 6}));
  }
}

TEST(NcclGroup, SaysWhatNcclSays) {
  FakeWorld world(2, kAmple);
  stick_fake_nccl(0);
  const auto texts = on_ranks(world, [](DeviceGroup& g) {
    CudaMemory a = on_device(g.cuda(), {1});
    const WorkPtr work = sum(g, a);
    if (g.rank() == 0) fail_fake_nccl(0, nccl::kRemoteError, "net.cc: connection closed by remote peer");
    while (!g.broken()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    work->wait();
  });
  EXPECT_EQ(texts[0],
            "comm: rank 0: all_reduce #1 of f32[1] (backward, train.cpp:8): NCCL: remote error: net.cc: "
            "connection closed by remote peer");
  EXPECT_THAT(texts[1], HasSubstr("rank 0 gave up on all_reduce #1 of f32[1] (backward, train.cpp:8): NCCL: "
                                  "remote error: net.cc: connection closed"));
}

/// One graph of a rank.
class Graph {
 public:
  Graph(CudaDevice& device, const std::function<void()>& record) : device_(device) {
    const cuda::Driver& d = device.driver();
    device.check(d.capture_begin(device.compute(), cuda::kCaptureThreadLocal), "cuStreamBeginCapture");
    record();
    device.check(d.capture_end(device.compute(), &graph_), "cuStreamEndCapture");
    device.check(d.graph_instantiate(&exec_, graph_, 0), "cuGraphInstantiate");
  }
  ~Graph() {
    device_.driver().graph_exec_destroy(exec_);
    device_.driver().graph_destroy(graph_);
  }
  void launch() { device_.check(device_.driver().graph_launch(exec_, device_.compute()), "cuGraphLaunch"); }

 private:
  CudaDevice& device_;
  cuda::Graph graph_ = nullptr;
  cuda::GraphExec exec_ = nullptr;
};

TEST(NcclGroup, RunsInGraphs) {
  FakeWorld world(2, kAmple);
  EXPECT_EQ(on_ranks(world,
                     [](DeviceGroup& g) {
                       CudaDevice& d = g.cuda();
                       CudaMemory a = on_device(d, {1, 2}), b = on_device(d, {0, 0});
                       Graph graph(d, [&] {
                         sum(g, a)->wait();
                         d.copy_on_device(b.address(), a.address(), a.bytes(), d.compute());
                       });
                       // Ranks need not record alike.
                       if (g.rank() == 1) Graph(d, [&] { sum(g, b)->wait(); });
                       for (int i = 0; i < 3; ++i) {
                         const WorkPtr work = g.replay(
                             "the replay", [&] { graph.launch(); }, site_at(9));
                         work->wait();
                       }
                       EXPECT_EQ(on_host(d, b), (std::vector<float>{8, 16}));
                       sum(g, b)->wait();
                       EXPECT_EQ(on_host(d, b), (std::vector<float>{16, 32}));
                     }),
            std::vector<std::string>(2));
}

// Also beside some that are on their way, and after one has needed more room.
TEST(NcclGroup, MeansRunInGraphs) {
  FakeWorld world(2, kAmple);
  EXPECT_EQ(on_ranks(world,
                     [](DeviceGroup& g) {
                       CudaDevice& d = g.cuda();
                       const auto mean = [&](const CudaMemory& m) {
                         return g.all_reduce_mean(m.data(), static_cast<int64_t>(m.bytes() / sizeof(float)),
                                                  DType::f32, DType::bf16, site_at(7));
                       };
                       const float mine = g.rank() == 0 ? 1.f : 3.f;
                       CudaMemory a = on_device(d, {0, 0}), b = on_device(d, {mine, 1}),
                                  c = on_device(d, std::vector<float>(1000, mine));
                       mean(b)->wait();  // so that there is room for as many
                       Graph graph(d, [&] {
                         mean(a)->wait();
                         d.copy_on_device(b.address(), a.address(), a.bytes(), d.compute());
                       });
                       for (const float x : {1.f, 2.f, 3.f}) {
                         d.copy_to_device(a.address(), std::vector<float>{x * mine, x}.data(), a.bytes());
                         const WorkPtr other = mean(c);
                         g.replay(
                              "the replay", [&] { graph.launch(); }, site_at(9))
                             ->wait();
                         EXPECT_EQ(on_host(d, b), (std::vector<float>{2 * x, x}));
                         other->wait();
                       }
                       EXPECT_EQ(on_host(d, c), std::vector<float>(1000, 2));
                     }),
            std::vector<std::string>(2));
}

TEST(NcclGroup, OneReplaysAndTheOtherDoesNot) {
  FakeWorld world(2, kAmple);
  const auto texts = on_ranks(world, [](DeviceGroup& g) {
    CudaDevice& d = g.cuda();
    CudaMemory a = on_device(d, {1, 2});
    Graph graph(d, [&] { sum(g, a)->wait(); });
    if (g.rank() == 1) return sum(g, a, 11)->wait();
    g.replay(
         "the replay of step", [&] { graph.launch(); }, site_at(9))
        ->wait();
    on_host(d, a);
  });
  for (const std::string& text : texts) {
    EXPECT_THAT(text,
                HasSubstr("rank 0 is in the replay of step (backward, train.cpp:9), rank 1 in all_reduce "
                          "#1 of f32[2] (backward, train.cpp:11): neither can go on"));
  }
  EXPECT_THAT(texts[0], HasSubstr("what the device has computed since then is wrong"));
}

// Connections may have to be made first, to a rank that never comes.
TEST(NcclGroup, WhatIsCapturedHasATimeout) {
  FakeWorld world(2, Seconds(0.2));
  DeviceGroup& g = *world.groups[0];
  const CudaMemory a = on_device(g.cuda(), {1});
  fail_fake_nccl(0, nccl::kInProgress, "");
  const cuda::Driver& driver = g.cuda().driver();
  const cuda::Stream stream = g.cuda().compute();
  g.cuda().check(driver.capture_begin(stream, cuda::kCaptureThreadLocal), "cuStreamBeginCapture");
  try {
    sum(g, a)->wait();
    ADD_FAILURE() << "NCCL has not taken it";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::comm);
    EXPECT_THAT(e.what(), HasSubstr("rank 0 gave up on all_reduce #0 of f32[1] (backward, train.cpp:8): NCCL "
                                    "has not taken it within the timeout of 0.2 s"));
  }
  cuda::Graph graph = nullptr;  // of which a part is missing
  if (driver.capture_end(stream, &graph) == cuda::kSuccess) driver.graph_destroy(graph);
}

TEST(NcclGroup, ABarrierIsNotCaptured) {
  FakeWorld world(1, kAmple);
  DeviceGroup& g = *world.groups[0];
  Graph graph(g.cuda(), [&] {
    try {
      g.barrier(site_at(4));
      ADD_FAILURE() << "the host cannot wait there";
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()),
                "barrier (backward, train.cpp:4): the host cannot wait while a graph is captured (call it "
                "outside)");
    }
  });
}

}  // namespace KILN_FILE
}  // namespace kiln::testing
