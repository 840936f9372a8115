// SPDX-License-Identifier: Apache-2.0
// The version comes from the project line of the top CMakeLists.txt.
#include "frontend/version.h"

namespace kiln {

std::string_view version() { return KILN_VERSION; }

}  // namespace kiln
