// SPDX-License-Identifier: Apache-2.0
#include "examples/digits/images.h"

#include <charconv>
#include <fstream>

namespace digits {

namespace {

constexpr int kSide = 8, kPixels = kSide * kSide, kMost = 16;

/// The numbers of a line, or nothing.
std::vector<int> numbers(const std::string& line) {
  std::vector<int> out;
  const char *at = line.data(), *end = at + line.size();
  while (true) {
    int v = 0;
    const auto [next, error] = std::from_chars(at, end, v);
    if (error != std::errc()) return {};
    out.push_back(v);
    if (next == end) return out;
    if (*next != ',') return {};
    at = next + 1;
  }
}

}  // namespace

Images load_images(const std::string& path) {
  std::ifstream in(path);
  KILN_CHECK(in, io, "digits: cannot read {} (examples/digits/setup.sh fetches it)", path);
  std::vector<float> pixels;
  std::vector<int64_t> classes;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const std::vector<int> v = numbers(line);
    bool fits = v.size() == kPixels + 1 && v.back() >= 0 && v.back() <= 9;
    for (size_t i = 0; fits && i < kPixels; ++i) fits = v[i] >= 0 && v[i] <= kMost;
    KILN_CHECK(fits, invalid, "digits: line {} of {} has not {} numbers from 0 to {} and a digit", number,
               path, kPixels, kMost);
    for (size_t i = 0; i < kPixels; ++i) pixels.push_back(static_cast<float>(v[i]) / kMost);
    classes.push_back(v.back());
  }
  KILN_CHECK(!in.bad(), io, "digits: {} cannot be read to its end", path);
  KILN_CHECK(!classes.empty(), invalid, "digits: {} is empty", path);
  const auto n = static_cast<int64_t>(classes.size());
  return {kiln::Tensor::from_vector(pixels, {n, 1, kSide, kSide}), kiln::Tensor::from_vector(classes, {n})};
}

}  // namespace digits
