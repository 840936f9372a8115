// SPDX-License-Identifier: Apache-2.0
// Shapes made of the views of ops.h: dims, pieces, joins, repetition.
#include "frontend/shapes.h"

#include <algorithm>
#include <numeric>

#include "frontend/ops_detail.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

Tensor squeeze(const Tensor& x, Loc loc) {
  require(x, "squeeze", loc);
  Sizes s = x.sizes();
  std::erase(s, 1);
  return s == x.sizes() ? x : view(x, s, loc);
}

Tensor squeeze(const Tensor& x, const Sizes& dims, Loc loc) {
  require(x, "squeeze", loc);
  if (dims.empty()) return x;
  const Sizes wrapped = wrap_dims(dims, x.dim(), "squeeze", loc);
  Sizes s;
  for (int64_t d = 0; d < x.dim(); ++d)
    if (x.size(d) != 1 || std::find(wrapped.begin(), wrapped.end(), d) == wrapped.end())
      s.push_back(x.size(d));
  return s == x.sizes() ? x : view(x, s, loc);
}

Tensor movedim(const Tensor& x, const Sizes& source, const Sizes& destination, Loc loc) {
  require(x, "movedim", loc);
  KILN_CHECK(source.size() == destination.size(), invalid,
             "movedim ({}): got {} source and {} destination dims", loc.str(), source.size(),
             destination.size());
  if (source.empty()) return x;
  wrap_dims(source, x.dim(), "movedim", loc);
  wrap_dims(destination, x.dim(), "movedim", loc);
  Sizes order(static_cast<size_t>(x.dim()), -1), rest(order.size());
  std::iota(rest.begin(), rest.end(), 0);
  for (size_t i = 0; i < source.size() && x.dim() > 0; ++i) {
    const int64_t from = wrap_dim(source[i], x.dim(), "movedim", loc);
    order[static_cast<size_t>(wrap_dim(destination[i], x.dim(), "movedim", loc))] = from;
    std::erase(rest, from);
  }
  size_t next = 0;
  for (int64_t& d : order)
    if (d < 0) d = rest[next++];
  return permute(x, order, loc);
}
Tensor movedim(const Tensor& x, int64_t source, int64_t destination, Loc loc) {
  return movedim(x, Sizes{source}, Sizes{destination}, loc);
}

Tensor swapaxes(const Tensor& x, int64_t a, int64_t b, Loc loc) {
  require(x, "swapaxes", loc);
  return transpose(x, a, b, loc);
}

Tensor unflatten(const Tensor& x, int64_t dim, const Sizes& sizes, Loc loc) {
  require(x, "unflatten", loc);
  const int64_t d = wrap_dim(dim, x.dim(), "unflatten", loc);
  KILN_CHECK(x.dim() > 0 && !sizes.empty(), invalid, "unflatten ({}): got x {} and {} sizes", loc.str(),
             x.type_str(), sizes.size());
  int64_t known = 1;
  size_t unknown = sizes.size();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == -1 && unknown == sizes.size()) unknown = i;
    else
      KILN_CHECK(sizes[i] >= 0 && !__builtin_mul_overflow(known, sizes[i], &known), invalid,
                 "unflatten ({}): bad sizes [{}]", loc.str(), fmt::join(sizes, ","));
  }
  const int64_t n = x.size(d);
  const bool fits = unknown == sizes.size() ? known == n : known > 0 && n % known == 0;
  KILN_CHECK(fits, invalid, "unflatten ({}): dim {} of x {} is not [{}]", loc.str(), dim, x.type_str(),
             fmt::join(sizes, ","));
  Sizes s(x.sizes().begin(), x.sizes().begin() + d);
  s.insert(s.end(), sizes.begin(), sizes.end());
  if (unknown < sizes.size()) s[static_cast<size_t>(d) + unknown] = n / known;
  s.insert(s.end(), x.sizes().begin() + d + 1, x.sizes().end());
  return view(x, s, loc);
}

namespace {
void check_expands(const Tensor& x, const Sizes& sizes, const char* name, const std::string& to, Loc loc) {
  bool fits = x.sizes().size() <= sizes.size();
  for (size_t k = 1; fits && k <= x.sizes().size(); ++k) {
    const int64_t n = x.sizes()[x.sizes().size() - k];
    fits = n == 1 || n == sizes[sizes.size() - k];
  }
  KILN_CHECK(fits, invalid, "{} ({}): x {} does not expand to {}", name, loc.str(), x.type_str(), to);
}
}  // namespace

