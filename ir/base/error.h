// SPDX-License-Identifier: Apache-2.0
// The one exception type of Kiln and the two macros that throw it.
// Must not include anything of Kiln: every other header includes this one.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <source_location>
#include <stdexcept>
#include <string>

namespace kiln {

/// Whose fault an error is, and so what a caller can do about it.
enum class ErrorKind : uint8_t {
  invalid,      ///< the caller passed something wrong: shapes, dtypes, flags, files
  unsupported,  ///< legal, but Kiln cannot do it (yet): op without derivative, dtype without kernel
  compile,      ///< generated code did not compile; the message names the dumped source
  device,       ///< a device failed or is missing; out of memory
  comm,         ///< a collective or rendezvous failed
  io,           ///< a file or the cache could not be read or written
  internal,     ///< a bug in Kiln
};

/// Name of `kind` as printed, e.g. "invalid".
const char* to_string(ErrorKind kind);

/// A place in the user's program. `file` has static storage (from std::source_location).
struct SourceLoc {
  const char* file = "";
  uint32_t line = 0;

  constexpr SourceLoc() = default;
  constexpr SourceLoc(const char* f, uint32_t l) : file(f), line(l) {}
  constexpr SourceLoc(const std::source_location& s) : file(s.file_name()), line(s.line()) {}  // NOLINT

  /// The caller's line when used as a default argument, also through nested default arguments.
  static constexpr SourceLoc current(std::source_location s = std::source_location::current()) {
    return SourceLoc(s);
  }
  /// True if this names a line.
  constexpr bool known() const { return line != 0; }
  /// "net.cpp:42" (file name without its folders), or "" if unknown.
  std::string str() const;
  bool operator==(const SourceLoc&) const = default;
};

/// Every error Kiln throws. what() is `where: what is wrong; got X, expected Y (hint)`.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message, SourceLoc loc = {})
      : std::runtime_error(message), kind_(kind), loc_(loc) {}

  /// Whose fault it is.
  ErrorKind kind() const { return kind_; }
  /// The user's line, if one is known.
  SourceLoc where() const { return loc_; }
  /// The same error, said to be in `place`; an error that names a place already keeps it.
  Error in(const std::string& place) const;

 private:
  ErrorKind kind_;
  SourceLoc loc_;
  bool placed_ = false;
};

namespace detail {
[[noreturn]] void throw_internal(const char* file, int line, const char* cond, const std::string& msg);
}  // namespace detail

}  // namespace kiln

/// Throws kiln::Error of `kind` with a fmt-formatted message when a caller's condition does not hold.
#define KILN_CHECK(cond, kind, ...)                                                    \
  do {                                                                                 \
    if (!(cond)) throw ::kiln::Error(::kiln::ErrorKind::kind, ::fmt::format(__VA_ARGS__)); \
  } while (false)

/// Throws kiln::Error(internal) when one of Kiln's own invariants does not hold.
#define KILN_ASSERT(cond, ...)                                                                     \
  do {                                                                                             \
    if (!(cond))                                                                                   \
      ::kiln::detail::throw_internal(__FILE__, __LINE__, #cond, ::fmt::format("" __VA_ARGS__));     \
  } while (false)
