// SPDX-License-Identifier: Apache-2.0
// Where memory lies and code runs. Names and text are PyTorch's.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

#include "ir/base/error.h"

namespace kiln {

enum class DeviceType : uint8_t { cpu, cuda };

/// A device of this process. Source: torch.device.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;  ///< of the GPU, as CUDA_VISIBLE_DEVICES numbers them; 0 for the CPU

  static constexpr Device cpu() { return {}; }
  /// Throws: invalid, on a negative index.
  static Device cuda(int index = 0, SourceLoc loc = SourceLoc::current()) {
    KILN_CHECK(index >= 0, invalid, "Device::cuda ({}): got index {}, expected 0 or more", loc.str(), index);
    return {DeviceType::cuda, index};
  }
  bool is_cuda() const { return type == DeviceType::cuda; }
  /// "cpu" or "cuda:0".
  std::string str() const { return is_cuda() ? "cuda:" + std::to_string(index) : "cpu"; }
  bool operator==(const Device&) const = default;
};

/// str().
template <typename Char, typename Traits>
std::basic_ostream<Char, Traits>& operator<<(std::basic_ostream<Char, Traits>& out, const Device& d) {
  return out << d.str();
}

}  // namespace kiln
