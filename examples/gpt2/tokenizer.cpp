// SPDX-License-Identifier: Apache-2.0
#include "examples/gpt2/tokenizer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "examples/pretrained/unicode.h"
#include "frontend/tensor.h"

namespace gpt2 {

namespace {

using Json = nlohmann::json;
using pretrained::first_of;
using pretrained::Utf8Step;

constexpr const char* kVocabulary = "/vocab.json";
constexpr const char* kMerges = "/merges.txt";

/// The character that stands for a byte in the files: itself where it can be seen, else one from U+0100 on.
struct ByteTable {
  std::array<int32_t, 256> code;
  std::array<std::string, 256> text;
  std::unordered_map<int32_t, uint8_t> byte;
};
const ByteTable& byte_table() {
  static const ByteTable table = [] {
    ByteTable t;
    int32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool seen = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      t.code[static_cast<size_t>(b)] = seen ? b : next++;
      pretrained::append_utf8(t.text[static_cast<size_t>(b)], t.code[static_cast<size_t>(b)]);
      t.byte[t.code[static_cast<size_t>(b)]] = static_cast<uint8_t>(b);
    }
    return t;
  }();
  return table;
}

/// What a token of the files stands for; nothing where a character of it stands for no byte.
std::optional<std::string> bytes_of(std::string_view token) {
  std::string out;
  while (!token.empty()) {
    const Utf8Step step = first_of(token);
    const auto byte = byte_table().byte.find(step.code);
    if (byte == byte_table().byte.end()) return std::nullopt;
    out += static_cast<char>(byte->second);
    token.remove_prefix(step.bytes);
  }
  return out;
}

std::ifstream open(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  KILN_CHECK(in, io, "tokenizer {}: cannot read the file; {}", path, std::strerror(errno));
  return in;
}

/// Kinds of characters that pieces are runs of.
enum class Kind : uint8_t { space, letter, number, other };
Kind kind_of(const Utf8Step& step) {
  if (step.code < 0) return Kind::other;
  if (pretrained::is_white_space(step.code)) return Kind::space;
  if (pretrained::is_letter(step.code)) return Kind::letter;
  return pretrained::is_number(step.code) ? Kind::number : Kind::other;
}

/// Bytes of the run of one kind that `text` begins with, and of its last character.
struct Run {
  Kind kind = Kind::other;
  size_t bytes = 0, last = 0;
};
Run run_of(std::string_view text) {
  Run run{kind_of(first_of(text)), 0, 0};
  while (run.bytes < text.size()) {
    const Utf8Step step = first_of(text.substr(run.bytes));
    if (kind_of(step) != run.kind) break;
    run.bytes += step.bytes;
    run.last = step.bytes;
  }
  return run;
}

/// Bytes of the piece that `text`, which is not empty, begins with. Source: encoder.py's expression
/// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t piece_of(std::string_view text) {
  for (const std::string_view contraction : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
    if (text.starts_with(contraction)) return contraction.size();
  if (text[0] == ' ' && text.size() > 1) {
    const Run behind = run_of(text.substr(1));
    if (behind.kind != Kind::space) return 1 + behind.bytes;
  }
  const Run run = run_of(text);
  // White space leaves its last character to what follows, unless that is all of it.
  const bool leaves = run.kind == Kind::space && run.bytes < text.size() && run.bytes > run.last;
  return leaves ? run.bytes - run.last : run.bytes;
}

}  // namespace

Tokenizer::Tokenizer(const std::string& folder) {
  read_vocabulary(folder + kVocabulary);
  read_merges(folder + kMerges);
}

