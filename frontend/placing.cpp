// SPDX-License-Identifier: Apache-2.0
// Shapes in which elements stand by their index: diagonals, padding, slices replaced, one-hot rows.
#include <algorithm>
#include <new>

#include "frontend/index_detail.h"
#include "frontend/ops_detail.h"
#include "frontend/shapes.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace {
/// x with the two dims moved to the end, in order.
Tensor matrices_last(const Tensor& x, int64_t a, int64_t b, Loc loc) {
  return movedim(x, Sizes{a, b}, Sizes{-2, -1}, loc);
}
}  // namespace

Tensor diagonal(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2, Loc loc) {
  require(x, "diagonal", loc);
  offset = std::max(offset, -INT64_MAX);  // as far outside of the matrix
  KILN_CHECK(x.dim() >= 2, invalid, "diagonal ({}): got x {}, expected at least two dims", loc.str(),
             x.type_str());
  int64_t a = wrap_dim(dim1, x.dim(), "diagonal", loc), b = wrap_dim(dim2, x.dim(), "diagonal", loc);
  KILN_CHECK(a != b, invalid, "diagonal ({}): got x {} and dims {} and {}, expected two dims", loc.str(),
             x.type_str(), dim1, dim2);
  if (x.strides()[static_cast<size_t>(a)] < x.strides()[static_cast<size_t>(b)]) {
    std::swap(a, b);
    offset = -offset;
  }
  const Tensor m = matrices_last(x, a, b, loc);
  const int64_t rows = m.size(-2), columns = m.size(-1);
  const int64_t n = std::max<int64_t>(0, offset >= 0 ? std::min(rows, columns - std::min(columns, offset))
                                                     : std::min(rows + std::max(-rows, offset), columns));
  const int64_t from = n == 0 ? 0 : offset >= 0 ? offset : -offset * columns;
  return slice(flatten(m, -2, -1, loc), -1, from, n == 0 ? 0 : from + (n - 1) * (columns + 1) + 1,
               columns + 1, loc);
}

Tensor diag_embed(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2, Loc loc) {
  require(x, "diag_embed", loc);
  KILN_CHECK(x.dim() >= 1, invalid, "diag_embed ({}): got x {}, expected at least one dim", loc.str(),
             x.type_str());
  const int64_t a = wrap_dim(dim1, x.dim() + 1, "diag_embed", loc),
                b = wrap_dim(dim2, x.dim() + 1, "diag_embed", loc);
  KILN_CHECK(a != b, invalid, "diag_embed ({}): dims {} and {} are the same", loc.str(), dim1, dim2);
  const int64_t away = std::abs(std::max(offset, -INT64_MAX));
  int64_t n = 0;
  KILN_CHECK(!__builtin_add_overflow(x.size(-1), away, &n), invalid,
             "diag_embed ({}): offset {} of x {} makes a matrix of 2^63 rows or more", loc.str(), offset,
             x.type_str());
  const int64_t rank = x.dim() + 1;
  const Tensor square = shape_call("diag_embed", loc, x, {offset}, [&] {
    Sizes wide = x.sizes(), s = x.sizes();
    wide.back() = n;
    s.back() = n;
    s.push_back(n);
    wide.insert(offset >= 0 ? wide.end() : wide.end() - 1, 1);  // element i is of row i, or of column i
    Shape low(x.sizes().size(), Dim(0)), high = low;
    high.back() = away;
    const Sizes interior(x.sizes().size(), 0);
    const Tensor longer = away ? apply(op("pad"), {&x}, {low, high, interior, 0.0}) : x;
    const Tensor over = binary(op("sub"), iota(rank - 1, s), iota(rank - 2, s));
    const Tensor hit = binary(op("eq"), over, lit(over, static_cast<double>(offset)));
    return select3(hit, reshape_to(longer, wide), lit(x, 0));
  });
  return movedim(square, Sizes{-2, -1}, Sizes{a, b}, loc);
}

Tensor diag(const Tensor& x, int64_t offset, Loc loc) {
  require(x, "diag", loc);
  KILN_CHECK(x.dim() == 1 || x.dim() == 2, invalid, "diag ({}): got x {}, expected a vector or a matrix",
             loc.str(), x.type_str());
  return x.dim() == 1 ? diag_embed(x, offset, 0, 1, loc) : clone(diagonal(x, offset, 0, 1, loc), loc);
}

