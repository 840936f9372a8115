// SPDX-License-Identifier: Apache-2.0
// ops_golden_test EMULATOR RUNNER [FILTER]: ops.json compiled for AArch64. The kernels run under the
// emulator, and everything else here, as in golden.ops_golden_test. Status 77: there is no emulator or no
// runner.
#include "tests/aarch64/emulator.h"
#include "tests/golden/ops_case.h"
#include "tests/golden/run.h"

int main(int argc, char** argv) {
  using namespace kiln;
  return emulated::emulated_main(argc, argv, [&](const emulated::Cpu& cpu) {
    return golden::golden_main("ops", argc > 3 ? argv[3] : "", true, [&](const golden::Json& j) {
      const int64_t before = cpu.counts.runs;
      std::string difference = golden::run_ops_compiled(j);
      const bool ran = cpu.counts.runs > before || j.contains("error");
      return difference.empty() && !ran ? std::string("nothing ran under the emulator") : difference;
    });
  });
}
