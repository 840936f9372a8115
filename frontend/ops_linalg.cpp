// SPDX-License-Identifier: Apache-2.0
// Matrix products.
#include "frontend/ops_detail.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace {

using Ints = std::vector<int64_t>;

Tensor contracted(const Tensor& a, const Tensor& b, Ints batch_a, Ints batch_b, Ints contract_a,
                  Ints contract_b) {
  return apply(op("dot_general"), {&a, &b},
               {std::move(batch_a), std::move(batch_b), std::move(contract_a), std::move(contract_b)});
}

Ints leading(int64_t n) {
  Ints d;
  for (int64_t i = 0; i < n; ++i) d.push_back(i);
  return d;
}

/// Both operands have rank >= 2. A right operand without batch dims keeps the product two-dimensional.
Tensor matmul_batched(const Tensor& a, const Tensor& b, Loc loc) {
  if (b.dim() == 2) return contracted(a, b, {}, {}, {a.dim() - 1}, {0});
  const Sizes batch_a(a.sizes().begin(), a.sizes().end() - 2),
      batch_b(b.sizes().begin(), b.sizes().end() - 2);
  Sizes batch(std::max(batch_a.size(), batch_b.size()));
  for (size_t i = 0; i < batch.size(); ++i) {
    const int64_t p = i < batch_a.size() ? batch_a[batch_a.size() - 1 - i] : 1;
    const int64_t q = i < batch_b.size() ? batch_b[batch_b.size() - 1 - i] : 1;
    KILN_CHECK(p == q || p == 1 || q == 1, invalid,
               "matmul ({}): batch dims do not broadcast; got a {} and b {}", loc.str(), a.type_str(),
               b.type_str());
    batch[batch.size() - 1 - i] = p == 1 ? q : p;
  }
  auto widen = [&](const Tensor& x) {
    Sizes s = batch;
    s.insert(s.end(), x.sizes().end() - 2, x.sizes().end());
    return expand_to(x, s);
  };
  const Tensor x = widen(a), y = widen(b);
  const auto n = static_cast<int64_t>(batch.size());
  return contracted(x, y, leading(n), leading(n), {n + 1}, {n});
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, Loc loc) {
  require(a, "matmul", loc, "a");
  require(b, "matmul", loc, "b");
  KILN_CHECK(a.dim() > 0 && b.dim() > 0, invalid,
             "matmul ({}): got a {} and b {}, expected at least one dim each", loc.str(), a.type_str(),
             b.type_str());
  KILN_CHECK(a.dtype() != DType::boolean, invalid,
             "matmul ({}): got a {} and b {}, expected numbers, not bool (cast with to())", loc.str(),
             a.type_str(), b.type_str());
  const int64_t ka = a.size(-1), kb = b.size(b.dim() == 1 ? 0 : -2);
  KILN_CHECK(ka == kb, invalid, "matmul ({}): inner dims differ; got a {} and b {}, expected {} == {}",
             loc.str(), a.type_str(), b.type_str(), ka, kb);
  return call("matmul", loc, {&a, &b}, {}, {}, [&](const Tensor& a, const Tensor& b, const auto&) {
    require_one_dtype({{&a, "a"}, {&b, "b"}}, "matmul", loc);
    if (a.dim() == 1 && b.dim() == 1) return contracted(a, b, {}, {}, {0}, {0});
    if (b.dim() == 1) return contracted(a, b, {}, {}, {a.dim() - 1}, {0});
    if (a.dim() == 1) {
      Sizes row = a.sizes();
      row.insert(row.begin(), 1);
      const Tensor r = matmul_batched(reshape_to(a, row), b, loc);
      Sizes s = r.sizes();
      s.erase(s.end() - 2);
      return reshape_to(r, s);
    }
    return matmul_batched(a, b, loc);
  });
}

Tensor outer(const Tensor& a, const Tensor& b, Loc loc) {
  require(a, "outer", loc, "a");
  require(b, "outer", loc, "b");
  KILN_CHECK(a.dim() == 1 && b.dim() == 1, invalid, "outer ({}): got a {} and b {}, expected two vectors",
             loc.str(), a.type_str(), b.type_str());
  return call("outer", loc, {&a, &b}, {}, {}, [&](const auto&) {
    return binary(op("mul"), reshape_to(a, {a.numel(), 1}), b, loc);
  });
}

}  // namespace kiln
