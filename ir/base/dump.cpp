// SPDX-License-Identifier: Apache-2.0
#include "ir/base/dump.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <mutex>

#include "ir/base/atomic_file.h"
#include "ir/base/error.h"
#include "ir/base/log.h"
#include "ir/base/options.h"

namespace kiln {

namespace fs = std::filesystem;

namespace {

/// One more than the largest number that a file of the folder begins with.
int next_number(const fs::path& folder) {
  int most = 0;
  for (const fs::directory_entry& file : fs::directory_iterator(folder)) {
    const std::string name = file.path().filename().string();
    int number = 0;
    std::from_chars(name.data(), name.data() + name.size(), number);
    most = std::max(most, number);
  }
  return most + 1;
}

std::mutex failed_mutex;
std::string failed;  // the folder that could not be written: one warning is enough

}  // namespace

bool dumping(std::string_view stage) {
  const std::vector<std::string> wanted = option_tokens("KILN_DUMP");
  return std::find(wanted.begin(), wanted.end(), stage) != wanted.end();
}

void dump(std::string_view stage, const std::function<std::string()>& text, std::string_view extension) {
  if (!dumping(stage)) return;
  const std::string folder = option("KILN_DUMP_DIR");
  const std::lock_guard lock(failed_mutex);
  if (failed == folder) return;
  try {
    fs::create_directories(folder);
    const std::string name = fmt::format("{:03}-{}.{}", next_number(folder), stage, extension);
    write_file_atomically(fs::path(folder) / name, text());
    return;
  } catch (const fs::filesystem_error& e) {
    log(LogLevel::warn, "KILN_DUMP: cannot write to {}: {}; going on without", folder, e.code().message());
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::io) throw;
    log(LogLevel::warn, "KILN_DUMP: {}; going on without", e.what());
  }
  failed = folder;
}

}  // namespace kiln
