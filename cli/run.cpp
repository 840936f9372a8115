// SPDX-License-Identifier: Apache-2.0
// `kiln run`: the command line of cli/launcher.h.
#include <CLI/CLI.hpp>
#include <memory>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/launcher.h"

namespace kiln::cli {

void add_run_command(CLI::App& app, const std::vector<std::string>& program, int& status) {
  CLI::App* command = app.add_subcommand("run", "Starts ranks of a program on this machine");
  const auto options = std::make_shared<LaunchOptions>();
  command->footer("Usage: kiln run [--nproc N] [--no-pin] -- program [arguments]");
  add_number(*command, "--nproc", options->ranks, 1, kMostRanks, "Number of ranks");
  add_flag(*command, "--pin,!--no-pin", options->pin, "Give every rank its own CPUs; default yes");
  command->callback([options, &program, &status] {
    options->command = program;
    status = launch(*options);
  });
}

}  // namespace kiln::cli