void Tokenizer::read_vocabulary(const std::string& path) {
  std::ifstream in = open(path);
  Json json;
  try {
    json = Json::parse(in);
  } catch (const Json::exception& e) {
    throw kiln::Error(kiln::ErrorKind::invalid, fmt::format("tokenizer {}: not JSON; {}", path, e.what()));
  }
  KILN_CHECK(json.is_object(), invalid, "tokenizer {}: not a JSON object of tokens and numbers", path);
  for (const auto& [token, id] : json.items()) {
    KILN_CHECK(id.is_number_integer() && id >= 0 && id < int64_t{1} << 31, invalid,
               "tokenizer {}: bad number of '{}'; got {}, expected a whole number >= 0", path, token,
               id.dump());
    const auto n = id.get<int64_t>();
    const std::optional<std::string> bytes = bytes_of(token);
    KILN_CHECK(bytes, invalid, "tokenizer {}: '{}' has a character that stands for no byte", path, token);
    const auto [at, added] = bytes_.emplace(n, *bytes);
    KILN_CHECK(added, invalid, "tokenizer {}: '{}' has the number {} of '{}'", path, token, n, at->second);
    ids_[token] = n;
    largest_ = std::max(largest_, n);
  }
  for (size_t b = 0; b < 256; ++b)
    KILN_CHECK(ids_.contains(byte_table().text[b]), invalid,
               "tokenizer {}: no token '{}', which stands for the byte {}, among {}", path,
               byte_table().text[b], b, size());
  const auto end = ids_.find(std::string(kEndOfText));
  KILN_CHECK(end != ids_.end(), invalid, "tokenizer {}: no token '{}' among {}", path, kEndOfText, size());
  end_of_text_ = end->second;
}

void Tokenizer::read_merges(const std::string& path) {
  std::ifstream in = open(path);
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    add_merge(path, number, line);
  }
  KILN_CHECK(!in.bad(), io, "tokenizer {}: cannot read the file", path);
}

void Tokenizer::add_merge(const std::string& path, int64_t number, const std::string& line) {
  const size_t space = line.find(' ');
  const bool pair = space != std::string::npos && space > 0 && space + 1 < line.size() &&
                    line.find(' ', space + 1) == std::string::npos;
  KILN_CHECK(pair, invalid, "tokenizer {}: line {} is '{}'; expected two tokens with a space between", path,
             number, line);
  const std::string left = line.substr(0, space), right = line.substr(space + 1);
  for (const std::string& token : {left, right, left + right})
    KILN_CHECK(ids_.contains(token), invalid,
               "tokenizer {}: line {} merges '{}', and the vocabulary has no '{}'", path, number, line,
               token);
  const bool added = ranks_.emplace(line, static_cast<int64_t>(ranks_.size())).second;
  KILN_CHECK(added, invalid, "tokenizer {}: line {} has the merge '{}' again", path, number, line);
}

std::vector<std::string_view> Tokenizer::pieces(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    out.push_back(text.substr(0, piece_of(text)));
    text.remove_prefix(out.back().size());
  }
  return out;
}

/// The pair that was merged first in training is merged wherever it stands, until there is none.
void Tokenizer::add_piece(std::string_view bytes, std::vector<int64_t>& out) const {
  std::vector<std::string> parts;
  for (const char c : bytes) parts.push_back(byte_table().text[static_cast<uint8_t>(c)]);
  while (true) {
    int64_t best = static_cast<int64_t>(ranks_.size());
    std::string left, right;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto rank = ranks_.find(parts[i] + " " + parts[i + 1]);
      if (rank == ranks_.end() || rank->second >= best) continue;
      best = rank->second;
      left = parts[i];
      right = parts[i + 1];
    }
    if (best == static_cast<int64_t>(ranks_.size())) break;
    std::vector<std::string> merged;
    for (size_t i = 0; i < parts.size(); ++i) {
      const bool both = i + 1 < parts.size() && parts[i] == left && parts[i + 1] == right;
      merged.push_back(both ? left + right : parts[i]);
      i += both ? 1 : 0;
    }
    parts = std::move(merged);
  }
  for (const std::string& part : parts) out.push_back(ids_.at(part));
}

std::vector<int64_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int64_t> out;
  while (!text.empty()) {
    const size_t end = text.find(kEndOfText);
    for (const std::string_view piece : pieces(text.substr(0, end))) add_piece(piece, out);
    if (end == std::string_view::npos) break;
    out.push_back(end_of_text_);
    text.remove_prefix(end + kEndOfText.size());
  }
  return out;
}

std::string Tokenizer::decode(const std::vector<int64_t>& ids) const {
  std::string out;
  for (const int64_t id : ids) {
    const auto token = bytes_.find(id);
    KILN_CHECK(token != bytes_.end(), invalid, "tokenizer: no token {}; there are {}", id, size());
    out += token->second;
  }
  return out;
}

}  // namespace gpt2
