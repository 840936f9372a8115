// SPDX-License-Identifier: Apache-2.0
#include "codegen/failed_source.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "ir/base/options.h"

namespace kiln {

namespace {

/// Writes piece by piece: the compiler may have failed for want of memory.
class KeptFile {
 public:
  explicit KeptFile(int fd) : fd_(fd) {}
  ~KeptFile() { close(fd_); }
  KeptFile(const KeptFile&) = delete;
  KeptFile& operator=(const KeptFile&) = delete;

  void put(std::string_view text) {
    ok_ = ok_ && write(fd_, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  }
  bool ok() const { return ok_; }

 private:
  const int fd_;
  bool ok_ = true;
};

void put_numbered(KeptFile& to, std::string_view text) {
  const size_t digits = std::to_string(std::count(text.begin(), text.end(), '\n') + 1).size();
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    to.put(fmt::format("/* {:>{}} */ ", number, digits));
    to.put(line);
    to.put("\n");
  }
}

}  // namespace

std::string keep_failed_source(const std::string& name, const std::string& text, const KernelLines& kernels) {
  namespace fs = std::filesystem;
  const bool dumping = !option("KILN_DUMP").empty();
  std::error_code ec;
  const fs::path folder = dumping ? fs::path(option("KILN_DUMP_DIR")) : fs::temp_directory_path(ec) / "";
  fs::create_directories(folder, ec);
  std::string path = (folder / fmt::format("kiln-failed-{}-XXXXXX", name)).string();
  const int fd = mkstemp(path.data());
  if (fd < 0) return fmt::format("(the source could not be kept in {})", folder.string());
  KeptFile file(fd);
  file.put(fmt::format("// {} does not compile.\n", name));
  if (!kernels.empty()) file.put("// Its kernels, and the user's lines that they compute:\n");
  for (const auto& [symbol, lines] : kernels)
    file.put(fmt::format("//   {}: {}\n", symbol, lines.empty() ? "no line is known" : lines));
  file.put(fmt::format("// Each line has its number in the compiler's log.\n#line 1 \"{}\"\n", name));
  put_numbered(file, text);
  return file.ok() ? path : fmt::format("{} (incomplete)", path);
}

std::string lines_text(const KernelLines& kernels) {
  std::string out;
  for (const auto& [symbol, lines] : kernels)
    if (!lines.empty()) out += fmt::format("{}{} ({})", out.empty() ? "\nit computes " : ", ", lines, symbol);
  return out;
}

}  // namespace kiln
