// SPDX-License-Identifier: Apache-2.0
// Rows for the CPU: sums of very many floats are as exact as those of few, for additions to one float are
// bounded.
#include <gtest/gtest.h>

#include "tests/codegen/fuzz_case.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT
using Ints = std::vector<int64_t>;

/// Positive, so that nothing cancels: a float that had them all added one by one would be off by 1e-4 and
/// more.
HostTensor positive(const Ints& shape) {
  HostTensor x = make_host_tensor(DType::f32, shape);
  auto* at = static_cast<float*>(x.ref.data);
  uint32_t state = 1;
  for (int64_t i = 0; i < x.ref.numel(); ++i) {
    state = state * 1664525u + 1013904223u;
    at[i] = 0.1f + static_cast<float>(state >> 8) * 0x1p-25f;
  }
  return x;
}

/// The largest relative error of f(x) summed over `dims`, f being x * 1.5 if `computed`.
double error_of_sum(const HostTensor& x, const Ints& dims, bool computed,
                    const std::vector<std::string>& names = {}) {
  Graph g;
  GraphBuilder b(g);
  Shape shape(x.ref.shape.begin(), x.ref.shape.end());
  for (size_t d = 0; d < names.size(); ++d)
    if (!names[d].empty()) shape[d] = Dim::symbol(names[d]);
  const Value in = g.add_input({DType::f32, shape}, InputKind::arg, "x");
  const Value y = computed ? b.emit(op("mul"), {in, b.constant_like(1.5, in)}) : in;
  g.add_output(b.sum(y, dims));
  const CompiledProgram p = compile_program(g, {}, host_target(), {}, nullptr, 1);
  const auto loaded = load(p);
  std::vector<int64_t> symbols;
  for (const std::string& s : p.plan.symbols)
    for (size_t d = 0; d < names.size(); ++d)
      if (names[d] == s) symbols.push_back(x.ref.shape[d]);
  const HostTensor got = execute(g, *loaded.exe, {x}, 2, {}, {}, nullptr, symbols)[0];
  EXPECT_TRUE(equal_bits(got, execute(g, *loaded.exe, {x}, 1, {}, {}, nullptr, symbols)[0]));
  const HostTensor wide = evaluate(op("sum"), {{evaluate(op("cast"), {{x}}, {DType::f64})}}, {dims});
  double worst = 0;
  for (int64_t i = 0; i < got.ref.numel(); ++i) {
    const double want = static_cast<const double*>(wide.ref.data)[i] * (computed ? 1.5 : 1);
    worst = std::max(worst, std::fabs(static_cast<const float*>(got.ref.data)[i] - want) / want);
  }
  return worst;
}

TEST(LongSums, OfAll) {
  const HostTensor x = positive({20'000'000});
  EXPECT_LT(error_of_sum(x, {0}, false), 3e-7);
  EXPECT_LT(error_of_sum(x, {0}, true), 3e-7);
  EXPECT_LT(error_of_sum(x, {0}, false, {"N"}), 3e-7);
  EXPECT_LT(error_of_sum(positive({1'000'003}), {0}, false), 3e-7);
}

TEST(LongSums, OfRows) {
  const HostTensor x = positive({3, 1'000'001});
  EXPECT_LT(error_of_sum(x, {1}, false), 3e-7);
  EXPECT_LT(error_of_sum(x, {1}, true, {"B", "N"}), 3e-7);
  EXPECT_LT(error_of_sum(x, {0, 1}, false), 3e-7);
  EXPECT_LT(error_of_sum(positive({3, 100'001, 7}), {1, 2}, false), 3e-7);
  EXPECT_LT(error_of_sum(positive({2, 1'000, 1'003}), {1, 2}, true), 3e-7);
}

TEST(LongSums, OfColumns) {
  for (const int64_t columns : {2, 5, 16, 100})
    EXPECT_LT(error_of_sum(positive({2'000'000 / columns, columns}), {0}, columns == 5), 2e-6) << columns;
  EXPECT_LT(error_of_sum(positive({500'001, 4}), {0, 1}, false), 3e-7);
  EXPECT_LT(error_of_sum(positive({500'001, 4}), {0}, false, {"N"}), 2e-6);
}

/// Rounding of equal numbers does not cancel out: all additions to one float err the same way.
TEST(LongSums, OfEqualNumbers) {
  const auto equal = [](const Ints& shape) {
    HostTensor x = make_host_tensor(DType::f32, shape);
    std::fill_n(static_cast<float*>(x.ref.data), x.ref.numel(), 0.3f);
    return x;
  };
  EXPECT_LT(error_of_sum(equal({1'000'000}), {0}, false), 1e-6);
  EXPECT_LT(error_of_sum(equal({1'000'000, 1}), {0, 1}, false), 1e-6);
  EXPECT_LT(error_of_sum(equal({3, 1'000'000}), {1}, true), 1e-6);
  for (const int64_t rows : {4'096, 100'000, 1'000'000})
    for (const int64_t columns : {3, 21}) EXPECT_LT(error_of_sum(equal({rows, columns}), {0}, false), 3e-6);
}

}  // namespace KILN_FILE
}  // namespace kiln
