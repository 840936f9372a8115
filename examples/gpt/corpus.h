// SPDX-License-Identifier: Apache-2.0
// Text as bytes: loading, the alphabet of bytes that occur, the split, and random batches.
// Works on plain memory; must not know tensors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt {

/// Where Debian's package `fortunes` puts its files.
inline constexpr const char* kFortunes = "/usr/share/games/fortunes";

/// A text as token numbers; the last tenth is validation.
struct Corpus {
  std::vector<uint8_t> train;
  std::vector<uint8_t> valid;
  std::vector<uint8_t> alphabet;  ///< token -> byte, ascending
  std::string digest;             ///< of the text, so that a resumed run can tell another text

  /// Number of tokens that can occur.
  int64_t vocab() const { return static_cast<int64_t>(alphabet.size()); }
  /// The bytes of tokens.
  std::string decode(std::span<const int64_t> tokens) const;
};

/// Reads a text file; or all files without a dot in their name of a folder, in byte order, joined.
/// Throws: io, naming what to install or pass.
std::string read_text(const std::string& path);

/// Throws: invalid, if the text is too short for windows of `seq` tokens and one more in each part.
Corpus make_corpus(std::string_view text, int64_t seq);

/// 64 random bits from a counter. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number
/// generators", 2014.
uint64_t splitmix64(uint64_t x);

/// Draws windows at random places; its whole state is two numbers.
class Batches {
 public:
  Batches(uint64_t seed, uint64_t drawn) : seed_(seed), drawn_(drawn) {}

  /// Fills `x` with windows of `seq` tokens and `y` with the tokens that follow each.
  /// Shapes: x and y hold any whole number of windows.
  void next(std::span<const uint8_t> tokens, int64_t seq, std::span<int64_t> x, std::span<int64_t> y);

  uint64_t seed() const { return seed_; }
  uint64_t drawn() const { return drawn_; }

 private:
  uint64_t seed_;
  uint64_t drawn_;
};

}  // namespace gpt
