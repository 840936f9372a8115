// SPDX-License-Identifier: Apache-2.0
// A CUDA device of this process: its context, streams, events, memory and copies, and what is said when one
// of them fails. Knows nothing of plans and kernels' meaning.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "ir/base/error.h"
#include "runtime/cuda/device_memory.h"
#include "runtime/cuda/driver.h"

namespace kiln {

class CudaDevice;
class CudaGraphBlocks;
class CudaGuards;
class CudaStaging;

/// An event from the device's pool; goes back there when destroyed, though a stream may still wait for it.
class CudaEvent {
 public:
  CudaEvent() = default;
  CudaEvent(CudaEvent&& other) noexcept { *this = std::move(other); }
  CudaEvent& operator=(CudaEvent&& other) noexcept;
  ~CudaEvent();

  cuda::Event get() const { return event_; }

 private:
  friend class CudaDevice;
  CudaDevice* device_ = nullptr;
  cuda::Event event_ = nullptr;
  bool timed_ = false;
};

/// What a device can do.
struct CudaLimits {
  int major = 0, minor = 0;  ///< compute capability
  int multiprocessors = 0, max_threads_per_block = 0, max_threads_per_multiprocessor = 0;
  size_t shared_per_block = 0;  ///< bytes that a kernel may ask for
  size_t memory_bytes = 0;
};

/// One launch of a kernel.
struct CudaLaunch {
  cuda::Function function = nullptr;
  int64_t blocks = 0;
  int threads = 0;
  size_t shared_bytes = 0;
  void* parameters = nullptr;  ///< the kernel's parameter block (see ir/kernel_image.h)
  const char* name = "";       ///< of the kernel, for errors, ...
  const char* place = "";      ///< ... and the user's line, or ""
  std::span<const cuda::DeclaredAccess> accesses = {};  ///< for the simulated device
};

/// What was recorded, and its launches in words, for errors: "3 launches, the latest first: flip
/// (net.cpp:9)".
struct CudaRecording {
  cuda::Graph graph = nullptr;
  std::string launches;
};

/// Threads: any. Every function but those about the host makes the device's context current for its thread.
class CudaDevice {
 public:
  static constexpr int kSideStreams = 3;
  /// Less than this is uploaded on the compute stream: two events would cost more than they gain.
  static constexpr size_t kSmallUpload = size_t{64} << 10;
  /// So many uploads may be made before what the compute stream had when they were asked for: were it any
  /// number, every step that waits there would have a batch in memory.
  static constexpr size_t kUploadsAhead = 4;

  /// Throws: device, if there is no such device or it cannot be used.
  CudaDevice(const cuda::Driver& driver, int index);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  int index() const { return index_; }
  const std::string& name() const { return name_; }  ///< "NVIDIA H100 80GB HBM3"
  const std::string& arch() const { return arch_; }  ///< what kernels are compiled for: "sm_90a"
  const CudaLimits& limits() const { return limits_; }
  const cuda::Driver& driver() const { return driver_; }
  bool simulated() const { return driver_.simulated; }

  /// What plans run on. Memory is ordered by it. A thread that records has streams of the recording's.
  cuda::Stream compute() const { return streams().compute; }
  cuda::Stream copies() const { return streams().copies; }
  cuda::Stream uploads() const { return streams().uploads; }
  cuda::Stream collectives() const { return streams().collectives; }
  /// Streams for launches that may run side by side, forked from the compute stream and joined to it.
  cuda::Stream side(int i) const { return streams().sides[static_cast<size_t>(i)]; }

  /// `holder` is who the out-of-memory text says has it: "parameters", "arena of step (train.cpp:22)".
  /// Throws: device, when there is no memory: who holds how much, and what to do.
  /// `describe` says what lies in it, for that text.
  CudaMemory allocate(size_t bytes, std::string_view holder,
                      const std::function<std::string()>& describe = {});
  /// The same, with the bytes at `from` in it, which may be changed when it returns. They are copied on a
  /// stream of their own, while the compute stream is busy, and what comes there from now on waits for them.
  CudaMemory upload(const void* from, size_t bytes, std::string_view holder,
                    const std::function<std::string()>& describe = {});
  PinnedMemory allocate_pinned(size_t bytes);
  CudaEvent event(bool timed = false);

  /// What is launched from now on is at fault where it writes there, if the device can tell (the simulated
  /// one can): for memory that somebody reads while plans run.
  CudaHold hold(cuda::Address address, size_t bytes);

  // Copies in the order of the compute stream, which may have work that uses the memory. `from` of the first
  // may be changed when it returns, and `to` of the second holds the bytes; the others return at once.
  void copy_to_device(cuda::Address to, const void* from, size_t bytes);
  void copy_to_host(void* to, cuda::Address from, size_t bytes);
  void copy_on_device(cuda::Address to, cuda::Address from, size_t bytes);
  void fill(cuda::Address to, unsigned char value, size_t bytes);
  /// Marks what nobody may read before it is written: filled with `value`, or known to the simulated device.
  void spoil(cuda::Address to, unsigned char value, size_t bytes);
  // The same on any stream, at once: host memory must be pinned, and stay until the stream has got there.
  void copy_to_device(cuda::Address to, const void* from, size_t bytes, cuda::Stream stream);
  void copy_to_host(void* to, cuda::Address from, size_t bytes, cuda::Stream stream);
  void copy_on_device(cuda::Address to, cuda::Address from, size_t bytes, cuda::Stream stream);
  void fill(cuda::Address to, unsigned char value, size_t bytes, cuda::Stream stream);

