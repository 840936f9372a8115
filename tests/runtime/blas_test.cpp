// SPDX-License-Identifier: Apache-2.0
#include "runtime/blas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "ir/base/error.h"
#include "ir/base/options.h"
#include "runtime/thread_pool.h"

namespace kiln {
namespace KILN_FILE {

/// A matrix batch in a buffer with any strides, and room around it to see stray writes.
template <typename T>
struct Matrix {
  std::vector<T> memory;
  int64_t origin = 0;
  MatrixView view;

  T* data() { return memory.data() + origin; }
  T& at(int64_t b, int64_t i, int64_t j) {
    return data()[b * view.batch_stride + i * view.row_stride + j * view.col_stride];
  }
  MatrixView bind() {
    view.data = data();
    return view;
  }
};

enum class Layout {
  rows,
  columns,
  padded,
  both_strided,
  reversed,
  repeated_rows,
  repeated_cols,
  shared_batch
};
constexpr Layout kOperandLayouts[] = {Layout::rows,          Layout::columns,     Layout::padded,
                                      Layout::both_strided,  Layout::reversed,    Layout::repeated_rows,
                                      Layout::repeated_cols, Layout::shared_batch};

template <typename T>
Matrix<T> matrix(Layout layout, int64_t batch, int64_t rows, int64_t cols) {
  Matrix<T> m;
  int64_t rs = cols, cs = 1, bs = rows * cols;
  switch (layout) {
    case Layout::rows: break;
    case Layout::columns: rs = 1, cs = rows; break;
    case Layout::padded: rs = cols + 3, bs = rows * rs + 5; break;
    case Layout::both_strided: cs = 2, rs = 2 * cols + 1, bs = rows * rs; break;
    case Layout::reversed: rs = -cols, cs = 1; break;
    case Layout::repeated_rows: rs = 0, bs = cols; break;
    case Layout::repeated_cols: rs = 1, cs = 0, bs = rows; break;
    case Layout::shared_batch: bs = 0; break;
  }
  m.origin = 8 + (rs < 0 ? -rs * std::max<int64_t>(rows - 1, 0) : 0);
  m.memory.assign(
      static_cast<size_t>(16 + batch * std::abs(bs) + std::abs(rs) * (rows + 1) + std::abs(cs) * (cols + 1)),
      T(3));
  m.view = {nullptr, bs, rs, cs};
  m.bind();
  return m;
}

template <typename T>
void fill(Matrix<T>& m, uint32_t seed) {
  std::mt19937 rng(seed);
  for (T& v : m.memory) v = static_cast<T>(static_cast<double>(static_cast<int>(rng() % 17) - 8) * 0.25);
}

/// Small multiples of 1/16: every sum is exact, so equality is the test.
template <typename T>
void expect_product(Layout la, Layout lb, Layout lc, int64_t batch, int64_t m, int64_t n, int64_t k) {
  constexpr DType dtype = dtype_of<T>();
  auto a = matrix<T>(la, batch, m, k), b = matrix<T>(lb, batch, k, n), c = matrix<T>(lc, batch, m, n);
  fill(a, 1);
  fill(b, 2);
  if (is_floating(dtype))  // the old contents must not matter
    for (T& v : c.memory) v = static_cast<T>(std::numeric_limits<double>::quiet_NaN());
  const std::vector<T> before = c.memory;
  matmul(dtype, batch, m, n, k, a.bind(), b.bind(), c.bind());
  for (int64_t x = 0; x < batch; ++x) {
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        T sum = 0;
        for (int64_t p = 0; p < k; ++p)
          sum = static_cast<T>(sum + static_cast<T>(a.at(x, i, p) * b.at(x, p, j)));
        ASSERT_EQ(c.at(x, i, j), sum) << dtype_name(dtype) << " " << int(la) << int(lb) << int(lc) << " at "
                                      << x << "," << i << "," << j << " of " << m << "x" << n << "x" << k;
        c.at(x, i, j) = before[0];
      }
    }
  }
  EXPECT_EQ(std::memcmp(c.memory.data(), before.data(), before.size() * sizeof(T)), 0) << "a stray write";
}

template <typename T>
class Matmul : public ::testing::Test {};
using Types = ::testing::Types<float, double, int32_t, int64_t, uint8_t>;
TYPED_TEST_SUITE(Matmul, Types);

