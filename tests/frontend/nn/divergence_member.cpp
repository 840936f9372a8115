// SPDX-License-Identifier: Apache-2.0
// A rank, for divergence_test.py: `divergence_member SCENARIO ODD_RANK TIMEOUT` runs the scenario compiled in
// the world of its environment, and prints how it ended: "rank 1 (gloo): ok 1234.5" with the sum of its
// parameters, or "rank 1 (gloo): comm: ..."; both with the longest wait in seconds. Status 1 after an error.
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "frontend/distributed.h"
#include "runtime/collective.h"
#include "tests/frontend/nn/divergence.h"

namespace {

int run(const std::string& name, int odd_rank, double timeout) {
  const auto group = kiln::distributed::init_process_group({.timeout = timeout});
  const kiln::nn::Outcome out =
      kiln::nn::diverge(kiln::nn::scenario(name), odd_rank, group->rank(), group, true);
  double sum = 0;
  for (const float v : out.parameters) sum += std::abs(v);
  std::printf("rank %d (%s), %.2f s: %s\n", group->rank(), group->backend(), out.longest,
              out.error.empty() ? ("ok " + std::to_string(sum)).c_str() : out.error.c_str());
  std::fflush(stdout);
  if (!out.error.empty()) return 1;
  kiln::distributed::destroy_process_group();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return argc == 4 ? run(argv[1], std::atoi(argv[2]), std::atof(argv[3])) : 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 3;
  }
}
