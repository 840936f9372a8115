// SPDX-License-Identifier: Apache-2.0
// Reductions of a few long rows: a row is one task, which leaves most threads, or most of a GPU, without
// work. In parts, whose results are then reduced in order, each row is many.
#include <algorithm>

#include "codegen/lower_parts.h"

namespace kiln::detail {

namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kMostRows = 64, kLeastLength = 1 << 18;
constexpr int64_t kParts = 256, kPartStep = 16;  // of each row; elements that a part is a multiple of

/// Sizes of a reduction over the last dims: {rows, length}; or nothing.
std::optional<std::pair<int64_t, int64_t>> rows_of(const Graph& g, const Node& n) {
  const Shape& s = g.type(n.in[0]).shape;
  Ints dims = std::get<Ints>(n.attrs[0]);
  for (int64_t& d : dims) d += d < 0 ? static_cast<int64_t>(s.size()) : 0;
  int64_t rows = 1, length = 1;
  for (size_t d = 0; d < s.size(); ++d) {
    if (!s[d].is_const()) return {};
    const bool reduced = std::count(dims.begin(), dims.end(), static_cast<int64_t>(d)) > 0;
    if (reduced != (d + dims.size() >= s.size())) return {};
    (reduced ? length : rows) *= s[d].value();
  }
  return std::pair(rows, length);
}

/// What joins two results of the reduction.
Op joins(Op reduce) {
  if (reduce == op("sum")) return op("add");
  if (reduce == op("prod")) return op("mul");
  return reduce == op("amax") ? op("maximum") : op("minimum");
}

}  // namespace

bool is_long_row(const Graph& g, const Node& n) {
  if (n.op != op("sum") && n.op != op("prod") && n.op != op("amax") && n.op != op("amin")) return false;
  const auto sizes = rows_of(g, n);
  return sizes && sizes->first > 1 && sizes->first <= kMostRows && sizes->second >= kLeastLength;
}

// Of f32 for halves, which would be rounded for each part.
Value emit_long_row(GraphBuilder& b, const Graph& g, const Node& n, const std::vector<Value>& in) {
  const auto [rows, length] = *rows_of(g, n);
  const DType made = g.type(n.out).dtype, given = g.type(n.in[0]).dtype;
  const Value x =
      b.reshape(dtype_size(given) == 2 ? b.cast(in[0], DType::f32) : in[0], {Dim(rows), Dim(length)});
  const auto last = [&](Value v) {
    return b.emit(n.op, {v}, {Ints{static_cast<int64_t>(b.type(v).shape.size()) - 1}});
  };
  const int64_t main = length - length % (kParts * kPartStep);
  const auto columns = [&](int64_t from, int64_t to) {
    return b.emit(op("slice"), {x}, {Shape{0, from}, Shape{rows, to}, Ints{1, 1}});
  };
  const Value whole = main == length ? x : columns(0, main);
  Value out = last(last(b.reshape(whole, {Dim(rows), Dim(kParts), Dim(main / kParts)})));
  if (main != length) out = b.emit(joins(n.op), {out, last(columns(main, length))});
  return b.cast(b.reshape(out, g.type(n.out).shape), made);
}

}  // namespace kiln::detail
