// SPDX-License-Identifier: Apache-2.0
#include "frontend/ops_index.h"

#include <algorithm>
#include <limits>

#include "frontend/index_detail.h"
#include "frontend/ops_sort.h"
#include "frontend/window_detail.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace {

using Ints = std::vector<int64_t>;

/// The index as i64 from 0 to size - 1. Throws where one is not in [-size, size).
Tensor wrapped(const Tensor& index, int64_t size, const char* name, Loc loc, const char* arg = "index") {
  const Tensor i = cast_to(index, DType::i64);
  const Tensor bad =
      binary(op("logical_or"), binary(op("lt"), i, number(i, -size)), binary(op("ge"), i, number(i, size)));
  check_elements(i, bad, size, name, loc, arg, fmt::format("{} to {}", -size, size - 1));
  return select3(binary(op("lt"), i, number(i, 0)), add2(i, number(i, size)), i);
}

// --- indexing ---

/// A tensor of integers that indexes a dim, and what its argument is called.
struct DimIndex {
  int64_t dim;
  Tensor index;
  std::string arg;
};
/// x after its numbers, slices and new dims, with the tensors by the dims they index.
struct Basic {
  Tensor view;
  std::vector<DimIndex> tensors;  ///< dims ascending
};

/// Dims of x that an index stands for.
int64_t width(const TensorIndex& i) {
  if (std::holds_alternative<NewDim>(i.v) || std::holds_alternative<Ellipsis>(i.v)) return 0;
  const auto* t = std::get_if<Tensor>(&i.v);
  return t && t->defined() && t->dtype() == DType::boolean ? t->dim() : 1;
}

/// The places where a mask over dims [dim, dim + rank) is set, one tensor a dim.
void add_mask(Basic& b, int64_t dim, const Tensor& mask, const std::string& arg, const char* name, Loc loc) {
  KILN_CHECK(mask.dim() > 0, invalid, "{} ({}): got mask {} {}, expected at least one dim", name, loc.str(),
             arg, mask.type_str());
  for (int64_t d = 0; d < mask.dim(); ++d)
    KILN_CHECK(mask.size(d) == b.view.size(dim + d), invalid,
               "{} ({}): mask {} {} does not fit dims {} to {} of x {}", name, loc.str(), arg,
               mask.type_str(), dim, dim + mask.dim() - 1, b.view.type_str());
  const Tensor places = nonzero(mask, loc);
  for (int64_t d = 0; d < mask.dim(); ++d) b.tensors.push_back({dim + d, select(places, 1, d, loc), arg});
}

Basic basic_part(const Tensor& x, const TensorIndices& indices, const char* name, Loc loc) {
  require(x, name, loc);
  int64_t used = 0;
  for (const TensorIndex& i : indices) used += width(i);
  KILN_CHECK(used <= x.dim(), invalid, "{} ({}): too many indices; got {} for x {}", name, loc.str(), used,
             x.type_str());
  Basic b{x, {}};
  int64_t dim = 0;
  bool seen = false;
  for (const TensorIndex& i : indices) {
    if (const auto* at = std::get_if<int64_t>(&i.v)) {
      b.view = select(b.view, dim, *at, loc);
    } else if (const auto* s = std::get_if<Slice>(&i.v)) {
      constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
      b.view = slice(b.view, dim++, s->begin.value_or(0), s->end.value_or(kEnd), s->step, loc);
    } else if (std::holds_alternative<Ellipsis>(i.v)) {
      KILN_CHECK(!seen, invalid, "{} ({}): more than one Ellipsis in indices", name, loc.str());
      seen = true;
      dim += x.dim() - used;
    } else if (std::holds_alternative<NewDim>(i.v)) {
      b.view = unsqueeze(b.view, dim++, loc);
    } else {
      const Tensor& t = std::get<Tensor>(i.v);
      const std::string arg = fmt::format("indices[{}]", &i - indices.data());
      require(t, name, loc, arg.c_str());
      if (t.dtype() == DType::boolean) {
        add_mask(b, dim, t, arg, name, loc);
        dim += t.dim();
        continue;
      }
      require_index(t, name, loc, arg.c_str());
      b.tensors.push_back({dim++, t, arg});
    }
  }
  return b;
}

