// SPDX-License-Identifier: Apache-2.0
// Guards of plans (Plan::guards) whose answers the host has yet to see. A call goes on without them: what its
// guards hold is copied to the host in stream order, and looked at when the copy has ended. Meanwhile one
// word of the device keeps every later launch from running once a guard did not hold, until the host has been
// told: so nothing is computed from what the failed call has not written.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/cuda/device.h"

namespace kiln {

/// What the caller of a plan knows of it.
struct GuardedCall {
  /// Throws where what came to the host says that a guard did not hold; `late`: after the call has returned.
  std::function<void(bool late)> check;
  std::function<void()> undo;  ///< takes back what the host has done for it; may be empty
};

/// A call that failed.
struct GuardFailure {
  std::exception_ptr error;
  /// Of that call, and of all after it, which have not run: the latest call's first.
  std::vector<std::function<void()>> undo;
};

/// The guards of one device. Threads: any. An answer belongs to the call that its thread makes.
class CudaGuards {
 public:
  explicit CudaGuards(CudaDevice& device) : device_(device) {}
  /// Waits, and logs what nobody has been told.
  ~CudaGuards() { tell(); }
  CudaGuards(const CudaGuards&) = delete;
  CudaGuards& operator=(const CudaGuards&) = delete;

  /// 8 bytes of the device: kNothingWrong, unless a guard did not hold and nobody has been told.
  cuda::Address word();
  /// Whether there is anything to wait for or to tell.
  bool pending() const { return waiting_.load(std::memory_order_acquire) > 0; }
  /// A plan that looks at the word is put on the streams in one turn, with what follows its guards.
  std::unique_lock<std::mutex> turn() { return std::unique_lock(mutex_); }

  /// Within a turn: `guards` hold an i64 every `stride` bytes, for `to`, which must stay until then() is
  /// called. Waits only where kMostAnswers are on their way.
  void follow(CudaMemory guards, size_t stride, std::vector<int64_t*> to);
  /// The call that this thread has followed guards for since the last one, or one without, is complete.
  void then(GuardedCall call);

  /// Looks at what has come to the host (`wait`: at all that is on its way), call by call. The first that
  /// failed is given out, once; the calls after it are dropped, and other threads that made some get a
  /// failure of their own. Ends at answers that nobody has called then() for and that say so. Throws: device,
  /// if that has failed.
  [[nodiscard]] std::optional<GuardFailure> look(bool wait);
  /// Waits, and logs failures that nobody has been told.
  void tell() noexcept;

  static constexpr size_t kMostAnswers = 64;

 private:
  struct Item {
    std::thread::id thread;
    CudaEvent come;
    PinnedMemory answers;  // null: nothing to wait for
    size_t stride = 0;
    std::vector<int64_t*> to;
    GuardedCall call;
    bool complete = false, late = false;
  };
  bool arrived(Item& item);
  bool waits();
  GuardFailure fail(std::exception_ptr error, std::vector<Item>& dropped);
  void drop_front();
  PinnedMemory pinned(size_t bytes);
  void set_word();

  CudaDevice& device_;
  std::mutex mutex_;
  CudaMemory word_;
  std::deque<Item> items_;
  size_t answers_ = 0;  // items that wait for some
  std::vector<PinnedMemory> free_;
  std::map<std::thread::id, std::exception_ptr> others_;  // failures of threads whose calls were dropped
  std::atomic<size_t> waiting_{0};                        // items and others
};

}  // namespace kiln
