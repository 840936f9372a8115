// SPDX-License-Identifier: Apache-2.0
// Keeps the text of a source that did not compile where a human can look at it.
#pragma once

#include <string>

namespace kiln {

/// Writes it to a fresh file, in KILN_DUMP_DIR if anything is dumped, else among temporary files. The path,
/// or why there is none.
std::string keep_failed_source(const std::string& name, const std::string& text);

}  // namespace kiln
