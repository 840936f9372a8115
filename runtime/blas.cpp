// SPDX-License-Identifier: Apache-2.0
// BLIS with one thread per call, from any number of our threads at once. It aborts the process on strides it
// does not know, so only plain row- or column-major-like operands reach it; the rest is copied or looped
// over.
#include "runtime/blas.h"

#include <blis.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "ir/base/error.h"
#include "ir/base/matmul_tile.h"
#include "ir/base/rounding.h"
#include "runtime/arena.h"
#include "runtime/thread_pool.h"

namespace kiln {

namespace {

/// Strides as BLIS wants them: along an extent of 1 any stride is as good as a plain one.
/// False if rows and columns interleave, repeat or run backwards.
bool plain_strides(int64_t rows, int64_t cols, int64_t& rs, int64_t& cs) {
  if (rows == 1 && cols == 1) rs = cs = 1;
  else if (rows == 1) rs = cs * cols;
  else if (cols == 1) cs = rs * rows;
  if (rs <= 0 || cs <= 0) return false;
  return rows == 1 || cols == 1 || cs >= rs * rows || rs >= cs * cols;
}

/// BLIS's path without packing wins for small products; for larger ones it loses up to half, most where rows
/// lie a power of two apart, and sooner where the operand that it walks along rows is stored by columns.
rntm_t one_thread(int64_t work, bool by_columns) {
  rntm_t settings = BLIS_RNTM_INITIALIZER;
  bli_rntm_set_num_threads(1, &settings);
  if (work >= (by_columns ? 1 << 19 : 1 << 21)) bli_rntm_disable_l3_sup(&settings);
  return settings;
}

template <typename T>
void library_gemm(int64_t m, int64_t n, int64_t k, const T* a, int64_t rsa, int64_t csa, const T* b,
                  int64_t rsb, int64_t csb, T* c, int64_t rsc, int64_t csc) {
  const bool by_columns = csc == 1 ? rsb == 1 && csb != 1 : csa == 1 && rsa != 1;
  rntm_t settings = one_thread(m * n * k, by_columns);
  T alpha = 1, beta = 0;
  const auto call = [&](auto gemm) {
    gemm(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, m, n, k, &alpha, const_cast<T*>(a), rsa, csa,
         const_cast<T*>(b), rsb, csb, &beta, c, rsc, csc, nullptr, &settings);
  };
  if constexpr (std::is_same_v<T, float>) call(bli_sgemm_ex);
  else call(bli_dgemm_ex);
}

template <typename T>
void gemm_tile(int64_t m, int64_t n, int64_t k, const T* a, int64_t rsa, int64_t csa, const T* b, int64_t rsb,
               int64_t csb, T* c, int64_t rsc, int64_t csc) {
  const bool plain = k > 0 && plain_strides(m, k, rsa, csa) && plain_strides(k, n, rsb, csb);
  if (plain && plain_strides(m, n, rsc, csc))
    return library_gemm(m, n, k, a, rsa, csa, b, rsb, csb, c, rsc, csc);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      T sum = 0;
      for (int64_t p = 0; p < k; ++p) sum += a[i * rsa + p * csa] * b[p * rsb + j * csb];
      c[i * rsc + j * csc] = sum;
    }
  }
}

/// The dims of blis_sgemm and blis_dgemm.
struct GemmDims {
  int64_t batch, m, n, k, bsa, rsa, csa, bsb, rsb, csb, bsc, rsc, csc, tile_m, tile_n;
  int64_t tasks() const { return batch * ceil_div(m, tile_m) * ceil_div(n, tile_n); }
};

template <typename T>
void gemm_tasks(void* const* buffers, const int64_t* dims, int64_t begin, int64_t end, void*) {
  GemmDims d;
  std::memcpy(&d, dims, sizeof d);
  const int64_t tiles_n = ceil_div(d.n, d.tile_n), tiles = ceil_div(d.m, d.tile_m) * tiles_n;
  for (int64_t task = begin; task < end; ++task) {
    const int64_t batch = task / tiles, tile = task % tiles;
    const int64_t i = tile / tiles_n * d.tile_m, j = tile % tiles_n * d.tile_n;
    const T* a = static_cast<const T*>(buffers[0]) + batch * d.bsa + i * d.rsa;
    const T* b = static_cast<const T*>(buffers[1]) + batch * d.bsb + j * d.csb;
    T* c = static_cast<T*>(buffers[2]) + batch * d.bsc + i * d.rsc + j * d.csc;
    gemm_tile(std::min(d.tile_m, d.m - i), std::min(d.tile_n, d.n - j), d.k, a, d.rsa, d.csa, b, d.rsb, d.csb,
              c, d.rsc, d.csc);
  }
}

