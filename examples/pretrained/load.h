// SPDX-License-Identifier: Apache-2.0
// Loading the arrays of a Hugging Face checkpoint into a module whose names differ.
#pragma once

#include <functional>
#include <string>

#include "frontend/kiln.h"

namespace pretrained {

/// What an array of a checkpoint is to a module.
struct Place {
  std::string name;        ///< of the parameter; "": of none, such as a mask or another model's head
  bool transpose = false;  ///< the checkpoint has the matrix the other way round
};

/// Loads model.safetensors (or the shards of model.safetensors.index.json) of `folder`: every parameter and
/// buffer of `model` must be there, cast to its floating dtype. Arrays without a place are passed over.
/// Throws: io; invalid, naming what is missing, misshapen or there twice.
void load(kiln::nn::Module& model, const std::string& folder,
          const std::function<Place(const std::string& name)>& place);

}  // namespace pretrained
