// SPDX-License-Identifier: Apache-2.0
// Sizes, times and lists as the commands print them and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/target.h"

namespace kiln::cli {

/// "17 B", "4.0 KiB", "181.0 MiB".
std::string bytes_text(double bytes);
/// "0 FLOP", "1.6 MFLOP".
std::string flops_text(double flops);
/// "0.302 us", "45.7 ms", "1.2 s".
std::string time_text(double seconds);
/// "12 s", "5 min", "3 h", "12 d".
std::string age_text(int64_t seconds);
/// "1 program", "2 programs".
std::string count_text(int64_t n, std::string_view noun);
/// At most `most` characters, with "..." at the end of what was longer.
std::string shortened(const std::string& text, size_t most);

/// A target and the name it was asked for by.
struct NamedTarget {
  std::string name;
  Target target;
};
/// The targets of "host,x86-64-v3,sm_90a", each once. Throws: invalid, on an unknown one.
std::vector<NamedTarget> parse_targets(const std::string& names);

}  // namespace kiln::cli
