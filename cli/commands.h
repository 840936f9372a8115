// SPDX-License-Identifier: Apache-2.0
// The commands of the program `kiln`. Each adds itself to the parser and runs in its callback; a command that
// fails throws kiln::Error. CLI11 is included by the .cpp files only.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace kiln::cli {

/// `kiln options`: the table of environment switches, as text or as the page docs/options.md.
void add_options_command(CLI::App& app);
/// `kiln warm`: compiles a recorded job into the cache.
void add_warm_command(CLI::App& app);
/// `kiln cache`: looks at the disk cache and clears it up; why-miss is in a file of its own.
void add_cache_command(CLI::App& app);
void add_why_miss_command(CLI::App& cache);
/// `kiln explain`: what the programs of a job become.
void add_explain_command(CLI::App& app);
/// `kiln tuning`: what tuning has found, as files.
void add_tuning_command(CLI::App& app);

/// `kiln run`: runs `program`, what stands after `--`, as several ranks, and sets `status` to what is to be
/// the exit status. Both must outlive the parsing.
void add_run_command(CLI::App& app, const std::vector<std::string>& program, int& status);

}  // namespace kiln::cli
