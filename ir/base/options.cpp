// SPDX-License-Identifier: Apache-2.0
#include "ir/base/options.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>

#include "ir/base/error.h"
#include "ir/base/log.h"

extern char** environ;

namespace kiln {

namespace {

constexpr OptionDef kOptions[] = {
    {"KILN_CACHE_DIR", "path", "", "folder of the disk cache; default $XDG_CACHE_HOME/kiln or ~/.cache/kiln"},
    {"KILN_CACHE_LIMIT_MB", "int", "4096",
     "size bound of the disk cache; least recently used entries go first"},
    {"KILN_COMPILE", "choice:on|off|check", "on",
     "off runs callables eagerly; check runs both and compares op by op"},
    {"KILN_CUDA_DRIVER", "choice:auto|off|sim", "auto",
     "auto uses NVIDIA's driver where there is one, sim the simulated device (tests), off none"},
    {"KILN_CUDA_MATMUL", "choice:kiln|cublaslt", "kiln",
     "whose matrix products run on a GPU: kernels that Kiln generates, or cuBLASLt's with nothing fused into "
     "them"},
    {"KILN_CUDA_PATH", "path", "",
     "folder of NVRTC, cuBLASLt and NCCL: a CUDA toolkit, or Python's site-packages; default is searched"},
    {"KILN_DUMP", "tokens:trace|grad|partition|loops|source|plan|image", "",
     "stages of compilation to write as numbered files: the graph as recorded, the graph after the passes, "
     "which nodes each kernel computes, kernels as loops, their C++, buffers and launches, what was linked"},
    {"KILN_DUMP_DIR", "path", "kiln-dump", "folder for the files of KILN_DUMP"},
    {"KILN_FUZZ_GRAPHS", "int", "2000", "graphs that the code generation fuzzer makes"},
    {"KILN_FUZZ_SEED", "int", "1", "its first seed"},
    {"KILN_GOLDENS", "path", "", "folder that holds ops.json and the rest; default tests/goldens"},
    {"KILN_JIT_LIBRARY", "path", "",
     "the compiler library to open; default is searched beside libkiln and the program"},
    {"KILN_LOG", "choice:error|warn|info|debug|trace", "warn", "which log lines are printed"},
    {"KILN_NUM_THREADS", "int", "0", "threads that a compiled step may use; 0 is all the process may run on"},
    {"KILN_POISON", "flag", "0", "fill arenas and fresh outputs with NaN before use (tests)"},
    {"KILN_RECORD", "path", "",
     "job file that every program compiled is added to, for kiln warm, cache why-miss and explain; ranks may "
     "share one"},
    {"KILN_RPC_LIBRARY", "path", "",
     "the gRPC library to open; default is searched beside libkiln and the program"},
    {"KILN_SIM_DEVICES", "int", "2", "simulated CUDA devices that there are, up to 16"},
    {"KILN_SIM_SEED", "int", "1", "seed of every order that a simulated CUDA device chooses"},
    {"KILN_TARGET", "choice:host|x86-64-v3|x86-64-v4|aarch64", "host", "CPU to generate code for"},
    {"KILN_TEST_DEVICE", "choice:cpu|cuda|graphs", "cpu",
     "where the tests that can run on both make their tensors; with graphs golden tests record CUDA graphs"},
    {"KILN_TRACE", "path", "",
     "write what compiled calls do when to <path>.<process id>.json, for ui.perfetto.dev (adds barriers)"},
    {"KILN_TUNE", "choice:off|fast|max", "off",
     "fast measures a few schedules of each kernel before choosing, and changes no bit of any result; max "
     "searches among many; what they find is kept in the disk cache"},
    {"KILN_TUNE_BUDGET_S", "int", "0",
     "seconds that one build may measure for, other kernels keep defaults; 0 is 1 with fast and 3600 with "
     "max"},
    {"KILN_TUNE_MEMORY_MB", "int", "1024",
     "memory that trying a kernel may take; larger ones keep their defaults"},
    {"KILN_TUNING", "path", "",
     "a tuning file (kiln tuning export): schedules come from it alone, and nothing is measured"},
    {"KILN_UPDATE_GOLDEN", "flag", "0", "tests rewrite the expected text of passes"},
    {"KILN_VERIFY", "flag", "0", "verify each graph, and that its text reads back, after every pass (tests)"},
};

struct Overrides {
  std::mutex mutex;
  std::map<std::string, std::string, std::less<>> values;
};
Overrides& overrides() {
  static Overrides o;
  return o;
}

const OptionDef& find(std::string_view name) {
  for (const OptionDef& o : kOptions)
    if (o.name == name) return o;
  std::string all;
  for (const OptionDef& o : kOptions) all += fmt::format(" {}", o.name);
  throw Error(ErrorKind::invalid, fmt::format("unknown switch {}; known switches:{}", name, all));
}

std::vector<std::string> split(std::string_view text, char sep) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const size_t at = text.find(sep);
    if (at != 0) out.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) break;
    text.remove_prefix(at + 1);
  }
  return out;
}