/// How the tensors of an index read x: the dims they index go to the front and become one.
struct Gathering {
  Ints order;     ///< of x's dims: indexed ones first
  Ints indexed;   ///< their sizes
  Sizes rest;     ///< the other sizes
  Sizes shape;    ///< of the index
  int64_t place;  ///< where the index's dims stand in the result
};
Gathering gathering_of(const Tensor& x, const std::vector<DimIndex>& tensors, const char* name, Loc loc) {
  Gathering p;
  for (const auto& [dim, t, arg] : tensors) {
    p.order.push_back(dim);
    p.indexed.push_back(x.size(dim));
    Tensor joined = t;
    if (p.shape.empty() && &t == &tensors[0].index) p.shape = t.sizes();
    else {
      const size_t rank = std::max(p.shape.size(), t.sizes().size());
      Sizes s(rank);
      for (size_t k = 1; k <= rank; ++k) {
        const int64_t a = k <= p.shape.size() ? p.shape[p.shape.size() - k] : 1;
        const int64_t b = k <= t.sizes().size() ? t.sizes()[t.sizes().size() - k] : 1;
        KILN_CHECK(a == b || a == 1 || b == 1, invalid,
                   "{} ({}): indices do not broadcast; got {} {} beside [{}]", name, loc.str(), arg,
                   t.type_str(), fmt::join(p.shape, ","));
        s[rank - k] = a == 1 ? b : a;
      }
      p.shape = s;
    }
  }
  const bool together = p.order.back() - p.order.front() + 1 == static_cast<int64_t>(p.order.size());
  p.place = together ? p.order.front() : 0;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (std::find(p.order.begin(), p.order.begin() + static_cast<ptrdiff_t>(tensors.size()), d) !=
        p.order.begin() + static_cast<ptrdiff_t>(tensors.size()))
      continue;
    p.order.push_back(d);
    p.rest.push_back(x.size(d));
  }
  return p;
}
/// Row-major places within the indexed dims.
Tensor flat_places(const Gathering& p, const std::vector<DimIndex>& tensors, const char* name, Loc loc) {
  Tensor flat;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor at = wrapped(tensors[i].index, p.indexed[i], name, loc, tensors[i].arg.c_str());
    flat = flat.defined() ? add2(mul2(flat, number(flat, p.indexed[i])), at) : at;
  }
  return expand_to(flat, p.shape);
}
/// The result's dims from [index..., rest...], or back.
Ints result_order(const Gathering& p) {
  Ints order;
  const auto index_rank = static_cast<int64_t>(p.shape.size()), rest = static_cast<int64_t>(p.rest.size());
  for (int64_t d = 0; d < p.place; ++d) order.push_back(index_rank + d);
  for (int64_t d = 0; d < index_rank; ++d) order.push_back(d);
  for (int64_t d = p.place; d < rest; ++d) order.push_back(index_rank + d);
  return order;
}
Ints inverse(const Ints& order) {
  Ints back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return back;
}
Sizes joined(const Sizes& a, const Sizes& b) {
  Sizes s = a;
  s.insert(s.end(), b.begin(), b.end());
  return s;
}
/// x as [indexed places, rest...].
Tensor lined_up(const Tensor& x, const Gathering& p) {
  return reshape_to(permuted(x, p.order), joined({product(p.indexed)}, p.rest));
}

std::vector<const Tensor*> pointers(const Tensor& x, const std::vector<DimIndex>& tensors) {
  std::vector<const Tensor*> all{&x};
  for (const DimIndex& t : tensors) all.push_back(&t.index);
  return all;
}

}  // namespace

Tensor index(const Tensor& x, const TensorIndices& indices, Loc loc) {
  const Basic b = basic_part(x, indices, "index", loc);
  if (b.tensors.empty()) return b.view;
  const Gathering p = gathering_of(b.view, b.tensors, "index", loc);
  const auto operands = pointers(b.view, b.tensors);
  const Ints ints(p.order.begin(), p.order.begin() + static_cast<ptrdiff_t>(b.tensors.size()));
  return call({"index", loc, operands, ints, {}}, [&](const auto&) {
    const Tensor places = flat_places(p, b.tensors, "index", loc), lines = lined_up(b.view, p);
    return permuted(apply(op("take"), {&lines, &places}, {int64_t{0}}), result_order(p));
  });
}

