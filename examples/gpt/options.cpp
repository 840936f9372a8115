// SPDX-License-Identifier: Apache-2.0
#include "examples/gpt/options.h"

#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <algorithm>

#include <cmath>
#include <numbers>

#include "examples/device_name.h"

namespace gpt {

double Options::lr_at(int64_t step) const {
  if (step < warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup);
  const double span = static_cast<double>(std::max<int64_t>(1, steps - warmup));
  const double done = std::min(1.0, static_cast<double>(step - warmup) / span);
  return lr * (0.1 + 0.45 * (1 + std::cos(std::numbers::pi * done)));
}

namespace {

// CLI::Range lets NaN pass.
CLI::Validator finite(double most) {
  const auto check = [most](const std::string& text) {
    double v = 0;
    const bool ok = CLI::detail::lexical_cast(text, v) && v >= 0 && v <= most;
    return ok ? std::string() : "got " + text + ", expected a number from 0 to " + std::to_string(most);
  };
  return CLI::Validator(check, most >= 1e6 ? "NUMBER >= 0" : fmt::format("NUMBER in [0, {}]", most));
}

void add_flags(CLI::App& app, Options& o) {
  CLI::Validator positive = CLI::Range(int64_t{1}, int64_t{1} << 40),
                 whole = CLI::Range(int64_t{0}, int64_t{1} << 40);
  positive.description(">= 1");
  whole.description(">= 0");
  const auto real = finite(1e6);
  app.add_option("--data", o.data, "text file, or folder of files without a dot in their names");
  app.add_option("--layers", o.layers, "transformer blocks")->check(positive)->capture_default_str();
  app.add_option("--dim", o.dim, "width of the model")->check(positive)->capture_default_str();
  app.add_option("--heads", o.heads, "attention heads; must divide --dim")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--seq", o.seq, "tokens of context")->check(positive)->capture_default_str();
  app.add_option("--batch", o.batch, "windows in a batch")->check(positive)->capture_default_str();
  app.add_option("--steps", o.steps, "training steps in all")->check(positive)->capture_default_str();
  app.add_option("--warmup", o.warmup, "steps of rising learning rate")->check(whole)->capture_default_str();
  app.add_option("--lr", o.lr, "highest learning rate")->check(real)->capture_default_str();
  app.add_option("--weight-decay", o.weight_decay, "of AdamW, on matrices")
      ->check(real)
      ->capture_default_str();
  app.add_option("--clip", o.clip, "largest gradient norm; 0 does not clip")
      ->check(real)
      ->capture_default_str();
  app.add_option("--dropout", o.dropout, "probability of dropping a value")
      ->check(finite(0.99))
      ->capture_default_str();
  app.add_option("--seed", o.seed, "of weights, batches and dropout")->capture_default_str();
  app.add_option("--eval-every", o.eval_every, "steps between short validations; 0: none")
      ->check(whole)
      ->capture_default_str();
  app.add_option("--checkpoint", o.checkpoint, "file to save to, at the end and on Ctrl-C");
  app.add_option("--resume", o.resume, "checkpoint to go on from");
  app.add_option("--save-every", o.save_every, "steps between checkpoints; 0: only at the end")
      ->check(whole)
      ->capture_default_str();
  app.add_option("--sample", o.sample, "characters to write at the end")->check(whole)->capture_default_str();
  app.add_option("--temperature", o.temperature, "of the sample; 0 takes the likeliest")
      ->check(real)
      ->capture_default_str();
  app.add_option("--threads", o.threads, "0: all the process may run on")
      ->check(whole)
      ->capture_default_str();
  app.add_option("--device", o.device,
                 "where to train: cuda is the GPU of the rank's number, cuda:1 the second")
      ->check(CLI::Validator(examples::device_fault, "cpu|cuda|cuda:N"))
      ->capture_default_str();
  app.add_option("--timeout", o.timeout, "seconds that ranks wait for each other")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--eager", o.eager, "train without compiling");
  app.add_option("--eager-steps", o.eager_steps, "eager steps to compare with first; 0: none")
      ->check(whole)
      ->capture_default_str();
  app.add_option("--json", o.json, "file for the figures of the run");
  app.add_flag("!--no-progress", o.progress, "no progress bar or lines");
}

// What CLI11's checks of single flags cannot say.
std::string conflict(const Options& o) {
  if (o.dim % o.heads != 0)
    return "--heads: must divide --dim; got " + std::to_string(o.heads) + " and " + std::to_string(o.dim);
  if (o.save_every > 0 && o.checkpoint.empty()) return "--save-every: needs --checkpoint FILE";
  return "";
}

}  // namespace

Parsed parse_options(int argc, const char* const* argv) {
  Parsed p;
  CLI::App app("Trains a byte-level GPT on a text through kiln::compile.", "gpt");
  add_flags(app, p.options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    p.exit_code = app.exit(e);
    return p;
  }
  const std::string bad = conflict(p.options);
  if (!bad.empty()) p.exit_code = app.exit(CLI::ValidationError(bad, CLI::ExitCodes::ValidationError));
  return p;
}

}  // namespace gpt
