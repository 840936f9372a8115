// SPDX-License-Identifier: Apache-2.0
#include "examples/gpt/corpus.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "frontend/safetensors.h"


namespace gpt {

namespace fs = std::filesystem;

namespace {

// Source: FNV-1a, 64 bits. Enough to notice another text.
std::string digest_of(std::string_view text) {
  uint64_t h = 0xCBF29CE484222325u;
  for (const char c : text) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  return fmt::format("{}-{:016x}", text.size(), h);
}

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream s;
  if (in) s << in.rdbuf();
  KILN_CHECK(in.good() || in.eof(), io, "data {}: cannot read the file", path.string());
  return s.str();
}

}  // namespace

uint64_t splitmix64(uint64_t x) {
  uint64_t z = x + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

std::string read_text(const std::string& path) {
  std::error_code ec;
  const bool folder = fs::is_directory(path, ec);
  KILN_CHECK(folder || fs::exists(path, ec), io, "data {}: there is no such file or folder{}", path,
             path == kFortunes ? " (install Debian's package fortunes, or name a text with --data)" : "");
  if (!folder) return read_file(path);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.is_regular_file() && entry.path().filename().string().find('.') == std::string::npos)
      files.push_back(entry.path());
  KILN_CHECK(!files.empty(), io, "data {}: the folder has no file without a dot in its name", path);
  std::sort(files.begin(), files.end(), [](const fs::path& a, const fs::path& b) {
    return a.filename().string() < b.filename().string();
  });
  std::string text;
  for (const fs::path& f : files) text += read_file(f);
  return text;
}

Corpus make_corpus(std::string_view text, int64_t seq) {
  const size_t held = text.size() / 10;
  KILN_CHECK(held > static_cast<size_t>(seq), invalid,
             "data: the text is too short; got {} bytes, expected at least {} (its last tenth must hold a "
             "window of {} and one more)",
             text.size(), 10 * (seq + 1), seq);
  std::array<bool, 256> seen{};
  for (const char c : text) seen[static_cast<uint8_t>(c)] = true;
  Corpus corpus;
  std::array<uint8_t, 256> token{};
  for (size_t b = 0; b < 256; ++b) {
    if (!seen[b]) continue;
    token[b] = static_cast<uint8_t>(corpus.alphabet.size());
    corpus.alphabet.push_back(static_cast<uint8_t>(b));
  }
  corpus.train.resize(text.size() - held);
  corpus.valid.resize(held);
  for (size_t i = 0; i < text.size(); ++i) {
    const uint8_t t = token[static_cast<uint8_t>(text[i])];
    if (i < corpus.train.size()) {
      corpus.train[i] = t;
    } else {
      corpus.valid[i - corpus.train.size()] = t;
    }
  }
  corpus.digest = digest_of(text);
  return corpus;
}

std::string Corpus::decode(std::span<const int64_t> tokens) const {
  std::string text;
  for (const int64_t t : tokens) text += static_cast<char>(alphabet.at(static_cast<size_t>(t)));
  return text;
}

void Batches::next(std::span<const uint8_t> tokens, int64_t seq, std::span<int64_t> x, std::span<int64_t> y) {
  const auto length = static_cast<size_t>(seq);
  for (size_t row = 0; row < x.size() / length; ++row) {
    const uint64_t z = splitmix64(splitmix64(seed_) + drawn_++);
    const size_t start = z % (tokens.size() - length);
    for (size_t i = 0; i < length; ++i) {
      x[row * length + i] = tokens[start + i];
      y[row * length + i] = tokens[start + i + 1];
    }
  }
}

}  // namespace gpt
