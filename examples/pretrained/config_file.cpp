// SPDX-License-Identifier: Apache-2.0
#include "examples/pretrained/config_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "frontend/safetensors.h"

namespace pretrained {

using Json = nlohmann::json;

struct ConfigFile::Impl {
  Json json;
  /// Null where there is none.
  Json at(const char* key) const { return json.value(key, Json()); }
};

namespace {

Json parse(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  KILN_CHECK(in, io, "config {}: cannot read the file; {}", path, std::strerror(errno));
  try {
    return Json::parse(in);
  } catch (const Json::exception& e) {
    throw kiln::Error(kiln::ErrorKind::invalid, fmt::format("config {}: not JSON; {}", path, e.what()));
  }
}

}  // namespace

ConfigFile::ConfigFile(const std::string& path)
    : path_(path), impl_(std::make_shared<Impl>(Impl{parse(path)})) {
  KILN_CHECK(impl_->json.is_object(), invalid, "config {}: not a JSON object", path);
}

int64_t ConfigFile::whole(const char* key, int64_t fallback, int64_t least) const {
  const Json v = impl_->at(key);
  if (v.is_null()) return fallback;
  KILN_CHECK(v.is_number_integer() && v >= least && v <= int64_t{1} << 31, invalid,
             "config {}: bad '{}'; got {}, expected a whole number >= {}", path_, key, v.dump(), least);
  return v.get<int64_t>();
}

double ConfigFile::real(const char* key, double fallback, double most) const {
  const Json v = impl_->at(key);
  if (v.is_null()) return fallback;
  KILN_CHECK(v.is_number() && v >= 0 && v <= most, invalid,
             "config {}: bad '{}'; got {}, expected a number from 0 to {}", path_, key, v.dump(), most);
  return v.get<double>();
}

std::string ConfigFile::text(const char* key, const std::string& fallback) const {
  const Json v = impl_->at(key);
  if (v.is_null()) return fallback;
  KILN_CHECK(v.is_string(), invalid, "config {}: bad '{}'; got {}, expected a string", path_, key, v.dump());
  return v.get<std::string>();
}

bool ConfigFile::flag(const char* key, bool fallback) const {
  const Json v = impl_->at(key);
  if (v.is_null()) return fallback;
  KILN_CHECK(v.is_boolean(), invalid, "config {}: bad '{}'; got {}, expected true or false", path_, key,
             v.dump());
  return v.get<bool>();
}

void ConfigFile::expect_family(const char* family) const {
  const std::string type = text("model_type", family);
  KILN_CHECK(type == family, invalid, "config {}: a model of another family; got \"{}\", expected \"{}\"",
             path_, type, family);
}

}  // namespace pretrained
