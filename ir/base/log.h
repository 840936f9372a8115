// SPDX-License-Identifier: Apache-2.0
// Log lines to stderr by level. The level comes from KILN_LOG (options.h).
#pragma once

#include <fmt/format.h>

#include <string>

namespace kiln {

enum class LogLevel : int { error, warn, info, debug, trace };

/// True if a line of `level` would be printed.
bool log_enabled(LogLevel level);
/// Prints one line "kiln <level>: text" to stderr. Threads: any.
void log_line(LogLevel level, const std::string& text);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> f, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(f, std::forward<Args>(args)...));
}

}  // namespace kiln
