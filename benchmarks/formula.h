// SPDX-License-Identifier: Apache-2.0
// The formula that makes test inputs and weights from their names, the same bits in every language.
// Must be compiled without contraction of floating point (as all of Kiln is): each step rounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kiln::formula {

/// Source: FNV-1a, 64 bits.
constexpr uint64_t fnv1a64(std::string_view name) {
  uint64_t h = 0xCBF29CE484222325u;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return h;
}

/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
constexpr uint64_t splitmix64(uint64_t x) {
  uint64_t z = x + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/// The 64 random bits of one element of a tensor whose name has this fnv1a64.
constexpr uint64_t bits(uint64_t salt, uint64_t element) {
  return splitmix64(salt * 0x9E3779B97F4A7C15u + element);
}

/// A value in [lo, hi) from 64 random bits.
constexpr float real(uint64_t z, float lo, float hi) {
  const float u = static_cast<float>(static_cast<uint32_t>(z >> 40)) * 0x1p-24f;
  const float d = hi - lo;
  const float p = d * u;
  return lo + p;
}

/// Fills `out` with the float tensor `name` in [lo, hi).
inline void fill_real(std::string_view name, float lo, float hi, std::span<float> out) {
  const uint64_t salt = fnv1a64(name);
  for (size_t i = 0; i < out.size(); ++i) out[i] = real(bits(salt, i), lo, hi);
}

/// Fills `out` with the whole numbers of the tensor `name`, 0 to n - 1 (or, for bool, "not 0").
template <typename T>
void fill_mod(std::string_view name, uint64_t n, std::span<T> out) {
  const uint64_t salt = fnv1a64(name);
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<T>(bits(salt, i) % n);
}

}  // namespace kiln::formula
