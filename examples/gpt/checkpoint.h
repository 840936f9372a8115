// SPDX-License-Identifier: Apache-2.0
// What a run must remember to go on exactly where it was, in one safetensors file.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "examples/gpt/options.h"
#include "frontend/serialize.h"

namespace gpt {

/// Everything but the arrays.
struct TrainState {
  int64_t step = 0;                                   ///< steps done
  uint64_t batch_seed = 0, batches_drawn = 0;         ///< of Batches
  uint64_t generator_seed = 0, generator_offset = 0;  ///< of the library's random numbers
  std::string digest;                                 ///< of the text
};

/// Writes model and optimizer arrays ("model.*", "optim.*") and the state, atomically.
/// Throws: io; the file that was there before stays.
void save_checkpoint(const std::string& path, const kiln::NamedTensors& arrays, const TrainState& state,
                     const Options& options);

/// An opened checkpoint.
struct Checkpoint {
  kiln::SafetensorsFile file;
  TrainState state;
};

/// Throws: io or invalid, if the file is damaged, is no checkpoint of this program, or was made with
/// another model size or another text than asked for (the message names the difference).
Checkpoint open_checkpoint(const std::string& path, const Options& options, const std::string& digest);

}  // namespace gpt
