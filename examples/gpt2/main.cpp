// SPDX-License-Identifier: Apache-2.0
// gpt2: continues a text, or a sequence of token numbers, with a model of the GPT-2 family. `gpt2 --help`
// lists the flags.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "examples/gpt2/continue.h"

int main(int argc, char** argv) {
  CLI::App app("Continues text with a model of the GPT-2 family, through kiln::compile.", "gpt2");
  std::string folder, prompt;
  std::vector<int64_t> ids;
  int64_t count = 20;
  app.add_option("model", folder, "folder with config.json and model.safetensors, or its index and shards")
      ->required();
  CLI::Option_group* start = app.add_option_group("start", "what to go on from");
  CLI::Option* text =
      start->add_option("--prompt", prompt, "text; the folder has vocab.json and merges.txt, too");
  start->add_option("--ids", ids, "token numbers")->delimiter(',');
  start->require_option(1);
  app.add_option("--tokens", count, "how many to add")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    gpt2::Gpt2 model(gpt2::read_config(folder + "/config.json"));
    gpt2::load_pretrained(model, folder);
    if (text->count() > 0)
      fmt::print("{}\n", gpt2::continue_text(model, gpt2::Tokenizer(folder), prompt, count));
    else fmt::print("{}\n", fmt::join(gpt2::generate(model, ids, count), ","));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpt2: %s\n", e.what());
    return 1;
  }
}
