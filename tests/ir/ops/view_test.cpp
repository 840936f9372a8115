// SPDX-License-Identifier: Apache-2.0
// Views, gathers, scatters and contractions against naive index arithmetic, and the exact text of what type
// rules and evaluations say of bad input.
#include <gtest/gtest.h>

#include <functional>

#include "tests/ir/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT
using Ints = std::vector<int64_t>;

/// 0, 1, 2, ... in that shape.
HostTensor counted(DType t, const Ints& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  std::vector<double> v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>(i);
  return tensor(t, shape, v);
}
HostTensor run(Op o, const std::vector<HostTensor>& in, const Attrs& attrs) { return evaluate(o, in, attrs); }

/// Element-by-element: want(index) is the element of the result at that index.
void expect_elements(const HostTensor& got, const Ints& shape,
                     const std::function<double(const Ints&)>& want) {
  ASSERT_EQ(got.ref.shape, shape);
  const std::vector<double> v = numbers(got);
  Ints at(shape.size());
  for (size_t i = 0; i < v.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i);
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) at[d] = rest % shape[d];
    ASSERT_EQ(v[i], want(at)) << "at [" << fmt::format("{}", fmt::join(at, ",")) << "]";
  }
}

TEST(OpsView, ViewsShareMemoryAndSayWhereElementsAre) {
  const HostTensor x = counted(DType::f32, {4, 6});
  const auto at = [](int64_t i, int64_t j) { return static_cast<double>(i * 6 + j); };
  const HostTensor p = run(op("permute"), {x}, {Ints{1, 0}});
  expect_elements(p, {6, 4}, [&](const Ints& i) { return at(i[1], i[0]); });
  const HostTensor s = run(op("slice"), {x}, {Shape{1, 0}, Shape{4, 5}, Ints{2, 3}});
  expect_elements(s, {2, 2}, [&](const Ints& i) { return at(1 + 2 * i[0], 3 * i[1]); });
  const HostTensor f = run(op("flip"), {s}, {Ints{0}});
  expect_elements(f, {2, 2}, [&](const Ints& i) { return at(3 - 2 * i[0], 3 * i[1]); });
  const HostTensor e =
      run(op("expand"), {run(op("slice"), {x}, {Shape{2, 0}, Shape{3, 6}, Ints{1, 1}})}, {Shape{2, 5, 6}});
  expect_elements(e, {2, 5, 6}, [&](const Ints& i) { return at(2, i[2]); });
  const HostTensor r = run(op("reshape"), {x}, {Shape{2, 2, 1, 3, 2}});
  expect_elements(r, {2, 2, 1, 3, 2}, [&](const Ints& i) { return at(i[0] * 2 + i[1], i[3] * 2 + i[4]); });
  for (const HostTensor& v : {p, s, f, e, r}) EXPECT_EQ(v.storage, x.storage);
}

TEST(OpsView, ReshapeCopiesOnlyWhereStridesCannotSayIt) {
  const HostTensor x = counted(DType::i64, {4, 6});
  const HostTensor p = run(op("permute"), {x}, {Ints{1, 0}});
  const HostTensor flat = run(op("reshape"), {p}, {Shape{24}});
  EXPECT_NE(flat.storage, x.storage);
  expect_elements(flat, {24}, [](const Ints& i) { return static_cast<double>(i[0] % 4 * 6 + i[0] / 4); });
  const HostTensor split = run(op("reshape"), {p}, {Shape{2, 3, 4}});
  EXPECT_EQ(split.storage, x.storage);
  expect_elements(split, {2, 3, 4},
                  [](const Ints& i) { return static_cast<double>(i[2] * 6 + i[0] * 3 + i[1]); });
  EXPECT_EQ(run(op("reshape"), {counted(DType::f32, {0, 3})}, {Shape{3, 0, 7}}).ref.shape, (Ints{3, 0, 7}));
  EXPECT_EQ(numbers(run(op("reshape"), {scalar(DType::f32, 5)}, {Shape{1, 1}})), std::vector<double>{5});
}

