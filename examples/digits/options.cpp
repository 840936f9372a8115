// SPDX-License-Identifier: Apache-2.0
#include "examples/digits/options.h"

#include <CLI/CLI.hpp>

#include "examples/device_name.h"

namespace digits {

Parsed parse_options(int argc, const char* const* argv) {
  Parsed p;
  Options& o = p.options;
  CLI::App app("Trains a convolutional net on scikit-learn's handwritten digits.", "digits");
  CLI::Validator positive = CLI::Range(int64_t{1}, int64_t{1} << 20);
  positive.description(">= 1");
  CLI::Validator share = CLI::Range(0.01, 0.99), rate = CLI::Range(0.0, 1.0);
  app.add_option("--data", o.data, "file of the images")->capture_default_str();
  app.add_option("--epochs", o.epochs, "passes over the training images")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--batch", o.batch, "images in a batch")->check(positive)->capture_default_str();
  app.add_option("--width", o.width, "channels of the first convolution")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--lr", o.lr, "highest learning rate")->check(rate)->capture_default_str();
  app.add_option("--weight-decay", o.weight_decay, "of AdamW")->check(rate)->capture_default_str();
  app.add_option("--dropout", o.dropout, "before the last layer")->check(rate)->capture_default_str();
  app.add_option("--test-share", o.test_share, "of the images, kept for the test")
      ->check(share)
      ->capture_default_str();
  app.add_option("--seed", o.seed, "of split, batches, weights and dropout")->capture_default_str();
  app.add_option("--device", o.device, "where to train: cuda is the first GPU, cuda:1 the second")
      ->check(CLI::Validator(examples::device_fault, "cpu|cuda|cuda:N"))
      ->capture_default_str();
  app.add_flag("--eager", o.eager, "train without compiling");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    p.exit_code = app.exit(e);
  }
  return p;
}

}  // namespace digits
