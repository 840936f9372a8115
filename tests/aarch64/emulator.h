// SPDX-License-Identifier: Apache-2.0
// What tests under the emulator share: their main().
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <exception>
#include <functional>
#include <string>

#include "tests/aarch64/emulated_cpu.h"

namespace kiln::emulated {

inline constexpr int kSkipped = 77;  ///< what ctest takes for skipped

/// Whether there is an emulator and a runner; says so if not.
inline bool available(const std::string& emulator, const std::string& runner) {
  for (const auto& [program, package] :
       {std::pair{emulator, "qemu-user"}, {runner, "g++-aarch64-linux-gnu"}}) {
    if (access(program.c_str(), X_OK) == 0) continue;
    fmt::print("skipped: no {} (scripts/setup.sh --nightly, then configure again)\n", package);
    return false;
  }
  return true;
}

/// main() of a test EMULATOR RUNNER ARGUMENTS...: `body` compiles for AArch64 and returns the exit status.
inline int emulated_main(int argc, char** argv, const std::function<int(const Cpu&)>& body) {
  if (argc < 3) return 2;
  if (!available(argv[1], argv[2])) return kSkipped;
  try {
    Cpu cpu({argv[1], argv[2]});
    use(cpu, parse_target("aarch64"));
    const int status = body(cpu);
    fmt::print("{} programs of {} kernels, {} calls with {} launches under the emulator\n",
               cpu.counts.programs, cpu.counts.kernels, cpu.counts.runs, cpu.counts.launches);
    return cpu.counts.runs == 0 ? 1 : status;
  } catch (const std::exception& e) {
    fmt::print("error: {}\n", e.what());
    return 1;
  }
}

}  // namespace kiln::emulated
