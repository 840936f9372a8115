// SPDX-License-Identifier: Apache-2.0
#include "autotune/record.h"

#include <nlohmann/json.hpp>

#include "codegen/schedule.h"
#include "ir/base/text.h"

namespace kiln {

namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kKind = "tune";
constexpr std::string_view kThreads = "threads ";  // last in a key whose row is for a number of them

bool is_schedule(const std::string& text) {
  return parse_matmul_schedule(text).has_value() || parse_blis_schedule(text).has_value() ||
         parse_row_schedule(text).has_value();
}

}  // namespace

std::string TuneRow::str() const {
  return Json{{"schedule", schedule},
              {"seconds", seconds},
              {"default_seconds", default_seconds},
              {"compared", compared},
              {"wide", wide}}
      .dump();
}

std::optional<TuneRow> TuneRow::parse(std::string_view text) {
  const Json j = Json::parse(text, nullptr, false);
  if (!j.is_object()) return std::nullopt;
  const auto s = j.find("schedule");
  if (s == j.end() || !s->is_string() || !is_schedule(s->get<std::string>())) return std::nullopt;
  const auto number = [&](const char* name) {
    const auto at = j.find(name);
    return at != j.end() && at->is_number() ? at->get<double>() : 0.0;
  };
  return TuneRow{s->get<std::string>(), number("seconds"), number("default_seconds"),
                 static_cast<int>(number("compared")), j.value("wide", Json(false)) == Json(true)};
}

std::string TuneRecord::free_key(std::string_view kernel) const {
  return fmt::format("{}{}{}\n", kernel, kThreads, threads_);
}

namespace {

/// Calls f(key, threads, payload) for each entry that is for a number of threads.
template <typename F>
void for_each_entry(const DiskCache& cache, F&& f) {
  const std::string before = entry_key(kKind, "");
  for (const DiskCache::Entry& e : cache.entries()) {
    if (e.kind != kKind) continue;
    const EntryContent content = cache.read(e);
    const std::vector<std::string> lines = split(content.full_key, '\n');
    if (content.state != EntryState::good || lines.empty() || !lines.back().starts_with(kThreads)) continue;
    const size_t size = content.full_key.size() - before.size() - lines.back().size() - 1;
    f(content.full_key.substr(before.size(), size), std::stoi(lines.back().substr(kThreads.size())),
      content.payload);
  }
}

}  // namespace

std::set<int> tuned_thread_counts(const DiskCache& cache) {
  std::set<int> out;
  for_each_entry(cache, [&](const std::string&, int threads, const std::string&) { out.insert(threads); });
  return out;
}

std::vector<KernelRow> kernel_rows(const DiskCache& cache) {
  std::vector<KernelRow> out;
  for_each_entry(cache, [&](const std::string& key, int threads, const std::string& payload) {
    if (const auto found = TuneRow::parse(payload)) out.push_back({key, threads, *found});
  });
  return out;
}

std::optional<std::string> TuneRecord::row(const TunableKernel& k) const {
  auto text = cache_ ? cache_->load(kKind, free_key(k.key)) : std::nullopt;
  if (!text) return std::nullopt;
  while (text->ends_with('\n')) text->pop_back();
  return TuneRow::parse(*text) ? text : std::nullopt;
}

std::optional<std::string> TuneRecord::numeric(const TunableKernel& k) const {
  auto text = cache_ ? cache_->load(kKind, k.key + "numeric\n") : std::nullopt;
  if (text)
    while (text->ends_with('\n')) text->pop_back();
  return text;
}

void TuneRecord::store(const TunableKernel& k, const std::string& row) const {
  const auto parsed = TuneRow::parse(row);
  if (!cache_ || !parsed) return;
  cache_->store(kKind, free_key(k.key), row + "\n");
  const std::string numbers(numeric_part(parsed->schedule));
  if (parsed->wide && numeric(k) != numbers) cache_->store(kKind, k.key + "numeric\n", numbers + "\n");
}

std::optional<std::vector<ProgramRow>> TuneRecord::program(std::string_view key) const {
  const auto text = cache_ ? cache_->load(kKind, free_key(key)) : std::nullopt;
  if (!text) return std::nullopt;
  std::vector<ProgramRow> out;
  for (size_t at = 0; at < text->size();) {
    const size_t end = std::min(text->find('\n', at), text->size());
    const std::string_view line = std::string_view(*text).substr(at, end - at);
    at = end + 1;
    const size_t space = line.find(' ');
    if (space == line.npos || !TuneRow::parse(line.substr(space + 1))) return std::nullopt;
    out.push_back({std::string(line.substr(0, space)), std::string(line.substr(space + 1))});
  }
  return out;
}

void TuneRecord::store_program(std::string_view key, const std::vector<ProgramRow>& rows) const {
  std::string text;
  for (const ProgramRow& r : rows) text += r.kernel + " " + r.row + "\n";
  if (cache_) cache_->store(kKind, free_key(key), text);
}

}  // namespace kiln
