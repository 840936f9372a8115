// SPDX-License-Identifier: Apache-2.0
// Every error of the frontend that a caller can cause by one call: the call, its kind and its exact text.
// Errors that need a compiled callable and several calls stand in the test of their source.
#include <gtest/gtest.h>

#include <functional>

#include "frontend/functional.h"
#include "frontend/nn/layers.h"
#include "frontend/optim/adam.h"
#include "frontend/optim/sgd.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

const Loc kAt("net.cpp", 42);

struct Row {
  const char* text;  ///< "kind: text"
  std::function<void()> call;
};

Tensor f32(Sizes s) { return zeros(std::move(s)); }
Tensor i64(Sizes s) { return zeros(std::move(s), {DType::i64}); }
Tensor grad(Sizes s) { return zeros(std::move(s), {DType::f32, true}); }
TensorArg at(const Tensor& t) { return {t, kAt}; }

void check(const std::vector<Row>& rows) {
  for (const Row& r : rows) EXPECT_EQ(error_of(r.call), r.text);
}

TEST(Errors, Tensor) {
  const Tensor u, x = f32({2, 3}), w = grad({2});
  float data[1] = {};
  std::vector<float> five(5);
  check({
      {"invalid: from_span (net.cpp:42): got 5 values for sizes [2,3], expected 6",
       [&] {
         Tensor::from_vector(five, {2, 3}, kAt);
       }},
      {"invalid: from_span (net.cpp:42): bad sizes [-1,5]",
       [&] {
         Tensor::from_vector(five, {-1, 5}, kAt);
       }},
      {"invalid: from_blob (net.cpp:42): got 2 strides for 1 sizes",
       [&] {
         Tensor::from_blob(data, {1}, DType::f32, {1, 1}, {}, kAt);
       }},
      {"invalid: from_blob (net.cpp:42): negative stride -1",
       [&] { Tensor::from_blob(data, {1}, DType::f32, {-1}, {}, kAt); }},
      {"invalid: from_blob (net.cpp:42): null data for sizes [1]",
       [&] { Tensor::from_blob(nullptr, {1}, DType::f32, {}, {}, kAt); }},
      {"invalid: from_blob (net.cpp:42): bad sizes [-1]",
       [&] { Tensor::from_blob(data, {-1}, DType::f32, {}, {}, kAt); }},
      {"invalid: dtype: the tensor is undefined", [&] { u.dtype(); }},
      {"invalid: sizes: the tensor is undefined", [&] { u.numel(); }},
      {"invalid: strides: the tensor is undefined", [&] { u.strides(); }},
      {"invalid: is_contiguous: the tensor is undefined", [&] { u.is_contiguous(); }},
      {"invalid: name: the tensor is undefined", [&] { u.name(); }},
      {"invalid: requires_grad: the tensor is undefined", [&] { u.requires_grad(); }},
      {"invalid: is_leaf: the tensor is undefined", [&] { u.is_leaf(); }},
      {"invalid: grad: the tensor is undefined", [&] { u.grad(); }},
      {"invalid: size (net.cpp:42): dim 2 is out of range for f32[2,3]", [&] { x.size(2, kAt); }},
      {"invalid: item (net.cpp:42): expected one element, got f32[2,3]", [&] { x.item<int>(kAt); }},
      {"invalid: item (net.cpp:42): the tensor is undefined", [&] { u.item(kAt); }},
      {"invalid: to_vector (net.cpp:42): the tensor is undefined", [&] { u.to_vector<float>(kAt); }},
      {"invalid: to_vector (net.cpp:42): asked for f64, the tensor is f32[2,3] (cast it with to())",
       [&] { x.to_vector<double>(kAt); }},
      {"invalid: data_ptr (net.cpp:42): asked for i64, the tensor is f32[2,3] (cast it with to())",
       [&] { x.data_ptr<int64_t>(kAt); }},
      {"invalid: set_grad (net.cpp:42): got f32[2,3], expected f32[2]", [&] { Tensor(w).set_grad(x, kAt); }},
      {"invalid: requires_grad_ (net.cpp:42): only floating tensors have gradients, got i64[1]",
       [&] { i64({1}).requires_grad_(true, kAt); }},
      {"invalid: requires_grad_ (net.cpp:42): f32[2] is not a leaf (use detach())",
       [&] { (w * 1.0).requires_grad_(true, kAt); }},
      {"invalid: register_hook (net.cpp:42): f32[2,3] does not require grad",
       [&] { Tensor(x).register_hook({}, kAt); }},
      {"invalid: backward (net.cpp:42): f32[2,3] does not require grad", [&] { x.backward({}, false, kAt); }},
      {"invalid: backward (net.cpp:42): the tensor is f32[2], not a scalar (pass its gradient)",
       [&] { (w * 1.0).backward({}, false, kAt); }},
      {"invalid: backward (net.cpp:42): gradient has another type; got f32[2,3], expected f32[2]",
       [&] { (w * 1.0).backward(x, false, kAt); }},
      {"invalid: backward (net.cpp:42): the tensor is undefined", [&] { u.backward({}, false, kAt); }},
      {"invalid: detach (net.cpp:42): the tensor is undefined", [&] { u.detach(kAt); }},
  });
}

