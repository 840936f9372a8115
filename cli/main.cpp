// SPDX-License-Identifier: Apache-2.0
// The program `kiln`: parses the command line and runs one command. Exit status: 0 done, 1 the command
// failed, 2 the command line or the environment is wrong, and for `kiln run` what the ranks' is. An error is
// one line on stderr.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "frontend/version.h"
#include "ir/base/error.h"
#include "ir/base/options.h"

namespace {

constexpr int kFailed = 1, kBadUsage = 2;

/// Where the `--` of `kiln run` stands, or argc. What follows it is another program's command line.
int end_of_own(int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "run") return argc;
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]) == "--") return i;
  return argc;
}

int run(int argc, char** argv) {
  const int own = end_of_own(argc, argv);
  const std::vector<std::string> program(argv + std::min(own + 1, argc), argv + argc);
  int status = 0;
  CLI::App app("Kiln compiles training for C++.", "kiln");
  app.set_version_flag("--version", fmt::format("kiln {}", kiln::version()));
  app.require_subcommand(1);
  kiln::cli::add_options_command(app);
  kiln::cli::add_run_command(app, program, status);
  kiln::cli::add_warm_command(app);
  kiln::cli::add_cache_command(app);
  kiln::cli::add_explain_command(app);
  kiln::cli::add_tuning_command(app);
  try {
    kiln::check_environment();
    app.parse(own, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    fmt::print(stderr, "kiln: {}\n", kiln::cli::usage_error(app, e, argc, argv));
    return kBadUsage;
  } catch (const kiln::Error& e) {
    fmt::print(stderr, "kiln: {}\n", e.what());
    return e.kind() == kiln::ErrorKind::invalid ? kBadUsage : kFailed;
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int status = run(argc, argv);
    KILN_CHECK(std::fflush(stdout) == 0, io, "cannot write the output; {}", std::strerror(errno));
    return status;
  } catch (const std::exception& e) {
    fmt::print(stderr, "kiln: {}\n", e.what());
    return kFailed;
  }
}