TEST(OpsView, LargeTransposesCopyEveryElement) {
  for (const Ints& shape : {Ints{70, 3, 45}, Ints{33, 2, 8}, Ints{9, 1, 700}})
    for (const Ints& p : {Ints{2, 1, 0}, Ints{2, 0, 1}, Ints{1, 2, 0}}) {
      const HostTensor x = counted(DType::f32, shape);
      const HostTensor t = run(op("permute"), {x}, {p});
      const auto at = [&](const Ints& i) {
        Ints j(3);
        for (size_t d = 0; d < 3; ++d) j[static_cast<size_t>(p[d])] = i[d];
        return static_cast<double>((j[0] * shape[1] + j[1]) * shape[2] + j[2]);
      };
      expect_elements(contiguous(t), t.ref.shape, at);
      expect_elements(run(op("neg"), {t}, {}), t.ref.shape, [&](const Ints& i) { return -at(i); });
    }
}

TEST(OpsView, PadAndCat) {
  const HostTensor x = counted(DType::f32, {2, 3});
  const HostTensor p = run(op("pad"), {x}, {Shape{1, 0}, Shape{0, 2}, Ints{2, 1}, -1.0});
  expect_elements(p, {5, 7}, [](const Ints& i) {
    const int64_t r = i[0] - 1, c = i[1];
    return r < 0 || r % 3 || c % 2 || c > 4 ? -1. : static_cast<double>(r / 3 * 3 + c / 2);
  });
  EXPECT_EQ(run(op("pad"), {counted(DType::f32, {0})}, {Shape{1}, Shape{2}, Ints{4}, 0.0}).ref.shape,
            Ints{3});
  const HostTensor c =
      run(op("cat"), {x, run(op("flip"), {x}, {Ints{1}}), counted(DType::f32, {2, 0})}, {int64_t{1}});
  expect_elements(c, {2, 6},
                  [](const Ints& i) { return static_cast<double>(i[0] * 3 + (i[1] < 3 ? i[1] : 5 - i[1])); });
}

TEST(OpsView, TakeForEveryDtypeAndIndexRank) {
  for (int t = 0; t < kDTypeCount; ++t) {
    const DType dtype = static_cast<DType>(t);
    const HostTensor x = counted(dtype, {3, 4, 2});
    const auto at = [&](int64_t i, int64_t j, int64_t k) {
      const double v = static_cast<double>(i * 8 + j * 2 + k);
      return dtype == DType::boolean ? double(v != 0) : v;
    };
    const HostTensor idx = tensor(DType::i64, {2, 2}, {3, -1, 0, -4});
    const int64_t rows[2][2] = {{3, 3}, {0, 0}};
    expect_elements(run(op("take"), {x, idx}, {int64_t{1}}), {3, 2, 2, 2},
                    [&](const Ints& i) { return at(i[0], rows[i[1]][i[2]], i[3]); });
    expect_elements(run(op("take"), {x, scalar(DType::i32, -2)}, {int64_t{0}}), {4, 2},
                    [&](const Ints& i) { return at(1, i[0], i[1]); });
  }
  EXPECT_EQ(
      run(op("take"), {counted(DType::f32, {3, 2}), tensor(DType::i64, {0}, {})}, {int64_t{0}}).ref.shape,
      (Ints{0, 2}));
}

TEST(OpsView, TakeAlongAndItsAdjoint) {
  const HostTensor x = counted(DType::f64, {3, 4});
  const HostTensor idx = tensor(DType::i64, {2, 3}, {0, 2, -1, 1, 1, 0});
  const int64_t from[2][3] = {{0, 2, 2}, {1, 1, 0}};
  expect_elements(run(op("take_along"), {x, idx}, {int64_t{0}}), {2, 3},
                  [&](const Ints& i) { return static_cast<double>(from[i[0]][i[1]] * 4 + i[1]); });
  const HostTensor base = run(op("constant"), {}, {100.0, DType::f64, Shape{3, 4}});
  const HostTensor sum = run(op("scatter_add"), {base, idx, counted(DType::f64, {2, 3})}, {int64_t{0}});
  double want[3][4];
  for (auto& row : want) std::fill(row, row + 4, 100.);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j) want[from[i][j]][j] += i * 3 + j;
  expect_elements(sum, {3, 4}, [&](const Ints& i) { return want[i[0]][i[1]]; });
}

