// SPDX-License-Identifier: Apache-2.0
// Text of a tensor's elements, with long dims shortened.
#include <algorithm>
#include <cmath>
#include <ostream>

#include "frontend/ops.h"
#include "frontend/tensor.h"

namespace kiln {

namespace {
constexpr int64_t kEdge = 3;  // elements shown at each end of a long dim
constexpr int64_t kLongTensor = 1000;

using Texts = std::function<std::string(int64_t)>;

/// How the shown numbers are written: all alike, by the rules of PyTorch's printer.
class FloatFormat {
 public:
  explicit FloatFormat(const std::vector<double>& shown) {
    double least = INFINITY, most = 0;
    for (const double v : shown) {
      if (!std::isfinite(v) || v == 0) continue;
      least = std::min(least, std::abs(v));
      most = std::max(most, std::abs(v));
      whole_ = whole_ && v == std::ceil(v);
    }
    scientific_ = most > 0 && (most / least > 1e3 || most > 1e8 || least < 1e-4);
  }
  std::string operator()(double v) const {
    if (std::isnan(v)) return "nan";  // which has a sign, by chance
    if (scientific_) return fmt::format("{:.4e}", v);
    if (!whole_) return fmt::format("{:.4f}", v);
    return fmt::format("{:.0f}{}", v, std::isfinite(v) ? "." : "");
  }

 private:
  bool whole_ = true, scientific_ = false;
};

/// The texts of elements, of which `shown` are asked for. Integers stay exact, which f64 would not keep them.
Texts texts_of(const Tensor& t, const std::vector<int64_t>& shown) {
  if (is_floating(t.dtype())) {
    std::vector<double> all = t.detach().to(DType::f64).to_vector<double>(), some;
    for (const int64_t i : shown) some.push_back(all[static_cast<size_t>(i)]);
    return [v = std::move(all), format = FloatFormat(some)](int64_t i) {
      return format(v[static_cast<size_t>(i)]);
    };
  }
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
  const bool shorten = t.numel() > kLongTensor;
  std::vector<int64_t> shown;
  const auto show = [&](int64_t i) {
    shown.push_back(i);
    return std::string();
  };
  nested(show, t.sizes(), 0, 0, shorten);
  const Texts text = texts_of(t, shown);
  size_t width = 0;
  for (const int64_t i : shown) width = std::max(width, text(i).size());
  const auto aligned = [&](int64_t i) { return fmt::format("{:>{}}", text(i), width); };
  return out << nested(aligned, t.sizes(), 0, 0, shorten) << " " << t.type_str();
}

}  // namespace kiln
