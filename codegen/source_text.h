// SPDX-License-Identifier: Apache-2.0
// SourceText: lines of C++ that indent themselves by their braces.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace kiln {

/// Collects generated source. A line that ends in '{' opens a level, one that starts with '}' closes one.
class SourceText {
 public:
  /// Adds one or more lines, as they are.
  void lines(std::string_view text) {
    while (!text.empty()) {
      const size_t end = text.find('\n');
      add(text.substr(0, end));
      if (end == std::string_view::npos) break;
      text.remove_prefix(end + 1);
    }
  }
  /// Adds a formatted line; braces of the source are doubled.
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    lines(fmt::format(format, std::forward<Args>(args)...));
  }
  const std::string& str() const { return out_; }

 private:
  void add(std::string_view s) {
    const size_t first = s.find_first_not_of(' ');
    s = first == std::string_view::npos ? std::string_view() : s.substr(first);
    if (!s.empty() && s.front() == '}' && depth_ > 0) --depth_;
    if (!s.empty() && s.front() != '#') out_.append(2 * static_cast<size_t>(depth_), ' ');
    out_.append(s).push_back('\n');
    if (!s.empty() && s.back() == '{') ++depth_;
  }

  std::string out_;
  int depth_ = 0;
};

}  // namespace kiln
