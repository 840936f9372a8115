// SPDX-License-Identifier: Apache-2.0
#include "ir/base/dynlib.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <utility>
#include <vector>

#include "ir/base/options.h"

namespace kiln {

namespace {
std::string folder_of(const std::string& file) {
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? "" : file.substr(0, slash + 1);
}
}  // namespace

DynLib::DynLib(DynLib&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

DynLib& DynLib::operator=(DynLib&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

DynLib::~DynLib() {
  if (handle_) dlclose(handle_);
}

std::optional<DynLib> DynLib::open(const std::string& path, std::string& error) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* why = dlerror();
    error = why ? why : "dlopen failed without a reason";
    return std::nullopt;
  }
  return DynLib(handle);
}

void* DynLib::symbol(const char* name) const { return handle_ ? dlsym(handle_, name) : nullptr; }

std::string folder_of_code(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || !info.dli_fname) return "";
  return folder_of(info.dli_fname);
}

std::string folder_of_program() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  return n > 0 ? folder_of(std::string(path, n)) : "";
}

std::vector<std::string> paths_of_library(const std::string& name, const void* address) {
  std::vector<std::string> paths;
  for (const std::string& folder : {folder_of_code(address), folder_of_program()}) {
    if (folder.empty()) continue;
    for (const char* sub : {"", "../lib/"}) {
      std::string path = folder + sub + name;
      if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(std::move(path));
    }
  }
  paths.push_back(name);
  return paths;
}

std::optional<DynLib> open_library(const char* chosen, const std::string& name, const void* address,
                                   std::string& path, std::string& tried) {
  const std::string given = option(chosen);
  for (const std::string& p : given.empty() ? paths_of_library(name, address) : std::vector{given}) {
    std::string why;
    std::optional<DynLib> library = DynLib::open(p, why);
    path = p;
    if (library) return library;
    tried += fmt::format("\n  {}", why);
  }
  return {};
}

}  // namespace kiln
