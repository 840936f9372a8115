// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/open_driver.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>

#include "ir/base/dynlib.h"

namespace kiln::cuda {

namespace {

constexpr int kOldest = 12000;  // as cuDriverGetVersion counts: 1000 * major + 10 * minor

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

/// The functions that `library` does not have, the first few by name.
std::string look_up(const DynLib& library, Driver& driver) {
  constexpr size_t kNamed = 4;
  FunctionFinder find(library);
#define KILN_CUDA_FIND(member, name, parameters) find(driver.member, name);
  KILN_CUDA_DRIVER_FUNCTIONS(KILN_CUDA_FIND)
#undef KILN_CUDA_FIND
  const std::span<const std::string> missing = find.missing();
  const auto named = missing.first(std::min(missing.size(), kNamed));
  const std::string names = fmt::format("{}", fmt::join(named, ", "));
  return missing.size() > kNamed ? fmt::format("{} and {} others", names, missing.size() - kNamed) : names;
}

/// Why it cannot be used, when cuInit gave `result`.
std::string refusal(const Driver& driver, const std::string& library, Result result) {
  switch (result) {
    case kStubLibrary:
      return fmt::format(
          "{} is the toolkit's library for linking, not a driver (hint: take the toolkit's folder of such "
          "libraries off LD_LIBRARY_PATH, and install NVIDIA's driver)",
          library);
    case kNoDevice:
      return fmt::format(
          "{} finds no device (hint: look at CUDA_VISIBLE_DEVICES; a container must be started with its "
          "devices)",
          library);
    case kSystemDriverMismatch:
      return fmt::format(
          "{} and the kernel's module of NVIDIA's driver are of different versions (hint: restart the "
          "machine after an update of the driver; a container must not bring a driver of its own)",
          library);
    default: break;
  }
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver.error_name(result, &name) != kSuccess || !name) name = "unknown error";
  if (driver.error_string(result, &text) != kSuccess || !text) text = "no text";
  return fmt::format("{} does not start: cuInit gave {} ({}: {}) (hint: nvidia-smi may say more)", library,
                     result, name, text);
}

/// Why `driver`, with all its functions, cannot be used; "" if it can.
std::string fault_of(const Driver& driver, const std::string& library) {
  int version = 0, count = 0;
  if (const Result r = driver.driver_version(&version); r == kSuccess && version < kOldest)
    return fmt::format("{} is too old; got CUDA {}, expected {} or newer (hint: update NVIDIA's driver)",
                       library, version_text(version), version_text(kOldest));
  if (const Result r = driver.init(0); r != kSuccess) return refusal(driver, library, r);
  const Result r = driver.device_count(&count);
  return r == kSuccess && count > 0 ? "" : refusal(driver, library, r == kSuccess ? kNoDevice : r);
}

}  // namespace

std::unique_ptr<const Driver> open_driver(const std::string& library, std::string& why) {
  std::string reason;
  std::optional<DynLib> opened = DynLib::open(library, reason);
  if (!opened) {
    why = fmt::format("{} cannot be opened: {} (hint: install NVIDIA's driver)", library, reason);
    return nullptr;
  }
  auto driver = std::make_unique<Driver>();
  const std::string missing = look_up(*opened, *driver);
  if (missing.empty()) why = fault_of(*driver, library);
  else
    why = fmt::format("{} is too old: it lacks {} (hint: CUDA {} or newer is needed; update NVIDIA's driver)",
                      library, missing, version_text(kOldest));
  if (!why.empty()) return nullptr;
  opened->keep();  // the driver's threads run in it
  return driver;
}

}  // namespace kiln::cuda
