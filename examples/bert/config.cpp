// SPDX-License-Identifier: Apache-2.0
#include "examples/bert/config.h"

#include "examples/pretrained/config_file.h"
#include "frontend/safetensors.h"

namespace bert {

namespace {

/// What the model has only one form of.
void expect(const pretrained::ConfigFile& file, const char* key, const char* only) {
  const std::string value = file.text(key, only);
  KILN_CHECK(value == only, unsupported, "config {}: '{}' is \"{}\"; expected \"{}\"", file.path(), key,
             value, only);
}

}  // namespace

Config read_config(const std::string& path) {
  const pretrained::ConfigFile file(path);
  file.expect_family("bert");
  expect(file, "hidden_act", "gelu");
  expect(file, "position_embedding_type", "absolute");
  Config c;
  c.vocab_size = file.whole("vocab_size", c.vocab_size, 1);
  c.hidden_size = file.whole("hidden_size", c.hidden_size, 1);
  c.num_hidden_layers = file.whole("num_hidden_layers", c.num_hidden_layers, 0);
  c.num_attention_heads = file.whole("num_attention_heads", c.num_attention_heads, 1);
  c.intermediate_size = file.whole("intermediate_size", c.intermediate_size, 1);
  c.max_position_embeddings = file.whole("max_position_embeddings", c.max_position_embeddings, 1);
  c.type_vocab_size = file.whole("type_vocab_size", c.type_vocab_size, 1);
  c.pad_token_id = file.whole("pad_token_id", c.pad_token_id, 0);
  c.hidden_dropout_prob = file.real("hidden_dropout_prob", c.hidden_dropout_prob, 1);
  c.attention_probs_dropout_prob =
      file.real("attention_probs_dropout_prob", c.attention_probs_dropout_prob, 1);
  c.layer_norm_eps = file.real("layer_norm_eps", c.layer_norm_eps, 1);
  c.initializer_range = file.real("initializer_range", c.initializer_range, 1e3);
  KILN_CHECK(c.hidden_size % c.num_attention_heads == 0, invalid,
             "config {}: 'hidden_size' {} is no multiple of 'num_attention_heads' {}", path, c.hidden_size,
             c.num_attention_heads);
  KILN_CHECK(c.pad_token_id < c.vocab_size, invalid,
             "config {}: 'pad_token_id' {} is no token; 'vocab_size' is {}", path, c.pad_token_id,
             c.vocab_size);
  return c;
}

}  // namespace bert
