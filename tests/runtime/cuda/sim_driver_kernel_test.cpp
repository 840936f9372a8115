// SPDX-License-Identifier: Apache-2.0
// Modules, functions and what a launch is refused for.
#include <thread>

#include "tests/runtime/cuda/sim_testing.h"

namespace kiln::cuda {
namespace KILN_FILE {

using testing::both;
using testing::in;
using testing::out;

class SimDriverKernel : public testing::SimTest {
 protected:
  const CudaModule two = {"two.cu",
                          "#include \"kiln_cuda.h\"\nusing namespace kn;\n"
                          "KILN_CUDA_KERNEL(one, 32, 1, 0) { store<1>((f32*)buffers[0] + thread(), 1.0f); }\n"
                          "namespace second { KILN_CUDA_KERNEL(two, 64, 1, 0) { store<1>((f32*)buffers[0] + "
                          "thread(), 2.0f); } }\n",
                          "",
                          {{"one", 32, 1, 0, 0, 17, 0, 128}, {"two", 64, 1, 0}}};
};

TEST_F(SimDriverKernel, AModuleHasItsKernels) {
  Module m = nullptr;
  Function one = nullptr, two_ = nullptr, three = nullptr;
  ok(d.load_source(&m, two));
  ok(d.module_function(&one, m, "one"));
  ok(d.module_function(&two_, m, "two"));
  refused(d.module_function(&three, m, "three"), kNotFound, "the module has no kernel 'three'");
  const Address x = allocate(256);
  ok(launch(two_, {.buffers = {out(x, 256, "x")}}, 64));
  ok(launch(one, {.buffers = {out(x, 256, "x")}}, 32));
  EXPECT_EQ(read(x, 33)[31], 1);
  EXPECT_EQ(read(x, 33)[32], 2);
}

TEST_F(SimDriverKernel, WhatALaunchRunsOutlivesItsModule) {
  Module m = nullptr;
  Function one = nullptr;
  ok(d.load_source(&m, two));
  ok(d.module_function(&one, m, "one"));
  const Address x = allocate(256);
  ok(launch(one, {.buffers = {out(x, 256, "x")}}, 32));
  ok(d.module_unload(m));
  ok(d.context_synchronize());
  EXPECT_EQ(read(x, 1)[0], 1);
  refused(launch(one, {.buffers = {out(x, 256, "x")}}, 32), kInvalidHandle,
          "no such function in the current context");
  refused(d.module_unload(m), kInvalidHandle, "no such module");
}

TEST_F(SimDriverKernel, MachineCodeIsForOtherDevices) {
  Module m = nullptr;
  refused(d.module_load(&m, "cubin"), kNoBinaryForGpu,
          "the simulated device runs kernels from their source alone (load_source)");
}

TEST_F(SimDriverKernel, ASourceThatDoesNotCompileIsAnError) {
  CudaModule bad = two;
  bad.source = "#include \"kiln_cuda.h\"\nKILN_CUDA_KERNEL(one, 32, 1, 0) { oops(); }\n";
  Module m = nullptr;
  EXPECT_THROW(d.load_source(&m, bad), Error);
  ok(d.load_source(&m, two));
}

TEST_F(SimDriverKernel, FunctionsHaveAttributes) {
  Module m = nullptr;
  Function one = nullptr;
  ok(d.load_source(&m, two));
  ok(d.module_function(&one, m, "one"));
  int v = 0;
  ok(d.function_get(&v, kFunctionRegisters, one));
  EXPECT_EQ(v, 17);
  ok(d.function_get(&v, kFunctionSharedBytes, one));
  EXPECT_EQ(v, 128);
  refused(d.function_set(one, kFunctionMaxDynamicShared, (227 << 10) - 127), kInvalidValue,
          "function attribute 8 cannot be set to 232321 (limit 232320)");
  ok(d.function_set(one, kFunctionMaxDynamicShared, (227 << 10) - 128));
  ok(d.function_get(&v, kFunctionMaxDynamicShared, one));
  EXPECT_EQ(v, (227 << 10) - 128);
}

TEST_F(SimDriverKernel, LaunchesAreRefusedForTheirShape) {
  const Function f = kernel("store<1>(shared<f32>(49148 + 0 * thread()), 1.0f);", 1, 0);
  const auto shape = [&](unsigned blocks, unsigned y, unsigned threads, unsigned shared) {
    uint64_t block[3] = {};
    void* parameters[] = {block};
    return d.launch(f, blocks, y, 1, threads, 1, 1, shared, nullptr, parameters, nullptr);
  };
  refused(shape(0, 1, 1, 0), kInvalidValue, "launch of kernel 'k': no blocks or no threads");
  refused(shape(1, 2, 1, 0), kInvalidValue,
          "launch of kernel 'k': blocks and threads in more than one dimension, which kernels of Kiln do not "
          "have");
  refused(shape(1, 1, 32, 0), kInvalidValue, "launch of kernel 'k': 32 threads, compiled for 1");
  refused(shape(1, 1, 1, 49153), kInvalidValue,
          "launch of kernel 'k': 49153 bytes of dynamic shared memory, its limit is set to 49152");
  refused(d.launch(f, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), kInvalidValue,
          "launch of kernel 'k': no parameters");
  ok(shape(1, 1, 1, 49152));
  ok(d.context_synchronize());
  ok(d.function_set(f, kFunctionMaxDynamicShared, 227 << 10));
  ok(shape(1, 1, 1, 227 << 10));
  ok(d.context_synchronize());
}

TEST_F(SimDriverKernel, ParametersAreThoseOfTheCall) {
  const Address x = allocate(4), y = allocate(4);
  const Function f = kernel("store<1>((f32*)buffers[0], f32(dims[0]));", 1, 1, 1);
  uint64_t block[3] = {x, 7, 0};
  void* parameters[] = {block};
  ok(d.launch(f, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  block[0] = y;
  block[1] = 8;
  EXPECT_EQ(read(x, 1)[0], 7);
}

TEST_F(SimDriverKernel, AGuardThatDoesNotHoldSkipsTheKernel) {
  const Address x = filled(1, 5), guard = allocate(8);
  const Function f = kernel("store<1>((f32*)buffers[0], 6.0f);", 1, 1, 0);
  uint64_t block[3] = {x, 0, guard};
  void* parameters[] = {block};
  const auto run_with = [&](int64_t value) {
    ok(d.copy_to_device(guard, &value, 8, nullptr));
    const DeclaredAccess declared[] = {out(x, 4, "x"), in(guard, 8, "guard")};
    ok(d.declare(declared, 2));
    ok(d.launch(f, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
    return read(x, 1)[0];
  };
  EXPECT_EQ(run_with(3), 5);
  EXPECT_EQ(run_with(INT64_MIN), 6);
}

TEST_F(SimDriverKernel, ADeclarationIsForOneLaunch) {
  const Address x = allocate(8), y = allocate(8);
  const Function f = kernel("store<1>((f32*)buffers[0], 6.0f);", 1, 1, 0);
  ok(launch(f, {.buffers = {out(x, 8, "x")}}));
  ok(launch(f, {.buffers = {out(y, 8, "y")}, .declared = false}));
  ok(d.context_synchronize());
}

TEST_F(SimDriverKernel, ADeclarationIsOfItsThreadAlone) {
  const Address x = allocate(8), y = allocate(8);
  const Function f = kernel("store<1>((f32*)buffers[0], 6.0f);", 1, 1, 0);
  const DeclaredAccess mine = out(x, 8, "x");
  ok(d.declare(&mine, 1));
  std::thread([&] {
    EXPECT_EQ(d.context_set(context), kSuccess);
    EXPECT_EQ(launch(f, {.buffers = {out(y, 8, "y")}}), kSuccess);  // on the same stream, in between
  }).join();
  uint64_t block[3] = {x, 0, 0};
  void* parameters[] = {block};
  ok(d.launch(f, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  ok(d.context_synchronize());
}

TEST_F(SimDriverKernel, ThreadsOfTheHostMayLaunchAtOnce) {
  const Function f = kernel(
      "const i64 i = thread(); barrier(); store<1>((f32*)buffers[0] + i, "
      "load<1>((const f32*)buffers[0] + i) + 1);",
      64, 1);
  std::vector<Address> x;
  std::vector<Stream> streams;
  for (int t = 0; t < 4; ++t) x.push_back(filled(64, 0)), streams.push_back(stream());
  ok(d.context_synchronize());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      EXPECT_EQ(d.context_set(context), kSuccess);
      uint64_t block[3] = {x[t], 0, 0};
      void* parameters[] = {block};
      const DeclaredAccess declared = both(x[t], 256, "x");
      for (int i = 0; i < 50; ++i) {
        EXPECT_EQ(d.declare(&declared, 1), kSuccess);
        EXPECT_EQ(d.launch(f, 1, 1, 1, 64, 1, 1, 0, streams[t], parameters, nullptr), kSuccess);
      }
      EXPECT_EQ(d.stream_synchronize(streams[t]), kSuccess);
    });
  for (std::thread& t : threads) t.join();
  for (int t = 0; t < 4; ++t) EXPECT_EQ(read(x[t], 64)[5], 50);
}

}  // namespace KILN_FILE
}  // namespace kiln::cuda
