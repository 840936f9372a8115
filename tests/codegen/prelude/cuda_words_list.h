// SPDX-License-Identifier: Apache-2.0
// The words that generated CUDA kernels may call, as the prelude's headers declare them.
#pragma once

#include <algorithm>
#include <regex>
#include <string>
#include <vector>

#include "codegen/prelude_files.h"
#include "ir/kernel_image.h"

namespace kiln::testing {

/// Functions, structs and constants in namespace kn itself, and the macros that make kernels. Operators are
/// none; nor is what cuda_matmul.h has, the parts that printed products are put together from.
inline std::vector<std::string> declared_words() {
  static const std::regex kForms[] = {
      std::regex(R"(^(?!\s|#)(?:.*\s)?KN_FN [^(]*?\b(\w+)\()"), std::regex(R"(^KN_[A-Z_0-9]+\((\w+)[,)])"),
      std::regex(R"(^template <class \w+> (?:inline constexpr \w+|struct) (inf|nan|Shared|Running\w+)\b)"),
      std::regex(R"(^#define (KILN_CUDA_\w+))")};
  static const std::regex kInside(R"(^namespace (\w+) \{|^\}  // namespace (\w+))");
  std::vector<std::string> words;
  for (const PreludeFile& f : prelude_files(Prelude::cuda)) {
    if (f.name.starts_with("cuda_matmul")) continue;
    std::vector<std::string> inside;
    for (std::string text(f.text); !text.empty();) {
      const std::string line = text.substr(0, text.find('\n'));
      text.erase(0, line.size() + 1);
      std::smatch m;
      if (std::regex_search(line, m, kInside)) {
        if (m[1].matched) inside.push_back(m[1]);
        else if (!inside.empty()) inside.pop_back();
      }
      const bool ours = inside == std::vector<std::string>{"kn"};
      for (const std::regex& form : kForms)
        if (std::regex_search(line, m, form) && (ours || line.starts_with("#define"))) words.push_back(m[1]);
    }
  }
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  return words;
}

/// Those that no kernel of the modules has.
inline std::vector<std::string> words_left_out(const std::vector<CudaModule>& modules) {
  std::vector<std::string> left;
  std::string text;
  for (const CudaModule& m : modules) text += m.source;
  for (const std::string& word : declared_words())
    if (!std::regex_search(text, std::regex("\\b" + word + R"(\b\s*[<()])"))) left.push_back(word);
  return left;
}

}  // namespace kiln::testing
