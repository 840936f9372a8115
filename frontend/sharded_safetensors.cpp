// SPDX-License-Identifier: Apache-2.0
#include "frontend/sharded_safetensors.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace kiln {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using WeightMap = std::map<std::string, std::string>;

constexpr const char* kWhole = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

/// Array -> file, of an index.
WeightMap read_index(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  KILN_CHECK(in, io, "open {}: cannot read the file; {}", path, std::strerror(errno));
  Json j;
  try {
    j = Json::parse(in);
  } catch (const Json::exception& e) {
    throw Error(ErrorKind::invalid, fmt::format("index {}: not JSON; {}", path, e.what()));
  }
  KILN_CHECK(j.is_object() && j.contains("weight_map") && j["weight_map"].is_object(), invalid,
             "index {}: no object 'weight_map' (expected one of array names and files)", path);
  WeightMap out;
  for (const auto& [name, file] : j["weight_map"].items()) {
    // Nothing outside the folder of the index is a part of the checkpoint.
    const bool plain = file.is_string() && !file.get_ref<const std::string&>().empty() &&
                       fs::path(file.get<std::string>()).filename() == file.get<std::string>() &&
                       file != "." && file != "..";
    KILN_CHECK(plain, invalid, "index {}: '{}' is in {}; expected the name of a file beside the index", path,
               name, file.dump());
    out[name] = file.get<std::string>();
  }
  return out;
}

}  // namespace

ShardedSafetensors::ShardedSafetensors(const std::string& path) {
  if (!fs::is_directory(path)) {
    if (path.ends_with(".json")) open_index(path);
    else files_.emplace_back(path);
    return;
  }
  const std::string whole = (fs::path(path) / kWhole).string(), index = (fs::path(path) / kIndex).string();
  KILN_CHECK(fs::exists(whole) || fs::exists(index), io, "open {}: the folder has neither {} nor {}", path,
             kWhole, kIndex);
  if (fs::exists(whole)) files_.emplace_back(whole);
  else open_index(index);
}

void ShardedSafetensors::open_index(const std::string& path) {
  const WeightMap where = read_index(path);
  std::map<std::string, size_t> names;
  for (const auto& [name, file] : where) names.emplace(file, 0);
  for (auto& [file, number] : names) {
    number = files_.size();
    files_.emplace_back((fs::path(path).parent_path() / file).string());
    for (const SafetensorsFile::Entry& e : files_.back().entries()) {
      const auto it = where.find(e.name);
      KILN_CHECK(it != where.end() && it->second == file, invalid,
                 "index {}: '{}' is in {}, and by the index in {}", path, e.name, file,
                 it == where.end() ? "no file" : it->second);
    }
  }
  for (const auto& [name, file] : where)
    KILN_CHECK(files_[names[file]].find(name), invalid, "index {}: there is no '{}' in {}", path, name, file);
}

const SafetensorsFile::Entry* ShardedSafetensors::find(std::string_view name) const {
  for (const SafetensorsFile& f : files_)
    if (const SafetensorsFile::Entry* e = f.find(name)) return e;
  return nullptr;
}

}  // namespace kiln