TEST(Errors, NumbersThatDoNotFit) {
  const Tensor x = f32({2, 3});
  float data[1] = {};
  check({
      {"invalid: from_blob (net.cpp:42): strides [9223372036854775807,1] of sizes [2,2] reach too far",
       [&] {
         Tensor::from_blob(data, {2, 2}, DType::f32, {INT64_MAX, 1}, {}, kAt);
       }},
      {"invalid: from_blob (net.cpp:42): the data is not aligned for f64; got 0x1c",
       [&] { Tensor::from_blob(reinterpret_cast<void*>(28), {1}, DType::f64, {}, {}, kAt); }},
      {"invalid: item (net.cpp:42): the element of i64[] does not fit the type asked for; got 1099511627776, "
       "expected -2147483648 to 2147483647",
       [&] { full({}, int64_t{1} << 40, {DType::i64}).item<int>(kAt); }},
      {"invalid: item (net.cpp:42): the element of f32[] does not fit the type asked for; got nan, expected "
       "-9223372036854775808 to 9223372036854775807",
       [&] { full({}, NAN).item<int64_t>(kAt); }},
      {"invalid: item (net.cpp:42): the element of i64[] does not fit the type asked for; got -1, expected 0 "
       "to "
       "255",
       [&] { full({}, -1, {DType::i64}).item<uint8_t>(kAt); }},
      {"invalid: narrow (net.cpp:42): 9223372036854775807 elements from 1 on are outside dim 0 of x f32[2,3]",
       [&] { narrow(x, 0, 1, INT64_MAX, kAt); }},
      {"invalid: expand (net.cpp:42): bad sizes [4294967296,4294967296]",
       [&] {
         expand(full({1, 1}, 1.0), {int64_t{1} << 32, int64_t{1} << 32}, kAt);
       }},
      {"invalid: reshape (net.cpp:42): bad sizes [4294967296,4294967296]",
       [&] {
         reshape(x, {int64_t{1} << 32, int64_t{1} << 32}, kAt);
       }},
  });
}

