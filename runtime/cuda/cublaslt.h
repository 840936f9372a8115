// SPDX-License-Identifier: Apache-2.0
// Matrix products by cuBLASLt, opened at run time through one function table. Declares what it uses of the
// library's binary interface itself; a test compares with cublasLt.h where there is one. Source: cuBLAS
// documentation, "Using the cuBLASLt API", CUDA 12 and 13.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "ir/base/dtype.h"
#include "runtime/cuda/device.h"

namespace kiln::cuda {

using LtStatus = int;    ///< cublasStatus_t
struct LtContextObject;  ///< cublasLtContext
struct LtDescObject;     ///< cublasLtMatmulDescOpaque_t
struct LtLayoutObject;   ///< cublasLtMatrixLayoutOpaque_t
struct LtWishObject;     ///< cublasLtMatmulPreferenceOpaque_t
using LtHandle = LtContextObject*;
using LtDesc = LtDescObject*;
using LtLayout = LtLayoutObject*;
using LtWish = LtWishObject*;
struct LtAlgorithm {  ///< cublasLtMatmulAlgo_t
  uint64_t data[8];
};
struct LtChoice {  ///< cublasLtMatmulHeuristicResult_t
  LtAlgorithm algorithm;
  size_t workspace_bytes;
  LtStatus state;
  float waves;
  int reserved[4];
};

inline constexpr int kLtCompute32F = 68, kLtCompute64F = 70, kLtComputeTf32 = 77;  ///< cublasComputeType_t
inline constexpr int kLtR32F = 0, kLtR64F = 1, kLtR16F = 2, kLtR16BF = 14;         ///< cudaDataType_t
inline constexpr int kLtTransA = 3, kLtTransB = 4;           ///< cublasLtMatmulDescAttributes_t
inline constexpr int kLtBatchCount = 5, kLtBatchStride = 6;  ///< cublasLtMatrixLayoutAttribute_t
inline constexpr int kLtMaxWorkspace = 1, kLtAlignA = 5, kLtAlignB = 6, kLtAlignC = 7,
                     kLtAlignD = 8;  ///< cublasLtMatmulPreferenceAttributes_t

#define KILN_CUBLASLT_FUNCTIONS(X)                                                                        \
  X(create, "cublasLtCreate", (LtHandle * handle))                                                        \
  X(destroy, "cublasLtDestroy", (LtHandle handle))                                                        \
  X(desc_create, "cublasLtMatmulDescCreate", (LtDesc * desc, int compute, int scale))                     \
  X(desc_destroy, "cublasLtMatmulDescDestroy", (LtDesc desc))                                             \
  X(desc_set, "cublasLtMatmulDescSetAttribute", (LtDesc desc, int what, const void* value, size_t bytes)) \
  X(layout_create, "cublasLtMatrixLayoutCreate",                                                          \
    (LtLayout * layout, int type, uint64_t rows, uint64_t cols, int64_t stride))                          \
  X(layout_destroy, "cublasLtMatrixLayoutDestroy", (LtLayout layout))                                     \
  X(layout_set, "cublasLtMatrixLayoutSetAttribute",                                                       \
    (LtLayout layout, int what, const void* value, size_t bytes))                                         \
  X(wish_create, "cublasLtMatmulPreferenceCreate", (LtWish * wish))                                       \
  X(wish_destroy, "cublasLtMatmulPreferenceDestroy", (LtWish wish))                                       \
  X(wish_set, "cublasLtMatmulPreferenceSetAttribute",                                                     \
    (LtWish wish, int what, const void* value, size_t bytes))                                             \
  X(choose, "cublasLtMatmulAlgoGetHeuristic",                                                             \
    (LtHandle handle, LtDesc desc, LtLayout a, LtLayout b, LtLayout c, LtLayout d, LtWish wish, int room, \
     LtChoice* choices, int* count))                                                                      \
  X(matmul, "cublasLtMatmul",                                                                             \
    (LtHandle handle, LtDesc desc, const void* alpha, const void* a, LtLayout a_layout, const void* b,    \
     LtLayout b_layout, const void* beta, const void* c, LtLayout c_layout, void* d, LtLayout d_layout,   \
     const LtAlgorithm* algorithm, void* workspace, size_t workspace_bytes, Stream stream))

struct CublasLt {
#define KILN_CUBLASLT_MEMBER(member, name, parameters) LtStatus(*member) parameters = nullptr;
  KILN_CUBLASLT_FUNCTIONS(KILN_CUBLASLT_MEMBER)
#undef KILN_CUBLASLT_MEMBER
};

/// The library of this process, opened once; null where there is none: `why` then says where it was looked
/// for. It knows nothing of the memory of `simulated` devices, which have none. Threads: any.
const CublasLt* find_cublaslt(bool simulated, std::string& why);
/// Takes its place in tests, on simulated devices too; null gives the library back. Nothing may be running.
void set_cublaslt(const CublasLt* table);

}  // namespace kiln::cuda

namespace kiln {

/// One batch of products: c = a b, row and column strides in elements. Of a and b one stride is 1.
struct CudaProduct {
  DType dtype = DType::f32;  ///< f32, f64, f16 or bf16; the last two add up in f32
  bool tf32 = false;         ///< f32 factors may be rounded to tf32
  int64_t batch = 1, m = 0, n = 0, k = 0;
  struct Matrix {
    int64_t batch_stride = 0, row_stride = 0, col_stride = 0;
    auto operator<=>(const Matrix&) const = default;
  } a, b, c;  ///< c has col_stride 1
  auto operator<=>(const CudaProduct&) const = default;
};

/// What the builtin "cublaslt_DTYPE" does, or "cublaslt_tf32": dims {batch, m, n, k}, then offset, batch,
/// row and column stride of a, b and c, in elements.
struct CudaProductCall {
  CudaProduct product;
  int64_t offsets[3] = {};
};
/// Whether that is such a builtin's name.
bool names_product(std::string_view builtin);
CudaProductCall product_call(std::string_view builtin, std::span<const int64_t> dims);

/// cuBLASLt on one device. What the library chooses for a product is kept. Threads: any.
class CudaProducts {
 public:
  /// Throws: device, naming the library's status, if it does not start.
  CudaProducts(const cuda::CublasLt& library, CudaDevice& device);
  ~CudaProducts();
  CudaProducts(const CudaProducts&) = delete;
  CudaProducts& operator=(const CudaProducts&) = delete;

  /// Puts the product on the compute stream. Throws: unsupported, for strides or dtypes that the library does
  /// not take; device, when it fails.
  void run(const CudaProduct& product, const void* a, const void* b, void* c);

 private:
  struct Prepared;
  /// Of the addresses of a, b and c, in bytes: what the library may choose from depends on it.
  using Alignment = std::array<uint32_t, 3>;
  Prepared& prepare(const CudaProduct& product, const Alignment& alignment);
  void check(cuda::LtStatus status, const char* call, const CudaProduct& product) const;

  const cuda::CublasLt& library_;
  CudaDevice& device_;
  cuda::LtHandle handle_ = nullptr;
  CudaMemory workspace_;  // the compute stream's order keeps it one product's
  std::mutex mutex_;
  std::map<std::pair<CudaProduct, Alignment>, std::unique_ptr<Prepared>> prepared_;
};

}  // namespace kiln
