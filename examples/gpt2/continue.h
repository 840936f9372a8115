// SPDX-License-Identifier: Apache-2.0
// Text in, text out: the tokenizer before a model, and behind it.
#pragma once

#include <string>

#include "examples/gpt2/model.h"
#include "examples/gpt2/tokenizer.h"

namespace gpt2 {

/// `prompt` and what the model takes to follow, up to `count` tokens or the end of the text. An empty prompt
/// begins a text. Throws: invalid, as generate(), and when the tokenizer has tokens that the model has not.
std::string continue_text(Gpt2& model, const Tokenizer& tokenizer, const std::string& prompt, int64_t count);

}  // namespace gpt2
