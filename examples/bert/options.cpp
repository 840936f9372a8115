// SPDX-License-Identifier: Apache-2.0
#include "examples/bert/options.h"

#include <CLI/CLI.hpp>

namespace bert {

double Options::share(int64_t step, int64_t steps) {
  const double at = static_cast<double>(step + 1), rise = std::max(1.0, static_cast<double>(steps) / 10);
  return std::min(at / rise, (static_cast<double>(steps) - at + 1) / (static_cast<double>(steps) - rise + 1));
}

Parsed parse_options(int argc, const char* const* argv) {
  Parsed p;
  Options& o = p.options;
  CLI::App app("Fine-tunes BERT to say which file of Debian's fortunes a saying stands in.", "bert");
  CLI::Validator positive = CLI::Range(int64_t{1}, int64_t{1} << 31),
                 whole = CLI::Range(int64_t{0}, int64_t{1} << 31);
  positive.description(">= 1");
  whole.description(">= 0");
  const CLI::Range rate(0.0, 1.0);
  app.add_option("--model", o.model, "folder with config.json, model.safetensors and vocab.txt")
      ->capture_default_str();
  app.add_option("--fortunes", o.fortunes, "folder with the files")->capture_default_str();
  app.add_option("--files", o.files, "the classes: names of files in it")->delimiter(',')->expected(2, 1000);
  app.add_option("--per-file", o.per_file, "most sayings of each; 0: all")
      ->check(whole)
      ->capture_default_str();
  app.add_option("--epochs", o.epochs, "passes over the training sayings; 0: only the comparison")
      ->check(whole)
      ->capture_default_str();
  app.add_option("--batch", o.batch, "sayings in a batch")->check(positive)->capture_default_str();
  app.add_option("--max-length", o.max_length, "tokens of a saying that count")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 20))
      ->capture_default_str();
  app.add_option("--lr", o.lr, "highest learning rate")->check(rate)->capture_default_str();
  app.add_option("--head-lr", o.head_lr, "the same of the new layer")->check(rate)->capture_default_str();
  app.add_option("--weight-decay", o.weight_decay, "of AdamW")->check(rate)->capture_default_str();
  app.add_option("--seed", o.seed, "of split, batches, dropout and the new layer")->capture_default_str();
  app.add_option("--threads", o.threads, "0: all the process may run on")
      ->check(whole)
      ->capture_default_str();
  app.add_flag("--eager", o.eager, "train without compiling");
  app.add_option("--json", o.json, "file for the figures of the run");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    p.exit_code = app.exit(e);
  }
  return p;
}

}  // namespace bert
