// SPDX-License-Identifier: Apache-2.0
// gpt: trains a byte-level GPT on a text through kiln::compile. `gpt --help` lists the flags.
#include <cstdio>
#include <exception>

#include "examples/gpt/options.h"
#include "examples/gpt/stop.h"
#include "examples/gpt/train.h"

int main(int argc, char** argv) {
  const gpt::Parsed parsed = gpt::parse_options(argc, argv);
  if (parsed.exit_code >= 0) return parsed.exit_code;
  try {
    gpt::catch_stop_signals();
    const int code = gpt::train(parsed.options);
    if (std::fflush(stdout) == 0) return code;
    std::perror("gpt: the output cannot be written");
    return 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpt: %s\n", e.what());
    return 1;
  }
}
