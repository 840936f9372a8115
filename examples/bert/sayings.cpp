// SPDX-License-Identifier: Apache-2.0
#include "examples/bert/sayings.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "frontend/data/sampler.h"
#include "frontend/safetensors.h"

namespace bert {

std::vector<std::string> split_sayings(const std::string& text) {
  std::vector<std::string> out;
  std::string one, line;
  const auto close = [&] {
    if (one.find_first_not_of(" \t\r\n") != std::string::npos) out.push_back(one);
    one.clear();
  };
  for (std::istringstream in(text); std::getline(in, line);) {
    if (line == "%" || line == "%\r") close();
    else one += line + "\n";
  }
  close();
  return out;
}

namespace {

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  KILN_CHECK(in.good() && text.good(), io,
             "sayings {}: cannot read the file; {} (Debian's package `fortunes` has it)", path,
             std::strerror(errno));
  return text.str();
}

}  // namespace

Sayings read_sayings(const std::string& folder, const std::vector<std::string>& files, int64_t most,
                     uint64_t seed) {
  Sayings out{files, {}, {}};
  std::set<std::string> seen;
  for (size_t f = 0; f < files.size(); ++f) {
    const std::string path = folder + "/" + files[f];
    std::vector<std::string> all = split_sayings(read_file(path));
    std::erase_if(all, [&](const std::string& text) { return !seen.insert(text).second; });
    KILN_CHECK(all.size() >= 8, invalid, "sayings {}: got {} sayings, expected at least 8 between lines of %",
               path, all.size());
    const auto n = static_cast<int64_t>(all.size()), use = most > 0 ? std::min(most, n) : n;
    const std::vector<int64_t> order = kiln::data::permutation(n, seed, static_cast<int64_t>(f));
    for (int64_t i = 0; i < use; ++i)
      (i < use / 4 ? out.test : out.train)
          .push_back({all[static_cast<size_t>(order[static_cast<size_t>(i)])], static_cast<int64_t>(f)});
  }
  return out;
}

}  // namespace bert
