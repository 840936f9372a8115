// SPDX-License-Identifier: Apache-2.0
#include "autotune/operands.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#include "ir/base/error.h"

namespace kiln {

namespace {

constexpr size_t kAlign = 64;
constexpr size_t kPattern = 4096;  // elements after which values repeat

/// Bits of element i: floats in [0.5, 1), where every function is defined; small integers, which are places
/// in most tables; true or false.
template <typename T>
T element(DType t, uint64_t i) {
  const uint64_t r = (i + 1) * 0x9e3779b97f4a7c15u >> 20;
  switch (t) {
    case DType::boolean: return static_cast<T>(r & 1);
    case DType::f16: return static_cast<T>(0x3800 | (r & 0x3ff));
    case DType::bf16: return static_cast<T>(0x3f00 | (r & 0x7f));
    case DType::f32: return static_cast<T>(0x3f000000 | (r & 0x7fffff));
    case DType::f64: return static_cast<T>(0x3fe0000000000000u | (r << 8 & 0xfffffffffffffu));
    default: return static_cast<T>(r & 0x7f);
  }
}

template <typename T>
void fill_as(DType t, std::byte* to, int64_t bytes) {
  T pattern[kPattern];
  for (size_t i = 0; i < kPattern; ++i) pattern[i] = element<T>(t, i);
  for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(sizeof pattern))
    std::memcpy(to + at, pattern, std::min(sizeof pattern, static_cast<size_t>(bytes - at)));
}

void fill(DType t, std::byte* to, int64_t bytes) {
  switch (dtype_size(t)) {
    case 1: return fill_as<uint8_t>(t, to, bytes);
    case 2: return fill_as<uint16_t>(t, to, bytes);
    case 4: return fill_as<uint32_t>(t, to, bytes);
    default: return fill_as<uint64_t>(t, to, bytes);
  }
}

double value(DType t, const std::byte* at) {
  if (t == DType::f64) {
    double d;
    std::memcpy(&d, at, sizeof d);
    return d;
  }
  float f;
  std::memcpy(&f, at, sizeof f);
  return f;
}

/// Largest difference of two arrays, relative to the largest value; infinite where only one is NaN.
double relative_difference(DType t, const std::byte* a, const std::byte* b, size_t bytes) {
  double most = 0, scale = 0;
  for (size_t at = 0; at < bytes; at += dtype_size(t)) {
    const double x = value(t, a + at), y = value(t, b + at);
    if (x == y || (std::isnan(x) && std::isnan(y))) {
      scale = std::max(scale, std::isfinite(x) ? std::abs(x) : 0.0);
      continue;
    }
    if (!std::isfinite(x) || !std::isfinite(y)) return std::numeric_limits<double>::infinity();
    most = std::max(most, std::abs(x - y));
    scale = std::max(scale, std::abs(x));
  }
  return most == 0 ? 0 : most / std::max(scale, std::numeric_limits<double>::min());
}

}  // namespace

double trial_tolerance(DType dtype, double length) {
  const double unit = dtype == DType::f64 ? 0x1p-52 : dtype == DType::f32 ? 0x1p-23 : 0;
  return 64 * unit * std::sqrt(std::max(length, 1.0));
}

void MadeUpOperand::Free::operator()(std::byte* p) const { std::free(p); }

MadeUpOperand::MadeUpOperand(DType dtype, int64_t bytes) : dtype_(dtype), bytes_(bytes) {
  const size_t size = (static_cast<size_t>(bytes) / kAlign + 1) * kAlign;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlign, size)));
  if (!memory_)
    throw Error(ErrorKind::device, fmt::format("out of memory: no {} bytes for an operand", bytes));
  fill(dtype, data(), bytes);
}

void MadeUpOperand::clear_integers() {
  if (!is_floating(dtype_) && dtype_ != DType::boolean) std::memset(data(), 0, static_cast<size_t>(bytes_));
}

Operands::Operands(const TunableKernel& k)
    : kernel_(k), first_(k.buffers.size()), expected_(k.buffers.size()) {
  double elements = 0;
  for (size_t i = 0; i < k.buffers.size(); ++i) {
    const TunableKernel::Buffer& b = k.buffers[i];
    pointers_.push_back(memory_.emplace_back(b.dtype, b.bytes).data());
    if (b.written) elements += static_cast<double>(b.bytes) / static_cast<double>(dtype_size(b.dtype));
    if (b.read && b.written) first_[i].assign(memory_[i].data(), memory_[i].data() + b.bytes);
  }
  length_ = elements > 0 ? k.flops / elements : 1;
}

void Operands::poison() {
  for (size_t i = 0; i < memory_.size(); ++i)
    if (kernel_.buffers[i].written && !kernel_.buffers[i].read)
      std::memset(memory_[i].data(), 0xff, static_cast<size_t>(kernel_.buffers[i].bytes));
}

void Operands::restore() {
  for (size_t i = 0; i < memory_.size(); ++i)
    if (!first_[i].empty()) std::memcpy(memory_[i].data(), first_[i].data(), first_[i].size());
}

void Operands::keep_expected() {
  for (size_t i = 0; i < memory_.size(); ++i)
    if (kernel_.buffers[i].written)
      expected_[i].assign(memory_[i].data(), memory_[i].data() + kernel_.buffers[i].bytes);
}

std::string Operands::difference(bool exact) const {
  for (size_t i = 0; i < memory_.size(); ++i) {
    const std::vector<std::byte>& want = expected_[i];
    if (want.empty() || std::memcmp(want.data(), memory_[i].data(), want.size()) == 0) continue;
    const DType t = kernel_.buffers[i].dtype;
    const bool rounds = t == DType::f32 || t == DType::f64;
    if (exact || !rounds) return fmt::format("result {} differs from the default's", i);
    const double off = relative_difference(t, want.data(), memory_[i].data(), want.size());
    const double most = trial_tolerance(t, length_);
    if (off > most)
      return fmt::format("result {} differs from the default's by {:.3g}, more than {:.3g}", i, off, most);
  }
  return "";
}

}  // namespace kiln