TEST(Errors, InPlace) {
  Tensor x = f32({2, 3}), w = grad({2}), n = i64({2}), wide = expand(f32({1}), {3});
  check({
      {"invalid: copy_ (net.cpp:42): shapes do not broadcast; got self f32[2,3] and src f32[4]",
       [&] { x.copy_(f32({4}), kAt); }},
      {"invalid: copy_ (net.cpp:42): src f32[2,2,3] does not broadcast into self f32[2,3]",
       [&] {
         x.copy_(f32({2, 2, 3}), kAt);
       }},
      {"invalid: add_ (net.cpp:42): other is undefined (give it a value first)",
       [&] { x.add_(Tensor(), 1, kAt); }},
      {"invalid: add_ (net.cpp:42): alpha is 0.5 for other i64[2], expected a whole number",
       [&] { n.add_(n, 0.5, kAt); }},
      {"invalid: fill_ (net.cpp:42): value nan does not fit i64 (cast the tensor with to())",
       [&] { n.fill_(NAN, kAt); }},
      {"invalid: fill_ (net.cpp:42): value 256 does not fit u8 (cast the tensor with to())",
       [&] { n.to(DType::u8).fill_(256, kAt); }},
      {"invalid: mul_ (net.cpp:42): a f32 result does not go into self i64[2] (cast it with to())",
       [&] { n.mul_(1.5, kAt); }},
      {"invalid: fill_ (net.cpp:42): f32[2] is a leaf that requires grad (write to it under no_grad, or to a "
       "copy of it)",
       [&] { w.fill_(1, kAt); }},
      {"invalid: zero_ (net.cpp:42): f32[] is a view of a leaf that requires grad (write to it under "
       "no_grad, or to a copy of it)",
       [&] { select(w, 0, 0).zero_(kAt); }},
      {"invalid: fill_ (net.cpp:42): more than one element of f32[3] refers to a single memory location "
       "(write to a copy of it)",
       [&] { wide.fill_(1, kAt); }},
  });
}

TEST(Errors, Creation) {
  check({
      {"invalid: zeros (net.cpp:42): bad sizes [2,-1]",
       [] {
         zeros({2, -1}, {}, kAt);
       }},
      {"invalid: full (net.cpp:42): bad sizes [-1]", [] { full({-1}, 1, {}, kAt); }},
      {"invalid: full (net.cpp:42): value 1e+30 does not fit i64 (cast the tensor with to())",
       [] { full({1}, 1e30, {DType::i64}, kAt); }},
      {"invalid: zeros (net.cpp:42): bad sizes [1099511627776,1099511627776]",
       [] {
         zeros({int64_t{1} << 40, int64_t{1} << 40}, {}, kAt);
       }},
      {"invalid: arange (net.cpp:42): 18446744073709551615 elements are too many",
       [] { arange(INT64_MIN, INT64_MAX, 1, {}, kAt); }},
      {"invalid: randint (net.cpp:42): the range [-9223372036854775808, 9223372036854775807) is too wide",
       [] { randint(INT64_MIN, INT64_MAX, {1}, {}, kAt); }},
      {"invalid: rand (net.cpp:42): bad sizes [-1]", [] { rand({-1}, {}, kAt); }},
      {"invalid: zeros_like (net.cpp:42): t is undefined (give it a value first)",
       [] { zeros_like({}, kAt); }},
      {"invalid: ones_like (net.cpp:42): t is undefined (give it a value first)", [] { ones_like({}, kAt); }},
      {"invalid: arange (net.cpp:42): no way from 0 to 3 in steps of 0", [] { arange(0, 3, 0, {}, kAt); }},
      {"invalid: randint (net.cpp:42): empty range [3, 3)", [] { randint(3, 3, {1}, {}, kAt); }},
      {"invalid: requires_grad_ (net.cpp:42): only floating tensors have gradients, got i64[1]",
       [] {
         ones({1}, {DType::i64, true}, kAt);
       }},
  });
}

