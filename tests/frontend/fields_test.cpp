// SPDX-License-Identifier: Apache-2.0
// Which tensors for_each_tensor finds, in which order, and what it leaves alone.
#include "frontend/fields.h"

#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

template <typename T>
Floats found(const T& value) {
  Floats out;
  for_each_tensor(value, [&](const Tensor& t) { out.push_back(t.defined() ? t.item<float>() : -1); });
  return out;
}
Tensor one(float v) { return vec({v}); }

struct Inner {
  Tensor a;
  double scale = 0;
  std::vector<Tensor> more;
};
struct Outer {
  Inner inner;
  std::optional<Tensor> maybe;
  std::string text;
  std::pair<Tensor, int> pair;
};
struct Wide {
  Tensor a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p;
};
struct TooWide {
  Tensor a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q;
};
struct WithArray {
  Tensor a[2];
};
struct Derived : Inner {
  Tensor own;
};
class Listed {
 public:
  Listed(float a, float b) : a_(one(a)), b_(one(b)), raw_(&a_) {}
  KILN_FIELDS(b_, a_)

 private:
  Tensor a_, b_;
  Tensor* raw_;
};
struct HoldsListed {
  Listed l{1, 2};
};

TEST(Fields, ContainersAndAggregates) {
  EXPECT_EQ(found(one(3)), (Floats{3}));
  EXPECT_EQ(found(Tensor()), (Floats{-1}));
  EXPECT_EQ(found(std::vector<Tensor>{one(1), one(2)}), (Floats{1, 2}));
  EXPECT_EQ(found(std::tuple(one(1), 5, std::array<Tensor, 2>{one(2), one(3)})), (Floats{1, 2, 3}));
  EXPECT_EQ(found(std::optional<Tensor>()), Floats{});
  const Outer o{{one(1), 2.0, {one(2), one(3)}}, one(4), "x", {one(5), 6}};
  EXPECT_EQ(found(o), (Floats{1, 2, 3, 4, 5}));
  EXPECT_EQ(found(std::vector<Outer>{o, o}).size(), 10u);
}

TEST(Fields, LimitsAndMacro) {
  Wide w;
  w.p = one(7);
  const Floats all = found(w);
  ASSERT_EQ(all.size(), 16u);
  EXPECT_EQ(all[15], 7);
  EXPECT_EQ(found(TooWide{}), Floats{});
  EXPECT_EQ(found(WithArray{}), Floats{});
  EXPECT_EQ(found(Derived{}), Floats{});
  EXPECT_EQ(found(Listed(1, 2)), (Floats{2, 1}));
  EXPECT_EQ(found(std::vector<int>{1}), Floats{});
  EXPECT_EQ(found(std::vector<bool>{true}), Floats{});
}

TEST(Fields, TensorsCanBeReplaced) {
  Outer o{{one(1), 2.0, {one(2)}}, {}, "", {one(3), 0}};
  float next = 10;
  for_each_tensor(o, [&](Tensor& t) { t = one(next++); });
  EXPECT_EQ(found(o), (Floats{10, 11, 12}));
  EXPECT_EQ(o.inner.scale, 2.0);
}

}  // namespace KILN_FILE
}  // namespace kiln
