// SPDX-License-Identifier: Apache-2.0
// Text of a tensor's elements, with long dims shortened.
#include <ostream>

#include "frontend/ops.h"
#include "frontend/tensor.h"

namespace kiln {

namespace {
constexpr int64_t kEdge = 3;  // elements shown at each end of a long dim
constexpr int64_t kLongTensor = 1000;

std::string element_text(double v, DType t) {
  if (t == DType::boolean) return v != 0 ? "true" : "false";
  return is_floating(t) ? fmt::format("{:.4f}", v) : fmt::format("{}", static_cast<int64_t>(v));
}

std::string nested(const std::vector<double>& v, const Sizes& sizes, DType t, size_t dim, int64_t offset,
                   bool shorten) {
  if (dim == sizes.size()) return element_text(v[static_cast<size_t>(offset)], t);
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
    out += nested(v, sizes, t, dim + 1, offset + i * stride, shorten);
  }
  return out + "]";
}
}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& t) {
  if (!t.defined()) return out << "undefined";
  // i64 beyond 2^53 would lose digits as f64; everything else is exact.
  std::vector<double> v;
  if (t.dtype() == DType::i64) {
    for (int64_t x : t.to_vector<int64_t>()) v.push_back(static_cast<double>(x));
  } else {
    v = t.detach().to(DType::f64).to_vector<double>();
  }
  return out << nested(v, t.sizes(), t.dtype(), 0, 0, t.numel() > kLongTensor) << " " << t.type_str();
}

}  // namespace kiln
