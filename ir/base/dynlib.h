// SPDX-License-Identifier: Apache-2.0
// A shared library opened at run time: the compiler, drivers, linked kernels. Kiln links none of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace kiln {

/// Owns one dlopen handle; closes it when destroyed.
class DynLib {
 public:
  DynLib() = default;
  DynLib(DynLib&& other) noexcept;
  DynLib& operator=(DynLib&& other) noexcept;
  ~DynLib();

  /// Opens `path` (with a slash: that file; without: searched by the system) with all symbols bound and none
  /// made global. Nothing if it cannot be opened; `error` then says why.
  static std::optional<DynLib> open(const std::string& path, std::string& error);

  /// Leaves the library open for the life of the process: threads of its own may run in it.
  void keep() { handle_ = nullptr; }

  /// Address of a symbol, or null if the library has none of that name.
  void* symbol(const char* name) const;

 private:
  explicit DynLib(void* handle) : handle_(handle) {}
  void* handle_ = nullptr;
};

/// Fills a table with functions of a library, and remembers by name what the library lacks.
class FunctionFinder {
 public:
  explicit FunctionFinder(const DynLib& library) : library_(library) {}
  template <typename F>
  void operator()(F*& member, const char* name) {
    member = reinterpret_cast<F*>(library_.symbol(name));
    if (!member) missing_.emplace_back(name);
  }
  const std::vector<std::string>& missing() const { return missing_; }

 private:
  const DynLib& library_;
  std::vector<std::string> missing_;
};

/// Folder of the file that `address` was mapped from, with a final slash; "" if unknown.
std::string folder_of_code(const void* address);
/// Folder of the running program, with a final slash; "" if unknown.
std::string folder_of_program();
/// Where a library of Kiln named `name` may lie: beside the code that `address` is in and beside the program,
/// and in ../lib of both; last the bare name, looked for on the run path that the installed package sets.
std::vector<std::string> paths_of_library(const std::string& name, const void* address);
/// Opens that library: the file that the switch `chosen` names, or without it the first of its paths that can
/// be opened, which `path` then is. Nothing if none can: `tried` has a line for each, "\n  why".
std::optional<DynLib> open_library(const char* chosen, const std::string& name, const void* address,
                                   std::string& path, std::string& tried);

}  // namespace kiln