Tensor expand_as(const Tensor& x, const Tensor& like, Loc loc) {
  require(x, "expand_as", loc);
  require(like, "expand_as", loc, "like");
  check_expands(x, like.sizes(), "expand_as", "like " + like.type_str(), loc);
  return expand(x, like.sizes(), loc);
}
Tensor view_as(const Tensor& x, const Tensor& like, Loc loc) {
  require(x, "view_as", loc);
  require(like, "view_as", loc, "like");
  KILN_CHECK(x.numel() == like.numel(), invalid,
             "view_as ({}): got x {} and like {}, expected as many elements", loc.str(), x.type_str(),
             like.type_str());
  return view(x, like.sizes(), loc);
}
Tensor broadcast_to(const Tensor& x, const Sizes& sizes, Loc loc) {
  require(x, "broadcast_to", loc);
  if (std::find(sizes.begin(), sizes.end(), -1) == sizes.end())
    check_expands(x, sizes, "broadcast_to", fmt::format("[{}]", fmt::join(sizes, ",")), loc);
  return expand(x, sizes, loc);
}

std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& tensors, Loc loc) {
  require_all(tensors, "broadcast_tensors", loc);
  for (size_t i = 0; i < tensors.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const std::string first = fmt::format("tensors[{}]", j), second = fmt::format("tensors[{}]", i);
      require_broadcast({{&tensors[j], first.c_str()}, {&tensors[i], second.c_str()}}, "broadcast_tensors",
                        loc);
    }
  Tensor all = tensors[0];
  for (const Tensor& x : tensors) all = expand(all, broadcast_shapes(all, x, "broadcast_tensors", loc), loc);
  std::vector<Tensor> out;
  for (const Tensor& x : tensors) out.push_back(expand(x, all.sizes(), loc));
  return out;
}

Tensor atleast_1d(const Tensor& x, Loc loc) {
  require(x, "atleast_1d", loc);
  return x.dim() == 0 ? view(x, {1}, loc) : x;
}
Tensor atleast_2d(const Tensor& x, Loc loc) {
  require(x, "atleast_2d", loc);
  return x.dim() >= 2 ? x : view(x, {1, x.numel()}, loc);
}
Tensor atleast_3d(const Tensor& x, Loc loc) {
  require(x, "atleast_3d", loc);
  if (x.dim() >= 3) return x;
  return x.dim() == 2 ? unsqueeze(x, 2, loc) : view(x, {1, x.numel(), 1}, loc);
}

std::vector<Tensor> split_with_sizes(const Tensor& x, const Sizes& sizes, int64_t dim, Loc loc) {
  require(x, "split_with_sizes", loc);
  const int64_t n = size_along(x, dim, "split_with_sizes", loc);
  int64_t total = 0;
  bool fits = true;
  for (int64_t s : sizes) fits = fits && s >= 0 && !__builtin_add_overflow(total, s, &total);
  KILN_CHECK(fits && total == n, invalid,
             "split_with_sizes ({}): sizes [{}] do not add up to {}, dim {} of x {}", loc.str(),
             fmt::join(sizes, ","), n, dim, x.type_str());
  std::vector<Tensor> parts;
  int64_t at = 0;
  for (int64_t s : sizes) {
    parts.push_back(slice(x, dim, at, at + s, 1, loc));
    at += s;
  }
  return parts;
}

std::vector<Tensor> tensor_split(const Tensor& x, int64_t sections, int64_t dim, Loc loc) {
  require(x, "tensor_split", loc);
  KILN_CHECK(sections > 0, invalid, "tensor_split ({}): {} sections, expected at least one", loc.str(),
             sections);
  check_pieces(sections, "tensor_split", loc);
  const int64_t n = size_along(x, dim, "tensor_split", loc);
  std::vector<Tensor> parts;
  int64_t at = 0;
  for (int64_t i = 0; i < sections; ++i) {
    const int64_t size = n / sections + (i < n % sections);
    parts.push_back(slice(x, dim, at, at + size, 1, loc));
    at += size;
  }
  return parts;
}

std::vector<Tensor> tensor_split_at(const Tensor& x, const Sizes& indices, int64_t dim, Loc loc) {
  require(x, "tensor_split_at", loc);
  size_along(x, dim, "tensor_split_at", loc);
  std::vector<Tensor> parts;
  int64_t from = 0;
  for (int64_t i : indices) {
    parts.push_back(slice(x, dim, from, i, 1, loc));
    from = i;
  }
  parts.push_back(slice(x, dim, from, INT64_MAX, 1, loc));
  return parts;
}

