// SPDX-License-Identifier: Apache-2.0
// Tensors as data: creation, metadata, reading, memory of others, and the exact text of mistakes.
#include "frontend/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using testing::error_of;

TEST(Tensor, FromVectorCopies) {
  std::vector<float> host = {1, 2, 3, 4, 5, 6};
  const Tensor t = Tensor::from_vector(host, {2, 3});
  host[0] = 9;
  EXPECT_EQ(t.to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(testing::without_device(t.type_str()), "f32[2,3]");
  EXPECT_EQ(t.strides(), (Sizes{3, 1}));
  EXPECT_EQ(t.dim(), 2);
  EXPECT_EQ(t.numel(), 6);
  EXPECT_EQ(t.size(-1), 3);
  EXPECT_TRUE(t.is_contiguous());
  EXPECT_TRUE(t.is_leaf());
  EXPECT_FALSE(t.requires_grad());
}

TEST(Tensor, ScalarsAndEmptyTensorsAreLegal) {
  const Tensor scalar = Tensor::from_vector<int32_t>({7}, {});
  EXPECT_EQ(scalar.item<int>(), 7);
  EXPECT_EQ(testing::without_device(scalar.type_str()), "i32[]");
  const Tensor empty = Tensor::from_vector<float>({}, {3, 0, 2});
  EXPECT_EQ(empty.numel(), 0);
  EXPECT_TRUE(empty.is_contiguous());
  EXPECT_TRUE(empty.to_vector<float>().empty());
  EXPECT_EQ(sum(empty).item(), 0);
}

TEST(Tensor, UndefinedTensorsSaySo) {
  const Tensor t;
  EXPECT_FALSE(t.defined());
  EXPECT_EQ(t.type_str(), "undefined");
  EXPECT_NE(error_of([&] { t.numel(); }), "no error");
  EXPECT_NE(error_of([&] { (void)(t + 1); }), "no error");
}

TEST(Tensor, ItemKeepsEveryInteger) {
  for (const int64_t v : {INT64_MAX, INT64_MIN, (int64_t{1} << 53) + 1, int64_t{-1}}) {
    EXPECT_EQ(Tensor::from_vector<int64_t>({v}, {1}).item<int64_t>(), v);
  }
  EXPECT_EQ(Tensor::from_vector<float>({2.5f}, {1, 1}).item<float>(), 2.5f);
  EXPECT_TRUE(std::isnan(Tensor::from_vector<double>({std::nan("")}, {}).item()));
  EXPECT_TRUE(static_cast<bool>(Tensor::from_vector<float>({-0.5f}, {})));
  EXPECT_FALSE(static_cast<bool>(Tensor::from_vector<float>({-0.0f}, {})));
}

TEST(Tensor, HalfPrecisionCastsRoundToNearestEven) {
  const Tensor t = Tensor::from_vector<float>({1.00390625f, 65520.0f, -0.0f}, {3});
  EXPECT_EQ(t.to(DType::bf16).to(DType::f32).to_vector<float>()[0], 1.0f);
  EXPECT_TRUE(std::isinf(t.to(DType::f16).to(DType::f32).to_vector<float>()[1]));
  EXPECT_TRUE(std::signbit(t.to(DType::f16).to(DType::f32).to_vector<float>()[2]));
  EXPECT_EQ(t.to(DType::boolean).to_vector<bool>(), (std::vector<bool>{true, true, false}));
}

TEST(Tensor, FromBlobViewsMemoryAndCallsTheDeleterOnce) {
  std::vector<float> host = {0, 1, 2, 3, 4, 5, 6, 7};
  int deleted = 0;
  {
    Tensor t = Tensor::from_blob(host.data(), {2, 3}, DType::f32, {4, 1}, [&](void*) { ++deleted; });
    EXPECT_FALSE(t.is_contiguous());
    EXPECT_EQ(t.to_vector<float>(), (std::vector<float>{0, 1, 2, 4, 5, 6}));
    host[4] = 40;
    EXPECT_EQ(t.to_vector<float>()[3], 40);
    t.mul_(2);
    EXPECT_EQ(host, (std::vector<float>{0, 2, 4, 3, 80, 10, 12, 7}));
    const Tensor kept = t.transpose(0, 1);
    t = Tensor();
    EXPECT_EQ(deleted, 0);
    EXPECT_EQ(kept.to_vector<float>(), (std::vector<float>{0, 80, 2, 10, 4, 12}));
  }
  EXPECT_EQ(deleted, 1);
}

TEST(Tensor, ViewsShareMemoryAndCopiesDoNot) {
  Tensor t = Tensor::from_vector<float>({1, 2, 3, 4}, {2, 2});
  Tensor view = t.view({4}), copy = t.clone(), handle = t;
  t.fill_(5);
  EXPECT_EQ(view.to_vector<float>(), (std::vector<float>{5, 5, 5, 5}));
  EXPECT_EQ(handle.to_vector<float>()[0], 5);
  EXPECT_EQ(copy.to_vector<float>()[0], 1);
  EXPECT_EQ(t.transpose(0, 1).contiguous().strides(), (Sizes{2, 1}));
}

TEST(Tensor, GradientsAccumulateUntilCleared) {
  Tensor w = Tensor::from_vector<float>({1, 2}, {2});
  w.requires_grad_();
  for (int i = 0; i < 2; ++i) sum(w * w).backward();
  EXPECT_EQ(w.grad().to_vector<float>(), (std::vector<float>{4, 8}));
  w.set_grad({});
  EXPECT_FALSE(w.grad().defined());
  EXPECT_FALSE(w.detach().requires_grad());
}

TEST(Tensor, HooksSeeAndReplaceGradients) {
  Tensor w = Tensor::from_vector<float>({1, 2}, {2});
  w.requires_grad_();
  int calls = 0;
  HookHandle handle = w.register_hook([&](const Tensor& g) {
    ++calls;
    return g * 10;
  });
  sum(w).backward();
  EXPECT_EQ(w.grad().to_vector<float>(), (std::vector<float>{10, 10}));
  handle.remove();
  handle.remove();
  sum(w).backward();
  EXPECT_EQ(w.grad().to_vector<float>(), (std::vector<float>{11, 11}));
  EXPECT_EQ(calls, 1);
}

TEST(Tensor, MistakesNameTheLineAndBothTypes) {
  const Tensor t = Tensor::from_vector<float>({1, 2, 3}, {3});
  Tensor grad = Tensor::from_vector<float>({1, 2, 3}, {3});
  grad.requires_grad_();
  struct Case {
    std::function<void()> call;
    int line;
    const char* message;  // "@" stands for the place of the call
  };
  const std::vector<float> two = {1, 2};
  const Case cases[] = {
      {[&] { (void)Tensor::from_span(std::span(two), {3}); }, __LINE__,
       "from_span (@): got 2 values for sizes [3], expected 3"},
      {[&] { (void)t.item(); }, __LINE__, "item (@): expected one element, got f32[3]"},
      {[&] { (void)t.to_vector<double>(); }, __LINE__,
       "to_vector (@): asked for f64, the tensor is f32[3] (cast it with to())"},
      {[&] { (void)t.size(1); }, __LINE__, "size (@): dim 1 is out of range for f32[3]"},
      {[&] { (grad * 2).backward(); }, __LINE__,
       "backward (@): the tensor is f32[3], not a scalar (pass its gradient)"},
      {[&] { (grad * 2).requires_grad_(false); }, __LINE__,
       "requires_grad_ (@): f32[3] is not a leaf (use detach())"},
      {[&] { Tensor::from_vector<int64_t>({1}, {1}).requires_grad_(); }, __LINE__,
       "requires_grad_ (@): only floating tensors have gradients, got i64[1]"},
  };
  for (const Case& c : cases) {
    std::string expected = c.message;
    expected.replace(expected.find('@'), 1, "tensor_test.cpp:" + std::to_string(c.line));
    EXPECT_EQ(error_of(c.call), "invalid: " + expected);
  }
}

TEST(Tensor, BadMemoryIsRefused) {
  float x = 0;
  const Loc at("net.cpp", 42);
  EXPECT_EQ(error_of([&] { Tensor::from_blob(nullptr, {2}, DType::f32, {}, {}, at); }),
            "invalid: from_blob (net.cpp:42): null data for sizes [2]");
  EXPECT_EQ(error_of([&] { Tensor::from_blob(&x, {1}, DType::f32, {-1}, {}, at); }),
            "invalid: from_blob (net.cpp:42): negative stride -1");
  EXPECT_EQ(error_of([&] {
              Tensor::from_blob(&x, {1, 1}, DType::f32, {1}, {}, at);
            }),
            "invalid: from_blob (net.cpp:42): got 1 strides for 2 sizes");
  EXPECT_EQ(error_of([&] { Tensor::from_vector<float>({1}, {-1}); }).substr(0, 20), "invalid: from_span (");
  EXPECT_TRUE(Tensor::from_blob(nullptr, {0}, DType::f32).defined());
}

TEST(Tensor, NoGradIsScoped) {
  Tensor w = Tensor::from_vector<float>({1}, {1});
  w.requires_grad_();
  {
    NoGrad guard;
    EXPECT_FALSE(grad_enabled());
    EXPECT_FALSE((w * 2).requires_grad());
  }
  EXPECT_TRUE(grad_enabled());
  EXPECT_TRUE((w * 2).requires_grad());
}

TEST(Tensor, TheGeneratorCanBeSavedAndSet) {
  manual_seed(3);
  const std::vector<float> first = randn({5}).to_vector<float>();
  const GeneratorState state = generator_state();
  const std::vector<float> second = randn({5}).to_vector<float>();
  EXPECT_NE(first, second);
  set_generator_state(state);
  EXPECT_EQ(randn({5}).to_vector<float>(), second);
  manual_seed(3);
  EXPECT_EQ(randn({5}).to_vector<float>(), first);
}

}  // namespace KILN_FILE
}  // namespace kiln
