// SPDX-License-Identifier: Apache-2.0
#include "frontend/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "frontend/mapped_file.h"
#include "frontend/stored_type.h"
#include "ir/base/atomic_file.h"
#include "ir/base/error.h"

namespace kiln {

namespace {

using Json = nlohmann::json;

constexpr size_t kMaxHeader = 100'000'000;  // the format's own limit
constexpr std::string_view kMetadata = "__metadata__";

/// The name of what a tensor's elements are stored as.
std::string_view tag_of(DType t) {
  constexpr std::string_view kTags[kDTypeCount] = {"BOOL", "U8", "I32", "I64", "F16", "BF16", "F32", "F64"};
  return kTags[static_cast<int>(t)];
}

/// Bytes of an array, or false when they do not fit 63 bits.
bool byte_size(size_t element, std::span<const int64_t> shape, size_t* out) {
  uint64_t n = element;
  for (const int64_t d : shape)
    if (d < 0 || __builtin_mul_overflow(n, static_cast<uint64_t>(d), &n) || n > INT64_MAX) return false;
  *out = n;
  return true;
}

std::string shape_text(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

}  // namespace

struct SafetensorsFile::Impl {
  /// An array as the file has it.
  struct Stored {
    Entry entry;
    const StoredType* type;
  };

  explicit Impl(const std::string& p) : path(p), mapping(p) {}

  void parse();
  Json parse_header(size_t length) const;
  Stored parse_entry(const std::string& name, const Json& j, size_t header) const;
  void check_coverage(std::vector<Stored> all, size_t header) const;
  Entry readable(const Stored& stored);

  template <typename... Args>
  void check(bool ok, fmt::format_string<Args...> format, Args&&... args) const {
    if (ok) return;
    throw Error(ErrorKind::invalid,
                fmt::format("safetensors {}: {}", path, fmt::format(format, std::forward<Args>(args)...)));
  }

