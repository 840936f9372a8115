// SPDX-License-Identifier: Apache-2.0
// The commands of the program `kiln`. Each adds itself to the parser and runs in its callback; a command that
// fails throws kiln::Error. CLI11 is included by the .cpp files only.
#pragma once

namespace CLI {
class App;
}

namespace kiln::cli {

/// `kiln options`: the table of environment switches, as text or as the page docs/options.md.
void add_options_command(CLI::App& app);

}  // namespace kiln::cli
