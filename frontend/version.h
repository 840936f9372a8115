// SPDX-License-Identifier: Apache-2.0
// Which Kiln this is.
#pragma once

#include <string_view>

namespace kiln {

/// The library's version, e.g. "0.1.0"; the same as that of the installed package.
std::string_view version();

}  // namespace kiln
