// SPDX-License-Identifier: Apache-2.0
// The command line of the example.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/bert/sayings.h"

namespace bert {

/// What the user asked for.
struct Options {
  std::string model = "data/minilm", fortunes = kFortunes, json;
  std::vector<std::string> files = {"art", "computers", "education", "food",
                                    "law", "politics",  "science",   "work"};
  int64_t per_file = 200, epochs = 3, batch = 16, max_length = 64, threads = 0;
  uint64_t seed = 1;
  double lr = 5e-5, head_lr = 1e-3, weight_decay = 0.01;
  bool eager = false;

  /// The share of the learning rates that step `step` of `steps` takes: a tenth rises, the rest falls to 0.
  static double share(int64_t step, int64_t steps);
};

/// What main does after parsing.
struct Parsed {
  Options options;
  int exit_code = -1;  ///< >= 0: print nothing more and leave (help, or an error that was printed)
};

/// Parses and checks; errors go to stderr, help to stdout.
Parsed parse_options(int argc, const char* const* argv);

}  // namespace bert
