// SPDX-License-Identifier: Apache-2.0
// The library's matrices are column-major, so a row-major c = a b is asked for as c' = b' a'.
#include "runtime/cuda/cublaslt.h"

#include <fmt/ranges.h>

#include <atomic>

#include "ir/base/cuda_library.h"
#include "ir/base/error.h"

namespace kiln {

namespace cuda {

namespace {

struct OpenedCublasLt {
  std::optional<DynLib> library;
  CublasLt table;
  std::string why;
};

OpenedCublasLt open_cublaslt() {
  OpenedCublasLt o;
  std::string path, tried;
  o.library = open_cuda_library({"libcublasLt.so.13", "libcublasLt.so.12"}, path, tried);
  if (!o.library) {
    o.why = "no cuBLASLt: " + tried;
    return o;
  }
  FunctionFinder find(*o.library);
#define KILN_CUBLASLT_FIND(member, name, parameters) find(o.table.member, name);
  KILN_CUBLASLT_FUNCTIONS(KILN_CUBLASLT_FIND)
#undef KILN_CUBLASLT_FIND
  if (!find.missing().empty()) o.why = fmt::format("{} has no {}", path, fmt::join(find.missing(), ", "));
  return o;
}

}  // namespace

namespace {
std::atomic<const CublasLt*> in_place{nullptr};  // of the library
}  // namespace

void set_cublaslt(const CublasLt* table) { in_place = table; }

const CublasLt* find_cublaslt(bool simulated, std::string& why) {
  if (const CublasLt* table = in_place) return table;
  if (simulated) {
    why = "cuBLASLt needs a real GPU, and this one is simulated (KILN_CUDA_DRIVER=sim)";
    return nullptr;
  }
  static const OpenedCublasLt& opened =
      *new OpenedCublasLt(open_cublaslt());  // products may run until the process ends
  why = opened.why;
  return why.empty() ? &opened.table : nullptr;
}

}  // namespace cuda

namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // what NVIDIA advises for Hopper

struct Types {
  int storage, compute, scale;
};
Types types_of(const CudaProduct& p) {
  switch (p.dtype) {
    case DType::f64: return {cuda::kLtR64F, cuda::kLtCompute64F, cuda::kLtR64F};
    case DType::f16: return {cuda::kLtR16F, cuda::kLtCompute32F, cuda::kLtR32F};
    case DType::bf16: return {cuda::kLtR16BF, cuda::kLtCompute32F, cuda::kLtR32F};
    case DType::f32:
      return {cuda::kLtR32F, p.tf32 ? cuda::kLtComputeTf32 : cuda::kLtCompute32F, cuda::kLtR32F};
    default:
      throw Error(ErrorKind::unsupported, fmt::format("cuBLASLt: no product of {}", dtype_name(p.dtype)));
  }
}

std::string describe(const CudaProduct& p) {
  return fmt::format("{}[{},{},{}] x {}[{},{},{}]", dtype_name(p.dtype), p.batch, p.m, p.k,
                     dtype_name(p.dtype), p.batch, p.k, p.n);
}

const char* status_name(cuda::LtStatus s) {
  switch (s) {
    case 1: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case 3: return "CUBLAS_STATUS_ALLOC_FAILED";
    case 7: return "CUBLAS_STATUS_INVALID_VALUE";
    case 8: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case 13: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case 14: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case 15: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "unknown status";
  }
}

/// A matrix as the library sees its transpose: `plain` if columns of the transpose are contiguous.
struct Seen {
  bool plain = true;
  int64_t stride = 1;
};
Seen seen(const CudaProduct::Matrix& x, int64_t rows, int64_t cols, const char* which, const CudaProduct& p) {
  // The stride of a single row or column says nothing; the library wants one that fits.
  if (x.col_stride == 1 && (rows == 1 || x.row_stride >= cols))
    return {true, rows == 1 ? cols : x.row_stride};
  if (x.row_stride == 1 && (cols == 1 || x.col_stride >= rows))
    return {false, cols == 1 ? rows : x.col_stride};
  throw Error(ErrorKind::unsupported,
              fmt::format("cuBLASLt: {}: operand {} has strides {} and {}, which overlap or skip elements",
                          describe(p), which, x.row_stride, x.col_stride));
}

}  // namespace

