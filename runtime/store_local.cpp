// SPDX-License-Identifier: Apache-2.0
#include "runtime/store_local.h"

namespace kiln {

void LocalStore::set(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  values_.set(key, value);
  changed_.notify_all();
}

std::string LocalStore::set_once(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
  return values_.set_once(key, value);
}

std::optional<std::string> LocalStore::get(const std::string& key) {
  const std::lock_guard lock(mutex_);
  return values_.get(key);
}

std::optional<std::string> LocalStore::wait(const std::string& key, Seconds timeout,
                                            const std::string& known) {
  std::unique_lock lock(mutex_);
  std::optional<std::string> found;
  changed_.wait_for(lock, bounded(timeout), [&] { return (found = values_.news(key, known)).has_value(); });
  return found;
}

int64_t LocalStore::add(const std::string& key, int64_t n) {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
  return values_.add(key, n);
}

void LocalStore::erase(const std::string& key) {
  const std::lock_guard lock(mutex_);
  values_.erase(key);
}

std::vector<int> LocalStore::lost() {
  const std::lock_guard lock(mutex_);
  return values_.lost();
}

void LocalStore::lose(int rank) {
  const std::lock_guard lock(mutex_);
  values_.lose(rank);
  changed_.notify_all();
}

std::shared_ptr<Store> make_local_store() { return std::make_shared<LocalStore>(); }

}  // namespace kiln
