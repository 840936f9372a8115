// SPDX-License-Identifier: Apache-2.0
// A store in a folder, for processes of one machine that a benchmark starts. Nobody is ever lost: who starts
// the processes watches them.
#pragma once

#include <string>

#include "runtime/store.h"

namespace kiln::bench {

/// One file per key. Units: waits look every millisecond.
class FileStore final : public Store {
 public:
  /// Throws: comm, when the folder cannot be made.
  explicit FileStore(std::string folder);
  void set(const std::string& key, const std::string& value) override;
  std::string set_once(const std::string& key, const std::string& value) override;
  std::optional<std::string> get(const std::string& key) override;
  std::optional<std::string> wait(const std::string& key, Seconds timeout, const std::string& known) override;
  int64_t add(const std::string& key, int64_t n) override;
  void erase(const std::string& key) override;
  std::vector<int> lost() override { return {}; }
  void leave() override {}

 private:
  std::string path_of(const std::string& key) const;
  std::string write_temporary(const std::string& value) const;
  std::string folder_;
};

}  // namespace kiln::bench
