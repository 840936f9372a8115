// SPDX-License-Identifier: Apache-2.0
#include "examples/gpt/checkpoint.h"

#include <charconv>

namespace gpt {

namespace {

using Strings = std::map<std::string, std::string>;

constexpr const char* kFormat = "kiln-gpt-1";

// What must be the same for the arrays, or the batches, to mean the same.
Strings shape_of(const Options& o) {
  return {{"layers", std::to_string(o.layers)},
          {"dim", std::to_string(o.dim)},
          {"heads", std::to_string(o.heads)},
          {"seq", std::to_string(o.seq)},
          {"batch", std::to_string(o.batch)}};
}

template <typename T>
T number(const std::string& path, const Strings& m, const char* key) {
  const auto it = m.find(key);
  T value{};
  bool ok = it != m.end();
  if (ok) {
    const char* end = it->second.data() + it->second.size();
    const auto r = std::from_chars(it->second.data(), end, value);
    ok = r.ec == std::errc() && r.ptr == end;
  }
  KILN_CHECK(ok, invalid, "checkpoint {}: no whole number '{}'; got '{}'", path, key,
             it == m.end() ? "" : it->second);
  return value;
}

}  // namespace

void save_checkpoint(const std::string& path, const kiln::NamedTensors& arrays, const TrainState& s,
                     const Options& options) {
  Strings m = shape_of(options);
  m["format"] = kFormat;
  m["step"] = std::to_string(s.step);
  m["batch_seed"] = std::to_string(s.batch_seed);
  m["batches_drawn"] = std::to_string(s.batches_drawn);
  m["generator_seed"] = std::to_string(s.generator_seed);
  m["generator_offset"] = std::to_string(s.generator_offset);
  m["text"] = s.digest;
  kiln::save_file(arrays, path, m);
}

Checkpoint open_checkpoint(const std::string& path, const Options& options, const std::string& digest) {
  Checkpoint c{kiln::SafetensorsFile(path), {}};
  const Strings& m = c.file.metadata();
  const auto format = m.find("format");
  KILN_CHECK(format != m.end() && format->second == kFormat, invalid,
             "checkpoint {}: not a checkpoint of this program", path);
  for (const auto& [key, value] : shape_of(options)) {
    const auto it = m.find(key);
    KILN_CHECK(it != m.end() && it->second == value, invalid,
               "checkpoint {}: made with another --{}; got {}, expected {}", path, key,
               it == m.end() ? "nothing" : it->second, value);
  }
  const auto text = m.find("text");
  KILN_CHECK(text != m.end() && text->second == digest, invalid,
             "checkpoint {}: made with another text (name it with --data)", path);
  c.state.step = number<int64_t>(path, m, "step");
  c.state.batch_seed = number<uint64_t>(path, m, "batch_seed");
  c.state.batches_drawn = number<uint64_t>(path, m, "batches_drawn");
  c.state.generator_seed = number<uint64_t>(path, m, "generator_seed");
  c.state.generator_offset = number<uint64_t>(path, m, "generator_offset");
  c.state.digest = digest;
  return c;
}

}  // namespace gpt
