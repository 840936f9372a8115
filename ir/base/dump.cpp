// SPDX-License-Identifier: Apache-2.0
#include "ir/base/dump.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "ir/base/atomic_file.h"
#include "ir/base/error.h"
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

}  // namespace

bool dumping(std::string_view stage) {
  const std::vector<std::string> wanted = option_tokens("KILN_DUMP");
  return std::find(wanted.begin(), wanted.end(), stage) != wanted.end();
}

void dump(std::string_view stage, const std::function<std::string()>& text, std::string_view extension) {
  if (!dumping(stage)) return;
  const fs::path folder = option("KILN_DUMP_DIR");
  try {
    fs::create_directories(folder);
    const std::string name = fmt::format("{:03}-{}.{}", next_number(folder), stage, extension);
    write_file_atomically((folder / name).string(), text());
  } catch (const fs::filesystem_error& e) {
    throw Error(ErrorKind::io, fmt::format("KILN_DUMP: cannot write to {}; got {} (set KILN_DUMP_DIR)",
                                           folder.string(), e.code().message()));
  }
}

}  // namespace kiln
