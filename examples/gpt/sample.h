// SPDX-License-Identifier: Apache-2.0
// Writes text with a model: one token at a time from a window of the last ones.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "examples/gpt/corpus.h"
#include "examples/gpt/options.h"
#include "frontend/kiln.h"

namespace gpt {

/// Picks a token from logits: the likeliest at temperature 0, else at random by `random` bits.
size_t pick(std::vector<float> logits, double temperature, uint64_t random);

/// `o.sample` characters. `logits` maps ids [1, seq] to [1, seq, vocab].
std::string sample(const std::function<kiln::Tensor(const kiln::Tensor&)>& logits, const Corpus& corpus,
                   const Options& o);

}  // namespace gpt
