// SPDX-License-Identifier: Apache-2.0
#include "codegen/gpu_model.h"

#include <gmock/gmock.h>

#if __has_include(<cuda_occupancy.h>)
#include <cuda_occupancy.h>
#endif

namespace kiln {
namespace KILN_FILE {

int blocks(const char* arch, int threads, int registers, int64_t shared) {
  return occupancy({threads, registers, shared}, parse_cuda_target(arch)).blocks;
}

TEST(Occupancy, IsLimitedByWhatRunsOutFirst) {
  EXPECT_EQ(blocks("sm_80", 256, 32, 0), 8);
  EXPECT_EQ(blocks("sm_80", 256, 64, 0), 4);
  EXPECT_EQ(blocks("sm_80", 256, 255, 0), 1);
  EXPECT_EQ(blocks("sm_80", 32, 16, 0), 32);
  EXPECT_EQ(blocks("sm_80", 128, 32, 48 << 10), 3);
  EXPECT_EQ(blocks("sm_90a", 128, 32, 227 << 10), 1);
  const CudaTarget h100 = parse_cuda_target("sm_90a");
  EXPECT_EQ(occupancy({256, 64, 0}, h100).limit, "registers");
  EXPECT_EQ(occupancy({256, 32, 0}, h100).limit, "threads");
  EXPECT_EQ(occupancy({32, 16, 0}, h100).limit, "blocks");
  EXPECT_EQ(occupancy({256, 32, 100 << 10}, h100).limit, "shared memory");
  EXPECT_DOUBLE_EQ(occupancy({256, 64, 0}, h100).share, 0.5);
}

TEST(Occupancy, IsNoneForWhatCannotRun) {
  const CudaTarget h100 = parse_cuda_target("sm_90a");
  EXPECT_EQ(occupancy({1056, 32, 0}, h100).blocks, 0);
  EXPECT_EQ(occupancy({128, 256, 0}, h100).blocks, 0);
  EXPECT_EQ(occupancy({128, 32, 228 << 10}, h100).blocks, 0);
  EXPECT_EQ(occupancy({1024, 128, 0}, h100).blocks, 0);
}

#if __has_include(<cuda_occupancy.h>)
// NVIDIA's own calculator, where a toolkit is.
TEST(Occupancy, IsWhatTheToolkitComputes) {
  for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120"}) {
    const CudaTarget t = parse_cuda_target(arch);
    cudaOccDeviceProp d;
    d.computeMajor = t.capability / 10;
    d.computeMinor = t.capability % 10;
    d.maxThreadsPerBlock = CudaTarget::kThreadsPerBlock;
    d.maxThreadsPerMultiprocessor = t.threads_per_sm;
    d.regsPerBlock = d.regsPerMultiprocessor = t.registers_per_sm;
    d.warpSize = 32;
    d.sharedMemPerBlock = 48 << 10;
    d.sharedMemPerMultiprocessor = static_cast<size_t>(t.shared_per_sm);
    d.sharedMemPerBlockOptin = static_cast<size_t>(t.shared_per_block);
    d.reservedSharedMemPerBlock = 1024;
    d.numSms = t.sm_count;
    for (int threads : {32, 64, 96, 128, 160, 256, 320, 512, 1024})
      for (int registers : {16, 24, 32, 40, 64, 72, 96, 128, 168, 255})
        for (int64_t shared : {0, 100, 1024, 16 << 10, 48 << 10, 96 << 10, 160 << 10}) {
          if (shared > t.shared_per_block) continue;
          cudaOccFuncAttributes f;
          f.maxThreadsPerBlock = 1024;
          f.numRegs = registers;
          f.sharedSizeBytes = 0;
          f.partitionedGCConfig = PARTITIONED_GC_OFF;
          f.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
          f.maxDynamicSharedSizeBytes = static_cast<size_t>(t.shared_per_block);
          f.numBlockBarriers = 1;
          cudaOccDeviceState state;
          state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
          cudaOccResult r;
          ASSERT_EQ(cudaOccMaxActiveBlocksPerMultiprocessor(&r, &d, &f, &state, threads,
                                                            static_cast<size_t>(shared)),
                    CUDA_OCC_SUCCESS);
          EXPECT_EQ(occupancy({threads, registers, shared}, t).blocks, r.activeBlocksPerMultiprocessor)
              << arch << " threads " << threads << " registers " << registers << " shared " << shared;
        }
  }
}
#endif

const GpuSpec& gpu(std::string_view name) {
  for (const GpuSpec& g : gpu_specs())
    if (g.name == name) return g;
  throw std::runtime_error("no such GPU");
}

KernelWork stream_work(double bytes, int64_t blocks) {
  return {bytes, bytes / 8, blocks, {256, 32, 0}, MathUnit::f32};
}

TEST(Predict, ACopyTakesItsBytesOverTheBandwidth) {
  const Occupancy o = occupancy({256, 32, 0}, parse_cuda_target("sm_90a"));
  const Prediction p = predict(stream_work(1e9, 100000), o, gpu("H100"));
  EXPECT_NEAR(p.us, 1e9 / 3352e3 / 0.92 + 2, 1);
  EXPECT_EQ(p.bound, "memory");
}

TEST(Predict, WhatHasNoRoomTakesForever) {
  const BlockNeeds row{512, 64, 200 << 10};  // more shared memory than a block of an A100 has
  KernelWork w = stream_work(1e6, 100);
  w.block = row;
  const Prediction p = predict(w, occupancy(row, parse_cuda_target("sm_80")), gpu("A100"));
  EXPECT_TRUE(std::isinf(p.us));
  EXPECT_EQ(p.bound, "no room");
  EXPECT_LT(predict(w, occupancy(row, parse_cuda_target("sm_90a")), gpu("H100")).us, 100);
}

TEST(Predict, AProductTakesItsFlopsOverThePeakOfItsUnits) {
  const Occupancy o = occupancy({256, 128, 64 << 10}, parse_cuda_target("sm_90a"));
  const double n = 8192;
  const KernelWork w{3 * n * n * 4, 2 * n * n * n, 4096, {256, 128, 64 << 10}, MathUnit::tf32};
  const Prediction p = predict(w, o, gpu("H100"));
  EXPECT_EQ(p.bound, "compute");
  EXPECT_GT(p.us, 2 * n * n * n / 494.7e6);
  KernelWork exact = w;
  exact.unit = MathUnit::f32;
  EXPECT_GT(predict(exact, o, gpu("H100")).us, 5 * p.us);
}

TEST(Predict, FewBlocksAreSlowerAndSmallKernelsAreTheirLaunch) {
  const Occupancy o = occupancy({256, 32, 0}, parse_cuda_target("sm_90a"));
  EXPECT_GT(predict(stream_work(1e8, 8), o, gpu("H100")).us,
            4 * predict(stream_work(1e8, 1056), o, gpu("H100")).us);
  EXPECT_EQ(predict(stream_work(4096, 1), o, gpu("H100")).bound, "launch");
  // A wave and a bit takes two.
  const KernelWork one{0, 1e9, 1056, {256, 32, 0}, MathUnit::f32},
      more{0, 1e9, 1057, {256, 32, 0}, MathUnit::f32};
  EXPECT_GT(predict(more, o, gpu("H100")).us, 1.5 * predict(one, o, gpu("H100")).us);
}

TEST(Predict, AFasterGpuTakesLess) {
  const Occupancy o = occupancy({256, 32, 0}, parse_cuda_target("sm_80"));
  const KernelWork w = stream_work(1e9, 100000);
  EXPECT_LT(predict(w, o, gpu("H100")).us, predict(w, o, gpu("A100")).us);
  EXPECT_LT(predict(w, o, gpu("B200")).us, predict(w, o, gpu("H100")).us);
}

}  // namespace KILN_FILE
}  // namespace kiln
