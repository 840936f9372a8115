// SPDX-License-Identifier: Apache-2.0
#include "runtime/rpc/hub.h"

#include <algorithm>
#include <utility>

namespace kiln::rpc {

void Hub::join(int rank, int size, const std::shared_ptr<Presence>& presence) {
  const std::lock_guard lock(mutex_);
  KILN_CHECK(size == size_, comm, "rank {} belongs to a world of {} ranks, this store to one of {}", rank,
             size, size_);
  KILN_CHECK(rank >= 0 && rank < size_, comm, "got rank {}, expected one of 0 to {}", rank, size_ - 1);
  for (const int lost : values_.lost())
    KILN_CHECK(lost != rank, comm, "rank {} is lost and cannot join again (start all ranks anew)", rank);
  Connected& there = there_[rank];
  KILN_CHECK(!there.presence || there.left, comm,
             "rank {} of {} is there already (two processes were started as the same rank)", rank, size_);
  there = {presence};
}

void Hub::leave(int rank) {
  const std::lock_guard lock(mutex_);
  if (const auto it = there_.find(rank); it != there_.end()) it->second.left = true;
  parted_.notify_all();
}

void Hub::part(int rank, const Presence* presence) {
  std::shared_ptr<Presence> gone;  // destroyed without the lock
  Waitings failing;
  {
    const std::lock_guard lock(mutex_);
    const auto it = there_.find(rank);
    if (closed_ || it == there_.end() || it->second.presence.get() != presence) return;
    gone = std::move(it->second.presence);
    const bool left = it->second.left;
    there_.erase(it);
    if (left) return;
    values_.lose(rank);
    failing.swap(waiting_);
    parted_.notify_all();
  }
  for (auto& [key, waiting] : failing) {
    try {
      if (const auto value = news(key, waiting.known)) waiting.waiter->found(*value);
    } catch (const Error& e) {
      waiting.waiter->failed(e.what());
    }
  }
}

bool Hub::wait_for_others(int rank, Seconds timeout) {
  std::unique_lock lock(mutex_);
  return parted_.wait_for(lock, timeout, [&] {
    return std::all_of(there_.begin(), there_.end(),
                       [&](const auto& other) { return other.first == rank || other.second.left; });
  });
}

void Hub::close(bool in_peace) {
  std::map<int, Connected> there;
  Waitings failing;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    there.swap(there_);
    failing.swap(waiting_);
  }
  const std::string fault = in_peace ? "" : "its process ended without destroy_process_group";
  for (const auto& [key, waiting] : failing)
    waiting.waiter->failed(fmt::format("rank 0, which serves the store, {} (waiting for '{}')",
                                       in_peace ? "has left" : "is lost: " + fault, shown(key)));
  for (const auto& [rank, connected] : there) connected.presence->close(fault);
}

bool Hub::closed() {
  const std::lock_guard lock(mutex_);
  return closed_;
}

// Tells those who wait for `key` and do not know what it has. They are told without the lock: whoever is told
// may call back.
void Hub::tell(const std::string& key) {
  std::vector<std::pair<Waiter*, std::string>> told;
  {
    const std::lock_guard lock(mutex_);
    auto [it, end] = waiting_.equal_range(key);
    if (it == end) return;
    const std::optional<std::string> value = values_.get(key);
    while (it != end) {
      if (!value || *value == it->second.known) {
        ++it;
        continue;
      }
      told.emplace_back(it->second.waiter, *value);
      it = waiting_.erase(it);
    }
  }
  for (const auto& [waiter, value] : told) waiter->found(value);
}

void Hub::set(const std::string& key, const std::string& value) {
  {
    const std::lock_guard lock(mutex_);
    values_.set(key, value);
  }
  tell(key);
}

std::string Hub::set_once(const std::string& key, const std::string& value) {
  std::string has;
  {
    const std::lock_guard lock(mutex_);
    has = values_.set_once(key, value);
  }
  tell(key);
  return has;
}

std::optional<std::string> Hub::get(const std::string& key) {
  const std::lock_guard lock(mutex_);
  return values_.get(key);
}

int64_t Hub::add(const std::string& key, int64_t n) {
  int64_t sum = 0;
  {
    const std::lock_guard lock(mutex_);
    sum = values_.add(key, n);
  }
  tell(key);
  return sum;
}

void Hub::erase(const std::string& key) {
  const std::lock_guard lock(mutex_);
  values_.erase(key);
}

std::vector<int> Hub::lost() {
  const std::lock_guard lock(mutex_);
  return values_.lost();
}

std::optional<std::string> Hub::news(const std::string& key, const std::string& known) {
  const std::lock_guard lock(mutex_);
  return values_.news(key, known);
}

void Hub::wait(const std::string& key, const std::string& known, Waiter* waiter) {
  std::optional<std::string> value;
  try {
    const std::lock_guard lock(mutex_);
    value = values_.news(key, known);
    if (!value) waiting_.emplace(key, Waiting{known, waiter});
  } catch (const Error& e) {
    waiter->failed(e.what());
    return;
  }
  if (value) waiter->found(*value);
}

bool Hub::forget(const std::string& key, Waiter* waiter) {
  const std::lock_guard lock(mutex_);
  auto [it, end] = waiting_.equal_range(key);
  for (; it != end; ++it) {
    if (it->second.waiter != waiter) continue;
    waiting_.erase(it);
    return true;
  }
  return false;
}

}  // namespace kiln::rpc