TEST(Errors, Elementwise) {
  const Tensor u, x = f32({2, 3}), y = f32({4});
  check({
      {"invalid: exp (net.cpp:42): x is undefined (give it a value first)", [&] { exp(u, kAt); }},
      {"invalid: square (net.cpp:42): x is undefined (give it a value first)", [&] { square(u, kAt); }},
      {"invalid: log10 (net.cpp:42): x is undefined (give it a value first)", [&] { log10(u, kAt); }},
      {"invalid: logical_not (net.cpp:42): x is undefined (give it a value first)",
       [&] { logical_not(u, kAt); }},
      {"invalid: add (net.cpp:42): b is undefined (give it a value first)", [&] { at(x) + at(u); }},
      {"invalid: neg (net.cpp:42): x is undefined (give it a value first)", [&] { -at(u); }},
      {"invalid: neg (net.cpp:42): the operand is a number", [&] { -TensorArg(1, kAt); }},
      {"invalid: div (net.cpp:42): shapes do not broadcast; got a f32[2,3] and b f32[4]", [&] { at(x) / y; }},
      {"invalid: pow (net.cpp:42): both operands are numbers, expected a tensor as a or b",
       [&] { pow(TensorArg(2, kAt), 3); }},
      {"invalid: where (net.cpp:42): got condition f32[2,3], expected bool (compare it, e.g. with 0)",
       [&] { where(x, at(x), x); }},
      {"invalid: where (net.cpp:42): condition is undefined (give it a value first)",
       [&] { where(u, at(x), x); }},
      {"invalid: clamp (net.cpp:42): x is undefined (give it a value first)", [&] { clamp(u, 0, 1, kAt); }},
      {"invalid: clamp (net.cpp:42): hi is NaN, expected a number", [&] { clamp(x, 0, NAN, kAt); }},
      {"invalid: clamp (net.cpp:42): lo is 0.5, expected a whole number for i64 elements",
       [&] { clamp(i64({2}), 0.5, 1, kAt); }},
      {"invalid: eq (net.cpp:42): b 4294967297 does not fit i32 (cast the tensor with to())",
       [&] { eq(at(i64({1}).to(DType::i32)), (int64_t{1} << 32) + 1); }},
      {"invalid: where (net.cpp:42): b 300 does not fit u8 (cast the tensor with to())",
       [&] {
         where(eq(x, x), at(i64({2, 3}).to(DType::u8)), 300);
       }},
      {"invalid: masked_fill (net.cpp:42): got mask f32[2,3], expected bool (compare it, e.g. with 0)",
       [&] { masked_fill(x, x, 1, kAt); }},
  });
}

TEST(Errors, Reductions) {
  const Tensor u, x = f32({2, 3});
  check({
      {"invalid: sum (net.cpp:42): dim 2 is out of range; expected -2 to 1",
       [&] { sum(x, {2}, false, kAt); }},
      {"invalid: amax (net.cpp:42): a dim is given twice in [1,-1]",
       [&] {
         amax(x, {1, -1}, false, kAt);
       }},
      {"invalid: mean (net.cpp:42): got x i64[2], expected a floating dtype (cast it with to())",
       [&] { mean(i64({2}), {}, false, kAt); }},
      {"invalid: var (net.cpp:42): got x i64[2], expected a floating dtype (cast it with to())",
       [&] { var(i64({2}), {}, 1, false, kAt); }},
      {"invalid: logsumexp (net.cpp:42): got x i64[2], expected a floating dtype (cast it with to())",
       [&] { logsumexp(i64({2}), {0}, false, kAt); }},
      {"invalid: argmax (net.cpp:42): dim 5 is out of range; expected -2 to 1",
       [&] { argmax(x, 5, false, kAt); }},
      {"invalid: all (net.cpp:42): x is undefined (give it a value first)", [&] { all(u, {}, false, kAt); }},
      {"invalid: any (net.cpp:42): x is undefined (give it a value first)", [&] { any(u, {}, false, kAt); }},
      {"invalid: amin (net.cpp:42): dim 0 of f32[0,3] is empty, so there is no element to take",
       [&] {
         amin(f32({0, 3}), {0}, false, kAt);
       }},
  });
}

