// SPDX-License-Identifier: Apache-2.0
#include "frontend/views.h"

namespace kiln::detail {

namespace {
/// What `before` becomes when the elements shown by one view op are replaced by `update`.
Value scatter_view(Builder& b, Op o, const Attrs& attrs, Value before, Value update) {
  const Type t = b.type(before);
  if (o == op("reshape")) return b.reshape(update, t.shape);
  if (o == op("permute")) {
    const auto& dims = std::get<std::vector<int64_t>>(attrs[0]);
    std::vector<int64_t> inverse(dims.size());
    for (size_t i = 0; i < dims.size(); ++i) inverse[static_cast<size_t>(dims[i])] = static_cast<int64_t>(i);
    return b.permute(update, inverse);
  }
  if (o == op("flip")) return b.emit(o, {update}, attrs);
  if (o == op("slice")) {
    const auto& starts = std::get<Shape>(attrs[0]);
    const auto& steps = std::get<std::vector<int64_t>>(attrs[2]);
    const Type ut = b.type(update);
    Shape low, high;
    std::vector<int64_t> interior;
    for (size_t i = 0; i < steps.size(); ++i) {
      const int64_t n = ut.shape[i].value(), size = t.shape[i].value(), start = starts[i].value();
      low.emplace_back(n ? start : 0);
      interior.push_back(steps[i] - 1);
      high.emplace_back(n ? size - start - (n - 1) * steps[i] - 1 : size);
    }
    auto pad = [&](Value v) { return b.emit(op("pad"), {v}, {low, high, interior, 0.0}); };
    const Value mask = pad(b.constant(1, {DType::boolean, ut.shape}));
    return b.emit(op("where"), {mask, pad(update), before});
  }
  throw Error(ErrorKind::unsupported,
              fmt::format("in-place write through a view made by {}: its elements overlap (write to a copy)",
                          def(o).name));
}

}  // namespace

Value forward_view(Builder& b, Value base, const ViewChain& chain) {
  for (const auto& [o, attrs] : chain) base = b.emit(o, {base}, attrs);
  return base;
}

Value backward_view(Builder& b, Value base, const ViewChain& chain, size_t from, Value update) {
  if (from == chain.size()) return update;
  const Value inner = b.emit(chain[from].first, {base}, chain[from].second);
  const Value changed = backward_view(b, inner, chain, from + 1, update);
  return scatter_view(b, chain[from].first, chain[from].second, base, changed);
}

}  // namespace kiln::detail
