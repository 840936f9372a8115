// SPDX-License-Identifier: Apache-2.0
// Every environment switch of Kiln, in one table. Nothing else calls getenv.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kiln {

/// One row of the switch table.
struct OptionDef {
  std::string_view name;      ///< environment variable, e.g. "KILN_LOG"
  std::string_view type;      ///< "flag", "int", "path", "choice:a|b", "tokens:a|b"
  std::string_view fallback;  ///< value when unset
  std::string_view doc;       ///< one sentence
};

/// All switches, sorted by name.
std::span<const OptionDef> option_table();
/// What a switch may be, in words: "one of on, off, check".
std::string value_text(const OptionDef& o);

/// The value of a switch: what set_option gave, else the environment, else the fallback.
/// Throws: invalid, when the value does not fit its type (the message lists what does) or on an unknown name.
std::string option(std::string_view name);
bool option_flag(std::string_view name);
int64_t option_int(std::string_view name);
/// The comma-separated tokens of a "tokens:" switch.
std::vector<std::string> option_tokens(std::string_view name);

/// Overrides a switch in this process (tests, command line); an empty value removes the override.
void set_option(std::string_view name, std::string value);

/// Throws: invalid, if the environment holds a KILN_ variable that is not in the table.
void check_environment();

/// An environment variable that is not Kiln's own (HOME, RANK, ...), or "" when unset.
std::string system_env(const char* name);

/// The environment of a program to be started: this process's, with `set` in it and without `unset`.
std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& set,
                                          const std::vector<std::string>& unset);

}  // namespace kiln