namespace {
constexpr std::string_view kBuiltin = "cublaslt_";
}  // namespace

bool names_product(std::string_view builtin) { return builtin.starts_with(kBuiltin); }

CudaProductCall product_call(std::string_view builtin, std::span<const int64_t> dims) {
  KILN_ASSERT(names_product(builtin) && dims.size() == 16, "{} with {} dims", builtin, dims.size());
  const std::string_view dtype = builtin.substr(kBuiltin.size());
  CudaProductCall c;
  c.product.tf32 = dtype == "tf32";
  c.product.dtype = c.product.tf32 ? DType::f32 : parse_dtype(dtype);
  c.product.batch = dims[0];
  c.product.m = dims[1];
  c.product.n = dims[2];
  c.product.k = dims[3];
  CudaProduct::Matrix* const matrices[] = {&c.product.a, &c.product.b, &c.product.c};
  for (size_t i = 0; i < 3; ++i) {
    const auto d = dims.subspan(4 + 4 * i, 4);
    c.offsets[i] = d[0];
    *matrices[i] = {d[1], d[2], d[3]};
  }
  return c;
}

struct CudaProducts::Prepared {
  const cuda::CublasLt& library;
  cuda::LtDesc desc = nullptr;
  cuda::LtLayout a = nullptr, b = nullptr, c = nullptr;
  cuda::LtAlgorithm algorithm{};

  explicit Prepared(const cuda::CublasLt& l) : library(l) {}
  ~Prepared() {
    if (desc) library.desc_destroy(desc);
    for (cuda::LtLayout x : {a, b, c})
      if (x) library.layout_destroy(x);
  }
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
};

CudaProducts::CudaProducts(const cuda::CublasLt& library, CudaDevice& device)
    : library_(library), device_(device) {
  device_.make_current();
  check(library_.create(&handle_), "cublasLtCreate", {});
  workspace_ = device_.allocate(kWorkspaceBytes, "workspace of cuBLASLt");
}

CudaProducts::~CudaProducts() {
  prepared_.clear();
  if (handle_) library_.destroy(handle_);
}

void CudaProducts::check(cuda::LtStatus status, const char* call, const CudaProduct& p) const {
  if (status == 0) return;
  throw Error(ErrorKind::device, fmt::format("{} on {}{}{}: {} ({})", call, device_.name(), p.m ? " of " : "",
                                             p.m ? describe(p) : "", status_name(status), status));
}

namespace {
/// The largest power of two, as far as the library takes account of it, that divides the addresses of all
/// matrices of the batch.
uint32_t alignment_of(const void* at, const CudaProduct::Matrix& m, const CudaProduct& p) {
  constexpr uintptr_t kMost = 256;
  const auto apart = static_cast<uintptr_t>(p.batch > 1 ? m.batch_stride : 0) * dtype_size(p.dtype);
  const uintptr_t bits = reinterpret_cast<uintptr_t>(at) | apart | kMost;
  return static_cast<uint32_t>(bits & -bits);
}
}  // namespace

