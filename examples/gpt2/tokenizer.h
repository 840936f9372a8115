// SPDX-License-Identifier: Apache-2.0
// GPT-2's tokenizer: text to the numbers of byte pairs and back, equal to Hugging Face's GPT2Tokenizer.
// Works on plain memory; must not know tensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace gpt2 {

/// Any bytes can be encoded, and decoding gives them back. Source: Radford et al. 2019, section 2.2, and its
/// encoder.py; Sennrich et al. 2016 for the merges.
class Tokenizer {
 public:
  /// What ends a document: one token wherever it stands in a text.
  static constexpr std::string_view kEndOfText = "<|endoftext|>";

  /// Reads vocab.json (tokens and their numbers) and merges.txt (pairs, the first to be merged first) of
  /// `folder`. Throws: io; invalid, naming file, line and token, for files that are none of GPT-2's, a
  /// vocabulary without one of the 256 bytes or kEndOfText, and merges of or into what it lacks.
  explicit Tokenizer(const std::string& folder);

  /// What is merged by itself: contractions, words, numbers and other signs, each with the space before it,
  /// and the white space between. Bytes that are not UTF-8 are other signs. `text` has no special token.
  static std::vector<std::string_view> pieces(std::string_view text);
  std::vector<int64_t> encode(std::string_view text) const;
  /// Throws: invalid, when there is no such number.
  std::string decode(const std::vector<int64_t>& ids) const;

  int64_t end_of_text() const { return end_of_text_; }
  int64_t size() const { return static_cast<int64_t>(ids_.size()); }
  /// The largest number of a token.
  int64_t largest() const { return largest_; }

 private:
  void read_vocabulary(const std::string& path);
  void read_merges(const std::string& path);
  void add_merge(const std::string& path, int64_t line_number, const std::string& line);
  void add_piece(std::string_view bytes, std::vector<int64_t>& out) const;

  std::unordered_map<std::string, int64_t> ids_;    ///< by token, as the files write it
  std::unordered_map<int64_t, std::string> bytes_;  ///< of each token
  std::unordered_map<std::string, int64_t> ranks_;  ///< "left right" -> its place among the merges
  int64_t end_of_text_ = 0, largest_ = 0;
};

}  // namespace gpt2
