// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/nccl.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <optional>
#include <utility>

#include "ir/base/cuda_library.h"

namespace kiln::nccl {

namespace {

constexpr int kOldest = 21400;  // has communicators that do not block

/// The functions that `from` does not have.
std::string look_up(const DynLib& from, Library& library) {
  FunctionFinder find(from);
#define KILN_NCCL_FIND(member, name, result, parameters) find(library.member, name);
  KILN_NCCL_FUNCTIONS(KILN_NCCL_FIND)
#undef KILN_NCCL_FIND
  return fmt::format("{}", fmt::join(find.missing(), ", "));
}

std::unique_ptr<const Library> load(DynLib opened, const std::string& path, std::string& why) {
  auto library = std::make_unique<Library>();
  library->path = path;
  const std::string missing = look_up(opened, *library);
  if (!library->get_version || library->get_version(&library->version) != kSuccess) library->version = 0;
  if (library->version < kOldest)
    why = fmt::format("{} is too old; got NCCL {}, expected {} or newer", path,
                      version_text(library->version), version_text(kOldest));
  else if (!missing.empty()) why = fmt::format("{} is no NCCL that can be used: it lacks {}", path, missing);
  else why.clear();
  if (!why.empty()) return nullptr;
  opened.keep();  // its threads run in it
  return library;
}

struct Found {
  std::string why;
  std::unique_ptr<const Library> library;
  Found() {
    std::string path, tried;
    if (auto opened = open_cuda_library({"libnccl.so.2"}, path, tried))
      library = load(std::move(*opened), path, why);
    else why = fmt::format("NCCL is not there: {}", tried);
  }
};

}  // namespace

std::string version_text(int version) {
  const int major = version < 10000 ? version / 1000 : version / 10000;  // the latter from 2.9 on
  const int rest = version - major * (version < 10000 ? 1000 : 10000);
  return fmt::format("{}.{}.{}", major, rest / 100, rest % 100);
}

std::unique_ptr<const Library> open_library(const std::string& path, std::string& why) {
  std::optional<DynLib> opened = DynLib::open(path, why);
  return opened ? load(std::move(*opened), path, why) : nullptr;
}

const Library* find_library(std::string& why) {
  static const Found& found = *new Found;  // groups of static storage may outlive main()
  why = found.why;
  return found.library.get();
}

}  // namespace kiln::nccl
