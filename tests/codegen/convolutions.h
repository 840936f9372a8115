// SPDX-License-Identifier: Apache-2.0
// Graphs of contractions over windows, for tests of programs.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

namespace kiln::testing {

/// Convolutions are contractions over windows.
inline std::vector<std::string> convolutions() {
  const auto graph = [](const char* before, const char* windows, const char* contract) {
    return fmt::format(
        "graph g {{\n  %0 = input f32[2,3,9,8] arg\n  %1 = input f32[4,3,3,3] param\n{}{}  %9 = "
        "{}\n  output %9\n}}",
        before, windows, contract);
  };
  const char* plain = "  %2 = f32[2,3,9,8] neg %0\n  %3 = f32[2,3,9,8] neg %2\n";
  const char* heavy = "  %2 = f32[2,3,9,8] exp %0\n  %3 = f32[2,3,9,8] tanh %2\n";
  const char* padded =
      "  %2 = f32[2,3,9,6] slice %0 {starts=[0,0,0,1], stops=[2,3,9,7], steps=(1,1,1,1)}\n"
      "  %3 = f32[2,3,9,8] pad %2 {low=[0,0,0,1], high=[0,0,0,1], interior=(0,0,0,0), value=0.}\n";
  const char* windows =
      "  %4 = f32[2,3,7,3,8] window %3 {dim=2, size=3, step=1, dilation=1}\n"
      "  %5 = f32[2,3,7,3,2,3] window %4 {dim=4, size=3, step=3, dilation=2}\n";
  const char* dense =
      "f32[2,7,2,4] dot_general %5, %1 {batch_a=(), batch_b=(), contract_a=(1,3,5), "
      "contract_b=(1,2,3)}";
  const char* by_channel =
      "f32[3,2,7,2,4] dot_general %5, %1 {batch_a=(1), batch_b=(1), contract_a=(3,5), "
      "contract_b=(2,3)}";
  std::vector<std::string> all;
  all.push_back(graph(plain, windows, dense));
  all.push_back(graph(heavy, windows, by_channel));
  all.push_back(graph(padded, windows, dense));
  // Strides of one window alone need no copy.
  all.push_back(R"(graph g {
  %0 = input f32[3,40] arg
  %1 = input f32[5,7] param
  %2 = f32[3,17,7] window %0 {dim=1, size=7, step=2, dilation=1}
  %3 = f32[3,17,5] dot_general %2, %1 {batch_a=(), batch_b=(), contract_a=(2), contract_b=(1)}
  %4 = f32[3,17,7] dot_general %3, %1 {batch_a=(), batch_b=(), contract_a=(2), contract_b=(0)}
  %6 = f32[3,33,7] pad %4 {low=[0,0,0], high=[0,0,0], interior=(0,1,0), value=0.}
  %7 = f32[3,40,7] skew %6 {dim=1, by=1, size=[40]}
  %8 = f32[3,40] sum %7 {dims=(2)}
  %9 = f32[7,5] dot_general %2, %3 {batch_a=(), batch_b=(), contract_a=(0,1), contract_b=(0,1)}
  output %3
  output %8
  output %9
})");
  return all;
}

}  // namespace kiln::testing
