// SPDX-License-Identifier: Apache-2.0
// The store of ranks that are threads of one process. Nobody's process can end alone here, so a rank is lost
// only when somebody says so.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/store.h"
#include "runtime/store_values.h"

namespace kiln {

/// A map behind a lock.
class LocalStore final : public Store {
 public:
  void set(const std::string& key, const std::string& value) override;
  std::string set_once(const std::string& key, const std::string& value) override;
  std::optional<std::string> get(const std::string& key) override;
  std::optional<std::string> wait(const std::string& key, Seconds timeout, const std::string& known) override;
  int64_t add(const std::string& key, int64_t n) override;
  void erase(const std::string& key) override;
  std::vector<int> lost() override;
  void leave() override {}

  /// From now on `rank` is lost.
  void lose(int rank);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  StoreValues values_;
};

}  // namespace kiln
