// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <functional>

#include "cli/text.h"
#include "ir/base/error.h"

namespace kiln::cli {

namespace {

/// "cache gc": the command as it is typed; "" for the program itself.
std::string path_of(const CLI::App& command) {
  const CLI::App* const parent = command.get_parent();
  if (!parent) return "";
  const std::string before = path_of(*parent);
  return before.empty() ? command.get_name() : before + " " + command.get_name();
}

/// The command that was asked for, however deep.
const CLI::App& chosen(const CLI::App& app) {
  const std::vector<CLI::App*> own = app.get_subcommands();
  return own.empty() ? app : chosen(*own[0]);
}

/// "a, b, c": what would have been right.
std::string command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return fmt::format("{}", fmt::join(names, ", "));
}

/// `take` says whether it took the text.
void add_value(CLI::App& command, const std::string& names, const std::string& fallback,
               const std::string& what, const std::string& unit, const std::string& expected,
               const std::function<bool(const std::string&)>& take) {
  const std::string name = names.substr(names.rfind("--"));
  const auto set = [&command, name, expected, take](const std::string& text) {
    KILN_CHECK(take(text), invalid, "{}: bad {}; got '{}', expected {}", path_of(command), name, text,
               expected);
  };
  CLI::Option* const option = command.add_option_function<std::string>(names, set, what)->type_name(unit);
  if (!fallback.empty()) option->default_str(fallback);
}

template <typename Int>
void add_whole(CLI::App& command, const std::string& names, Int& value, Int least, Int most,
               const std::string& what, const std::string& unit) {
  const auto take = [&value, least, most](const std::string& text) {
    Int n = 0;
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (ec != std::errc() || end != text.data() + text.size() || n < least || n > most) return false;
    value = n;
    return true;
  };
  const std::string fallback = value >= least ? fmt::to_string(value) : "";  // others mean: not given
  add_value(command, names, fallback, what, unit, fmt::format("a whole number from {} to {}", least, most),
            take);
}

/// The command line as it should have been: with `--` before `program`.
std::string with_dashes(int argc, char** argv, const std::string& program) {
  std::string out = "kiln";
  bool before = true;
  for (int i = 1; i < argc; ++i) {
    if (before && argv[i] == program) out += " --", before = false;
    out += std::string(" ") + argv[i];
  }
  return out;
}

/// Words that no command takes.
std::string about_extra(const CLI::App& command, const std::string& extra, int argc, char** argv) {
  const bool word = !extra.starts_with("-");
  if (path_of(command) == "run" && word)
    return fmt::format("no -- before the program '{}'; expected {}", extra, with_dashes(argc, argv, extra));
  const std::string commands = command_names(command);
  if (word && !commands.empty()) return fmt::format("unknown command '{}'; commands: {}", extra, commands);
  return fmt::format("unknown argument '{}'", extra);
}

/// What is not there, although it must be.
std::string about_missing(const CLI::App& command) {
  for (const CLI::Option* o : command.get_options())
    if (o->get_required() && o->count() == 0)
      return fmt::format("no {0}; expected kiln {1} {0}", o->get_type_name(), path_of(command));
  return fmt::format("no command; commands: {}", command_names(command));
}

/// From CLI11's own words, of which there are three kinds: a value that is missing, one that a flag does not
/// take, and an argument that stands there twice.
std::string about_count(const std::string& text) {
  std::string name = text.substr(0, text.find_first_of(": "));
  if (!name.starts_with("-")) name = "--" + name;
  if (text.ends_with(" missing")) return name + " needs a value";
  if (text.ends_with("override")) return name + " takes no value";
  return name + " is given more than once";
}

}  // namespace

void add_number(CLI::App& command, const std::string& names, int& value, int least, int most,
                const std::string& what, const std::string& unit) {
  add_whole(command, names, value, least, most, what, unit);
}
void add_number(CLI::App& command, const std::string& names, int64_t& value, int64_t least, int64_t most,
                const std::string& what, const std::string& unit) {
  add_whole(command, names, value, least, most, what, unit);
}

void add_choice(CLI::App& command, const std::string& names, std::string& value,
                const std::vector<std::string>& choices, const std::string& what) {
  const auto take = [&value, choices](const std::string& text) {
    value = text;
    return std::find(choices.begin(), choices.end(), text) != choices.end();
  };
  add_value(command, names, value, what, fmt::format("{}", fmt::join(choices, "|")),
            fmt::format("one of {}", fmt::join(choices, ", ")), take);
}

void add_targets(CLI::App& command, std::string& value, const std::string& what) {
  const auto take = [&value](const std::string& text) {
    value = text;
    try {
      parse_targets(text);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::invalid) throw;
      return false;
    }
    return true;
  };
  add_value(
      command, "--target", value, what, "TARGET,...",
      "some of host, x86-64-v3, x86-64-v4, aarch64, sm_80, sm_90a, sm_100a and the like, with commas between",
      take);
}

void add_path(CLI::App& command, const std::string& names, std::string& value, const std::string& what) {
  command.add_option(names, value, what)->type_name("FILE");
}

void add_flag(CLI::App& command, const std::string& names, bool& value, const std::string& what) {
  command.add_flag(names, value, what)->disable_flag_override();
}

void add_json(CLI::App& command, bool& value) { add_flag(command, "--json", value, "Print JSON"); }

void add_job(CLI::App& command, std::string& value) {
  command.add_option("job", value, "Job file, recorded with KILN_RECORD")->required()->type_name("JOB");
}

void add_file(CLI::App& command, std::string& value, const std::string& what) {
  command.add_option("file", value, what)->required()->type_name("FILE");
}
void add_files(CLI::App& command, std::vector<std::string>& values, const std::string& what) {
  command.add_option("file", values, what)->required()->type_name("FILE");
}

std::string usage_error(const CLI::App& app, const CLI::ParseError& e, int argc, char** argv) {
  const CLI::App& command = chosen(app);
  const std::string path = path_of(command);
  const std::vector<std::string> extras = app.remaining(true);
  std::string what = e.what();
  if (!extras.empty()) what = about_extra(command, extras[0], argc, argv);
  else if (dynamic_cast<const CLI::RequiredError*>(&e)) what = about_missing(command);
  else if (dynamic_cast<const CLI::ArgumentMismatch*>(&e)) what = about_count(what);
  if (path.empty()) return fmt::format("{} (kiln --help)", what);
  return fmt::format("{}: {} (kiln {} --help)", path, what, path);
}

}  // namespace kiln::cli
