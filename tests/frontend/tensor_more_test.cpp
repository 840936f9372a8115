// SPDX-License-Identifier: Apache-2.0
// Tensor: creation from host data, layout, reading, printing and dtypes.
#include "frontend/tensor.h"

#include <cmath>
#include <limits>
#include <sstream>

#include "frontend/compile.h"
#include "frontend/random.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

constexpr DType kAll[] = {DType::f32, DType::f64, DType::f16, DType::bf16,
                          DType::u8,  DType::i32, DType::i64, DType::boolean};

TEST(Creation, FromSpanCopies) {
  std::vector<float> v{1, 2, 3, 4, 5, 6};
  const Tensor t = Tensor::from_span(std::span<const float>(v), {2, 3});
  v[0] = 9;
  EXPECT_EQ(values(t), (Floats{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(testing::without_device(t.type_str()), "f32[2,3]");
  EXPECT_EQ(t.strides(), (Sizes{3, 1}));
  EXPECT_EQ(t.size(-1), 3);
  EXPECT_EQ(t.numel(), 6);
  EXPECT_TRUE(t.is_contiguous());
}

TEST(Creation, CountsMustAgree) {
  const std::vector<float> v(5);
  EXPECT_ERROR(Tensor::from_vector(v, {2, 3}),
               "invalid: from_span (@): got 5 values for sizes [2,3], expected 6");
  EXPECT_ERROR(Tensor::from_vector(v, {-5}), "invalid: from_span (@): bad sizes [-5]");
  EXPECT_ERROR(Tensor::from_vector(v, {INT64_MAX, 8}),
               fmt::format("invalid: from_span (@): bad sizes [{},8]", INT64_MAX));
}

TEST(Creation, EmptyAndScalarShapes) {
  const Tensor none = Tensor::from_vector(std::vector<float>{}, {3, 0});
  EXPECT_EQ(none.numel(), 0);
  EXPECT_TRUE(none.is_contiguous());
  EXPECT_TRUE(values(none).empty());
  EXPECT_EQ(sum(none).item(), 0);
  const Tensor one = Tensor::from_vector(std::vector<double>{2.5}, {});
  EXPECT_EQ(one.dim(), 0);
  EXPECT_EQ(one.numel(), 1);
  EXPECT_EQ(one.item(), 2.5);
  EXPECT_EQ(testing::without_device(one.type_str()), "f64[]");
}

TEST(Creation, FromBlobViewsAndFrees) {
  float data[] = {1, 2, 3, 4, 5, 6};
  int freed = 0;
  {
    const Tensor t =
        Tensor::from_blob(data, {3, 2}, DType::f32, {1, 3}, [&](void* p) { freed += p == data; });
    EXPECT_FALSE(t.is_contiguous());
    EXPECT_EQ(values(t), (Floats{1, 4, 2, 5, 3, 6}));
    data[3] = 40;
    EXPECT_EQ(values(t)[1], 40);
    Tensor row = select(t, 0, 1);
    row.fill_(7);
    EXPECT_EQ(data[1], 7);
    EXPECT_EQ(data[4], 7);
    EXPECT_EQ(t.data_ptr<float>(), data);
    EXPECT_EQ(freed, 0);
  }
  EXPECT_EQ(freed, 1);
}

TEST(Creation, FromBlobBadInput) {
  float data[4] = {};
  EXPECT_ERROR(Tensor::from_blob(data, {2, 2}, DType::f32, {1}),
               "invalid: from_blob (@): got 1 strides for 2 sizes");
  EXPECT_ERROR(Tensor::from_blob(data, {2}, DType::f32, {-1}), "invalid: from_blob (@): negative stride -1");
  EXPECT_ERROR(Tensor::from_blob(nullptr, {2}, DType::f32),
               "invalid: from_blob (@): null data for sizes [2]");
  EXPECT_ERROR(Tensor::from_blob(data, {-2}, DType::f32), "invalid: from_blob (@): bad sizes [-2]");
  EXPECT_EQ(Tensor::from_blob(nullptr, {0, 4}, DType::f32).numel(), 0);
}

TEST(Creation, Functions) {
  EXPECT_EQ(values(zeros({2})), (Floats{0, 0}));
  EXPECT_EQ(values(ones({2})), (Floats{1, 1}));
  EXPECT_EQ(values(full({2}, 2.5)), (Floats{2.5, 2.5}));
  EXPECT_EQ(full({2}, 3).type_str(), zeros({2}, {DType::i64}).type_str());
  EXPECT_EQ(full({2}, 3).to_vector<int64_t>(), (std::vector<int64_t>{3, 3}));
  EXPECT_EQ(full({2}, true).dtype(), DType::boolean);
  EXPECT_EQ(values(full({2}, true)), (Floats{1, 1}));
  EXPECT_EQ(full({2}, true, {DType::f32}).dtype(), DType::f32);
  EXPECT_EQ(full_like(zeros({2}), 3).dtype(), DType::f32);
  EXPECT_EQ(full_like(ids({1}), true).dtype(), DType::i64);
  auto f = compile([](double) { return std::vector<Tensor>{full({2}, 3), full({2}, false)}; });
  for (int call = 0; call < 2; ++call) {
    EXPECT_EQ(f(1)[0].to_vector<int64_t>(), (std::vector<int64_t>{3, 3}));
    EXPECT_EQ(f(1)[1].dtype(), DType::boolean);
  }
  EXPECT_EQ(values(arange(2, 9, 3)), (Floats{2, 5, 8}));
  EXPECT_EQ(values(arange(5, 0, -2)), (Floats{5, 3, 1}));
  EXPECT_EQ(arange(3, 3).numel(), 0);
  EXPECT_EQ(arange(4).dtype(), DType::i64);
  EXPECT_TRUE(ones({1}, {DType::f32, true}).requires_grad());
  EXPECT_EQ(ones_like(arange(3)).dtype(), DType::i64);
  EXPECT_ERROR(arange(0, 5, 0), "invalid: arange (@): no way from 0 to 5 in steps of 0");
  EXPECT_ERROR(arange(0, 5, -9), "invalid: arange (@): no way from 0 to 5 in steps of -9");
  EXPECT_ERROR(zeros({2, -1}), "invalid: zeros (@): bad sizes [2,-1]");
  EXPECT_ERROR(randint(3, 3, {2}), "invalid: randint (@): empty range [3, 3)");
}

TEST(Random, SeedGivesTheSameNumbersAndOffsetsMove) {
  manual_seed(7);
  const Floats a = values(rand({50})), b = values(rand({50}));
  EXPECT_NE(a, b);
  const GeneratorState s = generator_state();
  const Floats n = values(randn({50}));
  set_generator_state(s);
  EXPECT_EQ(values(randn({50})), n);
  manual_seed(7);
  EXPECT_EQ(values(rand({50})), a);
  for (float v : a) EXPECT_TRUE(v >= 0 && v < 1);
  for (float v : values(randint(-2, 3, {200}))) EXPECT_TRUE(v >= -2 && v < 3) << v;
  double mean = 0, square = 0;
  const auto many = doubles(randn({20000}));
  for (double v : many) mean += v / 20000, square += v * v / 20000;
  EXPECT_NEAR(mean, 0, 0.03);
  EXPECT_NEAR(square, 1, 0.05);
}

TEST(Reading, ItemErrors) {
  EXPECT_ERROR(vec({1, 2}).item(), "invalid: item (@): expected one element, got f32[2]");
  EXPECT_ERROR(Tensor().item(), "invalid: item (@): the tensor is undefined");
  EXPECT_EQ(vec({3}).item<int>(), 3);
  EXPECT_TRUE(static_cast<bool>(ids({4})));
  EXPECT_FALSE(static_cast<bool>(vec({0})));
  EXPECT_EQ(full({}, INT64_MAX, {DType::i64}).item<int64_t>(), INT64_MAX);
}

TEST(Reading, ToVectorAndDataErrors) {
  EXPECT_ERROR(vec({1, 2}).to_vector<double>(),
               "invalid: to_vector (@): asked for f64, the tensor is f32[2] (cast it with to())");
  EXPECT_ERROR(vec({1}).data_ptr<int64_t>(),
               "invalid: data_ptr (@): asked for i64, the tensor is f32[1] (cast it with to())");
  EXPECT_ERROR(vec({1}).size(2), "invalid: size (@): dim 2 is out of range for f32[1]");
  EXPECT_ERROR(Tensor().to_vector<float>(), "invalid: to_vector (@): the tensor is undefined");
  EXPECT_EQ(ids({1, 0, 2}).to(DType::boolean).to_vector<bool>(), (std::vector<bool>{true, false, true}));
}

TEST(Casts, EveryPair) {
  for (DType from : kAll) {
    for (DType to : kAll) {
      const Tensor x = Tensor::from_vector(std::vector<double>{0, 1, 3, 2}, {4}).to(from);
      const Tensor y = x.to(to);
      EXPECT_EQ(y.dtype(), to);
      std::vector<double> want{0, 1, 3, 2};
      if (from == DType::boolean || to == DType::boolean) want = {0, 1, 1, 1};
      EXPECT_EQ(doubles(y), want) << dtype_name(from) << " to " << dtype_name(to);
    }
  }
}

TEST(Casts, RoundAndTruncate) {
  EXPECT_EQ(values(vec({1.9f, -1.9f}).to(DType::i32)), (Floats{1, -1}));
  EXPECT_EQ(values(vec({1.00390625f}).to(DType::bf16)), (Floats{1}));  // half to even
  EXPECT_EQ(values(vec({65520}).to(DType::f16)), (Floats{INFINITY}));
  EXPECT_TRUE(std::isnan(values(vec({NAN}).to(DType::bf16))[0]));
  EXPECT_EQ(values(vec({0.5f}).to(DType::boolean)), (Floats{1}));
}

TEST(Printing, Elements) {
  auto text = [](const Tensor& t) {
    std::ostringstream s;
    s << t;
    return testing::without_device(s.str());
  };
  EXPECT_EQ(text(vec({1, -2.5f})), "[ 1.0000, -2.5000] f32[2]");
  EXPECT_EQ(text(ids({1, 2}).view({2, 1})), "[[1],\n [2]] i64[2,1]");
  EXPECT_EQ(text(Tensor()), "undefined");
  EXPECT_EQ(text(full({}, true, {DType::boolean})), "true bool[]");
  EXPECT_EQ(text(zeros({2, 0})), "[[],\n []] f32[2,0]");
  EXPECT_EQ(text(arange(2000)), "[   0,    1,    2, ..., 1997, 1998, 1999] i64[2000]");
  EXPECT_EQ(text(full({}, (int64_t{1} << 53) + 1, {DType::i64})), "9007199254740993 i64[]");
  EXPECT_EQ(text(vec({NAN, INFINITY})), "[nan, inf] f32[2]");
}

TEST(Names, BelongToTheTensor) {
  Tensor t = vec({1});
  EXPECT_EQ(t.name(), "");
  t.set_name("w");
  EXPECT_EQ(Tensor(t).name(), "w");
  EXPECT_ERROR(Tensor().set_name("w"), "invalid: set_name: the tensor is undefined");
}

}  // namespace KILN_FILE
}  // namespace kiln
