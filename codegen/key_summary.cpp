// SPDX-License-Identifier: Apache-2.0
#include "codegen/key_summary.h"

#include <algorithm>

#include "codegen/cpu_target.h"
#include "codegen/program_key.h"

namespace kiln {

namespace {

/// The first line of `text`, taken off it.
std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

std::string words(std::string_view text, size_t count) {
  size_t at = 0;
  for (; count > 0 && at < text.size(); ++at)
    if (text[at] == ' ' && --count == 0) break;
  return std::string(text.substr(0, at));
}

int count_lines(std::string_view text, std::string_view start) {
  int n = 0;
  while (!text.empty()) n += take_line(text).starts_with(start);
  return n;
}

std::string graph_summary(std::string_view text) {
  const int outputs = count_lines(text, "  output ");
  int values = count_lines(text, "  %"), inputs = 0;
  for (size_t at = 0; (at = text.find(" = input ", at)) != std::string_view::npos; ++at) ++inputs;
  return fmt::format("program of {} ops, {} inputs, {} outputs", values - inputs, inputs, outputs);
}

/// The name of the source file, the line of `text` that ends with `suffix`, without it; "" if there is none.
std::string file_name(std::string_view text, std::string_view suffix) {
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    if (line.ends_with(suffix)) return std::string(line.substr(0, line.size() - suffix.size()));
  }
  return "";
}

/// Of what a compiler made of one file. All such keys begin with its version, the target and flags; the
/// file's name and its text are the end.
KeySummary compiled_summary(std::string_view key, const char* noun, std::string_view suffix) {
  KeySummary out;
  out.compiler = take_line(key);
  out.target = target_label(take_line(key));
  out.what = fmt::format("{} {}", noun, file_name(key, suffix));
  return out;
}

}  // namespace

std::string target_label(std::string_view target) {
  const CpuTarget& host = host_target();
  if (target == host.str()) return "host";
  if (target == parse_target("aarch64").str()) return "aarch64";
  std::string_view rest = target;
  const std::string cpu = words(target.substr(std::min(target.find(' ') + 1, target.size())), 1);
  for (const char* level : {"x86-64-v3", "x86-64-v4"})
    if (cpu == level && parse_target(level).str() == target) return level;
  std::string extra;
  for (size_t at = 0; (at = rest.find('+', at)) != std::string_view::npos; ++at) {
    const std::string name(rest.substr(at + 1, rest.find(',', at) - at - 1));
    const bool known = (cpu == "x86-64-v3" || cpu == "x86-64-v4") && parse_target(cpu).has(name);
    if (!known) extra += (extra.empty() ? " +" : ",+") + name;
  }
  return cpu + extra;
}

KeySummary summarize_key(std::string_view full_key) {
  const std::string_view kind = take_line(full_key);
  KeySummary out;
  ProgramKey program;
  if (kind == kPlanKind && parse_program_key(full_key, program)) {
    out.target = target_label(program.target);
    out.compiler = words(program.compiler, 2);
    out.what = graph_summary(program.graph);
    return out;
  }
  if (kind == "object") return compiled_summary(full_key, "kernel", ".cpp");
  if (kind == "cubin" || kind == "sim") return compiled_summary(full_key, "CUDA source", ".cu");
  out.what = take_line(full_key);
  return out;
}

}  // namespace kiln
