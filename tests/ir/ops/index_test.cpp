// SPDX-License-Identifier: Apache-2.0
// Scatters against loops over the indices in their order, for every dtype; duplicates, NaN, indices that lie
// on some lines only.
#include <gtest/gtest.h>

#include "tests/ir/ops/line_cases.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT
using Numbers = std::vector<double>;
using Ints = std::vector<int64_t>;

double put(double, double v) { return v; }
double plus(double a, double v) { return a + v; }
double times(double a, double v) { return a * v; }
double larger(double a, double v) { return v > a ? v : a; }
double smaller(double a, double v) { return v < a ? v : a; }

/// base of {3, 4}, indices of {2, 3} along `dim`.
Numbers naive(Numbers base, const Numbers& idx, const Numbers& src, size_t dim, double (*f)(double, double)) {
  for (size_t i = 0; i < 6; ++i) {
    size_t at[2] = {i / 3, i % 3};
    const auto extent = static_cast<double>(dim == 0 ? 3 : 4);
    at[dim] = static_cast<size_t>(idx[i] < 0 ? idx[i] + extent : idx[i]);
    double& to = base[at[0] * 4 + at[1]];
    to = f(to, src[i]);
  }
  return base;
}

TEST(OpsIndex, ScattersOfEveryDtypeTakeSourcesInOrder) {
  Rng rng{9};
  const struct {
    Op o;
    double (*f)(double, double);
  } kinds[] = {{op("scatter"), put},
               {op("scatter_add"), plus},
               {op("scatter_prod"), times},
               {op("scatter_amax"), larger},
               {op("scatter_amin"), smaller}};
  for (int k = 0; k < kDTypeCount; ++k)
    for (const auto& kind : kinds)
      for (size_t dim = 0; dim < 2; ++dim) {
        const auto t = static_cast<DType>(k);
        if (t == DType::boolean && kind.o != op("scatter")) continue;
        SCOPED_TRACE(fmt::format("{} {} dim {}", def(kind.o).name, dtype_name(t), dim));
        const double low = is_floating(t) ? -3 : 0;
        const auto whole = [&](const Ints& shape) {
          const HostTensor x = random_tensor(DType::i32, shape, rng, low, t == DType::boolean ? 1 : 3);
          return evaluate(op("cast"), {{x}}, {t});
        };
        const HostTensor base = whole({3, 4}), src = whole({2, 3});
        const HostTensor idx = random_tensor(DType::i64, {2, 3}, rng, -2, 2);
        EXPECT_EQ(numbers(evaluate(kind.o, {{base, idx, src}}, {static_cast<int64_t>(dim)})),
                  naive(numbers(base), numbers(idx), numbers(src), dim, kind.f));
      }
}

TEST(OpsIndex, NanWinsExtremaAndIntegersWrap) {
  const auto run = [](Op o, DType t, const Numbers& base, const Numbers& src) {
    const auto n = static_cast<int64_t>(base.size());
    return numbers(evaluate(o, {{tensor(t, {n}, base), tensor(DType::i64, {2}, {0, 0}), tensor(t, {2}, src)}},
                            {int64_t{0}}));
  };
  for (const Op o : {op("scatter_amax"), op("scatter_amin")}) {
    EXPECT_TRUE(std::isnan(run(o, DType::f32, {1, 2}, {NAN, 3})[0]));
    EXPECT_TRUE(std::isnan(run(o, DType::f32, {NAN, 2}, {4, 3})[0]));
  }
  EXPECT_EQ(run(op("scatter_prod"), DType::u8, {100, 7}, {2, 2}), (Numbers{144, 7}));
  EXPECT_EQ(run(op("scatter_prod"), DType::i64, {0x1p62, 7}, {2, 2}), (Numbers{0, 7}));
  EXPECT_EQ(run(op("scatter_add"), DType::bf16, {256, 7}, {1, 1}), (Numbers{258, 7}));  // summed in f32
}

TEST(OpsIndex, TypeRulesSayWhatIsWrong) {
  const Type x{DType::f32, {4, 2}}, i{DType::i64, {3, 2}};
  EXPECT_EQ(fault_of(op("scatter"), {x, i, {DType::f32, {3, 1}}}, {int64_t{0}}),
            "scatter: source has the wrong type; got f32[3,1], expected f32[3,2]");
  EXPECT_EQ(
      fault_of(op("scatter_amax"), {{DType::boolean, {4, 2}}, i, {DType::boolean, {3, 2}}}, {int64_t{0}}),
      "scatter_amax: does not take bool; got bool[4,2] (cast first)");
  EXPECT_EQ(fault_of(op("scatter"), {{DType::boolean, {4, 2}}, i, {DType::boolean, {3, 2}}}, {int64_t{0}}),
            "no error");
}

}  // namespace KILN_FILE
}  // namespace kiln
