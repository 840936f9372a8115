// SPDX-License-Identifier: Apache-2.0
// Keys below the prefix: "failure" is the first reason, "asked" is there once somebody has asked,
// "started/<r>" are the answers, "left/<r>" farewells, and "bell/<r>" counts how often rank r was called to
// look at them.
#include "runtime/collective_alarm.h"

#include <chrono>
#include <utility>

#include "ir/base/error.h"
#include "runtime/signal_mask.h"

namespace kiln {

namespace {

/// How long the thread waits for its bell at a time: as long as it may keep a store that has been closed.
constexpr Seconds kSlice{0.5};
constexpr Seconds kAlarmAnswer{1};
constexpr const char *kFailure = "failure", *kAsked = "asked", *kStarted = "started", *kLeftAt = "left",
                     *kBell = "bell";

}  // namespace

CollectiveAlarm::CollectiveAlarm(int rank, int size, std::shared_ptr<Store> store, std::string prefix,
                                 Hooks hooks)
    : rank_(rank),
      size_(size),
      store_(std::move(store)),
      prefix_(std::move(prefix)),
      hooks_(std::move(hooks)),
      has_left_(static_cast<size_t>(size)) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { listen(); });
}

CollectiveAlarm::~CollectiveAlarm() {
  stopping_ = true;
  try {
    store_->add(key(kBell, rank_), 1);  // so that it looks at once
  } catch (const Error&) {              // it ends within the slice, or has ended
  }
  thread_.join();
}

std::string CollectiveAlarm::key(const char* what, int rank) const {
  return fmt::format("{}{}/{}", prefix_, what, rank);
}

void CollectiveAlarm::ring() noexcept {
  for (int r = 0; r < size_; ++r) {
    try {
      if (r != rank_) store_->add(key(kBell, r), 1);
    } catch (const std::exception&) {  // without a store nobody can be told, and all find out by themselves
      return;
    }
  }
}

void CollectiveAlarm::fail(const std::string& why) noexcept {
  try {
    store_->set_once(prefix_ + kFailure, why);
  } catch (const std::exception&) {
  }
  ring();
}

void CollectiveAlarm::leave(uint64_t started) noexcept {
  try {
    store_->set(key(kLeftAt, rank_), std::to_string(started));
  } catch (const std::exception&) {
  }
  ring();
}

std::optional<std::string> CollectiveAlarm::reason(Seconds time) noexcept {
  try {
    return store_->wait(prefix_ + kFailure, time);
  } catch (const std::exception&) {  // no store, or it knows that somebody is lost: then nobody told
    return std::nullopt;
  }
}

std::vector<std::optional<uint64_t>> CollectiveAlarm::ask() {
  using Clock = std::chrono::steady_clock;
  std::vector<std::optional<uint64_t>> out(static_cast<size_t>(size_));
  out[static_cast<size_t>(rank_)] = hooks_.started();
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(kAlarmAnswer);
  try {
    store_->set(prefix_ + kAsked, "yes");
    ring();
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      const Seconds left = std::max(Seconds(end - Clock::now()), Seconds(0.01));
      if (const auto said = store_->wait(key(kStarted, r), left))
        out[static_cast<size_t>(r)] = std::stoull(*said);
    }
  } catch (const Error&) {  // a rank is lost: it has not answered, and nobody else can be waited for
  }
  return out;
}

void CollectiveAlarm::listen() {
  std::string known;
  while (!stopping_) {
    try {
      const auto bell = store_->wait(key(kBell, rank_), kSlice, known);
      if (!bell || stopping_) continue;
      known = *bell;
      hear();
    } catch (const Error& e) {  // a rank is lost, or the store; who is lost may have said why
      std::string why = e.what();
      try {
        if (const auto told = store_->get(prefix_ + kFailure)) why = *told;
      } catch (const Error&) {
      }
      if (!stopping_) hooks_.failed(why);
      return;
    }
  }
}

void CollectiveAlarm::hear() {
  if (!answered_ && store_->get(prefix_ + kAsked)) {
    answered_ = true;
    store_->set(key(kStarted, rank_), std::to_string(hooks_.started()));
  }
  for (int r = 0; r < size_; ++r) {
    const size_t at = static_cast<size_t>(r);
    if (r == rank_ || has_left_[at]) continue;
    if (const auto said = store_->get(key(kLeftAt, r))) {
      has_left_[at] = true;
      hooks_.left(r, std::stoull(*said));
    }
  }
  if (const auto why = store_->get(prefix_ + kFailure)) hooks_.failed(*why);
}

}  // namespace kiln