std::vector<Tensor> unbind(const Tensor& x, int64_t dim, Loc loc) {
  require(x, "unbind", loc);
  const int64_t n = size_along(x, dim, "unbind", loc);
  check_pieces(n, "unbind", loc);
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < n; ++i) parts.push_back(select(x, dim, i, loc));
  return parts;
}

namespace {
template <typename F>
std::vector<Tensor> each(const std::vector<Tensor>& tensors, const char* name, Loc loc, F&& f) {
  require_all(tensors, name, loc);
  std::vector<Tensor> out;
  for (const Tensor& x : tensors) out.push_back(f(x, loc));
  return out;
}
}  // namespace

Tensor hstack(const std::vector<Tensor>& tensors, Loc loc) {
  const std::vector<Tensor> parts = each(tensors, "hstack", loc, atleast_1d);
  return detail::cat("hstack", parts, tensors, parts[0].dim() == 1 ? 0 : 1, loc);
}
Tensor vstack(const std::vector<Tensor>& tensors, Loc loc) {
  return detail::cat("vstack", each(tensors, "vstack", loc, atleast_2d), tensors, 0, loc);
}
Tensor dstack(const std::vector<Tensor>& tensors, Loc loc) {
  return detail::cat("dstack", each(tensors, "dstack", loc, atleast_3d), tensors, 2, loc);
}

std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, MeshIndexing indexing, Loc loc) {
  require_all(tensors, "meshgrid", loc);
  const bool swapped = indexing == MeshIndexing::xy && tensors.size() >= 2;
  Sizes grid;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& x = tensors[i];
    KILN_CHECK(x.dim() <= 1 && x.dtype() == tensors[0].dtype(), invalid,
               "meshgrid ({}): got tensors[{}] {} beside tensors[0] {}, expected vectors of one dtype",
               loc.str(), i, x.type_str(), tensors[0].type_str());
    grid.push_back(x.numel());
  }
  if (swapped) std::swap(grid[0], grid[1]);
  std::vector<Tensor> out;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Sizes s(grid.size(), 1);
    s[swapped && i < 2 ? 1 - i : i] = tensors[i].numel();
    out.push_back(expand(view(tensors[i], s, loc), grid, loc));
  }
  return out;
}

Tensor repeat(const Tensor& x, const Sizes& repeats, Loc loc) {
  require(x, "repeat", loc);
  const auto lead = static_cast<int64_t>(repeats.size()) - x.dim();
  bool fits = lead >= 0;
  for (int64_t r : repeats) fits = fits && r >= 0;
  KILN_CHECK(fits, invalid, "repeat ({}): got repeats [{}] for x {}, expected one for each dim, none below 0",
             loc.str(), fmt::join(repeats, ","), x.type_str());
  Sizes apart, wide, joined;
  for (size_t i = 0; i < repeats.size(); ++i) {
    const int64_t from = static_cast<int64_t>(i) - lead, n = from >= 0 ? x.size(from) : 1;
    apart.insert(apart.end(), {1, n});
    wide.insert(wide.end(), {repeats[i], n});
    int64_t size = 0;
    KILN_CHECK(!__builtin_mul_overflow(repeats[i], n, &size), invalid, "repeat ({}): bad repeats [{}]",
               loc.str(), fmt::join(repeats, ","));
    joined.push_back(size);
  }
  count_of(joined, "repeat", loc);
  return shape_call("repeat", loc, x, repeats,
                    [&] { return copied(reshape_to(expand_to(reshape_to(x, apart), wide), joined)); });
}

