// SPDX-License-Identifier: Apache-2.0
#include "examples/gpt2/continue.h"

#include <algorithm>

namespace gpt2 {

std::string continue_text(Gpt2& model, const Tokenizer& tokenizer, const std::string& prompt, int64_t count) {
  const int64_t tokens = model.config().vocab_size;
  KILN_CHECK(tokenizer.largest() < tokens, invalid,
             "continue_text: the tokenizer has a token {}, and the model {} tokens: they belong to different "
             "checkpoints",
             tokenizer.largest(), tokens);
  std::vector<int64_t> ids = tokenizer.encode(prompt);
  const bool begins = ids.empty();
  if (begins) ids.push_back(tokenizer.end_of_text());
  const auto given = static_cast<ptrdiff_t>(ids.size());
  ids = generate(model, std::move(ids), count);
  ids.erase(std::find(ids.begin() + given, ids.end(), tokenizer.end_of_text()), ids.end());
  if (begins) ids.erase(ids.begin());
  return tokenizer.decode(ids);
}

}  // namespace gpt2
