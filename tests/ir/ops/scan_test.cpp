// SPDX-License-Identifier: Apache-2.0
// Scans against loops over lines, for every dtype and dim; NaN, infinities, ties, empty lines; what type
// rules say of bad input.
#include <gtest/gtest.h>

#include "tests/ir/ops/line_cases.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT
using Numbers = std::vector<double>;

Numbers run(Op o, const HostTensor& x, int64_t dim = 0) { return numbers(evaluate(o, {{x}}, {dim})); }
HostTensor vec(const Numbers& v, DType t = DType::f32) {
  return tensor(t, {static_cast<int64_t>(v.size())}, v);
}
void expect_near(const Numbers& got, const Numbers& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])) ||
                std::fabs(got[i] - want[i]) <= tolerance * std::max(1., std::fabs(want[i])))
        << "element " << i << " is " << got[i] << ", expected " << want[i];
}

Numbers folded(const Numbers& line, double from, const std::function<double(double, double)>& f) {
  Numbers out;
  for (double v : line) out.push_back(from = f(from, v));
  return out;
}

TEST(OpsScan, RunningValuesForEveryDtypeAndDim) {
  Rng rng{3};
  for (const DType t : {DType::u8, DType::i32, DType::i64, DType::f16, DType::bf16, DType::f32, DType::f64}) {
    // Small numbers, so that integers do not wrap: wrapping is tested below.
    const HostTensor x = random_tensor(t, {3, 4, 5}, rng, is_floating(t) ? -2 : 0, 2);
    const HostTensor turned = evaluate(op("permute"), {{x}}, {std::vector<int64_t>{2, 0, 1}});
    const double tolerance = t == DType::f16    ? 1e-3
                             : t == DType::bf16 ? 8e-3
                             : t == DType::f32  ? 3e-7
                                                : 1e-14;
    for (const HostTensor& y : {x, turned})
      for (size_t dim = 0; dim < 3; ++dim) {
        SCOPED_TRACE(fmt::format("{} dim {}", dtype_name(t), dim));
        const auto d = static_cast<int64_t>(dim);
        expect_near(run(op("cumsum"), y, d),
                    by_line(y, dim, [](const Numbers& l) { return folded(l, 0, std::plus<>()); }), tolerance);
        expect_near(run(op("cumprod"), y, d),
                    by_line(y, dim, [](const Numbers& l) { return folded(l, 1, std::multiplies<>()); }),
                    tolerance);
        const Numbers best = run(op("cumargmax"), y, d), least = run(op("cumargmin"), y, d);
        const auto place = [](const Numbers& l, bool max) {
          Numbers out;
          size_t at = 0;
          for (size_t i = 0; i < l.size(); ++i) {
            if (max ? l[i] >= l[at] : l[i] <= l[at]) at = i;
            out.push_back(static_cast<double>(at));
          }
          return out;
        };
        EXPECT_EQ(best, by_line(y, dim, [&](const Numbers& l) { return place(l, true); }));
        EXPECT_EQ(least, by_line(y, dim, [&](const Numbers& l) { return place(l, false); }));
        if (!is_floating(t)) continue;
        const auto log_sum = [](const Numbers& l) {
          Numbers e;
          for (double v : l) e.push_back(std::exp(v));
          e = folded(e, 0, std::plus<>());
          for (double& v : e) v = std::log(v);
          return e;
        };
        expect_near(run(op("logcumsumexp"), y, d), by_line(y, dim, log_sum), tolerance);
      }
  }
}

TEST(OpsScan, IntegersWrap) {
  EXPECT_EQ(run(op("cumsum"), vec({200, 100, 3}, DType::u8)), (Numbers{200, 44, 47}));
  EXPECT_EQ(run(op("cumprod"), vec({65536, 65536, 3}, DType::i32)), (Numbers{65536, 0, 0}));
  EXPECT_EQ(run(op("cumsum"), vec({0x1p62, 0x1p62, 0}, DType::i64)), (Numbers{0x1p62, -0x1p63, -0x1p63}));
}

TEST(OpsScan, NanInfinitiesAndTies) {
  const double inf = INFINITY, nan = NAN;
  expect_near(run(op("cumsum"), vec({1, inf, 2, -inf, 3})), {1, inf, inf, nan, nan}, 0);
  expect_near(run(op("cumprod"), vec({0, inf, 2})), {0, nan, nan}, 0);
  // The last of equals and the last NaN, as torch.cummax.
  EXPECT_EQ(run(op("cumargmax"), vec({1, 3, 3, 2, nan, 9, nan, 1})), (Numbers{0, 1, 2, 2, 4, 4, 6, 6}));
  EXPECT_EQ(run(op("cumargmin"), vec({2, 1, 1, 3, nan, -9})), (Numbers{0, 1, 2, 2, 4, 4}));
  EXPECT_EQ(run(op("cumargmax"), vec({1, 0, 1, 1}, DType::boolean)), (Numbers{0, 0, 2, 3}));
  expect_near(run(op("logcumsumexp"), vec({-inf, -inf, 0, 1000, 1000, inf, 5, -inf})),
              {-inf, -inf, 0, 1000, 1000 + std::log(2.), inf, inf, inf}, 1e-7);
  expect_near(run(op("logcumsumexp"), vec({0, nan, inf})), {0, nan, nan}, 0);
}

TEST(OpsScan, EmptyAndSingle) {
  for (const Op o : {op("cumsum"), op("cumprod"), op("cumargmax"), op("logcumsumexp")}) {
    for (const std::vector<int64_t>& s : {std::vector<int64_t>{0}, {3, 0}, {0, 3}})
      EXPECT_TRUE(run(o, make_host_tensor(DType::f32, s)).empty());
    EXPECT_EQ(run(o, tensor(DType::f32, {2, 1}, {5, 7}), 1),
              o == op("cumargmax") ? (Numbers{0, 0}) : (Numbers{5, 7}));
  }
}

TEST(OpsScan, LongSumsOfFloatsAreCarriedInDouble) {
  const int64_t n = 100000;
  const std::vector<double> got = run(op("cumsum"), vec(Numbers(static_cast<size_t>(n), 0.1)));
  const double tenth = static_cast<double>(0.1f);
  EXPECT_EQ(got.back(), static_cast<double>(static_cast<float>(tenth * static_cast<double>(n))));
}

TEST(OpsScan, TypeRulesSayWhatIsWrong) {
  EXPECT_EQ(fault_of(op("cumsum"), {{DType::f32, {2, 3}}}, {int64_t{2}}),
            "cumsum: dim out of range; got 2, expected 0 to 1");
  EXPECT_EQ(fault_of(op("cumargmax"), {{DType::f32, {}}}, {int64_t{0}}),
            "cumargmax: dim out of range; got 0, expected 0 to -1");
  EXPECT_EQ(fault_of(op("cumprod"), {{DType::boolean, {2}}}, {int64_t{0}}),
            "cumprod: does not take bool; got bool[2] (cast first)");
  EXPECT_EQ(fault_of(op("logcumsumexp"), {{DType::i64, {2}}}, {int64_t{0}}),
            "logcumsumexp: needs a floating dtype; got i64[2] (cast first)");
}

}  // namespace KILN_FILE
}  // namespace kiln
