// SPDX-License-Identifier: Apache-2.0
// bert: fine-tunes a model of the BERT family through kiln::compile. `bert --help` lists the flags.
#include <cstdio>
#include <exception>

#include "examples/bert/finetune.h"

int main(int argc, char** argv) {
  const bert::Parsed parsed = bert::parse_options(argc, argv);
  if (parsed.exit_code >= 0) return parsed.exit_code;
  try {
    bert::finetune(parsed.options);
    if (std::fflush(stdout) == 0) return 0;
    std::perror("bert: the output cannot be written");
    return 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bert: %s\n", e.what());
    return 1;
  }
}
