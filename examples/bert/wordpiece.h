// SPDX-License-Identifier: Apache-2.0
// BERT's tokenizer: text to the numbers of word pieces, equal to Hugging Face's BertTokenizer.
// Works on plain memory; must not know tensors.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace bert {

struct WordPieceOptions {
  bool lower_case = true;
  std::optional<bool> strip_accents;   ///< none: as lower_case
  bool tokenize_chinese_chars = true;  ///< each CJK ideograph is a word
  size_t max_word_length = 100;        ///< code points; a longer word is [UNK]
};

/// Token numbers of one text, or of several padded to the longest with [PAD].
struct Encoding {
  std::vector<int64_t> input_ids;
  std::vector<int64_t> attention_mask;  ///< 1 for tokens, 0 for padding
  int64_t texts = 1, length = 0;        ///< Shapes: [texts, length], row-major
};

/// Source: Devlin et al. 2018 and its tokenization.py; Wu et al. 2016, section 4.1, for the pieces.
class WordPiece {
 public:
  /// Reads a vocabulary, one token a line; a token's number is that of its line, from 0. Throws: io;
  /// invalid, for a token that occurs twice or without [PAD], [UNK], [CLS], [SEP] and [MASK].
  explicit WordPiece(const std::string& vocab_file, WordPieceOptions options = {});

  /// Words and punctuation signs: cleaned, lower-cased, without accents. Bytes that are not UTF-8 are left
  /// out, like control characters. The five special tokens have no meaning here.
  std::vector<std::string> words(std::string_view text) const;
  /// Word pieces of a text, without [CLS] and [SEP]. A special token that stands in the text is itself.
  std::vector<std::string> tokenize(std::string_view text) const;
  /// "[CLS] pieces [SEP]", of which at most `max_length` are kept ([SEP] always is). Throws: invalid, for
  /// max_length < 2.
  std::vector<int64_t> encode(std::string_view text, size_t max_length = 512) const;
  /// Several, padded to the longest or, where that is given, to `pad_to`. Throws: invalid, when a text is
  /// longer than `pad_to`.
  Encoding encode(const std::vector<std::string>& texts, size_t max_length = 512, size_t pad_to = 0) const;

  /// Number of a token; that of [UNK] where the vocabulary lacks it.
  int64_t id(std::string_view token) const;
  /// Throws: invalid, when there is no such number.
  const std::string& token(int64_t id) const;
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t pad_id() const { return id(kSpecial[0]); }

 private:
  static constexpr std::array<std::string_view, 5> kSpecial = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  void add_pieces(const std::string& word, std::vector<std::string>& out) const;

  WordPieceOptions options_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int64_t> ids_;
};

}  // namespace bert