TYPED_TEST(Matmul, EveryKindOfStride) {
  for (const Layout la : kOperandLayouts) {
    for (const Layout lb : kOperandLayouts) {
      for (const Layout lc :
           {Layout::rows, Layout::columns, Layout::padded, Layout::both_strided, Layout::reversed})
        expect_product<TypeParam>(la, lb, lc, 2, 5, 7, 9);
    }
  }
}

TYPED_TEST(Matmul, OddAndEmptySizes) {
  for (const int64_t m : {0, 1, 2, 17})
    for (const int64_t n : {0, 1, 3, 33})
      for (const int64_t k : {0, 1, 65})
        for (const int64_t batch : {0, 1, 3}) {
          expect_product<TypeParam>(Layout::rows, Layout::rows, Layout::rows, batch, m, n, k);
          expect_product<TypeParam>(Layout::columns, Layout::columns, Layout::columns, batch, m, n, k);
        }
}

TYPED_TEST(Matmul, Large) {
  expect_product<TypeParam>(Layout::rows, Layout::columns, Layout::rows, 1, 301, 257, 67);
}

template <typename T>
void expect_half_product() {
  const int64_t m = 9, n = 21, k = 130;
  auto a = matrix<T>(Layout::padded, 2, m, k), b = matrix<T>(Layout::columns, 2, k, n);
  auto c = matrix<T>(Layout::rows, 2, m, n);
  std::mt19937 rng(5);
  for (auto* x : {&a, &b})
    for (T& v : x->memory) v = T(static_cast<float>(rng() % 1000) * 1e-3f - 0.3f);
  matmul(dtype_of<T>(), 2, m, n, k, a.bind(), b.bind(), c.bind());
  double worst = 0;
  for (int64_t x = 0; x < 2; ++x)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < k; ++p)
          sum += static_cast<double>(static_cast<float>(a.at(x, i, p))) * static_cast<float>(b.at(x, p, j));
        worst = std::max(worst, std::abs(static_cast<float>(c.at(x, i, j)) - sum) / std::abs(sum));
      }
  EXPECT_LT(worst, dtype_of<T>() == DType::f16 ? 5e-4 : 4e-3);  // one rounding of the result
  EXPECT_GT(worst, 0.0);
}

TEST(MatmulHalf, AccumulatesInFloat) {
  expect_half_product<Half>();
  expect_half_product<BFloat16>();
}

TEST(MatmulInteger, Wraps) {
  int32_t a[2] = {INT32_MAX, 2}, b[2] = {2, 3}, c = 0;
  matmul(DType::i32, 1, 1, 1, 2, {a, 0, 2, 1}, {b, 0, 1, 1}, {&c, 0, 1, 1});
  EXPECT_EQ(c, 4);
  uint8_t ua[2] = {200, 100}, ub[2] = {2, 3}, uc = 0;
  matmul(DType::u8, 1, 1, 1, 2, {ua, 0, 2, 1}, {ub, 0, 1, 1}, {&uc, 0, 1, 1});
  EXPECT_EQ(uc, (200 * 2 + 100 * 3) % 256);
}

TEST(MatmulFloat, PassesNaNAndInfinityOn) {
  float a[4] = {0, 1, 0, 1}, b[4] = {std::numeric_limits<float>::infinity(), 1, 2, 3}, c[4];
  matmul(DType::f32, 1, 2, 2, 2, {a, 0, 2, 1}, {b, 0, 2, 1}, {c, 0, 2, 1});
  EXPECT_TRUE(std::isnan(c[0]));
  EXPECT_EQ(c[1], 3.0f);
}

TEST(MatmulBool, IsUnsupported) {
  bool x[1] = {true};
  try {
    matmul(DType::boolean, 1, 1, 1, 1, {x, 0, 1, 1}, {x, 0, 1, 1}, {x, 0, 1, 1});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::unsupported);
    EXPECT_STREQ(e.what(),
                 "matmul: no product of this dtype; got bool, expected a number (hint: cast to i32)");
  }
}

