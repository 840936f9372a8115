// SPDX-License-Identifier: Apache-2.0
#include "frontend/data/dataset.h"

#include <gmock/gmock.h>

#include "tests/frontend/testing.h"

namespace kiln::data {
namespace KILN_FILE {

using ::testing::ElementsAre;
using testing::mat;
using testing::values;

DatasetPtr rows(int64_t n) {
  return std::make_shared<TensorDataset>(
      std::vector{arange(n).to(DType::f32), arange(2 * n).view({n, 2}).to(DType::f32)});
}

TEST(Dataset, TensorsByRow) {
  const DatasetPtr d = rows(4);
  EXPECT_EQ(d->size(), 4);
  const Example e = d->get(2);
  ASSERT_EQ(e.size(), 2u);
  EXPECT_EQ(e[0].sizes(), Sizes{});
  EXPECT_THAT(values(e[0]), ElementsAre(2));
  EXPECT_THAT(values(e[1]), ElementsAre(4, 5));
  EXPECT_EQ(testing::error_of([&] { d->get(4); }).substr(0, 8), "invalid:");
}

TEST(Dataset, TensorsThatDoNotFit) {
  EXPECT_ERROR(TensorDataset({}), "invalid: TensorDataset (@): got no tensors");
  EXPECT_ERROR(TensorDataset({Tensor()}),
               "invalid: TensorDataset (@): tensor 0 has no rows; got undefined, expected [n, ...]");
  EXPECT_ERROR(TensorDataset({full({}, 1.0f)}),
               "invalid: TensorDataset (@): tensor 0 has no rows; got f32[], expected [n, ...]");
  EXPECT_ERROR(TensorDataset({mat({1, 2}, {2, 1}), mat({1, 2, 3}, {3})}),
               "invalid: TensorDataset (@): tensor 1 has 3 rows (f32[3]), tensor 0 has 2 (f32[2,1])");
}

TEST(Dataset, Subsets) {
  const Subset s(rows(4), {3, 0, 3});
  EXPECT_EQ(s.size(), 3);
  EXPECT_THAT(values(s.get(0)[0]), ElementsAre(3));
  EXPECT_THAT(values(s.get(1)[0]), ElementsAre(0));
  EXPECT_ERROR(s.get(3), "invalid: Subset: no example 3; it has 3");
  EXPECT_ERROR(Subset(rows(4), {4}), "invalid: Subset (@): no example 4; the dataset has 4");
  EXPECT_ERROR(Subset(nullptr, {}), "invalid: Subset (@): no dataset");
}

TEST(Dataset, RandomSplitIsAPartition) {
  const auto parts = random_split(rows(10), {7, 0, 3}, 5);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[1]->size(), 0);
  std::vector<int64_t> all = parts[0]->indices();
  EXPECT_EQ(all.size(), 7u);
  all.insert(all.end(), parts[2]->indices().begin(), parts[2]->indices().end());
  EXPECT_THAT(all, ::testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_FALSE(std::is_sorted(all.begin(), all.end()));
  EXPECT_EQ(random_split(rows(10), {7, 3}, 5)[0]->indices(), parts[0]->indices());
  EXPECT_NE(random_split(rows(10), {7, 3}, 6)[0]->indices(), parts[0]->indices());
  EXPECT_ERROR(random_split(rows(10), {7, 4}),
               "invalid: random_split (@): the lengths [7,4] do not make up the 10 examples");
  EXPECT_ERROR(random_split(rows(10), {11, -1}),
               "invalid: random_split (@): the lengths [11,-1] do not make up the 10 examples");
}

}  // namespace KILN_FILE
}  // namespace kiln::data