bool one_of(std::string_view value, std::string_view choices) {
  for (const std::string& c : split(choices, '|'))
    if (c == value) return true;
  return false;
}

void check_value(const OptionDef& o, const std::string& v) {
  bool ok = true;
  if (o.type == "flag") ok = v == "0" || v == "1";
  if (o.type == "int") {
    int64_t parsed = 0;
    const auto [end, ec] = std::from_chars(v.data(), v.data() + v.size(), parsed);
    ok = ec == std::errc() && end == v.data() + v.size() && parsed >= 0;
  }
  if (o.type.starts_with("choice:")) ok = one_of(v, o.type.substr(7));
  if (o.type.starts_with("tokens:"))
    for (const std::string& t : split(v, ',')) ok = ok && one_of(t, o.type.substr(7));
  KILN_CHECK(ok, invalid, "{}: bad value; got '{}', expected {}", o.name, v, value_text(o));
}

}  // namespace

std::span<const OptionDef> option_table() { return kOptions; }

std::string value_text(const OptionDef& o) {
  const std::string words =
      fmt::format("{}", fmt::join(split(o.type.substr(o.type.find(':') + 1), '|'), ", "));
  if (o.type.starts_with("choice:")) return "one of " + words;
  if (o.type.starts_with("tokens:")) return "list of " + words;
  if (o.type == "flag") return "0 or 1";
  return o.type == "int" ? "number, 0 or more" : words;
}

std::string option(std::string_view name) {
  const OptionDef& o = find(name);
  std::string v(o.fallback);
  {
    std::lock_guard lock(overrides().mutex);
    const auto it = overrides().values.find(name);
    if (it != overrides().values.end()) {
      v = it->second;
    } else if (const char* e = std::getenv(std::string(name).c_str()); e && *e) {
      v = e;
    }
  }
  check_value(o, v);
  return v;
}

bool option_flag(std::string_view name) { return option(name) == "1"; }

int64_t option_int(std::string_view name) { return std::stoll(option(name)); }

std::vector<std::string> option_tokens(std::string_view name) { return split(option(name), ','); }

void set_option(std::string_view name, std::string value) {
  const OptionDef& o = find(name);
  if (!value.empty()) check_value(o, value);
  std::lock_guard lock(overrides().mutex);
  if (value.empty()) {
    overrides().values.erase(std::string(name));
  } else {
    overrides().values[std::string(name)] = std::move(value);
  }
}

void check_environment() {
  for (char** e = environ; *e; ++e) {
    const std::string_view entry(*e);
    if (!entry.starts_with("KILN_")) continue;
    find(entry.substr(0, entry.find('=')));
  }
}

std::string system_env(const char* name) {
  const char* v = std::getenv(name);
  return v ? v : "";
}

std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& set,
                                          const std::vector<std::string>& unset) {
  std::set<std::string, std::less<>> gone(unset.begin(), unset.end());
  std::vector<std::string> out;
  for (const auto& [name, value] : set) {
    gone.insert(name);
    out.push_back(name + "=" + value);
  }
  for (char** e = environ; *e; ++e) {
    const std::string_view entry(*e);
    if (!gone.contains(entry.substr(0, entry.find('=')))) out.emplace_back(entry);
  }
  return out;
}

bool log_enabled(LogLevel level) {
  constexpr std::string_view kLevels[] = {"error", "warn", "info", "debug", "trace"};
  const std::string v = option("KILN_LOG");
  const auto* at = std::find(std::begin(kLevels), std::end(kLevels), v);
  return static_cast<int>(level) <= at - std::begin(kLevels);
}

}  // namespace kiln