namespace {

/// x with one number wherever a mask over its first dims is set: no need to know where that is.
Tensor put_number(const Tensor& x, const Tensor& mask, const Tensor& number_of, const char* name, Loc loc) {
  const bool fits = mask.dim() > 0 && mask.dim() <= x.dim() &&
                    std::equal(mask.sizes().begin(), mask.sizes().end(), x.sizes().begin());
  KILN_CHECK(fits, invalid, "{} ({}): mask {} does not fit x {}", name, loc.str(), mask.type_str(),
             x.type_str());
  return call("index_put", loc, {&x, &mask, &number_of}, {}, {},
              [&](const Tensor& x, const Tensor& mask, const Tensor& number_of, const auto&) {
                require_one_dtype({{&x, "x"}, {&number_of, "values"}}, name, loc);
                Sizes s = mask.sizes();
                s.resize(x.sizes().size(), 1);
                return select3(expand_to(reshape_to(mask, s), x.sizes()), reshape_to(number_of, {}), x);
              });
}

/// Whether `from` broadcasts to `to`.
bool broadcasts(const Sizes& from, const Sizes& to) {
  bool fits = from.size() <= to.size();
  for (size_t k = 1; fits && k <= from.size(); ++k)
    fits = from[from.size() - k] == 1 || from[from.size() - k] == to[to.size() - k];
  return fits;
}

bool is_whole_dim(const TensorIndex& i) {
  const auto* s = std::get_if<Slice>(&i.v);
  return s && !s->begin && !s->end && s->step == 1;
}

/// `src` [places, rest...] put into the lines of x.
Tensor put_lines(const Tensor& lines, const Tensor& places, const Tensor& src, bool accumulate) {
  if (accumulate) return apply(op("index_add"), {&lines, &places, &src}, {int64_t{0}});
  Sizes column(src.sizes().size(), 1);
  column[0] = places.numel();
  const Tensor at = expand_to(reshape_to(places, column), src.sizes());
  return apply(op("scatter"), {&lines, &at, &src}, {int64_t{0}});
}

}  // namespace

namespace {
Tensor put(const char* name, const Tensor& x, const TensorIndices& indices, const Tensor& values,
           bool accumulate, Loc loc) {
  require(x, name, loc);
  require(values, name, loc, "values");
  for (const TensorIndex& i : indices)
    KILN_CHECK(std::holds_alternative<Tensor>(i.v) || is_whole_dim(i), unsupported,
               "{} ({}): indices takes tensors, masks and whole dims (Slice{{}}); write to a view, such as "
               "select or slice, for the others",
               name, loc.str());
  const auto* mask = indices.size() == 1 ? std::get_if<Tensor>(&indices[0].v) : nullptr;
  if (mask && mask->defined() && mask->dtype() == DType::boolean && values.numel() == 1 && !accumulate)
    return put_number(x, *mask, values, name, loc);
  const Basic b = basic_part(x, indices, name, loc);
  KILN_CHECK(!b.tensors.empty(), invalid, "{} ({}): indices has no tensor, expected one", name, loc.str());
  const Gathering p = gathering_of(b.view, b.tensors, name, loc);
  std::vector<const Tensor*> operands = pointers(b.view, b.tensors);
  operands.push_back(&values);
  Ints ints(p.order.begin(), p.order.begin() + static_cast<ptrdiff_t>(b.tensors.size()));
  ints.push_back(accumulate);
  const Ints order = result_order(p);
  const Sizes taken = joined(p.shape, p.rest);
  Sizes result;  // what x[indices] has: values must broadcast to it
  for (int64_t d : order) result.push_back(taken[static_cast<size_t>(d)]);
  KILN_CHECK(broadcasts(values.sizes(), result), invalid, "{} ({}): values {} do not broadcast to [{}]", name,
             loc.str(), values.type_str(), fmt::join(result, ","));
  return call({"index_put", loc, operands, ints, {}}, [&](Operands in, const auto&) {
    const Tensor &view = *in.front(), &values = *in.back();
    require_one_dtype({{&view, "x"}, {&values, "values"}}, name, loc);
    const int64_t count = product(p.shape);
    const Tensor places = reshape_to(flat_places(p, b.tensors, name, loc), {count});
    const Tensor src =
        reshape_to(permuted(expand_to(values, result), inverse(order)), joined({count}, p.rest));
    const Tensor put = put_lines(lined_up(view, p), places, src, accumulate);
    return permuted(reshape_to(put, joined(p.indexed, p.rest)), inverse(p.order));
  });
}
}  // namespace

Tensor index_put(const Tensor& x, const TensorIndices& indices, const Tensor& values, bool accumulate,
                 Loc loc) {
  return put("index_put", x, indices, values, accumulate, loc);
}

Tensor& index_put_(Tensor& x, const TensorIndices& indices, const Tensor& values, bool accumulate, Loc loc) {
  constexpr const char* kName = "index_put_";
  return write(kName, x, put(kName, x, indices, values, accumulate, loc), loc);
}