  std::string path;
  MappedFile mapping;
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
  std::vector<std::unique_ptr<std::byte[]>> copies;
};

Json SafetensorsFile::Impl::parse_header(size_t length) const {
  const char* text = reinterpret_cast<const char*>(mapping.data()) + 8;
  check(length > 0 && text[0] == '{', "the header is not a JSON object");
  // JSON itself allows a key twice; here the second would silently win.
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    check(depth <= 3, "the header is nested too deeply");
    const auto level = static_cast<size_t>(depth);
    if (event == Json::parse_event_t::object_start) {
      keys.resize(std::max(keys.size(), level + 1));
      keys[level].clear();
    } else if (event == Json::parse_event_t::key) {
      const std::string& name = value.get_ref<const std::string&>();
      check(keys[level - 1].insert(name).second, "the name '{}' occurs twice", name);
    }
    return true;
  };
  try {
    return Json::parse(text, text + length, watch);
  } catch (const Json::exception& e) {
    throw Error(ErrorKind::invalid,
                fmt::format("safetensors {}: the header is not JSON; {}", path, e.what()));
  }
}

SafetensorsFile::Impl::Stored SafetensorsFile::Impl::parse_entry(const std::string& name, const Json& j,
                                                                 size_t header) const {
  check(j.is_object() && j.size() == 3 && j.contains("dtype") && j.contains("shape") &&
            j.contains("data_offsets"),
        "'{}' needs exactly dtype, shape and data_offsets", name);
  const Json& tag = j["dtype"];
  const Json& dims = j["shape"];
  const Json& range = j["data_offsets"];
  const StoredType* type = tag.is_string() ? stored_type(tag.get_ref<const std::string&>()) : nullptr;
  check(type, "'{}' has an unknown dtype; got {}, expected one of {}", name, tag.dump(), stored_type_names());
  Entry e;
  e.name = name;
  e.dtype = type->dtype;
  check(dims.is_array(), "'{}' has a bad shape; got {}, expected an array", name, dims.dump());
  for (const Json& d : dims) {
    check(d.is_number_unsigned() && d.get<uint64_t>() <= INT64_MAX,
          "'{}' has a bad shape; got {}, expected sizes >= 0", name, dims.dump());
    e.shape.push_back(d.get<int64_t>());
  }
  check(byte_size(type->size, e.shape, &e.bytes), "'{}' has a shape that overflows; got {}", name,
        dims.dump());
  check(
      range.is_array() && range.size() == 2 && range[0].is_number_unsigned() && range[1].is_number_unsigned(),
      "'{}' has bad data_offsets; got {}, expected two sizes", name, range.dump());
  const uint64_t begin = range[0].get<uint64_t>(), end = range[1].get<uint64_t>();
  const uint64_t room = mapping.size() - header;
  check(begin <= end && end <= room, "'{}' lies outside the file; got bytes {} to {}, expected within {}",
        name, begin, end, room);
  check(end - begin == e.bytes, "'{}' does not fit its shape; got {} bytes, expected {} for {}{}", name,
        end - begin, e.bytes, type->same ? dtype_name(e.dtype) : type->name, shape_text(e.shape));
  e.data = mapping.data() + header + begin;
  return {e, type};
}

// Holes and overlaps are both forbidden by the format: a hole could hide data, an overlap alias it.
void SafetensorsFile::Impl::check_coverage(std::vector<Stored> all, size_t header) const {
  std::sort(all.begin(), all.end(), [](const Stored& a, const Stored& b) {
    const Entry &x = a.entry, &y = b.entry;
    return x.data != y.data ? x.data < y.data : x.bytes < y.bytes;
  });
  const std::byte* at = mapping.data() + header;
  for (const auto& [e, type] : all) {
    check(e.data >= at, "'{}' overlaps another array", e.name);
    check(e.data == at, "there is a hole of {} bytes before '{}'", e.data - at, e.name);
    at = e.data + e.bytes;
  }
  const size_t rest = static_cast<size_t>(mapping.data() + mapping.size() - at);
  check(rest == 0, "{} bytes after the last array belong to none", rest);
}

// Files written elsewhere may put an array at any offset; elements must still be readable in place, and be of
// a dtype that tensors have.
SafetensorsFile::Entry SafetensorsFile::Impl::readable(const Stored& stored) {
  const auto& [e, type] = stored;
  if (e.dtype == DType::boolean)
    check(std::all_of(e.data, e.data + e.bytes, [](std::byte b) { return b <= std::byte{1}; }),
          "'{}' has bytes that are neither false nor true", e.name);
  if (type->same && reinterpret_cast<uintptr_t>(e.data) % type->size == 0) return e;
  Entry out = e;
  const size_t count = e.bytes / type->size;
  out.bytes = count * dtype_size(e.dtype);
  copies.push_back(std::make_unique<std::byte[]>(std::max<size_t>(out.bytes, 1)));
  out.data = copies.back().get();
  const size_t fit = type->read(e.data, count, false, out.data);
  check(fit == count, "'{}' has a U64 beyond {} as element {}; {} holds no more", e.name, INT64_MAX, fit,
        dtype_name(e.dtype));
  return out;
}

void SafetensorsFile::Impl::parse() {
  check(mapping.size() >= 8, "truncated; got {} bytes, expected at least 8", mapping.size());
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<uint64_t>(mapping.data()[i]);
  check(length <= kMaxHeader && length <= mapping.size() - 8,
        "truncated, or the header length lies; got a header of {} bytes in a file of {}", length,
        mapping.size());
  const size_t header = 8 + length;
  const Json j = parse_header(length);
  std::vector<Stored> all;
  for (const auto& [name, value] : j.items()) {
    if (name != kMetadata) {
      all.push_back(parse_entry(name, value, header));
      continue;
    }
    check(value.is_object(), "__metadata__ is not an object");
    for (const auto& [key, text] : value.items()) {
      check(text.is_string(), "the metadata '{}' is not a string", key);
      metadata[key] = text.get<std::string>();
    }
  }
  check_coverage(all, header);
  for (const Stored& stored : all) entries.push_back(readable(stored));
}

SafetensorsFile::SafetensorsFile(const std::string& path) {
  auto impl = std::make_shared<Impl>(path);
  impl->parse();
  impl_ = std::move(impl);
}

std::span<const SafetensorsFile::Entry> SafetensorsFile::entries() const { return impl_->entries; }
const std::map<std::string, std::string>& SafetensorsFile::metadata() const { return impl_->metadata; }
const std::string& SafetensorsFile::path() const { return impl_->path; }

const SafetensorsFile::Entry* SafetensorsFile::find(std::string_view name) const {
  const auto& all = impl_->entries;
  const auto it = std::lower_bound(all.begin(), all.end(), name,
                                   [](const Entry& e, std::string_view n) { return e.name < n; });
  return it != all.end() && it->name == name ? &*it : nullptr;
}

const SafetensorsFile::Entry& SafetensorsFile::at(std::string_view name, DType dtype,
                                                  std::span<const int64_t> shape) const {
  const Entry* e = find(name);
  impl_->check(e != nullptr, "there is no '{}'", name);
  impl_->check(e->dtype == dtype && std::ranges::equal(e->shape, shape),
               "'{}' is another array; got {}{}, expected {}{}", name, dtype_name(e->dtype),
               shape_text(e->shape), dtype_name(dtype), shape_text(shape));
  return *e;
}

namespace {

struct Placed {
  const SafetensorsItem* item;
  size_t bytes;
};

std::vector<Placed> place(const std::string& path, std::span<const SafetensorsItem> items) {
  std::vector<Placed> order;
  std::set<std::string_view> names;
  for (const SafetensorsItem& it : items) {
    KILN_CHECK(it.name != kMetadata && names.insert(it.name).second, invalid,
               "safetensors {}: the name '{}' is reserved or used twice", path, it.name);
    size_t bytes = 0;
    KILN_CHECK(byte_size(dtype_size(it.dtype), it.shape, &bytes), invalid,
               "safetensors {}: '{}' has a bad shape {}", path, it.name, shape_text(it.shape));
    order.push_back({&it, bytes});
  }
  std::sort(order.begin(), order.end(), [](const Placed& a, const Placed& b) {
    const size_t x = dtype_size(a.item->dtype), y = dtype_size(b.item->dtype);
    return x != y ? x > y : a.item->name < b.item->name;
  });
  return order;
}

}  // namespace

void write_safetensors(const std::string& path, std::span<const SafetensorsItem> items,
                       const std::map<std::string, std::string>& metadata) {
  const std::vector<Placed> order = place(path, items);
  Json header = Json::object();
  if (!metadata.empty()) header[std::string(kMetadata)] = metadata;
  size_t at = 0;
  for (const Placed& p : order) {
    header[p.item->name] = {
        {"dtype", tag_of(p.item->dtype)}, {"shape", p.item->shape}, {"data_offsets", {at, at + p.bytes}}};
    at += p.bytes;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception& e) {
    throw Error(ErrorKind::invalid, fmt::format("safetensors {}: a name or a metadata string is not "
                                                "UTF-8; {}",
                                                path, e.what()));
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  KILN_CHECK(text.size() <= kMaxHeader, invalid, "safetensors {}: the header is too large; got {} bytes",
             path, text.size());
  AtomicFile file(path);
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  file.write(length.data(), length.size());
  file.write(text.data(), text.size());
  for (const Placed& p : order) file.write(p.item->data, p.bytes);
  file.commit();
}

}  // namespace kiln
