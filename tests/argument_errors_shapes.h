// SPDX-License-Identifier: Apache-2.0
// Functions of shape and products: arguments that they take, and what they refuse.
// See argument_errors_test.cpp.
#pragma once

#include "tests/argument_errors.h"

namespace kiln::testing {

inline Functions view_functions() {
  const Tensor x = f32({2, 3}), line = f32({3}), y = f32({4});
  return {
      {"reshape", {"x"}, {x}, [](T t) { reshape(t[0], {6}); }, {{0, y}}},
      {"view", {"x"}, {x}, [](T t) { view(t[0], {6}); }, {{0, y}}},
      {"flatten", {"x"}, {x}, [](T t) { flatten(t[0]); }},
      {"permute",
       {"x"},
       {x},
       [](T t) {
         permute(t[0], {1, 0});
       },
       {{0, f32({2, 3, 1})}}},
      {"transpose", {"x"}, {x}, [](T t) { transpose(t[0], 0, 1); }},
      {"swapaxes", {"x"}, {x}, [](T t) { swapaxes(t[0], 0, 1); }},
      {"t", {"x"}, {x}, [](T t) { kiln::t(t[0]); }, {{0, f32({1, 2, 3})}}},
      {"expand",
       {"x"},
       {x},
       [](T t) {
         expand(t[0], {2, 3});
       },
       {{0, y}}},
      {"expand_as", {"x", "like"}, {line, x}, [](T t) { expand_as(t[0], t[1]); }, {{0, y}, {1, y}}},
      {"view_as", {"x", "like"}, {x, x}, [](T t) { view_as(t[0], t[1]); }, {{0, y}, {1, y}}},
      {"broadcast_to",
       {"x"},
       {line},
       [](T t) {
         broadcast_to(t[0], {2, 3});
       },
       {{0, y}}},
      {"squeeze", {"x"}, {x}, [](T t) { squeeze(t[0]); }},
      {"squeeze", {"x"}, {x}, [](T t) { squeeze(t[0], 0); }},
      {"squeeze",
       {"x"},
       {x},
       [](T t) {
         squeeze(t[0], Sizes{0, 1});
       }},
      {"unsqueeze", {"x"}, {x}, [](T t) { unsqueeze(t[0], 0); }},
      {"movedim", {"x"}, {x}, [](T t) { movedim(t[0], 0, 1); }},
  };
}

inline Functions piece_functions() {
  const Tensor x = f32({2, 3}), line = f32({3}), one = full({}, 1.0), y = f32({4});
  return {
      {"unflatten",
       {"x"},
       {y},
       [](T t) {
         unflatten(t[0], 0, {2, 2});
       },
       {{0, line}, {0, one}}},
      {"slice", {"x"}, {x}, [](T t) { slice(t[0], 0, 0, 1); }, {{0, one}}},
      {"narrow", {"x"}, {x}, [](T t) { narrow(t[0], 0, 1, 1); }, {{0, f32({1})}}},
      {"select", {"x"}, {x}, [](T t) { select(t[0], 0, 1); }, {{0, f32({1})}, {0, one}}},
      {"flip", {"x"}, {x}, [](T t) { flip(t[0], {0}); }},
      {"split", {"x"}, {x}, [](T t) { split(t[0], 1); }, {{0, one}}},
      {"chunk", {"x"}, {x}, [](T t) { chunk(t[0], 2); }, {{0, one}}},
      {"split_with_sizes",
       {"x"},
       {x},
       [](T t) {
         split_with_sizes(t[0], {1, 1});
       },
       {{0, y}, {0, one}}},
      {"tensor_split", {"x"}, {x}, [](T t) { tensor_split(t[0], 2); }, {{0, one}}},
      {"tensor_split_at", {"x"}, {x}, [](T t) { tensor_split_at(t[0], {1}); }, {{0, one}}},
      {"unbind", {"x"}, {x}, [](T t) { unbind(t[0]); }, {{0, one}}},
      {"diagonal", {"x"}, {x}, [](T t) { diagonal(t[0]); }, {{0, line}}},
      {"unfold_dim", {"x"}, {y}, [](T t) { unfold_dim(t[0], 0, 2, 1); }, {{0, f32({1})}, {0, one}}},
  };
}

inline Functions joining_functions() {
  const Tensor x = f32({2, 3}), line = f32({3}), y = f32({4});
  const std::vector<std::string> two{"tensors[0]", "tensors[1]"};
  return {
      {"cat", two, {x, x}, [](T t) { cat(t); }, {{1, y}, {0, f32({2, 2})}}},
      {"stack", two, {x, x}, [](T t) { stack(t); }, {{0, y}, {1, y}}},
      {"hstack", two, {x, x}, [](T t) { hstack(t); }, {{1, y}, {1, f32({3, 3})}}},
      {"vstack", two, {line, line}, [](T t) { vstack(t); }, {{0, y}, {1, y}}},
      {"dstack", two, {x, x}, [](T t) { dstack(t); }, {{0, y}, {1, y}}},
      {"broadcast_tensors", two, {x, line}, [](T t) { broadcast_tensors(t); }, {{0, y}, {1, y}}},
      {"meshgrid", two, {y, line}, [](T t) { meshgrid(t); }, {{0, x}, {1, x}, {1, f64({3})}}},
      {"einsum", two, {x, x}, [](T t) { einsum("ij,ij->i", t); }, {{0, y}, {1, y}, {1, f64({2, 3})}}},
      {"pad_sequence",
       {"sequences[0]", "sequences[1]"},
       {x, x},
       [](T t) { pad_sequence(t); },
       {{0, y}, {1, y}}},
      {"pack_sequence",
       {"sequences[0]", "sequences[1]"},
       {x, x},
       [](T t) { pack_sequence(t); },
       {{0, y}, {1, y}}},
      {"pack_padded_sequence",
       {"x"},
       {x},
       [](T t) {
         pack_padded_sequence(t[0], {2, 1, 1});
       },
       {{0, y}}},
  };
}

inline Functions shape_functions() {
  const Tensor x = f32({2, 3}), line = f32({3}), one = full({}, 1.0), y = f32({4}), n = i64({3});
  Functions all{
      {"tril", {"x"}, {x}, [](T t) { tril(t[0]); }, {{0, line}}},
      {"triu", {"x"}, {x}, [](T t) { triu(t[0]); }, {{0, line}}},
      {"repeat",
       {"x"},
       {x},
       [](T t) {
         repeat(t[0], {1, 2});
       },
       {{0, f32({1, 2, 3})}}},
      {"tile", {"x"}, {x}, [](T t) { tile(t[0], {2}); }},
      {"repeat_interleave", {"x"}, {x}, [](T t) { repeat_interleave(t[0], 2); }},
      {"repeat_interleave",
       {"x", "repeats"},
       {x, i64({2})},
       [](T t) { repeat_interleave(t[0], t[1], 0); },
       {{0, line}, {1, n}, {1, f32({2})}}},
      {"roll", {"x"}, {x}, [](T t) { roll(t[0], {1}, {0}); }, {{0, one}}},
      {"rot90", {"x"}, {x}, [](T t) { rot90(t[0]); }, {{0, line}}},
      {"diag_embed", {"x"}, {x}, [](T t) { diag_embed(t[0]); }, {{0, one}}},
      {"diag", {"x"}, {x}, [](T t) { diag(t[0]); }, {{0, one}}},
      {"slice_scatter",
       {"x", "src"},
       {x, f32({1, 3})},
       [](T t) { slice_scatter(t[0], t[1], 0, 0, 1); },
       {{0, y}, {1, x}, {1, f64({1, 3})}}},
      {"select_scatter",
       {"x", "src"},
       {x, line},
       [](T t) { select_scatter(t[0], t[1], 0, 1); },
       {{0, y}, {1, x}, {1, f64({3})}}},
      {"diff", {"x"}, {x}, [](T t) { diff(t[0]); }, {{0, one}}},
      {"as_strided", {"x"}, {x}, [](T t) { as_strided(t[0], {6}, {1}); }, {{0, y}, {0, kiln::t(x)}}},
      {"take_along_dim",
       {"x", "index"},
       {x, i64({2, 1})},
       [](T t) { take_along_dim(t[0], t[1], 1); },
       {{0, f32({3, 3})}, {1, i64({2})}, {1, f32({2, 1})}, {1, i64({3, 1})}}},
      {"one_hot", {"index"}, {n}, [](T t) { one_hot(t[0], 2); }, {{0, line}}},
      {"bincount",
       {"x", "?weights"},
       {n, line},
       [](T t) { bincount(t[0], t[1]); },
       {{0, line}, {0, i64({2, 3})}, {1, y}}},
  };
  for (const Functions& more : {view_functions(), piece_functions(), joining_functions()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

inline Functions product_functions() {
  const Tensor x = f32({2, 3}), y = f32({3, 2}), a = f32({3}), n = i64({3, 2}), b = f32({1, 2, 3}),
               c = f32({1, 3, 2}), s = f32({2, 2}), two = f32({2});
  const auto sum = [](const char* name, auto f, Tensors good, std::vector<std::pair<size_t, Tensor>> wrong) {
    return Function{name,
                    {"x", "a", "b"},
                    std::move(good),
                    [f](T t) { f(t[0], t[1], t[2], 1, 1, Loc::current()); },
                    std::move(wrong)};
  };
  return {
      {"matmul",
       {"a", "b"},
       {x, y},
       [](T t) { matmul(t[0], t[1]); },
       {{0, two}, {1, two}, {1, n}, {0, mask({2, 3})}, {1, full({}, 1.0)}}},
      {"outer", {"a", "b"}, {a, a}, [](T t) { outer(t[0], t[1]); }, {{0, x}, {1, x}}},
      {"mm", {"a", "b"}, {x, y}, [](T t) { mm(t[0], t[1]); }, {{0, y}, {1, x}, {1, a}, {1, n}}},
      {"bmm", {"a", "b"}, {b, c}, [](T t) { bmm(t[0], t[1]); }, {{0, x}, {1, b}, {1, f32({2, 3, 2})}}},
      {"mv", {"a", "b"}, {x, a}, [](T t) { mv(t[0], t[1]); }, {{0, a}, {1, two}, {1, i64({3})}}},
      {"dot", {"a", "b"}, {a, a}, [](T t) { dot(t[0], t[1]); }, {{0, two}, {1, x}, {1, f64({3})}}},
      sum("addmm", addmm, {s, x, y}, {{0, a}, {1, y}, {2, x}, {0, i64({2, 2})}, {2, n}}),
      sum("baddbmm", baddbmm, {s, b, c}, {{0, a}, {1, x}, {2, b}, {0, f64({2, 2})}}),
      sum("addbmm", addbmm, {s, b, c}, {{0, a}, {1, x}, {2, b}, {0, f64({2, 2})}}),
      sum("addmv", addmv, {two, x, a}, {{0, a}, {1, a}, {2, x}, {0, f64({2})}}),
      sum("addr", addr, {x, two, a}, {{0, y}, {1, x}, {2, x}, {0, f64({2, 3})}}),
      {"tensordot",
       {"a", "b"},
       {x, y},
       [](T t) { tensordot(t[0], t[1], 1); },
       {{0, f32({3, 2, 2})}, {1, two}, {1, n}, {1, full({}, 1.0)}}},
      {"kron", {"a", "b"}, {x, y}, [](T t) { kron(t[0], t[1]); }},
      {"cross", {"a", "b"}, {x, x}, [](T t) { cross(t[0], t[1]); }, {{0, y}, {1, a}, {1, f32({4, 3})}}},
      {"trace", {"x"}, {x}, [](T t) { trace(t[0]); }, {{0, a}}},
      {"bilinear",
       {"x1", "x2", "weight", "?bias"},
       {x, f32({2, 2}), f32({4, 3, 2}), f32({4})},
       [](T t) { bilinear(t[0], t[1], t[2], t[3]); },
       {{0, y}, {0, i64({2, 3})}, {1, y}, {1, f64({2, 2})}, {2, x}, {2, i64({4, 3, 2})}, {3, a}}},
      {"cdist",
       {"x1", "x2"},
       {x, x},
       [](T t) { cdist(t[0], t[1]); },
       {{0, y}, {0, i64({2, 3})}, {1, a}, {1, n}}},
  };
}

}  // namespace kiln::testing