namespace {
/// `columns_of(i)`: the first column of row i, and one past the last. Rows outside of [first, last) have
/// none.
template <typename Columns>
Tensor triangle_indices(const char* name, int64_t first, int64_t last, Loc loc, Columns&& columns_of) {
  constexpr int64_t kMostRows = int64_t{1} << 33;  // 128 GiB of indices at least
  try {
    if (last - first > kMostRows) throw std::bad_alloc();
    std::vector<int64_t> r, c;
    for (int64_t i = first; i < last; ++i) {
      const auto [from, to] = columns_of(i);
      for (int64_t j = from; j < to; ++j) r.push_back(i), c.push_back(j);
    }
    const auto n = static_cast<int64_t>(r.size());
    r.insert(r.end(), c.begin(), c.end());
    return Tensor::from_vector(r, {2, n}, loc);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::device, fmt::format("{} ({}): out of memory: no room for the indices of {} rows",
                                               name, loc.str(), last - first));
  }
}
/// Throws: invalid, for a negative size. An offset beyond the matrix is as good as one at its edge.
int64_t offset_within(const char* name, int64_t rows, int64_t columns, int64_t offset, Loc loc) {
  KILN_CHECK(rows >= 0 && columns >= 0, invalid, "{} ({}): bad sizes [{},{}]", name, loc.str(), rows,
             columns);
  return std::clamp(offset, -rows, columns);
}
}  // namespace

Tensor tril_indices(int64_t rows, int64_t columns, int64_t offset, Loc loc) {
  const int64_t o = offset_within("tril_indices", rows, columns, offset, loc);
  const int64_t first = columns == 0 ? rows : std::min(rows, std::max<int64_t>(0, -o));
  return triangle_indices("tril_indices", first, rows, loc, [&](int64_t i) {
    return std::pair<int64_t, int64_t>{0, std::min(columns, i + o + 1)};
  });
}
Tensor triu_indices(int64_t rows, int64_t columns, int64_t offset, Loc loc) {
  const int64_t o = offset_within("triu_indices", rows, columns, offset, loc);
  const int64_t last = std::clamp<int64_t>(columns - o, 0, rows);
  return triangle_indices("triu_indices", 0, last, loc, [&](int64_t i) {
    return std::pair<int64_t, int64_t>{std::max<int64_t>(0, i + o), columns};
  });
}

Tensor slice_scatter(const Tensor& x, const Tensor& src, int64_t dim, int64_t start, int64_t end,
                     int64_t step, Loc loc) {
  require(x, "slice_scatter", loc);
  require(src, "slice_scatter", loc, "src");
  const int64_t d = wrap_dim(dim, x.dim(), "slice_scatter", loc);
  KILN_CHECK(x.dim() > 0 && step > 0, invalid,
             "slice_scatter ({}): got x {} and step {}, expected at least one dim and step >= 1", loc.str(),
             x.type_str(), step);
  const int64_t size = x.size(d);
  const auto limit = [size](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size); };
  const int64_t from = limit(start), stop = std::max(from, limit(end)), by = std::min(step, size + 1),
                n = (stop - from + by - 1) / by;
  Sizes expected = x.sizes();
  expected[static_cast<size_t>(d)] = n;
  KILN_CHECK(src.sizes() == expected && src.dtype() == x.dtype(), invalid,
             "slice_scatter ({}): got src {} for x {}, expected {}[{}]", loc.str(), src.type_str(),
             x.type_str(), dtype_name(x.dtype()), fmt::join(expected, ","));
  return call("slice_scatter", loc, {&x, &src}, {d, from, stop, by}, {}, [&](const auto&) {
    Shape low(x.sizes().size(), Dim(0)), high = low;
    Sizes interior(x.sizes().size(), 0);
    low[static_cast<size_t>(d)] = n ? from : 0;
    high[static_cast<size_t>(d)] = n ? size - from - (n - 1) * by - 1 : size;
    interior[static_cast<size_t>(d)] = by - 1;
    const Tensor all = constant_like(cast_to(src, DType::boolean), 1);
    const Tensor mask = apply(op("pad"), {&all}, {low, high, interior, 0.0});
    return select3(mask, apply(op("pad"), {&src}, {low, high, interior, 0.0}), x);
  });
}