// --- along a dim ---

namespace {

/// [n] as an index of x's rank that is n at `dim` and x's size elsewhere.
Tensor index_of_rows(const Tensor& index, const Tensor& x, int64_t dim) {
  Sizes column(x.sizes().size(), 1), all = x.sizes();
  column[static_cast<size_t>(dim)] = all[static_cast<size_t>(dim)] = index.numel();
  return expand_to(reshape_to(index, column), all);
}
int64_t row_dim(const Tensor& x, int64_t dim, const Tensor& index, const char* name, Loc loc) {
  require(x, name, loc);
  require_index(index, name, loc);
  KILN_CHECK(x.dim() > 0 && index.dim() <= 1, invalid,
             "{} ({}): got x {} and index {}, expected an index of one dim", name, loc.str(), x.type_str(),
             index.type_str());
  return wrap_dim(dim, x.dim(), name, loc);
}

void check_along(const Tensor& x, int64_t d, const Tensor& index, const Tensor& src, const char* name,
                 Loc loc) {
  bool fits = index.dim() == x.dim() && (!src.defined() || src.dim() == x.dim());
  for (int64_t i = 0; fits && i < x.dim(); ++i)
    fits = (i == d || index.size(i) <= x.size(i)) && (!src.defined() || index.size(i) <= src.size(i));
  KILN_CHECK(
      fits, invalid,
      "{} ({}): got index {} and src {} for x {}, expected equal ranks, and an index no larger than src "
      "or, beside dim {}, than x",
      name, loc.str(), index.type_str(), src.defined() ? src.type_str() : "a number", x.type_str(), d);
  KILN_CHECK(!src.defined() || src.dtype() == x.dtype(), invalid,
             "{} ({}): dtypes differ; got x {} and src {}", name, loc.str(), x.type_str(), src.type_str());
}
/// The part of src that the index covers.
Tensor covered(const Tensor& src, const Tensor& index) {
  Tensor s = src;
  for (int64_t d = 0; d < src.dim(); ++d) s = cut(s, d, 0, index.size(d));
  return s;
}
Tensor scattered(Op o, const Tensor& x, const Tensor& index, const Tensor& src, int64_t dim) {
  return apply(o, {&x, &index, &src}, {dim});
}
Tensor as_line(const Tensor& x) { return x.dim() == 0 ? reshape_to(x, {1}) : x; }

/// Checks, and the body with an index in range on tensors of at least one dim.
template <typename Body>
Tensor scatter_call(const char* event, const char* name, const Tensor& x, int64_t dim, const Tensor& index,
                    const Tensor& src, std::vector<int64_t> ints, std::vector<Scalar> scalars, Loc loc,
                    const Body& body) {
  require(x, name, loc);
  require_index(index, name, loc);
  const int64_t d = wrap_dim(dim, x.dim(), name, loc);
  check_along(x, d, index, src, name, loc);
  ints.push_back(d);
  const Tensor* operands[] = {&x, &index, &src};
  return call({event, loc, operands, ints, scalars}, [&](const std::vector<Tensor>& s) {
    const Tensor line = as_line(x), at = as_line(index);
    check_indices(at, line.size(d), name, loc);
    const Tensor from =
        src.defined() ? covered(as_line(src), at) : expand_to(cast_to(s[0], x.dtype()), at.sizes());
    return reshape_to(body(line, at, from, d), x.sizes());
  });
}

Tensor mean_scattered(const Tensor& x, const Tensor& base, const Tensor& at, const Tensor& src, int64_t d,
                      bool include_self) {
  const Tensor sum = scattered(op("scatter_add"), base, at, src, d);
  const Tensor one = constant_like(src, 1), start = constant_like(x, include_self ? 1 : 0);
  const Tensor count = binary(op("maximum"), scattered(op("scatter_add"), start, at, one, d), lit(x, 1));
  return binary(is_floating(x.dtype()) ? op("div") : op("floor_divide"), sum, count);
}

}  // namespace

Tensor detail::index_copy(const char* name, const Tensor& x, int64_t dim, const Tensor& index,
                          const Tensor& src, Loc loc) {
  const int64_t d = row_dim(x, dim, index, name, loc);
  require(src, name, loc, "src");
  Sizes expected = x.sizes();
  expected[static_cast<size_t>(d)] = index.numel();
  KILN_CHECK(src.sizes() == expected && src.dtype() == x.dtype(), invalid,
             "{} ({}): got src {} for x {}, expected {}[{}]", name, loc.str(), src.type_str(), x.type_str(),
             dtype_name(x.dtype()), fmt::join(expected, ","));
  return call("index_copy", loc, {&x, &index, &src}, {d}, {}, [&](const auto&) {
    check_indices(index, x.size(d), name, loc);
    return scattered(op("scatter"), x, index_of_rows(index, x, d), src, d);
  });
}
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, Loc loc) {
  return detail::index_copy("index_copy", x, dim, index, src, loc);
}

