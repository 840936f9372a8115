// SPDX-License-Identifier: Apache-2.0
// `kiln options`: prints the switch table of ir/base/options.h, which docs/options.md is made from.
#include "ir/base/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/arguments.h"
#include "cli/commands.h"

namespace kiln::cli {

namespace {

void print_text() {
  for (const OptionDef& o : option_table()) {
    const std::string value = option(o.name);
    fmt::print("{}  ({}; default {})\n    {}\n", o.name, value_text(o),
               o.fallback.empty() ? "none" : o.fallback, o.doc);
    if (value != o.fallback) fmt::print("    set to {}\n", value);
  }
}

void print_markdown() {
  fmt::print(
      "# Switches\n\n"
      "Kiln reads these environment variables, and no others that begin with KILN_: an unknown one is\n"
      "an error. Made by `kiln options --markdown` from ir/base/options.cpp.\n\n"
      "| name | value | default | what it does |\n| --- | --- | --- | --- |\n");
  for (const OptionDef& o : option_table()) {
    fmt::print("| {} | {} | {} | {} |\n", o.name, value_text(o), o.fallback.empty() ? "none" : o.fallback,
               o.doc);
  }
}

}  // namespace

void add_options_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("options", "Lists the environment switches and their values");
  const auto markdown = std::make_shared<bool>(false);
  add_flag(*command, "--markdown", *markdown, "Print the page docs/options.md");
  command->callback([markdown] { *markdown ? print_markdown() : print_text(); });
}

}  // namespace kiln::cli
