// SPDX-License-Identifier: Apache-2.0
// What cuBLASLt is asked for, on a table of functions that compute as the library's documentation says.
#include "runtime/cuda/cublaslt.h"

#include <gmock/gmock.h>

#include "ir/base/error.h"
#include "runtime/cuda/sim.h"
#include "tests/runtime/cuda/fake_cublaslt.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif

namespace kiln {
namespace KILN_FILE {

using namespace cuda;
using testing_cublaslt::fake_table;
using testing_cublaslt::state;

class Cublaslt : public ::testing::Test {
 protected:
  void SetUp() override {
    sim::reset(sim::default_config());
    ASSERT_EQ(simulated_driver().init(0), kSuccess);
    device_ = std::make_unique<CudaDevice>(simulated_driver(), 0);
    state = {};
    state.device = device_.get();
    products_ = std::make_unique<CudaProducts>(table_, *device_);
  }
  /// Values of an operand as it lies in memory, and the place of element (i, r, c).
  static double value(int64_t place) { return static_cast<double>(place * 7 % 11) - 5; }
  static int64_t place(const CudaProduct::Matrix& x, int64_t i, int64_t r, int64_t c) {
    return i * x.batch_stride + r * x.row_stride + c * x.col_stride;
  }
  template <typename T>
  CudaMemory filled(int64_t count) {
    std::vector<T> host(static_cast<size_t>(count));
    for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<T>(value(static_cast<int64_t>(i)));
    CudaMemory m = device_->allocate(host.size() * sizeof(T), "test");
    device_->copy_to_device(m.address(), host.data(), host.size() * sizeof(T));
    return m;
  }
  template <typename T>
  void expect_product(const CudaProduct& p) {
    const auto reach = [&](const CudaProduct::Matrix& x, int64_t rows, int64_t cols) {
      return place(x, p.batch - 1, rows - 1, cols - 1) + 1;
    };
    const CudaMemory a = filled<T>(reach(p.a, p.m, p.k)), b = filled<T>(reach(p.b, p.k, p.n));
    const CudaMemory c = filled<T>(reach(p.c, p.m, p.n));
    products_->run(p, a.data(), b.data(), c.data());
    std::vector<T> out(static_cast<size_t>(reach(p.c, p.m, p.n)));
    device_->copy_to_host(out.data(), c.address(), out.size() * sizeof(T));
    for (int64_t i = 0; i < p.batch; ++i)
      for (int64_t r = 0; r < p.m; ++r)
        for (int64_t q = 0; q < p.n; ++q) {
          double sum = 0;
          for (int64_t j = 0; j < p.k; ++j) sum += value(place(p.a, i, r, j)) * value(place(p.b, i, j, q));
          ASSERT_EQ(static_cast<double>(out[static_cast<size_t>(place(p.c, i, r, q))]), sum)
              << i << " " << r << " " << q;
        }
  }

  const CublasLt table_ = fake_table();
  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<CudaProducts> products_;
};

TEST_F(Cublaslt, MultipliesInEveryLayout) {
  const int64_t m = 5, n = 7, k = 3;
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      const CudaProduct::Matrix a = ta ? CudaProduct::Matrix{0, 1, m} : CudaProduct::Matrix{0, k, 1};
      const CudaProduct::Matrix b = tb ? CudaProduct::Matrix{0, 1, k} : CudaProduct::Matrix{0, n, 1};
      expect_product<float>({DType::f32, false, 1, m, n, k, a, b, {0, n, 1}});
      expect_product<double>({DType::f64, false, 1, m, n, k, a, b, {0, n, 1}});
    }
}

TEST_F(Cublaslt, MultipliesBatchesRowsAndColumns) {
  expect_product<float>({DType::f32, false, 4, 2, 3, 5, {10, 5, 1}, {15, 3, 1}, {6, 3, 1}});
  expect_product<float>({DType::f32, false, 3, 2, 3, 5, {10, 5, 1}, {0, 3, 1}, {6, 3, 1}});  // b is shared
  expect_product<float>({DType::f32, false, 1, 1, 6, 4, {0, 4, 1}, {0, 6, 1}, {0, 6, 1}});
  expect_product<float>({DType::f32, false, 1, 6, 1, 4, {0, 4, 1}, {0, 1, 1}, {0, 1, 1}});
  expect_product<float>({DType::f32, false, 1, 3, 4, 1, {0, 1, 1}, {0, 4, 1}, {0, 4, 1}});
  expect_product<float>(
      {DType::f32, false, 1, 3, 4, 2, {0, 9, 1}, {0, 8, 1}, {0, 6, 1}});  // parts of wider ones
}

TEST_F(Cublaslt, ChoosesOnceForAProduct) {
  const CudaProduct p{DType::f32, true, 1, 4, 4, 4, {0, 4, 1}, {0, 4, 1}, {0, 4, 1}};
  expect_product<float>(p);
  EXPECT_EQ(state.compute, kLtComputeTf32);
  expect_product<float>(p);
  EXPECT_EQ(state.choices, 1);
  CudaProduct exact = p;
  exact.tf32 = false;
  expect_product<float>(exact);
  EXPECT_EQ(state.compute, kLtCompute32F);
  EXPECT_EQ(state.choices, 2);
}

template <typename F>
std::string error_of(F&& f, ErrorKind kind) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind);
    return e.what();
  }
  return "no error";
}

