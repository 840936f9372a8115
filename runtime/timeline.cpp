// SPDX-License-Identifier: Apache-2.0
// Source of the format: Trace Event Format (Google), "complete" and "metadata" events.
#include "runtime/timeline.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>

#include "ir/base/log.h"

namespace kiln {

namespace {

/// As the inside of a JSON string.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else out += c;
  }
  return out;
}

constexpr size_t kHeadBytes = 512;  // of the process's line, which is written again when it has a rank
constexpr size_t kNameBytes = 64;   // of the process's name in it
constexpr std::string_view kFileEnd = "\n]\n";  // behind the last event, where the next one goes

std::string metadata(int pid, int row, const char* what, const std::string& args) {
  return fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{{}}}}})", pid, row, what, args);
}
std::string name_arg(const std::string& name) { return fmt::format(R"("name":"{}")", escaped(name)); }

std::string event(const TimelineSpan& s, int pid, int row) {
  std::string args;
  if (s.category != "call") args = fmt::format(R"("bytes":{:.0f})", s.bytes);
  else if (s.call > 0) args = fmt::format(R"("call":{})", s.call);
  return fmt::format(
      R"({{"ph":"X","pid":{},"tid":{},"name":"{}","cat":"{}","ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})", pid,
      row, escaped(s.name), escaped(s.category), static_cast<double>(s.begin_ns) * 1e-3,
      static_cast<double>(s.end_ns - s.begin_ns) * 1e-3, args);
}

}  // namespace

int64_t timeline_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Timeline::Timeline(std::string prefix) : prefix_(std::move(prefix)), name_(program_invocation_short_name) {
  open();
}

Timeline::~Timeline() {
  if (file_ >= 0) close(file_);
}

void Timeline::open() {
  pid_ = getpid();
  path_ = fmt::format("{}.{}.json", prefix_, pid_);
  threads_.clear();
  end_ = 0;
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) return give_up();
  const std::string text = head();
  end_ = static_cast<int64_t>(text.size());
  if (!write_at(0, text + std::string(kFileEnd))) give_up();
}

/// Of a fixed length, so that another name fits in its place.
std::string Timeline::head() const {
  std::string name = name_.substr(0, kNameBytes);
  while (name.size() < name_.size() && (name_[name.size()] & 0xc0) == 0x80)
    name.pop_back();  // whole characters
  const std::string events =
      metadata(pid_, 0, "process_name", name_arg(fmt::format("{} (pid {})", name, pid_))) + ", " +
      metadata(pid_, 0, "process_sort_index", fmt::format(R"("sort_index":{})", place_));
  return fmt::format("[\n{:<{}}", events, kHeadBytes);
}

void Timeline::name_process(const std::string& name, int place) {
  const std::lock_guard lock(mutex_);
  name_ = name;
  place_ = place;
  if (file_ < 0 || pid_ != getpid()) return;
  if (!write_at(0, head())) give_up();
}

/// The events that name the rows of a thread that has none yet.
std::string Timeline::new_rows(size_t thread) const {
  const std::string which = thread == 0 ? "" : fmt::format(" {}", thread + 1);
  const int row = static_cast<int>(2 * thread);
  return ",\n" + metadata(pid_, row, "thread_name", name_arg("compute" + which)) + ",\n" +
         metadata(pid_, row + 1, "thread_name", name_arg("communication" + which));
}

void Timeline::add(const std::vector<TimelineSpan>& spans) {
  if (spans.empty()) return;
  const std::lock_guard lock(mutex_);
  if (file_ >= 0 && pid_ != getpid()) {
    close(file_);
    open();
  }
  if (file_ < 0) return;
  std::string text;
  const auto at = std::find(threads_.begin(), threads_.end(), std::this_thread::get_id());
  const auto thread = static_cast<size_t>(at - threads_.begin());
  if (at == threads_.end()) {
    threads_.push_back(std::this_thread::get_id());
    text += new_rows(thread);
  }
  for (const TimelineSpan& s : spans)
    text += ",\n" + event(s, pid_, static_cast<int>(2 * thread) + static_cast<int>(s.row));
  const auto size = static_cast<int64_t>(text.size());
  text += kFileEnd;
  if (write_at(end_, text)) end_ += size;
  else give_up();
}

/// With the reason in errno if not all of it could be written.
bool Timeline::write_at(int64_t at, const std::string& text) const {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = pwrite(file_, text.data() + done, text.size() - done, at + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

/// What was written stays, as a whole trace where there is room for its end.
void Timeline::give_up() {
  log(LogLevel::warn, "KILN_TRACE: cannot write {}: {}; going on without", path_, std::strerror(errno));
  if (file_ < 0) return;
  if (ftruncate(file_, end_) == 0) write_at(end_, std::string(kFileEnd));
  close(file_);
  file_ = -1;
}

}  // namespace kiln
