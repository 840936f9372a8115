// SPDX-License-Identifier: Apache-2.0
// Text taken apart.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln {

/// The parts of `text` between separators. Empty ones are kept, but for one after the last separator.
std::vector<std::string> split(std::string_view text, char separator);

}  // namespace kiln
