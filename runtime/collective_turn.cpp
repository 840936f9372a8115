// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective_turn.h"

#include <utility>

#include "runtime/timeline.h"

namespace kiln {

void DeviceTurn::note_before() {
  if (kind == TurnKind::replay || call.kind == CollectiveKind::job) return;
  before_ = device_.event();
  device_.record(before_, compute_);
}

void DeviceTurn::throw_error() const {
  if (error_) throw Error(ErrorKind::comm, *error_, call.site.loc);
}

void DeviceTurn::await_open() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return state_ == State::over || (state_ == State::open && !failing_); });
  throw_error();
  waited_ = true;  // from here on it may be on the device
}

void DeviceTurn::launched() {
  CudaEvent ended = device_.event();
  device_.record(ended, compute_);
  const std::lock_guard lock(mutex_);
  ended_ = std::move(ended);
  times_.begin_ns = timeline_now();
  if (state_ == State::open) state_ = State::started;
}

void DeviceTurn::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return state_ == State::over || (state_ == State::started && !failing_ && kind != TurnKind::host);
  });
  throw_error();
  if (kind != TurnKind::device || (state_ == State::over && !captured)) return;
  device_.wait(compute_, ended_);
  waited_ = true;
}

bool DeviceTurn::done() const {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::started || failing_) return state_ == State::over;
  }
  return device_.done(ended_);
}

Work::Times DeviceTurn::times() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return state_ == State::over; });
  return times_;
}

void DeviceTurn::open() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::queued) state_ = State::open;
  changed_.notify_all();
}

void DeviceTurn::begin() {
  const std::lock_guard lock(mutex_);
  times_.begin_ns = timeline_now();
}

void DeviceTurn::begin_on_device() {
  device_.wait(stream_, before_);
  if (captured) return;
  begun_ = device_.event(true);
  device_.record(begun_, stream_);
}

void DeviceTurn::started_on_device() {
  CudaEvent ended = device_.event(!captured);
  device_.record(ended, stream_);
  const std::lock_guard lock(mutex_);
  if (state_ == State::over) return;
  ended_ = std::move(ended);
  state_ = State::started;
  if (captured && !failing_) end_locked(std::nullopt);
  changed_.notify_all();
}

bool DeviceTurn::finished() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::started || failing_) return state_ == State::over;
  }
  if (!device_.done(ended_)) return false;  // which nobody changes any more
  const double ms = begun_.get() ? device_.milliseconds(begun_, ended_) : -1;
  const std::lock_guard lock(mutex_);
  if (failing_) return state_ == State::over;
  if (ms >= 0) times_.begin_ns = timeline_now() - static_cast<int64_t>(ms * 1e6);
  end_locked(std::nullopt);
  return true;
}

bool DeviceTurn::over() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::over;
}

bool DeviceTurn::begin_failing() {
  const std::lock_guard lock(mutex_);
  failing_ = true;
  return state_ != State::over && waited_;
}

void DeviceTurn::end(std::optional<std::string> error) {
  const std::lock_guard lock(mutex_);
  end_locked(std::move(error));
}

void DeviceTurn::end_locked(std::optional<std::string> error) {
  if (state_ == State::over) return;
  state_ = State::over;
  error_ = std::move(error);
  times_.end_ns = timeline_now();
  changed_.notify_all();
}

}  // namespace kiln
