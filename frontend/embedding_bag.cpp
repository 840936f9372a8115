// SPDX-License-Identifier: Apache-2.0
// Rows of a table, combined bag by bag.
#include <algorithm>
#include <limits>

#include "frontend/index_detail.h"
#include "frontend/ops_index.h"
#include "frontend/window_detail.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace {

using Ints = std::vector<int64_t>;

/// 1 for ids that count, 0 for padding, in the weight's dtype; undefined when all count.
Tensor counting(const Tensor& ids, const Tensor& weight, const std::optional<int64_t>& padding) {
  if (!padding) return {};
  const Tensor i = cast_to(ids, DType::i64);
  return cast_to(binary(op("ne"), i, number(i, *padding)), weight.dtype());
}

/// ids [bags, n].
Tensor dense_bags(const Tensor& ids, const Tensor& weight, const EmbeddingBagOptions& o, const Tensor& scale,
                  const std::optional<int64_t>& padding) {
  Tensor rows = apply(op("take"), {&weight, &ids}, {int64_t{0}});  // [bags, n, d]
  const Sizes column{ids.size(0), ids.size(1), 1};
  const Tensor counts = counting(ids, weight, padding);
  if (o.mode == BagMode::max) {
    if (ids.size(1) == 0) return reduce(op("sum"), rows, {1}, false);
    if (counts.defined()) {
      const Tensor in = cast_to(reshape_to(counts, column), DType::boolean);
      rows = select3(expand_to(in, rows.sizes()), rows, lit(rows, -std::numeric_limits<double>::infinity()));
    }
    // The first of equals gets the gradient.
    const Tensor at = reshape_to(apply(op("argmax"), {&rows}, {Ints{1}}), {rows.size(0), 1, rows.size(2)});
    const Tensor best =
        reshape_to(apply(op("take_along"), {&rows, &at}, {int64_t{1}}), {rows.size(0), rows.size(2)});
    if (!counts.defined()) return best;
    const Tensor any = cast_to(reduce(op("sum"), counts, {1}, true), DType::boolean);
    return select3(expand_to(any, best.sizes()), best, lit(best, 0));
  }
  Tensor factor = scale;
  if (counts.defined()) factor = factor.defined() ? mul2(factor, counts) : counts;
  if (factor.defined()) rows = mul2(rows, reshape_to(factor, column));
  const Tensor sum = reduce(op("sum"), rows, {1}, false);
  if (o.mode == BagMode::sum) return sum;
  if (!counts.defined()) return div2(sum, number(sum, std::max<int64_t>(ids.size(1), 1)));
  return div2(sum, binary(op("maximum"), reduce(op("sum"), counts, {1}, true), lit(sum, 1)));
}

/// ids [all] of bags that begin at `offsets`.
Tensor ragged_bags(const Tensor& ids, const Tensor& weight, const Tensor& offsets, int64_t bags,
                   const EmbeddingBagOptions& o, const Tensor& scale, const std::optional<int64_t>& padding) {
  const int64_t n = ids.size(0), width = weight.size(1);
  // What lies behind the last offset belongs to a bag of its own, that nobody gets.
  const int64_t slots = bags + o.include_last_offset;
  const Tensor begin = cast_to(offsets, DType::i64), all = iota(0, {n});
  const Tensor found = apply(op("searchsorted"), {&begin, &all}, {true});
  const Tensor bag = sub2(found, number(found, 1));
  Tensor rows = apply(op("take"), {&weight, &ids}, {int64_t{0}});  // [all, d]
  const Tensor room = [&](double v, Shape s) {
    return apply(op("constant"), std::initializer_list<const Tensor*>{}, {v, weight.dtype(), std::move(s)});
  }(o.mode == BagMode::max ? -std::numeric_limits<double>::infinity() : 0, {Dim(slots), Dim(width)});
  Tensor counts = counting(ids, weight, padding);
  const Tensor ones = counts.defined() ? counts
                                       : apply(op("constant"), std::initializer_list<const Tensor*>{},
                                               {1.0, weight.dtype(), Shape{Dim(n)}});
  const Tensor none =
      apply(op("constant"), std::initializer_list<const Tensor*>{}, {0.0, weight.dtype(), Shape{Dim(slots)}});
  const Tensor sizes = reshape_to(apply(op("index_add"), {&none, &bag, &ones}, {int64_t{0}}), {slots, 1});
  if (o.mode == BagMode::max) {
    if (counts.defined()) {
      const Tensor in = expand_to(cast_to(reshape_to(counts, {n, 1}), DType::boolean), rows.sizes());
      rows = select3(in, rows, lit(rows, -std::numeric_limits<double>::infinity()));
    }
    const Tensor at = expand_to(reshape_to(bag, {n, 1}), rows.sizes());
    const Tensor best = apply(op("scatter_amax"), {&room, &at, &rows}, {int64_t{0}});
    return cut(select3(expand_to(cast_to(sizes, DType::boolean), best.sizes()), best, lit(best, 0)), 0, 0,
               bags);
  }
  Tensor factor = scale;
  if (counts.defined()) factor = factor.defined() ? mul2(factor, counts) : counts;
  if (factor.defined()) rows = mul2(rows, reshape_to(factor, {n, 1}));
  const Tensor sum = apply(op("index_add"), {&room, &bag, &rows}, {int64_t{0}});
  return cut(o.mode == BagMode::sum ? sum : div2(sum, binary(op("maximum"), sizes, lit(sum, 1))), 0, 0, bags);
}

}  // namespace

