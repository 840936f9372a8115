// SPDX-License-Identifier: Apache-2.0
// Orders and searches against the standard library over lines; ties, NaN, empty lines; what type rules say of
// bad input.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/ir/ops/line_cases.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT
using Numbers = std::vector<double>;

Numbers order(const HostTensor& x, int64_t dim, bool descending) {
  return numbers(evaluate(op("argsort"), {{x}}, {dim, descending}));
}
Numbers search(const HostTensor& line, const HostTensor& x, bool right) {
  return numbers(evaluate(op("searchsorted"), {{line, x}}, {right}));
}
HostTensor vec(const Numbers& v, DType t = DType::f32) {
  return tensor(t, {static_cast<int64_t>(v.size())}, v);
}

/// Counting: as many places before it as there are smaller keys, and equal ones that came before.
Numbers counted_order(const Numbers& line, bool descending) {
  Numbers out(line.size());
  for (size_t i = 0; i < line.size(); ++i) {
    size_t before = 0;
    for (size_t j = 0; j < line.size(); ++j)
      before += line[j] == line[i] ? j < i : descending ? line[j] > line[i] : line[j] < line[i];
    out[before] = static_cast<double>(i);
  }
  return out;
}

TEST(OpsSort, OrdersOfEveryDtypeAndDimKeepTies) {
  Rng rng{5};
  for (int k = 0; k < kDTypeCount; ++k) {
    const auto t = static_cast<DType>(k);
    const HostTensor whole = random_tensor(DType::i32, {4, 3, 7}, rng, 0, t == DType::boolean ? 1 : 4);
    const HostTensor x = evaluate(op("cast"), {{whole}}, {t});
    const HostTensor turned = evaluate(op("permute"), {{x}}, {std::vector<int64_t>{2, 0, 1}});
    for (const HostTensor& y : {x, turned})
      for (size_t dim = 0; dim < 3; ++dim)
        for (const bool descending : {false, true}) {
          SCOPED_TRACE(fmt::format("{} dim {} {}", dtype_name(t), dim, descending));
          EXPECT_EQ(order(y, static_cast<int64_t>(dim), descending),
                    by_line(y, dim, [&](const Numbers& l) { return counted_order(l, descending); }));
        }
  }
}

TEST(OpsSort, NanIsLargestAndEmptyIsEmpty) {
  EXPECT_EQ(order(vec({NAN, 1, INFINITY, NAN, -INFINITY}), 0, false), (Numbers{4, 1, 2, 0, 3}));
  EXPECT_EQ(order(vec({NAN, 1, INFINITY, NAN, 1}), 0, true), (Numbers{0, 3, 2, 1, 4}));
  EXPECT_EQ(order(vec({0.0, -0.0, 0.0}), 0, true), (Numbers{0, 1, 2}));
  EXPECT_TRUE(order(make_host_tensor(DType::f32, {0, 3}), 0, false).empty());
  EXPECT_TRUE(order(make_host_tensor(DType::f32, {0, 3}), 1, true).empty());
}

TEST(OpsSort, SearchesOneLineOrOneForEach) {
  const HostTensor line = vec({1, 3, 3, 5});
  const HostTensor x = tensor(DType::f32, {2, 3}, {0, 1, 3, 4, 5, 9});
  EXPECT_EQ(search(line, x, false), (Numbers{0, 0, 1, 3, 3, 4}));
  EXPECT_EQ(search(line, x, true), (Numbers{0, 1, 3, 3, 4, 4}));
  const HostTensor lines = tensor(DType::f32, {2, 2}, {1, 3, 4, 5});
  EXPECT_EQ(search(lines, x, false), (Numbers{0, 0, 1, 0, 1, 2}));
  EXPECT_EQ(search(lines, x, true), (Numbers{0, 1, 2, 1, 2, 2}));
  EXPECT_EQ(search(vec({1, 3}), scalar(DType::f32, 2), false), Numbers{1});
  EXPECT_EQ(search(make_host_tensor(DType::i64, {0}), vec({1, 2}, DType::i64), true), (Numbers{0, 0}));
  EXPECT_EQ(search(vec({1, 2, NAN}), vec({NAN, 2}), false), (Numbers{2, 1}));
  EXPECT_EQ(search(vec({1, 2, NAN}), vec({NAN, 2}), true), (Numbers{3, 2}));
  for (const DType t : {DType::u8, DType::i32, DType::i64, DType::f16, DType::bf16, DType::f64})
    EXPECT_EQ(search(vec({1, 3, 3, 5}, t), vec({3, 4}, t), true), (Numbers{3, 3}));
}

TEST(OpsSort, TypeRulesSayWhatIsWrong) {
  EXPECT_EQ(fault_of(op("argsort"), {{DType::f32, {2}}}, {int64_t{1}, false}),
            "argsort: dim out of range; got 1, expected 0 to 0");
  EXPECT_EQ(
      fault_of(op("searchsorted"), {{DType::f32, {2, 4}}, {DType::f32, {3, 2}}}, {false}),
      "searchsorted: sorted sequence and values do not fit; got f32[2,4] and f32[3,2], expected one dtype, "
      "and one dim or equal sizes beside the last dim");
  EXPECT_NE(fault_of(op("searchsorted"), {{DType::f32, {2}}, {DType::f64, {3}}}, {false}), "no error");
  EXPECT_NE(fault_of(op("searchsorted"), {{DType::f32, {}}, {DType::f32, {3}}}, {false}), "no error");
  EXPECT_NE(fault_of(op("searchsorted"), {{DType::f32, {2, 4}}, {DType::f32, {2}}}, {false}), "no error");
}

}  // namespace KILN_FILE
}  // namespace kiln
