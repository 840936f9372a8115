// SPDX-License-Identifier: Apache-2.0
// Tensors to and from safetensors files: checkpoints are state_dict() saved and loaded. Names are those of
// safetensors.torch.
#pragma once

#include <map>
#include <string>

#include "frontend/safetensors.h"
#include "frontend/tensor.h"

namespace kiln {

/// Replaces `path` by a file with these tensors, atomically. Throws: io (the file that was there stays);
/// invalid, for an undefined tensor or two of one name.
void save_file(const NamedTensors& tensors, const std::string& path,
               const std::map<std::string, std::string>& metadata = {}, Loc loc = Loc::current());
/// All tensors of the file, sorted by name, in memory of their own. Throws: io; invalid, if the file is
/// damaged.
NamedTensors load_file(const std::string& path);
/// The same of an open file, whose metadata() may be read first.
NamedTensors tensors_of(const SafetensorsFile& file);

}  // namespace kiln
