// SPDX-License-Identifier: Apache-2.0
// The command line of the example.
#pragma once

#include <cstdint>
#include <string>

#include "examples/gpt/corpus.h"

namespace gpt {

/// What the user asked for; the defaults train on fortunes in a few minutes on two cores.
struct Options {
  std::string data = kFortunes;
  int64_t layers = 4, dim = 128, heads = 4, seq = 64, batch = 16;
  int64_t steps = 800, warmup = 100, eval_every = 200, save_every = 0, sample = 400, threads = 0;
  int64_t eager_steps = 20;
  uint64_t seed = 1;
  double lr = 3e-3, weight_decay = 0.1, clip = 1.0, dropout = 0, temperature = 0.8,
         timeout = 300;
  std::string checkpoint, resume, json;
  std::string device = "cpu";  ///< as examples::device_named takes it
  bool eager = false, progress = true;

  /// Learning rate of a step: linear warm-up, then a cosine down to a tenth.
  double lr_at(int64_t step) const;
};

/// What main does after parsing.
struct Parsed {
  Options options;
  int exit_code = -1;  ///< >= 0: print nothing more and leave (help, or an error that was printed)
};

/// Parses and checks; errors go to stderr, help to stdout.
Parsed parse_options(int argc, const char* const* argv);

}  // namespace gpt
