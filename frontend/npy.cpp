// SPDX-License-Identifier: Apache-2.0
#include "frontend/npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <set>
#include <span>

#include "frontend/mapped_file.h"
#include "frontend/ops.h"
#include "frontend/stored_type.h"
#include "frontend/zip_file.h"
#include "ir/base/atomic_file.h"

namespace kiln {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

/// What the header of an array says.
struct Header {
  const StoredType* type = nullptr;
  bool swapped = false;  ///< bytes are in the other order than here
  bool fortran = false;
  Sizes shape;
};

/// Reads one array; `what` names it in errors.
class Reader {
 public:
  Reader(std::string what, std::span<const std::byte> bytes, Loc loc)
      : what_(std::move(what)), loc_(loc), bytes_(bytes) {}
  Tensor read();

 private:
  template <typename... Args>
  void check(bool ok, ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) const {
    if (ok) return;
    throw Error(kind, fmt::format("{} ({}): {}", what_, loc_.str(),
                                  fmt::format(format, std::forward<Args>(args)...)));
  }
  std::string_view header_text();
  Header parse(std::string_view text) const;
  void parse_descr(std::string_view value, Header& h) const;
  void parse_shape(std::string_view value, Header& h) const;
  Tensor elements(const Header& h) const;

  std::string what_;
  Loc loc_;
  std::span<const std::byte> bytes_;
  size_t at_ = 0;  ///< where the elements begin
};

/// The header's dictionary. Its length has two bytes in version 1, four since.
std::string_view Reader::header_text() {
  const auto* text = reinterpret_cast<const char*>(bytes_.data());
  const std::string_view all(text, bytes_.size());
  check(all.starts_with(kMagic), ErrorKind::invalid, "not a .npy file; its first bytes are not numpy's");
  const size_t length_bytes = all.size() > 6 && all[6] == 1 ? 2 : 4, begin = 8 + length_bytes;
  check(all.size() >= begin, ErrorKind::invalid, "truncated; got {} bytes, expected at least {}", all.size(),
        begin);
  check(all[6] >= 1 && all[6] <= 3 && all[7] == 0, ErrorKind::unsupported,
        "format version {}.{}; expected 1.0, 2.0 or 3.0", static_cast<unsigned char>(all[6]),
        static_cast<unsigned char>(all[7]));
  size_t length = 0;
  for (size_t i = length_bytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(all[8 + i]);
  check(length <= all.size() - begin, ErrorKind::invalid,
        "truncated, or the header length lies; got a header of {} bytes in {}", length, all.size());
  at_ = begin + length;
  return all.substr(begin, length);
}

std::string_view trimmed(std::string_view s) {
  const size_t begin = s.find_first_not_of(" \t\r\n");
  return begin == s.npos ? std::string_view() : s.substr(begin, s.find_last_not_of(" \t\r\n") + 1 - begin);
}

/// Cuts the next piece up to a comma or colon outside brackets and quotes off `rest`.
std::string_view next_piece(std::string_view& rest, char separator) {
  int depth = 0;
  char quote = 0;
  size_t i = 0;
  for (; i < rest.size(); ++i) {
    const char c = rest[i];
    if (quote) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == separator && depth == 0) {
      break;
    } else {
      depth += (c == '(' || c == '[') - (c == ')' || c == ']');
    }
  }
  const std::string_view piece = trimmed(rest.substr(0, i));
  rest.remove_prefix(std::min(i + 1, rest.size()));
  return piece;
}

/// The text between quotes, or "".
std::string_view unquoted(std::string_view s) {
  const bool quoted = s.size() >= 2 && (s[0] == '\'' || s[0] == '"') && s.back() == s[0];
  return quoted ? s.substr(1, s.size() - 2) : std::string_view();
}

Header Reader::parse(std::string_view text) const {
  std::string_view dict = trimmed(text);
  check(dict.size() >= 2 && dict[0] == '{' && dict.back() == '}', ErrorKind::invalid,
        "the header is no dictionary; got '{}'", dict.substr(0, 100));
  std::string_view rest = dict.substr(1, dict.size() - 2);
  Header h;
  std::set<std::string_view> keys;
  while (!trimmed(rest).empty()) {
    std::string_view value = next_piece(rest, ',');
    const std::string_view key = unquoted(next_piece(value, ':'));
    value = trimmed(value);
    check(keys.insert(key).second, ErrorKind::invalid, "the header has the key '{}' twice", key);
    if (key == "descr") {
      parse_descr(value, h);
    } else if (key == "fortran_order") {
      check(value == "True" || value == "False", ErrorKind::invalid,
            "bad 'fortran_order'; got {}, expected True or False", value);
      h.fortran = value == "True";
    } else {
      check(key == "shape", ErrorKind::invalid, "the header has an unknown key '{}'", key);
      parse_shape(value, h);
    }
  }
  check(keys.size() == 3, ErrorKind::invalid, "the header needs descr, fortran_order and shape; got {}",
        dict);
  return h;
}

/// "<f4": the byte order, the kind, and the bytes of an element.
void Reader::parse_descr(std::string_view value, Header& h) const {
  const std::string_view descr = unquoted(value);
  size_t size = 0;
  bool known = descr.size() >= 3 && std::string_view("<>|=").find(descr[0]) != std::string_view::npos;
  if (known) {
    const auto [end, error] = std::from_chars(descr.data() + 2, descr.data() + descr.size(), size);
    known = error == std::errc() && end == descr.data() + descr.size();
  }
  if (known) h.type = stored_type(descr[1], size);
  const bool objects = descr.find('O') != std::string_view::npos;
  check(h.type, ErrorKind::unsupported, "elements of type {}{}; expected bool, int, uint or float", value,
        objects ? ", Python objects, which only running the file's code could make" : "");
  h.swapped = descr[0] == (std::endian::native == std::endian::little ? '>' : '<');
}

void Reader::parse_shape(std::string_view value, Header& h) const {
  bool ok = value.size() >= 2 && value[0] == '(' && value.back() == ')';
  std::string_view rest = ok ? value.substr(1, value.size() - 2) : "";
  while (ok && !trimmed(rest).empty()) {
    std::string_view number = next_piece(rest, ',');
    if (number.ends_with('L')) number.remove_suffix(1);  // by Python 2
    int64_t size = -1;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), size);
    ok = error == std::errc() && end == number.data() + number.size() && size >= 0;
    h.shape.push_back(size);
  }
  check(ok, ErrorKind::invalid, "bad 'shape'; got {}, expected a tuple of sizes", value);
}

