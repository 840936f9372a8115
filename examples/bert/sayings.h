// SPDX-License-Identifier: Apache-2.0
// The task: which of several files of Debian's package `fortunes` a saying stands in. Works on plain memory;
// must not know tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bert {

/// Where Debian's package `fortunes` puts its files.
inline constexpr const char* kFortunes = "/usr/share/games/fortunes";

struct Saying {
  std::string text;
  int64_t file = 0;  ///< its class: a place in Sayings::files
};

struct Sayings {
  std::vector<std::string> files;
  std::vector<Saying> train, test;
};

/// The texts between lines of "%", without those that are blank.
std::vector<std::string> split_sayings(const std::string& text);

/// Draws up to `most` sayings of each file (0: all), a quarter of them for the test. A text that occurs twice
/// counts where it occurs first. Throws: io, naming what to install; invalid, for a file with less than
/// eight.
Sayings read_sayings(const std::string& folder, const std::vector<std::string>& files, int64_t most,
                     uint64_t seed);

}  // namespace bert
