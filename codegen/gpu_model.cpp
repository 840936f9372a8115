// SPDX-License-Identifier: Apache-2.0
#include "codegen/gpu_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/base/rounding.h"

namespace kiln {

namespace {

constexpr int64_t kSharedOfDriver = 1024;  // bytes of each block
constexpr int64_t kSharedStep = 128;
constexpr int kRegisterStep = 256;  // registers of a warp come in such steps
constexpr int kPartitions = 4;      // of a multiprocessor, each with its warps and registers

constexpr double kLatencyNs = 700;      // of memory under load
constexpr double kBytesInFlight = 32;   // of a thread: two accesses of 16 bytes
constexpr double kMemoryShare = 0.92;   // of the data sheet's bandwidth that copies reach
constexpr double kComputeShare = 0.75;  // of the data sheet's peak that good kernels reach

constexpr GpuSpec kGpus[] = {
    {"A100", "sm_80", 108, 2039, 19.5, 9.7, 156, 312, 2.5},
    {"H100", "sm_90a", 132, 3352, 66.9, 33.5, 494.7, 989.4, 2.0},
    {"B200", "sm_100a", 148, 7700, 75, 37, 1100, 2250, 2.0},
};

/// Blocks whose registers fit. Warps lie in one partition each, and a launch is checked as if a block had
/// as many warps in all of them.
int blocks_by_registers(const BlockNeeds& b, const CudaTarget& t) {
  const int warps = static_cast<int>(round_up(b.threads, CudaTarget::kWarp)) / CudaTarget::kWarp;
  const auto of_warp = static_cast<int>(round_up(int64_t{b.registers} * CudaTarget::kWarp, kRegisterStep));
  const int fit = t.registers_per_sm / kPartitions / of_warp * kPartitions;
  return fit < round_up(warps, kPartitions) ? 0 : fit / warps;
}

double peak_tflops(const GpuSpec& gpu, MathUnit unit) {
  switch (unit) {
    case MathUnit::f64: return gpu.f64_tflops;
    case MathUnit::tf32: return gpu.tf32_tflops;
    case MathUnit::half: return gpu.half_tflops;
    case MathUnit::f32: break;
  }
  return gpu.f32_tflops;
}

}  // namespace

std::span<const GpuSpec> gpu_specs() { return kGpus; }

const char* name_of(MathUnit unit) {
  constexpr const char* kNames[] = {"f32", "f64", "tf32", "half"};
  return kNames[static_cast<size_t>(unit)];
}

Occupancy occupancy(const BlockNeeds& block, const CudaTarget& target) {
  const int warps = static_cast<int>(round_up(block.threads, CudaTarget::kWarp)) / CudaTarget::kWarp;
  const int most = target.threads_per_sm / CudaTarget::kWarp;
  if (block.threads <= 0 || block.threads > CudaTarget::kThreadsPerBlock) return {0, 0, "threads"};
  if (block.registers > target.registers_per_thread) return {0, 0, "registers"};
  if (block.shared_bytes > target.shared_per_block) return {0, 0, "shared memory"};
  Occupancy o{most / warps, 0, "threads"};
  const auto tighten = [&](int64_t blocks, std::string_view limit) {
    if (blocks < o.blocks) o = {static_cast<int>(blocks), 0, limit};
  };
  tighten(target.blocks_per_sm, "blocks");
  if (block.registers > 0) tighten(blocks_by_registers(block, target), "registers");
  tighten(target.shared_per_sm / round_up(block.shared_bytes + kSharedOfDriver, kSharedStep),
          "shared memory");
  o.share = static_cast<double>(o.blocks * warps) / most;
  return o;
}

Prediction predict(const KernelWork& work, const Occupancy& occupancy, const GpuSpec& gpu) {
  Prediction p{gpu.launch_us, "launch", 0};
  if (work.blocks <= 0) return p;
  if (occupancy.blocks <= 0) return {std::numeric_limits<double>::infinity(), "no room", 0};
  const double room = static_cast<double>(gpu.multiprocessors) * occupancy.blocks;
  const auto blocks = static_cast<double>(work.blocks);
  p.waves = blocks / room;
  // The last wave is as long as a full one. Blocks that share a multiprocessor share its units.
  const double filled = std::min(1.0, blocks / gpu.multiprocessors);
  const double even = p.waves > 1 ? p.waves / std::ceil(p.waves) : filled;
  const double compute_us = work.flops / (peak_tflops(gpu, work.unit) * 1e6 * kComputeShare * even);
  const double running = std::min(blocks, room) * work.block.threads;
  const double in_flight = running * kBytesInFlight;
  const double wanted = kLatencyNs * gpu.memory_gbs;  // bytes: ns times GB/s
  const double memory_us =
      work.bytes / (gpu.memory_gbs * 1e3 * kMemoryShare * std::min(1.0, in_flight / wanted));
  const double longer = std::max(compute_us, memory_us);
  p.us += longer;
  if (longer > gpu.launch_us) p.bound = memory_us >= compute_us ? "memory" : "compute";
  return p;
}

}  // namespace kiln
