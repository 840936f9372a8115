// SPDX-License-Identifier: Apache-2.0
// A turn's key is set once, by the first rank that has waited in it: "<rank>\n<kind>\n<text>". Whoever comes
// to wait there later compares, so that one question is enough for any number of ranks. Kinds are those that
// the collectives themselves cannot compare: they would, if they met.
#include "runtime/turn_watch.h"

#include <chrono>
#include <utility>
#include <vector>

#include "ir/base/text.h"
#include "runtime/signal_mask.h"

namespace kiln {

namespace {

/// A turn that is there at two ticks has taken this long at least, and twice that at most.
constexpr std::chrono::milliseconds kTick{100};

/// How long a rank that has found out waits for the other to hear of it.
constexpr Seconds kHeardWithin{1};
// Behind a turn's key.
constexpr const char *kDiffers = "/differs", *kHeard = "/heard";

/// Runs `ask` without the lock. A store that is gone has no answers: the turn finds that out itself.
template <typename Ask>
void off(std::unique_lock<std::mutex>& lock, Ask&& ask) {
  lock.unlock();
  try {
    ask();
  } catch (const Error&) {
  }
  lock.lock();
}

std::string turn_kind(const Collective& c) { return c.kind == CollectiveKind::job ? c.name : "collective"; }

std::string apart(int rank_a, const std::string& a, int rank_b, const std::string& b) {
  return fmt::format(
      "rank {} is in {}, rank {} in {}: neither can go on (all ranks must make the same steps and "
      "collectives in the same order; one of them makes fewer, or more, than the other)",
      rank_a, a, rank_b, b);
}

}  // namespace

TurnWatch::TurnWatch(int rank, std::shared_ptr<Store> store, std::string prefix,
                     std::function<void(const std::string&)> differ)
    : rank_(rank), store_(std::move(store)), prefix_(std::move(prefix)), differ_(std::move(differ)) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { watch(); });
}

TurnWatch::~TurnWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_one();
  thread_.join();
}

void TurnWatch::begin(const Collective& c) {
  const std::lock_guard lock(mutex_);
  ++turn_;
  inside_ = &c;
}

void TurnWatch::end() {
  const std::lock_guard lock(mutex_);
  inside_ = nullptr;
}

std::optional<std::string> TurnWatch::difference() {
  const std::lock_guard lock(mutex_);
  return difference_;
}

void TurnWatch::watch() {
  std::unique_lock lock(mutex_);
  uint64_t before = 0, looked = 0;
  while (!stopped_.wait_for(lock, kTick, [&] { return stopping_; })) {
    const uint64_t now = turn_;
    if (first_ && now != looked) off(lock, [&] { forget(); });
    else if (first_) off(lock, [&] { hear(); });
    else if (inside_ && now == before && now != looked) look(looked = now, *inside_, lock);
    before = now;
  }
}

/// What this rank waits in may end as soon as nobody holds the lock.
void TurnWatch::look(uint64_t turn, const Collective& c, std::unique_lock<std::mutex>& lock) {
  key_ = fmt::format("{}turn/{}", prefix_, turn);
  off(lock, [&, kind = turn_kind(c), text = describe(c)] { compare(kind, text); });
}

void TurnWatch::compare(const std::string& kind, const std::string& text) {
  const std::string mine = fmt::format("{}\n{}\n{}", rank_, kind, text);
  const std::string found = store_->set_once(key_, mine);
  first_ = found == mine;
  const std::vector<std::string> other = split(found, '\n');
  if (other[1] == kind) return;
  const int peer = std::stoi(other[0]);
  const std::string why =
      peer < rank_ ? apart(peer, other[2], rank_, text) : apart(rank_, text, peer, other[2]);
  know(why);
  try {  // whoever has failed may end at once, and the store with it: first the other is told
    store_->set(key_ + kDiffers, why);
    store_->wait(key_ + kHeard, kHeardWithin);
  } catch (const Error&) {  // it is gone
  }
  differ_(why);
}

/// Others may have found out that they differ.
void TurnWatch::hear() {
  const auto why = store_->get(key_ + kDiffers);
  if (!why) return;
  first_ = false;
  know(*why);
  store_->set(key_ + kHeard, "yes");
  differ_(*why);
}

void TurnWatch::know(const std::string& why) {
  const std::lock_guard lock(mutex_);
  difference_ = why;
}

/// The turn has ended, for all ranks have come to it: nobody who is in it can differ.
void TurnWatch::forget() {
  first_ = false;
  store_->erase(key_);
}

}  // namespace kiln
