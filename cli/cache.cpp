// SPDX-License-Identifier: Apache-2.0
// `kiln cache`: looks at the disk cache and clears it up. Other processes may use it meanwhile: an entry that
// goes is a miss for them, no more. why_miss.cpp has the comparison of keys.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/text.h"
#include "codegen/disk_cache.h"
#include "codegen/key_summary.h"
#include "ir/base/error.h"

namespace kiln::cli {

namespace {

using Json = nlohmann::ordered_json;
using Entries = std::vector<DiskCache::Entry>;

std::string age_of(int64_t when) { return when > 0 ? age_text(time(nullptr) - when) : "-"; }
std::string size_of(int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

int64_t sum(const Entries& entries) {
  int64_t bytes = 0;
  for (const DiskCache::Entry& e : entries) bytes += e.bytes;
  return bytes;
}

Json json_of(const DiskCache::Entry& e) {
  return {{"kind", e.kind}, {"entry", e.name}, {"bytes", e.bytes}, {"written", e.written}, {"used", e.used}};
}

// ---- ls ----

struct ListOptions {
  std::string sort = "used", kind;
  bool json = false;
};

void sort_entries(Entries& entries, const std::string& by) {
  std::stable_sort(entries.begin(), entries.end(), [&](const DiskCache::Entry& a, const DiskCache::Entry& b) {
    if (by == "bytes") return a.bytes > b.bytes;
    if (by == "used") return a.used > b.used;
    return by == "written" && a.written > b.written;  // else as they are: by kind and name
  });
}

void list(const ListOptions& o) {
  const DiskCache cache;
  Entries entries = cache.entries();
  std::erase_if(entries, [&](const DiskCache::Entry& e) { return !o.kind.empty() && e.kind != o.kind; });
  sort_entries(entries, o.sort);
  Json rows = Json::array();
  if (!o.json && !entries.empty())
    fmt::print("{:<7} {:<12} {:>10} {:>7} {:>7}  {:<10} {:<13} {}\n", "kind", "entry", "size", "age", "used",
               "target", "compiler", "what");
  for (const DiskCache::Entry& e : entries) {
    const EntryContent content = cache.read(e);
    if (content.state == EntryState::absent) continue;  // removed meanwhile
    KeySummary key{"-", "-", "damaged: " + content.why};
    if (content.state == EntryState::good) key = summarize_key(content.full_key);
    if (o.json) {
      rows.push_back(json_of(e));
      rows.back().update({{"target", key.target}, {"compiler", key.compiler}, {"what", key.what}});
      continue;
    }
    fmt::print("{:<7} {:<12} {:>10} {:>7} {:>7}  {:<10} {:<13} {}\n", e.kind, e.name.substr(0, 12),
               size_of(e.bytes), age_of(e.written), age_of(e.used), key.target, key.compiler, key.what);
  }
  if (o.json) fmt::print("{}\n", rows.dump());
}

// ---- stat ----

void stat(bool json) {
  const DiskCache cache;
  const Entries entries = cache.entries();
  std::map<std::string, Entries> kinds;
  int64_t oldest = 0;
  for (const DiskCache::Entry& e : entries) {
    kinds[e.kind].push_back(e);
    if (oldest == 0 || e.used < oldest) oldest = e.used;
  }
  if (json) {
    Json out = {{"folder", cache.folder()},     {"entries", entries.size()}, {"bytes", sum(entries)},
                {"limit", cache.limit_bytes()}, {"oldest_use", oldest},      {"kinds", Json::object()}};
    for (const auto& [kind, of_kind] : kinds)
      out["kinds"][kind] = {{"entries", of_kind.size()}, {"bytes", sum(of_kind)}};
    fmt::print("{}\n", out.dump());
    return;
  }
  fmt::print("folder {}\n", cache.folder());
  for (const auto& [kind, of_kind] : kinds)
    fmt::print("{:<7} {:>6}  {:>10}\n", kind, of_kind.size(), size_of(sum(of_kind)));
  fmt::print("{:<7} {:>6}  {:>10} of {}\n", "all", entries.size(), size_of(sum(entries)),
             size_of(cache.limit_bytes()));
  if (oldest) fmt::print("least recently used {} ago\n", age_of(oldest));
}

// ---- verify ----

void verify(bool remove, bool json) {
  const DiskCache cache;
  Json rows = Json::array();
  int64_t good = 0, bad = 0, removed = 0;
  for (const DiskCache::Entry& e : cache.entries()) {
    const EntryContent content = cache.read(e);
    good += content.state == EntryState::good;
    if (content.state != EntryState::damaged) continue;
    ++bad;
    removed += remove && cache.remove(e);
    if (json) rows.push_back({{"kind", e.kind}, {"entry", e.name}, {"why", content.why}});
    else fmt::print("damaged {} {}: {}\n", e.kind, e.name, content.why);
  }
  if (json)
    fmt::print("{}\n",
               Json{{"good", good}, {"damaged", bad}, {"removed", removed}, {"entries", rows}}.dump());
  else fmt::print("{} good, {} damaged{}\n", good, bad, remove ? fmt::format(", {} removed", removed) : "");
  KILN_CHECK(
      bad == 0, io,
      "cache verify: {} of {} are damaged (they are misses: a run makes again what it needs, and needs "
      "no object or cubin of a plan that is good{})",
      bad, good + bad, remove ? "" : "; --delete removes them");
}

// ---- gc ----

struct GcOptions {
  int64_t limit_mb = -1, days = -1;
  bool json = false;
};

void collect(const GcOptions& o) {
  constexpr int64_t kDay = 24 * 3600;
  const DiskCache cache;
  Entries entries = cache.entries();
  std::stable_sort(entries.begin(), entries.end(),
                   [](const DiskCache::Entry& a, const DiskCache::Entry& b) { return a.used < b.used; });
  const int64_t limit = o.limit_mb >= 0 ? o.limit_mb << 20 : o.days >= 0 ? INT64_MAX : cache.limit_bytes();
  int64_t left = sum(entries), removed = 0, freed = 0;
  Json rows = Json::array();
  for (const DiskCache::Entry& e : entries) {
    const bool old = o.days >= 0 && e.used < time(nullptr) - o.days * kDay;
    if ((!old && left <= limit) || !cache.remove(e)) continue;
    left -= e.bytes;
    freed += e.bytes;
    ++removed;
    if (o.json) rows.push_back(json_of(e));
    else fmt::print("removed {} {}: {}, used {} ago\n", e.kind, e.name, size_of(e.bytes), age_of(e.used));
  }
  const auto stay = static_cast<int64_t>(entries.size()) - removed;
  if (o.json)
    fmt::print(
        "{}\n",
        Json{{"removed", removed}, {"bytes", freed}, {"stay", stay}, {"stay_bytes", left}, {"entries", rows}}
            .dump());
  else
    fmt::print("{} of {} removed; {} of {} stay\n", count_text(removed, "entry"), size_of(freed),
               count_text(stay, "entry"), size_of(left));
}

void add_list(CLI::App& cache) {
  CLI::App* command = cache.add_subcommand("ls", "Lists the entries");
  const auto o = std::make_shared<ListOptions>();
  add_choice(*command, "--sort", o->sort, {"used", "written", "bytes", "kind"},
             "What to sort by, the latest or largest first");
  add_choice(*command, "--kind", o->kind, {std::begin(kCacheKinds), std::end(kCacheKinds)},
             "Only entries of this kind");
  add_json(*command, o->json);
  command->callback([o] { list(*o); });
}

void add_gc(CLI::App& cache) {
  CLI::App* command = cache.add_subcommand(
      "gc",
      "Removes what was not used for longest, down to a limit: KILN_CACHE_LIMIT_MB unless one is given");
  const auto o = std::make_shared<GcOptions>();
  add_number(*command, "--limit", o->limit_mb, 0, int64_t{1} << 40, "Size to come down to", "MB");
  add_number(*command, "--older-than", o->days, 0, int64_t{1} << 20,
             "Remove all that was not used for so long", "DAYS");
  add_json(*command, o->json);
  command->callback([o] { collect(*o); });
}

}  // namespace

void add_cache_command(CLI::App& app) {
  CLI::App* cache = app.add_subcommand("cache", "Looks at the disk cache and clears it up");
  cache->require_subcommand(1);
  add_list(*cache);
  CLI::App* stat_command = cache->add_subcommand("stat", "Counts entries and bytes by kind");
  const auto stat_json = std::make_shared<bool>(false);
  add_json(*stat_command, *stat_json);
  stat_command->callback([stat_json] { stat(*stat_json); });
  CLI::App* verify_command =
      cache->add_subcommand("verify", "Checks every entry; status 1 if one is damaged");
  const auto remove = std::make_shared<bool>(false), json = std::make_shared<bool>(false);
  add_flag(*verify_command, "--delete", *remove, "Remove damaged entries");
  add_json(*verify_command, *json);
  verify_command->callback([remove, json] { verify(*remove, *json); });
  add_gc(*cache);
  add_why_miss_command(*cache);
}

}  // namespace kiln::cli
