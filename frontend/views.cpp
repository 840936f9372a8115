// SPDX-License-Identifier: Apache-2.0
#include "frontend/views.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "frontend/state.h"

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
              fmt::format("{}: a write through a view made by `{}` (write to a copy of it)", state().place(),
                          def(o).name),
              state().user_loc());
}

/// Whether some offset is reached twice. Where dims lie one inside the other, none is; else all are tried.
bool any_twice(const std::vector<std::pair<int64_t, int64_t>>& dims, int64_t furthest) {
  std::vector<bool> seen(static_cast<size_t>(furthest) + 1);
  Sizes at(dims.size());
  for (int64_t offset = 0;;) {
    if (seen[static_cast<size_t>(offset)]) return true;
    seen[static_cast<size_t>(offset)] = true;
    size_t d = 0;
    for (; d < dims.size() && ++at[d] == dims[d].second; ++d) {
      offset -= dims[d].first * (dims[d].second - 1);
      at[d] = 0;
    }
    if (d == dims.size()) return false;
    offset += dims[d].first;
  }
}

}  // namespace

ViewChain::Link::~Link() {
  while (before && before.use_count() == 1) before = std::exchange(before->before, nullptr);
}

void ViewChain::add(Op o, Attrs attrs) { last_ = std::make_shared<Link>(last_, o, std::move(attrs)); }

void ViewChain::add_merged(Op o, const Attrs& attrs) {
  if (!last_ || last_->op != o || (o != op("reshape") && o != op("permute"))) return add(o, attrs);
  Attrs both = attrs;
  if (o == op("permute")) {
    const auto& first = std::get<std::vector<int64_t>>(last_->attrs[0]);
    for (int64_t& d : std::get<std::vector<int64_t>>(both[0])) d = first[static_cast<size_t>(d)];
  }
  last_ = std::make_shared<Link>(last_->before, o, std::move(both));
}

ViewChain::Steps ViewChain::steps(size_t from) const {
  Steps out;
  for (const Link* l = last_.get(); l && l->size > from; l = l->before.get())
    out.emplace_back(l->op, l->attrs);
  std::reverse(out.begin(), out.end());
  return out;
}

bool shares_elements(const TensorImpl& t) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // (stride, size)
  for (size_t d = 0; d < t.shape.size(); ++d) {
    if (t.shape[d] == 0) return false;
    if (t.shape[d] > 1) dims.emplace_back(std::abs(t.strides[d]), t.shape[d]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t furthest = 0;
  bool nested = true;
  for (const auto& [stride, size] : dims) {
    if (stride == 0) return true;
    nested = nested && stride > furthest;
    furthest += stride * (size - 1);
  }
  return !nested && any_twice(dims, furthest);
}

Value forward_view(Builder& b, Value base, const ViewChain::Steps& steps) {
  for (const auto& [o, attrs] : steps) base = b.emit(o, {base}, attrs);
  return base;
}

Value backward_view(Builder& b, Value base, const ViewChain::Steps& steps, Value update) {
  std::vector<Value> before{base};  // what each step is taken from
  for (size_t i = 0; i + 1 < steps.size(); ++i)
    before.push_back(b.emit(steps[i].first, {before[i]}, steps[i].second));
  for (size_t i = steps.size(); i-- > 0;)
    update = scatter_view(b, steps[i].first, steps[i].second, before[i], update);
  return update;
}

}  // namespace kiln::detail
