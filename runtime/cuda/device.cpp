// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/device.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "ir/base/error.h"
#include "runtime/cuda/graph.h"
#include "runtime/cuda/guards.h"
#include "runtime/cuda/staging.h"

namespace kiln {

using cuda::kSuccess;
using cuda::Result;

namespace {

constexpr int kOldestMajor = 8;  // cp.async and the mma instructions of kernels
constexpr size_t kRecordedNamed = 16;
constexpr size_t kPlaceChars = 120;

/// Errors after which the context takes no more work.
bool ends_context(Result r) {
  switch (r) {
    case cuda::kUncorrectableEcc:
    case cuda::kNvlinkUncorrectable:
    case cuda::kAssert:
    case cuda::kIllegalAddress:
    case cuda::kLaunchTimeout:
    case cuda::kHardwareStackError:
    case cuda::kIllegalInstruction:
    case cuda::kMisalignedAddress:
    case cuda::kInvalidAddressSpace:
    case cuda::kInvalidPc:
    case cuda::kLaunchFailed:
    case cuda::kUnknown: return true;
    default: return false;
  }
}

/// The first of many lines of a launch; each as a whole.
std::string_view shortened(std::string_view place) {
  if (place.size() <= kPlaceChars) return place;
  const size_t end = place.rfind(' ', kPlaceChars);
  return place.substr(0, end != std::string_view::npos ? end : place.find(' '));
}

std::string arch_text(int major, int minor) {
  const bool own = minor == 0 && (major == 9 || major == 10);  // has instructions of this chip alone
  return fmt::format("sm_{}{}{}", major, minor, own ? "a" : "");
}

}  // namespace

CudaDevice::CudaDevice(const cuda::Driver& driver, int index) : driver_(driver), index_(index) {
  int count = 0;
  check(driver_.device_count(&count), "cuDeviceGetCount");
  KILN_CHECK(index >= 0 && index < count, device,
             "cuda:{}: no such device; got index {}, expected 0 to {} (hint: {})", index, index, count - 1,
             driver_.simulated ? "KILN_SIM_DEVICES says how many the simulated driver has"
                               : "CUDA_VISIBLE_DEVICES chooses which devices this process has");
  check(driver_.device_get(&id_, index), "cuDeviceGet");
  char name[256] = "";
  check(driver_.device_name(name, sizeof name, id_), "cuDeviceGetName");
  name_ = name;
  read_limits();
  check(driver_.context_retain(&context_, id_), "cuDevicePrimaryCtxRetain");
  try {
    open();
  } catch (...) {
    close();
    throw;
  }
}

int CudaDevice::attribute(int which) {
  int value = 0;
  check(driver_.device_attribute(&value, which, id_), "cuDeviceGetAttribute");
  return value;
}

void CudaDevice::read_limits() {
  limits_.major = attribute(cuda::kComputeMajor);
  limits_.minor = attribute(cuda::kComputeMinor);
  KILN_CHECK(limits_.major >= kOldestMajor, device,
             "cuda:{}: {} is too old; got compute capability {}.{}, expected {}.0 or higher", index_, name_,
             limits_.major, limits_.minor, kOldestMajor);
  KILN_CHECK(attribute(cuda::kMemoryPoolsSupported) != 0, device,
             "cuda:{}: {} has no memory pools (hint: a virtual GPU must be configured with unified memory)",
             index_, name_);
  arch_ = arch_text(limits_.major, limits_.minor);
  limits_.multiprocessors = attribute(cuda::kMultiprocessorCount);
  limits_.max_threads_per_block = attribute(cuda::kMaxThreadsPerBlock);
  limits_.max_threads_per_multiprocessor = attribute(cuda::kMaxThreadsPerMultiprocessor);
  limits_.shared_per_block = static_cast<size_t>(attribute(cuda::kMaxSharedPerBlockOptin));
  check(driver_.device_memory(&limits_.memory_bytes, id_), "cuDeviceTotalMem");
}

void CudaDevice::make(Streams& streams) {
  const auto stream = [&](cuda::Stream& s, int priority) {
    check(driver_.stream_create(&s, cuda::kStreamNonBlocking, priority), "cuStreamCreateWithPriority");
  };
  stream(streams.compute, 0);
  stream(streams.copies, 0);
  stream(streams.uploads, 0);
  stream(streams.collectives, -1);  // what waits for other ranks should not also wait for room
  for (cuda::Stream& s : streams.sides) stream(s, 0);
}

void CudaDevice::destroy(Streams& streams) {
  for (cuda::Stream* s : {&streams.compute, &streams.copies, &streams.uploads, &streams.collectives,
                          &streams.sides[0], &streams.sides[1], &streams.sides[2]})
    if (*s) driver_.stream_destroy(std::exchange(*s, nullptr));
}

void CudaDevice::open() {
  make_current();
  make(plain_);
  check(driver_.default_pool(&pool_, id_), "cuDeviceGetDefaultMemPool");
  uint64_t keep = UINT64_MAX;  // memory given back stays in the pool for the next call
  check(driver_.pool_set(pool_, cuda::kPoolReleaseThreshold, &keep), "cuMemPoolSetAttribute");
  staging_ = std::make_unique<CudaStaging>(*this, plain_.compute);
  upload_staging_ = std::make_unique<CudaStaging>(*this, plain_.uploads);
  graph_blocks_ = std::make_unique<CudaGraphBlocks>();
  guards_ = std::make_unique<CudaGuards>(*this);
}

void CudaDevice::close() {
  guards_.reset();
  graph_blocks_.reset();
  staging_.reset();
  upload_staging_.reset();
  asked_ = {};
  if (driver_.context_set(context_) == kSuccess) {
    driver_.context_synchronize();
    for (const cuda::Event e : events_) driver_.event_destroy(e);
    for (const cuda::Event e : timed_events_) driver_.event_destroy(e);
    destroy(plain_);
    destroy(recorded_);
  }
  driver_.context_release(id_);
}

CudaDevice::~CudaDevice() { close(); }

void CudaDevice::check_failed() const {
  if (!failed_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  throw Error(failure_kind_, fmt::format("cuda:{}: the device failed before: {}", index_, *failure_));
}

void CudaDevice::make_current() {
  check_failed();
  check(driver_.context_set(context_), "cuCtxSetCurrent");
}

void CudaDevice::begin_recording(const std::string& name) {
  make_current();
  std::unique_lock lock(recording_mutex_);
  if (!recorded_.compute) make(recorded_);
  check(driver_.capture_begin(recorded_.compute, cuda::kCaptureThreadLocal), "cuStreamBeginCapture");
  recorded_name_ = name;
  recorded_notes_.clear();
  recorder_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  lock.release();  // by end_recording
}

CudaRecording CudaDevice::end_recording() {
  KILN_ASSERT(recording(), "this thread records nothing");
  const std::unique_lock lock(recording_mutex_, std::adopt_lock);
  const std::string name = recorded_name_;
  recorder_.store({}, std::memory_order_relaxed);
  CudaRecording out;
  check(driver_.capture_end(recorded_.compute, &out.graph), "cuStreamEndCapture", "the graph of " + name);
  out.launches = recorded_launches();
  return out;
}

std::optional<std::string> CudaDevice::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void CudaDevice::fail(ErrorKind kind, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (failure_) return;
  failure_ = why;
  failure_kind_ = kind;
  failed_.store(true, std::memory_order_release);
}

std::string CudaDevice::describe(Result result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver_.error_name(result, &name) != kSuccess || !name) name = "unknown error";
  if (driver_.error_string(result, &text) != kSuccess || !text) text = "no text";
  std::string out = fmt::format("{} ({}): {}", name, result, text);
  if (const std::string words = driver_.fault ? driver_.fault() : ""; !words.empty())
    out += fmt::format(": {}", words);
  return out;
}

std::string CudaDevice::Note::str() const {
  return place.empty() ? name : fmt::format("{} ({})", name, place);
}

std::string CudaDevice::last_launches() const {
  std::string out;
  const std::string* said = nullptr;  // what is inside a graph is said once
  const uint64_t kept = std::min<uint64_t>(launches_, notes_.size());
  for (uint64_t i = 0; i < kept; ++i) {
    const Note& n = notes_[(launches_ - 1 - i) % notes_.size()];
    out += fmt::format("{}{}", i ? ", " : "", n.str());
    if (n.inside && n.inside.get() != said) out += fmt::format(" [{}]", *(said = n.inside.get()));
  }
  return out;
}

/// Each kernel of each line once.
std::string CudaDevice::recorded_launches() const {
  if (recorded_notes_.empty()) return "no launches";
  std::vector<std::string> named;
  size_t others = 0;
  for (auto n = recorded_notes_.rbegin(); n != recorded_notes_.rend(); ++n) {
    const std::string text = n->str();
    if (std::find(named.begin(), named.end(), text) != named.end()) continue;
    if (named.size() < kRecordedNamed) named.push_back(text);
    else ++others;
  }
  std::string out = fmt::format("{} launch{}, the latest first: {}", recorded_notes_.size(),
                                recorded_notes_.size() == 1 ? "" : "es", fmt::join(named, ", "));
  if (others > 0) out += fmt::format(" and {} before them", others);
  return out;
}

void CudaDevice::check(Result result, const char* call, std::string_view about) {
  if (result == kSuccess) return;
  const std::lock_guard lock(mutex_);
  const std::string what =
      fmt::format("{}{}{}: {}", call, about.empty() ? "" : " of ", about, describe(result));
  if (failure_)
    throw Error(failure_kind_,
                fmt::format("cuda:{}: {}: the device failed before: {}", index_, what, *failure_));
  std::string text =
      fmt::format("cuda:{}: {}{}", index_,
                  recording() ? fmt::format("while a graph of {} was recorded: ", recorded_name_) : "", what);
  if (ends_context(result)) {
    // Launches run after the call that started them has returned: any of the last may be the one.
    if (launches_ > 0) text += fmt::format("; last launches, the latest first: {}", last_launches());
    text += " (hint: the device takes no more work of this process; start it again)";
    failure_ = what;
    failed_.store(true, std::memory_order_release);
  }
  throw Error(ErrorKind::device, text);
}

/// Copies: whoever launches may be gone when a failure is seen.
void CudaDevice::note(const char* name, const char* place, const std::shared_ptr<const std::string>& inside) {
  if (recording()) {
    recorded_notes_.push_back({name, std::string(shortened(place)), inside});
    return;
  }
  const std::lock_guard lock(mutex_);
  Note& n = notes_[launches_++ % notes_.size()];
  n.name = name;
  n.place = shortened(place);
  n.inside = inside;
}

void CudaDevice::launch(const CudaLaunch& l, cuda::Stream stream) {
  if (l.blocks == 0) return;
  make_current();
  KILN_CHECK(l.blocks > 0 && l.blocks <= INT32_MAX, unsupported, "cuda:{}: {}: {} blocks in one launch",
             index_, l.name, l.blocks);
  note(l.name, l.place);
  if (driver_.declare) check(driver_.declare(l.accesses.data(), l.accesses.size()), "declare", l.name);
  void* parameters[] = {l.parameters};
  const Result r =
      driver_.launch(l.function, static_cast<unsigned>(l.blocks), 1, 1, static_cast<unsigned>(l.threads), 1,
                     1, static_cast<unsigned>(l.shared_bytes), stream, parameters, nullptr);
  if (r == kSuccess) return;
  const std::string place = l.place[0] ? fmt::format(" ({})", l.place) : "";
  check(r, "cuLaunchKernel",
        fmt::format("{}{} on {} blocks of {} threads with {} bytes of shared memory", l.name, place, l.blocks,
                    l.threads, l.shared_bytes));
}

void CudaDevice::launch(cuda::GraphExec graph, const std::string& name,
                        const std::shared_ptr<const std::string>& launches) {
  make_current();
  note(name.c_str(), "", launches);
  check(driver_.graph_launch(graph, compute()), "cuGraphLaunch", name);
}

CudaEvent CudaDevice::event(bool timed) {
  CudaEvent out;
  out.device_ = this;
  out.timed_ = timed;
  {
    const std::lock_guard lock(mutex_);
    auto& unused = timed ? timed_events_ : events_;
    if (!unused.empty()) {
      out.event_ = unused.back();
      unused.pop_back();
      return out;
    }
  }
  make_current();
  check(driver_.event_create(&out.event_, timed ? 0 : cuda::kEventDisableTiming), "cuEventCreate");
  return out;
}

CudaEvent& CudaEvent::operator=(CudaEvent&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(event_, other.event_);
  std::swap(timed_, other.timed_);
  return *this;
}

CudaEvent::~CudaEvent() {
  if (!event_) return;
  const std::lock_guard lock(device_->mutex_);
  (timed_ ? device_->timed_events_ : device_->events_).push_back(event_);
}

void CudaDevice::record(const CudaEvent& event, cuda::Stream stream) {
  make_current();
  check(driver_.event_record(event.get(), stream), "cuEventRecord");
}

void CudaDevice::wait(cuda::Stream stream, const CudaEvent& event) {
  make_current();
  check(driver_.stream_wait(stream, event.get(), 0), "cuStreamWaitEvent");
}

void CudaDevice::order(cuda::Stream earlier, cuda::Stream later) {
  const CudaEvent between = event();
  record(between, earlier);
  wait(later, between);
}

bool CudaDevice::done(const CudaEvent& event) {
  make_current();
  const Result r = driver_.event_query(event.get());
  if (r == cuda::kNotReady) return false;
  check(r, "cuEventQuery");
  return true;
}

bool CudaDevice::capturing(cuda::Stream stream) {
  make_current();
  int status = cuda::kCaptureStatusNone;
  check(driver_.capture_status(stream, &status), "cuStreamIsCapturing");
  return status != cuda::kCaptureStatusNone;
}

void CudaDevice::synchronize(const CudaEvent& event) {
  make_current();
  check(driver_.event_synchronize(event.get()), "cuEventSynchronize");
  check_failed();  // perhaps that is why it has ended
}

void CudaDevice::synchronize(cuda::Stream stream) {
  make_current();
  check(driver_.stream_synchronize(stream), "cuStreamSynchronize");
  check_failed();  // perhaps that is why it has ended
}

/// Stream by stream: a whole context cannot be waited for while another thread records.
void CudaDevice::synchronize() {
  for (const cuda::Stream s : {plain_.compute, plain_.copies, plain_.uploads, plain_.collectives})
    synchronize(s);
  for (const cuda::Stream s : plain_.sides) synchronize(s);
}

double CudaDevice::milliseconds(const CudaEvent& from, const CudaEvent& to) {
  make_current();
  float ms = 0;
  check(driver_.event_elapsed(&ms, from.get(), to.get()), "cuEventElapsedTime");
  return static_cast<double>(ms);
}

}  // namespace kiln