void copy_tasks(void* const* buffers, const int64_t* dims, int64_t begin, int64_t end, void*) {
  const int64_t from = begin * dims[1], to = std::min(end * dims[1], dims[0]);
  if (from < to)
    std::memcpy(static_cast<char*>(buffers[1]) + from, static_cast<const char*>(buffers[0]) + from,
                static_cast<size_t>(to - from));
}

void fill_zero_tasks(void* const* buffers, const int64_t* dims, int64_t begin, int64_t end, void*) {
  const int64_t from = begin * dims[1], to = std::min(end * dims[1], dims[0]);
  if (from < to) std::memset(static_cast<char*>(buffers[0]) + from, 0, static_cast<size_t>(to - from));
}

constexpr std::pair<std::string_view, KernelFn> kBuiltins[] = {
    {"blis_dgemm", gemm_tasks<double>},
    {"blis_sgemm", gemm_tasks<float>},
    {"copy", copy_tasks},
    {"fill_zero", fill_zero_tasks},
};

/// Calls body(batch, row) for every row, some rows to a thread. `work` is the cost of one row in elements.
template <typename F>
void for_rows(int64_t batch, int64_t rows, int64_t work, F&& body) {
  constexpr int64_t kLeast = 16384;  // elements that are worth a thread
  parallel_for(batch * rows, std::max<int64_t>(1, kLeast / std::max<int64_t>(work, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t r = begin; r < end; ++r) body(r / rows, r % rows);
               });
}

template <typename T>
T* at(const MatrixView& v, int64_t batch, int64_t row) {
  return static_cast<T*>(v.data) + batch * v.batch_stride + row * v.row_stride;
}

/// Copies `from` (of type S) to `to` (of type D) through a value of type V, which both convert to or from.
template <typename S, typename V, typename D>
void convert(int64_t batch, int64_t rows, int64_t cols, const MatrixView& from, const MatrixView& to) {
  for_rows(batch, rows, cols, [&](int64_t b, int64_t r) {
    const S* in = at<S>(from, b, r);
    D* out = at<D>(to, b, r);
    for (int64_t j = 0; j < cols; ++j) out[j * to.col_stride] = D(static_cast<V>(in[j * from.col_stride]));
  });
}

MatrixView contiguous(std::byte* data, int64_t rows, int64_t cols) { return {data, rows * cols, cols, 1}; }

std::string describe_copies() { return "copies of matmul operands"; }

template <typename T>
void matmul_library(int64_t batch, int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b,
                    MatrixView c) {
  ArenaLease copy_a, copy_b;
  const auto make_plain = [&](MatrixView& v, int64_t rows, int64_t cols, ArenaLease& copy) {
    int64_t rs = v.row_stride, cs = v.col_stride;
    if (plain_strides(rows, cols, rs, cs)) return;
    const int64_t copies = v.batch_stride == 0 ? 1 : batch;
    copy = ArenaPool::shared().lease(sizeof(T) * static_cast<size_t>(copies * rows * cols), false,
                                     describe_copies);
    MatrixView plain = contiguous(copy.data(), rows, cols);
    convert<T, T, T>(copies, rows, cols, v, plain);
    if (copies == 1) plain.batch_stride = 0;
    v = plain;
  };
  if (batch * m * n * k > 0) {
    make_plain(a, m, k, copy_a);
    make_plain(b, k, n, copy_b);
  }
  const MatmulTile tile = matmul_tile(batch, m, n, k);
  const GemmDims d{batch,
                   m,
                   n,
                   k,
                   a.batch_stride,
                   a.row_stride,
                   a.col_stride,
                   b.batch_stride,
                   b.row_stride,
                   b.col_stride,
                   c.batch_stride,
                   c.row_stride,
                   c.col_stride,
                   tile.m,
                   tile.n};
  int64_t dims[sizeof d / sizeof(int64_t)];
  std::memcpy(dims, &d, sizeof d);
  void* const buffers[] = {a.data, b.data, c.data};
  // A call below this many multiply-adds takes a few microseconds: not worth a second thread.
  constexpr int64_t kLeastWork = 100'000;
  const int64_t tile_work =
      std::max<int64_t>(1, std::min(tile.m, m) * std::min(tile.n, n) * std::max<int64_t>(k, 1));
  parallel_for(d.tasks(), ceil_div(kLeastWork, tile_work),
               [&](int64_t begin, int64_t end) { gemm_tasks<T>(buffers, dims, begin, end, nullptr); });
}

