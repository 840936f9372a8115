// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace digits {

struct Options {
  std::string data = "data/digits/digits.csv";
  std::string device = "cpu";  ///< as examples::device_named takes it
  int64_t epochs = 20, batch = 64, width = 32;
  double lr = 3e-3, weight_decay = 1e-2, dropout = 0.25, test_share = 0.2;
  uint64_t seed = 1;
  bool eager = false;
};

struct Parsed {
  Options options;
  int exit_code = -1;  ///< of the program, when there is nothing more to do
};
Parsed parse_options(int argc, const char* const* argv);

}  // namespace digits
