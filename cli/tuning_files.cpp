// SPDX-License-Identifier: Apache-2.0
// `kiln tuning`: tuning files out of the cache, put together, and as a table.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "autotune/tuning_file.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/text.h"
#include "cli/tuning.h"
#include "ir/base/text.h"

namespace kiln::cli {

namespace {

void write(const TuningFile& f) { fmt::print("{}", f.str()); }

void merge(const std::vector<std::string>& from) {
  TuningFile all;
  for (const std::string& name : from) {
    const int left = all.merge(TuningFile::read(name));
    if (left > 0)
      fmt::print(stderr, "{}: {} left out, for kernels that an earlier file has other rows for\n", name,
                 count_text(left, "row"));
  }
  write(all);
}

void show(const std::string& path, bool json) {
  const TuningFile f = TuningFile::read(path);
  if (json) {
    auto rows = nlohmann::ordered_json::array();
    for (const std::string& line : split(f.str(), '\n')) {
      rows.push_back(nlohmann::ordered_json::parse(line));
      rows.back().erase("key");
    }
    fmt::print("{}\n", rows.dump());
    return;
  }
  fmt::print("{:12} {:>7} {:>10} {:>6}  {}\n", "kernel", "threads", "time", "gain", "schedule");
  for (const auto& [kernel, by_threads] : f.rows())
    for (const auto& [threads, row] : by_threads) {
      const TuneRow& r = row.found;
      fmt::print("{:12.12} {:>7} {:>10} {:>4.0f} %  {}\n", kernel, threads, time_text(r.seconds),
                 100 * gain(r), r.schedule);
    }
}

}  // namespace

void add_tuning_command(CLI::App& app) {
  CLI::App* tuning = app.add_subcommand("tuning", "Keeps what tuning has found in files");
  tuning->require_subcommand(1);

  tuning->add_subcommand("export", "Prints what the cache holds as a tuning file")->callback([] {
    write(TuningFile::of(DiskCache()));
  });

  CLI::App* merge_command = tuning->add_subcommand("merge", "Prints the rows of several tuning files as one");
  const auto from = std::make_shared<std::vector<std::string>>();
  add_files(*merge_command, *from, "Tuning files; of rows that contradict each other the first stays");
  merge_command->callback([from] { merge(*from); });

  CLI::App* show_command = tuning->add_subcommand("show", "Prints a tuning file as a table");
  const auto shown = std::make_shared<std::string>();
  const auto json = std::make_shared<bool>(false);
  add_file(*show_command, *shown, "Tuning file");
  add_json(*show_command, *json);
  show_command->callback([shown, json] { show(*shown, *json); });
}

}  // namespace kiln::cli
