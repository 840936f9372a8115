// SPDX-License-Identifier: Apache-2.0
// The config.json of a Hugging Face checkpoint. Must not know tensors or a model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace pretrained {

/// Every value has a fallback: a key that is missing, or null, is as if it had that.
class ConfigFile {
 public:
  /// Throws: io; invalid, if it is no JSON object.
  explicit ConfigFile(const std::string& path);

  /// Throws: invalid, if it is no whole number from `least` on, or has more than 31 bits.
  int64_t whole(const char* key, int64_t fallback, int64_t least) const;
  /// Throws: invalid, if it is no number from 0 to `most`.
  double real(const char* key, double fallback, double most) const;
  /// Throws: invalid, if it is no string.
  std::string text(const char* key, const std::string& fallback) const;
  /// Throws: invalid, if it is neither true nor false.
  bool flag(const char* key, bool fallback) const;
  /// What "model_type" must be. Throws: invalid.
  void expect_family(const char* family) const;
  const std::string& path() const { return path_; }

 private:
  struct Impl;
  std::string path_;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace pretrained
