// SPDX-License-Identifier: Apache-2.0
// Text of a tensor's elements, with long dims shortened.
#include <ostream>

#include "frontend/ops.h"
#include "frontend/tensor.h"

namespace kiln {

namespace {
constexpr int64_t kEdge = 3;  // elements shown at each end of a long dim
constexpr int64_t kLongTensor = 1000;

using Texts = std::function<std::string(int64_t)>;

/// The text of element i. Integers stay exact, which f64 would not keep them.
Texts texts_of(const Tensor& t) {
  if (is_floating(t.dtype()))
    return [v = t.detach().to(DType::f64).to_vector<double>()](int64_t i) {
      return fmt::format("{:.4f}", v[static_cast<size_t>(i)]);
    };
  return [v = t.to(DType::i64).to_vector<int64_t>(), truth = t.dtype() == DType::boolean](int64_t i) {
    const int64_t x = v[static_cast<size_t>(i)];
    return truth ? std::string(x ? "true" : "false") : fmt::format("{}", x);
  };
}

std::string nested(const Texts& text, const Sizes& sizes, size_t dim, int64_t offset, bool shorten) {
  if (dim == sizes.size()) return text(offset);
  int64_t stride = 1;
  for (size_t d = dim + 1; d < sizes.size(); ++d) stride *= sizes[d];
  const int64_t n = sizes[dim];
  const std::string gap = dim + 1 < sizes.size() ? ",\n" + std::string(dim + 1, ' ') : ", ";
  std::string out = "[";
  for (int64_t i = 0; i < n; ++i) {
    if (i > 0) out += gap;
    if (shorten && n > 2 * kEdge && i == kEdge) {
      out += "...";
      i = n - kEdge - 1;
      continue;
    }
    out += nested(text, sizes, dim + 1, offset + i * stride, shorten);
  }
  return out + "]";
}
}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& t) {
  if (!t.defined()) return out << "undefined";
  return out << nested(texts_of(t), t.sizes(), 0, 0, t.numel() > kLongTensor) << " " << t.type_str();
}

}  // namespace kiln