Tensor select_scatter(const Tensor& x, const Tensor& src, int64_t dim, int64_t index, Loc loc) {
  require(x, "select_scatter", loc);
  require(src, "select_scatter", loc, "src");
  const int64_t n = size_along(x, dim, "select_scatter", loc), i = index < 0 ? index + n : index;
  KILN_CHECK(i >= 0 && i < n, invalid, "select_scatter ({}): index {} is out of range for dim {} of x {}",
             loc.str(), index, dim, x.type_str());
  Sizes expected = x.sizes();
  expected.erase(expected.begin() + wrap_dim(dim, x.dim(), "select_scatter", loc));
  KILN_CHECK(src.sizes() == expected && src.dtype() == x.dtype(), invalid,
             "select_scatter ({}): got src {} for x {}, expected {}[{}]", loc.str(), src.type_str(),
             x.type_str(), dtype_name(x.dtype()), fmt::join(expected, ","));
  return slice_scatter(x, unsqueeze(src, wrap_dim(dim, x.dim(), "select_scatter", loc), loc), dim, i, i + 1,
                       1, loc);
}

Tensor diff(const Tensor& x, int64_t n, int64_t dim, Loc loc) {
  require(x, "diff", loc);
  KILN_CHECK(n >= 0 && x.dim() > 0, invalid,
             "diff ({}): got x {} and n {}, expected at least one dim and n >= 0", loc.str(), x.type_str(),
             n);
  Tensor y = x;
  for (int64_t i = 0; i < n && size_along(y, dim, "diff", loc) > 0; ++i) {
    const Tensor after = slice(y, dim, 1, INT64_MAX, 1, loc), before = slice(y, dim, 0, -1, 1, loc);
    y = x.dtype() == DType::boolean ? ne(TensorArg(after, loc), TensorArg(before, loc))
                                    : sub(TensorArg(after, loc), TensorArg(before, loc));
  }
  return y;
}

Tensor as_strided(const Tensor& x, const Sizes& sizes, const Sizes& strides, int64_t offset, Loc loc) {
  require(x, "as_strided", loc);
  KILN_CHECK(sizes.size() == strides.size() && offset >= 0, invalid,
             "as_strided ({}): got {} sizes, {} strides and offset {}", loc.str(), sizes.size(),
             strides.size(), offset);
  KILN_CHECK(x.is_contiguous(), invalid,
             "as_strided ({}): x {} of strides [{}] is not contiguous (use contiguous())", loc.str(),
             x.type_str(), fmt::join(x.strides(), ","));
  const int64_t count = count_of(sizes, "as_strided", loc);
  int64_t last = offset;
  bool fits = true;
  for (size_t i = 0; i < sizes.size() && count > 0; ++i) {
    int64_t way = 0;
    fits = fits && strides[i] >= 0 && !__builtin_mul_overflow(sizes[i] - 1, strides[i], &way) &&
           !__builtin_add_overflow(last, way, &last);
  }
  KILN_CHECK(fits && (count == 0 || last < x.numel()), invalid,
             "as_strided ({}): sizes [{}] of strides [{}] from {} on reach outside x {}", loc.str(),
             fmt::join(sizes, ","), fmt::join(strides, ","), offset, x.type_str());
  Sizes ints = sizes;
  ints.insert(ints.end(), strides.begin(), strides.end());
  ints.push_back(offset);
  return shape_call("as_strided", loc, x, ints, [&] {
    Tensor at = lit(iota(0, {1}), static_cast<double>(offset));
    for (size_t i = 0; i < sizes.size(); ++i) {
      const Tensor index = iota(static_cast<int64_t>(i), sizes);
      at = add2(at, mul2(index, lit(index, static_cast<double>(strides[i]))));
    }
    const Tensor flat = reshape_to(x, {x.numel()});
    return apply(op("take"), {&flat, &at}, {int64_t{0}});
  });
}

