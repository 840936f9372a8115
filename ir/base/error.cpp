// SPDX-License-Identifier: Apache-2.0
#include "ir/base/error.h"

#include <cstring>

namespace kiln {

const char* to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid: return "invalid";
    case ErrorKind::unsupported: return "unsupported";
    case ErrorKind::compile: return "compile";
    case ErrorKind::device: return "device";
    case ErrorKind::comm: return "comm";
    case ErrorKind::io: return "io";
    case ErrorKind::internal: return "internal";
  }
  return "unknown";
}

Error Error::in(const std::string& place) const {
  if (placed_) return *this;
  Error e(kind_, fmt::format("{} [in {}]", what(), place), loc_);
  e.placed_ = true;
  return e;
}

std::string SourceLoc::str() const {
  if (!known()) return "";
  const char* slash = std::strrchr(file, '/');
  return fmt::format("{}:{}", slash ? slash + 1 : file, line);
}

namespace detail {
void throw_internal(const char* file, int line, const char* cond, const std::string& msg) {
  throw Error(
      ErrorKind::internal,
      fmt::format("internal error at {}: {} does not hold{}{} (please report this)",
                  SourceLoc(file, static_cast<uint32_t>(line)).str(), cond, msg.empty() ? "" : ": ", msg));
}
}  // namespace detail

}  // namespace kiln
