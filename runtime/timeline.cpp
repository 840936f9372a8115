// SPDX-License-Identifier: Apache-2.0
// Source of the format: Trace Event Format (Google), "complete" and "metadata" events.
#include "runtime/timeline.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "ir/base/error.h"
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

std::string named(const char* what, int row, const std::string& name) {
  return fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"name":"{}"}}}})", getpid(), row,
                     what, escaped(name));
}

std::string event(const TimelineSpan& s) {
  return fmt::format(R"({{"ph":"X","pid":{},"tid":{},"name":"{}","cat":"{}","ts":{:.3f},"dur":{:.3f},)"
                     R"("args":{{"bytes":{:.0f}}}}})",
                     getpid(), static_cast<int>(s.row), escaped(s.name), escaped(s.category),
                     static_cast<double>(s.begin_ns) * 1e-3,
                     static_cast<double>(s.end_ns - s.begin_ns) * 1e-3, s.bytes);
}

}  // namespace

int64_t timeline_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Timeline::Timeline(std::string path, const std::string& process) : path_(std::move(path)) {
  file_ = std::fopen(path_.c_str(), "we");
  KILN_CHECK(file_, io, "trace: cannot write {}: {}", path_, std::strerror(errno));
  const std::string head =
      "[\n" + named("process_name", 0, process) + ",\n" +
      named("thread_name", static_cast<int>(TimelineRow::compute), "compute") + ",\n" +
      named("thread_name", static_cast<int>(TimelineRow::communication), "communication");
  std::fwrite(head.data(), 1, head.size(), file_);
}

Timeline::~Timeline() {
  if (!file_) return;
  std::fputs("\n]\n", file_);
  std::fclose(file_);
}

void Timeline::add(const std::vector<TimelineSpan>& spans) {
  std::string text;
  for (const TimelineSpan& s : spans) text += ",\n" + event(s);
  const std::lock_guard lock(mutex_);
  if (!file_) return;
  const bool ok = std::fwrite(text.data(), 1, text.size(), file_) == text.size() && std::fflush(file_) == 0;
  if (ok) return;
  log(LogLevel::warn, "trace: {} ends here: {}", path_, std::strerror(errno));
  std::fclose(file_);
  file_ = nullptr;
}

}  // namespace kiln