TEST(OpsView, IndexAddAddsInTheOrderOfTheIndices) {
  // In f32, 1e8 + 1 loses the 1; only this order gives 1 at the end.
  const HostTensor base = run(op("constant"), {}, {0.0, DType::f32, Shape{2, 1}});
  const HostTensor idx = tensor(DType::i32, {4}, {1, -1, 1, 0});
  const HostTensor src = tensor(DType::f32, {4, 1}, {1e8, -1e8, 1, 7});
  EXPECT_EQ(numbers(run(op("index_add"), {base, idx, src}, {int64_t{0}})), (std::vector<double>{7, 1}));
  const HostTensor half = run(op("cast"), {src}, {DType::bf16}),
                   zero = run(op("cast"), {base}, {DType::bf16});
  EXPECT_EQ(numbers(run(op("index_add"), {zero, idx, half}, {int64_t{0}}))[1], 1);
  const HostTensor bytes =
      run(op("index_add"),
          {tensor(DType::u8, {1}, {250}), tensor(DType::i64, {2}, {0, 0}), tensor(DType::u8, {2}, {3, 4})},
          {int64_t{0}});
  EXPECT_EQ(numbers(bytes)[0], 1);
}

TEST(OpsView, ContractionsOfEveryRoleDtypeAndLayout) {
  // a[b, m1, k1, m2, k2] with b, k1, k2 shared, b[k2, n, b, k1]; then the same through turned operands.
  const int64_t B = 2, M1 = 3, K1 = 4, M2 = 1, K2 = 5, N = 3;
  for (DType t : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32, DType::i64, DType::u8}) {
    Rng rng{uint64_t(t)};
    const double lo = t == DType::u8 ? 0 : -2;
    // Whole numbers: exact in every dtype.
    const auto whole = [&](const Ints& s) {
      return run(op("cast"), {random_tensor(DType::i64, s, rng, lo, 2)}, {t});
    };
    const HostTensor a = whole({B, M1, K1, M2, K2}), b = whole({K2, N, B, K1});
    const std::vector<double> va = numbers(a), vb = numbers(b);
    const auto want = [&](const Ints& i) {  // [b, m1, m2, n]
      double sum = 0;
      for (int64_t p = 0; p < K1; ++p)
        for (int64_t q = 0; q < K2; ++q)
          sum += va[static_cast<size_t>((((i[0] * M1 + i[1]) * K1 + p) * M2 + i[2]) * K2 + q)] *
                 vb[static_cast<size_t>(((q * N + i[3]) * B + i[0]) * K1 + p)];
      return t == DType::u8 ? double(static_cast<uint8_t>(static_cast<int64_t>(sum))) : sum;
    };
    SCOPED_TRACE(dtype_name(t));
    expect_elements(run(op("dot_general"), {a, b}, {Ints{0}, Ints{2}, Ints{2, 4}, Ints{3, 0}}),
                    {B, M1, M2, N}, want);
    const HostTensor ta = run(op("permute"), {a}, {Ints{4, 3, 2, 1, 0}}),
                     tb = run(op("flip"), {b}, {Ints{0, 1}});
    const HostTensor tb2 = run(op("flip"), {tb}, {Ints{0, 1}});
    expect_elements(run(op("dot_general"), {ta, tb2}, {Ints{4}, Ints{2}, Ints{2, 0}, Ints{3, 0}}),
                    {B, M2, M1, N}, [&](const Ints& i) {
                      return want({i[0], i[2], i[1], i[3]});
                    });
  }
}

