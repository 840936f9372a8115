// SPDX-License-Identifier: Apache-2.0
#include "runtime/store_local.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "ir/base/error.h"

namespace kiln {

namespace {

int64_t to_integer(const std::string& key, const std::string& text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, value);
  KILN_CHECK(fault == std::errc{} && stop == end, invalid,
             "Store::add: key '{}' holds no integer; got '{}' (set by set()?)", key, text);
  return value;
}

}  // namespace

void LocalStore::set(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  values_[key] = value;
  changed_.notify_all();
}

std::string LocalStore::set_once(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
  return values_.emplace(key, value).first->second;
}

std::optional<std::string> LocalStore::get(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto it = values_.find(key);
  if (it == values_.end()) return std::nullopt;
  return it->second;
}

std::optional<std::string> LocalStore::wait(const std::string& key, Seconds timeout,
                                            const std::string& known) {
  std::unique_lock lock(mutex_);
  std::optional<std::string> found;
  const auto ready = [&] {
    const auto it = values_.find(key);
    if (it != values_.end() && it->second != known) found = it->second;
    return found || !lost_.empty();
  };
  changed_.wait_for(lock, timeout, ready);
  KILN_CHECK(found || lost_.empty(), comm, "waiting for '{}': rank {} is lost", key, fmt::join(lost_, ", "));
  return found;
}

int64_t LocalStore::add(const std::string& key, int64_t n) {
  const std::lock_guard lock(mutex_);
  std::string& value = values_[key];
  const int64_t sum = (value.empty() ? 0 : to_integer(key, value)) + n;
  value = std::to_string(sum);
  changed_.notify_all();
  return sum;
}

void LocalStore::erase(const std::string& key) {
  const std::lock_guard lock(mutex_);
  values_.erase(key);
}

std::vector<int> LocalStore::lost() {
  const std::lock_guard lock(mutex_);
  return lost_;
}

void LocalStore::lose(int rank) {
  const std::lock_guard lock(mutex_);
  if (std::find(lost_.begin(), lost_.end(), rank) == lost_.end()) lost_.push_back(rank);
  changed_.notify_all();
}

std::shared_ptr<Store> make_local_store() { return std::make_shared<LocalStore>(); }

}  // namespace kiln