Tensor Reader::elements(const Header& h) const {
  uint64_t count = 1, bytes = 0;
  bool fits = true;
  for (const int64_t n : h.shape)
    fits = fits && !__builtin_mul_overflow(count, static_cast<uint64_t>(n), &count);
  fits = fits && !__builtin_mul_overflow(count, h.type->size, &bytes) && bytes <= INT64_MAX;
  const size_t room = bytes_.size() - at_;
  check(fits && bytes == room, ErrorKind::invalid,
        "truncated or damaged; got {} bytes of elements, expected {} for {}[{}]", room,
        fits ? std::to_string(bytes) : "more than 63 bits", h.type->name, fmt::join(h.shape, ","));
  // Column-major is row-major with the dims the other way round.
  Sizes sizes = h.shape;
  if (h.fortran) std::reverse(sizes.begin(), sizes.end());
  Tensor t = dispatch(h.type->dtype, [&]<typename T>(T) {
    const auto values = std::make_unique<T[]>(count);
    const size_t read = h.type->read(bytes_.data() + at_, count, h.swapped, values.get());
    check(read == count, ErrorKind::invalid, "element {} is a u8 beyond {}; i64 holds no more", read,
          INT64_MAX);
    return Tensor::from_span(std::span<const T>(values.get(), count), sizes, loc_);
  });
  if (!h.fortran || sizes.size() < 2) return t;
  Sizes dims(sizes.size());
  for (size_t i = 0; i < dims.size(); ++i) dims[i] = static_cast<int64_t>(dims.size() - 1 - i);
  return permute(t, dims, loc_);
}

Tensor Reader::read() {
  const std::string_view text = header_text();
  return elements(parse(text));
}

/// numpy's name of a dtype; "" of bf16.
std::string_view descr_of(DType t) {
  constexpr std::string_view kNames[kDTypeCount] = {"|b1", "|u1", "<i4", "<i8", "<f2", "", "<f4", "<f8"};
  return kNames[static_cast<int>(t)];
}

}  // namespace

Tensor load_npy(const std::string& path, Loc loc) {
  const MappedFile file(path);
  return Reader("load_npy " + path, {file.data(), file.size()}, loc).read();
}

NamedTensors load_npz(const std::string& path, Loc loc) {
  const auto at_line = [&](const auto& read) {
    try {
      return read();
    } catch (const Error& e) {
      throw Error(e.kind(), fmt::format("load_npz ({}): {}", loc.str(), e.what()), loc);
    }
  };
  const ZipFile zip = at_line([&] { return ZipFile(path); });
  NamedTensors out;
  std::set<std::string> names;
  for (const ZipFile::Member& m : zip.members()) {
    const std::string name = m.name.ends_with(".npy") ? m.name.substr(0, m.name.size() - 4) : m.name;
    KILN_CHECK(names.insert(name).second, invalid, "load_npz {} ({}): the name '{}' occurs twice", path,
               loc.str(), name);
    const std::vector<std::byte> bytes = at_line([&] { return zip.read(m); });
    out.emplace_back(name, Reader(fmt::format("load_npz {}: '{}'", path, name), bytes, loc).read());
  }
  return out;
}

void save_npy(const Tensor& tensor, const std::string& path, Loc loc) {
  KILN_CHECK(tensor.defined(), invalid, "save_npy ({}): the tensor is undefined", loc.str());
  const std::string_view descr = descr_of(tensor.dtype());
  KILN_CHECK(!descr.empty(), unsupported,
             "save_npy ({}): numpy has no {}; got {} (try .to(kiln::DType::f32))", loc.str(),
             dtype_name(tensor.dtype()), tensor.type_str());
  const Tensor t = tensor.detach(loc).cpu(loc).contiguous(loc);
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", descr,
                                   fmt::join(t.sizes(), ", "), t.dim() == 1 ? "," : "");
  // numpy aligns elements to 64 bytes.
  header.append(63 - (kMagic.size() + 4 + header.size()) % 64, ' ');
  header += '\n';
  KILN_CHECK(header.size() <= 0xffff, unsupported, "save_npy ({}): {} dims do not fit the header", loc.str(),
             t.dim());
  AtomicFile file(path);
  const char length[] = {1, 0, static_cast<char>(header.size() & 0xff),
                         static_cast<char>(header.size() >> 8)};
  file.write(kMagic.data(), kMagic.size());
  file.write(length, sizeof length);
  file.write(header.data(), header.size());
  dispatch(t.dtype(), [&]<typename T>(T) {
    file.write(t.data_ptr<T>(loc), static_cast<size_t>(t.numel()) * sizeof(T));
  });
  file.commit();
}

}  // namespace kiln
