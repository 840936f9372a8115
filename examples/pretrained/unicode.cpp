// SPDX-License-Identifier: Apache-2.0
#include "examples/pretrained/unicode.h"

#include <utf8proc.h>

#include <algorithm>

#include "frontend/tensor.h"

namespace pretrained {

Utf8Step first_of(std::string_view text) {
  if (text.empty()) return {};
  utf8proc_int32_t c = -1;
  const utf8proc_ssize_t n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                              static_cast<utf8proc_ssize_t>(text.size()), &c);
  return n > 0 ? Utf8Step{c, static_cast<size_t>(n)} : Utf8Step{-1, 1};
}

std::vector<int32_t> code_points(std::string_view text) {
  std::vector<int32_t> out;
  while (!text.empty()) {
    const Utf8Step step = first_of(text);
    if (step.code >= 0) out.push_back(step.code);
    text.remove_prefix(step.bytes);
  }
  return out;
}

void append_utf8(std::string& text, int32_t code) {
  KILN_CHECK(utf8proc_codepoint_valid(code), invalid, "unicode: {} is no code point", code);
  utf8proc_uint8_t bytes[4];
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(utf8proc_encode_char(code, bytes)));
}

bool is_letter(int32_t code) {
  const utf8proc_category_t k = utf8proc_category(code);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_number(int32_t code) {
  const utf8proc_category_t k = utf8proc_category(code);
  return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}

bool is_white_space(int32_t code) {
  if ((code >= 0x9 && code <= 0xD) || code == 0x85) return true;
  const utf8proc_category_t k = utf8proc_category(code);
  return k == UTF8PROC_CATEGORY_ZS || k == UTF8PROC_CATEGORY_ZL || k == UTF8PROC_CATEGORY_ZP;
}

}  // namespace pretrained
