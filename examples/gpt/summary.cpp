// SPDX-License-Identifier: Apache-2.0
#include "examples/gpt/summary.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "frontend/safetensors.h"

namespace gpt {

namespace {

// JSON has no NaN: what was not measured is null.
nlohmann::ordered_json number(double v) { return std::isfinite(v) ? nlohmann::ordered_json(v) : nullptr; }

nlohmann::ordered_json numbers(const std::vector<double>& values) {
  auto list = nlohmann::ordered_json::array();
  for (const double v : values) list.push_back(number(v));
  return list;
}

}  // namespace

std::string to_json(const Summary& s) {
  nlohmann::ordered_json j;
  j["val_loss_first"] = number(s.val_loss_first);
  j["val_loss_last"] = number(s.val_loss_last);
  j["val_bigram"] = number(s.val_bigram);
  j["steps"] = s.steps;
  j["compile_s"] = number(s.compile_s);
  j["warm"] = s.warm;
  j["step_ms"] = number(s.step_ms);
  j["eager_step_ms"] = number(s.eager_step_ms);
  j["tokens_per_s"] = number(s.tokens_per_s);
  j["arena_mb"] = number(s.arena_mb);
  j["kernels"] = s.kernels;
  j["builds"] = s.builds;
  j["losses"] = numbers(s.losses);
  j["eager_losses"] = numbers(s.eager_losses);
  return j.dump(1) + "\n";
}

void write_json(const std::string& path, const Summary& s) { kiln::write_file_atomically(path, to_json(s)); }

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return 0.5 * (values[(n - 1) / 2] + values[n / 2]);
}

}  // namespace gpt
