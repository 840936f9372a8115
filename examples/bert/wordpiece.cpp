// SPDX-License-Identifier: Apache-2.0
#include "examples/bert/wordpiece.h"

#include <utf8proc.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "examples/pretrained/unicode.h"
#include "frontend/safetensors.h"

namespace bert {

namespace {

using CodePoints = std::vector<int32_t>;
using pretrained::append_utf8;
using pretrained::code_points;

bool is_space(int32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return true;
  const utf8proc_category_t k = utf8proc_category(c);
  return k == UTF8PROC_CATEGORY_ZS || k == UTF8PROC_CATEGORY_ZL || k == UTF8PROC_CATEGORY_ZP;
}

/// Control, format and private characters, and what stands for undecodable text. Unassigned ones are kept, as
/// Hugging Face's tokenizers do: they are of a later Unicode.
bool is_dropped(int32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO: return true;
    default: return c == 0xFFFD;
  }
}

/// All of ASCII that is neither letter, digit nor space counts: "$", "+" and "^" are symbols to Unicode.
bool is_punctuation(int32_t c) {
  if ((c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126))
    return true;
  const utf8proc_category_t k = utf8proc_category(c);
  return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

/// The blocks of CJK ideographs; not Kana and Hangul, which have words. Source: BERT's tokenization.py.
bool is_ideograph(int32_t c) {
  constexpr int32_t kBlocks[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                                    {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B820, 0x2CEAF},
                                    {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  return std::any_of(std::begin(kBlocks), std::end(kBlocks),
                     [c](const auto& b) { return c >= b[0] && c <= b[1]; });
}

/// Canonical decomposition without the marks that take no room.
CodePoints without_accents(const CodePoints& text) {
  std::string utf8;
  for (const int32_t c : text) append_utf8(utf8, c);
  utf8proc_uint8_t* nfd = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(utf8.data()),
                   static_cast<utf8proc_ssize_t>(utf8.size()), &nfd, UTF8PROC_DECOMPOSE);
  KILN_CHECK(size >= 0, invalid, "wordpiece: cannot decompose a text of {} bytes; {}", utf8.size(),
             utf8proc_errmsg(size));
  CodePoints out = code_points({reinterpret_cast<const char*>(nfd), static_cast<size_t>(size)});
  std::free(nfd);
  std::erase_if(out, [](int32_t c) { return utf8proc_category(c) == UTF8PROC_CATEGORY_MN; });
  return out;
}

std::string text_of(const int32_t* begin, const int32_t* end) {
  std::string out;
  for (; begin != end; ++begin) append_utf8(out, *begin);
  return out;
}

/// Maximal runs of neither space nor punctuation, and every punctuation sign.
std::vector<std::string> split(const CodePoints& text) {
  std::vector<std::string> out;
  std::string word;
  const auto close = [&] {
    if (!word.empty()) out.push_back(std::move(word));
    word.clear();
  };
  for (const int32_t c : text) {
    const bool sign = is_punctuation(c);
    if (sign || is_space(c)) close();
    else append_utf8(word, c);
    if (sign) {
      append_utf8(word, c);
      close();
    }
  }
  close();
  return out;
}

}  // namespace

WordPiece::WordPiece(const std::string& vocab_file, WordPieceOptions options) : options_(options) {
  std::ifstream in(vocab_file, std::ios::binary);
  KILN_CHECK(in, io, "vocabulary {}: cannot read the file; {}", vocab_file, std::strerror(errno));
  for (std::string line; std::getline(in, line);) {
    if (line.ends_with('\r')) line.pop_back();
    const auto [at, added] = ids_.emplace(line, size());
    KILN_CHECK(added, invalid, "vocabulary {}: line {} has '{}' again; it is on line {}", vocab_file,
               size() + 1, line, at->second + 1);
    tokens_.push_back(std::move(line));
  }
  KILN_CHECK(!in.bad(), io, "vocabulary {}: cannot read the file", vocab_file);
  for (const std::string_view token : kSpecial)
    KILN_CHECK(ids_.contains(std::string(token)), invalid,
               "vocabulary {}: no '{}' among {} lines (expected BERT's vocab.txt, one token a line)",
               vocab_file, token, size());
}

std::vector<std::string> WordPiece::words(std::string_view text) const {
  CodePoints clean;
  for (const int32_t c : code_points(text)) {
    if (is_dropped(c)) continue;
    const bool alone = options_.tokenize_chinese_chars && is_ideograph(c);
    if (alone) clean.push_back(' ');
    clean.push_back(c);
    if (alone) clean.push_back(' ');
  }
  if (options_.strip_accents.value_or(options_.lower_case)) clean = without_accents(clean);
  if (options_.lower_case)
    for (int32_t& c : clean) c = utf8proc_tolower(c);
  return split(clean);
}

/// The longest piece that the vocabulary has, again and again; [UNK] where there is none.
void WordPiece::add_pieces(const std::string& word, std::vector<std::string>& out) const {
  const CodePoints text = code_points(word);
  std::vector<std::string> pieces;
  bool known = text.size() <= options_.max_word_length;
  for (size_t begin = 0; known && begin < text.size();) {
    size_t end = text.size();
    std::string piece;
    for (; end > begin; --end) {
      piece = (begin > 0 ? "##" : "") + text_of(text.data() + begin, text.data() + end);
      if (ids_.contains(piece)) break;
    }
    known = end > begin;
    pieces.push_back(std::move(piece));
    begin = end;
  }
  if (!known) pieces = {std::string(kSpecial[1])};
  std::move(pieces.begin(), pieces.end(), std::back_inserter(out));
}

std::vector<std::string> WordPiece::tokenize(std::string_view text) const {
  std::vector<std::string> out;
  while (!text.empty()) {
    size_t at = text.size(), length = 0;
    for (const std::string_view special : kSpecial) {
      const size_t found = text.find(special);
      if (found < at) at = found, length = special.size();
    }
    for (const std::string& word : words(text.substr(0, at))) add_pieces(word, out);
    if (length > 0) out.emplace_back(text.substr(at, length));
    text.remove_prefix(at + length);
  }
  return out;
}

std::vector<int64_t> WordPiece::encode(std::string_view text, size_t max_length) const {
  KILN_CHECK(max_length >= 2, invalid, "encode: max_length must hold [CLS] and [SEP]; got {}", max_length);
  std::vector<int64_t> out = {id(kSpecial[2])};
  for (const std::string& piece : tokenize(text)) {
    if (out.size() + 1 == max_length) break;
    out.push_back(id(piece));
  }
  out.push_back(id(kSpecial[3]));
  return out;
}

Encoding WordPiece::encode(const std::vector<std::string>& texts, size_t max_length, size_t pad_to) const {
  std::vector<std::vector<int64_t>> rows;
  size_t longest = pad_to;
  for (const std::string& text : texts) {
    rows.push_back(encode(text, max_length));
    longest = std::max(longest, rows.back().size());
    KILN_CHECK(pad_to == 0 || longest == pad_to, invalid,
               "encode: text {} has {} tokens; got pad_to {} (pass it as max_length, too)", rows.size() - 1,
               rows.back().size(), pad_to);
  }
  Encoding e{{}, {}, static_cast<int64_t>(texts.size()), static_cast<int64_t>(longest)};
  for (const auto& row : rows) {
    e.input_ids.insert(e.input_ids.end(), row.begin(), row.end());
    e.input_ids.resize(e.input_ids.size() + longest - row.size(), pad_id());
    e.attention_mask.insert(e.attention_mask.end(), row.size(), 1);
    e.attention_mask.resize(e.attention_mask.size() + longest - row.size(), 0);
  }
  return e;
}

int64_t WordPiece::id(std::string_view token) const {
  const auto it = ids_.find(std::string(token));
  return it != ids_.end() ? it->second : ids_.at(std::string(kSpecial[1]));
}

const std::string& WordPiece::token(int64_t id) const {
  KILN_CHECK(id >= 0 && id < size(), invalid, "vocabulary: no token {}; it has {}", id, size());
  return tokens_[static_cast<size_t>(id)];
}

}  // namespace bert