Tensor take_along_dim(const Tensor& x, const Tensor& index, std::optional<int64_t> dim, Loc loc) {
  require(x, "take_along_dim", loc);
  require_index(index, "take_along_dim", loc);
  if (!dim) return gather(flatten(x, 0, -1, loc), 0, flatten(index, 0, -1, loc), loc);
  KILN_CHECK(x.dim() == index.dim(), invalid,
             "take_along_dim ({}): got x {} and index {}, expected as many dims", loc.str(), x.type_str(),
             index.type_str());
  const int64_t d = wrap_dim(*dim, x.dim(), "take_along_dim", loc);
  Sizes wide = x.sizes(), places = index.sizes();
  for (size_t i = 0; i < wide.size(); ++i) {
    if (static_cast<int64_t>(i) == d) continue;
    KILN_CHECK(wide[i] == places[i] || wide[i] == 1 || places[i] == 1, invalid,
               "take_along_dim ({}): shapes do not broadcast beside dim {}; got x {} and index {}", loc.str(),
               *dim, x.type_str(), index.type_str());
    wide[i] = places[i] = wide[i] == 1 ? places[i] : wide[i];
  }
  return gather(expand(x, wide, loc), d, expand(index, places, loc), loc);
}

namespace {
void require_integers(const Tensor& x, const char* name, Loc loc, const char* arg) {
  require(x, name, loc, arg);
  KILN_CHECK(!is_floating(x.dtype()) && x.dtype() != DType::boolean, invalid,
             "{} ({}): got {} {}, expected integers (cast it with to())", name, loc.str(), arg, x.type_str());
}
/// One more than the largest, 0 of nothing: a host read.
int64_t numbers_used(const Tensor& x, const char* name, const char* arg, Loc loc) {
  if (x.numel() == 0) return 0;
  const auto largest = amax(x, {}, false, loc).item<int64_t>(loc);
  KILN_CHECK(largest < INT64_MAX, invalid, "{} ({}): {} {} holds {}, one more is no size", name, loc.str(),
             arg, x.type_str(), largest);
  return largest + 1;
}
}  // namespace

Tensor one_hot(const Tensor& index, int64_t classes, Loc loc) {
  require_integers(index, "one_hot", loc, "index");
  KILN_CHECK(classes >= -1, invalid, "one_hot ({}): classes is {}, expected at least 0, or -1", loc.str(),
             classes);
  KILN_CHECK(classes > 0 || index.numel() > 0, invalid,
             "one_hot ({}): how many classes index {} has is not known (give classes)", loc.str(),
             index.type_str());
  const int64_t n =
      classes >= 0 ? classes : std::max<int64_t>(1, numbers_used(index, "one_hot", "index", loc));
  return shape_call("one_hot", loc, index, {n}, [&] {
    check_indices(index, n, "one_hot", loc);
    Sizes column = index.sizes(), rows = index.sizes();
    column.push_back(1);
    rows.push_back(n);
    const Tensor at = reshape_to(cast_to(index, DType::i64), column);
    return cast_to(binary(op("eq"), iota(index.dim(), rows), at), DType::i64);
  });
}

Tensor bincount(const Tensor& x, const Tensor& weights, int64_t minlength, Loc loc) {
  require_integers(x, "bincount", loc, "x");
  KILN_CHECK(x.dim() == 1 && minlength >= 0, invalid,
             "bincount ({}): got x {} and minlength {}, expected a vector and none below 0", loc.str(),
             x.type_str(), minlength);
  KILN_CHECK(!weights.defined() || weights.sizes() == x.sizes(), invalid,
             "bincount ({}): got weights {} for x {}, expected one for each", loc.str(), weights.type_str(),
             x.type_str());
  const int64_t n = std::max(minlength, numbers_used(x, "bincount", "x", loc));
  const Tensor* operands[] = {&x, &weights};
  return call({"bincount", loc, operands, {&n, 1}, {}}, [&](const auto&) {
    check_indices(x, std::max<int64_t>(n, 1), "bincount", loc, "x");
    const Tensor index = cast_to(x, DType::i64);
    Tensor each = constant_like(index, 1);
    if (weights.defined()) each = is_floating(weights.dtype()) ? weights : cast_to(weights, DType::f64);
    const Tensor none = expand_to(lit(each, 0), {n});
    return apply(op("index_add"), {&none, &index, &each}, {int64_t{0}});
  });
}

}  // namespace kiln
