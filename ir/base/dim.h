// SPDX-License-Identifier: Apache-2.0
// Dim: a size that is an integer or a polynomial over named symbols, in one canonical form.
// Shape rules, index expressions and plans all work on Dims; a static program is the case of constants.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/error.h"

namespace kiln {

/// A size that does not fit in 64 bits: invalid. It knows no op; who builds or runs one names it.
class SizeOverflow : public Error {
 public:
  explicit SizeOverflow(const std::string& message) : Error(ErrorKind::invalid, message) {}
};

/// An integer-valued expression over symbols: constants, symbols, +, -, *, floor division, modulo, min, max.
/// Equal polynomials compare equal, whatever way they were built.
class Dim {
 public:
  struct Expr;
  /// A constant.
  Dim(int64_t value = 0) : value_(value) {}  // NOLINT: integers are dims
  Dim(int value) : value_(value) {}          // NOLINT
  /// A named size, e.g. Dim::symbol("B").
  static Dim symbol(std::string_view name);

  bool is_const() const { return expr_ == nullptr; }
  /// The constant's value. Throws: internal, if symbolic.
  int64_t value() const;
  bool is(int64_t v) const { return is_const() && value_ == v; }

  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);
  /// Floor division; exact when b divides every coefficient of a. Throws: invalid, on a zero divisor.
  friend Dim floordiv(const Dim& a, const Dim& b);
  friend Dim mod(const Dim& a, const Dim& b);
  friend Dim ceildiv(const Dim& a, const Dim& b) { return floordiv(a + b - Dim(1), b); }
  friend Dim min(const Dim& a, const Dim& b);
  friend Dim max(const Dim& a, const Dim& b);
  friend bool operator==(const Dim& a, const Dim& b);

  /// Value under an assignment of every symbol. Throws: internal, if one is missing.
  int64_t eval(const std::map<std::string, int64_t, std::less<>>& symbols) const;
  /// Adds the names of the symbols used to `out`.
  void collect_symbols(std::vector<std::string>& out) const;
  /// Canonical text, e.g. "2*B + 1"; parse_dim reads it back exactly.
  std::string str() const;

 private:
  friend struct DimOps;
  int64_t value_ = 0;
  std::shared_ptr<const Expr> expr_;
};

/// Inverse of Dim::str(). Throws: invalid, with the position of the fault.
Dim parse_dim(std::string_view text);

using Shape = std::vector<Dim>;

/// Whether `d` is a multiple of n for all values of its symbols.
bool divisible(const Dim& d, int64_t n);
/// Product of the dims; 1 for a 0-d shape.
Dim numel(const Shape& shape);
/// "[B, 784]" without spaces: "[B,784]".
std::string shape_str(const Shape& shape);

}  // namespace kiln
