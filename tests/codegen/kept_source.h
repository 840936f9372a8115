// SPDX-License-Identifier: Apache-2.0
// Where the text of a source that did not compile was kept.
#pragma once

#include <string>

namespace kiln::testing {

/// The path in an error "...; its source is kept in <path>\n...".
inline std::string kept_in(const std::string& what) {
  const size_t at = what.find("kept in ") + 8;
  return what.substr(at, what.find('\n', at) - at);
}

}  // namespace kiln::testing
