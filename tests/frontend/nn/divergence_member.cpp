// SPDX-License-Identifier: Apache-2.0
// A rank, for divergence_test.py: `divergence_member SCENARIO ODD_RANK TIMEOUT [eager|compiled END]` runs the
// scenario, compiled if nothing is said, in the world of its environment, and prints how it ended: "rank 1
// (gloo): ok 1234.5" with the sum of its parameters, or "rank 1 (gloo): comm: ..."; both with the longest
// wait in seconds. Status 1 after an error. END is what a rank that comes to its end does there without a
// last meeting, its wrapper still alive: destroy (the process group), exit (by a call) or return (from main).
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "frontend/distributed.h"
#include "runtime/collective.h"
#include "tests/frontend/nn/divergence.h"

namespace {

void say(const kiln::ProcessGroup& group, const kiln::nn::Outcome& out) {
  double sum = 0;
  for (const float v : out.parameters) sum += std::abs(v);
  std::printf("rank %d (%s), %.2f s: %s\n", group.rank(), group.backend(), out.longest,
              out.error.empty() ? ("ok " + std::to_string(sum)).c_str() : out.error.c_str());
  std::fflush(stdout);
}

int run(const std::string& name, int odd_rank, double timeout, bool compiled, const std::string& end) {
  const auto group = kiln::distributed::init_process_group({.timeout = timeout});
  std::function<void()> at_end;
  if (end == "destroy") at_end = [] { kiln::distributed::destroy_process_group(); };
  if (end == "return") at_end = [] {};
  if (end == "exit")
    at_end = [&] {
      say(*group, {});
      std::exit(0);
    };
  const kiln::nn::Outcome out =
      kiln::nn::diverge(kiln::nn::scenario(name), odd_rank, group->rank(), group, compiled, at_end);
  say(*group, out);
  if (!out.error.empty()) return 1;
  if (end.empty()) kiln::distributed::destroy_process_group();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 4 && argc != 6) return 2;
    const bool compiled = argc == 4 || argv[4] == std::string("compiled");
    return run(argv[1], std::atoi(argv[2]), std::atof(argv[3]), compiled, argc == 6 ? argv[5] : "");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 3;
  }
}