TEST(Errors, Shapes) {
  const Tensor u, x = f32({2, 3}), scalar = full({}, 1.0);
  check({
      {"invalid: to (net.cpp:42): x is undefined (give it a value first)", [&] { to(u, DType::f64, kAt); }},
      {"invalid: reshape (net.cpp:42): bad sizes [-2,3]",
       [&] {
         reshape(x, {-2, 3}, kAt);
       }},
      {"invalid: reshape (net.cpp:42): more than one -1 in [-1,-1]",
       [&] {
         reshape(x, {-1, -1}, kAt);
       }},
      {"invalid: reshape (net.cpp:42): x f32[2,3] does not fit sizes [4]", [&] { reshape(x, {4}, kAt); }},
      {"invalid: view (net.cpp:42): strides [1,3] of x f32[3,2] do not allow sizes [6] without a copy (use "
       "reshape)",
       [&] { view(t(x), {6}, kAt); }},
      {"invalid: flatten (net.cpp:42): start 1 is after end 0", [&] { flatten(x, 1, 0, kAt); }},
      {"invalid: permute (net.cpp:42): dims [1] are no order of those of x f32[2,3]",
       [&] { permute(x, {1}, kAt); }},
      {"invalid: transpose (net.cpp:42): dim 3 is out of range; expected -2 to 1",
       [&] { transpose(x, 0, 3, kAt); }},
      {"invalid: t (net.cpp:42): got x f32[1,1,1], expected at most two dims",
       [&] {
         t(f32({1, 1, 1}), kAt);
       }},
      {"invalid: expand (net.cpp:42): x f32[2,3] does not expand to [3]", [&] { expand(x, {3}, kAt); }},
      {"invalid: expand (net.cpp:42): x f32[2,3] does not expand to [2,4]",
       [&] {
         expand(x, {2, 4}, kAt);
       }},
      {"invalid: squeeze (net.cpp:42): dim 2 is out of range; expected -2 to 1", [&] { squeeze(x, 2, kAt); }},
      {"invalid: unsqueeze (net.cpp:42): dim 3 is out of range; expected -3 to 2",
       [&] { unsqueeze(x, 3, kAt); }},
      {"invalid: slice (net.cpp:42): got x f32[] and step 1, expected at least one dim and step >= 1",
       [&] { slice(scalar, 0, 0, 1, 1, kAt); }},
      {"invalid: slice (net.cpp:42): got x f32[2,3] and step 0, expected at least one dim and step >= 1",
       [&] { slice(x, 0, 0, 1, 0, kAt); }},
      {"invalid: narrow (net.cpp:42): 2 elements from 1 on are outside dim 0 of x f32[2,3]",
       [&] { narrow(x, 0, 1, 2, kAt); }},
      {"invalid: select (net.cpp:42): index 2 is out of range for dim 0 of x f32[2,3]",
       [&] { select(x, 0, 2, kAt); }},
      {"invalid: cat (net.cpp:42): tensors is empty, expected at least one", [&] { cat({}, 0, kAt); }},
      {"invalid: cat (net.cpp:42): tensors[1] is undefined (give it a value first)",
       [&] {
         cat({x, u}, 0, kAt);
       }},
      {"invalid: stack (net.cpp:42): tensors is empty, expected at least one", [&] { stack({}, 0, kAt); }},
      {"invalid: split (net.cpp:42): size 0 is not positive", [&] { split(x, 0, 0, kAt); }},
      {"invalid: chunk (net.cpp:42): 0 chunks, expected at least one", [&] { chunk(x, 0, 0, kAt); }},
      {"invalid: tril (net.cpp:42): got x f32[], expected at least two dims", [&] { tril(scalar, 0, kAt); }},
      {"invalid: contiguous (net.cpp:42): x is undefined (give it a value first)",
       [&] { contiguous(u, kAt); }},
      {"invalid: clone (net.cpp:42): x is undefined (give it a value first)", [&] { clone(u, kAt); }},
  });
}

