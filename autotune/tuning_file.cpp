// SPDX-License-Identifier: Apache-2.0
#include "autotune/tuning_file.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "codegen/schedule.h"
#include "ir/base/error.h"
#include "ir/base/hash.h"

namespace kiln {

namespace {

using Json = nlohmann::ordered_json;

std::string string_of(const Json& j, const char* name) {
  const auto at = j.find(name);
  return at != j.end() && at->is_string() ? at->get<std::string>() : "";
}
int threads_of(const Json& j) {
  const auto at = j.find("threads");
  return at != j.end() && at->is_number_integer() ? at->get<int>() : 0;
}

}  // namespace

bool TuningFile::add(const std::string& kernel, int threads, Row row) {
  std::map<int, Row>& rows = rows_[kernel];
  if (!rows.empty() && numeric_part(rows.begin()->second.found.schedule) != numeric_part(row.found.schedule))
    return false;
  const auto [at, fresh] = rows.emplace(threads, row);
  return fresh || at->second.found.str() == row.found.str();
}

TuningFile TuningFile::read(const std::string& path) {
  std::ifstream in(path);
  KILN_CHECK(in, io, "tuning file {} cannot be read", path);
  TuningFile out;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const Json j = Json::parse(line, nullptr, false);
    const auto found = TuneRow::parse(line);
    KILN_CHECK(found && !string_of(j, "kernel").empty() && threads_of(j) > 0, invalid,
               "{}:{}: no row of a tuning file (kiln tuning export writes them)", path, number);
    KILN_CHECK(out.add(string_of(j, "kernel"), threads_of(j), {*found, string_of(j, "key")}), invalid,
               "{}:{}: kernel {} has a row before that does not go with this: one kernel has one row for a "
               "number of threads, and one numeric part for all (what stands before the semicolon)",
               path, number, string_of(j, "kernel"));
  }
  KILN_CHECK(in.eof(), io, "tuning file {} cannot be read to its end", path);
  return out;
}

TuningFile TuningFile::of(const DiskCache& cache) {
  TuningFile out;
  for (const KernelRow& r : kernel_rows(cache)) out.add(hash128(r.key).hex(), r.threads, {r.found, r.key});
  return out;
}

int TuningFile::merge(const TuningFile& other) {
  int left = 0;
  for (const auto& [kernel, by_threads] : other.rows_)
    for (const auto& [threads, row] : by_threads) left += !add(kernel, threads, row);
  return left;
}

const TuningFile::Row* TuningFile::find(std::string_view kernel, int threads) const {
  const auto at = rows_.find(kernel);
  if (at == rows_.end() || at->second.empty()) return nullptr;
  auto row = at->second.upper_bound(threads);
  if (row != at->second.begin()) --row;
  return &row->second;
}

std::string TuningFile::str() const {
  std::string out;
  for (const auto& [kernel, by_threads] : rows_)
    for (const auto& [threads, row] : by_threads) {
      Json j = {{"kernel", kernel}, {"threads", threads}};
      j.update(Json::parse(row.found.str()));
      j["key"] = row.key;
      out += j.dump() + "\n";
    }
  return out;
}

std::string TuningFile::digest() const {
  std::string text;
  for (const auto& [kernel, by_threads] : rows_)
    for (const auto& [threads, row] : by_threads)
      text += fmt::format("{} {} {}\n", kernel, threads, row.found.schedule);
  return hash128(text).hex();
}

}  // namespace kiln
