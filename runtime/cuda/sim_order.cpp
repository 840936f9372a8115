// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/sim_order.h"

#include <fmt/format.h>

#include <algorithm>

namespace kiln::cuda::sim {

void join(Clock& into, const Clock& other) {
  if (into.size() < other.size()) into.resize(other.size());
  for (size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

void History::cut(uint64_t at) {
  auto after = ranges_.upper_bound(at);
  if (after == ranges_.begin()) return;
  const auto r = std::prev(after);
  if (r->first == at || r->second.end <= at) return;
  Range rest = r->second;
  r->second.end = at;
  ranges_.emplace(at, std::move(rest));
}

const User* History::collision(const Range& r, bool write, const User& user, const Ordered& ordered) {
  const auto free = [&](const User& u) {
    return !u.name || (u.stream == user.stream && u.tick == user.tick) || ordered(u);
  };
  if (!free(r.writer)) return &r.writer;
  if (!write) return nullptr;
  const auto at = std::find_if_not(r.readers.begin(), r.readers.end(), free);
  return at == r.readers.end() ? nullptr : &*at;
}

void History::add(Range& r, bool write, const User& user) {
  if (write) {
    r.writer = user;
    r.readers.clear();
    return;
  }
  // Of one stream the last reader stands for all: its work is done in order.
  for (User& u : r.readers)
    if (u.stream == user.stream && user.stream >= 0) {
      u = user;
      return;
    }
  r.readers.push_back(user);
}

std::string History::note(const Use& use, const User& user, const Ordered& ordered) {
  if (use.bytes == 0) return "";
  const uint64_t end = use.begin + use.bytes;
  cut(use.begin);
  cut(end);
  std::string found;
  uint64_t at = use.begin;
  for (auto r = ranges_.lower_bound(use.begin); at < end; ++r) {
    const uint64_t next = r == ranges_.end() ? end : std::min(r->first, end);
    if (at < next) r = ranges_.emplace(at, Range{next, {}, {}}).first;
    if (found.empty()) {
      if (const User* u = collision(r->second, use.write, user, ordered))
        found = fmt::format("{} {} bytes {} to {} of {}, which {} {}", *user.name,
                            use.write ? "writes" : "reads", r->first - use.begin, r->second.end - use.begin,
                            use.name, *u->name, u == &r->second.writer ? "writes" : "reads");
    }
    add(r->second, use.write, user);
    at = r->second.end;
  }
  return found;
}

void History::forget(uint64_t begin, uint64_t bytes) {
  cut(begin);
  cut(begin + bytes);
  ranges_.erase(ranges_.lower_bound(begin), ranges_.lower_bound(begin + bytes));
}

}  // namespace kiln::cuda::sim