TEST(OpsView, ContractionsOverNothing) {
  const Attrs matmul = {Ints{}, Ints{}, Ints{1}, Ints{0}};
  expect_elements(run(op("dot_general"), {counted(DType::f32, {2, 0}), counted(DType::f32, {0, 3})}, matmul),
                  {2, 3}, [](const Ints&) { return 0.; });
  EXPECT_EQ(
      run(op("dot_general"), {counted(DType::f32, {0, 4}), counted(DType::f32, {4, 3})}, matmul).ref.shape,
      (Ints{0, 3}));
  const HostTensor dot = run(op("dot_general"), {counted(DType::f64, {4}), counted(DType::f64, {4})},
                             {Ints{}, Ints{}, Ints{0}, Ints{0}});
  EXPECT_EQ(numbers(dot), std::vector<double>{14});
  expect_elements(run(op("dot_general"), {counted(DType::f64, {2}), counted(DType::f64, {3})},
                      {Ints{}, Ints{}, Ints{}, Ints{}}),
                  {2, 3}, [](const Ints& i) { return static_cast<double>(i[0] * i[1]); });
}

TEST(OpsView, WindowsOverlapWithoutACopy) {
  const HostTensor x = counted(DType::f32, {3, 9});
  const auto at = [](int64_t i, int64_t j) { return static_cast<double>(i * 9 + j); };
  const HostTensor w = run(op("window"), {x}, {int64_t{1}, int64_t{3}, int64_t{2}, int64_t{2}});
  EXPECT_EQ(w.storage, x.storage);
  expect_elements(w, {3, 3, 3}, [&](const Ints& i) { return at(i[0], 2 * i[1] + 2 * i[2]); });
  const HostTensor turned = run(op("permute"), {x}, {Ints{1, 0}});
  expect_elements(run(op("window"), {turned}, {int64_t{0}, int64_t{2}, int64_t{4}, int64_t{1}}), {2, 2, 3},
                  [&](const Ints& i) { return at(i[2], 4 * i[0] + i[1]); });
  expect_elements(run(op("window"), {x}, {int64_t{1}, int64_t{9}, int64_t{5}, int64_t{1}}), {3, 1, 9},
                  [&](const Ints& i) { return at(i[0], i[2]); });
  expect_elements(
      run(op("window"), {counted(DType::f32, {0, 4})}, {int64_t{1}, int64_t{2}, int64_t{1}, int64_t{1}}),
      {0, 3, 2}, [](const Ints&) { return 0; });
}

TEST(OpsView, SkewsMoveColumnsAndFillWithZeros) {
  const HostTensor x = counted(DType::f32, {4, 3});
  for (const int64_t by : {0, 1, 2, -1, -3, 7})
    for (const int64_t size : {0, 1, 4, 6, 9})
      expect_elements(run(op("skew"), {x}, {int64_t{0}, by, Shape{Dim(size)}}), {size, 3},
                      [&](const Ints& i) {
                        const int64_t from = i[0] - i[1] * by;
                        return from >= 0 && from < 4 ? static_cast<double>(from * 3 + i[1]) : 0.;
                      });
  for (const DType t : {DType::boolean, DType::i64, DType::bf16})
    EXPECT_EQ(numbers(run(op("skew"), {tensor(t, {1, 2}, {1, 1})}, {int64_t{0}, int64_t{1}, Shape{2}})),
              (std::vector<double>{1, 0, 0, 1}));
}

TEST(OpsView, WindowsOfSymbolicSize) {
  const Dim n = Dim::symbol("N");
  const Type t = infer_type(op("window"), std::vector<Type>{{DType::f32, {Dim(2), n}}},
                            {int64_t{1}, int64_t{3}, int64_t{2}, int64_t{2}});
  EXPECT_EQ(t.shape[2], Dim(3));
  const std::map<std::string, int64_t, std::less<>> nine = {{"N", 9}}, ten = {{"N", 10}};
  EXPECT_EQ(t.shape[1].eval(nine), 3);
  EXPECT_EQ(t.shape[1].eval(ten), 3);
}

// --- what bad input gets ---

std::string fault(Op o, const std::vector<Type>& in, const Attrs& attrs = {}, SourceLoc loc = {}) {
  try {
    infer_type(o, in, attrs, loc);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::invalid);
    return e.what();
  }
  return "no error";
}
Type f32(const Shape& s) { return {DType::f32, s}; }
Type i64(const Shape& s) { return {DType::i64, s}; }

