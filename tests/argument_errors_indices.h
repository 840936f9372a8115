// SPDX-License-Identifier: Apache-2.0
// Functions of places, random functions and writes in place: arguments that they take, and what they refuse.
// See argument_errors_test.cpp.
#pragma once

#include "tests/argument_errors.h"

namespace kiln::testing {

inline Functions index_functions() {
  const Tensor x = f32({3, 2}), n = i64({2}), at = i64({2, 2}), src = f32({2, 2}), y = f32({4}),
               d = f64({2, 2});
  return {
      {"index_select",
       {"x", "index"},
       {x, n},
       [](T t) { index_select(t[0], 0, t[1]); },
       {{1, f32({2})}, {1, at}}},
      {"gather",
       {"x", "index"},
       {x, at},
       [](T t) { gather(t[0], 0, t[1]); },
       {{0, y}, {1, n}, {1, src}, {1, i64({2, 3})}}},
      {"scatter_add",
       {"x", "index", "src"},
       {x, at, src},
       [](T t) { scatter_add(t[0], 0, t[1], t[2]); },
       {{0, y}, {1, n}, {1, src}, {2, y}, {2, d}}},
      {"index_add",
       {"x", "index", "src"},
       {x, n, src},
       [](T t) { index_add(t[0], 0, t[1], t[2]); },
       {{1, f32({2})}, {2, x}, {2, d}}},
      {"index",
       {"x", "indices[0]"},
       {x, n},
       [](T t) { kiln::index(t[0], {t[1]}); },
       {{0, full({}, 1.0)}, {1, f32({2})}, {1, mask({4})}}},
      {"index_put",
       {"x", "indices[0]", "values"},
       {x, n, src},
       [](T t) { index_put(t[0], {t[1]}, t[2]); },
       {{1, f32({2})}, {1, mask({4})}, {2, y}, {2, d}}},
      {"index_copy",
       {"x", "index", "src"},
       {x, n, src},
       [](T t) { index_copy(t[0], 0, t[1], t[2]); },
       {{0, full({}, 1.0)}, {1, at}, {1, f32({2})}, {2, x}, {2, d}}},
      {"index_fill",
       {"x", "index"},
       {x, n},
       [](T t) { index_fill(t[0], 0, t[1], 0); },
       {{0, full({}, 1.0)}, {1, at}, {1, f32({2})}}},
      {"scatter",
       {"x", "index", "src"},
       {x, at, src},
       [](T t) { scatter(t[0], 0, t[1], t[2]); },
       {{0, y}, {1, n}, {1, src}, {2, y}, {2, d}}},
      {"scatter",
       {"x", "index"},
       {x, at},
       [](T t) { scatter(t[0], 0, t[1], 1); },
       {{0, y}, {1, n}, {1, src}}},
  };
}

inline Functions chosen_functions() {
  const Tensor x = f32({3, 2}), n = i64({2}), at = i64({2, 2}), y = f32({4}), m = mask({3, 2}),
               line = f32({2});
  return {
      {"scatter_reduce",
       {"x", "index", "src"},
       {x, at, f32({2, 2})},
       [](T t) { scatter_reduce(t[0], 0, t[1], t[2], ScatterReduce::sum); },
       {{0, y}, {1, n}, {1, f32({2, 2})}, {2, y}, {2, f64({2, 2})}}},
      {"take", {"x", "index"}, {x, n}, [](T t) { take(t[0], t[1]); }, {{0, f32({0})}, {1, line}}},
      {"masked_select",
       {"x", "mask"},
       {x, m},
       [](T t) { masked_select(t[0], t[1]); },
       {{1, x}, {1, mask({4})}}},
      {"masked_scatter",
       {"x", "mask", "source"},
       {x, m, f32({6})},
       [](T t) { masked_scatter(t[0], t[1], t[2]); },
       {{1, x}, {1, mask({4})}, {2, f64({6})}}},
      {"embedding", {"ids", "weight"}, {n, x}, [](T t) { embedding(t[0], t[1]); }, {{0, line}, {1, y}}},
      {"embedding_bag",
       {"ids", "weight", "?offsets", "?per_sample_weights"},
       {n, x, i64({1}), line},
       [](T t) { embedding_bag(t[0], t[1], t[2], {.mode = BagMode::sum}, t[3]); },
       {{0, line}, {0, at}, {1, y}, {1, i64({3, 2})}, {2, line}, {2, at}, {3, y}, {3, f64({2})}}},
  };
}

inline Functions random_functions() {
  const Tensor x = f32({2, 3}), y = f32({4}), n = i64({2, 3}), image = f32({1, 2, 4, 4});
  return {
      {"full_like", {"t"}, {x}, [](T t) { full_like(t[0], 1); }},
      {"rand_like", {"t"}, {x}, [](T t) { rand_like(t[0]); }, {{0, n}}},
      {"randn_like", {"t"}, {x}, [](T t) { randn_like(t[0]); }, {{0, n}}},
      {"bernoulli", {"p"}, {x}, [](T t) { bernoulli(t[0]); }, {{0, n}}},
      {"bernoulli", {"x"}, {x}, [](T t) { bernoulli(t[0], 0.5); }},
      {"normal",
       {"mean", "deviation"},
       {x, x},
       [](T t) { normal(t[0], t[1]); },
       {{0, n}, {1, n}, {0, y}, {1, y}}},
      {"multinomial", {"weights"}, {x}, [](T t) { multinomial(t[0], 1); }, {{0, n}, {0, image}}},
      {"gumbel_softmax", {"logits"}, {x}, [](T t) { gumbel_softmax(t[0]); }, {{0, n}}},
      {"dropout1d", {"x"}, {x}, [](T t) { dropout1d(t[0]); }, {{0, n}, {0, y}}},
      {"dropout2d", {"x"}, {image}, [](T t) { dropout2d(t[0]); }, {{0, n}, {0, y}}},
      {"dropout3d", {"x"}, {image}, [](T t) { dropout3d(t[0]); }, {{0, n}, {0, y}}},
      {"alpha_dropout", {"x"}, {x}, [](T t) { alpha_dropout(t[0]); }, {{0, n}}},
      {"feature_alpha_dropout", {"x"}, {x}, [](T t) { feature_alpha_dropout(t[0]); }, {{0, n}, {0, y}}},
  };
}

/// Methods that write to their tensor, a copy of t[0].
inline Functions in_place_functions() {
  const Tensor x = f32({3, 2}), y = f32({4});
  const auto pair = [&](const char* name, const char* arg, void (*call)(Tensor, const Tensor&)) {
    return Function{name,
                    {"self", arg},
                    {x, x},
                    [call](T t) { call(t[0].defined() ? t[0].clone() : t[0], t[1]); },
                    {{0, y}, {1, y}}};
  };
  return {
      pair("copy_", "src", [](Tensor s, const Tensor& o) { s.copy_(o); }),
      pair("add_", "other", [](Tensor s, const Tensor& o) { s.add_(o); }),
      pair("sub_", "other", [](Tensor s, const Tensor& o) { s.sub_(o); }),
      pair("mul_", "other", [](Tensor s, const Tensor& o) { s.mul_(o); }),
      pair("div_", "other", [](Tensor s, const Tensor& o) { s.div_(o); }),
      pair("pow_", "exponent", [](Tensor s, const Tensor& o) { s.pow_(o); }),
      pair("addcmul_", "a", [](Tensor s, const Tensor& o) { s.addcmul_(o, ones({2})); }),
      pair("addcdiv_", "b", [](Tensor s, const Tensor& o) { s.addcdiv_(ones({2}), o); }),
      pair("lerp_", "end", [](Tensor s, const Tensor& o) { s.lerp_(o, 0.5); }),
  };
}

inline Functions indexed_write_functions() {
  const Tensor x = f32({3, 2}), y = f32({4}), n = i64({2}), at = i64({2, 2}), src = f32({2, 2}),
               m = mask({3, 2});
  const auto own = [](T t) { return t[0].defined() ? t[0].clone() : t[0]; };
  return {
      {"masked_fill_",
       {"self", "mask"},
       {x, m},
       [own](T t) { own(t).masked_fill_(t[1], 0); },
       {{0, y}, {1, x}, {1, mask({4})}}},
      {"scatter_",
       {"?self", "index", "src"},
       {x, at, src},
       [own](T t) { own(t).scatter_(0, t[1], t[2]); },
       {{1, n}, {1, src}, {2, y}, {2, f64({2, 2})}}},
      {"scatter_",
       {"?self", "index"},
       {x, at},
       [own](T t) { own(t).scatter_(0, t[1], 1); },
       {{1, n}, {1, src}}},
      {"scatter_add_",
       {"?self", "index", "src"},
       {x, at, src},
       [own](T t) { own(t).scatter_add_(0, t[1], t[2]); },
       {{1, n}, {1, src}, {2, y}, {2, f64({2, 2})}}},
      {"index_add_",
       {"?self", "index", "src"},
       {x, n, src},
       [own](T t) { own(t).index_add_(0, t[1], t[2]); },
       {{1, f32({2})}, {2, x}, {2, f64({2, 2})}}},
      {"index_copy_",
       {"?self", "index", "src"},
       {x, n, src},
       [own](T t) { own(t).index_copy_(0, t[1], t[2]); },
       {{1, at}, {1, f32({2})}, {2, x}, {2, f64({2, 2})}}},
      {"index_fill_",
       {"?self", "index"},
       {x, n},
       [own](T t) { own(t).index_fill_(0, t[1], 0); },
       {{1, at}, {1, f32({2})}}},
      {"index_put_",
       {"?self", "indices[0]", "values"},
       {x, n, src},
       [own](T t) {
         Tensor s = own(t);
         index_put_(s, {t[1]}, t[2]);
       },
       {{1, f32({2})}, {1, mask({4})}, {2, y}, {2, f64({2, 2})}}},
  };
}

}  // namespace kiln::testing
