// SPDX-License-Identifier: Apache-2.0
// The model to beat: how often each token follows each, plus one.
#pragma once

#include <cstdint>
#include <span>

namespace gpt {

/// Fits counts on `train` and returns the mean of -ln p(next | this) over the pairs of `valid`.
/// Units: nat a token.
double bigram_loss(std::span<const uint8_t> train, std::span<const uint8_t> valid, int64_t vocab);

}  // namespace gpt