TEST(OpsView, TypeRulesSayWhatIsWrong) {
  EXPECT_EQ(fault(op("add"), {f32({2}), f32({3})}, {}, {"/src/net.cpp", 42}),
            "add (net.cpp:42): operands differ; got f32[2] and f32[3], expected equal types (expand or cast "
            "first)");
  EXPECT_EQ(fault(op("mul"), {f32({2}), i64({2})}),
            "mul: operands differ; got f32[2] and i64[2], expected equal types (expand or cast first)");
  EXPECT_EQ(fault(op("exp"), {i64({2})}), "exp: needs a floating dtype; got i64[2] (cast first)");
  EXPECT_EQ(fault(op("neg"), {{DType::boolean, {2}}}), "neg: does not take bool; got bool[2] (cast first)");
  EXPECT_EQ(fault(op("logical_not"), {f32({})}), "logical_not: needs bool; got f32[] (compare with 0 first)");
  EXPECT_EQ(fault(op("bitwise_not"), {f32({})}), "bitwise_not: needs an integer dtype; got f32[]");
  EXPECT_EQ(fault(op("where"), {{DType::boolean, {2}}, f32({3}), f32({3})}),
            "where: operands differ; got condition bool[2] for f32[3], expected equal shapes (expand first)");
  EXPECT_EQ(
      fault(op("expand"), {f32({2, 3})}, {Shape{4, 3}}),
      "expand: cannot broadcast; got f32[2,3] to [4,3], expected dims that are equal or 1 from the right");
  EXPECT_EQ(fault(op("reshape"), {f32({2, 3})}, {Shape{4}}),
            "reshape: element counts differ; got f32[2,3] to [4], expected 6 == 4");
  EXPECT_EQ(fault(op("permute"), {f32({2, 3})}, {Ints{0, 0}}), "permute: dims repeat; got (0,0)");
  EXPECT_EQ(fault(op("permute"), {f32({2, 3})}, {Ints{0}}),
            "permute: needs every dim once; got (0) for f32[2,3]");
  EXPECT_EQ(fault(op("sum"), {f32({2, 3})}, {Ints{2}}), "sum: dims out of range; got 2, expected 0 to 1");
  EXPECT_EQ(fault(op("amax"), {f32({2, 0})}, {Ints{1}}),
            "amax: dim 1 of f32[2,0] is empty, so there is no element to take");
  EXPECT_EQ(fault(op("argmax"), {f32({2, 2})}, {Ints{0, 1}}), "argmax: takes one dim; got (0,1)");
  EXPECT_EQ(fault(op("slice"), {f32({4})}, {Shape{1}, Shape{5}, Ints{1}}),
            "slice: bounds of dim 0 out of range; got 1 to 5, expected 0 <= start <= stop <= 4");
  EXPECT_EQ(fault(op("slice"), {f32({4})}, {Shape{1}, Shape{4}, Ints{-1}}),
            "slice: step of dim 0 must be positive; got -1 (flip first)");
  EXPECT_EQ(fault(op("pad"), {f32({4})}, {Shape{-1}, Shape{0}, Ints{0}, 0.0}),
            "pad: padding of dim 0 is negative; got -1, 0, 0 (slice instead)");
  EXPECT_EQ(fault(op("cat"), {f32({2, 3}), f32({2, 4})}, {int64_t{0}}),
            "cat: operands differ beside dim 0; got f32[2,3] and f32[2,4]");
  EXPECT_EQ(fault(op("take"), {f32({2}), f32({2})}, {int64_t{0}}),
            "take: indices must be i32 or i64; got f32[2]");
  EXPECT_EQ(fault(op("take"), {f32({}), i64({})}, {int64_t{0}}),
            "take: dim out of range; got 0, expected 0 to -1");
  EXPECT_EQ(fault(op("index_add"), {f32({4, 2}), i64({3}), f32({2, 3})}, {int64_t{0}}),
            "index_add: source has the wrong type; got f32[2,3], expected f32[3,2]");
  EXPECT_EQ(
      fault(op("take_along"), {f32({4, 2}), i64({4, 3})}, {int64_t{0}}),
      "take_along: indices do not fit; got i64[4,3] for f32[4,2], expected the same rank and no larger size "
      "beside dim 0");
  const Attrs matmul = {Ints{}, Ints{}, Ints{1}, Ints{0}};
  EXPECT_EQ(fault(op("dot_general"), {f32({2, 3}), f32({4, 5})}, matmul),
            "dot_general: contracted dims differ; got f32[2,3] x f32[4,5], expected 3 == 4");
  EXPECT_EQ(fault(op("dot_general"), {f32({2, 3}), {DType::f64, {3, 5}}}, matmul),
            "dot_general: dtypes differ; got f32[2,3] and f64[3,5] (cast first)");
  EXPECT_EQ(fault(op("constant"), {}, {0.5, DType::i64, Shape{}}), "constant: 0.5 is not a value of i64");
  EXPECT_EQ(fault(op("random_uniform"), {f32({}), i64({})}, {Shape{2}}),
            "random_uniform: needs i64[] for seed and offset; got f32[]");
}

