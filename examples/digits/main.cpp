// SPDX-License-Identifier: Apache-2.0
// digits: trains a convolutional net through kiln::compile. `digits --help` lists the flags.
#include <cstdio>
#include <exception>

#include "examples/digits/train.h"

int main(int argc, char** argv) {
  const digits::Parsed parsed = digits::parse_options(argc, argv);
  if (parsed.exit_code >= 0) return parsed.exit_code;
  try {
    const digits::Figures f = digits::train(parsed.options, digits::load_images(parsed.options.data));
    std::printf("accuracy %.2f %% on the test images, %.1f s of training\n", 100 * f.accuracy, f.seconds);
    if (std::fflush(stdout) == 0) return 0;
    std::perror("digits: the output cannot be written");
    return 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "digits: %s\n", e.what());
    return 1;
  }
}
