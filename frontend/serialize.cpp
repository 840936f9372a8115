// SPDX-License-Identifier: Apache-2.0
#include "frontend/serialize.h"

namespace kiln {

void save_file(const NamedTensors& tensors, const std::string& path,
               const std::map<std::string, std::string>& metadata, Loc loc) {
  NamedTensors held;  // contiguous, and alive until all is written
  std::vector<SafetensorsItem> items;
  for (const auto& [name, t] : tensors) {
    KILN_CHECK(t.defined(), invalid, "save_file ({}): tensor '{}' is undefined", loc.str(), name);
    const Tensor& c = held.emplace_back(name, t.detach(loc).contiguous(loc)).second;
    const void* data = dispatch(c.dtype(), [&]<typename T>(T) -> const void* { return c.data_ptr<T>(loc); });
    items.push_back({name, c.dtype(), c.sizes(), data});
  }
  write_safetensors(path, items, metadata);
}

NamedTensors load_file(const std::string& path) { return tensors_of(SafetensorsFile(path)); }

NamedTensors tensors_of(const SafetensorsFile& file) {
  NamedTensors out;
  for (const SafetensorsFile::Entry& e : file.entries())
    out.emplace_back(e.name, dispatch(e.dtype, [&]<typename T>(T) {
                       const auto* p = reinterpret_cast<const T*>(e.data);
                       return Tensor::from_span(std::span<const T>(p, e.bytes / sizeof(T)), e.shape);
                     }));
  return out;
}

}  // namespace kiln
