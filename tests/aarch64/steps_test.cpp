// SPDX-License-Identifier: Apache-2.0
// steps_test EMULATOR RUNNER WORKLOAD...: trains benchmark workloads compiled for AArch64 under the emulator
// and eagerly here, and compares the losses. Status 77: there is no emulator or no runner.
#include <cmath>

#include "benchmarks/workloads.h"
#include "tests/aarch64/emulator.h"

namespace kiln {
namespace {

/// How many losses of three steps differ.
int train(const std::string& workload) {
  int failures = 0;
  const auto there = bench::make_workload(workload, {.compiled = true});
  const auto here = bench::make_workload(workload, {.compiled = false});
  for (int step = 0; step < 3; ++step) {
    const double got = there->step(), expected = here->step();
    const bool good = std::abs(got - expected) <= 2e-6 * std::abs(expected);
    failures += good ? 0 : 1;
    fmt::print("{} step {}: loss {:.9g}, here {:.9g}: {}\n", workload, step, got, expected,
               good ? "agree" : "DIFFER");
  }
  return failures;
}

}  // namespace
}  // namespace kiln

int main(int argc, char** argv) {
  return kiln::emulated::emulated_main(argc, argv, [&](const kiln::emulated::Cpu&) {
    int failures = 0;
    for (int i = 3; i < argc; ++i) failures += kiln::train(argv[i]);
    return failures > 0 ? 1 : 0;
  });
}