TEST(Errors, IndexingAndProducts) {
  const Tensor u, x = f32({2, 3});
  check({
      {"invalid: index_select (net.cpp:42): got index f32[2,3], expected i64 or i32 (cast it with to())",
       [&] { index_select(x, 0, x, kAt); }},
      {"invalid: index_select (net.cpp:42): index 7 is out of range; expected 0 to 1",
       [&] {
         index_select(x, 0, ids({0, 7}), kAt);
       }},
      {"invalid: gather (net.cpp:42): index -1 is out of range; expected 0 to 2",
       [&] {
         gather(x, 1, ids({-1}).view({1, 1}), kAt);
       }},
      {"invalid: index_add (net.cpp:42): index 2 is out of range; expected 0 to 1",
       [&] {
         index_add(x, 0, ids({2}), f32({1, 3}), 1, kAt);
       }},
      {"invalid: scatter_add (net.cpp:42): src is undefined (give it a value first)",
       [&] { scatter_add(x, 0, ids({0}), u, kAt); }},
      {"invalid: index_select (net.cpp:42): dim 2 is out of range; expected -2 to 1",
       [&] { index_select(x, 2, ids({0}), kAt); }},
      {"invalid: matmul (net.cpp:42): inner dims differ; got a f32[2,3] and b f32[2,3], expected 3 == 2",
       [&] { matmul(x, x, kAt); }},
      {"invalid: matmul (net.cpp:42): dtypes differ; got a f32[2,3] and b i64[3] (cast one with to())",
       [&] { matmul(x, i64({3}), kAt); }},
      {"invalid: matmul (net.cpp:42): got a f32[] and b f32[], expected at least one dim each",
       [&] { matmul(full({}, 1.0), full({}, 1.0), kAt); }},
      {"invalid: matmul (net.cpp:42): batch dims do not broadcast; got a f32[2,1,1] and b f32[3,1,1]",
       [&] {
         matmul(f32({2, 1, 1}), f32({3, 1, 1}), kAt);
       }},
      {"invalid: outer (net.cpp:42): got a f32[2,3] and b f32[2], expected two vectors",
       [&] { outer(x, f32({2}), kAt); }},
  });
}

TEST(Errors, Functional) {
  const Tensor u, x = f32({2, 3}), n = i64({2});
  check({
      {"invalid: gelu (net.cpp:42): got x i64[2], expected a floating dtype (cast it with to())",
       [&] { gelu(n, GeluApproximate::none, kAt); }},
      {"invalid: relu (net.cpp:42): x is undefined (give it a value first)", [&] { relu(u, kAt); }},
      {"invalid: softmax (net.cpp:42): dim 2 is out of range; expected -2 to 1", [&] { softmax(x, 2, kAt); }},
      {"invalid: layer_norm (net.cpp:42): the last dims of x f32[2,3] are not normalized_shape [2]",
       [&] { layer_norm(x, {2}, {}, {}, 1e-5, kAt); }},
      {"invalid: layer_norm (net.cpp:42): got weight f32[2], expected [3] for x f32[2,3]",
       [&] { layer_norm(x, {3}, f32({2}), {}, 1e-5, kAt); }},
      {"invalid: rms_norm (net.cpp:42): the last dims of x f32[2,3] are not normalized_shape [2]",
       [&] { rms_norm(x, {2}, {}, 1e-5, kAt); }},
      {"invalid: linear (net.cpp:42): got x f32[2,3] and weight f32[4,2], expected x [..., in] and weight "
       "[out, in] of one dtype",
       [&] {
         linear(x, f32({4, 2}), {}, kAt);
       }},
      {"invalid: linear (net.cpp:42): got bias f32[3] for weight f32[4,3], expected [4]",
       [&] {
         linear(x, f32({4, 3}), f32({3}), kAt);
       }},
      {"invalid: embedding (net.cpp:42): got ids f32[2,3], expected i64 or i32 (cast it with to())",
       [&] { embedding(x, x, {}, kAt); }},
      {"invalid: embedding (net.cpp:42): ids 2 is out of range; expected 0 to 1, the rows of weight f32[2,3]",
       [&] { embedding(ids({2}), x, {}, kAt); }},
      {"invalid: embedding (net.cpp:42): padding_idx -3 is outside the 2 rows of weight f32[2,3]",
       [&] { embedding(ids({1}), x, -3, kAt); }},
      {"invalid: dropout (net.cpp:42): p is 1.5, expected 0 to 1", [&] { dropout(x, 1.5, true, kAt); }},
      {"invalid: scaled_dot_product_attention (net.cpp:42): got q f32[2,3], k f32[2,2], v f32[2,3]; expected "
       "[..., t, d], [..., s, d], [..., s, e]",
       [&] {
         scaled_dot_product_attention(x, f32({2, 2}), x, {}, {}, kAt);
       }},
      {"invalid: scaled_dot_product_attention (net.cpp:42): give a mask or is_causal, not both",
       [&] { scaled_dot_product_attention(x, x, x, x, {.is_causal = true}, kAt); }},
      {"invalid: scaled_dot_product_attention (net.cpp:42): 3 query heads do not divide among 2 key heads",
       [&] {
         scaled_dot_product_attention(f32({3, 1, 1}), f32({2, 1, 1}), f32({2, 1, 1}), {},
                                      {.enable_gqa = true}, kAt);
       }},
      {"invalid: scaled_dot_product_attention (net.cpp:42): got mask f32[4] for scores [2,2] of f32, "
       "expected one that broadcasts to them, bool or of their dtype",
       [&] { scaled_dot_product_attention(x, x, x, f32({4}), {}, kAt); }},
      {"invalid: scaled_dot_product_attention (net.cpp:42): dropout_p is 2, expected 0 to 1",
       [&] { scaled_dot_product_attention(x, x, x, {}, {.dropout_p = 2}, kAt); }},
  });
}

