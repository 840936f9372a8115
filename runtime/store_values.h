// SPDX-License-Identifier: Apache-2.0
// What a store holds, without a lock: the map of LocalStore and of the gRPC server. Header only, since
// libkiln_rpc.so links nothing of Kiln.
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/base/error.h"
#include "runtime/store.h"

namespace kiln {

/// `timeout` in the range that clocks can add: nothing below 0, and years at most.
inline Seconds bounded(Seconds timeout) {
  constexpr Seconds kFar{1e8};
  return timeout > kFar ? kFar : timeout > Seconds(0) ? timeout : Seconds(0);
}

/// The key of why the served store has last refused a rank.
inline constexpr const char* kRefused = "store/refused";

/// The beginning of a key or value, as much as an error shows.
inline std::string shown(const std::string& bytes) {
  return bytes.size() <= 200 ? bytes : bytes.substr(0, 200) + "...";
}

/// Keys and values, and the ranks that are lost. Threads: one at a time.
class StoreValues {
 public:
  void set(const std::string& key, const std::string& value) { values_[key] = value; }
  std::string set_once(const std::string& key, const std::string& value) {
    return values_.emplace(key, value).first->second;
  }
  std::optional<std::string> get(const std::string& key) const {
    const auto it = values_.find(key);
    if (it == values_.end()) return std::nullopt;
    return it->second;
  }
  /// What `key` has, unless that is `known`. Throws: comm, if there is none and a rank is lost.
  std::optional<std::string> news(const std::string& key, const std::string& known) const {
    const auto it = values_.find(key);
    if (it != values_.end() && it->second != known) return it->second;
    KILN_CHECK(lost_.empty(), comm,
               "rank{} {} {} lost: ended without destroy_process_group, or cut off (waiting for '{}')",
               lost_.size() == 1 ? "" : "s", fmt::join(lost_, ", "), lost_.size() == 1 ? "is" : "are",
               shown(key));
    return std::nullopt;
  }
  /// Throws: invalid, if `key` has something else than an integer.
  int64_t add(const std::string& key, int64_t n) {
    std::string& value = values_[key];
    const int64_t sum = (value.empty() ? 0 : to_integer(key, value)) + n;
    value = std::to_string(sum);
    return sum;
  }
  void erase(const std::string& key) { values_.erase(key); }

  void lose(int rank) {
    if (std::find(lost_.begin(), lost_.end(), rank) == lost_.end()) lost_.push_back(rank);
  }
  const std::vector<int>& lost() const { return lost_; }

 private:
  static int64_t to_integer(const std::string& key, const std::string& text) {
    int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, fault] = std::from_chars(text.data(), end, value);
    KILN_CHECK(fault == std::errc{} && stop == end, invalid,
               "Store::add: key '{}' holds no integer; got '{}' (set by set()?)", shown(key), shown(text));
    return value;
  }

  std::map<std::string, std::string> values_;
  std::vector<int> lost_;
};

}  // namespace kiln
