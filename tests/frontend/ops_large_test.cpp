// SPDX-License-Identifier: Apache-2.0
// Tensors of more than 2^31 elements, which compiled code counts and finds without making them.
#include "frontend/compile.h"
#include "frontend/ops.h"
#include "frontend/ops_index.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

/// The square of it is just above 2^31.
constexpr int64_t kSide = 46342;
/// Bytes that no such tensor fits in, of however few.
constexpr int64_t kFew = int64_t{1} << 27;

CompileOptions whole() {
  CompileOptions o;
  o.full_graph = true;
  return o;
}

/// No fold of the sum of an expanded tensor: each element is of a row and of a column.
TEST(Large, SumsOfMoreElementsThan31BitsCount) {
  const Tensor column = (arange(kSide, {.dtype = DType::f64}) * 2.0 + 1.0).view({kSide, 1}).detach(),
               row = arange(kSide, {.dtype = DType::f64}).view({1, kSide}).detach();
  const auto f = compile(
      [&] {
        const Tensor all = maximum(expand(column, {kSide, kSide}), expand(row, {kSide, kSide}));
        return std::vector<Tensor>{sum(all), amax(all)};
      },
      whole());
  const std::vector<Tensor> got = f();
  double want = 0;  // all are whole, and so are the sums: below 2^53
  for (int64_t i = 0; i < kSide; ++i) {
    const int64_t c = 2 * i + 1, below = std::min(c, kSide);  // columns up to c count as c
    want += static_cast<double>(below * c + (kSide * (kSide - 1) - below * (below - 1)) / 2);
  }
  EXPECT_EQ(got[0].item(), want);
  EXPECT_EQ(got[1].item(), 2.0 * kSide - 1);
  EXPECT_LT(f.stats().builds.at(0).arena_bytes, kFew);
}

TEST(Large, PlacesBeyond31BitsAreFound) {
  constexpr int64_t kMany = (int64_t{1} << 31) + 1000, kAt = kMany - 3;
  const Tensor at = ids({kAt});
  const auto f = compile(
      [&] {
        const Tensor all = arange(kMany, {.dtype = DType::i64});
        return std::vector<Tensor>{argmax(eq(all, at).to(DType::u8), 0), all.sum(), index_select(all, 0, at)};
      },
      whole());
  const std::vector<Tensor> got = f();
  EXPECT_EQ(got[0].item<int64_t>(), kAt);
  EXPECT_EQ(got[1].item<int64_t>(), kMany / 2 * (kMany - 1));
  EXPECT_EQ(got[2].to_vector<int64_t>(), (std::vector<int64_t>{kAt}));
  EXPECT_LT(f.stats().builds.at(0).arena_bytes, kFew);
}

/// 2^32 elements of one row, also eagerly.
TEST(Large, PartsOfAnExpandedRow) {
  constexpr int64_t kRows = int64_t{1} << 20, kColumns = 4096;
  const Tensor row = arange(kColumns, {.dtype = DType::f32}).detach();
  const auto body = [&](const Tensor& x) {
    const Tensor all = expand(x, {kRows, kColumns});
    return std::vector<Tensor>{sum(narrow(all, 0, kRows - 2, 2), {0}),
                               select(select(all, 0, kRows - 1), 0, kColumns - 2)};
  };
  EXPECT_EQ(expand(row, {kRows, kColumns}).numel(), int64_t{1} << 32);
  const auto f = compile(body, whole());
  for (const std::vector<Tensor>& got : {body(row), f(row), f(row)}) {
    EXPECT_EQ(values(got[0]), values(row * 2.0));
    EXPECT_EQ(got[1].item(), kColumns - 2.0);
  }
  EXPECT_LT(f.stats().builds.at(0).arena_bytes, kFew);
}

TEST(Large, GradientsOfPartsComeBackToTheRow) {
  constexpr int64_t kRows = (int64_t{1} << 19) + 1, kColumns = 4096;
  Tensor row = arange(kColumns, {.dtype = DType::f32}).detach();
  row.requires_grad_();
  const auto f = compile(
      [&] {
        const Tensor all = expand(row, {kRows, kColumns});
        const Tensor loss = sum(narrow(all, 0, kRows - 2, 2)) + sum(narrow(select(all, 0, 0), 0, 7, 1));
        loss.backward();
        return loss;
      },
      whole());
  EXPECT_EQ(f().item(), kColumns * (kColumns - 1.0) + 7);
  Floats gradient(kColumns, 2);
  gradient[7] = 3;
  EXPECT_EQ(values(row.grad()), gradient);
  EXPECT_LT(f.stats().builds.at(0).arena_bytes, kFew);
}

/// Rows by number: compiled, for eagerly the rows that there are not would be made.
TEST(Large, RowsOfAnExpandedRow) {
  constexpr int64_t kRows = int64_t{1} << 20, kColumns = 4096;
  const Tensor row = arange(kColumns, {.dtype = DType::f32}).detach(), ends = ids({kRows - 1, 0});
  const auto f = compile(
      [&](const Tensor& x) {
        return sum(index_select(expand(x, {kRows, kColumns}), 0, ends), {1});
      },
      whole());
  const float want = kColumns * (kColumns - 1) / 2;
  for (int call = 0; call < 2; ++call) EXPECT_EQ(values(f(row)), Floats(2, want));
  EXPECT_LT(f.stats().builds.at(0).arena_bytes, kFew);
}

}  // namespace KILN_FILE
}  // namespace kiln