TEST(Errors, Losses) {
  const Tensor u, x = f32({2, 3}), n = i64({2});
  check({
      {"invalid: cross_entropy (net.cpp:42): got logits f32[], expected [n, classes]",
       [&] { cross_entropy(full({}, 1.0), n, {}, {}, kAt); }},
      {"invalid: cross_entropy (net.cpp:42): got logits f32[2,3] and target i64[3], expected a target of [2]",
       [&] { cross_entropy(x, i64({3}), {}, {}, kAt); }},
      {"invalid: cross_entropy (net.cpp:42): got weight f32[2] for logits f32[2,3], expected [3]",
       [&] { cross_entropy(x, n, f32({2}), {}, kAt); }},
      {"invalid: cross_entropy (net.cpp:42): target 3 is out of range; expected 0 to 2 or ignore_index",
       [&] {
         cross_entropy(x, ids({0, 3}), {}, {}, kAt);
       }},
      {"invalid: nll_loss (net.cpp:42): target -1 is out of range; expected 0 to 2 or ignore_index",
       [&] {
         nll_loss(x, ids({0, -1}), {}, {}, kAt);
       }},
      {"invalid: cross_entropy (net.cpp:42): label_smoothing is 2, expected 0 to 1",
       [&] { cross_entropy(x, n, {}, {.label_smoothing = 2}, kAt); }},
      {"invalid: mse_loss (net.cpp:42): got x i64[2], expected a floating dtype (cast it with to())",
       [&] { mse_loss(n, n, Reduction::mean, kAt); }},
      {"invalid: l1_loss (net.cpp:42): y is undefined (give it a value first)",
       [&] { l1_loss(x, u, Reduction::mean, kAt); }},
  });
}

struct Holder : nn::Module {
  using Module::register_buffer;
  using Module::register_module;
  using Module::register_parameter;
};

