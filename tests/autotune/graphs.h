// SPDX-License-Identifier: Apache-2.0
// Small programs with something to choose about, for tests of tuning.
#pragma once

#include "autotune/space.h"

namespace kiln::testing {

/// A matmul with an epilogue, a softmax over rows, and sums over columns.
inline constexpr const char* kLayer = R"(graph layer {
  %0 = input f32[96,64] arg
  %1 = input f32[128,64] param
  %2 = input f32[128] param
  %3 = f32[96,128] dot_general %0, %1 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(1)}
  %4 = f32[96,128] expand %2 {shape=[96,128]}
  %5 = f32[96,128] add %3, %4
  %6 = f32[96] amax %5 {dims=(1)}
  %7 = f32[96,1] reshape %6 {shape=[96,1]}
  %8 = f32[96,128] expand %7 {shape=[96,128]}
  %9 = f32[96,128] sub %5, %8
  %10 = f32[96,128] exp %9
  %11 = f32[96] sum %10 {dims=(1)}
  %12 = f32[96,1] reshape %11 {shape=[96,1]}
  %13 = f32[96,128] expand %12 {shape=[96,128]}
  %14 = f32[96,128] div %10, %13
  %15 = f32[128] sum %14 {dims=(0)}
  output %14
  output %15
})";

/// A matmul so deep that its k is split, which is a numeric part.
inline constexpr const char* kDeep = R"(graph deep {
  %0 = input f32[16,4096] arg
  %1 = input f32[4096,32] param
  %2 = f32[16,32] dot_general %0, %1 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(0)}
  output %2
})";

/// A matmul that a library may do in many tiles.
inline constexpr const char* kWide = R"(graph wide {
  %0 = input f32[1024,1024] arg
  %1 = input f32[1024,1024] param
  %2 = f32[1024,1024] dot_general %0, %1 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(0)}
  output %2
})";

/// The first schedule of a kernel and what is around it in a wide space.
inline std::vector<std::string> wide_schedules(const TunableKernel& k) {
  ScheduleSpace space(k, SpaceSize::wide);
  std::vector<std::string> all = {space.first()};
  for (std::string& s : space.around(space.first())) all.push_back(std::move(s));
  return all;
}

}  // namespace kiln::testing
