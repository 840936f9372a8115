// SPDX-License-Identifier: Apache-2.0
#include "frontend/serialize.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "frontend/sharded_safetensors.h"

namespace kiln {

void save_file(const NamedTensors& tensors, const std::string& path,
               const std::map<std::string, std::string>& metadata, Loc loc) {
  NamedTensors held;  // contiguous, and alive until all is written
  std::vector<SafetensorsItem> items;
  for (const auto& [name, t] : tensors) {
    KILN_CHECK(t.defined(), invalid, "save_file ({}): tensor '{}' is undefined", loc.str(), name);
    const Tensor& c = held.emplace_back(name, t.detach(loc).cpu(loc).contiguous(loc)).second;
    const void* data = dispatch(c.dtype(), [&]<typename T>(T) -> const void* { return c.data_ptr<T>(loc); });
    items.push_back({name, c.dtype(), c.sizes(), data});
  }
  write_safetensors(path, items, metadata);
}

namespace {
/// Throws: invalid, for what torch.save writes: a zip archive, or before 1.6 a pickle.
void refuse_pickles(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::array<char, 4> first{};
  in.read(first.data(), first.size());
  const std::string_view start(first.data(), static_cast<size_t>(in.gcount()));
  KILN_CHECK(start != "PK\x03\x04" && !start.starts_with("\x80\x02"), invalid,
             "{} is a file of torch.save, which holds Python objects (convert it in Python: "
             "safetensors.torch.save_file(torch.load(\"{}\", weights_only=True), \"NAME.safetensors\"))",
             path, path);
}

NamedTensors load(const std::string& path, bool mmap) {
  if (std::filesystem::is_regular_file(path)) refuse_pickles(path);
  const ShardedSafetensors checkpoint(path);
  NamedTensors out;
  for (const SafetensorsFile& file : checkpoint.files())
    for (auto& named : tensors_of(file, mmap)) out.push_back(std::move(named));
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return out;
}
}  // namespace

NamedTensors load_file(const std::string& path, bool mmap, Loc loc) {
  try {
    return load(path, mmap);
  } catch (const Error& e) {
    throw Error(e.kind(), fmt::format("load_file ({}): {}", loc.str(), e.what()), loc);
  }
}

NamedTensors tensors_of(const SafetensorsFile& file, bool mmap) {
  NamedTensors out;
  for (const SafetensorsFile::Entry& e : file.entries()) {
    if (mmap) {
      // The deleter's copy of `file` is what keeps the mapping.
      out.emplace_back(e.name, Tensor::from_blob(e.data, e.shape, e.dtype, {}, [file](void*) {}));
      continue;
    }
    out.emplace_back(e.name, dispatch(e.dtype, [&]<typename T>(T) {
                       const auto* p = reinterpret_cast<const T*>(e.data);
                       return Tensor::from_span(std::span<const T>(p, e.bytes / sizeof(T)), e.shape);
                     }));
  }
  return out;
}

}  // namespace kiln