  void launch(const CudaLaunch& launch, cuda::Stream stream);
  /// On the compute stream. For errors: `name`, "graph of step", and its CudaRecording::launches.
  void launch(cuda::GraphExec graph, const std::string& name,
              const std::shared_ptr<const std::string>& launches);
  void record(const CudaEvent& event, cuda::Stream stream);
  /// What `stream` gets from now on waits for `event`.
  void wait(cuda::Stream stream, const CudaEvent& event);
  /// What `later` gets from now on waits for what `earlier` has.
  void order(cuda::Stream earlier, cuda::Stream later);
  bool done(const CudaEvent& event);
  bool capturing(cuda::Stream stream);
  /// The host waits: for an event, a stream, or all streams of the device.
  void synchronize(const CudaEvent& event);
  void synchronize(cuda::Stream stream);
  void synchronize();
  double milliseconds(const CudaEvent& from, const CudaEvent& to);

  CudaMemoryStats memory();
  /// Gives memory that nobody holds back to the device.
  void trim();

  /// What this thread puts on its streams until end_recording() is recorded and not run; others go on. Waits
  /// for a recording of another thread. `name` is what errors say is recorded.
  void begin_recording(const std::string& name);
  /// Throws: device, if something that cannot be recorded was called meanwhile.
  CudaRecording end_recording();
  bool recording() const { return recorder_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }
  CudaGraphBlocks& graph_blocks() { return *graph_blocks_; }
  CudaGuards& guards() { return *guards_; }
  // For the out-of-memory text: how many graphs there are, and how much they may be.
  void count_graphs(int change);
  void set_graph_caps(CudaGraphCaps caps);

  /// For calls of driver() itself.
  void make_current();
  /// Throws: device, unless `result` is kSuccess: call, error, and, where the device has failed, its last
  /// launches. A device that has failed says so at every later call.
  void check(cuda::Result result, const char* call, std::string_view about = {});
  /// Why the device can be used no more, if so.
  std::optional<std::string> failure() const;
  /// What it has computed is wrong, or will be: every later call throws `kind`, with the reason.
  void fail(ErrorKind kind, const std::string& why);

  /// Keeps what was put on a stream, so that errors can name the last ones: launch() does it itself.
  void note(const char* name, const char* place, const std::shared_ptr<const std::string>& inside = {});

 private:
  friend class CudaMemory;
  friend class CudaEvent;
  friend class CudaHold;
  friend class PinnedMemory;
  struct Note {
    std::string name, place;
    std::shared_ptr<const std::string> inside;  // of a graph: its launches
    std::string str() const;
  };
  struct Streams {
    cuda::Stream compute = nullptr, copies = nullptr, uploads = nullptr, collectives = nullptr;
    std::array<cuda::Stream, kSideStreams> sides{};
  };
  const Streams& streams() const { return recording() ? recorded_ : plain_; }
  void make(Streams& streams);
  void destroy(Streams& streams);
  void check_failed() const;
  void read_limits();
  void open();
  void close();
  int attribute(int which);
  void check_bytes(cuda::Result result, const char* call, size_t bytes);
  std::string describe(cuda::Result result) const;
  std::string last_launches() const;
  std::string recorded_launches() const;
  std::string who_holds(size_t asked, std::string_view holder, const std::string& what);
  std::string graph_text() const;
  void check_unrecorded(const char* call, size_t bytes) const;
  CudaMemory allocate_on(cuda::Stream stream, size_t bytes, std::string_view holder,
                         const std::function<std::string()>& describe);
  void stay_near_compute();
  void forget(CudaMemory& memory);

  const cuda::Driver& driver_;
  const int index_;
  cuda::DeviceId id_ = 0;
  cuda::Context context_ = nullptr;
  cuda::Pool pool_ = nullptr;
  std::string name_, arch_;
  CudaLimits limits_;
  Streams plain_, recorded_;
  std::mutex recording_mutex_;
  std::atomic<std::thread::id> recorder_{};
  std::string recorded_name_;         // the recorder's, ...
  std::vector<Note> recorded_notes_;  // ... and its launches
  std::unique_ptr<CudaGraphBlocks> graph_blocks_;
  std::unique_ptr<CudaStaging> staging_, upload_staging_;
  std::mutex upload_mutex_;
  std::array<CudaEvent, kUploadsAhead> asked_;  // where the compute stream was at the last uploads
  size_t uploads_ = 0;
  std::unique_ptr<CudaGuards> guards_;

  mutable std::mutex mutex_;
  std::map<std::string, size_t, std::less<>> holders_;
  size_t in_use_ = 0, peak_ = 0;
  std::vector<cuda::Event> events_, timed_events_;  // unused
  std::array<Note, 8> notes_{};
  uint64_t launches_ = 0;
  int graphs_ = 0;
  CudaGraphCaps caps_;
  std::optional<std::string> failure_;
  ErrorKind failure_kind_ = ErrorKind::device;
  std::atomic<bool> failed_ = false;
};

/// Device `index` of this process, made on first use and never destroyed.
/// Throws: device, if there is no driver or no such device: the reason and the remedy.
CudaDevice& cuda_device(int index);
/// How many there are; 0 without a driver.
int cuda_device_count();
/// Those that have been made.
std::vector<CudaDevice*> made_cuda_devices();

}  // namespace kiln
