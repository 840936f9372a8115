// SPDX-License-Identifier: Apache-2.0
#include "codegen/failed_source.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "ir/base/options.h"

namespace kiln {

std::string keep_failed_source(const std::string& name, const std::string& text) {
  namespace fs = std::filesystem;
  const bool dumping = !option("KILN_DUMP").empty();
  std::error_code ec;
  const fs::path folder = dumping ? fs::path(option("KILN_DUMP_DIR")) : fs::temp_directory_path(ec) / "";
  fs::create_directories(folder, ec);
  std::string path = (folder / fmt::format("kiln-failed-{}-XXXXXX", name)).string();
  const int fd = mkstemp(path.data());
  if (fd < 0) return fmt::format("(the source could not be kept in {})", folder.string());
  const bool ok = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  return ok ? path : fmt::format("{} (incomplete)", path);
}

}  // namespace kiln
