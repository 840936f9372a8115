// SPDX-License-Identifier: Apache-2.0
// The devices that a command line names. Says nothing of whether there is such a GPU: the first tensor that
// goes there does.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "frontend/tensor.h"

namespace examples {

/// "cpu", "cuda:1", or "cuda" for GPU number `own`; none for other words.
inline std::optional<kiln::Device> find_device(std::string_view name, int own = 0) {
  constexpr std::string_view kNumbered = "cuda:";
  if (name == "cpu") return kiln::Device::cpu();
  if (name == "cuda") return kiln::Device::cuda(own);
  if (!name.starts_with(kNumbered)) return {};
  const char *at = name.data() + kNumbered.size(), *end = name.data() + name.size();
  int index = -1;
  const auto [rest, error] = std::from_chars(at, end, index);
  if (error != std::errc() || rest != end || index < 0) return {};
  return kiln::Device::cuda(index);
}

/// What is wrong with the name of a device, for CLI::Validator; nothing: empty.
inline std::string device_fault(const std::string& name) {
  return find_device(name) ? "" : "got " + name + ", expected cpu, cuda or cuda:N";
}

/// Throws: invalid.
inline kiln::Device device_named(const std::string& name, int own = 0) {
  const std::optional<kiln::Device> device = find_device(name, own);
  KILN_CHECK(device, invalid, "--device: {}", device_fault(name));
  return *device;
}

}  // namespace examples