TEST(Errors, ModulesAndOptimizers) {
  const Tensor u;
  Tensor w = grad({1}), v = grad({1});
  nn::Linear linear(1, 1);
  nn::ModuleList list;
  list.emplace_back<nn::ReLU>();
  Holder holder, inner;
  holder.register_parameter("w", w);
  holder.register_module("inner", inner);
  optim::AdamW adam({w}, {});
  w.set_grad(w.detach().clone());
  adam.step();
  auto state = adam.state_dict();
  check({
      {"invalid: register_parameter: this module already has a member 'w'",
       [&] { holder.register_parameter("w", v); }},
      {"invalid: register_buffer: this module already has a member 'inner'",
       [&] { holder.register_buffer("inner", v); }},
      {"invalid: register_module: this module already has a member 'w'",
       [&] { holder.register_module("w", linear); }},
      {"invalid: register_parameter: 'n' is i64[1], expected a leaf tensor of a floating dtype",
       [&] {
         Tensor n = i64({1});
         holder.register_parameter("n", n);
       }},
      {"invalid: ModuleList: no module 5; there are 1", [&] { list[5]; }},
      {"invalid: ModuleList: module 0 is of another type than asked for", [&] { list.at<nn::Linear>(0); }},
      {"invalid: register_parameter: bad name 'a.b'", [&] { holder.register_parameter("a.b", v); }},
      {"invalid: register_module: 'self' contains the module it is registered in",
       [&] { holder.register_module("self", holder); }},
      {"invalid: register_module: 'up' contains the module it is registered in (as 'inner')",
       [&] { inner.register_module("up", holder); }},
      {"invalid: load_state_dict (net.cpp:42): the state does not fit the module\n  given twice: w\n"
       "  w: got undefined, expected f32[1]",
       [&] {
         holder.load_state_dict({{"w", u}, {"w", v}}, true, kAt);
       }},
      {"invalid: SGD: no parameters; a module's parameters() has those given to register_parameter, and "
       "those of modules given to register_module",
       [&] { optim::SGD({}, {}); }},
      {"invalid: SGD: lr is nan, expected at least 0", [&] { optim::SGD({w}, {.lr = NAN}); }},
      {"invalid: AdamW: lr is -1, expected at least 0", [&] { optim::AdamW({w}, {.lr = -1}); }},
      {"invalid: Optimizer::load_state_dict (net.cpp:42): the state does not fit\n"
       "  0.exp_avg: got undefined, expected f32[1]\n  given twice: 0.step",
       [&] {
         auto bad = state;
         bad[1].second = u;
         bad.push_back(bad[0]);
         adam.load_state_dict(bad, kAt);
       }},
      {"invalid: Optimizer::load_state_dict (net.cpp:42): the state does not fit\n"
       "  0.step: got -3, expected a count",
       [&] {
         auto bad = state;
         bad[0].second = full({}, -3, {DType::f64});
         adam.load_state_dict(bad, kAt);
       }},
  });
}

/// Near the ends of what numbers can hold, where PyTorch has a result.
TEST(Errors, ExtremesThatAreNone) {
  const Tensor x = full({3}, 2, {DType::i32}), mask = eq(x, x), wide = ids({1, 2, 3});
  EXPECT_EQ(arange(0, 10, INT64_MAX).to_vector<int64_t>(), std::vector<int64_t>{0});
  EXPECT_EQ(arange(10, 0, INT64_MIN).to_vector<int64_t>(), std::vector<int64_t>{10});
  EXPECT_EQ(slice(wide, 0, INT64_MIN, INT64_MAX, INT64_MAX).to_vector<int64_t>(), std::vector<int64_t>{1});
  EXPECT_EQ(clamp(x, -1e30, 1e30).to_vector<int32_t>(), (std::vector<int32_t>{2, 2, 2}));
  EXPECT_EQ(clamp(wide, 2, 0x1p70).to_vector<int64_t>(), (std::vector<int64_t>{2, 2, 3}));
  EXPECT_EQ(clamp(wide.to(DType::u8), -5, 2).to_vector<uint8_t>(), (std::vector<uint8_t>{1, 2, 2}));
  EXPECT_EQ(masked_fill(wide, eq(wide, 2), 7).to_vector<int64_t>(), (std::vector<int64_t>{1, 7, 3}));
  EXPECT_EQ(where(mask, 1, 2).dtype(), DType::i64);
  EXPECT_EQ((wide.to(DType::u8) - 2).to_vector<uint8_t>(), (std::vector<uint8_t>{255, 0, 1}));
  EXPECT_EQ(full({}, 2.7).item<int>(), 2);
  EXPECT_EQ(full({}, (int64_t{1} << 53) + 1, {DType::i64}).item<int64_t>(), (int64_t{1} << 53) + 1);
  const Tensor q = ones({1, 3, 4}), none = ones({1, 0, 4});
  EXPECT_EQ(values(scaled_dot_product_attention(q, none, none)), Floats(12, 0.0f));
}

}  // namespace KILN_FILE
}  // namespace kiln
