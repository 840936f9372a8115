// SPDX-License-Identifier: Apache-2.0
// The arguments that commands take, and what is said of bad ones: "warm: bad --jobs; got 'x', expected a
// whole number from 0 to 1024". CLI11 is included by the .cpp file only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace kiln::cli {

// Each adds one argument to a command; `value` holds the default and must outlive the parsing. A value that
// will not do ends the parsing. Throws: invalid, naming command, argument, value, and what is accepted.

/// A whole number; `unit` stands for it in the help.
void add_number(CLI::App& command, const std::string& names, int& value, int least, int most,
                const std::string& what, const std::string& unit = "N");
void add_number(CLI::App& command, const std::string& names, int64_t& value, int64_t least, int64_t most,
                const std::string& what, const std::string& unit = "N");
/// One of a few words.
void add_choice(CLI::App& command, const std::string& names, std::string& value,
                const std::vector<std::string>& choices, const std::string& what);
/// --target: CPUs and GPU architectures, with commas between.
void add_targets(CLI::App& command, std::string& value, const std::string& what);
/// The name of a file.
void add_path(CLI::App& command, const std::string& names, std::string& value, const std::string& what);
/// A word that takes no value.
void add_flag(CLI::App& command, const std::string& names, bool& value, const std::string& what);
/// --json.
void add_json(CLI::App& command, bool& value);
/// The job file, which must be given.
void add_job(CLI::App& command, std::string& value);
/// A file that must be given, and one or more of them.
void add_file(CLI::App& command, std::string& value, const std::string& what);
void add_files(CLI::App& command, std::vector<std::string>& values, const std::string& what);

/// What is wrong with the command line, as one line that ends with where help is.
std::string usage_error(const CLI::App& app, const CLI::ParseError& e, int argc, char** argv);

}  // namespace kiln::cli