std::vector<float> product(int64_t batch, int64_t m, int64_t n, int64_t k, const char* threads) {
  std::vector<float> a(static_cast<size_t>(batch * m * k)), b(static_cast<size_t>(batch * k * n));
  std::vector<float> c(static_cast<size_t>(batch * m * n), NAN);
  std::mt19937 rng(9);
  for (auto* x : {&a, &b})
    for (float& v : *x) v = static_cast<float>(rng()) * 1e-9f - 2.0f;
  set_option("KILN_NUM_THREADS", threads);
  matmul(DType::f32, batch, m, n, k, {a.data(), m * k, k, 1}, {b.data(), k * n, n, 1},
         {c.data(), m * n, n, 1});
  set_option("KILN_NUM_THREADS", "");
  return c;
}

TEST(MatmulFloat, SameBitsForAnyNumberOfThreads) {
  for (const auto& [batch, m, n, k] :
       {std::array<int64_t, 4>{1, 300, 500, 200}, {5, 64, 48, 300}, {1, 1, 2000, 777}, {1, 1500, 7, 901}}) {
    const auto expected = product(batch, m, n, k, "1");
    for (const char* threads : {"2", "3", "5", "8"}) EXPECT_EQ(product(batch, m, n, k, threads), expected);
  }
}

TEST(MatmulFloat, ManyThreadsCallTheLibraryAtOnce) {
  const auto expected = product(2, 120, 130, 140, "1");
  std::vector<float> a(2 * 120 * 140), b(2 * 140 * 130);
  std::mt19937 rng(9);
  for (auto* x : {&a, &b})
    for (float& v : *x) v = static_cast<float>(rng()) * 1e-9f - 2.0f;
  std::vector<std::thread> hosts;
  for (int h = 0; h < 4; ++h) {
    hosts.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        std::vector<float> c(2 * 120 * 130, NAN);
        matmul(DType::f32, 2, 120, 130, 140, {a.data(), 120 * 140, 140, 1}, {b.data(), 140 * 130, 130, 1},
               {c.data(), 120 * 130, 130, 1});
        EXPECT_EQ(c, expected);
      }
    });
  }
  for (auto& h : hosts) h.join();
}

TEST(Builtins, AreFoundByName) {
  EXPECT_NE(find_builtin("blis_sgemm"), nullptr);
  EXPECT_NE(find_builtin("blis_dgemm"), find_builtin("blis_sgemm"));
  EXPECT_EQ(find_builtin("blis"), nullptr);
}

TEST(Builtins, GemmRunsAnySplitOfItsTasks) {
  const int64_t m = 37, n = 29, k = 11, batch = 3;
  auto a = matrix<double>(Layout::columns, batch, m, k),
       b = matrix<double>(Layout::shared_batch, batch, k, n);
  auto c = matrix<double>(Layout::rows, batch, m, n);
  fill(a, 1);
  fill(b, 2);
  auto expected = c;
  matmul(DType::f64, batch, m, n, k, a.bind(), b.bind(), expected.bind());
  const int64_t dims[] = {batch, m, n, k, m * k, 1, m, 0, n, 1, m * n, n, 1, 10, 8};
  const int64_t tasks = batch * 4 * 4;
  void* const buffers[] = {a.data(), b.data(), c.data()};
  const KernelFn gemm = find_builtin("blis_dgemm");
  for (int64_t at = 0, step = 1; at < tasks; at += step, ++step)
    gemm(buffers, dims, at, std::min(at + step, tasks), nullptr);
  EXPECT_EQ(c.memory, expected.memory);
}

TEST(Builtins, CopyAndFillInChunks) {
  std::vector<char> from(1000), to(1001, 'x');
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 7);
  void* const buffers[] = {from.data(), to.data()};
  const int64_t dims[] = {1000, 64};
  for (int64_t t = 0; t < 16; ++t) find_builtin("copy")(buffers, dims, t, t + 1, nullptr);
  EXPECT_EQ(std::memcmp(to.data(), from.data(), 1000), 0);
  EXPECT_EQ(to[1000], 'x');
  void* const zero[] = {to.data()};
  find_builtin("fill_zero")(zero, dims, 1, 16, nullptr);
  EXPECT_EQ(to[63], from[63]);
  EXPECT_EQ(std::vector<char>(to.begin() + 64, to.end() - 1), std::vector<char>(936, 0));
  EXPECT_EQ(to[1000], 'x');
}

}  // namespace KILN_FILE
}  // namespace kiln
