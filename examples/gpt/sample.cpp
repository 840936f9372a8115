// SPDX-License-Identifier: Apache-2.0
#include "examples/gpt/sample.h"

#include <algorithm>
#include <cmath>

namespace gpt {

size_t pick(std::vector<float> logits, double temperature, uint64_t random) {
  const float top = *std::max_element(logits.begin(), logits.end());
  if (temperature <= 0)
    return static_cast<size_t>(std::find(logits.begin(), logits.end(), top) - logits.begin());
  double sum = 0;
  std::vector<double> weights;
  for (const float l : logits) weights.push_back(std::exp(static_cast<double>(l - top) / temperature));
  for (const double w : weights) sum += w;
  double at = static_cast<double>(random >> 11) * 0x1p-53 * sum;
  for (size_t i = 0; i < weights.size(); ++i) {
    at -= weights[i];
    if (at < 0) return i;
  }
  return weights.size() - 1;
}

// The window always has the full length, so that one compiled program serves every token: it begins as
// text of the validation part, which the sample then pushes out.
std::string sample(const std::function<kiln::Tensor(const kiln::Tensor&)>& logits, const Corpus& corpus,
                   const Options& o) {
  const auto seq = static_cast<size_t>(o.seq), vocab = static_cast<size_t>(corpus.vocab());
  std::vector<int64_t> text(corpus.valid.begin(), corpus.valid.begin() + o.seq);
  for (int64_t i = 0; i < o.sample; ++i) {
    const std::vector<int64_t> window(text.end() - o.seq, text.end());
    const kiln::Tensor out = logits(kiln::Tensor::from_vector(window, {1, o.seq}));
    const std::vector<float> all = out.to_vector<float>();
    const auto last = all.begin() + static_cast<std::ptrdiff_t>((seq - 1) * vocab);
    const uint64_t random = splitmix64(splitmix64(o.seed) ^ static_cast<uint64_t>(i));
    text.push_back(static_cast<int64_t>(pick({last, all.end()}, o.temperature, random)));
  }
  return corpus.decode(std::span<const int64_t>(text).subspan(seq));
}

}  // namespace gpt
