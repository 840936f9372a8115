// SPDX-License-Identifier: Apache-2.0
// Images of handwritten digits from a file of lines: 64 numbers from 0 to 16, then the digit.
#pragma once

#include <string>

#include "frontend/kiln.h"

namespace digits {

struct Images {
  kiln::Tensor pixels;   ///< f32 [n, 1, 8, 8], from 0 to 1
  kiln::Tensor classes;  ///< i64 [n]
};
/// Throws: io; invalid, naming the line that is not of that form.
Images load_images(const std::string& path);

}  // namespace digits
