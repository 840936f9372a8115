// SPDX-License-Identifier: Apache-2.0
// A checkpoint of one or several safetensors files, as Hugging Face's models are stored.
// Works on plain memory; must not know Tensor or Module.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "frontend/safetensors.h"

namespace kiln {

/// The arrays of all files of a checkpoint. Copies share the mappings.
class ShardedSafetensors {
 public:
  /// `path`: a safetensors file; an index ("model.safetensors.index.json") whose "weight_map" names the file,
  /// beside it, of every array; or a folder that has "model.safetensors" or else that index.
  /// Throws: io, for a file that cannot be read; invalid, if a file or the index is damaged, or an array is
  /// in another file than the index says, or in two.
  explicit ShardedSafetensors(const std::string& path);

  const std::vector<SafetensorsFile>& files() const { return files_; }
  /// The array called `name`, or null.
  const SafetensorsFile::Entry* find(std::string_view name) const;

 private:
  void open_index(const std::string& path);
  std::vector<SafetensorsFile> files_;
};

}  // namespace kiln