Tensor tile(const Tensor& x, const Sizes& repeats, Loc loc) {
  require(x, "tile", loc);
  Sizes all = repeats;
  while (static_cast<int64_t>(all.size()) < x.dim()) all.insert(all.begin(), 1);
  return repeat(x, all, loc);
}

Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim, Loc loc) {
  require(x, "repeat_interleave", loc);
  KILN_CHECK(repeats >= 0, invalid, "repeat_interleave ({}): {} repeats, expected none below 0", loc.str(),
             repeats);
  if (!dim) return repeat_interleave(flatten(x, 0, -1, loc), repeats, 0, loc);
  const int64_t d = wrap_dim(*dim, x.dim(), "repeat_interleave", loc);
  Sizes apart = x.sizes(), joined = x.sizes();
  if (apart.empty()) apart = joined = {1};
  KILN_CHECK(
      !__builtin_mul_overflow(joined[static_cast<size_t>(d)], repeats, &joined[static_cast<size_t>(d)]),
      invalid, "repeat_interleave ({}): {} repeats of x {} are too many", loc.str(), repeats, x.type_str());
  count_of(joined, "repeat_interleave", loc);
  apart.insert(apart.begin() + d + 1, 1);
  Sizes wide = apart;
  wide[static_cast<size_t>(d) + 1] = repeats;
  return shape_call("repeat_interleave", loc, x, {d, repeats},
                    [&] { return copied(reshape_to(expand_to(reshape_to(x, apart), wide), joined)); });
}

Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, std::optional<int64_t> dim, Loc loc) {
  require(x, "repeat_interleave", loc);
  require(repeats, "repeat_interleave", loc, "repeats");
  if (!dim) return repeat_interleave(flatten(x, 0, -1, loc), repeats, 0, loc);
  const int64_t n = size_along(x, *dim, "repeat_interleave", loc);
  KILN_CHECK(!is_floating(repeats.dtype()) && repeats.dtype() != DType::boolean && repeats.dim() <= 1 &&
                 (repeats.numel() == n || repeats.numel() == 1),
             invalid,
             "repeat_interleave ({}): got repeats {} for dim {} of x {}, expected one integer for each",
             loc.str(), repeats.type_str(), *dim, x.type_str());
  const std::vector<int64_t> counts = to(repeats.detach(loc), DType::i64, loc).to_vector<int64_t>(loc);
  const auto count = [&](int64_t i) { return counts[counts.size() == 1 ? 0 : static_cast<size_t>(i)]; };
  int64_t total = 0;
  for (int64_t i = 0; i < n; ++i) {
    KILN_CHECK(count(i) >= 0, invalid, "repeat_interleave ({}): {} repeats, expected none below 0", loc.str(),
               count(i));
    KILN_CHECK(!__builtin_add_overflow(total, count(i), &total), invalid,
               "repeat_interleave ({}): the repeats of x {} are too many", loc.str(), x.type_str());
  }
  const Tensor at = empty({total}, {DType::i64, false, Device::cpu()}, loc);
  int64_t* place = at.data_ptr<int64_t>(loc);
  for (int64_t i = 0; i < n; ++i) place = std::fill_n(place, count(i), i);
  return index_select(x, *dim, at.device() == x.device() ? at : at.to(x.device(), loc), loc);
}

Tensor roll(const Tensor& x, const Sizes& shifts, const Sizes& dims, Loc loc) {
  require(x, "roll", loc);
  if (dims.empty()) {
    KILN_CHECK(shifts.size() == 1, invalid, "roll ({}): got {} shifts and no dims, expected one", loc.str(),
               shifts.size());
    return reshape(roll(flatten(x, 0, -1, loc), shifts, {0}, loc), x.sizes(), loc);
  }
  KILN_CHECK(shifts.size() == dims.size(), invalid, "roll ({}): got {} shifts for {} dims", loc.str(),
             shifts.size(), dims.size());
  KILN_CHECK(x.dim() > 0, invalid, "roll ({}): got x {}, expected at least one dim", loc.str(), x.type_str());
  Sizes ints = shifts;
  for (int64_t d : dims) ints.push_back(wrap_dim(d, x.dim(), "roll", loc));
  return shape_call("roll", loc, x, ints, [&] {
    Tensor y = x;
    for (size_t i = 0; i < dims.size(); ++i) {
      const int64_t n = x.size(dims[i]), by = n == 0 ? 0 : ((shifts[i] % n) + n) % n;
      if (by == 0) continue;
      y = cat({slice(y, dims[i], n - by, n, 1, loc), slice(y, dims[i], 0, n - by, 1, loc)}, dims[i], loc);
    }
    return y.impl() == x.impl() ? copied(x) : y;
  });
}

Tensor rot90(const Tensor& x, int64_t k, const Sizes& dims, Loc loc) {
  require(x, "rot90", loc);
  KILN_CHECK(dims.size() == 2 && x.dim() >= 2, invalid,
             "rot90 ({}): got x {} and {} dims, expected at least two dims and two of them", loc.str(),
             x.type_str(), dims.size());
  const int64_t a = wrap_dim(dims[0], x.dim(), "rot90", loc), b = wrap_dim(dims[1], x.dim(), "rot90", loc);
  KILN_CHECK(a != b, invalid, "rot90 ({}): dim {} is given twice", loc.str(), dims[0]);
  switch (((k % 4) + 4) % 4) {
    case 1: return transpose(flip(x, {b}, loc), a, b, loc);
    case 2: return flip(x, {a, b}, loc);
    case 3: return transpose(flip(x, {a}, loc), a, b, loc);
    default: return clone(x, loc);
  }
}

}  // namespace kiln
