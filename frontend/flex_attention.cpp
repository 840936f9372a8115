// SPDX-License-Identifier: Apache-2.0
#include "frontend/flex_attention.h"

#include <cmath>

#include "frontend/functional_detail.h"
#include "frontend/linalg.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace {

constexpr const char* kName = "flex_attention";

void check(const Tensor& q, const Tensor& k, const Tensor& v, const FlexAttentionOptions& o, Loc loc) {
  for (const auto& [t, arg] : {std::pair{&q, "q"}, std::pair{&k, "k"}, std::pair{&v, "v"}})
    require_floating(*t, kName, loc, arg);
  const bool shapes = q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && q.size(3) == k.size(3) &&
                      k.size(2) == v.size(2) && q.size(0) == k.size(0) && q.size(0) == v.size(0) &&
                      k.size(1) == v.size(1);
  KILN_CHECK(shapes, invalid,
             "{} ({}): got q {}, k {}, v {}; expected [n, h, t, d], [n, h, s, d], [n, h, s, e]", kName,
             loc.str(), q.type_str(), k.type_str(), v.type_str());
  const bool heads = o.enable_gqa ? k.size(1) > 0 && q.size(1) % k.size(1) == 0 : q.size(1) == k.size(1);
  KILN_CHECK(heads, invalid, "{} ({}): {} query heads for {} key heads{}", kName, loc.str(), q.size(1),
             k.size(1),
             o.enable_gqa ? ": they do not divide" : " (enable_gqa shares key heads among query heads)");
  KILN_CHECK(q.dtype() == k.dtype() && q.dtype() == v.dtype(), invalid,
             "{} ({}): dtypes differ; got q {}, k {}, v {}", kName, loc.str(), q.type_str(), k.type_str(),
             v.type_str());
}

/// 0, 1, ... along dim `dim` of the scores; the other dims are 1.
Tensor positions(const Tensor& scores, int64_t dim, Loc loc) {
  return shape_call(kName, loc, scores, {dim}, [&] {
    Sizes sizes(4, 1);
    sizes[static_cast<size_t>(dim)] = scores.size(dim);
    return iota(dim, sizes);
  });
}

void check_score(const Tensor& got, const Tensor& score, Loc loc) {
  KILN_CHECK(got.defined() && got.sizes() == score.sizes() && got.dtype() == score.dtype(), invalid,
             "{} ({}): score_mod made {} of scores {}, expected the same shape and dtype", kName, loc.str(),
             got.defined() ? got.type_str() : "nothing", score.type_str());
}
void check_mask(const Tensor& got, const Tensor& score, Loc loc) {
  const bool fits = got.defined() && got.dtype() == DType::boolean && broadcasts_to(got, score.sizes());
  KILN_CHECK(fits, invalid, "{} ({}): mask_mod made {} for scores {}, expected bool that broadcasts to them",
             kName, loc.str(), got.defined() ? got.type_str() : "nothing", score.type_str());
}

}  // namespace

Tensor flex_attention(const Tensor& q, const Tensor& k, const Tensor& v, const FlexAttentionOptions& o,
                      Loc loc) {
  check(q, k, v, o, loc);
  const auto shared = [&](const Tensor& x) {
    if (!o.enable_gqa) return x;
    return shape_call(kName, loc, x, {q.size(1)}, [&] { return repeat_heads(x, q.size(1)); });
  };
  const double scale = o.scale.value_or(1 / std::sqrt(static_cast<double>(std::max<int64_t>(q.size(3), 1))));
  Tensor scores = matmul(q, shared(k).transpose(-1, -2, loc), loc) * scale;
  Tensor mask;
  if (o.score_mod || o.mask_mod) {
    Tensor at[4];
    for (int64_t d = 0; d < 4; ++d) at[d] = positions(scores, d, loc);
    if (o.mask_mod) {
      mask = o.mask_mod(at[0], at[1], at[2], at[3]);
      check_mask(mask, scores, loc);
    }
    if (o.score_mod) {
      const Tensor changed = o.score_mod(scores, at[0], at[1], at[2], at[3]);
      check_score(changed, scores, loc);
      scores = changed;
    }
  }
  const Tensor* operands[] = {&scores, &mask};
  const Tensor p = call({kName, loc, operands, {}, {}}, [&](const Tensor& x, const Tensor& m, const auto&) {
    return safe_softmax(m.defined() ? select3(expand_to(m, x.sizes()), x, lit(x, -INFINITY)) : x);
  });
  return matmul(p, shared(v), loc);
}

}  // namespace kiln
