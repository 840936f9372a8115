// SPDX-License-Identifier: Apache-2.0
#include "ir/base/cuda_library.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ir/base/options.h"

namespace kiln {

namespace {

namespace fs = std::filesystem;

/// Folders, each once, that exist.
class Folders {
 public:
  void add(const fs::path& folder) {
    std::error_code error;
    if (!fs::is_directory(folder, error)) return;
    const std::string s = folder.string();
    if (std::find(list_.begin(), list_.end(), s) == list_.end()) list_.push_back(s);
  }
  void add_toolkit(const fs::path& root) {
    for (const char* sub : {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"})
      add(root / sub);
  }
  /// pip's packages: nvidia/cu13/lib, or a folder for each library.
  void add_site(const fs::path& site) {
    for (const fs::path& package : below(site / "nvidia")) add(package / "lib");
  }
  /// The Python environment with this root.
  void add_python(const fs::path& root) {
    for (const fs::path& version : below(root / "lib"))
      if (version.filename().string().starts_with("python"))
        for (const char* sub : {"site-packages", "dist-packages"}) add_site(version / sub);
  }
  std::vector<std::string> take() { return std::move(list_); }

 private:
  /// What is in a folder, sorted.
  static std::vector<fs::path> below(const fs::path& folder) {
    std::error_code error;
    std::vector<fs::path> out;
    for (const fs::directory_entry& e : fs::directory_iterator(folder, error)) out.push_back(e.path());
    std::sort(out.begin(), out.end());
    return out;
  }
  std::vector<std::string> list_;
};

/// Roots of the Python environments on $PATH: those of what python3 is there, links followed and not.
std::vector<fs::path> pythons_on_path() {
  std::vector<fs::path> out;
  const std::string path = system_env("PATH");
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find(':', at), path.size());
    const fs::path python = fs::path(path.substr(at, end - at)) / "python3";
    std::error_code error;
    if (fs::exists(python, error)) {
      out.push_back(python.parent_path().parent_path());
      out.push_back(fs::canonical(python, error).parent_path().parent_path());
    }
    at = end + 1;
  }
  return out;
}

}  // namespace

std::vector<std::string> cuda_library_folders() {
  Folders f;
  if (const std::string given = option("KILN_CUDA_PATH"); !given.empty()) {
    f.add(given);
    f.add_toolkit(given);
    f.add_site(given);
    return f.take();
  }
  if (const std::string home = system_env("CUDA_HOME"); !home.empty()) f.add_toolkit(home);
  f.add_toolkit("/usr/local/cuda");
  if (const std::string env = system_env("VIRTUAL_ENV"); !env.empty()) f.add_python(env);
  for (const fs::path& root : pythons_on_path()) f.add_python(root);
  return f.take();
}

std::optional<DynLib> open_cuda_library(std::initializer_list<const char*> names, std::string& path,
                                        std::string& tried) {
  const std::vector<std::string> folders = cuda_library_folders();
  std::string failed;
  const auto open = [&](const std::string& file) {
    std::string why;
    std::optional<DynLib> library = DynLib::open(file, why);
    if (library) path = file;
    else failed += "\n  " + why;
    return library;
  };
  for (const std::string& folder : folders)
    for (const char* name : names) {
      std::error_code error;
      const std::string file = folder + "/" + name;
      if (!fs::exists(file, error)) continue;
      if (std::optional<DynLib> library = open(file)) return library;
    }
  const std::string given = option("KILN_CUDA_PATH");
  const bool chosen = !given.empty();
  if (!chosen)
    for (const char* name : names)
      if (std::optional<DynLib> library = open(name)) return library;
  const std::string where = folders.empty() ? (chosen ? given + ", which is no folder" : "any folder")
                                            : fmt::format("{}", fmt::join(folders, ", "));
  tried = fmt::format("no {} in {}{}{}", fmt::join(names, " or "), where,
                      chosen ? " (KILN_CUDA_PATH)" : ", or where the system looks", failed);
  return {};
}

}  // namespace kiln
