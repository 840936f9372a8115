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
/// All tensors of a safetensors file, sorted by name, in memory of their own on the default device. `path`
/// may also be that of a sharded checkpoint: see ShardedSafetensors. With `mmap` tensors are on the CPU and
/// view the file: elements are read when they are touched; an in-place write changes the tensor and no file;
/// the file must not be cut while they live. Throws: io; invalid, if a file is damaged or of torch.save.
NamedTensors load_file(const std::string& path, bool mmap = false, Loc loc = Loc::current());
/// The same of an open file, whose metadata() may be read first.
NamedTensors tensors_of(const SafetensorsFile& file, bool mmap = false);

}  // namespace kiln
