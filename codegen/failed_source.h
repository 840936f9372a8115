// SPDX-License-Identifier: Apache-2.0
// What is said of a source that did not compile: its text is kept where a human can look at it, with the
// user's lines that it came from.
#pragma once

#include <map>
#include <string>

namespace kiln {

/// The user's lines that kernels compute, by the kernels' symbols: "net.cpp:3 net.cpp:4", or "" for none. For
/// errors alone: they are part of no key.
using KernelLines = std::map<std::string, std::string>;

/// Writes it to a fresh file, in KILN_DUMP_DIR if anything is dumped, else among temporary files: `kernels`,
/// then each line of `text` with its number in the compiler's log. The file compiles as `text` does. The
/// path, or why there is none.
std::string keep_failed_source(const std::string& name, const std::string& text, const KernelLines& kernels);

/// "\nit computes net.cpp:3 net.cpp:4 (k_1), net.cpp:9 (k_2)", or "" where no line is known.
std::string lines_text(const KernelLines& kernels);

}  // namespace kiln