Tensor detail::index_fill(const char* name, const Tensor& x, int64_t dim, const Tensor& index, double value,
                          Loc loc) {
  const int64_t d = row_dim(x, dim, index, name, loc);
  require_fits(value, x.dtype(), name, loc);
  return call("index_fill", loc, {&x, &index}, {d}, {value}, [&](const std::vector<Tensor>& s) {
    const Tensor rows = index_of_rows(wrapped(index, x.size(d), name, loc), x, d);
    return scattered(op("scatter"), x, rows, expand_to(cast_to(s[0], x.dtype()), rows.sizes()), d);
  });
}
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, double value, Loc loc) {
  return detail::index_fill("index_fill", x, dim, index, value, loc);
}

namespace {
Tensor scatter_body(const Tensor& line, const Tensor& at, const Tensor& from, int64_t d) {
  return scattered(op("scatter"), line, at, from, d);
}
}  // namespace

Tensor detail::scatter(const char* name, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                       Loc loc) {
  require(x, name, loc);
  require_index(index, name, loc);
  require(src, name, loc, "src");
  return scatter_call("scatter", name, x, dim, index, src, {}, {}, loc, scatter_body);
}
Tensor detail::scatter(const char* name, const Tensor& x, int64_t dim, const Tensor& index, double value,
                       Loc loc) {
  require(x, name, loc);
  require_fits(value, x.dtype(), name, loc);
  return scatter_call("scatter", name, x, dim, index, {}, {}, {value}, loc, scatter_body);
}
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, Loc loc) {
  return detail::scatter("scatter", x, dim, index, src, loc);
}
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, double value, Loc loc) {
  return detail::scatter("scatter", x, dim, index, value, loc);
}

Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                      ScatterReduce reduce, bool include_self, Loc loc) {
  constexpr const char* kName = "scatter_reduce";
  require(x, kName, loc);
  require_index(index, kName, loc);
  require(src, kName, loc, "src");
  const auto body = [&](const Tensor& line, const Tensor& at, const Tensor& from, int64_t d) {
    const bool real = is_floating(line.dtype());
    constexpr double kMost = std::numeric_limits<double>::infinity();
    const auto neutral = [&]() -> double {
      switch (reduce) {
        case ScatterReduce::prod: return 1;
        case ScatterReduce::amax: return real ? -kMost : -0x1p63;
        case ScatterReduce::amin: return real ? kMost : 0x1p62;
        default: return 0;
      }
    };
    Tensor base = line;
    if (!include_self) {
      // An extremum of integers begins with one of the sources: they have no neutral element of every dtype.
      const bool extremum = reduce == ScatterReduce::amax || reduce == ScatterReduce::amin;
      const Tensor first = extremum && !real ? from : constant_like(from, neutral());
      base = scattered(op("scatter"), line, at, first, d);
    }
    switch (reduce) {
      case ScatterReduce::sum: return scattered(op("scatter_add"), base, at, from, d);
      case ScatterReduce::prod: return scattered(op("scatter_prod"), base, at, from, d);
      case ScatterReduce::amax: return scattered(op("scatter_amax"), base, at, from, d);
      case ScatterReduce::amin: return scattered(op("scatter_amin"), base, at, from, d);
      default: return mean_scattered(line, base, at, from, d, include_self);
    }
  };
  return scatter_call(kName, kName, x, dim, index, src, {static_cast<int64_t>(reduce), include_self}, {}, loc,
                      body);
}

Tensor take(const Tensor& x, const Tensor& index, Loc loc) {
  require(x, "take", loc);
  require_index(index, "take", loc);
  KILN_CHECK(x.numel() > 0 || index.numel() == 0, invalid, "take ({}): x {} is empty", loc.str(),
             x.type_str());
  return call("take", loc, {&x, &index}, {}, {}, [&](const auto&) {
    const Tensor line = reshape_to(x, {x.numel()}), at = wrapped(index, x.numel(), "take", loc);
    return apply(op("take"), {&line, &at}, {int64_t{0}});
  });
}

}  // namespace kiln