Tensor embedding_bag(const Tensor& ids, const Tensor& weight, const Tensor& offsets,
                     const EmbeddingBagOptions& o, const Tensor& scale, Loc loc) {
  constexpr const char* kName = "embedding_bag";
  require_index(ids, kName, loc, "ids");
  require_floating(weight, kName, loc, "weight");
  KILN_CHECK(
      weight.dim() == 2 && (offsets.defined() ? ids.dim() == 1 : ids.dim() == 2), invalid,
      "embedding_bag ({}): got ids {}, weight {}{}, expected ids [bags, n], or [all] with offsets, and "
      "weight [rows, d]",
      loc.str(), ids.type_str(), weight.type_str(),
      offsets.defined() ? " and offsets " + offsets.type_str() : "");
  KILN_CHECK(
      !scale.defined() ||
          (scale.sizes() == ids.sizes() && scale.dtype() == weight.dtype() && o.mode == BagMode::sum),
      invalid,
      "embedding_bag ({}): got per_sample_weights {} for ids {}, expected the same sizes, the dtype of "
      "weight {}, and mode sum",
      loc.str(), scale.type_str(), ids.type_str(), weight.type_str());
  const int64_t n = weight.size(0), given = o.padding_idx.value_or(0);
  KILN_CHECK(!o.padding_idx || (given >= -n && given < n), invalid,
             "embedding_bag ({}): padding_idx {} is outside the {} rows of weight {}", loc.str(), given, n,
             weight.type_str());
  std::optional<int64_t> padding;
  if (o.padding_idx) padding = given < 0 ? given + n : given;
  int64_t bags = 0;
  if (offsets.defined()) {
    require_index(offsets, kName, loc, "offsets");
    KILN_CHECK(offsets.dim() == 1 && offsets.numel() >= o.include_last_offset, invalid,
               "embedding_bag ({}): got offsets {}, expected [bags{}]", loc.str(), offsets.type_str(),
               o.include_last_offset ? " + 1" : "");
    bags = offsets.numel() - o.include_last_offset;
  }
  return call(
      kName, loc, {&ids, &weight, &offsets, &scale},
      {static_cast<int64_t>(o.mode), padding.value_or(-1), o.include_last_offset}, {}, [&](const auto&) {
        check_indices(ids, n, kName, loc, "ids", ", the rows of weight " + weight.type_str());
        if (!offsets.defined()) return dense_bags(ids, weight, o, scale, padding);
        check_indices(offsets, ids.numel() + 1, kName, loc, "offsets");
        const Tensor first = cut(offsets, 0, 0, std::min<int64_t>(offsets.numel(), 1));
        check_elements(first, binary(op("ne"), first, number(first, 0)), 1, kName, loc, "offsets[0]", "0");
        return ragged_bags(ids, weight, offsets, bags, o, scale, padding);
      });
}

}  // namespace kiln
