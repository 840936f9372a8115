// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/guards.h"

#include <algorithm>
#include <utility>

#include "ir/base/log.h"
#include "ir/plan.h"

namespace kiln {

namespace {

/// What a thread is told whose calls came after one that failed.
std::exception_ptr not_run(const std::exception_ptr& why) {
  try {
    std::rethrow_exception(why);
  } catch (const Error& e) {
    return std::make_exception_ptr(Error(
        e.kind(),
        fmt::format("calls of this thread have not run, because one before them failed: {}", e.what())));
  } catch (...) {
    return why;
  }
}

}  // namespace

/// Stream order is that of calls: whoever looks at the word later sees this.
void CudaGuards::set_word() {
  if (!word_) return;  // nothing has run that looks at it
  constexpr int64_t value = kNothingWrong;
  device_.copy_to_device(word_.address(), &value, sizeof value);
}

cuda::Address CudaGuards::word() {
  const std::lock_guard lock(mutex_);
  if (!word_) {
    word_ = device_.allocate(sizeof(int64_t), "guards");
    set_word();
  }
  return word_.address();
}

PinnedMemory CudaGuards::pinned(size_t bytes) {
  const auto fits =
      std::find_if(free_.begin(), free_.end(), [&](const auto& p) { return p.bytes() >= bytes; });
  if (fits == free_.end()) return device_.allocate_pinned(std::max<size_t>(bytes, 256));
  PinnedMemory out = std::move(*fits);
  free_.erase(fits);
  return out;
}

void CudaGuards::follow(CudaMemory guards, size_t stride, std::vector<int64_t*> to) {
  if (answers_ >= kMostAnswers)
    device_.synchronize(
        std::find_if(items_.begin(), items_.end(), [](const Item& i) { return i.answers.data(); })->come);
  Item item;
  item.thread = std::this_thread::get_id();
  item.answers = pinned(guards.bytes());
  item.come = device_.event();
  device_.copy_to_host(item.answers.data(), guards.address(), guards.bytes(), device_.compute());
  device_.record(item.come, device_.compute());
  item.stride = stride;
  item.to = std::move(to);
  items_.push_back(std::move(item));
  ++answers_;
  ++waiting_;
}

void CudaGuards::then(GuardedCall call) {
  const std::lock_guard lock(mutex_);
  Item* last = nullptr;
  for (Item& i : items_) {
    if (i.complete || i.thread != std::this_thread::get_id()) continue;
    i.call.check = call.check;
    i.complete = true;
    last = &i;
  }
  if (!last) {
    items_.emplace_back();
    last = &items_.back();
    last->thread = std::this_thread::get_id();
    last->call.check = std::move(call.check);
    last->complete = true;
    ++waiting_;
  }
  last->call.undo = std::move(call.undo);
}

/// Whether the answers of `item` are where its call looks for them.
bool CudaGuards::arrived(Item& item) {
  if (!item.answers.data()) return true;
  if (!device_.done(item.come)) return false;
  for (size_t i = 0; i < item.to.size(); ++i)
    *item.to[i] = *reinterpret_cast<const int64_t*>(item.answers.data() + i * item.stride);
  return true;
}

/// Whether something is on its way. Others go on while a thread waits for it.
bool CudaGuards::waits() {
  const std::lock_guard lock(mutex_);
  return std::any_of(items_.rbegin(), items_.rend(),
                     [&](const Item& i) { return i.answers.data() && !device_.done(i.come); });
}

void CudaGuards::drop_front() {
  Item& item = items_.front();
  if (item.answers.data()) {
    free_.push_back(std::move(item.answers));
    --answers_;
  }
  items_.pop_front();
  --waiting_;
}

/// All that is in the queue has seen the word, since calls take turns, and will never be asked again.
GuardFailure CudaGuards::fail(std::exception_ptr error, std::vector<Item>& dropped) {
  set_word();
  GuardFailure out{error, {}};
  const std::thread::id me = std::this_thread::get_id();
  for (auto i = items_.rbegin(); i != items_.rend(); ++i) {
    if (i->call.undo) out.undo.push_back(i->call.undo);
    const bool failed = std::next(i) == items_.rend();
    if (!failed && i->thread != me && others_.try_emplace(i->thread, not_run(error)).second) ++waiting_;
  }
  while (!items_.empty()) {
    dropped.push_back({});
    dropped.back().call = std::move(items_.front().call);
    drop_front();
  }
  return out;
}

std::optional<GuardFailure> CudaGuards::look(bool wait) {
  if (!pending()) return std::nullopt;
  if (wait && waits()) device_.synchronize(device_.compute());
  std::vector<Item> dropped;  // what their calls hold on to must go when the lock has
  const std::lock_guard lock(mutex_);
  if (const auto mine = others_.find(std::this_thread::get_id()); mine != others_.end()) {
    GuardFailure out{mine->second, {}};
    others_.erase(mine);
    --waiting_;
    return out;
  }
  while (!items_.empty()) {
    Item& item = items_.front();
    const auto wrong = [](const int64_t* value) { return *value != kNothingWrong; };
    if (!arrived(item)) break;
    if (!item.complete && std::any_of(item.to.begin(), item.to.end(), wrong)) break;
    try {
      if (item.call.check) item.call.check(item.late);
    } catch (...) {
      return fail(std::current_exception(), dropped);
    }
    dropped.push_back({});
    dropped.back().call = std::move(item.call);
    drop_front();
  }
  for (Item& item : items_) item.late = item.late || item.complete;
  return std::nullopt;
}

void CudaGuards::tell() noexcept {
  try {
    while (pending()) {
      std::optional<GuardFailure> failure = look(true);
      if (!failure) return;
      try {
        std::rethrow_exception(failure->error);
      } catch (const std::exception& e) {
        log(LogLevel::error, "cuda:{}: a call failed, and nobody has waited for it: {}", device_.index(),
            e.what());
      }
    }
  } catch (...) {  // a device that has failed has said so
  }
}

}  // namespace kiln