CudaProducts::Prepared& CudaProducts::prepare(const CudaProduct& p, const Alignment& alignment) {
  std::unique_ptr<Prepared>& kept = prepared_[{p, alignment}];
  if (kept) return *kept;
  auto made = std::make_unique<Prepared>(library_);
  const Types t = types_of(p);
  const Seen a = seen(p.a, p.m, p.k, "a", p), b = seen(p.b, p.k, p.n, "b", p),
             c = seen(p.c, p.m, p.n, "c", p);
  KILN_CHECK(c.plain, unsupported, "cuBLASLt: {}: the result is not row-major", describe(p));
  const auto ok = [&](cuda::LtStatus s, const char* call) { check(s, call, p); };
  ok(library_.desc_create(&made->desc, t.compute, t.scale), "cublasLtMatmulDescCreate");
  // b' is the library's first factor.
  const int first = b.plain ? 0 : 1, second = a.plain ? 0 : 1;
  ok(library_.desc_set(made->desc, cuda::kLtTransA, &first, sizeof first), "cublasLtMatmulDescSetAttribute");
  ok(library_.desc_set(made->desc, cuda::kLtTransB, &second, sizeof second),
     "cublasLtMatmulDescSetAttribute");
  const auto layout = [&](cuda::LtLayout& x, const Seen& s, int64_t rows, int64_t cols,
                          int64_t batch_stride) {
    const auto r = static_cast<uint64_t>(s.plain ? cols : rows),
               q = static_cast<uint64_t>(s.plain ? rows : cols);
    ok(library_.layout_create(&x, t.storage, r, q, s.stride), "cublasLtMatrixLayoutCreate");
    if (p.batch == 1) return;
    const auto count = static_cast<int32_t>(p.batch);
    ok(library_.layout_set(x, cuda::kLtBatchCount, &count, sizeof count), "cublasLtMatrixLayoutSetAttribute");
    ok(library_.layout_set(x, cuda::kLtBatchStride, &batch_stride, sizeof batch_stride),
       "cublasLtMatrixLayoutSetAttribute");
  };
  layout(made->a, a, p.m, p.k, p.a.batch_stride);
  layout(made->b, b, p.k, p.n, p.b.batch_stride);
  layout(made->c, c, p.m, p.n, p.c.batch_stride);
  cuda::LtWish wish = nullptr;
  ok(library_.wish_create(&wish), "cublasLtMatmulPreferenceCreate");
  const uint64_t room = kWorkspaceBytes;
  cuda::LtChoice choice{};
  int found = 0;
  cuda::LtStatus s = library_.wish_set(wish, cuda::kLtMaxWorkspace, &room, sizeof room);
  const std::pair<int, uint32_t> aligned[] = {{cuda::kLtAlignA, alignment[1]},  // b' is the first factor
                                              {cuda::kLtAlignB, alignment[0]},
                                              {cuda::kLtAlignC, alignment[2]},
                                              {cuda::kLtAlignD, alignment[2]}};
  for (const auto& [what, bytes] : aligned)
    if (s == 0) s = library_.wish_set(wish, what, &bytes, sizeof bytes);
  if (s == 0)
    s = library_.choose(handle_, made->desc, made->b, made->a, made->c, made->c, wish, 1, &choice, &found);
  library_.wish_destroy(wish);
  ok(s, "cublasLtMatmulAlgoGetHeuristic");
  ok(found > 0 ? choice.state : 15, "cublasLtMatmulAlgoGetHeuristic");
  made->algorithm = choice.algorithm;
  kept = std::move(made);
  return *kept;
}

void CudaProducts::run(const CudaProduct& p, const void* a, const void* b, void* c) {
  if (p.batch == 0 || p.m == 0 || p.n == 0) return;
  std::lock_guard lock(mutex_);
  device_.make_current();
  const Prepared& x = prepare(p, {alignment_of(a, p.a, p), alignment_of(b, p.b, p), alignment_of(c, p.c, p)});
  const float one = 1, zero = 0;
  const double wide_one = 1, wide_zero = 0;
  const bool wide = p.dtype == DType::f64;
  const void* alpha = wide ? static_cast<const void*>(&wide_one) : &one;
  const void* beta = wide ? static_cast<const void*>(&wide_zero) : &zero;
  check(library_.matmul(handle_, x.desc, alpha, b, x.b, a, x.a, beta, c, x.c, c, x.c, &x.algorithm,
                        workspace_.data(), workspace_.bytes(), device_.compute()),
        "cublasLtMatmul", p);
}

}  // namespace kiln