/// bf16 and f16: operands widened to f32, the product rounded once.
template <typename T>
void matmul_half(int64_t batch, int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, MatrixView c) {
  const int64_t sizes[] = {batch * m * k, batch * k * n, batch * m * n};
  const ArenaLease wide = ArenaPool::shared().lease(
      sizeof(float) * static_cast<size_t>(sizes[0] + sizes[1] + sizes[2]), false, describe_copies);
  const MatrixView wa = contiguous(wide.data(), m, k);
  const MatrixView wb = contiguous(wide.data() + sizeof(float) * static_cast<size_t>(sizes[0]), k, n);
  const MatrixView wc =
      contiguous(wide.data() + sizeof(float) * static_cast<size_t>(sizes[0] + sizes[1]), m, n);
  convert<T, float, float>(batch, m, k, a, wa);
  convert<T, float, float>(batch, k, n, b, wb);
  matmul_library<float>(batch, m, n, k, wa, wb, wc);
  convert<float, float, T>(batch, m, n, wc, c);
}

/// Integers, row by row in 64-column strips; unsigned inside, so that overflow wraps.
template <typename T>
void matmul_integer(int64_t batch, int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b,
                    MatrixView c) {
  using U = std::make_unsigned_t<T>;
  constexpr int64_t kStrip = 64;
  for_rows(batch, m, n * std::max<int64_t>(k, 1), [&](int64_t i, int64_t row) {
    const T* ra = at<T>(a, i, row);
    T* rc = at<T>(c, i, row);
    for (int64_t j0 = 0; j0 < n; j0 += kStrip) {
      const int64_t width = std::min(kStrip, n - j0);
      U sums[kStrip] = {};
      for (int64_t p = 0; p < k; ++p) {
        const U x = static_cast<U>(ra[p * a.col_stride]);
        const T* rb = at<T>(b, i, p) + j0 * b.col_stride;
        for (int64_t j = 0; j < width; ++j)
          sums[j] = static_cast<U>(sums[j] + uint64_t{x} * static_cast<U>(rb[j * b.col_stride]));
      }
      for (int64_t j = 0; j < width; ++j) rc[(j0 + j) * c.col_stride] = static_cast<T>(sums[j]);
    }
  });
}

}  // namespace

void matmul(DType dtype, int64_t batch, int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b,
            MatrixView c) {
  if (batch == 0 || m == 0 || n == 0) return;
  switch (dtype) {
    case DType::f32: return matmul_library<float>(batch, m, n, k, a, b, c);
    case DType::f64: return matmul_library<double>(batch, m, n, k, a, b, c);
    case DType::f16: return matmul_half<Half>(batch, m, n, k, a, b, c);
    case DType::bf16: return matmul_half<BFloat16>(batch, m, n, k, a, b, c);
    case DType::u8: return matmul_integer<uint8_t>(batch, m, n, k, a, b, c);
    case DType::i32: return matmul_integer<int32_t>(batch, m, n, k, a, b, c);
    case DType::i64: return matmul_integer<int64_t>(batch, m, n, k, a, b, c);
    case DType::boolean: break;
  }
  throw Error(ErrorKind::unsupported,
              "matmul: no product of this dtype; got bool, expected a number (hint: cast to i32)");
}

KernelFn find_builtin(std::string_view name) {
  for (const auto& [known, fn] : kBuiltins)
    if (known == name) return fn;
  return nullptr;
}

}  // namespace kiln
