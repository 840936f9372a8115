// SPDX-License-Identifier: Apache-2.0
// What a checkpoint's config.json says about a model of the BERT family. Must not know tensors.
#pragma once

#include <cstdint>
#include <string>

namespace bert {

/// Names and defaults of transformers.BertConfig.
struct Config {
  int64_t vocab_size = 30522, hidden_size = 768, num_hidden_layers = 12, num_attention_heads = 12;
  int64_t intermediate_size = 3072, max_position_embeddings = 512, type_vocab_size = 2, pad_token_id = 0;
  double hidden_dropout_prob = 0.1, attention_probs_dropout_prob = 0.1, layer_norm_eps = 1e-12;
  double initializer_range = 0.02;
};

/// Reads a config.json. Throws: io; invalid, if it is no JSON object, has a number out of range, or is of
/// another family than BERT's; unsupported, for another activation than gelu or other positions than
/// absolute ones.
Config read_config(const std::string& path);

}  // namespace bert
