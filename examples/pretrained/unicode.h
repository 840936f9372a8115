// SPDX-License-Identifier: Apache-2.0
// UTF-8 and what tokenizers ask of a code point. Works on plain memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pretrained {

/// What stands at the beginning of a text.
struct Utf8Step {
  int32_t code = -1;  ///< -1: a byte that is no UTF-8
  size_t bytes = 0;   ///< 0: the text is empty
};
Utf8Step first_of(std::string_view text);
/// Code points of UTF-8; bytes that are none are left out.
std::vector<int32_t> code_points(std::string_view text);
/// Throws: invalid, for what is no code point.
void append_utf8(std::string& text, int32_t code);

/// Categories L* and N*.
bool is_letter(int32_t code);
bool is_number(int32_t code);
/// The property White_Space, `\s` of regular expressions over Unicode.
bool is_white_space(int32_t code);

}  // namespace pretrained