TEST(OpsView, TypeRulesOfWindows) {
  const auto window = [](int64_t dim, int64_t size, int64_t step, int64_t dilation) {
    return Attrs{dim, size, step, dilation};
  };
  EXPECT_EQ(fault(op("window"), {f32({4})}, window(1, 1, 1, 1)),
            "window: dim out of range; got 1, expected 0 to 0");
  EXPECT_EQ(fault(op("window"), {f32({4})}, window(0, 3, 1, 2)),
            "window: dim 0 of f32[4] is shorter than a window; expected at least 5");
  EXPECT_EQ(fault(op("window"), {f32({4})}, window(0, 2, 0, 1)),
            "window: size, step and dilation must be positive; got 2, 0 and 1");
  EXPECT_EQ(fault(op("skew"), {f32({4})}, {int64_t{0}, int64_t{1}, Shape{2}}),
            "skew: the dim after dim out of range; got 1, expected 0 to 0");
  EXPECT_EQ(fault(op("skew"), {f32({4, 2})}, {int64_t{0}, int64_t{1}, Shape{-2}}),
            "skew: takes one size, not negative; got [-2]");
}

std::string fault_at_run(Op o, const std::vector<HostTensor>& in, const Attrs& attrs) {
  try {
    evaluate(o, in, attrs);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::invalid);
    return e.what();
  }
  return "no error";
}

TEST(OpsView, EvaluationsSayWhatIsWrong) {
  const HostTensor x = counted(DType::f32, {5, 2});
  EXPECT_EQ(fault_at_run(op("take"), {x, tensor(DType::i64, {2, 2}, {0, 4, 5, 1})}, {int64_t{0}}),
            "take: index out of range; got 5 at position 2, expected -5 to 4");
  EXPECT_EQ(fault_at_run(op("take_along"), {x, tensor(DType::i32, {1, 2}, {0, -6})}, {int64_t{0}}),
            "take_along: index out of range; got -6 at position 1, expected -5 to 4");
  EXPECT_EQ(fault_at_run(op("index_add"), {x, scalar(DType::i64, 9), counted(DType::f32, {2})}, {int64_t{0}}),
            "index_add: index out of range; got 9 at position 0, expected -5 to 4");
  EXPECT_EQ(fault_at_run(op("scatter_add"), {x, tensor(DType::i64, {1, 1}, {2}), counted(DType::f32, {1, 1})},
                         {int64_t{1}}),
            "scatter_add: index out of range; got 2 at position 0, expected -2 to 1");
  EXPECT_EQ(fault_at_run(op("take"), {counted(DType::f32, {0}), tensor(DType::i64, {1}, {0})}, {int64_t{0}}),
            "take: index out of range; got 0 at position 0, expected 0 to -1");
  EXPECT_EQ(fault_at_run(op("floor_divide"),
                         {tensor(DType::i64, {2}, {1, 1}), tensor(DType::i64, {2}, {1, 0})}, {}),
            "floor_divide: integer division by zero at element 1");
}

}  // namespace KILN_FILE
}  // namespace kiln
