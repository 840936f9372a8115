// SPDX-License-Identifier: Apache-2.0
#include "ir/op.h"

#include <algorithm>

namespace kiln {

namespace detail {
std::vector<const OpDef*> collect_ops();  // generated from the families
}

std::span<const OpDef* const> all_ops() {
  static const std::vector<const OpDef*> rows = [] {
    std::vector<const OpDef*> r = detail::collect_ops();
    KILN_ASSERT(r.size() == kOpCount, "{} rows for {} names", r.size(), kOpCount);
    for (int i = 0; i < kOpCount; ++i)
      KILN_ASSERT(r[i]->name == kOpNames[i], "row {} is '{}', expected '{}'", i, r[i]->name, kOpNames[i]);
    return r;
  }();
  return rows;
}

const OpDef& def(Op o) { return *all_ops()[o.id]; }

std::optional<Op> find_op(std::string_view name) {
  const auto* at = std::find(std::begin(kOpNames), std::end(kOpNames), name);
  if (at == std::end(kOpNames)) return std::nullopt;
  return Op{static_cast<uint16_t>(at - std::begin(kOpNames))};
}

std::string Type::str() const { return fmt::format("{}{}", dtype_name(dtype), shape_str(shape)); }

int64_t TensorRef::numel() const {
  uint64_t n = 1;  // sizes of an empty tensor may overflow before the 0 comes
  for (int64_t d : shape) n *= static_cast<uint64_t>(d);
  return static_cast<int64_t>(n);
}

Value Builder::constant(double v, const Type& t) { return emit(op("constant"), {}, {v, t.dtype, t.shape}); }

Value Builder::cast(Value v, DType to) { return type(v).dtype == to ? v : emit(op("cast"), {v}, {to}); }

Value Builder::expand(Value v, const Shape& shape) {
  return type(v).shape == shape ? v : emit(op("expand"), {v}, {shape});
}

Value Builder::reshape(Value v, const Shape& shape) {
  return type(v).shape == shape ? v : emit(op("reshape"), {v}, {shape});
}

Value Builder::permute(Value v, std::vector<int64_t> dims) {
  return emit(op("permute"), {v}, {std::move(dims)});
}

Value Builder::sum(Value v, std::vector<int64_t> dims) {
  return dims.empty() ? v : emit(op("sum"), {v}, {std::move(dims)});
}

Value Builder::sum_to(Value v, const Shape& shape) {
  const Shape from = type(v).shape;
  if (from == shape) return v;
  const size_t lead = from.size() - shape.size();
  std::vector<int64_t> dims;
  for (size_t i = 0; i < from.size(); ++i)
    if (i < lead || (shape[i - lead].is(1) && !from[i].is(1))) dims.push_back(static_cast<int64_t>(i));
  return reshape(sum(v, dims), shape);
}

}  // namespace kiln