TEST_F(Cublaslt, SaysWhatTheLibraryRefuses) {
  CudaProduct p{DType::f32, false, 2, 4, 5, 6, {24, 6, 1}, {30, 5, 1}, {20, 5, 1}};
  state.refuse = 15;
  EXPECT_EQ(error_of([&] { products_->run(p, nullptr, nullptr, nullptr); }, ErrorKind::device),
            "cublasLtMatmulAlgoGetHeuristic on Kiln simulated GPU of f32[2,4,6] x f32[2,6,5]: "
            "CUBLAS_STATUS_NOT_SUPPORTED (15)");
  p.a = {24, 12, 2};
  EXPECT_EQ(error_of([&] { products_->run(p, nullptr, nullptr, nullptr); }, ErrorKind::unsupported),
            "cuBLASLt: f32[2,4,6] x f32[2,6,5]: operand a has strides 12 and 2, which overlap or skip "
            "elements");
  p.dtype = DType::i32;
  EXPECT_EQ(error_of([&] { products_->run(p, nullptr, nullptr, nullptr); }, ErrorKind::unsupported),
            "cuBLASLt: no product of i32");
}

TEST(CublasltLibrary, IsNotForSimulatedDevices) {
  std::string why;
  EXPECT_EQ(find_cublaslt(true, why), nullptr);
  EXPECT_EQ(why, "cuBLASLt needs a real GPU, and this one is simulated (KILN_CUDA_DRIVER=sim)");
}

TEST(CublasltLibrary, IsFoundWithAllItsFunctions) {
  std::string why;
  if (!find_cublaslt(false, why)) {
    EXPECT_THAT(why, ::testing::HasSubstr("no cuBLASLt: no libcublasLt.so.13 or libcublasLt.so.12 in "));
    GTEST_SKIP() << why;
  }
}

#if __has_include(<cublasLt.h>)
TEST(CublasltLibrary, IsDeclaredAsInItsHeader) {
  static_assert(sizeof(LtAlgorithm) == sizeof(cublasLtMatmulAlgo_t));
  static_assert(sizeof(LtChoice) == sizeof(cublasLtMatmulHeuristicResult_t));
  static_assert(offsetof(LtChoice, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));
  EXPECT_EQ(kLtCompute32F, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(kLtCompute64F, CUBLAS_COMPUTE_64F);
  EXPECT_EQ(kLtComputeTf32, CUBLAS_COMPUTE_32F_FAST_TF32);
  EXPECT_EQ(kLtR32F, CUDA_R_32F);
  EXPECT_EQ(kLtR64F, CUDA_R_64F);
  EXPECT_EQ(kLtR16F, CUDA_R_16F);
  EXPECT_EQ(kLtR16BF, CUDA_R_16BF);
  EXPECT_EQ(kLtTransA, CUBLASLT_MATMUL_DESC_TRANSA);
  EXPECT_EQ(kLtTransB, CUBLASLT_MATMUL_DESC_TRANSB);
  EXPECT_EQ(kLtBatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
  EXPECT_EQ(kLtBatchStride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
  EXPECT_EQ(kLtMaxWorkspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  EXPECT_EQ(kLtAlignA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
  EXPECT_EQ(kLtAlignB, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
  EXPECT_EQ(kLtAlignC, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
  EXPECT_EQ(kLtAlignD, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
}
#endif

}  // namespace KILN_FILE
}  // namespace kiln
