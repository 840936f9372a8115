// SPDX-License-Identifier: Apache-2.0
// Elements that a mask names. How many there are is a host read.
#include <algorithm>
#include <limits>

#include "frontend/index_detail.h"
#include "frontend/ops_index.h"
#include "frontend/window_detail.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace {

Tensor is_set(const Tensor& x) { return x.dtype() == DType::boolean ? x : binary(op("ne"), x, lit(x, 0)); }
/// How many before and at each element of a line are set.
Tensor counted(const Tensor& line) {
  const Tensor ones = cast_to(line, DType::i64);
  return apply(op("cumsum"), {&ones}, {int64_t{0}});
}
/// Places of the set elements of x as one line.
Tensor set_places(const Tensor& x, Loc loc) {
  const Tensor total = call("count_nonzero", loc, {&x}, {}, {}, [&](const auto&) {
    const Tensor ones = cast_to(is_set(x), DType::i64);
    return reduce(op("sum"), ones, wrap_dims({}, x.dim(), "nonzero", loc), false);
  });
  const int64_t n = x.numel(), count = total.item<int64_t>(loc);
  return call("nonzero", loc, {&x}, {count}, {}, [&](const auto&) {
    const Tensor line = reshape_to(is_set(x), {n}), after = counted(line);
    // Those that are not set go to a place of their own at the end.
    const Tensor to = select3(line, sub2(after, number(after, 1)), number(after, count));
    const Tensor room = apply(op("constant"), std::initializer_list<const Tensor*>{},
                              {0.0, DType::i64, Shape{Dim(count + 1)}});
    const Tensor index = iota(0, {n});
    return cut(apply(op("scatter"), {&room, &to, &index}, {int64_t{0}}), 0, 0, count);
  });
}

}  // namespace

Tensor nonzero(const Tensor& x, Loc loc) {
  require(x, "nonzero", loc);
  const Tensor places = set_places(x, loc);
  const Tensor* operands[] = {&places};
  return call({"nonzero", loc, operands, x.sizes(), {}}, [&](const auto&) {
    const int64_t count = places.numel();
    std::vector<Tensor> columns(x.sizes().size());
    Tensor left = places;
    for (size_t d = columns.size(); d-- > 0;) {
      const Tensor size = number(left, std::max<int64_t>(x.sizes()[d], 1));
      const Tensor outer = binary(op("floor_divide"), left, size);
      columns[d] = reshape_to(d == 0 ? left : sub2(left, mul2(outer, size)), {count, 1});
      left = outer;
    }
    if (columns.empty())
      return apply(op("constant"), std::initializer_list<const Tensor*>{},
                   {0.0, DType::i64, Shape{Dim(count), Dim(0)}});
    std::vector<const Tensor*> all;
    for (const Tensor& c : columns) all.push_back(&c);
    return apply(op("cat"), all, {int64_t{1}});
  });
}

Tensor masked_select(const Tensor& x, const Tensor& mask, Loc loc) {
  constexpr const char* kName = "masked_select";
  require(x, kName, loc);
  require_bool(mask, kName, loc, "mask");
  const Sizes all = broadcast_shapes(x, mask, kName, loc, {"x", "mask"});
  const Tensor places = set_places(expand(mask, all, loc), loc);
  const Tensor* operands[] = {&x, &places};
  return call({kName, loc, operands, all, {}}, [&](const auto&) {
    const Tensor line = reshape_to(expand_to(x, all), {product(all)});
    return apply(op("take"), {&line, &places}, {int64_t{0}});
  });
}

Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source, Loc loc) {
  constexpr const char* kName = "masked_scatter";
  require(x, kName, loc);
  require_bool(mask, kName, loc, "mask");
  require(source, kName, loc, "source");
  require_one_dtype({{&x, "x"}, {&source, "source"}}, kName, loc);
  KILN_CHECK(broadcast_shapes(x, mask, kName, loc, {"x", "mask"}) == x.sizes(), invalid,
             "masked_scatter ({}): mask {} does not broadcast to x {}", loc.str(), mask.type_str(),
             x.type_str());
  return call(kName, loc, {&x, &mask, &source}, {}, {}, [&](const auto&) {
    const int64_t n = x.numel(), available = source.numel();
    if (n == 0) return reshape_to(x, x.sizes());
    const Tensor set = reshape_to(expand_to(mask, x.sizes()), {n}), after = counted(set);
    const Tensor at = select3(set, sub2(after, number(after, 1)), number(after, 0));
    check_elements(after, binary(op("gt"), after, number(after, available)), available + 1, kName, loc,
                   "the number of set elements", fmt::format("at most the {} of source", available));
    if (available == 0) return reshape_to(x, x.sizes());
    const Tensor line = reshape_to(source, {available});
    const Tensor taken = reshape_to(apply(op("take"), {&line, &at}, {int64_t{0}}), x.sizes());
    return select3(reshape_to(set, x.sizes()), taken, x);
  });
}

}  // namespace kiln
