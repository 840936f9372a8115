// SPDX-License-Identifier: Apache-2.0
// Stages of compilation as files, for people: what KILN_DUMP names goes into the folder KILN_DUMP_DIR.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace kiln {

/// Whether KILN_DUMP names `stage`.
bool dumping(std::string_view stage);
/// If so, writes text() as <number>-<stage>.<extension>, numbered after all files that are there.
/// A folder that cannot be written costs one warning, and the process goes on without.
void dump(std::string_view stage, const std::function<std::string()>& text,
          std::string_view extension = "txt");

}  // namespace kiln
