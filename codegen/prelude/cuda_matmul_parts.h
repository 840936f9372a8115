// SPDX-License-Identifier: Apache-2.0
// What one thread of a block has of a tile of a matrix product: sums in registers, by multiply-adds or by
// tensor cores, and where they lie in the tile.
#pragma once

#include "cuda_arith.h"
#include "cuda_memory.h"
#include "cuda_tiles.h"

// Arrays stay in registers only where every index is known. The simulated device does not care, and compiles
// loops faster.
#ifdef __CUDACC_RTC__
#define KN_UNROLL _Pragma("unroll")
#define KN_ROLL _Pragma("unroll 1")
#else
#define KN_UNROLL
#define KN_ROLL
#endif

namespace kn::matmul {

/// By multiply-adds: M x N elements, in groups of up to 4 neighbours; every element is one chain in the order
/// of k. Tiles hold [k][m] and [k][n].
template <class T, int TileM, int TileN, int M, int N> struct Simt {
  enum : i32 {
    kDown = TileM / M,
    kAcross = TileN / N,
    kThreads = kDown * kAcross,
    kRows = M,
    kCols = N,
    kRowGroup = M < 4 ? M : 4,
    kColGroup = N < 4 ? N : 4,
    kPassRows = kRowGroup,  // see each_of_tile
    kPasses = M / kPassRows,
    kSliceRows = kDown * kPassRows,
    kSliceLine = TileN + 16 / int(sizeof(T))
  };
  T sum[M][N];
  i32 down, across;

  KN_FN Simt() {
    KN_UNROLL
    for (i32 i = 0; i < M; ++i) {
      KN_UNROLL
      for (i32 j = 0; j < N; ++j) sum[i][j] = T(0);
    }
    if constexpr (kAcross % 8 == 0 && kDown % 4 == 0) {  // a warp reads few rows and few columns
      across = warp() % (kAcross / 8) * 8 + lane() % 8;
      down = warp() / (kAcross / 8) * 4 + lane() / 8;
    } else {
      across = thread() % kAcross;
      down = thread() / kAcross;
    }
  }
  KN_FN i32 row(i32 i) const {
    return i / kRowGroup * (kRowGroup * kDown) + down * kRowGroup + i % kRowGroup;
  }
  KN_FN i32 col(i32 j) const {
    return j / kColGroup * (kColGroup * kAcross) + across * kColGroup + j % kColGroup;
  }
  KN_FN T at(i32 i, i32 j) const { return sum[i][j]; }
  KN_FN i32 slice_row(i32 i) const { return down * kRowGroup + i % kRowGroup; }
  KN_FN static i32 row_of(i32 pass, i32 slice_row) { return pass * kSliceRows + slice_row; }

  template <int K, bool, bool, class TileA, class TileB>
  KN_FN void multiply(Shared<T> a, Shared<T> b) {
    // More would need registers that keep a second block off the multiprocessor.
    constexpr int kTogether = M * N >= 64 ? 2 : K;
    KN_ROLL
    for (i32 k = 0; k < K; k += kTogether) {
      KN_UNROLL
      for (i32 i = 0; i < kTogether; ++i) multiply_add<TileA, TileB>(a, b, k + i);
    }
  }

 private:
  template <class TileA, class TileB> KN_FN void multiply_add(Shared<T> a, Shared<T> b, i32 k) {
    T x[M], y[N];
    KN_UNROLL
    for (i32 i = 0; i < M; i += kRowGroup) {
      const auto v = load<kRowGroup>(a + TileA::at(k, row(i)));
      KN_UNROLL
      for (i32 w = 0; w < kRowGroup; ++w) x[i + w] = detail::lane(v, w);
    }
    KN_UNROLL
    for (i32 j = 0; j < N; j += kColGroup) {
      const auto v = load<kColGroup>(b + TileB::at(k, col(j)));
      KN_UNROLL
      for (i32 w = 0; w < kColGroup; ++w) y[j + w] = detail::lane(v, w);
    }
    KN_UNROLL
    for (i32 i = 0; i < M; ++i) {
      KN_UNROLL
      for (i32 j = 0; j < N; ++j) sum[i][j] = detail::fused(x[i], y[j], sum[i][j]);
    }
  }
};

/// By tensor cores: a warp has M x N elements, as 16 x 8 products lay them. Tiles hold [m][k] if AByK, else
/// [k][m]; [n][k] if BByK, else [k][n].
template <int TileM, int TileN, int M, int N> struct Tensor {
  enum : i32 {
    kDown = TileM / M,
    kAcross = TileN / N,
    kThreads = 32 * kDown * kAcross,
    kProductsM = M / 16,
    kProductsN = N / 8,
    kRows = M / 8,
    kCols = N / 4,
    kColGroup = 2,
    kPassRows = kRows % 4 == 0 ? 4 : 2,  // see each_of_tile
    kPasses = kRows / kPassRows,
    kWarpRows = kPassRows * 8,
    kSliceRows = kDown * kWarpRows,
    kSliceLine = TileN + 8
  };
  f32 sum[kProductsM][kProductsN][4];
  i32 down, across;  ///< of the warp's first element

  KN_FN Tensor() : down(warp() / kAcross * M), across(warp() % kAcross * N) {
    KN_UNROLL
    for (i32 i = 0; i < kProductsM; ++i) {
      KN_UNROLL
      for (i32 j = 0; j < kProductsN; ++j) {
        KN_UNROLL
        for (i32 e = 0; e < 4; ++e) sum[i][j][e] = 0.0f;
      }
    }
  }
  KN_FN i32 row(i32 i) const { return down + i * 8 + lane() / 4; }
  KN_FN i32 col(i32 j) const { return across + j / 2 * 8 + lane() % 4 * 2 + j % 2; }
  KN_FN f32 at(i32 i, i32 j) const { return sum[i / 2][j / 2][i % 2 * 2 + j % 2]; }
  KN_FN i32 slice_row(i32 i) const { return down / M * kWarpRows + i % kPassRows * 8 + lane() / 4; }
  KN_FN static i32 row_of(i32 pass, i32 slice_row) {
    return slice_row / kWarpRows * M + pass * kWarpRows + slice_row % kWarpRows;
  }

  template <int K, bool AByK, bool BByK, class TileA, class TileB, class S>
  KN_FN void multiply(Shared<S> a, Shared<S> b) {
    constexpr int kStep = sizeof(S) == 2 ? 16 : 8;
    KN_UNROLL
    for (i32 k = 0; k < K; k += kStep) {
      u32 x[kProductsM][4], y[kProductsN][2];
      KN_UNROLL
      for (i32 i = 0; i < kProductsM; ++i) rows_of<AByK, TileA>(x[i], a, down + i * 16, k);
      KN_UNROLL
      for (i32 j = 0; j < kProductsN; j += 2) cols_of<BByK, TileB>(y[j], y[j + 1], b, across + j * 8, k);
      KN_UNROLL
      for (i32 i = 0; i < kProductsM; ++i) {
        KN_UNROLL
        for (i32 j = 0; j < kProductsN; ++j) {
          if constexpr (detail::same<S, bf16>) mma_bf16(sum[i][j], x[i], y[j]);
          else if constexpr (detail::same<S, f16>) mma_f16(sum[i][j], x[i], y[j]);
          else mma_tf32(sum[i][j], x[i], y[j]);
        }
      }
    }
  }

 private:
  template <class Tile, bool ByK> KN_FN static i32 place(i32 line, i32 k) {
    return ByK ? Tile::at(line, k) : Tile::at(k, line);
  }
  /// The fragment of A whose first row and column are these.
  template <bool ByK, class Tile, class S>
  KN_FN static void rows_of(u32 (&x)[4], Shared<S> a, i32 row, i32 k) {
    const i32 l = lane();
    if constexpr (sizeof(S) == 2) {
      if constexpr (ByK) ldmatrix4(x, a + Tile::at(row + l % 16, k + l / 16 * 8));
      else ldmatrix4_transposed(x, a + Tile::at(k + l % 8 + l / 16 * 8, row + l / 8 % 2 * 8));
    } else {
      KN_UNROLL
      for (i32 e = 0; e < 4; ++e)
        x[e] = tf32(load<1>(a + place<Tile, ByK>(row + l / 4 + e % 2 * 8, k + l % 4 + e / 2 * 4)));
    }
  }
  /// Two fragments of B, of 8 columns each.
  template <bool ByK, class Tile, class S>
  KN_FN static void cols_of(u32 (&x)[2], u32 (&y)[2], Shared<S> b, i32 col, i32 k) {
    const i32 l = lane();
    if constexpr (sizeof(S) == 2) {
      u32 r[4];
      if constexpr (ByK) ldmatrix4(r, b + Tile::at(col + l % 8 + l / 16 * 8, k + l / 8 % 2 * 8));
      else ldmatrix4_transposed(r, b + Tile::at(k + l % 16, col + l / 16 * 8));
      x[0] = r[0], x[1] = r[1], y[0] = r[2], y[1] = r[3];
    } else {
      KN_UNROLL
      for (i32 e = 0; e < 2; ++e) {
        x[e] = tf32(load<1>(b + place<Tile, ByK>(col + l / 4, k + l % 4 + e * 4)));
        y[e] = tf32(load<1>(b + place<Tile, ByK>(col + 8 + l / 4, k + l % 4 + e * 4)));
      }
    }
  }
};

}  // namespace kn::matmul
