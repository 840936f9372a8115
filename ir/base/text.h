// SPDX-License-Identifier: Apache-2.0
// Text taken apart, and numbers as texts show them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

/// The parts of `text` between separators. Empty ones are kept, but for one after the last separator.
std::vector<std::string> split(std::string_view text, char separator);

/// Bytes in MiB.
constexpr double mib(size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace kiln
